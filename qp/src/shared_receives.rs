//! Receives shared by many queue pairs: a pool of buffers that feeds their receive queues.
//!
//! The E810 has no shared receive queue. Each member's own queue is kept filled up to a window: what
//! a member's messages took is replaced by what is posted next, or from the pool once half a window
//! is missing. What a failed member had not used goes back to the pool, so each receive completes
//! exactly once.
//!
//! The queue pair's completion queue says which member took a buffer; [`SharedReceives::consumed`]
//! is to be called for each receive that completes.

use crate::state::QUEUE_PAIR_NUMBERS;
use crate::{PostReceiveError, ReceiveQueue};
use ringside_bus::Table;
use ringside_spec::verbs::Fragment;
use ringside_spec::verbs::sizes::MAXIMUM_FRAGMENTS;

/// A pool of receives and the receive queues that it feeds. `Send`, not `Sync`.
///
/// The common case does not go through the pool: a receive is posted to a member that misses one,
/// and a member whose receive was taken is noted as missing one. Only when enough are missing, and
/// receives wait in the pool, they are given out.
#[derive(Debug)]
pub struct SharedReceives {
    /// The number of the queue pair that missed a receive last, if it is not in the list: a receive
    /// that is posted next goes there. Else [`NOBODY`], or [`IN_THE_LIST`].
    last: u32,
    /// Receive queues of members, by number of the queue pair. There are more places than numbers.
    members: Table<Member>,
    /// Numbers of members that miss a receive, once for each; the first `missing` of them count.
    /// It is as long as may be missing before something has to be done: filling it up is the
    /// common case, and its end the other.
    hungry: Vec<u32>,
    missing: usize,
    /// Places in members' queues, filled and missing.
    places: usize,
    /// So many may be missing while receives wait in the pool: half the smallest window.
    patience: usize,
    pool: Pool,
    capacity: usize,
    /// Queue pairs have numbers below this.
    numbers: usize,
    /// Below this number the limit is reached; 0: nobody asks.
    limit: usize,
    limit_reached: bool,
    /// Nothing is given out any more, and nothing taken.
    closed: bool,
}

/// The receive queue of a member, or none.
type Member = Option<Box<ReceiveQueue>>;

/// Nobody misses a receive besides those in the list. Its place in the table is the last one, which
/// no member has.
const NOBODY: u32 = u32::MAX;
/// The same; and whoever misses one next has to be attended to at once.
const IN_THE_LIST: u32 = u32::MAX / 2;

/// Receives that wait.
#[derive(Debug)]
struct Pool {
    /// The caller's number and the count of fragments.
    waiting: Box<[(u64, usize)]>,
    /// Their fragments, `stride` places each.
    fragments: Box<[Fragment]>,
    stride: usize,
    head: usize,
    tail: usize,
}

impl Pool {
    fn new(capacity: usize, stride: usize) -> Self {
        let slots = capacity.next_power_of_two();
        Self {
            waiting: vec![(0, 0); slots].into_boxed_slice(),
            fragments: vec![Fragment::default(); slots * stride].into_boxed_slice(),
            stride,
            head: 0,
            tail: 0,
        }
    }

    fn count(&self) -> usize {
        self.head.wrapping_sub(self.tail)
    }

    /// There is room: what is posted and not consumed never exceeds the capacity here.
    fn put(&mut self, id: u64, fragments: &[Fragment]) {
        let slot = self.head & (self.waiting.len() - 1);
        self.head = self.head.wrapping_add(1);
        let first = slot * self.stride;
        if let (Some(place), Some(room)) = (
            self.waiting.get_mut(slot),
            self.fragments.get_mut(first..first + self.stride),
        ) {
            *place = (id, fragments.len());
            for (to, from) in room.iter_mut().zip(fragments) {
                *to = *from;
            }
        }
    }

    fn oldest(&self) -> Option<(u64, &[Fragment])> {
        if self.count() == 0 {
            return None;
        }
        let slot = self.tail & (self.waiting.len() - 1);
        let first = slot * self.stride;
        let &(id, count) = self.waiting.get(slot)?;
        Some((id, self.fragments.get(first..first + count)?))
    }

