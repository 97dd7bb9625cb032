//! Completion queues.

use super::RdmaError;
use super::engine::Engine;
use super::event_request::{EventRequest, Notify};
use super::event_vectors::check_event_queue;
use super::lifecycle::{By, Making};
use super::objects::Object;
use super::objects::{Objects, Table};
use super::records::{CompletionQueueRecord, Reports, completion_queue_context};
use super::session::Session;
use ringside_bus::DmaBuffer;
use ringside_cq::{Announced, Anomalies, Completion, CompletionQueueHandle, Elsewhere};
use ringside_spec::rdma::commands::{
    CreateCompletionQueue, DestroyCompletionQueue, ModifyCompletionQueue,
};
use ringside_spec::rdma::fpm::ObjectType;
use ringside_spec::rdma::limits::{COMPLETION_BYTES, SHADOW_BYTES};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The largest number of completions of a queue: each may take two slots of a ring of 2^20,
/// the largest whose head the device can be told.
pub const MAX_COMPLETIONS: u32 = (1 << 19) - 1;

/// Slots after which the device reads the shadow area at the latest. Source: irdma `hw.c`,
/// `verbs.c`.
const MAX_SHADOW_THRESHOLD: u32 = 0x3FFFF;

/// Slots of a ring of exactly 4 KiB. No ring has so many: Intel's newer driver never makes one, and
/// names a quirk of the hardware as the reason. It does not say that only later cards have it.
///
/// Source: irdma of Linux 7, `verbs.c`, `irdma_create_cq`.
const SLOTS_OF_A_PAGE: u32 = (4096 / COMPLETION_BYTES) as u32;

/// A completion queue that was not resized.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("the completion queue was not resized: {error}")]
pub struct ResizeError {
    /// The error.
    #[from]
    pub error: RdmaError,
}

/// Slots of the ring for so many completions: each receive with immediate data takes two.
fn entries_of(completions: u32) -> Result<u32, RdmaError> {
    if !(1..=MAX_COMPLETIONS).contains(&completions) {
        return Err(RdmaError::OutOfRange {
            what: "the number of completions of a completion queue",
            given: completions.into(),
            least: 1,
            most: MAX_COMPLETIONS.into(),
        });
    }
    let entries = (2 * (completions + 1)).next_power_of_two();
    Ok(match entries {
        SLOTS_OF_A_PAGE => 2 * SLOTS_OF_A_PAGE,
        other => other,
    })
}

/// A completion queue. `Send`, not `Sync`: only one core polls it.
///
/// A dropped completion queue is destroyed with the last queue pair that uses it.
pub struct CompletionQueue {
    queue: ringside_cq::CompletionQueue,
    target: CompletionTarget,
    event_queue: u16,
    request: EventRequest,
}

impl std::fmt::Debug for CompletionQueue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CompletionQueue")
            .field("number", &self.number())
            .field("event_queue", &self.event_queue)
            .field("anomalies", &self.anomalies())
            .finish_non_exhaustive()
    }
}

/// The completion queue of a queue pair, named from any thread. Cheap to clone.
#[derive(Clone, Debug)]
pub struct CompletionTarget {
    engine: Arc<Engine>,
    reports: Reports,
}

impl CompletionTarget {
    pub(crate) fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    pub(crate) fn reports(&self) -> &Reports {
        &self.reports
    }

    /// Number of the completion queue.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.reports.number
    }
}

impl CompletionQueue {
    pub(crate) fn new(
        engine: Arc<Engine>,
        completions: u32,
        event_queue: u16,
    ) -> Result<Self, RdmaError> {
        let entries = entries_of(completions)?;
        let ring = engine.allocate(entries as usize * COMPLETION_BYTES, 4096)?;
        let shadow = engine.allocate(SHADOW_BYTES, 128)?;
        let mut state = engine.open_state()?;
        check_event_queue(event_queue, state.made.completion_events.len())?;
        let slots = state.objects.queue_pair_slots;
        let queue = ringside_cq::CompletionQueue::new(ring.words(), shadow.words(), slots)?;
        let request = EventRequest::default();
        let buffers = [ring, shadow];
        let (number, generation) =
            state.create_completion_queue(&engine, buffers, entries, (event_queue, &request))?;
        drop(state);
        let reports = Reports {
            number,
            generation,
            handle: queue.handle(),
        };
        let target = CompletionTarget { engine, reports };
        Ok(Self {
            queue,
            target,
            event_queue,
            request,
        })
    }

