//! The packet that describes the packets of a rule, as the device would send it: source and
//! destination of IP are exchanged. Source: reference e810-lan-data, section 3.2.

use super::{FlowMatch, PacketKind};
use crate::lan::port::kinds::FlowKind;
use std::net::IpAddr;

/// Type of an Ethernet payload of a rule that names none: the first for local experiments.
const ETHER_TYPE_ANY: u16 = 0x88B5;
/// Protocol of a rule for other packets of IP that names none: no next header.
const PROTOCOL_ANY: u8 = 59;
const TIME_TO_LIVE: u8 = 64;
/// Flags of an IPv4 header: do not fragment; more fragments.
const WHOLE: u16 = 0x4000;
const MORE_FRAGMENTS: u16 = 0x2000;
const FRAGMENT_HEADER: u8 = 44;

/// See the module. The packet ends with its last header.
pub(in crate::lan::port) fn packet(kind: PacketKind, packets: &FlowMatch) -> Vec<u8> {
    let mut frame = vec![0; 12];
    if let Some(vlan) = packets.vlan {
        frame.extend([0x81, 0x00]);
        frame.extend(vlan.to_be_bytes());
    }
    match kind {
        PacketKind::Ethernet => {
            let ether_type = packets.ether_type.unwrap_or(ETHER_TYPE_ANY);
            frame.extend(ether_type.to_be_bytes());
            frame.extend([0; 8]);
        }
        PacketKind::Flow(kind) => {
            let layer_4 = layer_4(kind, packets);
            match kind.is_v4() {
                true => frame.extend(ipv4(kind, packets, layer_4.len())),
                false => frame.extend(ipv6(kind, packets, layer_4.len())),
            }
            frame.extend(layer_4);
        }
    }
    frame
}

/// Number of the protocol of IP that packets of the kind have.
fn protocol_of(kind: FlowKind, packets: &FlowMatch) -> u8 {
    match kind {
        FlowKind::TcpV4 | FlowKind::TcpV6 => 6,
        FlowKind::UdpV4 | FlowKind::UdpV6 => 17,
        FlowKind::SctpV4 | FlowKind::SctpV6 => 132,
        FlowKind::FragmentV4 | FlowKind::FragmentV6 => PROTOCOL_ANY,
        FlowKind::OtherV4 | FlowKind::OtherV6 => packets.protocol.unwrap_or(PROTOCOL_ANY),
    }
}

/// Bytes of the addresses, as a packet in the opposite direction has them.
fn addresses(packets: &FlowMatch, bytes: usize) -> Vec<u8> {
    let given = [packets.destination, packets.source];
    let given = given.into_iter().flat_map(|address| match address {
        Some(IpAddr::V4(address)) => address.octets().to_vec(),
        Some(IpAddr::V6(address)) => address.octets().to_vec(),
        None => vec![0; bytes],
    });
    given.collect()
}

fn ipv4(kind: FlowKind, packets: &FlowMatch, payload: usize) -> Vec<u8> {
    let fragment = match kind {
        FlowKind::FragmentV4 => MORE_FRAGMENTS,
        _ => WHOLE,
    };
    let mut header = vec![0x08, 0x00, 0x45, 0];
    header.extend(((20 + payload) as u16).to_be_bytes());
    header.extend([0, 0]);
    header.extend(fragment.to_be_bytes());
    header.extend([TIME_TO_LIVE, protocol_of(kind, packets), 0, 0]);
    header.extend(addresses(packets, 4));
    header
}

fn ipv6(kind: FlowKind, packets: &FlowMatch, payload: usize) -> Vec<u8> {
    let next = match kind {
        FlowKind::FragmentV6 => FRAGMENT_HEADER,
        _ => protocol_of(kind, packets),
    };
    let mut header = vec![0x86, 0xDD, 0x60, 0, 0, 0];
    header.extend((payload as u16).to_be_bytes());
    header.extend([next, TIME_TO_LIVE]);
    header.extend(addresses(packets, 16));
    header
}

fn layer_4(kind: FlowKind, packets: &FlowMatch) -> Vec<u8> {
    let rest: &[u8] = match kind {
        // Data offset of five words, window 8192.
        FlowKind::TcpV4 | FlowKind::TcpV6 => {
            &[0, 0, 0, 0, 0, 0, 0, 0, 0x50, 0, 0x20, 0, 0, 0, 0, 0]
        }
        FlowKind::UdpV4 => &[0, 0, 0, 0],
        FlowKind::UdpV6 => &[0, 8, 0, 0],
        FlowKind::SctpV4 | FlowKind::SctpV6 => &[0; 8],
        // The fragment header of a first fragment.
        FlowKind::FragmentV6 => return vec![PROTOCOL_ANY, 0, 0, 1, 0, 0, 0, 0],
        FlowKind::FragmentV4 | FlowKind::OtherV4 | FlowKind::OtherV6 => return Vec::new(),
    };
    let ports = [packets.destination_port, packets.source_port];
    let ports = ports
        .into_iter()
        .flat_map(|port| port.unwrap_or(0).to_be_bytes());
    ports.chain(rest.iter().copied()).collect()
}
