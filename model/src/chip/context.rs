//! The parts of a function that another part borrows for one call.

use crate::faults::Fault;
use crate::strict::Ledger;
use ringside_bus::{DmaFault, DmaSpace, Instant};
use ringside_spec::lan::registers::interrupts::OtherCauses;

/// The parts of a function that another part borrows for one call.
pub struct Context<'a> {
    /// Now.
    pub now: Instant,
    /// Host memory that this function reaches.
    pub memory: &'a DmaSpace,
    /// The list of breaches.
    pub ledger: &'a mut Ledger,
    /// Faults in force.
    pub faults: &'a [Fault],
    /// Interrupt causes raised during the call, delivered after it.
    pub causes: &'a mut Causes,
}

impl Context<'_> {
    /// Reports a failure that ends a queue or a ring. Returns true if the host refused the access:
    /// that is not the driver's fault, and the function raises PCI_EXCEPTION.
    /// Source: ice `ice_main.c`, `ice_misc_intr`: such an exception leads to a reset of the
    /// function.
    #[cold]
    pub(crate) fn refused(&mut self, fault: DmaFault) -> bool {
        let refused = matches!(fault, DmaFault::Refused { .. });
        if refused {
            tracing::debug!(%fault, "refused by the host");
            self.raise_pci_exception();
        }
        refused
    }

    /// Something went wrong on the bus.
    #[cold]
    pub(crate) fn raise_pci_exception(&mut self) {
        self.causes.other |= OtherCauses::ZERO.with_pci_exception(true).0;
    }
}

/// Interrupt causes that a part raises.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Causes {
    /// Completion event queues that got an entry.
    pub completion_event_queues: Vec<u16>,
    /// The asynchronous event queue got an entry.
    pub asynchronous_event: bool,
    /// The admin receive ring got an entry.
    pub admin_event: bool,
    /// Bits to raise in PFINT_OICR.
    pub other: u32,
    /// Queues of the LAN engine that reported, each once.
    pub queues: Vec<QueueCause>,
    /// Transmit queues that the detection of malicious drivers stopped, and the kind of event.
    /// `other` names the cause then.
    pub malicious: Vec<(u16, u8)>,
}

/// A queue of the LAN engine that reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueCause {
    /// A receive queue, by number.
    Receive(u16),
    /// A transmit queue, by number.
    Transmit(u16),
}

impl Causes {
    /// The detection of malicious drivers stopped a transmit queue.
    #[cold]
    pub(crate) fn raise_malicious(&mut self, queue: u16, kind: u8) {
        self.malicious.push((queue, kind));
        self.other |= OtherCauses::ZERO.with_malicious_detect(true).0;
    }

    /// The time stamp of a sent packet is in the PHY.
    #[cold]
    pub(crate) fn raise_transmit_stamp(&mut self) {
        self.other |= OtherCauses::ZERO.with_transmit_time_stamp(true).0;
    }

    /// A queue of the LAN engine reported.
    pub fn raise_queue(&mut self, queue: QueueCause) {
        if !self.queues.contains(&queue) {
            self.queues.push(queue);
        }
    }
}
