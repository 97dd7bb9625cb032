//! The kernel's report of PCI functions in sysfs, and of the processes that hold a device file,
//! from /proc.
//!
//! Everything is read below a root that a test can replace. A missing or unreadable entry is
//! `None`, because a kernel may omit any of them.

use std::fs;
use std::path::{Path, PathBuf};

/// The mount points of `sys` and `proc`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sysfs {
    root: PathBuf,
}

/// One PCI function as the kernel reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PciFunction {
    /// Its address, such as `0000:3b:00.0`.
    pub address: String,
    /// Vendor id.
    pub vendor: u16,
    /// Device id.
    pub device: u16,
    /// Class code, 24 bits.
    pub class: u32,
    /// The kernel driver that it is bound to.
    pub driver: Option<String>,
    /// The only driver that may bind to it, if one was set.
    pub driver_override: Option<String>,
    /// Its IOMMU group.
    pub group: Option<u32>,
    /// The NUMA node that it is attached to.
    pub numa_node: Option<u32>,
    /// Names of its network interfaces.
    pub interfaces: Vec<String>,
}

/// A process that has a file open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// Its id.
    pub pid: u32,
    /// Its name.
    pub name: String,
}

impl Holder {
    /// True for the process that asks.
    #[must_use]
    pub fn is_this_process(&self) -> bool {
        self.pid == std::process::id()
    }
}

impl std::fmt::Display for Holder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} (pid {})", self.name, self.pid)
    }
}

/// Class code of PCI bridges, in its upper 16 bits.
const CLASS_BRIDGE: u32 = 0x0604;

impl PciFunction {
    /// True for a PCI bridge: it is part of an IOMMU group but does not block the group.
    #[must_use]
    pub const fn is_bridge(&self) -> bool {
        self.class >> 8 == CLASS_BRIDGE
    }

    /// True if this function prevents other functions of its group from being claimed: its driver
    /// performs DMA on its own. Source: Linux `drivers/vfio/`, vfio_dev_viable and `pci_stub`.
    #[must_use]
    pub fn blocks_group(&self) -> bool {
        let harmless = ["vfio-pci", "pci-stub", "pcieport"];
        self.driver
            .as_deref()
            .is_some_and(|driver| !harmless.contains(&driver))
    }
}

impl Default for Sysfs {
    fn default() -> Self {
        Self::at("/")
    }
}

impl Sysfs {
    /// Uses another root, which holds `sys` and `proc`.
    pub fn at(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// A path below the root.
    #[must_use]
    pub fn path(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    /// The folder of a function.
    #[must_use]
    pub fn function_path(&self, address: &str) -> PathBuf {
        self.path("sys/bus/pci/devices").join(address)
    }

    /// A file's text without the line end.
    #[must_use]
    pub fn text(&self, path: &str) -> Option<String> {
        text(&self.path(path))
    }

    /// The function at `address`; `None` if there is none.
    #[must_use]
    pub fn function(&self, address: &str) -> Option<PciFunction> {
        let path = self.function_path(address);
        let mut interfaces = names(&path.join("net"));
        interfaces.sort();
        Some(PciFunction {
            address: address.to_owned(),
            vendor: u16::try_from(hexadecimal(&path.join("vendor"))?).ok()?,
            device: u16::try_from(hexadecimal(&path.join("device"))?).ok()?,
            class: hexadecimal(&path.join("class")).unwrap_or(0),
            driver: link_name(&path.join("driver")),
            driver_override: text(&path.join("driver_override"))
                .filter(|name| !name.is_empty() && name != "(null)"),
            group: link_name(&path.join("iommu_group")).and_then(|name| name.parse().ok()),
            numa_node: text(&path.join("numa_node")).and_then(|node| node.parse().ok()),
            interfaces,
        })
    }

    /// All functions, in the order of their addresses.
    #[must_use]
    pub fn functions(&self) -> Vec<PciFunction> {
        let mut addresses = names(&self.path("sys/bus/pci/devices"));
        addresses.sort();
        let found = addresses.iter();
        found.filter_map(|address| self.function(address)).collect()
    }

    /// The functions of an IOMMU group.
    #[must_use]
    pub fn group(&self, group: u32) -> Vec<PciFunction> {
        let folder = self.path(&format!("sys/kernel/iommu_groups/{group}/devices"));
        let mut addresses = names(&folder);
        addresses.sort();
        let found = addresses.iter();
        found.filter_map(|address| self.function(address)).collect()
    }

    /// Processes that have claimed `function`, as far as this user may see: by the file of its
    /// IOMMU group, or by its own file of the newer interface (`/dev/vfio/devices/vfio0`). One with
    /// another driver than VFIO's has none: its group is claimed by way of another function.
    #[must_use]
    pub fn claimants(&self, function: &PciFunction) -> Vec<Holder> {
        let driver = function.driver.as_deref();
        if !driver.is_some_and(|driver| driver.contains("vfio")) {
            return Vec::new();
        }
        let group = function.group.map(|group| format!("/dev/vfio/{group}"));
        let own = names(&self.function_path(&function.address).join("vfio-dev"));
        let own = own
            .into_iter()
            .map(|name| format!("/dev/vfio/devices/{name}"));
        let files = group.into_iter().chain(own);
        let mut found: Vec<_> = files.flat_map(|file| self.holders(&file)).collect();
        found.sort_by_key(|holder| holder.pid);
        found.dedup();
        found
    }

    /// Processes that have `file` open, as far as this user may see.
    #[must_use]
    pub fn holders(&self, file: &str) -> Vec<Holder> {
        let mut found = Vec::new();
        for name in names(&self.path("proc")) {
            let Ok(pid) = name.parse::<u32>() else {
                continue;
            };
            let folder = self.path("proc").join(&name);
            let links = fs::read_dir(folder.join("fd")).into_iter().flatten();
            let mut targets = links
                .flatten()
                .filter_map(|link| fs::read_link(link.path()).ok());
            if targets.any(|target| target == Path::new(file)) {
                let name = text(&folder.join("comm")).unwrap_or_else(|| "?".into());
                found.push(Holder { pid, name });
            }
        }
        found.sort_by_key(|holder| holder.pid);
        found
    }
}

fn text(path: &Path) -> Option<String> {
    Some(fs::read_to_string(path).ok()?.trim().to_owned())
}

fn hexadecimal(path: &Path) -> Option<u32> {
    u32::from_str_radix(text(path)?.strip_prefix("0x")?, 16).ok()
}

fn link_name(path: &Path) -> Option<String> {
    let target = fs::read_link(path).ok()?;
    Some(target.file_name()?.to_string_lossy().into_owned())
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect()
}

#[cfg(test)]
mod tests;
