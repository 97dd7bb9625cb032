//! Asynchronous events: what the device reports besides completions.

use super::RdmaError;
use super::engine::{AsynchronousEvents, Engine, EngineState};
use ringside_spec::rdma::ae_codes::{AeCode, FlushCode, QueuePairEvent};
use ringside_spec::rdma::commands::AeSource;
use ringside_spec::rdma::control_completion::FlushResult;
use ringside_spec::rdma::events::{AsynchronousEvent, Side, Subject};
use ringside_spec::rdma::registers::AEQ_ALLOCATE;

/// Something that the device reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A queue pair failed. It was taken to the error state; what it had outstanding completes with
    /// errors, the oldest with the reason.
    QueuePairFailed {
        /// Its number.
        queue_pair: u32,
        /// What happened.
        code: AeCode,
        /// Where in it.
        side: Side,
        /// The reason, as verbs sort it.
        reason: QueuePairEvent,
        /// Which of its queues had work outstanding; `None` if it had failed before or is gone.
        flushed: Option<FlushResult>,
    },
    /// A completion queue failed: it overflowed. Completions were lost, so its queue pairs have to
    /// be destroyed.
    CompletionQueueFailed {
        /// Its number.
        completion_queue: u32,
        /// What happened.
        code: AeCode,
    },
    /// Something that a queue pair survives.
    Notice {
        /// Number of the queue pair.
        queue_pair: u32,
        /// What happened.
        code: AeCode,
    },
    /// Something that belongs to no object.
    Unattributed {
        /// What happened.
        code: AeCode,
        /// Where, as the device says.
        source: AeSource,
        /// The number that came with it.
        queue_number: u32,
    },
    /// The event queue overflowed: events were lost. Reset the device.
    Overflow,
}

/// Whether the queue pair goes on after this.
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
/// Linux 6.12 has none for a receiver that is never ready; later drivers and rdma-core do.
fn flush_code(code: AeCode) -> FlushCode {
    match code {
        AeCode::TooManyReceiverNotReady => FlushCode::ReceiverNotReadyExceeded,
        other => other.flush_code(),
    }
}

impl Engine {
    /// Takes what the device has reported, acts on it, and appends it to `events`; returns how many
    /// there were.
    pub(crate) fn poll_events(&self, events: &mut Vec<Event>) -> Result<usize, RdmaError> {
        let mut state = self.open_state()?;
        let mut result = Ok(());
        let mut taken = 0;
        // One turn of the ring at most: a device that never stops does not hold the caller.
        let most = state
            .asynchronous_events
            .as_ref()
            .map_or(0, |queue| queue.entries);
        while taken < most
            && let Some(event) = state.next_event()
        {
            taken += 1;
            if event.overflow {
                events.push(Event::Overflow);
            }
            match state.react(&event) {
                Ok(event) => events.push(event),
                Err(error) => result = Err(error),
            }
        }
        if taken > 0 {
            self.registers.write_quietly(AEQ_ALLOCATE, taken)?;
        }
        result.map(|()| taken as usize)
    }
}

impl EngineState {
    fn next_event(&mut self) -> Option<AsynchronousEvent> {
        let AsynchronousEvents { ring, .. } = self.asynchronous_events.as_mut()?;
        ring.take().map(|words| AsynchronousEvent::decode(&words))
    }

    fn react(&mut self, event: &AsynchronousEvent) -> Result<Event, RdmaError> {
        let code = event.ae_code;
        let number = event.queue_number;
        let side = match event.subject() {
            Subject::QueuePair(side) => side,
            Subject::CompletionQueue => {
                return Ok(Event::CompletionQueueFailed {
                    completion_queue: number,
                    code,
                });
            }
            Subject::Nothing => {
                return Ok(Event::Unattributed {
                    code,
                    source: event.source,
                    queue_number: number,
                });
            }
        };
        if is_notice(code) {
            return Ok(Event::Notice {
                queue_pair: number,
                code,
            });
        }
        let reason = flush_code(code);
        let of = |failing: bool| if failing { reason } else { FlushCode::General };
        let receive = side == Side::ReceiveQueue;
        let flushed = self.fail_queue_pair(
            number,
            of(side == Side::SendQueue),
            of(receive),
            receive.then_some(event.wqe_index),
        )?;
        Ok(Event::QueuePairFailed {
            queue_pair: number,
            code,
            side,
            reason: reason.event(),
            flushed,
        })
    }
}
