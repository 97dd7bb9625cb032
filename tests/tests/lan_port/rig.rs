//! Two devices with a port each, on one switch.

use ringside_lan::{Burst, Packet, PacketPool, ReceiveQueue, TransmitQueue};
use ringside_model::{Stepped, WorldSettings};
use ringside_pmd::Device;
use ringside_pmd::lan::{OpenPort, OpenVsi, PortSettings};
pub(crate) use ringside_testkit::config_without_package as config;
use ringside_testkit::{bring_up, shut_down, world_settings};
use std::time::Duration;

/// Rounds of 10 us that a test waits for packets.
const ROUNDS: usize = 2000;

pub(crate) fn settings() -> PortSettings {
    PortSettings {
        receive_descriptors: 128,
        transmit_descriptors: 128,
        mtu: 9702,
        pool: ringside_lan::PoolSettings {
            buffers: 1024,
            ..Default::default()
        },
        ..PortSettings::default()
    }
}

/// Takes the packets on all these queues: queue and packet.
pub(crate) fn poll(queues: &mut [ReceiveQueue]) -> Vec<(usize, Packet)> {
    let mut found = Vec::new();
    for (number, queue) in queues.iter_mut().enumerate() {
        let mut burst = Burst::with_limit(64);
        queue.receive(&mut burst);
        found.extend(burst.drain().map(|packet| (number, packet)));
    }
    found
}

/// Drops a VSI, and demands each packet handle back.
pub(crate) fn close(open: OpenVsi) {
    let OpenVsi {
        vsi,
        receive,
        transmit,
        pool,
    } = open;
    drop_queues((receive, transmit), &pool);
    assert_eq!(vsi.kept_buffers(), 0);
}

/// Drops queues, and demands each packet handle back.
fn drop_queues(queues: (Vec<ReceiveQueue>, Vec<TransmitQueue>), pool: &PacketPool) {
    drop(queues);
    assert_eq!(pool.usage().in_use, 0, "a packet handle is missing");
}

pub(crate) struct End {
    pub(crate) open: OpenPort,
    pub(crate) device: Device,
}

impl End {
    pub(crate) fn new(world: &Stepped, index: u16, settings: &PortSettings) -> Self {
        let device = bring_up(world, index, &config());
        let open = device
            .open_port(settings)
            .unwrap_or_else(|error| panic!("port {index}: {error}"));
        Self { open, device }
    }

    pub(crate) fn mac(&self) -> [u8; 6] {
        self.open.port.mac()
    }

    pub(crate) fn packet(&self, bytes: &[u8]) -> Packet {
        self.open.pool.packet_with(bytes).expect("buffers")
    }

    /// Sends packets, all of them at once.
    pub(crate) fn send(&mut self, packets: impl IntoIterator<Item = Packet>) {
        let mut burst = Burst::with_limit(64);
        for packet in packets {
            burst.push(packet).expect("no more than a burst");
        }
        let count = burst.len();
        assert_eq!(self.open.transmit[0].send(&mut burst), count);
    }

    /// Takes the packets on all queues: queue and packet.
    pub(crate) fn poll(&mut self) -> Vec<(usize, Packet)> {
        poll(&mut self.open.receive)
    }

    /// Stops everything and demands each packet handle back.
    pub(crate) fn close(self) {
        let Self { open, device } = self;
        let OpenPort {
            port,
            receive,
            transmit,
            pool,
        } = open;
        drop_queues((receive, transmit), &pool);
        drop((port, pool));
        shut_down([device]);
    }
}

pub(crate) struct Rig {
    pub(crate) world: Stepped,
    pub(crate) a: End,
    pub(crate) b: End,
}

impl Rig {
    pub(crate) fn new() -> Self {
        Self::with(&settings(), &settings())
    }

    pub(crate) fn with(a: &PortSettings, b: &PortSettings) -> Self {
        Self::on(&world_settings(2), a, b)
    }

    pub(crate) fn on(world: &WorldSettings, a: &PortSettings, b: &PortSettings) -> Self {
        let world = Stepped::new(world);
        let a = End::new(&world, 0, a);
        let b = End::new(&world, 1, b);
        Self { world, a, b }
    }

    pub(crate) fn pass(&self) {
        self.world.clock().pause(Duration::from_micros(10));
    }

