//! Addresses and services: GIDs, service ids, and the address header in private data.

use crate::layout::Field;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A GID: on RoCEv2 an IP address, IPv4 in its mapped form.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Gid(pub [u8; 16]);

impl Gid {
    /// No GID.
    pub const NONE: Self = Self([0; 16]);

    /// The IP address that it is.
    #[must_use]
    pub fn address(self) -> IpAddr {
        let long = Ipv6Addr::from(self.0);
        long.to_ipv4_mapped().map_or(long.into(), IpAddr::V4)
    }
}

impl From<IpAddr> for Gid {
    fn from(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(short) => Self(short.to_ipv6_mapped().octets()),
            IpAddr::V6(long) => Self(long.octets()),
        }
    }
}

impl Field for Gid {
    fn from_bits(bits: u128) -> Self {
        Self(bits.to_be_bytes())
    }
    fn to_bits(self) -> u128 {
        u128::from_be_bytes(self.0)
    }
}

/// The name space of a port number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PortSpace {
    /// RDMA_PS_IPOIB: datagrams beside IP over InfiniBand; not on RoCE
    IpOverInfiniBand,
    /// RDMA_PS_TCP: connections
    Tcp,
    /// RDMA_PS_UDP: datagrams
    Udp,
    /// RDMA_PS_IB: either
    InfiniBand,
}

impl PortSpace {
    /// Its number.
    #[must_use]
    pub const fn number(self) -> u16 {
        match self {
            Self::IpOverInfiniBand => 0x0002,
            Self::Tcp => 0x0106,
            Self::Udp => 0x0111,
            Self::InfiniBand => 0x013F,
        }
    }

    /// The port space of a number.
    #[must_use]
    pub const fn of(number: u16) -> Option<Self> {
        match number {
            0x0002 => Some(Self::IpOverInfiniBand),
            0x0106 => Some(Self::Tcp),
            0x0111 => Some(Self::Udp),
            0x013F => Some(Self::InfiniBand),
            _ => None,
        }
    }
}

/// A service id: the whole 64 bits are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ServiceId(pub u64);

impl ServiceId {
    /// The service of a port.
    #[must_use]
    pub const fn of(space: PortSpace, port: u16) -> Self {
        Self((space.number() as u64) << 16 | port as u64)
    }

    /// Port space and port, if it is the service of one.
    #[must_use]
    pub fn port(self) -> Option<(PortSpace, u16)> {
        let space = u16::try_from(self.0 >> 16).ok().and_then(PortSpace::of)?;
        Some((space, self.0 as u16))
    }
}

impl fmt::Display for ServiceId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.port() {
            Some((PortSpace::Tcp, port)) => write!(formatter, "port {port}"),
            Some((PortSpace::Udp, port)) => write!(formatter, "port {port} of datagrams"),
            _ => write!(formatter, "service {:#018x}", self.0),
        }
    }
}

/// Length of the address header.
pub(crate) const ADDRESS_HEADER_BYTES: usize = 36;

/// The header that begins the private data of REQ and SIDR_REQ of an IP service.
/// Source: InfiniBand Architecture Specification volume 1, annex A11 (RDMA IP CM service).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressHeader {
    /// port of the caller
    pub source_port: u16,
    /// address of the caller
    pub source: IpAddr,
    /// address that the caller connects to
    pub destination: IpAddr,
}

/// The reason why an address header is not valid. The request is refused with reason 28.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HeaderError {
    /// Another version of the annex.
    #[error("address header of version {0:#04x}, not 0")]
    Version(u8),
    /// Neither IPv4 nor IPv6.
    #[error("address header of IP version {0}")]
    IpVersion(u8),
    /// A source that no caller has: multicast, broadcast, unspecified or loopback.
    #[error("address header with the source {0}")]
    Source(IpAddr),
    /// A destination that no listener has: unspecified, loopback or broadcast.
    #[error("address header with the destination {0}")]
    Destination(IpAddr),
}

impl AddressHeader {
    /// Reads the header at the beginning of private data.
    ///
    /// Errors: [`HeaderError`].
    pub fn decode(private_data: &[u8]) -> Result<Self, HeaderError> {
        let Some(header) = private_data.first_chunk::<ADDRESS_HEADER_BYTES>() else {
            return Err(HeaderError::IpVersion(0));
        };
        let [version, family, port_high, port_low, addresses @ ..] = header;
        if *version != 0 {
            return Err(HeaderError::Version(*version));
        }
        let (source, destination) = addresses.split_at(16);
        let read = |bytes: &[u8]| -> Option<IpAddr> {
            match family >> 4 {
                4 => Some(Ipv4Addr::from(*bytes.last_chunk::<4>()?).into()),
                6 => Some(Ipv6Addr::from(*bytes.first_chunk::<16>()?).into()),
                _ => None,
            }
        };
        let (Some(source), Some(destination)) = (read(source), read(destination)) else {
            return Err(HeaderError::IpVersion(family >> 4));
        };
        let nowhere = |address: IpAddr| {
            address.is_unspecified()
                || address.is_loopback()
                || address == IpAddr::V4(Ipv4Addr::BROADCAST)
        };
        if nowhere(source) || source.is_multicast() {
            return Err(HeaderError::Source(source));
        }
        if nowhere(destination) {
            return Err(HeaderError::Destination(destination));
        }
        Ok(Self {
            source_port: u16::from_be_bytes([*port_high, *port_low]),
            source,
            destination,
        })
    }

    /// Writes the header. An IPv4 address is in the last four of sixteen bytes, after zeros.
    #[must_use]
    pub fn encode(&self) -> [u8; ADDRESS_HEADER_BYTES] {
        let mut bytes = [0; ADDRESS_HEADER_BYTES];
        bytes[1] = if self.source.is_ipv4() {
            4 << 4
        } else {
            6 << 4
        };
        bytes[2..4].copy_from_slice(&self.source_port.to_be_bytes());
        for (at, address) in [(4, self.source), (20, self.destination)] {
            match address {
                IpAddr::V4(short) => bytes[at + 12..at + 16].copy_from_slice(&short.octets()),
                IpAddr::V6(long) => bytes[at..at + 16].copy_from_slice(&long.octets()),
            }
        }
        bytes
    }
}
