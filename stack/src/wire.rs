//! Frames of address resolution: ARP (RFC 826) and neighbour discovery (RFC 4861).

use crate::MacAddress;
use crate::filters::{ALL_NODES, solicited_node};
use ringside_pmd::rdma::address::multicast_mac;
use smoltcp::phy::ChecksumCapabilities;
use smoltcp::wire::{
    ArpOperation, ArpPacket, ArpRepr, EthernetAddress, EthernetFrame, EthernetProtocol,
    EthernetRepr, Icmpv6Packet, Icmpv6Repr, IpProtocol, Ipv4Packet, Ipv6Packet, Ipv6Repr,
    NdiscNeighborFlags, NdiscRepr, UdpPacket,
};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Frames of neighbour discovery have this hop limit: they come from the link itself.
/// Source: RFC 4861, section 7.1.
const HOP_LIMIT: u8 = 255;
const ETHERNET_BYTES: usize = 14;
const IPV6_BYTES: usize = 40;

/// A frame's information about a neighbour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Said {
    pub(crate) address: IpAddr,
    pub(crate) mac: MacAddress,
    pub(crate) how: How,
}

/// The extent to which a neighbour's message changes its entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum How {
    /// It answers, or announces itself: the entry takes this MAC address.
    Answer,
    /// It answers without the override flag: another known MAC address stays. Source: RFC 4861,
    /// section 7.2.5.
    Hint,
    /// It queries this address of ours, and announces its own.
    Question { target: IpAddr },
}

/// The fields of an IP packet that decide if the stack processes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) source: IpAddr,
    pub(crate) destination: IpAddr,
    /// of IPv6 the one behind the options of each hop, if it has these
    pub(crate) protocol: IpProtocol,
    /// the frame is one to a group or to all stations
    pub(crate) is_to_group: bool,
    /// of a datagram of UDP
    pub(crate) destination_port: Option<u16>,
}

/// The header of a frame without VLAN tag, if it is a packet of IP.
pub(crate) fn header(frame: &[u8]) -> Option<Header> {
    let frame = EthernetFrame::new_checked(frame).ok()?;
    let is_to_group = !frame.dst_addr().is_unicast();
    let (source, destination, protocol, payload) = match frame.ethertype() {
        EthernetProtocol::Ipv4 => {
            let packet = Ipv4Packet::new_checked(frame.payload()).ok()?;
            let ends = (packet.src_addr().into(), packet.dst_addr().into());
            (ends.0, ends.1, packet.next_header(), packet.payload())
        }
        EthernetProtocol::Ipv6 => {
            let packet = Ipv6Packet::new_checked(frame.payload()).ok()?;
            let ends = (packet.src_addr().into(), packet.dst_addr().into());
            let protocol = match packet.next_header() {
                IpProtocol::HopByHop => IpProtocol::from(*packet.payload().first()?),
                other => other,
            };
            (ends.0, ends.1, protocol, packet.payload())
        }
        _ => return None,
    };
    let datagram = (protocol == IpProtocol::Udp).then(|| UdpPacket::new_checked(payload).ok());
    Some(Header {
        source,
        destination,
        protocol,
        is_to_group,
        destination_port: datagram.flatten().map(|one| one.dst_port()),
    })
}

/// Returns the information of a frame without VLAN tag about its sender, if it is one of address
/// resolution.
pub(crate) fn said(frame: &[u8]) -> Option<Said> {
    let frame = EthernetFrame::new_checked(frame).ok()?;
    match frame.ethertype() {
        EthernetProtocol::Arp => said_by_arp(&frame),
        EthernetProtocol::Ipv6 => said_by_discovery(&frame),
        _ => None,
    }
}

fn said_by_arp(frame: &EthernetFrame<&[u8]>) -> Option<Said> {
    let packet = ArpPacket::new_checked(frame.payload()).ok()?;
    let ArpRepr::EthernetIpv4 {
        operation,
        source_hardware_addr: mac,
        source_protocol_addr: address,
        target_protocol_addr: target,
        ..
    } = ArpRepr::parse(&packet).ok()?
    else {
        return None;
    };
    let is_host = !address.is_unspecified()
        && !address.is_multicast()
        && !address.is_broadcast()
        && !address.is_loopback();
    if !mac.is_unicast() || !is_host {
        return None;
    }
    let how = match operation {
        ArpOperation::Reply => How::Answer,
        // An announcement is a question for the own address: RFC 5227, section 3.
        ArpOperation::Request if address == target => How::Answer,
        ArpOperation::Request => How::Question {
            target: IpAddr::V4(target),
        },
        ArpOperation::Unknown(_) => return None,
    };
    Some(Said {
        address: IpAddr::V4(address),
        mac: mac.0,
        how,
    })
}

