//! Checksums, segmentation, tags, spreading.

use crate::rig::{Flow, Rig, checksum, ip_frame, plain_frame, settings};
use ringside_lan::{Toeplitz, TransmitRequest};
use ringside_pmd::lan::port::DEFAULT_KEY;
use ringside_pmd::lan::{PortSettings, VlanStripping};

const FLOWS: [Flow; 4] = [
    Flow {
        v6: false,
        protocol: 17,
        ports: (4000, 9),
    },
    Flow {
        v6: true,
        protocol: 17,
        ports: (4001, 9),
    },
    Flow {
        v6: false,
        protocol: 6,
        ports: (4002, 80),
    },
    Flow {
        v6: true,
        protocol: 6,
        ports: (4003, 80),
    },
];

fn field(flow: Flow) -> usize {
    14 + if flow.v6 { 40 } else { 20 } + if flow.protocol == 6 { 16 } else { 6 }
}

#[test]
fn checksums_computed_by_the_device_are_those_of_software() {
    let mut rig = Rig::new();
    let (to, from) = (rig.b.mac(), rig.a.mac());
    for flow in FLOWS {
        for bytes in [0, 1, 100, 1401, 5000] {
            let payload: Vec<u8> = (0..bytes).map(|byte| byte as u8).collect();
            let right = ip_frame(to, from, flow, &payload);
            let mut wrong = right.clone();
            wrong[field(flow)] ^= 0xFF;
            if !flow.v6 {
                wrong[24] ^= 0xFF;
            }
            let mut packet = rig.a.packet(&wrong);
            let request = TransmitRequest {
                ip_checksum: true,
                layer_4_checksum: true,
                segment_bytes: None,
            };
            packet.offload(request).expect("possible");
            rig.a.send([packet]);
            let found = rig.wait_b(1);
            let packet = &found[0].1;
            assert_eq!(packet.to_vec()[..right.len()], right, "{bytes} bytes");
            let flags = packet.flags();
            assert!(flags.checksums_checked());
            assert!(!flags.ip_checksum_wrong() && !flags.layer_4_checksum_wrong());
        }
    }
    rig.finish();
}

#[test]
fn wrong_checksums_are_reported_on_receipt() {
    let mut rig = Rig::new();
    let (to, from) = (rig.b.mac(), rig.a.mac());
    for flow in FLOWS {
        let mut layer_4 = ip_frame(to, from, flow, &[1; 100]);
        layer_4[field(flow)] ^= 1;
        let mut ip = ip_frame(to, from, flow, &[1; 100]);
        ip[24] ^= 1;
        let packets = [rig.a.packet(&layer_4), rig.a.packet(&ip)];
        rig.a.send(packets);
        let found = rig.wait_b(2);
        let flags = [found[0].1.flags(), found[1].1.flags()];
        assert!(flags[0].layer_4_checksum_wrong() && !flags[0].ip_checksum_wrong());
        assert_eq!(flags[1].ip_checksum_wrong(), !flow.v6, "IPv6 has none");
    }
    rig.finish();
}

/// The checksum of a datagram that is routed covers its last address (RFC 8200, 8.1), which is not
/// the one in its header: the device takes it for wrong.
#[test]
fn a_datagram_with_a_routing_header_has_no_verdict_of_its_checksum() {
    let mut rig = Rig::new();
    let address = |last| [0xFDu8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last];
    let mut udp = [&[0, 1, 0, 9, 0, 16, 0, 0][..], b"payloads"].concat();
    let pseudo = [address(1), address(3)].concat();
    let sum = checksum(&[&pseudo[..], &[0, 0, 0, 16, 0, 0, 0, 17], &udp].concat());
    udp[6..8].copy_from_slice(&sum.to_be_bytes());
    // One segment is left: that of the last address.
    let routing = [&[17, 2, 2, 1, 0, 0, 0, 0][..], &address(3)].concat();
    let header = [0x60, 0, 0, 0, 0, (routing.len() + udp.len()) as u8, 43, 64];
    let ends = [rig.b.mac(), rig.a.mac()].concat();
    let hop = [address(1), address(2)].concat();
    let frame = [&ends[..], &[0x86, 0xDD], &header, &hop, &routing, &udp].concat();
    let packet = rig.a.packet(&frame);
    rig.a.send([packet]);
    let found = rig.wait_b(1);
    let flags = found[0].1.flags();
    assert!(!flags.checksums_checked() && !flags.layer_4_checksum_wrong());
    drop(found);
    rig.finish();
}

