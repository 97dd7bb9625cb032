//! What scenario tests have in common.

pub mod receiver;
pub mod recording;
