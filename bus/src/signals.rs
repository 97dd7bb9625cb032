//! Signals are the program's: threads of the libraries block all of them.
#![allow(unsafe_code)] // two calls for the thread's mask

/// The calling thread while it blocks all signals. A thread that it makes meanwhile has them
/// blocked for good.
pub struct BlockedSignals {
    before: libc::sigset_t,
}

impl BlockedSignals {
    /// Blocks all signals until the value is dropped.
    #[must_use]
    #[allow(clippy::new_without_default)] // it does something
    pub fn new() -> Self {
        // SAFETY: both sets are live values that the calls fill.
        let before = unsafe {
            let (mut all, mut before) = (std::mem::zeroed(), std::mem::zeroed());
            libc::sigfillset(&raw mut all);
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
            before
        };
        Self { before }
    }

    /// The signals that were blocked before, for calls that sleep with them.
    #[must_use]
    pub const fn before(&self) -> &libc::sigset_t {
        &self.before
    }
}

impl Drop for BlockedSignals {
    fn drop(&mut self) {
        // SAFETY: the set was filled by `new`.
        unsafe {
            libc::pthread_sigmask(
                libc::SIG_SETMASK,
                &raw const self.before,
                std::ptr::null_mut(),
            );
        }
    }
}
