//! Opcodes, return codes, masks and values compared with those that the C compiler computes from
//! the headers.

use std::collections::BTreeMap;

use ringside_spec::lan::admin::capabilities::CapabilityId;
use ringside_spec::lan::admin::{DescriptorFlags, Opcode, ReturnCode};
use ringside_spec::lan::receive;

use super::{Vector, vectors};

mod control;
mod network;

pub(crate) const COUNT: usize = 19;

/// A C name and our value for it.
pub(crate) type Constant<'a> = (&'a str, u64);

fn find(name: &str) -> Vector {
    vectors("constants")
        .into_iter()
        .find(|vector| vector.name() == name)
        .unwrap_or_else(|| panic!("no vector {name}"))
}

fn values(name: &str) -> BTreeMap<String, u64> {
    let vector = find(name);
    let decoded = vector.0["decoded"].as_object().expect("an object");
    let number = |value: &serde_json::Value| value.as_u64().expect("a number");
    decoded
        .iter()
        .map(|(key, value)| (key.clone(), number(value)))
        .collect()
}

/// Compares every constant of a vector; those in `skipped` have no counterpart.
pub(crate) fn compare(name: &str, ours: &[Constant<'_>], skipped: &[&str]) {
    let mut theirs = values(name);
    for (key, value) in ours {
        let their = theirs
            .remove(*key)
            .unwrap_or_else(|| panic!("{name}: no constant {key}"));
        assert_eq!(*value, their, "{name}: {key}");
    }
    for key in skipped {
        assert!(theirs.remove(*key).is_some(), "{name}: no constant {key}");
    }
    // A shift must be where the mask begins that is compared.
    theirs.retain(|key, value| {
        let mask = key.strip_suffix("_s").map(|stem| format!("{stem}_m"));
        let Some((_, ours)) = ours.iter().find(|(key, _)| Some(*key) == mask.as_deref()) else {
            return true;
        };
        assert_eq!(u64::from(ours.trailing_zeros()), *value, "{name}: {key}");
        false
    });
    assert!(
        theirs.is_empty(),
        "{name}: neither compared nor skipped: {theirs:?}"
    );
}

#[test]
fn opcodes_are_those_of_the_c_headers() {
    let mut theirs = values("constants.opcodes");
    let only_in_dpdk = [
        Opcode::GetExpandedError,
        Opcode::ConfigureNoDrop,
        Opcode::GetAllocatedResources,
        Opcode::GetVsi,
        Opcode::QueryRateLimitProfiles,
        Opcode::AllocateAccessTable,
        Opcode::FreeAccessTable,
        Opcode::AllocateAccessActions,
        Opcode::FreeAccessActions,
        Opcode::AllocateAccessScenario,
        Opcode::FreeAccessScenario,
        Opcode::AllocateAccessCounters,
        Opcode::FreeAccessCounters,
        Opcode::FreeAccessResources,
        Opcode::UpdateAccessScenario,
        Opcode::ProgramAccessActions,
        Opcode::ProgramAccessProfile,
        Opcode::ProgramAccessRanges,
        Opcode::ProgramAccessEntry,
        Opcode::QueryAccessProfile,
        Opcode::QueryAccessRanges,
        Opcode::QueryAccessScenario,
        Opcode::QueryAccessEntry,
        Opcode::QueryAccessActions,
        Opcode::QueryAccessCounter,
        // Linux 7.3 and DPDK; the vectors are of Linux 6.12
        Opcode::SetHealthEvents,
        Opcode::GetHealthCodes,
        Opcode::GetHealthEvents,
    ];
    for (opcode, c_name) in Opcode::NAMED {
        let their = theirs.remove(*c_name);
        if only_in_dpdk.contains(opcode) {
            assert_eq!(their, None, "{c_name}");
        } else {
            assert_eq!(their, Some(u64::from(opcode.code())), "{c_name}");
        }
    }
    assert!(theirs.is_empty(), "unnamed: {theirs:?}");
}

#[test]
fn return_codes_are_those_of_the_c_headers() {
    let ours: Vec<Constant<'_>> = ReturnCode::NAMED
        .iter()
        .map(|(code, name)| (*name, u64::from(code.code())))
        .collect();
    compare("constants.return_codes", &ours, &[]);
}

#[test]
fn capability_ids_are_those_of_the_c_headers() {
    let ours: Vec<Constant<'_>> = CapabilityId::NAMED
        .iter()
        .map(|(id, name)| (*name, u64::from(id.code())))
        .collect();
    compare("constants.capabilities", &ours, &[]);
}

#[test]
fn descriptor_flags_are_those_of_the_c_headers() {
    let mask = u64::from;
    compare(
        "constants.descriptor_flags",
        &[
            ("flag_dd", mask(DescriptorFlags::DONE_MASK)),
            ("flag_cmp", mask(DescriptorFlags::COMPLETE_MASK)),
            ("flag_err", mask(DescriptorFlags::ERROR_MASK)),
            ("flag_lb", mask(DescriptorFlags::LARGE_BUFFER_MASK)),
            ("flag_rd", mask(DescriptorFlags::READ_BUFFER_MASK)),
            ("flag_buf", mask(DescriptorFlags::BUFFER_MASK)),
            ("flag_si", mask(DescriptorFlags::NO_INTERRUPT_MASK)),
        ],
        &[],
    );
}

#[test]
fn bits_of_received_descriptors_are_those_of_the_c_headers() {
    use receive::{PacketLength, PacketType, Status0, Status1};
    let shift = u64::from;
    compare(
        "rx_flex.bit_positions",
        &[
            ("status0_dd", shift(Status0::DONE_SHIFT)),
            ("status0_eof", shift(Status0::END_OF_PACKET_SHIFT)),
            ("status0_hbo", shift(Status0::HEADER_OVERFLOW_SHIFT)),
            ("status0_l3l4p", shift(Status0::CHECKSUMS_CHECKED_SHIFT)),
            ("status0_xsum_ipe", shift(Status0::IP_CHECKSUM_ERROR_SHIFT)),
            (
                "status0_xsum_l4e",
                shift(Status0::LAYER_4_CHECKSUM_ERROR_SHIFT),
            ),
            (
                "status0_xsum_eipe",
                shift(Status0::OUTER_IP_CHECKSUM_ERROR_SHIFT),
            ),
            (
                "status0_xsum_eudpe",
                shift(Status0::OUTER_UDP_CHECKSUM_ERROR_SHIFT),
            ),
            ("status0_lpbk", shift(Status0::LOOPBACK_SHIFT)),
            ("status0_ipv6exadd", shift(Status0::IPV6_EXTENSION_SHIFT)),
            ("status0_rxe", shift(Status0::RECEIVE_ERROR_SHIFT)),
            ("status0_crcp", shift(Status0::CRC_PRESENT_SHIFT)),
            ("status0_rss_valid", shift(Status0::HASH_VALID_SHIFT)),
            ("status0_l2tag1p", shift(Status0::L2TAG1_PRESENT_SHIFT)),
            (
                "status0_xtrmd0_valid",
                shift(Status0::METADATA_0_VALID_SHIFT),
            ),
            (
                "status0_xtrmd1_valid",
                shift(Status0::METADATA_1_VALID_SHIFT),
            ),
            ("status1_nat", shift(Status1::TUNNEL_SHIFT)),
            ("status1_l2tag2p", shift(Status1::L2TAG2_PRESENT_SHIFT)),
            ("ptype_mask", u64::from(PacketType::PACKET_TYPE_MASK)),
            ("pkt_len_mask", u64::from(PacketLength::BYTES_MASK)),
            ("rxdid_flex_nic", u64::from(receive::profile::NIC)),
            ("rxdid_flex_nic_2", u64::from(receive::profile::NIC_2)),
        ],
        &[],
    );
}

#[test]
fn every_vector_of_constants_has_its_test() {
    let names: Vec<String> = vectors("constants")
        .iter()
        .map(|vector| vector.name().to_owned())
        .collect();
    let run = [
        "constants.opcodes",
        "constants.return_codes",
        "constants.descriptor_flags",
        "constants.vsi",
        "constants.switch_rule",
        "constants.recipe",
        "constants.switch_config",
        "constants.resources",
        "constants.capabilities",
        "constants.mac",
        "constants.scheduler",
        "constants.phy",
        "constants.link",
        "constants.nvm",
        "constants.lldp",
        "constants.rss",
        "constants.tx_queues",
        "constants.package",
        "rx_flex.bit_positions",
    ];
    assert_eq!(names, run);
}
