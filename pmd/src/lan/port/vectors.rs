//! The vectors of receive queues: their registers, and those that interrupt.
//!
//! A vector is in one of two modes. While its queues are polled it never fires, and has the device
//! write descriptors back at intervals. While it is armed it fires at the next packet and masks
//! itself. The first arming after polling also triggers the vector, as Linux does when it ends
//! polling: what the device did during the change of the mode is looked for then.
//!
//! A failure of the device wakes all that sleep on a vector. After its reset the vectors are
//! disconnected, and free for the next port.

use super::PortError;
use crate::Registers;
use crate::event_descriptor::{EventDescriptor, disconnect_vector};
use ringside_bus::FunctionError;
use ringside_lan::{ArmError, Service};
use ringside_spec::lan::registers::interrupts::{
    CauseControl, RECEIVE_QUEUE_CAUSE, THROTTLE_INTERVAL, THROTTLE_NONE, THROTTLE_OTHER,
    THROTTLE_RECEIVE, ThrottleInterval, VECTOR_CONTROL, VectorControl,
};
use std::ops::Range;
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The interval after which descriptors are written back, and the shortest time between two
/// interrupts of a vector, in units of
/// [`THROTTLE_UNIT_US`](ringside_spec::lan::registers::interrupts::THROTTLE_UNIT_US): that of
/// DPDK's ice, which polls its queues, too (`__vsi_queues_bind_intr`).
pub(super) const WRITE_BACK_UNITS: u32 = 2;
/// The delay of the trigger at the end of polling, in the same units: 50 us. Source: ice
/// `ice_txrx.c`, `ice_enable_interrupt`, ICE_ITR_20K.
const TRIGGER_UNITS: u32 = 25;

/// The control of a vector whose queues are polled: it does not fire, and writes descriptors back.
pub(super) fn writes_back() -> VectorControl {
    VectorControl::ZERO
        .with_throttle_index(THROTTLE_NONE)
        .with_write_back_on_interval(true)
}

/// Binds a queue's cause to a vector.
pub(super) fn cause_of(vector: u16) -> CauseControl {
    CauseControl::ZERO
        .with_vector(vector.into())
        .with_throttle_index(THROTTLE_RECEIVE)
        .with_enable(true)
}

/// The control of a vector that fires at the next packet, after its former mode. An event that
/// waits for the end of its interval is not cleared: the device fires it once the vector is
/// enabled. Source: ice `ice_txrx.c`, `ice_buildreg_itr`, which sets both bits at each end of
/// polling; reference e810-lan, section 2.3.
fn fires(former: Mode) -> VectorControl {
    let control = VectorControl::ZERO
        .with_enable(true)
        .with_clear_pending(true);
    match former {
        Mode::Armed => control.with_throttle_index(THROTTLE_NONE),
        Mode::Polled => control
            .with_throttle_index(THROTTLE_OTHER)
            .with_interval(TRIGGER_UNITS)
            .with_software_trigger(true)
            .with_software_throttle_enable(true)
            .with_software_throttle_index(THROTTLE_OTHER),
    }
}

/// The mode of a vector; see the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Polled,
    Armed,
}

/// A request for a vector.
pub(super) struct Wanted {
    pub(super) registers: Registers,
    /// of the VSI
    pub(super) service: Arc<Service>,
    /// the vector of polled queues, where these are bound so far
    pub(super) polled: Option<u16>,
    /// vectors to choose from
    pub(super) among: Range<u16>,
    pub(super) vsi: u16,
    /// counted from the function's first
    pub(super) queues: Vec<u16>,
    /// signalled by the device, and at a failure
    pub(super) event: EventDescriptor,
}

/// A vector that interrupts.
#[derive(Debug)]
struct Connected {
    id: u64,
    vector: u16,
    /// of the VSI whose queues these are: a VSI that was opened again has another one
    service: Arc<Service>,
    vsi: u16,
    queues: Vec<u16>,
    event: EventDescriptor,
    registers: Registers,
    mode: Mode,
    /// the device failed: the vector waits for its reset
    ended: bool,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct ReceiveVectors {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    connected: Vec<Connected>,
    /// vectors that were connected so far
    made: u64,
}

impl ReceiveVectors {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Connects a vector for these queues, polled at first; returns its id and the vector.
    pub(super) fn connect(&self, wanted: Wanted) -> Result<(u64, u16), PortError> {
        let mut state = self.state();
        // A failure after this waits for the lock, and ends the vector.
        if !wanted.service.in_service() {
            return Err(PortError::OutOfService);
        }
        let taken = |queue: &&u16| state.of_queue(**queue).is_some();
        if let Some(queue) = wanted.queues.iter().find(taken) {
            return Err(PortError::InterruptTaken { queue: *queue });
        }
        let is_free = |vector: &u16| state.connected.iter().all(|one| one.vector != *vector);
        let Some(vector) = wanted.among.clone().find(is_free) else {
            return Err(PortError::TooMany {
                what: "interrupts of receive queues",
                wanted: state.connected.len() + 1,
                limit: wanted.among.len(),
            });
        };
        let function = wanted.registers.function();
        function.set_interrupts(vector, &[Some(wanted.event.as_fd())])?;
        state.made += 1;
        let connected = Connected {
            id: state.made,
            vector,
            service: wanted.service,
            vsi: wanted.vsi,
            queues: wanted.queues,
            event: wanted.event,
            registers: wanted.registers,
            mode: Mode::Polled,
            ended: false,
        };
        if let Err(error) = connected.open() {
            connected.close(wanted.polled);
            return Err(error.into());
        }
        let id = connected.id;
        state.connected.push(connected);
        Ok((id, vector))
    }

