//! The registers that only hold a value, and their values after resets.

use crate::firmware::FilterEntries;
use crate::reset_kind::ResetKind;
use ringside_spec::lan::registers::{self, filters, interrupts, queues, reset as reset_registers};
use ringside_spec::rdma::registers as rdma_registers;
use std::collections::BTreeMap;

const PAGE_REGISTERS: usize = 1024;

/// A sparse array of 32-bit registers.
#[derive(Clone)]
pub(super) struct RegisterFile {
    pages: Vec<Option<Box<[u32; PAGE_REGISTERS]>>>,
    defaults: Vec<(u64, u32)>,
}

/// Registers that a reset leaves at something else than zero: offset and value.
pub(super) fn reset_values(pci_function: u8) -> Vec<(u64, u32)> {
    let mut values = device_values(pci_function.into());
    values.extend(resource_values());
    values
}

/// Identity, flash, clocks, port.
fn device_values(function: u32) -> Vec<(u64, u32)> {
    vec![
        (reset_registers::FLASH_GENERAL, flash_general()),
        (
            reset_registers::FLASH_ACCESS,
            reset_registers::FlashAccess::ZERO.with_locked(true).0,
        ),
        (
            reset_registers::FUNCTION_REQUESTER_ID,
            reset_registers::RequesterId::ZERO
                .with_function(function & 7)
                .0,
        ),
        (reset_registers::PORT_STATUS, 0b11),
        (
            reset_registers::POWER_MODE_CONTROL,
            reset_registers::PowerMode::ZERO.with_bandwidth_max(1).0,
        ),
        (
            reset_registers::CLOCK_SOURCE,
            reset_registers::ClockSource::ZERO.with_scheduler(2).0,
        ),
        (
            reset_registers::RESET_CONTROL,
            reset_registers::ResetControl::ZERO.with_delay_100ms(2).0,
        ),
    ]
}

/// The resources that the function was given: vectors, queues, doorbells; and the device's filters.
fn resource_values() -> Vec<(u64, u32)> {
    vec![
        (
            filters::FLOW_DIRECTOR_SIZE,
            filters::FlowDirectorSize::ZERO
                .with_guaranteed(FilterEntries::OF_DEVICE.guaranteed.into())
                .with_best_effort(FilterEntries::OF_DEVICE.shared.into())
                .0,
        ),
        (
            interrupts::VECTOR_ALLOCATION,
            interrupts::VectorAllocation::ZERO
                .with_last(1023)
                .with_valid(true)
                .0,
        ),
        (
            queues::RECEIVE_QUEUE_ALLOCATION,
            queues::ReceiveQueueAllocation::ZERO
                .with_last(511)
                .with_valid(true)
                .0,
        ),
        (
            queues::TRANSMIT_QUEUE_ALLOCATION,
            queues::TransmitQueueAllocation::ZERO
                .with_last(511)
                .with_valid(true)
                .0,
        ),
        (
            queues::PROFILE_FLAGS.at(0, 22),
            queues::ProfileFlags::ZERO
                .with_flag_0(1)
                .with_flag_1(2)
                .with_flag_2(3)
                .with_flag_3(4)
                .0,
        ),
        (
            rdma_registers::BAR_CONTROL,
            rdma_registers::BarControl::ZERO
                .with_prefetchable(true)
                .with_pe_doorbell_size(2)
                .0,
        ),
    ]
}

fn flash_general() -> u32 {
    // 2^6 KiB of shadow RAM
    reset_registers::FlashGeneral::ZERO
        .with_present(true)
        .with_shadow_ram_size_log2_kib(6)
        .0
}

/// The weakest reset that clears the register.
fn cleared_by(offset: u64) -> ResetKind {
    let errors = [
        rdma_registers::HMC_ERROR_INFO,
        rdma_registers::HMC_ERROR_DATA,
        rdma_registers::CRITICAL_ERROR,
    ];
    if queues::RECEIVE_QUEUE_CONTROL.index_of(offset).is_some() || errors.contains(&offset) {
        ResetKind::Function
    } else {
        ResetKind::Core
    }
}

