//! The ring of commands and the ring of their completions.
//!
//! Many commands are under way at a time, each of a thread that waits for its answer. A completion
//! names the entry of its command, so answers may come in any order; an entry is used again only
//! after its answer. The lock of this queue is held to write an entry and to read the ring of
//! completions, never while a command is under way. One thread reads that ring for all, and wakes
//! the others as their answers come; threads that find no free entry get theirs in order. Until the
//! control completion queue exists an answer is seen in a register (PFPE_CQPTAIL moves), one
//! command at a time.
//!
//! A command that is never answered leaves the queue unusable, because a late answer could be taken
//! for another command's: only a reset helps, and everything later says so at once. Commands that
//! are under way at that time are waited for until their own deadlines.
//!
//! Source: irdma `ctrl.c`, `irdma_sc_cqp_create`, `irdma_sc_cqp_post_sq`,
//! `irdma_cqp_poll_registers`, `irdma_sc_ccq_get_cqe_info`.

use super::ControlError;
use super::rings::{COMPLETION_CONTEXT, Completions, Ended, Entry, Rings};
use super::waiting::{InLine, SharedRings, Watch};
use crate::Registers;
use crate::failure::FailureCause;
use crate::health::{Baseline, Lookout};
use crate::trace::{CommandQueue, Exchange};
use ringside_bus::clock::{Deadline, wait_for};
use ringside_bus::{DmaBuffer, DmaPool, Instant, Iova};
use ringside_cq::EventRing;
use ringside_spec::rdma::commands::{COMMAND_BYTES, ControlCommand, HEADER_WORD, Opcode};
use ringside_spec::rdma::control_completion::{CommandFailure, ControlCompletion};
use ringside_spec::rdma::cqp_context::{
    CqpContext, HARDWARE_MAJOR_VERSION, HmcProfile, Protocol, ring_size_code,
};
use ringside_spec::rdma::registers::{
    CQP_CONTEXT_HIGH, CQP_CONTEXT_LOW, CQP_DOORBELL, CQP_ERROR_CODES, CQP_STATUS, CQP_TAIL,
    CqpErrorCodes, CqpStatus, CqpTail,
};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// Words of a command.
const COMMAND_WORDS: usize = COMMAND_BYTES / 8;

/// The interval between two reads of a register.
const REGISTER_STEP: Duration = Duration::from_micros(10);

/// The interval between two reads of the completion ring; it is memory, so this is only a pause.
const COMPLETION_STEP: Duration = Duration::from_micros(1);

/// The reads of the completion ring after which a waiting thread gives its core away: another
/// thread may send its command meanwhile, or be the device's, and so may another process.
const READS_BEFORE_YIELD: u32 = 32;

/// The reads after which it lets the device catch up again: others use the way to it meanwhile.
const READS_BEFORE_CATCHING_UP: u32 = 32;

/// The interval after these reads: the shortest for which the clock yields.
const YIELDING_STEP: Duration = Duration::from_micros(20);

/// The interval between two looks of a thread that waits for a free entry, besides its sleeps.
const REST: Duration = Duration::from_millis(1);

/// Settings of a control queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ControlQueueSettings {
    /// Commands that the ring holds: a power of two from 4 to 2048.
    pub entries: u32,
    /// The longest wait for an answer.
    pub deadline: Duration,
}

/// A command that succeeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completed {
    /// The returned value: a handle, an index. Zero while answers are seen in a register.
    pub return_value: u32,
    /// Minor code, which some commands fill although they succeed.
    pub minor_code: u16,
}

/// The control queue pair of a function. Many threads may execute commands at a time.
pub struct ControlQueue {
    registers: Registers,
    ring: DmaBuffer,
    context: DmaBuffer,
    entries: u32,
    deadline: Duration,
    /// the resets that the device had had when its period of service began
    baseline: Option<Baseline>,
    rings: SharedRings,
}

