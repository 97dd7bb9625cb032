//! Every operation between two devices, with the data compared.

use ringside_pmd::rdma::{Flags, Operation, Status};
use ringside_testkit::Pair;

fn pattern(length: usize, seed: u8) -> Vec<u8> {
    (0..length)
        .map(|at| (at as u8).wrapping_mul(31).wrapping_add(seed))
        .collect()
}

#[test]
fn an_eight_byte_write_arrives_and_completes_once() {
    let mut pair = Pair::new();
    let (from, to) = (pair.a.region(4096), pair.b.region(4096));
    let (mut qp, _peer) = pair.connect(|config| config);
    assert!(from.write(0, b"ringside"));
    qp.write(
        42,
        &[from.slice(0..8).unwrap()],
        to.remote().at(16),
        Flags::SIGNALLED,
    )
    .unwrap();
    qp.ring();
    let done = pair.wait_a(1);
    assert_eq!(done.len(), 1);
    assert_eq!((done[0].id, done[0].status()), (42, Status::Success));
    assert_eq!(
        (done[0].operation(), done[0].byte_length()),
        (Operation::Write, 8)
    );
    let mut arrived = [0; 8];
    assert!(to.read(16, &mut arrived));
    assert_eq!(&arrived, b"ringside");
    drop((qp, _peer, from, to));
    pair.finish();
}

#[test]
fn writes_of_many_sizes_and_fragments_arrive_byte_for_byte() {
    let mut pair = Pair::new();
    let length = 1 << 18;
    let (from, to) = (pair.a.region(length), pair.b.region(length));
    let (mut qp, _peer) = pair.connect(|config| config.send_fragments(13));
    let data = pattern(length, 7);
    assert!(from.write(0, &data));
    for (id, size) in [0, 1, 8, 255, 256, 4095, 4096, 4097, 65_536, length]
        .into_iter()
        .enumerate()
    {
        let pieces = if size >= 13 { 13 } else { 1 };
        let step = size / pieces;
        let fragments: Vec<_> = (0..pieces)
            .map(|piece| {
                let end = if piece + 1 == pieces {
                    size
                } else {
                    (piece + 1) * step
                };
                from.slice(piece * step..end).unwrap()
            })
            .collect();
        let blank = vec![0xEE; length];
        assert!(to.write(0, &blank));
        qp.write(id as u64, &fragments, to.remote().at(0), Flags::SIGNALLED)
            .unwrap();
        qp.ring();
        let done = pair.wait_a(1);
        assert_eq!(
            (done[0].id, done[0].status()),
            (id as u64, Status::Success),
            "{size}"
        );
        let mut arrived = vec![0; length];
        assert!(to.read(0, &mut arrived));
        assert!(arrived[..size] == data[..size], "{size} bytes");
        assert!(
            arrived[size..] == blank[size..],
            "{size} bytes: beyond them"
        );
    }
    drop((qp, _peer, from, to));
    pair.finish();
}

#[test]
fn a_read_brings_the_peers_bytes() {
    let mut pair = Pair::new();
    let (into, from) = (pair.a.region(65_536), pair.b.region(65_536));
    let data = pattern(65_536, 99);
    assert!(from.write(0, &data));
    let (mut qp, _peer) = pair.connect(|config| config);
    let sinks = [into.slice(0..10).unwrap(), into.slice(10..50_000).unwrap()];
    qp.read(1, &sinks, from.remote().at(3), Flags::SIGNALLED)
        .unwrap();
    qp.ring();
    let done = pair.wait_a(1);
    assert_eq!(
        (done[0].status(), done[0].operation()),
        (Status::Success, Operation::Read)
    );
    let mut arrived = vec![0; 50_000];
    assert!(into.read(0, &mut arrived));
    assert!(arrived == data[3..50_003]);
    drop((qp, _peer, from, into));
    pair.finish();
}

