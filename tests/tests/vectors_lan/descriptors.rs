//! Descriptors of the data path.

use ringside_spec::lan::receive::NicDescriptor;
use ringside_spec::lan::transmit::{
    ContextCommand, ContextDescriptor, DataCommand, DataDescriptor, Tunneling, destination,
    inner_ip, kind, layer_4, outer_ip, tunnel,
};

use super::{Fields, vectors};

pub(crate) const DATA_COUNT: usize = 22;
pub(crate) const CONTEXT_COUNT: usize = 21;
pub(crate) const PACKET_COUNT: usize = 20;
pub(crate) const RECEIVE_COUNT: usize = 16;

fn data(address: u64, command: DataCommand) -> [u8; 16] {
    let descriptor = DataDescriptor {
        address: address.into(),
        command: command.0.into(),
    };
    descriptor.to_bytes()
}

/// The command word of the vector's 12 command bits and 18 offset bits, through named fields.
fn command_of(input: Fields<'_>) -> DataCommand {
    let command = input.number("command");
    let offset = input.number("offset_field");
    let flag = |bit: u32| command >> bit & 1 == 1;
    DataCommand::ZERO
        .with_end_of_packet(flag(0))
        .with_report_status(flag(1))
        .with_insert_l2tag1(flag(3))
        .with_dummy(flag(4))
        .with_inner_ip(command >> 5 & 3)
        .with_layer_4(command >> 8 & 3)
        .with_report_event(flag(10))
        .with_layer_2_length_2(offset & 0x7F)
        .with_ip_length_4(offset >> 7 & 0x7F)
        .with_layer_4_length_4(offset >> 14)
        .with_buffer_bytes(input.number("size"))
        .with_l2tag1(input.number("l2tag1"))
}

#[test]
fn data_descriptors_are_as_linux_builds_them() {
    // Command bits 2, 7 and 11 have no name; vectors that set all bits set them too.
    let unnamed = 1u64 << 6 | 1 << 11 | 1 << 15;
    let vectors = vectors("tx_data_descriptor");
    for vector in &vectors {
        let input = vector.input();
        let mut command = command_of(input);
        command.0 |= input.number("command") << 4 & unnamed;
        assert_eq!(
            data(input.number("address"), command).to_vec(),
            vector.hex("bytes"),
            "{}",
            vector.name()
        );
        let read = DataDescriptor::read(&vector.hex("bytes")).expect("16 bytes");
        assert_eq!(read.address.get(), input.number("address"));
        let word = DataCommand(read.command.get());
        assert_eq!(
            word.buffer_bytes(),
            input.number("size"),
            "{}",
            vector.name()
        );
        assert_eq!(
            word.0 & DataCommand::RESERVED & !unnamed,
            0,
            "{}",
            vector.name()
        );
    }
    assert_eq!(vectors.len(), DATA_COUNT);
}

fn with(command: ContextCommand) -> ContextDescriptor {
    ContextDescriptor {
        command: command.0.into(),
        ..ContextDescriptor::zeroed()
    }
}

fn tunneling(word: Tunneling) -> ContextDescriptor {
    ContextDescriptor {
        tunneling: word.0.into(),
        ..ContextDescriptor::zeroed()
    }
}

fn context(field: &str) -> ContextDescriptor {
    let zero = ContextCommand::ZERO;
    let command = zero.with_kind(kind::CONTEXT);
    match field {
        "dtype_context" => with(command),
        "dtype_filter_program" => with(zero.with_kind(kind::FILTER)),
        "dtype_done" => with(ContextCommand(DataCommand::DONE.0)),
        "command_tso" => with(command.with_segmentation(true)),
        "command_tsyn" => with(command.with_time_stamp(true)),
        "command_l2tag2" => with(command.with_insert_l2tag2(true)),
        "command_l2tag2_ilh" => with(command.with_l2tag2_inner(true)),
        "command_switch_uplink" => with(command.with_destination(destination::UPLINK)),
        "command_switch_local" => with(command.with_destination(destination::LOCAL)),
        "command_switch_vsi" => with(command.with_destination(destination::VSI)),
        "command_mask" => with(
            zero.with_segmentation(true)
                .with_time_stamp(true)
                .with_insert_l2tag2(true)
                .with_l2tag2_inner(true)
                .with_destination(3)
                .with_command_reserved(true),
        ),
        "tso_length_mask" => with(zero.with_payload_bytes(0x3_FFFF)),
        "mss_ones" => with(zero.with_segment_bytes(0x3FFF)),
        "destination_vsi_mask" => with(zero.with_segment_bytes(0x3FF)),
        "l2tag2_ones" => ContextDescriptor {
            l2tag2: 0xFFFF.into(),
            ..ContextDescriptor::zeroed()
        },
        "outer_ip_type_ones" => tunneling(Tunneling::ZERO.with_outer_ip(3)),
        "outer_ip_length_ones" => tunneling(Tunneling::ZERO.with_outer_ip_length_4(0x7F)),
        "tunnel_udp" => tunneling(Tunneling::ZERO.with_kind(tunnel::UDP)),
        "tunnel_gre" => tunneling(Tunneling::ZERO.with_kind(tunnel::GRE)),
        "tunnel_length_ones" => tunneling(Tunneling::ZERO.with_length_2(0x7F)),
        "outer_l4_checksum" => tunneling(Tunneling::ZERO.with_outer_checksum(true)),
        other => panic!("{other} has no encoder here"),
    }
}

