//! Receives shared by many queue pairs: a pool of buffers that feeds their receive queues.
//!
//! The E810 has no shared receive queue. Each member's own queue is kept filled up to a window from
//! one pool: a buffer that a member's message took is replaced from the pool at once. What a failed
//! member had not used goes back to the pool, so each receive completes exactly once.
//!
//! The queue pair's completion queue says which member took a buffer; [`SharedReceives::consumed`]
//! is to be called for each receive that completes.

use crate::{PostReceiveError, ReceiveQueue};
use ringside_spec::verbs::Fragment;
use ringside_spec::verbs::sizes::MAXIMUM_FRAGMENTS;

/// A pool of receives and the receive queues that it feeds. `Send`, not `Sync`.
#[derive(Debug)]
pub struct SharedReceives {
    /// The caller's number and the count of fragments of each receive that waits.
    waiting: Box<[(u64, usize)]>,
    /// Their fragments, `stride` places each.
    fragments: Box<[Fragment]>,
    stride: usize,
    mask: usize,
    head: usize,
    tail: usize,
    capacity: u64,
    /// Posted and not consumed, those in members' queues included.
    left: u64,
    /// Below this number the limit is reached; 0: nobody asks.
    limit: u64,
    limit_reached: bool,
    members: Vec<Option<Member>>,
    /// By number of a queue pair: its place among the members, plus 1.
    places: Box<[u32]>,
    /// Places of members that miss a receive, once for each.
    hungry: Vec<u32>,
}

#[derive(Debug)]
struct Member {
    queue: ReceiveQueue,
    /// Receives of it that completed: the position of the next.
    taken: u64,
}

/// A queue pair that can't be fed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MemberError {
    /// Its number is beyond the table.
    #[error("queue pair {number}; the shared receive queue was made for numbers below {numbers}")]
    NumberTooHigh {
        /// the number
        number: u32,
        /// numbers that there are
        numbers: usize,
    },
    /// It is fed already, or has receives of its own.
    #[error(
        "queue pair {number} has {receives} receives of its own: share it before any is posted"
    )]
    InUse {
        /// the number
        number: u32,
        /// receives posted
        receives: u32,
    },
    /// Its elements are too small.
    #[error(
        "queue pair {number} takes {fragments} fragments a receive, the pool has up to {needed}"
    )]
    TooFewFragments {
        /// the number
        number: u32,
        /// fragments that it takes
        fragments: usize,
        /// fragments that the pool may have
        needed: usize,
    },
}

impl SharedReceives {
    /// A pool for `capacity` receives of up to `fragments` pieces, for queue pairs with numbers
    /// below `numbers`.
    ///
    /// Range: at least 1 receive; 1..=13 fragments. Allocates all that posting will ever need.
    #[must_use]
    pub fn new(capacity: u32, fragments: usize, numbers: u32) -> Self {
        let capacity = capacity.max(1);
        let slots = (capacity as usize).next_power_of_two();
        let stride = fragments.clamp(1, MAXIMUM_FRAGMENTS);
        Self {
            waiting: vec![(0, 0); slots].into_boxed_slice(),
            fragments: vec![Fragment::default(); slots * stride].into_boxed_slice(),
            stride,
            mask: slots - 1,
            head: 0,
            tail: 0,
            capacity: capacity.into(),
            left: 0,
            limit: 0,
            limit_reached: false,
            members: Vec::new(),
            places: vec![0; numbers as usize].into_boxed_slice(),
            hungry: Vec::new(),
        }
    }

    /// Posts a receive for whichever member gets a message first.
    ///
    /// Errors: [`PostReceiveError::QueueFull`] (poll, then retry); the others are the caller's
    /// mistakes.
    #[inline]
    pub fn post(&mut self, id: u64, fragments: &[Fragment]) -> Result<(), PostReceiveError> {
        if self.left >= self.capacity {
            return Err(PostReceiveError::QueueFull);
        }
        match fragments {
            [one] if one.length_bytes <= Fragment::MAXIMUM_BYTES => {}
            several => self.check(several)?,
        }
        self.left += 1;
        if let Some(place) = self.hungry.pop() {
            return self.feed(place, id, fragments);
        }
        self.put(id, fragments);
        Ok(())
    }

