//! One address on several VLANs: messages stay on the VLAN that they belong to.

use super::agreed::{question, request};
use super::*;

/// A node with [`OWN`] on VLANs 7 and 8.
fn node() -> Manager {
    let mut one = Manager::new(Identity::of(1, 2));
    one.add_address(OWN, Some(7));
    one.add_address(OWN, Some(8));
    one.listen(TCP, None, 4).expect("listen");
    one.listen(UDP, None, 4).expect("listen");
    one
}

/// A message of [`PEER`] arrives on a VLAN.
fn give_on(one: &mut Manager, vlan: Option<u16>, message: Message) -> Result<(), Discard> {
    let payload = mad(message).encode();
    let arrived = Arrived {
        vlan,
        ..arrived(PEER, OWN, &payload)
    };
    one.receive(START, &arrived)
}

/// The VLANs of the messages that a node sends, and the ids of its events.
fn taken(one: &mut Manager) -> (Vec<Option<u16>>, Vec<ConnectionId>) {
    let (mut vlans, mut ids) = (Vec::new(), Vec::new());
    while let Some(action) = one.next_action() {
        match action {
            Action::Send(mad) => vlans.push(mad.vlan),
            Action::Event(event) => ids.push(event.id),
        }
    }
    (vlans, ids)
}

#[test]
fn a_request_is_answered_on_the_vlan_that_it_came_by() {
    for vlan in [7, 8] {
        let mut one = node();
        give_on(&mut one, Some(vlan), Message::Request(request())).expect("taken");
        let (_, ids) = taken(&mut one);
        let agreed = one.parameters(ids[0]).expect("a connection");
        assert_eq!(agreed.vlan, Some(vlan));
        one.accept(START, ids[0], &accept_with(OWN_QP))
            .expect("accept");
        one.tick(START + Duration::from_secs(30));
        one.destroy(START, ids[0]);
        let (vlans, _) = taken(&mut one);
        assert!(vlans.len() >= 3, "an answer, a repeat, a refusal");
        assert!(vlans.iter().all(|of| *of == Some(vlan)), "{vlans:?}");
        assert!(one.farewell(ids[0]).is_none());
    }
}

#[test]
fn a_service_request_of_the_same_number_on_another_vlan_is_of_another_peer() {
    let mut one = node();
    for (vlan, news) in [(7, 1), (8, 1), (7, 0), (8, 0)] {
        let message = Message::ServiceRequest(question(UDP, 5));
        give_on(&mut one, Some(vlan), message).expect("taken");
        let (_, ids) = taken(&mut one);
        assert_eq!(ids.len(), news, "on {vlan}");
    }
    // Those for a service without a listener are held, and refused on their own VLANs.
    let absent = ServiceId::of(PortSpace::Udp, 9);
    for vlan in [7, 8, 8] {
        let message = Message::ServiceRequest(question(absent, 6));
        give_on(&mut one, Some(vlan), message).expect("held");
    }
    one.tick(START + LISTENER_WAIT);
    assert_eq!(taken(&mut one).0, [Some(7), Some(8)]);
}

#[test]
fn a_vlan_without_the_address_is_not_answered() {
    let mut one = node();
    let unknown = give_on(&mut one, Some(9), Message::Request(request()));
    let address = OWN.into();
    assert_eq!(unknown, Err(Discard::Vlan { address, vlan: 9 }));
    // A device may not report tags: the first VLAN is as good as any.
    give_on(&mut one, None, Message::Request(request())).expect("taken");
    let (_, ids) = taken(&mut one);
    let agreed = one.parameters(ids[0]).expect("a connection");
    assert_eq!(agreed.vlan, Some(7));

    one.remove_address(OWN, Some(7));
    let removed = give_on(&mut one, Some(7), Message::Request(request()));
    assert_eq!(removed, Err(Discard::Vlan { address, vlan: 7 }));
    let message = Message::ServiceRequest(question(UDP, 5));
    give_on(&mut one, Some(8), message).expect("taken");
    assert_eq!(taken(&mut one).1.len(), 1);
    one.remove_address(OWN, Some(8));
    let gone = give_on(&mut one, None, Message::Request(request()));
    assert_eq!(gone, Err(Discard::Destination(address)));
}

#[test]
fn a_node_connects_from_a_vlan_that_has_its_address() {
    let mut one = node();
    for vlan in [None, Some(9)] {
        let connect = Connect {
            vlan,
            ..connect_to(OWN, PEER, OWN_QP)
        };
        let refused = one.connect(START, &connect);
        let (local, remote) = (OWN, PEER);
        assert_eq!(refused, Err(RequestError::Address { local, remote }));
    }
    let connect = Connect {
        vlan: Some(8),
        ..connect_to(OWN, PEER, OWN_QP)
    };
    let id = one.connect(START, &connect).expect("connect");
    assert_eq!(taken(&mut one).0, [Some(8)]);
    assert_eq!(one.parameters(id).expect("its own").vlan, Some(8));
}