#[test]
fn context_descriptors_are_as_linux_builds_them() {
    let vectors = vectors("tx_context_descriptor");
    for vector in &vectors {
        let ours = context(vector.input().text("field"));
        assert_eq!(
            ours.to_bytes().to_vec(),
            vector.hex("bytes"),
            "{}",
            vector.name()
        );
    }
    assert_eq!(vectors.len(), CONTEXT_COUNT);
}

/// Bytes of the headers between the outer IP header and the inner one.
fn tunnel_bytes(name: &str) -> u64 {
    match name {
        // UDP, VXLAN, inner Ethernet
        "vxlan" | "vxlan_csum" => 8 + 8 + 14,
        // GRE, inner Ethernet
        "gre_ethernet" => 4 + 14,
        other => panic!("{other} is no tunnel here"),
    }
}

fn packet_tunnel(input: Fields<'_>, segmented: bool, outer_checksum: bool) -> Tunneling {
    let outer_v4 = input.number("outer_ip_version") == 4;
    let (outer, header_bytes) = match (outer_v4, segmented) {
        (true, true) => (outer_ip::V4_CHECKSUM, 20),
        (true, false) => (outer_ip::V4, 20),
        (false, _) => (outer_ip::V6, 40),
    };
    let name = input.text("tunnel");
    let carried = if name == "gre_ethernet" {
        tunnel::GRE
    } else {
        tunnel::UDP
    };
    let length_2 = u32::try_from(tunnel_bytes(name) / 2).expect("a short header");
    Tunneling::ZERO
        .with_outer_ip(outer)
        .with_outer_ip_length_4(header_bytes / 4)
        .with_kind(carried)
        .with_length_2(length_2)
        .with_outer_checksum(outer_checksum)
}

fn packet_command(input: Fields<'_>, segmented: bool) -> DataCommand {
    let command = DataCommand::ZERO
        .with_end_of_packet(true)
        .with_report_status(true)
        .with_buffer_bytes(input.number("buffer_length"))
        .with_insert_l2tag1(input.number("vlan_in_l2tag1") != 0)
        .with_l2tag1(input.number("vlan_in_l2tag1"));
    let layer_4 = match input.text("l4") {
        "none" => return command,
        "tcp" => layer_4::TCP,
        "sctp" => layer_4::SCTP,
        "udp" => layer_4::UDP,
        other => panic!("{other} is no layer 4 here"),
    };
    let tunneled = input.text("tunnel") != "none";
    let ip = match (input.number("inner_ip_version"), segmented) {
        (6, _) => inner_ip::V6,
        (_, true) => inner_ip::V4_CHECKSUM,
        (_, false) => inner_ip::V4,
    };
    let layer_2 = input.number("l2_header_bytes");
    assert!(!tunneled || layer_2 == 14);
    command
        .with_layer_4(layer_4)
        .with_inner_ip(ip)
        .with_layer_2_length_2(layer_2 / 2)
        .with_ip_length_4(input.number("inner_l3_header_bytes") / 4)
        .with_layer_4_length_4(input.number("l4_header_bytes") / 4)
}

