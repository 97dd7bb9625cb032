//! Interrupts: causes, their vectors, and the event descriptors that are signalled.
//!
//! A cause that is enabled goes to the vector that its control register names. A vector fires if
//! it is enabled, and then masks itself; if it is not, the event waits in its pending bit. Source:
//! reference of `GLINT_DYN_CTL`, `PFINT_OICR` and neighbours in [`interrupts`].
//!
//! A software trigger of the vector of other causes is a cause itself. Source: ice 6.12, which
//! triggers it in `ice_intr_test` and counts the cause in `ice_misc_intr`.

use super::register_file::RegisterFile;
use crate::chip::{Causes, QueueCause};
use crate::choice::Choice;
use ringside_spec::lan::identity::MAX_MSIX_VECTORS;
use ringside_spec::lan::registers::interrupts::{
    self, CauseControl, InterruptControl, OtherCauses, VectorControl,
};
use ringside_spec::rdma::registers::AEQ_CAUSE_CONTROL;
use std::os::fd::{AsFd, OwnedFd};

/// The connection of one vector, and the number of times that it fired.
#[derive(Default)]
struct Vector {
    event: Option<OwnedFd>,
    pending: bool,
    fired: u64,
}

/// The vectors of a function and its register of other causes.
#[derive(Default)]
pub(super) struct Interrupts {
    vectors: Vec<Vector>,
    other_causes: OtherCausesState,
    other_control_written: bool,
    lost: Option<Choice>,
    /// the host's request to release the function
    release: Option<OwnedFd>,
}

#[derive(Default)]
struct OtherCausesState(u32);

impl Interrupts {
    pub(super) fn new() -> Self {
        let vectors = (0..MAX_MSIX_VECTORS).map(|_| Vector::default()).collect();
        Self {
            vectors,
            ..Self::default()
        }
    }

    /// Connects vectors to event descriptors; false if there are not that many vectors.
    pub(super) fn connect(&mut self, first: u16, events: Vec<Option<OwnedFd>>) -> bool {
        let start = usize::from(first);
        let Some(vectors) = self.vectors.get_mut(start..start + events.len()) else {
            return false;
        };
        for (vector, event) in vectors.iter_mut().zip(events) {
            vector.event = event;
        }
        true
    }

    /// Connects the host's request to release the function, or disconnects it.
    pub(super) fn connect_release(&mut self, event: Option<OwnedFd>) {
        self.release = event;
    }

    /// Signals the host's request to release the function. False if it is not connected.
    pub(super) fn request_release(&self) -> bool {
        let event = self.release.as_ref();
        event.is_some_and(|event| ringside_bus::event::signal(event.as_fd()).is_ok())
    }

    /// Vectors that are connected.
    pub(super) fn connected(&self) -> Vec<u16> {
        let vectors = self.vectors.iter().zip(0u16..);
        vectors
            .filter(|(vector, _)| vector.event.is_some())
            .map(|(_, number)| number)
            .collect()
    }

    /// The number of times that a vector fired.
    pub(super) fn fired(&self, vector: u16) -> u64 {
        self.vectors
            .get(usize::from(vector))
            .map_or(0, |vector| vector.fired)
    }

    pub(super) fn reset(&mut self) {
        for vector in &mut self.vectors {
            vector.pending = false;
        }
        self.other_causes.0 = 0;
        self.other_control_written = false;
    }

    /// A reset that announces itself by a cause: the cause goes to the vector that the driver has
    /// set up, before the registers lose that, and stays in the register of causes.
    pub(super) fn reset_announced(&mut self, cause: OtherCauses, registers: &mut RegisterFile) {
        let written = self.other_control_written;
        self.reset();
        self.other_control_written = written;
        self.raise_other(cause.0, registers);
        self.other_control_written = false;
    }

    /// Interrupts are lost from now on, so many of a million.
    pub(super) fn lose(&mut self, per_million: u32, seed: u64) {
        self.lost = Choice::new(per_million, seed);
    }

    /// A function-level reset also takes the connections.
    pub(super) fn disconnect(&mut self) {
        for vector in &mut self.vectors {
            vector.event = None;
        }
    }

    /// Reads the register of other causes, which clears it.
    pub(super) fn take_other_causes(&mut self) -> u32 {
        std::mem::take(&mut self.other_causes.0)
    }

