//! A function that answers only the process that claimed it.

use crate::clock::Clock;
use crate::doorbell::Doorbell;
use crate::function::{Backend, BarInfo, DmaAccess, DmaLimits, Function, FunctionError};
use crate::memory::Memory;
use crate::process::Birth;
use crate::{DeviceAddress, Iova};
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

/// Wraps a function. In a child of a fork every call that would reach the device is refused with
/// [`FunctionError::OtherProcess`], without a system call or an access.
pub struct OneProcess {
    inner: Arc<dyn Function>,
    birth: Birth,
}

impl OneProcess {
    /// Wraps `inner`, for this process.
    #[must_use]
    pub fn new(inner: Arc<dyn Function>) -> Arc<Self> {
        let birth = Birth::now();
        Arc::new(Self { inner, birth })
    }

    /// The function, in its own process.
    fn inner(&self) -> Result<&Arc<dyn Function>, FunctionError> {
        self.birth.check(self.inner.address())?;
        Ok(&self.inner)
    }
}

impl Function for OneProcess {
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
        self.inner()?.config_read(offset, bytes)
    }

    fn config_write(&self, offset: u16, bytes: &[u8]) -> Result<(), FunctionError> {
        self.inner()?.config_write(offset, bytes)
    }

    fn bar(&self, bar: u8) -> Result<BarInfo, FunctionError> {
        self.inner()?.bar(bar)
    }

    fn read32(&self, bar: u8, offset: u64) -> Result<u32, FunctionError> {
        self.inner()?.read32(bar, offset)
    }

    fn write32(&self, bar: u8, offset: u64, value: u32) -> Result<(), FunctionError> {
        self.inner()?.write32(bar, offset, value)
    }

    fn read64(&self, bar: u8, offset: u64) -> Result<u64, FunctionError> {
        self.inner()?.read64(bar, offset)
    }

    fn doorbell(self: Arc<Self>, bar: u8, offset: u64) -> Result<Doorbell, FunctionError> {
        Arc::clone(self.inner()?).doorbell(bar, offset)
    }

    fn dma_limits(&self) -> Result<DmaLimits, FunctionError> {
        self.inner()?.dma_limits()
    }

    fn map_dma(
        &self,
        iova: Iova,
        memory: &Memory,
        range: Range<usize>,
        access: DmaAccess,
    ) -> Result<(), FunctionError> {
        self.inner()?.map_dma(iova, memory, range, access)
    }

    fn unmap_dma(&self, iova: Iova, length: u64) -> Result<(), FunctionError> {
        self.inner()?.unmap_dma(iova, length)
    }

    fn interrupt_vectors(&self) -> Result<u16, FunctionError> {
        self.inner()?.interrupt_vectors()
    }

    fn set_interrupts(
        &self,
        first: u16,
        events: &[Option<BorrowedFd<'_>>],
    ) -> Result<(), FunctionError> {
        self.inner()?.set_interrupts(first, events)
    }

    fn reset(&self) -> Result<(), FunctionError> {
        self.inner()?.reset()
    }
}
