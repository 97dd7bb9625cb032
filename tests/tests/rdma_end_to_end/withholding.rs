//! A function that does not map a certain block of memory, though it says that it did: the driver then
//! gives the device addresses that no IOMMU knows.

use ringside_bus::function::{Backend, BarInfo, DmaAccess, DmaLimits, FunctionError};
use ringside_bus::{Clock, DeviceAddress, Doorbell, Function, Iova, Memory};
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

pub(crate) struct Withholding {
    inner: Arc<dyn Function>,
    /// Blocks of so many bytes are not mapped.
    block_bytes: usize,
    withheld: Mutex<Vec<Iova>>,
    count: AtomicU64,
}

impl Withholding {
    pub(crate) fn new(inner: Arc<dyn Function>, block_bytes: usize) -> Arc<Self> {
        Arc::new(Self {
            inner,
            block_bytes,
            withheld: Mutex::default(),
            count: AtomicU64::new(0),
        })
    }

    /// Blocks that were not mapped so far.
    pub(crate) fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    fn withheld<T>(&self, look: impl FnOnce(&mut Vec<Iova>) -> T) -> T {
        look(&mut self.withheld.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Function for Withholding {
    fn map_dma(
        &self,
        iova: Iova,
        memory: &Memory,
        range: Range<usize>,
        access: DmaAccess,
    ) -> Result<(), FunctionError> {
        if range.len() == self.block_bytes {
            self.withheld(|withheld| withheld.push(iova));
            self.count.fetch_add(1, Ordering::Relaxed);
            return Ok(());
        }
        self.inner.map_dma(iova, memory, range, access)
    }

    fn unmap_dma(&self, iova: Iova, length: u64) -> Result<(), FunctionError> {
        let found = self.withheld(|withheld| {
            let place = withheld.iter().position(|one| *one == iova);
            place.map(|place| withheld.swap_remove(place))
        });
        match found {
            Some(_) => Ok(()),
            None => self.inner.unmap_dma(iova, length),
        }
    }

    fn address(&self) -> &DeviceAddress {
        self.inner.address()
    }

    fn backend(&self) -> Backend {
        self.inner.backend()
    }

    fn numa_node(&self) -> Option<u32> {
        self.inner.numa_node()
    }

    fn attachment(&self) -> Vec<String> {
        self.inner.attachment()
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
