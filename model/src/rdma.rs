//! The RDMA engine ("protocol engine") of the E810 in software: registers, control queue pair, host
//! memory cache, queues, and the transport that they feed.

mod snapshot;

pub use snapshot::RdmaSnapshot;

use crate::function::{Context, FunctionSettings};
use crate::packet::Packet;
use crate::wire::Frame;
use ringside_bus::{DmaSpace, Instant, Memory};

/// The RDMA engine of one function.
pub struct RdmaEngine {
    hmc_function: u8,
    receive_enabled: bool,
    page: Option<Memory>,
}

impl RdmaEngine {
    /// An engine as a reset leaves it.
    #[must_use]
    pub fn new(settings: &FunctionSettings) -> Self {
        Self {
            hmc_function: settings.pci_function,
            receive_enabled: false,
            page: None,
        }
    }

    /// A reset of the function, or a stronger one: everything is forgotten.
    pub fn reset(&mut self) {
        self.receive_enabled = false;
    }

    /// Reads a register; `None` if it is not one of the engine's.
    pub fn register_read(&mut self, _offset: u64, _context: &mut Context<'_>) -> Option<u32> {
        None
    }

    /// Writes a register, or rings a doorbell; false if it is not one of the engine's.
    pub fn register_write(&mut self, _offset: u64, _value: u32, _context: &mut Context<'_>) -> bool {
        false
    }

    /// Polls a doorbell page that somebody rings by plain stores.
    pub fn share_doorbell_page(&mut self, page: Memory) {
        self.page = Some(page);
    }

    /// Does a bounded burst of work; true if anything was done.
    pub fn step(&mut self, _context: &mut Context<'_>) -> bool {
        false
    }

    /// The next frame for the wire, if there is one.
    pub fn next_frame(&mut self, _context: &mut Context<'_>) -> Option<Frame> {
        None
    }

    /// Takes a frame from the wire. Its payload may lie in another function's memory, hence `spaces`.
    pub fn receive(&mut self, _frame: &Frame, _spaces: &[DmaSpace], _context: &mut Context<'_>) {}

    /// When a timer runs out next, if any runs.
    #[must_use]
    pub fn next_timer(&self) -> Option<Instant> {
        None
    }

    /// Everything that a driver could leave behind.
    #[must_use]
    pub fn snapshot(&self) -> RdmaSnapshot {
        RdmaSnapshot::default()
    }

    /// Lets frames in, or not: the filter of the function's VSI.
    pub fn set_receive_enabled(&mut self, on: bool) {
        self.receive_enabled = on;
    }

    /// True if a packet is this engine's business: RoCEv2, while its filter lets frames in.
    #[must_use]
    pub fn claims(&self, _packet: &Packet) -> bool {
        self.receive_enabled
    }
}
