//! Data of every operation, over all path MTUs, many sizes, numbers of queue pairs and fragments,
//! on a wire that loses frames.

use rand::rngs::StdRng;
use rand::{Rng, RngCore, SeedableRng};
use ringside_model::Fault;
use ringside_pmd::rdma::{Connected, Flags, Fragment, MemoryRegion, QueuePair, Status};
use ringside_testkit::Pair;

const MTUS: [u32; 5] = [256, 512, 1024, 2048, 4096];

/// Cuts `start..start + length` of a region into `count` fragments at random places.
fn cut(
    random: &mut StdRng,
    region: &MemoryRegion,
    start: usize,
    length: usize,
    count: usize,
) -> Vec<Fragment> {
    let mut cuts: Vec<usize> = (1..count)
        .map(|_| random.random_range(0..=length))
        .collect();
    cuts.sort_unstable();
    let begins = std::iter::once(0).chain(cuts.iter().copied());
    let ends = cuts.iter().copied().chain(std::iter::once(length));
    begins
        .zip(ends)
        .map(|(begin, end)| region.slice(start + begin..start + end).unwrap())
        .collect()
}

struct Work {
    from: MemoryRegion,
    to: MemoryRegion,
    source: Vec<u8>,
    expected: Vec<u8>,
}

impl Work {
    fn new(pair: &Pair, length: usize, seed: u64) -> Self {
        let mut source = vec![0; length];
        StdRng::seed_from_u64(seed).fill_bytes(&mut source);
        let work = Self {
            from: pair.a.region(length),
            to: pair.b.region(length),
            source,
            expected: vec![0; length],
        };
        assert!(work.from.write(0, &work.source));
        work
    }

    fn check(&self, what: &str) {
        let mut arrived = vec![0; self.expected.len()];
        assert!(self.to.read(0, &mut arrived));
        let differ = arrived.iter().zip(&self.expected).position(|(a, b)| a != b);
        assert_eq!(differ, None, "{what}: first byte that differs");
    }
}

/// One operation of a random kind, waited for and checked.
fn operation(
    pair: &mut Pair,
    random: &mut StdRng,
    qp: &mut QueuePair<Connected>,
    peer: &mut QueuePair<Connected>,
    work: &mut Work,
    length: usize,
) {
    let pieces = random.random_range(1..=13);
    let room = work.source.len() - length;
    let (at, place) = (random.random_range(0..=room), random.random_range(0..=room));
    let kind = random.random_range(0..5);
    let mut fragments = cut(random, &work.from, at, length, pieces);
    let remote = work.to.remote().at(place as u64);
    let (mut received, mut writes_peer) = (None, true);
    if kind >= 2 {
        let pieces = random.random_range(1..=13);
        let into = cut(random, &work.to, place, length, pieces);
        peer.receive(500, &into).unwrap();
    }
    match kind {
        0 => qp.write(7, &fragments, remote, Flags::SIGNALLED).unwrap(),
        1 => {
            writes_peer = false;
            qp.read(7, &fragments, remote, Flags::SIGNALLED).unwrap();
        }
        2 => {
            received = Some((length as u32, None));
            qp.send(7, &fragments, Flags::SIGNALLED).unwrap();
        }
        3 => {
            fragments.truncate(12);
            let sent: usize = fragments
                .iter()
                .map(|piece| piece.length_bytes as usize)
                .sum();
            let data = work.source[at..at + sent].to_vec();
            work.expected[place..place + sent].copy_from_slice(&data);
            writes_peer = false;
            received = Some((sent as u32, Some(0x1234)));
            qp.send_with_immediate(7, &fragments, 0x1234, Flags::SIGNALLED)
                .unwrap();
        }
        _ => {
            fragments.truncate(12);
            let sent: usize = fragments
                .iter()
                .map(|piece| piece.length_bytes as usize)
                .sum();
            let data = work.source[at..at + sent].to_vec();
            work.expected[place..place + sent].copy_from_slice(&data);
            writes_peer = false;
            received = Some((sent as u32, Some(0x5678)));
            qp.write_with_immediate(7, &fragments, remote, 0x5678, Flags::SIGNALLED)
                .unwrap();
        }
    }
    qp.ring();
    if writes_peer {
        let data = work.source[at..at + length].to_vec();
        work.expected[place..place + length].copy_from_slice(&data);
    }
    let done = pair.wait_a(1);
    assert_eq!(
        (done[0].id, done[0].status()),
        (7, Status::Success),
        "kind {kind}"
    );
    if let Some((bytes, immediate)) = received {
        let done = pair.wait_b(1);
        assert_eq!(
            (done[0].id, done[0].status()),
            (500, Status::Success),
            "kind {kind}"
        );
        assert_eq!(done[0].immediate(), immediate, "kind {kind}");
        assert_eq!(done[0].byte_length(), bytes, "kind {kind}");
    }
    if kind == 1 {
        let data = work.expected[place..place + length].to_vec();
        work.source[at..at + length].copy_from_slice(&data);
        let mut arrived = vec![0; length];
        assert!(work.from.read(at, &mut arrived));
        assert!(arrived == data, "read of {length} bytes");
    }
}

