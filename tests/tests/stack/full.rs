//! A full transmit ring and an empty pool of buffers. Where the ring is full, the receive queue is
//! the port's, and of the transmit queue the test is the device, which sends when it wants to.

use crate::bed::{Bed, MTU, Raw, config, settings, stack_settings};
use crate::frames::question;
use ringside_bus::{Doorbell, Memory, Words};
use ringside_lan::{QueueControl, Service, StopError, TransmitQueue, TransmitSettings};
use ringside_pmd::Device;
use ringside_pmd::lan::OpenPort;
use ringside_spec::lan::transmit::{DataCommand, kind};
use ringside_stack::{QueueDevice, Stack};
use smoltcp::phy::{Device as _, RxToken as _, TxToken as _};
use std::sync::Arc;

const DESCRIPTORS: u16 = 64;

/// A device that starts and stops its queue as it is told.
struct Willing;

impl QueueControl for Willing {
    fn configure(&self) -> Result<(), StopError> {
        Ok(())
    }
    fn enable(&self) -> Result<(), StopError> {
        Ok(())
    }
    fn disable(&self) -> Result<(), StopError> {
        Ok(())
    }
}

/// A transmit queue beside those of the port, and its ring.
fn transmitter(device: &Device, open: &OpenPort) -> (TransmitQueue, Words) {
    let settings = TransmitSettings {
        descriptors: DESCRIPTORS,
        path: None,
    };
    let pool = device.pool().expect("memory");
    let memory = pool.allocate(usize::from(DESCRIPTORS) * 16, 4096);
    let memory = memory.expect("memory");
    let ring = memory.words();
    let page = Memory::window(4096, 0, 4096).expect("a page");
    let bell = Doorbell::mapped(&page, 0).expect("a doorbell");
    let (buffers, service) = (open.pool.clone(), Service::new());
    let queue = TransmitQueue::new(settings, memory, buffers, bell, service, Arc::new(Willing));
    let mut queue = queue.expect("a queue");
    queue.start().expect("started");
    (queue, ring)
}

/// The device has sent all that is in the ring.
pub(crate) fn send_all(ring: &Words) {
    for word in (1..ring.count()).step_by(2) {
        if DataCommand(ring.load(word)).report_status() {
            ring.store_release(word, kind::DONE);
        }
    }
}

/// A port with one more transmit queue.
pub(crate) fn open(bed: &Bed, device: &Device) -> (OpenPort, TransmitQueue, Words) {
    let open = device.open_port(&settings()).expect("a port");
    let (queue, ring) = transmitter(device, &open);
    bed.pass();
    (open, queue, ring)
}

/// A frame of no protocol with a number behind its header.
fn numbered(to: [u8; 6], from: [u8; 6], number: u8) -> Vec<u8> {
    let mut frame = [to.as_slice(), &from, &[0x88, 0xB5, number]].concat();
    frame.resize(60, 0);
    frame
}

#[test]
fn a_device_of_smoltcp_keeps_received_frames_while_its_transmit_ring_is_full() {
    let bed = Bed::new();
    let device_b = bed.device(1, &config(&[]));
    let (mut open, transmit, ring) = open(&bed, &device_b);
    let mut b = QueueDevice::new(open.receive.remove(0), transmit, MTU);
    let mut a = Raw::new(&bed, 0, &settings());
    for number in 0..20 {
        a.send(&numbered(open.port.mac(), a.port.mac(), number));
        bed.pass();
    }
    while let Some(token) = b.transmit(bed.now()) {
        token.consume(60, |bytes| bytes.fill(0));
    }
    for _ in 0..5 {
        assert!(b.receive(bed.now()).is_none(), "no answer could be sent");
    }
    send_all(&ring);
    let mut found = Vec::new();
    while let Some((received, _)) = b.receive(bed.now()) {
        found.push(received.consume(|bytes| bytes[14]));
    }
    assert_eq!(found, (0..20).collect::<Vec<_>>());
    drop((b, open));
    bed.finish([a.into_device(), device_b]);
}

#[test]
fn a_stack_answers_all_requests_of_a_burst_that_its_transmit_ring_does_not_hold() {
    const REQUESTS: u64 = 63;
    let bed = Bed::new();
    let settings_b = config(&["192.0.2.2/24"]);
    let device_b = bed.device(1, &settings_b);
    let (mut open, transmit, ring) = open(&bed, &device_b);
    let settings_b = stack_settings(&settings_b, open.port.mac());
    let pair = (open.receive.remove(0), transmit);
    let now = bed.world.clock().now();
    let mut b = Stack::new(open.port.clone(), pair, &settings_b, now).expect("a stack");
    // The announcements of its addresses.
    b.poll(now);
    send_all(&ring);
    let mut a = Raw::new(&bed, 0, &settings());
    for _ in 0..REQUESTS {
        a.send(&question(a.port.mac(), [192, 0, 2, 1], [192, 0, 2, 2]));
        bed.pass();
    }
    b.poll(bed.world.clock().now());
    let first = b.counters();
    assert!((40..REQUESTS).contains(&first.received), "{first:?}");
    send_all(&ring);
    b.poll(bed.world.clock().now());
    let all = b.counters();
    assert_eq!((all.received, all.unsent), (REQUESTS, 0), "{all:?}");
    drop((b, open));
    bed.finish([a.into_device(), device_b]);
}

#[test]
fn frames_that_find_no_buffer_are_counted() {
    let bed = Bed::new();
    let own = config(&["192.0.2.1/24"]);
    let near = bed.device(0, &own);
    let mut open = near.open_port(&settings()).expect("a port");
    let pool = open.pool.clone();
    let settings = stack_settings(&own, open.port.mac());
    let pair = (open.receive.remove(0), open.transmit.remove(0));
    let now = bed.world.clock().now();
    let mut stack = Stack::new(open.port.clone(), pair, &settings, now).expect("a stack");
    let held: Vec<_> = std::iter::from_fn(|| pool.packet()).collect();
    assert!(!held.is_empty());
    stack.poll(now);
    let counters = stack.counters();
    assert_eq!(counters.announcements, 2);
    assert!(counters.unsent >= 2, "{counters:?}");
    drop((held, stack, open, pool));
    bed.finish([near]);
}
