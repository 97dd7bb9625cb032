//! The control queue pair: created by a handshake in registers, then fed by a ring of commands.

mod completion_queues;
mod host_memory;
mod network;
mod queue_pairs;
mod recording;
mod services;
mod steering_tags;

use super::RdmaEngine;
use super::access::{aligned, reached, unreached};
use super::hmc::HmcFault;
use super::objects::Element;
use super::objects::event_queues::report;
use super::stall::Stall;
use crate::chip::Context;
use crate::faults::{Fault, OnCommand};
use ringside_bus::{DmaFault, Instant, Iova};
use ringside_spec::rdma::commands::{COMMAND_BYTES, Command, CommandHeader, Opcode};
use ringside_spec::rdma::control_completion::{CommandFailure, ControlCompletion};
use ringside_spec::rdma::cqp_context::{
    CqpContext, HARDWARE_MAJOR_VERSION, Protocol, ring_entries,
};
use ringside_spec::rdma::limits::{CONTROL_BUFFER_ALIGNMENT, CQP_RING_ALIGNMENT};
use ringside_spec::rdma::registers::{CqpErrorCodes, CqpStatus, CqpTail};

pub(super) use services::SchedulerNode;

/// Commands that a doorbell or a step carries out at most: the others wait for the next step, and
/// other functions have their turn before.
const BURST: usize = 8;

/// Number of the control completion queue.
pub(super) const CONTROL_COMPLETION_QUEUE: u32 = 0;

/// A command that makes no sense (the card's own codes for that are not known).
pub(super) const REFUSED: CommandFailure = CommandFailure::Other {
    major: 0xFFFF,
    minor: 0x8003,
};

/// A command that names an object that does not exist, or one that exists already.
pub(super) const NO_SUCH_OBJECT: CommandFailure = CommandFailure::Other {
    major: 0xFFFF,
    minor: 0x8004,
};

/// The result of a command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Outcome {
    /// Handle, index, page.
    pub(super) value: u32,
    /// The result of a flush; also valid without an error.
    pub(super) minor: u16,
}

/// The outcome of a command.
pub(super) type Executed = Result<Outcome, CommandFailure>;

/// Done, without a value.
pub(super) const DONE: Executed = Ok(Outcome { value: 0, minor: 0 });

/// The control queue pair while it exists.
pub(super) struct ControlQueue {
    ring: Iova,
    entries: u32,
    tail: u32,
    polarity: bool,
    completion_context: u64,
    /// A command is never going to be completed, so none behind it is either.
    stalled: bool,
    /// A command or a completion may wait for its time or its turn. It is the only field that each
    /// step looks at.
    waits: bool,
    /// Commands before the doorbell's head wait for the next step.
    unfinished: bool,
    /// The next command is carried out from then on.
    delayed_until: Option<Instant>,
    /// Completions that are written later, and when.
    late: Vec<(Instant, Element)>,
}

impl RdmaEngine {
    /// The low half of the context's address was written: create, or destroy if both are 0.
    pub(super) fn start_control_queue(&mut self, context: &mut Context<'_>) {
        let address = self.registers.context_address();
        if self.stall != Stall::No {
            return;
        }
        if address == 0 {
            if self.control.is_some() && self.has_objects() {
                // Linux does it after a command for one of them has failed.
                let ledger = &mut context.ledger;
                ledger.remark("the control queue pair ends while objects live", || {
                    format!("{:?}", self.snapshot())
                });
            }
            self.control = None;
            self.registers.status = CqpStatus::ZERO;
            self.destroy_objects();
            return;
        }
        if context.faults.contains(&Fault::ControlQueueCreationSilent) {
            return;
        }
        let fails = context.faults.contains(&Fault::ControlQueueCreationFails);
        let created = if fails {
            None
        } else {
            self.create_control_queue(address, context)
        };
        self.record_control_queue(address, created.is_some(), context);
        match created {
            Some(queue) => {
                self.control = Some(queue);
                self.registers.status = CqpStatus::ZERO.with_done(true);
            }
            None => {
                self.set_error_codes(REFUSED);
                self.registers.status = CqpStatus::ZERO.with_done(true).with_error(true);
            }
        }
    }