/// True for a register that a driver may only read. Writes to it are breaches.
pub(super) fn is_read_only(offset: u64) -> bool {
    [
        reset_registers::RESET_STATUS,
        reset_registers::FLASH_LOAD_DONE,
        reset_registers::FLASH_GENERAL,
        reset_registers::FLASH_ACCESS,
        reset_registers::FIRMWARE_STATUS,
        reset_registers::FUNCTION_REQUESTER_ID,
        reset_registers::PORT_STATUS,
        reset_registers::POWER_MODE_CONTROL,
        reset_registers::CLOCK_SOURCE,
        reset_registers::DCB_STATUS,
        reset_registers::PAUSE_QUANTA,
        reset_registers::PAUSE_REFRESH,
        filters::FLOW_DIRECTOR_SIZE,
        filters::FLOW_DIRECTOR_COUNT,
        filters::FUNCTION_FLOW_DIRECTOR_SIZE,
        interrupts::VECTOR_ALLOCATION,
        queues::RECEIVE_QUEUE_ALLOCATION,
        queues::TRANSMIT_QUEUE_ALLOCATION,
        rdma_registers::BAR_CONTROL,
    ]
    .contains(&offset)
        || rdma_registers::CPU_STATUS.contains(&offset)
}

/// Registers that are cleared by writing ones.
pub(super) fn is_cleared_by_ones(offset: u64) -> bool {
    [
        reset_registers::WAKE_UP_STATUS,
        reset_registers::MALICIOUS_TRANSMIT_QUEUE_MANAGER,
        reset_registers::MALICIOUS_TRANSMIT_SCHEDULER,
        reset_registers::MALICIOUS_TRANSMIT_DATA,
        reset_registers::MALICIOUS_RECEIVE,
        reset_registers::FUNCTION_MALICIOUS_TRANSMIT_QUEUE_MANAGER,
        reset_registers::FUNCTION_MALICIOUS_TRANSMIT_SCHEDULER,
        reset_registers::FUNCTION_MALICIOUS_TRANSMIT_DATA,
        reset_registers::FUNCTION_MALICIOUS_RECEIVE,
    ]
    .contains(&offset)
}

/// True for registers that Linux or DPDK access; a write to any other is a breach.
pub(super) fn is_known(offset: u64) -> bool {
    /// First and last offset of ranges that Linux and DPDK write and that have no name yet: virtual
    /// functions' triggers, states, vectors and queue bases, per-VF events, and what the RDMA
    /// driver sets for each VSI and vector.
    const RANGES: &[(u64, u64)] = &[
        (0x09_0000, 0x09_03FC),
        (0x09_0800, 0x09_0BFC),
        (0x09_3A04, 0x09_3A20),
        (0x07_2000, 0x07_43FC),
        (0x1D_1000, 0x1D_1BFC),
        (0x09_D000, 0x09_D3FC),
        (0x04_0000, 0x04_03FC),
        (0x0F_B800, 0x0F_BBFC),
        (0x2D_2000, 0x2D_23FC),
        (0x29_4400, 0x29_47FC),
        (0x16_A000, 0x16_ABFC),
        (0x20_F0FC, 0x20_F110),
        (0x41_4000, 0x41_4BFC),
        (0x08_8800, 0x08_89FC),
        // DPDK and Intel's ice 2.6.6: watermarks of the receive buffer, pins, queue contexts read
        // through a window, doorbell queues, quanta, configuration space of virtual functions,
        // their mailboxes and asynchronous events.
        (0x0A_C330, 0x0A_C42C),
        (0x08_80C8, 0x08_80E0),
        (0x2D_2D40, 0x2D_2DA4),
        (0x2D_2DC8, 0x2D_2DCC),
        (0x2D_0000, 0x2D_17FC),
        (0x09_E500, 0x09_E500),
        (0x09_E580, 0x09_E580),
        (0x22_A800, 0x22_ABFC),
        (0x22_BC00, 0x22_BFFC),
        (0x16_B800, 0x16_BBFC),
        // irdma of FreeBSD: `icrdma.c`, `icrdma_init_hw`.
        (0x50_E000, 0x50_E004),
        (0x05_2054, 0x05_2054),
    ];
    /// The function's hash table, `PFQF_HLUT`: first and last offset, and bytes between two.
    const HASH_TABLE: (u64, u64, u64) = (0x43_0000, 0x43_7FC0, 64);
    let (first, last, step) = HASH_TABLE;
    let in_hash_table = (first..=last).contains(&offset) && offset.is_multiple_of(step);
    registers::name_of(offset).is_some()
        || in_hash_table
        || RANGES
            .iter()
            .any(|(first, last)| (*first..=*last).contains(&offset))
        || offset == rdma_registers::AEQ_CAUSE_CONTROL
        || is_read_only(offset)
        || offset == rdma_registers::CRITICAL_ERROR
        || offset == rdma_registers::HMC_ERROR_INFO
}

