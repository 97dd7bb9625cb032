//! Source addresses that no other station sends from.

use crate::LocalAddress;
use std::net::IpAddr;

/// True for an address that no other station of a network with these own addresses sends from.
/// Source: RFC 1122, section 3.2.1.3; RFC 4291, section 2.5.3 and 2.7.
pub(crate) fn is_martian<'a>(source: IpAddr, own: impl Iterator<Item = &'a LocalAddress>) -> bool {
    // A station that looks for an address has none yet: of IPv6 it says so in its queries.
    let is_none = source.is_ipv4() && source.is_unspecified();
    let is_never = source.is_loopback() || source.is_multicast() || is_broadcast(source);
    is_none
        || is_never
        || own
            .into_iter()
            .any(|own| own.address == source || is_broadcast_of(own, source))
}

/// True for the broadcast address of the network of `own`.
fn is_broadcast_of(own: &LocalAddress, address: IpAddr) -> bool {
    let (IpAddr::V4(own_address), IpAddr::V4(address)) = (own.address, address) else {
        return false;
    };
    // Networks of two addresses and one have none: RFC 3021.
    let hosts = u32::MAX
        .checked_shr(own.prefix_bits.into())
        .filter(|hosts| *hosts > 1);
    hosts.is_some_and(|hosts| u32::from(address) == u32::from(own_address) | hosts)
}

pub(crate) fn is_broadcast(address: IpAddr) -> bool {
    matches!(address, IpAddr::V4(address) if address.is_broadcast())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_that_no_station_has_are_named() {
        let own: Vec<LocalAddress> = ["10.1.0.1/24", "10.2.0.1/31", "10.3.0.1/32", "fd00::1/64"]
            .map(|one| one.parse().unwrap())
            .into();
        let is = |source: &str| is_martian(source.parse().unwrap(), own.iter());
        let never = [
            "127.0.0.1",
            "127.255.0.9",
            "0.0.0.0",
            "255.255.255.255",
            "224.0.0.9",
            "10.1.0.1",
            "10.1.0.255",
            "::1",
            "ff02::1",
            "fd00::1",
        ];
        for source in never {
            assert!(is(source), "{source}");
        }
        let stations = [
            "10.1.0.2",
            "10.1.1.255",
            "10.2.0.0",
            "10.2.0.2",
            "10.3.0.2",
            "8.8.8.8",
            "::",
            "fd00::2",
            "fe80::1",
        ];
        for source in stations {
            assert!(!is(source), "{source}");
        }
    }
}
