//! Starting and stopping of queues.

use super::PortError;
use super::shared::PortShared;
use super::vectors::{WRITE_BACK_UNITS, cause_of, writes_back};
use crate::admin::commands::VlanMode;
use crate::admin::pause;
use ringside_lan::{
    ArmError, PacketPool, QueueControl, QueueKind, ReceiveQueue, ReceiveSettings, StopError,
    TransmitQueue, TransmitSettings,
};
use ringside_spec::lan::admin::ReturnCode;
use ringside_spec::lan::receive::{ReceiveContext, profile};
use ringside_spec::lan::registers::interrupts::{
    INTERRUPT_CONTROL, InterruptControl, RECEIVE_QUEUE_CAUSE, THROTTLE_INTERVAL, THROTTLE_RECEIVE,
    THROTTLE_UNIT_US, TRANSMIT_QUEUE_CAUSE, ThrottleInterval, VECTOR_CONTROL,
};
use ringside_spec::lan::registers::queues::{
    DescriptorProfile, RECEIVE_CONTEXT_DWORDS, RECEIVE_QUEUE_CONTEXT, RECEIVE_QUEUE_CONTROL,
    RECEIVE_QUEUE_PROFILE, RECEIVE_QUEUE_TAIL, ReceiveQueueControl, TRANSMIT_QUEUE_DOORBELL,
};
use ringside_spec::lan::transmit::{TransmitContext, owner};
use std::fmt::Display;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Duration;

/// The time between two reads of a register.
const STEP: Duration = Duration::from_micros(20);
/// The time that a cause takes to become ineffective. Source: ice `ice_base.c`,
/// `ice_vsi_stop_tx_ring`.
const CAUSE_OFF: Duration = Duration::from_nanos(100);
/// A queue that the scheduler's tree has no place for: a bug of this driver.
const NO_GROUP: &str = "its VSI has no group in the scheduler's tree";
/// Free descriptors, in 64, below which the device reports a shortage. Source: DPDK ice
/// `ice_program_hw_rx_queue`.
const LOW_THRESHOLD_64: u8 = 2;

/// One receive queue.
pub(super) struct ReceiveControl {
    pub(super) port: Arc<PortShared>,
    /// counted from the function's first
    pub(super) number: u16,
    pub(super) ring: u64,
    pub(super) settings: ReceiveSettings,
    pub(super) buffer_bytes: u16,
    /// layout of its descriptors, see [`profile`]
    pub(super) profile: u8,
}

/// One transmit queue.
pub(super) struct TransmitControl {
    pub(super) port: Arc<PortShared>,
    /// counted from the function's first
    pub(super) number: u16,
    pub(super) ring: u64,
    pub(super) settings: TransmitSettings,
}

fn not_confirmed(kind: QueueKind, number: u16, reason: impl Display) -> StopError {
    StopError::NotConfirmed {
        kind,
        number,
        reason: reason.to_string(),
    }
}

impl ReceiveControl {
    /// Refuses calls in a child by fork, where the lock of the vectors may be held permanently.
    fn check_process(&self) -> Result<(), ArmError> {
        let checked = self.port.pool.check_process();
        checked.map_err(|error| ArmError::Failed {
            reason: error.to_string(),
        })
    }
}

impl QueueControl for ReceiveControl {
    /// Context and profile, by registers. Source: ice `ice_base.c`, `ice_setup_rx_ctx`.
    fn configure(&self) -> Result<(), StopError> {
        let _turn = self.port.turn_to_start(QueueKind::Receive, self.number)?;
        let context = ReceiveContext {
            base_in_128_bytes: self.ring >> 7,
            ring_length: self.settings.descriptors,
            data_buffer_in_128_bytes: (self.buffer_bytes / 128) as u8,
            descriptors_of_32_bytes: true,
            strip_crc: true,
            tag_in_l2tag1: true,
            frame_bytes_max: self.settings.frame_bytes_max,
            hint_descriptor_read: true,
            hint_descriptor_write: true,
            hint_data: true,
            hint_header: true,
            low_threshold_64: LOW_THRESHOLD_64,
            prefetch: true,
            ..ReceiveContext::zeroed()
        };
        let registers = &self.port.registers;
        let layout = DescriptorProfile::ZERO
            .with_profile(self.profile.into())
            .with_priority(profile::LINUX_PRIORITY)
            .with_time_stamp(self.port.clock.get().is_some());
        let queue = u32::from(self.number);
        let mut writes = vec![(RECEIVE_QUEUE_PROFILE.at(queue), layout.0)];
        for (row, dword) in (0..).zip(context.dwords()) {
            writes.push((RECEIVE_QUEUE_CONTEXT.at(row, queue), dword));
        }
        self.port.configured().contexts.insert(self.number);
        let vectors = &self.port.registry.vectors;
        writes
            .into_iter()
            .try_for_each(|(offset, value)| registers.write(offset, value))
            .and_then(|()| vectors.bind_queue(self.number, self.port.vector, registers))
            .map_err(|error| not_confirmed(QueueKind::Receive, self.number, error))
    }

