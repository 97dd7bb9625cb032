//! Derives the tables of the LAN engine from VSIs, rules and profiles.

use super::rss::Rss;
use super::rules::{KnownLists, Rule, Rules};
use super::vsi::{QueueMap, Vsis};
use crate::frame::Cast;
use crate::lan::classes::{CLASSES, ClassQueues};
use crate::lan::switching::{Forward, Match, Tables, TagReceived, VlanMembers, Vsi};
use crate::lan::words::ByType;
use crate::lan::{Scheme, Spreading};
use crate::packet::MacAddress;
use ringside_spec::lan::admin::switch::{RuleType, SingleAction, action, recipe};
use ringside_spec::lan::admin::vsi::{
    ClassMapping, FlowDirectorOptions, FlowDirectorReport, InnerVlanFlags, OuterVlanFlags,
    QueueOptionRss, SecurityFlags, SwitchFlags, SwitchFlags2, VsiProperties, outer_tag,
    vlan_receive, vlan_transmit,
};
use std::sync::Arc;

/// Bits of a tag that are the VLAN id.
const VLAN_ID: u16 = 0xFFF;

/// Most queues of a class.
const MAX_CLASS_QUEUES_LOG2: u16 = 11;

/// Flattens the firmware's tables.
pub(super) fn tables(vsis: &Vsis, rules: &Rules, spreading: &Rss) -> Tables {
    let mut tables = Tables {
        vsis: vsis
            .with_properties()
            .map(|(number, properties)| describe(number, properties, spreading))
            .collect(),
        ..Tables::default()
    };
    let mut known = KnownLists::default();
    for rule in rules.all() {
        let action = SingleAction(rule.action);
        let targets = rules.targets(action, vsis, &mut known);
        match action.kind() {
            action::FORWARD if action.valid() => {
                tables.forwards.extend(forward(rule, action, targets));
            }
            action::PRUNE if rule.recipe == recipe::VLAN => tables.vlans.push(VlanMembers {
                vlan: tag(rule) & VLAN_ID,
                ingress: action.ingress(),
                egress: action.egress(),
                lan: action.lan(),
                members: targets,
            }),
            _ => {}
        }
    }
    tables
}

/// VLANs of packets that get to the RDMA engine, if each VSI that lets RDMA in keeps packets of
/// other VLANs out. The switch decides before the packet reaches an engine.
pub(super) fn rdma_vlans(vsis: &Vsis, rules: &Rules) -> Option<Vec<u16>> {
    let of_rdma = vsis
        .with_properties()
        .filter(|(number, _)| vsis.lets_rdma_in(*number));
    let of_rdma: Vec<_> = of_rdma.collect();
    let prunes =
        |properties: &VsiProperties| SwitchFlags2(properties.switch_flags_2).receive_vlan_prune();
    if of_rdma.is_empty() || !of_rdma.iter().all(|(_, properties)| prunes(properties)) {
        return None;
    }
    let mut known = KnownLists::default();
    let lets_in = |rule: &&Rule| {
        let action = SingleAction(rule.action);
        let is_of_vlan = action.kind() == action::PRUNE && rule.recipe == recipe::VLAN;
        is_of_vlan && action.ingress() && {
            let members = rules.targets(action, vsis, &mut known);
            of_rdma.iter().any(|(number, _)| members.contains(number))
        }
    };
    Some(
        rules
            .all()
            .filter(lets_in)
            .map(|rule| tag(rule) & VLAN_ID)
            .collect(),
    )
}

fn tag(rule: &Rule) -> u16 {
    let [.., high, low] = rule.header;
    u16::from_be_bytes([high, low])
}

fn forward(rule: &Rule, action: SingleAction, targets: Arc<[u16]>) -> Option<Forward> {
    let [a, b, c, d, e, f, _, _, _, _, _, _, high, low, ..] = rule.header;
    let address = MacAddress([a, b, c, d, e, f]);
    let ether_type = u16::from_be_bytes([high, low]);
    let vlan = tag(rule) & VLAN_ID;
    let cast = Cast::of(address);
    let what = match rule.recipe {
        recipe::ETHERTYPE => Match::EtherType(ether_type),
        recipe::MAC => Match::Address(address),
        recipe::MAC_VLAN => Match::AddressVlan(address, vlan),
        recipe::PROMISCUOUS => Match::Promiscuous(cast),
        recipe::PROMISCUOUS_VLAN => Match::PromiscuousVlan(cast, vlan),
        recipe::DEFAULT_VSI => Match::Default,
        recipe::ETHERTYPE_MAC => Match::EtherTypeAddress(ether_type, address),
        recipe::LOGICAL_PORT => Match::Port,
        _ => return None,
    };
    let sends = RuleType::from_code(rule.kind) == RuleType::LookupTransmit;
    Some(Forward {
        what,
        sender: sends.then_some(rule.source),
        targets,
        drop: action.drop(),
        loopback: action.loopback(),
        lan: action.lan(),
    })
}

