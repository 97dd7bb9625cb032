//! The members: receive queues that come, and go with the receives that they have not used.

use super::{MemberError, SharedReceives, UnusedReceives, is_member};
use crate::ReceiveQueue;

impl SharedReceives {
    /// Makes the receive queue of a queue pair a member, with up to `window` receives at a time. It
    /// begins with fewer where more than half of the capacity is in members' queues.
    ///
    /// Control path: allocates. Errors: [`MemberError`], together with the queue.
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

    fn insert(&mut self, queue_pair: u32, mut queue: ReceiveQueue, window: u32) {
        // Any member may get any receive, and the pool has no room for more fragments.
        queue.take_at_most(self.pool.stride);
        queue.state().feed();
        queue.state().keep_receives(!self.is_lending());
        let window = window.clamp(1, queue.capacity()) as usize;
        if let Some(place) = self.members.get_mut(queue_pair as usize) {
            *place = Some(Box::new(queue));
        }
        if self.is_lending() {
            return;
        }
        let window = self.first_window(window);
        self.places += window.now;
        self.windows.insert(queue_pair, window);
        let places: usize = self.windows.values().map(|one| one.most.max(one.now)).sum();
        // All members may miss all of their receives, and receives posted beyond the capacity may
        // return.
        self.forget_others();
        // Room also for one that is not in the list, and for one of a queue pair that is not a
        // member.
        self.hungry.reserve(places + 3);
        self.pool.grow(self.capacity + places);
        for _ in 0..window.now {
            self.note_missing(queue_pair);
        }
        self.poorest_last();
        self.set_patience();
        self.feed();
    }

    /// Copies the unused receives of a member for [`Self::put_back`]; `None` if it is not a member.
    /// It reads the ring: call it before the queue pair is destroyed.
    ///
    /// Those are among them whose flush the completion queue has taken out of a former ring and not
    /// delivered: it discards them with the queue pair.
    #[must_use]
    pub fn unused(&self, queue_pair: u32) -> Option<UnusedReceives> {
        let queue = self.members.get(queue_pair as usize)?.as_ref()?;
        let receives = &queue.state().receive;
        let (first, count) = self.held(queue_pair).map_or_else(
            || {
                let retired = self.flushed_unread(queue_pair, queue);
                let tail = receives.tail() >> receives.element_shift();
                (tail - retired, retired + u64::from(queue.used()))
            },
            |held| (held.first, held.count),
        );
        let receive = |index: u64| {
            let position = index << receives.element_shift();
            (receives.id_at(position), queue.fragments_at(position))
        };
        Some(UnusedReceives(
            (first..first + count).map(receive).collect(),
        ))
    }

    /// Receives of a member that are retired as flushed, and of which no completion was delivered:
    /// the last ones that are retired, because nothing but flushes follows a flush.
    fn flushed_unread(&self, queue_pair: u32, queue: &ReceiveQueue) -> u64 {
        let unread = self.filled(queue_pair).saturating_sub(queue.used().into());
        unread.min(queue.state().flushed_in_former_rings())
    }

    /// Receives of a member that it does not miss: outstanding ones, and those whose completions
    /// were not delivered.
    pub(super) fn filled(&self, queue_pair: u32) -> u64 {
        let window = self.windows.get(&queue_pair).map_or(0, |one| one.now);
        let last = self.is_last_known().then_some(&self.last);
        let missing = self.hungry.iter().take(self.missing).chain(last);
        let missing = missing.filter(|number| **number == queue_pair).count();
        window.saturating_sub(missing) as u64
    }

    /// Removes a queue pair, if it is a member, without access to its ring. The receives there are
    /// lost unless [`Self::put_back`] returns them.
    pub fn forget(&mut self, queue_pair: u32) {
        if !self.has_member(queue_pair) {
            return;
        }
        self.starve(queue_pair);
        if let Some(place) = self.members.get_mut(queue_pair as usize) {
            *place = None;
        }
        // Also those of receives that completed and have yet to be delivered.
        let held = match self.held(queue_pair) {
            Some(held) => held.count as usize,
            None => self.windows.remove(&queue_pair).unwrap_or_default().now,
        };
        self.places = self.places.saturating_sub(held);
        self.forget_lent(queue_pair);
        self.set_trigger();
    }

    /// Returns the receives of a forgotten member to the pool, and their number to the caller. The
    /// device has destroyed the queue pair.
    pub fn put_back(&mut self, receives: &UnusedReceives) -> usize {
        for (id, pieces) in &receives.0 {
            self.pool.put(*id, pieces);
        }
        self.feed();
        receives.0.len()
    }

    /// Numbers of the member queue pairs.
    pub fn numbers(&self) -> impl Iterator<Item = u32> + '_ {
        let numbers = 0..self.members.count() as u32;
        numbers.filter(|number| is_member(&self.members, *number))
    }

    /// The number of member queue pairs.
    #[must_use]
    pub fn members(&self) -> usize {
        self.numbers().count()
    }
}