impl RegisterFile {
    /// `bytes` of registers that are zero but for `defaults`.
    pub(super) fn new(bytes: u64, defaults: Vec<(u64, u32)>) -> Self {
        let pages = (bytes / 4) as usize / PAGE_REGISTERS;
        let mut file = Self {
            pages: vec![None; pages],
            defaults,
        };
        file.fill_in();
        file
    }

    fn fill_in(&mut self) {
        for index in 0..self.defaults.len() {
            if let Some(&(offset, value)) = self.defaults.get(index) {
                self.set(offset, value);
            }
        }
    }

    pub(super) fn get(&self, offset: u64) -> u32 {
        let index = (offset / 4) as usize;
        let page = self
            .pages
            .get(index / PAGE_REGISTERS)
            .and_then(Option::as_deref);
        page.and_then(|page| page.get(index % PAGE_REGISTERS))
            .copied()
            .unwrap_or(0)
    }

    pub(super) fn set(&mut self, offset: u64, value: u32) {
        let index = (offset / 4) as usize;
        let Some(page) = self.pages.get_mut(index / PAGE_REGISTERS) else {
            return;
        };
        if page.is_none() && value == 0 {
            return;
        }
        let page = page.get_or_insert_with(|| Box::new([0; PAGE_REGISTERS]));
        if let Some(place) = page.get_mut(index % PAGE_REGISTERS) {
            *place = value;
        }
    }

    fn used(&self) -> impl Iterator<Item = (u64, u32)> + '_ {
        let pages = self.pages.iter().enumerate();
        pages
            .filter_map(|(number, page)| Some((number, page.as_deref()?)))
            .flat_map(|(number, page)| {
                let first = number * PAGE_REGISTERS;
                let values = page.iter().enumerate();
                values.map(move |(index, value)| ((first + index) as u64 * 4, *value))
            })
    }

    /// Clears the registers of a reset of that strength.
    pub(super) fn reset(&mut self, kind: ResetKind) {
        let cleared: Vec<_> = self
            .used()
            .filter(|(offset, value)| *value != 0 && cleared_by(*offset) <= kind)
            .map(|(offset, _)| offset)
            .collect();
        for offset in cleared {
            self.set(offset, 0);
        }
        if kind >= ResetKind::Core {
            self.fill_in();
        }
    }

    /// Registers that are not as the strongest reset leaves them.
    pub(super) fn differences(&self) -> Vec<(u64, u32)> {
        // If a register is listed twice, the first value counts.
        let defaults: BTreeMap<u64, u32> = self.defaults.iter().rev().copied().collect();
        self.used()
            .filter(|(offset, value)| *value != defaults.get(offset).copied().unwrap_or(0))
            .collect()
    }
}
