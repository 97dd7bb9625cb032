//! The device's parser of received frames: its type, its tag, whether its checksums
//! hold, and what it is hashed by.
//!
//! Sources: IEEE 802.1Q, RFC 791, RFC 8200, RFC 768, RFC 9293, RFC 9260; the numbers of packet
//! types are those of ice `ice_ptype_lkup`.

use super::bytes::{Sum, be16, be32, crc32c, put};
use crate::packet::MacAddress;
use ringside_spec::lan::receive::{packet_type, split_rule};

/// Bytes of an Ethernet header without tag.
pub(super) const ETHERNET_BYTES: usize = 14;
/// Bytes of a tag.
pub(super) const TAG_BYTES: usize = 4;
/// Place of a tag: after the two addresses.
pub(super) const TAG_AT: usize = 12;

/// Types of Ethernet payload and protocols of IP.
mod number {
    pub(super) const IPV4: u16 = 0x0800;
    pub(super) const ARP: u16 = 0x0806;
    pub(super) const CUSTOMER_TAG: u16 = 0x8100;
    pub(super) const IPV6: u16 = 0x86DD;
    pub(super) const SERVICE_TAG: u16 = 0x88A8;
    pub(super) const LLDP: u16 = 0x88CC;
    pub(super) const TIME_SYNC: u16 = 0x88F7;
    pub(super) const OLD_SERVICE_TAG: u16 = 0x9100;

    pub(super) const HOP_BY_HOP: u8 = 0;
    pub(super) const ICMP: u8 = 1;
    pub(super) const TCP: u8 = 6;
    pub(super) const UDP: u8 = 17;
    pub(super) const ROUTING: u8 = 43;
    pub(super) const FRAGMENT: u8 = 44;
    pub(super) const ICMP_V6: u8 = 58;
    pub(super) const DESTINATION_OPTIONS: u8 = 60;
    pub(super) const SCTP: u8 = 132;
}

/// Tags that are looked through, one after the other.
const MAX_TAGS: usize = 2;

/// Extension headers of IPv6 that are looked through.
const MAX_EXTENSIONS: usize = 8;

/// Most bytes that a hash is made of: two IPv6 addresses and two ports.
const MAX_HASHED_BYTES: usize = 36;

/// Input of a hash: source address, destination address, and both ports if the protocol
/// has any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Flow {
    bytes: [u8; MAX_HASHED_BYTES],
    /// Bytes of one address.
    pub(super) address_bytes: usize,
    length: usize,
}

impl Flow {
    fn new(addresses: &[u8], ports: Option<&[u8]>) -> Self {
        let mut bytes = [0; MAX_HASHED_BYTES];
        let mut length = 0;
        for part in [addresses, ports.unwrap_or_default()] {
            if put(&mut bytes, length, part).is_some() {
                length += part.len();
            }
        }
        Self {
            bytes,
            address_bytes: addresses.len() / 2,
            length,
        }
    }

    /// The bytes, in the order of the hash.
    pub(super) fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or_default()
    }
}

/// Offsets of the headers of a frame; 0 for those that it does not have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Layers {
    /// Values of the tags.
    tags: [u16; MAX_TAGS],
    /// Type of the payload.
    ether_type: u16,
    /// Payload of the frame, and its number among [`protocol`].
    network: (u16, u8),
    /// Payload of IP, and its number.
    transport: (u16, u8),
}

/// Numbers of headers in field vectors. Source: ice `ice_protocol_type.h`.
mod protocol {
    pub(super) const MAC: u8 = 1;
    pub(super) const ETHER_TYPE: u8 = 9;
    pub(super) const FIRST_TAG: u8 = 16;
    pub(super) const LAST_TAG: u8 = 17;
    pub(super) const IPV4: u8 = 32;
    pub(super) const IPV6: u8 = 40;
    pub(super) const TCP: u8 = 49;
    pub(super) const UDP: u8 = 53;
    pub(super) const SCTP: u8 = 96;
    pub(super) const ICMP: u8 = 98;
    pub(super) const ICMP_V6: u8 = 100;
    pub(super) const ARP: u8 = 118;
}

impl Layers {
    /// Offset of the header of that number.
    pub(super) fn start_of(&self, protocol: u8) -> Option<usize> {
        let [first, second] = self.tags;
        let at = match protocol {
            protocol::MAC => return Some(0),
            protocol::ETHER_TYPE => self.ether_type,
            protocol::FIRST_TAG => first,
            protocol::LAST_TAG => first.max(second),
            wanted if wanted == self.network.1 => self.network.0,
            wanted if wanted == self.transport.1 => self.transport.0,
            _ => 0,
        };
        (at > 0).then_some(at.into())
    }
}

