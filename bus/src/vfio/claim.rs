//! Reasons why a function cannot be claimed, each with its remedy.

use crate::error::remedy;
use crate::sysfs::{Holder, PciFunction, Sysfs};
use rustix::io::Errno;
use vfio_ioctls::VfioError;

/// The driver that assigns functions to processes.
pub(super) const DRIVER: &str = "vfio-pci";

/// The container device.
const CONTAINER: &str = "/dev/vfio/vfio";

/// Reasons why a function of this machine could not be claimed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClaimError {
    /// No function has this address.
    #[error(
        "{address}: no PCI function has this address; `ringside devices` lists the available ones"
    )]
    NoSuchFunction {
        /// The requested address.
        address: String,
    },
    /// The address is not a PCI address.
    #[error("{address} is not a PCI address such as 0000:3b:00.0; this is a bug of the caller")]
    NotPci {
        /// The requested address.
        address: String,
    },
    /// The function is bound to another driver, or to none.
    #[error(
        "{address} is {}, not by vfio-pci; hand it over with: ringside bind {address}",
        .driver.as_ref().map_or("driven by no driver".to_owned(), |driver| format!("driven by {driver}"))
    )]
    NotBound {
        /// The function.
        address: String,
        /// Its driver.
        driver: Option<String>,
    },
    /// No IOMMU translates addresses for the function.
    #[error(
        "{address} is in no IOMMU group: without an IOMMU the device could write to any \
         memory. Switch it on in the firmware set-up (VT-d, AMD-Vi), and for Intel with \
         intel_iommu=on on the kernel's command line; `ringside doctor {address}` says more"
    )]
    NoIommuGroup {
        /// The function.
        address: String,
    },
    /// The kernel has no VFIO.
    #[error("{path} does not exist: load the kernel's VFIO with `modprobe vfio-pci`")]
    NoVfio {
        /// The missing file.
        path: String,
    },
    /// The user has no permission.
    #[error(
        "{path}: permission denied. As root: chown USER {path}, or permanently the udev rule \
         config/60-ringside-vfio.rules, which gives it to the group `ringside`"
    )]
    Permission {
        /// The file.
        path: String,
    },
    /// Another function of the group is bound to a kernel driver.
    #[error(
        "IOMMU group {group} is shared with {}: the device could reach their memory. Bind them to \
         vfio-pci too (ringside bind ADDRESS), unbind them, or put the card into another slot",
        neighbours(.others)
    )]
    GroupNotViable {
        /// The group.
        group: u32,
        /// The functions that prevent the claim.
        others: Vec<PciFunction>,
    },
    /// Another process has claimed it, or this one.
    #[error(
        "{path} is in use by {}; a function has one owner at a time: {}",
        named(.holders),
        remedy(.holders, "end it first")
    )]
    Busy {
        /// The group's file.
        path: String,
        /// The processes that have it open and that this user may see.
        holders: Vec<Holder>,
    },
    /// The machine's IOMMU does not isolate interrupts.
    #[error(
        "the IOMMU of this machine does not remap interrupts, so a device could send those of \
         others. Switch interrupt remapping (x2APIC) on in the firmware set-up; or, if every \
         process that may claim devices is trusted: \
         echo 1 > /sys/module/vfio_iommu_type1/parameters/allow_unsafe_interrupts"
    )]
    NoInterruptRemapping,
    /// The kernel lacks an interface that is needed.
    #[error(
        "the kernel's VFIO has no type 1 v2 IOMMU ({what}): load it with `modprobe vfio_iommu_type1`, or use a kernel that has it"
    )]
    NoType1 {
        /// The missing part.
        what: String,
    },
    /// The system refused for a reason of its own.
    #[error("{operation}: {error}; `ringside doctor {address}` reports what is wrong")]
    System {
        /// The function.
        address: String,
        /// The operation.
        operation: String,
        /// The operating system's message.
        error: String,
    },
}

fn neighbours(others: &[PciFunction]) -> String {
    let named = others.iter().map(|other| {
        let driver = other.driver.as_deref().unwrap_or("no driver");
        format!("{} ({driver})", other.address)
    });
    match named.collect::<Vec<_>>() {
        list if list.is_empty() => "functions that are not visible here".into(),
        list => list.join(", "),
    }
}

fn named(holders: &[Holder]) -> String {
    let own = |holder: &Holder| match holder.is_this_process() {
        true => "this process itself (it, or another function of the same IOMMU group)".to_owned(),
        false => holder.to_string(),
    };
    match holders.iter().map(own).collect::<Vec<_>>() {
        list if list.is_empty() => "another process, which this user may not see".into(),
        list => list.join(", "),
    }
}

/// The device file of a group.
pub(super) fn group_file(group: u32) -> String {
    format!("/dev/vfio/{group}")
}

/// Reads the facts that are available before anything is opened: the function and its group.
pub(super) fn look(sysfs: &Sysfs, address: &str) -> Result<(PciFunction, u32), ClaimError> {
    let address = address.to_owned();
    let Some(function) = sysfs.function(&address) else {
        return Err(ClaimError::NoSuchFunction { address });
    };
    // The IOMMU is checked first: binding is of no use without it.
    let Some(group) = function.group else {
        return Err(ClaimError::NoIommuGroup { address });
    };
    if function.driver.as_deref() != Some(DRIVER) {
        let driver = function.driver.clone();
        return Err(ClaimError::NotBound { address, driver });
    }
    Ok((function, group))
}

/// Translates an error of `vfio-ioctls` for the function at `address` in `group`.
pub(super) fn explain(error: &VfioError, sysfs: &Sysfs, address: &str, group: u32) -> ClaimError {
    let path = group_file(group);
    match error {
        VfioError::OpenContainer(error) => opening(error, CONTAINER.into(), address, Vec::new()),
        VfioError::OpenGroup(error, _) => {
            let holders = sysfs.holders(&path);
            opening(error, path, address, holders)
        }
        VfioError::GroupViable => {
            let others = sysfs.group(group).into_iter();
            let others = others.filter(PciFunction::blocks_group).collect();
            ClaimError::GroupNotViable { group, others }
        }
        VfioError::ContainerSetIOMMU(errno) if errno.errno() == Errno::PERM.raw_os_error() => {
            ClaimError::NoInterruptRemapping
        }
        VfioError::VfioApiVersion
        | VfioError::VfioExtension
        | VfioError::VfioInvalidType
        | VfioError::VfioType1V2
        | VfioError::ContainerSetIOMMU(_) => ClaimError::NoType1 {
            what: error.to_string(),
        },
        VfioError::GroupGetDeviceFD(errno) if errno.errno() == Errno::BUSY.raw_os_error() => {
            let holders = sysfs.holders(&path);
            ClaimError::Busy { path, holders }
        }
        other => ClaimError::System {
            address: address.to_owned(),
            operation: format!("claiming {address} (IOMMU group {group})"),
            error: other.to_string(),
        },
    }
}

/// Translates the error of a file that could not be opened.
pub(super) fn opening(
    error: &std::io::Error,
    path: String,
    address: &str,
    holders: Vec<Holder>,
) -> ClaimError {
    match Errno::from_io_error(error) {
        Some(Errno::NOENT | Errno::NODEV | Errno::NXIO) => ClaimError::NoVfio { path },
        Some(Errno::ACCESS | Errno::PERM) => ClaimError::Permission { path },
        Some(Errno::BUSY) => ClaimError::Busy { path, holders },
        _ => ClaimError::System {
            address: address.to_owned(),
            operation: format!("opening {path}"),
            error: error.to_string(),
        },
    }
}

#[cfg(test)]
mod tests;
