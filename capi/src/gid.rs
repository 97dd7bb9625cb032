//! GIDs: IP addresses, IPv4 in its mapped form.

use crate::abi::ibv_gid;
use std::net::{IpAddr, Ipv6Addr};

/// An address as a GID: IPv4 in its mapped form.
pub(crate) fn gid_of(address: IpAddr) -> ibv_gid {
    let raw = match address {
        IpAddr::V4(four) => four.to_ipv6_mapped().octets(),
        IpAddr::V6(six) => six.octets(),
    };
    ibv_gid { raw, align: [] }
}

/// The address that a GID is.
pub(crate) fn address_of(gid: &ibv_gid) -> IpAddr {
    let six = Ipv6Addr::from(gid.raw);
    six.to_ipv4_mapped().map_or(IpAddr::V6(six), IpAddr::V4)
}
