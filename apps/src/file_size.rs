//! The limit of file sizes (`RLIMIT_FSIZE`). Memory that two processes share is a file for it.

use crate::failure::Failure;
use anyhow::anyhow;
use ringside_spec::rdma::registers::{DOORBELL_PAGE, DOORBELL_PAGE_BYTES};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The largest file that a model makes: its doorbell page, at its place in BAR 0.
pub(crate) const OF_A_MODEL: u64 = DOORBELL_PAGE + DOORBELL_PAGE_BYTES;

/// Raises the limit of this process as far as it may. Fails if files of `needed` bytes remain too
/// large. Writes beyond the limit are errors, see [`crate::interrupt::refuse_long_files`].
pub(crate) fn raise(needed: u64) -> Result<(), Failure> {
    let limit = getrlimit(Resource::Fsize);
    let raised = Rlimit {
        current: limit.maximum,
        ..limit
    };
    let _ = setrlimit(Resource::Fsize, raised);
    check(getrlimit(Resource::Fsize).current, needed)
}

/// Fails if no process that this one starts may make files of `needed` bytes.
pub(crate) fn check_highest(needed: u64) -> Result<(), Failure> {
    check(getrlimit(Resource::Fsize).maximum, needed)
}

fn check(limit: Option<u64>, needed: u64) -> Result<(), Failure> {
    match limit.filter(|limit| *limit < needed) {
        None => Ok(()),
        Some(limit) => Err(Failure::usage(anyhow!(
            "the limit of file sizes is {limit} bytes, and the model needs {needed}, as memory that processes \
             share counts as a file: raise the limit with `ulimit -f unlimited`"
        ))),
    }
}
