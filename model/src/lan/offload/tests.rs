//! An independent parser (etherparse) checks the frames.

use super::*;
use crate::lan::headers::{Checks, parse};
use etherparse::PacketBuilder;

const HERE: [u8; 6] = [2, 0, 0, 0, 0, 1];
const THERE: [u8; 6] = [2, 0, 0, 0, 0, 2];
const V4: Ip = Ip::V4 { checksum: true };

/// The bytes of a builder, and its payload's.
macro_rules! written {
    ($builder:expr, $payload:expr) => {{
        let mut bytes = Vec::new();
        $builder.write(&mut bytes, $payload).unwrap();
        bytes
    }};
}

fn v4() -> etherparse::PacketBuilderStep<etherparse::IpHeaders> {
    PacketBuilder::ethernet2(HERE, THERE).ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64)
}

fn v6() -> etherparse::PacketBuilderStep<etherparse::IpHeaders> {
    PacketBuilder::ethernet2(HERE, THERE).ipv6([0xFD; 16], [0xFC; 16], 64)
}

/// Puts into the checksum field what drivers put there: the pseudo header's sum, with or without
/// the length.
fn prepare(frame: &mut [u8], ip_bytes: usize, protocol: u32, field: usize, segmented: bool) {
    let at = 14 + ip_bytes;
    let addresses = if ip_bytes == 20 { 26..34 } else { 22..54 };
    let length = if segmented {
        0
    } else {
        (frame.len() - at) as u32
    };
    let sum = Sum::default()
        .bytes(&frame[addresses])
        .number(protocol)
        .number(length);
    frame[at + field..][..2].copy_from_slice(&sum.folded().to_be_bytes());
    if segmented && ip_bytes == 20 {
        frame[16..18].fill(0);
        frame[24..26].fill(0);
    }
}

fn frames(packet: &[u8], offload: &Offload) -> Result<Vec<Vec<u8>>, OffloadError> {
    let mut frames = Vec::new();
    apply(&mut packet.to_vec(), offload, |frame| {
        frames.push(std::mem::take(frame));
    })?;
    Ok(frames)
}

fn sound(frame: &[u8]) -> bool {
    let checks = parse(frame).unwrap().checks;
    let good = Checks {
        looked_at: true,
        ..Checks::default()
    };
    checks == good
}

fn payload(length: usize) -> Vec<u8> {
    (0..length).map(|index| (index % 251) as u8).collect()
}

fn tcp_offload(ip: Ip, ip_bytes: usize) -> Offload {
    Offload {
        layer_2_bytes: 14,
        ip,
        ip_bytes,
        layer_4: Layer4::Tcp,
        layer_4_bytes: 20,
        ..Offload::default()
    }
}

#[test]
fn a_packet_without_requests_goes_out_as_it_is_padded_to_60_bytes() {
    let packet = payload(42);
    let out = frames(&packet, &Offload::default()).unwrap();
    assert_eq!(out.len(), 1);
    assert_eq!((out[0].len(), &out[0][..42]), (60, &packet[..]));
    assert!(out[0][42..].iter().all(|byte| *byte == 0));
}

#[test]
fn checksums_are_finished_for_every_protocol_and_length() {
    for length in [0, 1, 2, 3, 64, 1399] {
        let data = payload(length);
        let mut cases = Vec::new();
        for (mut packet, ip, ip_bytes) in [
            (written!(v4().tcp(1, 2, 3, 4), &data), V4, 20),
            (written!(v6().tcp(1, 2, 3, 4), &data), Ip::V6, 40),
        ] {
            let wanted = packet.clone();
            prepare(&mut packet, ip_bytes, 6, 16, false);
            cases.push((packet, wanted, tcp_offload(ip, ip_bytes)));
        }
        for (mut packet, ip, ip_bytes) in [
            (written!(v4().udp(1, 2), &data), V4, 20),
            (written!(v6().udp(1, 2), &data), Ip::V6, 40),
        ] {
            let wanted = packet.clone();
            prepare(&mut packet, ip_bytes, 17, 6, false);
            let offload = Offload {
                layer_4: Layer4::Udp,
                layer_4_bytes: 8,
                ..tcp_offload(ip, ip_bytes)
            };
            cases.push((packet, wanted, offload));
        }
        for (packet, mut wanted, offload) in cases {
            wanted.resize(wanted.len().max(60), 0);
            let out = frames(&packet, &offload).unwrap();
            assert_eq!(out, [wanted], "{offload:?} {length}");
        }
    }
}