    fn enable(&self) -> Result<(), StopError> {
        let _turn = self.port.turn_to_start(QueueKind::Receive, self.number)?;
        let mut configured = self.port.configured();
        configured.running.insert((QueueKind::Receive, self.number));
        drop(configured);
        self.port.set_receive(self.number, true)
    }

    fn disable(&self) -> Result<(), StopError> {
        self.port.disable_receive(self.number)
    }

    fn arm(&self) -> Result<(), ArmError> {
        self.check_process()?;
        let vectors = &self.port.registry.vectors;
        vectors.arm(self.number, &self.port.service)
    }

    fn disarm(&self) -> Result<(), ArmError> {
        self.check_process()?;
        let vectors = &self.port.registry.vectors;
        vectors.disarm(self.number, &self.port.service)
    }
}

impl QueueControl for TransmitControl {
    fn configure(&self) -> Result<(), StopError> {
        Ok(())
    }

    /// The context goes to the firmware, which begins at descriptor 0.
    fn enable(&self) -> Result<(), StopError> {
        let _turn = self.port.turn_to_start(QueueKind::Transmit, self.number)?;
        let is_own = self.port.further.is_none();
        let context = TransmitContext {
            base_in_128_bytes: self.ring >> 7,
            port: self.port.port,
            function: self.port.function,
            // A further VSI is of the type of a virtual machine's. Source: ice `ice_base.c`,
            // `ice_setup_tx_ctx`, which leaves the machine's number at 0, too.
            owner: match is_own {
                true => owner::PHYSICAL_FUNCTION,
                false => owner::VIRTUAL_MACHINE,
            },
            vsi: self.port.vsi,
            // The function's own VSI alone sends packets to be stamped.
            time_stamp_enable: is_own,
            ring_length: self.settings.descriptors,
            segmentation_enable: true,
            segmentation_queue: self.number,
            legacy_interrupt: true,
            ..TransmitContext::zeroed()
        };
        let failed = |error: &dyn Display| not_confirmed(QueueKind::Transmit, self.number, error);
        let admin = self.port.admin().map_err(|error| failed(&error))?;
        let group = self.port.group_of(self.number);
        let group = group.ok_or_else(|| failed(&NO_GROUP))?;
        let cause = self.port.cause(TRANSMIT_QUEUE_CAUSE.at(self.number.into()));
        if let Some((offset, value)) = cause {
            let written = self.port.registers.write(offset, value);
            written.map_err(|error| failed(&error))?;
        }
        // Even if the command fails, the device may use the queue from here on.
        let running = (QueueKind::Transmit, self.number);
        let is_new = self.port.configured().running.insert(running);
        let added = admin.add_transmit_queue(group, self.number, &context);
        // A refusal says nothing about a queue of this number that was there before.
        if let Err(error) = &added
            && error.code().is_some()
            && is_new
        {
            self.port.configured().running.remove(&running);
        }
        added.map(|_| ()).map_err(|error| failed(&error))
    }

    fn disable(&self) -> Result<(), StopError> {
        self.port.disable_transmit(self.number)
    }

    fn inserts_outer_tag_alone(&self) -> bool {
        self.port.vlan_mode == VlanMode::Double
    }
}

/// Turns of threads that start and stop queues of a VSI.
impl PortShared {
    /// Waits for the turn to start or stop a queue. Without it, a shutdown that stops the running
    /// queues would miss one that another thread is starting, and release its memory.
    ///
    /// Order of locks: after that of the director, before all others.
    pub(super) fn queue_turn(&self) -> MutexGuard<'_, ()> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The turn to stop a queue; refused in a child by fork, where it may never come.
    fn turn_to_stop(&self, kind: QueueKind, number: u16) -> Result<MutexGuard<'_, ()>, StopError> {
        let checked = self.pool.check_process();
        checked.map_err(|error| not_confirmed(kind, number, error))?;
        Ok(self.queue_turn())
    }

    /// The turn to start a queue; refused without a wait once the shutdown has begun.
    fn turn_to_start(&self, kind: QueueKind, number: u16) -> Result<MutexGuard<'_, ()>, StopError> {
        let open = |shared: &Self| match shared.configured().closed {
            true => Err(StopError::OutOfService),
            false => Ok(()),
        };
        // In a child by fork even the look may never end.
        let checked = self.pool.check_process();
        checked.map_err(|error| not_confirmed(kind, number, error))?;
        open(self)?;
        let turn = self.queue_turn();
        open(self)?;
        Ok(turn)
    }
}