    /// Binds a queue that starts to its vector, else to that of polled queues. The lock is held
    /// during the write: an interrupt that is connected meanwhile binds the queue afterwards.
    pub(super) fn bind_queue(
        &self,
        queue: u16,
        polled: Option<u16>,
        registers: &Registers,
    ) -> Result<(), FunctionError> {
        let state = self.state();
        let own = state.of_queue(queue).map(|one| one.vector);
        let Some(vector) = own.or(polled) else {
            return Ok(());
        };
        let register = RECEIVE_QUEUE_CAUSE.at(queue.into());
        registers.write(register, cause_of(vector).0)
    }

    /// Lets the next packet of a queue raise its vector. `service` is that of its VSI.
    pub(super) fn arm(&self, queue: u16, service: &Arc<Service>) -> Result<(), ArmError> {
        self.set_mode(queue, service, Mode::Armed)
    }

    /// Ends that.
    pub(super) fn disarm(&self, queue: u16, service: &Arc<Service>) -> Result<(), ArmError> {
        self.set_mode(queue, service, Mode::Polled)
    }

    /// The lock is held during the write: after a failure the vector may be another's, and a reset
    /// admits no write. A queue from before the reset has the number of another one now.
    fn set_mode(&self, queue: u16, service: &Arc<Service>, mode: Mode) -> Result<(), ArmError> {
        let mut state = self.state();
        let of_queue = |one: &&mut Connected| {
            one.queues.contains(&queue) && Arc::ptr_eq(&one.service, service)
        };
        let Some(connected) = state.connected.iter_mut().find(of_queue) else {
            return Err(match service.in_service() {
                true => ArmError::NotConnected,
                false => ArmError::OutOfService,
            });
        };
        if connected.ended {
            return Err(ArmError::OutOfService);
        }
        if (mode, connected.mode) == (Mode::Polled, Mode::Polled) {
            return Ok(());
        }
        let control = match mode {
            Mode::Armed => fires(connected.mode),
            Mode::Polled => writes_back(),
        };
        let register = VECTOR_CONTROL.at(connected.vector.into());
        let written = connected.registers.write_quietly(register, control.0);
        written.map_err(|error| ArmError::Failed {
            reason: error.to_string(),
        })?;
        connected.mode = mode;
        Ok(())
    }

    /// True if the vector with this id is in service.
    pub(super) fn is_in_service(&self, id: u64) -> bool {
        let state = self.state();
        state.connected.iter().any(|one| one.id == id && !one.ended)
    }

    /// Disconnects a vector; its queues go to the vector of polled ones. Does nothing after a
    /// failure: the vector is disconnected after the reset, and may have another owner then.
    pub(super) fn disconnect(&self, id: u64, polled: Option<u16>) {
        let mut state = self.state();
        let own = |one: &Connected| one.id == id && !one.ended;
        if let Some(place) = state.connected.iter().position(own) {
            state.connected.swap_remove(place).close(polled);
        }
    }

    /// The queues of a VSI are out of service: wakes all that wait for them.
    pub(super) fn end(&self, vsi: u16) {
        let mut state = self.state();
        for one in state.connected.iter_mut().filter(|one| one.vsi == vsi) {
            one.ended = true;
            one.event.wake();
        }
    }

    /// The queues of a VSI are being stopped: wakes all that wait for them, and disconnects their
    /// vectors.
    pub(super) fn close(&self, vsi: u16) {
        let mut state = self.state();
        let (of_vsi, others) = std::mem::take(&mut state.connected)
            .into_iter()
            .partition(|one| one.vsi == vsi && !one.ended);
        state.connected = others;
        let of_vsi: Vec<Connected> = of_vsi;
        for one in of_vsi {
            one.event.wake();
            one.close(None);
        }
    }

    /// The function was reset: no vector is connected any more.
    pub(super) fn release(&self) {
        let connected = std::mem::take(&mut self.state().connected);
        for one in connected {
            one.event.wake();
            disconnect_vector(&**one.registers.function(), one.vector);
        }
    }
}

impl State {
    /// The vector of a queue, in service.
    fn of_queue(&self, queue: u16) -> Option<&Connected> {
        let mut all = self.connected.iter();
        all.find(|one| one.queues.contains(&queue) && !one.ended)
    }
}

impl Connected {
    fn open(&self) -> Result<(), FunctionError> {
        let number = self.vector.into();
        let interval = ThrottleInterval::ZERO.with_interval(WRITE_BACK_UNITS);
        let throttle = THROTTLE_INTERVAL.at(THROTTLE_RECEIVE, number);
        self.registers.write(throttle, interval.0)?;
        let control = VECTOR_CONTROL.at(number);
        self.registers.write(control, writes_back().0)?;
        self.bind(cause_of(self.vector))
    }

    fn bind(&self, cause: CauseControl) -> Result<(), FunctionError> {
        for queue in &self.queues {
            let register = RECEIVE_QUEUE_CAUSE.at((*queue).into());
            self.registers.write(register, cause.0)?;
        }
        Ok(())
    }

    /// Leaves the vector as it was before, and binds the queues to another one or to none.
    fn close(&self, polled: Option<u16>) {
        let number = self.vector.into();
        let throttle = THROTTLE_INTERVAL.at(THROTTLE_RECEIVE, number);
        let closed = self
            .bind(polled.map_or(CauseControl::ZERO, cause_of))
            .and_then(|()| self.registers.write(VECTOR_CONTROL.at(number), 0))
            .and_then(|()| self.registers.write(throttle, 0));
        let function = self.registers.function();
        let closed = closed.and(function.set_interrupts(self.vector, &[None]));
        if let Err(error) = closed {
            tracing::warn!(%error, vector = self.vector, "an interrupt stays connected");
        }
    }
}
