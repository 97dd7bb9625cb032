use super::bridging::{Bridging, decode_records as decode_bridging};
use super::capabilities::decode_records;
use super::generic::decode_mac;
use super::package::decode_packages;
use super::resources::decode_number;
use super::scheduler::{decode_limits, decode_topology};
use super::switch::{decode_elements, find_port};
use super::*;
use crate::admin::Answer;
use ringside_spec::lan::Parameters;
use ringside_spec::lan::admin::ReturnCode;
use ringside_spec::lan::admin::capabilities::{Capability, CapabilityId, ListCapabilities};
use ringside_spec::lan::admin::generic::{MacAddress, MacReadFlags, ReadMac};
use ringside_spec::lan::admin::link::{LINK_STATUS_BYTES, LinkInfo, LinkStatus, speed};
use ringside_spec::lan::admin::package::{PackageInfo, PackageInfoList};
use ringside_spec::lan::admin::scheduler::{GetTopology, SchedulerResources, TopologyBranch};
use ringside_spec::lan::admin::switch::{
    AllocateResource, ElementNumber, GetSwitchConfig, Resource, SwitchElement, element,
};
use zerocopy::IntoBytes;

fn answer<P: Parameters>(parameters: &P, data: &[u8]) -> Answer {
    Answer {
        code: ReturnCode::Ok,
        parameters: parameters.to_raw(),
        data: data.to_vec(),
    }
}

fn is_malformed<T: std::fmt::Debug>(result: Result<T, AdminError>, part: &str) {
    match result {
        Err(AdminError::Malformed { reason, .. }) => {
            assert!(reason.contains(part), "'{reason}' does not say '{part}'");
        }
        other => panic!("{other:?}"),
    }
}

fn count_of(count: u32) -> ListCapabilities {
    ListCapabilities {
        count: count.into(),
        ..ListCapabilities::zeroed()
    }
}

const LIST: Opcode = Opcode::ListDeviceCapabilities;

#[test]
fn a_capability_list_shorter_than_its_count_is_refused() {
    let record = Capability::record(CapabilityId::Vsi, 768, 0, 0);
    let mut data = record.as_bytes().to_vec();
    let one = decode_records(LIST, &answer(&count_of(1), &data)).unwrap();
    assert_eq!(one, [record]);
    is_malformed(
        decode_records(LIST, &answer(&count_of(2), &data)),
        "32 bytes",
    );
    data.pop();
    is_malformed(
        decode_records(LIST, &answer(&count_of(1), &data)),
        "31 bytes",
    );
}

#[test]
fn a_capability_count_beyond_the_buffer_is_refused_without_reading() {
    for count in [129, u32::MAX] {
        let result = decode_records(LIST, &answer(&count_of(count), &[0; 4096]));
        is_malformed(result, "at most 128");
    }
}

fn device_records() -> Vec<Capability> {
    vec![
        Capability::record(CapabilityId::ValidFunctions, 0b11, 0, 0),
        Capability::record(CapabilityId::Vsi, 768, 0, 0),
        Capability::record(CapabilityId::Rdma, 1, 0, 0),
    ]
}

fn function_records() -> Vec<Capability> {
    vec![
        Capability::record(CapabilityId::Vsi, 1, 0, 0),
        Capability::record(CapabilityId::ReceiveQueues, 256, 0, 8),
        Capability::record(CapabilityId::TransmitQueues, 128, 0, 16),
        Capability::record(CapabilityId::Msix, 64, 0, 1),
        Capability::record(CapabilityId::Unknown(0x7777), 1, 2, 3),
        Capability::record(CapabilityId::Rdma, 1, 0, 0),
    ]
}

#[test]
fn capabilities_of_device_and_function_are_put_together() {
    let all = Capabilities::from_records(&device_records(), &function_records()).unwrap();
    assert_eq!((all.functions, all.vsis, all.rdma), (2, 384, true));
    let queues = QueueRange {
        count: 256,
        first: 8,
    };
    assert_eq!(all.receive_queues, queues);
}

#[test]
fn a_missing_capability_is_named() {
    for (missing, name) in [
        (CapabilityId::ReceiveQueues, "receive queues"),
        (CapabilityId::TransmitQueues, "transmit queues"),
        (CapabilityId::Msix, "interrupt vectors"),
        (CapabilityId::Vsi, "VSIs"),
    ] {
        let mut function = function_records();
        function.retain(|record| record.id() != missing);
        is_malformed(
            Capabilities::from_records(&device_records(), &function),
            name,
        );
    }
    is_malformed(
        Capabilities::from_records(&[], &function_records()),
        "valid functions",
    );
}

