//! Queues against what DPDK's ice driver makes of the same descriptors and packets:
//! `tests/vectors/lan_data.json`, kinds `rx_burst` and `tx_burst`.

use crate::testing::{QueueParts, received as drained, sent};
use crate::{Packet, PacketPath, PacketPool, TransmitQueue, TransmitRequest};
use ringside_bus::Words;
use ringside_spec::lan::receive::{Status0, profile};
use ringside_spec::lan::transmit::{ContextCommand, DataCommand, kind};
use serde_json::Value;

const VECTORS: &str = include_str!("../../tests/vectors/lan_data.json");

fn vectors(kind: &str) -> Vec<Value> {
    let all: Vec<Value> = serde_json::from_str(VECTORS).unwrap();
    let vectors: Vec<_> = all.into_iter().filter(|one| one["kind"] == kind).collect();
    vectors
}

/// Little-endian words of a hexadecimal text.
fn words(text: &Value) -> Vec<u64> {
    let digits = text.as_str().unwrap().as_bytes();
    let word = |digits: &[u8]| {
        let text = std::str::from_utf8(digits).unwrap();
        u64::from_str_radix(text, 16).unwrap().swap_bytes()
    };
    digits.chunks(16).map(word).collect()
}

fn number(of: &Value, key: &str) -> u64 {
    of[key].as_u64().unwrap_or(0)
}

/// DPDK's flags of a received packet (`rte_mbuf_core.h`).
mod flag {
    pub(super) const VLAN: u64 = 1 << 0;
    pub(super) const HASH: u64 = 1 << 1;
    pub(super) const LAYER_4_WRONG: u64 = 1 << 3;
    pub(super) const IP_WRONG: u64 = 1 << 4;
    pub(super) const OUTER_IP_WRONG: u64 = 1 << 5;
    pub(super) const IP_GOOD: u64 = 1 << 7;
    pub(super) const MARK: u64 = 1 << 13;
    pub(super) const TWO_TAGS: u64 = 1 << 20;
}

/// DPDK's default layout has hash and flow id exchanged: that of the queues here is the other.
fn as_nic_profile(descriptor: &[u64]) -> [u64; 4] {
    let [first, status, tags, flow] = *descriptor.first_chunk().unwrap();
    assert_eq!(first as u8, profile::OPEN_VSWITCH);
    let low = 0xFFFF_FFFF;
    [
        first & !0xFF | u64::from(profile::NIC),
        status & low | flow << 32,
        tags,
        flow & !low | status >> 32,
    ]
}

fn received(vector: &Value, path: PacketPath) -> Vec<Packet> {
    let bench = QueueParts::new();
    let (mut queue, ring) = bench.receiver(64, bench.pool(128), Some(path));
    let descriptors = words(&vector["input"]["descriptors"]);
    for (at, descriptor) in descriptors.chunks(4).enumerate() {
        for (word, value) in as_nic_profile(descriptor).into_iter().enumerate() {
            ring.store_release(at * 4 + word, value);
        }
    }
    drained(&mut queue)
}

/// Compares the fields that both decoders fill in. DPDK's plain vector loops decode lengths alone,
/// and its other vector loops do not look at the bit that says that checksums were looked at, nor
/// at the second tag. DPDK shows the checksum of an outer header by itself, and has a verdict on
/// IPv6 with extension headers, which Linux has not.
fn same(packet: &Packet, theirs: &Value, decoder: &str, told: &str) {
    let lengths = (packet.length() as u64, packet.segment_count() as u64);
    let expected = (number(theirs, "pkt_len"), number(theirs, "segments"));
    assert_eq!(lengths, expected, "{told}");
    if decoder == "avx2" {
        return;
    }
    let (flags, ours) = (number(theirs, "flags"), packet.flags());
    let hash = (flags & flag::HASH != 0).then_some(number(theirs, "rss"));
    assert_eq!(packet.hash().map(u64::from), hash, "{told}: hash");
    let mark = (flags & flag::MARK != 0).then_some(number(theirs, "fdir_id"));
    assert_eq!(packet.mark().map(u64::from), mark, "{told}: mark");
    if ours.checksums_checked() || matches!(decoder, "scalar" | "scattered" | "bulk") {
        let good = flags & flag::IP_GOOD != 0;
        let wrong = |bit| flags & bit != 0;
        let ip_wrong = wrong(flag::IP_WRONG) || wrong(flag::OUTER_IP_WRONG);
        assert_eq!(ours.ip_checksum_wrong(), ip_wrong, "{told}");
        let layer_4 = ours.layer_4_checksum_wrong();
        assert_eq!(layer_4, wrong(flag::LAYER_4_WRONG), "{told}");
        let has_extension = Status0(packet.written.status_0.get()).ipv6_extension();
        let checked = (good || wrong(flag::IP_WRONG)) && !has_extension;
        assert_eq!(ours.checksums_checked(), checked, "{told}: looked at");
    }
    if matches!(decoder, "scalar" | "scattered" | "bulk") {
        let tag = (flags & flag::VLAN != 0).then_some(number(theirs, "vlan_tci"));
        assert_eq!(packet.vlan().map(u64::from), tag, "{told}: tag");
        let outer = (flags & flag::TWO_TAGS != 0).then_some(number(theirs, "vlan_tci_outer"));
        assert_eq!(
            packet.outer_vlan().map(u64::from),
            outer,
            "{told}: outer tag"
        );
    }
}

