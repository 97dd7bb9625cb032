//! One IP address on two VLANs, with another peer on each: connections stay on their VLANs.

use ringside::connect::Settings;
use ringside::prelude::*;
use std::net::{IpAddr, SocketAddr};

mod managed;

use managed::{PORT, WAIT, connect, connect_to, send};

/// The VLANs, in the order of the address table of the node that is on both.
const VLANS: [u16; 2] = [7, 8];

/// Opens a function of the model with an address on these VLANs.
fn open(index: u16, address: &str, vlans: &[u16]) -> Device {
    let mut config = Config::default();
    config.model.functions = 6;
    let each = vlans.iter().map(|vlan| format!("{address}@{vlan}"));
    config.network.addresses = each.map(|one| one.parse().unwrap()).collect();
    ringside::open(&format!("model:{index}"), &config).unwrap()
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
        assert_eq!(send(&mut ends, &mut completions[0]), Status::Success);
        let [one, mut other] = ends;
        assert!(one.disconnect(WAIT), "the peer confirms on VLAN {vlan}");
        assert!(other.wait_for_end(WAIT));
    }
    // Without a request to answer, the first VLAN with the peer's network is the way.
    let far = (&peers[0], &managers[0]);
    let to = "10.1.0.2".parse().unwrap();
    let (ends, _) = connect((&near, &manager), far, to);
    let tag = ends[0].queue_pair.query().unwrap().vlan_tag;
    assert_eq!(tag, Some(VLANS[0]));
}

/// The first VLAN with the peer's network has no such peer: the chosen address is on the second.
#[test]
fn a_peer_is_looked_for_on_the_vlan_of_the_address_that_is_chosen() {
    let mut config = Config::default();
    config.model.functions = 6;
    let own = ["10.3.0.1/24@7", "10.3.0.2/24@8"];
    config.network.addresses = own.map(|one| one.parse().unwrap()).into();
    let near = ringside::open("model:4", &config).unwrap();
    let far = open(5, "10.3.0.9/24", &[8]);
    let managers = [&near, &far].map(|device| device.connection_manager().unwrap());
    let to: IpAddr = "10.3.0.9".parse().unwrap();
    let listener = managers[1].listen(SocketAddr::new(to, PORT), 4).unwrap();
    let settings = Settings {
        local_address: Some("10.3.0.2".parse().unwrap()),
        ..Settings::default()
    };
    let near = (&near, &managers[0]);
    let (mut ends, mut completions) = connect_to(near, (&far, &listener), to, &settings);
    assert_eq!(ends[0].queue_pair.query().unwrap().vlan_tag, Some(8));
    assert_eq!(send(&mut ends, &mut completions[0]), Status::Success);
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
