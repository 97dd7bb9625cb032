//! One IP address on two VLANs, with another peer on each: connections stay on their VLANs.

use ringside::connect::{Connection, ConnectionManager, Settings};
use ringside::prelude::*;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

const WAIT: Duration = Duration::from_secs(20);
const PORT: u16 = 7471;
/// The VLANs, in the order of the address table of the node that is on both.
const VLANS: [u16; 2] = [7, 8];

/// Opens a function of the model with an address on these VLANs.
fn open(index: u16, address: &str, vlans: &[u16]) -> Device {
    let mut config = Config::default();
    config.model.functions = 4;
    let each = vlans.iter().map(|vlan| format!("{address}@{vlan}"));
    config.network.addresses = each.map(|one| one.parse().unwrap()).collect();
    ringside::open(&format!("model:{index}"), &config).unwrap()
}

fn pair(device: &Device) -> (QueuePair, CompletionQueue) {
    let completions = device.completion_queue(16).unwrap();
    let domain = device.protection_domain().unwrap();
    let made = domain.queue_pair(QueuePairConfig::reliable(&completions));
    (made.unwrap(), completions)
}

/// Connects the first side to the second, and returns both ends with their completion queues.
fn connect(
    (near, client): (&Device, &ConnectionManager),
    (far, server): (&Device, &ConnectionManager),
    to: IpAddr,
) -> ([Connection; 2], CompletionQueue) {
    let to = SocketAddr::new(to, PORT);
    let listener = server.listen(to, 4).unwrap();
    let (one, completions) = pair(near);
    std::thread::scope(|scope| {
        let accepting = scope.spawn(|| {
            let request = listener.next(WAIT).expect("a request");
            request.accept(pair(far).0, &Settings::default(), WAIT)
        });
        let one = client.connect(one, to, &Settings::default(), WAIT);
        let other = accepting.join().unwrap();
        ([one.unwrap(), other.unwrap()], completions)
    })
}

/// A send without payload to the other end, and its completion.
fn send([from, to]: &mut [Connection; 2], completions: &mut CompletionQueue) -> Status {
    to.queue_pair.receive(2, &[]).unwrap();
    from.queue_pair.send(1, &[], Flags::SIGNALLED).unwrap();
    from.queue_pair.ring();
    let (end, mut batch) = (Instant::now() + WAIT, [Completion::EMPTY; 4]);
    loop {
        if let Some(done) = completions.poll(&mut batch).first() {
            return done.status();
        }
        assert!(Instant::now() < end, "no completion");
    }
}

/// Both peers have one address: only the VLAN of a message says whose it is.
#[test]
fn a_request_on_the_second_vlan_of_an_address_is_answered_there() {
    let own = "10.1.0.1/24";
    let near = open(0, own, &VLANS);
    let manager = near.connection_manager().unwrap();
    let peers = [1, 2].map(|index| {
        let vlan = VLANS[usize::from(index) - 1];
        open(index, "10.1.0.2/24", &[vlan])
    });
    let managers = peers
        .each_ref()
        .map(|one| one.connection_manager().unwrap());
    let address: IpAddr = "10.1.0.1".parse().unwrap();
    for ((peer, of_peer), vlan) in peers.iter().zip(&managers).zip(VLANS) {
        let (mut ends, mut completions) = connect((peer, of_peer), (&near, &manager), address);
        for end in &ends {
            assert_eq!(end.queue_pair.query().unwrap().vlan_tag, Some(vlan));
        }
        let far = ends[1].queue_pair.query().unwrap().peer;
        let number = ends[0].queue_pair.number();
        assert_eq!(far.map(|far| far.queue_pair), Some(number));
        assert_eq!(send(&mut ends, &mut completions), Status::Success);
        let [one, mut other] = ends;
        assert!(one.disconnect(WAIT), "the peer confirms on VLAN {vlan}");
        assert!(other.wait_for_end(WAIT));
    }
    // Without a request to answer, the first VLAN with the peer's network is the way.
    let far = (&peers[0], &managers[0]);
    let to = "10.1.0.2".parse().unwrap();
    let (ends, _completions) = connect((&near, &manager), far, to);
    let tag = ends[0].queue_pair.query().unwrap().vlan_tag;
    assert_eq!(tag, Some(VLANS[0]));
}

#[test]
fn an_address_that_leaves_one_vlan_stays_on_the_other() {
    let near = open(3, "10.2.0.1/24", &VLANS);
    let manager = near.connection_manager().unwrap();
    let address: IpAddr = "10.2.0.1".parse().unwrap();
    let at = SocketAddr::new(address, PORT);
    near.remove_address(address, Some(VLANS[0])).unwrap();
    assert!(manager.addresses().contains(&address));
    drop(manager.listen(at, 4).expect("it is on the other VLAN"));
    near.remove_address(address, Some(VLANS[1])).unwrap();
    assert!(!manager.addresses().contains(&address));
    manager.listen(at, 4).expect_err("it is on none");
}
