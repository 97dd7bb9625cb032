//! Values that each process makes for itself: a child of a fork has its parent's memory, but
//! neither its threads nor its device. A lock that lasts as long as the program is one, too:
//! another thread may hold it when the process is copied, and never releases it in the child.
#![allow(unsafe_code)] // keeps values for ever, behind a pointer

use crate::process::Birth;
use std::convert::Infallible;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

struct Made<T> {
    birth: Birth,
    /// a parent's, or null: it stays in memory
    former: AtomicPtr<Made<T>>,
    /// held by the call that makes the value
    maker: Mutex<()>,
    value: OnceLock<T>,
}

/// A value that is made at its first use, and anew in a child of a fork. The parent's value stays
/// in memory there: objects of the parent refer to it.
pub struct PerProcess<T: Send + Sync + 'static> {
    latest: AtomicPtr<Made<T>>,
}

impl<T: Send + Sync> PerProcess<T> {
    /// A value that no process has made yet.
    #[must_use]
    #[allow(clippy::new_without_default)] // it is for statics
    pub const fn new() -> Self {
        Self {
            latest: AtomicPtr::new(ptr::null_mut()),
        }
    }

    /// The latest one, and its value if it is of this process.
    fn latest(&self) -> (*mut Made<T>, Option<&'static Made<T>>) {
        let latest = self.latest.load(Ordering::Acquire);
        // SAFETY: null, or leaked by `here`.
        let made = unsafe { latest.as_ref() };
        (latest, made.filter(|made| made.birth.is_here()))
    }

    fn here(&self) -> &'static Made<T> {
        loop {
            let before = match self.latest() {
                (_, Some(made)) => return made,
                (before, None) => before,
            };
            let new = Box::into_raw(Box::new(Made {
                birth: Birth::now(),
                former: AtomicPtr::new(before),
                maker: Mutex::default(),
                value: OnceLock::new(),
            }));
            let (done, failed) = (Ordering::AcqRel, Ordering::Acquire);
            let changed = self.latest.compare_exchange(before, new, done, failed);
            if changed.is_err() {
                // SAFETY: made above, and nothing else has it.
                drop(unsafe { Box::from_raw(new) });
            }
        }
    }

    /// True if a parent of this process used it.
    #[must_use]
    pub fn is_inherited(&self) -> bool {
        !self.here().former.load(Ordering::Relaxed).is_null()
    }

    /// The value of this process, if it was made.
    #[must_use]
    pub fn get(&self) -> Option<&'static T> {
        self.latest().1?.value.get()
    }

    /// The value of this process. The first call makes it, others wait for that. After a failure
    /// the next call tries again.
    ///
    /// # Errors
    /// Those of `make`.
    pub fn get_or_try_init<E>(&self, make: impl FnOnce() -> Result<T, E>) -> Result<&'static T, E> {
        let made = self.here();
        if let Some(value) = made.value.get() {
            return Ok(value);
        }
        let _maker = made.maker.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(value) = made.value.get() {
            return Ok(value);
        }
        let value = make()?;
        Ok(made.value.get_or_init(|| value))
    }

    /// The value of this process. The first call makes it, others wait for that.
    pub fn get_or_init(&self, make: impl FnOnce() -> T) -> &'static T {
        match self.get_or_try_init(|| Ok::<T, Infallible>(make())) {
            Ok(value) => value,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_not_kept() {
        static NUMBER: PerProcess<u32> = PerProcess::new();
        assert_eq!(NUMBER.get_or_try_init(|| Err("none")), Err("none"));
        assert_eq!(NUMBER.get(), None);
        assert_eq!(NUMBER.get_or_try_init(|| Ok::<_, &str>(7)), Ok(&7));
        assert_eq!(NUMBER.get_or_try_init(|| Err("none")), Ok(&7));
    }

    #[test]
    fn a_child_makes_a_value_of_its_own() {
        static NUMBER: PerProcess<u32> = PerProcess::new();
        assert_eq!(NUMBER.get(), None);
        assert_eq!(*NUMBER.get_or_init(|| 1), 1);
        assert_eq!(*NUMBER.get_or_init(|| 2), 1);
        assert!(crate::process::tests::in_a_child(|| {
            let was_there = NUMBER.get().is_some() || !NUMBER.is_inherited();
            !was_there && *NUMBER.get_or_init(|| 3) == 3
        }));
        assert_eq!(NUMBER.get(), Some(&1));
        assert!(!NUMBER.is_inherited());
    }
}
