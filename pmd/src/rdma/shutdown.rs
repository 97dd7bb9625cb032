//! The end of all objects of an engine.

use super::RdmaError;
use super::engine::{Engine, EngineState};
use super::lifecycle::By;
use super::objects::Object;
use super::records::{
    AddressHandleRecord, CompletionQueueRecord, MulticastRecord, QueuePairCondition,
    QueuePairRecord, RegionRecord,
};
use super::session::Session;
use crate::control::ControlError;
use ringside_spec::rdma::commands::ControlCommand;
use std::sync::atomic::Ordering;

impl Engine {
    /// Begins the shutdown: nothing new is made, and all objects that are left are destroyed. Their
    /// owners' handles stay harmless: completions that were not polled yet are still delivered,
    /// outstanding requests then complete as flushed, and threads that wait for an interrupt
    /// return.
    pub(crate) fn destroy_objects(&self) -> Result<(), RdmaError> {
        let mut state = self.state_alone();
        self.close(&mut state);
        state.end_flushed();
        let mut result = self.disconnect_interrupts(&mut state);
        for number in state.objects.queue_pairs.numbers_of(|_| true) {
            result = result.and(state.destroy_queue_pair(number, By::Shutdown));
        }
        // Those whose last member the device did not let go.
        result = result.and(state.destroy_all::<MulticastRecord>(|_| true));
        result = result.and(state.destroy_all::<AddressHandleRecord>(|_| true));
        result = result.and(state.destroy_all::<CompletionQueueRecord>(|queue| queue.users == 0));
        // A queue pair that the device refused to destroy keeps its completion queues.
        state.abandon::<CompletionQueueRecord>();
        result = result.and(state.group_rules.remove_all());
        if let Some(counted) = state.made.statistics.take() {
            state.withheld.kept.push(counted.into_buffer());
        }
        // Windows first: the device refuses to free a region with windows on it.
        result = result.and(state.destroy_all::<RegionRecord>(|region| region.is_window));
        state.destroy_refused();
        result = result.and(state.destroy_all::<RegionRecord>(|region| !region.is_window));
        self.retire_doorbells();
        result
    }

    /// True if the device has queue pairs whose destruction it did not confirm: until its reset
    /// they use what was made before them.
    pub(crate) fn has_lost_queue_pairs(&self) -> bool {
        self.state().objects.queue_pairs.has_unconfirmed()
    }

    /// The same when the engine does not answer: the handles are cut off, and all memory stays out
    /// of use until the reset of the function.
    pub(crate) fn abandon_objects(&self) {
        let mut state = self.state_alone();
        self.close(&mut state);
        self.retire_doorbells();
        state.end_flushed();
        if let Some(counted) = state.made.statistics.take() {
            state.withheld.kept.push(counted.into_buffer());
        }
        let quiet = self.disconnect_interrupts(&mut state);
        if let Err(error) = quiet.and(state.group_rules.remove_all()) {
            tracing::error!(%error, "objects given up");
        }
        state.abandon::<QueuePairRecord>();
        state.abandon::<CompletionQueueRecord>();
        state.abandon::<RegionRecord>();
        state.abandon::<AddressHandleRecord>();
        state.abandon::<MulticastRecord>();
    }
}

impl Engine {
    /// Nothing new is made; owners and waiting threads notice.
    fn close(&self, state: &mut EngineState) {
        state.service.closed = true;
        self.over.store(true, Ordering::Release);
        for interrupt in &state.service.interrupts {
            interrupt.event.wake();
        }
    }
}

impl Session<'_> {
    /// Destroys all objects of a kind for which `wanted` is true, for a shutdown.
    fn destroy_all<O: Object>(&mut self, wanted: impl Fn(&O) -> bool) -> Result<(), RdmaError> {
        let mut result = Ok(());
        for number in O::table(&mut self.objects).numbers_of(wanted) {
            result = result.and(self.destroy_with_memory::<O>(number, By::Shutdown));
        }
        result
    }
}

impl EngineState {
    /// Has the completion queues of all queue pairs complete the requests that are outstanding at
    /// the end of each.
    fn end_flushed(&mut self) {
        for number in self.objects.queue_pairs.numbers_of(|_| true) {
            if let Some(record) = self.objects.queue_pairs.get_mut(number) {
                record.ends_flushed = true;
                record.was_flushed = record.condition.get() != QueuePairCondition::Usable;
            }
        }
    }

    /// Removes all objects of a kind without commands.
    fn abandon<O: Object>(&mut self) {
        let opcode = <O::Destroy as ControlCommand>::OPCODE;
        let reason = ControlError::Stuck { opcode }.into();
        let (memory, owed) = O::table(&mut self.objects).give_up(&reason);
        self.withheld.kept.extend(memory);
        self.owe(owed);
    }
}
