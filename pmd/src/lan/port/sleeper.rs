//! A worker that sleeps until packets arrive.

use super::shared::PortShared;
use super::{PortError, ReceiveInterrupt};
use crate::worker::Sleeper;
use ringside_lan::{Arming, ReceiveQueue};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Weak};

/// A worker's state with receive queues that share an interrupt.
pub trait ReceivesPackets {
    /// The receive queues, all of them bound to the interrupt.
    fn receive_queues(&mut self) -> &mut [ReceiveQueue];

    /// The interrupt. Without one, only requests and the longest sleep end a sleep.
    fn receive_interrupt(&self) -> Option<&ReceiveInterrupt>;
}

/// The means of waking a worker that receives packets, for a [`Policy`](crate::worker::Policy) of
/// any kind: `Policy::of(&config.worker, PacketSleeper::default())`.
///
/// When the device fails the worker is woken once. Its poll sees the queues'
/// [`state`](ReceiveQueue::state); until it has new queues, it sleeps as long as the policy allows.
#[derive(Debug, Default)]
pub struct PacketSleeper {
    /// the port of whose end the worker was told; its descriptors stay readable
    told: Weak<PortShared>,
}

impl PacketSleeper {
    fn was_told(&self, interrupt: &ReceiveInterrupt) -> bool {
        std::ptr::eq(self.told.as_ptr(), Arc::as_ptr(interrupt.port()))
    }
}

impl<S: ReceivesPackets> Sleeper<S> for PacketSleeper {
    /// True out of service, too: the descriptor is readable then, so the worker hears of a failure
    /// between its last poll and the arming.
    fn arm(&mut self, state: &mut S) -> bool {
        let arm = |queue: &mut ReceiveQueue| queue.arm() != Ok(Arming::PollAgain);
        state.receive_queues().iter_mut().all(arm)
    }

    fn interrupt<'s>(&self, state: &'s S) -> Option<BorrowedFd<'s>> {
        // With a descriptor that stays readable, a worker would never sleep.
        let interrupt = state.receive_interrupt();
        let untold = interrupt.filter(|interrupt| !self.was_told(interrupt));
        untold.map(AsFd::as_fd)
    }

    fn woken(&mut self, state: &mut S, interrupted: bool) {
        if interrupted
            && let Some(interrupt) = state.receive_interrupt()
            && interrupt.take() == Err(PortError::OutOfService)
        {
            // The next poll sees it.
            self.told = Arc::downgrade(interrupt.port());
        }
    }

    /// Packets of a queue that is armed would come late: its vector masks itself at the first one.
    fn worked(&mut self, state: &mut S) {
        for queue in state.receive_queues() {
            // An error shows again when the queue is armed.
            let _ = queue.disarm();
        }
    }
}
