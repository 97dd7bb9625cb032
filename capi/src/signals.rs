//! Signals are the program's: threads of the library start with all of them blocked.

pub(crate) fn block_signals() -> libc::sigset_t {
    // SAFETY: both sets are live values that the calls fill.
    unsafe {
        let mut all = std::mem::zeroed();
        let mut before = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
        before
    }
}

pub(crate) fn restore_signals(before: &libc::sigset_t) {
    // SAFETY: the set was filled by `block_signals`.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before, std::ptr::null_mut()) };
}