/// A message of neighbour discovery that comes from the link itself, and its IP header.
fn discovery_message<'a>(frame: &EthernetFrame<&'a [u8]>) -> Option<(Ipv6Repr, NdiscRepr<'a>)> {
    let packet = Ipv6Packet::new_checked(frame.payload()).ok()?;
    let header = Ipv6Repr::parse(&packet).ok()?;
    if header.next_header != IpProtocol::Icmpv6 || header.hop_limit != HOP_LIMIT {
        return None;
    }
    let message = Icmpv6Packet::new_checked(packet.payload()).ok()?;
    let checks = ChecksumCapabilities::default();
    match Icmpv6Repr::parse(&header.src_addr, &header.dst_addr, &message, &checks).ok()? {
        Icmpv6Repr::Ndisc(message) => Some((header, message)),
        _ => None,
    }
}

fn said_by_discovery(frame: &EthernetFrame<&[u8]>) -> Option<Said> {
    let (header, message) = discovery_message(frame)?;
    let said = |address: Ipv6Addr, mac: EthernetAddress, how| {
        let is_host = !address.is_unspecified() && !address.is_multicast();
        (is_host && mac.is_unicast()).then_some(Said {
            address: IpAddr::V6(address),
            mac: mac.0,
            how,
        })
    };
    match message {
        NdiscRepr::NeighborAdvert {
            flags,
            target_addr,
            lladdr,
        } => {
            let mac = ethernet(lladdr?.as_bytes())?;
            let how = match flags.contains(NdiscNeighborFlags::OVERRIDE) {
                true => How::Answer,
                false => How::Hint,
            };
            said(target_addr, mac, how)
        }
        NdiscRepr::NeighborSolicit {
            target_addr,
            lladdr,
        } => {
            let mac = match lladdr {
                Some(mac) => ethernet(mac.as_bytes())?,
                None => frame.src_addr(),
            };
            let how = How::Question {
                target: IpAddr::V6(target_addr),
            };
            said(header.src_addr, mac, how)
        }
        _ => None,
    }
}

fn ethernet(bytes: &[u8]) -> Option<EthernetAddress> {
    Some(EthernetAddress(bytes.try_into().ok()?))
}

/// The frame that queries the MAC address of `target`, from an address of the same IP version.
///
/// `to` is the MAC address of the station to query; without one the query goes to all.
pub(crate) fn question(
    own_mac: MacAddress,
    own: IpAddr,
    target: IpAddr,
    to: Option<MacAddress>,
) -> Option<Vec<u8>> {
    match (own, target) {
        (IpAddr::V4(own), IpAddr::V4(target)) => Some(arp_request(own_mac, own, target, to)),
        (IpAddr::V6(own), IpAddr::V6(target)) => solicitation(own_mac, own, target, to),
        _ => None,
    }
}

/// The answer of a neighbour, from its address and MAC address, to a query from `own`; `None` if
/// the addresses are of two IP versions.
pub(crate) fn answer_of(
    (neighbour, mac): (IpAddr, MacAddress),
    own: IpAddr,
    own_mac: MacAddress,
) -> Option<Vec<u8>> {
    match (neighbour, own) {
        (IpAddr::V4(neighbour), IpAddr::V4(own)) => {
            let reply = ArpRepr::EthernetIpv4 {
                operation: ArpOperation::Reply,
                source_hardware_addr: EthernetAddress(mac),
                source_protocol_addr: neighbour,
                target_hardware_addr: EthernetAddress(own_mac),
                target_protocol_addr: own,
            };
            Some(arp(mac, EthernetAddress(own_mac), &reply))
        }
        (IpAddr::V6(neighbour), IpAddr::V6(own)) => {
            let message = NdiscRepr::NeighborAdvert {
                flags: NdiscNeighborFlags::SOLICITED.union(NdiscNeighborFlags::OVERRIDE),
                target_addr: neighbour,
                lladdr: Some(EthernetAddress(mac).into()),
            };
            Some(discovery(mac, neighbour, (own_mac, own), message))
        }
        _ => None,
    }
}

