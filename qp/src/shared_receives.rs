//! Receives shared by many queue pairs: a pool of buffers that feeds their receive queues.
//!
//! The E810 has no shared receive queue. This pool keeps each member's own receive queue filled up
//! to a window, and keeps receives back for members to come: see `windows`. A receive that a
//! member's message consumed is replaced by the next one posted, or by one from the pool once half
//! a window is missing. Receives that a failed member did not use return to the pool, so each
//! receive completes exactly once.
//!
//! The member's completion queue reports which member consumed a buffer. Call
//! [`SharedReceives::consumed`] for each receive that completes.

use crate::state::QUEUE_PAIR_NUMBERS;
use crate::{PostReceiveError, ReceiveQueue};
use ringside_bus::Table;
use ringside_spec::verbs::Fragment;
use ringside_spec::verbs::sizes::MAX_FRAGMENTS;
use std::collections::BTreeMap;

mod lending;
mod members;
mod pool;
mod windows;

use lending::Held;
use pool::Pool;
use windows::Window;

/// A pool of receives and the receive queues that it feeds. `Send`, not `Sync`.
///
/// The common case bypasses the pool: `consumed` notes the member that now misses a receive, and
/// `post` posts directly to that member. Receives are handed out from the pool only when it holds
/// some and enough of them are missing.
#[derive(Debug)]
pub struct SharedReceives {
    /// Number of the queue pair that missed a receive last, if it is not in `hungry`: the next post
    /// goes to it. Otherwise [`NO_QUEUE_PAIR`] or [`USE_LIST`].
    last: u32,
    /// Receive queues of members, by number of the queue pair. The table has more places than there
    /// are numbers.
    members: Table<Member>,
    /// Numbers of members that miss a receive, one entry for each missing receive. The first
    /// `missing` entries are valid. Its length is the number of receives that may be missing before
    /// the slow path must act: the fast path only fills it.
    hungry: Vec<u32>,
    missing: usize,
    /// Receives that members' queues hold when full: filled and missing ones.
    places: usize,
    /// Those of each member, by number of the queue pair. Empty while receives are lent.
    windows: BTreeMap<u32, Window>,
    /// The most receives that may be missing while the pool holds some: half the smallest window.
    patience: usize,
    pool: Pool,
    capacity: usize,
    /// Numbers of queue pairs are below this.
    numbers: usize,
    /// The limit event is due when fewer receives than this are left; 0: not armed.
    limit: usize,
    limit_reached: bool,
    /// The service has ended: receives are neither handed out nor accepted.
    closed: bool,
    /// While receives are lent: the receives of the pool that each member still has, by number of
    /// the queue pair. See [`SharedReceives::begin_lending`].
    lending: Option<Box<[Held]>>,
}

/// The receive queue of a member, or none.
type Member = Option<Box<ReceiveQueue>>;

/// No queue pair misses a receive besides those in the list. Its index is beyond the members of the
/// table.
const NO_QUEUE_PAIR: u32 = u32::MAX;
/// As [`NO_QUEUE_PAIR`]; in addition, the next consumed receive must take the slow path at once.
const USE_LIST: u32 = u32::MAX / 2;

/// Receives that a member had not used: number and fragments of each, oldest first.
#[derive(Clone, Debug)]
pub struct UnusedReceives(Vec<(u64, Vec<Fragment>)>);

impl UnusedReceives {
    /// The number of them.
    #[must_use]
    pub fn count(&self) -> usize {
        self.0.len()
    }
}

