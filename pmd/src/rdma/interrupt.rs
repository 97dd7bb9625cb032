//! Waiting for the device instead of polling it.
//!
//! The miscellaneous vector, 0, is for asynchronous events and other causes: the thread that
//! supervises the device sleeps on it. Vector 1 and those after it are for completion events, one
//! for each completion event queue, so that each worker sleeps on its own. The first of them takes
//! asynchronous events too, as long as no other thread has them. A function with one vector has all
//! causes on it, and one owner.
//!
//! The order that loses no event: arm the completion queues, poll them once more, wait, take the
//! events, poll. The vector masks itself when it fires. [`Interrupts::wait`] unmasks it before the
//! caller reads the event queues, so each event is either read then or fires the vector again.

use super::RdmaError;
use super::connected::ConnectedInterrupt;
use super::engine::{Engine, EngineState};
use super::event_vectors::{EVENT_VECTOR, check_event_queue, completion_vector};
use crate::event_descriptor::EventDescriptor;
use ringside_spec::lan::registers::interrupts::{
    COMPLETION_EVENT_QUEUE_CONTROL, CauseControl, FIRMWARE_CONTROL, OTHER_CAUSES_CONTROL,
    OTHER_CAUSES_ENABLE, OtherCauses, THROTTLE_NONE, VECTOR_CONTROL, VectorControl,
};
use ringside_spec::rdma::registers::AEQ_CAUSE_CONTROL;
use rustix::io::Errno;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::Arc;
use std::time::Duration;

/// The other causes that wake the thread that supervises the device: the device fails with each.
const FATAL_CAUSES: OtherCauses = OtherCauses::ZERO
    .with_memory_error(true)
    .with_global_reset(true)
    .with_pci_exception(true)
    .with_host_memory_cache_error(true)
    .with_protocol_engine_critical(true);

/// The events for which an owner requests an interrupt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// Events of this completion event queue; from queue 0, asynchronous events too, if no other
    /// owner has them.
    Completions(u16),
    /// Asynchronous events, reports of the firmware and failures of the device.
    Events,
}

/// An interrupt of the device, connected. Dropping it disconnects.
#[derive(Debug)]
pub struct Interrupts {
    engine: Arc<Engine>,
    event: EventDescriptor,
    vector: u16,
}

fn system(operation: &'static str, error: Errno) -> RdmaError {
    RdmaError::System {
        operation,
        error: error.to_string(),
    }
}

impl Interrupts {
    pub(crate) fn connect(engine: Arc<Engine>, wanted: Wanted) -> Result<Self, RdmaError> {
        let event = EventDescriptor::new();
        let event = event.map_err(|error| system("making an event descriptor", error))?;
        let vector = {
            let mut state = engine.open_state()?;
            let function = engine.registers.function();
            let vectors = function.interrupt_vectors()?;
            let event_queue = match wanted {
                Wanted::Completions(number) => Some(number),
                Wanted::Events => None,
            };
            if let Some(number) = event_queue {
                check_event_queue(number, state.made.completion_events.len())?;
            }
            let vector = match event_queue {
                Some(number) => completion_vector(vectors, number),
                None => (vectors > 0).then_some(EVENT_VECTOR),
            };
            let vector = vector.ok_or(RdmaError::NoInterrupts)?;
            let connected = &state.service.interrupts;
            let has_events = connected.iter().any(|other| other.takes_events);
            let vector_taken = connected.iter().any(|other| other.vector == vector);
            if vector_taken || (has_events && wanted == Wanted::Events) {
                return Err(RdmaError::InterruptTaken);
            }
            let waiting = event.duplicate();
            let waiting =
                waiting.map_err(|error| system("duplicating an event descriptor", error))?;
            function.set_interrupts(vector, &[Some(event.as_fd())])?;
            state.service.interrupts.push(ConnectedInterrupt {
                vector,
                event_queue,
                takes_events: event_queue.is_none_or(|number| number == 0) && !has_events,
                event: waiting,
            });
            let opened = engine.open_vector(&state, vector);
            if opened.is_err() {
                let _ = engine.disconnect_interrupt(&mut state, vector);
            }
            opened?;
            vector
        };
        Ok(Self {
            engine,
            event,
            vector,
        })
    }

    /// Waits for the interrupt, at most `limit`; returns true if it came. Then take the events and
    /// poll: see the module for the order that loses no event.
    ///
    /// The time is real, also for a device with a virtual clock. Errors: as of
    /// [`Interrupts::take`].
    pub fn wait(&self, limit: Duration) -> Result<bool, RdmaError> {
        self.engine.check_process()?;
        match self.event.wait(limit) {
            Ok(true) => self.take().map(|()| true),
            // The vector masked itself if its interrupt was lost on the way: no other would come.
            Ok(false) => self.open_again().map(|()| false),
            Err(Errno::INTR) => Ok(false),
            Err(error) => Err(system("waiting for an interrupt", error)),
        }
    }

