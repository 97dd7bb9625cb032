//! Completion queues: writing elements, telling of them, noticing overflow.

use crate::chip::Context;
use crate::rdma::hmc::Hmc;
use crate::rdma::objects::event_queues::report;
use crate::rdma::ring::{Place, Ring};
use ringside_bus::{Direction, Iova};
use ringside_spec::rdma::events::{
    CQ_SHADOW_ARM_WORD, CQ_SHADOW_HEAD_WORD, CqShadowArm, CqShadowHead,
};
use ringside_spec::rdma::limits::{COMPLETION_BYTES, SHADOW_BYTES};
use ringside_spec::verbs::completion::{CompletionHeader, ExtensionHeader};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{Ordering, fence};

const ELEMENT_WORDS: usize = COMPLETION_BYTES / 8;
const HEADER: usize = ELEMENT_WORDS - 1;
/// Steps of [`CompletionQueue::late_doorbells`] for one doorbell.
const LATE: u8 = 2;

/// The event that software waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::rdma) enum Armed {
    No,
    Solicited,
    Any,
}

/// A completion of a queue pair.
#[derive(Clone, Copy, Debug)]
pub(in crate::rdma) struct Element {
    /// The element's words, valid bit clear.
    pub(in crate::rdma) words: [u64; ELEMENT_WORDS],
    /// Its extension, valid bit clear.
    pub(in crate::rdma) extension: Option<[u64; ELEMENT_WORDS]>,
    /// Solicited, or failed.
    pub(in crate::rdma) notable: bool,
}

/// The result of writing an element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::rdma) enum Written {
    /// It is there.
    Quietly,
    /// It was written, and an event is requested.
    Tell,
    /// There was no room: the queue has overflown.
    Overflow,
    /// It had failed before, or its memory is not accessible.
    Lost,
    /// The host refuses its memory: the queue has failed.
    Refused,
}

/// The settings of a completion queue.
#[derive(Clone, Copy, Debug)]
pub(in crate::rdma) struct CompletionQueueSettings {
    pub(in crate::rdma) number: u32,
    pub(in crate::rdma) place: Place,
    pub(in crate::rdma) size: u32,
    pub(in crate::rdma) shadow: Iova,
    pub(in crate::rdma) completion_context: u64,
    pub(in crate::rdma) event_queue: Option<u16>,
    pub(in crate::rdma) check_overflow: bool,
    pub(in crate::rdma) one_event_at_a_time: bool,
}

/// A completion queue.
pub(in crate::rdma) struct CompletionQueue {
    pub(in crate::rdma) settings: CompletionQueueSettings,
    ring: Ring,
    shadow: Ring,
    next: u32,
    polarity: bool,
    /// Elements written since the ring was taken, and those that software has certainly read.
    written: u64,
    read: u64,
    last_head: u32,
    /// The number of resizes that software has completed once it reads the present ring.
    selected: u64,
    /// It was resized before.
    was_moved: bool,
    pub(in crate::rdma) armed: Armed,
    /// It was armed before.
    was_armed: bool,
    last_sequence: u64,
    /// Doorbells, times [`LATE`], of requests that were found in memory before they arrived.
    late_doorbells: u8,
    /// An event was written and not yet acknowledged.
    event_outstanding: bool,
    /// An event waits for that acknowledgement.
    pub(in crate::rdma) event_waiting: bool,
    /// Completion events written whose acknowledgement has not come yet.
    unacknowledged: u32,
    failed: bool,
    /// the host refused its memory, which was not reported yet
    refused: bool,
    /// Queues (send or receive) that complete here.
    pub(in crate::rdma) users: u32,
}

