//! The host's request to release the device.

use ringside_bus::{Function, FunctionError};
use rustix::event::{EventfdFlags, eventfd};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

/// The request, connected to a descriptor. Dropping it disconnects.
pub(crate) struct ReleaseRequest {
    function: Arc<dyn Function>,
    event: OwnedFd,
}

impl ReleaseRequest {
    /// Connects it. `None` if the backend has no request, or refuses: the device works without.
    pub(crate) fn connect(function: &Arc<dyn Function>) -> Option<Self> {
        let device = function.address();
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .inspect_err(|error| {
                tracing::warn!(%device, %error, "requests to release the device are not seen");
            })
            .ok()?;
        match function.set_release_event(Some(event.as_fd())) {
            Ok(()) => Some(Self {
                function: Arc::clone(function),
                event,
            }),
            Err(FunctionError::Unsupported { .. }) => None,
            Err(error) => {
                tracing::warn!(%device, %error, "requests to release the device are not seen");
                None
            }
        }
    }

    /// True if the host has asked since the last call.
    pub(crate) fn take(&self) -> bool {
        rustix::io::read(&self.event, &mut [0; 8]).is_ok()
    }

    /// Readable while a request waits.
    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}

impl Drop for ReleaseRequest {
    fn drop(&mut self) {
        // Refused in a child by fork, and by a device that is gone: both have no request any more.
        if let Err(error) = self.function.set_release_event(None) {
            tracing::debug!(%error, "the request for release stays connected");
        }
    }
}
