//! The package of the packet pipeline (dynamic device personalization, DDP).
//!
//! Without an active package the device runs in safe mode: one queue, no RDMA. A package is found
//! ([`file`]), parsed and checked ([`Package`]) and downloaded unless one is active already
//! ([`load`]).

mod file;
mod load;
mod package;
mod xz;

pub use file::{FileError, PACKAGE_BYTES_MAX, candidates, find, read};
pub use load::{PackageFacts, PackageState, load};
pub use package::{Package, PackageError};