    /// Makes room for so many; what waits keeps its order.
    fn grow(&mut self, capacity: usize) {
        if capacity <= self.waiting.len() {
            return;
        }
        let mut larger = Self::new(capacity, self.stride);
        while let Some((id, fragments)) = self.oldest() {
            larger.put(id, fragments);
            self.drop_oldest();
        }
        *self = larger;
    }

    fn drop_oldest(&mut self) {
        self.tail = self.tail.wrapping_add(1);
    }
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
    /// below `numbers`. More are taken while members miss some.
    ///
    /// Range: at least 1 receive; 1..=13 fragments. Allocates all that posting will ever need.
    #[must_use]
    pub fn new(capacity: u32, fragments: usize, numbers: u32) -> Self {
        let capacity = capacity.max(1) as usize;
        let numbers = numbers.min(QUEUE_PAIR_NUMBERS);
        Self {
            last: NOBODY,
            members: Table::new(numbers as usize + 1, |_| None),
            hungry: Vec::new(),
            missing: 0,
            places: 0,
            patience: usize::MAX,
            pool: Pool::new(capacity, fragments.clamp(1, MAXIMUM_FRAGMENTS)),
            capacity,
            numbers: numbers as usize,
            limit: 0,
            limit_reached: false,
            closed: false,
        }
    }

    /// Posts a receive for whichever member gets a message first.
    ///
    /// Errors: [`PostReceiveError::QueueFull`] (poll, then retry); the others are the caller's
    /// mistakes.
    #[inline(always)]
    pub fn post(&mut self, id: u64, fragments: &[Fragment]) -> Result<(), PostReceiveError> {
        if let Some(queue) = self.members.at_mut(self.last as usize)
            && queue.post(id, fragments).is_ok()
        {
            self.last = NOBODY;
            return Ok(());
        }
        self.post_to_listed(id, fragments)
    }

    /// Who missed one last is nobody: the next one in the list gets it.
    #[cold]
    fn post_to_listed(&mut self, id: u64, fragments: &[Fragment]) -> Result<(), PostReceiveError> {
        let missing = self.missing.wrapping_sub(1);
        if let Some(number) = self.hungry.get(missing)
            && let Some(queue) = self.members.at_mut(*number as usize)
            && queue.post(id, fragments).is_ok()
        {
            self.missing = missing;
            return Ok(());
        }
        self.post_aside(id, fragments)
    }

    /// Nobody misses one, or what is noted as missing one is no member.
    #[cold]
    fn post_aside(&mut self, id: u64, fragments: &[Fragment]) -> Result<(), PostReceiveError> {
        let before = self.missing + usize::from(self.is_last_known());
        self.forget_others();
        if (1..before).contains(&self.missing) {
            return self.post(id, fragments);
        }
        self.post_to_pool(id, fragments)
    }

    fn post_to_pool(&mut self, id: u64, fragments: &[Fragment]) -> Result<(), PostReceiveError> {
        let maximum = self.pool.stride;
        if fragments.len() > maximum {
            let given = fragments.len();
            return Err(PostReceiveError::TooManyFragments { given, maximum });
        }
        let longest = fragments.iter().map(|piece| piece.length_bytes).max();
        if let Some(length_bytes) = longest.filter(|&bytes| bytes > Fragment::MAXIMUM_BYTES) {
            return Err(PostReceiveError::FragmentTooLong { length_bytes });
        }
        if self.left() as usize >= self.capacity || self.pool.count() >= self.pool.waiting.len() {
            return Err(PostReceiveError::QueueFull);
        }
        self.pool.put(id, fragments);
        self.set_trigger();
        Ok(())
    }

    /// A receive of this queue pair completed, with data or with an error of its own: it misses one
    /// now, if it is a member.
    ///
    /// Range: a number below that for which this was made.
    #[inline(always)]
    pub fn consumed(&mut self, queue_pair: u32) {
        if self.last == NOBODY {
            self.last = queue_pair;
            return;
        }
        self.consumed_too(queue_pair);
    }

    /// One more misses one: who was the last goes into the list.
    #[cold]
    fn consumed_too(&mut self, queue_pair: u32) {
        let listed = match self.is_last_known() {
            true => std::mem::replace(&mut self.last, queue_pair),
            false => queue_pair,
        };
        match self.hungry.get_mut(self.missing) {
            Some(place) => {
                *place = listed;
                self.missing += 1;
            }
            None => self.consumed_aside(listed),
        }
    }