#[test]
fn the_checksum_of_sctp_is_its_crc() {
    let mut packet = v4().write_to_sctp();
    packet.extend([0, 1, 0, 2, 0, 0, 0, 9, 0, 0, 0, 0, 1, 2, 3, 4]);
    let total = (packet.len() - 14) as u16;
    packet[16..18].copy_from_slice(&total.to_be_bytes());
    let offload = Offload {
        layer_4: Layer4::Sctp,
        layer_4_bytes: 12,
        ..tcp_offload(V4, 20)
    };
    let out = frames(&packet, &offload).unwrap();
    let crc = crc32c(&[&out[0][34..42], &[0; 4], &out[0][46..50]]);
    assert_eq!(out[0][42..46], crc.to_le_bytes());
    assert!(sound(&out[0]));
}

trait Sctp {
    fn write_to_sctp(self) -> Vec<u8>;
}

impl Sctp for etherparse::PacketBuilderStep<etherparse::IpHeaders> {
    /// Ethernet and IPv4 header of protocol 132, without what follows.
    fn write_to_sctp(self) -> Vec<u8> {
        let mut bytes = written!(self.udp(1, 2), &[]);
        bytes.truncate(34);
        bytes[23] = 132;
        bytes
    }
}

#[test]
fn segments_carry_everything_once_with_their_own_numbers_and_sums() {
    for (ip, ip_bytes) in [(V4, 20), (Ip::V6, 40)] {
        let data = payload(5000);
        let mut packet = if ip_bytes == 20 {
            written!(v4().tcp(1, 2, 0xFFFF_FC00, 4).ack(7).psh().fin(), &data)
        } else {
            written!(v6().tcp(1, 2, 0xFFFF_FC00, 4).ack(7).psh().fin(), &data)
        };
        packet[14 + ip_bytes + 13] |= 0x80;
        prepare(&mut packet, ip_bytes, 6, 16, true);
        let offload = Offload {
            segmentation: Some(Segmentation {
                payload_bytes: 5000,
                segment_bytes: 1448,
            }),
            ..tcp_offload(ip, ip_bytes)
        };
        let out = frames(&packet, &offload).unwrap();
        assert_eq!(out.len(), 4);
        let mut carried = Vec::new();
        for (index, frame) in out.iter().enumerate() {
            assert!(sound(frame), "segment {index}");
            let sliced = etherparse::SlicedPacket::from_ethernet(frame).unwrap();
            let Some(etherparse::TransportSlice::Tcp(tcp)) = sliced.transport else {
                panic!("no TCP")
            };
            let sequence = 0xFFFF_FC00u32.wrapping_add(index as u32 * 1448);
            assert_eq!(tcp.sequence_number(), sequence);
            assert_eq!((tcp.fin(), tcp.psh()), (index == 3, index == 3));
            assert_eq!(tcp.cwr(), index == 0);
            assert!(tcp.ack());
            if let Some(etherparse::NetSlice::Ipv4(ip)) = sliced.net {
                assert_eq!(ip.header().identification(), index as u16);
            }
            carried.extend_from_slice(tcp.payload());
        }
        assert_eq!(carried, data);
    }
}

#[test]
fn datagrams_are_segmented_with_their_own_lengths() {
    let data = payload(2500);
    let mut packet = written!(v6().udp(1, 2), &data);
    prepare(&mut packet, 40, 17, 6, true);
    let offload = Offload {
        layer_4: Layer4::Udp,
        layer_4_bytes: 8,
        segmentation: Some(Segmentation {
            payload_bytes: 2500,
            segment_bytes: 1000,
        }),
        ..tcp_offload(Ip::V6, 40)
    };
    let out = frames(&packet, &offload).unwrap();
    let lengths: Vec<_> = out.iter().map(|frame| be16(frame, 58).unwrap()).collect();
    assert_eq!(lengths, [1008, 1008, 508]);
    assert!(out.iter().all(|frame| sound(frame)));
}

#[test]
fn tunnels_are_segmented_inside_and_measured_outside() {
    let data = payload(3000);
    let mut inner = written!(v4().tcp(1, 2, 100, 4), &data);
    prepare(&mut inner, 20, 6, 16, true);
    let mut packet = written!(v4().udp(4789, 4789), &[]);
    packet.extend([8, 0, 0, 0, 0, 0, 5, 0]);
    packet.extend(&inner);
    packet[16..18].fill(0);
    packet[24..26].fill(0);
    // the outer checksum, to be finished: the pseudo header without its length
    let outer = Sum::default().bytes(&packet[26..34]).number(17);
    packet[40..42].copy_from_slice(&outer.folded().to_be_bytes());
    let offload = Offload {
        tunnel: Some(Tunnel {
            ip: V4,
            ip_bytes: 20,
            udp: true,
            bytes: 8 + 8 + 14,
            keep_identification: false,
            checksum: true,
        }),
        segmentation: Some(Segmentation {
            payload_bytes: 3000,
            segment_bytes: 1400,
        }),
        ..tcp_offload(V4, 20)
    };
    let out = frames(&packet, &offload).unwrap();
    assert_eq!(out.len(), 3);
    for (index, frame) in out.iter().enumerate() {
        assert!(sound(frame), "outer headers of segment {index}");
        assert!(sound(&frame[50..]), "inner headers of segment {index}");
        assert_eq!(be16(frame, 18), Some(index as u16));
    }
}

