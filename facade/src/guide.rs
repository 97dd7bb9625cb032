//! Guide pages: start, memory, threads, errors, recovery, tuning.

#[doc = include_str!("../guide/start.md")]
pub mod start {}

#[doc = include_str!("../guide/memory.md")]
pub mod memory {}

#[doc = include_str!("../guide/threads.md")]
pub mod threads {}

#[doc = include_str!("../guide/errors.md")]
pub mod errors {}

#[doc = include_str!("../guide/recovery.md")]
pub mod recovery {}

#[doc = include_str!("../guide/tuning.md")]
pub mod tuning {}
