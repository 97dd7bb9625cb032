//! Ethernet, VLAN, IPv4, IPv6 and UDP: the path of a packet.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::ops::Range;

use zerocopy::{FromBytes, IntoBytes};

use super::ParseError;
use super::wire::{
    EthernetHeader, FragmentWord, Ipv4Header, Ipv6First, Ipv6Header, TrafficClass, UdpHeader,
    VersionAndLength, VlanHeader,
};

/// UDP destination port of RoCEv2.
pub const ROCE_UDP_PORT: u16 = 4791;

const ETHER_TYPE_IPV4: u16 = 0x0800;
const ETHER_TYPE_IPV6: u16 = 0x86DD;
const ETHER_TYPE_VLAN: u16 = 0x8100;
const PROTOCOL_UDP: u8 = 17;
const UDP_BYTES: usize = size_of::<UdpHeader>();

/// A MAC address, first octet on the wire first.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, PartialOrd, Ord)]
pub struct MacAddress(pub [u8; 6]);

impl core::fmt::Display for MacAddress {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl core::fmt::Debug for MacAddress {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        core::fmt::Display::fmt(self, f)
    }
}

/// Everything below the transport headers. Constant for a connection but for the identification.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Path {
    /// Ethernet destination.
    pub destination: MacAddress,
    /// Ethernet source.
    pub source: MacAddress,
    /// 802.1Q tag control information (priority, DEI, VLAN id), if the frame is tagged.
    pub vlan: Option<u16>,
    /// IP header.
    pub network: Network,
    /// UDP source port; switches spread flows by it.
    pub source_port: u16,
    /// True if there is a UDP checksum.
    pub udp_checksum: UdpChecksum,
}

/// True if there is a UDP checksum. The ICRC protects the packet, so it may be absent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum UdpChecksum {
    /// The field is zero.
    Absent,
    /// The field covers the datagram.
    Computed,
}

/// The IP header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Network {
    /// version 4
    V4(Ipv4),
    /// version 6
    V6(Ipv6),
}

/// IPv4 header (RFC 791) without options.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ipv4 {
    /// sender
    pub source: Ipv4Addr,
    /// receiver
    pub destination: Ipv4Addr,
    /// DSCP and ECN
    pub type_of_service: u8,
    /// routers that it may still pass
    pub time_to_live: u8,
    /// any value; RoCEv2 packets are never fragmented
    pub identification: u16,
    /// DF; set by RoCEv2 senders
    pub do_not_fragment: bool,
}

/// IPv6 header (RFC 8200) without extension headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ipv6 {
    /// sender
    pub source: Ipv6Addr,
    /// receiver
    pub destination: Ipv6Addr,
    /// DSCP and ECN
    pub traffic_class: u8,
    /// 0..2^20
    pub flow_label: u32,
    /// routers that it may still pass
    pub hop_limit: u8,
}

/// The datagram does not fit the 16-bit length fields.
pub(super) struct TooLong;

/// Reads the path; gives also the range of the IP datagram and of the UDP payload in `frame`.
pub(super) fn parse(frame: &[u8]) -> Result<(Path, Range<usize>, Range<usize>), ParseError> {
    let truncated = |header| ParseError::Truncated { header };
    let (ethernet, rest) =
        EthernetHeader::read_from_prefix(frame).map_err(|_| truncated("Ethernet"))?;
    let mut ether_type = ethernet.ether_type.get();
    let mut vlan = None;
    let mut ip = rest;
    if ether_type == ETHER_TYPE_VLAN {
        let (tag, rest) = VlanHeader::read_from_prefix(rest).map_err(|_| truncated("VLAN"))?;
        vlan = Some(tag.control.get());
        ether_type = tag.ether_type.get();
        ip = rest;
    }
    let ip_start = frame.len() - ip.len();
    let (network, datagram_bytes, segment) = match ether_type {
        ETHER_TYPE_IPV4 => parse_ipv4(ip)?,
        ETHER_TYPE_IPV6 => parse_ipv6(ip)?,
        other => return Err(ParseError::NotIp { ether_type: other }),
    };
    let (udp, payload) = UdpHeader::read_from_prefix(segment).map_err(|_| truncated("UDP"))?;
    let port = udp.destination_port.get();
    if port != ROCE_UDP_PORT {
        return Err(ParseError::NotRoce { port });
    }
    let said = usize::from(udp.length.get());
    if said != segment.len() {
        return Err(ParseError::BadLength {
            header: "UDP",
            said,
            available: segment.len(),
        });
    }
    let found = udp.checksum.get();
    if found != 0 && ones_complement(pseudo_header_sum(&network, said), segment) != 0 {
        return Err(ParseError::BadUdpChecksum { found });
    }
    let path = Path {
        destination: MacAddress(ethernet.destination),
        source: MacAddress(ethernet.source),
        vlan,
        network,
        source_port: udp.source_port.get(),
        udp_checksum: if found == 0 {
            UdpChecksum::Absent
        } else {
            UdpChecksum::Computed
        },
    };
    let end = ip_start + datagram_bytes;
    Ok((path, ip_start..end, end - payload.len()..end))
}