/// Reasons why a queue pair cannot become a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MemberError {
    /// The number of the queue pair is beyond the table.
    #[error("queue pair {number}; the shared receive queue was made for numbers below {numbers}")]
    NumberTooHigh {
        /// the number
        number: u32,
        /// numbers that there are
        numbers: usize,
    },
    /// The queue pair is a member already, or has receives of its own.
    #[error(
        "queue pair {number} has {receives} receives of its own: share it before any is posted"
    )]
    InUse {
        /// the number
        number: u32,
        /// receives posted
        receives: u32,
    },
    /// The elements of its receive queue are too small.
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
    /// Makes a pool for `capacity` receives of up to `fragments` fragments, for queue pairs with
    /// numbers below `numbers`. Accepts more receives than `capacity` while members miss some.
    ///
    /// Range: at least 1 receive; 1..=13 fragments. Allocates all that posting needs later.
    #[must_use]
    pub fn new(capacity: u32, fragments: usize, numbers: u32) -> Self {
        let capacity = capacity.max(1) as usize;
        let numbers = numbers.min(QUEUE_PAIR_NUMBERS);
        Self {
            last: NO_QUEUE_PAIR,
            members: Table::new(numbers as usize + 1, |_| None),
            hungry: Vec::new(),
            missing: 0,
            places: 0,
            windows: BTreeMap::new(),
            patience: usize::MAX,
            pool: Pool::new(capacity, fragments.clamp(1, MAX_FRAGMENTS)),
            capacity,
            numbers: numbers as usize,
            limit: 0,
            limit_reached: false,
            closed: false,
            lending: None,
        }
    }

    /// Posts a receive for the member that gets the next message.
    ///
    /// Errors: [`PostReceiveError::QueueFull`] (poll, then retry); the other errors are the
    /// caller's mistakes.
    #[inline(always)]
    pub fn post(&mut self, id: u64, fragments: &[Fragment]) -> Result<(), PostReceiveError> {
        if let Some(queue) = self.members.at_mut(self.last as usize)
            && queue.post(id, fragments).is_ok()
        {
            self.last = NO_QUEUE_PAIR;
            return Ok(());
        }
        self.post_to_listed(id, fragments)
    }

    /// Slow path of [`Self::post`]: no unlisted queue pair misses a receive, so the next one in the
    /// list gets it.
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

    /// Slowest path of [`Self::post`]: no member misses a receive, or the one noted is none.
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
        if let Some(length_bytes) = longest.filter(|&bytes| bytes > Fragment::MAX_BYTES) {
            return Err(PostReceiveError::FragmentTooLong { length_bytes });
        }
        if self.left() as usize >= self.capacity || self.pool.count() >= self.pool.waiting.len() {
            return Err(PostReceiveError::QueueFull);
        }
        self.pool.put(id, fragments);
        self.set_trigger();
        Ok(())
    }

    /// Notes that a receive of this queue pair completed, with data or with an error of its own. A
    /// member misses one receive from now on.
    ///
    /// Range: a number below the `numbers` of [`SharedReceives::new`].
    #[inline(always)]
    pub fn consumed(&mut self, queue_pair: u32) {
        if self.last == NO_QUEUE_PAIR {
            self.last = queue_pair;
            return;
        }
        self.consumed_too(queue_pair);
    }

    /// Notes a further missing receive: the queue pair noted last moves into the list.
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

    /// True if a queue pair that is not in the list misses a receive.
    fn is_last_known(&self) -> bool {
        self.last != NO_QUEUE_PAIR && self.last != USE_LIST
    }

    /// Notes that a receive of this queue pair completed with an error of its own: the queue pair
    /// has failed. It gets no further receives of the pool, which it could not use.
    #[cold]
    pub fn failed(&mut self, queue_pair: u32) {
        if self.is_lending() || !self.has_member(queue_pair) {
            self.consumed(queue_pair);
            return;
        }
        self.starve(queue_pair);
        self.narrow(queue_pair, 1);
        self.attend();
    }

    fn has_member(&self, queue_pair: u32) -> bool {
        is_member(&self.members, queue_pair)
    }

    /// Slow path of [`Self::consumed`]: so many receives are missing that the pool must act.
    #[cold]
    fn consumed_aside(&mut self, queue_pair: u32) {
        if self.closed || self.consumed_while_lending(queue_pair) {
            return;
        }
        self.forget_others();
        if self.has_member(queue_pair) {
            self.note_missing(queue_pair);
            self.widen(queue_pair);
        }
        self.attend();
    }

    /// Sorts the list so that posts, which take its last entry, go to the members with the fewest
    /// receives first: few receives are shared out evenly, and no member stays without one.
    ///
    /// Control path.
    fn poorest_last(&mut self) {
        self.hungry.truncate(self.missing);
        self.hungry.sort_unstable();
        // Receives that a member has once an entry of its is served: one more for each entry.
        let mut levels = Vec::with_capacity(self.missing);
        let mut previous = None;
        let mut level = 0;
        for &number in &self.hungry {
            level = match previous == Some(number) {
                true => level + 1,
                false => match self.members.get(number as usize) {
                    Some(Some(queue)) => queue.used() + 1,
                    _ => 1,
                },
            };
            previous = Some(number);
            levels.push((std::cmp::Reverse(level), number));
        }
        levels.sort_unstable();
        self.hungry.clear();
        self.hungry.extend(levels.iter().map(|(_, number)| number));
    }

    fn note_missing(&mut self, queue_pair: u32) {
        if self.hungry.len() <= self.missing {
            // The capacity for this was reserved by `insert`.
            self.hungry.resize(self.missing + 1, 0);
        }
        if let Some(place) = self.hungry.get_mut(self.missing) {
            *place = queue_pair;
            self.missing += 1;
        }
    }

    /// Raises the limit event if it is due, and hands out receives if enough are missing.
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

    /// Hands out receives from the pool to the members that miss some.
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
        if self.is_lending() {
            // No member misses a receive of the pool, and each completion takes the slow path.
            (self.missing, self.last) = (0, USE_LIST);
            self.hungry.clear();
            return;
        }
        let to_feed = match self.pool.count() {
            0 => usize::MAX,
            _ => self.patience,
        };
        let to_tell = match self.limit {
            0 => usize::MAX,
            limit => (self.pool.count() + self.places + 1).saturating_sub(limit),
        };
        // The consumed receive that reaches this number is the first that finds no place in the
        // list: the list has room for all before it but the last. When the list is full, queue
        // pairs that are not members are removed from it.
        let so_many = to_feed.min(to_tell);
        let before = so_many.saturating_sub(2).min(self.places);
        self.hungry.resize(before.max(self.missing), 0);
        if !self.is_last_known() {
            let every_one = so_many < self.missing.saturating_add(2) || self.closed;
            self.last = if every_one { USE_LIST } else { NO_QUEUE_PAIR };
        }
    }

    /// Ends the service: receives are no longer handed out, and every post is refused as if the
    /// pool were full. [`SharedReceives::take_waiting`] takes the receives that wait; receives that
    /// members have not used return as before.
    pub fn close(&mut self) {
        self.closed = true;
        self.capacity = 0;
        self.missing = 0;
        self.hungry.clear();
        self.last = USE_LIST;
    }

    /// True if the service has ended.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.closed
    }

    /// Takes the oldest receive that waits and returns the caller's number for it.
    pub fn take_waiting(&mut self) -> Option<u64> {
        let (id, _) = self.pool.oldest()?;
        self.pool.drop_oldest();
        Some(id)
    }

    /// Returns the number of receives that completed on a member so far; `None` if it is not a
    /// member.
    #[must_use]
    pub fn retired(&self, queue_pair: u32) -> Option<u64> {
        let queue = self.members.get(queue_pair as usize)?.as_ref()?;
        let receives = &queue.state().receive;
        Some(receives.tail() >> receives.element_shift())
    }

    /// Returns to the pool a receive of this queue pair that was flushed unused. The queue pair
    /// gets no further receives. `position` counts the receives that completed on it before.
    /// Nothing returns if the receive was lent. False if the queue pair is not a member.
    pub fn returned(&mut self, queue_pair: u32, id: u64, position: u64) -> bool {
        if self.is_lent(queue_pair) {
            return true;
        }
        self.took_from_pool(queue_pair);
        let Some(Some(queue)) = self.members.get(queue_pair as usize) else {
            return false;
        };
        let pieces = queue.fragments_at(position << queue.state().receive.element_shift());
        self.starve(queue_pair);
        self.narrow(queue_pair, 1);
        self.pool.put(id, &pieces);
        self.feed();
        true
    }

    /// Removes a queue pair from the list of those that miss receives.
    fn starve(&mut self, queue_pair: u32) {
        self.forget_others();
        let before = self.missing;
        self.keep_hungry(|_, number| number != queue_pair);
        self.narrow(queue_pair, before - self.missing);
    }

    /// Removes queue pairs that are not members from the list: they have receives of their own.
    fn forget_others(&mut self) {
        self.keep_hungry(is_member);
    }

    fn keep_hungry(&mut self, wanted: impl Fn(&Table<Member>, u32) -> bool) {
        if self.is_last_known() {
            let number = std::mem::replace(&mut self.last, USE_LIST);
            self.note_missing(number);
        }
        let members = &self.members;
        self.hungry.truncate(self.missing);
        self.hungry.retain(|number| wanted(members, *number));
        self.missing = self.hungry.len();
        self.set_trigger();
    }

    /// Arms the limit event: it is due once fewer than `receives` are left. 0 disarms it.
    pub fn arm_limit(&mut self, receives: u32) {
        self.limit = receives as usize;
        self.limit_reached = false;
        self.attend();
    }

    /// True once after the limit was reached.
    pub fn take_limit(&mut self) -> bool {
        std::mem::take(&mut self.limit_reached)
    }

    /// Receives posted and not consumed, including those in members' queues.
    #[must_use]
    pub fn left(&self) -> u32 {
        let last = self.is_last_known().then_some(&self.last);
        let missing = self.hungry.iter().take(self.missing).chain(last);
        let of_members = missing
            .filter(|number| is_member(&self.members, **number))
            .count();
        (self.pool.count() + self.places).saturating_sub(of_members) as u32
    }
}

fn is_member(members: &Table<Member>, number: u32) -> bool {
    matches!(members.get(number as usize), Some(Some(_)))
}

#[cfg(test)]
mod tests;
