//! The E810 in software.
#![forbid(unsafe_code)]

pub mod packet;
pub mod roce;