fn parse_ipv4(bytes: &[u8]) -> Result<(Network, usize, &[u8]), ParseError> {
    let truncated = ParseError::Truncated { header: "IPv4" };
    let (header, _) = Ipv4Header::read_from_prefix(bytes).map_err(|_| truncated)?;
    let first = VersionAndLength(header.version_and_length);
    let header_bytes = usize::from(first.header_words()) * 4;
    if first.version() != 4 || header_bytes < size_of::<Ipv4Header>() {
        return Err(ParseError::BadIpHeader {
            first_byte: first.0,
        });
    }
    if header_bytes > size_of::<Ipv4Header>() {
        return Err(ParseError::Ipv4Options { header_bytes });
    }
    let found = header.checksum.get();
    if ones_complement(0, header.as_bytes()) != 0 {
        return Err(ParseError::BadIpv4Checksum {
            found,
            computed: ipv4_checksum(&header),
        });
    }
    let fragment = FragmentWord(header.fragment.get());
    if fragment.more_fragments() || fragment.offset() != 0 {
        return Err(ParseError::Fragment);
    }
    if header.protocol != PROTOCOL_UDP {
        return Err(ParseError::NotUdp {
            protocol: header.protocol,
        });
    }
    let said = usize::from(header.total_length.get());
    let segment = bytes.get(header_bytes..said).ok_or(ParseError::BadLength {
        header: "IPv4",
        said,
        available: bytes.len(),
    })?;
    let network = Network::V4(Ipv4 {
        source: header.source.into(),
        destination: header.destination.into(),
        type_of_service: header.type_of_service,
        time_to_live: header.time_to_live,
        identification: header.identification.get(),
        do_not_fragment: fragment.do_not_fragment(),
    });
    Ok((network, said, segment))
}

fn parse_ipv6(bytes: &[u8]) -> Result<(Network, usize, &[u8]), ParseError> {
    let truncated = ParseError::Truncated { header: "IPv6" };
    let (header, rest) = Ipv6Header::read_from_prefix(bytes).map_err(|_| truncated)?;
    let first = Ipv6First(header.first.get());
    if first.version() != 6 {
        let first_byte = header.first.as_bytes().first().copied().unwrap_or_default();
        return Err(ParseError::BadIpHeader { first_byte });
    }
    if header.next_header != PROTOCOL_UDP {
        return Err(ParseError::NotUdp {
            protocol: header.next_header,
        });
    }
    let said = usize::from(header.payload_length.get());
    let segment = rest.get(..said).ok_or(ParseError::BadLength {
        header: "IPv6",
        said,
        available: rest.len(),
    })?;
    let network = Network::V6(Ipv6 {
        source: header.source.into(),
        destination: header.destination.into(),
        traffic_class: first.traffic_class() as u8,
        flow_label: first.flow_label(),
        hop_limit: header.hop_limit,
    });
    Ok((network, size_of::<Ipv6Header>() + said, segment))
}

