//! VFIO: a PCI function of this machine, given to this process by the kernel's vfio-pci driver.
//!
//! `vfio-ioctls` owns container, group and device; where the kernel has no groups, the device is
//! reached by its character device and iommufd instead. Everything that has to name its reason goes by
//! the descriptor instead (`ioctl`, `pread`, `pwrite`), because the crate drops error numbers,
//! takes one region's description for another's when a query fails, and panics when a device that
//! has gone is dropped. Registers are mapped by the areas that the kernel offers, and never the
//! page of the MSI-X table.
//!
//! The steps that the kernel takes itself and that nothing here repeats: it resets the function
//! when opened and when it is closed, and ends every DMA mapping with the process, however that
//! ends.
//!
//! Source: `linux/vfio.h` and `Documentation/driver-api/vfio.rst` of Linux 6.12.

mod character;
mod claim;
mod function;
mod interrupts;
mod ioctl;
mod iommu;
pub(crate) mod memlock;
mod owner;
mod regions;

pub use claim::ClaimError;
pub use function::VfioFunction;
pub use memlock::Memlock;
