//! Messages of IGMP: reports and departures of version 2 (RFC 2236), which routers and switches of
//! every version take, and the queries that they send.

use crate::MacAddress;
use crate::wire::{ETHERNET_BYTES, put_header};
use ringside_pmd::rdma::address::multicast_mac;
use smoltcp::wire::{
    EthernetAddress, EthernetProtocol, IgmpPacket, IgmpRepr, IgmpVersion, IpProtocol, Ipv4Packet,
};
use std::net::{IpAddr, Ipv4Addr};

/// The group of the routers that take departures. Source: RFC 2236, section 9.
const ROUTERS: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 2);
/// Router alert. Source: RFC 2113, section 2.1; RFC 2236, section 2.
const ALERT: [u8; 4] = [0x94, 4, 0, 0];
const IPV4_BYTES: usize = 20;
const IGMP_BYTES: usize = 8;
/// The version in the first byte of a header, and its length in words of 4 bytes.
const VERSION: u8 = 4;
/// Internetwork control: RFC 4594, section 3.2.
const PRIORITY: u8 = 48;

/// The change that a message reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Membership {
    Member,
    Leaves,
}

/// The frame that reports a group; `own` is unspecified if the port has no address of IPv4.
pub(crate) fn report(
    own_mac: MacAddress,
    own: Ipv4Addr,
    membership: Membership,
    group: Ipv4Addr,
) -> Option<Vec<u8>> {
    let (message, to) = match membership {
        Membership::Member => {
            let report = IgmpRepr::MembershipReport {
                group_addr: group,
                version: IgmpVersion::Version2,
            };
            (report, group)
        }
        Membership::Leaves => (IgmpRepr::LeaveGroup { group_addr: group }, ROUTERS),
    };
    let header_bytes = IPV4_BYTES + ALERT.len();
    let mut frame = vec![0; ETHERNET_BYTES + header_bytes + IGMP_BYTES];
    let (ethernet, ip) = frame.split_at_mut(ETHERNET_BYTES);
    let to_mac = EthernetAddress(multicast_mac(IpAddr::V4(to))?);
    put_header(ethernet, own_mac, to_mac, EthernetProtocol::Ipv4);
    let (alert, message_bytes) = ip.get_mut(IPV4_BYTES..)?.split_at_mut(ALERT.len());
    alert.copy_from_slice(&ALERT);
    message.emit(&mut IgmpPacket::new_unchecked(message_bytes));
    let mut packet = Ipv4Packet::new_unchecked(ip);
    packet.set_version(VERSION);
    packet.set_header_len(header_bytes as u8);
    packet.set_dscp(PRIORITY);
    packet.set_total_len((header_bytes + IGMP_BYTES) as u16);
    packet.set_dont_frag(true);
    packet.set_hop_limit(1);
    packet.set_next_header(IpProtocol::Igmp);
    packet.set_src_addr(own);
    packet.set_dst_addr(to);
    packet.fill_checksum();
    Some(frame)
}

/// The group that a query in a packet of IPv4 asks for; unspecified if it asks for all.
pub(crate) fn asked(packet: &[u8]) -> Option<Ipv4Addr> {
    let packet = Ipv4Packet::new_checked(packet).ok()?;
    if packet.next_header() != IpProtocol::Igmp {
        return None;
    }
    let message = IgmpPacket::new_checked(packet.payload()).ok()?;
    match IgmpRepr::parse(&message).ok()? {
        IgmpRepr::MembershipQuery { group_addr, .. } => {
            message.verify_checksum().then_some(group_addr)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAC: MacAddress = [2, 0, 0, 0, 0, 1];
    const OWN: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
    const GROUP: Ipv4Addr = Ipv4Addr::new(239, 129, 2, 3);

    #[test]
    fn a_report_goes_to_its_group_and_a_departure_to_the_routers() {
        let report = |membership| report(MAC, OWN, membership, GROUP).unwrap();
        for (membership, kind, to, mac) in [
            (Membership::Member, 0x16, GROUP, [1, 0, 0x5E, 1, 2, 3]),
            (Membership::Leaves, 0x17, ROUTERS, [1, 0, 0x5E, 0, 0, 2]),
        ] {
            let frame = report(membership);
            assert_eq!(frame[..6], mac);
            assert_eq!(frame[12..14], [8, 0]);
            // 24 bytes of header with the router alert, 32 in all, one hop.
            assert_eq!((frame[14], frame[16..18].to_vec()), (0x46, vec![0, 32]));
            assert_eq!((frame[22], &frame[34..38]), (1, &[0x94, 4, 0, 0][..]));
            let packet = Ipv4Packet::new_checked(&frame[14..]).unwrap();
            assert!(packet.verify_checksum());
            assert_eq!((packet.src_addr(), packet.dst_addr()), (OWN, to));
            let message = IgmpPacket::new_checked(packet.payload()).unwrap();
            assert!(message.verify_checksum());
            assert_eq!(message.group_addr(), GROUP);
            assert_eq!(packet.payload()[..2], [kind, 0]);
            assert_eq!(asked(&frame[14..]), None, "no query");
        }
    }

    #[test]
    fn a_query_names_its_group_and_a_damaged_one_is_none() {
        let mut frame = report(MAC, OWN, Membership::Member, GROUP).unwrap();
        let query = &mut frame[14..];
        let message = IgmpRepr::MembershipQuery {
            max_resp_time: smoltcp::time::Duration::from_secs(10),
            group_addr: GROUP,
            version: IgmpVersion::Version2,
        };
        message.emit(&mut IgmpPacket::new_unchecked(&mut query[24..]));
        assert_eq!(asked(query), Some(GROUP));
        query[26] ^= 1;
        assert_eq!(asked(query), None);
        for length in 0..query.len() {
            assert_eq!(asked(&query[..length]), None, "{length} bytes");
        }
    }
}
