//! Kinds of flows, and the words of their packets that a hash is made of.

use ringside_spec::lan::receive::packet_type;
use std::collections::BTreeMap;
use std::fmt;

/// Kinds of packets whose fields are chosen one by one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FlowKind {
    /// TCP over IPv4.
    TcpV4,
    /// UDP over IPv4.
    UdpV4,
    /// SCTP over IPv4.
    SctpV4,
    /// Fragments of IPv4.
    FragmentV4,
    /// Other packets of IPv4.
    OtherV4,
    /// TCP over IPv6.
    TcpV6,
    /// UDP over IPv6.
    UdpV6,
    /// SCTP over IPv6.
    SctpV6,
    /// Fragments of IPv6.
    FragmentV6,
    /// Other packets of IPv6.
    OtherV6,
}

/// A field of packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum HashField {
    /// Source address of IP.
    SourceAddress,
    /// Destination address of IP.
    DestinationAddress,
    /// Source port.
    SourcePort,
    /// Destination port.
    DestinationPort,
}

/// All fields, in the order in which the hash takes them.
const FIELDS: [HashField; 4] = [
    HashField::SourceAddress,
    HashField::DestinationAddress,
    HashField::SourcePort,
    HashField::DestinationPort,
];

/// Protocol numbers of field vectors. Source: ice `ice_protocol_type.h`.
pub(super) mod protocol {
    pub(in super::super) const MAC: u8 = 1;
    pub(in super::super) const ETHER_TYPE: u8 = 9;
    pub(in super::super) const IPV4: u8 = 32;
    pub(in super::super) const IPV6: u8 = 40;
    pub(super) const TCP: u8 = 49;
    pub(super) const UDP: u8 = 53;
    pub(super) const SCTP: u8 = 96;
}

/// Packet type group of each kind, for devices whose package file is not available.
/// Source: section 42 of Intel's package 1.3.41.0.
const GROUPS: [(FlowKind, u16, u8); 10] = [
    (FlowKind::TcpV4, packet_type::IPV4_TCP, 1),
    (FlowKind::UdpV4, packet_type::IPV4_UDP, 2),
    (FlowKind::SctpV4, packet_type::IPV4_SCTP, 3),
    (FlowKind::FragmentV4, packet_type::IPV4_FRAGMENT, 4),
    (FlowKind::OtherV4, packet_type::IPV4, 5),
    (FlowKind::TcpV6, packet_type::IPV6_TCP, 6),
    (FlowKind::UdpV6, packet_type::IPV6_UDP, 7),
    (FlowKind::SctpV6, packet_type::IPV6_SCTP, 8),
    (FlowKind::FragmentV6, packet_type::IPV6_FRAGMENT, 9),
    (FlowKind::OtherV6, packet_type::IPV6, 10),
];

/// As users write it: `tcp4`, `ip6` for other packets of IPv6.
impl fmt::Display for FlowKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TcpV4 => "tcp4",
            Self::UdpV4 => "udp4",
            Self::SctpV4 => "sctp4",
            Self::FragmentV4 => "frag4",
            Self::OtherV4 => "ip4",
            Self::TcpV6 => "tcp6",
            Self::UdpV6 => "udp6",
            Self::SctpV6 => "sctp6",
            Self::FragmentV6 => "frag6",
            Self::OtherV6 => "ip6",
        })
    }
}

impl fmt::Display for HashField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::SourceAddress => "source address",
            Self::DestinationAddress => "destination address",
            Self::SourcePort => "source port",
            Self::DestinationPort => "destination port",
        })
    }
}

impl FlowKind {
    /// All kinds.
    pub const ALL: [Self; 10] = [
        Self::TcpV4,
        Self::UdpV4,
        Self::SctpV4,
        Self::FragmentV4,
        Self::OtherV4,
        Self::TcpV6,
        Self::UdpV6,
        Self::SctpV6,
        Self::FragmentV6,
        Self::OtherV6,
    ];

    /// Protocol of its ports; `None` for packets without.
    pub(super) const fn ports(self) -> Option<u8> {
        match self {
            Self::TcpV4 | Self::TcpV6 => Some(protocol::TCP),
            Self::UdpV4 | Self::UdpV6 => Some(protocol::UDP),
            Self::SctpV4 | Self::SctpV6 => Some(protocol::SCTP),
            _ => None,
        }
    }

    pub(super) const fn is_v4(self) -> bool {
        matches!(
            self,
            Self::TcpV4 | Self::UdpV4 | Self::SctpV4 | Self::FragmentV4 | Self::OtherV4
        )
    }

    /// Protocol, offset and bytes of a field; `None` if its packets do not have it.
    pub(super) fn place(self, field: HashField) -> Option<(u8, u16, u16)> {
        let v4 = self.is_v4();
        let (ip, source, destination, bytes) = match v4 {
            true => (protocol::IPV4, 12, 16, 4),
            false => (protocol::IPV6, 8, 24, 16),
        };
        Some(match field {
            HashField::SourceAddress => (ip, source, bytes),
            HashField::DestinationAddress => (ip, destination, bytes),
            HashField::SourcePort => (self.ports()?, 0, 2),
            HashField::DestinationPort => (self.ports()?, 2, 2),
        })
    }

    /// Words of the fields, first to last.
    pub(super) fn words(self, fields: &[HashField]) -> Vec<(u8, u16)> {
        let wanted = FIELDS.iter().filter(|field| fields.contains(field));
        let places = wanted.filter_map(|field| self.place(*field));
        places
            .flat_map(|(protocol, offset, bytes)| {
                (0..bytes / 2).map(move |word| (protocol, offset + 2 * word))
            })
            .collect()
    }

    /// Words of the fields, counted as by [`FlowKind::words`], with the words of the other end of
    /// the flow; without those whose other end is no field.
    pub(super) fn pairs(self, fields: &[HashField]) -> Vec<(usize, usize)> {
        let words = self.words(fields);
        let place = |word: &(u8, u16)| words.iter().position(|other| other == word);
        let mut pairs = Vec::new();
        for field in fields {
            let other = match field {
                HashField::SourceAddress => HashField::DestinationAddress,
                HashField::DestinationAddress => HashField::SourceAddress,
                HashField::SourcePort => HashField::DestinationPort,
                HashField::DestinationPort => HashField::SourcePort,
            };
            let both = self.place(*field).zip(self.place(other));
            let Some(((protocol, own, bytes), (_, opposite, _))) = both else {
                continue;
            };
            for word in 0..bytes / 2 {
                let own = place(&(protocol, own + 2 * word));
                pairs.extend(own.zip(place(&(protocol, opposite + 2 * word))));
            }
        }
        pairs
    }

    /// All fields that its packets have.
    #[must_use]
    pub fn fields(self) -> Vec<HashField> {
        let has = |field: &HashField| self.place(*field).is_some();
        FIELDS.into_iter().filter(has).collect()
    }

    /// Its packet type group: that of the package, else that of Intel's.
    pub(super) fn group(self, groups: &BTreeMap<u16, u8>) -> Option<u8> {
        let (_, packet_type, group) = GROUPS.iter().find(|(kind, ..)| *kind == self)?;
        match groups.is_empty() {
            true => Some(*group),
            false => groups.get(packet_type).copied(),
        }
    }
}

/// The state that was programmed for a kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Programmed {
    pub(super) profile: u16,
    pub(super) row: u16,
    pub(super) fields: Vec<HashField>,
}
