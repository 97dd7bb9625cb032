//! Files of the kernel for programs of a device that is no model of `ringside run`.

use super::locks::locked;
use crate::failure::Failure;
use crate::farewell;
use anyhow::Context;
use ringside_bus::DeviceAddress;
use rustix::fs::FlockOperation;
use rustix::io::{FdFlags, fcntl_setfd};
use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};

/// The files of the kernel for the programs of one device that is not this command's model. Each
/// program shares their lock, from its start to its end, as it shares `users` of a model.
pub(crate) struct DeviceFiles {
    lock_path: PathBuf,
    path: PathBuf,
    lock: File,
}

/// A short name for a path, without separators. Different paths have different ones.
pub(crate) fn name_of(path: &Path) -> String {
    let mut hasher = DefaultHasher::new();
    path.hash(&mut hasher);
    format!("{:016x}", hasher.finish())
}

impl DeviceFiles {
    /// Shares the files of `device`, and lets programs that are started from now on hold them.
    /// Those that a killed command has left are removed.
    pub(crate) fn share(folder: &Path, device: &DeviceAddress) -> Result<Self, Failure> {
        let name = match device {
            DeviceAddress::VfioUser(path) => format!("device-vfio-user-{}", name_of(path)),
            other => format!("device-{}", other.to_string().replace(':', "_")),
        };
        let lock_path = folder.join(format!("{name}.lock"));
        let path = folder.join(format!("{name}.files"));
        remove_if_unused(&lock_path, &path);
        let lock = locked(&lock_path, FlockOperation::LockShared)?;
        fcntl_setfd(&lock, FdFlags::empty()).context("sharing a lock with the program")?;
        Ok(Self {
            lock_path,
            path,
            lock,
        })
    }

    /// The folder of the files.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Removes the files unless another program of the device has them, or the next one is to send
    /// messages in them to the peers of a killed one.
    pub(crate) fn leave(self) {
        drop(self.lock);
        remove_if_unused(&self.lock_path, &self.path);
    }
}

fn remove_if_unused(lock: &Path, files: &Path) {
    if let Ok(_alone) = locked(lock, FlockOperation::NonBlockingLockExclusive)
        && !farewell::is_left(files)
    {
        let _ = std::fs::remove_dir_all(files);
    }
}
