//! One ring of descriptors: memory, registers, indices.

use super::AdminError;
use crate::Registers;
use ringside_bus::{DmaBuffer, DmaPool};
use ringside_spec::lan::admin::{DESCRIPTOR_SIZE, Descriptor};
use ringside_spec::lan::registers::control_queues::{
    RING_ALIGNMENT, RingIndex, RingLength, RingRegisters,
};
use std::sync::Arc;
use zerocopy::{FromBytes, IntoBytes};

/// Descriptors of each ring.
pub const RING_ENTRIES: u16 = 64;

/// One ring.
pub(super) struct Ring {
    names: &'static RingRegisters,
    memory: DmaBuffer,
    next: u16,
}

impl Ring {
    /// Memory for a ring that the device does not use yet.
    pub(super) fn new(
        names: &'static RingRegisters,
        pool: &Arc<DmaPool>,
    ) -> Result<Self, AdminError> {
        let bytes = usize::from(RING_ENTRIES) * DESCRIPTOR_SIZE;
        let memory = pool.allocate(bytes, 4096.max(RING_ALIGNMENT as usize))?;
        Ok(Self {
            names,
            memory,
            next: 0,
        })
    }

    /// Name of the ring in the data sheet.
    pub(super) fn name(&self) -> &'static str {
        self.names.c_name
    }

    /// Tells the device: head, tail, then the length with its enable bit, then the base, which is
    /// read back.
    pub(super) fn start(&mut self, registers: &Registers) -> Result<(), AdminError> {
        let names = self.names;
        self.next = 0;
        registers.write(names.head, 0)?;
        registers.write(names.tail, 0)?;
        registers.write(names.length, alive_length())?;
        let (low, high) = halves(self.memory.iova().0);
        registers.write(names.base_low, low)?;
        registers.write(names.base_high, high)?;
        let back = registers.read(names.base_low)?;
        if back != low {
            return Err(self.dead("BAL", low, back));
        }
        self.check_alive(registers)
    }

    /// True while the length register still has the written value.
    pub(super) fn check_alive(&self, registers: &Registers) -> Result<(), AdminError> {
        let length = registers.read_quietly(self.names.length)?;
        if length & RingLength::ALIVE_MASK != alive_length() {
            return Err(self.dead("LEN", alive_length(), length));
        }
        Ok(())
    }

    fn dead(&self, register: &'static str, wanted: u32, value: u32) -> AdminError {
        AdminError::RingDead {
            ring: self.name(),
            register,
            wanted,
            value,
        }
    }

    /// The entry that is used next.
    pub(super) fn next(&self) -> u16 {
        self.next
    }

    /// The entry after `next`.
    pub(super) fn advance(&mut self) -> u16 {
        self.next = (self.next + 1) % RING_ENTRIES;
        self.next
    }

    pub(super) fn write(&self, entry: u16, descriptor: &Descriptor) {
        let inside = self
            .memory
            .write(usize::from(entry) * DESCRIPTOR_SIZE, descriptor.as_bytes());
        debug_assert!(inside, "entry beyond the ring");
    }

    pub(super) fn read(&self, entry: u16) -> Descriptor {
        let mut bytes = [0; DESCRIPTOR_SIZE];
        let inside = self
            .memory
            .read(usize::from(entry) * DESCRIPTOR_SIZE, &mut bytes);
        debug_assert!(inside, "entry beyond the ring");
        Descriptor::read_from_bytes(&bytes).unwrap_or_else(|_| Descriptor::zeroed())
    }

    /// Moves the driver's index; earlier writes to memory are visible before it.
    pub(super) fn set_tail(&self, registers: &Registers, tail: u16) -> Result<(), AdminError> {
        std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
        registers.write_quietly(self.names.tail, tail.into())?;
        Ok(())
    }

    /// The device's index; an error text if it is outside the ring.
    pub(super) fn head(&self, registers: &Registers) -> Result<Result<u16, String>, AdminError> {
        let head = RingIndex(registers.read_quietly(self.names.head)?).index();
        std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
        Ok(match u16::try_from(head) {
            Ok(head) if head < RING_ENTRIES => Ok(head),
            _ => Err(format!(
                "head {head} is outside the ring of {RING_ENTRIES} entries"
            )),
        })
    }

    /// State bits of the length register: errors that the firmware raised are cleared.
    pub(super) fn take_errors(&self, registers: &Registers) -> Result<RingLength, AdminError> {
        let length = RingLength(registers.read_quietly(self.names.length)?);
        let errors = RingLength::ZERO
            .with_virtual_function_error(true)
            .with_overflow(true)
            .with_critical_error(true)
            .0;
        if length.0 & errors != 0 {
            registers.write(self.names.length, length.0 & !errors)?;
        }
        Ok(length)
    }
}

/// Zeroes all five registers of a ring: afterwards the device has no address of the driver.
pub(super) fn silence(registers: &Registers, names: &RingRegisters) -> Result<(), AdminError> {
    for register in [
        names.head,
        names.tail,
        names.length,
        names.base_low,
        names.base_high,
    ] {
        registers.write(register, 0)?;
    }
    let back = registers.read(names.length)?;
    if RingLength(back).enable() {
        return Err(AdminError::RingDead {
            ring: names.c_name,
            register: "LEN",
            wanted: 0,
            value: back,
        });
    }
    Ok(())
}

fn alive_length() -> u32 {
    RingLength::ZERO
        .with_entries(RING_ENTRIES.into())
        .with_enable(true)
        .0
}

fn halves(address: u64) -> (u32, u32) {
    (address as u32, (address >> 32) as u32)
}
