//! A wrapper around a function: it observes or changes the driver's calls.

use crate::clock::Clock;
use crate::doorbell::Doorbell;
use crate::function::{Backend, BarInfo, DmaAccess, DmaLimits, Function, FunctionError};
use crate::memory::Memory;
use crate::{DeviceAddress, Iova};
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

/// Implements [`Function`] for a wrapper of another function: each call is forwarded to it, unless
/// the wrapper overrides the method of that name here. Methods that are not listed here are always
/// forwarded.
///
/// For counters, and for tests that plant an error between driver and device.
pub trait Around: Send + Sync {
    /// The wrapped function.
    fn inner(&self) -> &Arc<dyn Function>;

    /// The wrapped function, for a call that reaches the device. A wrapper that refuses all such
    /// calls overrides this one.
    ///
    /// # Errors
    /// The reason of the refusal. Never fails by default.
    fn reach(&self) -> Result<&Arc<dyn Function>, FunctionError> {
        Ok(self.inner())
    }

    /// See [`Function::attachment`].
    fn attachment(&self) -> Vec<String> {
        self.inner().attachment()
    }

    /// See [`Function::config_read`].
    ///
    /// # Errors
    /// See [`Around::read32`].
    fn config_read(&self, offset: u16, bytes: &mut [u8]) -> Result<(), FunctionError> {
        self.reach()?.config_read(offset, bytes)
    }

    /// See [`Function::config_write`].
    ///
    /// # Errors
    /// See [`Around::read32`].
    fn config_write(&self, offset: u16, bytes: &[u8]) -> Result<(), FunctionError> {
        self.reach()?.config_write(offset, bytes)
    }

    /// See [`Function::read32`].
    ///
    /// # Errors
    /// The errors of the wrapped function, as for each method here.
    fn read32(&self, bar: u8, offset: u64) -> Result<u32, FunctionError> {
        self.reach()?.read32(bar, offset)
    }

    /// See [`Function::write32`].
    ///
    /// # Errors
    /// See [`Around::read32`].
    fn write32(&self, bar: u8, offset: u64, value: u32) -> Result<(), FunctionError> {
        self.reach()?.write32(bar, offset, value)
    }

    /// See [`Function::read64`].
    ///
    /// # Errors
    /// See [`Around::read32`].
    fn read64(&self, bar: u8, offset: u64) -> Result<u64, FunctionError> {
        self.reach()?.read64(bar, offset)
    }

    /// See [`Function::doorbell`]. By default returns the doorbell of the wrapped function, whose
    /// rings are not visible here.
    ///
    /// # Errors
    /// See [`Around::read32`].
    fn doorbell(self: Arc<Self>, bar: u8, offset: u64) -> Result<Doorbell, FunctionError> {
        Arc::clone(self.reach()?).doorbell(bar, offset)
    }

    /// See [`Function::map_dma`].
    ///
    /// # Errors
    /// See [`Around::read32`].
    fn map_dma(
        &self,
        iova: Iova,
        memory: &Memory,
        range: Range<usize>,
        access: DmaAccess,
    ) -> Result<(), FunctionError> {
        self.reach()?.map_dma(iova, memory, range, access)
    }

    /// See [`Function::unmap_dma`].
    ///
    /// # Errors
    /// See [`Around::read32`].
    fn unmap_dma(&self, iova: Iova, length: u64) -> Result<(), FunctionError> {
        self.reach()?.unmap_dma(iova, length)
    }

    /// See [`Function::reset`].
    ///
    /// # Errors
    /// See [`Around::read32`].
    fn reset(&self) -> Result<(), FunctionError> {
        self.reach()?.reset()
    }
}

impl<T: Around> Function for T {
    fn address(&self) -> &DeviceAddress {
        self.inner().address()
    }

    fn backend(&self) -> Backend {
        self.inner().backend()
    }

    fn server_process(&self) -> Option<u32> {
        self.inner().server_process()
    }

    fn numa_node(&self) -> Option<u32> {
        self.inner().numa_node()
    }

    fn attachment(&self) -> Vec<String> {
        Around::attachment(self)
    }

    fn clock(&self) -> Arc<dyn Clock> {
        self.inner().clock()
    }

    fn config_read(&self, offset: u16, bytes: &mut [u8]) -> Result<(), FunctionError> {
        Around::config_read(self, offset, bytes)
    }

    fn config_write(&self, offset: u16, bytes: &[u8]) -> Result<(), FunctionError> {
        Around::config_write(self, offset, bytes)
    }

    fn bar(&self, bar: u8) -> Result<BarInfo, FunctionError> {
        self.reach()?.bar(bar)
    }

    fn read32(&self, bar: u8, offset: u64) -> Result<u32, FunctionError> {
        Around::read32(self, bar, offset)
    }

    fn write32(&self, bar: u8, offset: u64, value: u32) -> Result<(), FunctionError> {
        Around::write32(self, bar, offset, value)
    }

    fn read64(&self, bar: u8, offset: u64) -> Result<u64, FunctionError> {
        Around::read64(self, bar, offset)
    }

    fn catch_up(&self) -> Result<bool, FunctionError> {
        self.reach()?.catch_up()
    }

    fn doorbell(self: Arc<Self>, bar: u8, offset: u64) -> Result<Doorbell, FunctionError> {
        Around::doorbell(self, bar, offset)
    }

    fn dma_limits(&self) -> Result<DmaLimits, FunctionError> {
        self.reach()?.dma_limits()
    }

    fn map_dma(
        &self,
        iova: Iova,
        memory: &Memory,
        range: Range<usize>,
        access: DmaAccess,
    ) -> Result<(), FunctionError> {
        Around::map_dma(self, iova, memory, range, access)
    }

    fn unmap_dma(&self, iova: Iova, length: u64) -> Result<(), FunctionError> {
        Around::unmap_dma(self, iova, length)
    }

    fn interrupt_vectors(&self) -> Result<u16, FunctionError> {
        self.reach()?.interrupt_vectors()
    }

    fn set_interrupts(
        &self,
        first: u16,
        events: &[Option<BorrowedFd<'_>>],
    ) -> Result<(), FunctionError> {
        self.reach()?.set_interrupts(first, events)
    }

    fn set_release_event(&self, event: Option<BorrowedFd<'_>>) -> Result<(), FunctionError> {
        self.reach()?.set_release_event(event)
    }

    fn reset(&self) -> Result<(), FunctionError> {
        Around::reset(self)
    }
}
