//! Asynchronous events: the device's reports other than completions.

use super::RdmaError;
use super::engine::{AsynchronousEvents, Engine, EngineState};
use super::event::Event;
use super::records::QueuePairRecord;
use super::session::Session;
use crate::failure::FailureCause;
use ringside_spec::rdma::ae_codes::{AeCode, FlushCode};
use ringside_spec::rdma::events::{AsynchronousEvent, Side, Subject};
use ringside_spec::rdma::registers::AEQ_ALLOCATE;

/// Number of the completion queue of the control queue pair: the first that bring-up makes.
const CONTROL_COMPLETION_QUEUE: u32 = 0;

/// The meaning of an event, before any action on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Meaning {
    /// This queue pair failed, in this part of it.
    QueuePairFailed(Side),
    /// The queue pair continues.
    Notice,
    /// The queue pair continues; a multicast group was refused.
    MulticastRefused,
    CompletionQueueFailed,
    FunctionFailed,
    Unattributed,
}

/// The meaning of an event; its number is that of the object.
fn meaning(event: &AsynchronousEvent) -> Meaning {
    if event.ae_code == AeCode::FunctionCatastrophic {
        return Meaning::FunctionFailed;
    }
    match (event.subject(), event.ae_code) {
        // Without it no command is answered any more.
        (Subject::CompletionQueue, _) if event.queue_number == CONTROL_COMPLETION_QUEUE => {
            Meaning::FunctionFailed
        }
        (Subject::CompletionQueue, _) => Meaning::CompletionQueueFailed,
        // Without a source the code alone decides. Source: irdma `ctrl.c`.
        (Subject::Nothing, AeCode::CompletionQueueError) => Meaning::CompletionQueueFailed,
        (Subject::Nothing, _) => Meaning::Unattributed,
        (
            Subject::QueuePair(_),
            AeCode::EmptyMulticastGroup
            | AeCode::BadMulticastAddress
            | AeCode::BadMulticastQueuePair
            | AeCode::MulticastProtocolMismatch,
        ) => Meaning::MulticastRefused,
        (Subject::QueuePair(_), code) if is_notice(code) => Meaning::Notice,
        (Subject::QueuePair(side), _) => Meaning::QueuePairFailed(side),
    }
}

/// True if the queue pair continues after this event.
fn is_notice(code: AeCode) -> bool {
    matches!(
        code,
        AeCode::SuspendComplete
            | AeCode::DoubtfulReachability
            | AeCode::ResourceExhaustion
            | AeCode::ResetNotSent
            | AeCode::ConnectionEstablished
    )
}

/// The code for the queue that failed.
///
/// Linux 6.12 has none for a receiver that is never ready; later drivers and rdma-core do. It
/// reports key 0 in a local fragment as a flush without a cause; other keys that are not valid have
/// one.
fn flush_code(code: AeCode) -> FlushCode {
    match code {
        AeCode::TooManyReceiverNotReady => FlushCode::ReceiverNotReadyExceeded,
        AeCode::StagZeroNotAllowed => FlushCode::Protection,
        other => other.flush_code(),
    }
}

/// The result of acting on an event.
struct Reaction {
    /// The report to the user, also where the action failed.
    report: Option<Event>,
    /// The action itself.
    result: Result<(), RdmaError>,
}

impl Default for Reaction {
    fn default() -> Self {
        Self {
            report: None,
            result: Ok(()),
        }
    }
}

impl From<Event> for Reaction {
    fn from(report: Event) -> Self {
        Self {
            report: Some(report),
            ..Self::default()
        }
    }
}

impl Engine {
    /// Takes what the device has reported, acts on it, and appends it to `events`; returns how many
    /// there were.
    pub(crate) fn poll_events(&self, events: &mut Vec<Event>) -> Result<usize, RdmaError> {
        let mut state = self.state();
        let before = events.len();
        self.look_after(&mut state, false);
        events.append(&mut state.service.pending_events);
        if events.len() == before || state.service.end.cause.is_none() {
            drop(state);
            state = self.open_state()?;
        }
        let mut result = Ok(());
        if state.service.end.cause.is_none() {
            result = self.take_events(&mut state, events);
            state.destroy_refused_at(self.registers.clock().now());
            if result.is_err() {
                self.look_after(&mut state, true);
            }
        }
        events.append(&mut state.service.pending_events);
        // A failure of the device is reported as an event.
        match state.service.end.cause {
            Some(_) => Ok(events.len() - before),
            None => result.map(|()| events.len() - before),
        }
    }

    pub(crate) fn take_events(
        &self,
        state: &mut Session<'_>,
        events: &mut Vec<Event>,
    ) -> Result<(), RdmaError> {
        let mut result = Ok(());
        let mut taken = 0;
        // One turn of the ring at most: a device that never stops does not hold the caller.
        let most = state
            .made
            .asynchronous_events
            .as_ref()
            .map_or(0, |queue| queue.entries);
        while taken < most
            && let Some(event) = state.next_event()
        {
            taken += 1;
            if event.overflow {
                // The queue pairs whose failures were lost cannot be told from the others.
                self.fail(state, FailureCause::EventsLost);
                return result;
            }
            let reaction = state.react(&event);
            match reaction.report {
                // Told once, with everything that follows from it.
                Some(Event::DeviceFailed { cause }) => {
                    self.fail(state, cause);
                    return result;
                }
                report => events.extend(report),
            }
            result = reaction.result.and(result);
        }
        if taken > 0 {
            self.registers.write_quietly(AEQ_ALLOCATE, taken)?;
        }
        result
    }
}

