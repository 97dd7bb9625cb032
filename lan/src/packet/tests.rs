use super::*;
use crate::PacketPool;
use crate::testing::QueueParts;

#[test]
fn bytes_go_in_front_and_behind_and_come_off_again() {
    let bench = QueueParts::new();
    let pool = bench.pool(64);
    let mut packet = pool.packet_with(b"payload").unwrap();
    packet.prepend(b"header ").unwrap();
    packet.append(b" end").unwrap();
    assert_eq!(packet.bytes(), b"header payload end");
    packet.remove_front(7).unwrap();
    packet.truncate(7).unwrap();
    assert_eq!(packet.to_vec(), b"payload");
    assert_eq!(
        packet.prepend(&[0; 136]),
        None,
        "128 bytes of headroom and 7 removed"
    );
    assert_eq!(packet.append(&[0; 2048]), None);
    assert_eq!(packet.to_vec(), b"payload");
}

#[test]
fn a_chain_reads_as_one_and_goes_back_whole() {
    let bench = QueueParts::new();
    let pool = bench.pool(64);
    let bytes: Vec<u8> = (0..9728u32).map(|byte| byte as u8).collect();
    let packet = pool.packet_with(&bytes).unwrap();
    assert_eq!(packet.segment_count(), 5);
    assert_eq!(packet.to_vec(), bytes);
    let mut part = [0; 100];
    assert!(packet.read(2000, &mut part), "across a border");
    assert_eq!(part[..], bytes[2000..2100]);
    assert!(!packet.read(9700, &mut part), "beyond the end");
    let pieces: Vec<u8> = packet
        .segments()
        .flat_map(|segment| packet.segment_bytes(segment).to_vec())
        .collect();
    assert_eq!(pieces, bytes);
    assert_eq!(pool.usage().in_use, 5);
    drop(packet);
    assert_eq!(pool.usage().in_use, 0);
}

#[test]
fn a_shared_packet_is_read_only_until_one_handle_is_left() {
    let bench = QueueParts::new();
    let pool = bench.pool(64);
    let mut one = pool.packet_with(&[7; 3000]).unwrap();
    let mut two = one.share();
    let three = two.share();
    assert!(one.bytes_mut().is_none() && two.bytes_mut().is_none());
    assert_eq!(one.append(b"x"), None);
    assert_eq!(one.remove_front(1), None);
    assert_eq!(one.prepend(b"x"), None);
    assert_eq!(two.bytes(), one.bytes());
    drop(one);
    assert!(two.bytes_mut().is_none());
    drop(three);
    assert!(two.bytes_mut().is_some());
    assert_eq!(pool.usage().in_use, 2);
    drop(two);
    assert_eq!(pool.usage().in_use, 0);
}

#[test]
fn only_packets_of_one_pool_and_one_handle_are_chained() {
    let bench = QueueParts::new();
    let (pool, elsewhere) = (bench.pool(64), bench.pool(64));
    let mut packet = pool.packet_with(b"one").unwrap();
    let foreign = elsewhere.packet_with(b"two").unwrap();
    let foreign = packet.chain(foreign).unwrap_err();
    assert_eq!(foreign.bytes(), b"two");
    let mut shared = pool.packet_with(b"three").unwrap();
    let other = shared.share();
    let shared = packet.chain(shared).unwrap_err();
    assert_eq!((packet.segment_count(), packet.bytes()), (1, &b"one"[..]));
    // The last handle is the only one again.
    drop(other);
    packet.chain(shared).unwrap();
    assert_eq!(packet.to_vec(), b"onethree");
    drop((packet, foreign));
    assert_eq!((pool.usage().in_use, elsewhere.usage().in_use), (0, 0));
}

#[test]
fn a_read_may_begin_and_end_at_the_border_of_a_segment() {
    let bench = QueueParts::new();
    let pool = bench.pool(64);
    let bytes: Vec<u8> = (0..6144u32).map(|byte| (byte >> 3) as u8).collect();
    let packet = pool.packet_with(&bytes).unwrap();
    for (from, count) in [(0, 2048), (2048, 2048), (2048, 4096), (4095, 2), (6144, 0)] {
        let mut part = vec![0; count];
        assert!(packet.read(from, &mut part), "{count} from {from}");
        assert_eq!(part, bytes[from..from + count], "{count} from {from}");
    }
}