    /// A driver sets other causes itself.
    pub(super) fn raise_other(&mut self, bits: u32, registers: &mut RegisterFile) {
        self.other_causes.0 |= bits;
        let enabled = registers.get(interrupts::OTHER_CAUSES_ENABLE);
        if bits & enabled == 0 {
            return;
        }
        self.other_causes.0 |= OtherCauses::ZERO.with_interrupt_event(true).0;
        let control = CauseControl(registers.get(interrupts::OTHER_CAUSES_CONTROL));
        // DPDK never writes this register and still gets its interrupts: enabled until the first
        // write.
        if control.enable() || !self.other_control_written {
            self.raise_vector(control.vector(), registers);
        }
    }

    /// The control register of other causes was written.
    pub(super) fn other_control_written(&mut self) {
        self.other_control_written = true;
    }

    /// Delivers the causes that a part raised, and clears them.
    pub(super) fn deliver(&mut self, causes: &mut Causes, registers: &mut RegisterFile) {
        for queue in causes.completion_event_queues.drain(..) {
            let array = interrupts::COMPLETION_EVENT_QUEUE_CONTROL;
            let queue = u32::from(queue);
            if queue < array.count {
                self.raise(array.at(queue), registers);
            }
        }
        for queue in causes.queues.drain(..) {
            let (array, queue) = match queue {
                QueueCause::Receive(queue) => (interrupts::RECEIVE_QUEUE_CAUSE, queue),
                QueueCause::Transmit(queue) => (interrupts::TRANSMIT_QUEUE_CAUSE, queue),
            };
            let queue = u32::from(queue);
            if queue < array.count {
                self.raise(array.at(queue), registers);
            }
        }
        if std::mem::take(&mut causes.asynchronous_event) {
            self.raise(AEQ_CAUSE_CONTROL, registers);
        }
        if std::mem::take(&mut causes.admin_event) {
            self.raise(interrupts::FIRMWARE_CONTROL, registers);
        }
        let other = std::mem::take(&mut causes.other);
        if other != 0 {
            self.raise_other(other, registers);
        }
    }

    fn raise(&mut self, control: u64, registers: &mut RegisterFile) {
        let control = CauseControl(registers.get(control));
        if control.enable() {
            self.raise_vector(control.vector(), registers);
        }
    }

    fn raise_vector(&mut self, number: u32, registers: &mut RegisterFile) {
        let Some(vector) = self.vectors.get_mut(number as usize) else {
            return;
        };
        let at = interrupts::VECTOR_CONTROL.at(number);
        let control = VectorControl(registers.get(at));
        if !control.enable() {
            vector.pending = true;
            return;
        }
        if !self.lost.as_mut().is_some_and(Choice::strikes) {
            vector.fire();
        }
        let mode = InterruptControl(registers.get(interrupts::INTERRUPT_CONTROL));
        if !mode.automatic_mask_disabled() {
            registers.set(at, control.with_enable(false).0);
        }
    }

    /// A driver writes the control register of a vector.
    pub(super) fn control_vector(&mut self, number: u32, value: u32, registers: &mut RegisterFile) {
        let at = interrupts::VECTOR_CONTROL.at(number);
        let (written, before) = (VectorControl(value), VectorControl(registers.get(at)));
        let enable = if written.keep_enable() {
            before.enable()
        } else {
            written.enable()
        };
        // trigger, clear and keep are commands, not state
        let kept = written
            .with_enable(enable)
            .with_clear_pending(false)
            .with_software_trigger(false)
            .with_keep_enable(false);
        registers.set(at, kept.0);
        let Some(vector) = self.vectors.get_mut(number as usize) else {
            return;
        };
        if written.software_trigger() {
            vector.fire();
            let other = CauseControl(registers.get(interrupts::OTHER_CAUSES_CONTROL));
            if other.enable() && other.vector() == number {
                self.other_causes.0 |= OtherCauses::ZERO.with_software(true).0;
            }
        } else if enable && vector.pending {
            vector.pending = false;
            self.raise_vector(number, registers);
        } else if written.clear_pending() {
            vector.pending = false;
        }
    }
}

impl Vector {
    fn fire(&mut self) {
        self.fired += 1;
        let Some(event) = &self.event else {
            return;
        };
        // The descriptor may be that of another process, which must not stop this one.
        if let Err(error) = ringside_bus::event::signal(event.as_fd()) {
            tracing::debug!(%error, "an interrupt's event descriptor does not take it");
        }
    }
}