/// Appends the headers before a UDP payload of `payload_bytes`; the UDP checksum stays zero.
/// Gives the offset of the IP header from where the frame began.
pub(super) fn emit(
    path: &Path,
    payload_bytes: usize,
    frame: &mut Vec<u8>,
) -> Result<usize, TooLong> {
    let udp_bytes = u16::try_from(UDP_BYTES + payload_bytes).map_err(|_| TooLong)?;
    let ip_header = size_of::<Ipv4Header>() as u16;
    let ipv4_bytes = match path.network {
        Network::V4(_) => udp_bytes.checked_add(ip_header).ok_or(TooLong)?,
        Network::V6(_) => 0,
    };
    let start = frame.len();
    let ether_type = match path.network {
        Network::V4(_) => ETHER_TYPE_IPV4,
        Network::V6(_) => ETHER_TYPE_IPV6,
    };
    let outer = if path.vlan.is_some() {
        ETHER_TYPE_VLAN
    } else {
        ether_type
    };
    let ethernet = EthernetHeader {
        destination: path.destination.0,
        source: path.source.0,
        ether_type: outer.into(),
    };
    frame.extend_from_slice(ethernet.as_bytes());
    if let Some(control) = path.vlan {
        let tag = VlanHeader {
            control: control.into(),
            ether_type: ether_type.into(),
        };
        frame.extend_from_slice(tag.as_bytes());
    }
    let ip_offset = frame.len() - start;
    match &path.network {
        Network::V4(ip) => frame.extend_from_slice(ipv4_header(ip, ipv4_bytes).as_bytes()),
        Network::V6(ip) => frame.extend_from_slice(ipv6_header(ip, udp_bytes).as_bytes()),
    }
    let udp = UdpHeader {
        source_port: path.source_port.into(),
        destination_port: ROCE_UDP_PORT.into(),
        length: udp_bytes.into(),
        checksum: 0.into(),
    };
    frame.extend_from_slice(udp.as_bytes());
    Ok(ip_offset)
}

fn ipv4_header(ip: &Ipv4, total_length: u16) -> Ipv4Header {
    let words = (size_of::<Ipv4Header>() / 4) as u8;
    let mut header = Ipv4Header {
        version_and_length: VersionAndLength::ZERO
            .with_version(4)
            .with_header_words(words)
            .0,
        type_of_service: ip.type_of_service,
        total_length: total_length.into(),
        identification: ip.identification.into(),
        fragment: FragmentWord::ZERO
            .with_do_not_fragment(ip.do_not_fragment)
            .0
            .into(),
        time_to_live: ip.time_to_live,
        protocol: PROTOCOL_UDP,
        checksum: 0.into(),
        source: ip.source.octets(),
        destination: ip.destination.octets(),
    };
    header.checksum = ipv4_checksum(&header).into();
    header
}

fn ipv6_header(ip: &Ipv6, payload_length: u16) -> Ipv6Header {
    let first = Ipv6First::ZERO
        .with_version(6)
        .with_traffic_class(ip.traffic_class.into())
        .with_flow_label(
            ip.flow_label & (Ipv6First::FLOW_LABEL_MASK >> Ipv6First::FLOW_LABEL_SHIFT),
        );
    Ipv6Header {
        first: first.0.into(),
        payload_length: payload_length.into(),
        next_header: PROTOCOL_UDP,
        hop_limit: ip.hop_limit,
        source: ip.source.octets(),
        destination: ip.destination.octets(),
    }
}

/// The bytes ahead of a datagram's payload, which took `udp_payload_bytes` on the wire:
/// the IPv6 header, or 20 bytes of 0 and the IPv4 header.
/// Source: InfiniBand Architecture Specification, annex A17.4.5.1.
pub(super) fn route_header(network: &Network, udp_payload_bytes: usize) -> [u8; 40] {
    let udp_bytes = u16::try_from(UDP_BYTES + udp_payload_bytes).unwrap_or(u16::MAX);
    let mut header = [0; 40];
    match network {
        Network::V4(ip) => {
            let total = udp_bytes.saturating_add(size_of::<Ipv4Header>() as u16);
            let (_, last) = header.split_at_mut(40 - size_of::<Ipv4Header>());
            last.copy_from_slice(ipv4_header(ip, total).as_bytes());
        }
        Network::V6(ip) => header.copy_from_slice(ipv6_header(ip, udp_bytes).as_bytes()),
    }
    header
}

/// Writes the UDP checksum of the frame whose IP header starts at `ip`; the field must be zero.
pub(super) fn fill_udp_checksum(network: &Network, frame: &mut [u8], ip: usize) {
    let udp = ip
        + match network {
            Network::V4(_) => size_of::<Ipv4Header>(),
            Network::V6(_) => size_of::<Ipv6Header>(),
        };
    let Some(segment) = frame.get_mut(udp..) else {
        return;
    };
    let sum = ones_complement(pseudo_header_sum(network, segment.len()), segment);
    if let Ok((header, _)) = UdpHeader::mut_from_prefix(segment) {
        // zero on the wire means "absent"; its other form has the same sum
        header.checksum.set(if sum == 0 { 0xFFFF } else { sum });
    }
}

