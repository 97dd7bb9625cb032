use super::*;
use crate::testing::{QueueParts, Wrote, complete};
use crate::{Burst, Packet, PacketPool, ReceiveQueue, TransmitQueue, TransmitRequest};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use ringside_bus::Words;
use ringside_spec::lan::receive::{WriteBack0, WriteBack1, WriteBack2, WriteBack3};
use std::ffi::OsStr;
use std::io::Write;

/// The paths that this processor has; says which ones it lacks, past the test's capture.
fn paths() -> Vec<PacketPath> {
    let all = PacketPath::ALL.into_iter();
    let (has, lacks): (Vec<_>, Vec<_>) = all.partition(|path| path.is_available());
    for path in lacks {
        let _ = writeln!(
            std::io::stderr(),
            "not run: packet path {path}: this processor lacks its instructions"
        );
    }
    has
}

#[test]
fn a_path_is_chosen_by_setting_then_by_environment_then_by_processor() {
    let from = |wanted, named: Option<&str>| PacketPath::choose_from(wanted, named.map(OsStr::new));
    assert_eq!(
        from(Some(PacketPath::Scalar), Some("avx2")),
        Ok(PacketPath::Scalar)
    );
    assert_eq!(from(None, Some("scalar")), Ok(PacketPath::Scalar));
    assert_eq!(from(None, Some("sse")), Err(PathError::Unknown));
    assert_eq!(from(None, Some("")), Err(PathError::Unknown));
    let usual = match PacketPath::Avx2.is_available() {
        true => PacketPath::Avx2,
        false => PacketPath::Scalar,
    };
    assert_eq!(from(None, None), Ok(usual));
    for path in PacketPath::ALL {
        let expected = match path.is_available() {
            true => Ok(path),
            false => Err(PathError::Missing(path)),
        };
        assert_eq!(from(Some(path), None), expected);
        assert_eq!(from(None, Some(path.name())), expected);
    }
}

/// All that a receiver can learn of a packet, and where it lies.
fn known(packet: &Packet) -> impl PartialEq + std::fmt::Debug + use<> {
    (
        (
            packet.flags().0,
            packet.packet_type(),
            packet.hash(),
            packet.mark(),
        ),
        (packet.vlan(), packet.outer_vlan(), packet.timestamp()),
        (packet.buffer, packet.offset, packet.command),
        packet.segments().collect::<Vec<_>>(),
    )
}

struct Receiver {
    _bench: QueueParts,
    queue: ReceiveQueue,
    ring: Words,
    held: Vec<Packet>,
}

impl Receiver {
    /// `None`: one by one, the queue that paths are compared with.
    fn new(path: Option<PacketPath>, descriptors: u16, buffers: u32) -> Self {
        let bench = QueueParts::new();
        let chosen = path.or(Some(PacketPath::Scalar));
        let pool = bench.pool(buffers);
        pool.note_device_time(Some(5_000_000_000));
        let (mut queue, ring) = bench.receiver(descriptors, pool, chosen);
        queue.one_by_one = path.is_none();
        Self {
            _bench: bench,
            queue,
            ring,
            held: Vec::new(),
        }
    }

    /// Contents of the ring; addresses count from the pool's first.
    fn contents(&self) -> Vec<u64> {
        let base = self.queue.pool().shared().iova(0);
        let count = self.ring.count();
        let words = (0..count).map(|at| self.ring.load(at).wrapping_sub(base));
        words.collect()
    }

    fn receive(&mut self, limit: usize) -> usize {
        let mut burst = Burst::with_limit(limit);
        let count = self.queue.receive(&mut burst);
        self.held.extend(burst.drain());
        count
    }
}

/// A descriptor: mostly plain, else one of the cases that are not, or any bits.
fn written(random: &mut SmallRng) -> Wrote {
    let mut wrote = Wrote::bytes(random.random_range(1..=2048), true);
    wrote.first = wrote
        .first
        .with_packet_type(random.random_range(0..1024))
        .with_cast(random.random_range(0..4));
    // Bits that a plain descriptor may have in any way.
    wrote.status = wrote
        .status
        .with_hash(random.random::<u32>().into())
        .with_hash_valid(random.random())
        .with_checksums_checked(random.random())
        .with_ip_checksum_error(random.random())
        .with_layer_4_checksum_error(random.random());
    wrote.tags = wrote.tags.with_time_stamp_valid(random.random());
    wrote.flow = WriteBack3(random.random());
    match random.random_range(0..80) {
        0 => wrote.status = wrote.status.with_l2tag1_present(true).with_l2tag1(0x2064),
        1 => wrote.tags = wrote.tags.with_l2tag2_present(true).with_l2tag2_second(7),
        2 => wrote.first = wrote.first.with_bytes(2049),
        3 => wrote.first = wrote.first.with_bytes(0),
        // Bits of the length's word that the field does not use.
        4 => wrote.first = WriteBack0(wrote.first.0 | 1 << random.random_range(46..48)),
        5 => wrote.first = wrote.first.with_profile(random.random_range(0..64)),
        6 => wrote.status = wrote.status.with_end_of_packet(false),
        7 => wrote.status = wrote.status.with_done(false),
        8 => {
            wrote.first = WriteBack0(random.random());
            wrote.status = WriteBack1(random.random());
            wrote.tags = WriteBack2(random.random());
        }
        _ => {}
    }
    wrote
}

