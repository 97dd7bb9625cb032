//! Waiting for the device instead of polling it: one interrupt vector for completion events and
//! asynchronous events.
//!
//! The order that loses nothing: arm the completion queues, poll them once more, wait, take the
//! events, poll. The vector masks itself when it fires; [`Interrupts::wait`] opens it again before
//! the caller looks at the event queues, so an event either is seen then or fires it again.

use super::RdmaError;
use super::connected::ConnectedInterrupt;
use super::engine::{Engine, EngineState};
use ringside_spec::lan::registers::interrupts::{
    COMPLETION_EVENT_QUEUE_CONTROL, CauseControl, THROTTLE_NONE, VECTOR_CONTROL, VectorControl,
};
use ringside_spec::rdma::registers::AEQ_CAUSE_CONTROL;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

/// The vector that is used where there are several: the first is for other causes.
const VECTOR: u16 = 1;

/// The device's interrupt, connected. Dropping it disconnects.
#[derive(Debug)]
pub struct Interrupts {
    engine: Arc<Engine>,
    event: OwnedFd,
    vector: u16,
}

fn system(operation: &'static str, error: rustix::io::Errno) -> RdmaError {
    RdmaError::System {
        operation,
        error: error.to_string(),
    }
}

impl Interrupts {
    pub(crate) fn connect(engine: Arc<Engine>) -> Result<Self, RdmaError> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|error| system("making an event descriptor", error))?;
        let vector = {
            let mut state = engine.open_state()?;
            if state.service.interrupts.is_some() {
                return Err(RdmaError::InterruptTaken);
            }
            let function = engine.registers.function();
            let vector = match function.interrupt_vectors()? {
                0 => return Err(RdmaError::NoInterrupts),
                1 => 0,
                _ => VECTOR,
            };
            let waiting = event.try_clone().map_err(|error| RdmaError::System {
                operation: "duplicating an event descriptor",
                error: error.to_string(),
            })?;
            function.set_interrupts(vector, &[Some(event.as_fd())])?;
            state.service.interrupts = Some(ConnectedInterrupt {
                vector,
                event: waiting,
            });
            let opened = engine.open_vector(vector);
            if opened.is_err() {
                let _ = engine.disconnect_interrupt(&mut state);
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

    /// Waits for the interrupt, at most `limit`; says whether it came. Then take the events and
    /// poll: see the module for the order that loses nothing.
    ///
    /// Real time passes, whatever the device's clock is.
    pub fn wait(&self, limit: Duration) -> Result<bool, RdmaError> {
        let limit = Timespec {
            tv_sec: i64::try_from(limit.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: limit.subsec_nanos().into(),
        };
        let mut waited = [PollFd::new(&self.event, PollFlags::IN)];
        match poll(&mut waited, Some(&limit)) {
            Err(rustix::io::Errno::INTR) => return Ok(false),
            Ok(0) => {
                // The vector masked itself if its interrupt was lost on the way: no other would come.
                self.open_again()?;
                return Ok(false);
            }
            Ok(_) => {}
            Err(error) => return Err(system("waiting for an interrupt", error)),
        }
        self.take()?;
        Ok(true)
    }

    /// After [`Interrupts::as_fd`] was seen to be readable by a poll of the caller's: takes the
    /// interrupt, and opens the vector again. Also where a wait was in vain: an interrupt that was lost
    /// has masked the vector.
    pub fn take(&self) -> Result<(), RdmaError> {
        let mut count = [0; 8];
        match rustix::io::read(&self.event, &mut count) {
            Ok(_) | Err(rustix::io::Errno::AGAIN) => {}
            Err(error) => return Err(system("reading an interrupt", error)),
        }
        self.open_again()
    }

    fn open_again(&self) -> Result<(), RdmaError> {
        // After a failure the vector may be another's by now.
        drop(self.engine.open_state()?);
        self.engine.unmask(self.vector)?;
        Ok(())
    }
}

impl AsFd for Interrupts {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}

impl Drop for Interrupts {
    fn drop(&mut self) {
        let mut state = self.engine.state();
        if let Err(error) = self.engine.disconnect_interrupt(&mut state) {
            tracing::error!(%error, "interrupt dropped");
        }
    }
}

impl Engine {
    /// Lets both kinds of events raise the vector.
    fn open_vector(&self, vector: u16) -> Result<(), RdmaError> {
        let cause = CauseControl::ZERO
            .with_vector(vector.into())
            .with_throttle_index(THROTTLE_NONE)
            .with_enable(true);
        for control in [COMPLETION_EVENT_QUEUE_CONTROL.at(0), AEQ_CAUSE_CONTROL] {
            self.registers.write(control, cause.0)?;
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

    /// Leaves all as it was before the interrupt was connected.
    pub(crate) fn disconnect_interrupt(&self, state: &mut EngineState) -> Result<(), RdmaError> {
        let Some(connected) = state.service.interrupts.take() else {
            return Ok(());
        };
        let vector = connected.vector;
        let registers = [
            AEQ_CAUSE_CONTROL,
            COMPLETION_EVENT_QUEUE_CONTROL.at(0),
            VECTOR_CONTROL.at(vector.into()),
        ];
        let mut result = Ok(());
        for register in registers {
            result = result.and(self.registers.write(register, 0));
        }
        let function = self.registers.function();
        result = result.and(function.set_interrupts(vector, &[None]));
        result.map_err(RdmaError::from)
    }
}