    fn create_control_queue(
        &mut self,
        address: u64,
        context: &mut Context<'_>,
    ) -> Option<ControlQueue> {
        if self.control.is_some() {
            context
                .ledger
                .breach("the control queue pair is created twice", || {
                    format!("context at {address:#x}")
                });
            return None;
        }
        if !aligned(context, "CQP context", address, CONTROL_BUFFER_ALIGNMENT) {
            return None;
        }
        let words = context.memory.read_words(Iova(address));
        let words: [u64; 8] = reached(context, "CQP context", words)?;
        let reserved = CqpContext::reserved_bits(&words);
        if reserved != [0; 8] {
            context
                .ledger
                .breach("reserved bits are set in the CQP context", || {
                    format!("{reserved:x?}")
                });
        }
        let settings = CqpContext::decode(&words);
        let wrong = settings.hardware_major_version != HARDWARE_MAJOR_VERSION
            || matches!(settings.protocol_used, Protocol::Unknown(_));
        let entries = ring_entries(settings.ring_size_code);
        if wrong || entries.is_none() || settings.ring_address() == 0 {
            context
                .ledger
                .breach("the CQP context makes no sense", || format!("{settings:?}"));
        }
        let entries = entries.filter(|_| !wrong)?;
        let ring = Iova(settings.ring_address());
        let bytes = entries as usize * COMMAND_BYTES;
        let whole = context
            .memory
            .check(ring, bytes, ringside_bus::function::DmaAccess::Read);
        reached(context, "CQP ring", whole)?;
        debug_assert!(ring.0.is_multiple_of(CQP_RING_ALIGNMENT as u64));
        Some(ControlQueue {
            ring,
            entries,
            tail: 0,
            polarity: true,
            completion_context: settings.completion_context,
            stalled: false,
            waits: false,
            unfinished: false,
            delayed_until: None,
            late: Vec::new(),
        })
    }

    fn set_error_codes(&mut self, failure: CommandFailure) {
        let (major, minor) = failure.codes();
        self.registers.error_codes = CqpErrorCodes::ZERO
            .with_major(major.into())
            .with_minor(minor.into());
    }

    /// The doorbell of the control queue pair: carries out the commands up to `head`, a burst of
    /// them now.
    pub(super) fn run_commands(&mut self, head: u32, context: &mut Context<'_>) {
        if self.stall != Stall::No {
            return;
        }
        let Some(queue) = &mut self.control else {
            if head != 0 {
                context.ledger.breach(
                    "doorbell of a control queue pair that does not exist",
                    || format!("head {head}"),
                );
            }
            return;
        };
        queue.unfinished = false;
        let entries = queue.entries;
        if head >= entries {
            queue.delayed_until = None;
            context
                .ledger
                .breach("the control queue pair's head is beyond its ring", || {
                    format!("head {head} of {entries}")
                });
            return;
        }
        for _ in 0..BURST {
            if !self.run_command(head, context) {
                return;
            }
        }
        if let Some(queue) = &mut self.control {
            queue.unfinished = queue.tail != head;
            queue.waits |= queue.unfinished;
        }
    }

    /// The moment at which a delayed command is carried out.
    pub(super) fn delayed_until(&self) -> Option<Instant> {
        self.control.as_ref()?.delayed_until
    }

    /// True if a command waits for its time or its turn, or a completion for its time.
    #[inline(always)]
    pub(super) fn has_late_commands(&self) -> bool {
        self.control.as_ref().is_some_and(|queue| queue.waits)
    }

    /// When the next late completion is written.
    pub(super) fn next_late_completion(&self) -> Option<Instant> {
        let late = self.control.as_ref()?.late.iter();
        late.map(|(due, _)| *due).min()
    }

    /// Goes on with what waits, as far as its time or its turn has come; true if any has.
    #[cold]
    pub(super) fn end_waiting(&mut self, context: &mut Context<'_>) -> bool {
        let goes_on = self.go_on_with_commands(context);
        let are_written = self.write_late_completions(context);
        if let Some(queue) = &mut self.control {
            queue.waits =
                queue.unfinished || queue.delayed_until.is_some() || !queue.late.is_empty();
        }
        goes_on || are_written
    }

    /// Writes late completions whose time has come, in that order; true if there were any.
    fn write_late_completions(&mut self, context: &mut Context<'_>) -> bool {
        let Some(queue) = &mut self.control else {
            return false;
        };
        let now = context.now;
        let mut due: Vec<_> = queue.late.extract_if(.., |late| late.0 <= now).collect();
        due.sort_by_key(|late| late.0);
        for (_, element) in &due {
            self.objects
                .complete(CONTROL_COMPLETION_QUEUE, element, context);
        }
        !due.is_empty()
    }

    /// Goes on with the commands of an earlier doorbell, also with one that was delayed, once its
    /// time has come; true if it did.
    fn go_on_with_commands(&mut self, context: &mut Context<'_>) -> bool {
        let Some(queue) = &self.control else {
            return false;
        };
        let is_due = queue
            .delayed_until
            .is_some_and(|until| until <= context.now);
        let goes_on = queue.unfinished || is_due;
        if goes_on {
            self.take_doorbells_before_commands(context);
            self.run_commands(self.registers.doorbell.head(), context);
        }
        goes_on
    }

