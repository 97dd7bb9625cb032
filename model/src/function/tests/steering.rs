//! The flow director and the hash, set up with the commands and registers that DPDK's encoders
//! made, programmed with its descriptors and packets, and judged by where frames arrive.

mod classes;

use super::*;
use crate::device::Request;
use crate::firmware::tests::scheduling::branch;
use crate::firmware::tests::switching::add_mac_rule;
use ringside_bus::Instant;
use ringside_spec::lan::admin::generic::{RequestResource, resource};
use ringside_spec::lan::admin::package::{DownloadPackage, LAST_BUFFER};
use ringside_spec::lan::admin::rss::{RssKeyCommand, RssTableCommand, RssVsi};
use ringside_spec::lan::admin::scheduler::Element;
use ringside_spec::lan::admin::switch::{AllocateResource, Resource};
use ringside_spec::lan::admin::vsi::{
    ClassMapping, FlowDirectorOptions, QueueOptionRss, VsiCommand, VsiNumber, VsiProperties,
    VsiSections, rss,
};
use ringside_spec::lan::admin::{
    Opcode,
    queues::{AddTransmitQueues, TransmitQueue, TransmitQueueGroup},
};
use ringside_spec::lan::receive::{NicDescriptor, ReceiveContext, Status0, profile};
use ringside_spec::lan::registers::{filters, queues as registers, statistics};
use ringside_spec::lan::transmit::{DataCommand, TransmitContext, owner};
use serde_json::Value;
use zerocopy::{FromBytes, IntoBytes};

/// Numbers that the recordings were made with.
const MAIN: u16 = 5;
const CONTROL: u16 = 6;
/// Receive queues of the main VSI; the control VSI has queue 0.
const QUEUES: u16 = 8;

const BASE: u64 = 0x20_0000;
const BYTES: usize = 128 << 10;
const TRANSMIT_RING: usize = 0;
const PACKET: usize = 0x1000;
const RINGS: usize = 0x2000;
const BUFFERS: usize = 0x8000;
const BUFFER_BYTES: usize = 256;
const OFFERED: usize = 16;
const OWN: [u8; 6] = [2, 0xE8, 0x10, 0, 0, 1];
const KEY: [u8; 52] = {
    let mut key = [0; 52];
    let mut at = 0;
    while at < 52 {
        key[at] = (at * 37 + 11) as u8;
        at += 1;
    }
    key
};

/// A vector by the beginning of its name.
fn vector(name: &str) -> Value {
    let vectors = include_str!("../../../../tests/vectors/lan_filters.json");
    let vectors: Vec<Value> = serde_json::from_str(vectors).unwrap();
    let named = |vector: &Value| vector["name"].as_str().unwrap().starts_with(name);
    let found = vectors.into_iter().find(named);
    found.unwrap_or_else(|| panic!("no vector {name}"))
}

/// The bytes of a vector.
fn bytes_of(name: &str) -> Vec<u8> {
    hex(vector(name)["bytes"].as_str().unwrap())
}

fn hex(text: &str) -> Vec<u8> {
    let bytes = (0..text.len()).step_by(2);
    bytes
        .map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap())
        .collect()
}

struct Steering {
    client: Client,
    memory: Memory,
    port: usize,
    tail: usize,
    reports: usize,
    taken: [usize; QUEUES as usize],
}

/// A frame that arrived: queue counted from the VSI's first, hash, flow id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Arrived {
    queue: usize,
    hash: Option<u32>,
    flow: u32,
}

fn add_vsi(client: &mut Client, number: u16, first: u16, count_log2: u16, options: u16) {
    let mut properties = VsiProperties {
        switch_id: 1,
        flow_director_options: options.into(),
        ..VsiProperties::zeroed()
    };
    properties.queue_mapping[0] = first.into();
    properties.queue_mapping[1] = (1u16 << count_log2).into();
    let class = ClassMapping::ZERO.with_count_log2(count_log2);
    properties.class_mapping[0] = class.0.into();
    let wanted = VsiNumber::ZERO.with_number(number).with_valid(true);
    let asked = VsiCommand {
        number: wanted.0.into(),
        vsi_flags: ringside_spec::lan::admin::vsi::kind::PHYSICAL_FUNCTION.into(),
        ..VsiCommand::zeroed()
    };
    client
        .give(Opcode::AddVsi, &asked, properties.as_bytes())
        .ok();
}