impl ControlQueue {
    /// Memory for a control queue; the device learns of it in [`ControlQueue::create`].
    pub fn prepare(
        registers: Registers,
        pool: &Arc<DmaPool>,
        settings: ControlQueueSettings,
    ) -> Result<Self, ControlError> {
        let entries = settings.entries;
        let size_code = ring_size_code(entries).ok_or(ControlError::WrongSize { entries })?;
        let ring = pool.allocate(entries as usize * COMMAND_BYTES, 512)?;
        let context = pool.allocate(COMMAND_BYTES, 512)?;
        let words = CqpContext {
            protocol_used: Protocol::RoceOnly,
            ring_size_code: size_code,
            ring_address_by_512: ring.iova().0 / 512,
            hmc_profile: HmcProfile::Default,
            completion_context: COMPLETION_CONTEXT,
            hardware_major_version: HARDWARE_MAJOR_VERSION,
            ..CqpContext::decode(&[0; 8])
        }
        .encode();
        for (index, word) in words.iter().enumerate() {
            context.words().store(index, *word);
        }
        Ok(Self {
            registers,
            ring,
            context,
            entries,
            deadline: settings.deadline,
            baseline: None,
            rings: SharedRings::new(Rings {
                head: 0,
                polarity: true,
                entries: vec![Entry::Free; entries as usize],
                in_use: 0,
                completions: None,
                ended: None,
                is_watched: false,
                freed: 0,
                line: VecDeque::new(),
            }),
        })
    }

    /// Lets a command that waits for its answer end once the device was reset since then, or
    /// failed.
    pub(crate) fn watch(&mut self, since: Option<Baseline>) {
        self.baseline = since;
    }

    /// Creates the control queue pair in the device.
    pub fn create(&self) -> Result<(), ControlError> {
        for register in [CQP_TAIL, CQP_DOORBELL, CQP_STATUS] {
            self.registers.write(register, 0)?;
        }
        let address = self.context.iova().0;
        self.registers
            .write(CQP_CONTEXT_HIGH, (address >> 32) as u32)?;
        self.registers.write(CQP_CONTEXT_LOW, address as u32)?;
        let polled = self
            .registers
            .poll(CQP_STATUS, self.deadline, REGISTER_STEP, |status| {
                status != 0
            })?;
        let status = CqpStatus(polled.value);
        if status.done() && !status.error() {
            return Ok(());
        }
        let codes = CqpErrorCodes(self.registers.read(CQP_ERROR_CODES)?);
        Err(ControlError::NotCreated {
            status: status.0,
            major: codes.major() as u16,
            minor: codes.minor() as u16,
        })
    }

    /// Takes the control queue pair from the device; its memory may go once this succeeds.
    pub fn destroy(&self) -> Result<(), ControlError> {
        self.registers.write(CQP_CONTEXT_HIGH, 0)?;
        self.registers.write(CQP_CONTEXT_LOW, 0)?;
        let gone = self
            .registers
            .poll(CQP_STATUS, self.deadline, REGISTER_STEP, |status| {
                !CqpStatus(status).done()
            })?;
        self.rings.lock().ended.get_or_insert(Ended::Stuck);
        if gone.ready {
            Ok(())
        } else {
            Err(ControlError::NotCreated {
                status: gone.value,
                major: 0,
                minor: 0,
            })
        }
    }

    /// Uses `ring` for completions from the next command on; `shadow` holds the ring's head.
    ///
    /// The next command must be the one that creates this queue: its own completion is the first.
    /// `ring` must be a whole number of completions of 32 bytes.
    pub fn use_completions(&self, ring: DmaBuffer, entries: usize, shadow: DmaBuffer) -> bool {
        let words = ring.words().part(0..entries * 4);
        let Some(Ok(events)) = words.map(EventRing::new) else {
            return false;
        };
        self.rings.lock().completions = Some(Completions {
            ring: events,
            _buffer: ring,
            shadow,
            new: true,
        });
        true
    }

    /// The device's addresses of completion ring and shadow area, while they are in use.
    #[must_use]
    pub fn completion_addresses(&self) -> Option<(Iova, Iova)> {
        let rings = self.rings.lock();
        let completions = rings.completions.as_ref()?;
        Some((completions._buffer.iova(), completions.shadow.iova()))
    }

