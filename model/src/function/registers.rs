//! Registers with meaning: resets, interrupts, control queues, counters, and who else owns some.

use super::profiles::is_of_profiles;
use super::register_file::{is_cleared_by_ones, is_known, is_read_only};
use super::statistics::Statistics;
use super::{Context, FunctionModel, bar_bytes, lend};
use crate::device::Reply;
use crate::faults::Fault;
use crate::record::{Event, RegisterWrite};
use crate::reset_kind::ResetKind;
use ringside_bus::{DmaSpace, Instant};
use ringside_spec::lan::identity;
use ringside_spec::lan::registers::control_queues::RINGS;
use ringside_spec::lan::registers::interrupts;
use ringside_spec::lan::registers::queues;
use ringside_spec::lan::registers::reset::{self, FunctionControl, ResetStatus, ResetTrigger};
use ringside_spec::rdma::registers as rdma;
use std::ops::Range;

/// Registers of the protocol engine.
const PROTOCOL_ENGINE: Range<u64> = 0x50_0000..0x55_0000;

/// The value that a function in reset, or without memory space, reads as.
const ALL_ONES: u32 = u32::MAX;

fn is_doorbell(offset: u64) -> bool {
    (rdma::DOORBELL_PAGE..rdma::DOORBELL_PAGE + rdma::DOORBELL_PAGE_BYTES).contains(&offset)
}

/// True for doorbells, queue tails and interrupt controls, which drivers write continuously.
fn is_rung(offset: u64) -> bool {
    let rings = [
        queues::RECEIVE_QUEUE_TAIL,
        queues::TRANSMIT_QUEUE_DOORBELL,
        interrupts::VECTOR_CONTROL,
    ];
    is_doorbell(offset)
        || [rdma::CQP_DOORBELL, rdma::WQE_ALLOCATE].contains(&offset)
        || rings.iter().any(|ring| ring.index_of(offset).is_some())
        || RINGS.iter().any(|ring| ring.tail == offset)
}

impl FunctionModel {
    pub(super) fn read_bar(
        &mut self,
        bar: u8,
        offset: u64,
        width: u8,
        space: &DmaSpace,
        now: Instant,
    ) -> Reply {
        if let Some(refused) = refuse_access(bar, offset, width) {
            return refused;
        }
        let mut value = u64::from(self.read_dword(bar, offset, space, now));
        if width == 8 {
            value |= u64::from(self.read_dword(bar, offset + 4, space, now)) << 32;
        }
        self.deliver_causes();
        Reply::Value(value)
    }

    pub(super) fn write_bar(
        &mut self,
        bar: u8,
        offset: u64,
        width: u8,
        value: u64,
        space: &DmaSpace,
        now: Instant,
    ) -> Reply {
        if let Some(refused) = refuse_access(bar, offset, width) {
            return refused;
        }
        self.write_dword(bar, offset, value as u32, space, now);
        if width == 8 {
            self.write_dword(bar, offset + 4, (value >> 32) as u32, space, now);
        }
        self.deliver_causes();
        Reply::Done
    }

    fn read_dword(&mut self, bar: u8, offset: u64, space: &DmaSpace, now: Instant) -> u32 {
        if !self.config.command().memory_space() {
            self.ledger
                .breach("register read while memory space is off", || {
                    format!("BAR {bar} offset {offset:#x}")
                });
            return ALL_ONES;
        }
        if bar == identity::MSIX_BAR {
            return self.msix_table.get(offset);
        }
        if let Some(value) = self.read_engine(offset, space, now) {
            return value;
        }
        if let Some(queue) = queues::TRANSMIT_QUEUE_HEAD.index_of(offset) {
            return self.transmit_head(queue);
        }
        if let Some(value) = self.read_clock(offset, now) {
            return value;
        }
        match offset {
            reset::FUNCTION_CONTROL => {
                let running = self.function_in_reset(now);
                FunctionControl::ZERO.with_software_reset(running).0
            }
            reset::RESET_STATUS => self.reset_status(now),
            reset::FLASH_LOAD_DONE if self.is_loaded(now) => reset::FLASH_LOAD_DONE_RDMA,
            reset::FLASH_LOAD_DONE => 0,
            reset::DCB_STATUS => self.firmware.bridging_status(&self.faults),
            interrupts::OTHER_CAUSES => self.interrupts.take_other_causes(),
            _ => self.read_plain(offset),
        }
    }