impl Steering {
    fn new() -> Self {
        let mut client = Client::ready();
        let memory = Memory::allocate(BYTES, PageSize::FourKiB, None).unwrap();
        let access = DmaAccess::ReadWrite;
        let mapped = client
            .function
            .map_dma(Iova(BASE), &memory, 0..BYTES, access);
        mapped.unwrap();
        let enable = FlowDirectorOptions::ZERO.with_enable(true).0;
        let program = FlowDirectorOptions::ZERO.with_program(true).0;
        add_vsi(&mut client, MAIN, 1, 3, enable);
        add_vsi(&mut client, CONTROL, 0, 0, program);
        add_mac_rule(&mut client, MAIN, OWN);
        let port = client.world.with(|world| world.switch().add_port());
        let mut new = Self {
            client,
            memory,
            port,
            tail: 0,
            reports: 0,
            taken: [0; QUEUES as usize],
        };
        new.add_transmit_queue();
        for queue in 0..=QUEUES {
            new.enable_receive_queue(queue);
        }
        new.take_all_resources();
        new.set_groups();
        new
    }

    fn add_transmit_queue(&mut self) {
        let parent = *branch(&mut self.client).last().unwrap();
        let context = TransmitContext {
            base_in_128_bytes: (BASE + TRANSMIT_RING as u64) >> 7,
            ring_length: 64,
            vsi: CONTROL,
            owner: owner::PHYSICAL_FUNCTION,
            ..TransmitContext::zeroed()
        };
        let group = TransmitQueueGroup {
            parent: parent.into(),
            count: 1,
            reserved: [0; 3],
        };
        let queue = TransmitQueue {
            context: context.encode(),
            element: Element::unlimited(),
            ..TransmitQueue::zeroed()
        };
        let bytes = [group.as_bytes(), queue.as_bytes()].concat();
        let one = AddTransmitQueues {
            group_count: 1,
            ..AddTransmitQueues::zeroed()
        };
        self.client
            .give(Opcode::AddTransmitQueues, &one, &bytes)
            .ok();
    }

    /// Queue 0 as DPDK makes its control queue: legacy descriptors, no buffers.
    fn enable_receive_queue(&mut self, queue: u16) {
        let ring = RINGS + usize::from(queue) * 2048;
        let context = ReceiveContext {
            base_in_128_bytes: (BASE + ring as u64) >> 7,
            ring_length: 64,
            data_buffer_in_128_bytes: (BUFFER_BYTES / 128) as u8,
            descriptors_of_32_bytes: true,
            strip_crc: true,
            frame_bytes_max: BUFFER_BYTES as u16,
            ..ReceiveContext::zeroed()
        };
        let client = &self.client;
        let number = u32::from(queue);
        for (dword, value) in (0..).zip(context.dwords()) {
            client.write(registers::RECEIVE_QUEUE_CONTEXT.at(dword, number), value);
        }
        let kind = if queue == 0 {
            profile::LEGACY_32
        } else {
            profile::NIC
        };
        let kind = registers::DescriptorProfile::ZERO.with_profile(kind.into());
        client.write(registers::RECEIVE_QUEUE_PROFILE.at(number), kind.0);
        if queue > 0 {
            for index in 0..OFFERED {
                let buffer = BASE + buffer(queue, index) as u64;
                assert!(self.memory.write(ring + index * 32, &buffer.to_le_bytes()));
            }
        }
        let tail = if queue == 0 { 63 } else { OFFERED as u32 };
        client.write(registers::RECEIVE_QUEUE_TAIL.at(number), tail);
        let on = registers::ReceiveQueueControl::ZERO.with_enable_request(true);
        client.write(registers::RECEIVE_QUEUE_CONTROL.at(number), on.0);
    }

