//! A device by its own character device, `/dev/vfio/devices/vfioN`, in an address space of
//! `/dev/iommu`: the interface of kernels that are built without groups.
//!
//! Source: `linux/vfio.h` (VFIO_DEVICE_BIND_IOMMUFD and what follows it) and `linux/iommufd.h` of
//! Linux 6.12.
#![allow(unsafe_code)] // the kernel writes to an address that an argument names

use super::claim::{ClaimError, opening};
use super::ioctl::{self, Request};
use super::iommu;
use crate::function::{DmaAccess, DmaLimits};
use crate::sysfs::Sysfs;
use rustix::fs::{Mode, OFlags, open};
use rustix::io::Errno;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// The source of address spaces.
const IOMMU: &str = "/dev/iommu";

/// The number of address ranges requested, at first and at most.
const RANGES: u32 = 16;
const MAX_RANGES: u32 = 4096;

ringside_spec::words! {
    /// Source: `linux/iommufd.h`, enum iommufd_ioas_map_flags.
    struct MapFlags: u32 {
        /// at the address that is given
        fixed_address: [0],
        /// the device may write
        writable: [1],
        /// the device may read
        readable: [2],
    }
}

/// The character device of a function, not opened yet.
pub(super) struct Place {
    path: String,
}

/// A device that is attached to an address space.
pub(super) struct Character {
    // The device is the first field: closing it detaches it from the address space.
    device: OwnedFd,
    iommu: OwnedFd,
    /// number of the address space
    space: u32,
    path: String,
}

/// 32-bit fields as the kernel reads them.
fn fields(values: &[u32]) -> Vec<u8> {
    values
        .iter()
        .flat_map(|value| value.to_ne_bytes())
        .collect()
}

/// 64-bit fields.
fn long_fields(values: &[u64]) -> Vec<u8> {
    values
        .iter()
        .flat_map(|value| value.to_ne_bytes())
        .collect()
}

/// The 32-bit field `index`, if the answer has it.
fn field(answer: &[u8], index: usize) -> Result<u32, Errno> {
    let four = answer.get(index * 4..).and_then(<[u8]>::first_chunk);
    four.map(|four| u32::from_ne_bytes(*four))
        .ok_or(Errno::BADMSG)
}

impl Character {
    /// The function's character device, if the kernel has made one.
    pub(super) fn of(sysfs: &Sysfs, address: &str) -> Option<Place> {
        let folder = sysfs.function_path(address).join("vfio-dev");
        let name = std::fs::read_dir(folder)
            .ok()?
            .flatten()
            .next()?
            .file_name();
        let path = format!("/dev/vfio/devices/{}", name.to_string_lossy());
        Some(Place { path })
    }

    pub(super) fn device(&self) -> BorrowedFd<'_> {
        self.device.as_fd()
    }

    pub(super) fn describe(&self) -> String {
        format!("{} in an address space of {IOMMU}", self.path)
    }

    /// IOMMU_IOAS_IOVA_RANGES; there is no limit to the number of mappings.
    pub(super) fn limits(&self) -> Result<DmaLimits, Errno> {
        let mut room = RANGES;
        loop {
            let mut ranges = vec![[0_u64; 2]; room as usize];
            let into = ranges.as_mut_ptr() as u64;
            let mut argument = fields(&[0, self.space, room, 0]);
            argument.extend(long_fields(&[into, 0]));
            // The kernel writes at most `room` pairs to `into`, which has place for as many and
            // outlives the call; it is told both in the argument (see `ioctl::ask`).
            let asked = ioctl::ask(self.iommu.as_fd(), Request::AddressRanges, &mut argument);
            let found = field(&argument, 2)?;
            match asked {
                Ok(()) => {
                    ranges.truncate(found as usize);
                    let alignment = argument.get(24..).and_then(<[u8]>::first_chunk);
                    let alignment = alignment.map_or(0, |bytes| u64::from_ne_bytes(*bytes));
                    return Ok(iommu::limits_of(&ranges, alignment));
                }
                Err(Errno::MSGSIZE) if found > room && found <= MAX_RANGES => room = found,
                Err(error) => return Err(error),
            }
        }
    }

    /// IOMMU_IOAS_MAP.
    pub(super) fn map(
        &self,
        iova: u64,
        length: usize,
        place: *mut u8,
        access: DmaAccess,
    ) -> Result<(), Errno> {
        let mut argument = map_argument(self.space, iova, length as u64, place as u64, access);
        ioctl::ask(self.iommu.as_fd(), Request::MapPages, &mut argument)
    }

    /// IOMMU_IOAS_UNMAP.
    pub(super) fn unmap(&self, iova: u64, length: usize) -> Result<(), Errno> {
        let mut argument = fields(&[0, self.space]);
        argument.extend(long_fields(&[iova, length as u64]));
        ioctl::ask(self.iommu.as_fd(), Request::UnmapPages, &mut argument)
    }
}

