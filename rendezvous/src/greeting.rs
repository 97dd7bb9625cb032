//! The data that two ends of a connection exchange, as bytes.
//!
//! A [`Greeting`] has a version, the endpoint and the memory regions that the peer may use. Data
//! from a peer is checked and bounded.

use ringside_pmd::rdma::{Endpoint, RemoteRegion};
use std::io::Read;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The message from one end to the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Greeting {
    /// The endpoint of the sender.
    pub endpoint: Endpoint,
    /// Memory that the peer may use, at most [`MAX_REGIONS`].
    pub regions: Vec<RemoteRegion>,
}

/// The most memory regions in a greeting.
pub const MAX_REGIONS: usize = 64;

/// First bytes of a greeting.
const MAGIC: [u8; 8] = *b"ringside";
/// Version of the format.
const VERSION: u16 = 1;
/// Bytes before the regions.
const HEAD_BYTES: usize = 8 + 2 + 2 + 4 + 4 + 4 + 6 + 2 + 16;
/// Bytes of a region.
const REGION_BYTES: usize = 20;

/// Reasons why a greeting was not sent or not decoded.
#[derive(Debug, thiserror::Error)]
pub enum GreetingError {
    /// The connection broke, or the peer did not answer in time.
    #[error(
        "exchange with the peer, within {waited_ms} ms: {error}; check that it is running and reachable"
    )]
    Stream {
        /// The system's message.
        error: std::io::Error,
        /// The deadline.
        waited_ms: u64,
    },
    /// The peer uses another protocol.
    #[error("the peer does not use this protocol: it began with {found:02x?}")]
    NotRingside {
        /// Its first bytes.
        found: [u8; 8],
    },
    /// The peer uses another version.
    #[error(
        "the peer uses version {found} of the exchange, this end {ours}; use the same version on both"
    )]
    Version {
        /// The peer's version.
        found: u16,
        /// The version of this end.
        ours: u16,
    },
    /// The peer's message is malformed.
    #[error("the peer's greeting: {reason}")]
    Malformed {
        /// The error.
        reason: String,
    },
    /// More regions than a greeting holds.
    #[error("{given} memory regions; a greeting holds at most {MAX_REGIONS}")]
    TooManyRegions {
        /// The number given.
        given: usize,
    },
}

impl Greeting {
    /// Encodes the greeting, all numbers big-endian: magic, version, number of regions, queue pair,
    /// sequence number, MTU, MAC address, address family (4 or 6), address; then each region's
    /// address, length and key.
    pub fn encode(&self) -> Result<Vec<u8>, GreetingError> {
        let given = self.regions.len();
        let count = u16::try_from(given).ok().filter(|_| given <= MAX_REGIONS);
        let count = count.ok_or(GreetingError::TooManyRegions { given })?;
        let endpoint = &self.endpoint;
        let mut bytes = Vec::with_capacity(HEAD_BYTES + given * REGION_BYTES);
        bytes.extend(MAGIC);
        bytes.extend(VERSION.to_be_bytes());
        bytes.extend(count.to_be_bytes());
        for number in [endpoint.queue_pair, endpoint.start_psn, endpoint.path_mtu] {
            bytes.extend(number.to_be_bytes());
        }
        bytes.extend(endpoint.mac);
        let (family, address) = match endpoint.address {
            IpAddr::V4(address) => (4u16, address.to_ipv6_mapped()),
            IpAddr::V6(address) => (6, address),
        };
        bytes.extend(family.to_be_bytes());
        bytes.extend(address.octets());
        for region in &self.regions {
            bytes.extend(region.address.to_be_bytes());
            bytes.extend(region.length_bytes.to_be_bytes());
            bytes.extend(region.key.to_be_bytes());
        }
        Ok(bytes)
    }

    /// Reads a greeting; accepts at most [`MAX_REGIONS`] regions.
    pub fn read(from: &mut impl Read, waited_ms: u64) -> Result<Self, GreetingError> {
        let stream = |error| GreetingError::Stream { error, waited_ms };
        let mut head = [0; HEAD_BYTES];
        from.read_exact(&mut head).map_err(stream)?;
        let mut head = Bytes(&head);
        let found = head.take()?;
        if found != MAGIC {
            return Err(GreetingError::NotRingside { found });
        }
        let found = u16::from_be_bytes(head.take()?);
        if found != VERSION {
            return Err(GreetingError::Version {
                found,
                ours: VERSION,
            });
        }
        let count = usize::from(u16::from_be_bytes(head.take()?));
        if count > MAX_REGIONS {
            return Err(malformed(format!(
                "{count} memory regions, at most {MAX_REGIONS} are taken"
            )));
        }
        let endpoint = read_endpoint(&mut head)?;
        let mut tail = vec![0; count * REGION_BYTES];
        from.read_exact(&mut tail).map_err(stream)?;
        let mut tail = Bytes(&tail);
        let regions = (0..count)
            .map(|_| {
                Ok(RemoteRegion {
                    address: u64::from_be_bytes(tail.take()?),
                    length_bytes: u64::from_be_bytes(tail.take()?),
                    key: u32::from_be_bytes(tail.take()?),
                })
            })
            .collect::<Result<Vec<_>, GreetingError>>()?;
        Ok(Self { endpoint, regions })
    }
}

fn read_endpoint(head: &mut Bytes<'_>) -> Result<Endpoint, GreetingError> {
    let queue_pair = u32::from_be_bytes(head.take()?);
    let start_psn = u32::from_be_bytes(head.take()?);
    let path_mtu = u32::from_be_bytes(head.take()?);
    let mac = head.take()?;
    let family = u16::from_be_bytes(head.take()?);
    let address = Ipv6Addr::from(head.take::<16>()?);
    let address = match (family, address.to_ipv4_mapped()) {
        (4, Some(address)) => IpAddr::V4(address),
        (6, _) => IpAddr::V6(address),
        _ => return Err(malformed(format!("no address of family {family}"))),
    };
    let endpoint = Endpoint {
        queue_pair,
        start_psn,
        address,
        mac,
        path_mtu,
    };
    endpoint
        .check()
        .map_err(|error| malformed(error.to_string()))?;
    if address == IpAddr::V4(Ipv4Addr::UNSPECIFIED) || address == IpAddr::V6(Ipv6Addr::UNSPECIFIED)
    {
        return Err(malformed("an unspecified address".to_owned()));
    }
    Ok(endpoint)
}

fn malformed(reason: String) -> GreetingError {
    GreetingError::Malformed { reason }
}

/// Bytes that are decoded from the front.
struct Bytes<'a>(&'a [u8]);

impl Bytes<'_> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], GreetingError> {
        let too_short = || malformed("it is too short".to_owned());
        let (first, rest) = self.0.split_first_chunk::<N>().ok_or_else(too_short)?;
        self.0 = rest;
        Ok(*first)
    }
}

#[cfg(test)]
mod tests;
