//! Packets that are not processed: from addresses that no other station sends from, and to several
//! stations where only errors could answer them.

use crate::LocalAddress;
use crate::header::Header;
use smoltcp::wire::IpProtocol;
use std::net::IpAddr;

/// Port of DHCP clients: RFC 2131.
const DHCP_CLIENT: u16 = 68;

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

/// True for a packet to a group or to all stations that is of none of the protocols that the stack
/// serves there. Segments and datagrams must not be answered by resets and errors, which each
/// station of the network would send. Source: RFC 1122, sections 3.2.2 and 4.2.3.10; RFC 4443,
/// section 2.4 (e.3). Pings over IPv4 are not answered either: one of a forged source would have
/// each station send to that one. Source: RFC 1122, section 3.2.2.6; Linux,
/// `icmp_echo_ignore_broadcasts`.
pub(crate) fn is_unwanted<'a>(
    header: &Header,
    own: impl Iterator<Item = &'a LocalAddress>,
) -> bool {
    let to = header.destination;
    let is_of_several = to.is_multicast()
        || is_broadcast(to)
        || own.into_iter().any(|own| is_broadcast_of(own, to));
    if !is_of_several && !header.is_to_group {
        return false;
    }
    match header.protocol {
        IpProtocol::Icmp => is_of_several || !to.is_ipv4(),
        IpProtocol::Igmp => !to.is_ipv4(),
        IpProtocol::Icmpv6 => !to.is_ipv6(),
        IpProtocol::Udp => !to.is_ipv4() || header.destination_port != Some(DHCP_CLIENT),
        _ => true,
    }
}

/// True for the broadcast address of the network of `own`.
fn is_broadcast_of(own: &LocalAddress, address: IpAddr) -> bool {
    own.place_of(address)
        .is_some_and(|(of_host, last)| of_host == last)
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

    #[test]
    fn only_reports_and_dhcp_are_wanted_from_packets_to_several_stations() {
        let own = ["10.1.0.1/24".parse().unwrap()];
        let is = |to: &str, is_to_group, protocol, port| {
            let destination: IpAddr = to.parse().unwrap();
            let header = Header {
                source: destination,
                destination,
                protocol,
                is_to_group,
                destination_port: port,
            };
            is_unwanted(&header, own.iter())
        };
        let several = ["255.255.255.255", "10.1.0.255", "224.0.0.1"];
        for (to, is_to_group) in several
            .map(|to| (to, false))
            .into_iter()
            .chain([("10.1.0.1", true)])
        {
            assert!(is(to, is_to_group, IpProtocol::Tcp, None), "{to}");
            assert!(is(to, is_to_group, IpProtocol::Udp, Some(53)), "{to}");
            assert!(is(to, is_to_group, IpProtocol::Udp, None), "{to}");
            assert!(is(to, is_to_group, IpProtocol::Unknown(99), None), "{to}");
            assert!(!is(to, is_to_group, IpProtocol::Udp, Some(68)), "{to}");
            let is_ping_wanted = !is(to, is_to_group, IpProtocol::Icmp, None);
            assert_eq!(is_ping_wanted, to == "10.1.0.1", "{to}");
            assert!(!is(to, is_to_group, IpProtocol::Igmp, None), "{to}");
        }
        assert!(is("ff02::1", true, IpProtocol::Tcp, None));
        assert!(is("ff02::1", true, IpProtocol::Udp, Some(68)));
        assert!(!is("ff02::1", true, IpProtocol::Icmpv6, None));
        for protocol in [IpProtocol::Tcp, IpProtocol::Udp, IpProtocol::Unknown(99)] {
            assert!(!is("10.1.0.1", false, protocol, None));
        }
    }
}
