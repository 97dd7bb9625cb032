//! Properties of the function's virtual station interfaces (VSIs).

use crate::admin::Loopback;
use crate::admin::commands::VlanMode;
use ringside_spec::lan::admin::vsi::{
    ClassMapping, InnerVlanFlags, OuterVlanFlags, PriorityTable, QUEUES_CONTIGUOUS, QueueOptionRss,
    RDMA_FILTERS_ENABLED, SwitchFlags, SwitchFlags2, VsiProperties, VsiSections, outer_tag, rss,
    vlan_receive, vlan_transmit,
};
use std::ops::Range;

/// The default VSI of the function: one queue, sends to the wire, keeps VLAN tags where they are,
/// maps each priority to itself. Source: ice `ice_lib.c`, `ice_set_dflt_vsi_ctx`.
#[must_use]
pub fn default_properties(switch_id: u16, mode: VlanMode) -> VsiProperties {
    let sections = VsiSections::ZERO
        .with_switch(true)
        .with_security(true)
        .with_vlan(true)
        .with_outer_tag(mode == VlanMode::Double)
        .with_ingress_priority(true)
        .with_egress_priority(true)
        .with_receive_queue_map(true)
        .with_queue_option(true)
        .with_outer_priority(true);
    let mut properties = VsiProperties {
        valid_sections: sections.0.into(),
        inner_vlan_flags: InnerVlanFlags::ZERO
            .with_transmit_mode(vlan_transmit::ALL)
            .with_receive_mode(vlan_receive::NOTHING)
            .0,
        outer_vlan_flags: match mode {
            VlanMode::Single => 0,
            VlanMode::Double => outer_flags(vlan_receive::NOTHING),
        },
        ingress_table: same_priorities().0.into(),
        egress_table: same_priorities().0.into(),
        outer_priority_table: same_priorities().0.into(),
        mapping_flags: QUEUES_CONTIGUOUS.into(),
        queue_option_rss: QueueOptionRss::ZERO
            .with_table(rss::TABLE_FUNCTION)
            .with_hash(rss::HASH_TOEPLITZ)
            .0,
        // allowed loopback lets what queue pairs of this function send each other stay inside
        ..switch_section(switch_id, Loopback::Allowed, VlanPruning::Off)
    };
    map_queues(&mut properties, 0..1);
    properties
}

/// A VSI beside the default one: its own receive queues, contiguous, and its own hash table.
#[must_use]
pub fn further_properties(
    switch_id: u16,
    mode: VlanMode,
    queues: Range<u16>,
    loopback: Loopback,
) -> VsiProperties {
    let mut properties = VsiProperties {
        switch_flags: switch_flags(loopback),
        queue_option_rss: QueueOptionRss::ZERO
            .with_table(rss::TABLE_VSI)
            .with_hash(rss::HASH_TOEPLITZ)
            .0,
        ..default_properties(switch_id, mode)
    };
    map_queues(&mut properties, queues);
    properties
}

/// The receive queues of a VSI, contiguous, all of one traffic class.
pub(crate) fn map_queues(properties: &mut VsiProperties, queues: Range<u16>) {
    let [first, number, ..] = &mut properties.queue_mapping;
    *first = queues.start.into();
    *number = (queues.len() as u16).into();
    let [class, ..] = &mut properties.class_mapping;
    let log2 = queues.len().next_power_of_two().trailing_zeros() as u16;
    *class = ClassMapping::ZERO.with_count_log2(log2).0.into();
}

/// The section that decides what happens to the tag of received packets, as [`vlan_receive`] says,
/// and nothing else. In double VLAN mode the tag of a packet with one is the outer one, which a
/// queue shows in the same field: its context asks for that. Source: ice `ice_vsi_vlan_lib.c`,
/// `ice_vsi_ena_outer_stripping`; `ice_base.c`, `ice_setup_rx_ctx`, on `l2tsel`.
pub(crate) fn tag_section(mode: VlanMode, receive: u8) -> VsiProperties {
    let sections = VsiSections::ZERO;
    match mode {
        VlanMode::Single => VsiProperties {
            valid_sections: sections.with_vlan(true).0.into(),
            inner_vlan_flags: InnerVlanFlags::ZERO
                .with_transmit_mode(vlan_transmit::ALL)
                .with_receive_mode(receive)
                .0,
            ..VsiProperties::zeroed()
        },
        VlanMode::Double => VsiProperties {
            valid_sections: sections.with_outer_tag(true).0.into(),
            outer_vlan_flags: outer_flags(receive),
            ..VsiProperties::zeroed()
        },
    }
}

fn outer_flags(receive: u8) -> u8 {
    OuterVlanFlags::ZERO
        .with_transmit_mode(vlan_transmit::ALL)
        .with_tag_type(outer_tag::CUSTOMER)
        .with_receive_mode(receive)
        .0
}

/// The frames of VLANs without a rule that a VSI receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum VlanPruning {
    /// All of them come in.
    Off,
    /// They stay out.
    On,
}

/// The switch section of a VSI and nothing else. An update replaces a section as a whole: without
/// the switch's number it would move the VSI to switch 0. Source: ice `ice_vsi_vlan_lib.c`,
/// `ice_cfg_vlan_pruning`, which sends the section as it was added.
pub(crate) fn switch_section(
    switch_id: u16,
    loopback: Loopback,
    pruning: VlanPruning,
) -> VsiProperties {
    let [switch_id, _] = switch_id.to_le_bytes();
    VsiProperties {
        valid_sections: VsiSections::ZERO.with_switch(true).0.into(),
        switch_id,
        switch_flags: switch_flags(loopback),
        switch_flags_2: SwitchFlags2::ZERO
            .with_lan_enable(true)
            .with_receive_vlan_prune(pruning == VlanPruning::On)
            .0,
        ..VsiProperties::zeroed()
    }
}

/// A VSI does not receive its own packets; others of the function do, if loopback is allowed.
fn switch_flags(loopback: Loopback) -> u8 {
    SwitchFlags::ZERO
        .with_allow_loopback(loopback == Loopback::Allowed)
        .with_source_prune(true)
        .0
}

/// Each priority is unchanged.
fn same_priorities() -> PriorityTable {
    PriorityTable::ZERO
        .with_priority_1(1)
        .with_priority_2(2)
        .with_priority_3(3)
        .with_priority_4(4)
        .with_priority_5(5)
        .with_priority_6(6)
        .with_priority_7(7)
}

/// Properties for an update that switches the RDMA filters and nothing else.
///
/// The section holds the hash options as well, so they are given as they were added.
#[must_use]
pub fn rdma_filters(enabled: bool) -> VsiProperties {
    VsiProperties {
        valid_sections: VsiSections::ZERO.with_queue_option(true).0.into(),
        queue_option_rss: default_properties(0, VlanMode::Single).queue_option_rss,
        queue_option_flags: if enabled { RDMA_FILTERS_ENABLED } else { 0 },
        ..VsiProperties::zeroed()
    }
}