impl PortShared {
    /// The register that binds a queue's cause to the vector of polled queues, and its value. That
    /// vector never fires; bound to it, the device writes descriptors back when its interval ends,
    /// not only when a cache line is full.
    fn cause(&self, offset: u64) -> Option<(u64, u32)> {
        Some((offset, cause_of(self.vector?).0))
    }

    /// Has the device write descriptors back whenever an interval of the vector of polled queues
    /// ends. Interval and unit are set, too: they are those of the vector's and the device's last
    /// driver.
    pub(super) fn open_vector(&self) -> Result<(), super::PortError> {
        let Some(vector) = self.vector else {
            return Ok(());
        };
        self.count_intervals_in_units()?;
        let interval = ThrottleInterval::ZERO.with_interval(WRITE_BACK_UNITS);
        let register = THROTTLE_INTERVAL.at(THROTTLE_RECEIVE, vector.into());
        self.registers.write(register, interval.0)?;
        let register = VECTOR_CONTROL.at(vector.into());
        Ok(self.registers.write(register, writes_back().0)?)
    }

    /// Sets the unit of intervals of the device, unless it is that of all drivers already. It
    /// stays: other functions count on it. Source: ice `ice_base.c`, `ice_cfg_itr_gran`.
    fn count_intervals_in_units(&self) -> Result<(), super::PortError> {
        let wanted = InterruptControl::ZERO
            .with_granularity_200(THROTTLE_UNIT_US)
            .with_granularity_100(THROTTLE_UNIT_US)
            .with_granularity_50(THROTTLE_UNIT_US)
            .with_granularity_25(THROTTLE_UNIT_US);
        let mask = InterruptControl::DEFINED;
        if self.registers.read(INTERRUPT_CONTROL)? & mask == wanted.0 {
            return Ok(());
        }
        Ok(self.registers.write(INTERRUPT_CONTROL, wanted.0)?)
    }

    pub(super) fn close_vector(&self) {
        let Some(vector) = self.vector else {
            return;
        };
        let control = VECTOR_CONTROL.at(vector.into());
        let interval = THROTTLE_INTERVAL.at(THROTTLE_RECEIVE, vector.into());
        for register in [control, interval] {
            if let Err(error) = self.registers.write(register, 0) {
                tracing::warn!(%error, vector, "a vector stays as it is");
            }
        }
    }

    /// Enables or disables a receive queue, and waits until the device reports the new state.
    fn set_receive(&self, number: u16, enabled: bool) -> Result<(), StopError> {
        let failed = |error: &dyn Display| not_confirmed(QueueKind::Receive, number, error);
        let register = RECEIVE_QUEUE_CONTROL.at(number.into());
        let control = ReceiveQueueControl::ZERO.with_enable_request(enabled);
        let written = self.registers.write(register, control.0);
        written.map_err(|error| failed(&error))?;
        let polled = self
            .registers
            .poll(register, self.quiesce, STEP, |value| {
                ReceiveQueueControl(value).enable_status() == enabled
            })
            .map_err(|error| failed(&error))?;
        if polled.ready {
            return Ok(());
        }
        let waited = self.quiesce.as_millis();
        let text = format!("QRX_CTRL still reads {:#x} after {waited} ms", polled.value);
        Err(failed(&text))
    }

    pub(super) fn disable_receive(&self, number: u16) -> Result<(), StopError> {
        if !self.service.in_service() {
            return Err(StopError::OutOfService);
        }
        let _turn = self.turn_to_stop(QueueKind::Receive, number)?;
        let key = (QueueKind::Receive, number);
        if !self.configured().running.contains(&key) {
            return Ok(());
        }
        // First, as ice's `ice_down` does.
        self.unbind(RECEIVE_QUEUE_CAUSE.at(number.into()));
        self.set_receive(number, false)?;
        self.configured().running.remove(&key);
        Ok(())
    }

