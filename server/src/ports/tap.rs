//! A TAP interface as a wire: the far end is the host's network stack.

use super::{Received, Sent, Wire};
use ringside_bus::tap::{self, TapError};
use rustix::io::Errno;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// A TAP interface; see the module.
#[derive(Debug)]
pub struct TapWire {
    name: String,
    descriptor: OwnedFd,
}

impl TapWire {
    /// Opens the interface `name`, or creates it for the lifetime of this value. Frames are lost
    /// while it is down (`ip link set NAME up`).
    ///
    /// # Errors
    /// The interface cannot be used or created; the error names the remedy.
    pub fn open(name: &str) -> Result<Self, TapError> {
        Ok(Self {
            name: name.into(),
            descriptor: tap::open(name)?,
        })
    }

    /// Shows the host if the wire can carry frames: without a carrier it sends none.
    ///
    /// # Errors
    /// The kernel refuses: it is older than 5.0.
    pub fn set_carrier(&self, up: bool) -> std::io::Result<()> {
        tap::set_carrier(&self.descriptor, up)
    }
}

impl Wire for TapWire {
    fn name(&self) -> String {
        format!("tap {}", self.name)
    }

    fn receive(&mut self, buffer: &mut [u8]) -> Received {
        match rustix::io::read(&self.descriptor, buffer) {
            Ok(length) => Received::Frame(length),
            Err(Errno::AGAIN | Errno::INTR) => Received::Nothing,
            Err(_) => Received::Failed,
        }
    }

    fn send(&mut self, frame: &[u8]) -> Sent {
        match rustix::io::write(&self.descriptor, frame) {
            Ok(_) => Sent::Gone,
            Err(Errno::AGAIN | Errno::INTR) => Sent::NoRoom,
            // the interface is down
            Err(Errno::IO) => Sent::NoPeer,
            Err(_) => Sent::Refused,
        }
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}
