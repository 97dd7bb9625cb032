//! The start of the flow director: the queues that program rules, and a VSI's use of it.

use crate::admin::AdminQueue;
use crate::admin::commands::plain;
use crate::lan::port::PortError;
use crate::lan::port::control::{ReceiveControl, TransmitControl};
use crate::lan::port::director::Director;
use crate::lan::port::shared::PortShared;
use crate::lan::port::tables::Block;
use ringside_bus::Doorbell;
use ringside_lan::{
    FILTER_PACKETS_BYTES, FILTER_RING_ENTRIES, FilterMemory, FilterQueue, QueueControl,
    ReceiveSettings, TransmitSettings,
};
use ringside_spec::lan::admin::switch::Resource;
use ringside_spec::lan::admin::vsi::{
    FlowDirectorOptions, FlowDirectorReport, VsiProperties, VsiSections,
};
use ringside_spec::lan::receive::profile;
use ringside_spec::lan::registers::filters::{
    FLOW_DIRECTOR_ENABLE, FLOW_DIRECTOR_SIZE, FUNCTION_FLOW_DIRECTOR_SIZE, FlowDirectorSize,
};
use ringside_spec::lan::registers::queues::{RECEIVE_QUEUE_TAIL, TRANSMIT_QUEUE_DOORBELL};
use std::sync::Arc;

/// Bytes of a buffer and of a frame of the queue for reports. It gets no buffers, but the device
/// requires valid sizes. Source: DPDK ice `ice_fdir_program_hw_rx_queue`.
const REPORT_BUFFER_BYTES: u16 = 1024;
const REPORT_FRAME_BYTES: u16 = 1518;

impl PortShared {
    /// Has a further VSI look for rules: in the group of the port, whose profiles its rules use.
    pub(super) fn join_director(
        &self,
        admin: &AdminQueue,
        director: &mut Director,
    ) -> Result<(), PortError> {
        let Some(further) = &self.further else {
            return Ok(());
        };
        if director.joined.get(&self.vsi) == Some(&true) {
            return Ok(());
        }
        let size = FlowDirectorSize(self.registers.read(FUNCTION_FLOW_DIRECTOR_SIZE)?);
        // Recorded before the device is told: the end of the VSI takes it out again.
        director.joined.insert(self.vsi, false);
        let group = Block::FlowDirector.vsi_group(self.vsi, further.port.group_number());
        let joined = admin
            .update_vsi(self.vsi, &filtering(Some(Filtering::Found(size))))
            .and_then(|()| admin.update_tables(&[group]));
        match joined {
            Ok(()) => {
                director.joined.insert(self.vsi, true);
            }
            Err(_) => self.leave_director(admin),
        }
        Ok(joined?)
    }

    /// Ends the VSI's look for rules.
    pub(super) fn leave_director(&self, admin: &AdminQueue) {
        let group = Block::FlowDirector.vsi_group(self.vsi, 0);
        if let Err(error) = admin.update_tables(&[group]) {
            tracing::warn!(%error, "the VSI stays in its group of filter profiles");
        }
        if let Err(error) = admin.update_vsi(self.vsi, &filtering(None)) {
            tracing::warn!(%error, "the VSI continues to look for rules");
        }
    }

    /// Makes the queues that program rules, unless that was done, and lets the VSI use them.
    pub(super) fn open_director(
        self: &Arc<Self>,
        admin: &AdminQueue,
        director: &mut Director,
    ) -> Result<(), PortError> {
        if director.queue.is_some() {
            return Ok(());
        }
        let (receive, transmit) = self.queues;
        let limits = [
            (
                "receive queues (one for reports of rules)",
                receive + 1,
                self.queues_max.0,
            ),
            (
                "transmit queues (one for rules)",
                transmit + 1,
                self.queues_max.1,
            ),
        ];
        for (what, wanted, limit) in limits {
            if wanted > limit {
                return Err(PortError::TooMany {
                    what,
                    wanted,
                    limit,
                });
            }
        }
        let size = self.entries(admin, director)?;
        // Queues of an earlier attempt that did not stop then.
        self.disable_receive(receive as u16)?;
        self.disable_transmit(transmit as u16)?;
        self.registers.write(FLOW_DIRECTOR_ENABLE, 1)?;
        let bells = match &director.bells {
            Some(bells) => bells.clone(),
            None => [
                self.doorbell(TRANSMIT_QUEUE_DOORBELL.at(transmit as u32))?,
                self.doorbell(RECEIVE_QUEUE_TAIL.at(receive as u32))?,
            ],
        };
        director.bells = Some(bells.clone());
        let queue = self.start_director(admin, size, bells)?;
        queue.start();
        director.queue = Some(queue);
        Ok(())
    }

