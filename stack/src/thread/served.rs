//! The state of a stack's thread.

use crate::Stack;
use ringside_lan::ReceiveQueue;
use ringside_pmd::lan::port::{ReceiveInterrupt, ReceivesPackets};

/// The state of the thread.
#[derive(Debug)]
pub(super) struct Served {
    /// Of the stack's receive queue; `None` on a function with few vectors. Ends before the queue.
    pub(super) interrupt: Option<ReceiveInterrupt>,
    pub(super) stack: Stack,
}

impl ReceivesPackets for Served {
    fn receive_queues(&mut self) -> &mut [ReceiveQueue] {
        std::slice::from_mut(&mut self.stack.queues.receive)
    }

    fn receive_interrupt(&self) -> Option<&ReceiveInterrupt> {
        self.interrupt.as_ref()
    }
}
