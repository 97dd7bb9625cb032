//! A message that is refused, and its error number.

use ringside_bus::vfio_user::DecodeError;
use ringside_bus::vfio_user::stream::Fault;

// Error numbers. Source: `asm-generic/errno-base.h`, `asm-generic/errno.h`.
pub(super) const EPERM: u32 = 1;
pub(super) const ENOENT: u32 = 2;
pub(super) const E2BIG: u32 = 7;
pub(super) const ENOMEM: u32 = 12;
pub(super) const EEXIST: u32 = 17;
pub(super) const EINVAL: u32 = 22;
pub(super) const ENOSPC: u32 = 28;
pub(super) const EPROTO: u32 = 71;
pub(super) const ENOTSUP: u32 = 95;

/// The reason why a message was refused.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    /// Never zero: some clients treat zero as success.
    pub(super) errno: u32,
    pub(super) reason: String,
}

impl Refusal {
    pub(super) fn new(errno: u32, reason: impl Into<String>) -> Self {
        Self {
            errno,
            reason: reason.into(),
        }
    }

    pub(super) fn invalid(reason: impl Into<String>) -> Self {
        Self::new(EINVAL, reason)
    }
}

impl From<DecodeError> for Refusal {
    fn from(error: DecodeError) -> Self {
        Self::invalid(error.to_string())
    }
}

impl From<Fault> for Refusal {
    fn from(fault: Fault) -> Self {
        let errno = match fault {
            Fault::TooLong(_) => E2BIG,
            Fault::TooShort(_) | Fault::TooManyDescriptors => EINVAL,
        };
        Self::new(errno, fault.to_string())
    }
}