    /// Goes back to seeing answers in a register: for the command that destroys the completion
    /// queue. Returns its memory, to be freed once that command has succeeded.
    pub fn drop_completions(&self) -> Option<(DmaBuffer, DmaBuffer)> {
        let completions = self.rings.lock().completions.take()?;
        Some((completions._buffer, completions.shadow))
    }

    /// True once nothing is sent any more: a command was never answered, an answer belonged to no
    /// command, or the queue was abandoned or destroyed.
    #[must_use]
    pub fn is_stuck(&self) -> bool {
        self.rings.lock().ended.is_some()
    }

    /// The longest wait for the answer of one command.
    #[must_use]
    pub const fn deadline(&self) -> Duration {
        self.deadline
    }

    /// Commands that are under way.
    #[must_use]
    pub fn commands_under_way(&self) -> u32 {
        self.rings.lock().in_use
    }

    /// Ends all commands that are under way with [`ControlError::Abandoned`], and sends nothing
    /// more: the device was taken out of service, or failed.
    pub fn abandon(&self, cause: FailureCause) {
        let mut rings = self.rings.lock();
        rings.ended.get_or_insert(Ended::Abandoned(cause));
        self.rings.wake_all(&rings);
    }

    /// Sends a command and waits for its answer. Other threads may do the same meanwhile.
    ///
    /// Errors: [`ControlError::is_refusal`] says whether the device may have carried it out.
    pub fn execute<C: ControlCommand>(&self, command: C) -> Result<Completed, ControlError> {
        let opcode = C::OPCODE;
        let start = self.registers.clock().now();
        let result = self.send(&command, opcode);
        if let Err(error) = &result {
            match error {
                ControlError::Stuck { .. } | ControlError::Abandoned { sent: false, .. } => {
                    return result;
                }
                ControlError::TimedOut { .. } => {
                    self.rings.lock().ended.get_or_insert(Ended::Stuck);
                }
                _ => {}
            }
        }
        self.record(&command, &result, start);
        result
    }

    fn send<C: ControlCommand>(
        &self,
        command: &C,
        opcode: Opcode,
    ) -> Result<Completed, ControlError> {
        let mut rings = self.rings.lock();
        may_send(&rings, opcode)?;
        if rings.completions.is_none() {
            return self.execute_by_register(&mut rings, command, opcode);
        }
        let posted = match rings.line.is_empty() {
            true => self.post(&mut rings, command)?,
            false => None,
        };
        drop(rings);
        let slot = match posted {
            Some(slot) => slot,
            None => self.post_in_line(command, opcode)?,
        };
        self.wait_for_completion(slot, opcode)
    }

    /// Waits for a free entry behind the threads that wait already, and writes the command. Errors:
    /// [`ControlError::Full`] once no entry has become free for the whole deadline.
    fn post_in_line<C: ControlCommand>(
        &self,
        command: &C,
        opcode: Opcode,
    ) -> Result<u32, ControlError> {
        let clock = &**self.registers.clock();
        let place = InLine::new(&self.rings);
        let (mut freed, mut deadline) = (None, Deadline::after(clock, self.deadline));
        loop {
            let last = deadline.passed(clock);
            let mut rings = self.rings.lock();
            may_send(&rings, opcode)?;
            if place.is_first(&rings) {
                self.rings.reap(&mut rings, &self.registers);
                if let Some(slot) = self.post(&mut rings, command)? {
                    return Ok(slot);
                }
            }
            if freed.replace(rings.freed) != Some(rings.freed) {
                deadline = Deadline::after(clock, self.deadline);
            } else if last {
                return Err(ControlError::Full {
                    opcode,
                    commands: self.entries - 1,
                    waited_ms: self.deadline.as_millis() as u64,
                });
            }
            if !place.sleep(rings) {
                clock.pause(REST);
            }
        }
    }

