//! Replacing the ring of a completion queue, and counting what waits in it.

use super::{CompletionQueue, header_of};
use crate::completion::Completion;
use ringside_bus::{ReadRing, ZeroedRing};
use ringside_spec::rdma::events::{CQ_SHADOW_ARM_WORD, CqShadowArm};
use ringside_spec::verbs::QUANTUM_WORDS;
use ringside_spec::verbs::completion::CompletionHeader;

impl CompletionQueue {
    /// Switches to a new ring. The device writes it from its first slot on, once it has completed
    /// the command that names it. Unread completions of the old ring are taken out and delivered
    /// first.
    ///
    /// `ring` comes from [`CompletionQueue::check_ring`], called before the command. Control path:
    /// allocates.
    /// Source: irdma `uk.c`, irdma_uk_cq_resize, irdma_uk_cq_set_resized_cnt.
    pub fn replace(&mut self, ring: ZeroedRing<QUANTUM_WORDS>) {
        // Flushed requests are delivered later: the new ring may hold completions that precede
        // them.
        self.is_replacing = true;
        // Requests of other cores are read meanwhile, and may drop some of them.
        self.moving = std::mem::take(&mut self.backlog);
        self.empty_ring();
        self.is_replacing = false;
        self.backlog = std::mem::take(&mut self.moving);
        self.ring = ReadRing::from(ring);
        self.valid = CompletionHeader::VALID_MASK;
        // Further than any slot of the former ring.
        self.passes = self.passes.wrapping_add(2);
        self.stalled = false;
        // The head is that of the new ring before the device takes it for one.
        self.publish_head();
        let arm = CqShadowArm(self.shadow.load(CQ_SHADOW_ARM_WORD));
        let selected = (arm.cq_select() + 1) % (CqShadowArm::CQ_SELECT_MASK + 1);
        let arm = arm.with_cq_select(selected);
        self.shadow.store_release(CQ_SHADOW_ARM_WORD, arm.0);
        self.expect();
    }

    /// Takes all completions out of the ring, for later.
    ///
    /// One at a time: requests of other cores are read only while nothing is in the batch, so that
    /// a queue pair that they detach leaves none.
    fn empty_ring(&mut self) {
        let start = self.position();
        let mut place = Completion::EMPTY;
        while self.poll_all(std::slice::from_mut(&mut place), 0) == 1 {
            self.count_flushed(&place);
            self.moving.push_back(place);
            // One slot can stand for many completions: slots are counted. The loop ends even if the
            // device keeps writing, and once other cores that post to a flushed queue pair learn
            // of its failure.
            let read = self.position().wrapping_sub(start);
            let limit = match self.drain {
                Some(_) => 2 * self.slots(),
                None => self.slots(),
            };
            if read >= limit {
                break;
            }
        }
    }

    /// Counts a flushed receive at its queue pair, if a shared receive queue feeds that.
    fn count_flushed(&self, taken: &Completion) {
        let flushed = taken.is_flushed_receive().then(|| taken.queue_pair());
        let fed = flushed.and_then(|number| self.table.receiving(number));
        if let Some(fed) = fed.filter(|fed| fed.keeps_receives()) {
            fed.count_flushed_in_former_ring();
        }
    }

    /// Completions that the device has written and no poll has taken. Reads the ring: as long as
    /// there are such.
    #[must_use]
    pub fn waiting(&self) -> usize {
        let (mut ahead, mut found) = (0, 0);
        while ahead < self.slots() {
            let header = header_of(self.ring.ahead(ahead));
            let in_next_pass = self.ring.index() + ahead >= self.slots();
            if self.is_there(header) == in_next_pass {
                break;
            }
            found += 1;
            ahead += 1 + usize::from(header.extended());
        }
        found + self.backlog.len()
    }

    /// Completions from a ring that the queue left, not delivered yet.
    pub fn backlog(&self) -> impl Iterator<Item = &Completion> {
        self.backlog.iter()
    }
}
