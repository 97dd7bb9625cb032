//! Locks of the folder of `ringside run`.

use super::places::not_made;
use crate::failure::Failure;
use anyhow::Context;
use rustix::fs::{FlockOperation, flock};
use std::fs::File;
use std::path::{Path, PathBuf};

fn model_lock(folder: &Path) -> PathBuf {
    folder.join("model.lock")
}

/// The lock of the model's process. Errors: an earlier model has not ended.
pub(super) fn model(folder: &Path) -> Result<File, Failure> {
    locked(
        &model_lock(folder),
        FlockOperation::NonBlockingLockExclusive,
    )
}

/// True if the process of the model has ended. It can be in another container.
pub(crate) fn has_model_ended(folder: &Path) -> bool {
    model(folder).is_ok()
}

/// The right to start or end the model, waiting if need be.
pub(crate) fn turn(folder: &Path) -> Result<File, Failure> {
    locked(&folder.join("turn"), FlockOperation::LockExclusive)
}

/// The right to start or end the model, unless another process has it.
pub(super) fn turn_now(folder: &Path) -> Option<File> {
    let path = folder.join("turn");
    locked(&path, FlockOperation::NonBlockingLockExclusive).ok()
}

/// The lock of all programs, if none has it.
pub(crate) fn model_alone(folder: &Path) -> Option<File> {
    let path = folder.join("users");
    locked(&path, FlockOperation::NonBlockingLockExclusive).ok()
}

/// The lock of a port, if no program has it.
pub(super) fn alone_at(folder: &Path, port: u16) -> Option<File> {
    let path = folder.join(format!("{port}.lock"));
    locked(&path, FlockOperation::NonBlockingLockExclusive).ok()
}

/// A lock file, opened and locked, waiting if need be.
pub(super) fn locked(path: &Path, how: FlockOperation) -> Result<File, Failure> {
    let file = File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .open(path);
    let file = file.map_err(|error| not_made(&format!("opening {}", path.display()), error))?;
    flock(&file, how).with_context(|| format!("locking {}", path.display()))?;
    Ok(file)
}
