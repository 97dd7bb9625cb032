//! Messages of multicast listener discovery: reports of version 2 (RFC 3810), reports and
//! departures of version 1 (RFC 2710), and the queries of both. Switches that look into reports
//! send the packets of a group only to ports behind which it was reported.

use crate::MacAddress;
use crate::listeners::{Membership, Query};
use crate::wire::{ETHERNET_BYTES, IPV6_BYTES, put_header};
use ringside_pmd::rdma::address::multicast_mac;
use smoltcp::wire::{
    EthernetAddress, EthernetFrame, EthernetProtocol, Icmpv6Message, Icmpv6Packet, IpProtocol,
    Ipv6Packet, Ipv6Repr,
};
use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

/// The group of the routers that take reports. Source: RFC 3810, section 5.2.14.
const ROUTERS: Ipv6Addr = Ipv6Addr::new(0xFF02, 0, 0, 0, 0, 0, 0, 0x16);
/// The group of the routers that take departures of version 1. Source: RFC 2710, section 8.
const FIRST_VERSION_ROUTERS: Ipv6Addr = Ipv6Addr::new(0xFF02, 0, 0, 0, 0, 0, 0, 2);
/// Types of messages of version 1: RFC 2710, section 3.1.
const FIRST_VERSION_REPORT: u8 = 131;
const FIRST_VERSION_DONE: u8 = 132;
/// Bytes of a message of version 1, and the least of a query of version 2. Source: RFC 3810,
/// section 8.1.
const FIRST_VERSION_BYTES: usize = 24;
const QUERY_BYTES: usize = 28;
/// The option that has each router look at a packet, in front of its value of two bytes. Source:
/// RFC 2711, section 2.1.
const ROUTER_ALERT: u8 = 5;
/// The only option without a length. Source: RFC 8200, section 4.2.
const ONE_BYTE_OF_PADDING: u8 = 0;
/// Options of each hop in front of a report: ICMPv6 follows; router alert, and two bytes without
/// meaning. Source: RFC 3810, section 5; RFC 2711, section 2.1.
const OPTIONS: [u8; 8] = [58, 0, 5, 2, 0, 0, 1, 0];
/// Type of a report of version 2: RFC 3810, section 5.2.
const REPORT: u8 = 143;

/// The frame that reports a group; `own` is a link-local address, or unspecified if there is none.
pub(crate) fn report(
    own_mac: MacAddress,
    own: Ipv6Addr,
    membership: Membership,
    (group, is_of_first_version): (Ipv6Addr, bool),
) -> Option<Vec<u8>> {
    let (to, mut message) = match (is_of_first_version, membership) {
        (true, Membership::Leaves) => (
            FIRST_VERSION_ROUTERS,
            vec![FIRST_VERSION_DONE, 0, 0, 0, 0, 0, 0, 0],
        ),
        (true, Membership::Joins | Membership::Member) => {
            (group, vec![FIRST_VERSION_REPORT, 0, 0, 0, 0, 0, 0, 0])
        }
        (false, kind) => (
            ROUTERS,
            // One record, of this type.
            vec![REPORT, 0, 0, 0, 0, 0, 0, 1, kind as u8, 0, 0, 0],
        ),
    };
    message.extend(group.octets());
    Icmpv6Packet::new_unchecked(&mut message[..]).fill_checksum(&own, &to);
    let packet = Ipv6Repr {
        src_addr: own,
        dst_addr: to,
        next_header: IpProtocol::HopByHop,
        payload_len: OPTIONS.len() + message.len(),
        hop_limit: 1,
    };
    let to = EthernetAddress(multicast_mac(IpAddr::V6(to))?);
    let mut frame = vec![0; ETHERNET_BYTES + IPV6_BYTES];
    let (ethernet, ip) = frame.split_at_mut(ETHERNET_BYTES);
    put_header(ethernet, own_mac, to, EthernetProtocol::Ipv6);
    packet.emit(&mut Ipv6Packet::new_unchecked(ip));
    frame.extend(OPTIONS);
    frame.extend(message);
    Some(frame)
}

/// True for a report of version 2. smoltcp 0.14 sends some for the groups of its addresses, which
/// the stack reports itself: smoltcp gives joins the type of departures, and departures that of
/// joins, and it does not know version 1.
pub(crate) fn is_report(frame: &[u8]) -> bool {
    let Ok(ethernet) = EthernetFrame::new_checked(frame) else {
        return false;
    };
    if ethernet.ethertype() != EthernetProtocol::Ipv6 {
        return false;
    }
    let Some((header, payload)) = ethernet.payload().split_at_checked(IPV6_BYTES) else {
        return false;
    };
    let packet = Ipv6Packet::new_unchecked(header);
    packet.next_header() == IpProtocol::HopByHop
        && payload.starts_with(&OPTIONS)
        && payload.get(OPTIONS.len()) == Some(&REPORT)
}

/// The query in a packet of IPv6. Those that do not come from the link itself are none. Source: RFC
/// 3810, section 6.2.
pub(crate) fn asked(packet: &[u8]) -> Option<Query> {
    let packet = Ipv6Packet::new_checked(packet).ok()?;
    let (source, destination) = (packet.src_addr(), packet.dst_addr());
    let is_of_link = source.is_unicast_link_local() && packet.hop_limit() == 1;
    if packet.next_header() != IpProtocol::HopByHop || !is_of_link {
        return None;
    }
    let payload = packet.payload();
    let (next, length) = (*payload.first()?, *payload.get(1)?);
    // The length counts units of 8 bytes behind the first one: RFC 8200, section 4.3.
    let (options, message) = payload.split_at_checked((usize::from(length) + 1) * 8)?;
    if IpProtocol::from(next) != IpProtocol::Icmpv6 || !has_alert(options.get(2..)?) {
        return None;
    }
    // Others are of no version, and ignored: RFC 3810, section 8.1.
    let is_of_first_version = match message.len() {
        FIRST_VERSION_BYTES => true,
        QUERY_BYTES.. => false,
        _ => return None,
    };
    let query = Icmpv6Packet::new_unchecked(message);
    if query.msg_type() != Icmpv6Message::MldQuery || !query.verify_checksum(&source, &destination)
    {
        return None;
    }
    let code = u16::from_be_bytes(*message.get(4..)?.first_chunk()?);
    let group: [u8; 16] = *message.get(8..)?.first_chunk()?;
    Some(Query {
        group: IpAddr::V6(group.into()),
        limit: match is_of_first_version {
            true => Duration::from_millis(code.into()),
            false => limit_of(code),
        },
        is_of_first_version,
    })
}

/// The time that a code of version 2 stands for. Source: RFC 3810, section 5.1.3.
fn limit_of(code: u16) -> Duration {
    let milliseconds = match code {
        0..0x8000 => u64::from(code),
        _ => u64::from(code & 0xFFF | 0x1000) << ((code >> 12 & 7) + 3),
    };
    Duration::from_millis(milliseconds)
}

/// True if one of the options has each router look at the packet.
fn has_alert(mut options: &[u8]) -> bool {
    while let [kind, rest @ ..] = options {
        options = match (*kind, rest) {
            (ONE_BYTE_OF_PADDING, _) => rest,
            (ROUTER_ALERT, [2, _, _, ..]) => return true,
            (_, [length, rest @ ..]) => rest.get(usize::from(*length)..).unwrap_or_default(),
            (_, []) => return false,
        };
    }
    false
}

#[cfg(test)]
mod tests;