    /// Takes completions, at most the length of `batch`, and returns them.
    ///
    /// A failed request completes only once the driver has processed the device's event about it,
    /// which flushes the queue pair: a write with a wrong key, for instance. A device that was
    /// opened with `open` of the package `ringside-nic` has a housekeeping thread that does it, so
    /// `poll` alone reports everything. For a device without that thread (brought up with
    /// [`Device::bring_up`](crate::Device::bring_up), or opened with `housekeeping.thread = false`)
    /// call [`Device::supervise`](crate::Device::supervise) or
    /// [`Device::poll_events`](crate::Device::poll_events) from time to time, on any thread.
    ///
    /// Never blocks, allocates or makes a system call.
    #[inline]
    pub fn poll<'b>(&mut self, batch: &'b mut [Completion]) -> &'b [Completion] {
        let count = self.queue.poll(batch);
        batch.get(..count).unwrap_or(&[])
    }

    /// Takes one completion and returns true, or returns false if there is none: a
    /// [`poll`](Self::poll) with room for one that takes fewer instructions.
    #[inline]
    pub fn poll_one(&mut self, place: &mut Completion) -> bool {
        self.queue.poll_one(place)
    }

    /// Carries out what other cores have requested of this queue (queue pairs made, ended, failed),
    /// as each poll does. A queue that is never polled has room for those of 128 queue pairs, or of
    /// `rdma.queue_pairs` if that is more; then making a queue pair on it fails, until this is
    /// called or the queue is polled. Ending one never does.
    pub fn take_requests(&mut self) {
        self.queue.take_requests();
    }

    pub(super) fn backlog(&self) -> impl Iterator<Item = &Completion> {
        self.queue.backlog()
    }

    #[inline]
    pub(super) fn poll_count(&mut self, batch: &mut [Completion]) -> usize {
        self.queue.poll(batch)
    }

    /// Its number.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.target.number()
    }

    /// The completion event queue that it reports to. See
    /// [`Device::completion_queue_on`](crate::Device::completion_queue_on).
    #[must_use]
    pub fn event_queue(&self) -> u16 {
        self.event_queue
    }

    /// Its name, for queue pairs that are made on other threads.
    #[must_use]
    pub fn target(&self) -> CompletionTarget {
        self.target.clone()
    }

    /// The impossible reports of the device so far.
    #[must_use]
    pub fn anomalies(&self) -> Anomalies {
        self.queue.anomalies()
    }

    /// Requests an event at the next completion. Poll once more afterwards: earlier completions may
    /// give no event. An event that was requested before and has not been taken serves this request
    /// too: nothing is written then. See [`Interrupts`](super::Interrupts) for waiting and
    /// [`Device::poll_completion_events`](crate::Device::poll_completion_events) for what came.
    pub fn arm(&mut self, notify: Notify) {
        let solicited_only = notify == Notify::Solicited;
        let engine = &self.target.engine;
        if engine.over.load(Ordering::Relaxed) {
            return;
        }
        if self.request.add(notify) {
            self.queue
                .arm(&engine.arm_doorbell, self.target.number(), solicited_only);
        }
    }

    /// The program requests an event. True if a completion is there that no poll has taken and no
    /// event has told of: an event that is requested now need not tell of it.
    ///
    /// `is_told`: an event was given since the request before. `failed_only`: true only for
    /// failures that the device does not report. `elsewhere`: what the program takes beside this
    /// queue's completions. First carries out what other cores have requested.
    pub fn has_unannounced(
        &mut self,
        announced: &mut Announced,
        is_told: bool,
        failed_only: bool,
        elsewhere: Elsewhere,
    ) -> bool {
        self.queue
            .has_unannounced(announced, is_told, failed_only, elsewhere)
    }

    /// A poll found no more completions after the last event was given, and none can be given
    /// before the next request: what comes from now on is new to the program.
    pub fn settle(&self, announced: &mut Announced) {
        self.queue.settle(announced);
    }

    /// Makes it hold that many completions, 1..=524287, while it is in use. What was complete and
    /// not polled is polled first. No more than that many may be outstanding from now on.
    ///
    /// Control path. Errors: [`ResizeError`]; after a refusal the queue is as it was.
    pub fn resize(&mut self, completions: u32) -> Result<(), ResizeError> {
        let entries = entries_of(completions)?;
        let engine = Arc::clone(&self.target.engine);
        let ring = engine.allocate(entries as usize * COMPLETION_BYTES, 4096)?;
        let checked =
            ringside_cq::CompletionQueue::check_ring(ring.words()).map_err(RdmaError::from)?;
        let number = self.target.number();
        let old = engine
            .open_state()?
            .resize_completion_queue(&engine, number, ring, entries)?;
        self.queue.replace(checked);
        // Whether the device keeps a request for an event across this is not documented: it is
        // made again, so that neither the event is lost nor its kind. If the event is under way,
        // a request is left at the device, which may give one event more.
        if let Some(notify) = self.request.pending() {
            self.request.end();
            self.arm(notify);
        }
        drop(old);
        Ok(())
    }

    /// Completions that the device has written and no poll has taken. Control path.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.queue.waiting()
    }

    /// Slots of its ring: completions with immediate data, and those of datagrams, take two.
    #[must_use]
    pub fn slots(&self) -> usize {
        self.queue.slots()
    }

    /// A way to attach and detach queue pairs from any thread.
    #[must_use]
    pub fn handle(&self) -> CompletionQueueHandle {
        self.queue.handle()
    }
}