#[test]
fn handles_dropped_by_two_threads_give_the_packet_back_once() {
    let bench = QueueParts::new();
    let pool = bench.pool(256);
    let barrier = std::sync::Barrier::new(2);
    let (sender, receiver) = std::sync::mpsc::channel::<Packet>();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for other in receiver {
                barrier.wait();
                drop(other);
                barrier.wait();
            }
        });
        for _ in 0..2000 {
            let mut one = pool.packet_with(b"x").unwrap();
            sender.send(one.share()).unwrap();
            barrier.wait();
            drop(one);
            barrier.wait();
            assert_eq!(pool.usage().in_use, 0);
        }
        drop(sender);
    });
}

/// An Ethernet frame with IPv4 and the protocol's header, checksums zero.
fn frame(protocol: u8, layer_4: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; 12];
    bytes.extend([0x08, 0x00]);
    let total = (20 + layer_4.len()) as u16;
    let [a, b] = total.to_be_bytes();
    bytes.extend([0x45, 0, a, b, 0, 1, 0, 0, 64, protocol, 0xEE, 0xEE]);
    bytes.extend([10, 0, 0, 1, 10, 0, 0, 2]);
    bytes.extend(layer_4);
    bytes
}

#[test]
fn offloads_that_are_not_possible_are_refused_by_name_and_change_nothing() {
    let bench = QueueParts::new();
    let pool = bench.pool(64);
    let all = TransmitRequest {
        ip_checksum: true,
        layer_4_checksum: true,
        segment_bytes: None,
    };
    let cut = |bytes| TransmitRequest {
        segment_bytes: Some(bytes),
        ..all
    };
    let mut arp = vec![0; 60];
    arp[12..14].copy_from_slice(&[0x08, 0x06]);
    let mut fragment = frame(17, &[0; 40]);
    fragment[20] = 0x20;
    let cases = [
        (arp, all, OffloadError::NotIp(0x0806)),
        (fragment, all, OffloadError::Fragment),
        (frame(1, &[0; 40]), all, OffloadError::Protocol(1)),
        (
            frame(17, &[0; 40])[..30].to_vec(),
            all,
            OffloadError::HeadersSplit(30),
        ),
        (frame(17, &[0; 40]), cut(63), OffloadError::SegmentBytes(63)),
        (frame(17, &[0; 8]), cut(100), OffloadError::Payload(0)),
        (
            frame(132, &[0; 40]),
            cut(100),
            OffloadError::NotSegmentable(Layer4::Sctp),
        ),
    ];
    for (bytes, wanted, error) in cases {
        let mut packet = pool.packet_with(&bytes).unwrap();
        assert_eq!(packet.offload(wanted), Err(error));
        assert_eq!(packet.to_vec(), bytes);
        assert_eq!(packet.command, 0);
    }
    let mut packet = pool.packet_with(&frame(17, &[0; 40])).unwrap();
    let other = packet.share();
    assert_eq!(packet.offload(all), Err(OffloadError::Shared));
    drop(other);
    assert_eq!(packet.offload(all), Ok(()));
}

#[test]
fn bytes_behind_the_datagram_are_not_sent_as_payload() {
    let bench = QueueParts::new();
    let pool = bench.pool(64);
    let cut = |segment_bytes| TransmitRequest {
        layer_4_checksum: true,
        segment_bytes,
        ..TransmitRequest::default()
    };
    for whole in [frame(17, &[7; 8 + 4]), frame_v6(17, &[], &[7; 8 + 4])] {
        let padded = [&whole[..], &[0xEE; 14]].concat();
        for segment_bytes in [None, Some(64)] {
            let mut packet = pool.packet_with(&padded).unwrap();
            packet.offload(cut(segment_bytes)).unwrap();
            assert_eq!(packet.length(), whole.len());
        }
        // The header's checksum alone does not cover them.
        let mut packet = pool.packet_with(&padded).unwrap();
        let ip = TransmitRequest {
            ip_checksum: true,
            ..TransmitRequest::default()
        };
        packet.offload(ip).unwrap();
        assert_eq!(packet.length(), padded.len());
    }
    // Nothing but padding is no payload.
    let padded = [&frame(17, &[7; 8])[..], &[0; 18]].concat();
    let mut packet = pool.packet_with(&padded).unwrap();
    assert_eq!(packet.offload(cut(Some(64))), Err(OffloadError::Payload(0)));
    assert_eq!(packet.to_vec(), padded);
    // A datagram that ends inside its headers.
    let mut short = frame(17, &[7; 40]);
    short[17] = 24;
    let mut packet = pool.packet_with(&short).unwrap();
    assert_eq!(packet.offload(cut(None)), Err(OffloadError::MalformedIp));
    // A chain is not shortened.
    let padded = [&frame(17, &[7; 3000])[..], &[0; 3]].concat();
    let mut packet = pool.packet_with(&padded).unwrap();
    assert_eq!(packet.segment_count(), 2);
    for segment_bytes in [None, Some(64)] {
        let refused = packet.offload(cut(segment_bytes));
        assert_eq!(refused, Err(OffloadError::Behind(3)));
    }
    assert_eq!(packet.to_vec(), padded);
    // Lengths that say nothing: 0, and any of a packet that is too long for the field.
    let mut unsaid = frame(17, &[7; 100]);
    unsaid[16..18].fill(0);
    for bytes in [unsaid, frame(17, &vec![7; 70_000])] {
        let mut packet = pool.packet_with(&bytes).unwrap();
        packet.offload(cut(Some(1400))).unwrap();
        assert_eq!(packet.length(), bytes.len());
    }
}

