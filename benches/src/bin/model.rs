//! The cost of the model: instructions of its steps, for callgrind, and times beside a thread of
//! it.
//!
//! Counted, driver and model in one thread (`measured_step` is what callgrind counts):
//! `writes COUNT`, `bursts COUNT` (32 at a time), `long-writes COUNT` (1 MiB), `idle COUNT`,
//! `many COUNT QUEUE_PAIRS` (one write in flight over them in turn), `packets BYTES COUNT` (from
//! port to port, in bursts of 32). Timed, driver on core 0 and model on core 1:
//! `time latency|rate|long ROUNDS`, `time packets BYTES COUNT` (from port to port).

use ringside_benches::CHAIN;
use ringside_benches::connected::{End, Result, connect, devices, placement, shut_down};
use ringside_bus::pinning::pin_to;
use ringside_lan::{Burst, Packet};
use ringside_model::{Stepped, Threaded, World, WorldSettings};
use ringside_pmd::lan::{OpenPort, PortSettings};
use ringside_pmd::rdma::{Completion, Flags};
use std::time::{Duration, Instant};

/// Bytes of a long write.
const LONG: usize = 1 << 20;

/// Memory of each end: a source or target of long writes.
const REGION: usize = 4 << 20;

/// A write that has not completed after this many steps counts as lost.
const MAX_STEPS: u32 = 10_000;

/// Parts of a timed run; the median is printed.
const PARTS: usize = 20;

/// One step of the model, in which functions send and receive.
#[inline(never)]
fn measured_step(world: &mut World) -> bool {
    world.step(ringside_bus::Instant(0))
}

/// Posts `count` writes of `length` bytes on one queue pair, rings once and lets the model run
/// until they are complete. Returns the steps that it took.
fn write(
    model: &Stepped,
    ends: &mut [End; 2],
    which: usize,
    length: usize,
    count: usize,
) -> Result<u32> {
    let [near, far] = ends;
    let piece = [near.region.slice(0..length)?];
    let remote = far.region.remote().at(0);
    let queue_pair = near.queue_pairs.get_mut(which).ok_or("no queue pair")?;
    for id in 0..count {
        queue_pair.write(id as u64, &piece, remote, Flags::SIGNALLED)?;
    }
    queue_pair.ring();
    let mut batch = [Completion::EMPTY; CHAIN];
    let (mut done, mut steps) = (0, 0);
    while done < count {
        model.with(measured_step);
        steps += 1;
        let taken = near.completions.poll(&mut batch);
        if !taken.iter().all(Completion::is_success) || steps > MAX_STEPS {
            return Err("a write failed".into());
        }
        done += taken.len();
    }
    Ok(steps)
}

/// Runs a counted case; prints steps a write.
fn counted(case: &str, count: usize, queue_pairs: usize) -> Result<()> {
    let model = Stepped::with_mapped_doorbells(&WorldSettings::with_functions(2))?;
    let devices = devices(|index| model.function(index), queue_pairs);
    let mut ends = connect(&devices, queue_pairs, REGION)?;
    let (length, chain) = match case {
        "long-writes" => (LONG, 1),
        "bursts" => (8, CHAIN),
        _ => (8, 1),
    };
    let mut steps = 0;
    if case == "idle" {
        for _ in 0..count {
            model.with(measured_step);
        }
    } else {
        for round in 0..count.div_ceil(chain) {
            steps += write(&model, &mut ends, round % queue_pairs, length, chain)?;
        }
    }
    println!("{:.2}", f64::from(steps) / count as f64);
    drop(ends);
    shut_down(devices)
}

/// Sends `count` packets of `bytes` bytes from port to port, a burst at a time, and lets the model
/// run until they have arrived; prints steps a packet.
fn counted_packets(bytes: usize, count: usize) -> Result<()> {
    let model = Stepped::with_mapped_doorbells(&WorldSettings::with_functions(2))?;
    let devices = devices(|index| model.function(index), 1);
    let [near, far] = &devices;
    let settings = PortSettings::default();
    let mut ports = [near.open_port(&settings)?, far.open_port(&settings)?];
    let mut frame = Frames::between(&mut ports, bytes)?;
    let [near, far] = &mut ports;
    let send = near.transmit.first_mut().ok_or("no transmit queue")?;
    let receive = far.receive.first_mut().ok_or("no receive queue")?;
    let (mut leaving, mut arrived) = (Burst::with_limit(CHAIN), Burst::with_limit(CHAIN));
    let (mut received, mut steps) = (0, 0u32);
    while received < count {
        frame.fill(&mut leaving, CHAIN.min(count - received))?;
        let mut under_way = send.send(&mut leaving);
        let until = steps + MAX_STEPS;
        while under_way > 0 {
            model.with(measured_step);
            steps += 1;
            let taken = receive.receive(&mut arrived);
            arrived.clear();
            under_way -= taken;
            received += taken;
            if steps > until {
                return Err("packets were lost".into());
            }
        }
    }
    println!("{:.2}", f64::from(steps) / count as f64);
    drop(frame);
    drop(ports);
    shut_down(devices)
}