/// The tags of a VSI's frames in double VLAN mode: that of a frame with one is the outer one. The
/// VSI takes and inserts outer tags of one type. Source: ice `ice_vsi_vlan_lib.c`,
/// `ice_vsi_ena_outer_stripping`.
pub(super) fn look_at_outer_tag(tables: &mut Tables, number: u16, properties: &VsiProperties) {
    let flags = OuterVlanFlags(properties.outer_vlan_flags);
    let found = tables.vsis.iter_mut().find(|vsi| vsi.number == number);
    if let Some(vsi) = found {
        vsi.tag_received = tag_received(flags.receive_mode());
        vsi.outer_tag = tag_type(flags.tag_type());
        vsi.sends_untagged = flags.transmit_mode() != vlan_transmit::TAGGED;
        vsi.sends_tagged = flags.transmit_mode() != vlan_transmit::UNTAGGED;
    }
}

/// The type of tags in frames that a VSI's properties name.
const fn tag_type(code: u8) -> Option<u16> {
    match code {
        outer_tag::SERVICE => Some(0x88A8),
        outer_tag::CUSTOMER => Some(0x8100),
        outer_tag::OLD_SERVICE => Some(0x9100),
        _ => None,
    }
}

fn tag_received(mode: u8) -> TagReceived {
    match mode {
        vlan_receive::NOTHING => TagReceived::Kept,
        vlan_receive::STRIP => TagReceived::Removed,
        _ => TagReceived::Shown,
    }
}

fn describe(number: u16, properties: &VsiProperties, tables: &Rss) -> Vsi {
    let switch = SwitchFlags(properties.switch_flags);
    let more = SwitchFlags2(properties.switch_flags_2);
    let security = SecurityFlags(properties.security_flags);
    let vlan = InnerVlanFlags(properties.inner_vlan_flags);
    let mode = vlan.transmit_mode();
    let queue_options = QueueOptionRss(properties.queue_option_rss);
    let filtering = FlowDirectorOptions(properties.flow_director_options.get());
    let report = FlowDirectorReport(properties.flow_director_report.get());
    let port_vlan = properties.inner_port_vlan.get();
    Vsi {
        number,
        loopback: switch.allow_loopback() || switch.local_loopback(),
        source_prune: switch.source_prune(),
        lan: more.lan_enable(),
        receive_vlan_prune: more.receive_vlan_prune(),
        transmit_vlan_prune: security.transmit_vlan_prune(),
        anti_spoof: security.mac_anti_spoof(),
        destination_override: security.allow_destination_override(),
        // Zero is reserved and forbids nothing.
        sends_untagged: mode != vlan_transmit::TAGGED,
        sends_tagged: mode != vlan_transmit::UNTAGGED,
        port_vlan: vlan.insert_port_vlan().then_some(port_vlan),
        tag_received: tag_received(vlan.receive_mode()),
        outer_tag: None,
        queues: QueueMap::of(properties).all(),
        classes: classes(properties),
        spreading: spreading(number, queue_options, tables),
        hashed: None,
        filters: ByType::default(),
        filters_enabled: filtering.enable(),
        filters_programmed: filtering.program(),
        report_queue: report.queue(),
    }
}

/// Receive queues of each traffic class.
fn classes(properties: &VsiProperties) -> [ClassQueues; CLASSES] {
    properties.class_mapping.map(|mapping| {
        let mapping = ClassMapping(mapping.get());
        ClassQueues {
            first: mapping.offset(),
            mask: (1 << mapping.count_log2().min(MAX_CLASS_QUEUES_LOG2)) - 1,
        }
    })
}

fn spreading(vsi: u16, options: QueueOptionRss, tables: &Rss) -> Option<Spreading> {
    let key = tables.key(vsi)?;
    let table = tables.table(vsi, options.table(), options.global_table())?;
    Some(Spreading {
        key,
        table,
        scheme: Scheme::from_code(options.hash()),
    })
}
