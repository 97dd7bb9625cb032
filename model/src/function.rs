//! One E810 function: configuration space, registers, firmware, RDMA engine, interrupts.

pub mod context;

pub use context::{Context, Host};

use crate::device::{Reply, Request};
use crate::faults::Fault;
use crate::strict::{Breach, Ledger};
use ringside_bus::{DmaSpace, Instant, Memory};

/// What makes one function different from another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FunctionSettings {
    /// PCI function number, 0..=7; also the PF number and the HMC function id.
    pub pci_function: u8,
    /// Its MAC address.
    pub mac: [u8; 6],
    /// Device serial number.
    pub serial_number: u64,
}

impl FunctionSettings {
    /// Function number 0 of card number `index`.
    #[must_use]
    pub fn numbered(index: u16) -> Self {
        let [high, low] = index.to_be_bytes();
        Self {
            pci_function: 0,
            mac: [0x02, 0xE8, 0x10, 0x00, high, low],
            serial_number: 0x00E8_1000_0000_0000 | u64::from(index),
        }
    }
}
