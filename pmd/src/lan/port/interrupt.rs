//! Interrupts of receive queues, for programs that sleep while no packet comes.

use super::shared::PortShared;
use super::vectors::Wanted;
use super::{PortError, Vsi};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::time::Duration;

/// An interrupt of some receive queues, connected to a descriptor. Dropping it disconnects.
///
/// The descriptor becomes readable at a packet of a queue that was armed
/// ([`ReceiveQueue::arm`](ringside_lan::ReceiveQueue::arm)), and when the device fails or is shut
/// down; then it stays readable. It fits `poll`, `epoll` and tokio's `AsyncFd`. The order that
/// loses no packet:
///
/// 1. Receive. If there are packets, handle them.
/// 2. Arm every queue. If one says [`PollAgain`](ringside_lan::Arming::PollAgain), receive again.
/// 3. Wait until the descriptor is readable, [`ReceiveInterrupt::take`], receive.
/// 4. If there were packets, [`ReceiveQueue::disarm`](ringside_lan::ReceiveQueue::disarm): the
///    device then writes descriptors back for a program that polls.
///
/// It keeps its port open, and a further VSI in the device.
#[derive(Debug)]
pub struct ReceiveInterrupt {
    port: Arc<PortShared>,
    event: OwnedFd,
    id: u64,
    vector: u16,
}

impl Vsi {
    /// Connects an interrupt for some receive queues of this VSI, counted from its first. A worker
    /// has one for its queues; each queue has one at most. The queues are polled as before until
    /// they are armed.
    ///
    /// Each takes a vector: the function's, without vector 0, those of the completion event queues
    /// and that of polled queues.
    ///
    /// Control path. Errors: [`PortError::Invalid`], no queue, or one that the VSI does not have;
    /// [`PortError::InterruptTaken`]; [`PortError::TooMany`], no vector is left;
    /// [`PortError::OutOfService`]; [`PortError::System`], no descriptor; [`PortError::Function`].
    pub fn receive_interrupt(&self, queues: &[u16]) -> Result<ReceiveInterrupt, PortError> {
        let shared = &self.shared;
        let count = shared.queues.0;
        let unknown = queues.iter().find(|queue| usize::from(**queue) >= count);
        if unknown.is_some() || queues.is_empty() {
            return Err(PortError::Invalid {
                what: "the receive queues of an interrupt,",
                value: format!("{queues:?}"),
                remedy: "name one or more queues of this VSI, counted from 0",
            });
        }
        // The error if the device is out of service.
        shared.admin()?;
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|error| system("making an event descriptor", error))?;
        let signalled = event.try_clone().map_err(|error| PortError::System {
            operation: "duplicating an event descriptor",
            error: error.to_string(),
        })?;
        let mut queues: Vec<u16> = queues.iter().map(|queue| shared.first.0 + queue).collect();
        queues.sort_unstable();
        queues.dedup();
        let (id, vector) = shared.registry.vectors.connect(Wanted {
            registers: shared.registers.clone(),
            among: shared.receive_vectors.clone(),
            vsi: shared.vsi,
            queues,
            event: signalled,
        })?;
        let interrupt = ReceiveInterrupt {
            port: Arc::clone(shared),
            event,
            id,
            vector,
        };
        // A failure during the call: dropped, it leaves the vector to the reset.
        match shared.service.in_service() {
            true => Ok(interrupt),
            false => Err(PortError::OutOfService),
        }
    }
}

fn system(operation: &'static str, error: Errno) -> PortError {
    PortError::System {
        operation,
        error: error.to_string(),
    }
}

impl ReceiveInterrupt {
    /// Its MSI-X vector, counted from the function's first.
    #[must_use]
    pub const fn vector(&self) -> u16 {
        self.vector
    }

    /// False once the device failed or was shut down: the descriptor stays readable.
    #[must_use]
    pub fn is_in_service(&self) -> bool {
        self.port.registry.vectors.is_in_service(self.id)
    }

    /// Waits for the interrupt, at most `limit`, and takes it; returns true if it came. The queues
    /// are armed before. Real time passes, whatever the device's clock is.
    ///
    /// Errors: as [`ReceiveInterrupt::take`].
    pub fn wait(&self, limit: Duration) -> Result<bool, PortError> {
        let limit = Timespec {
            tv_sec: i64::try_from(limit.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: limit.subsec_nanos().into(),
        };
        let mut waited = [PollFd::new(&self.event, PollFlags::IN)];
        match poll(&mut waited, Some(&limit)) {
            Ok(0) | Err(Errno::INTR) => Ok(false),
            Ok(_) => self.take().map(|()| true),
            Err(error) => Err(system("waiting for an interrupt", error)),
        }
    }

    /// Takes the interrupt after the descriptor became readable. Receive afterwards.
    ///
    /// Errors: [`PortError::OutOfService`], the device failed or was shut down;
    /// [`PortError::System`].
    pub fn take(&self) -> Result<(), PortError> {
        if !self.is_in_service() {
            return Err(PortError::OutOfService);
        }
        let mut count = [0; 8];
        match rustix::io::read(&self.event, &mut count) {
            Ok(_) | Err(Errno::AGAIN) => {}
            Err(error) => return Err(system("reading an interrupt", error)),
        }
        // A failure between the two: its signal may have been taken.
        if self.is_in_service() {
            return Ok(());
        }
        let _ = rustix::io::write(&self.event, &1u64.to_ne_bytes());
        Err(PortError::OutOfService)
    }
}

impl AsFd for ReceiveInterrupt {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}

impl AsRawFd for ReceiveInterrupt {
    fn as_raw_fd(&self) -> RawFd {
        self.event.as_raw_fd()
    }
}

impl Drop for ReceiveInterrupt {
    /// In a child by fork the interrupt is the parent's.
    fn drop(&mut self) {
        if self.port.pool.is_elsewhere() {
            return;
        }
        let vectors = &self.port.registry.vectors;
        vectors.disconnect(self.id, self.port.vector);
    }
}
