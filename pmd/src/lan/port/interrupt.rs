//! Interrupts of receive queues, for programs that sleep while no packet comes.

use super::shared::PortShared;
use super::vectors::Wanted;
use super::{PortError, Vsi};
use crate::event_descriptor::EventDescriptor;
use rustix::io::Errno;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
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
/// Queues of one interrupt are armed and disarmed together: poll them from one thread.
///
/// It keeps its port open, and a further VSI in the device.
#[derive(Debug)]
pub struct ReceiveInterrupt {
    port: Arc<PortShared>,
    event: EventDescriptor,
    id: u64,
    vector: u16,
}

impl Vsi {
    /// Connects an interrupt for some receive queues of this VSI, counted from its first. A worker
    /// has one for its queues; each queue has one at most. The queues are polled as before until
    /// they are armed. Queues of one interrupt are armed and disarmed together: poll them from one
    /// thread.
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
        let event = EventDescriptor::new();
        let event = event.map_err(|error| system("making an event descriptor", error))?;
        let signalled = event.duplicate();
        let signalled =
            signalled.map_err(|error| system("duplicating an event descriptor", error))?;
        let mut queues: Vec<u16> = queues.iter().map(|queue| shared.first.0 + queue).collect();
        queues.sort_unstable();
        queues.dedup();
        let (id, vector) = shared.registry.vectors.connect(Wanted {
            registers: shared.registers.clone(),
            service: Arc::clone(&shared.service),
            polled: shared.vector,
            among: shared.receive_vectors.clone(),
            vsi: shared.vsi,
            queues,
            event: signalled,
        })?;
        Ok(ReceiveInterrupt {
            port: Arc::clone(shared),
            event,
            id,
            vector,
        })
    }
}

fn system(operation: &'static str, error: Errno) -> PortError {
    PortError::System {
        operation,
        error: error.to_string(),
    }
}

impl ReceiveInterrupt {
    pub(super) const fn port(&self) -> &Arc<PortShared> {
        &self.port
    }

    /// Its MSI-X vector, counted from the function's first.
    #[must_use]
    pub const fn vector(&self) -> u16 {
        self.vector
    }

    /// False once the device failed or was shut down: the descriptor stays readable. False in a
    /// child by fork, too.
    #[must_use]
    pub fn is_in_service(&self) -> bool {
        !self.port.pool.is_elsewhere() && self.port.registry.vectors.is_in_service(self.id)
    }

    /// Waits for the interrupt, at most `limit`, and takes it; returns true if it came. The queues
    /// are armed before. The time is real, also for a device with a virtual clock.
    ///
    /// Errors: as [`ReceiveInterrupt::take`].
    pub fn wait(&self, limit: Duration) -> Result<bool, PortError> {
        self.port.pool.check_process()?;
        match self.event.wait(limit) {
            Ok(true) => self.take().map(|()| true),
            Ok(false) | Err(Errno::INTR) => Ok(false),
            Err(error) => Err(system("waiting for an interrupt", error)),
        }
    }

    /// Takes the interrupt after the descriptor became readable. Receive afterwards.
    ///
    /// Errors: [`PortError::OutOfService`], the device failed or was shut down;
    /// [`PortError::System`]; [`PortError::Function`], this is a child by fork: the descriptor is
    /// shared, and the signal is the parent's.
    pub fn take(&self) -> Result<(), PortError> {
        self.port.pool.check_process()?;
        if !self.is_in_service() {
            return Err(PortError::OutOfService);
        }
        let drained = self.event.drain();
        drained.map_err(|error| system("reading an interrupt", error))?;
        // A failure between the two: its signal may have been taken.
        if self.is_in_service() {
            return Ok(());
        }
        self.event.wake();
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
