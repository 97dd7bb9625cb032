//! Random packets as a driver posts them.

use super::{FUNCTIONS, GROUP, address};
use rand::rngs::SmallRng;
use rand::seq::IndexedRandom;
use rand::{Rng, RngCore};
use ringside_spec::lan::transmit::{ContextCommand, DataCommand, inner_ip, kind, layer_4};

/// The kind of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Any bytes behind the type.
    Raw,
    /// UDP over IPv4, with a checksum or a wrong one.
    Udp,
    /// TCP over IPv6, with a wrong checksum.
    Six,
    /// A datagram to the RDMA engine's port, damaged.
    Roce,
    /// UDP to one of few addresses.
    Steered,
    /// The device finishes the checksums.
    Offloaded,
    /// The device cuts it.
    Segmented,
    /// The descriptors name a destination.
    Directed,
}

impl Kind {
    pub(crate) fn any(random: &mut SmallRng) -> Self {
        let all = [
            Self::Raw,
            Self::Raw,
            Self::Udp,
            Self::Six,
            Self::Roce,
            Self::Steered,
            Self::Steered,
            Self::Offloaded,
            Self::Segmented,
            Self::Directed,
        ];
        all.choose(random).copied().unwrap_or(Self::Raw)
    }
}

/// A packet, its descriptors and the bytes of its buffers but the last.
pub(super) struct Posted {
    pub(super) bytes: Vec<u8>,
    pub(super) command: DataCommand,
    pub(super) context: Option<[u64; 2]>,
    pub(super) cuts: Vec<usize>,
}

fn sum(parts: &[&[u8]]) -> u16 {
    let mut sum = 0u32;
    for part in parts {
        for pair in part.chunks(2) {
            sum += u32::from(pair[0]) << 8 | pair.get(1).map_or(0, |low| u32::from(*low));
        }
    }
    while sum > 0xFFFF {
        sum = (sum & 0xFFFF) + (sum >> 16);
    }
    sum as u16
}

fn ethernet(from: usize, random: &mut SmallRng) -> Vec<u8> {
    let to = match random.random_range(0..12) {
        0 => [0xFF; 6],
        1 => GROUP,
        2 => [2, 9, 9, 9, 9, 9],
        3 => address(from),
        _ => address(random.random_range(0..FUNCTIONS)),
    };
    let source = match random.random_range(0..15) {
        0 => [2, 7, 7, 7, 7, 7],
        _ => address(from),
    };
    let mut bytes = [to, source].concat();
    match random.random_range(0..8) {
        0 => bytes.extend([0x81, 0, 0x20, 5]),
        1 => bytes.extend([0x88, 0xA8, 0, 3, 0x81, 0, 0, 4]),
        _ => {}
    }
    bytes
}

/// UDP over IPv4 with `payload` bytes; `good`: with its checksum, else with the sum that drivers
/// leave to the device, and `long` without the length.
fn udp(port: u16, payload: usize, (good, long): (bool, bool), random: &mut SmallRng) -> Vec<u8> {
    let total = (28 + payload) as u16;
    let mut bytes = vec![8, 0, 0x45, 0];
    bytes.extend(total.to_be_bytes());
    bytes.extend([
        0,
        1,
        0,
        0,
        64,
        17,
        0,
        0,
        10,
        0,
        0,
        random.random_range(1..4),
        10,
        0,
        0,
        2,
    ]);
    let header = !sum(&[&bytes[2..22]]);
    bytes[12..14].copy_from_slice(&header.to_be_bytes());
    bytes.extend([0x10, random.random_range(0..3)]);
    bytes.extend(port.to_be_bytes());
    bytes.extend((total - 20).to_be_bytes());
    bytes.extend([0, 0]);
    bytes.extend((0..payload).map(|at| (at * 7) as u8));
    let length = if long { 0 } else { total - 20 };
    let pseudo = [&[0, 17][..], &length.to_be_bytes()].concat();
    let checksum = if good {
        !sum(&[&bytes[14..22], &pseudo, &bytes[22..]])
    } else {
        sum(&[&bytes[14..22], &pseudo])
    };
    bytes[28..30].copy_from_slice(&checksum.to_be_bytes());
    bytes
}

fn six(payload: usize) -> Vec<u8> {
    let mut bytes = vec![0x86, 0xDD, 0x60, 0, 0, 0];
    bytes.extend(((20 + payload) as u16).to_be_bytes());
    bytes.extend([6, 64]);
    bytes.extend([0xFD; 32]);
    bytes.extend((0..20 + payload).map(|at| at as u8));
    bytes
}

fn size(random: &mut SmallRng) -> usize {
    match random.random_range(0..10) {
        0 => 1,
        1 => random.random_range(2000..9000),
        2..5 => random.random_range(1..1480),
        _ => random.random_range(1..120),
    }
}

fn offloaded(layer_2: usize) -> DataCommand {
    plain()
        .with_inner_ip(inner_ip::V4_CHECKSUM)
        .with_layer_4(layer_4::UDP)
        .with_layer_2_length_2(layer_2 as u64 / 2)
        .with_ip_length_4(5)
        .with_layer_4_length_4(2)
}

fn plain() -> DataCommand {
    DataCommand::ZERO
        .with_end_of_packet(true)
        .with_report_status(true)
}

pub(super) fn random_packet(from: usize, kind: Kind, random: &mut SmallRng) -> Posted {
    let mut bytes = ethernet(from, random);
    let layer_2 = bytes.len() + 2;
    let length = size(random);
    let good = random.random_range(0..4) > 0;
    let (mut command, mut context) = (plain(), None);
    match kind {
        Kind::Raw => {
            bytes.extend([[0x12, 0x34], [8, 6], [0x88, 0xCC]][random.random_range(0..3)]);
            let payload = bytes.len()..bytes.len() + length.max(3);
            bytes.extend(payload.map(|at| (at % 251) as u8));
        }
        Kind::Udp => bytes.extend(udp(9, length, (good, false), random)),
        Kind::Six => bytes.extend(six(length)),
        Kind::Roce => bytes.extend(udp(4791, length, (true, false), random)),
        Kind::Steered => bytes.extend(udp(7, 40, (true, false), random)),
        Kind::Offloaded => {
            bytes.extend(udp(9, length, (false, false), random));
            command = offloaded(layer_2);
        }
        Kind::Segmented => {
            let length = length + 3000;
            bytes.extend(udp(9, length, (false, true), random));
            command = offloaded(layer_2);
            let said = length + usize::from(random.random_range(0..8) == 0);
            let cut = ContextCommand::ZERO
                .with_kind(kind::CONTEXT)
                .with_segmentation(true)
                .with_payload_bytes(said as u64)
                .with_segment_bytes(1000);
            context = Some([0, cut.0]);
        }
        Kind::Directed => {
            bytes.extend(udp(9, length, (good, false), random));
            let to = ContextCommand::ZERO
                .with_kind(kind::CONTEXT)
                .with_destination(random.random_range(0..3));
            context = Some([0, to.0]);
        }
    }
    if random.random_range(0..8) == 0 {
        command = command.with_insert_l2tag1(true).with_l2tag1(0x6007);
    }
    if random.random_range(0..6) == 0 {
        command = command.with_report_status(false);
    }
    let cuts = match random.next_u32() % 5 {
        0 if bytes.len() > 60 => vec![15, random.random_range(1..20)],
        _ => Vec::new(),
    };
    Posted {
        bytes,
        command,
        context,
        cuts,
    }
}
