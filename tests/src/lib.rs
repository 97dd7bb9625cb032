//! What scenario tests have in common.

pub mod recording;
