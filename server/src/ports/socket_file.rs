//! The path of a unix socket: created only if no process uses it, and removed afterwards.

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Reasons why a path cannot be used for a socket.
#[derive(Debug, thiserror::Error)]
pub enum SocketPathError {
    /// A process has a socket there, of any type.
    #[error(
        "{path}: a process is already listening there; stop that process or choose another path"
    )]
    InUse {
        /// The path.
        path: String,
    },
    /// A socket is there, and this process cannot tell if another process uses it.
    #[error(
        "{path}: a socket, which is not replaced because it is unknown if a process uses it: \
         {error}; remove it if none does, or choose another path"
    )]
    Unknown {
        /// The path.
        path: String,
        /// The operating system's message.
        error: String,
    },
    /// The path exists and is not a socket.
    #[error("{path}: exists and is not a socket, so it is not replaced; choose another path")]
    NotASocket {
        /// The path.
        path: String,
    },
    /// The operating system refused the operation.
    #[error(
        "{path}: {operation}: {error}; check that its directory exists and can be written to, \
         and that the path has at most 107 bytes"
    )]
    System {
        /// The path.
        path: String,
        /// The operation.
        operation: &'static str,
        /// The operating system's message.
        error: String,
    },
}

/// Removes the socket when dropped, unless another process has replaced it.
///
/// The owner drops it before it closes the socket: an open socket keeps its inode, so that the
/// socket of another process cannot have the same one.
#[derive(Debug)]
pub struct SocketFile {
    path: PathBuf,
    inode: Option<(u64, u64)>,
}

impl SocketFile {
    /// Creates a socket at `path` with `bind`, replacing one that no process uses any more.
    ///
    /// # Errors
    /// The path is in use, is not a socket, or cannot be created.
    pub fn make<S>(
        path: &Path,
        bind: impl FnOnce(&Path) -> std::io::Result<S>,
    ) -> Result<(S, Self), SocketPathError> {
        let name = || path.display().to_string();
        let system = |operation| {
            move |error: std::io::Error| SocketPathError::System {
                path: path.display().to_string(),
                operation,
                error: error.to_string(),
            }
        };
        if let Ok(found) = std::fs::symlink_metadata(path) {
            if !found.file_type().is_socket() {
                return Err(SocketPathError::NotASocket { path: name() });
            }
            match use_of(probe(path)) {
                Use::Ended => {
                    remove(path).map_err(system("removing the socket of an ended process"))?
                }
                Use::Held => return Err(SocketPathError::InUse { path: name() }),
                Use::Unknown(error) => {
                    let error = error.to_string();
                    return Err(SocketPathError::Unknown {
                        path: name(),
                        error,
                    });
                }
            }
        }
        let socket = bind(path).map_err(system("creating the socket"))?;
        let file = Self {
            path: path.to_owned(),
            inode: inode(path),
        };
        Ok((socket, file))
    }

    /// Its path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// The use of a socket's path.
#[derive(Debug, PartialEq, Eq)]
enum Use {
    /// The process that had it has closed it.
    Ended,
    /// A process has it open.
    Held,
    Unknown(Errno),
}

/// Connects to a path with a socket of a type that nothing here uses. The kernel finds out first if
/// a process has the socket, then that the types differ: no server sees a connection, no backlog is
/// waited for, and a socket that does not listen yet is not taken for one that is closed.
fn probe(path: &Path) -> Result<(), Errno> {
    let address = SocketAddrUnix::new(path)?;
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
    let socket = rustix::net::socket_with(family, kind, flags, None)?;
    rustix::net::connect(&socket, &address)
}

/// The meaning of a probe's outcome. Only the kernel's word that no process has the socket lets it
/// be removed; permissions, limits and full backlogs do not.
fn use_of(outcome: Result<(), Errno>) -> Use {
    match outcome {
        Err(Errno::CONNREFUSED | Errno::NOENT) => Use::Ended,
        Ok(()) | Err(Errno::PROTOTYPE | Errno::AGAIN) => Use::Held,
        Err(error) => Use::Unknown(error),
    }
}

/// Removes a path; its owner may have done it meanwhile.
fn remove(path: &Path) -> std::io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        outcome => outcome,
    }
}

fn inode(path: &Path) -> Option<(u64, u64)> {
    let found = std::fs::symlink_metadata(path).ok()?;
    Some((found.dev(), found.ino()))
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if self.inode.is_some() && inode(&self.path) == self.inode {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests;
