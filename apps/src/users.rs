//! The folder of `ringside run`: sockets of a model, and locks that tell who uses it.
//!
//! `turn` is held while a program starts or ends the model. Each program shares `users`, and has
//! `N.lock` of its port for itself, from its start to its end: the program inherits both, so they
//! last as long as it does, also if its `ringside run` is killed. The model ends itself once it
//! gets `users` alone, and has `model.lock` until its process has ended: another container that
//! shares the folder may not see the process.

mod device_files;
mod farewells;
mod locks;
mod notes;
mod places;
mod watch;

pub(crate) use device_files::{DeviceFiles, name_of};
pub(crate) use farewells::{is_telling, remove_files, say_farewells};
pub(crate) use locks::{has_model_ended, model_alone, turn};
pub(crate) use notes::{Remark, forget_remark, note_failure, note_remark, take_failure};
pub(crate) use places::{Peers, files, is_own_model, not_made, pid_file, socket};
pub(crate) use watch::Watch;

use crate::failure::Failure;
use anyhow::{Context, anyhow};
use farewells::leaving_mark;
use locks::{alone_at, locked};
use rustix::fs::FlockOperation;
use rustix::io::{FdFlags, fcntl_setfd};
use std::fs::File;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// All rights of a folder for its owner, and no others.
const OWNER: u32 = 0o700;

/// The user's folder for sockets and locks.
pub(crate) fn folder() -> Result<PathBuf, Failure> {
    use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
    let user = rustix::process::getuid().as_raw();
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    // Source: XDG Base Directory Specification: a path that is empty or relative is as good as
    // none.
    let folder = match runtime.filter(|runtime| runtime.is_absolute()) {
        Some(runtime) => runtime.join("ringside"),
        None => PathBuf::from(format!("/tmp/ringside-{user}")),
    };
    if folder.to_str().is_none() {
        return Err(Failure::usage(anyhow!(
            "XDG_RUNTIME_DIR={}: programs name the device by a path in this folder, as text: name a \
             folder in UTF-8",
            folder.display()
        )));
    }
    let made = std::fs::DirBuilder::new()
        .recursive(true)
        .mode(OWNER)
        .create(&folder);
    made.with_context(|| {
        let folder = folder.display();
        format!("making {folder}: name a folder that you may write to with XDG_RUNTIME_DIR")
    })?;
    let found = std::fs::symlink_metadata(&folder).context("looking at the folder of sockets")?;
    let wrong = match (found.is_symlink(), found.uid() == user) {
        (true, _) => "is a symbolic link, which could lead to another user's folder",
        (false, false) => "belongs to another user",
        (false, true) => {
            // A umask, now or at an earlier start, has no say in the owner's rights.
            if found.mode() & OWNER != OWNER {
                let rights = std::fs::Permissions::from_mode(OWNER);
                let set = std::fs::set_permissions(&folder, rights);
                set.with_context(|| format!("setting the rights of {}", folder.display()))?;
            }
            return Ok(folder);
        }
    };
    Err(Failure::operation(anyhow!(
        "{} {wrong}: remove it, or name another folder with XDG_RUNTIME_DIR",
        folder.display()
    )))
}

/// A function of the model that this program has.
pub(crate) struct Port {
    pub(crate) number: u16,
    /// shared with all programs
    users: File,
    own: File,
}

/// The outcome of taking a port.
pub(crate) enum Taken {
    /// It is this program's.
    Port(Port),
    /// None is free, and of one the model still tells the peers of its former program.
    Leaving,
    /// All have programs.
    None,
}

impl Port {
    /// Takes the first port of `numbers` that is free.
    pub(crate) fn take(folder: &Path, numbers: Range<u16>) -> Result<Taken, Failure> {
        let users = locked(&folder.join("users"), FlockOperation::LockShared)?;
        let mut taken = Taken::None;
        for number in numbers {
            let mark = leaving_mark(folder, number);
            // Looked for before the lock is tried: the model releases the lock first.
            let is_leaving = mark.exists();
            if let Some(own) = alone_at(folder, number) {
                // Of a model that was killed.
                let _ = std::fs::remove_file(mark);
                return Ok(Taken::Port(Self { number, users, own }));
            }
            if is_leaving {
                taken = Taken::Leaving;
            }
        }
        Ok(taken)
    }

    /// Lets programs that are started from now on hold the port.
    pub(crate) fn inherit(&self) -> Result<(), Failure> {
        for lock in [&self.users, &self.own] {
            fcntl_setfd(lock, FdFlags::empty()).context("sharing a lock with the program")?;
        }
        Ok(())
    }

    /// Releases the port; the lock `turn` is held. True if no program uses the model.
    pub(crate) fn leave(self, folder: &Path, peers: Peers) -> bool {
        drop((self.users, self.own));
        let alone = model_alone(folder);
        remove_files(folder, alone.is_none() || peers == Peers::BehindWires);
        alone.is_some()
    }
}