impl Drop for CompletionQueue {
    fn drop(&mut self) {
        if self.target.engine.is_elsewhere() {
            return;
        }
        let number = self.target.reports.number;
        if let Err(error) = self.target.engine.state().orphan_completion_queue(number) {
            tracing::error!(%error, number, "completion queue dropped");
        }
    }
}

impl Object for CompletionQueueRecord {
    const NAME: &'static str = "completion queue";
    const CONTEXT: ObjectType = ObjectType::CompletionQueue;
    type Destroy = DestroyCompletionQueue;

    fn table(objects: &mut Objects) -> &mut Table<Self> {
        &mut objects.completion_queues
    }

    fn destruction(&self, number: u32) -> DestroyCompletionQueue {
        DestroyCompletionQueue {
            size_entries: self.entries,
            completion_context: self.context(number),
            shadow_address: self.shadow.iova().0,
            cq_number: number,
            ceq_number: self.event_queue,
            ceqe_mask: true,
            ceq_number_valid: true,
            ..DestroyCompletionQueue::ZERO
        }
    }

    fn into_memory(self) -> Vec<DmaBuffer> {
        vec![self.ring, self.shadow]
    }
}

impl Session<'_> {
    /// Returns number and generation.
    fn create_completion_queue(
        &mut self,
        engine: &Engine,
        [ring, shadow]: [DmaBuffer; 2],
        entries: u32,
        (event_queue, request): (u16, &EventRequest),
    ) -> Result<(u32, u32), RdmaError> {
        self.names.generation = self.names.generation.wrapping_add(1);
        let generation = self.names.generation;
        let mut making = Making::<CompletionQueueRecord>::begin(self)?;
        let number = making.number();
        for events in &mut making.state().made.completion_events {
            events.take_ahead();
            // Of the queue that had this number before.
            events.ahead.remove(&number);
        }
        let command = CreateCompletionQueue {
            size_entries: entries,
            completion_context: completion_queue_context(number, generation),
            shadow_read_threshold: (entries / 2).min(MAX_SHADOW_THRESHOLD),
            ring_address: ring.iova().0,
            shadow_address: shadow.iova().0,
            vsi_number: engine.facts.vsi_number,
            cq_number: number,
            ceq_number: event_queue,
            check_overflow: true,
            ceqe_mask: true,
            ceq_number_valid: true,
            ..CreateCompletionQueue::ZERO
        };
        let record = CompletionQueueRecord {
            generation,
            ring,
            shadow,
            entries,
            event_queue,
            request: request.clone(),
            users: 0,
            orphaned: false,
            failed: false,
        };
        making.finish(command, record)?;
        Ok((number, generation))
    }

    /// Lets the device go on in a new ring; the old one, which it does not write any more.
    fn resize_completion_queue(
        &mut self,
        engine: &Engine,
        number: u32,
        ring: DmaBuffer,
        entries: u32,
    ) -> Result<DmaBuffer, RdmaError> {
        for events in &mut self.made.completion_events {
            events.take_ahead();
        }
        let record = self.objects.completion_queues.must(number)?;
        let completion_context = record.context(number);
        let shadow_address = record.shadow.iova().0;
        let modified = self.execute(ModifyCompletionQueue {
            size_entries: entries,
            completion_context,
            shadow_read_threshold: (entries / 2).min(MAX_SHADOW_THRESHOLD),
            ring_address: ring.iova().0,
            shadow_address,
            vsi_number: engine.facts.vsi_number,
            cq_number: number,
            resize: true,
            check_overflow: true,
            ceqe_mask: true,
            ..ModifyCompletionQueue::ZERO
        });
        if let Err(error) = modified {
            let refused = error.is_refusal();
            let error = RdmaError::from(error);
            if !refused {
                self.set_memory_apart(CompletionQueueRecord::NAME, number, vec![ring], &error);
            }
            return Err(error);
        }
        let record = self.objects.completion_queues.must_mut(number)?;
        record.entries = entries;
        Ok(std::mem::replace(&mut record.ring, ring))
    }

    /// Refuses completion queues to which nothing can report: one is destroyed, another queue has
    /// its number now, or it has failed.
    pub(crate) fn check_completion_queues(&self, targets: [&Reports; 2]) -> Result<(), RdmaError> {
        for Reports {
            number, generation, ..
        } in targets
        {
            let (what, number) = (CompletionQueueRecord::NAME, *number);
            let record = self.objects.completion_queues.must(number)?;
            if record.generation != *generation {
                return Err(RdmaError::Gone { what, number });
            }
            if record.failed {
                return Err(RdmaError::CompletionQueueFailed {
                    completion_queue: number,
                });
            }
        }
        Ok(())
    }

    /// Counts one more queue that reports to each of these completion queues, or none if one of
    /// them is refused.
    pub(crate) fn use_completion_queues(
        &mut self,
        targets: [&Reports; 2],
    ) -> Result<(), RdmaError> {
        self.check_completion_queues(targets)?;
        for target in targets {
            let record = self.objects.completion_queues.get_mut(target.number);
            if let Some(record) = record {
                record.users += 1;
            }
        }
        Ok(())
    }

    /// Counts one less for each. A queue whose owner was dropped is destroyed with the last.
    pub(crate) fn release_completion_queues(&mut self, numbers: [u32; 2]) -> Result<(), RdmaError> {
        let mut result = Ok(());
        for number in numbers {
            let Some(record) = self.objects.completion_queues.get_mut(number) else {
                continue;
            };
            record.users = record.users.saturating_sub(1);
            if record.orphaned && record.users == 0 {
                let gone = self.destroy_with_memory::<CompletionQueueRecord>(number, By::Owner);
                result = result.and(gone);
            }
        }
        result
    }

    fn orphan_completion_queue(&mut self, number: u32) -> Result<(), RdmaError> {
        if let Some(record) = self.objects.completion_queues.get_mut(number) {
            record.orphaned = true;
            if record.users > 0 {
                return Ok(());
            }
        }
        self.destroy_with_memory::<CompletionQueueRecord>(number, By::Owner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rings_have_two_slots_for_each_completion_and_are_never_exactly_a_page() {
        for completions in 1..=5_000 {
            let entries = entries_of(completions).unwrap();
            assert!(entries.is_power_of_two(), "{completions}: {entries}");
            assert!(entries >= 2 * (completions + 1), "{completions}: {entries}");
            assert_ne!(entries as usize * COMPLETION_BYTES, 4096, "{completions}");
        }
    }
}
