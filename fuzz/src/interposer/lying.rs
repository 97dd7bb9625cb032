//! The function that the driver gets.

use super::Interposer;
use ringside_bus::function::{Backend, BarInfo, DmaAccess, DmaLimits};
use ringside_bus::{
    Clock, DeviceAddress, Doorbell, Function, FunctionError, Instant, Iova, Memory,
};
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

/// The clock of a function, which may outlive it.
struct Passing(Arc<Interposer>);

impl Clock for Passing {
    fn now(&self) -> Instant {
        self.0.now()
    }
    fn pause(&self, at_most: Duration) {
        self.0.pause(at_most);
    }
}

/// The function that the driver gets.
pub(crate) struct Lying(pub(crate) Arc<Interposer>);

impl Function for Lying {
    fn address(&self) -> &DeviceAddress {
        self.0.inner.address()
    }
    fn backend(&self) -> Backend {
        self.0.inner.backend()
    }
    fn numa_node(&self) -> Option<u32> {
        self.0.inner.numa_node()
    }
    fn server_process(&self) -> Option<u32> {
        self.0.inner.server_process()
    }
    fn attachment(&self) -> Vec<String> {
        self.0.inner.attachment()
    }
    fn clock(&self) -> Arc<dyn Clock> {
        Arc::new(Passing(Arc::clone(&self.0)))
    }
    fn config_read(&self, offset: u16, bytes: &mut [u8]) -> Result<(), FunctionError> {
        self.0.refuses()?;
        self.0.inner.config_read(offset, bytes)
    }
    fn config_write(&self, offset: u16, bytes: &[u8]) -> Result<(), FunctionError> {
        self.0.refuses()?;
        self.0.inner.config_write(offset, bytes)
    }
    fn bar(&self, bar: u8) -> Result<BarInfo, FunctionError> {
        self.0.refuses()?;
        self.0.inner.bar(bar)
    }
    fn read32(&self, bar: u8, offset: u64) -> Result<u32, FunctionError> {
        let value = self.0.inner.read32(bar, offset)?;
        self.0.settle();
        Ok(self.0.lie_about(offset, value))
    }
    fn write32(&self, bar: u8, offset: u64, value: u32) -> Result<(), FunctionError> {
        self.0.refuses()?;
        self.0.note(offset, value);
        self.0.inner.write32(bar, offset, value)
    }
    fn read64(&self, bar: u8, offset: u64) -> Result<u64, FunctionError> {
        self.0.refuses()?;
        self.0.inner.read64(bar, offset)
    }
    fn doorbell(self: Arc<Self>, bar: u8, offset: u64) -> Result<Doorbell, FunctionError> {
        self.0.refuses()?;
        Arc::clone(&self.0.inner).doorbell(bar, offset)
    }
    fn dma_limits(&self) -> Result<DmaLimits, FunctionError> {
        self.0.inner.dma_limits()
    }
    fn map_dma(
        &self,
        iova: Iova,
        memory: &Memory,
        range: Range<usize>,
        access: DmaAccess,
    ) -> Result<(), FunctionError> {
        self.0.refuses()?;
        let (first, length) = (range.start, range.len());
        self.0.inner.map_dma(iova, memory, range, access)?;
        let mapped = self.0.space().map(iova, memory, first, length, access);
        assert!(mapped, "mapped twice, or outside of the memory");
        self.0.state().memory.push(memory.clone());
        Ok(())
    }
    fn unmap_dma(&self, iova: Iova, length: u64) -> Result<(), FunctionError> {
        assert!(
            !self.0.is_bus_master(),
            "memory is taken from a function that may write to it"
        );
        self.0.refuses()?;
        self.0.inner.unmap_dma(iova, length)?;
        self.0.space().unmap(iova, length);
        Ok(())
    }
    fn interrupt_vectors(&self) -> Result<u16, FunctionError> {
        self.0.refuses()?;
        self.0.inner.interrupt_vectors()
    }
    fn set_interrupts(
        &self,
        first: u16,
        events: &[Option<BorrowedFd<'_>>],
    ) -> Result<(), FunctionError> {
        self.0.refuses()?;
        self.0.inner.set_interrupts(first, events)
    }
    fn set_release_event(&self, event: Option<BorrowedFd<'_>>) -> Result<(), FunctionError> {
        self.0.refuses()?;
        self.0.inner.set_release_event(event)
    }
    fn reset(&self) -> Result<(), FunctionError> {
        self.0.refuses()?;
        self.0.inner.reset()
    }
}