    fn read_plain(&self, offset: u64) -> u32 {
        if let Some(value) = self.firmware.ring_register(offset) {
            return value;
        }
        if let Some(value) = self.firmware.pause_register(offset) {
            return value;
        }
        let port = u32::from(self.settings.pci_function);
        let vsi = self.firmware.function_vsi();
        if let Some(value) = self.filter_register(offset) {
            return value;
        }
        let counters = self.lan.counters();
        match self.statistics.register(offset, port, vsi, counters) {
            Some(value) => value,
            None => self.registers.get(offset),
        }
    }

    /// Reads a register of the RDMA engine, or one that shows whether its processors run.
    fn read_engine(&mut self, offset: u64, space: &DmaSpace, now: Instant) -> Option<u32> {
        if rdma::CPU_STATUS.contains(&offset) {
            let status = self.faults.iter().find_map(|fault| match fault {
                Fault::ProtocolEngineStatus(status) => Some(*status),
                _ => None,
            });
            return Some(status.unwrap_or(rdma::CPU_STATUS_READY));
        }
        if PROTOCOL_ENGINE.contains(&offset) || is_doorbell(offset) {
            let mut context = lend!(self, space, now);
            return self.rdma.register_read(offset, &mut context);
        }
        None
    }

    fn write_dword(&mut self, bar: u8, offset: u64, value: u32, space: &DmaSpace, now: Instant) {
        if !self.config.command().memory_space() {
            self.ledger
                .breach("register write while memory space is off", || {
                    format!("{value:#x} to BAR {bar} offset {offset:#x}")
                });
            return;
        }
        if bar == identity::MSIX_BAR {
            self.msix_table.set(offset, value);
            return;
        }
        if self.function_in_reset(now) && offset != reset::FUNCTION_CONTROL {
            self.ledger
                .breach("register write during a reset of the function", || {
                    format!("{value:#x} to {offset:#x}")
                });
            return;
        }
        if let Some(tap) = &self.tap
            && !is_rung(offset)
        {
            let write = RegisterWrite { offset, value };
            tap.note(now, Event::Register(write));
        }
        if PROTOCOL_ENGINE.contains(&offset) || is_doorbell(offset) {
            let mut context = lend!(self, space, now);
            if self.rdma.register_write(offset, value, &mut context) {
                return;
            }
        }
        if !self.write_queue_register(offset, value, space, now)
            && !self.write_clock(offset, value, now)
        {
            self.write_control(offset, value, space, now);
        }
    }

    fn write_control(&mut self, offset: u64, value: u32, space: &DmaSpace, now: Instant) {
        match offset {
            reset::FUNCTION_CONTROL => {
                if FunctionControl(value).software_reset() && !self.function_in_reset(now) {
                    self.ledger.excuse(false);
                    if !self.is_loaded(now) {
                        self.ledger.breach(
                            "function reset while the device loads from its flash",
                            String::new,
                        );
                    }
                    self.begin_reset(ResetKind::Function, now);
                }
            }
            reset::RESET_TRIGGER => self.trigger_reset(ResetTrigger(value), now),
            interrupts::OTHER_CAUSES => self.interrupts.raise_other(value, &mut self.registers),
            interrupts::OTHER_CAUSES_CONTROL => {
                self.interrupts.other_control_written();
                self.registers.set(offset, value);
            }
            _ => self.write_plain(offset, value, space, now),
        }
    }

    fn trigger_reset(&mut self, trigger: ResetTrigger, now: Instant) {
        let wanted = [
            (trigger.firmware(), ResetKind::Firmware),
            (trigger.global(), ResetKind::Global),
            (trigger.core(), ResetKind::Core),
        ];
        if let Some((_, kind)) = wanted.into_iter().find(|(asked, _)| *asked) {
            self.ledger.excuse(false);
            self.begin_reset(kind, now);
        }
    }