    /// True if somebody misses a receive who is not in the list.
    fn is_last_known(&self) -> bool {
        self.last != NOBODY && self.last != IN_THE_LIST
    }

    /// So many are missing that something has to be done.
    #[cold]
    fn consumed_aside(&mut self, queue_pair: u32) {
        if self.closed {
            return;
        }
        self.forget_others();
        if is_member(&self.members, queue_pair) {
            self.note_missing(queue_pair);
        }
        self.attend();
    }

    fn note_missing(&mut self, queue_pair: u32) {
        if self.hungry.len() <= self.missing {
            // Within what was reserved.
            self.hungry.resize(self.missing + 1, 0);
        }
        if let Some(place) = self.hungry.get_mut(self.missing) {
            *place = queue_pair;
            self.missing += 1;
        }
    }

    /// The limit was reached, or receives wait that members miss.
    #[cold]
    fn attend(&mut self) {
        self.forget_others();
        if self.limit > 0 && (self.left() as usize) < self.limit {
            self.limit = 0;
            self.limit_reached = true;
        }
        if self.missing >= self.patience {
            self.feed();
        }
        self.set_trigger();
    }

    /// Gives out what waits to those that miss some.
    fn feed(&mut self) {
        if self.closed {
            return;
        }
        while let Some((id, fragments)) = self.pool.oldest()
            && self.missing > 0
        {
            self.missing -= 1;
            let number = self.hungry.get(self.missing).copied().unwrap_or(u32::MAX);
            if let Some(Some(queue)) = self.members.get_mut(number as usize)
                && queue.post(id, fragments).is_ok()
            {
                self.pool.drop_oldest();
            }
        }
        self.set_trigger();
    }

    fn set_trigger(&mut self) {
        let to_feed = match self.pool.count() {
            0 => usize::MAX,
            _ => self.patience,
        };
        let to_tell = match self.limit {
            0 => usize::MAX,
            limit => (self.pool.count() + self.places + 1).saturating_sub(limit),
        };
        // The one that makes them so many is the first that finds no place in the list, which has
        // room for all before it but the last. A full list is looked through for queue pairs that are
        // no members.
        let so_many = to_feed.min(to_tell);
        let before = so_many.saturating_sub(2).min(self.places);
        self.hungry.resize(before.max(self.missing), 0);
        if !self.is_last_known() {
            let every_one = so_many < self.missing.saturating_add(2) || self.closed;
            self.last = if every_one { IN_THE_LIST } else { NOBODY };
        }
    }

    /// Ends the service: nothing is given out any more, and every post is refused as if the pool
    /// were full. What waits is taken with [`SharedReceives::take_waiting`]; what members have not
    /// used comes back as before.
    pub fn close(&mut self) {
        self.closed = true;
        self.capacity = 0;
        self.missing = 0;
        self.hungry.clear();
        self.last = IN_THE_LIST;
    }