    /// Writes a command and rings the doorbell. Returns its entry; none if the ring is full.
    fn post<C: ControlCommand>(
        &self,
        rings: &mut Rings,
        command: &C,
    ) -> Result<Option<u32>, ControlError> {
        let slot = rings.head;
        let place = rings.entries.get_mut(slot as usize);
        // With all entries used, head and tail would be the same, as of an empty ring.
        let (Some(place @ Entry::Free), true) = (place, rings.in_use + 1 < self.entries) else {
            return Ok(None);
        };
        *place = Entry::Sent { is_asleep: false };
        rings.in_use += 1;
        self.write_entry(slot, &command.encode(rings.polarity));
        rings.head = (slot + 1) % self.entries;
        if rings.head == 0 {
            rings.polarity = !rings.polarity;
        }
        if let Err(error) = self.registers.write_quietly(CQP_DOORBELL, rings.head) {
            // The command may or may not be answered, and its entry would stay in use.
            rings.ended.get_or_insert(Ended::Stuck);
            return Err(error.into());
        }
        Ok(Some(slot))
    }

    /// Sends a command and waits for its answer in a register, with the queue locked: such an
    /// answer does not name its command.
    fn execute_by_register<C: ControlCommand>(
        &self,
        rings: &mut Rings,
        command: &C,
        opcode: Opcode,
    ) -> Result<Completed, ControlError> {
        // Read before ringing: the answer is that it differs from this.
        let tail = CqpTail(self.registers.read_quietly(CQP_TAIL)?);
        let Some(slot) = self.post(rings, command)? else {
            return Err(ControlError::Stuck { opcode });
        };
        let completed = self.wait_for_register(tail, opcode);
        if !matches!(completed, Err(ControlError::TimedOut { .. })) {
            rings.free(slot);
        }
        completed
    }

    /// The word with the valid bit goes last, as one store.
    fn write_entry(&self, slot: u32, words: &[u64; 8]) {
        let ring = self.ring.words();
        let first = slot as usize * COMMAND_WORDS;
        for (index, word) in words.iter().enumerate() {
            if index != HEADER_WORD {
                ring.store(first + index, *word);
            }
        }
        ring.store_release(first + HEADER_WORD, words[HEADER_WORD]);
    }

    fn wait_for_register(
        &self,
        before: CqpTail,
        opcode: Opcode,
    ) -> Result<Completed, ControlError> {
        let clock = self.registers.clock();
        let seen = wait_for(&**clock, self.deadline, REGISTER_STEP, || {
            let now = CqpTail(self.registers.read_quietly(CQP_TAIL)?);
            let answered = now.operation_error() || now.tail() != before.tail();
            Ok::<_, ControlError>(answered.then_some(now))
        })?;
        let tail = seen.ok_or_else(|| self.timed_out(opcode))?;
        if tail.operation_error() {
            refusal_in_register(&self.registers, opcode)?;
        }
        Ok(Completed {
            return_value: 0,
            minor_code: 0,
        })
    }

    fn wait_for_completion(&self, slot: u32, opcode: Opcode) -> Result<Completed, ControlError> {
        let completion = self.await_completion(slot, opcode)?;
        match completion.failure() {
            Some(failure) => Err(ControlError::Refused { opcode, failure }),
            None => Ok(Completed {
                return_value: completion.return_value,
                minor_code: completion.minor_code,
            }),
        }
    }

    /// Reads the ring of completions until the answer comes, or sleeps while another thread does.
    fn await_completion(
        &self,
        slot: u32,
        opcode: Opcode,
    ) -> Result<ControlCompletion, ControlError> {
        let registers = &self.registers;
        let clock = &**registers.clock();
        let deadline = Deadline::after(clock, self.deadline);
        let mut lookout = Lookout::new(registers, self.baseline);
        let (mut reads, mut watch, mut looks) = (0, None, false);
        loop {
            let last = deadline.passed(clock);
            let mut rings = self.rings.lock();
            let is_watched = rings.is_watched && watch.is_none();
            // After a long sleep it looks by itself: the thread that reads may not have run.
            if !is_watched || last || looks {
                self.rings.reap(&mut rings, registers);
            }
            if let Some(completion) = rings.take_answer(slot) {
                return Ok(completion);
            }
            self.may_answer(&mut rings, slot, opcode)?;
            if last {
                return Err(self.timed_out(opcode));
            }
            if is_watched {
                looks = self.rings.sleep(rings, slot);
                continue;
            }
            watch.get_or_insert_with(|| Watch::new(&self.rings, &mut rings));
            drop(rings);
            reads += 1;
            if reads > READS_BEFORE_YIELD {
                self.give_way(reads - READS_BEFORE_YIELD);
                if let Some(cause) = lookout.look(registers) {
                    self.abandon(cause);
                }
            }
            clock.pause(COMPLETION_STEP);
        }
    }

