//! Frames of address resolution: ARP (RFC 826) and neighbour discovery (RFC 4861).

use crate::MacAddress;
use crate::filters::{ALL_NODES, solicited_node};
use ringside_pmd::rdma::address::multicast_mac;
use smoltcp::phy::ChecksumCapabilities;
use smoltcp::wire::{
    ArpOperation, ArpPacket, ArpRepr, EthernetAddress, EthernetFrame, EthernetProtocol,
    EthernetRepr, Icmpv6Packet, Icmpv6Repr, IpProtocol, Ipv4Packet, Ipv6Packet, Ipv6Repr,
    NdiscNeighborFlags, NdiscRepr,
};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Frames of neighbour discovery have this hop limit: they come from the link itself.
/// Source: RFC 4861, section 7.1.
const HOP_LIMIT: u8 = 255;
pub(crate) const ETHERNET_BYTES: usize = 14;
/// The place of a VLAN tag in a frame, and its type. Source: IEEE 802.1Q.
pub(crate) const TAG_AT: usize = 12;
pub(crate) const TAGGED: [u8; 2] = [0x81, 0x00];
pub(crate) const IPV6_BYTES: usize = 40;

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
    /// It answers a question for it alone, and leaves its MAC address out: a known one is right
    /// still, whichever station sends the frame. Source: RFC 4861, sections 4.4 and 7.2.5.
    Confirmation,
    /// It answers the station of this address, which is ours or another one.
    Reply { target: IpAddr },
    /// It queries this address of ours, and announces its own.
    Question { target: IpAddr },
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
        // An announcement is a question for the own address: RFC 5227, section 3. Some stations
        // send a reply to it.
        ArpOperation::Request | ArpOperation::Reply if address == target => How::Answer,
        ArpOperation::Reply => How::Reply {
            target: IpAddr::V4(target),
        },
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
            let is_confirmed = flags.contains(NdiscNeighborFlags::SOLICITED);
            let (mac, how) = match lladdr {
                Some(mac) if flags.contains(NdiscNeighborFlags::OVERRIDE) => {
                    (ethernet(mac.as_bytes())?, How::Answer)
                }
                Some(mac) => (ethernet(mac.as_bytes())?, How::Hint),
                None if is_confirmed => (frame.src_addr(), How::Confirmation),
                None => return None,
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

/// The MAC address of the station that sent an echo request; `None` for all other frames, and for
/// later fragments of a request.
pub(crate) fn pings(frame: &[u8]) -> Option<MacAddress> {
    /// Type of an echo request. Source: RFC 792.
    const PING: u8 = 8;
    /// The same of IPv6. Source: RFC 4443, section 4.1.
    const PING_V6: u8 = 128;
    let frame = EthernetFrame::new_checked(frame).ok()?;
    let (protocol, ping, kind) = match frame.ethertype() {
        EthernetProtocol::Ipv4 => {
            let packet = Ipv4Packet::new_checked(frame.payload()).ok()?;
            let kind = packet
                .payload()
                .first()
                .filter(|_| packet.frag_offset() == 0);
            (
                packet.next_header(),
                (IpProtocol::Icmp, PING),
                kind.copied(),
            )
        }
        EthernetProtocol::Ipv6 => {
            let packet = Ipv6Packet::new_checked(frame.payload()).ok()?;
            let kind = packet.payload().first().copied();
            (packet.next_header(), (IpProtocol::Icmpv6, PING_V6), kind)
        }
        _ => return None,
    };
    let is_ping = (protocol, kind?) == ping && frame.src_addr().is_unicast();
    is_ping.then(|| frame.src_addr().0)
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

pub(crate) fn put_header(
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
mod tests;