/// An Ethernet frame with IPv6, extension headers, and the protocol's header.
fn frame_v6(first: u8, extensions: &[u8], layer_4: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; 12];
    bytes.extend([0x86, 0xDD]);
    let [a, b] = ((extensions.len() + layer_4.len()) as u16).to_be_bytes();
    bytes.extend([0x60, 0, 0, 0, a, b, first, 64]);
    bytes.extend([0xFD; 32]);
    bytes.extend(extensions);
    bytes.extend(layer_4);
    bytes
}

#[test]
fn headers_are_found_behind_extension_headers_of_ipv6() {
    use ringside_spec::lan::transmit::{DataCommand, layer_4};
    let bench = QueueParts::new();
    let pool = bench.pool(64);
    let wanted = TransmitRequest {
        layer_4_checksum: true,
        ..TransmitRequest::default()
    };
    // Hop-by-hop options, destination options of 16 bytes, a routing header that led here.
    let mut extensions = vec![60, 0, 1, 4, 0, 0, 0, 0];
    extensions.extend([43, 1, 1, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    extensions.extend([17, 0, 253, 0, 0, 0, 0, 0]);
    let udp = [0, 1, 0, 2, 0, 18, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10];
    let bytes = frame_v6(0, &extensions, &udp);
    let mut packet = pool.packet_with(&bytes).unwrap();
    packet.offload(wanted).unwrap();
    let command = DataCommand(u64::from(packet.command) << COMMAND_SHIFT);
    assert_eq!(command.ip_length_4(), (40 + 32) / 4);
    assert_eq!(command.layer_4(), layer_4::UDP);
    let mut plain = pool.packet_with(&frame_v6(17, &[], &udp)).unwrap();
    plain.offload(wanted).unwrap();
    let sums = [&packet, &plain].map(|one| {
        let bytes = one.to_vec();
        bytes[bytes.len() - 12..][..2].to_vec()
    });
    assert_eq!(sums[0], sums[1], "extensions are not part of the sum");

    let routed = {
        let mut routed = bytes.clone();
        routed[54 + 24 + 3] = 1;
        routed
    };
    let long: Vec<u8> = [[0, 57].as_slice(), &[0; 462]].concat();
    let mut fragment = vec![44, 0, 1, 4, 0, 0, 0, 0];
    fragment.extend([17, 0, 0, 0, 0, 0, 0, 0]);
    let cases = [
        (routed, OffloadError::Routed),
        (
            frame_v6(60, &[long, vec![17, 0, 0, 0, 0, 0, 0, 0]].concat(), &udp),
            OffloadError::IpHeaderBytes(512),
        ),
        (frame_v6(60, &fragment, &udp), OffloadError::Fragment),
        (
            frame_v6(0, &[17, 200, 1, 4, 0, 0, 0, 0], &udp),
            OffloadError::IpHeaderBytes(40 + 201 * 8),
        ),
        (
            frame_v6(0, &[60, 0, 1, 4, 0, 0, 0, 0, 17, 0], &[]),
            OffloadError::HeadersSplit(64),
        ),
        (
            frame_v6(0, &[58, 0, 1, 4, 0, 0, 0, 0], &udp),
            OffloadError::Protocol(58),
        ),
    ];
    for (bytes, error) in cases {
        let mut packet = pool.packet_with(&bytes).unwrap();
        assert_eq!(packet.offload(wanted), Err(error));
        assert_eq!(packet.to_vec(), bytes);
    }
}

#[test]
fn chains_of_several_segments_add_up() {
    let bench = QueueParts::new();
    let pool = bench.pool(64);
    let bytes: Vec<u8> = (0..9000u32).map(|byte| byte as u8).collect();
    let (front, back) = bytes.split_at(3000);
    let mut packet = pool.packet_with(front).unwrap();
    packet.chain(pool.packet_with(back).unwrap()).unwrap();
    assert_eq!((packet.length(), packet.segment_count()), (9000, 5));
    assert_eq!(packet.to_vec(), bytes);
    drop(packet);
    assert_eq!(pool.usage().in_use, 0);
}

/// Two handles that two threads drop at the same moment: one of them is the last.
#[test]
fn two_handles_dropped_at_once_free_their_buffer_once() {
    use std::sync::atomic::{AtomicUsize, Ordering};
    const PAIRS: usize = 400;
    let bench = QueueParts::new();
    let pool = bench.pool(1024);
    for _ in 0..50 {
        // Buffers that a thread kept for itself come back a little after its end.
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
        let take = |_| loop {
            match pool.packet() {
                Some(packet) => break packet,
                None => assert!(std::time::Instant::now() < deadline, "buffers are lost"),
            }
            std::thread::yield_now();
        };
        let mut ones: Vec<Packet> = (0..PAIRS).map(take).collect();
        let twos: Vec<Packet> = ones.iter_mut().map(Packet::share).collect();
        // The other thread's progress, which each waits for: both drop the same pair together.
        let done = [AtomicUsize::new(0), AtomicUsize::new(0)];
        let drop_all = |packets: Vec<Packet>, own: usize| {
            for (at, packet) in packets.into_iter().enumerate() {
                done[own].store(at, Ordering::Release);
                let mut spins = 0;
                while done[1 - own].load(Ordering::Acquire) < at && spins < 10_000 {
                    spins += 1;
                    std::hint::spin_loop();
                }
                drop(packet);
            }
            done[own].store(PAIRS, Ordering::Release);
        };
        std::thread::scope(|scope| {
            scope.spawn(|| drop_all(twos, 1));
            drop_all(ones, 0);
        });
        assert_eq!(pool.usage().in_use, 0);
    }
}

/// A packet that the device stamped with these low 32 bits.
fn stamped(pool: &PacketPool, low: u32) -> Packet {
    let mut packet = pool.packet_with(b"stamped").unwrap();
    let tags = WriteBack2::ZERO.with_time_stamp_valid(true);
    let flow = WriteBack3::ZERO.with_time_stamp(low.into());
    packet.describe([0, 0, tags.0, flow.0], 7);
    packet
}

#[test]
fn a_time_stamp_is_completed_by_the_time_of_the_device() {
    let bench = QueueParts::new();
    let pool = bench.pool(64);
    const WRAP: u64 = 1 << 32;
    let cases = [
        // the time of the device, the low bits of the stamp, the whole stamp
        (5 * WRAP + 1000, 900, 5 * WRAP + 900),
        (5 * WRAP + 1000, 1100, 5 * WRAP + 1100),
        (5 * WRAP + 1000, u32::MAX, 5 * WRAP - 1),
        (5 * WRAP - 1000, 500, 5 * WRAP + 500),
        (5 * WRAP, 0x7FFF_FFFF, 5 * WRAP + 0x7FFF_FFFF),
        (5 * WRAP, 0x8000_0000, 5 * WRAP - 0x8000_0000),
    ];
    for (time, low, whole) in cases {
        pool.note_device_time(Some(time));
        let packet = stamped(&pool, low);
        assert_eq!(packet.timestamp(), Some(whole), "{time:#x} {low:#x}");
    }
}

#[test]
fn a_packet_has_no_time_stamp_unless_device_and_pool_give_it() {
    let bench = QueueParts::new();
    let pool = bench.pool(64);
    let packet = stamped(&pool, 7);
    assert_eq!(packet.timestamp(), None, "the device's time is unknown");
    pool.note_device_time(Some(100));
    assert_eq!(packet.timestamp(), Some(7));
    let plain = pool.packet_with(b"plain").unwrap();
    assert_eq!(plain.timestamp(), None, "the device did not stamp it");
    pool.note_device_time(None);
    assert_eq!(packet.timestamp(), None);
}
