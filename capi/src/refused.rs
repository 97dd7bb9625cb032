//! Requests that were not posted.

use crate::errno;
use ringside_pmd::rdma::PostError;
use std::ffi::c_int;

/// The reason why a request was not posted.
pub(crate) enum Refused {
    /// an errno value
    Errno(c_int),
    /// the queue pair has failed: the request completes as flushed
    Flushed,
}

impl Refused {
    /// Completes the request by `flush` if its queue pair has failed; else the errno value.
    pub(crate) fn settle(self, flush: impl FnOnce() -> Result<(), c_int>) -> Result<(), c_int> {
        match self {
            Self::Flushed => flush(),
            Self::Errno(error) => Err(error),
        }
    }
}

impl From<c_int> for Refused {
    fn from(error: c_int) -> Self {
        Self::Errno(error)
    }
}

#[cold]
#[inline(never)]
pub(crate) fn refused(error: PostError) -> Refused {
    error.into()
}

impl From<PostError> for Refused {
    fn from(error: PostError) -> Self {
        match error {
            PostError::Failed | PostError::DeviceFailed | PostError::Destroyed => Self::Flushed,
            error => Self::Errno(errno::of_post(&error)),
        }
    }
}
