//! The system calls, with their error numbers.
#![allow(unsafe_code)] // ioctl takes a pointer

use crate::errno::errno_of;
use rustix::io::Errno;
use std::os::fd::{AsRawFd, BorrowedFd};

/// A request whose argument begins with its own size. Source: `linux/vfio.h`, `_IO(VFIO_TYPE,
/// VFIO_BASE + n)` with type ';' and base 100.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub(super) enum Request {
    /// VFIO_DEVICE_GET_REGION_INFO
    RegionInfo = 0x3B6C,
    /// VFIO_DEVICE_GET_IRQ_INFO
    InterruptInfo = 0x3B6D,
    /// VFIO_DEVICE_SET_IRQS
    SetInterrupts = 0x3B6E,
    /// VFIO_IOMMU_GET_INFO, on a container
    IommuInfo = 0x3B70,
    /// VFIO_IOMMU_MAP_DMA, on a container
    MapDma = 0x3B71,
    /// VFIO_DEVICE_BIND_IOMMUFD
    BindToIommu = 0x3B76,
    /// VFIO_DEVICE_ATTACH_IOMMUFD_PT
    AttachToAddressSpace = 0x3B77,
    /// IOMMU_IOAS_ALLOC, on `/dev/iommu`. Source of this and the next: `linux/iommufd.h`, the same
    /// type and base 128.
    MakeAddressSpace = 0x3B81,
    /// IOMMU_IOAS_IOVA_RANGES
    AddressRanges = 0x3B84,
    /// IOMMU_IOAS_MAP
    MapPages = 0x3B85,
    /// IOMMU_IOAS_UNMAP
    UnmapPages = 0x3B86,
}

/// VFIO_DEVICE_RESET, which has no argument.
const RESET: u64 = 0x3B6F;

/// Sends a request with `argument`, whose first four bytes are set to its length. The answer
/// replaces the argument.
///
/// Errors: the kernel's number; `INVAL` without a request if the argument is shorter than its own
/// size field.
pub(super) fn ask(
    descriptor: BorrowedFd<'_>,
    request: Request,
    argument: &mut [u8],
) -> Result<(), Errno> {
    let length = u32::try_from(argument.len()).map_err(|_| Errno::INVAL)?;
    let size = argument.first_chunk_mut().ok_or(Errno::INVAL)?;
    *size = length.to_ne_bytes();
    // SAFETY: 1. Each of these requests reads and writes at most as many bytes as the argument's
    //            first field says, which is the length of `argument` (set above).
    //         2. The kernel copies to and from user memory, so alignment does not matter.
    //         3. `MapDma` and `MapPages` have the kernel keep the memory at an address named
    //            inside; the caller owns that mapping and touches it by atomics only (see
    //            `Memory`). `AddressRanges` has it write to one: `Character::limits`, the only
    //            place that asks, names a vector of its own and how much it holds.
    let result = unsafe {
        libc::ioctl(
            descriptor.as_raw_fd(),
            request as libc::c_ulong,
            argument.as_mut_ptr(),
        )
    };
    errno_of(result)
}

/// Function-level reset.
pub(super) fn reset(descriptor: BorrowedFd<'_>) -> Result<(), Errno> {
    // SAFETY: the request takes no argument.
    errno_of(unsafe { libc::ioctl(descriptor.as_raw_fd(), RESET as libc::c_ulong) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn a_descriptor_that_is_no_vfio_device_is_refused_with_the_kernels_number() {
        let file = std::fs::File::open("/dev/null").unwrap();
        let mut argument = [0; 32];
        let asked = ask(file.as_fd(), Request::RegionInfo, &mut argument);
        assert_eq!(asked, Err(Errno::NOTTY));
        assert_eq!(argument.first_chunk(), Some(&32u32.to_ne_bytes()));
        assert_eq!(reset(file.as_fd()), Err(Errno::NOTTY));
    }

    #[test]
    fn an_argument_without_room_for_its_own_size_is_not_sent() {
        let file = std::fs::File::open("/dev/null").unwrap();
        let asked = ask(file.as_fd(), Request::InterruptInfo, &mut [0; 3]);
        assert_eq!(asked, Err(Errno::INVAL));
    }
}