    /// Takes the interrupt after [`Interrupts::as_fd`] became readable in a poll of the caller's,
    /// and unmasks the vector. Call it also after a wait without result: a lost interrupt leaves
    /// the vector masked.
    ///
    /// Errors: the device failed or was shut down; the descriptor then stays readable. In a child
    /// by fork it takes nothing: the descriptor is shared, and the signal is the parent's.
    pub fn take(&self) -> Result<(), RdmaError> {
        self.engine.check_process()?;
        let drained = self.event.drain();
        drained.map_err(|error| system("reading an interrupt", error))?;
        // The signal of a failure was taken, and there is no other: each later wait ends, too.
        self.open_again().inspect_err(|_| self.event.wake())
    }

    fn open_again(&self) -> Result<(), RdmaError> {
        // Held during the write: after a failure the vector may be another's, and a reset admits no
        // write.
        let _state = self.engine.open_state()?;
        self.engine.unmask(self.vector)
    }
}

impl AsFd for Interrupts {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}

impl AsRawFd for Interrupts {
    fn as_raw_fd(&self) -> RawFd {
        self.event.as_raw_fd()
    }
}

impl Drop for Interrupts {
    fn drop(&mut self) {
        if self.engine.is_elsewhere() {
            return;
        }
        let mut state = self.engine.state();
        // The vector of an ended period of service may have another owner now. A reset in progress
        // admits no write, and the vector is disconnected after it.
        if state.service.end.released || state.service.end.reset_begun {
            return;
        }
        if let Err(error) = self.engine.disconnect_interrupt(&mut state, self.vector) {
            tracing::error!(%error, "interrupt dropped");
        }
    }
}

impl Engine {
    /// Lets the causes that the owner of a vector takes raise it.
    fn open_vector(&self, state: &EngineState, vector: u16) -> Result<(), RdmaError> {
        let connected = &state.service.interrupts;
        let Some(own) = connected.iter().find(|one| one.vector == vector) else {
            return Ok(());
        };
        let cause = CauseControl::ZERO
            .with_vector(vector.into())
            .with_throttle_index(THROTTLE_NONE)
            .with_enable(true);
        for control in own.causes() {
            self.registers.write(control, cause.0)?;
        }
        if own.takes_other_causes() {
            self.registers.write(OTHER_CAUSES_ENABLE, FATAL_CAUSES.0)?;
        }
        self.unmask(vector)
    }

    fn unmask(&self, vector: u16) -> Result<(), RdmaError> {
        let open = VectorControl::ZERO
            .with_enable(true)
            .with_clear_pending(true)
            .with_throttle_index(THROTTLE_NONE);
        let register = VECTOR_CONTROL.at(vector.into());
        self.registers.write_quietly(register, open.0)?;
        Ok(())
    }

    /// The vectors that are connected, each with the completion event queue that raises it.
    pub(crate) fn connected_vectors(&self) -> Vec<(u16, Option<u16>)> {
        let state = self.state();
        let connected = state.service.interrupts.iter();
        connected.map(|one| (one.vector, one.event_queue)).collect()
    }

    /// Leaves all as it was before any interrupt was connected.
    pub(crate) fn disconnect_interrupts(&self, state: &mut EngineState) -> Result<(), RdmaError> {
        let vectors = state.service.interrupts.iter().map(|one| one.vector);
        let mut result = Ok(());
        for vector in vectors.collect::<Vec<u16>>() {
            result = result.and(self.disconnect_interrupt(state, vector));
        }
        result
    }

    /// Leaves all as it was before the interrupt was connected.
    pub(crate) fn disconnect_interrupt(
        &self,
        state: &mut EngineState,
        vector: u16,
    ) -> Result<(), RdmaError> {
        let connected = &mut state.service.interrupts;
        let Some(place) = connected.iter().position(|one| one.vector == vector) else {
            return Ok(());
        };
        let connected = connected.swap_remove(place);
        let mut result = Ok(());
        if connected.takes_other_causes() {
            result = result.and(self.registers.write(OTHER_CAUSES_ENABLE, 0));
        }
        let vector_control = VECTOR_CONTROL.at(vector.into());
        for register in connected.causes().chain([vector_control]) {
            result = result.and(self.registers.write(register, 0));
        }
        let function = self.registers.function();
        result = result.and(function.set_interrupts(vector, &[None]));
        result.map_err(RdmaError::from)
    }
}

impl ConnectedInterrupt {
    /// It has a vector of its own for asynchronous events, so the other causes go there too.
    const fn takes_other_causes(&self) -> bool {
        self.takes_events && self.event_queue.is_none()
    }

    /// The registers that direct its causes to its vector.
    fn causes(&self) -> impl Iterator<Item = u64> {
        let completions = self
            .event_queue
            .map(|number| COMPLETION_EVENT_QUEUE_CONTROL.at(number.into()));
        let other = self.takes_other_causes();
        let others = [
            (self.takes_events, AEQ_CAUSE_CONTROL),
            (other, OTHER_CAUSES_CONTROL),
            (other, FIRMWARE_CONTROL),
        ];
        let others = others
            .into_iter()
            .filter_map(|(is_taken, register)| is_taken.then_some(register));
        completions.into_iter().chain(others)
    }
}
