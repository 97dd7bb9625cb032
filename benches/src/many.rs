//! Many queue pairs on one core's completion queue, and the consumer that completes their requests.

use crate::{CHAIN, RigError};
use ringside_bus::{Doorbell, Memory, PageSize, Words};
use ringside_cq::{Completion, CompletionQueue, Sides};
use ringside_qp::{CompletionContext, Fragment, QueuePairState, SendFlags, SendQueue, Write};
use ringside_spec::verbs::{CompletionElement, QueueSide};
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Quanta of each send ring: the depth of the published figures.
pub const DEPTH: usize = 64;

/// Slots of the completion queue for any number of queue pairs: at most 32 requests are outstanding
/// at a time.
const SLOTS: usize = 4096;

/// Bytes that each ring takes: its pages.
const RING_BYTES: usize = 4096;

/// Queue pairs that post in turn, in the order in which they were made.
pub struct Many {
    members: Vec<SendQueue>,
    queue: CompletionQueue,
    /// The same ring, as the consumer writes it.
    ring: Words,
    /// Completions written so far: the consumer derives everything else from it, and accesses no
    /// queue pair.
    written: usize,
    /// Requests that a queue pair posts before the next one's turn.
    run: usize,
    /// The queue pair whose turn it is, and the requests left in its turn.
    next: usize,
    left: usize,
    /// The number of turns by which memory is prefetched; 0: no prefetch.
    ahead: usize,
    batch: [Completion; CHAIN],
    fragment: Fragment,
}

impl Many {
    /// Makes `count` queue pairs with rings of a page each in contiguous memory, on huge pages if
    /// available, and a completion queue that holds all their outstanding requests.
    ///
    /// Each posts `run` requests and rings once for them, then the next one does; `run` is a power
    /// of two up to 32. With `ahead` the memory of the queue pair that is due that many turns later
    /// is prefetched.
    pub fn new(count: usize, run: usize, ahead: usize) -> Result<Self, RigError> {
        let doorbells = Memory::allocate(4096, PageSize::FourKiB, None)?;
        let rings = memory(count * RING_BYTES)?;
        let slots = SLOTS;
        let completions = memory(slots * 32 + 64)?;
        let piece = |memory: &Memory, at: usize, length: usize| {
            let words = memory.words(at, length);
            words.ok_or_else(|| RigError("a ring does not fit its memory".to_owned()))
        };
        let ring = piece(&completions, 0, slots * 32)?;
        let shadow = piece(&completions, slots * 32, 64)?;
        let mut queue = CompletionQueue::new(ring.clone(), shadow, count as u32)?;
        let mut members = Vec::with_capacity(count);
        // One doorbell for all, as on a device.
        let doorbell = Doorbell::mapped(&doorbells, 0)
            .ok_or_else(|| RigError("no doorbell at offset 0".to_owned()))?;
        for index in 0..count {
            let number = index as u32;
            let context = CompletionContext::new(number, 1);
            let state = QueuePairState::new(context, number, DEPTH as u32, DEPTH as u32, 0);
            let state = Arc::new(state);
            queue.attach(Arc::clone(&state), Sides::Both)?;
            let words = piece(&rings, index * RING_BYTES, DEPTH * 32)?;
            members.push(SendQueue::new(words, doorbell.clone(), state)?);
        }
        Ok(Self {
            members,
            queue,
            ring,
            written: 0,
            run,
            next: 0,
            left: run,
            ahead,
            batch: [Completion::EMPTY; CHAIN],
            fragment: black_box(Fragment {
                address: 0x7000_0000,
                length_bytes: 8,
                steering_tag: 0x100,
            }),
        })
    }

    /// Posts one request of the queue pair whose turn it is, and rings if it is the turn's last.
    #[inline(always)]
    pub fn post(&mut self, id: u64) -> bool {
        let request = Write {
            fragments: &[self.fragment],
            remote_address: 0x8000_0000,
            remote_key: 0x200,
            immediate: None,
        };
        if self.ahead > 0
            && self.left == self.run
            && let Some(later) = self.members.get(self.next + self.ahead)
        {
            later.prefetch();
        }
        let Some(member) = self.members.get_mut(self.next) else {
            return false;
        };
        let posted = member.post(id, &request, SendFlags::SIGNALLED);
        self.left -= 1;
        if self.left == 0 {
            member.ring_doorbell();
            self.left = self.run;
            self.next += 1;
            if self.next == self.members.len() {
                self.next = 0;
            }
        }
        posted.is_ok()
    }

    /// Completes the next `count` requests in place of the device, oldest first.
    pub fn complete(&mut self, count: usize) {
        let slots = self.queue.slots();
        let (ring, _) = self.ring.as_slice().as_chunks::<4>();
        for _ in 0..count {
            let turn = self.written / self.run;
            let number = (turn % self.members.len()) as u32;
            let posted = turn / self.members.len() * self.run + self.written % self.run;
            let context = CompletionContext::new(number, 1);
            let index = (posted % DEPTH) as u16;
            let element = CompletionElement::success(QueueSide::Send, context.0, number, index);
            let [length, context, source, header] =
                element.encode((self.written / slots).is_multiple_of(2));
            if let Some(slot) = ring.get(self.written % slots) {
                slot[0].store(length, Ordering::Relaxed);
                slot[1].store(context, Ordering::Relaxed);
                slot[2].store(source, Ordering::Relaxed);
                slot[3].store(header, Ordering::Release);
            }
            self.written += 1;
        }
    }

    /// Polls once.
    #[inline(always)]
    pub fn poll(&mut self) -> usize {
        self.queue.poll(&mut self.batch)
    }
}

fn memory(length: usize) -> Result<Memory, RigError> {
    const HUGE: usize = 2 << 20;
    let huge = Memory::allocate(length.next_multiple_of(HUGE), PageSize::TwoMiB, None);
    let ordinary = || Memory::allocate(length.next_multiple_of(4096), PageSize::FourKiB, None);
    Ok(huge.or_else(|_| ordinary())?)
}