fn run(seed: u64, mtu: u32, operations: usize, largest: usize, per_million: u32) {
    let mut random = StdRng::seed_from_u64(seed);
    let mut pair = Pair::new();
    pair.a.device.use_predictable_numbers(seed).unwrap();
    pair.b.device.use_predictable_numbers(seed + 1).unwrap();
    let mut work = Work::new(&pair, largest, seed);
    let (mut qp, mut peer) = pair.connect(|config| {
        config
            .path_mtu(mtu)
            .send_fragments(13)
            .receive_fragments(13)
            .receiver_not_ready_retries(7)
    });
    if per_million > 0 {
        let drop = Fault::DropFrames { per_million, seed };
        pair.world.with(|world| world.inject(0, drop));
    }
    for number in 0..operations {
        let most = 1 << random.random_range(0..=largest.ilog2());
        let length = random.random_range(0..=most.min(largest));
        operation(
            &mut pair,
            &mut random,
            &mut qp,
            &mut peer,
            &mut work,
            length,
        );
        if number % 16 == 0 || number + 1 == operations {
            work.check(&format!("seed {seed}, MTU {mtu}, operation {number}"));
        }
    }
    drop((qp, peer, work));
    pair.finish();
}

#[test]
fn random_operations_keep_their_bytes_at_every_mtu() {
    for (seed, mtu) in MTUS.into_iter().enumerate() {
        run(seed as u64, mtu, 60, 200_000, 0);
    }
}

#[test]
fn random_operations_keep_their_bytes_when_frames_are_lost() {
    for (seed, mtu) in MTUS.into_iter().enumerate() {
        run(100 + seed as u64, mtu, 40, 60_000, 20_000);
    }
}

#[test]
fn eight_mebibytes_arrive_in_one_message() {
    let mut pair = Pair::new();
    let length = 8 << 20;
    let mut work = Work::new(&pair, length, 5);
    let (mut qp, peer) = pair.connect(|config| config);
    let fragment = work.from.slice(0..length).unwrap();
    qp.write(1, &[fragment], work.to.remote().at(0), Flags::SIGNALLED)
        .unwrap();
    qp.ring();
    assert_eq!(pair.wait_a(1)[0].status(), Status::Success);
    work.expected.copy_from_slice(&work.source.clone());
    work.check("8 MiB");
    drop((qp, peer, work));
    pair.finish();
}

#[test]
fn sixty_four_queue_pairs_at_once_keep_their_messages_apart() {
    let mut config = ringside_testkit::config();
    config.rdma.queue_pairs = 64;
    let mut pair = Pair::with(&config);
    let (from, to) = (pair.a.region(64 * 4096), pair.b.region(64 * 4096));
    let mut ends: Vec<_> = (0..64)
        .map(|_| pair.connect(|config| config.send_requests(16).receive_requests(16)))
        .collect();
    for (index, (qp, _)) in ends.iter_mut().enumerate() {
        assert!(from.write(index * 4096, &[index as u8 + 1; 3000]));
        let start = index * 4096;
        let fragment = from.slice(start..start + 3000).unwrap();
        qp.write(
            index as u64,
            &[fragment],
            to.remote().at(start as u64),
            Flags::SIGNALLED,
        )
        .unwrap();
        qp.ring();
    }
    let done = pair.wait_a(64);
    let ids: std::collections::BTreeSet<u64> = done.iter().map(|done| done.id).collect();
    assert_eq!(ids.len(), 64);
    for index in 0..64 {
        let mut arrived = vec![0; 4096];
        assert!(to.read(index * 4096, &mut arrived));
        assert!(
            arrived[..3000].iter().all(|byte| *byte == index as u8 + 1),
            "{index}"
        );
        assert!(arrived[3000..].iter().all(|byte| *byte == 0), "{index}");
    }
    drop((ends, from, to));
    pair.finish();
}

