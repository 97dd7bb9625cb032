//! Access to a PCI function: configuration space, registers, doorbells, DMA memory, interrupts,
//! time.
//!
//! All other crates access a device only through [`Function`]. Behind it is a card bound to VFIO, a
//! model in another process, or a model in this process. Almost all unsafe code of the workspace is
//! in this crate (`docs/decisions/0005-where-unsafe-lives.md`). Modules that need it opt in one by
//! one and give the reason.

pub mod address;
pub mod affinity;
pub mod around;
pub mod clock;
pub mod config_space;
pub mod counted;
pub mod dma_pool;
pub mod dma_space;
pub mod doorbell;
pub mod double;
mod errno;
mod error;
pub mod event;
pub mod function;
pub mod hand_off;
mod mapping;
pub mod memory;
mod one_process;
mod per_process;
pub mod pinning;
mod prefetch;
pub mod process;
pub mod ranges;
#[cfg(feature = "tokio")]
mod readable;
mod refusal;
pub mod ring;
pub mod signals;
pub mod sysfs;
pub mod tap;
pub mod unmaps;
pub mod vfio;
pub mod vfio_user;

pub use address::DeviceAddress;
pub use around::Around;
pub use clock::{Clock, Deadline, Instant, TscClock};
pub use counted::{Accesses, CountedFunction};
pub use dma_pool::{DmaBuffer, DmaPool, LendPermit};
pub use dma_space::DmaSpace;
pub use doorbell::Doorbell;
pub use error::FunctionError;
pub use function::Function;
pub use memory::{
    ForeignError, ForeignFile, MAX_FOREIGN_MAPPINGS, Memory, MemoryError, PageSize, Words,
    survive_vanished_pages,
};
pub use one_process::OneProcess;
pub use per_process::PerProcess;
pub use prefetch::prefetch;
#[cfg(feature = "tokio")]
pub use readable::Readable;
pub use refusal::{Direction, DmaFault, Refusal, RefusedAccess};
pub use ring::{
    MAX_ELEMENTS, NotARing, PostRing, ReadRing, Records, Ring, SharedWord, Table, ZeroedRing,
};
pub use vfio::VfioFunction;

/// An I/O virtual address: the address that the device puts on the bus.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Iova(pub u64);

impl Iova {
    /// The address `bytes` higher; wraps as the bus would.
    #[inline]
    #[must_use]
    pub const fn add(self, bytes: u64) -> Self {
        Self(self.0.wrapping_add(bytes))
    }
}

impl core::fmt::Debug for Iova {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

impl core::fmt::Display for Iova {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}
