//! The path of a unix socket: created only if no process uses it, and removed afterwards.

use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Reasons why a path cannot be used for a socket.
#[derive(Debug, thiserror::Error)]
pub enum SocketPathError {
    /// A process accepts connections there.
    #[error(
        "{path}: a process is already listening there; stop that process or choose another path"
    )]
    InUse {
        /// The path.
        path: String,
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
    /// Creates a socket at `path` with `bind`, replacing one that no process uses any more;
    /// `is_alive` checks that.
    ///
    /// # Errors
    /// The path is in use, is not a socket, or cannot be created.
    pub fn make<S>(
        path: &Path,
        is_alive: impl FnOnce(&Path) -> bool,
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
            if is_alive(path) {
                return Err(SocketPathError::InUse { path: name() });
            }
            std::fs::remove_file(path)
                .map_err(system("removing the socket of an ended process"))?;
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