/// The frame that tells all stations the MAC address of `own`. Source: RFC 5227, section 3; RFC
/// 4861, section 7.2.6.
pub(crate) fn announcement(own_mac: MacAddress, own: IpAddr) -> Option<Vec<u8>> {
    let own = match own {
        IpAddr::V4(own) => return Some(arp_request(own_mac, own, own, None)),
        IpAddr::V6(own) => own,
    };
    let to = (multicast_mac(IpAddr::V6(ALL_NODES))?, ALL_NODES);
    let message = NdiscRepr::NeighborAdvert {
        flags: NdiscNeighborFlags::OVERRIDE,
        target_addr: own,
        lladdr: Some(EthernetAddress(own_mac).into()),
    };
    Some(discovery(own_mac, own, to, message))
}

/// The answer to a query for an address for which `is_ours` is true; `None` for all other frames.
///
/// Stations without an address of the network query too: those that look whether an address is
/// free, and those of another network on the same link. Source: RFC 5227, section 2.1; RFC 4861,
/// section 7.2.4.
pub(crate) fn answer(
    frame: &[u8],
    own_mac: MacAddress,
    is_ours: impl Fn(IpAddr) -> bool,
) -> Option<Vec<u8>> {
    let frame = EthernetFrame::new_checked(frame).ok()?;
    if frame.src_addr().0 == own_mac {
        return None;
    }
    match frame.ethertype() {
        EthernetProtocol::Arp => answer_arp(&frame, own_mac, is_ours),
        EthernetProtocol::Ipv6 => answer_discovery(&frame, own_mac, is_ours),
        _ => None,
    }
}

fn answer_arp(
    frame: &EthernetFrame<&[u8]>,
    own_mac: MacAddress,
    is_ours: impl Fn(IpAddr) -> bool,
) -> Option<Vec<u8>> {
    let packet = ArpPacket::new_checked(frame.payload()).ok()?;
    let ArpRepr::EthernetIpv4 {
        operation: ArpOperation::Request,
        source_hardware_addr: mac,
        source_protocol_addr: address,
        target_protocol_addr: target,
        ..
    } = ArpRepr::parse(&packet).ok()?
    else {
        return None;
    };
    let may_ask = !address.is_multicast()
        && !address.is_broadcast()
        && !address.is_loopback()
        && address != target;
    if !mac.is_unicast() || !may_ask || !is_ours(IpAddr::V4(target)) {
        return None;
    }
    let reply = ArpRepr::EthernetIpv4 {
        operation: ArpOperation::Reply,
        source_hardware_addr: EthernetAddress(own_mac),
        source_protocol_addr: target,
        target_hardware_addr: mac,
        target_protocol_addr: address,
    };
    Some(arp(own_mac, mac, &reply))
}

fn answer_discovery(
    frame: &EthernetFrame<&[u8]>,
    own_mac: MacAddress,
    is_ours: impl Fn(IpAddr) -> bool,
) -> Option<Vec<u8>> {
    let (header, message) = discovery_message(frame)?;
    let NdiscRepr::NeighborSolicit {
        target_addr: target,
        lladdr,
    } = message
    else {
        return None;
    };
    if !is_ours(IpAddr::V6(target)) || header.src_addr.is_multicast() {
        return None;
    }
    let (flags, to) = if header.src_addr.is_unspecified() {
        // It looks whether the address is free, in the group of the address and without its own.
        if lladdr.is_some() || header.dst_addr != solicited_node(target) {
            return None;
        }
        let mac = multicast_mac(IpAddr::V6(ALL_NODES))?;
        (NdiscNeighborFlags::OVERRIDE, (mac, ALL_NODES))
    } else {
        let mac = match lladdr {
            Some(mac) => ethernet(mac.as_bytes())?,
            None => frame.src_addr(),
        };
        if !mac.is_unicast() {
            return None;
        }
        let flags = NdiscNeighborFlags::SOLICITED.union(NdiscNeighborFlags::OVERRIDE);
        (flags, (mac.0, header.src_addr))
    };
    let message = NdiscRepr::NeighborAdvert {
        flags,
        target_addr: target,
        lladdr: Some(EthernetAddress(own_mac).into()),
    };
    Some(discovery(own_mac, target, to, message))
}

