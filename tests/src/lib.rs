//! Code that the scenario tests share.

pub mod receiver;
pub mod recording;
