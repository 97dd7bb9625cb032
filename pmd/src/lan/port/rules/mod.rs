//! Rules of the flow director: packets and the actions on them.

mod input;
mod packet;

pub(super) use input::InputSet;
pub(super) use packet::packet;

use super::PortError;
use super::kinds::{FlowKind, HashField, protocol};
use super::tables::Word;
use super::tags::MAX_VLAN;
use ringside_spec::lan::receive::packet_type;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;

/// Types of Ethernet payload that are kinds of their own.
const ETHER_TYPE_IPV4: u16 = 0x0800;
const ETHER_TYPE_IPV6: u16 = 0x86DD;
/// Smallest type of an Ethernet payload; less is a length.
const ETHER_TYPE_MIN: u16 = 0x0600;

/// Kind of the packets that a rule is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RuleKind {
    /// Packets of IP of one kind.
    Flow(FlowKind),
    /// Packets that are neither IPv4 nor IPv6.
    Ethernet,
    /// Packets of every kind; they can be distinguished by their VLAN only.
    All,
}

/// As users write it: a kind of flow, `ether`, `any`.
impl fmt::Display for RuleKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flow(kind) => kind.fmt(f),
            Self::Ethernet => f.write_str("ether"),
            Self::All => f.write_str("any"),
        }
    }
}

/// Packets that a rule is for: those of a kind whose fields have all the values that are given.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FlowMatch {
    /// Their kind.
    pub kind: RuleKind,
    /// VLAN id of the outermost tag, 0..=4094. The tag's type is 0x8100. Packets without a tag are
    /// in no VLAN, also not in 0.
    pub vlan: Option<u16>,
    /// Type of the payload; for [`RuleKind::Ethernet`].
    pub ether_type: Option<u16>,
    /// Protocol of IP; for [`FlowKind::OtherV4`] and [`FlowKind::OtherV6`]. Those that are kinds of
    /// their own (TCP, UDP, SCTP, fragments of IPv6), and extension headers of IPv6 that the device
    /// looks behind, are refused.
    pub protocol: Option<u8>,
    /// Source address.
    pub source: Option<IpAddr>,
    /// Destination address.
    pub destination: Option<IpAddr>,
    /// Source port; for TCP, UDP and SCTP.
    pub source_port: Option<u16>,
    /// Destination port.
    pub destination_port: Option<u16>,
}

impl FlowMatch {
    /// Packets of a kind, without fields yet.
    #[must_use]
    pub const fn of(kind: RuleKind) -> Self {
        Self {
            kind,
            vlan: None,
            ether_type: None,
            protocol: None,
            source: None,
            destination: None,
            source_port: None,
            destination_port: None,
        }
    }
}

/// Destination of the packets of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FlowTarget {
    /// One receive queue.
    Queue(u16),
    /// `count` receive queues from `first` on, chosen by the hash; `count` is 2, 4, 8, 16, 32
    /// or 64.
    Group {
        /// First queue.
        first: u16,
        /// Number of queues.
        count: u16,
    },
    /// None: they are dropped.
    Drop,
    /// The queue that their hash names, as without a rule: for rules that mark or count.
    Spread,
}

/// A rule of the flow director.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FlowRule {
    /// Packets that it is for.
    pub packets: FlowMatch,
    /// Their destination.
    pub target: FlowTarget,
    /// The value of [`Packet::mark`](ringside_lan::Packet::mark), 1..=0xFFFF_FFFE.
    pub mark: Option<u32>,
    /// The device counts them.
    pub count: bool,
}

/// The number of a rule of one port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RuleNumber(pub u32);

/// A field of a rule. In the order in which profiles name them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Field {
    /// type of the tag: without a tag, its VLAN would be bytes of the next header
    TagType,
    Vlan,
    EtherType,
    Protocol,
    SourceAddress,
    DestinationAddress,
    SourcePort,
    DestinationPort,
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TagType => "type of the tag",
            Self::Vlan => "VLAN",
            Self::EtherType => "EtherType",
            Self::Protocol => "protocol",
            Self::SourceAddress => "source address",
            Self::DestinationAddress => "destination address",
            Self::SourcePort => "source port",
            Self::DestinationPort => "destination port",
        })
    }
}

/// Fields that users name, as a text.
pub(super) fn names(fields: &BTreeSet<Field>) -> String {
    let given = fields.iter().filter(|field| **field != Field::TagType);
    let names: Vec<String> = given.map(ToString::to_string).collect();
    names.join(", ")
}

impl Field {
    /// The field of a packet in the opposite direction that has the same meaning.
    const fn opposite(self) -> Option<Self> {
        match self {
            Self::SourceAddress => Some(Self::DestinationAddress),
            Self::DestinationAddress => Some(Self::SourceAddress),
            Self::SourcePort => Some(Self::DestinationPort),
            Self::DestinationPort => Some(Self::SourcePort),
            _ => None,
        }
    }
}

/// Words of a field, and the bits of each that count.
struct Place {
    first: Word,
    words: u16,
    mask: u16,
}

