//! The word through which other threads notify a worker, and which shows them that it sleeps.
//!
//! A sender pushes the request and then sets the flag; the worker clears the flag and then reads
//! the requests. Setting a flag returns if the worker sleeps, and falling asleep returns if a flag
//! was set, each in one atomic step: one of the two always sees the other.

use super::sync::{AtomicU32, Ordering};

/// There may be requests in the inbox.
const MAIL: u32 = 1;
/// The worker shall stop.
const STOP: u32 = 2;
/// The worker takes no requests any more.
const CLOSED: u32 = 4;
/// The worker sleeps, or is about to: a thread that sets another flag ends its sleep.
const SLEEPING: u32 = 8;

/// The worker's state when a flag was set.
#[derive(Clone, Copy, Debug)]
pub(super) struct Before {
    /// The worker sleeps, or is about to: wake it.
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

    /// True if a flag is set: one relaxed load in each round.
    #[inline(always)]
    pub(super) fn any(&self) -> bool {
        self.0.load(Ordering::Relaxed) != 0
    }

    /// Clears the flag of requests before the worker reads the inbox. Returns true if it shall
    /// stop.
    pub(super) fn take_mail(&self) -> bool {
        self.0.fetch_and(!MAIL, Ordering::AcqRel) & STOP != 0
    }

    /// The worker has left something in the inbox.
    pub(super) fn leave_mail(&self) {
        self.0.fetch_or(MAIL, Ordering::Relaxed);
    }

    /// Records that the worker is about to sleep; false if it has work instead.
    pub(super) fn fall_asleep(&self) -> bool {
        self.0.fetch_or(SLEEPING, Ordering::AcqRel) == 0
    }

    /// The worker is awake.
    pub(super) fn wake(&self) {
        self.0.fetch_and(!SLEEPING, Ordering::AcqRel);
    }
}