/// The result of the checksums.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Checks {
    /// The checksums were checked.
    pub(super) looked_at: bool,
    /// The checksum of the IPv4 header is wrong.
    pub(super) ip_wrong: bool,
    /// The checksum of TCP, UDP or SCTP is wrong.
    pub(super) layer_4_wrong: bool,
}

/// See the module.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Parsed {
    /// See [`packet_type`].
    pub(super) packet_type: u16,
    /// Type of the payload, after all tags.
    pub(super) ether_type: u16,
    /// Type and value of the first tag.
    pub(super) tag: Option<(u16, u16)>,
    /// The result of the checksums.
    pub(super) checks: Checks,
    /// Offsets of its headers.
    pub(super) layers: Layers,
    /// Input of its hash.
    pub(super) flow: Option<Flow>,
    /// IPv6 with a routing header or destination options.
    pub(super) ipv6_extension: bool,
}

/// The differentiated services code point of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dscp {
    /// Of IPv4.
    V4(u8),
    /// Of IPv6.
    V6(u8),
}

impl Parsed {
    /// The DSCP of its outermost IP header, if it has one.
    pub(super) fn dscp(&self, frame: &[u8]) -> Option<Dscp> {
        let (start, protocol) = self.layers.network;
        let begin = be16(frame, start.into())?;
        match protocol {
            protocol::IPV4 => Some(Dscp::V4((begin >> 2 & 0x3F) as u8)),
            protocol::IPV6 => Some(Dscp::V6((begin >> 6 & 0x3F) as u8)),
            _ => None,
        }
    }

    /// Bytes up to the end of the innermost header that a rule for splitting names; 0 without one.
    pub(super) fn header_bytes(&self, frame: &[u8], rules: u8) -> usize {
        let (network, of_network) = self.layers.network;
        let (transport, of_transport) = self.layers.transport;
        let (network, transport) = (usize::from(network), usize::from(transport));
        let longest = |bytes: usize| bytes.min(frame.len());
        let (rule, bytes) = match of_transport {
            protocol::TCP => {
                let words = frame.get(transport + 12).map_or(5, |offset| offset >> 4);
                (split_rule::TCP_UDP, usize::from(words) * 4)
            }
            protocol::UDP => (split_rule::TCP_UDP, 8),
            protocol::SCTP => (split_rule::SCTP, 12),
            _ => (0, 0),
        };
        if rules & rule != 0 {
            return longest(transport + bytes);
        }
        let end = match of_network {
            protocol::IPV4 | protocol::IPV6 if transport > 0 => Some(transport),
            protocol::IPV4 => {
                let words = frame.get(network).map_or(5, |first| first & 0xF);
                Some(network + usize::from(words) * 4)
            }
            protocol::IPV6 => Some(network + 40),
            _ => None,
        };
        match end.filter(|_| rules & split_rule::IP != 0) {
            Some(end) => longest(end),
            None if rules & split_rule::LAYER_2 != 0 => {
                longest(usize::from(self.layers.ether_type) + 2)
            }
            None => 0,
        }
    }

    /// True if the type of the payload is IPv4 or IPv6.
    pub(super) const fn is_ip(&self) -> bool {
        matches!(self.ether_type, number::IPV4 | number::IPV6)
    }
}

/// The payload of IP.
struct Inside<'a> {
    packet_types: &'static Types,
    fragment: bool,
    protocol: u8,
    addresses: &'a [u8],
    segment: &'a [u8],
    /// Offset of the segment in the payload of the frame.
    segment_at: usize,
    ip_wrong: bool,
    ipv6_extension: bool,
}

/// Packet types of one version of IP.
struct Types {
    fragment: u16,
    other: u16,
    udp: u16,
    tcp: u16,
    sctp: u16,
    icmp: u16,
}

static TYPES_V4: Types = Types {
    fragment: packet_type::IPV4_FRAGMENT,
    other: packet_type::IPV4,
    udp: packet_type::IPV4_UDP,
    tcp: packet_type::IPV4_TCP,
    sctp: packet_type::IPV4_SCTP,
    icmp: packet_type::IPV4_ICMP,
};