fn arp_request(
    own_mac: MacAddress,
    own: Ipv4Addr,
    target: Ipv4Addr,
    to: Option<MacAddress>,
) -> Vec<u8> {
    let request = ArpRepr::EthernetIpv4 {
        operation: ArpOperation::Request,
        source_hardware_addr: EthernetAddress(own_mac),
        source_protocol_addr: own,
        target_hardware_addr: EthernetAddress(to.unwrap_or([0; 6])),
        target_protocol_addr: target,
    };
    let to = to.map_or(EthernetAddress::BROADCAST, EthernetAddress);
    arp(own_mac, to, &request)
}

fn arp(own_mac: MacAddress, to: EthernetAddress, message: &ArpRepr) -> Vec<u8> {
    let mut frame = vec![0; ETHERNET_BYTES + message.buffer_len()];
    let (header, payload) = frame.split_at_mut(ETHERNET_BYTES);
    put_header(header, own_mac, to, EthernetProtocol::Arp);
    message.emit(&mut ArpPacket::new_unchecked(payload));
    frame
}

fn solicitation(
    own_mac: MacAddress,
    own: Ipv6Addr,
    target: Ipv6Addr,
    to: Option<MacAddress>,
) -> Option<Vec<u8>> {
    let group = solicited_node(target);
    let (mac, address) = match to {
        Some(mac) => (mac, target),
        None => (multicast_mac(IpAddr::V6(group))?, group),
    };
    let message = NdiscRepr::NeighborSolicit {
        target_addr: target,
        lladdr: Some(EthernetAddress(own_mac).into()),
    };
    Some(discovery(own_mac, own, (mac, address), message))
}

fn discovery(
    own_mac: MacAddress,
    own: Ipv6Addr,
    (mac, address): (MacAddress, Ipv6Addr),
    message: NdiscRepr<'_>,
) -> Vec<u8> {
    let message = Icmpv6Repr::Ndisc(message);
    let header = Ipv6Repr {
        src_addr: own,
        dst_addr: address,
        next_header: IpProtocol::Icmpv6,
        payload_len: message.buffer_len(),
        hop_limit: HOP_LIMIT,
    };
    let mut frame = vec![0; ETHERNET_BYTES + IPV6_BYTES + message.buffer_len()];
    let (ethernet, packet) = frame.split_at_mut(ETHERNET_BYTES);
    put_header(
        ethernet,
        own_mac,
        EthernetAddress(mac),
        EthernetProtocol::Ipv6,
    );
    header.emit(&mut Ipv6Packet::new_unchecked(&mut packet[..]));
    let (_, payload) = packet.split_at_mut(IPV6_BYTES);
    let checks = ChecksumCapabilities::default();
    let mut place = Icmpv6Packet::new_unchecked(payload);
    message.emit(&own, &address, &mut place, &checks);
    frame
}

