//! Errors as verbs gives them.

use ringside_bus::FunctionError;
use ringside_bus::memory::MemoryError;
use ringside_pmd::control::ControlError;
use ringside_pmd::rdma::{PostError, RdmaError};
use ringside_spec::rdma::control_completion::CommandFailure;
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
        RdmaError::DeviceFailed { .. } | RdmaError::Failed { .. } => libc::EIO,
        // The device refused the values of the request, unless it says that it is broken.
        RdmaError::Control(ControlError::Refused { failure, .. }) if !is_broken(failure) => {
            libc::EINVAL
        }
        RdmaError::Control(_) | RdmaError::Admin(_) | RdmaError::Function(_) => libc::EIO,
        // The operating system, or the device's address space, has no more to give.
        RdmaError::Memory(
            MemoryError::NoHugePages { .. }
            | MemoryError::NotEnough { .. }
            | MemoryError::System { .. }
            | MemoryError::NoAddressSpace { .. }
            | MemoryError::Function(FunctionError::Mapping { .. } | FunctionError::System { .. })
            | MemoryError::Closed,
        )
        | RdmaError::System { .. }
        | RdmaError::PageList(_) => libc::ENOMEM,
        RdmaError::Memory(MemoryError::Function(_)) => libc::EIO,
        RdmaError::Occupied { .. } | RdmaError::NotDrained { .. } | RdmaError::Draining { .. } => {
            libc::EBUSY
        }
        RdmaError::Capacity { .. }
        | RdmaError::AddressesFull { .. }
        | RdmaError::Quota { .. }
        | RdmaError::GroupFull { .. } => libc::ENOMEM,
        _ => libc::EINVAL,
    }
}

/// True if only a reset of the device helps.
fn is_broken(failure: &CommandFailure) -> bool {
    matches!(
        failure,
        CommandFailure::Fatal
            | CommandFailure::ObjectCache { .. }
            | CommandFailure::ContextCache { .. }
    )
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
