//! Many queue pairs on one core's completion queue, and the consumer that completes their requests.

use crate::{CHAIN, RigError};
use ringside_bus::{Doorbell, Memory, PageSize, Words};
use ringside_cq::{Completion, CompletionQueue, Sides};
use ringside_qp::{CompletionContext, Fragment, QueuePairState, SendFlags, SendQueue, Write};
use ringside_spec::verbs::completion::CompletionHeader;
use ringside_spec::verbs::{CompletionElement, QueueSide};
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Quanta of each send ring: the depth that figures are given for.
pub const DEPTH: usize = 64;

/// Bytes that each ring takes: its pages.
const RING_BYTES: usize = 4096;

/// A queue pair and what the consumer knows of it.
struct Member {
    send: SendQueue,
    /// Words of a success without its index and valid bit.
    plain: [u64; 4],
    /// Requests completed so far.
    completed: u64,
}

/// Queue pairs that post in turn.
pub struct Many {
    members: Vec<Member>,
    queue: CompletionQueue,
    /// The same ring, as the consumer writes it.
    ring: Words,
    written: usize,
    next: usize,
    batch: [Completion; CHAIN],
    fragment: Fragment,
}

impl Many {
    /// `count` queue pairs with rings of a page each in one piece of memory, on huge pages where
    /// there are any, and a completion queue that holds all that they can have outstanding.
    pub fn new(count: usize) -> Result<Self, RigError> {
        let doorbells = Memory::allocate(4096, PageSize::FourKiB, None)?;
        let rings = memory(count * RING_BYTES)?;
        let slots = (2 * count * DEPTH).next_power_of_two();
        let completions = memory(slots * 32 + 64)?;
        let piece = |memory: &Memory, at: usize, length: usize| {
            let words = memory.words(at, length);
            words.ok_or_else(|| RigError("a ring does not fit its memory".to_owned()))
        };
        let ring = piece(&completions, 0, slots * 32)?;
        let shadow = piece(&completions, slots * 32, 64)?;
        let mut queue = CompletionQueue::new(ring.clone(), shadow, count as u32)?;
        let mut members = Vec::with_capacity(count);
        for index in 0..count {
            let number = index as u32;
            let context = CompletionContext::new(number, 1);
            let state = QueuePairState::new(context, number, DEPTH as u32, DEPTH as u32, 0);
            let state = Arc::new(state);
            queue.attach(Arc::clone(&state), Sides::Both)?;
            let doorbell = Doorbell::mapped(&doorbells, 0)
                .ok_or_else(|| RigError("no doorbell at offset 0".to_owned()))?;
            let words = piece(&rings, index * RING_BYTES, DEPTH * 32)?;
            let element = CompletionElement::success(QueueSide::Send, context.0, number, 0);
            members.push(Member {
                send: SendQueue::new(words, doorbell, state)?,
                plain: element.encode(false),
                completed: 0,
            });
        }
        Ok(Self {
            members,
            queue,
            ring,
            written: 0,
            next: 0,
            batch: [Completion::EMPTY; CHAIN],
            fragment: black_box(Fragment {
                address: 0x7000_0000,
                length_bytes: 8,
                steering_tag: 0x100,
            }),
        })
    }

    /// One request of the next queue pair, with its doorbell; and on to the queue pair after it.
    #[inline(always)]
    pub fn post(&mut self, id: u64) -> bool {
        let request = Write {
            fragments: &[self.fragment],
            remote_address: 0x8000_0000,
            remote_key: 0x200,
            immediate: None,
        };
        let index = self.next;
        self.next += 1;
        if self.next == self.members.len() {
            self.next = 0;
        }
        let Some(member) = self.members.get_mut(index) else {
            return false;
        };
        let posted = member.send.post(id, &request, SendFlags::SIGNALLED);
        member.send.ring_doorbell();
        posted.is_ok()
    }

    /// The device's part: completes the last `count` requests, oldest first.
    pub fn complete(&mut self, count: usize) {
        let members = self.members.len();
        let first = (self.next + members - count % members) % members;
        let slots = self.queue.slots();
        for place in 0..count {
            let Some(member) = self.members.get_mut((first + place) % members) else {
                return;
            };
            let [length, context, source, header] = member.plain;
            let header = CompletionHeader(header)
                .with_element_index(member.completed % DEPTH as u64)
                .with_valid((self.written / slots).is_multiple_of(2));
            member.completed += 1;
            let (ring, _) = self.ring.as_slice().as_chunks::<4>();
            if let Some(slot) = ring.get(self.written % slots) {
                slot[0].store(length, Ordering::Relaxed);
                slot[1].store(context, Ordering::Relaxed);
                slot[2].store(source, Ordering::Relaxed);
                slot[3].store(header.0, Ordering::Release);
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