fn packet_context(input: Fields<'_>, name: &str, header_bytes: u64) -> ContextDescriptor {
    let segmented = input.flag("tso");
    let tag = input.to::<u16>("vlan_in_l2tag2");
    let mut command = ContextCommand::ZERO.with_kind(kind::CONTEXT);
    if segmented {
        command = command
            .with_segmentation(true)
            .with_payload_bytes(input.number("packet_length") - header_bytes)
            .with_segment_bytes(input.number("mss"));
    }
    let tunneled = input.text("tunnel") != "none";
    let word = if tunneled {
        packet_tunnel(input, segmented, name.ends_with("outer_checksum"))
    } else {
        Tunneling::ZERO
    };
    ContextDescriptor {
        tunneling: word.0.into(),
        l2tag2: tag.into(),
        command: command.with_insert_l2tag2(tag != 0).0.into(),
        ..ContextDescriptor::zeroed()
    }
}

#[test]
fn descriptors_of_packets_are_as_linux_builds_them() {
    let vectors = vectors("tx_packet");
    for vector in &vectors {
        let input = vector.input();
        let decoded = Fields(&vector.0["decoded"]);
        let segmented = input.flag("tso");
        let command = packet_command(input, segmented);
        assert_eq!(
            data(input.number("address"), command).to_vec(),
            vector.hex("bytes"),
            "{}",
            vector.name()
        );
        if decoded.flag("context_descriptor") {
            let ours = packet_context(input, vector.name(), decoded.number("header_length"));
            assert_eq!(
                ours.to_bytes().to_vec(),
                vector.hex("context_bytes"),
                "{}",
                vector.name()
            );
        } else {
            assert_eq!(vector.text("context_bytes"), "");
        }
    }
    assert_eq!(vectors.len(), PACKET_COUNT);
}

fn received(field: &str) -> NicDescriptor {
    let mut descriptor = NicDescriptor::zeroed();
    match field {
        "rxdid" => descriptor.profile = 0xFF,
        "mir_id_umb_cast" => descriptor.mirror = 0xFF,
        "ptype_flex_flags0" => descriptor.packet_type = 0xFFFF.into(),
        "pkt_len" => descriptor.packet_length = 0xFFFF.into(),
        "hdr_len_sph_flex_flags1" => descriptor.header_length = 0xFFFF.into(),
        "status_error0" => descriptor.status_0 = 0xFFFF.into(),
        "l2tag1" => descriptor.l2tag1 = 0xFFFF.into(),
        "rss_hash" => descriptor.hash = u32::MAX.into(),
        "status_error1" => descriptor.status_1 = 0xFFFF.into(),
        "flexi_flags2" => descriptor.flags_2 = 0xFF,
        "ts_low" => descriptor.time_stamp_low = 0xFF,
        "l2tag2_1st" => descriptor.l2tag2_first = 0xFFFF.into(),
        "l2tag2_2nd" => descriptor.l2tag2_second = 0xFFFF.into(),
        "flow_id" => descriptor.flow_id = u32::MAX.into(),
        "flex_ts_high" => descriptor.time_stamp_high = u32::MAX.into(),
        // The values are those of the vector's own bytes, field by field.
        "all_pattern" => {
            descriptor = NicDescriptor {
                profile: 0x02,
                mirror: 0x5A,
                packet_type: 0x5A3C.into(),
                packet_length: 0x1234.into(),
                header_length: 0xA5C3.into(),
                status_0: 0x2003.into(),
                l2tag1: 0xA123.into(),
                hash: 0x89AB_CDEF.into(),
                status_1: 0x0810.into(),
                flags_2: 0x77,
                time_stamp_low: 0x81,
                l2tag2_first: 0xB234.into(),
                l2tag2_second: 0xC345.into(),
                flow_id: 0x1122_3344.into(),
                time_stamp_high: 0x5566_7788.into(),
            }
        }
        other => panic!("{other} has no field here"),
    }
    descriptor
}

#[test]
fn received_descriptors_are_as_linux_reads_them() {
    let vectors = vectors("rx_flex_descriptor");
    for vector in &vectors {
        let ours = received(vector.input().text("field"));
        assert_eq!(
            ours.to_bytes().to_vec(),
            vector.hex("bytes"),
            "{}",
            vector.name()
        );
        let read = NicDescriptor::read(&vector.hex("bytes"));
        assert_eq!(read, Some(ours), "{}", vector.name());
    }
    assert_eq!(vectors.len(), RECEIVE_COUNT);
}