    /// Carries out the next command; false if there is none.
    fn run_command(&mut self, head: u32, context: &mut Context<'_>) -> bool {
        let Some(queue) = &mut self.control else {
            return false;
        };
        if queue.stalled || queue.tail == head {
            return false;
        }
        let at = queue.ring.add(u64::from(queue.tail) * COMMAND_BYTES as u64);
        let words: [u64; 8] = match context.memory.read_words(at) {
            Ok(words) => words,
            Err(fault) => {
                queue.stalled |= matches!(fault, DmaFault::Refused { .. });
                if !context.refused(fault) {
                    unreached(context, "command", fault);
                }
                return false;
            }
        };
        let header = CommandHeader::of(&words);
        if header.valid() != queue.polarity {
            let (tail, polarity) = (queue.tail, queue.polarity);
            context
                .ledger
                .breach("a command before the head has the wrong valid bit", || {
                    format!("entry {tail}, head {head}, valid bit should be {polarity}")
                });
            return false;
        }
        let opcode = header.operation();
        let faults = context.faults.iter();
        let on_command =
            OnCommand::of(faults.filter_map(|fault| fault.on_control_command(opcode.code())));
        match (on_command, queue.delayed_until) {
            (_, Some(until)) if context.now < until => return false,
            (Some(OnCommand::Delay(by)), None) => {
                queue.delayed_until = Some(context.now.plus(by));
                queue.waits = true;
                return false;
            }
            _ => queue.delayed_until = None,
        }
        let index = queue.tail;
        queue.tail += 1;
        if queue.tail == queue.entries {
            queue.tail = 0;
            queue.polarity = !queue.polarity;
        }
        // A stale error would fail the next command that is awaited by register.
        self.registers.tail = self.registers.tail.with_operation_error(false);
        let begun = self.begin_record(index, &words, context);
        let executed = match on_command {
            Some(OnCommand::Fail(major, minor)) => Err(CommandFailure::from_codes(major, minor)),
            _ => self.execute(opcode, &words, context),
        };
        if on_command == Some(OnCommand::Silent) {
            if let Some(queue) = &mut self.control {
                queue.stalled = true;
            }
            self.end_record(begun, None, context);
            return false;
        }
        let index = match on_command {
            Some(OnCommand::Garble) => index ^ 1,
            _ => index,
        };
        let completion = self.complete_command(index, opcode, executed, context);
        self.end_record(begun, completion, context);
        true
    }

    /// Tells the driver; gives the completion without its valid bit.
    fn complete_command(
        &mut self,
        index: u32,
        opcode: Opcode,
        executed: Executed,
        context: &mut Context<'_>,
    ) -> Option<[u64; 4]> {
        let queue = self.control.as_ref()?;
        let (tail, completion_context) = (queue.tail, queue.completion_context);
        let failed = executed.err();
        if let Some(failure) = failed {
            tracing::debug!(?opcode, ?failure, "command failed");
            self.set_error_codes(failure);
        }
        self.registers.tail = CqpTail::ZERO
            .with_tail(tail)
            .with_operation_error(failed.is_some());
        let outcome = executed.unwrap_or_default();
        let (major, minor) = failed.map_or((0, outcome.minor), CommandFailure::codes);
        let completion = ControlCompletion {
            cqp_context: completion_context,
            return_value: outcome.value,
            minor_code: minor,
            major_code: major,
            wqe_index: index as u16,
            error: failed.is_some(),
            valid: false,
        };
        let words = completion.encode();
        let element = Element {
            words,
            extension: None,
            notable: true,
        };
        let faults = context.faults.iter();
        let late = faults
            .filter_map(|fault| fault.control_completion_late(opcode.code()))
            .max();
        // Without a completion queue the answer is the register, which keeps no order.
        if let (Some(by), true) = (
            late,
            self.objects.has_completion_queue(CONTROL_COMPLETION_QUEUE),
        ) && let Some(queue) = &mut self.control
        {
            queue.late.push((context.now.plus(by), element));
            queue.waits = true;
            return Some(words);
        }
        // Before it exists, and for its own destruction, only the register reports.
        self.objects
            .complete(CONTROL_COMPLETION_QUEUE, &element, context);
        Some(words)
    }

