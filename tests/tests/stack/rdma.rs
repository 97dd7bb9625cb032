//! RDMA to a peer of which only the IP address is known.

use crate::bed::{Bed, config};
use ringside_config::Within;
use ringside_pmd::Device;
use ringside_pmd::rdma::{
    Access, Completion, CompletionQueue, Endpoint, Flags, MemoryRegion, ProtectionDomain,
    QueuePairConfig, Status,
};
use ringside_stack::Stack;
use std::net::IpAddr;

struct End {
    device: Device,
    stack: Stack,
    domain: ProtectionDomain,
    completions: CompletionQueue,
    region: MemoryRegion,
}

impl End {
    fn new(bed: &Bed, index: u16, address: &str) -> Self {
        let (device, stack) = bed.stack(index, &config(&[address]));
        let domain = device.protection_domain().unwrap();
        let completions = device.completion_queue(64).unwrap();
        let memory = device.allocate(4096).unwrap();
        let region = domain.register(memory, Access::ALL).unwrap();
        Self {
            device,
            stack,
            domain,
            completions,
            region,
        }
    }
}

/// The MAC address of `address`, from the wire.
fn resolve(bed: &Bed, from: &mut Stack, peer: &mut Stack, address: IpAddr) -> [u8; 6] {
    for _ in 0..1000 {
        let now = bed.world.clock().now();
        if let Some(found) = from.lookup(address, Within::All, now).unwrap() {
            return found.mac;
        }
        from.poll(now);
        peer.poll(now);
        bed.pass();
    }
    panic!("{address} was not resolved");
}

fn writes_between(first: &str, second: &str) {
    let bed = Bed::new();
    let mut a = End::new(&bed, 0, first);
    let mut b = End::new(&bed, 1, second);
    let qp_a = a
        .domain
        .queue_pair(QueuePairConfig::reliable(&a.completions))
        .unwrap();
    let qp_b = b
        .domain
        .queue_pair(QueuePairConfig::reliable(&b.completions))
        .unwrap();
    let (mut to_a, mut to_b) = (qp_a.endpoint(), qp_b.endpoint());
    let address = |text: &str| text.split('/').next().unwrap().parse::<IpAddr>().unwrap();
    assert_eq!(
        (to_a.address, to_b.address),
        (address(first), address(second))
    );
    // Numbers are exchanged out of band; MAC addresses are not.
    let unknown = |end: Endpoint| Endpoint { mac: [0; 6], ..end };
    (to_a, to_b) = (unknown(to_a), unknown(to_b));
    to_b.mac = resolve(&bed, &mut a.stack, &mut b.stack, to_b.address);
    to_a.mac = resolve(&bed, &mut b.stack, &mut a.stack, to_a.address);
    assert_eq!(to_b.mac, b.stack.port().mac());
    let mut qp_a = qp_a.connect(&to_b).unwrap();
    let qp_b = qp_b.connect(&to_a).unwrap();
    let pattern: Vec<u8> = (0..4096u32).map(|at| (at * 7) as u8).collect();
    assert!(a.region.write(0, &pattern));
    let source = a.region.slice(0..4096).unwrap();
    let target = b.region.remote().at(0);
    qp_a.write(1, &[source], target, Flags::SIGNALLED).unwrap();
    qp_a.ring();
    let mut batch = [Completion::EMPTY; 8];
    let mut done = None;
    for _ in 0..2000 {
        done = a
            .completions
            .poll(&mut batch)
            .first()
            .map(|one| (one.id, one.status()));
        if done.is_some() {
            break;
        }
        // Packets for the stack and for RDMA come and go on the same function.
        a.stack.poll(bed.world.clock().now());
        b.stack.poll(bed.world.clock().now());
        bed.pass();
    }
    let (id, status) = done.expect("a completion");
    assert_eq!(id, 1);
    assert_eq!(status, Status::Success);
    let mut arrived = vec![0; 4096];
    assert!(b.region.read(0, &mut arrived));
    assert_eq!(arrived, pattern);
    drop((qp_a, qp_b));
    let devices = [a, b].map(|end| {
        let End {
            device,
            stack,
            domain,
            completions,
            region,
        } = end;
        drop((stack, region, completions, domain));
        device
    });
    bed.finish(devices);
}

#[test]
fn a_write_over_ipv4_reaches_a_peer_that_was_resolved() {
    writes_between("192.0.2.1/24", "192.0.2.2/24");
}

#[test]
fn a_write_over_ipv6_reaches_a_peer_that_was_resolved() {
    writes_between("2001:db8::1/64", "2001:db8::2/64");
}
