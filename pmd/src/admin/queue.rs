//! Both rings, one command at a time, and the rules of use.
//!
//! A command is complete when the head has passed it; no flag marks it. The return code is the
//! result, and the descriptor's length is the number of valid bytes in the buffer.

use super::AdminError;
use super::change_lock::ChangeLock;
use super::ring::{RING_ENTRIES, Ring, silence};
use super::switch_rules::SwitchRules;
use crate::Registers;
use crate::trace::{CommandQueue, Exchange};
use ringside_bus::clock::wait_for;
use ringside_bus::{DmaBuffer, DmaPool};
use ringside_spec::lan::Parameters;
use ringside_spec::lan::admin::{BUFFER_SIZE, Descriptor, Direction, Opcode, ReturnCode};
use ringside_spec::lan::registers::control_queues::{ADMIN_RECEIVE, ADMIN_SEND};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

/// The time between two reads of the head.
const POLL_STEP: Duration = Duration::from_micros(5);
/// Sends in all of a command that may be answered "busy".
const BUSY_ATTEMPTS: u32 = 3;
/// The time between two attempts.
const BUSY_PAUSE: Duration = Duration::from_millis(10);

/// The buffer of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Data<'a> {
    /// None.
    None,
    /// The device reads these bytes, and may write the buffer back.
    Send(&'a [u8]),
    /// The device writes up to so many bytes.
    Receive(usize),
}

impl Data<'_> {
    fn length(&self) -> usize {
        match self {
            Self::None => 0,
            Self::Send(bytes) => bytes.len(),
            Self::Receive(bytes) => *bytes,
        }
    }
}

/// The firmware's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The result.
    pub code: ReturnCode,
    /// The parameters as written back.
    pub parameters: [u8; 16],
    /// The buffer as far as the firmware means it, never more than was supplied.
    pub data: Vec<u8>,
}

impl Answer {
    /// The parameters, read as those of a certain command.
    #[must_use]
    pub fn parameters<P: Parameters>(&self) -> P {
        P::from_raw(self.parameters)
    }
}

/// Something the firmware reports unasked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdminEvent {
    /// Its subject.
    pub opcode: Opcode,
    /// The return code field: with mailbox messages the number of the virtual function.
    pub code: u16,
    /// The opcode of a mailbox message.
    pub cookie_high: u32,
    /// The status of a mailbox message.
    pub cookie_low: u32,
    /// The parameters.
    pub parameters: [u8; 16],
    /// The message.
    pub data: Vec<u8>,
}

/// The rings and buffers that the device uses.
struct Rings {
    send: Ring,
    receive: Ring,
    command_buffer: DmaBuffer,
    event_buffers: DmaBuffer,
}

#[derive(Default)]
struct State {
    rings: Option<Rings>,
    /// rings of before a restart: the device may still write to them until it is silenced
    retired: Vec<Rings>,
    /// the firmware stopped answering
    stopped: bool,
    /// it did not answer after a restart either
    hopeless: bool,
    events_discarded: u64,
}

/// The admin queue of one function. All calls wait for their answer, with a deadline; callers on
/// several threads take turns.
pub struct AdminQueue {
    registers: Registers,
    pool: Arc<DmaPool>,
    deadline: Duration,
    state: Mutex<State>,
    pub(super) switch_rules: SwitchRules,
    pub(super) change_lock: ChangeLock,
}

/// True for commands that are sent again when the firmware answers "busy".
/// Source: ice `ice_common.c`, `ice_should_retry_sq_send_cmd`.
fn retried_when_busy(opcode: Opcode) -> bool {
    matches!(
        opcode,
        Opcode::GetLinkTopology
            | Opcode::LldpStop
            | Opcode::LldpStart
            | Opcode::LldpFilterControl
            | Opcode::ModuleEeprom
    )
}

