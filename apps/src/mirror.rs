//! Copies of packets of running ports, for a capture in another process.
//!
//! Threads that move packets copy them into buffers that were made at the start, and only while a
//! capture is attached. When no buffer is free, copies are lost and counted; packets never wait.

mod copied;
mod copies;
mod server;

pub(crate) use copied::{Copied, Direction, Next, now_ns};
pub(crate) use copies::{Copies, Mirror};
pub(crate) use server::{GREETING, MirrorServer};