    /// True if the service has ended.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.closed
    }

    /// Takes the oldest receive that waits; the caller's number.
    pub fn take_waiting(&mut self) -> Option<u64> {
        let (id, _) = self.pool.oldest()?;
        self.pool.drop_oldest();
        Some(id)
    }

    /// The number of completed receives of a member so far.
    #[must_use]
    pub fn retired(&self, queue_pair: u32) -> Option<u64> {
        let queue = self.members.get(queue_pair as usize)?.as_ref()?;
        let receives = &queue.state().receive;
        Some(receives.tail() >> receives.element_shift())
    }

    /// A receive of this queue pair was flushed unused: it goes back to the pool, and the queue
    /// pair is fed no more. `position` counts the receives that completed on it before. False if
    /// the queue pair is no member.
    pub fn returned(&mut self, queue_pair: u32, id: u64, position: u64) -> bool {
        let Some(Some(queue)) = self.members.get(queue_pair as usize) else {
            return false;
        };
        let pieces = queue.fragments_at(position << queue.state().receive.element_shift());
        self.starve(queue_pair);
        self.places = self.places.saturating_sub(1);
        self.pool.put(id, &pieces);
        self.feed();
        true
    }

    /// Takes a queue pair off the list of those that miss receives.
    fn starve(&mut self, queue_pair: u32) {
        self.forget_others();
        let before = self.missing;
        self.keep_hungry(|_, number| number != queue_pair);
        self.places = self.places.saturating_sub(before - self.missing);
    }

    /// Takes queue pairs that are no members off that list: they have receives of their own.
    fn forget_others(&mut self) {
        self.keep_hungry(is_member);
    }

    fn keep_hungry(&mut self, wanted: impl Fn(&Table<Member>, u32) -> bool) {
        if self.is_last_known() {
            let number = std::mem::replace(&mut self.last, IN_THE_LIST);
            self.note_missing(number);
        }
        let members = &self.members;
        self.hungry.truncate(self.missing);
        self.hungry.retain(|number| wanted(members, *number));
        self.missing = self.hungry.len();
        self.set_trigger();
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
        let (number, numbers) = (queue_pair, self.numbers);
        let is_member = is_member(&self.members, queue_pair);
        let error = if queue_pair as usize >= numbers {
            MemberError::NumberTooHigh { number, numbers }
        } else if queue.used() > 0 || is_member {
            let receives = queue.used();
            MemberError::InUse { number, receives }
        } else if queue.maximum_fragments() < self.pool.stride {
            MemberError::TooFewFragments {
                number,
                fragments: queue.maximum_fragments(),
                needed: self.pool.stride,
            }
        } else {
            self.insert(queue_pair, queue, window);
            return Ok(());
        };
        Err((error, Box::new(queue)))
    }

    fn insert(&mut self, queue_pair: u32, queue: ReceiveQueue, window: u32) {
        let window = window.clamp(1, queue.capacity()) as usize;
        if let Some(place) = self.members.get_mut(queue_pair as usize) {
            *place = Some(Box::new(queue));
        }
        self.places += window;
        // All may miss all of theirs, and what was posted beyond the capacity may come back.
        self.forget_others();
        // And one that was not in the list, and one of a queue pair that is no member.
        self.hungry.reserve(self.places + 3);
        self.pool.grow(self.capacity + self.places);
        for _ in 0..window {
            self.note_missing(queue_pair);
        }
        self.patience = self.patience.min((window / 2).max(1));
        self.feed();
    }

    /// Takes a queue pair out that the device has destroyed; what it had not used goes back to the
    /// pool. Returns how many that were; nothing if it is no member.
    pub fn remove(&mut self, queue_pair: u32) -> Option<usize> {
        if !is_member(&self.members, queue_pair) {
            return None;
        }
        self.starve(queue_pair);
        let queue = self.members.get_mut(queue_pair as usize)?.take()?;
        let outstanding = &queue.state().receive;
        let mut count = 0;
        let mut position = outstanding.tail();
        while let Some(request) = outstanding.next_from(position) {
            self.places = self.places.saturating_sub(1);
            let pieces = queue.fragments_at(request.position);
            self.pool.put(request.id, &pieces);
            position = request.end();
            count += 1;
        }
        self.feed();
        Some(count)
    }

    /// Asks to be told once fewer than `receives` are left; 0 takes that back.
    pub fn arm_limit(&mut self, receives: u32) {
        self.limit = receives as usize;
        self.limit_reached = false;
        self.attend();
    }

    /// True if the limit was reached since it was armed; once.
    pub fn take_limit(&mut self) -> bool {
        std::mem::take(&mut self.limit_reached)
    }

    /// Receives posted and not consumed, those in members' queues included.
    #[must_use]
    pub fn left(&self) -> u32 {
        let last = self.is_last_known().then_some(&self.last);
        let missing = self.hungry.iter().take(self.missing).chain(last);
        let of_members = missing
            .filter(|number| is_member(&self.members, **number))
            .count();
        (self.pool.count() + self.places).saturating_sub(of_members) as u32
    }

    /// Numbers of the queue pairs that are fed.
    pub fn numbers(&self) -> impl Iterator<Item = u32> + '_ {
        let numbers = 0..self.members.count() as u32;
        numbers.filter(|number| is_member(&self.members, *number))
    }

    /// Queue pairs that are fed.
    #[must_use]
    pub fn members(&self) -> usize {
        self.numbers().count()
    }
}

fn is_member(members: &Table<Member>, number: u32) -> bool {
    matches!(members.get(number as usize), Some(Some(_)))
}

#[cfg(test)]
mod tests;