/// Sets "congestion experienced" in the IP header of a frame, tagged or not. Returns false and
/// changes nothing if its sender does not support congestion marks or it is no IP. Source: RFC
/// 3168, section 5.
pub(super) fn mark_congestion(frame: &mut [u8]) -> bool {
    let Ok((ethernet, mut rest)) = EthernetHeader::mut_from_prefix(frame) else {
        return false;
    };
    let mut ether_type = ethernet.ether_type.get();
    if ether_type == ETHER_TYPE_VLAN {
        let Ok((tag, after)) = VlanHeader::mut_from_prefix(rest) else {
            return false;
        };
        ether_type = tag.ether_type.get();
        rest = after;
    }
    match ether_type {
        ETHER_TYPE_IPV4 => {
            let Ok((header, _)) = Ipv4Header::mut_from_prefix(rest) else {
                return false;
            };
            let Some(marked) = marked(header.type_of_service) else {
                return false;
            };
            // The checksum follows the change of its 16-bit word, options or not (RFC 1624).
            let before = u16::from_be_bytes([header.version_and_length, header.type_of_service]);
            let after = u16::from_be_bytes([header.version_and_length, marked]);
            let old = u64::from(!header.checksum.get());
            let sum = old + u64::from(!before) + u64::from(after);
            header.type_of_service = marked;
            header.checksum.set(ones_complement(sum, &[]));
            true
        }
        ETHER_TYPE_IPV6 => {
            let Ok((header, _)) = Ipv6Header::mut_from_prefix(rest) else {
                return false;
            };
            let first = Ipv6First(header.first.get());
            let Some(marked) = marked(first.traffic_class() as u8) else {
                return false;
            };
            header.first.set(first.with_traffic_class(marked.into()).0);
            true
        }
        _ => false,
    }
}

/// "Congestion experienced". Source: RFC 3168, section 5.
const EXPERIENCED: u8 = 3;

impl Network {
    /// True if a switch on the way has marked the packet "congestion experienced".
    #[inline]
    #[must_use]
    pub const fn is_marked(&self) -> bool {
        let class = match self {
            Self::V4(ip) => ip.type_of_service,
            Self::V6(ip) => ip.traffic_class,
        };
        TrafficClass(class).congestion() == EXPERIENCED
    }
}

fn marked(class: u8) -> Option<u8> {
    let class = TrafficClass(class);
    (class.congestion() != 0).then_some(class.with_congestion(EXPERIENCED).0)
}

fn ipv4_checksum(header: &Ipv4Header) -> u16 {
    let mut header = *header;
    header.checksum.set(0);
    ones_complement(0, header.as_bytes())
}

/// Sum of the pseudo header that UDP's checksum covers (RFC 768, RFC 8200 8.1).
fn pseudo_header_sum(network: &Network, udp_bytes: usize) -> u64 {
    let addresses = match network {
        Network::V4(ip) => sum(&ip.source.octets()) + sum(&ip.destination.octets()),
        Network::V6(ip) => sum(&ip.source.octets()) + sum(&ip.destination.octets()),
    };
    addresses + u64::from(PROTOCOL_UDP) + udp_bytes as u64
}

fn sum(bytes: &[u8]) -> u64 {
    let (pairs, last) = bytes.as_chunks::<2>();
    let even: u64 = pairs
        .iter()
        .map(|pair| u64::from(u16::from_be_bytes(*pair)))
        .sum();
    even + last
        .first()
        .map_or(0, |byte| u64::from(u16::from_be_bytes([*byte, 0])))
}

/// The Internet checksum (RFC 1071) of `bytes` on top of `initial`.
fn ones_complement(initial: u64, bytes: &[u8]) -> u16 {
    // the remainder modulo 0xFFFF is what folding the carries gives, but for 0 and 0xFFFF
    let total = initial + sum(bytes);
    let folded = if total == 0 {
        0
    } else {
        ((total - 1) % 0xFFFF + 1) as u16
    };
    !folded
}