#[test]
fn a_device_that_names_no_function_does_not_divide_by_zero() {
    let mut device = device_records();
    device[0].number = 0.into();
    let result = Capabilities::from_records(&device, &function_records());
    is_malformed(result, "valid functions");
}

#[test]
fn rdma_needs_device_and_function() {
    let mut function = function_records();
    function.pop();
    let all = Capabilities::from_records(&device_records(), &function).unwrap();
    assert!(!all.rdma);
}

fn mac_answer(flags: MacReadFlags, count: u8, list: &[MacAddress]) -> Answer {
    let head = ReadMac {
        flags: flags.0.into(),
        address_count: count,
        ..ReadMac::zeroed()
    };
    let data: Vec<u8> = list
        .iter()
        .flat_map(|one| one.as_bytes().to_vec())
        .collect();
    answer(&head, &data)
}

fn address(kind: u8, mac: [u8; 6]) -> MacAddress {
    MacAddress { port: 0, kind, mac }
}

#[test]
fn the_lan_address_is_taken_and_others_are_not() {
    let valid = MacReadFlags::ZERO.with_lan_valid(true);
    let (wake, lan) = (
        address(1, [2, 0, 0, 0, 0, 9]),
        address(0, [2, 0, 0, 0, 0, 1]),
    );
    assert_eq!(decode_mac(&mac_answer(valid, 2, &[wake, lan])), Ok(lan.mac));
    is_malformed(decode_mac(&mac_answer(valid, 1, &[wake])), "no LAN address");
    let unset = MacReadFlags::ZERO;
    is_malformed(decode_mac(&mac_answer(unset, 1, &[lan])), "not valid");
    is_malformed(decode_mac(&mac_answer(valid, 3, &[lan; 3])), "at most 2");
    is_malformed(decode_mac(&mac_answer(valid, 2, &[wake])), "8 bytes");
    for mac in [[0; 6], [0xFF; 6], [1, 0, 0x5E, 0, 0, 1]] {
        let result = decode_mac(&mac_answer(valid, 1, &[address(0, mac)]));
        is_malformed(result, "unicast");
    }
}

fn switch_element(kind: u16, number: u16) -> SwitchElement {
    SwitchElement {
        number: ElementNumber::ZERO
            .with_kind(kind)
            .with_number(number)
            .0
            .into(),
        switch_id: 7.into(),
        function: 0.into(),
    }
}

#[test]
fn the_one_physical_port_is_found() {
    let (port, vsi) = (
        switch_element(element::PHYSICAL_PORT, 3),
        switch_element(element::VSI, 3),
    );
    let found = SwitchPort {
        port: 3,
        switch_id: 7,
    };
    assert_eq!(find_port(&[vsi, port]), Ok(found));
    is_malformed(find_port(&[vsi]), "exactly one");
    is_malformed(find_port(&[port, port]), "exactly one");
    let far = switch_element(element::PHYSICAL_PORT, 8);
    is_malformed(find_port(&[far]), "beyond 7");
}

#[test]
fn switch_elements_beyond_the_answer_are_refused() {
    let head = |count: u16| GetSwitchConfig {
        element_count: count.into(),
        ..GetSwitchConfig::zeroed()
    };
    is_malformed(
        decode_elements(&answer(&head(342), &[0; 2048])),
        "at most 341",
    );
    is_malformed(decode_elements(&answer(&head(2), &[0; 11])), "11 bytes");
    assert_eq!(
        decode_elements(&answer(&head(2), &[0; 12])).unwrap().len(),
        2
    );
}

#[test]
fn a_scheduler_tree_of_an_impossible_height_is_refused() {
    let none = GetTopology::zeroed();
    let resources = |levels: u16| {
        let mut all = SchedulerResources::zeroed();
        all.properties.logical_levels = levels.into();
        answer(&none, all.as_bytes())
    };
    for levels in [0, 2, 10, u16::MAX] {
        is_malformed(decode_limits(&resources(levels)), "expected 3 to 9");
    }
    let limits = decode_limits(&resources(9)).unwrap();
    assert_eq!((limits.layers, limits.siblings_max.len()), (9, 9));
    is_malformed(decode_limits(&answer(&none, &[0; 319])), "319 bytes");
}

#[test]
fn a_branch_longer_than_the_tree_is_refused() {
    let topology = |branches: u8, nodes: u16| {
        let head = GetTopology {
            branch_count: branches,
            ..GetTopology::zeroed()
        };
        let mut branch = TopologyBranch::zeroed();
        branch.header.count = nodes.into();
        answer(&head, branch.as_bytes())
    };
    assert_eq!(decode_topology(&topology(1, 3)).unwrap().len(), 3);
    is_malformed(decode_topology(&topology(1, 10)), "longer than 9");
    is_malformed(decode_topology(&topology(0, 3)), "no branch");
    is_malformed(decode_topology(&topology(2, 3)), "224 bytes");
    is_malformed(decode_topology(&topology(9, 3)), "at most 8");
}