/// struct iommu_ioas_map.
fn map_argument(space: u32, iova: u64, length: u64, place: u64, access: DmaAccess) -> Vec<u8> {
    let flags = MapFlags::ZERO
        .with_fixed_address(true)
        .with_readable(true)
        .with_writable(access == DmaAccess::ReadWrite);
    let mut argument = fields(&[0, flags.0, space, 0]);
    argument.extend(long_fields(&[place, length, iova]));
    argument
}

impl Place {
    /// Opens the device, and an address space for it alone.
    pub(super) fn claim(self, sysfs: &Sysfs, address: &str) -> Result<Character, ClaimError> {
        let opened = |path: &str| {
            let flags = OFlags::RDWR | OFlags::CLOEXEC;
            let file = open(sysfs.path(path), flags, Mode::empty());
            file.map_err(|error| {
                let holders = sysfs.holders(path);
                opening(&error.into(), path.to_owned(), address, holders)
            })
        };
        let device = opened(&self.path)?;
        let iommu = opened(IOMMU)?;
        let failed = |operation: &str, error: Errno| ClaimError::System {
            address: address.to_owned(),
            operation: format!("{}: {operation}", self.path),
            error: error.to_string(),
        };
        let raw = iommu.as_raw_fd().cast_unsigned();
        let mut argument = fields(&[0, 0, raw, 0]);
        match ioctl::ask(device.as_fd(), Request::BindToIommu, &mut argument) {
            Ok(()) => {}
            Err(Errno::PERM) => return Err(ClaimError::NoInterruptRemapping),
            // the kernel's answer if another process has bound it
            Err(Errno::INVAL | Errno::BUSY) => {
                // This process has it open too and must not be listed.
                drop(device);
                let holders = sysfs.holders(&self.path);
                let path = self.path;
                return Err(ClaimError::Busy { path, holders });
            }
            Err(error) => return Err(failed("binding it to an IOMMU", error)),
        }
        let mut argument = fields(&[0, 0, 0]);
        ioctl::ask(iommu.as_fd(), Request::MakeAddressSpace, &mut argument)
            .map_err(|error| failed("making an address space", error))?;
        let space = field(&argument, 2).map_err(|error| failed("an address space", error))?;
        let mut argument = fields(&[0, 0, space]);
        ioctl::ask(device.as_fd(), Request::AttachToAddressSpace, &mut argument)
            .map_err(|error| failed("attaching it to an address space", error))?;
        Ok(Character {
            device,
            iommu,
            space,
            path: self.path,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mapping_names_space_address_and_rights_as_the_kernel_reads_them() {
        let bytes = map_argument(
            7,
            0x1_0000_0000,
            0x20_0000,
            0x7F00_0000_0000,
            DmaAccess::ReadWrite,
        );
        assert_eq!(bytes.len(), 40);
        // fixed address, writable, readable
        assert_eq!((field(&bytes, 1), field(&bytes, 2)), (Ok(7), Ok(7)));
        assert_eq!(bytes[16..24], 0x7F00_0000_0000_u64.to_ne_bytes());
        assert_eq!(bytes[24..32], 0x20_0000_u64.to_ne_bytes());
        assert_eq!(bytes[32..40], 0x1_0000_0000_u64.to_ne_bytes());
        let bytes = map_argument(7, 0, 4096, 0, DmaAccess::Read);
        assert_eq!(field(&bytes, 1), Ok(5));
    }

    #[test]
    fn an_answer_that_is_too_short_is_no_answer() {
        assert_eq!(field(&[1, 0, 0, 0], 0), Ok(1));
        assert_eq!(field(&[1, 0, 0], 0), Err(Errno::BADMSG));
        assert_eq!(field(&[1, 0, 0, 0], 1), Err(Errno::BADMSG));
    }

    #[test]
    fn a_function_without_a_character_device_has_no_place() {
        assert!(Character::of(&Sysfs::at("/nowhere"), "0000:01:00.0").is_none());
    }
}
