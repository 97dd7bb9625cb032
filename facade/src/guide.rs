//! Guide pages: start, memory, threads, several devices, asynchronous programs, packets, storage,
//! errors, recovery, tuning, verbs.

#[doc = include_str!("../guide/start.md")]
pub mod start {}

#[doc = include_str!("../guide/memory.md")]
pub mod memory {}

#[doc = include_str!("../guide/threads.md")]
pub mod threads {}

#[doc = include_str!("../guide/devices.md")]
pub mod devices {}

#[doc = include_str!("../guide/asynchronous.md")]
pub mod asynchronous {}

#[doc = include_str!("../guide/packets.md")]
pub mod packets {}

#[doc = include_str!("../guide/storage.md")]
pub mod storage {}

#[doc = include_str!("../guide/errors.md")]
pub mod errors {}

#[doc = include_str!("../guide/recovery.md")]
pub mod recovery {}

#[doc = include_str!("../guide/tuning.md")]
pub mod tuning {}

#[doc = include_str!("../guide/verbs.md")]
pub mod verbs {}