#[test]
fn installed_packages_are_named_and_counted() {
    let none = GetTopology::zeroed();
    let mut info = PackageInfo::zeroed();
    info.name[..3].copy_from_slice(b"ICE");
    info.active = 1;
    let list = |count: u32| {
        let mut data = PackageInfoList {
            count: count.into(),
        }
        .as_bytes()
        .to_vec();
        data.extend_from_slice(info.as_bytes());
        answer(&none, &data)
    };
    let found = decode_packages(&list(1)).unwrap();
    assert_eq!((found[0].name.as_str(), found[0].active), ("ICE", true));
    is_malformed(decode_packages(&list(2)), "44 bytes");
    is_malformed(decode_packages(&list(5)), "at most 4");
    is_malformed(decode_packages(&list(u32::MAX)), "at most 4");
}

#[test]
fn a_link_status_is_read_from_its_first_32_bytes() {
    let status = LinkStatus {
        link_info: LinkInfo::ZERO.with_up(true).with_media(true).0,
        speed: speed::GIGABITS_100.into(),
        frame_bytes_max: 9728.into(),
        ..LinkStatus::zeroed()
    };
    let bytes = status.as_bytes();
    let state = LinkState::decode(&bytes[..LINK_STATUS_BYTES]).unwrap();
    let expected = LinkState {
        up: true,
        media: true,
        megabits_per_second: Some(100_000),
        frame_bytes_max: 9728,
    };
    assert_eq!(state, expected);
    assert_eq!(LinkState::decode(bytes), Ok(expected));
    is_malformed(LinkState::decode(&bytes[..31]), "31 bytes");
}

#[test]
fn interface_versions_are_judged_by_the_rule() {
    let version = |major, minor| FirmwareVersion {
        firmware: (7, 0, 0),
        build: 0,
        interface: (major, minor, 0),
    };
    for (major, minor, usable, remark) in [
        (1, 5, true, false),
        (1, 3, true, false),
        (1, 7, true, false),
        (1, 8, true, true),
        (1, 2, true, true),
        (2, 0, false, false),
    ] {
        let version = version(major, minor);
        assert_eq!(version.usable(), usable, "{version:?}");
        assert_eq!(version.remark().is_some(), remark, "{version:?}");
    }
}

/// Classes of the newer standard as in IEEE 802.1Q, annex D, by hand.
#[test]
fn classes_and_flow_control_are_read_from_lldp_records() {
    let mut records = vec![0x02, 0x02, 7, 7];
    records.extend([0xFE, 25, 0x00, 0x80, 0xC2, 9, 0x80, 0x01, 0x20, 0x00, 0x00]);
    records.extend([50, 25, 25, 0, 0, 0, 0, 0, 2, 2, 2, 0, 0, 0, 0, 0]);
    records.extend([0xFE, 6, 0x00, 0x80, 0xC2, 11, 0x08, 0b1000]);
    let found = Bridging {
        classes: 3,
        flow_control: 0b1000,
    };
    assert_eq!(decode_bridging(&records), found);
    let with_end = [&records[..31], &[0, 0], &records[31..]].concat();
    assert_eq!(decode_bridging(&with_end).flow_control, 0);
    for end in 0..records.len() {
        // A cut record is left out; those before it count.
        let cut = decode_bridging(&records[..end]);
        assert_eq!(cut.classes, if end < 31 { 0 } else { 3 }, "{end}");
    }
    let none = decode_bridging(&[0xFF; 64]);
    assert_eq!(none, Bridging::default());
}

/// Registers and tables are indexed by them.
#[test]
fn numbers_of_resources_beyond_the_devices_are_refused() {
    let counts = [
        (Resource::HashProfile, 128),
        (Resource::FlowDirectorProfile, 128),
        (Resource::HashTcam, 512),
        (Resource::FlowDirectorTcam, 512),
        (Resource::FlowDirectorCounters, 16),
        (Resource::VsiListReplication, 1024),
        (Resource::VsiListPrune, 1024),
    ];
    let decode = |resource: Resource, number: u16| {
        let data = [&[0; 4], &number.to_le_bytes()[..]].concat();
        decode_number(resource, &answer(&AllocateResource::zeroed(), &data))
    };
    for (resource, count) in counts {
        assert_eq!(decode(resource, count - 1), Ok(count - 1));
        for number in [count, u16::MAX] {
            is_malformed(decode(resource, number), "beyond the device's");
        }
    }
    // An amount: the number is no index.
    let entries = Resource::FlowDirectorGuaranteed;
    assert_eq!(decode(entries, u16::MAX), Ok(u16::MAX));
}
