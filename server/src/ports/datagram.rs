//! A wire of unix datagrams, one a frame: what QEMU calls `-netdev dgram` with addresses of type
//! unix, and the wire between two models.
//!
//! Each side binds a path of its own and sends to the other's. The far end may come late, go away
//! and come back; it is looked for with each frame.

use super::socket_file::{SocketFile, SocketPathError};
use super::{Received, Sent, Wire};
use std::io::ErrorKind;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};

/// Why there is no datagram wire.
#[derive(Debug, thiserror::Error)]
pub enum DatagramError {
    /// Its own path cannot be had.
    #[error(transparent)]
    Path(#[from] SocketPathError),
    /// Both ends at one path.
    #[error("{path}: both ends of the wire; each side needs a path of its own")]
    ToItself {
        /// The path.
        path: String,
    },
    /// The far end's path cannot be one.
    #[error("{path}: {error}; a socket's path has at most 107 bytes")]
    FarPath {
        /// The path.
        path: String,
        /// The system's words.
        error: String,
    },
}

/// See the module.
#[derive(Debug)]
pub struct DatagramWire {
    socket: UnixDatagram,
    file: SocketFile,
    far: PathBuf,
    far_address: std::os::unix::net::SocketAddr,
}

impl DatagramWire {
    /// Binds `local`, in place of a socket that a dead process left there; frames go to `far`, which
    /// need not exist.
    ///
    /// # Errors
    /// A path that is in use, taken by something else, or cannot be created.
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
        let is_alive = |path: &Path| {
            let probe = UnixDatagram::unbound();
            probe.is_ok_and(|probe| probe.connect(path).is_ok())
        };
        let (socket, file) = SocketFile::make(local, is_alive, |path| {
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
                Sent::NobodyThere
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
