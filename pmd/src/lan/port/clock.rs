//! The device's clock, which received packets are stamped from.
//!
//! A function of the device controls each timer. If it is this one, opening the port starts the
//! timer, unless it runs: in the source timer and in its copy in the PHY, at one moment. Nothing
//! stops it later, since other functions may use it. Source: ice `ice_ptp.c`, `ice_ptp_init_owner`;
//! `ice_ptp_hw.c`, `ice_ptp_init_phc`, `ice_ptp_write_incval`, `ice_ptp_init_time`.

use super::PortError;
use crate::Registers;
use crate::admin::AdminQueue;
use crate::admin::commands::Timers;
use ringside_lan::PacketPool;
use ringside_spec::lan::registers::clock::{
    EXECUTE, NOMINAL_INCREMENT, TIMER_COMMAND, TIMER_DELAY, TIMER_ENABLE, TIMER_EXECUTE,
    TIMER_INCREMENT, TIMER_NEW_INCREMENT, TIMER_NEW_TIME, TIMER_SEMAPHORE, TIMER_TIME,
    TimerCommand, TimerEnable, TimerSemaphore, phy,
};
use std::time::Duration;

/// The longest wait for the semaphore of the timers. Source: ice `ice_ptp_hw.c`, `ice_ptp_lock`:
/// 15 tries with 1 to 6 ms between them.
const SEMAPHORE_WAIT: Duration = Duration::from_millis(90);
const STEP: Duration = Duration::from_micros(100);

/// The timer that this port's packets are stamped from.
#[derive(Debug)]
pub(super) struct PortClock {
    timer: u32,
    /// its packets' time stamps are completed by the time that was read last
    pool: PacketPool,
}

pub(super) fn refused(value: String, remedy: &'static str) -> PortError {
    PortError::Invalid {
        what: "time stamps",
        value,
        remedy,
    }
}

impl PortClock {
    /// Starts the timer if this function controls it, and reads it; the packets of `pool` get time
    /// stamps from then on.
    pub(super) fn start(
        registers: &Registers,
        admin: &AdminQueue,
        timers: Option<&Timers>,
        pool: &PacketPool,
    ) -> Result<Self, PortError> {
        let Some(timers) = timers else {
            return Err(refused(
                "are not possible: the firmware reports no timer (capability 0x46)".to_owned(),
                "open the port without time_stamps",
            ));
        };
        let timer = timers.associated;
        if !is_running(registers, timer)? {
            if timers.controlled != Some(timer) {
                return Err(refused(
                    format!("need timer {timer}, which does not run"),
                    "start the driver of the function that controls it, with time stamps",
                ));
            }
            with_semaphore(registers, || start_timer(registers, admin, timer))?;
            if !is_running(registers, timer)? {
                return Err(refused(
                    format!("need timer {timer}, which was started and does not run"),
                    "open the port without time_stamps; the PHY of this card may have no timer",
                ));
            }
        }
        let clock = Self {
            timer: timer.into(),
            pool: pool.clone(),
        };
        clock.read(registers)?;
        Ok(clock)
    }

    /// Its time, nanoseconds; it completes the time stamps of packets.
    pub(super) fn read(&self, registers: &Registers) -> Result<u64, PortError> {
        let [_, low_at, high_at] = TIMER_TIME.map(|part| part.at(self.timer));
        let read = |at| registers.read_quietly(at);
        let (before, high, low) = (read(low_at)?, read(high_at)?, read(low_at)?);
        // The low half began again in between: the high half may be that of before or after.
        let high = if low < before { read(high_at)? } else { high };
        let time = u64::from(high) << 32 | u64::from(low);
        self.pool.note_device_time(Some(time));
        Ok(time)
    }
}

/// True if the timer counts.
fn is_running(registers: &Registers, timer: u8) -> Result<bool, PortError> {
    let enabled = registers.read(TIMER_ENABLE.at(timer.into()))?;
    let mut increment = 0;
    for half in TIMER_INCREMENT {
        increment |= registers.read(half.at(timer.into()))?;
    }
    Ok(TimerEnable(enabled).enable() && increment != 0)
}

/// Runs `work` while this function holds the semaphore of the timers.
fn with_semaphore(
    registers: &Registers,
    work: impl FnOnce() -> Result<(), PortError>,
) -> Result<(), PortError> {
    let taken = registers.poll(TIMER_SEMAPHORE, SEMAPHORE_WAIT, STEP, |value| {
        !TimerSemaphore(value).busy()
    })?;
    if !taken.ready {
        return Err(refused(
            format!(
                "need the timers' semaphore, which another function has held for {} ms",
                SEMAPHORE_WAIT.as_millis()
            ),
            "open the port again; reset the device if its owner is gone",
        ));
    }
    let done = work();
    let given_back = registers.write(TIMER_SEMAPHORE, 0);
    done?;
    Ok(given_back?)
}

fn start_timer(registers: &Registers, admin: &AdminQueue, timer: u8) -> Result<(), PortError> {
    let index = u32::from(timer);
    let enable = TimerEnable::ZERO.with_enable(true).0;
    registers.write(TIMER_ENABLE.at(index), enable)?;
    registers.write(TIMER_DELAY, 0)?;
    admin.write_phy(phy::enable(timer), enable)?;
    // The pace.
    let halves = [NOMINAL_INCREMENT as u32, (NOMINAL_INCREMENT >> 32) as u32];
    for (half, value) in TIMER_NEW_INCREMENT.into_iter().zip(halves) {
        registers.write(half.at(index), value)?;
    }
    let [low, high] = halves;
    admin.write_phy(phy::new_increment_low(timer), low)?;
    admin.write_phy(phy::new_increment_high(timer), high)?;
    let command = TimerCommand::ZERO.with_set_increment(true);
    execute(registers, admin, timer, command)?;
    // The time: it counts from now.
    for part in TIMER_NEW_TIME {
        registers.write(part.at(index), 0)?;
    }
    admin.write_phy(phy::new_time_fraction(timer), 0)?;
    admin.write_phy(phy::new_time(timer), 0)?;
    execute(
        registers,
        admin,
        timer,
        TimerCommand::ZERO.with_set_time(true),
    )
}

/// Prepares a command in source timer and PHY, and executes it in both.
fn execute(
    registers: &Registers,
    admin: &AdminQueue,
    timer: u8,
    command: TimerCommand,
) -> Result<(), PortError> {
    registers.write(TIMER_COMMAND, command.with_timer(timer == 1).0)?;
    // Bits that are no command are kept. Source: ice `TS_CMD_MASK_E810`.
    let kept = admin.read_phy(phy::COMMAND)? & !COMMAND_BITS;
    admin.write_phy(phy::COMMAND, kept | command.0)?;
    Ok(registers.write(TIMER_EXECUTE, EXECUTE)?)
}

/// Bits of a command in the PHY.
const COMMAND_BITS: u32 = 0xFF;
