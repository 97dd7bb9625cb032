//! VFIO: a PCI function of this machine, assigned to this process by the kernel's vfio-pci driver.
//!
//! `vfio-ioctls` owns container, group and device. On kernels without groups, the device is opened
//! by its character device and iommufd instead. Operations whose errors must be reported use the
//! descriptor directly (`ioctl`, `pread`, `pwrite`), because the crate drops error numbers,
//! confuses regions when a query fails, and panics when a removed device is dropped. Registers are
//! mapped by the areas that the kernel offers, and never the page of the MSI-X table.
//!
//! The kernel itself performs these steps: it resets the function when it is opened and when it is
//! closed, and removes every DMA mapping when the process ends, for any reason.
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
mod release;

pub use claim::ClaimError;
pub use function::VfioFunction;
pub use memlock::Memlock;
