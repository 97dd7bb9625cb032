//! The package of the packet pipeline (dynamic device personalization, DDP).
//!
//! Without an active package the device runs in safe mode: one queue, no RDMA. A package is found
//! ([`find`]), parsed and checked ([`Package`]); the bring-up stage `ddp-package` downloads it
//! unless one is active already.

mod facts;
mod file;
mod package;
mod xz;

pub use facts::{PackageFacts, PackageState};
pub use file::{FileError, MAX_PACKAGE_BYTES, candidates, find, read};
pub use package::{Package, PackageError};
