//! Interrupts for a receive queue that is idle.
//!
//! The order that loses no packet: arm, look at the ring once more, sleep. A packet from before the
//! arming is seen by that look; any later one raises the interrupt. Nothing of it is on the data
//! path.

use super::{REFILL, ReceiveQueue};
use crate::control::{ArmError, QueueState};
use ringside_spec::lan::receive::TAIL_MULTIPLE;

/// The result of [`ReceiveQueue::arm`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "packets that have arrived raise no interrupt"]
pub enum Arming {
    /// The next packet makes the interrupt's descriptor readable: the caller may sleep.
    Armed,
    /// Packets have arrived, or the ring has too few buffers for the longest frame: receive
    /// instead. None of the interrupt's queues is armed.
    PollAgain,
}

impl ReceiveQueue {
    /// Lets the next packet raise the queue's interrupt, once, and looks whether one has arrived
    /// meanwhile. It takes a register write or two.
    ///
    /// The descriptor may become readable without a packet: the first arming after packets makes
    /// the device report what it may have missed. Receive, and arm again.
    ///
    /// Queues of one interrupt are armed and disarmed together: poll them from one thread.
    ///
    /// Control path. Errors: [`ArmError`]; after a failure of the device its descriptor is
    /// readable.
    #[cold]
    #[inline(never)]
    pub fn arm(&mut self) -> Result<Arming, ArmError> {
        match self.state() {
            QueueState::Running => {}
            QueueState::Stopped => return Err(ArmError::Stopped),
            QueueState::Lost => return Err(ArmError::OutOfService),
        }
        self.control.arm()?;
        // The pool's other users may have returned buffers since the last packet.
        self.refill(REFILL);
        if self.can_arrive() && !self.has_packets() {
            return Ok(Arming::Armed);
        }
        self.control.disarm()?;
        Ok(Arming::PollAgain)
    }

    /// Returns the queue to polling: its interrupt is not raised, and the device writes descriptors
    /// back at intervals. Call it when packets arrive after an interrupt; else they are delivered
    /// later, as the device then writes several descriptors at once.
    ///
    /// Queues of one interrupt are armed and disarmed together: poll them from one thread.
    ///
    /// Control path. Errors: [`ArmError`]; after a failure of the device its interrupt may be that
    /// of another queue, and stays as it is.
    #[cold]
    pub fn disarm(&mut self) -> Result<(), ArmError> {
        match self.state() {
            QueueState::Running | QueueState::Stopped => self.control.disarm(),
            QueueState::Lost => Err(ArmError::OutOfService),
        }
    }

    /// True if the device has buffers for a frame of any length: it reads the tail in steps, so the
    /// last few may not count. It drops a frame that does not fit, and raises no interrupt for it.
    const fn can_arrive(&self) -> bool {
        self.posted >= self.fill % TAIL_MULTIPLE + self.buffers_per_frame
    }

    /// True if the device is done with the next descriptor: [`ReceiveQueue::receive`] finds work.
    #[must_use]
    pub fn has_packets(&self) -> bool {
        self.has_arrived()
    }
}
