//! The interface of a backend: one PCI function, over any transport.

use crate::clock::Clock;
use crate::doorbell::Doorbell;
pub use crate::error::FunctionError;
pub use crate::memory::DmaAccess;
use crate::memory::Memory;
use crate::{DeviceAddress, Iova};
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

/// The kind of backend behind a function; reports name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backend {
    /// A card, through the kernel's VFIO.
    Vfio,
    /// A model in another process, through vfio-user.
    VfioUser,
    /// The software model inside this process.
    EmbeddedModel,
}

impl Backend {
    /// The name in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Vfio => "VFIO",
            Self::VfioUser => "vfio-user",
            Self::EmbeddedModel => "embedded software model",
        }
    }
}

/// The size of a base address register and its mappable parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BarInfo {
    /// Bytes.
    pub size: u64,
    /// The parts that can be mapped, as byte ranges; the rest is accessed by messages only (VFIO's
    /// sparse mmap areas). Empty: all accesses are messages.
    pub mappable: Vec<Range<u64>>,
}

/// The ranges that may be mapped for DMA.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DmaLimits {
    /// Address ranges that the IOMMU accepts, end exclusive.
    pub iova_ranges: Vec<Range<u64>>,
    /// Most mappings at once.
    pub mappings: usize,
    /// Smallest page of the IOMMU, bytes, a power of two.
    pub page_bytes: u64,
}

/// One PCI function.
///
/// All methods are control path: a call may be a message to another thread, process or the kernel,
/// and each has its own deadline. A data path uses values that need no further call: [`Doorbell`]
/// and the mapped memory.
///
/// Register accesses take place in the order of the calls. A read of a device that was removed is
/// [`FunctionError::Gone`] if the backend detects it, otherwise all ones. The other errors of
/// [`FunctionError`] apply to every method: no answer before the deadline, an offset outside its
/// region, and, through [`OneProcess`](crate::OneProcess), a call in a child process made by
/// `fork`.
pub trait Function: Send + Sync {
    /// The address under which it was claimed.
    fn address(&self) -> &DeviceAddress;

    /// The kind of backend.
    fn backend(&self) -> Backend;

    /// The NUMA node that it is attached to, if it has one.
    fn numa_node(&self) -> Option<u32> {
        None
    }

    /// The process that serves the function, if it is another one of this machine.
    fn server_process(&self) -> Option<u32> {
        None
    }

    /// Describes the attachment in words, for the trace of a bring-up: the kernel resources that
    /// only some functions have.
    fn attachment(&self) -> Vec<String> {
        Vec::new()
    }

    /// The clock for waits: real time or the simulation's.
    fn clock(&self) -> Arc<dyn Clock>;

    /// Reads `bytes.len()` bytes of configuration space from byte `offset`; the range is within
    /// 0..4096.
    fn config_read(&self, offset: u16, bytes: &mut [u8]) -> Result<(), FunctionError>;

    /// Writes `bytes` to configuration space from byte `offset`.
    fn config_write(&self, offset: u16, bytes: &[u8]) -> Result<(), FunctionError>;

    /// Returns size and mappable areas of base address register `bar`, 0..=5; size 0 if there is
    /// none.
    fn bar(&self, bar: u8) -> Result<BarInfo, FunctionError>;

    /// Reads a 32-bit register; `offset` in bytes, a multiple of 4.
    fn read32(&self, bar: u8, offset: u64) -> Result<u32, FunctionError>;

    /// Writes a 32-bit register; `offset` in bytes, a multiple of 4.
    fn write32(&self, bar: u8, offset: u64, value: u32) -> Result<(), FunctionError>;

    /// Waits until the device has taken the register writes before this call, if another process
    /// takes them from messages: the caller sleeps, so that a device which waits for a core gets
    /// this one. Returns true if it has waited; false for other devices, at once.
    ///
    /// For a thread that waits for the device's answer in memory, and would keep the core by
    /// polling.
    fn catch_up(&self) -> Result<bool, FunctionError> {
        Ok(false)
    }

    /// Reads a 64-bit counter, in one access if the backend can; `offset` is a multiple of 4.
    fn read64(&self, bar: u8, offset: u64) -> Result<u64, FunctionError>;

    /// Returns a doorbell at `offset` of `bar`: mapped if that area can be mapped, otherwise by
    /// message.
    fn doorbell(self: Arc<Self>, bar: u8, offset: u64) -> Result<Doorbell, FunctionError>;

    /// Returns the address ranges that the IOMMU accepts, the most mappings and the smallest page.
    fn dma_limits(&self) -> Result<DmaLimits, FunctionError>;

    /// Lets the device access `range` (bytes) of `memory` at `iova`.
    fn map_dma(
        &self,
        iova: Iova,
        memory: &Memory,
        range: Range<usize>,
        access: DmaAccess,
    ) -> Result<(), FunctionError>;

    /// Removes a mapping. After this call the device can no longer access the memory.
    fn unmap_dma(&self, iova: Iova, length: u64) -> Result<(), FunctionError>;

    /// Returns the number of message-signalled interrupt vectors of the function.
    fn interrupt_vectors(&self) -> Result<u16, FunctionError>;

    /// Connects vectors `first..` to event descriptors; `None` disconnects one.
    fn set_interrupts(
        &self,
        first: u16,
        events: &[Option<BorrowedFd<'_>>],
    ) -> Result<(), FunctionError>;

    /// Connects the host's request to release the function to an event descriptor; `None`
    /// disconnects. The host asks again until the function is released: a driver is to be unbound,
    /// or the device to be unplugged.
    ///
    /// Errors: [`FunctionError::Unsupported`] if the backend has no request.
    fn set_release_event(&self, event: Option<BorrowedFd<'_>>) -> Result<(), FunctionError>;

    /// Function-level reset.
    fn reset(&self) -> Result<(), FunctionError>;
}

/// Makes a doorbell whose rings are register writes through `function`.
#[must_use]
pub fn message_doorbell(function: Arc<dyn Function>, bar: u8, offset: u64) -> Doorbell {
    Doorbell::message(move |value| {
        // The deadline of the thread that waits for the device's answer detects a removed device.
        let _ = function.write32(bar, offset, value);
    })
}
