//! The package that a device runs.

use crate::admin::commands::InstalledPackage;
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// The origin of the device's package.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum PackageState {
    /// This driver downloaded it. It stays until a core reset.
    Downloaded,
    /// It was active before.
    AlreadyLoaded,
    /// None is usable, and why: one queue, no RDMA.
    SafeMode(String),
}

/// The package of the device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PackageFacts {
    /// Its origin.
    pub state: PackageState,
    /// The one that is active.
    pub active: Option<InstalledPackage>,
    /// The file that was found.
    pub file: Option<PathBuf>,
    /// Group of each packet type in the hash's tables; empty without a file.
    #[serde(skip)]
    pub hash_groups: BTreeMap<u16, u8>,
    /// The same in the flow director's tables.
    #[serde(skip)]
    pub filter_groups: BTreeMap<u16, u8>,
}
