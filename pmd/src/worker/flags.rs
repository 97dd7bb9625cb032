//! The one word by which others reach a worker, and by which it says that it sleeps.
//!
//! A sender pushes the request first and sets the mark then; the worker clears the mark first and
//! looks then. Who marks anything learns in the same step whether the worker sleeps, and the worker
//! learns in the step in which it falls asleep whether anything was marked: one of both sees the
//! other.

use super::sync::{AtomicU32, Ordering};

/// There may be requests in the inbox.
const MAIL: u32 = 1;
/// The worker shall stop.
const STOP: u32 = 2;
/// The worker takes no requests any more.
const CLOSED: u32 = 4;
/// The worker sleeps, or is about to: who sets another flag wakes it.
const SLEEPING: u32 = 8;

/// The worker's state when a flag was set.
#[derive(Clone, Copy, Debug)]
pub(super) struct Before {
    /// It sleeps, or is about to: wake it.
    pub(super) asleep: bool,
    /// It takes no requests any more.
    pub(super) closed: bool,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Flags(AtomicU32);

impl Flags {
    fn set(&self, flag: u32) -> Before {
        let before = self.0.fetch_or(flag, Ordering::AcqRel);
        Before {
            asleep: before & SLEEPING != 0,
            closed: before & CLOSED != 0,
        }
    }

    /// Something was put into the inbox.
    pub(super) fn mark_mail(&self) -> Before {
        self.set(MAIL)
    }

    /// The worker shall stop.
    pub(super) fn mark_stop(&self) -> Before {
        self.set(STOP)
    }

    /// No request is taken any more.
    pub(super) fn close(&self) {
        self.set(CLOSED);
    }

    pub(super) fn is_closed(&self) -> bool {
        self.0.load(Ordering::Acquire) & CLOSED != 0
    }

    /// True if the worker must look: one relaxed load, each round.
    #[inline(always)]
    pub(super) fn any(&self) -> bool {
        self.0.load(Ordering::Relaxed) != 0
    }

    /// The worker is about to look into the inbox. Returns whether it shall stop.
    pub(super) fn take_mail(&self) -> bool {
        self.0.fetch_and(!MAIL, Ordering::AcqRel) & STOP != 0
    }

    /// The worker has left something in the inbox.
    pub(super) fn leave_mail(&self) {
        self.0.fetch_or(MAIL, Ordering::Relaxed);
    }

    /// The worker is about to sleep; false if there is something to do instead.
    pub(super) fn fall_asleep(&self) -> bool {
        self.0.fetch_or(SLEEPING, Ordering::AcqRel) == 0
    }

    /// The worker is awake.
    pub(super) fn wake(&self) {
        self.0.fetch_and(!SLEEPING, Ordering::AcqRel);
    }
}
