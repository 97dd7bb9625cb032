//! Signals during calls that sleep.

use crate::cancel::sleep_in_ppoll;
use ringside_bus::signals::BlockedSignals;
use std::ffi::c_int;
use std::time::Duration;

/// The calling thread's signals, held back between the sleeps of one call: a handler runs while the
/// thread sleeps, or after the call, so that no signal is missed.
pub(crate) struct Held {
    blocked: BlockedSignals,
}

impl Held {
    pub(crate) fn new() -> Self {
        Self {
            blocked: BlockedSignals::new(),
        }
    }

    /// Sleeps until a descriptor is ready, a handler has run, or the limit. Returns the number of
    /// ready descriptors, or an errno value.
    pub(crate) fn poll(
        &self,
        sources: &mut [libc::pollfd],
        limit: Duration,
    ) -> Result<c_int, c_int> {
        let time = libc::timespec {
            tv_sec: limit.as_secs() as libc::time_t,
            tv_nsec: limit.subsec_nanos().into(),
        };
        match sleep_in_ppoll(sources, &time, self.blocked.before()) {
            found if found >= 0 => Ok(found),
            _ => Err(std::io::Error::last_os_error()
                .raw_os_error()
                .unwrap_or(libc::EIO)),
        }
    }

    /// The same. True if a handler without `SA_RESTART` may have run.
    pub(crate) fn sleep(&self, sources: &mut [libc::pollfd], limit: Duration) -> bool {
        self.poll(sources, limit) == Err(libc::EINTR) && handlers_end_calls()
    }
}

/// Signals that tell of the thread's own faults.
const OF_FAULTS: [c_int; 7] = [
    libc::SIGSEGV,
    libc::SIGBUS,
    libc::SIGFPE,
    libc::SIGILL,
    libc::SIGTRAP,
    libc::SIGABRT,
    libc::SIGSYS,
];

/// True if a handler of the program is without `SA_RESTART`. Which handler ran cannot be told: with
/// handlers of both kinds, calls end.
fn handlers_end_calls() -> bool {
    let signals = (1..=libc::SIGRTMAX()).filter(|signal| !OF_FAULTS.contains(signal));
    signals.into_iter().any(|signal| {
        // SAFETY: the place is live; nothing is set.
        unsafe {
            let mut set: libc::sigaction = std::mem::zeroed();
            libc::sigaction(signal, std::ptr::null(), &raw mut set) == 0
                && set.sa_sigaction != libc::SIG_DFL
                && set.sa_sigaction != libc::SIG_IGN
                && set.sa_flags & libc::SA_RESTART == 0
        }
    })
}