fn put_header(
    place: &mut [u8],
    from: MacAddress,
    to: EthernetAddress,
    ethertype: EthernetProtocol,
) {
    let header = EthernetRepr {
        src_addr: EthernetAddress(from),
        dst_addr: to,
        ethertype,
    };
    header.emit(&mut EthernetFrame::new_unchecked(place));
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: MacAddress = [2, 0, 0, 0, 0, 1];
    const PEER: MacAddress = [2, 0, 0, 0, 0, 2];

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    /// Bytes of RFC 826's request as tcpdump shows one.
    #[test]
    fn an_arp_request_is_that_of_the_standard() {
        let frame = question(OWN, ip("192.0.2.1"), ip("192.0.2.2"), None).unwrap();
        let expected = [
            0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 2, 0, 0, 0, 0, 1, 0x08, 0x06, 0, 1, 0x08, 0, 6, 4,
            0, 1, 2, 0, 0, 0, 0, 1, 192, 0, 2, 1, 0, 0, 0, 0, 0, 0, 192, 0, 2, 2,
        ];
        assert_eq!(frame, expected);
        assert_eq!(
            said(&frame).map(|said| said.how),
            Some(How::Question {
                target: ip("192.0.2.2")
            })
        );
    }

    #[test]
    fn a_solicitation_goes_to_the_group_of_its_target_and_names_its_sender() {
        let (own, target) = (ip("fd00::1"), ip("fd00::aa:bbcc"));
        let frame = question(OWN, own, target, None).unwrap();
        assert_eq!(frame[..6], [0x33, 0x33, 0xFF, 0xAA, 0xBB, 0xCC]);
        let said = said(&frame).unwrap();
        assert_eq!((said.address, said.mac), (own, OWN));
        assert_eq!(said.how, How::Question { target });
    }

    #[test]
    fn an_advertisement_is_an_answer_and_one_from_beyond_a_router_is_none() {
        let (own, peer) = (ip("fd00::2"), ip("fd00::1"));
        let mut frame = answer_of((own, PEER), peer, OWN).unwrap();
        let heard = said(&frame).unwrap();
        assert_eq!(
            (heard.address, heard.mac, heard.how),
            (own, PEER, How::Answer)
        );
        // Hop limit 254.
        frame[14 + 7] -= 1;
        assert_eq!(said(&frame), None);
        frame[14 + 7] += 1;
        // A wrong checksum.
        frame[14 + 40 + 2] ^= 1;
        assert_eq!(said(&frame), None);
    }

    #[test]
    fn an_announcement_is_an_answer_and_a_probe_says_nothing() {
        for address in [ip("192.0.2.2"), ip("fd00::2")] {
            let frame = announcement(PEER, address).unwrap();
            let said = said(&frame).unwrap();
            let expected = (address, PEER, How::Answer);
            assert_eq!((said.address, said.mac, said.how), expected);
            assert_eq!(answer(&frame, OWN, |_| true), None);
        }
        let probe = question(PEER, ip("0.0.0.0"), ip("192.0.2.2"), None).unwrap();
        assert_eq!(said(&probe), None);
    }

    #[test]
    fn arp_of_unknown_operations_and_of_addresses_that_no_host_has_says_nothing() {
        let mut frame = announcement(PEER, ip("192.0.2.2")).unwrap();
        frame[14 + 7] = 3;
        assert_eq!(said(&frame), None, "operation 3 is of RARP");
        for address in ["224.0.0.5", "255.255.255.255", "127.0.0.1"] {
            let frame = question(PEER, ip(address), ip("192.0.2.2"), None).unwrap();
            assert_eq!(said(&frame), None, "{address}");
        }
    }

    /// Each message of a station whose MAC address is that of a group.
    #[test]
    fn stations_with_the_address_of_a_group_say_nothing() {
        let group = [3, 0, 0, 0, 0, 2];
        let v4 = (ip("192.0.2.2"), ip("192.0.2.1"));
        let v6 = (ip("fd00::2"), ip("fd00::1"));
        for (own, target) in [v4, v6] {
            let frame = question(PEER, own, target, None).unwrap();
            assert!(said(&frame).is_some());
            let frame = question(group, own, target, None).unwrap();
            assert_eq!(said(&frame), None, "{own}");
        }
    }

    #[test]
    fn a_known_station_alone_is_queried() {
        for (own, target) in [("192.0.2.1", "192.0.2.2"), ("fd00::1", "fd00::2")] {
            let frame = question(OWN, ip(own), ip(target), Some(PEER)).unwrap();
            assert_eq!((&frame[..6], &frame[6..12]), (&PEER[..], &OWN[..]));
        }
    }

    /// The option with the MAC address counts, not the frame's sender; without the flag "override"
    /// it is a hint, also if it was solicited. Source: RFC 4861, section 7.2.5.
    #[test]
    fn an_advertisement_names_its_station_and_its_flags_decide() {
        let (IpAddr::V6(own), IpAddr::V6(peer)) = (ip("fd00::2"), ip("fd00::1")) else {
            unreachable!()
        };
        let proxy = [2, 0, 0, 0, 0, 7];
        let cases = [
            (NdiscNeighborFlags::OVERRIDE, How::Answer),
            (NdiscNeighborFlags::SOLICITED, How::Hint),
            (NdiscNeighborFlags::ROUTER, How::Hint),
            (NdiscNeighborFlags::empty(), How::Hint),
        ];
        for (flags, how) in cases {
            let message = NdiscRepr::NeighborAdvert {
                flags,
                target_addr: own,
                lladdr: Some(EthernetAddress(PEER).into()),
            };
            let frame = discovery(proxy, own, (OWN, peer), message);
            let heard = said(&frame).unwrap();
            assert_eq!((heard.mac, heard.how), (PEER, how), "{flags:?}");
        }
    }

    /// Of each kind one query by a host, by a station of another network, and by one without
    /// address.
    #[test]
    fn queries_for_an_own_address_are_answered_from_any_station() {
        let (own4, own6) = (ip("192.0.2.1"), ip("fd00::1"));
        let is_ours = |address| address == own4 || address == own6;
        for from in ["192.0.2.2", "198.51.100.9", "0.0.0.0"] {
            let query = question(PEER, ip(from), own4, None).unwrap();
            let reply = answer(&query, OWN, is_ours).expect(from);
            // Reply, our addresses, the sender's.
            let IpAddr::V4(from) = ip(from) else {
                unreachable!()
            };
            let expected = [
                &PEER[..],
                &OWN,
                &[0x08, 0x06, 0, 1, 0x08, 0, 6, 4, 0, 2],
                &OWN,
                &[192, 0, 2, 1],
                &PEER,
                &from.octets(),
            ];
            assert_eq!(reply, expected.concat());
            assert_eq!(answer(&query, PEER, is_ours), None, "the own query");
            let other = question(PEER, from.into(), ip("192.0.2.3"), None).unwrap();
            assert_eq!(answer(&other, OWN, is_ours), None);
        }
        let query = question(PEER, ip("fd00::2"), own6, None).unwrap();
        let reply = answer(&query, OWN, is_ours).unwrap();
        // Type 136 with the flags solicited and override.
        assert_eq!((&reply[..6], reply[54], reply[58]), (&PEER[..], 136, 0x60));
        assert_eq!(said(&reply).unwrap().mac, OWN);
        // An announcement is no query.
        let announcement = question(PEER, own4, own4, None).unwrap();
        assert_eq!(answer(&announcement, OWN, is_ours), None);
    }

    /// A station looks whether an address is free: all hear that it is not. RFC 4861, section
    /// 7.2.4.
    #[test]
    fn a_station_that_wants_an_own_address_is_told_in_front_of_all_nodes() {
        let IpAddr::V6(own) = ip("fd00::aa:1") else {
            unreachable!()
        };
        let group = solicited_node(own);
        let mac = multicast_mac(group.into()).unwrap();
        let probe = |to, lladdr: Option<MacAddress>| {
            let message = NdiscRepr::NeighborSolicit {
                target_addr: own,
                lladdr: lladdr.map(|mac| EthernetAddress(mac).into()),
            };
            discovery(PEER, Ipv6Addr::UNSPECIFIED, (mac, to), message)
        };
        let is_ours = |address| address == IpAddr::V6(own);
        let reply = answer(&probe(group, None), OWN, is_ours).unwrap();
        assert_eq!(reply[..6], [0x33, 0x33, 0, 0, 0, 1]);
        assert_eq!(reply[38..54], ALL_NODES.octets());
        // Override, not solicited.
        assert_eq!((reply[54], reply[58]), (136, 0x20));
        assert_eq!(said(&reply).unwrap().mac, OWN);
        // Neither to one station nor with a MAC address: RFC 4861, section 7.1.1.
        assert_eq!(answer(&probe(own, None), OWN, is_ours), None);
        assert_eq!(answer(&probe(group, Some(PEER)), OWN, is_ours), None);
        assert_eq!(answer(&probe(group, None), OWN, |_| false), None);
    }

    #[test]
    fn frames_cut_short_say_nothing() {
        for frame in [
            question(OWN, ip("192.0.2.1"), ip("192.0.2.2"), None).unwrap(),
            question(OWN, ip("fd00::1"), ip("fd00::2"), None).unwrap(),
        ] {
            for length in 0..frame.len() {
                assert_eq!(said(&frame[..length]), None, "{length} bytes");
                assert_eq!(answer(&frame[..length], PEER, |_| true), None, "{length}");
            }
        }
    }
}