    #[cold]
    fn check(&self, fragments: &[Fragment]) -> Result<(), PostReceiveError> {
        if fragments.len() > self.stride {
            return Err(PostReceiveError::TooManyFragments {
                given: fragments.len(),
                maximum: self.stride,
            });
        }
        let longest = fragments.iter().map(|piece| piece.length_bytes).max();
        match longest.filter(|&bytes| bytes > Fragment::MAXIMUM_BYTES) {
            Some(length_bytes) => Err(PostReceiveError::FragmentTooLong { length_bytes }),
            None => Ok(()),
        }
    }

    /// Puts a receive into the pool; there is room, because `left` is below the capacity.
    #[inline(always)]
    fn put(&mut self, id: u64, fragments: &[Fragment]) {
        let slot = self.head & self.mask;
        self.head = self.head.wrapping_add(1);
        let first = slot * self.stride;
        if let (Some(place), Some(room)) = (
            self.waiting.get_mut(slot),
            self.fragments.get_mut(first..first + self.stride),
        ) {
            *place = (id, fragments.len());
            if let ([only], [first, ..]) = (fragments, &mut *room) {
                *first = *only;
            } else {
                for (to, from) in room.iter_mut().zip(fragments) {
                    *to = *from;
                }
            }
        }
    }

    /// Gives a receive to a member that misses one.
    #[inline(always)]
    fn feed(
        &mut self,
        place: u32,
        id: u64,
        fragments: &[Fragment],
    ) -> Result<(), PostReceiveError> {
        if let Some(Some(member)) = self.members.get_mut(place as usize)
            && member.queue.post(id, fragments).is_ok()
        {
            return Ok(());
        }
        // The member is gone, or its queue is full: the next one, or the pool.
        self.feed_another(id, fragments)
    }

    #[cold]
    fn feed_another(&mut self, id: u64, fragments: &[Fragment]) -> Result<(), PostReceiveError> {
        match self.hungry.pop() {
            Some(place) => self.feed(place, id, fragments),
            None => {
                self.put(id, fragments);
                Ok(())
            }
        }
    }

    /// A receive of this queue pair completed, with data or with an error of its own: its place is
    /// filled from the pool. False if the queue pair is no member.
    #[inline(always)]
    pub fn consumed(&mut self, queue_pair: u32) -> bool {
        let Some(place) = self.place_of(queue_pair) else {
            return false;
        };
        self.left -= 1;
        if self.left < self.limit {
            self.reach_limit();
        }
        let Some(Some(member)) = self.members.get_mut(place as usize) else {
            return false;
        };
        member.taken += 1;
        if self.tail == self.head {
            self.hungry.push(place);
            return true;
        }
        let slot = self.tail & self.mask;
        let first = slot * self.stride;
        if let Some(&(id, count)) = self.waiting.get(slot)
            && let Some(pieces) = self.fragments.get(first..first + count)
            && member.queue.post(id, pieces).is_ok()
        {
            self.tail = self.tail.wrapping_add(1);
        }
        true
    }

    /// A receive of this queue pair was flushed unused: it goes back to the pool, and the queue
    /// pair is fed no more. False if the queue pair is no member.
    pub fn returned(&mut self, queue_pair: u32, id: u64) -> bool {
        let Some(place) = self.place_of(queue_pair) else {
            return false;
        };
        let Some(Some(member)) = self.members.get_mut(place as usize) else {
            return false;
        };
        let position = member.taken;
        member.taken += 1;
        let pieces = member.queue.fragments_at(position);
        self.give_to_anyone(id, &pieces, place);
        true
    }

    /// Feeds another member than `but`, or the pool.
    fn give_to_anyone(&mut self, id: u64, fragments: &[Fragment], but: u32) {
        self.hungry.retain(|place| *place != but);
        // Neither can fail: the fragments were accepted before, and there is room.
        let _ = self.feed_another(id, fragments);
    }

