//! Messages of IGMP: reports and departures of version 2 (RFC 2236), which routers and switches of
//! version 2 and 3 take, reports of version 1 (RFC 1112), and the queries of all three.

use crate::MacAddress;
use crate::listeners::{Membership, Query};
use crate::wire::{ETHERNET_BYTES, put_header};
use ringside_pmd::rdma::address::multicast_mac;
use smoltcp::wire::{
    EthernetAddress, EthernetProtocol, IgmpPacket, IgmpRepr, IgmpVersion, IpProtocol, Ipv4Packet,
};
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

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

/// The time in which routers of version 1 expect answers. Their queries do not name it. Source: RFC
/// 2236, section 4.
const FIRST_VERSION_LIMIT: Duration = Duration::from_secs(10);

/// The frame that reports a group; `own` is unspecified if the port has no address of IPv4. `None`
/// for a departure of version 1, which has no message.
pub(crate) fn report(
    own_mac: MacAddress,
    own: Ipv4Addr,
    membership: Membership,
    (group, is_of_first_version): (Ipv4Addr, bool),
) -> Option<Vec<u8>> {
    let version = match is_of_first_version {
        true => IgmpVersion::Version1,
        false => IgmpVersion::Version2,
    };
    let (message, to) = match membership {
        Membership::Member | Membership::Joins => {
            let report = IgmpRepr::MembershipReport {
                group_addr: group,
                version,
            };
            (report, group)
        }
        Membership::Leaves if is_of_first_version => return None,
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

/// The query in a packet of IPv4. One that has passed a router is none: queries have one hop.
/// Source: RFC 2236, section 2.
pub(crate) fn asked(packet: &[u8]) -> Option<Query> {
    let packet = Ipv4Packet::new_checked(packet).ok()?;
    if packet.next_header() != IpProtocol::Igmp || packet.hop_limit() != 1 {
        return None;
    }
    let payload = packet.payload();
    let message = IgmpPacket::new_checked(payload).ok()?;
    let IgmpRepr::MembershipQuery {
        max_resp_time,
        group_addr,
        version,
    } = IgmpRepr::parse(&message).ok()?
    else {
        return None;
    };
    if !message.verify_checksum() {
        return None;
    }
    // A longer one is of version 3, whatever its time. Source: RFC 3376, section 7.1.
    let is_short = payload.len() == IGMP_BYTES;
    let is_of_first_version = version == IgmpVersion::Version1 && is_short;
    let tenths = payload.get(1).copied().unwrap_or_default();
    Some(Query {
        group: group_addr.into(),
        limit: match (is_of_first_version, is_short) {
            (true, _) => FIRST_VERSION_LIMIT,
            // Only version 3 has a mantissa and an exponent. Source: RFC 2236, section 2.2.
            (false, true) => Duration::from_millis(100 * u64::from(tenths)),
            (false, false) => max_resp_time.into(),
        },
        is_of_first_version,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAC: MacAddress = [2, 0, 0, 0, 0, 1];
    const OWN: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
    const GROUP: Ipv4Addr = Ipv4Addr::new(239, 129, 2, 3);

    #[test]
    fn a_report_goes_to_its_group_and_a_departure_to_the_routers() {
        let report = |membership, first| report(MAC, OWN, membership, (GROUP, first));
        for (membership, first, kind, to, mac) in [
            (Membership::Joins, false, 0x16, GROUP, [1, 0, 0x5E, 1, 2, 3]),
            (
                Membership::Member,
                false,
                0x16,
                GROUP,
                [1, 0, 0x5E, 1, 2, 3],
            ),
            (Membership::Member, true, 0x12, GROUP, [1, 0, 0x5E, 1, 2, 3]),
            (
                Membership::Leaves,
                false,
                0x17,
                ROUTERS,
                [1, 0, 0x5E, 0, 0, 2],
            ),
        ] {
            let frame = report(membership, first).unwrap();
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
        assert_eq!(report(Membership::Leaves, true), None);
    }

    /// The packet of a query with this code for the time, and this many bytes of message.
    fn query(code: u8, message_bytes: usize) -> Vec<u8> {
        let frame = report(MAC, OWN, Membership::Member, (GROUP, false)).unwrap();
        let mut packet = frame[14..].to_vec();
        packet.resize(24 + message_bytes, 0);
        packet[3] = packet.len() as u8;
        packet[24..28].copy_from_slice(&[0x11, code, 0, 0]);
        let mut message = IgmpPacket::new_unchecked(&mut packet[24..]);
        message.fill_checksum();
        packet
    }

    #[test]
    fn a_query_names_its_group_and_its_time_and_a_damaged_one_is_none() {
        // Versions 1 and 2 in 8 bytes, version 3 in 12 and more. Codes from 128 on have an
        // exponent: 0x8B is (16 + 11) << 3 tenths of a second.
        for (code, bytes, limit_ms, is_of_first_version) in [
            (0, 8, 10_000, true),
            (10, 8, 1000, false),
            (100, 8, 10_000, false),
            (250, 8, 25_000, false),
            (0, 12, 0, false),
            (0x8B, 12, 21_600, false),
        ] {
            let expected = Query {
                group: GROUP.into(),
                limit: Duration::from_millis(limit_ms),
                is_of_first_version,
            };
            assert_eq!(asked(&query(code, bytes)), Some(expected), "{code} {bytes}");
        }
        let whole = query(100, 8);
        let mut damaged = whole.clone();
        damaged[26] ^= 1;
        assert_eq!(asked(&damaged), None);
        for length in 0..whole.len() {
            assert_eq!(asked(&whole[..length]), None, "{length} bytes");
        }
        // From behind a router.
        let mut far = whole.clone();
        far[8] = 2;
        assert_eq!(asked(&far), None);
    }
}
