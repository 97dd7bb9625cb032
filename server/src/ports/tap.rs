//! A TAP interface as a wire: the far end is the host's network stack.

use super::{Received, Sent, Wire};
use ringside_bus::tap::{SendError, Tap, TapError};
use std::os::fd::{AsFd, BorrowedFd};

/// A TAP interface; see the module.
#[derive(Debug)]
pub struct TapWire(Tap);

impl TapWire {
    /// Opens the interface `name`, or creates it for the lifetime of this value. Frames are lost
    /// while it is down (`ip link set NAME up`).
    ///
    /// # Errors
    /// The interface cannot be used or created; the error names the remedy.
    pub fn open(name: &str) -> Result<Self, TapError> {
        Tap::open(name).map(Self)
    }
}

impl Wire for TapWire {
    fn name(&self) -> String {
        format!("tap {}", self.0.name())
    }

    fn receive(&mut self, buffer: &mut [u8]) -> Received {
        match self.0.receive(buffer) {
            Ok(Some(length)) => Received::Frame(length),
            Ok(None) => Received::Nothing,
            Err(_) => Received::Failed,
        }
    }

    fn send(&mut self, frame: &[u8]) -> Sent {
        match self.0.send(frame) {
            Ok(()) => Sent::Gone,
            Err(SendError::NoRoom) => Sent::NoRoom,
            Err(SendError::Down) => Sent::NoPeer,
            Err(SendError::Refused(_)) => Sent::Refused,
        }
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
