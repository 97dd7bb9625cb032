//! Lending: the members receive into memory of the owner, which copies each message.
//!
//! A receive that a member has in its queue cannot be taken back. Few receives among many members
//! can therefore all be where no message comes. An owner that copies messages avoids that: it lends
//! every member places of its own memory, and takes a receive from the pool only when a message is
//! there.

use super::SharedReceives;
use ringside_spec::verbs::Fragment;

/// The receives of the pool that a member still has while others are lent to it. They precede those
/// in its ring. Their completions were not delivered yet.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Held {
    /// receives that were posted before the first of them
    pub(super) first: u64,
    pub(super) count: u64,
}

impl SharedReceives {
    /// Gives members no more receives of the pool from now on: [`SharedReceives::lend`] gives them
    /// places. Those that they have are used first, or return to the pool as before.
    ///
    /// Control path: allocates. It cannot be ended.
    pub fn begin_lending(&mut self) {
        if self.is_lending() {
            return;
        }
        self.forget_others();
        let held = |number| match self.members.get(number) {
            Some(Some(queue)) => {
                queue.state().keep_receives(false);
                let receives = &queue.state().receive;
                let count = self.filled(number as u32);
                let posted = queue.head() >> receives.element_shift();
                let first = posted.saturating_sub(count);
                Held { first, count }
            }
            _ => Held::default(),
        };
        let held: Box<[Held]> = (0..self.members.count()).map(held).collect();
        self.windows.clear();
        self.places = held.iter().map(|held| held.count as usize).sum();
        self.lending = Some(held);
        self.set_trigger();
    }

    /// True once [`SharedReceives::begin_lending`] was called.
    #[must_use]
    pub fn is_lending(&self) -> bool {
        self.lending.is_some()
    }

    /// True if the next receive that completes on this queue pair is one that was lent to it.
    #[must_use]
    pub fn is_lent(&self, queue_pair: u32) -> bool {
        self.held(queue_pair).is_some_and(|held| held.count == 0) && self.has_member(queue_pair)
    }

    /// Lends a member a place for a message. The completion returns `id`. False if the queue pair
    /// is not a member, its queue is full, or receives are not lent. Receives of the pool that
    /// completed on it and were not delivered fill its queue too.
    pub fn lend(&mut self, queue_pair: u32, id: u64, place: Fragment) -> bool {
        self.is_lending()
            && !self.closed
            && !self.is_full_of_held(queue_pair)
            && match self.members.get_mut(queue_pair as usize) {
                Some(Some(queue)) => queue.post(id, &[place]).is_ok(),
                _ => false,
            }
    }

    /// True if the next place lent to a member would overwrite a receive of the pool in its ring.
    /// The ring reuses the elements of completed receives, and the pool needs those that were not
    /// delivered: they may return to it.
    fn is_full_of_held(&self, queue_pair: u32) -> bool {
        let held = self.held(queue_pair).filter(|held| held.count > 0);
        let (Some(held), Some(Some(queue))) = (held, self.members.get(queue_pair as usize)) else {
            return false;
        };
        let posted = queue.head() >> queue.state().receive.element_shift();
        posted - held.first >= u64::from(queue.capacity())
    }

    /// Takes the oldest receive out of the pool for a message that was received into a lent place:
    /// calls `fill` with its number and fragments. `None` if there is none.
    pub fn take_for<R>(&mut self, fill: impl FnOnce(u64, &[Fragment]) -> R) -> Option<R> {
        let (id, fragments) = self.pool.oldest()?;
        let filled = fill(id, fragments);
        self.pool.drop_oldest();
        self.attend();
        Some(filled)
    }

    /// Bytes that the oldest receive of the pool has room for. `None` if there is none.
    #[must_use]
    pub fn room(&self) -> Option<u64> {
        let (_, fragments) = self.pool.oldest()?;
        let lengths = fragments.iter();
        Some(lengths.map(|piece| u64::from(piece.length_bytes)).sum())
    }

    /// Notes a completed receive while receives are lent; false if they are not.
    pub(super) fn consumed_while_lending(&mut self, queue_pair: u32) -> bool {
        if !self.is_lending() {
            return false;
        }
        if self.took_from_pool(queue_pair) {
            self.places = self.places.saturating_sub(1);
            self.attend();
        }
        true
    }

    /// Takes one off the receives of the pool that a member has; false if it has none.
    pub(super) fn took_from_pool(&mut self, queue_pair: u32) -> bool {
        let held = self.lending.as_mut();
        match held.and_then(|held| held.get_mut(queue_pair as usize)) {
            Some(held) if held.count > 0 => {
                held.count -= 1;
                held.first += 1;
                true
            }
            _ => false,
        }
    }

    /// The receives of the pool that a queue pair has; `None` if receives are not lent.
    pub(super) fn held(&self, queue_pair: u32) -> Option<Held> {
        let held = self.lending.as_ref()?;
        Some(held.get(queue_pair as usize).copied().unwrap_or_default())
    }

    /// A queue pair is no member any more.
    pub(super) fn forget_lent(&mut self, queue_pair: u32) {
        let held = self.lending.as_mut();
        if let Some(held) = held.and_then(|held| held.get_mut(queue_pair as usize)) {
            *held = Held::default();
        }
    }
}
