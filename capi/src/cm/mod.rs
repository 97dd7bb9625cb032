//! What `librdmacm.so.1` does: connection management for programs, over queue pair 1.
//!
//! `librdmacm.so.1` itself only forwards: its functions live in `libibverbs.so.1`, where the device
//! is. The functions here have its names with `ringside_` in front.

pub mod abi;
mod addressing;
mod connecting;
mod endpoint;
mod events;
mod id;
mod multicast;
mod node;
mod pairs;
mod route;
mod service;
mod socket_address;
mod sockets;