impl CompletionQueue {
    pub(in crate::rdma) fn new(settings: CompletionQueueSettings) -> Self {
        Self {
            ring: Ring::new(
                settings.place,
                settings.size as usize * ELEMENT_WORDS,
                Direction::Write,
            ),
            shadow: Ring::new(
                Place::Contiguous(settings.shadow),
                SHADOW_BYTES / 8,
                Direction::Read,
            ),
            settings,
            next: 0,
            polarity: true,
            written: 0,
            read: 0,
            last_head: 0,
            selected: 0,
            was_moved: false,
            armed: Armed::No,
            was_armed: false,
            last_sequence: 0,
            late_doorbells: 0,
            event_outstanding: false,
            event_waiting: false,
            unacknowledged: 0,
            failed: false,
            refused: false,
            users: 0,
        }
    }

    /// Pages that a ring of so many entries is resolved to.
    pub(in crate::rdma) fn pages_of(place: Place, size: u32, context: &Context<'_>) -> usize {
        let words = size as usize * ELEMENT_WORDS;
        Ring::pages_of(place, words, Direction::Write, context.memory)
    }

    /// Pages of its ring that are kept.
    pub(in crate::rdma) fn pages(&self) -> usize {
        self.ring.pages()
    }

    /// Finds its memory; false, and a breach, if it is not there.
    #[inline]
    pub(in crate::rdma) fn resolve(&mut self, hmc: &mut Hmc, context: &mut Context<'_>) -> bool {
        let memory = context.memory;
        let found = self
            .ring
            .resolve(hmc, memory)
            .and_then(|()| self.shadow.resolve(hmc, memory));
        if let Err(fault) = found {
            report(context, "completion queue", fault);
            self.refused |= fault.is_refusal();
            return false;
        }
        true
    }

    /// Its memory was refused: it has failed, and that must be reported. Returns true once.
    fn take_refused(&mut self) -> bool {
        let told = std::mem::replace(&mut self.failed, true);
        std::mem::take(&mut self.refused) && !told
    }

    /// Goes on in a new ring, from index 0 and polarity 1 (resize). Until software has completed
    /// the resize, its head is that of the ring before.
    /// Source: irdma `verbs.c`, `__irdma_poll_cq`; `uk.c`, irdma_uk_cq_set_resized_cnt.
    pub(in crate::rdma) fn move_to(&mut self, place: Place, size: u32) {
        let from = match self.was_moved {
            false => self.completed_resizes(),
            true => self.selected,
        };
        self.was_moved = true;
        self.selected = (from + 1) & CqShadowArm::CQ_SELECT_MASK;
        self.settings.place = place;
        self.settings.size = size;
        self.ring = Ring::new(place, size as usize * ELEMENT_WORDS, Direction::Write);
        self.next = 0;
        self.polarity = true;
        self.written = 0;
        self.read = 0;
        self.last_head = 0;
    }

    /// The number of resizes that software has completed, modulo 2^14.
    fn completed_resizes(&self) -> u64 {
        CqShadowArm(self.shadow.load_acquire(CQ_SHADOW_ARM_WORD)).cq_select()
    }

    /// True if software reads the present ring, so that its head is one of that.
    fn is_in_ring(&self) -> bool {
        !self.was_moved || self.completed_resizes() == self.selected
    }

    /// Reads how far software has got.
    fn look_at_head(&mut self, context: &mut Context<'_>) {
        if !self.is_in_ring() {
            return;
        }
        let head = CqShadowHead(self.shadow.load(CQ_SHADOW_HEAD_WORD)).head() as u32;
        let size = self.settings.size;
        let outstanding = self.written - self.read;
        let taken = if head < size {
            u64::from((head + size - self.last_head) % size)
        } else {
            u64::MAX
        };
        if taken > outstanding {
            let number = self.settings.number;
            context.ledger.breach(
                "a completion queue's head is beyond what was written",
                || format!("queue {number}: head {head} of {size}, {outstanding} unread"),
            );
            return;
        }
        self.last_head = head;
        self.read += taken;
    }

    /// Room for `count` more: one slot always stays free, so that full and empty differ.
    #[inline]
    fn has_room(&mut self, count: u64, context: &mut Context<'_>) -> bool {
        let usable = u64::from(self.settings.size).saturating_sub(1);
        if self.written - self.read + count <= usable {
            return true;
        }
        self.look_at_head(context);
        self.written - self.read + count <= usable || !self.settings.check_overflow
    }

