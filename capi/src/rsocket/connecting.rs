//! Addresses, and making connections.

use super::listener::{OF_CONNECTION, check_descriptors, checked};
use super::service::{self, Next};
use super::socket::{Core, Phase, Socket};
use crate::cm::{ringside_rdma_bind_addr, ringside_rdma_resolve_addr};
use std::ffi::c_int;
use std::sync::Arc;

/// Longest wait for a neighbour's answer: longer than it is asked for.
const RESOLUTION_MS: c_int = 5000;

impl Socket {
    /// # Safety
    /// `address` is a socket address.
    pub(super) unsafe fn bind(&self, address: *const libc::sockaddr) -> Result<(), c_int> {
        if self.core().phase != Phase::Made {
            return Err(libc::EINVAL);
        }
        // SAFETY: the socket's id; the caller's promise.
        checked(unsafe { ringside_rdma_bind_addr(self.id, address) })
    }

    /// Begins to connect, and waits until that is done unless the socket does not wait: then
    /// `EINPROGRESS`. A further call asks whether it is done.
    ///
    /// # Safety
    /// `address` is a socket address.
    pub(super) unsafe fn connect(
        self: &Arc<Self>,
        address: *const libc::sockaddr,
    ) -> Result<(), c_int> {
        let mut core = self.core();
        // The end of a device that failed before: the socket connects by the recovered one.
        self.progress(&mut core);
        match core.phase {
            Phase::Made => {}
            Phase::Connecting | Phase::Accepting => {
                let waits = !core.options.is_nonblocking;
                drop(core);
                return self.has_connected(waits);
            }
            Phase::Connected { .. } => return Ok(()),
            Phase::Listening => return Err(libc::EINVAL),
            Phase::Ended | Phase::Failed(_) => return Err(libc::ENOTCONN),
        }
        check_descriptors(self.descriptor, OF_CONNECTION)?;
        let waits = !core.options.is_nonblocking;
        if !waits {
            service::start()?;
        }
        core.phase = Phase::Connecting;
        let nowhere = std::ptr::null();
        // SAFETY: the socket's id; the caller's promise.
        let begun = unsafe { ringside_rdma_resolve_addr(self.id, nowhere, address, RESOLUTION_MS) };
        let begun = checked(begun);
        if let Err(error) = begun {
            // The program may try another address.
            core.phase = Phase::Made;
            return Err(error);
        }
        drop(core);
        self.has_connected(waits)
    }

    /// Errors: `EINPROGRESS` if that is not decided yet, `EINTR` after a signal; the connection is
    /// made meanwhile. Else why it is not connected.
    fn has_connected(self: &Arc<Self>, waits: bool) -> Result<(), c_int> {
        let error = match self.connected(self.core(), waits).map(|core| core.phase) {
            Ok(Phase::Failed(error)) => return Err(error),
            Ok(_) => return Ok(()),
            Err(libc::EAGAIN) => libc::EINPROGRESS,
            Err(error) => error,
        };
        let mut core = self.core();
        if core.phase == Phase::Connecting
            && let Err(unserved) =
                service::start().and_then(|()| service::serve(self, &mut core, serve))
        {
            tracing::warn!(
                error = unserved,
                "a connection is made in calls for its socket alone"
            );
        }
        Err(error)
    }
}

/// Makes a connection for the library's thread.
fn serve(socket: &Socket, core: &mut Core) -> Next {
    socket.progress(core);
    core.tell();
    match core.phase {
        Phase::Connecting => Next::Event,
        _ => Next::End,
    }
}
