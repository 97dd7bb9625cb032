//! A worker that sleeps until packets arrive.

use super::ReceiveInterrupt;
use crate::worker::Sleeper;
use ringside_lan::{Arming, ReceiveQueue};
use std::os::fd::{AsFd, BorrowedFd};

/// A worker's state with receive queues that share an interrupt.
pub trait ReceivesPackets {
    /// The receive queues, all of them bound to the interrupt.
    fn receive_queues(&mut self) -> &mut [ReceiveQueue];

    /// The interrupt. Without one, only requests and the longest sleep end a sleep.
    fn receive_interrupt(&self) -> Option<&ReceiveInterrupt>;
}

/// The means of waking a worker that receives packets, for a [`Policy`](crate::worker::Policy) of
/// any kind: `Policy::of(&config.worker, PacketSleeper)`.
///
/// When the device fails the worker is woken once. Its poll sees the queues'
/// [`state`](ReceiveQueue::state); until it has new queues, it sleeps as long as the policy allows.
#[derive(Clone, Copy, Debug)]
pub struct PacketSleeper;

impl<S: ReceivesPackets> Sleeper<S> for PacketSleeper {
    fn arm(&mut self, state: &mut S) -> bool {
        let arm = |queue: &mut ReceiveQueue| queue.arm() != Ok(Arming::PollAgain);
        state.receive_queues().iter_mut().all(arm)
    }

    fn interrupt<'s>(&self, state: &'s S) -> Option<BorrowedFd<'s>> {
        // Out of service it stays readable: a worker would never sleep.
        let interrupt = state.receive_interrupt();
        let in_service = interrupt.filter(|interrupt| interrupt.is_in_service());
        in_service.map(AsFd::as_fd)
    }

    fn woken(&mut self, state: &mut S, interrupted: bool) {
        if interrupted && let Some(interrupt) = state.receive_interrupt() {
            // Out of service: the next poll sees it.
            let _ = interrupt.take();
        }
        let queues = state.receive_queues();
        if queues.iter().any(ReceiveQueue::has_packets) {
            for queue in queues {
                // An error shows again when the queue is armed.
                let _ = queue.disarm();
            }
        }
    }
}