#[test]
fn eight_mebibytes_in_thirteen_fragments_arrive_by_every_operation_though_frames_are_lost() {
    let length = 8 << 20;
    for (seed, mtu) in MTUS.into_iter().enumerate() {
        let mut random = StdRng::seed_from_u64(seed as u64);
        let mut pair = Pair::new();
        let mut work = Work::new(&pair, length, seed as u64);
        let (mut qp, mut peer) = pair.connect(|config| {
            config
                .path_mtu(mtu)
                .send_fragments(13)
                .receive_fragments(13)
        });
        let lost = Fault::DropFrames {
            per_million: 1000,
            seed: seed as u64,
        };
        pair.world.with(|world| world.inject(0, lost));
        let clear = vec![0; length];
        work.expected.copy_from_slice(&work.source);

        let fragments = cut(&mut random, &work.from, 0, length, 13);
        let remote = work.to.remote().at(0);
        qp.write(1, &fragments, remote, Flags::SIGNALLED).unwrap();
        qp.ring();
        assert_eq!(pair.wait_a(1)[0].status(), Status::Success, "MTU {mtu}");
        work.check(&format!("write, MTU {mtu}"));

        assert!(work.to.write(0, &clear));
        let into = cut(&mut random, &work.to, 0, length, 13);
        peer.receive(2, &into).unwrap();
        qp.send(3, &fragments, Flags::SIGNALLED).unwrap();
        qp.ring();
        assert_eq!(pair.wait_a(1)[0].status(), Status::Success, "MTU {mtu}");
        assert_eq!(pair.wait_b(1)[0].byte_length(), length as u32, "MTU {mtu}");
        work.check(&format!("send, MTU {mtu}"));

        assert!(work.from.write(0, &clear));
        qp.read(4, &fragments, remote, Flags::SIGNALLED).unwrap();
        qp.ring();
        assert_eq!(pair.wait_a(1)[0].status(), Status::Success, "MTU {mtu}");
        let mut arrived = vec![0; length];
        assert!(work.from.read(0, &mut arrived));
        assert!(arrived == work.source, "read, MTU {mtu}");
        let dropped = pair.world.with(|world| world.switch().counters().dropped);
        assert!(dropped > 0, "MTU {mtu}: no frame was lost");
        drop((qp, peer, work));
        pair.finish();
    }
}

#[test]
fn sixty_four_queue_pairs_write_send_and_read_though_frames_are_lost() {
    const SLOT: usize = 4096;
    let mut config = ringside_testkit::config();
    config.rdma.queue_pairs = 64;
    let mut pair = Pair::with(&config);
    let mut work = Work::new(&pair, 64 * SLOT, 64);
    work.expected.copy_from_slice(&work.source);
    let mut ends: Vec<_> = (0..64)
        .map(|_| {
            let limits = |config: ringside_pmd::rdma::QueuePairConfig| {
                config.path_mtu(256).send_requests(16).receive_requests(16)
            };
            pair.connect(limits)
        })
        .collect();
    let lost = Fault::DropFrames {
        per_million: 20_000,
        seed: 64,
    };
    pair.world.with(|world| world.inject(0, lost));
    let clear = vec![0; 64 * SLOT];
    for operation in ["write", "send", "read"] {
        let cleared = if operation == "read" {
            &work.from
        } else {
            &work.to
        };
        assert!(cleared.write(0, &clear));
        for (index, (qp, peer)) in ends.iter_mut().enumerate() {
            let slot = index * SLOT..(index + 1) * SLOT;
            let here = [work.from.slice(slot.clone()).unwrap()];
            let remote = work.to.remote().at(slot.start as u64);
            let (id, flags) = (index as u64, Flags::SIGNALLED);
            match operation {
                "write" => qp.write(id, &here, remote, flags).unwrap(),
                "read" => qp.read(id, &here, remote, flags).unwrap(),
                _ => {
                    peer.receive(id, &[work.to.slice(slot).unwrap()]).unwrap();
                    qp.send(id, &here, flags).unwrap();
                }
            }
            qp.ring();
        }
        let done = pair.wait_a(64);
        assert!(done.iter().all(|done| done.is_success()), "{operation}");
        let ids: std::collections::BTreeSet<u64> = done.iter().map(|done| done.id).collect();
        assert_eq!(ids.len(), 64, "{operation}");
        match operation {
            "read" => {
                let mut arrived = vec![0; 64 * SLOT];
                assert!(work.from.read(0, &mut arrived));
                assert!(arrived == work.source, "read");
            }
            "send" => {
                assert_eq!(pair.wait_b(64).len(), 64);
                work.check(operation);
            }
            _ => work.check(operation),
        }
    }
    drop((ends, work));
    pair.finish();
}
