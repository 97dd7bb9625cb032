//! The folder of `ringside run`: sockets of a model, and locks that tell who uses it.
//!
//! `turn` is held while a program starts or ends the model. Each program shares `users`, and has
//! `N.lock` of its port for itself, from its start to its end: the program inherits both, so they
//! last as long as it does, also if its `ringside run` is killed. The model ends itself once it
//! gets `users` alone.

use crate::failure::Failure;
use anyhow::Context;
use rustix::fs::{FlockOperation, flock};
use rustix::io::{FdFlags, fcntl_setfd};
use std::fs::File;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// A function of the model that this program has.
pub(crate) struct Port {
    pub(crate) number: u16,
    /// shared with all programs
    users: File,
    own: File,
}

impl Port {
    /// Takes the first free port of `numbers`; `None` if all have programs.
    pub(crate) fn take(folder: &Path, numbers: Range<u16>) -> Result<Option<Self>, Failure> {
        let users = locked(&folder.join("users"), FlockOperation::LockShared)?;
        let mut numbers = numbers.into_iter();
        let taken = numbers.find_map(|number| Some((number, alone_at(folder, number)?)));
        Ok(taken.map(|(number, own)| Self { number, users, own }))
    }

    /// Lets programs that are started from now on hold the port.
    pub(crate) fn inherit(&self) -> Result<(), Failure> {
        for lock in [&self.users, &self.own] {
            fcntl_setfd(lock, FdFlags::empty()).context("sharing a lock with the program")?;
        }
        Ok(())
    }

    /// Releases the port; the lock `turn` is held. True if no program uses the model.
    pub(crate) fn leave(self, folder: &Path) -> bool {
        drop((self.users, self.own));
        remove_files(folder);
        model_alone(folder).is_some()
    }
}

/// The files of the kernel for the program of a port.
pub(crate) fn files(folder: &Path, port: u16) -> PathBuf {
    folder.join(format!("{port}.files"))
}

/// The file with the number of the model's process.
pub(crate) fn pid_file(folder: &Path) -> PathBuf {
    folder.join("model.pid")
}

/// The right to start or end the model, waiting if need be.
pub(crate) fn turn(folder: &Path) -> Result<File, Failure> {
    locked(&folder.join("turn"), FlockOperation::LockExclusive)
}

/// The lock of all programs, if none has it.
pub(crate) fn model_alone(folder: &Path) -> Option<File> {
    let path = folder.join("users");
    locked(&path, FlockOperation::NonBlockingLockExclusive).ok()
}

fn alone_at(folder: &Path, port: u16) -> Option<File> {
    let path = folder.join(format!("{port}.lock"));
    locked(&path, FlockOperation::NonBlockingLockExclusive).ok()
}

/// Removes the files of ports that have no program. What is left is removed the next time.
fn remove_files(folder: &Path) {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    for entry in entries {
        let name = entry.file_name();
        let port = name.to_str().and_then(|name| name.strip_suffix(".files"));
        if let Some(port) = port.and_then(|port| port.parse().ok())
            && alone_at(folder, port).is_some()
        {
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}

/// A lock file, opened and locked, waiting if need be.
fn locked(path: &Path, how: FlockOperation) -> Result<File, Failure> {
    let file = File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .open(path);
    let file = file.with_context(|| format!("opening {}", path.display()))?;
    flock(&file, how).with_context(|| format!("locking {}", path.display()))?;
    Ok(file)
}

/// The model's view of the folder.
pub(crate) struct Watch {
    folder: PathBuf,
    /// held from the decision to end until the process has ended, so that the next model waits
    last: Vec<File>,
}

impl Watch {
    pub(crate) const fn new(folder: PathBuf) -> Self {
        Self {
            folder,
            last: Vec::new(),
        }
    }

    /// Removes files of programs that were killed. True once this model has no program, or is not
    /// the one that programs of the folder use.
    pub(crate) fn is_over(&mut self) -> bool {
        let path = self.folder.join("turn");
        let Ok(turn) = locked(&path, FlockOperation::NonBlockingLockExclusive) else {
            return false; // a program starts or ends: the next time
        };
        remove_files(&self.folder);
        let pid_file = pid_file(&self.folder);
        let pid = std::fs::read_to_string(&pid_file).unwrap_or_default();
        let own = std::process::id().to_string();
        let users = model_alone(&self.folder);
        if pid == own && users.is_none() {
            return false;
        }
        if pid == own {
            let _ = std::fs::remove_file(pid_file);
        }
        self.last = users.into_iter().chain([turn]).collect();
        true
    }
}