#[test]
fn sends_fill_receives_in_order_with_length_and_immediate() {
    let mut pair = Pair::new();
    let (from, into) = (pair.a.region(4096), pair.b.region(65_536));
    let (mut qp, mut peer) = pair.connect(|config| config.receive_fragments(3).inline_bytes(101));
    let data = pattern(4096, 3);
    assert!(from.write(0, &data));
    for id in 0..4 {
        let start = id * 8192;
        let pieces = [
            into.slice(start..start + 5).unwrap(),
            into.slice(start + 5..start + 100).unwrap(),
            into.slice(start + 100..start + 8192).unwrap(),
        ];
        peer.receive(100 + id as u64, &pieces).unwrap();
    }
    qp.send(0, &[from.slice(0..4096).unwrap()], Flags::SIGNALLED)
        .unwrap();
    qp.send_with_immediate(
        1,
        &[from.slice(0..7).unwrap()],
        0xDEAD_BEEF,
        Flags::SIGNALLED,
    )
    .unwrap();
    qp.send_inline(2, &data[..101], None, Flags::SIGNALLED)
        .unwrap();
    qp.send_inline(3, &data[..1], Some(5), Flags::SIGNALLED)
        .unwrap();
    qp.ring();
    let sent = pair.wait_a(4);
    assert!(
        sent.iter().all(|done| done.status() == Status::Success),
        "{sent:?}"
    );
    let received = pair.wait_b(4);
    let seen: Vec<_> = received
        .iter()
        .map(|done| (done.id, done.status(), done.byte_length(), done.immediate()))
        .collect();
    assert_eq!(
        seen,
        [
            (100, Status::Success, 4096, None),
            (101, Status::Success, 7, Some(0xDEAD_BEEF)),
            (102, Status::Success, 101, None),
            (103, Status::Success, 1, Some(5)),
        ]
    );
    for (start, length) in [(0, 4096), (8192, 7), (16_384, 101), (24_576, 1)] {
        let mut arrived = vec![0; length];
        assert!(into.read(start, &mut arrived));
        assert!(arrived == data[..length], "{length} bytes");
    }
    drop((qp, peer, from, into));
    pair.finish();
}

#[test]
fn a_write_with_immediate_completes_a_receive_without_touching_its_buffer() {
    let mut pair = Pair::new();
    let (from, into) = (pair.a.region(4096), pair.b.region(8192));
    assert!(from.write(0, b"ringside"));
    let (mut qp, mut peer) = pair.connect(|config| config);
    peer.receive(9, &[into.slice(4096..8192).unwrap()]).unwrap();
    qp.write_with_immediate(
        1,
        &[from.slice(0..8).unwrap()],
        into.remote().at(0),
        77,
        Flags::SIGNALLED,
    )
    .unwrap();
    qp.ring();
    assert_eq!(pair.wait_a(1)[0].status(), Status::Success);
    let received = pair.wait_b(1);
    assert_eq!((received[0].id, received[0].immediate()), (9, Some(77)));
    assert_eq!(received[0].operation(), Operation::ReceiveWriteImmediate);
    let mut bytes = [0; 8];
    assert!(into.read(0, &mut bytes));
    assert_eq!(&bytes, b"ringside");
    assert!(into.read(4096, &mut bytes));
    assert_eq!(bytes, [0; 8]);
    drop((qp, peer, from, into));
    pair.finish();
}

#[test]
fn unsignalled_writes_give_their_room_back_with_the_next_signalled_one() {
    let mut pair = Pair::new();
    let (from, to) = (pair.a.region(4096), pair.b.region(4096));
    let (mut qp, _peer) = pair.connect(|config| config.send_requests(32));
    for round in 0..200_u64 {
        for last in [false, false, false, true] {
            let flags = if last { Flags::SIGNALLED } else { Flags::NONE };
            qp.write(
                round,
                &[from.slice(0..64).unwrap()],
                to.remote().at(0),
                flags,
            )
            .unwrap();
        }
        qp.ring();
        let done = pair.wait_a(1);
        assert_eq!((done.len(), done[0].id), (1, round));
    }
    assert_eq!(qp.send_quanta_used(), 0);
    drop((qp, _peer, from, to));
    pair.finish();
}

#[test]
fn both_directions_at_once_over_ipv6_with_a_vlan_tag_and_a_small_mtu() {
    let mut pair = Pair::new();
    let (left, right) = (pair.a.region(20_000), pair.b.region(20_000));
    let addresses = [&pair.a, &pair.b].map(|end| end.device.local_addresses().unwrap()[1]);
    let config = |end: &ringside_testkit::End, address| {
        end.config()
            .local_address(address)
            .path_mtu(256)
            .vlan_tag(0x6005)
    };
    let a = pair.a.queue_pair(config(&pair.a, addresses[0]));
    let b = pair.b.queue_pair(config(&pair.b, addresses[1]));
    let (to_a, to_b) = (a.endpoint(), b.endpoint());
    let (mut a, mut b) = (a.connect(&to_b).unwrap(), b.connect(&to_a).unwrap());
    let data = pattern(10_000, 1);
    assert!(left.write(0, &data) && right.write(0, &data));
    let (from_left, from_right) = (
        left.slice(0..10_000).unwrap(),
        right.slice(0..10_000).unwrap(),
    );
    a.write(1, &[from_left], right.remote().at(10_000), Flags::SIGNALLED)
        .unwrap();
    b.write(2, &[from_right], left.remote().at(10_000), Flags::SIGNALLED)
        .unwrap();
    a.ring();
    b.ring();
    assert_eq!(pair.wait_a(1)[0].status(), Status::Success);
    assert_eq!(pair.wait_b(1)[0].status(), Status::Success);
    for region in [&left, &right] {
        let mut arrived = vec![0; 10_000];
        assert!(region.read(10_000, &mut arrived));
        assert!(arrived == data);
    }
    drop((a, b, left, right));
    pair.finish();
}
