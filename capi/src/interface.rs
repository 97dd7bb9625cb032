//! The interface of the device, as programs find it by `ringside-files.so` (`capi/preload`).

use crate::environment::variable;
use std::path::PathBuf;

/// Its index: the kernel counts its own from 1 and does not come that far.
pub(crate) const INTERFACE: u32 = 1 << 20;

/// The folder of its files, if the environment names one.
pub(crate) fn folder() -> Option<PathBuf> {
    variable("RINGSIDE_FILES").map(PathBuf::from)
}

/// Its index, or 0 if programs find none.
pub(crate) fn index() -> u32 {
    folder().map_or(0, |_| INTERFACE)
}
