//! TCP connections over the port's own queues.
//!
//! A connection has two ends in this process: its socket, which only the stack uses, and its
//! handle, which a thread of the program uses. Bytes wait between both in a pipe of limited size.

mod connection;
mod entry;
mod error;
mod segment;
mod shared;
mod table;
mod wake;

pub use connection::{TcpConnection, TcpListener};
pub use error::TcpError;
pub(crate) use table::{SOCKETS, Table};
pub(crate) use wake::Waker;

use std::net::SocketAddr;

/// Source and destination of the request for a connection in a frame; `None` for other frames.
pub(crate) fn request_in(frame: &[u8]) -> Option<(SocketAddr, SocketAddr)> {
    segment::request(frame).map(|request| (request.from, request.to))
}
