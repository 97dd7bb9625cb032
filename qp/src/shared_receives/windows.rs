//! The windows: the receives that each member has in its own queue.
//!
//! A receive that a member has cannot be taken back, so the pool keeps some for members to come.
//! The first half of its receives goes out in full windows, the next quarter in quarters of them.
//! From then on a new member gets one receive. A member that uses its receives gets a wider window,
//! as long as more than a quarter of the receives wait in the pool.

use super::SharedReceives;

/// The window of a member: receives that it has or misses.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Window {
    pub(super) now: usize,
    /// its owner's wish
    pub(super) most: usize,
}

impl Window {
    /// Missing receives of this window until the pool has to give it others.
    pub(super) const fn patience(self) -> usize {
        match self.now / 2 {
            0 => 1,
            half => half,
        }
    }
}

impl SharedReceives {
    /// The window that a new member begins with.
    pub(super) fn first_window(&self, most: usize) -> Window {
        let room = |places: usize| places.saturating_sub(self.places);
        let quarter = self.capacity / 4;
        let full = most.min(room(self.capacity - 2 * quarter));
        let narrow = (most / 4).min(room(self.capacity - quarter));
        let now = full.max(narrow).max(1);
        Window { now, most }
    }

    /// A member uses its receives: widens its window by one, unless few receives are left for
    /// members to come.
    pub(super) fn widen(&mut self, queue_pair: u32) {
        // Those that members miss are as good as given out.
        if self.pool.count() <= self.capacity / 4 + self.missing {
            return;
        }
        let Some(window) = self.windows.get_mut(&queue_pair) else {
            return;
        };
        if window.now >= window.most {
            return;
        }
        let before = window.patience();
        window.now += 1;
        self.places += 1;
        self.note_missing(queue_pair);
        if before == self.patience {
            self.set_patience();
        }
    }

    /// Half the smallest window of a member that may get receives.
    pub(super) fn set_patience(&mut self) {
        let served = self.windows.values().filter(|window| window.most > 0);
        let least = served.map(|window| window.patience()).min();
        self.patience = least.unwrap_or(usize::MAX);
    }

    /// A member that has failed has this many places less, and gets no more.
    pub(super) fn narrow(&mut self, queue_pair: u32, count: usize) {
        self.places = self.places.saturating_sub(count);
        if let Some(window) = self.windows.get_mut(&queue_pair) {
            window.now = window.now.saturating_sub(count);
            window.most = 0;
        }
    }
}
