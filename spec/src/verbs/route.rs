//! The 40 bytes before the payload in the buffer of a received datagram.
//!
//! Over IPv6 they are the IPv6 header, which is laid out like a global route header; over IPv4 the
//! first 20 bytes mean nothing and the IPv4 header follows. All numbers are big-endian.
//! Source: IBA annex A17.4.5.2, RFC 791, RFC 8200; reference 5.6 (irdma reads it the same way).

use super::completion::GLOBAL_ROUTE_BYTES;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

crate::words! {
    /// First four bytes of an IPv6 header.
    struct VersionSix: u32 {
        /// flow label
        flow_label: [19:0],
        /// traffic class
        traffic_class: [27:20],
        /// 6
        version: [31:28],
    }

    /// First four bytes of an IPv4 header.
    struct VersionFour: u32 {
        /// bytes of header and data
        total_length: [15:0],
        /// type of service
        traffic_class: [23:16],
        /// units of four bytes
        header_length: [27:24],
        /// 4
        version: [31:28],
    }
}

/// Bytes before the IPv4 header.
const UNUSED_BYTES: usize = 20;

/// The way that a datagram came.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Route {
    /// IP address of the sender.
    pub source: IpAddr,
    /// IP address that it was sent to: the receiver's, or a group's.
    pub destination: IpAddr,
    /// Traffic class.
    pub traffic_class: u8,
    /// Flow label, 20 bits; 0 over IPv4.
    pub flow_label: u32,
    /// Hop limit that was left.
    pub hop_limit: u8,
}

impl Route {
    /// Decodes the bytes before the payload; `ipv4` is the completion's flag. `None` if they are
    /// not a header of that version. The peer's values are not checked further.
    #[must_use]
    pub fn parse(bytes: &[u8; GLOBAL_ROUTE_BYTES], ipv4: bool) -> Option<Self> {
        if ipv4 {
            let (_, header) = bytes.split_first_chunk::<UNUSED_BYTES>()?;
            Self::parse_four(header.first_chunk()?)
        } else {
            Self::parse_six(bytes)
        }
    }

    fn parse_six(bytes: &[u8; GLOBAL_ROUTE_BYTES]) -> Option<Self> {
        let (first, rest) = bytes.split_first_chunk::<4>()?;
        let first = VersionSix(u32::from_be_bytes(*first));
        let ([_, _, _, hop_limit], rest) = rest.split_first_chunk::<4>()?;
        let (source, rest) = rest.split_first_chunk::<16>()?;
        let destination = rest.first_chunk::<16>()?;
        (first.version() == 6).then(|| Self {
            source: Ipv6Addr::from(*source).into(),
            destination: Ipv6Addr::from(*destination).into(),
            traffic_class: first.traffic_class() as u8,
            flow_label: first.flow_label(),
            hop_limit: *hop_limit,
        })
    }

    fn parse_four(bytes: &[u8; 20]) -> Option<Self> {
        let (first, rest) = bytes.split_first_chunk::<4>()?;
        let first = VersionFour(u32::from_be_bytes(*first));
        let ([_, _, _, _, hop_limit, _, _, _], rest) = rest.split_first_chunk::<8>()?;
        let (source, rest) = rest.split_first_chunk::<4>()?;
        let destination = rest.first_chunk::<4>()?;
        (first.version() == 4).then(|| Self {
            source: Ipv4Addr::from(*source).into(),
            destination: Ipv4Addr::from(*destination).into(),
            traffic_class: first.traffic_class() as u8,
            flow_label: 0,
            hop_limit: *hop_limit,
        })
    }
}

#[cfg(test)]
mod tests;