    /// So that the recordings may give any of them back.
    fn take_all_resources(&mut self) {
        let one = AllocateResource {
            entry_count: 1.into(),
            ..AllocateResource::zeroed()
        };
        for (kind, count) in [
            (Resource::FlowDirectorTcam, 512u16),
            (Resource::HashTcam, 512),
            (Resource::FlowDirectorProfile, 128),
            (Resource::HashProfile, 128),
        ] {
            let mut list = kind.code().to_le_bytes().to_vec();
            list.extend(count.to_le_bytes());
            list.resize(4 + 2 * usize::from(count), 0);
            self.client.give(Opcode::AllocateResource, &one, &list).ok();
        }
        self.take_entries(1024);
    }

    /// Guaranteed entries: an amount, and one element.
    fn take_entries(&mut self, amount: u16) {
        let one = AllocateResource {
            entry_count: 1.into(),
            ..AllocateResource::zeroed()
        };
        let mut list = Resource::FlowDirectorGuaranteed
            .code()
            .to_le_bytes()
            .to_vec();
        list.extend(amount.to_le_bytes());
        list.extend([0, 0]);
        self.client.give(Opcode::AllocateResource, &one, &list).ok();
    }

    /// The groups of packet types that the encoders were given.
    fn set_groups(&mut self) {
        let mut groups = [14u8; 154];
        groups[1..12].fill(1);
        for (kind, group) in [(22, 2), (23, 3), (24, 4), (26, 5), (27, 6), (28, 7)] {
            groups[kind] = group;
        }
        for (kind, group) in [(88, 8), (89, 9), (90, 10), (92, 11), (93, 12), (94, 13)] {
            groups[kind] = group;
        }
        for section in [32u32, 42] {
            let mut buffer = vec![1, 0, 0, 0];
            buffer.extend(section.to_le_bytes());
            buffer.extend([12, 0]);
            buffer.extend((4 + groups.len() as u16).to_le_bytes());
            buffer.extend((groups.len() as u16).to_le_bytes());
            buffer.extend([0, 0]);
            buffer.extend(groups);
            let end = (buffer.len() as u16).to_le_bytes();
            buffer[2..4].copy_from_slice(&end);
            self.update(&buffer);
        }
    }

    fn update(&mut self, buffer: &[u8]) {
        let lock = RequestResource {
            resource: resource::CHANGE_LOCK.into(),
            access: 2.into(),
            timeout_ms: 1000.into(),
            ..RequestResource::zeroed()
        };
        self.client.direct(Opcode::RequestResource, &lock).ok();
        let last = DownloadPackage {
            flags: LAST_BUFFER,
            ..DownloadPackage::zeroed()
        };
        self.client.give(Opcode::UpdatePackage, &last, buffer).ok();
        self.client.direct(Opcode::ReleaseResource, &lock).ok();
    }

    /// Sends the commands and writes the registers of a recording.
    fn replay(&mut self, name: &str) {
        let vector = vector(name);
        for step in vector["commands"].as_array().unwrap() {
            let buffer = hex(step["buffer"].as_str().unwrap_or_default());
            match (step["opcode"].as_u64(), step["register"].as_u64()) {
                (_, Some(register)) => {
                    let value = step["value"].as_u64().unwrap();
                    self.client.write(register, value as u32);
                }
                (Some(0x0C42), _) => self.update(&buffer),
                (Some(0x0209), _) => {
                    let one = AllocateResource {
                        entry_count: 1.into(),
                        ..AllocateResource::zeroed()
                    };
                    self.client.give(Opcode::FreeResource, &one, &buffer).ok();
                }
                other => panic!("{name}: {other:x?}"),
            }
        }
    }

    /// Programs with a descriptor and a packet; the second word of the report, if there is one.
    fn program(&mut self, descriptor: &str, packet: &str) -> Option<u64> {
        let filter = bytes_of(&format!("fdir_desc.{descriptor}"));
        self.program_raw(&filter, packet)
    }

