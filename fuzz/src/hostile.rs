//! A PCI function whose every answer is the fuzzer's, in a time that passes only while somebody
//! waits.

use ringside_bus::dma_pool::{Placement, PoolSettings};
use ringside_bus::function::{Backend, BarInfo, DmaAccess, DmaLimits};
use ringside_bus::{
    Clock, DeviceAddress, DmaPool, DmaSpace, Doorbell, Function, FunctionError, Instant, Iova,
    Memory, PageSize,
};
use ringside_pmd::Registers;
use ringside_pmd::trace::Recorder;
use std::collections::BTreeMap;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// What happens when a register is written.
pub(crate) trait Firmware: Send {
    /// Called after the value is in `registers`.
    fn written(&mut self, offset: u64, registers: &mut BTreeMap<u64, u32>, space: &DmaSpace);
}

/// A device that does nothing.
struct Dead;

impl Firmware for Dead {
    fn written(&mut self, _: u64, _: &mut BTreeMap<u64, u32>, _: &DmaSpace) {}
}

struct Inside {
    registers: BTreeMap<u64, u32>,
    space: DmaSpace,
    firmware: Box<dyn Firmware>,
}

/// Time that passes only while somebody waits.
#[derive(Default)]
pub(crate) struct Time(AtomicU64);

impl Clock for Time {
    fn now(&self) -> Instant {
        Instant(self.0.load(Ordering::Relaxed))
    }
    fn pause(&self, at_most: Duration) {
        // a deadline is met after a bounded number of looks, whatever its length
        let step = at_most.max(Duration::from_millis(1)).as_nanos() as u64;
        self.0.fetch_add(step, Ordering::Relaxed);
    }
}

/// See the module.
pub(crate) struct Hostile {
    address: DeviceAddress,
    time: Arc<Time>,
    inside: Mutex<Inside>,
}

/// A hostile function and memory for it, made once: an input takes what it needs and gives it back.
#[derive(Clone)]
pub(crate) struct Rig {
    pub(crate) function: Arc<Hostile>,
    pub(crate) pool: Arc<DmaPool>,
}

impl Rig {
    pub(crate) fn new() -> Self {
        let mut space = DmaSpace::new();
        space.set_bus_master(true);
        let function = Arc::new(Hostile {
            address: DeviceAddress::Model(0),
            time: Arc::default(),
            inside: Mutex::new(Inside {
                registers: BTreeMap::new(),
                space,
                firmware: Box::new(Dead),
            }),
        });
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

    /// All registers zero, and this firmware behind them.
    pub(crate) fn restart(&self, firmware: impl Firmware + 'static) -> Registers {
        let mut inside = self.function.inside();
        inside.registers.clear();
        inside.firmware = Box::new(firmware);
        drop(inside);
        Registers::new(
            Arc::clone(&self.function) as Arc<dyn Function>,
            Recorder::new(),
        )
    }

    pub(crate) fn now(&self) -> Instant {
        self.function.time.now()
    }

    /// What the device sees.
    pub(crate) fn look<T>(&self, look: impl FnOnce(&mut BTreeMap<u64, u32>, &DmaSpace) -> T) -> T {
        let mut inside = self.function.inside();
        let Inside {
            registers, space, ..
        } = &mut *inside;
        look(registers, space)
    }

    /// Writes a register behind the driver's back.
    pub(crate) fn set(&self, offset: u64, value: u32) {
        self.function.inside().registers.insert(offset, value);
    }
}

impl Hostile {
    fn inside(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn refuse<T>() -> Result<T, FunctionError> {
    Err(FunctionError::Unsupported {
        backend: "fuzz",
        operation: "do that".into(),
    })
}

impl Function for Hostile {
    fn address(&self) -> &DeviceAddress {
        &self.address
    }
    fn backend(&self) -> Backend {
        Backend::EmbeddedModel
    }
    fn clock(&self) -> Arc<dyn Clock> {
        Arc::clone(&self.time) as Arc<dyn Clock>
    }
    fn config_read(&self, _: u16, _: &mut [u8]) -> Result<(), FunctionError> {
        refuse()
    }
    fn config_write(&self, _: u16, _: &[u8]) -> Result<(), FunctionError> {
        refuse()
    }
    fn bar(&self, _: u8) -> Result<BarInfo, FunctionError> {
        refuse()
    }
    fn read32(&self, _: u8, offset: u64) -> Result<u32, FunctionError> {
        let inside = self.inside();
        Ok(inside.registers.get(&offset).copied().unwrap_or(0))
    }
    fn write32(&self, _: u8, offset: u64, value: u32) -> Result<(), FunctionError> {
        let mut inside = self.inside();
        let Inside {
            registers,
            space,
            firmware,
        } = &mut *inside;
        registers.insert(offset, value);
        firmware.written(offset, registers, space);
        Ok(())
    }
    fn read64(&self, _: u8, _: u64) -> Result<u64, FunctionError> {
        refuse()
    }
    fn doorbell(self: Arc<Self>, _: u8, _: u64) -> Result<Doorbell, FunctionError> {
        refuse()
    }
    fn dma_limits(&self) -> Result<DmaLimits, FunctionError> {
        Ok(DmaLimits {
            iova_ranges: std::iter::once(0..1 << 36).collect(),
            mappings: 16,
            page_bytes: 4096,
        })
    }
    fn map_dma(
        &self,
        iova: Iova,
        memory: &Memory,
        range: Range<usize>,
        access: DmaAccess,
    ) -> Result<(), FunctionError> {
        let length = range.end - range.start;
        let mapped = self
            .inside()
            .space
            .map(iova, memory, range.start, length, access);
        assert!(mapped, "the pool maps each address once");
        Ok(())
    }
    fn unmap_dma(&self, iova: Iova, length: u64) -> Result<(), FunctionError> {
        self.inside().space.unmap(iova, length);
        Ok(())
    }
    fn interrupt_vectors(&self) -> Result<u16, FunctionError> {
        Ok(0)
    }
    fn set_interrupts(&self, _: u16, _: &[Option<BorrowedFd<'_>>]) -> Result<(), FunctionError> {
        refuse()
    }
    fn reset(&self) -> Result<(), FunctionError> {
        refuse()
    }
}
