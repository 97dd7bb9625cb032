//! A function whose registers take a minute to be read, once.

use ringside_bus::function::{Backend, BarInfo, DmaAccess, DmaLimits};
use ringside_bus::{Clock, DeviceAddress, Doorbell, Function, FunctionError, Iova, Memory};
use ringside_model::Stepped;
use ringside_pmd::Device;
use ringside_sim::Interference;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// See the module.
#[derive(Default)]
pub(crate) struct Sluggish {
    world: Option<Stepped>,
    due: Arc<AtomicBool>,
}

impl Interference for Sluggish {
    fn begin(&mut self, world: &Stepped) {
        self.world = Some(world.clone());
    }

    fn function(&mut self, _index: u16, function: Arc<dyn Function>) -> Arc<dyn Function> {
        Arc::new(Slow {
            inner: function,
            world: self.world.clone().expect("a world"),
            due: Arc::clone(&self.due),
        })
    }

    fn between(&mut self, step: u32, _: &Stepped, _: [&Device; 2], _: [Iova; 2]) {
        if step == 5 {
            self.due.store(true, Ordering::Relaxed);
        }
    }
}

struct Slow {
    inner: Arc<dyn Function>,
    world: Stepped,
    due: Arc<AtomicBool>,
}

impl Function for Slow {
    fn address(&self) -> &DeviceAddress {
        self.inner.address()
    }
    fn backend(&self) -> Backend {
        self.inner.backend()
    }
    fn clock(&self) -> Arc<dyn Clock> {
        self.inner.clock()
    }
    fn config_read(&self, offset: u16, bytes: &mut [u8]) -> Result<(), FunctionError> {
        self.inner.config_read(offset, bytes)
    }
    fn config_write(&self, offset: u16, bytes: &[u8]) -> Result<(), FunctionError> {
        self.inner.config_write(offset, bytes)
    }
    fn bar(&self, bar: u8) -> Result<BarInfo, FunctionError> {
        self.inner.bar(bar)
    }
    fn read32(&self, bar: u8, offset: u64) -> Result<u32, FunctionError> {
        if self.due.swap(false, Ordering::Relaxed) {
            self.world.jump(Duration::from_secs(60));
        }
        self.inner.read32(bar, offset)
    }
    fn write32(&self, bar: u8, offset: u64, value: u32) -> Result<(), FunctionError> {
        self.inner.write32(bar, offset, value)
    }
    fn read64(&self, bar: u8, offset: u64) -> Result<u64, FunctionError> {
        self.inner.read64(bar, offset)
    }
    fn doorbell(self: Arc<Self>, bar: u8, offset: u64) -> Result<Doorbell, FunctionError> {
        Arc::clone(&self.inner).doorbell(bar, offset)
    }
    fn dma_limits(&self) -> Result<DmaLimits, FunctionError> {
        self.inner.dma_limits()
    }
    fn map_dma(
        &self,
        iova: Iova,
        memory: &Memory,
        range: Range<usize>,
        access: DmaAccess,
    ) -> Result<(), FunctionError> {
        self.inner.map_dma(iova, memory, range, access)
    }
    fn unmap_dma(&self, iova: Iova, length: u64) -> Result<(), FunctionError> {
        self.inner.unmap_dma(iova, length)
    }
    fn interrupt_vectors(&self) -> Result<u16, FunctionError> {
        self.inner.interrupt_vectors()
    }
    fn set_interrupts(
        &self,
        first: u16,
        events: &[Option<BorrowedFd<'_>>],
    ) -> Result<(), FunctionError> {
        self.inner.set_interrupts(first, events)
    }
    fn reset(&self) -> Result<(), FunctionError> {
        self.inner.reset()
    }
}
