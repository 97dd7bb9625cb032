//! Code that the scenario tests share.
#![forbid(unsafe_code)]

pub mod receiver;
pub mod recording;