impl Engine {
    /// Takes the events of a queue pair that is gone, and drops them: they must not be taken for
    /// those of the next queue pair with its number.
    pub(in crate::rdma) fn drop_events_of(&self, state: &mut Session<'_>, number: u32) {
        self.take_events_for_later(state);
        let names_it = |event: &Event| match event {
            Event::QueuePairFailed { queue_pair, .. }
            | Event::Notice { queue_pair, .. }
            | Event::MulticastRefused { queue_pair, .. } => *queue_pair == number,
            _ => false,
        };
        state
            .service
            .pending_events
            .retain(|event| !names_it(event));
    }
}

impl EngineState {
    /// Keeps events for the next `poll_events`, and wakes the threads that wait for one.
    pub(in crate::rdma) fn report_later(&mut self, events: impl IntoIterator<Item = Event>) {
        let before = self.service.pending_events.len();
        self.service.pending_events.extend(events);
        if self.service.pending_events.len() == before {
            return;
        }
        for interrupt in &self.service.interrupts {
            interrupt.event.wake();
        }
    }

    fn next_event(&mut self) -> Option<AsynchronousEvent> {
        let AsynchronousEvents { ring, .. } = self.made.asynchronous_events.as_mut()?;
        ring.take().map(|words| AsynchronousEvent::decode(&words))
    }
}

impl Session<'_> {
    /// Acts on an event.
    fn react(&mut self, event: &AsynchronousEvent) -> Reaction {
        let code = event.ae_code;
        let number = event.queue_number;
        let meaning = match meaning(event) {
            Meaning::FunctionFailed => Meaning::FunctionFailed,
            _ if self.is_of_former_object(event) => Meaning::Unattributed,
            meaning => meaning,
        };
        match meaning {
            Meaning::QueuePairFailed(side) => self.queue_pair_failed(event, side),
            Meaning::Notice if code == AeCode::SuspendComplete && self.note_drained(number) => {
                Reaction::default()
            }
            Meaning::Notice => Reaction::from(Event::Notice {
                queue_pair: number,
                code,
            }),
            Meaning::MulticastRefused => Reaction::from(Event::MulticastRefused {
                queue_pair: number,
                code,
            }),
            Meaning::CompletionQueueFailed => self.completion_queue_failed(number, code),
            Meaning::FunctionFailed => Reaction::from(Event::DeviceFailed {
                cause: FailureCause::FunctionFailed { code: code.code() },
            }),
            Meaning::Unattributed => Reaction::from(Event::Unattributed {
                code,
                source: event.source,
                queue_number: number,
            }),
        }
    }

    /// True for an event of an object that is gone, whose number another one has now: it names the
    /// context of the former one. Context 0 belongs to no object, and the number alone counts.
    fn is_of_former_object(&self, event: &AsynchronousEvent) -> bool {
        let number = event.queue_number;
        let present = match meaning(event) {
            Meaning::QueuePairFailed(_) | Meaning::Notice | Meaning::MulticastRefused => {
                let record = self.objects.queue_pairs.get(number);
                record.map(|record| record.context.0)
            }
            Meaning::CompletionQueueFailed => {
                let record = self.objects.completion_queues.get(number);
                record.map(|record| record.context(number))
            }
            Meaning::FunctionFailed | Meaning::Unattributed => None,
        };
        let told = event.completion_context;
        told != 0 && present.is_some_and(|context| context != told)
    }

    fn queue_pair_failed(&mut self, event: &AsynchronousEvent, side: Side) -> Reaction {
        let (number, code) = (event.queue_number, event.ae_code);
        if let Some(record) = self.objects.queue_pairs.get(number)
            && record.faults.count(code)
            && let Some(peer) = record.peer
            && let Some(faults) = self.peers.count(peer)
        {
            self.service
                .pending_events
                .push(Event::PeerSuspected { peer, faults });
        }
        let reason = flush_code(code);
        let of = |failing: bool| if failing { reason } else { FlushCode::General };
        let receive = side == Side::ReceiveQueue;
        let flushed = self.fail_queue_pair(
            number,
            of(side == Side::SendQueue),
            of(receive),
            receive.then_some(event.wqe_index),
        );
        let (flushed, result) = match flushed {
            Ok(flushed) => (flushed, Ok(())),
            Err(error) => (None, Err(error)),
        };
        let report = Event::QueuePairFailed {
            queue_pair: number,
            code,
            side,
            reason: reason.event(),
            flushed,
        };
        Reaction {
            report: Some(report),
            result,
        }
    }

    /// Nothing more comes through this completion queue: its queue pairs fail, and what they had
    /// outstanding completes as flushed, in software.
    fn completion_queue_failed(&mut self, number: u32, code: AeCode) -> Reaction {
        if let Some(record) = self.objects.completion_queues.get_mut(number) {
            record.failed = true;
        }
        let reports_here = |record: &QueuePairRecord| {
            [record.send.number, record.receive.number].contains(&number)
        };
        let queue_pairs = self.objects.queue_pairs.iter();
        let queue_pairs = queue_pairs.filter(|(_, record)| reports_here(record));
        let queue_pairs: Vec<_> = queue_pairs
            .map(|(queue_pair, record)| (queue_pair, record.context))
            .collect();
        let mut result = Ok(());
        for (queue_pair, context) in queue_pairs {
            let general = FlushCode::General;
            let failed = self.fail_this(context, queue_pair, general, general, None);
            result = result.and(failed.map(|_| ()));
        }
        let report = Event::CompletionQueueFailed {
            completion_queue: number,
            code,
        };
        Reaction {
            report: Some(report),
            result,
        }
    }
}

#[cfg(test)]
mod tests;
