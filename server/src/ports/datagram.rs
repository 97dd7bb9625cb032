//! A wire of unix datagrams, one datagram a frame: QEMU's `-netdev dgram` with addresses of type
//! unix, or the wire between two models.
//!
//! Each side binds its own path and sends to the other's. The far end may start late, stop and
//! start again; each frame tries it again.

use super::socket_file::{SocketFile, SocketPathError};
use super::{Received, Sent, Wire};
use std::io::ErrorKind;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};

/// Reasons why a datagram wire is not available.
#[derive(Debug, thiserror::Error)]
pub enum DatagramError {
    /// Its own path cannot be used.
    #[error(transparent)]
    Path(#[from] SocketPathError),
    /// Both ends have the same path.
    #[error("{path}: both ends of the wire; each side needs a path of its own")]
    ToItself {
        /// The path.
        path: String,
    },
    /// The far end's path is not a valid socket path.
    #[error("{path}: {error}; a socket's path has at most 107 bytes")]
    FarPath {
        /// The path.
        path: String,
        /// The operating system's message.
        error: String,
    },
}

/// A wire of unix datagrams; see the module.
#[derive(Debug)]
pub struct DatagramWire {
    /// removed before the socket is closed, see [`SocketFile`]
    file: SocketFile,
    socket: UnixDatagram,
    far: PathBuf,
    far_address: std::os::unix::net::SocketAddr,
}

impl DatagramWire {
    /// Binds `local`, replacing a socket that an ended process left there. Frames are sent to
    /// `far`, which need not exist.
    ///
    /// # Errors
    /// The path is in use, is not a socket, or cannot be created.
    pub fn bind(local: &Path, far: &Path) -> Result<Self, DatagramError> {
        if local == far {
            let path = local.display().to_string();
            return Err(DatagramError::ToItself { path });
        }
        let far_address = std::os::unix::net::SocketAddr::from_pathname(far).map_err(|error| {
            DatagramError::FarPath {
                path: far.display().to_string(),
                error: error.to_string(),
            }
        })?;
        let (socket, file) = SocketFile::make(local, |path| {
            let socket = UnixDatagram::bind(path)?;
            socket.set_nonblocking(true)?;
            Ok(socket)
        })?;
        Ok(Self {
            socket,
            file,
            far: far.to_owned(),
            far_address,
        })
    }
}

impl Wire for DatagramWire {
    fn name(&self) -> String {
        let (local, far) = (self.file.path().display(), self.far.display());
        format!("datagrams {local} to {far}")
    }

    fn receive(&mut self, buffer: &mut [u8]) -> Received {
        match self.socket.recv(buffer) {
            Ok(length) => Received::Frame(length),
            Err(error) if is_no_room(&error) => Received::Nothing,
            Err(_) => Received::Failed,
        }
    }

    fn send(&mut self, frame: &[u8]) -> Sent {
        let Err(error) = self.socket.send_to_addr(frame, &self.far_address) else {
            return Sent::Gone;
        };
        match error.kind() {
            _ if is_no_room(&error) => Sent::NoRoom,
            ErrorKind::NotFound | ErrorKind::ConnectionRefused | ErrorKind::ConnectionReset => {
                Sent::NoPeer
            }
            _ => Sent::Refused,
        }
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn is_no_room(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}