    pub(super) fn disable_transmit(&self, number: u16) -> Result<(), StopError> {
        if !self.service.in_service() {
            return Err(StopError::OutOfService);
        }
        let _turn = self.turn_to_stop(QueueKind::Transmit, number)?;
        let key = (QueueKind::Transmit, number);
        if !self.configured().running.contains(&key) {
            return Ok(());
        }
        let failed = |error: &dyn Display| not_confirmed(QueueKind::Transmit, number, error);
        let admin = self.admin().map_err(|error| failed(&error))?;
        let group = self.group_of(number).ok_or_else(|| failed(&NO_GROUP))?;
        self.unbind(TRANSMIT_QUEUE_CAUSE.at(number.into()));
        pause(&**self.registers.clock(), CAUSE_OFF);
        self.trigger_vector();
        match admin.remove_transmit_queue(group, number) {
            // An earlier attempt whose answer was lost removed it.
            Err(error) if error.code() == Some(ReturnCode::NoEntry) => {}
            removed => removed.map_err(|error| failed(&error))?,
        }
        self.configured().running.remove(&key);
        Ok(())
    }

    /// Removes the addresses of rings and buffers from the device, and the causes that interrupts
    /// bound while their queue was stopped. The receive queues are disabled.
    pub(super) fn clear_contexts(&self) {
        let numbers = std::mem::take(&mut self.configured().contexts);
        for queue in numbers.into_iter().map(u32::from) {
            let rows = (0..RECEIVE_CONTEXT_DWORDS).map(|row| RECEIVE_QUEUE_CONTEXT.at(row, queue));
            let others = [
                RECEIVE_QUEUE_CAUSE.at(queue),
                RECEIVE_QUEUE_PROFILE.at(queue),
                RECEIVE_QUEUE_TAIL.at(queue),
            ];
            for offset in rows.chain(others) {
                if let Err(error) = self.registers.write(offset, 0) {
                    tracing::warn!(%error, queue, "the device keeps the context of a receive queue");
                    return;
                }
            }
        }
    }

    /// Fires the vector once, so that the device ends what the queue's cause has begun. The vector
    /// is not enabled: no interrupt follows. Source: ice `ice_base.c`, `ice_vsi_stop_tx_ring`.
    fn trigger_vector(&self) {
        let Some(vector) = self.vector else {
            return;
        };
        let control = writes_back().with_software_trigger(true);
        let register = VECTOR_CONTROL.at(vector.into());
        if let Err(error) = self.registers.write(register, control.0) {
            tracing::warn!(%error, vector, "a vector was not triggered");
        }
    }

    fn unbind(&self, offset: u64) {
        if self.vector.is_some()
            && let Err(error) = self.registers.write(offset, 0)
        {
            tracing::warn!(%error, "a queue's cause stays bound");
        }
    }
}

impl PortShared {
    /// Makes receive queue `number` of the VSI.
    pub(super) fn receive_queue(
        self: &Arc<Self>,
        number: u16,
        settings: ReceiveSettings,
        packets: PacketPool,
    ) -> Result<ReceiveQueue, PortError> {
        let number = self.first.0 + number;
        let bytes =
            usize::from(settings.descriptors) * ringside_spec::lan::receive::DESCRIPTOR_BYTES;
        let memory = self.pool.allocate(bytes, 4096)?;
        let control = ReceiveControl {
            port: Arc::clone(self),
            number,
            ring: memory.iova().0,
            settings,
            buffer_bytes: packets.settings().buffer_bytes,
            profile: profile::NIC,
        };
        let tail = self.doorbell(RECEIVE_QUEUE_TAIL.at(number.into()))?;
        let service = Arc::clone(&self.service);
        let queue = ReceiveQueue::new(settings, memory, packets, tail, service, Arc::new(control));
        Ok(queue?)
    }

    /// Makes transmit queue `number` of the VSI.
    pub(super) fn transmit_queue(
        self: &Arc<Self>,
        number: u16,
        settings: TransmitSettings,
        packets: PacketPool,
    ) -> Result<TransmitQueue, PortError> {
        let number = self.first.1 + number;
        let bytes =
            usize::from(settings.descriptors) * ringside_spec::lan::transmit::DESCRIPTOR_BYTES;
        let memory = self.pool.allocate(bytes, 4096)?;
        let control = TransmitControl {
            port: Arc::clone(self),
            number,
            ring: memory.iova().0,
            settings,
        };
        let bell = self.doorbell(TRANSMIT_QUEUE_DOORBELL.at(number.into()))?;
        let service = Arc::clone(&self.service);
        let queue = TransmitQueue::new(settings, memory, packets, bell, service, Arc::new(control));
        Ok(queue?)
    }
}
