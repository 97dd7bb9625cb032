//! From a driver's commands and registers to frames on the wire, and back; and event descriptors
//! that would block their writer.

use super::*;
use crate::firmware::tests::scheduling::branch;
use crate::firmware::tests::switching::{add_mac_rule, mac_rule};
use crate::packet::{
    Extension, Ipv4, MacAddress, Network, Packet, Path, Psn, QpNumber, TransportHeaders,
    UdpChecksum, emit,
};
use ringside_spec::lan::admin::link::SetMacLoopback;
use ringside_spec::lan::admin::lldp::LldpFilterControl;
use ringside_spec::lan::admin::lldp::filter_action::{ADD, DELETE};
use ringside_spec::lan::admin::queues::{
    AddTransmitQueues, DisableGroup, DisableTransmitQueues, TransmitQueue, TransmitQueueGroup,
};
use ringside_spec::lan::admin::scheduler::Element;
use ringside_spec::lan::admin::switch::{RuleType, SwitchRules, recipe};
use ringside_spec::lan::admin::vsi::{
    InnerVlanFlags, RDMA_FILTERS_ENABLED, SwitchFlags2, VsiAnswer, VsiCommand, VsiNumber,
    VsiProperties, VsiSections, kind, vlan_transmit,
};
use ringside_spec::lan::admin::{Opcode, ReturnCode};
use ringside_spec::lan::receive::{PacketLength, ReceiveContext, profile};
use ringside_spec::lan::registers::clock::phy;
use ringside_spec::lan::registers::queues as registers;
use ringside_spec::lan::registers::statistics;
use ringside_spec::lan::transmit::{
    ContextCommand, DataCommand, TransmitContext, kind as descriptor, owner,
};
use rustix::event::{EventfdFlags, eventfd};
use std::os::fd::OwnedFd;
use std::time::Instant;
use zerocopy::IntoBytes;
use zerocopy::byteorder::little_endian::U16;

/// The address of the client's memory for the device, and the parts that the rings of this test
/// use.
const BASE: u64 = 0x10_0000;
const TRANSMIT_RING: usize = 0x2000;
const RECEIVE_RING: usize = 0x2800;
const SENT_BUFFER: usize = 0x3000;
const RECEIVE_BUFFERS: usize = 0x5000;
const BUFFER_BYTES: usize = 1024;
const OWN: [u8; 6] = [2, 0xE8, 0x10, 0, 0, 1];
const OUTSIDE: [u8; 6] = [2, 9, 9, 9, 9, 9];

/// A function that a driver has made ready for traffic of its network stack.
struct Station {
    client: Client,
    vsi: u16,
    /// Scheduler node that its transmit queue is under.
    parent: u32,
    /// The port of the switch where the test listens.
    port: usize,
}

impl Station {
    fn new() -> Self {
        let mut client = Client::ready();
        let vsi = add_vsi(&mut client);
        add_mac_rule(&mut client, vsi, OWN);
        let parent = *branch(&mut client).last().unwrap();
        let port = client.world.with(|world| world.switch().add_port());
        let mut station = Self {
            client,
            vsi,
            parent,
            port,
        };
        station.add_transmit_queue();
        station.enable_receive_queue();
        station
    }

