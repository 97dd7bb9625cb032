//! Records that the firmware answers with, and structures of the package.

use ringside_spec::lan::admin::capabilities::{Capability, CapabilityId};
use ringside_spec::lan::admin::generic::MacAddress;
use ringside_spec::lan::admin::link::{
    LINK_STATUS_BYTES, LinkStatus, PhyCapabilities, QualifiedModule,
};
use ringside_spec::lan::admin::package::PackageInfo;
use ringside_spec::lan::admin::switch::{ElementFunction, ElementNumber, SwitchElement};
use ringside_spec::lan::package::*;

use super::{Fields, vectors};

pub(crate) const COUNT: usize = 10;

fn build(name: &str, input: Fields<'_>) -> Vec<u8> {
    match name {
        "buffer.link_status_version_1" => link_status(input),
        "buffer.phy_capabilities" => phy_capabilities(input),
        "buffer.capability_record" => capability(input),
        "buffer.switch_config_element" => switch_element(input),
        "buffer.mac_record" => mac_record(input),
        "buffer.package_info_record" => package_info(input),
        "buffer.package_headers" => package_headers(input),
        "buffer.package_metadata_section" => metadata_section(input),
        "buffer.package_boost_entry" => boost_entry(input),
        "buffer.package_label" => label(input),
        other => panic!("{other} has no encoder here"),
    }
}

fn link_status(input: Fields<'_>) -> Vec<u8> {
    let status = LinkStatus {
        conflict: input.to("conflict"),
        config_error: input.to("config_error"),
        link_info: input.to("link_info"),
        autonegotiation: input.to("an_info"),
        extended: input.to("ext_info"),
        frame_bytes_max: input.to::<u16>("max_frame").into(),
        config: input.to("config"),
        power: input.to("power"),
        speed: input.to::<u16>("speed").into(),
        extended_error_correction: input.to("ext_fec"),
        phy_type_low: input.number("phy_type_low").into(),
        phy_type_high: input.number("phy_type_high").into(),
        ..LinkStatus::zeroed()
    };
    status.to_bytes()[..LINK_STATUS_BYTES].to_vec()
}

fn phy_capabilities(input: Fields<'_>) -> Vec<u8> {
    let mut capabilities = PhyCapabilities {
        phy_type_low: input.number("phy_type_low").into(),
        phy_type_high: input.number("phy_type_high").into(),
        abilities: input.to("caps"),
        low_power_control: input.to("low_power"),
        energy_efficient: input.to::<u16>("eee").into(),
        energy_efficient_value: input.to::<u16>("eeer").into(),
        maker: input.hex("oui"),
        phy_firmware: input.hex("firmware"),
        error_correction: input.to("fec"),
        compliance_enforcement: input.to("enforcement"),
        extended_compliance: input.to("extended"),
        module_type: input.bytes("module_type"),
        ..PhyCapabilities::zeroed()
    };
    let modules = input.objects("qualified_modules");
    capabilities.qualified_count = u8::try_from(modules.len()).expect("few modules");
    for (slot, module) in capabilities.qualified.iter_mut().zip(modules) {
        *slot = QualifiedModule {
            vendor: module.hex("oui"),
            part_number: module.padded("part"),
            revision: module.to::<u32>("revision").into(),
            ..QualifiedModule::zeroed()
        };
    }
    capabilities.to_bytes().to_vec()
}

fn capability(input: Fields<'_>) -> Vec<u8> {
    let record = Capability {
        minor_version: input.to("minor"),
        ..Capability::record(
            CapabilityId::from_code(input.to("id")),
            input.to("number"),
            input.to("logical_id"),
            input.to("physical_id"),
        )
    };
    assert_eq!(record.id(), CapabilityId::Rdma);
    assert_eq!(u64::from(record.major_version), input.number("major"));
    record.to_bytes().to_vec()
}

fn switch_element(input: Fields<'_>) -> Vec<u8> {
    let element = SwitchElement {
        number: ElementNumber::ZERO
            .with_number(input.to("number"))
            .with_kind(input.to("type"))
            .0
            .into(),
        switch_id: input.to::<u16>("switch_id").into(),
        function: ElementFunction::ZERO
            .with_number(input.to("function"))
            .with_is_virtual(input.flag("is_vf"))
            .0
            .into(),
    };
    element.to_bytes().to_vec()
}

fn mac_record(input: Fields<'_>) -> Vec<u8> {
    let record = MacAddress {
        port: input.to("port"),
        kind: input.to("type"),
        mac: input.mac("mac"),
    };
    record.to_bytes().to_vec()
}