fn same_receiver(single: &Receiver, vector: &Receiver, told: &str) {
    assert_eq!(single.queue.counters(), vector.queue.counters(), "{told}");
    assert_eq!(single.queue.cursors(), vector.queue.cursors(), "{told}");
    let (one, other) = (single.held.iter(), vector.held.iter());
    assert!(
        one.map(known).eq(other.map(known)),
        "{told}: packets differ"
    );
    assert_eq!(single.contents(), vector.contents(), "{told}: rings differ");
    let usage = |rig: &Receiver| rig.queue.pool().usage();
    assert_eq!(usage(single), usage(vector), "{told}");
}

#[test]
fn every_path_receives_what_one_by_one_receives_on_random_rings() {
    for path in paths() {
        for seed in 0..60 {
            let mut random = SmallRng::seed_from_u64(seed);
            let descriptors = [64, 96, 256][seed as usize % 3];
            // Some pools run dry.
            let buffers = u32::from(descriptors) + random.random_range(1..200);
            let mut single = Receiver::new(None, descriptors, buffers);
            let mut vector = Receiver::new(Some(path), descriptors, buffers);
            let mut next = 0;
            for step in 0..120 {
                let told = format!("{path}, seed {seed}, step {step}");
                for _ in 0..random.random_range(0..usize::from(descriptors)) {
                    let wrote = written(&mut random);
                    wrote.to(&single.ring, next);
                    wrote.to(&vector.ring, next);
                    next = (next + 1) % usize::from(descriptors);
                }
                let limit = random.random_range(1..=MAX_BURST);
                assert_eq!(single.receive(limit), vector.receive(limit), "{told}");
                same_receiver(&single, &vector, &told);
                let keep = random.random_range(0..=single.held.len());
                single.held.drain(keep..);
                vector.held.drain(keep..);
                // The device overtakes the driver's tail, and goes on where the driver reads.
                next = usize::from(single.queue.cursors().0);
            }
            assert!(single.queue.counters().packets > 0);
        }
    }
}

/// Twenty packets of 60 bytes: all of them, or two groups.
fn expected(path: PacketPath) -> Handled {
    let packets = 20 / path.stride() * path.stride();
    let bytes = packets as u64 * 60;
    Handled { packets, bytes }
}

/// Paths take plain packets: the comparison above would pass without any.
#[test]
fn plain_packets_are_received_by_the_path() {
    for path in paths() {
        let mut rig = Receiver::new(Some(path), 64, 256);
        for at in 0..20 {
            Wrote::bytes(60, true).to(&rig.ring, at);
        }
        let template = Template::of(Packet::empty(
            rig.queue.pool().reference(),
            crate::shared::NO_BUFFER,
            128,
        ));
        let slots: Vec<u32> = (0..64 + 2 * MARGIN as u32).collect();
        let from = Arrivals {
            words: rig.ring.as_slice(),
            slots: &slots,
            template: &template,
            buffer_bytes: 2048,
        };
        let mut packets = ArrayVec::new();
        let handled = receive(path, &from, &mut packets, 60);
        assert_eq!(handled, expected(path), "{path}");
        let buffers = packets.iter().map(|packet: &Packet| packet.buffer);
        let behind_margin = MARGIN as u32..MARGIN as u32 + handled.packets as u32;
        assert!(buffers.eq(behind_margin), "{path}");
        // They name buffers that are in the ring.
        packets.drain(..).for_each(std::mem::forget);
        assert_eq!(rig.receive(64), 20);
    }
}

struct Sender {
    bench: QueueParts,
    queue: TransmitQueue,
    ring: Words,
    pool: PacketPool,
    other: PacketPool,
    burst: Burst,
}

const SEND_RING: u16 = 96;

impl Sender {
    fn new(path: Option<PacketPath>) -> Self {
        let bench = QueueParts::new();
        let (pool, other) = (bench.pool(600), bench.pool(64));
        let chosen = path.or(Some(PacketPath::Scalar));
        let (mut queue, ring) = bench.transmitter(SEND_RING, pool.clone(), chosen);
        queue.one_by_one = path.is_none();
        Self {
            bench,
            queue,
            ring,
            pool,
            other,
            burst: Burst::with_limit(MAX_BURST),
        }
    }

