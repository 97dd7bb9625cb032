//! Connections by the InfiniBand connection manager (CM), for Rust programs.
//!
//! [`ConnectionManager`] listens and connects by IP address and port, as `rdma_cm` does for C
//! programs, and interoperates with it: the peer may be a program over librdmacm, on Linux's driver
//! or on ringside. The protocol is [`ringside_cm`], which does no input or output; this crate gives
//! it queue pair 1 of a device and a thread. [`Service`], the part below, also serves the C
//! library.
#![forbid(unsafe_code)]

mod addresses;
mod connection;
mod error;
pub mod farewell;
mod lookup;
mod manager;
mod news;
mod pair;
mod service;
mod shared;
mod state;

pub use connection::{Bond, Connection, Listener, Request};
pub use error::{Closed, ConnectError, End, ListenError, StartError};
pub use lookup::{Lookup, NextHop, Peer};
pub use manager::ConnectionManager;
pub use pair::Settings;
pub use ringside_cm::Reason;
pub use ringside_config::Within;
pub use service::{Neighbour, Service};
