//! Register sets of the control queues: admin queue, mailbox, sideband.
//!
//! A driver writes head and tail 0, then the length with its enable bit, then the base address,
//! and reads back the low half. A command is complete when the head has reached the tail.

use crate::lan::wire::registers;

/// The five registers of one ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingRegisters {
    /// Name of the ring in the data sheet, for example "PF_FW_ATQ".
    pub c_name: &'static str,
    /// Low half of the base address (`BAL`); the low six bits read as zero.
    pub base_low: u64,
    /// High half of the base address (`BAH`).
    pub base_high: u64,
    /// Number of entries and enable bit (`LEN`); see [`RingLength`].
    pub length: u64,
    /// The device's index (`H`); see [`RingIndex`].
    pub head: u64,
    /// The driver's index (`T`); see [`RingIndex`].
    pub tail: u64,
    c_names: [&'static str; 5],
}

impl RingRegisters {
    /// Returns the register of this ring at `offset`.
    #[must_use]
    pub fn register_at(&self, offset: u64) -> Option<RingRegister> {
        RingRegister::ALL
            .into_iter()
            .find(|register| self.offset_of(*register) == offset)
    }

    /// Offset in BAR 0 of one of the five.
    #[must_use]
    pub const fn offset_of(&self, register: RingRegister) -> u64 {
        match register {
            RingRegister::BaseLow => self.base_low,
            RingRegister::BaseHigh => self.base_high,
            RingRegister::Length => self.length,
            RingRegister::Head => self.head,
            RingRegister::Tail => self.tail,
        }
    }
}

/// One of the five registers of a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RingRegister {
    /// low half of the base address
    BaseLow,
    /// high half of the base address
    BaseHigh,
    /// number of entries and enable bit
    Length,
    /// the device's index
    Head,
    /// the driver's index
    Tail,
}

impl RingRegister {
    /// All five, in the order of their offsets.
    pub const ALL: [Self; 5] = [
        Self::BaseLow,
        Self::BaseHigh,
        Self::Length,
        Self::Head,
        Self::Tail,
    ];
}

macro_rules! ring {
    ($(#[$outer:meta])* $name:ident $c_name:literal: $low:literal $high:literal $length:literal
     $head:literal $tail:literal) => {
        $(#[$outer])*
        #[doc = concat!("(`", $c_name, "*`)")]
        pub const $name: RingRegisters = RingRegisters {
            c_name: $c_name,
            base_low: $low,
            base_high: $high,
            length: $length,
            head: $head,
            tail: $tail,
            c_names: [
                concat!($c_name, "BAL"),
                concat!($c_name, "BAH"),
                concat!($c_name, "LEN"),
                concat!($c_name, "H"),
                concat!($c_name, "T"),
            ],
        };
    };
}

ring! {
    /// Admin queue, driver to firmware. Cleared by an EMP reset.
    ADMIN_SEND "PF_FW_ATQ": 0x08_0000 0x08_0100 0x08_0200 0x08_0300 0x08_0400
}
ring! {
    /// Admin queue, events from firmware to driver. Cleared by an EMP reset.
    ADMIN_RECEIVE "PF_FW_ARQ": 0x08_0080 0x08_0180 0x08_0280 0x08_0380 0x08_0480
}
ring! {
    /// Mailbox, to virtual functions. A reset of the function clears its length register.
    MAILBOX_SEND "PF_MBX_ATQ": 0x22_E100 0x22_E180 0x22_E200 0x22_E280 0x22_E300
}
ring! {
    /// Mailbox, from virtual functions. A reset of the function clears its length register.
    MAILBOX_RECEIVE "PF_MBX_ARQ": 0x22_E380 0x22_E400 0x22_E480 0x22_E500 0x22_E580
}
ring! {
    /// Sideband, not created on the E810. A reset of the function clears its length register.
    SIDEBAND_SEND "PF_SB_ATQ": 0x22_FC00 0x22_FC80 0x22_FD00 0x22_FD80 0x22_FE00
}
ring! {
    /// Sideband, not created on the E810. A reset of the function clears its length register.
    SIDEBAND_RECEIVE "PF_SB_ARQ": 0x22_FE80 0x22_FF00 0x22_FF80 0x23_0000 0x23_0080
}

/// Every ring of a physical function.
pub const RINGS: [RingRegisters; 6] = [
    ADMIN_SEND,
    ADMIN_RECEIVE,
    MAILBOX_SEND,
    MAILBOX_RECEIVE,
    SIDEBAND_SEND,
    SIDEBAND_RECEIVE,
];

registers! {
    /// The remote devices that the sideband may reach, one bit each.
    SIDEBAND_REMOTE_DEVICES "PF_SB_REM_DEV_CTL" = 0x23_00F0;
}

/// Most entries of a ring: the index has ten bits.
pub const MAX_RING_ENTRIES: u16 = 1023;
/// A ring's base address is a multiple of this many bytes.
pub const RING_ALIGNMENT: u64 = 64;

crate::words! {
    /// Number of entries and state of a ring. Source: `PF_FW_ATQLEN`.
    pub struct RingLength: u32 {
        /// number of entries
        entries: [9:0],
        /// a virtual function did something wrong
        virtual_function_error: [28],
        /// a message found no free entry
        overflow: [29],
        /// the firmware gave up
        critical_error: [30],
        /// the ring is in use
        enable: [31],
    }
    /// Index into a ring. Source: `PF_FW_ATQH`, `PF_FW_ATQT`.
    pub struct RingIndex: u32 {
        /// entry
        index: [9:0],
    }
}

impl RingLength {
    /// Bits that must be `entries` and `enable` alone for the ring to be alive.
    pub const ALIVE_MASK: u32 = Self::ENABLE_MASK | Self::ENTRIES_MASK;
}

/// The name in the data sheet of a ring's register at `offset`.
#[must_use]
pub fn name_of(offset: u64) -> Option<&'static str> {
    RINGS.iter().find_map(|ring| {
        RingRegister::ALL
            .iter()
            .zip(ring.c_names)
            .find(|(register, _)| ring.offset_of(**register) == offset)
            .map(|(_, name)| name)
    })
}