#[test]
fn tags_go_between_addresses_and_type_the_outer_one_first() {
    let packet = written!(v4().udp(1, 2), &payload(50));
    let offload = Offload {
        tags: [Some((0x88A8, 7)), Some((0x8100, 0x2005))],
        ..Offload::default()
    };
    let out = frames(&packet, &offload).unwrap();
    assert_eq!(out[0][..12], packet[..12]);
    assert_eq!(out[0][12..20], [0x88, 0xA8, 0, 7, 0x81, 0, 0x20, 5]);
    assert_eq!(out[0][20..], packet[12..]);
}

#[test]
fn descriptors_that_contradict_the_packet_are_errors_and_never_panics() {
    let packet = written!(v4().tcp(1, 2, 3, 4), &payload(100));
    let good = tcp_offload(V4, 20);
    let cut = |payload_bytes, segment_bytes| {
        Some(Segmentation {
            payload_bytes,
            segment_bytes,
        })
    };
    let bad = [
        Offload {
            layer_2_bytes: 254,
            ..good
        },
        Offload {
            ip: Ip::V6,
            ip_bytes: 40,
            ..good
        },
        Offload {
            ip_bytes: 24,
            ..good
        },
        Offload {
            layer_4_bytes: 60,
            ip_bytes: 60,
            ..good
        },
        Offload {
            segmentation: cut(99, 64),
            ..good
        },
        Offload {
            segmentation: cut(100, 0),
            ..good
        },
        Offload {
            segmentation: cut(100, 63),
            ..good
        },
        Offload {
            segmentation: cut(100, 9669),
            ..good
        },
        Offload {
            segmentation: cut(100, 64),
            layer_4: Layer4::Sctp,
            ..good
        },
        Offload {
            segmentation: cut(120, 64),
            layer_4_bytes: 0,
            ..good
        },
        Offload {
            segmentation: cut(100, 64),
            ip: Ip::None,
            ..good
        },
    ];
    for offload in bad {
        assert!(frames(&packet, &offload).is_err(), "{offload:?}");
    }
    // every combination of lengths that descriptors can say, on a packet of every length
    let mut random = 1u64;
    for _ in 0..50_000 {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        let draw = |shift: u32, below: u64| ((random >> shift) % below) as usize;
        let ips = [Ip::None, Ip::V6, V4, Ip::V4 { checksum: false }];
        let layers = [Layer4::None, Layer4::Tcp, Layer4::Udp, Layer4::Sctp];
        let tunnel = Tunnel {
            ip: ips[draw(20, 4)],
            ip_bytes: draw(22, 12) * 4,
            udp: draw(27, 2) == 0,
            bytes: draw(28, 40) * 2,
            keep_identification: false,
            checksum: draw(30, 2) == 0,
        };
        let offload = Offload {
            layer_2_bytes: draw(33, 20) * 2,
            ip: ips[draw(38, 4)],
            ip_bytes: draw(40, 12) * 4,
            layer_4: layers[draw(44, 4)],
            layer_4_bytes: draw(46, 16) * 4,
            tunnel: (draw(50, 2) == 0).then_some(tunnel),
            segmentation: cut(draw(51, 120), 64).filter(|_| draw(58, 2) == 0),
            tags: [None; 2],
        };
        let length = draw(10, packet.len() as u64 + 1);
        let _ = frames(&packet[..length], &offload);
    }
}

/// A packet of TCP over IPv4 that is cut behind each 64 bytes, with 100 bytes behind its headers.
fn to_cut() -> (Vec<u8>, Offload) {
    let mut packet = written!(v4().tcp(1, 2, 3, 4), &payload(100));
    prepare(&mut packet, 20, 6, 16, true);
    let offload = Offload {
        segmentation: Some(Segmentation {
            payload_bytes: 100,
            segment_bytes: 64,
        }),
        ..tcp_offload(V4, 20)
    };
    (packet, offload)
}

