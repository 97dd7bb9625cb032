//! The packets that a station is to receive, worked out from the calls that it was given.

use super::ALL;
use ringside_lan::Toeplitz;
use ringside_pmd::lan::VlanStripping;
use ringside_pmd::lan::port::{
    DEFAULT_KEY, FlowKind, FlowMatch, FlowRule, FlowTarget, HashField, RuleKind, RuleNumber,
    Spreading, VsiSetup,
};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// Kinds of frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Plain,
    Udp,
    Udp6,
    Tcp,
}

impl Kind {
    /// The kind of flow; `None` without IP.
    pub(super) const fn flow(self) -> Option<FlowKind> {
        match self {
            Self::Plain => None,
            Self::Udp => Some(FlowKind::UdpV4),
            Self::Udp6 => Some(FlowKind::UdpV6),
            Self::Tcp => Some(FlowKind::TcpV4),
        }
    }
}

/// A frame from the other end.
#[derive(Clone, Copy, Debug)]
pub(super) struct Frame {
    pub(super) to: [u8; 6],
    pub(super) kind: Kind,
    /// source and destination
    pub(super) ports: (u16, u16),
    pub(super) vlan: Option<u16>,
}

/// The arrival of a frame at a station.
#[derive(Debug)]
pub(super) struct Verdict {
    /// The queue is one of these.
    pub(super) queues: Range<usize>,
    pub(super) mark: Option<u32>,
}

/// A station: the port or a further VSI.
#[derive(Debug)]
pub(super) struct Station {
    pub(super) mac: [u8; 6],
    /// The function's own address, besides the one that replaced it.
    pub(super) first: [u8; 6],
    pub(super) queues: usize,
    entries: usize,
    pub(super) addresses: BTreeSet<[u8; 6]>,
    /// users of each group
    pub(super) held: BTreeMap<[u8; 6], usize>,
    pub(super) vlans: BTreeSet<u16>,
    pub(super) all_unicast: bool,
    pub(super) all_groups: bool,
    pub(super) strips: bool,
    pub(super) spreading: Option<Spreading>,
    pub(super) fields: BTreeMap<FlowKind, Vec<HashField>>,
    pub(super) rules: BTreeMap<RuleNumber, FlowRule>,
}

impl Station {
    pub(super) fn new(mac: [u8; 6], queues: usize, entries: usize) -> Self {
        Self {
            mac,
            first: mac,
            queues,
            entries,
            addresses: BTreeSet::new(),
            held: BTreeMap::new(),
            vlans: BTreeSet::new(),
            all_unicast: false,
            all_groups: false,
            strips: false,
            spreading: None,
            fields: BTreeMap::new(),
            rules: BTreeMap::new(),
        }
    }

    /// The settings that it shows.
    pub(super) fn setup(&self) -> VsiSetup {
        VsiSetup {
            promiscuous: self.all_unicast,
            all_multicast: self.all_groups,
            addresses: self.addresses.iter().copied().collect(),
            vlans: self.vlans.iter().copied().collect(),
            vlan_stripping: match self.strips {
                true => VlanStripping::On,
                false => VlanStripping::Off,
            },
            spreading: self.spreading.clone(),
            hash_fields: self.fields.clone(),
            symmetric_hash: false,
            rules: self.rules.values().cloned().collect(),
        }
    }

    /// True for an address of a single station that is its own.
    pub(super) fn has(&self, mac: [u8; 6]) -> bool {
        mac == self.mac || mac == self.first || self.addresses.contains(&mac)
    }

    fn lets_in(&self, frame: &Frame) -> bool {
        let to = frame.to;
        let by_address = match to[0] & 1 != 0 {
            _ if to == ALL => true,
            true => {
                self.all_groups || self.all_unicast || self.has(to) || self.held.contains_key(&to)
            }
            false => self.all_unicast || self.has(to),
        };
        let by_vlan = match frame.vlan {
            Some(vlan) => self.vlans.is_empty() || self.vlans.contains(&vlan),
            None => true,
        };
        by_address && by_vlan
    }

    /// The arrival of the frame; `None` if it does not arrive.
    pub(super) fn verdict(&self, frame: &Frame) -> Option<Verdict> {
        if !self.lets_in(frame) {
            return None;
        }
        let hashed = self.hashed(frame);
        let spread = Verdict {
            queues: hashed..hashed + 1,
            mark: None,
        };
        let Some(rule) = self
            .rules
            .values()
            .find(|rule| is_for(&rule.packets, frame))
        else {
            return Some(spread);
        };
        let queues = match rule.target {
            FlowTarget::Drop => return None,
            FlowTarget::Queue(queue) => usize::from(queue)..usize::from(queue) + 1,
            FlowTarget::Group { first, count } => first.into()..usize::from(first + count),
            FlowTarget::Spread => spread.queues,
        };
        let mark = rule.mark;
        Some(Verdict { queues, mark })
    }

    fn hashed(&self, frame: &Frame) -> usize {
        let (key, table) = match &self.spreading {
            Some(set) => (set.key, set.table.clone()),
            None => (DEFAULT_KEY, (0..self.queues as u8).collect()),
        };
        let hash = match frame.kind.flow() {
            None => 0,
            Some(kind) => {
                let all = kind.fields();
                let fields = self.fields.get(&kind).unwrap_or(&all);
                let ordered = all.iter().filter(|field| fields.contains(field));
                Toeplitz::new(key).hash_bytes(ordered.flat_map(|field| value(*field, frame)))
            }
        };
        let entry = hash as usize % self.entries;
        table[entry % table.len()].into()
    }
}

/// The bytes of a field, as the rig makes frames.
fn value(field: HashField, frame: &Frame) -> Vec<u8> {
    let address = |last| match frame.kind {
        Kind::Udp6 => vec![0xFD, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last],
        _ => vec![10, 0, 0, last],
    };
    match field {
        HashField::SourceAddress => address(1),
        HashField::DestinationAddress => address(2),
        HashField::SourcePort => frame.ports.0.to_be_bytes().to_vec(),
        HashField::DestinationPort => frame.ports.1.to_be_bytes().to_vec(),
    }
}

fn is_for(packets: &FlowMatch, frame: &Frame) -> bool {
    let of_kind = match packets.kind {
        RuleKind::Flow(kind) => frame.kind.flow() == Some(kind),
        RuleKind::Ethernet => frame.kind.flow().is_none(),
        RuleKind::All => true,
    };
    of_kind
        && packets.vlan.is_none_or(|vlan| frame.vlan == Some(vlan))
        && packets.ether_type.is_none_or(|kind| kind == 0x88B5)
        && packets.source_port.is_none_or(|port| port == frame.ports.0)
        && packets
            .destination_port
            .is_none_or(|port| port == frame.ports.1)
}
