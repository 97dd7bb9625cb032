//! The kernel objects through which a claimed device is held: its IOMMU group and a container, or
//! its own character device and an address space of `/dev/iommu` (iommufd).
#![allow(unsafe_code)] // borrowing descriptors that others own, DMA mappings by address

use super::character::Character;
use super::claim::{self, ClaimError};
use super::ioctl::{self, Request};
use super::iommu;
use crate::function::{DmaAccess, DmaLimits};
use crate::memory::separate_pages;
use crate::sysfs::Sysfs;
use crate::vfio_user::message::{DmaMap, MapFlags};
use rustix::io::Errno;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::Arc;
use vfio_ioctls::{VfioContainer, VfioDevice, VfioError};

/// A device and its address space. Dropping it releases both.
pub(super) enum Owner {
    Group(Group),
    Character(Character),
}

/// A device opened through its group, which is in a container of its own.
pub(super) struct Group {
    // The device is the first field: dropping the container ends its DMA afterwards.
    device: VfioDevice,
    container: Arc<VfioContainer>,
    number: u32,
}

impl Owner {
    /// Claims the device by its group, which almost every kernel with VFIO has; by its character
    /// device if the group has no file and the function has one.
    pub(super) fn claim(sysfs: &Sysfs, address: &str, group: u32) -> Result<Self, ClaimError> {
        let file = sysfs.path(&claim::group_file(group));
        match Character::of(sysfs, address) {
            Some(place) if !file.exists() => place.claim(sysfs, address).map(Self::Character),
            _ => Group::claim(sysfs, address, group).map(Self::Group),
        }
    }

    /// The device.
    pub(super) fn device(&self) -> BorrowedFd<'_> {
        match self {
            Self::Group(group) => group.device(),
            Self::Character(character) => character.device(),
        }
    }

    /// The ranges that its IOMMU accepts.
    pub(super) fn limits(&self) -> Result<DmaLimits, Errno> {
        match self {
            Self::Group(group) => group.limits(),
            Self::Character(character) => character.limits(),
        }
    }

    /// The kind of claim, in words.
    pub(super) fn describe(&self) -> String {
        match self {
            Self::Group(group) => format!("IOMMU group {} (type 1 v2)", group.number),
            Self::Character(character) => character.describe(),
        }
    }

    /// Lets the device access `length` bytes at `place`.
    ///
    /// # Safety
    /// The memory stays mapped in this process until [`Owner::unmap`], and no code forms references
    /// into it but to atomics.
    pub(super) unsafe fn map(
        &self,
        iova: u64,
        length: usize,
        place: *mut u8,
        access: DmaAccess,
    ) -> Result<(), Errno> {
        match self {
            // SAFETY: as the caller promises.
            Self::Group(group) => unsafe { group.map(iova, length, place, access) },
            Self::Character(character) => character.map(iova, length, place, access),
        }
    }

    /// Removes a mapping; the kernel's message if it refuses.
    pub(super) fn unmap(&self, iova: u64, length: usize) -> Result<(), String> {
        match self {
            Self::Group(group) => {
                let undone = group.container.vfio_dma_unmap(iova, length);
                undone.map_err(|error| error.to_string())
            }
            Self::Character(character) => character
                .unmap(iova, length)
                .map_err(|error| error.to_string()),
        }
    }
}

impl Group {
    fn claim(sysfs: &Sysfs, address: &str, number: u32) -> Result<Self, ClaimError> {
        let explain = |error: VfioError| claim::explain(&error, sysfs, address, number);
        let container = Arc::new(VfioContainer::new(None).map_err(explain)?);
        let path = sysfs.function_path(address);
        let device = VfioDevice::new(&path, Arc::clone(&container) as _, false);
        Ok(Self {
            device: device.map_err(explain)?,
            container,
            number,
        })
    }

    fn device(&self) -> BorrowedFd<'_> {
        // SAFETY: `device` owns the descriptor and lives as long as `self`.
        unsafe { BorrowedFd::borrow_raw(self.device.as_raw_fd()) }
    }

    fn container(&self) -> BorrowedFd<'_> {
        // SAFETY: `container` owns the descriptor and lives as long as `self`.
        unsafe { BorrowedFd::borrow_raw(self.container.as_raw_fd()) }
    }

    fn limits(&self) -> Result<DmaLimits, Errno> {
        let mut bytes = vec![0; iommu::INFO_BYTES];
        ioctl::ask(self.container(), Request::IommuInfo, &mut bytes)?;
        let whole = iommu::whole_length(&bytes).unwrap_or(0).min(64 << 10);
        if whole > bytes.len() {
            bytes = vec![0; whole];
            ioctl::ask(self.container(), Request::IommuInfo, &mut bytes)?;
        }
        Ok(iommu::limits(&bytes))
    }

    /// # Safety
    /// As [`Owner::map`].
    unsafe fn map(
        &self,
        iova: u64,
        length: usize,
        place: *mut u8,
        access: DmaAccess,
    ) -> Result<(), Errno> {
        match access {
            // SAFETY: as the caller promises.
            DmaAccess::ReadWrite => unsafe { self.container.vfio_dma_map(iova, length, place) }
                .map_err(|error| match error {
                    VfioError::IommuDmaMap(error) => Errno::from_raw_os_error(error.errno()),
                    _ => Errno::IO,
                }),
            DmaAccess::Read => {
                // An IOMMUFD, which Linux 6.2 began to have, separates them by itself.
                separate_pages(&(place as usize..place as usize + length));
                // uses struct vfio_iommu_type1_dma_map, which has an address where vfio-user has an
                // offset
                let map = DmaMap {
                    flags: MapFlags::ZERO.with_readable(true),
                    offset: place as u64,
                    address: iova,
                    size: length as u64,
                };
                ioctl::ask(self.container(), Request::MapDma, &mut map.encode())
            }
        }
    }
}
