//! The frames on the wire between two drivers on the model: every byte of it, judged without the
//! engine's own packet code.

mod outside;
mod short;

use ringside_bus::Instant;
use ringside_model::packet::pcap::PcapWriter;
use ringside_model::{Fault, Stepped, WorldSettings};
use ringside_pmd::rdma::{Flags, Status};
use ringside_testkit::{Bed, End, Pair, config};
use std::io::Write;
use std::process::Command;
use std::sync::{Arc, Mutex};

const ETHERNET_BYTES: usize = 14;
const UDP_BYTES: usize = 8;
const CHECK_BYTES: usize = 4;

/// A frame as the tap saw it.
#[derive(Clone)]
struct Seen {
    port: usize,
    bytes: Vec<u8>,
}

fn pair(frames_as_bytes: bool) -> (Pair, Arc<Mutex<Vec<Seen>>>) {
    let settings = WorldSettings {
        frames_as_bytes,
        ..WorldSettings::with_functions(2)
    };
    let world = Bed::Stepped(Stepped::new(&settings));
    let seen = Arc::new(Mutex::new(Vec::new()));
    let into = Arc::clone(&seen);
    world.with(|world| {
        world
            .switch()
            .set_tap(Some(Box::new(move |_at, port, bytes| {
                let bytes = bytes.to_vec();
                into.lock().unwrap().push(Seen { port, bytes });
            })));
    });
    let (a, b) = (
        End::new(&world, 0, &config()),
        End::new(&world, 1, &config()),
    );
    (Pair { world, a, b }, seen)
}

/// CRC-32 of Ethernet, a bit at a time. Source: IEEE 802.3, 3.2.9.
fn crc32(bytes: impl Iterator<Item = u8>) -> u32 {
    let mut crc = u32::MAX;
    for byte in bytes {
        crc ^= u32::from(byte);
        for _ in 0..8 {
            let low = crc & 1;
            crc >>= 1;
            if low != 0 {
                crc ^= 0xEDB8_8320;
            }
        }
    }
    !crc
}

/// The invariant CRC of a RoCEv2 frame, from its bytes alone.
/// Source: InfiniBand Architecture Specification, annex A17.3.3.
fn invariant_crc(frame: &[u8]) -> u32 {
    let mut covered = frame[ETHERNET_BYTES..frame.len() - CHECK_BYTES].to_vec();
    let ip_bytes = match covered[0] >> 4 {
        4 => {
            // type of service, time to live, checksum
            for at in [1, 8, 10, 11] {
                covered[at] = 0xFF;
            }
            20
        }
        _ => {
            // traffic class and flow label, hop limit
            covered[0] |= 0x0F;
            for at in [1, 2, 3, 7] {
                covered[at] = 0xFF;
            }
            40
        }
    };
    // UDP checksum; FECN, BECN and reserved bits of the transport header
    for at in [ip_bytes + 6, ip_bytes + 7, ip_bytes + UDP_BYTES + 4] {
        covered[at] = 0xFF;
    }
    crc32([0xFF; 8].into_iter().chain(covered))
}

/// Performs every operation in several sizes from `a` to `b`, and compares the data.
fn traffic(pair: &mut Pair) {
    let length = 20_000;
    let (from, to) = (pair.a.region(length), pair.b.region(length));
    let (mut a, mut b) = pair.connect(|config| config);
    let data: Vec<u8> = (0..length).map(|at| (at * 7 + at / 251) as u8).collect();
    assert!(from.write(0, &data));
    for (id, size) in [0, 1, 3, 8, 128, 129, 1024, 4096, 4097, length]
        .into_iter()
        .enumerate()
    {
        let id = id as u64;
        let part = from.slice(0..size).unwrap();
        assert!(to.write(0, &vec![0; length]));
        a.write(id, &[part], to.remote().at(0), Flags::SIGNALLED)
            .unwrap();
        a.ring();
        assert_eq!(
            pair.wait_a(1)[0].status(),
            Status::Success,
            "write of {size}"
        );
        let mut arrived = vec![0; size];
        assert!(to.read(0, &mut arrived));
        assert!(arrived == data[..size], "write of {size}");
        b.receive(id, &[to.slice(0..length).unwrap()]).unwrap();
        let part = from.slice(0..size).unwrap();
        a.send(id, &[part], Flags::SIGNALLED).unwrap();
        a.ring();
        assert_eq!(
            pair.wait_a(1)[0].status(),
            Status::Success,
            "send of {size}"
        );
        assert_eq!(pair.wait_b(1)[0].byte_length() as usize, size);
    }
    assert!(to.write(0, &data));
    assert!(from.write(0, &vec![0; length]));
    a.read(
        99,
        &[from.slice(0..length).unwrap()],
        to.remote().at(0),
        Flags::SIGNALLED,
    )
    .unwrap();
    a.ring();
    assert_eq!(pair.wait_a(1)[0].status(), Status::Success);
    let mut arrived = vec![0; length];
    assert!(from.read(0, &mut arrived));
    assert!(arrived == data, "read");
    drop((a, b, from, to));
}