    fn execute(&mut self, opcode: Opcode, words: &[u64; 8], context: &mut Context<'_>) -> Executed {
        let Ok(command) = Command::decode(words) else {
            context
                .ledger
                .breach("a command with an unknown opcode", || format!("{opcode:?}"));
            return Err(REFUSED);
        };
        if let Ok(reserved) = Command::reserved_bits(words)
            && reserved != [0; 8]
        {
            context
                .ledger
                .breach("reserved bits are set in a command", || {
                    format!("{opcode:?}: {reserved:x?}")
                });
        }
        tracing::trace!(?command, "command");
        self.dispatch(&command, context)
    }

    fn dispatch(&mut self, command: &Command, context: &mut Context<'_>) -> Executed {
        match command {
            Command::CreateQueuePair(command) => self.create_queue_pair(command, context),
            Command::ModifyQueuePair(command) => self.modify_queue_pair(command, context),
            Command::DestroyQueuePair(command) => self.destroy_queue_pair(command, context),
            Command::FlushWorkQueues(command) => self.flush_work_queues(command, context),
            Command::SuspendQueuePair(command) => self.suspend_queue_pair(command, context),
            Command::ResumeQueuePair(command) => self.resume_queue_pair(command, context),
            Command::UploadContext(command) => self.upload_context(command, context),
            Command::CreateCompletionQueue(command) => {
                self.create_completion_queue(command, context)
            }
            Command::ModifyCompletionQueue(command) => {
                self.modify_completion_queue(command, context)
            }
            Command::DestroyCompletionQueue(command) => {
                self.destroy_completion_queue(command, context)
            }
            Command::CreateCompletionEventQueue(command) => self.create_ceq(command, context),
            Command::DestroyCompletionEventQueue(command) => self.destroy_ceq(command, context),
            Command::CreateAsynchronousEventQueue(command) => self.create_aeq(command, context),
            Command::DestroyAsynchronousEventQueue(_) => self.destroy_aeq(context),
            Command::AllocateStag(command) => self.allocate_stag(command, context),
            Command::RegisterMemoryRegion(command) => self.register_region(command, context),
            Command::DeallocateStag(command) => self.deallocate_stag(command, context),
            Command::QueryStag(command) => self.query_stag(command, context),
            Command::QueryFpm(command) => self.query_fpm(command, context),
            Command::CommitFpm(command) => self.commit_fpm(command, context),
            Command::UpdateSegments(command) => self.update_segments(command, context),
            Command::StaticHmcPagesAllocated(command) => {
                self.static_pages_allocated(command, context)
            }
            Command::QueryFeatures(command) => self.query_features(command, context),
            Command::ManageArp(command) => self.manage_arp(command, context),
            Command::CreateAddressHandle(command) => self.create_address_handle(command, context),
            Command::ModifyAddressHandle(command) => self.modify_address_handle(command, context),
            Command::DestroyAddressHandle(command) => {
                self.destroy_address_handle(command.ah_number, context)
            }
            Command::CreateMulticastGroup(command) => self.create_multicast_group(command, context),
            Command::ModifyMulticastGroup(command) => self.modify_multicast_group(command, context),
            Command::DestroyMulticastGroup(command) => {
                self.destroy_multicast_group(command.group_index, context)
            }
            Command::WorkSchedulerNode(command) => self.scheduler_node(command, context),
            Command::GatherStatistics(command) => self.gather_statistics(command, context),
            Command::ManageStatistics(_) | Command::UserPriorityMap(_) | Command::Nop(_) => DONE,
            Command::ManageQuadHash(_) => {
                let kind = "hash entry of iWARP, which the model does not have";
                context
                    .ledger
                    .remark(kind, || format!("{:?}", command.opcode()));
                Err(REFUSED)
            }
            Command::ManageLocalMacTable(_)
            | Command::AllocateLocalMacTableEntry(_)
            | Command::ManagePushPage(_)
            | Command::ManageHmcFunctionTable(_)
            | Command::ManageAcceleratedPort(_) => {
                context
                    .ledger
                    .breach("a command that this card does not carry out", || {
                        format!("{:?}", command.opcode())
                    });
                Err(REFUSED)
            }
        }
    }

    /// A command that cannot be carried out because its values are wrong.
    pub(super) fn refuse(
        context: &mut Context<'_>,
        kind: &'static str,
        failure: CommandFailure,
        detail: impl FnOnce() -> String,
    ) -> Executed {
        context.ledger.breach(kind, detail);
        Err(failure)
    }
}

/// The failure that a fault of the host memory cache makes of a command; written down too.
pub(super) fn cache_failure(
    context: &mut Context<'_>,
    what: &'static str,
    fault: HmcFault,
) -> CommandFailure {
    report(context, what, fault);
    CommandFailure::ObjectCache { minor: 1 }
}