/// Kind of the packets of one profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum PacketKind {
    Flow(FlowKind),
    Ethernet,
}

impl fmt::Display for PacketKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flow(kind) => kind.fmt(f),
            Self::Ethernet => f.write_str("ether"),
        }
    }
}

impl PacketKind {
    /// Types of its packets.
    fn packet_types(self) -> &'static [u16] {
        match self {
            Self::Flow(FlowKind::TcpV4) => &[packet_type::IPV4_TCP],
            Self::Flow(FlowKind::UdpV4) => &[packet_type::IPV4_UDP],
            Self::Flow(FlowKind::SctpV4) => &[packet_type::IPV4_SCTP],
            Self::Flow(FlowKind::FragmentV4) => &[packet_type::IPV4_FRAGMENT],
            Self::Flow(FlowKind::OtherV4) => &[packet_type::IPV4, packet_type::IPV4_ICMP],
            Self::Flow(FlowKind::TcpV6) => &[packet_type::IPV6_TCP],
            Self::Flow(FlowKind::UdpV6) => &[packet_type::IPV6_UDP],
            Self::Flow(FlowKind::SctpV6) => &[packet_type::IPV6_SCTP],
            Self::Flow(FlowKind::FragmentV6) => &[packet_type::IPV6_FRAGMENT],
            Self::Flow(FlowKind::OtherV6) => &[packet_type::IPV6, packet_type::IPV6_ICMP],
            Self::Ethernet => &[
                packet_type::LAYER_2,
                packet_type::TIME_SYNC,
                packet_type::LLDP,
                packet_type::ARP,
            ],
        }
    }

    /// Groups of its packet types: those of the package, otherwise those of Intel's. `None` if the
    /// package puts a type of IP into no group of its own: its packets could not be distinguished
    /// from others.
    pub(super) fn groups(self, known: &BTreeMap<u16, u8>) -> Option<BTreeSet<u8>> {
        if known.is_empty() {
            return Some(match self {
                Self::Flow(kind) => kind.group(known).into_iter().collect(),
                Self::Ethernet => [0].into(),
            });
        }
        let group = |kind: &u16| known.get(kind).copied().unwrap_or(0);
        let groups: BTreeSet<u8> = self.packet_types().iter().map(group).collect();
        let apart = self == Self::Ethernet || !groups.contains(&0);
        apart.then_some(groups)
    }

    /// Words of a field; `None` if its packets do not have it.
    fn place(self, field: Field) -> Option<Place> {
        let one = |protocol, offset, mask| Place {
            first: (protocol, offset),
            words: 1,
            mask,
        };
        let of = |kind: FlowKind, field| {
            let (protocol, offset, bytes) = kind.place(field)?;
            Some(Place {
                first: (protocol, offset),
                words: bytes / 2,
                mask: u16::MAX,
            })
        };
        match (self, field) {
            // Where ice has them (`ice_flow.c`, ice_flds_info and ice_flow_xtract_fld): a parser
            // in single VLAN mode does not know the header of an outer tag (number 16).
            (_, Field::TagType) => Some(one(protocol::MAC, 12, u16::MAX)),
            (_, Field::Vlan) => Some(one(protocol::MAC, 14, 0x0FFF)),
            (Self::Ethernet, Field::EtherType) => Some(one(protocol::ETHER_TYPE, 0, u16::MAX)),
            (Self::Flow(FlowKind::OtherV4), Field::Protocol) => {
                Some(one(protocol::IPV4, 8, 0x00FF))
            }
            (Self::Flow(FlowKind::OtherV6), Field::Protocol) => {
                Some(one(protocol::IPV6, 6, 0xFF00))
            }
            (Self::Flow(kind), Field::SourceAddress) => of(kind, HashField::SourceAddress),
            (Self::Flow(kind), Field::DestinationAddress) => {
                of(kind, HashField::DestinationAddress)
            }
            (Self::Flow(kind), Field::SourcePort) => of(kind, HashField::SourcePort),
            (Self::Flow(kind), Field::DestinationPort) => of(kind, HashField::DestinationPort),
            _ => None,
        }
    }
}

impl FlowMatch {
    /// Kinds that the rule is programmed for, one by one.
    pub(super) fn kinds(&self) -> Vec<PacketKind> {
        match self.kind {
            RuleKind::Flow(kind) => vec![PacketKind::Flow(kind)],
            RuleKind::Ethernet => vec![PacketKind::Ethernet],
            RuleKind::All => {
                let flows = FlowKind::ALL.into_iter().map(PacketKind::Flow);
                flows.chain([PacketKind::Ethernet]).collect()
            }
        }
    }

    /// True if all fields have the values of `other`; the kinds may differ.
    pub(super) fn has_values_of(&self, other: &Self) -> bool {
        let same_kind = Self {
            kind: self.kind,
            ..other.clone()
        };
        *self == same_kind
    }

