//! The rings as threads share them: one reads the ring of completions, and the others sleep until
//! their answers have come; those that wait for a free entry stand in line.

use super::rings::{Entry, Rings};
use crate::Registers;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The longest sleep, in real time. A thread then looks by itself.
const NAP: Duration = Duration::from_millis(50);

/// The rings, and the means to wake the threads that wait.
pub(super) struct SharedRings {
    rings: Mutex<Rings>,
    /// for the threads that wait for answers, by entry
    answered: Box<[Condvar]>,
}

impl SharedRings {
    pub(super) fn new(rings: Rings) -> Self {
        Self {
            answered: rings.entries.iter().map(|_| Condvar::new()).collect(),
            rings: Mutex::new(rings),
        }
    }

    /// Locks the rings, also after a thread panicked with the lock held.
    pub(super) fn lock(&self) -> MutexGuard<'_, Rings> {
        self.rings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes all completions that have come, and wakes the threads that sleep until then.
    pub(super) fn reap(&self, rings: &mut Rings, registers: &Registers) {
        rings.reap(registers, |entry| self.wake(entry));
    }

    fn wake(&self, entry: usize) {
        if let Some(answered) = self.answered.get(entry) {
            answered.notify_one();
        }
    }

    /// Wakes all threads: the queue has ended.
    pub(super) fn wake_all(&self, rings: &Rings) {
        self.answered.iter().for_each(Condvar::notify_one);
        rings.line.iter().for_each(|waiting| waiting.notify_one());
    }

    /// Sleeps until the answer of an entry has come, this thread is to read, or a while: then true.
    pub(super) fn sleep(&self, mut rings: MutexGuard<'_, Rings>, entry: u32) -> bool {
        let place = entry as usize;
        let Some(answered) = self.answered.get(place) else {
            return true;
        };
        let set_asleep = |rings: &mut Rings, is_asleep| {
            if let Some(entry @ Entry::Sent { .. }) = rings.entries.get_mut(place) {
                *entry = Entry::Sent { is_asleep };
            }
        };
        set_asleep(&mut rings, true);
        let slept = answered.wait_timeout(rings, NAP);
        let (mut rings, slept) = slept.unwrap_or_else(PoisonError::into_inner);
        set_asleep(&mut rings, false);
        slept.timed_out()
    }
}

/// The thread that reads the ring of completions. After it, another one does whose command is under
/// way.
pub(super) struct Watch<'queue>(&'queue SharedRings);

impl<'queue> Watch<'queue> {
    /// `rings` are those of `shared`; no thread reads yet.
    pub(super) fn new(shared: &'queue SharedRings, rings: &mut Rings) -> Self {
        rings.is_watched = true;
        Self(shared)
    }
}

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        let mut rings = self.0.lock();
        rings.is_watched = false;
        if let Some(next) = rings.oldest_asleep() {
            self.0.wake(next);
        }
    }
}

/// A thread that waits for a free entry.
pub(super) struct InLine<'queue> {
    shared: &'queue SharedRings,
    called: Arc<Condvar>,
}

impl<'queue> InLine<'queue> {
    /// Joins the line at its end.
    pub(super) fn new(shared: &'queue SharedRings) -> Self {
        let called = Arc::new(Condvar::new());
        shared.lock().line.push_back(Arc::clone(&called));
        Self { shared, called }
    }

    pub(super) fn is_first(&self, rings: &Rings) -> bool {
        let first = rings.line.front();
        first.is_some_and(|first| Arc::ptr_eq(first, &self.called))
    }

    /// Sleeps until an entry is free for this thread, or a while: then false.
    pub(super) fn sleep(&self, rings: MutexGuard<'_, Rings>) -> bool {
        let slept = self.called.wait_timeout(rings, NAP);
        let (_rings, slept) = slept.unwrap_or_else(PoisonError::into_inner);
        !slept.timed_out()
    }
}

impl Drop for InLine<'_> {
    fn drop(&mut self) {
        let mut rings = self.shared.lock();
        let line = &mut rings.line;
        line.retain(|waiting| !Arc::ptr_eq(waiting, &self.called));
        // There may be an entry for the next one, too.
        rings.call_the_first();
    }
}