#[test]
fn received_packets_are_those_that_dpdk_makes_of_the_same_descriptors() {
    let (mut used, mut kept_check_sequence) = (0, 0);
    for vector in vectors("rx_burst") {
        let name = vector["name"].as_str().unwrap();
        if number(&vector["input"], "crc_length") != 0 {
            // Queues here have the device remove the check sequence, always.
            kept_check_sequence += 1;
            continue;
        }
        let decoder = name.split('.').nth(1).unwrap();
        let theirs = vector["decoded"]["packets"].as_array().unwrap();
        for path in PacketPath::ALL.into_iter().filter(|one| one.is_available()) {
            let told = format!("{name}, path {path}");
            let ours = received(&vector, path);
            // DPDK's AVX2 loops leave an odd last packet for the next poll.
            let odd = usize::from(decoder.starts_with("avx2") && name.ends_with("five_done"));
            assert_eq!(ours.len(), theirs.len() + odd, "{told}");
            for (packet, theirs) in ours.iter().zip(theirs) {
                same(packet, theirs, decoder, &told);
            }
        }
        used += 1;
    }
    assert_eq!((used, kept_check_sequence), (38, 1));
}

struct Sender {
    queue: TransmitQueue,
    ring: Words,
    pool: PacketPool,
    // Last: its memory goes when nothing uses it.
    _bench: QueueParts,
}

impl Sender {
    fn new(path: PacketPath) -> Self {
        let bench = QueueParts::new();
        let pool = bench.pool(128);
        let (queue, ring) = bench.transmitter(64, pool.clone(), Some(path));
        Self {
            queue,
            ring,
            pool,
            _bench: bench,
        }
    }

    /// The words of the descriptors that a burst takes.
    fn descriptors(&mut self, packets: Vec<Packet>, count: usize) -> Vec<u64> {
        let all = packets.len();
        assert_eq!(sent(&mut self.queue, packets).0, all);
        (0..count * 2).map(|at| self.ring.load(at)).collect()
    }
}

/// A frame with the headers that a vector names.
fn frame(input: &Value, flags: &str, length: usize) -> Vec<u8> {
    let (layer_2, layer_3) = (number(input, "l2") as usize, number(input, "l3") as usize);
    // Two vectors name options of TCP beyond their packets: without segmentation the device does
    // not need that length.
    let room = length.saturating_sub(layer_2 + layer_3);
    let layer_4 = (number(input, "l4") as usize).min(room / 4 * 4);
    let mut frame = vec![0; length];
    if layer_2 == 0 {
        return frame;
    }
    let v6 = flags.contains("ipv6");
    let kind: u16 = if v6 { 0x86DD } else { 0x0800 };
    if layer_2 == 18 {
        frame[12..14].copy_from_slice(&0x8100u16.to_be_bytes());
    }
    frame[layer_2 - 2..layer_2].copy_from_slice(&kind.to_be_bytes());
    let protocol = ["tcp", "udp", "sctp"]
        .iter()
        .position(|one| flags.contains(one));
    let protocol = protocol.map_or(1, |at| [6, 17, 132][at]);
    let rest = (length - layer_2) as u16;
    let ip = &mut frame[layer_2..];
    if v6 {
        ip[0] = 0x60;
        ip[4..6].copy_from_slice(&(rest - 40).to_be_bytes());
        ip[6] = protocol;
    } else {
        ip[0] = 0x40 | (layer_3 / 4) as u8;
        ip[2..4].copy_from_slice(&rest.to_be_bytes());
        ip[9] = protocol;
    }
    if protocol == 6 {
        ip[layer_3 + 12] = ((layer_4 / 4) as u8) << 4;
    }
    frame
}

fn request(input: &Value, flags: &str) -> TransmitRequest {
    let cut = flags.contains("segmentation");
    TransmitRequest {
        ip_checksum: flags.contains("ip checksum"),
        layer_4_checksum: cut || ["tcp", "udp", "sctp"].iter().any(|one| flags.contains(one)),
        segment_bytes: cut.then(|| number(input, "mss") as u16),
    }
}