    /// Fields that have a value.
    pub(super) fn fields(&self) -> BTreeSet<Field> {
        let given = [
            (Field::TagType, self.vlan.is_some()),
            (Field::Vlan, self.vlan.is_some()),
            (Field::EtherType, self.ether_type.is_some()),
            (Field::Protocol, self.protocol.is_some()),
            (Field::SourceAddress, self.source.is_some()),
            (Field::DestinationAddress, self.destination.is_some()),
            (Field::SourcePort, self.source_port.is_some()),
            (Field::DestinationPort, self.destination_port.is_some()),
        ];
        let given = given.into_iter().filter(|(_, given)| *given);
        given.map(|(field, _)| field).collect()
    }

    /// Refuses values that no packet of the kind can have.
    fn check(&self) -> Result<(), PortError> {
        let fields = self.fields();
        if fields.is_empty() {
            return wrong(
                "rule",
                "without fields",
                "give at least one field a value: addresses, ports, a protocol, a type, a VLAN",
            );
        }
        for field in &fields {
            if self.kinds().iter().any(|kind| kind.place(*field).is_none()) {
                return wrong(
                    "field of a rule",
                    format!("{field} of {}", self.kind),
                    "choose fields that packets of the kind have",
                );
            }
        }
        if let Some(vlan) = self.vlan.filter(|vlan| *vlan > MAX_VLAN) {
            return wrong("VLAN", vlan.to_string(), "choose 0 to 4094");
        }
        if let Some(kind) = self.ether_type {
            if kind < ETHER_TYPE_MIN {
                let text = format!("{kind:#06x}");
                return wrong("type of an Ethernet payload", text, "choose 0x0600 or more");
            }
            if [ETHER_TYPE_IPV4, ETHER_TYPE_IPV6].contains(&kind) {
                let text = format!("{kind:#06x}");
                let remedy = "name a kind of IP packets: tcp4, udp4, sctp4, ip4, tcp6 and so on";
                return wrong("type of an Ethernet payload", text, remedy);
            }
        }
        if let RuleKind::Flow(kind) = self.kind {
            check_protocol(kind, self.protocol)?;
            let mut given = [self.source, self.destination].into_iter().flatten();
            if let Some(address) = given.find(|address| address.is_ipv4() != kind.is_v4()) {
                let text = format!("{address} of {kind}");
                let remedy = "choose addresses and kind of the same version of IP";
                return wrong("address", text, remedy);
            }
        }
        Ok(())
    }
}

/// Refuses protocols of IP whose packets the device puts into another kind: it would find no
/// profile for the rule, or the rule would never match.
fn check_protocol(kind: FlowKind, protocol: Option<u8>) -> Result<(), PortError> {
    let Some(protocol) = protocol else {
        return Ok(());
    };
    let remedy = match (protocol, kind.is_v4()) {
        (6, true) => "choose the kind tcp4 without a protocol",
        (6, false) => "choose the kind tcp6 without a protocol",
        (17, true) => "choose the kind udp4 without a protocol",
        (17, false) => "choose the kind udp6 without a protocol",
        (132, true) => "choose the kind sctp4 without a protocol",
        (132, false) => "choose the kind sctp6 without a protocol",
        (44, false) => "choose the kind frag6 without a protocol",
        // Hop-by-hop options, routing, destination options: RFC 8200, section 4.
        (0 | 43 | 60, false) => {
            "the device looks beyond this extension header: name the protocol there, or its kind"
        }
        _ => return Ok(()),
    };
    wrong("protocol", format!("{protocol} of {kind}"), remedy)
}

impl FlowRule {
    /// Refuses rules that no device can execute for a port of `queues` receive queues.
    pub(super) fn check(&self, queues: u16) -> Result<(), PortError> {
        self.packets.check()?;
        let (first, count) = match self.target {
            FlowTarget::Queue(queue) => (queue, 1),
            FlowTarget::Group { first, count } => {
                if !(2..=64).contains(&count) || !count.is_power_of_two() {
                    let remedy = "choose 2, 4, 8, 16, 32 or 64 queues";
                    return wrong("group of queues", count.to_string(), remedy);
                }
                (first, count)
            }
            FlowTarget::Drop => (0, 0),
            FlowTarget::Spread if self.mark.is_none() && !self.count => {
                return wrong(
                    "rule",
                    "that does nothing",
                    "name a queue or a group, drop, a mark, or count",
                );
            }
            FlowTarget::Spread => (0, 0),
        };
        let end = u32::from(first) + u32::from(count);
        if end > queues.into() {
            let text = format!("{first} to {} of {queues}", end - 1);
            let remedy = "choose receive queues that the port has";
            return wrong("queue", text, remedy);
        }
        match self.mark {
            Some(0 | u32::MAX) => wrong(
                "mark",
                "0 or 0xffffffff",
                "choose another number: the device uses these for packets without a mark",
            ),
            _ => Ok(()),
        }
    }
}

fn wrong<T>(
    what: &'static str,
    value: impl Into<String>,
    remedy: &'static str,
) -> Result<T, PortError> {
    Err(PortError::Invalid {
        what,
        value: value.into(),
        remedy,
    })
}

#[cfg(test)]
mod tests;
