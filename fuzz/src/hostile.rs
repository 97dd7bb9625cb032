//! A PCI function whose every answer comes from the fuzzer, in a time that passes only while a
//! caller waits.

use ringside_bus::dma_pool::{Placement, PoolSettings};
use ringside_bus::double::{Double, Script};
use ringside_bus::function::DmaAccess;
use ringside_bus::{DmaPool, DmaSpace, Function, Instant, Iova, Memory, PageSize};
use ringside_pmd::Registers;
use ringside_pmd::trace::Recorder;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

/// Called when a register is written.
pub(crate) trait Firmware: Send {
    /// Called after the value is in `registers`.
    fn written(&mut self, offset: u64, registers: &mut BTreeMap<u64, u32>, space: &DmaSpace);
}

/// A device that does nothing.
struct Dead;

impl Firmware for Dead {
    fn written(&mut self, _: u64, _: &mut BTreeMap<u64, u32>, _: &DmaSpace) {}
}

pub(crate) struct Inside {
    registers: BTreeMap<u64, u32>,
    space: DmaSpace,
    firmware: Box<dyn Firmware>,
}

impl Script for Inside {
    fn read(&self, offset: u64) -> u32 {
        self.registers.get(&offset).copied().unwrap_or(0)
    }

    fn write(&mut self, offset: u64, value: u32) {
        let Self {
            registers,
            space,
            firmware,
        } = self;
        registers.insert(offset, value);
        firmware.written(offset, registers, space);
    }

    fn map(&mut self, iova: Iova, memory: &Memory, range: Range<usize>, access: DmaAccess) {
        let length = range.end - range.start;
        let mapped = self.space.map(iova, memory, range.start, length, access);
        assert!(mapped, "the pool maps each address once");
    }

    fn unmap(&mut self, iova: Iova, length: u64) {
        self.space.unmap(iova, length);
    }
}

/// The function; see the module.
pub(crate) type Hostile = Double<Inside>;

/// A hostile function and memory for it, made once: an input allocates what it needs and frees it.
#[derive(Clone)]
pub(crate) struct Rig {
    pub(crate) function: Arc<Hostile>,
    pub(crate) pool: Arc<DmaPool>,
}

impl Rig {
    pub(crate) fn new() -> Self {
        let mut space = DmaSpace::new();
        space.set_bus_master(true);
        let inside = Inside {
            registers: BTreeMap::new(),
            space,
            firmware: Box::new(Dead),
        };
        // A deadline of any length passes after a bounded number of polls.
        let function = Arc::new(Hostile::new(inside, Duration::from_millis(1)));
        let settings = PoolSettings {
            largest_page: PageSize::FourKiB,
            placement: Placement::Seeded(1),
            ..PoolSettings::default()
        };
        let pool = DmaPool::new(Arc::clone(&function) as Arc<dyn Function>, settings);
        Self {
            function,
            pool: pool.expect("an empty pool"),
        }
    }

    /// Sets all registers to zero and installs this firmware.
    pub(crate) fn restart(&self, firmware: impl Firmware + 'static) -> Registers {
        let mut inside = self.function.script();
        inside.registers.clear();
        inside.firmware = Box::new(firmware);
        drop(inside);
        Registers::new(
            Arc::clone(&self.function) as Arc<dyn Function>,
            Recorder::new(),
        )
    }

    pub(crate) fn now(&self) -> Instant {
        self.function.now()
    }

    /// Runs `look` on the device's view of registers and memory.
    pub(crate) fn look<T>(&self, look: impl FnOnce(&mut BTreeMap<u64, u32>, &DmaSpace) -> T) -> T {
        let mut inside = self.function.script();
        let Inside {
            registers, space, ..
        } = &mut *inside;
        look(registers, space)
    }

    /// Writes a register as the device, not as the driver.
    pub(crate) fn set(&self, offset: u64, value: u32) {
        self.function.script().registers.insert(offset, value);
    }
}