    fn program_raw(&mut self, filter: &[u8], packet: &str) -> Option<u64> {
        let mut bytes = bytes_of(&format!("fdir_packet.{packet}"));
        bytes.resize(512, 0);
        assert!(self.memory.write(PACKET, &bytes));
        let command = DataCommand::ZERO
            .with_end_of_packet(true)
            .with_report_status(true)
            .with_dummy(true)
            .with_buffer_bytes(512);
        let data = [BASE + PACKET as u64, command.0];
        let place = TRANSMIT_RING + 16 * self.tail;
        assert!(self.memory.write(place, filter));
        assert!(self.memory.write(place + 16, data.as_bytes()));
        self.tail += 2;
        let doorbell = registers::TRANSMIT_QUEUE_DOORBELL.at(0);
        self.client.write(doorbell, self.tail as u32);
        self.client.pass(Duration::from_micros(10));
        let mut done = [0; 8];
        assert!(self.memory.read(place + 24, &mut done));
        assert_eq!(u64::from_le_bytes(done), DataCommand::DONE.0);
        let mut word = [0; 8];
        assert!(self.memory.read(RINGS + self.reports * 32 + 8, &mut word));
        let word = u64::from_le_bytes(word);
        self.reports += usize::from(word != 0);
        (word != 0).then_some(word)
    }

    /// A frame from the wire, and where it arrives.
    fn come_in(&mut self, frame: &[u8]) -> Option<Arrived> {
        let port = self.port;
        self.client.world.with(|world| {
            world.switch().inject_frame(port, frame).unwrap();
        });
        self.client.pass(Duration::from_micros(10));
        let mut found = None;
        for queue in 0..usize::from(QUEUES) {
            let place = RINGS + (queue + 1) * 2048 + self.taken[queue] * 32;
            let mut bytes = [0; 32];
            assert!(self.memory.read(place, &mut bytes));
            let written = NicDescriptor::read_from_bytes(&bytes).unwrap();
            let status = Status0(written.status_0.get());
            if self.taken[queue] < OFFERED && bytes[0] == profile::NIC && status.done() {
                self.taken[queue] += 1;
                assert_eq!(found, None, "one frame, two queues");
                found = Some(Arrived {
                    queue,
                    hash: status.hash_valid().then_some(written.hash.get()),
                    flow: written.flow_id.get(),
                });
            }
        }
        found
    }

    fn spread(&mut self) {
        let vsi = RssVsi::ZERO.with_number(MAIN).with_valid(true).0;
        let key = RssKeyCommand {
            vsi: vsi.into(),
            ..RssKeyCommand::zeroed()
        };
        self.client.give(Opcode::SetRssKey, &key, &KEY).ok();
        let table = RssTableCommand {
            vsi: vsi.into(),
            ..RssTableCommand::zeroed()
        };
        let entries: Vec<u8> = (0..64).map(|entry| entry % 8).collect();
        self.client.give(Opcode::SetRssTable, &table, &entries).ok();
    }

    fn no_breach(&self) {
        assert_eq!(self.client.breach_names(), [""; 0]);
    }
}

fn buffer(queue: u16, index: usize) -> usize {
    BUFFERS + (usize::from(queue - 1) * OFFERED + index) * BUFFER_BYTES
}

/// A frame to the function, of IPv4 from 10.0.0.1 to 10.0.0.2.
fn v4(protocol: u8, from: u16, to: u16) -> Vec<u8> {
    between([10, 0, 0, 1], [10, 0, 0, 2], protocol, from, to)
}

fn between(source: [u8; 4], destination: [u8; 4], protocol: u8, from: u16, to: u16) -> Vec<u8> {
    let mut frame = OWN.to_vec();
    frame.extend([
        2, 9, 9, 9, 9, 9, 8, 0, 0x45, 0, 0, 46, 0, 0, 0x40, 0, 64, protocol, 0, 0,
    ]);
    frame.extend(source);
    frame.extend(destination);
    frame.extend(from.to_be_bytes());
    frame.extend(to.to_be_bytes());
    frame.resize(60, 0);
    frame
}

/// A UDP datagram over IPv6 from 2001:db8::1 to 2001:db8::2.
fn v6(from: u16, to: u16) -> Vec<u8> {
    let mut frame = OWN.to_vec();
    frame.extend([2, 9, 9, 9, 9, 9, 0x86, 0xDD, 0x60, 0, 0, 0, 0, 8, 17, 64]);
    for last in [1, 2] {
        frame.extend([0x20, 1, 0x0D, 0xB8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last]);
    }
    frame.extend(from.to_be_bytes());
    frame.extend(to.to_be_bytes());
    frame.extend([0, 8, 0, 0]);
    frame
}

