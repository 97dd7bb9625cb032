//! The identity of a function.

/// The settings in which functions differ.
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
        // From 1: an address that ends in zeros reads like a network's.
        let [high, low] = index.wrapping_add(1).to_be_bytes();
        Self {
            pci_function: 0,
            mac: [0x02, 0xE8, 0x10, 0x00, high, low],
            serial_number: 0x00E8_1000_0000_0000 | u64::from(index),
        }
    }
}
