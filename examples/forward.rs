//! Forwards packets: a port receives, a burst gets another destination, the port sends it on.
//!
//! SOURCE sends to MIDDLE, which forwards everything to SINK.
//!
//! Run: `cargo run -p ringside-nic --example forward -- [SOURCE MIDDLE SINK]`
//!
//! They are addresses of devices on one network, such as `0000:3b:00.0` or
//! `vfio-user:/run/e810.sock`; default `model:0`, `model:1` and `model:2`.

use ringside::driver::lan::{OpenPort, PortSettings};
use ringside::lan::Burst;
use ringside::prelude::*;
use std::time::{Duration, Instant};

type Error = Box<dyn std::error::Error>;

const PACKETS: u32 = 10_000;
const BURST: usize = 32;
/// Bytes of a packet: Ethernet, a number, and padding.
const BYTES: usize = 128;
/// Kind of a packet for experiments. Source: IEEE 802, local experimental EtherType 1.
const ETHER_TYPE: [u8; 2] = [0x88, 0xB5];
const LIMIT: Duration = Duration::from_secs(20);

/// Sends packets with ascending numbers; true while there are more.
fn generate(port: &mut OpenPort, to: [u8; 6], next: &mut u32) -> Result<(), Error> {
    let mut burst = Burst::with_limit(BURST);
    let from = port.port.mac();
    let mut number = *next;
    while burst.room() > 0 && number < PACKETS {
        let mut bytes = [0; BYTES];
        bytes[..6].copy_from_slice(&to);
        bytes[6..12].copy_from_slice(&from);
        bytes[12..14].copy_from_slice(&ETHER_TYPE);
        bytes[14..18].copy_from_slice(&number.to_be_bytes());
        let Some(packet) = port.pool.packet_with(&bytes) else {
            break;
        };
        burst.push(packet).map_err(|_| "a burst without room")?;
        number += 1;
    }
    // Packets that the ring has no room for stay in the burst, and are made again next time.
    let queue = port.transmit.first_mut().ok_or("no transmit queue")?;
    *next += queue.send(&mut burst) as u32;
    Ok(())
}

/// Moves what has arrived on to `to`; returns how many packets.
fn forward(port: &mut OpenPort, burst: &mut Burst, to: [u8; 6]) -> Result<usize, Error> {
    let from = port.port.mac();
    let receive = port.receive.first_mut().ok_or("no receive queue")?;
    receive.receive(burst);
    burst.retain(|packet| {
        // Packets that other handles share are not written to.
        let Some(bytes) = packet.bytes_mut().filter(|bytes| bytes.len() >= 14) else {
            return false;
        };
        bytes[..6].copy_from_slice(&to);
        bytes[6..12].copy_from_slice(&from);
        true
    });
    let transmit = port.transmit.first_mut().ok_or("no transmit queue")?;
    // The rest stays in the burst until the ring has room.
    Ok(transmit.send(burst))
}

/// Checks what has arrived: every number in order.
fn check(port: &mut OpenPort, from: [u8; 6], expected: &mut u32) -> Result<(), Error> {
    let mut burst = Burst::with_limit(BURST);
    let receive = port.receive.first_mut().ok_or("no receive queue")?;
    receive.receive(&mut burst);
    for packet in burst.drain() {
        let bytes = packet.to_vec();
        if bytes.get(12..14) != Some(&ETHER_TYPE) {
            continue;
        }
        let number = bytes.get(14..18).and_then(|four| four.try_into().ok());
        let number = u32::from_be_bytes(number.ok_or("a short packet")?);
        if number != *expected || bytes.get(6..12) != Some(&from) {
            return Err(format!("packet {number} arrived where {expected} was next").into());
        }
        *expected += 1;
    }
    Ok(())
}

fn main() -> Result<(), Error> {
    let mut config = Config::default();
    config.model.functions = 3;
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let address = |index: usize, default| arguments.get(index).map_or(default, String::as_str);
    let addresses = [
        address(0, "model:0"),
        address(1, "model:1"),
        address(2, "model:2"),
    ];
    let [source, middle, sink] = addresses.map(|address| ringside::open(address, &config));
    let (source, middle, sink) = (source?, middle?, sink?);
    let settings = PortSettings::default();
    let mut first = source.driver().open_port(&settings)?;
    let mut second = middle.driver().open_port(&settings)?;
    let mut third = sink.driver().open_port(&settings)?;
    let (relay, target) = (second.port.mac(), third.port.mac());

    let began = Instant::now();
    let (mut next, mut arrived, mut forwarded) = (0, 0, 0);
    let mut burst = Burst::with_limit(BURST);
    while arrived < PACKETS {
        // Never more under way than the rings hold, so that none is lost.
        if next - arrived < 256 {
            generate(&mut first, relay, &mut next)?;
        }
        forwarded += forward(&mut second, &mut burst, target)?;
        check(&mut third, relay, &mut arrived)?;
        if began.elapsed() > LIMIT {
            return Err(
                format!("{next} sent, {forwarded} forwarded, {arrived} arrived in 20 s").into(),
            );
        }
    }
    println!(
        "{forwarded} packets forwarded in order in {:?}",
        began.elapsed()
    );
    Ok(())
}
