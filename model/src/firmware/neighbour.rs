//! Messages to the external PHY: the registers of its copy of the device's timer, the time stamps
//! of sent packets, and the counters of forward error correction.

use super::command::{Answer, Command, Outcome};
use crate::chip::{Context, Prepared, Timer, TimerAccess};
use ringside_bus::Instant;
use ringside_spec::lan::Parameters;
use ringside_spec::lan::admin::ReturnCode;
use ringside_spec::lan::admin::generic::NeighbourDeviceRequest;
use ringside_spec::lan::admin::neighbour::{
    NeighbourAnswer, NeighbourRequest, PHY, READ_BYTES, operation,
};
use ringside_spec::lan::registers::clock::{TimerCommand, TimerEnable, phy};
use ringside_spec::lan::registers::correction;
use zerocopy::IntoBytes;

/// The timer that there is.
const TIMER: u8 = 0;

/// The PHY's copy of the timer, and what was prepared for it.
#[derive(Clone, Debug)]
pub(super) struct Phy {
    access: TimerAccess,
    port: u8,
    timer: Timer,
    prepared: Prepared,
    command: u32,
    fraction: u32,
    /// time stamps of sent packets: low and high half, in use once there is one
    stamps: Vec<[u32; 2]>,
}

impl Phy {
    pub(super) fn new(access: TimerAccess, port: u8) -> Self {
        Self {
            access,
            port,
            timer: access.timer(),
            prepared: Prepared::default(),
            command: 0,
            fraction: 0,
            stamps: Vec::new(),
        }
    }

    /// A packet leaves that is to be stamped. Returns true if its time stamp is there now.
    pub(super) fn stamp(&mut self, index: u8, now: Instant) -> bool {
        if !self.timer.enabled() || index >= phy::TRANSMIT_STAMPS {
            return false;
        }
        self.stamps.resize(phy::TRANSMIT_STAMPS.into(), [0; 2]);
        let time = self.timer.at(now);
        if let Some(stamp) = self.stamps.get_mut(usize::from(index)) {
            let low = (time as u32) << 8 | phy::TRANSMIT_STAMP_VALID;
            *stamp = [low, (time as u32) >> 24];
        }
        true
    }

    /// Index and half of the transmit time stamp of the own port that a register holds.
    fn stamp_at(&self, register: u32) -> Option<(usize, usize)> {
        let first = phy::transmit_stamp_low(self.port, 0);
        let at = register.checked_sub(first)?;
        let (index, half) = (at as usize / 8, at as usize % 8 / 4);
        (at.is_multiple_of(4) && index < usize::from(phy::TRANSMIT_STAMPS)).then_some((index, half))
    }

    /// Half of a time stamp.
    fn read_stamp(&self, (index, half): (usize, usize)) -> u32 {
        let stamp = self.stamps.get(index);
        stamp
            .and_then(|stamp| stamp.get(half))
            .copied()
            .unwrap_or(0)
    }

    /// A driver that has read a time stamp clears it.
    fn write_stamp(&mut self, (index, half): (usize, usize), value: u32) {
        let stamp = self.stamps.get_mut(index);
        if let Some(place) = stamp.and_then(|stamp| stamp.get_mut(half)) {
            *place = value;
        }
    }

    pub(super) const fn timer(&self) -> &Timer {
        &self.timer
    }

    /// Carries out the command that was prepared; false if it cannot.
    pub(super) fn execute(&mut self, now: Instant) -> bool {
        let command = TimerCommand(std::mem::take(&mut self.command));
        self.timer.execute(command, self.prepared, now)
    }

    fn read(&self, register: u32) -> Option<u32> {
        let increment = self.prepared.increment;
        Some(match register {
            phy::COMMAND => self.command,
            _ if register == phy::enable(TIMER) => u32::from(self.timer.enabled()),
            _ if register == phy::new_time_fraction(TIMER) => self.fraction,
            _ if register == phy::new_time(TIMER) => self.prepared.time as u32,
            _ if register == phy::new_increment_low(TIMER) => increment as u32,
            _ if register == phy::new_increment_high(TIMER) => (increment >> 32) as u32,
            _ => self.read_stamp(self.stamp_at(register)?),
        })
    }

    fn write(&mut self, register: u32, value: u32, now: Instant) -> Option<()> {
        let increment = &mut self.prepared.increment;
        match register {
            phy::COMMAND => self.command = value,
            _ if register == phy::enable(TIMER) => {
                self.timer.enable(TimerEnable(value).enable(), now);
            }
            _ if register == phy::new_time_fraction(TIMER) => self.fraction = value,
            _ if register == phy::new_time(TIMER) => self.prepared.time = value.into(),
            _ if register == phy::new_increment_low(TIMER) => {
                *increment = *increment >> 32 << 32 | u64::from(value);
            }
            _ if register == phy::new_increment_high(TIMER) => {
                *increment = *increment & 0xFFFF_FFFF | u64::from(value) << 32;
            }
            _ => self.write_stamp(self.stamp_at(register)?, value),
        }
        Some(())
    }

    /// Reads or writes a register. A message that is not possible is a breach.
    pub(super) fn request(&mut self, command: &mut Command, context: &mut Context<'_>) -> Outcome {
        let asked: NeighbourDeviceRequest = command.parameters();
        let mut bytes = [0; NeighbourRequest::SIZE];
        let length = command.buffer.len().min(bytes.len());
        if let (Some(to), Some(from)) = (bytes.get_mut(..length), command.buffer.get(..length)) {
            to.copy_from_slice(from);
        }
        let message: NeighbourRequest = zerocopy::transmute!(bytes);
        let counter = message.register().is_some_and(correction::is_counter);
        if self.access == TimerAccess::Absent && !counter {
            return Err(ReturnCode::NotImplemented);
        }
        let expected = match message.operation {
            operation::READ => READ_BYTES,
            _ => NeighbourRequest::SIZE,
        };
        let sound = usize::from(asked.length_bytes.get()) == expected && length == expected;
        let done = match (message.operation, message.register()) {
            _ if !sound || message.destination != PHY => None,
            // The model's link needs no correction.
            (operation::READ, _) if counter => Some(0),
            (operation::READ, Some(register)) => self.read(register),
            (operation::WRITE, Some(register))
                if self.access != TimerAccess::Controlled && self.stamp_at(register).is_none() =>
            {
                None
            }
            (operation::WRITE, Some(register)) => {
                let value = message.value.get();
                self.write(register, value, context.now).map(|()| value)
            }
            _ => None,
        };
        let Some(value) = done else {
            context
                .ledger
                .breach("message to the PHY that is not possible", || {
                    format!("{length} bytes: {message:?}")
                });
            return Err(ReturnCode::Invalid);
        };
        let answer = NeighbourAnswer {
            source: message.destination,
            operation: message.operation,
            flags: message.flags,
            value: value.into(),
            ..NeighbourAnswer::zeroed()
        };
        command.put_bytes(0, answer.as_bytes())?;
        Ok(Answer {
            parameters: asked.to_raw(),
            length: NeighbourAnswer::SIZE,
        })
    }
}