/// The packet that is sent again and again.
struct Frames(Packet);

impl Frames {
    /// A packet of `bytes` bytes from the first port to the second.
    fn between(ports: &mut [OpenPort; 2], bytes: usize) -> Result<Self> {
        let [near, far] = ports;
        let header = [&far.port.mac()[..], &near.port.mac(), &ETHER_TYPE].concat();
        let mut frame = vec![0; bytes.max(header.len())];
        for (byte, value) in frame.iter_mut().zip(header) {
            *byte = value;
        }
        let packet = near.pool.packet_with(&frame).ok_or("the pool is empty")?;
        Ok(Self(packet))
    }

    /// Puts `count` handles to it into a burst.
    fn fill(&mut self, burst: &mut Burst, count: usize) -> Result<()> {
        for _ in 0..count {
            let packet = burst.push(self.0.share());
            packet.map_err(|_| "a burst without room")?;
        }
        Ok(())
    }
}

/// Packets under way at most: fewer than the receive ring holds, so that none is dropped.
const PACKETS_UNDER_WAY: usize = 512;
/// Kind of a packet for experiments. Source: IEEE 802, local experimental EtherType 1.
const ETHER_TYPE: [u8; 2] = [0x88, 0xB5];

fn median(mut parts: Vec<f64>) -> f64 {
    parts.sort_by(f64::total_cmp);
    parts.get(parts.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Writes `count` messages of `length` bytes with `in_flight` of them under way; seconds taken.
fn stream(ends: &mut [End; 2], length: usize, in_flight: usize, count: usize) -> Result<f64> {
    let [near, far] = ends;
    let piece = [near.region.slice(0..length)?];
    let remote = far.region.remote().at(0);
    let queue_pair = near.queue_pairs.first_mut().ok_or("no queue pair")?;
    let mut batch = [Completion::EMPTY; CHAIN];
    let (mut posted, mut done) = (0, 0);
    let began = Instant::now();
    while done < count {
        let room = (in_flight - (posted - done)).min(count - posted);
        if room >= in_flight.div_ceil(4) || room == count - posted && room > 0 {
            for _ in 0..room {
                queue_pair.write(posted as u64, &piece, remote, Flags::SIGNALLED)?;
                posted += 1;
            }
            queue_pair.ring();
        }
        let taken = near.completions.poll(&mut batch);
        if !taken.iter().all(Completion::is_success) {
            return Err("a write failed".into());
        }
        done += taken.len();
        if taken.is_empty() && began.elapsed() > Duration::from_secs(60) {
            return Err("the model has stopped".into());
        }
    }
    Ok(began.elapsed().as_secs_f64())
}

/// Writes 8 bytes there and back `rounds` times; each side polls its memory. Returns the seconds
/// taken.
fn ping_pong(ends: &mut [End; 2], count: usize) -> Result<f64> {
    let [near, far] = ends;
    let mut batch = [Completion::EMPTY; CHAIN];
    let began = Instant::now();
    for round in 0..count {
        for turn in [true, false] {
            let (from, to) = if turn {
                (&mut *near, &mut *far)
            } else {
                (&mut *far, &mut *near)
            };
            let mark = (round as u64 + 1).to_le_bytes();
            // The bytes at 64 leave, and arrive at 0.
            if !from.region.write(64, &mark) {
                return Err("the region is too small".into());
            }
            let piece = [from.region.slice(64..72)?];
            let remote = to.region.remote().at(0);
            let queue_pair = from.queue_pairs.first_mut().ok_or("no queue pair")?;
            queue_pair.write(0, &piece, remote, Flags::SIGNALLED)?;
            queue_pair.ring();
            let mut seen = [0; 8];
            let mut looks = 0u64;
            while seen != mark {
                if !to.region.read(0, &mut seen) {
                    return Err("the region is too small".into());
                }
                looks += 1;
                if looks.is_multiple_of(1 << 20) && began.elapsed() > Duration::from_secs(60) {
                    return Err("the model has stopped".into());
                }
            }
            from.completions.poll(&mut batch);
        }
    }
    Ok(began.elapsed().as_secs_f64())
}

/// Sends `count` packets of this many bytes (no frame check sequence) from one port to the other,
/// on this thread; seconds taken.
fn send_packets(ports: &mut [OpenPort; 2], bytes: usize, count: usize) -> Result<f64> {
    let mut frame = Frames::between(ports, bytes)?;
    let [near, far] = ports;
    let send = near.transmit.first_mut().ok_or("no transmit queue")?;
    let receive = far.receive.first_mut().ok_or("no receive queue")?;
    let (mut leaving, mut arrived) = (Burst::with_limit(CHAIN), Burst::with_limit(CHAIN));
    let (mut sent, mut received) = (0, 0);
    let began = Instant::now();
    while received < count {
        let under_way = sent - received + leaving.len();
        let room = (PACKETS_UNDER_WAY - under_way).min(count - sent - leaving.len());
        let room = room.min(leaving.room());
        frame.fill(&mut leaving, room)?;
        sent += send.send(&mut leaving);
        let taken = receive.receive(&mut arrived);
        arrived.clear();
        received += taken;
        if taken == 0 && began.elapsed() > Duration::from_secs(60) {
            return Err("packets were lost, or the model has stopped".into());
        }
    }
    Ok(began.elapsed().as_secs_f64())
}

/// Times packets of this many bytes from port to port; prints the probe and the median.
fn timed_packets(bytes: usize, count: usize) -> Result<()> {
    let placement = placement()?;
    let model = Threaded::start(&WorldSettings::with_functions(2), Some(1))?;
    pin_to(0)?;
    let devices = devices(|index| model.function(index), 1);
    let [near, far] = &devices;
    let settings = PortSettings::default();
    let mut ports = [near.open_port(&settings)?, far.open_port(&settings)?];
    let part = count / PARTS;
    let mut parts = Vec::with_capacity(PARTS);
    for index in 0..=PARTS {
        let seconds = send_packets(&mut ports, bytes, part)?;
        if index > 0 {
            parts.push(part as f64 / seconds / 1e6);
        }
    }
    let rate = median(parts);
    println!(
        "{rate:.3} million/s, {:.2} Gbit/s ({placement})",
        rate * bytes as f64 * 8.0 / 1e3
    );
    drop(ports);
    shut_down(devices)
}

/// Runs a timed case; prints the probe and the median.
fn timed(case: &str, rounds: usize) -> Result<()> {
    let placement = placement()?;
    let model = Threaded::start(&WorldSettings::with_functions(2), Some(1))?;
    // After the model's thread has started: a thread inherits the cores of its creator.
    pin_to(0)?;
    let devices = devices(|index| model.function(index), 1);
    let mut ends = connect(&devices, 1, REGION)?;
    let part = rounds / PARTS;
    let mut parts = Vec::with_capacity(PARTS);
    for index in 0..=PARTS {
        let figure = match case {
            "latency" => ping_pong(&mut ends, part)? * 1e6 / part as f64 / 2.0,
            "rate" => part as f64 / stream(&mut ends, 8, 48, part)? / 1e6,
            "long" => (part * LONG) as f64 / stream(&mut ends, LONG, 8, part)? / 1e9,
            other => return Err(format!("no case {other}: latency, rate, long").into()),
        };
        if index > 0 {
            parts.push(figure);
        }
    }
    let unit = match case {
        "latency" => "us",
        "rate" => "million/s",
        _ => "GB/s",
    };
    println!("{:.3} {unit} ({placement})", median(parts));
    drop(ends);
    shut_down(devices)
}

fn main() -> Result<()> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let words: Vec<_> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["time", "packets", bytes, count] => timed_packets(bytes.parse()?, count.parse()?),
        ["time", case, rounds] => timed(case, rounds.parse()?),
        ["packets", bytes, count] => counted_packets(bytes.parse()?, count.parse()?),
        ["many", count, queue_pairs] => counted("many", count.parse()?, queue_pairs.parse()?),
        [case @ ("writes" | "bursts" | "long-writes" | "idle"), count] => {
            counted(case, count.parse()?, 1)
        }
        _ => Err(
            "usage: model writes|bursts|long-writes|idle COUNT | model many COUNT \
            QUEUE_PAIRS | model packets BYTES COUNT | model time latency|rate|long ROUNDS | model time packets BYTES COUNT"
                .into(),
        ),
    }
}
