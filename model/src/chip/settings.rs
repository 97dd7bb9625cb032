//! The identity of a function.

use super::timer::Timer;

/// The settings in which functions differ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FunctionSettings {
    /// PCI function number, 0..=7; also the PF number and the HMC function id.
    pub pci_function: u8,
    /// Its MAC address.
    pub mac: [u8; 6],
    /// Device serial number.
    pub serial_number: u64,
    /// Its access to the device's timer, which time stamps come from.
    pub timer: TimerAccess,
    /// The driver of another function of the card loaded the package and chose double VLAN mode.
    pub double_vlan: bool,
    /// The first segment of function private memory; those before it are other functions'.
    pub first_segment: u16,
}

/// A function's access to the device's timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimerAccess {
    /// The firmware reports no timer: there are no time stamps.
    Absent,
    /// The function controls the timer, which its driver has to start.
    Controlled,
    /// Function 7 controls the timer, which runs since power on.
    Running,
    /// Function 7 controls the timer and has not started it.
    Stopped,
}

impl TimerAccess {
    /// The timer as power on leaves it.
    pub(crate) fn timer(self) -> Timer {
        match self {
            Self::Running => Timer::running(),
            Self::Absent | Self::Controlled | Self::Stopped => Timer::default(),
        }
    }
}

impl FunctionSettings {
    /// Function number 0 of card number `index`, without a timer.
    #[must_use]
    pub fn numbered(index: u16) -> Self {
        // From 1: an address that ends in zeros reads like a network's.
        let [high, low] = index.wrapping_add(1).to_be_bytes();
        Self {
            pci_function: 0,
            mac: [0x02, 0xE8, 0x10, 0x00, high, low],
            serial_number: 0x00E8_1000_0000_0000 | u64::from(index),
            timer: TimerAccess::Absent,
            double_vlan: false,
            first_segment: 0,
        }
    }
}
