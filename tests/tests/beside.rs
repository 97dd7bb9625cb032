//! Packets and RDMA on one function at the same time, each on a thread of its own: neither loses,
//! changes or reorders anything, and the packet path allocates nothing.

use ringside_lan::Burst;
use ringside_pmd::lan::{OpenPort, PortSettings};
use ringside_pmd::rdma::{Completion, Flags};
use ringside_testkit::{
    ConnectedEnd, bring_up_all, config_without_package, connect, shut_down, threaded,
};
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(60);
/// Packets each way.
const PACKETS: u32 = 6_000;
/// Packets under way.
const WINDOW: u32 = 64;
const WRITES: u64 = 1_500;
const FRAME_BYTES: usize = 200;

fn settings() -> PortSettings {
    PortSettings {
        receive_descriptors: 256,
        transmit_descriptors: 256,
        ..PortSettings::default()
    }
}

/// Header of a frame from one port to another.
fn header(from: &OpenPort, to: &OpenPort) -> [u8; 14] {
    let mut header = [0; 14];
    header[..6].copy_from_slice(&to.port.mac());
    header[6..12].copy_from_slice(&from.port.mac());
    header[12..].copy_from_slice(&0x88B5u16.to_be_bytes());
    header
}

/// The byte of a packet's number at a place.
fn byte(number: u32, place: usize) -> u8 {
    (number as usize * 7 + place) as u8
}

/// Sends numbered packets from the first port to the second, which checks order and bytes.
fn exchange_packets(from: &mut OpenPort, to: &mut OpenPort, begin: Instant) {
    let header = header(from, to);
    let mut frame = [0; FRAME_BYTES];
    frame[..14].copy_from_slice(&header);
    let (mut outgoing, mut incoming) = (Burst::with_limit(32), Burst::with_limit(32));
    let (mut sent, mut received) = (0, 0);
    while received < PACKETS {
        while sent < PACKETS && sent - received < WINDOW && outgoing.room() > 0 {
            frame[14..18].copy_from_slice(&sent.to_be_bytes());
            for (place, value) in frame.iter_mut().enumerate().skip(18) {
                *value = byte(sent, place);
            }
            let Some(packet) = from.pool.packet_with(&frame) else {
                break;
            };
            outgoing.push(packet).expect("there is room");
            sent += 1;
        }
        from.transmit[0].send(&mut outgoing);
        to.receive[0].receive(&mut incoming);
        for packet in incoming.drain() {
            let bytes = packet.bytes();
            // Others on the wire speak, too.
            if bytes[12..14] != header[12..] {
                continue;
            }
            assert_eq!(bytes.len(), FRAME_BYTES);
            assert_eq!(bytes[14..18], received.to_be_bytes(), "order");
            let is_right = |(place, value): (usize, &u8)| *value == byte(received, place);
            assert!(
                bytes.iter().enumerate().skip(18).all(is_right),
                "{received}"
            );
            received += 1;
        }
        assert!(begin.elapsed() < LIMIT, "sent {sent}, received {received}");
    }
}

/// Writes into the other end's region, each write waited for and read there.
fn exchange_writes(from: &mut ConnectedEnd, to: &ConnectedEnd, begin: Instant) {
    let piece = [from.source.slice(0..1024).expect("a slice")];
    let target = to.target.remote().at(0);
    let mut batch = [Completion::EMPTY; 4];
    let mut arrived = [0; 1024];
    for id in 0..WRITES {
        let data = [id as u8; 1024];
        assert!(from.source.write(0, &data));
        from.queue_pair
            .write(id, &piece, target, Flags::SIGNALLED)
            .expect("room");
        from.queue_pair.ring();
        while from.completions.poll(&mut batch).is_empty() {
            assert!(begin.elapsed() < LIMIT, "write {id}");
        }
        assert_eq!((batch[0].id, batch[0].is_success()), (id, true));
        assert!(to.target.read(0, &mut arrived));
        assert_eq!(arrived, data, "write {id}");
    }
}

#[test]
fn packets_and_writes_of_one_function_on_two_threads_do_not_disturb_each_other() {
    let model = threaded();
    let devices: [_; 2] = bring_up_all(|index| model.function(index), &config_without_package());
    let open = |index: usize| devices[index].open_port(&settings()).expect("a port");
    let (mut left, mut right) = (open(0), open(1));
    let [mut from, to] = connect(devices.each_ref(), 4096, |config| config);
    let begin = Instant::now();
    // Allocations of the first packets are not counted.
    exchange_packets(&mut left, &mut right, begin);
    let counted = std::thread::scope(|scope| {
        let packets = scope.spawn(|| {
            allocation_counter::measure(|| exchange_packets(&mut right, &mut left, begin))
        });
        exchange_writes(&mut from, &to, begin);
        packets.join().expect("packets")
    });
    // Two bursts are made at the start of the exchange.
    assert!(counted.count_total <= 2, "{counted:?}");
    for port in [left, right] {
        let OpenPort {
            port,
            receive,
            transmit,
            pool,
        } = port;
        drop((receive, transmit));
        assert_eq!(pool.usage().in_use, 0, "a packet handle is missing");
        drop((port, pool));
    }
    drop((from, to));
    for index in 0..2 {
        let breaches = model.with(move |world| world.breaches(index)).unwrap();
        assert!(breaches.is_empty(), "{breaches:#?}");
    }
    shut_down(devices);
}