    /// Writes an element; its extension goes to the slot after it, and to memory first.
    #[inline]
    pub(in crate::rdma) fn write(
        &mut self,
        element: &Element,
        hmc: &mut Hmc,
        context: &mut Context<'_>,
    ) -> Written {
        let Element {
            words,
            extension,
            notable,
        } = *element;
        let is_there = self.resolve(hmc, context);
        if is_there {
            // An arm request may be in memory while its doorbell is still under way: software that
            // has seen the queue empty after it must not miss this completion.
            self.look_at_arm(false);
        }
        if self.refused || self.failed || !is_there {
            return match self.refused && self.take_refused() {
                true => Written::Refused,
                false => Written::Lost,
            };
        }
        let slots = 1 + u64::from(extension.is_some());
        if !self.has_room(slots, context) {
            self.failed = true;
            let settings = self.settings;
            // The program that does not poll overflows it, and a driver cannot prevent that.
            context
                .ledger
                .remark("a completion queue has overflown", || {
                    format!("queue {} of {} elements", settings.number, settings.size)
                });
            return Written::Overflow;
        }
        let (at, polarity) = (self.next as usize * ELEMENT_WORDS, self.polarity);
        self.advance();
        if let Some(extension) = extension {
            let at = self.next as usize * ELEMENT_WORDS;
            let header = ExtensionHeader(extension[HEADER]).with_valid(self.polarity);
            self.put(at, extension, header.0);
            self.advance();
        }
        let header = CompletionHeader(words[HEADER]).with_valid(polarity);
        self.put(at, words, header.0);
        if self.disarm(notable) || self.is_armed_meanwhile(notable) {
            return Written::Tell;
        }
        Written::Quietly
    }

    /// True if the completion written just now is to be told of: the queue is then no longer armed.
    #[inline(always)]
    fn disarm(&mut self, notable: bool) -> bool {
        let is_due = self.armed == Armed::Any || self.armed == Armed::Solicited && notable;
        if is_due {
            self.armed = Armed::No;
        }
        is_due
    }

    /// True if software armed the queue while the completion was written, and had not read it by
    /// then. It stored its request and found the queue empty between the look at that request and
    /// the write, so neither would see the other.
    ///
    /// A queue that was never armed pays nothing for this: see [`Self::take_arm`].
    #[inline(always)]
    pub(in crate::rdma) fn is_armed_meanwhile(&mut self, notable: bool) -> bool {
        if !self.was_armed {
            return false;
        }
        // The completion is visible before the request is looked at. Software does the same in the
        // other order: one of the two sees the other.
        fence(Ordering::SeqCst);
        self.look_at_arm(false);
        !self.is_read() && self.disarm(notable)
    }

    /// True if software has read everything that was written.
    fn is_read(&self) -> bool {
        let is_in_ring = self.is_in_ring();
        let head = CqShadowHead(self.shadow.load(CQ_SHADOW_HEAD_WORD)).head();
        is_in_ring && head == u64::from(self.next)
    }

    /// Takes the arm request after its doorbell. True if an event is due at once: the request is
    /// the first one, and completions of before are unread, of which software may have missed the
    /// last.
    pub(in crate::rdma) fn take_arm(&mut self) -> bool {
        let is_first = !self.was_armed;
        self.look_at_arm(true);
        is_first && !self.is_read() && self.disarm(true)
    }

    #[inline(always)]
    fn put(&self, at: usize, words: [u64; ELEMENT_WORDS], header: u64) {
        let [first, second, third, _] = words;
        self.ring
            .store_four_release(at, [first, second, third, header]);
    }

    #[inline(always)]
    fn advance(&mut self) {
        self.written += 1;
        self.next += 1;
        if self.next >= self.settings.size {
            self.next = 0;
            self.polarity = !self.polarity;
        }
    }

