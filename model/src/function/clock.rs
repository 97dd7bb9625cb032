//! The device's clock: the registers of its source timer. The PHY's copy, which stamps frames, is
//! behind the firmware.
//!
//! The model has timer 0. A function that controls it may write its registers; for the others it
//! runs, if their settings say so, and they only read it.

use super::FunctionModel;
use crate::chip::{Prepared, Timer, TimerAccess};
use ringside_bus::Instant;
use ringside_spec::lan::RegisterArray;
use ringside_spec::lan::registers::clock::{
    EXECUTE, TIMER_COMMAND, TIMER_ENABLE, TIMER_EXECUTE, TIMER_INCREMENT, TIMER_NEW_INCREMENT,
    TIMER_NEW_TIME, TIMER_SEMAPHORE, TIMER_STATUS, TIMER_TIME, TimerCommand, TimerEnable,
};

/// The semaphore. The data sheet shows one for each function; a function reaches the same register
/// at the offsets of all. Source: Linux ice, "Remove unnecessary offset calculation for PF scoped
/// registers"; before that, `ice_ptp_hw.c`, `ice_ptp_lock`, took the offset of the function.
const SEMAPHORES: RegisterArray =
    RegisterArray::new("PFTSYN_SEM", TIMER_SEMAPHORE, 4, MAX_FUNCTIONS);

/// Physical functions of a device.
const MAX_FUNCTIONS: u32 = 8;

/// The timer that there is.
const TIMER: u32 = 0;

/// Source timer and what was prepared for it.
#[derive(Clone, Debug)]
pub(super) struct Clock {
    source: Timer,
    prepared: Prepared,
    command: TimerCommand,
    /// a function holds the semaphore
    held: bool,
}

impl Clock {
    pub(super) fn new(access: TimerAccess) -> Self {
        Self {
            source: access.timer(),
            prepared: Prepared::default(),
            command: TimerCommand::ZERO,
            held: false,
        }
    }
}

/// One half of `value`.
const fn half(value: u64, high: bool) -> u32 {
    if high {
        (value >> 32) as u32
    } else {
        value as u32
    }
}

/// `value` with another half.
const fn with_half(value: u64, high: bool, new: u32) -> u64 {
    if high {
        value & 0xFFFF_FFFF | (new as u64) << 32
    } else {
        value >> 32 << 32 | new as u64
    }
}

/// The half of a pair of registers of the timer that `offset` names.
fn half_at(pair: &[RegisterArray], offset: u64) -> Option<bool> {
    let found = pair.iter().position(|one| one.at(TIMER) == offset)?;
    Some(found == 1)
}

/// Nanoseconds and 2^32 nanoseconds: without the parts of a nanosecond.
fn whole(parts: &[RegisterArray; 3]) -> &[RegisterArray] {
    parts.get(1..).unwrap_or_default()
}

impl FunctionModel {
    /// A register of the timer; `None` if it is none, or if the function has no timer.
    pub(super) fn read_clock(&mut self, offset: u64, now: Instant) -> Option<u32> {
        if self.settings.timer == TimerAccess::Absent {
            return None;
        }
        let clock = &mut self.clock;
        if SEMAPHORES.index_of(offset).is_some() {
            return Some(u32::from(std::mem::replace(&mut clock.held, true)));
        }
        if offset == TIMER_COMMAND {
            return Some(clock.command.0);
        }
        if offset == TIMER_ENABLE.at(TIMER) {
            let enabled = clock.source.enabled();
            return Some(TimerEnable::ZERO.with_enable(enabled).0);
        }
        if offset == TIMER_STATUS.at(TIMER) || offset == TIMER_TIME[0].at(TIMER) {
            return Some(0);
        }
        if let Some(high) = half_at(whole(&TIMER_TIME), offset) {
            return Some(half(clock.source.at(now), high));
        }
        if let Some(high) = half_at(whole(&TIMER_NEW_TIME), offset) {
            return Some(half(clock.prepared.time, high));
        }
        if let Some(high) = half_at(&TIMER_NEW_INCREMENT, offset) {
            return Some(half(clock.prepared.increment, high));
        }
        let high = half_at(&TIMER_INCREMENT, offset)?;
        Some(half(clock.source.increment(), high))
    }

    /// Writes a register of the timer; false if it is none, or if the function has no timer.
    pub(super) fn write_clock(&mut self, offset: u64, value: u32, now: Instant) -> bool {
        if self.settings.timer == TimerAccess::Absent {
            return false;
        }
        let clock = &mut self.clock;
        if SEMAPHORES.index_of(offset).is_some() {
            clock.held = value & 1 != 0;
            return true;
        }
        let new_time = half_at(whole(&TIMER_NEW_TIME), offset);
        let new_increment = half_at(&TIMER_NEW_INCREMENT, offset);
        let others = [TIMER_COMMAND, TIMER_EXECUTE, TIMER_ENABLE.at(TIMER)];
        if new_time.is_none() && new_increment.is_none() && !others.contains(&offset) {
            return false;
        }
        if self.settings.timer != TimerAccess::Controlled {
            self.ledger
                .breach("timer written that another function controls", || {
                    format!("{value:#x} to {offset:#x}")
                });
            return true;
        }
        if let Some(high) = new_time {
            clock.prepared.time = with_half(clock.prepared.time, high, value);
        } else if let Some(high) = new_increment {
            clock.prepared.increment = with_half(clock.prepared.increment, high, value);
        } else if offset == TIMER_COMMAND {
            clock.command = TimerCommand(value);
        } else if offset == TIMER_EXECUTE {
            self.execute_timer_commands(value, now);
        } else {
            clock.source.enable(TimerEnable(value).enable(), now);
        }
        true
    }

    /// Source timer and PHY carry out their commands at one moment.
    fn execute_timer_commands(&mut self, value: u32, now: Instant) {
        if value != EXECUTE {
            return;
        }
        let clock = &mut self.clock;
        if !clock.held {
            // DPDK takes none. Source: DPDK ice `ice_ethdev.c`, `ice_timesync_enable`.
            self.ledger
                .remark("timer command without the semaphore", String::new);
        }
        let command = std::mem::replace(&mut clock.command, TimerCommand::ZERO);
        let failed = command.timer()
            || !clock.source.execute(command, clock.prepared, now)
            || !self.firmware.execute_phy_command(now);
        if failed {
            self.ledger
                .breach("timer command that cannot be carried out", || {
                    format!("{command:?}")
                });
        }
        self.refresh();
    }

    /// A reset of the device: a timer that this function controls stops.
    pub(super) fn reset_clock(&mut self) {
        self.clock = Clock::new(self.settings.timer);
    }
}
