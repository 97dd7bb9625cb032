//! TCP connections over the device's own port.

use super::Device;
use crate::NetworkError;
use ringside_stack::{TcpConnection, TcpListener};
use std::net::SocketAddr;
use std::time::Duration;

impl Device {
    /// Listens for TCP connections to an address of the port, over the port's own queues: the
    /// kernel needs no interface to this network. It starts the IP stack of [`Device::resolve`].
    ///
    /// An unspecified address (0.0.0.0) stands for all addresses of the port, and port 0 for a free
    /// number. Up to `backlog` connections, 1 to 64, wait for [`TcpListener::accept`]; further ones
    /// are refused. A device has 64 connections and 64 listeners at most, and refuses requests
    /// beyond them. Listeners and connections end when the device fails and when it is shut down.
    /// After a recovery, listen again.
    ///
    /// ```
    /// use ringside::prelude::*;
    /// use std::time::Duration;
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// const WAIT: Duration = Duration::from_secs(20);
    /// let config = Config::default();
    /// let left = ringside::open("model:0", &config)?;
    /// let right = ringside::open("model:1", &config)?;
    ///
    /// let address = std::net::SocketAddr::new(right.local_addresses()?[0], 7000);
    /// let listener = right.listen_tcp(address, 4)?;
    /// let mut near = left.connect_tcp(address, WAIT)?;
    /// let mut far = listener.accept(WAIT)?;
    ///
    /// near.write_all(b"hello", WAIT)?;
    /// near.finish();
    /// let (mut text, mut piece) = (Vec::new(), [0; 64]);
    /// loop {
    ///     match far.read(&mut piece, WAIT)? {
    ///         0 => break,
    ///         count => text.extend_from_slice(&piece[..count]),
    ///     }
    /// }
    /// assert_eq!(text, b"hello");
    /// far.close(WAIT)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Errors: [`NetworkError`].
    pub fn listen_tcp(
        &self,
        address: SocketAddr,
        backlog: usize,
    ) -> Result<TcpListener, NetworkError> {
        let asker = self.asker()?;
        Ok(asker.listen_tcp(address, backlog)?)
    }

    /// Connects to a peer over TCP on the port's own queues, within `limit`: see
    /// [`Device::listen_tcp`]. The peer may be any host of the network.
    ///
    /// If no host answered for the address within the last second, it fails at once with the
    /// requests and the time of that search, as [`Device::resolve`] does.
    ///
    /// Errors: [`NetworkError::Tcp`]: the peer is not found, refuses or does not answer; and those
    /// of [`Device::serve_network`].
    pub fn connect_tcp(
        &self,
        peer: SocketAddr,
        limit: Duration,
    ) -> Result<TcpConnection, NetworkError> {
        let asker = self.asker()?;
        Ok(asker.connect_tcp(peer, limit)?)
    }
}
