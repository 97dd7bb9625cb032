//! Host memory cache.
#![forbid(unsafe_code)]
pub mod address;
pub mod pble;