    /// Takes the arm request from the shadow area. Without a doorbell (`rung` false) it only
    /// counts if its sequence number is new, and its doorbell then counts no more.
    #[inline]
    pub(in crate::rdma) fn look_at_arm(&mut self, rung: bool) {
        let request = CqShadowArm(self.shadow.load_acquire(CQ_SHADOW_ARM_WORD));
        let known = request.arm_sequence() == self.last_sequence;
        if known && !rung {
            return;
        }
        let late = self.late_doorbells;
        self.late_doorbells = match (rung, known) {
            (false, _) => (late + LATE).min(3 * LATE),
            (true, true) => late.saturating_sub(LATE),
            // It may be that of an earlier request: then its own one comes last. Or both were one.
            (true, false) => late.saturating_sub(1),
        };
        if known && late > 0 {
            return;
        }
        self.last_sequence = request.arm_sequence();
        self.was_armed = true;
        if request.arm_next() {
            self.armed = Armed::Any;
        } else if request.arm_next_solicited() {
            self.armed = Armed::Solicited;
        }
    }

    /// True if an event may be written now; else it waits for the acknowledgement.
    pub(in crate::rdma) fn may_tell(&mut self) -> bool {
        if self.settings.one_event_at_a_time && self.event_outstanding {
            self.event_waiting = true;
            return false;
        }
        self.event_outstanding = true;
        self.unacknowledged = self.unacknowledged.saturating_add(1);
        true
    }

    /// Software has taken the event; true if another one waits.
    pub(in crate::rdma) fn acknowledge(&mut self) -> bool {
        self.event_outstanding = false;
        self.unacknowledged = self.unacknowledged.saturating_sub(1);
        std::mem::take(&mut self.event_waiting)
    }
}

/// Completion queues that were destroyed after an event had used their request, and before a new
/// one. Linux's handler of the event may run just after it was stopped for the destruction: it
/// polls, and arms the queue once more. Source: Linux `drivers/infiniband/core/cq.c`, `ib_free_cq`
/// and `ib_cq_completion_workqueue`.
#[derive(Debug, Default)]
pub(in crate::rdma) struct LateArms(BTreeSet<u32>);

impl LateArms {
    /// A queue is destroyed.
    pub(in crate::rdma) fn expect(&mut self, queue: &CompletionQueue) {
        if queue.was_armed && queue.armed == Armed::No {
            self.0.insert(queue.settings.number);
        }
    }

    /// A queue of this number is made.
    pub(in crate::rdma) fn forget(&mut self, number: u32) {
        self.0.remove(&number);
    }

    /// An arm doorbell for a queue that does not exist; false if none was expected.
    pub(in crate::rdma) fn take(&mut self, number: u32) -> bool {
        self.0.remove(&number)
    }
}

/// Acknowledgements that destroyed completion queues still have to come: a driver's interrupt
/// handler may take an event just before the queue is destroyed and acknowledge it just after.
/// Source: irdma `hw.c`, `irdma_process_ceq`; `ctrl.c`, `irdma_sc_process_ceq`.
#[derive(Debug, Default)]
pub(in crate::rdma) struct LateAcknowledgements(BTreeMap<u32, u32>);

impl LateAcknowledgements {
    /// A queue is destroyed.
    pub(in crate::rdma) fn expect(&mut self, queue: &CompletionQueue) {
        if queue.unacknowledged > 0 {
            let late = self.0.entry(queue.settings.number).or_default();
            *late = late.saturating_add(queue.unacknowledged);
        }
    }

    /// An acknowledgement for a queue that does not exist; false if none was expected.
    pub(in crate::rdma) fn take(&mut self, number: u32) -> bool {
        match self.0.get_mut(&number) {
            None => false,
            Some(late) => {
                *late -= 1;
                if *late == 0 {
                    self.0.remove(&number);
                }
                true
            }
        }
    }
}

#[cfg(test)]
mod tests;
