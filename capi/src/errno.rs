//! Errors as verbs gives them.

use ringside_pmd::control::ControlError;
use ringside_pmd::rdma::{PostError, RdmaError};
use std::ffi::c_int;

/// Sets `errno` of this thread.
pub(crate) fn set(error: c_int) {
    // SAFETY: the C library gives each thread a valid place for it.
    unsafe { *libc::__errno_location() = error };
}

/// Sets `errno`, returns -1: the convention of some calls.
pub(crate) fn minus_one(error: c_int) -> c_int {
    set(error);
    -1
}

/// Sets `errno`, returns it: the convention of the other calls that control objects.
pub(crate) fn failed(error: c_int) -> c_int {
    set(error);
    error
}

/// 0, or an errno value that is also in `errno`.
pub(crate) fn returned(result: Result<(), c_int>) -> c_int {
    result.map_or_else(failed, |()| 0)
}

/// 0, or -1 with `errno` set.
pub(crate) fn answer(result: Result<(), c_int>) -> c_int {
    match result {
        Ok(()) => 0,
        Err(error) => minus_one(error),
    }
}

/// Sets `errno`, returns a null pointer.
pub(crate) fn null<T>(error: c_int) -> *mut T {
    set(error);
    std::ptr::null_mut()
}

/// The number for an error of the driver; the text goes to the log.
pub(crate) fn of(error: &RdmaError) -> c_int {
    tracing::warn!(%error, "refused");
    match error {
        RdmaError::Unavailable { .. } | RdmaError::ShutDown => libc::ENODEV,
        RdmaError::DeviceFailed { .. } | RdmaError::System { .. } | RdmaError::Failed { .. } => {
            libc::EIO
        }
        // The device did not carry the request out, whatever the request was.
        RdmaError::Control(ControlError::Refused { .. }) => libc::EINVAL,
        RdmaError::Control(_) | RdmaError::Admin(_) | RdmaError::Function(_) => libc::EIO,
        RdmaError::Occupied { .. } | RdmaError::NotDrained { .. } | RdmaError::Draining { .. } => {
            libc::EBUSY
        }
        RdmaError::Capacity { .. } | RdmaError::Quota { .. } | RdmaError::GroupFull { .. } => {
            libc::ENOMEM
        }
        _ => libc::EINVAL,
    }
}

/// The number for a request that was not posted.
pub(crate) fn of_post(error: &PostError) -> c_int {
    match error {
        PostError::QueueFull => libc::ENOMEM,
        PostError::DeviceFailed | PostError::Destroyed | PostError::OtherProcess => libc::EIO,
        PostError::NoAtomics => libc::EOPNOTSUPP,
        _ => libc::EINVAL,
    }
}