    fn add_transmit_queue(&mut self) {
        let context = TransmitContext {
            base_in_128_bytes: (BASE + TRANSMIT_RING as u64) >> 7,
            ring_length: 64,
            vsi: self.vsi,
            owner: owner::PHYSICAL_FUNCTION,
            time_stamp_enable: true,
            ..TransmitContext::zeroed()
        };
        let group = TransmitQueueGroup {
            parent: self.parent.into(),
            count: 1,
            reserved: [0; 3],
        };
        let queue = TransmitQueue {
            queue: 0.into(),
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

    fn remove_transmit_queue(&mut self) {
        let group = DisableGroup {
            parent: self.parent.into(),
            count: 1,
            reserved: 0,
        };
        let bytes = [group.as_bytes(), &[0, 0]].concat();
        let one = DisableTransmitQueues {
            group_count: 1,
            ..DisableTransmitQueues::zeroed()
        };
        self.client
            .give(Opcode::DisableTransmitQueues, &one, &bytes)
            .ok();
    }

    fn enable_receive_queue(&mut self) {
        let context = ReceiveContext {
            base_in_128_bytes: (BASE + RECEIVE_RING as u64) >> 7,
            ring_length: 64,
            data_buffer_in_128_bytes: (BUFFER_BYTES / 128) as u8,
            descriptors_of_32_bytes: true,
            strip_crc: true,
            tag_in_l2tag1: true,
            frame_bytes_max: 4 * BUFFER_BYTES as u16,
            ..ReceiveContext::zeroed()
        };
        let client = &self.client;
        for (dword, value) in (0..).zip(context.dwords()) {
            client.write(registers::RECEIVE_QUEUE_CONTEXT.at(dword, 0), value);
        }
        let profile = registers::DescriptorProfile::ZERO.with_profile(profile::NIC.into());
        client.write(registers::RECEIVE_QUEUE_PROFILE.at(0), profile.0);
        for index in 0..8 {
            let buffer = BASE + (RECEIVE_BUFFERS + index * BUFFER_BYTES) as u64;
            let place = RECEIVE_RING + index * 32;
            assert!(client.memory.write(place, &buffer.to_le_bytes()));
        }
        client.write(registers::RECEIVE_QUEUE_TAIL.at(0), 8);
        let on = ReceiveQueueControl::ZERO.with_enable_request(true);
        client.write(RECEIVE_QUEUE_CONTROL.at(0), on.0);
        let now = ReceiveQueueControl(client.read(RECEIVE_QUEUE_CONTROL.at(0)));
        assert!(now.enable_status());
    }

    fn send(&self, frame: &[u8], index: u32) {
        let command = DataCommand::ZERO
            .with_end_of_packet(true)
            .with_report_status(true)
            .with_buffer_bytes(frame.len() as u64);
        let descriptor = [BASE + SENT_BUFFER as u64, command.0];
        let memory = &self.client.memory;
        assert!(memory.write(SENT_BUFFER, frame));
        let place = TRANSMIT_RING + 16 * index as usize;
        assert!(memory.write(place, descriptor.as_bytes()));
        let doorbell = registers::TRANSMIT_QUEUE_DOORBELL.at(0);
        self.client.write(doorbell, index + 1);
    }

    fn outside(&self) -> Option<Vec<u8>> {
        self.client.pass(Duration::from_micros(10));
        let port = self.port;
        self.client
            .world
            .with(|world| world.switch().take_outgoing(port))
    }

    fn come_in(&self, frame: &[u8]) {
        let port = self.port;
        self.client.world.with(|world| {
            world.switch().inject_frame(port, frame).unwrap();
        });
        self.client.pass(Duration::from_micros(10));
    }

    /// Returns the content of a receive buffer, if its descriptor was written.
    fn received(&self, index: usize) -> Option<Vec<u8>> {
        let mut descriptor = [0; 32];
        let place = RECEIVE_RING + index * 32;
        assert!(self.client.memory.read(place, &mut descriptor));
        if descriptor[8] & 1 == 0 {
            return None;
        }
        let length = u16::from_le_bytes([descriptor[4], descriptor[5]]);
        let mut bytes = vec![0; PacketLength(length).bytes().into()];
        let buffer = RECEIVE_BUFFERS + index * BUFFER_BYTES;
        assert!(self.client.memory.read(buffer, &mut bytes));
        Some(bytes)
    }
}

fn properties(flags: u8) -> VsiProperties {
    let mut properties = VsiProperties {
        switch_id: 1,
        switch_flags_2: SwitchFlags2::ZERO.with_lan_enable(true).0,
        inner_vlan_flags: InnerVlanFlags::ZERO
            .with_transmit_mode(vlan_transmit::ALL)
            .0,
        queue_option_flags: flags,
        ..VsiProperties::zeroed()
    };
    properties.queue_mapping[1] = 1.into();
    properties.valid_sections = VsiSections::ZERO.with_queue_option(true).0.into();
    properties
}

fn add_vsi(client: &mut Client) -> u16 {
    let asked = VsiCommand {
        vsi_flags: kind::PHYSICAL_FUNCTION.into(),
        ..VsiCommand::zeroed()
    };
    let answer = client
        .give(Opcode::AddVsi, &asked, properties(0).as_bytes())
        .ok();
    VsiNumber(answer.descriptor.parameters::<VsiAnswer>().number.get()).number()
}

fn frame(destination: [u8; 6], source: [u8; 6], length: usize) -> Vec<u8> {
    let mut frame = [destination, source].concat();
    frame.extend([0x12, 0x34]);
    frame.resize(length, 0x5A);
    frame
}

/// A RoCEv2 packet from outside to the function.
fn datagram() -> Packet {
    Packet {
        path: Path {
            destination: MacAddress(OWN),
            source: MacAddress(OUTSIDE),
            vlan: None,
            network: Network::V4(Ipv4 {
                source: [10, 0, 0, 2].into(),
                destination: [10, 0, 0, 1].into(),
                type_of_service: 0,
                time_to_live: 64,
                identification: 0,
                do_not_fragment: true,
            }),
            source_port: 0xC000,
            udp_checksum: UdpChecksum::Absent,
        },
        transport: TransportHeaders {
            opcode: crate::packet::Opcode::SEND_ONLY,
            solicited: false,
            migrated: false,
            partition_key: 0xFFFF,
            forward_congestion: false,
            backward_congestion: false,
            destination_qp: QpNumber::new(5),
            acknowledge_request: true,
            psn: Psn::new(7),
            extension: Extension::None,
        },
    }
}

/// The time stamp of that index in the PHY: 40 bits.
fn stamp(client: &mut Client, index: u8) -> u64 {
    let low = clock::read(client, phy::transmit_stamp_low(0, index)).unwrap();
    let high = clock::read(client, phy::transmit_stamp_high(0, index)).unwrap();
    u64::from(high) << 32 | u64::from(low)
}

#[test]
fn a_packet_is_stamped_where_it_leaves_if_its_driver_requests_it() {
    const INDEX: u8 = 5;
    let mut station = Station::new();
    station.client.write(OTHER_CAUSES_ENABLE, 0xFFFF_FFFF);
    let command = ContextCommand::ZERO
        .with_kind(descriptor::CONTEXT)
        .with_time_stamp(true)
        .with_payload_bytes(INDEX.into());
    let frame = [&OUTSIDE[..], &OWN, &[0x88, 0xF7], &[0; 46]].concat();
    let send_stamped = |station: &Station, index: u32| {
        let place = TRANSMIT_RING + 16 * index as usize;
        let written = [0, command.0];
        assert!(station.client.memory.write(place, written.as_bytes()));
        station.send(&frame, index + 1);
        assert_eq!(station.outside().as_deref(), Some(&frame[..]));
    };
    let causes = |station: &Station| OtherCauses(station.client.read(OTHER_CAUSES));
    send_stamped(&station, 0);
    assert_eq!(stamp(&mut station.client, INDEX), 0, "the timer is off");
    clock::start(&mut station.client);
    station.client.pass(Duration::from_millis(3));
    causes(&station);
    let before = clock::time(&station.client);
    send_stamped(&station, 2);
    let after = clock::time(&station.client);
    assert!(causes(&station).transmit_time_stamp());
    let found = stamp(&mut station.client, INDEX);
    assert_eq!(found & 0xFF, 1, "valid, without parts of a nanosecond");
    assert!((before.into()..=after.into()).contains(&(found >> 8)));
    // Linux clears it; a packet that requests none changes nothing.
    clock::write(&mut station.client, phy::transmit_stamp_low(0, INDEX), 0).unwrap();
    causes(&station);
    station.send(&frame, 4);
    assert!(station.outside().is_some());
    assert_eq!(stamp(&mut station.client, INDEX) & 1, 0);
    assert!(!causes(&station).transmit_time_stamp());
    assert_eq!(station.client.breach_names(), [""; 0]);
}

#[test]
fn a_vsi_is_freed_once_its_queues_have_stopped() {
    let mut station = Station::new();
    let number = VsiNumber::ZERO.with_number(station.vsi).with_valid(true);
    let vsi = VsiCommand {
        number: number.0.into(),
        ..VsiCommand::zeroed()
    };
    let busy = station.client.direct(Opcode::FreeVsi, &vsi);
    assert_eq!(busy.descriptor.return_code(), ReturnCode::Busy);
    let sends = "VSI freed while it has transmit queues";
    assert_eq!(station.client.breach_names(), [sends]);
    station.remove_transmit_queue();
    station.client.direct(Opcode::FreeVsi, &vsi).ok();
    let mut expected = [sends, "VSI freed while its receive queues are enabled"];
    expected.sort_unstable();
    let mut found = station.client.breach_names();
    found.sort_unstable();
    assert_eq!(found, expected);

    let mut station = Station::new();
    station.remove_transmit_queue();
    station.client.write(RECEIVE_QUEUE_CONTROL.at(0), 0);
    station.client.direct(Opcode::FreeVsi, &vsi).ok();
    assert_eq!(station.client.breach_names(), [""; 0]);
}

#[test]
fn queues_that_commands_and_registers_make_send_receive_and_count() {
    let station = Station::new();
    let (there, back) = (frame(OUTSIDE, OWN, 200), frame(OWN, OUTSIDE, 1500));
    station.send(&there, 0);
    assert_eq!(station.outside(), Some(there));
    let head = station.client.read(registers::TRANSMIT_QUEUE_HEAD.at(0));
    assert_eq!(head, 1);
    station.come_in(&back);
    let parts = [station.received(0).unwrap(), station.received(1).unwrap()];
    assert_eq!(parts.concat(), back);
    assert_eq!(station.received(2), None);
    let client = &station.client;
    let vsi = u32::from(station.vsi);
    for (counter, index, wanted) in [
        (statistics::PORT_TRANSMIT_BYTES, 0, 204),
        (statistics::PORT_RECEIVE_BYTES, 0, 1504),
        (statistics::VSI_TRANSMIT_BYTES, vsi, 200),
        (statistics::VSI_RECEIVE_BYTES, vsi, 1504),
        (statistics::VSI_RECEIVE_UNICAST, vsi, 1),
        (statistics::VSI_RECEIVE_DROPPED, vsi, 0),
    ] {
        let value = client.read(counter.registers.at(index));
        assert_eq!(value, wanted, "{}", counter.name);
    }
    assert_eq!(client.breach_names(), [""; 0]);
}

#[test]
fn queues_that_are_gone_touch_nothing() {
    let mut station = Station::new();
    station.remove_transmit_queue();
    station.send(&frame(OUTSIDE, OWN, 200), 0);
    assert_eq!(station.outside(), None);
    station.client.write(RECEIVE_QUEUE_CONTROL.at(0), 0);
    station.come_in(&frame(OWN, OUTSIDE, 100));
    assert_eq!(station.received(0), None);
    assert_eq!(
        station.client.breach_names(),
        ["doorbell of a transmit queue that does not exist"]
    );
    // a reset of the function takes the queues as well
    let station = Station::new();
    let reset = FunctionControl::ZERO.with_software_reset(true);
    station.client.write(reset::FUNCTION_CONTROL, reset.0);
    station.client.pass(Duration::from_millis(1));
    station.come_in(&frame(OWN, OUTSIDE, 100));
    assert_eq!(station.received(0), None);
}

#[test]
fn packets_that_rdma_does_not_take_reach_the_network_stack_as_bytes() {
    let mut station = Station::new();
    let mut bytes = Vec::new();
    emit(&datagram(), &[7; 100], &mut bytes).unwrap();
    station.come_in(&bytes);
    assert_eq!(station.received(0), Some(bytes.clone()));
    // once the VSI lets RDMA have its packets, the stack sees them no more
    let number = VsiNumber::ZERO.with_number(station.vsi).with_valid(true);
    let asked = VsiCommand {
        number: number.0.into(),
        ..VsiCommand::zeroed()
    };
    let allowed = properties(RDMA_FILTERS_ENABLED);
    station
        .client
        .give(Opcode::UpdateVsi, &asked, allowed.as_bytes())
        .ok();
    station.come_in(&bytes);
    assert_eq!(station.received(1), None);
    assert_eq!(station.client.breach_names(), [""; 0]);
}

#[test]
fn nothing_leaves_or_comes_in_without_link_and_what_was_sent_is_counted() {
    let station = Station::new();
    station.client.inject(Fault::LinkDown);
    station.send(&frame(OUTSIDE, OWN, 200), 0);
    assert_eq!(station.outside(), None);
    station.come_in(&frame(OWN, OUTSIDE, 100));
    assert_eq!(station.received(0), None);
    let lost = statistics::PORT_TRANSMIT_LINK_DOWN.registers.at(0);
    assert_eq!(station.client.read(lost), 1);
    assert_eq!(station.client.read(registers::TRANSMIT_QUEUE_HEAD.at(0)), 1);
}

#[test]
fn an_event_descriptor_that_is_full_makes_nobody_wait() {
    let (_world, function) = one();
    // blocking, and at the largest value: one more would wait for a reader
    let event: OwnedFd = eventfd(0, EventfdFlags::empty()).unwrap();
    rustix::io::write(&event, &(u64::MAX - 1).to_ne_bytes()).unwrap();
    function.set_interrupts(0, &[Some(event.as_fd())]).unwrap();
    let began = Instant::now();
    let fire = VectorControl::ZERO.with_software_trigger(true);
    function.write32(0, VECTOR_CONTROL.at(0), fire.0).unwrap();
    assert!(began.elapsed() < Duration::from_secs(60));
    let mut value = [0; 8];
    rustix::io::read(&event, &mut value).unwrap();
    assert!(
        u64::from_ne_bytes(value) >= u64::MAX - 1,
        "as full as it was"
    );
}

/// Recipe 3 selects its frames by the address of its header: DPDK installs one with the broadcast
/// address at each start, and keeps multicast separate.
#[test]
fn a_vsi_gets_lldp_packets_while_its_driver_asks_for_them() {
    let mut station = Station::new();
    let mut lldp = frame([1, 0x80, 0xC2, 0, 0, 0x0E], OUTSIDE, 60);
    lldp[12..14].copy_from_slice(&[0x88, 0xCC]);
    let control = |station: &mut Station, vsi, action| {
        let asked = LldpFilterControl {
            action,
            vsi: U16::new(vsi),
            ..LldpFilterControl::zeroed()
        };
        let answer = station.client.direct(Opcode::LldpFilterControl, &asked);
        answer.descriptor.return_code()
    };
    let asked = |station: &Station| {
        let snapshot = station.client.world.with(|world| world.snapshot(0));
        snapshot.unwrap().firmware.lldp_receivers
    };
    let vsi = station.vsi;
    station.come_in(&lldp);
    assert_eq!(station.received(0), None, "before");
    assert_eq!(control(&mut station, vsi, ADD), ReturnCode::Ok);
    assert_eq!(asked(&station), [vsi]);
    station.come_in(&lldp);
    assert_eq!(station.received(0).as_deref(), Some(&lldp[..]));
    let mut other = lldp.clone();
    other[13] = 0xCD;
    station.come_in(&other);
    assert_eq!(station.received(1), None, "another type");
    assert_eq!(control(&mut station, vsi, DELETE), ReturnCode::Ok);
    assert_eq!(control(&mut station, vsi, 2), ReturnCode::Invalid);
    station.come_in(&lldp);
    assert_eq!(station.received(1), None, "deleted");
    assert_eq!(station.client.breach_names(), [""; 0]);

    assert_eq!(control(&mut station, vsi + 1, ADD), ReturnCode::NoEntry);
    let unknown = ["LLDP filter of a VSI that does not exist"];
    assert_eq!(station.client.breach_names(), unknown);
    assert_eq!(control(&mut station, vsi, ADD), ReturnCode::Ok);
    station.remove_transmit_queue();
    station.client.write(RECEIVE_QUEUE_CONTROL.at(0), 0);
    let number = VsiNumber::ZERO.with_number(vsi).with_valid(true);
    let freed = VsiCommand {
        number: number.0.into(),
        ..VsiCommand::zeroed()
    };
    station.client.direct(Opcode::FreeVsi, &freed).ok();
    assert_eq!(asked(&station), [0; 0], "with its VSI");
    let again = add_vsi(&mut station.client);
    assert_eq!(control(&mut station, again, ADD), ReturnCode::Ok);
    let cleared = Opcode::ClearFunctionConfig;
    station.client.direct(cleared, &none()).ok();
    assert_eq!(asked(&station), [0; 0], "with the configuration");
    assert_eq!(station.client.breach_names(), unknown);
}

#[test]
fn a_promiscuous_rule_is_for_the_kind_of_address_that_its_header_has() {
    let group = [0x33, 0x33, 0, 0, 0, 1];
    for (template, wanted) in [
        ([0xFF; 6], [false, false, true]),
        ([3, 0, 0, 0, 0, 0], [false, true, false]),
        ([2, 0, 0, 0, 0, 0], [true, false, false]),
    ] {
        let mut station = Station::new();
        let mut rule = mac_rule(station.vsi, template);
        rule[..2].copy_from_slice(&RuleType::LookupReceive.code().to_le_bytes());
        rule[4..6].copy_from_slice(&recipe::PROMISCUOUS.to_le_bytes());
        rule[6..8].copy_from_slice(&[0, 0]);
        let one = SwitchRules {
            rule_count: 1.into(),
            ..SwitchRules::zeroed()
        };
        station
            .client
            .give(Opcode::AddSwitchRules, &one, &rule)
            .ok();
        let mut next = 0;
        let taken = [[2, 8, 8, 8, 8, 8], group, [0xFF; 6]].map(|to| {
            station.come_in(&frame(to, OUTSIDE, 100));
            let taken = station.received(next).is_some();
            next += usize::from(taken);
            taken
        });
        assert_eq!(taken, wanted, "{template:x?}");
    }
}

/// DPDK writes the tail of a transmit queue before it adds the queue.
#[test]
fn a_tail_of_zero_may_be_written_before_its_queue_is_there() {
    let station = Station::new();
    station
        .client
        .write(registers::TRANSMIT_QUEUE_DOORBELL.at(7), 0);
    assert_eq!(station.client.breach_names(), [""; 0]);
    station
        .client
        .write(registers::TRANSMIT_QUEUE_DOORBELL.at(7), 1);
    assert_eq!(
        station.client.breach_names(),
        ["doorbell of a transmit queue that does not exist"]
    );
}

#[test]
fn frames_come_back_to_the_port_while_the_mac_loops_back() {
    let mut station = Station::new();
    let set = |station: &mut Station, mode: u8| {
        let asked = SetMacLoopback {
            mode,
            ..SetMacLoopback::zeroed()
        };
        station.client.direct(Opcode::SetMacLoopback, &asked).ok();
    };
    set(&mut station, 1);
    let looped = frame(OWN, OUTSIDE, 200);
    station.send(&looped, 0);
    assert_eq!(station.outside(), None);
    assert_eq!(station.received(0), Some(looped));
    // The wire is cut.
    station.come_in(&frame(OWN, OUTSIDE, 100));
    assert_eq!(station.received(1), None);
    set(&mut station, 0);
    let there = frame(OUTSIDE, OWN, 300);
    station.send(&there, 1);
    assert_eq!(station.outside(), Some(there));
    station.come_in(&frame(OWN, OUTSIDE, 100));
    assert!(station.received(1).is_some());
    assert_eq!(station.client.breach_names(), [""; 0]);
}

#[test]
fn the_causes_of_dropped_frames_are_cleared_by_a_zero() {
    let station = Station::new();
    let vsi = u32::from(station.vsi);
    let causes = statistics::VSI_RECEIVE_ERRORS.registers.at(vsi);
    let dropped = statistics::VSI_RECEIVE_DROPPED.registers.at(vsi);
    let long = frame(OWN, OUTSIDE, 4 * BUFFER_BYTES - 3);
    station.come_in(&long);
    assert_eq!(station.client.read(causes), 1 << 16);
    station.client.write(causes, 0);
    assert_eq!(station.client.read(causes), 0);
    station.come_in(&long);
    let read = |at| station.client.read(at);
    assert_eq!((read(causes), read(dropped)), (1 << 16, 2));
    assert_eq!(station.client.breach_names(), [""; 0]);
    station.client.write(causes, 1);
    assert_eq!(
        station.client.breach_names(),
        ["write to a read-only register"]
    );
}
