//! The facts that two ends of a connection need about each other.
//!
//! Within a process an [`Endpoint`] is a value that one end gives to the other. Between processes
//! the crate `ringside-rendezvous` sends it over TCP, with the memory regions that the peer may
//! use.

use super::RdmaError;
use super::address::{MacAddress, unicast};
use std::net::IpAddr;

/// One end of a reliable connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// Number of the queue pair, 24 bits.
    pub queue_pair: u32,
    /// Packet sequence number of the first packet that it sends, 24 bits.
    pub start_psn: u32,
    /// IP address that it sends from.
    pub address: IpAddr,
    /// MAC address that it sends from.
    pub mac: MacAddress,
    /// Largest payload of a packet that it sends or takes, bytes.
    pub path_mtu: u32,
}

/// Checks the path MTU. RoCEv2 defines five values.
pub(crate) fn check_mtu(bytes: u32) -> Result<(), RdmaError> {
    match bytes {
        256 | 512 | 1024 | 2048 | 4096 => Ok(()),
        given => Err(RdmaError::Mtu { given }),
    }
}

impl Endpoint {
    /// Checks that it can be an end of a connection at all.
    ///
    /// Errors: [`RdmaError::Mtu`], [`RdmaError::NotUnicast`], [`RdmaError::OutOfRange`].
    pub fn check(&self) -> Result<(), RdmaError> {
        let most = (1 << 24) - 1;
        for (what, given) in [
            ("a queue pair number", self.queue_pair),
            ("a packet sequence number", self.start_psn),
        ] {
            if given > most {
                return Err(RdmaError::OutOfRange {
                    what,
                    given: given.into(),
                    least: 0,
                    most: most.into(),
                });
            }
        }
        if self.mac[0] & 1 != 0 || self.mac == [0; 6] {
            return Err(RdmaError::OutOfRange {
                what: "the group bit of the peer's MAC address, or an address of all zero",
                given: 1,
                least: 0,
                most: 0,
            });
        }
        unicast(self.address)?;
        check_mtu(self.path_mtu)
    }
}