    /// Gives the core to others for a while, for the `times`th time: at first to the device, if it
    /// is another process that has not taken the command yet, for want of a core. A device that
    /// does not respond is left to the caller's lookout and deadline.
    fn give_way(&self, times: u32) {
        let catches_up = times % READS_BEFORE_CATCHING_UP == 1;
        if !(catches_up && matches!(self.registers.function().catch_up(), Ok(true))) {
            self.registers.clock().pause(YIELDING_STEP);
        }
    }

    /// Fails if no answer of a command that was sent can come.
    fn may_answer(&self, rings: &mut Rings, slot: u32, opcode: Opcode) -> Result<(), ControlError> {
        match &rings.ended {
            Some(Ended::Abandoned(cause)) => return Err(abandoned(opcode, *cause, true)),
            Some(Ended::Garbled(what)) => {
                let what = what.clone();
                return Err(ControlError::Garbled { opcode, what });
            }
            Some(Ended::Stuck) | None => {}
        }
        if rings.completions.as_ref().is_some_and(|ring| ring.new) {
            let refused = refusal_in_register(&self.registers, opcode);
            if refused.is_err() {
                rings.free(slot);
            }
            refused?;
        }
        Ok(())
    }

    fn timed_out(&self, opcode: Opcode) -> ControlError {
        ControlError::TimedOut {
            opcode,
            waited_ms: self.deadline.as_millis() as u64,
        }
    }

    fn record<C: ControlCommand>(
        &self,
        command: &C,
        result: &Result<Completed, ControlError>,
        start: Instant,
    ) {
        self.registers.recorder().record(|| Exchange::Command {
            queue: CommandQueue::Control,
            opcode: u16::from(C::OPCODE.code()),
            name: command_name::<C>(),
            asked: format!("{command:x?}"),
            answered: match result {
                Ok(answer) => {
                    format!(
                        "done, value {:#x}, minor {}",
                        answer.return_value, answer.minor_code
                    )
                }
                Err(error) => error.to_string(),
            },
            attempts: 1,
            took: self.registers.clock().now().since(start),
        });
    }
}

/// Fails if nothing is sent any more.
fn may_send(rings: &Rings, opcode: Opcode) -> Result<(), ControlError> {
    match rings.ended {
        Some(Ended::Abandoned(cause)) => Err(abandoned(opcode, cause, false)),
        Some(_) => Err(ControlError::Stuck { opcode }),
        None => Ok(()),
    }
}

const fn abandoned(opcode: Opcode, cause: FailureCause, sent: bool) -> ControlError {
    ControlError::Abandoned {
        opcode,
        cause,
        sent,
    }
}

/// The refusal that the registers show, if they show one.
fn refusal_in_register(registers: &Registers, opcode: Opcode) -> Result<(), ControlError> {
    if !CqpTail(registers.read_quietly(CQP_TAIL)?).operation_error() {
        return Ok(());
    }
    let codes = CqpErrorCodes(registers.read_quietly(CQP_ERROR_CODES)?);
    let failure = CommandFailure::from_codes(codes.major() as u16, codes.minor() as u16);
    Err(ControlError::Refused { opcode, failure })
}

/// The command's name: the last part of its type's.
fn command_name<C>() -> &'static str {
    std::any::type_name::<C>()
        .rsplit("::")
        .next()
        .unwrap_or("command")
}

impl std::fmt::Debug for ControlQueue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let rings = self.rings.lock();
        f.debug_struct("ControlQueue")
            .field("entries", &self.entries)
            .field("head", &rings.head)
            .field("under_way", &rings.in_use)
            .field("ended", &rings.ended)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
