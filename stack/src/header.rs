//! The header of a packet, as far as it decides if the stack processes it.

use smoltcp::wire::{
    EthernetFrame, EthernetProtocol, IpProtocol, Ipv4Packet, Ipv6Packet, UdpPacket,
};
use std::net::IpAddr;

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