    /// Runs the world until `count` packets have arrived at `b`.
    pub(crate) fn wait_b(&mut self, count: usize) -> Vec<(usize, Packet)> {
        let mut found = Vec::new();
        for _ in 0..ROUNDS {
            found.extend(self.b.poll());
            if found.len() >= count {
                return found;
            }
            self.pass();
        }
        panic!("{count} packets were waited for and {} came", found.len());
    }

    /// Nothing comes to `b` within a millisecond.
    pub(crate) fn silent_b(&mut self) {
        for _ in 0..100 {
            let found = self.b.poll();
            assert!(found.is_empty(), "{found:?}");
            self.pass();
        }
    }

    pub(crate) fn no_breach(&self) {
        for index in [0, 1] {
            let breaches = self.world.with(|world| world.breaches(index));
            assert!(breaches.is_empty(), "{breaches:#?}");
        }
    }

    /// Shuts both down; nothing may be left over, and nothing have been broken.
    pub(crate) fn finish(self) {
        self.no_breach();
        let Self { world, a, b } = self;
        a.close();
        b.close();
        for index in [0, 1] {
            let breaches = world.with(|world| world.breaches(index));
            assert!(breaches.is_empty(), "{breaches:#?}");
        }
    }
}

/// An Ethernet frame without protocol: `bytes` long, its payload a pattern of `seed`.
pub(crate) fn plain_frame(to: [u8; 6], from: [u8; 6], bytes: usize, seed: u8) -> Vec<u8> {
    let mut frame = [to.as_slice(), &from, &[0x88, 0xB5]].concat();
    while frame.len() < bytes {
        frame.push((frame.len() as u8).wrapping_mul(31).wrapping_add(seed));
    }
    frame
}

/// Addresses and ports of a datagram or segment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flow {
    pub(crate) v6: bool,
    pub(crate) protocol: u8,
    pub(crate) ports: (u16, u16),
}

fn addresses(v6: bool) -> Vec<u8> {
    if v6 {
        let one = |last| [0xFD, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last];
        [one(1), one(2)].concat()
    } else {
        vec![10, 0, 0, 1, 10, 0, 0, 2]
    }
}

/// A frame with IP and layer 4 headers; checksums as a sender without offloads would write them.
pub(crate) fn ip_frame(to: [u8; 6], from: [u8; 6], flow: Flow, payload: &[u8]) -> Vec<u8> {
    let (source, destination) = flow.ports;
    let mut segment = [source.to_be_bytes(), destination.to_be_bytes()].concat();
    if flow.protocol == 6 {
        segment.extend([0, 0, 0x10, 0, 0, 0, 0, 1, 0x50, 0x19, 0x40, 0, 0, 0, 0, 0]);
    } else {
        let length = (8 + payload.len()) as u16;
        segment.extend(length.to_be_bytes());
        segment.extend([0, 0]);
    }
    segment.extend(payload);
    let addresses = addresses(flow.v6);
    let sum = checksum(
        &[
            &addresses[..],
            &u32::from(flow.protocol).to_be_bytes(),
            &(segment.len() as u32).to_be_bytes(),
            &segment,
        ]
        .concat(),
    );
    let field = if flow.protocol == 6 { 16 } else { 6 };
    let sum = if sum == 0 { 0xFFFF } else { sum };
    segment[field..field + 2].copy_from_slice(&sum.to_be_bytes());
    let mut frame = [to, from].concat();
    if flow.v6 {
        frame.extend([0x86, 0xDD, 0x60, 0, 0, 0]);
        frame.extend((segment.len() as u16).to_be_bytes());
        frame.extend([flow.protocol, 64]);
        frame.extend(addresses);
    } else {
        let total = (20 + segment.len()) as u16;
        let mut header = vec![0x45, 0];
        header.extend(total.to_be_bytes());
        header.extend([0x12, 0x34, 0x40, 0, 64, flow.protocol, 0, 0]);
        header.extend(addresses);
        let sum = checksum(&header);
        header[10..12].copy_from_slice(&sum.to_be_bytes());
        frame.extend([0x08, 0x00]);
        frame.extend(header);
    }
    frame.extend(segment);
    frame
}

pub(crate) fn checksum(bytes: &[u8]) -> u16 {
    let mut sum = 0u32;
    for pair in bytes.chunks(2) {
        sum += u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
    }
    while sum > 0xFFFF {
        sum = (sum >> 16) + (sum & 0xFFFF);
    }
    !(sum as u16)
}