/// The hash by another hand: bit by bit over the key as one number.
fn toeplitz(input: &[u8]) -> u32 {
    let bit = |at: usize| u32::from(KEY[at / 8] >> (7 - at % 8) & 1);
    let mut hash = 0;
    for at in 0..input.len() * 8 {
        if input[at / 8] >> (7 - at % 8) & 1 != 0 {
            hash ^= (0..32).fold(0, |window, next| window << 1 | bit(at + next));
        }
    }
    hash
}

const UDP: u8 = 17;
const TCP: u8 = 6;
const ADDED: u64 = 1;
const REMOVED: u64 = 3;

#[test]
fn a_filter_steers_its_packets_until_it_is_removed() {
    let mut steering = Steering::new();
    steering.replay("fdir_profile.1");
    let queue = |steering: &mut Steering, port| {
        let arrived = steering.come_in(&v4(UDP, 7, port));
        arrived.map(|arrived| arrived.queue)
    };
    assert_eq!(queue(&mut steering, 0x2222), Some(0));
    assert_eq!(steering.program("queue_2", "ipv4_udp"), Some(ADDED));
    assert_eq!(queue(&mut steering, 0x2222), Some(2));
    assert_eq!(queue(&mut steering, 0x2223), Some(0), "another port");
    let tcp = steering.come_in(&v4(TCP, 7, 0x2222)).unwrap();
    assert_eq!((tcp.queue, tcp.flow), (0, u32::MAX), "another protocol");
    let in_use = filters::VSI_FLOW_DIRECTOR_COUNT.at(MAIN.into());
    assert_eq!(steering.client.read(in_use), 1);
    assert_eq!(
        steering.program("queue_2_remove", "ipv4_udp"),
        Some(REMOVED)
    );
    assert_eq!(queue(&mut steering, 0x2222), Some(0));
    assert_eq!(steering.client.read(in_use), 0);
    // There is none any more.
    assert_eq!(
        steering.program("queue_2_remove", "ipv4_udp"),
        Some(REMOVED | 0x10)
    );
    steering.no_breach();
}

#[test]
fn filters_drop_mark_count_and_choose_groups() {
    let mut steering = Steering::new();
    steering.replay("fdir_profile.1");
    let wanted = v4(UDP, 7, 0x2222);
    assert_eq!(steering.program("drop", "ipv4_udp"), Some(ADDED));
    assert_eq!(steering.come_in(&wanted), None);
    assert!(steering.come_in(&v4(UDP, 7, 8)).is_some());
    // The same key again: what it does is replaced.
    assert_eq!(
        steering.program("queue_3_mark_count", "ipv4_udp"),
        Some(ADDED)
    );
    let arrived = steering.come_in(&wanted).unwrap();
    assert_eq!((arrived.queue, arrived.flow), (3, 0x1234));
    let [low, high] = [
        statistics::FLOW_DIRECTOR_MATCHES.at(257),
        statistics::FLOW_DIRECTOR_MATCHES_HIGH.at(257),
    ];
    steering.come_in(&wanted).unwrap();
    assert_eq!(
        (steering.client.read(low), steering.client.read(high)),
        (2, 0)
    );
    steering.client.write(high, 0);
    steering.client.write(low, 0);
    assert_eq!(steering.client.read(low), 0);
    // Marked only: the hash chooses the queue.
    assert_eq!(steering.program("passthru_mark", "ipv4_udp"), Some(ADDED));
    let arrived = steering.come_in(&wanted).unwrap();
    assert_eq!((arrived.queue, arrived.flow), (0, 0x1234));
    // Four queues from the fourth on, by the hash.
    steering.spread();
    steering.replay("rss.01");
    steering.program("queue_group_4_to_7", "ipv4_udp");
    let arrived = steering.come_in(&wanted).unwrap();
    let hash = toeplitz(&wanted[26..34]);
    assert_eq!(arrived.hash, Some(hash));
    assert_eq!(arrived.queue, 4 + (hash & 3) as usize);
    steering.no_breach();
}

