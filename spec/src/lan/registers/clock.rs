//! The clock of the device: timers that time stamps are taken from.
//!
//! A device has two timers, shared by its functions; the capability
//! [`TimeSync`](crate::lan::admin::capabilities::CapabilityId::TimeSync) tells a function which one
//! is its own, and which function controls it. The PHY holds a copy of each timer, which stamps
//! received frames. Its registers are reached by
//! [`NeighbourDeviceRequest`](crate::lan::admin::Opcode::NeighbourDeviceRequest). Source: ice
//! `ice_ptp_hw.c`, `ice_ptp_consts.h`.

use crate::lan::RegisterArray;
use crate::lan::wire::registers;

registers! {
    /// The command that the next execution carries out; see [`TimerCommand`].
    TIMER_COMMAND "GLTSYN_CMD" = 0x08_8810;
    /// [`EXECUTE`] executes the commands of source timer and PHY at one moment.
    TIMER_EXECUTE "GLTSYN_CMD_SYNC" = 0x08_8814;
    /// Nanoseconds between the execution in the source timer and in the PHY.
    TIMER_DELAY "GLTSYN_SYNC_DLAY" = 0x08_8818;
    /// Lock of the timers between functions; see [`TimerSemaphore`].
    TIMER_SEMAPHORE "PFTSYN_SEM" = 0x08_8880;
}

/// Timers of a device.
pub const TIMER_COUNT: u32 = 2;
/// Value of [`TIMER_EXECUTE`] that executes the commands.
pub const EXECUTE: u32 = 3;
/// Increment of a clock cycle at the E810's 812.5 MHz, in 2^-32 ns. Source: ice
/// `ICE_PTP_NOMINAL_INCVAL_E810`.
pub const NOMINAL_INCREMENT: u64 = 0x1_3B13_B13B;

const fn array(c_name: &'static str, offset: u64) -> RegisterArray {
    RegisterArray::new(c_name, offset, 4, TIMER_COUNT)
}

/// Enables a timer; see [`TimerEnable`].
pub const TIMER_ENABLE: RegisterArray = array("GLTSYN_ENA", 0x08_8808);
/// Events of a timer; cleared by a read.
pub const TIMER_STATUS: RegisterArray = array("GLTSYN_STAT", 0x08_88C0);
/// Time of a timer: parts of a nanosecond, nanoseconds, and 2^32 nanoseconds.
pub const TIMER_TIME: [RegisterArray; 3] = [
    array("GLTSYN_TIME_0", 0x08_88C8),
    array("GLTSYN_TIME_L", 0x08_88D0),
    array("GLTSYN_TIME_H", 0x08_88D8),
];
/// Time that a command sets, in the same parts.
pub const TIMER_NEW_TIME: [RegisterArray; 3] = [
    array("GLTSYN_SHTIME_0", 0x08_88E0),
    array("GLTSYN_SHTIME_L", 0x08_88E8),
    array("GLTSYN_SHTIME_H", 0x08_88F0),
];
/// Increment that a command sets, low and high half.
pub const TIMER_NEW_INCREMENT: [RegisterArray; 2] = [
    array("GLTSYN_SHADJ_L", 0x08_8908),
    array("GLTSYN_SHADJ_H", 0x08_8910),
];
/// Increment in force, low and high half.
pub const TIMER_INCREMENT: [RegisterArray; 2] = [
    array("GLTSYN_INCVAL_L", 0x08_8918),
    array("GLTSYN_INCVAL_H", 0x08_8920),
];

/// All arrays of this module.
pub const ARRAYS: &[RegisterArray] = &[
    TIMER_ENABLE,
    TIMER_STATUS,
    TIMER_TIME[0],
    TIMER_TIME[1],
    TIMER_TIME[2],
    TIMER_NEW_TIME[0],
    TIMER_NEW_TIME[1],
    TIMER_NEW_TIME[2],
    TIMER_NEW_INCREMENT[0],
    TIMER_NEW_INCREMENT[1],
    TIMER_INCREMENT[0],
    TIMER_INCREMENT[1],
];

/// Registers of the external PHY: addresses for
/// [`NeighbourDeviceRequest`](crate::lan::admin::Opcode::NeighbourDeviceRequest).
pub mod phy {
    /// Command of the next execution: the low byte of [`TimerCommand`](super::TimerCommand)
    /// (`ETH_GLTSYN_CMD`).
    pub const COMMAND: u32 = 0x0300_0344;

    /// Enables the copy of a timer (`ETH_GLTSYN_ENA`).
    #[must_use]
    pub const fn enable(timer: u8) -> u32 {
        0x0300_0348 + 4 * timer as u32
    }

    /// Parts of a nanosecond of the time that a command sets (`ETH_GLTSYN_SHTIME_0`).
    #[must_use]
    pub const fn new_time_fraction(timer: u8) -> u32 {
        0x0300_0368 + 32 * timer as u32
    }

    /// Nanoseconds, low 32 bits, of the time that a command sets (`ETH_GLTSYN_SHTIME_L`).
    #[must_use]
    pub const fn new_time(timer: u8) -> u32 {
        0x0300_036C + 32 * timer as u32
    }

    /// Increment that a command sets, low half (`ETH_GLTSYN_SHADJ_L`); of a command that adjusts
    /// the time, parts of a nanosecond.
    #[must_use]
    pub const fn new_increment_low(timer: u8) -> u32 {
        0x0300_0378 + 32 * timer as u32
    }

    /// Increment that a command sets, high half (`ETH_GLTSYN_SHADJ_H`); of a command that adjusts
    /// the time, nanoseconds to add, in two's complement.
    #[must_use]
    pub const fn new_increment_high(timer: u8) -> u32 {
        0x0300_037C + 32 * timer as u32
    }

    /// Time stamps of sent packets that each port holds.
    pub const TRANSMIT_STAMPS: u8 = 64;

    /// Bit 0 of the low half of a transmit time stamp: it is valid.
    pub const TRANSMIT_STAMP_VALID: u32 = 1;

    /// Low 32 of the 40 bits of a transmit time stamp: nanoseconds from bit 8 on, and the valid bit
    /// (`LOW_TX_MEMORY_BANK_START`, `TS_EXT`).
    #[must_use]
    pub const fn transmit_stamp_low(port: u8, index: u8) -> u32 {
        0x0309_0000 + 0x1000 * port as u32 + 8 * index as u32
    }

    /// High 8 bits of a transmit time stamp (`HIGH_TX_MEMORY_BANK_START`).
    #[must_use]
    pub const fn transmit_stamp_high(port: u8, index: u8) -> u32 {
        transmit_stamp_low(port, index) + 4
    }
}

crate::words! {
    /// Source: `GLTSYN_ENA`.
    pub struct TimerEnable: u32 {
        /// the timer runs
        enable: [0],
    }
    /// Source: `GLTSYN_CMD`; ice `ice_ptp_hw.h`, `GLTSYN_CMD_*`.
    pub struct TimerCommand: u32 {
        /// the time is set
        set_time: [0],
        /// the increment is set
        set_increment: [1],
        /// the time is adjusted
        adjust: [2],
        /// with `adjust`: at a moment
        at_time: [3],
        /// the time is captured
        read: [7],
        /// timer that the command is for
        timer: [8],
    }
    /// Source: `PFTSYN_SEM`.
    pub struct TimerSemaphore: u32 {
        /// a function holds it; a read that finds 0 takes it, writing 0 gives it back
        busy: [0],
    }
}
