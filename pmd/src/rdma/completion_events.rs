//! Completion event queues: each lists the armed completion queues that have completions to poll,
//! and raises its own vector, so that each worker is woken for its own completion queues only.

use super::RdmaError;
use super::engine::Engine;
use super::event_vectors::{check_event_queue, completion_vector};
use ringside_spec::rdma::registers::CQ_ACKNOWLEDGE;
use serde::Serialize;

/// A completion event queue, as a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct EventQueueReport {
    /// Its number, from 0.
    pub number: u16,
    /// The MSI-X vector that its events raise. `None`: the function has no vectors.
    pub vector: Option<u16>,
    /// The logical CPU of its worker, by `worker.cores`.
    pub core: Option<u32>,
    /// Completion queues that report to it.
    pub completion_queues: u32,
    /// Events taken from it since the device was brought up.
    pub events: u64,
}

impl Engine {
    /// Takes completion events of all event queues, or of one: appends the numbers of the
    /// completion queues that have something to poll, and returns how many there were.
    pub(crate) fn poll_completion_events(
        &self,
        event_queue: Option<u16>,
        queues: &mut Vec<u32>,
    ) -> Result<usize, RdmaError> {
        let mut guard = self.open_state()?;
        let state = &mut *guard;
        let made = &mut state.made.completion_events;
        if let Some(number) = event_queue {
            check_event_queue(number, made.len())?;
        }
        let before = queues.len();
        for (place, events) in (0..).zip(made) {
            if event_queue.is_some_and(|wanted| wanted != place) {
                continue;
            }
            // One turn of the ring at most: a device that never stops does not hold the caller.
            for _ in 0..events.ahead.len() + events.entries as usize {
                let Some(number) = events.next() else {
                    break;
                };
                // The device's event is checked: an event of a destroyed queue is ignored.
                let Some(record) = state.objects.completion_queues.get(number) else {
                    continue;
                };
                record.request.end();
                self.registers.write_quietly(CQ_ACKNOWLEDGE, number)?;
                if record.event_queue == place {
                    queues.push(number);
                } else {
                    tracing::warn!(number, place, "event in another queue than asked: ignored");
                }
            }
        }
        Ok(queues.len() - before)
    }

    /// The completion event queues. `core`: the logical CPU of each.
    pub(crate) fn event_queues(
        &self,
        core: impl Fn(u16) -> Option<u32>,
    ) -> Result<Vec<EventQueueReport>, RdmaError> {
        let vectors = self.registers.function().interrupt_vectors()?;
        let state = self.open_state()?;
        let users = |event_queue: u16| {
            let queues = state.objects.completion_queues.iter();
            let users = queues.filter(|(_, record)| record.event_queue == event_queue);
            u32::try_from(users.count()).unwrap_or(u32::MAX)
        };
        let made = (0..).zip(&state.made.completion_events);
        let report = made.map(|(number, queue)| EventQueueReport {
            number,
            vector: completion_vector(vectors, number),
            core: core(number),
            completion_queues: users(number),
            events: queue.taken,
        });
        Ok(report.collect())
    }
}