#[test]
fn linux_hears_of_failures_only() {
    let mut steering = Steering::new();
    let descriptor = "as_linux_ethtool_queue_2_location_7";
    let failed = steering.program(descriptor, "ipv4_udp");
    assert_eq!(failed, Some(0x31), "no profile yet");
    steering.replay("fdir_profile.1");
    assert_eq!(steering.program(descriptor, "ipv4_udp"), None);
    let arrived = steering.come_in(&v4(UDP, 7, 0x2222)).unwrap();
    assert_eq!((arrived.queue, arrived.flow), (2, 7));
    let counter = statistics::FLOW_DIRECTOR_MATCHES.at(0);
    assert_eq!(steering.client.read(counter), 1);
    let dropped = "as_linux_ethtool_drop_location_7";
    assert_eq!(steering.program(dropped, "ipv4_udp"), None);
    assert_eq!(steering.come_in(&v4(UDP, 7, 0x2222)), None);
    steering.no_breach();
}

#[test]
fn keys_are_of_the_words_that_their_profile_names() {
    let mut steering = Steering::new();
    for profile in ["fdir_profile.1", "fdir_profile.2", "fdir_profile.3"] {
        steering.replay(profile);
    }
    assert_eq!(steering.program("queue_2", "ipv4_tcp"), Some(ADDED));
    let queue = |steering: &mut Steering, frame: &[u8]| steering.come_in(frame).unwrap().queue;
    assert_eq!(queue(&mut steering, &v4(TCP, 0x1111, 0x2222)), 2);
    for other in [
        v4(TCP, 0x1112, 0x2222),
        v4(TCP, 0x1111, 0x2223),
        between([10, 0, 0, 3], [10, 0, 0, 2], TCP, 0x1111, 0x2222),
        between([10, 0, 0, 1], [10, 0, 0, 3], TCP, 0x1111, 0x2222),
        v4(UDP, 0x1111, 0x2222),
    ] {
        assert_eq!(queue(&mut steering, &other), 0);
    }
    // Destination address and source port.
    assert_eq!(steering.program("queue_3_mark", "ipv6_udp"), Some(ADDED));
    assert_eq!(queue(&mut steering, &v6(0x1111, 1)), 3);
    assert_eq!(queue(&mut steering, &v6(0x1111, 2)), 3);
    assert_eq!(queue(&mut steering, &v6(0x1112, 1)), 0);
    // Source address and protocol, of which the other half of its word does not count.
    steering.replay("fdir_profile.4");
    assert_eq!(steering.program("queue_2", "ipv4_other"), Some(ADDED));
    let mut other = v4(47, 0, 0);
    assert_eq!(queue(&mut steering, &other), 2);
    other[22] = 17;
    assert_eq!(queue(&mut steering, &other), 2, "time to live");
    other[23] = 50;
    assert_eq!(queue(&mut steering, &other), 0, "protocol");
    steering.no_breach();
}

#[test]
fn filters_that_cannot_be_are_failures_and_breaches() {
    let mut steering = Steering::new();
    steering.replay("fdir_profile.1");
    let queue_2 = bytes_of("fdir_desc.queue_2");
    type Change = fn(&mut Vec<u8>);
    let cases: [(&str, Change); 3] = [
        ("filter to queues that its VSI does not have", |bytes| {
            bytes[0] = 8
        }),
        ("filter for a VSI that does not exist", |bytes| {
            bytes[9] |= 0x80
        }),
        ("filter with a field that does not work", |bytes| {
            bytes[11] |= 1
        }),
    ];
    for (name, change) in cases {
        let mut wrong = queue_2.clone();
        change(&mut wrong);
        let report = steering.program_raw(&wrong, "ipv4_udp");
        assert_eq!(report, Some(0x11), "{name}");
        assert!(steering.client.breach_names().contains(&name), "{name}");
    }
    assert_eq!(steering.come_in(&v4(UDP, 7, 0x2222)).unwrap().queue, 0);
}