    fn place_of(&self, queue_pair: u32) -> Option<u32> {
        self.places
            .get(queue_pair as usize)
            .and_then(|place| place.checked_sub(1))
    }

    /// Makes a queue pair's receive queue a member, with up to `window` receives at a time.
    ///
    /// Control path: allocates. Errors: [`MemberError`], with the queue.
    pub fn add(
        &mut self,
        queue_pair: u32,
        queue: ReceiveQueue,
        window: u32,
    ) -> Result<(), (MemberError, Box<ReceiveQueue>)> {
        let numbers = self.places.len();
        let number = queue_pair;
        let error = if queue_pair as usize >= numbers {
            MemberError::NumberTooHigh { number, numbers }
        } else if queue.used() > 0 || self.place_of(queue_pair).is_some() {
            let receives = queue.used();
            MemberError::InUse { number, receives }
        } else if queue.maximum_fragments() < self.stride {
            MemberError::TooFewFragments {
                number,
                fragments: queue.maximum_fragments(),
                needed: self.stride,
            }
        } else {
            self.insert(queue_pair, queue, window);
            return Ok(());
        };
        Err((error, Box::new(queue)))
    }

    fn insert(&mut self, queue_pair: u32, queue: ReceiveQueue, window: u32) {
        let window = window.clamp(1, queue.capacity());
        let taken = queue.state().receive.tail();
        let member = Some(Member { queue, taken });
        let free = self.members.iter().position(Option::is_none);
        let place = free.unwrap_or(self.members.len());
        match self.members.get_mut(place) {
            Some(empty) => *empty = member,
            None => self.members.push(member),
        }
        if let Some(entry) = self.places.get_mut(queue_pair as usize) {
            *entry = place as u32 + 1;
        }
        self.hungry.reserve(window as usize);
        for _ in 0..window {
            self.hungry.push(place as u32);
        }
        while self.tail != self.head
            && let Some(place) = self.hungry.pop()
        {
            let slot = self.tail & self.mask;
            let first = slot * self.stride;
            let Some(&(id, count)) = self.waiting.get(slot) else {
                break;
            };
            let pieces: Vec<Fragment> = self
                .fragments
                .get(first..first + count)
                .unwrap_or(&[])
                .to_vec();
            self.tail = self.tail.wrapping_add(1);
            let _ = self.feed(place, id, &pieces);
        }
    }

    /// Takes a queue pair out that the device has destroyed; what it had not used goes back to the
    /// pool. Returns how many that were; nothing if it is no member.
    pub fn remove(&mut self, queue_pair: u32) -> Option<usize> {
        let place = self.place_of(queue_pair)?;
        let member = self.members.get_mut(place as usize)?.take()?;
        if let Some(entry) = self.places.get_mut(queue_pair as usize) {
            *entry = 0;
        }
        self.hungry.retain(|other| *other != place);
        let outstanding = &member.queue.state().receive;
        let unused = member.taken.max(outstanding.tail())..outstanding.head();
        let mut count = 0;
        for position in unused {
            if let Some(request) = outstanding.at(position) {
                let pieces = member.queue.fragments_at(position);
                self.give_to_anyone(request.id, &pieces, place);
                count += 1;
            }
        }
        Some(count)
    }

    /// Asks to be told once fewer than `receives` are left; 0 takes that back.
    pub fn arm_limit(&mut self, receives: u32) {
        self.limit = receives.into();
        self.limit_reached = false;
        if self.left < self.limit {
            self.reach_limit();
        }
    }

    #[cold]
    fn reach_limit(&mut self) {
        self.limit = 0;
        self.limit_reached = true;
    }

    /// Whether the limit was reached since it was armed; once.
    pub fn take_limit(&mut self) -> bool {
        std::mem::take(&mut self.limit_reached)
    }

    /// Receives posted and not consumed, those in members' queues included.
    #[must_use]
    pub fn left(&self) -> u32 {
        self.left as u32
    }

    /// Queue pairs that are fed.
    #[must_use]
    pub fn members(&self) -> usize {
        self.members.iter().flatten().count()
    }
}

#[cfg(test)]
mod tests;