    /// The function's entries for rules. The device gives none until they are allocated. Those that
    /// are there without that, as after a reset that did not take them back, are used as they are.
    /// Source: ice `ice_main.c`, `ice_rebuild`.
    fn entries(
        &self,
        admin: &AdminQueue,
        director: &mut Director,
    ) -> Result<FlowDirectorSize, PortError> {
        let mut size = FlowDirectorSize(self.registers.read(FUNCTION_FLOW_DIRECTOR_SIZE)?);
        if size.0 == 0 {
            self.allocate_entries(admin, director)?;
            size = FlowDirectorSize(self.registers.read(FUNCTION_FLOW_DIRECTOR_SIZE)?);
        }
        if size.guaranteed() + size.best_effort() == 0 {
            return Err(PortError::Invalid {
                what: "flow director",
                value: "without entries for this function".to_owned(),
                remedy: "give the function entries in the device's configuration",
            });
        }
        Ok(size)
    }

    /// Asks for the function's part of the device's guaranteed entries, and for all shared ones. A
    /// refusal is no error: the other kind may do.
    fn allocate_entries(
        &self,
        admin: &AdminQueue,
        director: &mut Director,
    ) -> Result<(), PortError> {
        // The device has just said that there are none.
        director.entries.clear();
        let device = FlowDirectorSize(self.registers.read(FLOW_DIRECTOR_SIZE)?);
        let part = device.guaranteed() / self.capabilities.functions.max(1);
        let wanted = [
            (Resource::FlowDirectorGuaranteed, part as u16),
            (Resource::FlowDirectorShared, device.best_effort() as u16),
        ];
        for (kind, amount) in wanted.into_iter().filter(|(_, amount)| *amount > 0) {
            // Recorded first: what an answer says that is lost may have been done.
            director.entries.push((kind, amount, 0));
            match admin.allocate_resource(plain(kind), amount) {
                Ok(number) => {
                    if let Some((_, _, recorded)) = director.entries.last_mut() {
                        *recorded = number;
                    }
                }
                Err(error) if error.code().is_some() => {
                    tracing::warn!(%error, ?kind, amount, "the device gives no such entries");
                    director.entries.pop();
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Frees the function's entries, at the end of the port.
    pub(super) fn free_entries(&self, admin: &AdminQueue, director: &mut Director) {
        for (kind, amount, number) in director.entries.drain(..) {
            if let Err(error) = admin.free_resource(kind, amount, number) {
                tracing::warn!(%error, ?kind, amount, "entries for rules stay until the next reset");
            }
        }
    }

    /// Starts the queues for rules, behind those of the port, and lets the VSI use them.
    ///
    /// Errors: [`PortError`]; the queues are stopped, and the VSI is as before.
    fn start_director(
        self: &Arc<Self>,
        admin: &AdminQueue,
        size: FlowDirectorSize,
        bells: [Doorbell; 2],
    ) -> Result<FilterQueue, PortError> {
        let (receive, transmit) = (self.queues.0 as u16, self.queues.1 as u16);
        let (queue, sends, reports) = self.filter_queue(receive, transmit, bells)?;
        let started = sends
            .enable()
            .and_then(|()| reports.configure())
            .map_err(PortError::from)
            .and_then(|()| self.clear_tail(receive))
            .and_then(|()| Ok(reports.enable()?));
        let failed = match started.and_then(|()| self.admit_reports(admin, size)) {
            Ok(()) => return Ok(queue),
            Err(error) => error,
        };
        let stopped = [
            self.disable_receive(receive),
            self.disable_transmit(transmit),
        ];
        match stopped.into_iter().collect::<Result<(), _>>() {
            Ok(()) => queue.free(),
            // Its memory is kept until the port is closed, or the device is reset.
            Err(error) => tracing::warn!(%error, "a queue for rules did not stop"),
        }
        Err(failed)
    }

    /// Clears the tail of a receive queue that is off: its register may be that of a longer ring of
    /// an earlier port.
    fn clear_tail(&self, queue: u16) -> Result<(), PortError> {
        let tail = RECEIVE_QUEUE_TAIL.at(queue.into());
        Ok(self.registers.write(tail, 0)?)
    }

    /// Gives the VSI the queue for reports, its entries and its group of profiles.
    ///
    /// Errors: [`PortError`]; the VSI is as before.
    fn admit_reports(&self, admin: &AdminQueue, size: FlowDirectorSize) -> Result<(), PortError> {
        let (receive, _) = self.queues;
        let admitted = self.map_queues(receive + 1).and_then(|()| {
            let programs = Filtering::Programmed(size, receive as u16);
            admin.update_vsi(self.vsi, &filtering(Some(programs)))?;
            let group = Block::FlowDirector.vsi_group(self.vsi, self.group_number());
            Ok(admin.update_tables(&[group])?)
        });
        if admitted.is_err() {
            let off = admin.update_vsi(self.vsi, &filtering(None));
            if let Err(error) = off.map_err(PortError::from).and(self.map_queues(receive)) {
                tracing::warn!(%error, "the VSI keeps the queue for reports of rules");
            }
        }
        admitted
    }

    /// One receive and one transmit queue of these numbers for rules, which the device does not use
    /// yet.
    fn filter_queue(
        self: &Arc<Self>,
        receive: u16,
        transmit: u16,
        [bell, tail]: [Doorbell; 2],
    ) -> Result<(FilterQueue, TransmitControl, ReceiveControl), PortError> {
        let entries = usize::from(FILTER_RING_ENTRIES);
        let memory = FilterMemory {
            ring: self.pool.allocate(entries * 16, 4096)?,
            reports: self.pool.allocate(entries * 32, 4096)?,
            packets: self.pool.allocate(FILTER_PACKETS_BYTES, 4096)?,
        };
        let sends = TransmitControl {
            port: Arc::clone(self),
            number: transmit,
            ring: memory.ring.iova().0,
            settings: TransmitSettings {
                descriptors: FILTER_RING_ENTRIES,
                path: None,
            },
        };
        let reports = ReceiveControl {
            port: Arc::clone(self),
            number: receive,
            ring: memory.reports.iova().0,
            settings: ReceiveSettings {
                descriptors: FILTER_RING_ENTRIES,
                frame_bytes_max: REPORT_FRAME_BYTES,
                path: None,
            },
            buffer_bytes: REPORT_BUFFER_BYTES,
            profile: profile::LEGACY_32,
        };
        let queue = FilterQueue::new(memory, bell, tail, Arc::clone(&self.service))?;
        Ok((queue, sends, reports))
    }
}

/// A VSI's use of the flow director.
#[derive(Clone, Copy)]
pub(super) enum Filtering {
    /// It looks for rules.
    Found(FlowDirectorSize),
    /// It also programs them, and has the queue for reports.
    Programmed(FlowDirectorSize, u16),
}

/// The section of the flow director: with entries and the queue for reports, or off.
pub(super) fn filtering(on: Option<Filtering>) -> VsiProperties {
    let sections = VsiSections::ZERO.with_flow_director(true);
    let off = VsiProperties {
        valid_sections: sections.0.into(),
        ..VsiProperties::zeroed()
    };
    let (size, reports, programs) = match on {
        None => return off,
        Some(Filtering::Found(size)) => (size, 0, false),
        Some(Filtering::Programmed(size, reports)) => (size, reports, true),
    };
    let options = FlowDirectorOptions::ZERO
        .with_enable(true)
        .with_program(programs);
    VsiProperties {
        flow_director_options: options.0.into(),
        flow_director_dedicated: (size.guaranteed() as u16).into(),
        flow_director_shared: (size.best_effort() as u16).into(),
        flow_director_report: FlowDirectorReport::ZERO.with_queue(reports).0.into(),
        ..off
    }
}