impl AdminQueue {
    /// A queue that is not started; `deadline` is for one command.
    #[must_use]
    pub fn new(registers: Registers, pool: Arc<DmaPool>, deadline: Duration) -> Self {
        Self {
            registers,
            pool,
            deadline,
            state: Mutex::default(),
            switch_rules: SwitchRules::default(),
            change_lock: ChangeLock::default(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers of the function.
    pub(crate) fn registers(&self) -> &Registers {
        &self.registers
    }

    /// Starts both rings. A queue that was started before is started again.
    pub fn start(&self) -> Result<(), AdminError> {
        let mut state = self.state();
        if let Some(old) = state.rings.take() {
            state.retired.push(old);
        }
        silence(&self.registers, &ADMIN_SEND)?;
        silence(&self.registers, &ADMIN_RECEIVE)?;
        let entries = usize::from(RING_ENTRIES);
        let mut rings = Rings {
            send: Ring::new(&ADMIN_SEND, &self.pool)?,
            receive: Ring::new(&ADMIN_RECEIVE, &self.pool)?,
            command_buffer: self.pool.allocate(BUFFER_SIZE, 4096)?,
            event_buffers: self.pool.allocate(entries * BUFFER_SIZE, 4096)?,
        };
        for entry in 0..RING_ENTRIES {
            rings.receive.write(entry, &rings.free_event(entry));
        }
        // From here on the device may access the memory, even if a later step fails.
        let result = rings.start(&self.registers);
        state.rings = Some(rings);
        state.stopped = result.is_err();
        result
    }

    /// Starts the queue again if the firmware had stopped answering; tries that once.
    pub(crate) fn revive(&self) -> Result<(), AdminError> {
        {
            let state = self.state();
            if !state.stopped || state.hopeless {
                return Ok(());
            }
        }
        let result = self.start().and_then(|()| self.get_version().map(|_| ()));
        if result.is_err() {
            let mut state = self.state();
            (state.hopeless, state.stopped) = (true, true);
        }
        result
    }

    /// Says goodbye to the firmware and takes both rings from the device.
    ///
    /// The registers are zeroed even if the firmware does not answer. The memory stays with this
    /// value: drop it only once the device can no longer write.
    pub fn shut_down(&self) -> Result<(), AdminError> {
        // The firmware is notified only by a running queue.
        let running = {
            let state = self.state();
            state.rings.is_some() && !state.stopped
        };
        let told = match running {
            true => self.queue_shutdown(),
            false => Ok(()),
        };
        let send = silence(&self.registers, &ADMIN_SEND);
        let receive = silence(&self.registers, &ADMIN_RECEIVE);
        self.state().stopped = true;
        send.and(receive).and(told)
    }

    /// True if the firmware stopped answering, or the queue was shut down. False while a command is
    /// under way: its end tells, and callers that look after the device do not wait for it.
    pub(crate) fn has_stopped(&self) -> bool {
        match self.state.try_lock() {
            Ok(state) => state.stopped,
            Err(TryLockError::Poisoned(state)) => state.into_inner().stopped,
            Err(TryLockError::WouldBlock) => false,
        }
    }

    /// Ends the commands of other threads before a reset: one that is under way is answered or
    /// given up first, and none is sent until the queue is started again.
    pub(crate) fn stop(&self) {
        self.state().stopped = true;
    }

    /// Takes both rings from the device without a word to the firmware: after a reset.
    pub(crate) fn silence_rings(&self) -> Result<(), AdminError> {
        self.state().stopped = true;
        self.switch_rules.forget();
        self.change_lock.forget();
        silence(&self.registers, &ADMIN_SEND).and(silence(&self.registers, &ADMIN_RECEIVE))
    }

    /// Frees the memory of all rings. The device has been reset and uses none of them.
    pub(crate) fn release(&self) {
        let mut state = self.state();
        state.stopped = true;
        state.rings = None;
        state.retired.clear();
    }

    /// Sends a command and waits for its answer; a refusal is an error.
    pub fn execute<P: Parameters>(
        &self,
        opcode: Opcode,
        parameters: &P,
        data: Data<'_>,
    ) -> Result<Answer, AdminError> {
        let answer = self.exchange(opcode, parameters, data)?;
        match answer.code {
            ReturnCode::Ok => Ok(answer),
            code => Err(AdminError::Refused { opcode, code }),
        }
    }

    /// Sends a command and waits for its answer; the caller checks the return code.
    pub fn exchange<P: Parameters>(
        &self,
        opcode: Opcode,
        parameters: &P,
        data: Data<'_>,
    ) -> Result<Answer, AdminError> {
        let clock = self.registers.clock();
        let start = clock.now();
        let mut attempts = 1;
        let result = loop {
            let result = self.exchange_once(opcode, parameters, data);
            let busy = matches!(&result, Ok(answer) if answer.code == ReturnCode::Busy);
            if !busy || !retried_when_busy(opcode) || attempts == BUSY_ATTEMPTS {
                break result;
            }
            attempts += 1;
            pause(&**clock, BUSY_PAUSE);
        };
        let took = clock.now().since(start);
        self.registers.recorder().record(|| Exchange::Command {
            queue: CommandQueue::Admin,
            opcode: opcode.code(),
            name: opcode.c_name(),
            asked: asked_text(&parameters.to_raw(), data),
            answered: answered_text(&result),
            attempts,
            took,
        });
        result
    }

    fn exchange_once<P: Parameters>(
        &self,
        opcode: Opcode,
        parameters: &P,
        data: Data<'_>,
    ) -> Result<Answer, AdminError> {
        let supplied = data.length();
        let length = match u16::try_from(supplied) {
            Ok(length) if supplied <= BUFFER_SIZE => length,
            _ => {
                return Err(AdminError::TooLong {
                    opcode,
                    bytes: supplied,
                    limit: BUFFER_SIZE,
                });
            }
        };
        let mut state = self.state();
        let State { rings, stopped, .. } = &mut *state;
        let Some(rings) = rings.as_mut().filter(|_| !*stopped) else {
            return Err(AdminError::Stopped { opcode });
        };
        let address = rings.command_buffer.iova().0;
        let descriptor = match data {
            Data::None => Descriptor::direct(opcode, parameters),
            Data::Send(bytes) => {
                let inside = rings.command_buffer.write(0, bytes);
                debug_assert!(inside, "the length was checked");
                Descriptor::indirect(opcode, parameters, address, length, Direction::DeviceReads)
            }
            Data::Receive(bytes) => {
                let inside = rings.command_buffer.fill(0, bytes, 0);
                debug_assert!(inside, "the length was checked");
                Descriptor::indirect(opcode, parameters, address, length, Direction::DeviceWrites)
            }
        };
        let entry = rings.send.next();
        rings.send.write(entry, &descriptor);
        let tail = rings.send.advance();
        rings.send.set_tail(&self.registers, tail)?;
        let waited = self.wait_for_head(&rings.send, opcode, tail);
        if let Err(error) = waited {
            *stopped = true;
            return Err(error);
        }
        let answered = rings.send.read(entry);
        read_answer(opcode, &answered, length, &rings.command_buffer)
    }

    fn wait_for_head(&self, ring: &Ring, opcode: Opcode, tail: u16) -> Result<(), AdminError> {
        let clock = self.registers.clock();
        let done = wait_for(&**clock, self.deadline, POLL_STEP, || {
            let head = ring
                .head(&self.registers)?
                .map_err(|reason| AdminError::malformed(opcode, reason))?;
            Ok::<_, AdminError>((head == tail).then_some(()))
        })?;
        if done.is_some() {
            return Ok(());
        }
        let critical = ring.take_errors(&self.registers)?.critical_error();
        ring.check_alive(&self.registers)?;
        Err(AdminError::TimedOut {
            opcode,
            waited_ms: u64::try_from(self.deadline.as_millis()).unwrap_or(u64::MAX),
            critical,
        })
    }

    /// Takes what the firmware reported since the last call, at most one ring full, and gives the
    /// buffers back to it. Reports with the error flag or a length beyond their buffer are
    /// discarded and counted.
    pub fn take_events(&self) -> Result<Vec<AdminEvent>, AdminError> {
        let mut state = self.state();
        let State {
            rings,
            events_discarded,
            ..
        } = &mut *state;
        let Some(rings) = rings.as_mut() else {
            return Ok(Vec::new());
        };
        rings.receive.take_errors(&self.registers)?;
        rings.send.take_errors(&self.registers)?;
        let head = rings
            .receive
            .head(&self.registers)?
            .map_err(|reason| AdminError::malformed(Opcode::Unknown(0), reason))?;
        let mut events = Vec::new();
        while rings.receive.next() != head {
            let entry = rings.receive.next();
            match rings.read_event(entry) {
                Some(event) => events.push(event),
                None => *events_discarded += 1,
            }
            rings.receive.write(entry, &rings.free_event(entry));
            rings.receive.advance();
            rings.receive.set_tail(&self.registers, entry)?;
        }
        Ok(events)
    }

    /// Events that were discarded because they made no sense.
    #[must_use]
    pub fn events_discarded(&self) -> u64 {
        self.state().events_discarded
    }
}

impl Rings {
    fn start(&mut self, registers: &Registers) -> Result<(), AdminError> {
        self.send.start(registers)?;
        self.receive.start(registers)?;
        self.receive.set_tail(registers, RING_ENTRIES - 1)
    }

    fn free_event(&self, entry: u16) -> Descriptor {
        let at = usize::from(entry) * BUFFER_SIZE;
        let address = self.event_buffers.iova().add(at as u64).0;
        Descriptor::free_for_event(address, BUFFER_SIZE as u16)
    }

    fn read_event(&self, entry: u16) -> Option<AdminEvent> {
        let descriptor = self.receive.read(entry);
        let length = usize::from(descriptor.data_length.get());
        if descriptor.flags().error() || length > BUFFER_SIZE {
            tracing::warn!(?descriptor, "event of the firmware discarded");
            return None;
        }
        let mut data = vec![0; length];
        let at = usize::from(entry) * BUFFER_SIZE;
        self.event_buffers.read(at, &mut data).then(|| AdminEvent {
            opcode: descriptor.opcode(),
            code: descriptor.return_code.get(),
            cookie_high: descriptor.cookie_high.get(),
            cookie_low: descriptor.cookie_low.get(),
            parameters: descriptor.parameters,
            data,
        })
    }
}

/// Checks the answer: the opcode of the command, no more data than the buffer holds. Without a
/// buffer the length means nothing. Source: ice `ice_controlq.c`, `ice_sq_send_cmd`.
fn read_answer(
    opcode: Opcode,
    answered: &Descriptor,
    supplied: u16,
    buffer: &DmaBuffer,
) -> Result<Answer, AdminError> {
    if answered.opcode() != opcode {
        let reason = format!("it is the answer to {:#06x}", answered.opcode().code());
        return Err(AdminError::malformed(opcode, reason));
    }
    let told = answered.data_length.get();
    let Some(length) = meant_bytes(told, supplied) else {
        let reason = format!("{told} bytes, but the buffer had {supplied}");
        return Err(AdminError::malformed(opcode, reason));
    };
    let mut data = vec![0; length.into()];
    if !buffer.read(0, &mut data) {
        return Err(AdminError::malformed(
            opcode,
            "its data lies outside the buffer",
        ));
    }
    Ok(Answer {
        code: answered.return_code(),
        parameters: answered.parameters,
        data,
    })
}

/// Bytes of the buffer that an answer means by its length; `None`: more than were supplied.
fn meant_bytes(told: u16, supplied: u16) -> Option<u16> {
    match supplied {
        0 => Some(0),
        _ => (told <= supplied).then_some(told),
    }
}

/// Lets `time` pass on `clock`.
pub(crate) fn pause(clock: &dyn ringside_bus::Clock, time: Duration) {
    let step = time.min(Duration::from_millis(1));
    let _: Result<Option<()>, std::convert::Infallible> = wait_for(clock, time, step, || Ok(None));
}

fn asked_text(parameters: &[u8; 16], data: Data<'_>) -> String {
    let mut text = hex(parameters);
    match data {
        Data::None => {}
        Data::Send(bytes) => text.push_str(&format!(" with {} bytes", bytes.len())),
        Data::Receive(bytes) => text.push_str(&format!(" for up to {bytes} bytes")),
    }
    text
}

fn answered_text(result: &Result<Answer, AdminError>) -> String {
    match result {
        Ok(answer) if answer.data.is_empty() => {
            format!("{} {}", answer.code.c_name(), hex(&answer.parameters))
        }
        Ok(answer) => format!(
            "{} {} with {} bytes",
            answer.code.c_name(),
            hex(&answer.parameters),
            answer.data.len()
        ),
        Err(error) => error.to_string(),
    }
}

/// Sixteen bytes as four groups.
fn hex(bytes: &[u8; 16]) -> String {
    let groups: Vec<String> = bytes
        .chunks(4)
        .map(|group| group.iter().map(|byte| format!("{byte:02x}")).collect())
        .collect();
    groups.join(" ")
}

impl std::fmt::Debug for AdminQueue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AdminQueue")
            .field("deadline", &self.deadline)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::meant_bytes;

    #[test]
    fn the_length_of_an_answer_counts_only_with_a_buffer() {
        assert_eq!(meant_bytes(0, 0), Some(0));
        assert_eq!(meant_bytes(12, 0), Some(0));
        assert_eq!(meant_bytes(12, 12), Some(12));
        assert_eq!(meant_bytes(13, 12), None);
    }
}