    /// Appends the packet that `random` says; the same for the same numbers.
    fn add(&mut self, mut random: SmallRng) {
        let length = random.random_range(17..2000);
        let mut packet = self.pool.packet_with(&vec![1; length]).unwrap();
        match random.random_range(0..60) {
            0 => drop(packet.share()),
            1 => packet.set_vlan(Some(5)),
            2 => packet.set_outer_vlan(Some(6)),
            3 => packet.truncate(random.random_range(0..17)).unwrap_or(()),
            4 => {
                let more = self.pool.packet_with(&vec![1; length]).unwrap();
                packet.chain(more).unwrap();
            }
            5 => packet = self.other.packet_with(&vec![1; length]).unwrap(),
            6 => {
                let mut frame = vec![0; 60];
                frame[12..16].copy_from_slice(&[8, 0, 0x45, 0]);
                packet = self.pool.packet_with(&frame).unwrap();
                let wanted = TransmitRequest {
                    ip_checksum: true,
                    ..TransmitRequest::default()
                };
                packet.offload(wanted).unwrap();
            }
            7 => packet.prepend(&[2; 14]).unwrap(),
            8 => packet.remove_front(length.min(30) - 17).unwrap(),
            9 => packet = self.pool.packet_with(&vec![1; 9726]).unwrap(),
            _ => {}
        }
        let _ = self.burst.push(packet);
    }

    fn contents(&self) -> Vec<u64> {
        let base = self.pool.shared().iova(0);
        let word = |at: usize| match at % 2 {
            0 => self.ring.load(at).wrapping_sub(base),
            _ => self.ring.load(at),
        };
        (0..self.ring.count()).map(word).collect()
    }

    fn complete(&self) {
        complete(&self.ring);
    }
}

fn same_sender(single: &Sender, vector: &Sender, told: &str) {
    assert_eq!(single.queue.counters(), vector.queue.counters(), "{told}");
    assert_eq!(single.queue.cursors(), vector.queue.cursors(), "{told}");
    assert_eq!(single.contents(), vector.contents(), "{told}: rings differ");
    let buffers = |rig: &Sender| rig.queue.buffers();
    assert_eq!(buffers(single), buffers(vector), "{told}: buffers differ");
    assert_eq!(single.bench.rung(), vector.bench.rung(), "{told}");
    let left = |rig: &Sender| rig.burst.packets().iter().map(known).collect::<Vec<_>>();
    assert!(left(single) == left(vector), "{told}: the rest differs");
    let usage = |rig: &Sender| (rig.pool.usage(), rig.other.usage());
    assert_eq!(usage(single), usage(vector), "{told}");
}

#[test]
fn every_path_sends_what_one_by_one_sends_on_random_bursts() {
    for path in paths() {
        for seed in 0..60 {
            let mut random = SmallRng::seed_from_u64(seed);
            let mut single = Sender::new(None);
            let mut vector = Sender::new(Some(path));
            for step in 0..120 {
                let told = format!("{path}, seed {seed}, step {step}");
                for _ in 0..random.random_range(0..MAX_BURST) {
                    let one = SmallRng::seed_from_u64(random.random());
                    single.add(one.clone());
                    vector.add(one);
                }
                let sent = single.queue.send(&mut single.burst);
                assert_eq!(vector.queue.send(&mut vector.burst), sent, "{told}");
                same_sender(&single, &vector, &told);
                if random.random_ratio(2, 3) {
                    single.complete();
                    vector.complete();
                }
            }
            assert!(single.queue.counters().packets > 0);
            for rig in [&mut single, &mut vector] {
                rig.burst.clear();
                rig.queue.stop().unwrap();
                assert_eq!((rig.pool.usage().in_use, rig.other.usage().in_use), (0, 0));
            }
        }
    }
}

#[test]
fn plain_packets_are_sent_by_the_path() {
    for path in paths() {
        let bench = QueueParts::new();
        let pool = bench.pool(64);
        let packets: Vec<Packet> = (0..20)
            .map(|_| pool.packet_with(&[1; 60]).unwrap())
            .collect();
        let (_memory, ring) = bench.ring(64, 16);
        let empty = Packet::empty(pool.reference(), crate::shared::NO_BUFFER, 128);
        let mut slots = [0; 64];
        let mut to = Departures {
            words: ring.as_slice(),
            slots: &mut slots,
            plain: &Outgoing {
                template: Template::of(empty),
                base: pool.shared().iova(0),
                stride: pool.shared().stride(),
                bytes_max: 1500,
            },
        };
        let handled = send(path, &packets, &mut to, 20);
        assert_eq!(handled, expected(path), "{path}");
    }
}