#[test]
fn segmentation_cuts_a_large_packet_into_frames_with_headers_and_checksums() {
    let mut rig = Rig::new();
    let (to, from) = (rig.b.mac(), rig.a.mac());
    for flow in FLOWS.into_iter().filter(|flow| flow.protocol == 6) {
        let payload: Vec<u8> = (0..13_000u32).map(|byte| (byte / 7) as u8).collect();
        let frame = ip_frame(to, from, flow, &payload);
        let mut packet = rig.a.packet(&frame);
        let request = TransmitRequest {
            segment_bytes: Some(1448),
            ..TransmitRequest::default()
        };
        packet.offload(request).expect("possible");
        rig.a.send([packet]);
        let found = rig.wait_b(9);
        assert_eq!(found.len(), 9, "13000 bytes in 1448");
        let headers = 14 + if flow.v6 { 40 } else { 20 } + 20;
        let mut together: Vec<u8> = Vec::new();
        for (_, packet) in &found {
            let flags = packet.flags();
            assert!(flags.checksums_checked());
            assert!(!flags.ip_checksum_wrong() && !flags.layer_4_checksum_wrong());
            let bytes = packet.to_vec();
            let sequence =
                u32::from_be_bytes(bytes[headers - 16..headers - 12].try_into().unwrap());
            assert_eq!(sequence as usize, 0x1000 + together.len());
            together.extend(&bytes[headers..]);
        }
        assert_eq!(together, payload);
    }
    rig.finish();
}

/// The headers of each segment have the extension headers of the packet.
#[test]
fn extension_headers_of_ipv6_do_not_hide_the_layer_4_header() {
    const OPTIONS: [u8; 8] = [6, 0, 1, 4, 0, 0, 0, 0];
    let mut rig = Rig::new();
    let flow = FLOWS[3];
    let payload: Vec<u8> = (0..3000u32).map(|byte| (byte / 5) as u8).collect();
    let mut right = ip_frame(rig.b.mac(), rig.a.mac(), flow, &payload);
    // Hop-by-hop options behind the header of IPv6.
    right.splice(54..54, OPTIONS);
    right[20] = 0;
    let length = (right.len() - 54) as u16;
    right[18..20].copy_from_slice(&length.to_be_bytes());
    let all = TransmitRequest {
        ip_checksum: true,
        layer_4_checksum: true,
        segment_bytes: None,
    };
    let mut wrong = right.clone();
    wrong[field(flow) + 8] ^= 0xFF;
    let mut packet = rig.a.packet(&wrong);
    packet.offload(all).expect("possible");
    rig.a.send([packet]);
    assert_eq!(rig.wait_b(1)[0].1.to_vec(), right);

    let mut packet = rig.a.packet(&wrong);
    let cut = TransmitRequest {
        segment_bytes: Some(1448),
        ..all
    };
    packet.offload(cut).expect("possible");
    rig.a.send([packet]);
    let found = rig.wait_b(3);
    let headers = 54 + OPTIONS.len() + 20;
    let mut together: Vec<u8> = Vec::new();
    for (_, packet) in &found {
        assert!(!packet.flags().layer_4_checksum_wrong());
        let bytes = packet.to_vec();
        assert_eq!(bytes[54..62], OPTIONS);
        let length = usize::from(u16::from_be_bytes([bytes[18], bytes[19]]));
        assert_eq!(length, bytes.len() - 54);
        together.extend(&bytes[headers..]);
    }
    assert_eq!(together, payload);
    drop(found);
    rig.finish();
}

