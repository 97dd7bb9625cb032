//! The kernel's `epoll`, called directly: the C library's functions of these names may be those of
//! `librspreload`, which call the functions of this library.

use crate::channel::last_error;
use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::os::fd::{FromRawFd, OwnedFd};

/// Makes a list; its descriptor is closed in programs that this one starts if `closes_on_exec`.
/// Errors: those of epoll_create1(2).
pub(super) fn create(closes_on_exec: bool) -> Result<OwnedFd, c_int> {
    let flags = if closes_on_exec {
        libc::EPOLL_CLOEXEC
    } else {
        0
    };
    // SAFETY: no memory is handed over.
    let made = unsafe { libc::syscall(libc::SYS_epoll_create1, flags) };
    match c_int::try_from(made) {
        // SAFETY: the new descriptor has no other owner.
        Ok(made @ 0..) => Ok(unsafe { OwnedFd::from_raw_fd(made) }),
        _ => Err(last_error()),
    }
}

/// Changes a list. Errors: those of epoll_ctl(2).
pub(super) fn control(
    list: c_int,
    operation: c_int,
    descriptor: c_int,
    event: Option<libc::epoll_event>,
) -> Result<(), c_int> {
    let event = event
        .as_ref()
        .map_or(std::ptr::null(), |event| &raw const *event);
    // SAFETY: a live event, or none for the operation that reads none.
    let result = unsafe { libc::syscall(libc::SYS_epoll_ctl, list, operation, descriptor, event) };
    if result < 0 {
        Err(last_error())
    } else {
        Ok(())
    }
}

/// Waits for events, at most `limit_ms`; writes as many as there is room for, and returns how many.
/// Errors: those of epoll_wait(2).
pub(super) fn wait(
    list: c_int,
    into: &mut [MaybeUninit<libc::epoll_event>],
    limit_ms: c_int,
) -> Result<usize, c_int> {
    if into.is_empty() {
        return Ok(0);
    }
    let room = c_int::try_from(into.len()).unwrap_or(c_int::MAX);
    // SAFETY: the room is as long as is said; no mask of signals.
    let count = unsafe {
        libc::syscall(
            libc::SYS_epoll_pwait,
            list,
            into.as_mut_ptr(),
            room,
            limit_ms,
            std::ptr::null::<libc::sigset_t>(),
            0_usize,
        )
    };
    usize::try_from(count).map_err(|_| last_error())
}
