//! Values behind a lock, or behind a program's promise that one thread uses them.

use crate::environment;
use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::sync::OnceLock;

use parking_lot::{Mutex, MutexGuard};

/// True if the program promised, by `RINGSIDE_SINGLE_THREAD=1`, that one thread uses each object.
pub(crate) fn is_single_thread() -> bool {
    static PROMISED: OnceLock<bool> = OnceLock::new();
    *PROMISED.get_or_init(|| is_set("RINGSIDE_SINGLE_THREAD"))
}

/// True if a variable of the environment is `1`.
pub(crate) fn is_set(variable: &str) -> bool {
    environment::variable(variable).is_some_and(|value| value == "1")
}

/// A value of an object of verbs. One thread at a time holds it.
///
/// Objects of a thread domain, and those of a program with `RINGSIDE_SINGLE_THREAD=1`, have no
/// lock: the program promised that it makes no two calls for the object at a time.
pub(crate) struct Guarded<T> {
    lock: Option<Mutex<()>>,
    value: UnsafeCell<T>,
}

impl<T> Guarded<T> {
    /// `is_single`: the object is of a thread domain.
    pub(crate) fn new(value: T, is_single: bool) -> Self {
        let is_single = is_single || is_single_thread();
        Self {
            lock: (!is_single).then(Mutex::default),
            value: UnsafeCell::new(value),
        }
    }

    /// Waits until no other thread holds the value.
    #[inline(always)]
    pub(crate) fn hold(&self) -> Held<'_, T> {
        let lock = self.lock.as_ref();
        Held {
            // A thread that panicked left a value that is whole: each change is one assignment. So
            // the lock need not remember panics.
            _lock: lock.map(Mutex::lock),
            value: &self.value,
        }
    }

    /// `None` if another call holds the value, or if it has no lock that would tell.
    pub(crate) fn try_hold(&self) -> Option<Held<'_, T>> {
        let lock = self.lock.as_ref()?.try_lock()?;
        Some(Held {
            _lock: Some(lock),
            value: &self.value,
        })
    }

    /// False if the program promised that it makes one call at a time.
    pub(crate) fn has_lock(&self) -> bool {
        self.lock.is_some()
    }
}

/// The right to use a guarded value, until it is dropped.
pub(crate) struct Held<'a, T> {
    value: &'a UnsafeCell<T>,
    _lock: Option<MutexGuard<'a, ()>>,
}

impl<T> Held<'_, T> {
    /// Keeps the right beyond this call, for an object that lasts longer.
    ///
    /// # Safety
    /// The result is dropped before the guarded value.
    pub(crate) unsafe fn keep(self) -> Held<'static, T> {
        // SAFETY: the types differ in their lifetimes alone; the caller ends it in time.
        unsafe { std::mem::transmute(self) }
    }
}

impl<T> Deref for Held<'_, T> {
    type Target = T;
    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: the lock is held, or the program promised that no other call has the value.
        unsafe { &*self.value.get() }
    }
}

impl<T> DerefMut for Held<'_, T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above, and `self` is borrowed exclusively.
        unsafe { &mut *self.value.get() }
    }
}

#[cfg(test)]
mod tests {
    use super::Guarded;

    #[test]
    fn a_lock_is_taken_unless_one_thread_was_promised() {
        let shared = Guarded::new(1, false);
        let held = shared.hold();
        assert!(shared.lock.as_ref().unwrap().try_lock().is_none());
        drop(held);
        assert!(shared.lock.as_ref().unwrap().try_lock().is_some());
        let mut single = Guarded::new(2, true);
        assert!(single.lock.is_none());
        *single.hold() += 1;
        assert_eq!(*single.value.get_mut(), 3);
    }
}