/// A frame that was received and is sent on may be padded: what arrives is its datagram.
#[test]
fn the_padding_of_a_packet_to_be_cut_is_no_payload() {
    let mut rig = Rig::new();
    for flow in FLOWS {
        let right = ip_frame(rig.b.mac(), rig.a.mac(), flow, b"ab");
        let mut packet = rig.a.packet(&[&right[..], &[0xEE; 4]].concat());
        let cut = TransmitRequest {
            ip_checksum: true,
            layer_4_checksum: true,
            segment_bytes: Some(64),
        };
        packet.offload(cut).expect("possible");
        rig.a.send([packet]);
        let found = rig.wait_b(1)[0].1.to_vec();
        let (datagram, padding) = found.split_at(right.len());
        assert_eq!(datagram, right, "{flow:?}");
        assert!(padding.iter().all(|byte| *byte == 0), "{flow:?}");
    }
    rig.finish();
}

/// A request to be cut has zeroed lengths: the next request must not read them back.
#[test]
fn a_request_that_replaces_one_to_be_cut_sends_a_valid_packet() {
    let mut rig = Rig::new();
    let checksums = TransmitRequest {
        ip_checksum: true,
        layer_4_checksum: true,
        segment_bytes: None,
    };
    for flow in FLOWS {
        let right = ip_frame(rig.b.mac(), rig.a.mac(), flow, &[7; 1000]);
        for next in [checksums, TransmitRequest::default()] {
            let mut packet = rig.a.packet(&right);
            let cut = TransmitRequest {
                segment_bytes: Some(500),
                ..checksums
            };
            packet.offload(cut).expect("possible");
            packet.offload(next).expect("possible");
            rig.a.send([packet]);
            let found = rig.wait_b(1);
            assert_eq!(found[0].1.to_vec(), right, "{flow:?}, {next:?}");
        }
    }
    rig.finish();
}

#[test]
fn tags_are_inserted_and_stripped_or_left() {
    for stripping in [VlanStripping::On, VlanStripping::Off] {
        let receiver = PortSettings {
            vlan_stripping: stripping,
            ..settings()
        };
        let mut rig = Rig::with(&settings(), &receiver);
        let frame = plain_frame(rig.b.mac(), rig.a.mac(), 300, 4);
        let mut packet = rig.a.packet(&frame);
        packet.set_vlan(Some(0x6064));
        rig.a.send([packet]);
        let found = rig.wait_b(1);
        let mut tagged = frame.clone();
        tagged.splice(12..12, [0x81, 0x00, 0x60, 0x64]);
        let expected = match stripping {
            VlanStripping::On => (Some(0x6064), frame),
            VlanStripping::Off => (None, tagged),
        };
        assert_eq!((found[0].1.vlan(), found[0].1.to_vec()), expected);
        drop(found);
        rig.finish();
    }
}

/// The hash that software computes names the queue, and is the one in the descriptor.
#[test]
fn software_predicts_the_hash_and_the_queue() {
    for queues in [4, 3] {
        let receiver = PortSettings {
            receive_queues: queues,
            ..settings()
        };
        let mut rig = Rig::with(&settings(), &receiver);
        let (to, from) = (rig.b.mac(), rig.a.mac());
        let entries = rig.b.open.port.hash_table_entries();
        let toeplitz = Toeplitz::new(DEFAULT_KEY);
        let mut seen = std::collections::BTreeSet::new();
        for port in 0..40 {
            for flow in FLOWS {
                let flow = Flow {
                    ports: (1000 + port, flow.ports.1),
                    ..flow
                };
                let packet = rig.a.packet(&ip_frame(to, from, flow, b"x"));
                rig.a.send([packet]);
                let found = rig.wait_b(1);
                let addresses = if flow.v6 {
                    ["fd00::1", "fd00::2"]
                } else {
                    ["10.0.0.1", "10.0.0.2"]
                };
                let hash = toeplitz.hash(&ringside_lan::Flow {
                    source: addresses[0].parse().unwrap(),
                    destination: addresses[1].parse().unwrap(),
                    ports: Some(flow.ports),
                });
                assert_eq!(found[0].1.hash(), Some(hash));
                assert_eq!(found[0].0, hash as usize % entries % queues);
                seen.insert(found[0].0);
            }
        }
        assert_eq!(seen.len(), queues, "every queue gets something");
        rig.finish();
    }
}

#[test]
fn the_rig_computes_checksums_as_published() {
    // RFC 1071, section 3.
    assert_eq!(
        checksum(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]),
        !0xddf2
    );
}
