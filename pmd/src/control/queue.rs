//! The ring of commands and the ring of their completions.
//!
//! One command is under way at a time: callers wait for its answer. Until the control completion
//! queue exists an answer is seen in a register (PFPE_CQPTAIL moves), afterwards as a completion in
//! memory. A command that is never answered leaves the queue unusable, because a late answer could
//! be taken for the next command's: only a reset helps, and everything later says so at once.
//!
//! Source: irdma `ctrl.c`, `irdma_sc_cqp_create`, `irdma_sc_cqp_post_sq`,
//! `irdma_cqp_poll_registers`, `irdma_sc_ccq_get_cqe_info`.

use super::ControlError;
use crate::Registers;
use crate::trace::{CommandQueue, Exchange};
use ringside_bus::clock::wait_for;
use ringside_bus::{DmaBuffer, DmaPool, Instant, Iova};
use ringside_cq::EventRing;
use ringside_spec::rdma::commands::{COMMAND_BYTES, ControlCommand, HEADER_WORD, Opcode};
use ringside_spec::rdma::control_completion::{CommandFailure, ControlCompletion};
use ringside_spec::rdma::cqp_context::{
    CqpContext, HARDWARE_MAJOR_VERSION, HmcProfile, Protocol, ring_size_code,
};
use ringside_spec::rdma::events::{CQ_SHADOW_HEAD_WORD, CqShadowHead};
use ringside_spec::rdma::registers::{
    CQP_CONTEXT_HIGH, CQP_CONTEXT_LOW, CQP_DOORBELL, CQP_ERROR_CODES, CQP_STATUS, CQP_TAIL,
    CqpErrorCodes, CqpStatus, CqpTail,
};
use std::sync::Arc;
use std::time::Duration;

/// Words of a command.
const COMMAND_WORDS: usize = COMMAND_BYTES / 8;

/// The interval between two reads of a register.
const REGISTER_STEP: Duration = Duration::from_micros(10);

/// The interval between two looks at the completion ring; it is memory, so this is only a pause.
const COMPLETION_STEP: Duration = Duration::from_micros(1);

/// The value that the device returns in each completion: a constant, so that a foreign one is
/// noticed.
const COMPLETION_CONTEXT: u64 = 0x7269_6E67_7369_6465;

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

struct Completions {
    ring: EventRing<4>,
    _buffer: DmaBuffer,
    shadow: DmaBuffer,
    /// the queue itself is still being created: a refusal of that is seen in a register only
    new: bool,
}

/// The control queue pair of a function.
pub struct ControlQueue {
    registers: Registers,
    ring: DmaBuffer,
    context: DmaBuffer,
    entries: u32,
    head: u32,
    polarity: bool,
    deadline: Duration,
    completions: Option<Completions>,
    /// an earlier command was never answered
    stuck: bool,
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
            head: 0,
            polarity: true,
            deadline: settings.deadline,
            completions: None,
            stuck: false,
        })
    }

    /// Creates the control queue pair in the device.
    pub fn create(&mut self) -> Result<(), ControlError> {
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
    pub fn destroy(&mut self) -> Result<(), ControlError> {
        self.registers.write(CQP_CONTEXT_HIGH, 0)?;
        self.registers.write(CQP_CONTEXT_LOW, 0)?;
        let gone = self
            .registers
            .poll(CQP_STATUS, self.deadline, REGISTER_STEP, |status| {
                !CqpStatus(status).done()
            })?;
        self.stuck = true;
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

    /// From the next command on, completions come in `ring`; `shadow` takes the ring's head.
    ///
    /// The next command must be the one that creates this queue: its own completion is the first.
    /// `ring` must be a whole number of completions of 32 bytes.
    pub fn use_completions(&mut self, ring: DmaBuffer, entries: usize, shadow: DmaBuffer) -> bool {
        let words = ring.words().part(0..entries * 4);
        let Some(Ok(events)) = words.map(EventRing::new) else {
            return false;
        };
        self.completions = Some(Completions {
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
        let completions = self.completions.as_ref()?;
        Some((completions._buffer.iova(), completions.shadow.iova()))
    }

    /// Goes back to seeing answers in a register: for the command that destroys the completion
    /// queue. Returns its memory, to be freed once that command has succeeded.
    pub fn drop_completions(&mut self) -> Option<(DmaBuffer, DmaBuffer)> {
        let completions = self.completions.take()?;
        Some((completions._buffer, completions.shadow))
    }

    /// True once a command was never answered: nothing is sent any more.
    #[must_use]
    pub fn is_stuck(&self) -> bool {
        self.stuck
    }

    /// Sends a command and waits for its answer.
    pub fn execute<C: ControlCommand>(&mut self, command: C) -> Result<Completed, ControlError> {
        let opcode = C::OPCODE;
        if self.stuck {
            return Err(ControlError::Stuck { opcode });
        }
        let start = self.registers.clock().now();
        let result = self.send(command.encode(self.polarity), opcode);
        if matches!(
            result,
            Err(ControlError::TimedOut { .. } | ControlError::Garbled { .. })
        ) {
            self.stuck = true;
        }
        self.record(&command, &result, start);
        result
    }

    fn send(&mut self, words: [u64; 8], opcode: Opcode) -> Result<Completed, ControlError> {
        let slot = self.head;
        // Read before ringing: the answer is that it differs from this.
        let tail = match self.completions {
            Some(_) => CqpTail::ZERO,
            None => CqpTail(self.registers.read_quietly(CQP_TAIL)?),
        };
        self.write_entry(slot, &words);
        self.head = (self.head + 1) % self.entries;
        if self.head == 0 {
            self.polarity = !self.polarity;
        }
        self.registers.write_quietly(CQP_DOORBELL, self.head)?;
        if self.completions.is_some() {
            self.wait_for_completion(slot, opcode)
        } else {
            self.wait_for_register(tail, opcode)
        }
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

    fn wait_for_completion(
        &mut self,
        slot: u32,
        opcode: Opcode,
    ) -> Result<Completed, ControlError> {
        let registers = &self.registers;
        let timed_out = self.timed_out(opcode);
        let Some(completions) = &mut self.completions else {
            return Err(timed_out);
        };
        let new = completions.new;
        let taken = wait_for(&**registers.clock(), self.deadline, COMPLETION_STEP, || {
            let taken = completions.ring.take();
            if new && taken.is_none() {
                refusal_in_register(registers, opcode)?;
            }
            Ok::<_, ControlError>(taken)
        })?;
        completions.new &= taken.is_none();
        let completion = ControlCompletion::decode(&taken.ok_or(timed_out)?);
        let head = CqShadowHead::ZERO.with_head(completions.ring.index() as u64);
        completions
            .shadow
            .words()
            .store_release(CQ_SHADOW_HEAD_WORD, head.0);
        if u32::from(completion.wqe_index) != slot || completion.cqp_context != COMPLETION_CONTEXT {
            let what = format!(
                "a completion of entry {} with context {:#x}, where entry {slot} was asked",
                completion.wqe_index, completion.cqp_context
            );
            return Err(ControlError::Garbled { opcode, what });
        }
        match completion.failure() {
            Some(failure) => Err(ControlError::Refused { opcode, failure }),
            None => Ok(Completed {
                return_value: completion.return_value,
                minor_code: completion.minor_code,
            }),
        }
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
        f.debug_struct("ControlQueue")
            .field("entries", &self.entries)
            .field("head", &self.head)
            .field("completions", &self.completions.is_some())
            .field("stuck", &self.stuck)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