    fn write_plain(&mut self, offset: u64, value: u32, space: &DmaSpace, now: Instant) {
        let mut context = lend!(self, space, now);
        if self
            .firmware
            .write_ring_register(offset, value, &mut context)
        {
            return;
        }
        if let Some(vector) = interrupts::VECTOR_CONTROL.index_of(offset) {
            self.interrupts
                .control_vector(vector, value, &mut self.registers);
        } else if is_cleared_by_ones(offset) {
            let left = self.registers.get(offset) & !value;
            self.registers.set(offset, left);
        } else if offset == reset::PORT_STATUS {
            // Linux lets a ring that is being replaced ring here: ice 6.12 `ice_ethtool.c`,
            // `ice_set_ringparam`.
            tracing::trace!(value, "PRTGEN_STATUS written");
        } else if self
            .statistics
            .clear_causes(offset, value, self.lan.counters())
        {
            tracing::trace!(offset, "causes of dropped frames cleared");
        } else if is_read_only(offset) || Statistics::is_counter(offset) {
            self.ledger.breach("write to a read-only register", || {
                format!("{value:#x} to {offset:#x}")
            });
        } else if self.write_filter_counter(offset, value) {
            tracing::trace!(offset, value, "flow director counter written");
        } else if is_known(offset) {
            self.registers.set(offset, value);
            if is_of_profiles(offset) {
                self.stale = true;
                self.passes = false;
            }
        } else {
            self.ledger.breach("write to an unknown register", || {
                format!("{value:#x} to {offset:#x}")
            });
        }
    }

    pub(super) fn function_in_reset(&self, now: Instant) -> bool {
        let endless = self.faults.contains(&Fault::ResetNeverEnds);
        self.resets
            .function_until
            .is_some_and(|until| endless || now < until)
    }

    fn device_in_reset(&self, now: Instant) -> bool {
        self.resets.device_until.is_some_and(|until| now < until)
    }

    /// All has been loaded from the flash, which takes longer than the reset itself.
    /// Source: ice `ice_common.c`, `ice_check_reset` and `ice_pf_reset`.
    fn is_loaded(&self, now: Instant) -> bool {
        let loading = self.resets.loaded_at.is_some_and(|until| now < until);
        !loading && !self.faults.contains(&Fault::FirmwareNeverReady)
    }

    fn reset_status(&self, now: Instant) -> u32 {
        let kind = match self.resets.last {
            None | Some(ResetKind::Function) => 0,
            Some(ResetKind::Core) => 1,
            Some(ResetKind::Global) => 2,
            Some(ResetKind::Firmware) => 3,
        };
        ResetStatus::ZERO
            .with_device_state(u32::from(self.device_in_reset(now)))
            .with_reset_type(kind)
            .with_core_count(self.resets.core_count & 3)
            .with_global_count(self.resets.global_count & 3)
            .with_firmware_count(self.resets.firmware_count & 3)
            .0
    }

    /// Ends resets whose time has come; true if any did.
    pub(super) fn end_resets(&mut self, now: Instant) -> bool {
        if self.resets.function_until.is_none() && self.resets.device_until.is_none() {
            return false;
        }
        let mut ended = false;
        if self.resets.function_until.is_some() && !self.function_in_reset(now) {
            self.resets.function_until = None;
            ended = true;
        }
        if self.resets.device_until.is_some() && !self.device_in_reset(now) {
            self.resets.device_until = None;
            ended = true;
        }
        ended
    }
}

/// Accesses that no bus would carry out: outside of the BAR, misaligned, of another width.
fn refuse_access(bar: u8, offset: u64, width: u8) -> Option<Reply> {
    let size = bar_bytes(bar);
    let aligned = matches!(width, 4 | 8) && offset.is_multiple_of(4);
    let inside = offset
        .checked_add(u64::from(width))
        .is_some_and(|end| end <= size);
    (!aligned || !inside).then(|| {
        Reply::Refused(format!(
            "{width} bytes at {offset:#x} of BAR {bar}, which has {size:#x} bytes: accesses take 4 or 8 bytes at multiples of 4"
        ))
    })
}