#[test]
fn every_frame_carries_the_crc_that_an_independent_witness_computes() {
    let (mut pair, seen) = pair(false);
    traffic(&mut pair);
    pair.finish();
    let seen = seen.lock().unwrap().clone();
    assert!(seen.len() > 40, "{} frames", seen.len());
    assert!(seen.iter().any(|frame| frame.port == 0) && seen.iter().any(|frame| frame.port == 1));
    for (number, frame) in seen.iter().enumerate() {
        let bytes = &frame.bytes;
        let at = bytes.len() - CHECK_BYTES;
        let carried = u32::from_le_bytes(bytes[at..].try_into().unwrap());
        assert_eq!(
            carried,
            invariant_crc(bytes),
            "frame {number}: {bytes:02x?}"
        );
    }
}

#[test]
fn traffic_through_bytes_is_the_same_as_traffic_by_reference() {
    let frames = |as_bytes| {
        let (mut pair, seen) = pair(as_bytes);
        traffic(&mut pair);
        assert_eq!(
            pair.world.with(|world| world.switch().counters()).malformed,
            0
        );
        pair.finish();
        seen.lock().unwrap().len()
    };
    assert_eq!(frames(true), frames(false));
}

#[test]
fn lost_frames_cost_time_and_nothing_else() {
    let (mut pair, _seen) = pair(true);
    let fault = Fault::DropFrames {
        per_million: 50_000,
        seed: 0x1057,
    };
    pair.world.with(|world| world.inject(0, fault));
    println!("{fault:?}");
    traffic(&mut pair);
    assert!(pair.world.with(|world| world.switch().counters()).dropped > 0);
    pair.finish();
}

#[test]
fn a_world_is_repeated_exactly_from_its_seed() {
    let run = || {
        let (mut pair, seen) = pair(true);
        let fault = Fault::DropFrames {
            per_million: 20_000,
            seed: 7,
        };
        pair.world.with(|world| world.inject(0, fault));
        traffic(&mut pair);
        let counters = pair.world.with(|world| world.switch().counters());
        pair.finish();
        let count = seen.lock().unwrap().len();
        (counters, count)
    };
    assert_eq!(run(), run());
}

#[test]
fn tshark_names_every_frame_and_finds_none_malformed() {
    if Command::new("tshark").arg("--version").output().is_err() {
        assert!(std::env::var_os("CI").is_none(), "CI needs tshark");
        println!("skipped: tshark is not installed (apt-get install tshark)");
        return;
    }
    let (mut pair, seen) = pair(false);
    traffic(&mut pair);
    pair.finish();
    let seen = seen.lock().unwrap().clone();
    let mut writer = PcapWriter::new(Vec::new()).unwrap();
    for frame in &seen {
        writer.write_frame(Instant(0), &frame.bytes).unwrap();
    }
    let mut file = tempfile::Builder::new().suffix(".pcap").tempfile().unwrap();
    file.write_all(&writer.finish().unwrap()).unwrap();
    let fields = ["infiniband.bth.opcode", "_ws.malformed", "frame.protocols"];
    let mut command = Command::new("tshark");
    command
        .arg("-r")
        .arg(file.path())
        .args(["-T", "fields", "-E", "separator=;"]);
    // tshark guesses the content of a send, and interprets short ones as remote procedure calls
    command.args(["--disable-protocol", "rpcordma"]);
    for field in fields {
        command.args(["-e", field]);
    }
    let output = command.output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(
        text.lines().count(),
        seen.len(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    for (number, line) in text.lines().enumerate() {
        let [opcode, malformed, protocols] = line.split(';').collect::<Vec<_>>()[..] else {
            panic!("frame {number}: {line}");
        };
        assert!(
            !opcode.is_empty() && malformed.is_empty(),
            "frame {number}: {line}"
        );
        assert!(protocols.contains("infiniband"), "frame {number}: {line}");
    }
}