static TYPES_V6: Types = Types {
    fragment: packet_type::IPV6_FRAGMENT,
    other: packet_type::IPV6,
    udp: packet_type::IPV6_UDP,
    tcp: packet_type::IPV6_TCP,
    sctp: packet_type::IPV6_SCTP,
    icmp: packet_type::IPV6_ICMP,
};

/// True for the types of a tag.
pub(super) const fn is_tag(ether_type: u16) -> bool {
    matches!(
        ether_type,
        number::CUSTOMER_TAG | number::SERVICE_TAG | number::OLD_SERVICE_TAG
    )
}

/// True for the types of a tag that only double VLAN mode knows.
pub(super) const fn is_service_tag(ether_type: u16) -> bool {
    matches!(ether_type, number::SERVICE_TAG | number::OLD_SERVICE_TAG)
}

/// Type and value of the tag that a frame begins with.
pub(super) fn first_tag(frame: &[u8]) -> Option<(u16, u16)> {
    let kind = be16(frame, TAG_AT)?;
    let value = be16(frame, TAG_AT + 2)?;
    is_tag(kind).then_some((kind, value))
}

/// Destination and source of a frame; `None` if it ends before.
#[inline]
pub(super) fn addresses(frame: &[u8]) -> Option<(MacAddress, MacAddress)> {
    let (destination, rest) = frame.split_first_chunk::<6>()?;
    let (source, _) = rest.split_first_chunk::<6>()?;
    Some((MacAddress(*destination), MacAddress(*source)))
}

/// Looks at a frame; `None` if it has no Ethernet header.
pub(super) fn parse(frame: &[u8]) -> Option<Parsed> {
    let mut parsed = Parsed::default();
    parse_into(frame, &mut parsed).then_some(parsed)
}

/// The same in place of another frame's result; false and any content if it has no Ethernet header.
pub(super) fn parse_into(frame: &[u8], parsed: &mut Parsed) -> bool {
    let mut at = TAG_AT;
    let Some(mut ether_type) = be16(frame, at) else {
        return false;
    };
    parsed.tag = None;
    parsed.layers = Layers::default();
    if is_tag(ether_type) {
        parsed.tag = first_tag(frame);
        for place in &mut parsed.layers.tags {
            if is_tag(ether_type) {
                *place = at as u16 + 2;
                at += TAG_BYTES;
                let Some(inner) = be16(frame, at) else {
                    return false;
                };
                ether_type = inner;
            }
        }
    }
    parsed.layers.ether_type = at as u16;
    parsed.packet_type = packet_type::LAYER_2;
    parsed.ether_type = ether_type;
    parsed.checks = Checks::default();
    parsed.flow = None;
    parsed.ipv6_extension = false;
    parse_payload(frame, at + 2, parsed);
    true
}

/// Looks at the payload of a frame, which begins at `start`.
#[inline]
fn parse_payload(frame: &[u8], start: usize, parsed: &mut Parsed) {
    let payload = frame.get(start..).unwrap_or_default();
    let inside = match parsed.ether_type {
        number::IPV4 => ipv4(payload),
        number::IPV6 => ipv6(payload),
        number::ARP => {
            parsed.packet_type = packet_type::ARP;
            parsed.layers.network = (start as u16, protocol::ARP);
            None
        }
        number::LLDP => {
            parsed.packet_type = packet_type::LLDP;
            None
        }
        number::TIME_SYNC => {
            parsed.packet_type = packet_type::TIME_SYNC;
            None
        }
        _ => None,
    };
    if let Some(inside) = inside {
        inside.describe(parsed);
        parsed.layers.network = (start as u16, inside.network());
        let transport = start + inside.segment_at;
        parsed.layers.transport = match inside.transport() {
            Some(number) => (u16::try_from(transport).unwrap_or(0), number),
            None => (0, 0),
        };
    }
}

fn ipv4(payload: &[u8]) -> Option<Inside<'_>> {
    let first = *payload.first()?;
    let header_bytes = usize::from(first & 0xF) * 4;
    let total = usize::from(be16(payload, 2)?);
    if first >> 4 != 4 || header_bytes < 20 || total < header_bytes {
        return None;
    }
    let header = payload.get(..header_bytes)?;
    let fragment = be16(payload, 6)? & 0x3FFF != 0;
    Some(Inside {
        packet_types: &TYPES_V4,
        fragment,
        protocol: *header.get(9)?,
        addresses: header.get(12..20)?,
        segment: payload.get(header_bytes..total)?,
        segment_at: header_bytes,
        ip_wrong: Sum::default().bytes(header).folded() != 0xFFFF,
        ipv6_extension: false,
    })
}