fn version(input: Fields<'_>, key: &str) -> PackageVersion {
    PackageVersion::read(&input.bytes::<4>(key)).expect("four bytes")
}

fn package_info(input: Fields<'_>) -> Vec<u8> {
    let info = PackageInfo {
        version: version(input, "version"),
        name: input.padded("name"),
        track_id: input.to::<u32>("track_id").into(),
        in_nvm: input.to("in_nvm"),
        active: input.to("active"),
        active_at_boot: input.to("active_at_boot"),
        modified: input.to("modified"),
    };
    info.to_bytes().to_vec()
}

fn package_headers(input: Fields<'_>) -> Vec<u8> {
    let header = PackageHeader {
        format: version(input, "format_version"),
        segment_count: input.to::<u32>("segments").into(),
    };
    let devices = input.objects("device_table");
    let segment = DeviceSegment {
        header: SegmentHeader {
            kind: input.to::<u32>("segment_type").into(),
            format: version(input, "segment_version"),
            size_bytes: input.to::<u32>("segment_size").into(),
            name: input.padded("segment_name"),
        },
        device_count: u32::try_from(devices.len()).expect("few devices").into(),
    };
    let mut bytes = header.to_bytes().to_vec();
    bytes.extend(input.to::<u32>("segment_offset").to_le_bytes());
    bytes.extend(segment.to_bytes());
    for device in devices {
        let entry = DeviceEntry {
            device: DeviceId {
                device: device.to::<u16>("device").into(),
                vendor: device.to::<u16>("vendor").into(),
            },
            subsystem: DeviceId::read(&device.to::<u32>("subsystem").to_le_bytes())
                .expect("four bytes"),
        };
        bytes.extend(entry.to_bytes());
    }
    let versions = input.list("nvm_table");
    bytes.extend(
        u32::try_from(versions.len())
            .expect("few versions")
            .to_le_bytes(),
    );
    for version in versions {
        bytes.extend(u32::try_from(version).expect("32 bits").to_le_bytes());
    }
    bytes.extend(input.to::<u32>("buffers").to_le_bytes());
    let buffer = BufferHeader {
        section_count: input.to::<u16>("sections").into(),
        data_end: input.to::<u16>("data_end").into(),
    };
    bytes.extend(buffer.to_bytes());
    let section = Fields(&input.0["section"]);
    let entry = SectionEntry {
        kind: section.to::<u32>("type").into(),
        offset: section.to::<u16>("offset").into(),
        size_bytes: section.to::<u16>("size").into(),
    };
    bytes.extend(entry.to_bytes());
    bytes
}

fn metadata_section(input: Fields<'_>) -> Vec<u8> {
    let section = MetadataSection {
        version: version(input, "version"),
        name: input.padded("name"),
        track_id: input.to::<u32>("track_id").into(),
    };
    section.to_bytes().to_vec()
}

fn boost_entry(input: Fields<'_>) -> Vec<u8> {
    let key = |name: &str| {
        let first: u8 = input.to(&format!("{name}_rest_from"));
        let mut rest = [0; 15];
        for (step, byte) in (0..).zip(rest.iter_mut()) {
            *byte = first + step;
        }
        BoostKeyValue {
            rest,
            destination_port: input.to::<u16>(&format!("{name}_destination_port")).into(),
            source_port: input.to::<u16>(&format!("{name}_source_port")).into(),
            search: input.to(&format!("{name}_search")),
        }
    };
    let entry = BoostEntry {
        address: input.to::<u16>("address").into(),
        key: [key("key"), key("key2")],
        hit_group: input.to("hit_index_group"),
        ..BoostEntry::zeroed()
    };
    entry.to_bytes().to_vec()
}

fn label(input: Fields<'_>) -> Vec<u8> {
    let label = Label {
        value: input.to::<u16>("value").into(),
        name: input.padded("name"),
    };
    label.to_bytes().to_vec()
}

#[test]
fn records_and_package_structures_are_as_linux_reads_them() {
    let vectors = vectors("aq_buffer");
    for vector in &vectors {
        let bytes = build(vector.name(), vector.input());
        assert_eq!(bytes, vector.hex("bytes"), "{}", vector.name());
    }
    assert_eq!(vectors.len(), COUNT);
}

#[test]
fn a_record_is_not_read_from_too_few_bytes() {
    let bytes = [0; Capability::SIZE];
    assert!(Capability::read(&bytes).is_some());
    assert_eq!(Capability::read(&bytes[1..]), None);
}