#[test]
fn hashes_are_of_the_fields_that_drivers_ask_for() {
    let mut steering = Steering::new();
    steering.spread();
    let udp = v4(UDP, 0x1234, 0x4321);
    let hash = |steering: &mut Steering, frame: &[u8]| steering.come_in(frame).unwrap().hash;
    // What the device does as long as no driver has said anything: addresses and ports.
    assert_eq!(hash(&mut steering, &udp), Some(toeplitz(&udp[26..38])));
    steering.replay("rss.01");
    let arrived = steering.come_in(&udp).unwrap();
    let addresses = toeplitz(&udp[26..34]);
    assert_eq!(arrived.hash, Some(addresses), "testpmd's default");
    assert_eq!(arrived.queue, (addresses % 8) as usize);
    assert_eq!(hash(&mut steering, &v6(1, 2)), None, "not asked for");
    steering.replay("rss.02");
    let six = v6(1, 2);
    assert_eq!(hash(&mut steering, &six), Some(toeplitz(&six[22..54])));
    steering.replay("rss.03");
    steering.replay("rss.04");
    assert_eq!(hash(&mut steering, &udp), Some(toeplitz(&udp[26..38])));
    let tcp = v4(TCP, 0x1234, 0x4321);
    assert_eq!(hash(&mut steering, &tcp), Some(toeplitz(&tcp[26..38])));
    for replayed in ["rss.05", "rss.06", "rss.07"] {
        steering.replay(replayed);
    }
    assert_eq!(hash(&mut steering, &six), Some(toeplitz(&six[22..58])));
    steering.replay("rss.08");
    assert_eq!(hash(&mut steering, &tcp), Some(toeplitz(&tcp[34..36])));
    assert_eq!(hash(&mut steering, &udp), Some(toeplitz(&udp[26..38])));
    steering.no_breach();
}

#[test]
fn symmetric_hashes_pair_their_words_and_none_hashes_nothing() {
    let mut steering = Steering::new();
    steering.spread();
    for replayed in 1..=8 {
        steering.replay(&format!("rss.0{replayed}"));
    }
    let there = between([10, 0, 0, 1], [10, 0, 0, 2], UDP, 7, 9);
    let back = between([10, 0, 0, 2], [10, 0, 0, 1], UDP, 9, 7);
    let hash = |steering: &mut Steering, frame: &[u8]| steering.come_in(frame).unwrap().hash;
    let scheme = filters::HashControl::ZERO.with_scheme(1);
    let control = filters::HASH_CONTROL.at(MAIN.into());
    steering.client.write(control, scheme.0);
    // DPDK sets the scheme and pairs nothing: the plain hash.
    assert_eq!(hash(&mut steering, &there), Some(toeplitz(&there[26..38])));
    steering.replay("rss.09");
    let both = [there.clone(), back.clone()].map(|frame| hash(&mut steering, &frame));
    assert_eq!(both[0], both[1]);
    assert_ne!(both[0], Some(toeplitz(&there[26..38])));
    steering.replay("rss.11");
    assert_ne!(hash(&mut steering, &there), hash(&mut steering, &back));
    for replayed in ["rss.10", "rss.15", "rss.16"] {
        steering.replay(replayed);
    }
    for frame in [&there, &v4(TCP, 1, 2), &v6(1, 2)] {
        let arrived = steering.come_in(frame).unwrap();
        assert_eq!((arrived.queue, arrived.hash), (0, None), "rss none");
    }
    steering.no_breach();
}

/// A setting of the scheme of the main VSI.
#[derive(Clone, Copy, Debug)]
enum Set {
    /// In the register, as DPDK does for `actions rss func simple_xor`.
    Register(u8),
    /// In the properties of the VSI, as Linux sets the symmetric one.
    Properties(u8),
}