#[test]
fn a_packet_without_payload_or_with_half_a_header_of_tcp_is_not_cut() {
    let (packet, offload) = to_cut();
    assert_eq!(frames(&packet, &offload).map(|out| out.len()), Ok(2));
    let short = Offload {
        layer_4_bytes: 16,
        segmentation: Some(Segmentation {
            payload_bytes: 104,
            segment_bytes: 64,
        }),
        ..offload
    };
    let refused = frames(&packet, &short).unwrap_err();
    assert!(
        matches!(refused, OffloadError::NotSegmentable { .. }),
        "{refused:?}"
    );
    let empty = Offload {
        segmentation: Some(Segmentation {
            payload_bytes: 0,
            segment_bytes: 64,
        }),
        ..offload
    };
    let refused = frames(&packet[..54], &empty).unwrap_err();
    assert_eq!(refused, OffloadError::PayloadLength { found: 0, said: 0 });
    let longest = Offload {
        segmentation: Some(Segmentation {
            payload_bytes: 100,
            segment_bytes: 9668,
        }),
        ..offload
    };
    assert_eq!(frames(&packet, &longest).map(|out| out.len()), Ok(1));
}

#[test]
fn identifications_of_segments_go_on_behind_the_last_number() {
    let (mut packet, offload) = to_cut();
    packet[18..20].fill(0xFF);
    let out = frames(&packet, &offload).unwrap();
    let found: Vec<_> = out.iter().map(|frame| be16(frame, 18).unwrap()).collect();
    assert_eq!(found, [0xFFFF, 0]);
    assert!(out.iter().all(|frame| sound(frame)));
}

/// Zero says that a datagram has no checksum. Source: RFC 768.
#[test]
fn a_checksum_of_zero_goes_out_as_all_ones() {
    let offload = Offload {
        layer_4: Layer4::Udp,
        layer_4_bytes: 8,
        ..tcp_offload(V4, 20)
    };
    let mut packet = written!(v4().udp(1, 2), &[0; 32]);
    prepare(&mut packet, 20, 17, 6, false);
    let sum = be16(&frames(&packet, &offload).unwrap()[0], 40).unwrap();
    packet[42..44].copy_from_slice(&sum.to_be_bytes());
    let out = frames(&packet, &offload).unwrap();
    assert_eq!(out[0][40..42], [0xFF, 0xFF]);
    assert!(sound(&out[0]));
}

#[test]
fn bytes_behind_the_ip_packet_are_no_part_of_its_checksum() {
    for (packet, ip, ip_bytes) in [
        (written!(v4().udp(1, 2), &payload(60)), V4, 20),
        (written!(v6().udp(1, 2), &payload(60)), Ip::V6, 40),
    ] {
        let offload = Offload {
            layer_4: Layer4::Udp,
            layer_4_bytes: 8,
            ..tcp_offload(ip, ip_bytes)
        };
        let mut longer = packet.clone();
        prepare(&mut longer, ip_bytes, 17, 6, false);
        longer.extend([0xEE; 6]);
        let out = frames(&longer, &offload).unwrap();
        assert_eq!(out[0][..packet.len()], packet);
    }
}

#[test]
fn sums_and_identifications_that_the_driver_did_not_ask_for_stay() {
    let (mut packet, offload) = to_cut();
    packet[24..26].copy_from_slice(&[0x12, 0x34]);
    let kept = Offload {
        ip: Ip::V4 { checksum: false },
        ..offload
    };
    for frame in frames(&packet, &kept).unwrap() {
        assert_eq!(frame[24..26], [0x12, 0x34]);
    }

    // A tunnel without UDP: four bytes of GRE, whose fifth and sixth bytes are the inner header's.
    let (inner, _) = to_cut();
    let mut packet = written!(v4().udp(1, 2), &[]);
    packet.truncate(34);
    packet[18..20].copy_from_slice(&[0x43, 0x21]);
    packet[23] = 47;
    packet.extend([0, 0, 8, 0]);
    packet.extend(&inner[14..]);
    let tunnel = Tunnel {
        ip: V4,
        ip_bytes: 20,
        udp: false,
        bytes: 4,
        keep_identification: true,
        checksum: false,
    };
    let inside = Offload {
        tunnel: Some(tunnel),
        ..offload
    };
    let out = frames(&packet, &inside).unwrap();
    assert_eq!(out.len(), 2);
    for (index, frame) in out.iter().enumerate() {
        assert_eq!(frame[18..20], [0x43, 0x21], "identification outside");
        assert_eq!(frame[34..38], [0, 0, 8, 0], "the header of the tunnel");
        assert_eq!(frame[38..40], [0x45, 0], "the header inside");
        assert_eq!(be16(frame, 42), Some(index as u16), "identification inside");
        let mut alone = frame[..14].to_vec();
        alone.extend_from_slice(&frame[38..]);
        assert!(sound(&alone), "segment {index}");
    }
}