/// The packet of a vector; none if this driver has no such request.
fn packet(pool: &PacketPool, input: &Value) -> Option<Packet> {
    let flags = input["flags"].as_str().unwrap();
    let other = ["outer", "timestamp"].iter().any(|one| flags.contains(one));
    // A buffer of 40000 bytes, which no pool here has.
    if other || number(input, "length") > 9728 {
        return None;
    }
    let lengths: Vec<usize> = match input["lengths"].as_array() {
        Some(all) => all
            .iter()
            .map(|one| one.as_u64().unwrap() as usize)
            .collect(),
        None => vec![number(input, "length") as usize],
    };
    let bytes = frame(input, flags, lengths.iter().sum());
    let mut rest = bytes.as_slice();
    let mut whole: Option<Packet> = None;
    for length in lengths {
        let (piece, after) = rest.split_at(length);
        rest = after;
        let mut one = pool.packet().unwrap();
        one.append(piece).unwrap();
        match &mut whole {
            None => whole = Some(one),
            Some(whole) => whole.chain(one).unwrap(),
        }
    }
    let mut packet = whole.unwrap();
    packet.offload(request(input, flags)).unwrap();
    if flags.contains("vlan") {
        packet.set_vlan(Some(number(input, "vlan_tci") as u16));
    }
    if flags.contains("qinq") {
        packet.set_outer_vlan(Some(number(input, "vlan_tci_outer") as u16));
    }
    Some(packet)
}

/// Takes out of a command what the drivers choose freely: reports, and without segmentation the
/// lengths of headers, which DPDK writes as zero or the least where the device does not need them.
fn fixed(words: &[u64]) -> Vec<u64> {
    let mut cut = false;
    let fixed = |pair: &[u64]| {
        let command = DataCommand(pair[1]);
        if command.kind() == kind::CONTEXT {
            cut = ContextCommand(pair[1]).segmentation();
            return vec![pair[0], pair[1]];
        }
        let command = command.with_report_status(false);
        match cut {
            true => vec![command.0],
            false => vec![command.with_layer_4_length_4(0).0],
        }
    };
    words.chunks(2).flat_map(fixed).collect()
}

#[test]
fn descriptors_of_sent_packets_are_those_of_dpdk() {
    let mut refused = Vec::new();
    let mut used = 0;
    for vector in vectors("tx_burst") {
        let (name, input) = (vector["name"].as_str().unwrap(), &vector["input"]);
        if name.starts_with("tx.burst") {
            continue;
        }
        let theirs = words(&vector["descriptors"]);
        for path in PacketPath::ALL.into_iter().filter(|one| one.is_available()) {
            let mut sender = Sender::new(path);
            let Some(packet) = packet(&sender.pool, input) else {
                refused.push(name.to_owned());
                break;
            };
            let ours = sender.descriptors(vec![packet], theirs.len() / 2);
            assert_eq!(fixed(&ours), fixed(&theirs), "{name}, path {path}");
        }
        used += 1;
    }
    // Requests that this driver does not make: tunnels, time stamps, one buffer of 40000 bytes.
    let expected = [
        "tx.tso_40000_in_one_buffer",
        "tx.vxlan_ipv4_ipv4_tcp",
        "tx.vxlan_ipv4_no_outer_checksum_ipv6_udp",
        "tx.vxlan_ipv6_outer_udp_checksum",
        "tx.gre_ipv4_udp",
        "tx.ipip",
        "tx.vxlan_tso",
        "tx.timestamp",
    ];
    assert_eq!(refused, expected);
    assert_eq!(used, 25);
}

#[test]
fn a_burst_of_forty_asks_for_reports_where_dpdk_does_and_at_its_end() {
    for vector in vectors("tx_burst") {
        let name = vector["name"].as_str().unwrap();
        // The other burst mixes offloads; `descriptors_of_sent_packets_are_those_of_dpdk` has them.
        if !name.starts_with("tx.burst") || name.ends_with("offload") {
            continue;
        }
        let theirs = words(&vector["descriptors"]);
        for path in PacketPath::ALL.into_iter().filter(|one| one.is_available()) {
            let mut sender = Sender::new(path);
            let packets = (60..100).map(|length| sender.pool.packet_with(&vec![0; length]));
            let packets = packets.map(Option::unwrap).collect();
            let mut ours = sender.descriptors(packets, 40);
            let last = DataCommand(ours[79]);
            assert!(last.report_status(), "{name}, path {path}");
            ours[79] = last.with_report_status(false).0;
            let commands =
                |words: &[u64]| -> Vec<u64> { words.chunks(2).map(|pair| pair[1]).collect() };
            assert_eq!(commands(&ours), commands(&theirs), "{name}, path {path}");
        }
    }
}