fn ipv6(payload: &[u8]) -> Option<Inside<'_>> {
    if *payload.first()? >> 4 != 6 {
        return None;
    }
    let length = usize::from(be16(payload, 4)?);
    let mut inside = Inside {
        packet_types: &TYPES_V6,
        fragment: false,
        protocol: *payload.get(6)?,
        addresses: payload.get(8..40)?,
        segment: payload.get(40..40 + length)?,
        segment_at: 40,
        ip_wrong: false,
        ipv6_extension: false,
    };
    for _ in 0..MAX_EXTENSIONS {
        let bytes = match inside.protocol {
            number::FRAGMENT => {
                inside.fragment = true;
                8
            }
            number::ROUTING | number::DESTINATION_OPTIONS => {
                inside.ipv6_extension = true;
                8 + 8 * usize::from(*inside.segment.get(1)?)
            }
            number::HOP_BY_HOP => 8 + 8 * usize::from(*inside.segment.get(1)?),
            _ => break,
        };
        inside.protocol = *inside.segment.first()?;
        inside.segment = inside.segment.get(bytes..)?;
        inside.segment_at += bytes;
    }
    Some(inside)
}

impl Inside<'_> {
    fn is_v4(&self) -> bool {
        std::ptr::eq(self.packet_types, &raw const TYPES_V4)
    }

    /// Number of its header among [`protocol`].
    fn network(&self) -> u8 {
        if self.is_v4() {
            protocol::IPV4
        } else {
            protocol::IPV6
        }
    }

    /// Number of its segment's header among [`protocol`].
    fn transport(&self) -> Option<u8> {
        if self.fragment {
            return None;
        }
        match self.protocol {
            number::TCP => Some(protocol::TCP),
            number::UDP => Some(protocol::UDP),
            number::SCTP => Some(protocol::SCTP),
            number::ICMP if self.is_v4() => Some(protocol::ICMP),
            number::ICMP_V6 if !self.is_v4() => Some(protocol::ICMP_V6),
            _ => None,
        }
    }

    fn describe(&self, parsed: &mut Parsed) {
        let types = self.packet_types;
        parsed.ipv6_extension = self.ipv6_extension;
        parsed.checks = Checks {
            looked_at: true,
            ip_wrong: self.ip_wrong,
            layer_4_wrong: false,
        };
        parsed.flow = Some(Flow::new(self.addresses, None));
        if self.fragment {
            parsed.packet_type = types.fragment;
            return;
        }
        let has_ports = matches!(self.protocol, number::TCP | number::UDP | number::SCTP);
        if has_ports && let Some(ports) = self.segment.get(..4) {
            parsed.flow = Some(Flow::new(self.addresses, Some(ports)));
        }
        parsed.packet_type = match self.protocol {
            number::TCP => types.tcp,
            number::UDP => types.udp,
            number::SCTP => types.sctp,
            number::ICMP if self.is_v4() => types.icmp,
            number::ICMP_V6 if !self.is_v4() => types.icmp,
            _ => types.other,
        };
        parsed.checks.layer_4_wrong = self.layer_4_wrong();
    }

    fn layer_4_wrong(&self) -> bool {
        match self.protocol {
            // no checksum was sent
            number::UDP if self.addresses.len() == 8 && be16(self.segment, 6) == Some(0) => false,
            number::TCP | number::UDP => {
                let length = if self.protocol == number::UDP {
                    let said = be16(self.segment, 4).map(usize::from);
                    match said.filter(|said| (8..=self.segment.len()).contains(said)) {
                        Some(said) => said,
                        None => return true,
                    }
                } else {
                    self.segment.len()
                };
                let segment = self.segment.get(..length).unwrap_or_default();
                let sum = Sum::default()
                    .bytes(self.addresses)
                    .number(u32::from(self.protocol))
                    .number(length as u32)
                    .bytes(segment);
                sum.folded() != 0xFFFF
            }
            number::SCTP => {
                let (Some(before), Some(found), Some(after)) = (
                    self.segment.get(..8),
                    be32(self.segment, 8),
                    self.segment.get(12..),
                ) else {
                    return true;
                };
                crc32c(&[before, &[0; 4], after]).swap_bytes() != found
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests;
