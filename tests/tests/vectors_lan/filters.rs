//! Words of flow director descriptors and packet types, as DPDK's ice driver 24.11.6 has them
//! (`vectors/lan_data.json`). Other kinds of that file are run where their code is: `lan` (bursts),
//! `pmd` (descriptors and dummy packets of rules, profiles, keys), `model` (profiles, keys). When
//! the rings are refilled is each driver's own choice (`rx_refill`): not compared.

use super::Vector;
use ringside_spec::lan::receive::packet_type;
use ringside_spec::lan::transmit::{FilterAction, FilterIdentity};
use serde_json::Value;

const VECTORS: &str = include_str!("../../vectors/lan_data.json");

fn vectors(kind: &str) -> Vec<Vector> {
    let all: Vec<Value> = serde_json::from_str(VECTORS).expect("JSON");
    let all = all.into_iter().map(Vector);
    all.filter(|vector| vector.text("kind") == kind).collect()
}

/// The two words with one field set.
fn with(field: &str, value: u64) -> (FilterAction, FilterIdentity) {
    let (action, identity) = (FilterAction::ZERO, FilterIdentity::ZERO);
    let is_set = value == 1;
    let action = match field {
        "qindex" => action.with_queue(value),
        "comp_q" => action.with_completion_queue(is_set),
        "comp_report" => action.with_report(value),
        "fd_space" => action.with_space(value),
        "cnt_index" => action.with_counter(value),
        "cnt_ena" => action.with_count(value),
        "evict_ena" => action.with_evict(is_set),
        "toq" => action.with_group_log2(value),
        "toq_prio" => action.with_queue_priority(value),
        "dpu_recipe" => action.with_recipe(value),
        "drop" => action.with_drop(is_set),
        "flex_prio" => action.with_flex_priority(value),
        "flex_mdid" => action.with_flex_number(value),
        "flex_val" => action.with_flex(value),
        _ => action,
    };
    let identity = match field {
        "dtype" => identity.with_kind(value),
        "pcmd" => identity.with_remove(is_set),
        "desc_prof_prio" => identity.with_profile_priority(value),
        "desc_prof" => identity.with_profile(value),
        "fd_vsi" => identity.with_vsi(value),
        "swap" => identity.with_swap(is_set),
        "fdid_prio" => identity.with_id_priority(value),
        "fdid_mdid" => identity.with_id_number(value),
        "fdid" => identity.with_id(value),
        _ => identity,
    };
    (action, identity)
}

#[test]
fn each_field_of_a_filter_descriptor_is_where_dpdk_writes_it() {
    let vectors = vectors("fdir_program_descriptor_fields");
    assert_eq!(vectors.len(), 24);
    for vector in vectors {
        let input = vector.0["input"].as_object().expect("fields");
        let (field, value) = input.iter().next().expect("one field");
        let (action, identity) = with(field, value.as_u64().expect("a number"));
        assert!(
            field == "all" || action.0 | identity.0 != 0,
            "{field} is unknown here"
        );
        let bytes = [action.0.to_le_bytes(), identity.0.to_le_bytes()].concat();
        assert_eq!(bytes, vector.hex("bytes"), "{}", vector.name());
    }
}

/// DPDK's own numbers for layers: `rte_mbuf_ptype.h`.
mod layers {
    pub(super) const ETHERNET: u64 = 0x1;
    pub(super) const TIME_SYNC: u64 = 0x2;
    pub(super) const ARP: u64 = 0x3;
    pub(super) const LLDP: u64 = 0x4;
    pub(super) const IPV4: u64 = 0x90 | ETHERNET;
    pub(super) const IPV6: u64 = 0xE0 | ETHERNET;
    pub(super) const TCP: u64 = 0x100;
    pub(super) const UDP: u64 = 0x200;
    pub(super) const FRAGMENT: u64 = 0x300;
    pub(super) const SCTP: u64 = 0x400;
    pub(super) const ICMP: u64 = 0x500;
    pub(super) const OTHER: u64 = 0x600;
}

#[test]
fn packet_types_are_those_that_dpdk_reads() {
    use layers as l;
    let vectors = vectors("ptype_table");
    let [vector] = vectors.as_slice() else {
        panic!("one table");
    };
    let table = vector.0["decoded"]["table"].as_array().expect("a table");
    let meaning = |kind: u16| {
        let row = table.iter().find(|row| row[0] == kind);
        row.and_then(|row| row[1].as_u64())
    };
    let known = [
        (packet_type::LAYER_2, l::ETHERNET),
        (packet_type::TIME_SYNC, l::TIME_SYNC),
        (packet_type::LLDP, l::LLDP),
        (packet_type::ARP, l::ARP),
        (packet_type::IPV4_FRAGMENT, l::IPV4 | l::FRAGMENT),
        (packet_type::IPV4, l::IPV4 | l::OTHER),
        (packet_type::IPV4_UDP, l::IPV4 | l::UDP),
        (packet_type::IPV4_TCP, l::IPV4 | l::TCP),
        (packet_type::IPV4_SCTP, l::IPV4 | l::SCTP),
        (packet_type::IPV4_ICMP, l::IPV4 | l::ICMP),
        (packet_type::IPV6_FRAGMENT, l::IPV6 | l::FRAGMENT),
        (packet_type::IPV6, l::IPV6 | l::OTHER),
        (packet_type::IPV6_UDP, l::IPV6 | l::UDP),
        (packet_type::IPV6_TCP, l::IPV6 | l::TCP),
        (packet_type::IPV6_SCTP, l::IPV6 | l::SCTP),
        (packet_type::IPV6_ICMP, l::IPV6 | l::ICMP),
    ];
    for (kind, expected) in known {
        assert_eq!(meaning(kind), Some(expected), "packet type {kind}");
    }
}
