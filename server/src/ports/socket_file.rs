//! A unix socket's place in the file system: taken only where nobody is, and given back.

use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Why a path cannot be had for a socket.
#[derive(Debug, thiserror::Error)]
pub enum SocketPathError {
    /// Somebody answers there.
    #[error(
        "{path}: somebody is already listening there; stop that process or choose another path"
    )]
    InUse {
        /// The path.
        path: String,
    },
    /// Something that is no socket is there.
    #[error("{path}: exists and is no socket, so it is left alone; choose another path")]
    NotASocket {
        /// The path.
        path: String,
    },
    /// The system refused.
    #[error(
        "{path}: {operation}: {error}; check that its directory exists and can be written to, \
         and that the path has at most 107 bytes"
    )]
    System {
        /// The path.
        path: String,
        /// The operation.
        operation: &'static str,
        /// The system's words.
        error: String,
    },
}

/// Removes the socket when dropped, unless somebody has put another in its place.
#[derive(Debug)]
pub struct SocketFile {
    path: PathBuf,
    inode: Option<(u64, u64)>,
}

impl SocketFile {
    /// Makes a socket at `path` with `bind`, in place of one that nobody is behind any more, as
    /// `is_alive` finds out.
    ///
    /// # Errors
    /// A path that is in use, taken by something else, or cannot be created.
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
            std::fs::remove_file(path).map_err(system("removing a dead process's socket"))?;
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