fn set_scheme(client: &mut Client, set: Set) {
    let scheme = match set {
        Set::Register(scheme) => {
            let control = filters::HashControl::ZERO.with_scheme(scheme.into());
            return client.write(filters::HASH_CONTROL.at(MAIN.into()), control.0);
        }
        Set::Properties(scheme) => scheme,
    };
    let sections = VsiSections::ZERO.with_queue_option(true);
    let properties = VsiProperties {
        valid_sections: sections.0.into(),
        queue_option_rss: QueueOptionRss::ZERO.with_hash(scheme).0,
        ..VsiProperties::zeroed()
    };
    let wanted = VsiNumber::ZERO.with_number(MAIN).with_valid(true);
    let asked = VsiCommand {
        number: wanted.0.into(),
        ..VsiCommand::zeroed()
    };
    let buffer = properties.as_bytes();
    client.give(Opcode::UpdateVsi, &asked, buffer).ok();
}

#[test]
fn schemes_that_are_not_computed_leave_frames_unhashed_and_are_remarked() {
    let cases = [
        (Set::Register(rss::HASH_XOR), "VSI 5, scheme 2"),
        (Set::Properties(rss::HASH_XOR), "VSI 5, scheme 2"),
        (Set::Register(rss::HASH_JENKINS), "VSI 5, scheme 3"),
        (Set::Properties(rss::HASH_JENKINS), "VSI 5, scheme 3"),
    ];
    for (set, detail) in cases {
        let mut steering = Steering::new();
        steering.spread();
        steering.replay("rss.01");
        let remarks = |steering: &Steering| steering.client.world.with(|world| world.remarks(0));
        let frame = between([10, 0, 0, 1], [10, 0, 0, 2], UDP, 7, 9);
        let plain = steering.come_in(&frame).unwrap();
        assert_eq!(plain.hash, Some(toeplitz(&frame[26..34])), "{set:?}");
        assert_ne!(plain.queue, 0, "{set:?}");
        assert_eq!(remarks(&steering), [], "{set:?}");
        set_scheme(&mut steering.client, set);
        for count in 1..=2 {
            let arrived = steering.come_in(&frame).unwrap();
            assert_eq!((arrived.queue, arrived.hash), (0, None), "{set:?}");
            let [remark] = &remarks(&steering)[..] else {
                panic!("{set:?}: one kind of remark");
            };
            assert_eq!(remark.kind, "hash scheme that the model does not compute");
            assert_eq!((remark.count, &*remark.first), (count, detail), "{set:?}");
        }
        // A frame without a profile is hashed by no scheme.
        assert_eq!(steering.come_in(&v6(1, 2)).unwrap().hash, None, "{set:?}");
        assert_eq!(remarks(&steering)[0].count, 2, "{set:?}");
        let plain_again = match set {
            Set::Register(_) => Set::Register(rss::HASH_TOEPLITZ),
            Set::Properties(_) => Set::Properties(rss::HASH_TOEPLITZ),
        };
        set_scheme(&mut steering.client, plain_again);
        assert_eq!(steering.come_in(&frame), Some(plain), "{set:?}");
        steering.no_breach();
    }
}

#[test]
fn a_clearing_of_the_function_takes_profiles_and_filters_along() {
    let mut steering = Steering::new();
    steering.replay("fdir_profile.1");
    steering.program("queue_2", "ipv4_udp");
    assert_eq!(steering.client.read(filters::FLOW_DIRECTOR_COUNT), 1);
    steering
        .client
        .direct(Opcode::ClearFunctionConfig, &none())
        .ok();
    assert_eq!(steering.client.read(filters::FLOW_DIRECTOR_COUNT), 0);
    let enable = FlowDirectorOptions::ZERO.with_enable(true).0;
    add_vsi(&mut steering.client, MAIN, 1, 3, enable);
    add_mac_rule(&mut steering.client, MAIN, OWN);
    assert_eq!(steering.come_in(&v4(UDP, 7, 0x2222)).unwrap().queue, 0);
}

#[test]
fn registers_of_profiles_that_are_written_one_after_the_other_take_effect_together() {
    let client = Client::ready();
    let write = |index| Request::RegisterWrite {
        bar: 0,
        offset: filters::HASH_CONTROL.at(index),
        width: 4,
        value: 1,
    };
    let changes = client.world.with(|world| {
        world.step(Instant(0));
        let before = world.function(0).unwrap().changes();
        for index in 0..100 {
            world.handle(0, write(index));
        }
        world.step(Instant(0));
        world.function(0).unwrap().changes() - before
    });
    assert_eq!(changes, 1);
}
