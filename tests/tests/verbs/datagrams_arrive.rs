//! Datagrams that travel: from one function to the other and back, and to groups.

use crate::datagrams::{KEY, handle_to, ready};
use ringside_model::Fault;
use ringside_pmd::rdma::{
    AddressHandle, Completion, Datagram, DatagramReady, Destination, Flags, QueuePair, RdmaError,
    Route, Status, To,
};
use ringside_spec::rdma::commands::Opcode;
use ringside_testkit::Pair;

/// The 40 bytes before the payload, and the payload.
fn received(region: &ringside_pmd::rdma::MemoryRegion, done: &Completion) -> (Route, Vec<u8>) {
    let datagram = done.datagram().expect("a datagram");
    let mut head = [0; Datagram::PAYLOAD_OFFSET];
    assert!(region.read(0, &mut head));
    let mut payload = vec![0; datagram.payload_bytes as usize];
    assert!(region.read(Datagram::PAYLOAD_OFFSET, &mut payload));
    (
        Route::parse(&head, datagram.ipv4).expect("a route"),
        payload,
    )
}

#[test]
fn a_datagram_arrives_with_its_source_and_can_be_answered() {
    let mut pair = Pair::new();
    let (mut a, mut b) = (ready(&pair.a), ready(&pair.b));
    let (from, at) = (pair.a.region(4096), pair.b.region(4096));
    let back = pair.a.region(4096);
    let text = b"who is there?";
    assert!(from.write(0, text));
    b.receive(7, &[at.slice(0..4096).unwrap()]).unwrap();
    a.receive(8, &[back.slice(0..4096).unwrap()]).unwrap();
    let handle = handle_to(&pair.a, &b);
    let to = To {
        handle: &handle,
        queue_pair: b.number(),
        queue_key: KEY,
    };
    let pieces = [from.slice(0..text.len()).unwrap()];
    a.post_send_to(1, &to, &pieces, Some(0xC0FFEE), Flags::SIGNALLED)
        .unwrap();
    a.ring();
    let sent = pair.wait_a(1);
    assert_eq!((sent[0].id, sent[0].status()), (1, Status::Success));
    let done = pair.wait_b(1);
    let datagram = done[0].datagram().expect("a datagram");
    assert_eq!((done[0].id, done[0].immediate()), (7, Some(0xC0FFEE)));
    assert_eq!(datagram.source_queue_pair, a.number());
    assert_eq!(datagram.source_mac, Some(a.endpoint().mac));
    let (route, payload) = received(&at, &done[0]);
    assert_eq!(payload, text);
    assert_eq!(route.source, a.endpoint().address);
    assert_eq!(route.destination, b.endpoint().address);
    // The received route has the address for the answer.
    let answer = Destination::answer(&datagram, &route).expect("a way back");
    let handle = pair.b.domain.address_handle(&answer).expect("a handle");
    let to = To {
        handle: &handle,
        queue_pair: datagram.source_queue_pair,
        queue_key: KEY,
    };
    b.post_send_inline_to(2, &to, b"me", None, Flags::SIGNALLED)
        .unwrap();
    b.ring();
    let done = pair.wait_a(1);
    assert_eq!((done[0].id, done[0].immediate()), (8, None));
    assert_eq!(received(&back, &done[0]).1, b"me");
    drop(handle);
    drop((a, b, from, at, back));
    pair.finish();
}

#[test]
fn a_datagram_to_a_group_reaches_each_member_and_no_former_member() {
    let mut pair = Pair::new();
    let group = "239.1.2.3".parse().unwrap();
    let mut sender = ready(&pair.a);
    let mut members: Vec<_> = (0..3).map(|_| ready(&pair.b)).collect();
    let regions: Vec<_> = (0..3).map(|_| pair.b.region(4096)).collect();
    for (number, (member, region)) in members.iter_mut().zip(&regions).enumerate() {
        member.join(group).unwrap();
        let place = [region.slice(0..4096).unwrap()];
        member.receive(number as u64, &place).unwrap();
    }
    members[1].leave(group).unwrap();
    let destination = Destination::group(group).unwrap();
    let handle = pair.a.domain.address_handle(&destination).unwrap();
    let to = To {
        handle: &handle,
        queue_pair: To::MULTICAST_QUEUE_PAIR,
        queue_key: KEY,
    };
    sender
        .post_send_inline_to(1, &to, b"all", None, Flags::SIGNALLED)
        .unwrap();
    sender.ring();
    assert_eq!(pair.wait_a(1)[0].status(), Status::Success);
    let mut done = pair.wait_b(2);
    done.sort_by_key(|one| one.id);
    assert_eq!((done[0].id, done[1].id), (0, 2));
    for one in &done {
        let (route, payload) = received(&regions[one.id as usize], one);
        assert_eq!(payload, b"all");
        assert_eq!(route.destination, group);
        // A group address cannot be the source of an answer.
        let datagram = one.datagram().unwrap();
        let answer = Destination::answer(&datagram, &route).unwrap();
        assert_eq!(answer.local_address, None);
    }
    drop((sender, members, regions, handle));
    pair.finish();
}

/// Sends a datagram to a group from `a`, and waits until it was sent.
fn send_to_group(pair: &mut Pair, sender: &mut QueuePair<DatagramReady>, handle: &AddressHandle) {
    let to = To {
        handle,
        queue_pair: To::MULTICAST_QUEUE_PAIR,
        queue_key: KEY,
    };
    sender
        .post_send_inline_to(1, &to, b"all", None, Flags::SIGNALLED)
        .unwrap();
    sender.ring();
    assert_eq!(pair.wait_a(1)[0].status(), Status::Success);
}

#[test]
fn a_member_that_the_device_does_not_let_go_is_one_until_it_leaves_again() {
    let mut pair = Pair::new();
    let group = "239.1.2.3".parse().unwrap();
    let mut sender = ready(&pair.a);
    let destination = Destination::group(group).unwrap();
    let handle = pair.a.domain.address_handle(&destination).unwrap();
    let mut members: Vec<_> = (0..2).map(|_| ready(&pair.b)).collect();
    let region = pair.b.region(4096);
    for member in &members {
        member.join(group).unwrap();
    }
    // The first one leaves by a change of the group, the last one by its end.
    for opcode in [Opcode::ModifyMulticastGroup, Opcode::DestroyMulticastGroup] {
        let fault = Fault::ControlCommandFails {
            opcode: opcode.code(),
            major: 0xFFFF,
            minor: 0x8004,
        };
        pair.world.with(|world| world.inject(1, fault));
        let refused = members[0].leave(group).expect_err("refused");
        assert!(matches!(refused, RdmaError::Control(_)), "{refused}");
        pair.world.with(|world| world.clear_faults(1));
        for (id, member) in members.iter_mut().enumerate() {
            let place = [region.slice(0..4096).unwrap()];
            member.receive(id as u64, &place).unwrap();
        }
        send_to_group(&mut pair, &mut sender, &handle);
        assert_eq!(pair.wait_b(members.len()).len(), members.len());
        members[0].leave(group).expect("the device agrees");
        let missing = members.remove(0).leave(group).expect_err("it has left");
        assert!(matches!(missing, RdmaError::NotInGroup { .. }), "{missing}");
    }
    let used = pair.b.device.object_usage().unwrap();
    assert_eq!(used.multicast_groups.used, 0);
    drop((sender, members, region, handle));
    pair.finish();
}

#[test]
fn a_datagram_with_a_wrong_key_or_without_a_receive_is_dropped_and_both_sides_continue() {
    let mut pair = Pair::new();
    let (mut a, mut b) = (ready(&pair.a), ready(&pair.b));
    let at = pair.b.region(4096);
    let handle = handle_to(&pair.a, &b);
    let to = |queue_key| To {
        handle: &handle,
        queue_pair: b.number(),
        queue_key,
    };
    let (wrong, right) = (to(KEY + 1), to(KEY));
    // No receive is posted.
    a.post_send_inline_to(1, &right, b"lost", None, Flags::SIGNALLED)
        .unwrap();
    a.ring();
    assert_eq!(pair.wait_a(1)[0].status(), Status::Success);
    pair.pass();
    b.receive(7, &[at.slice(0..4096).unwrap()]).unwrap();
    for (id, to, text) in [(2, &wrong, b"bad!"), (3, &right, b"good")] {
        a.post_send_inline_to(id, to, text, None, Flags::SIGNALLED)
            .unwrap();
    }
    a.ring();
    assert_eq!(pair.wait_a(2).len(), 2);
    let done = pair.wait_b(1);
    assert_eq!(received(&at, &done[0]).1, b"good");
    assert!(pair.a.events().is_empty() && pair.b.events().is_empty());
    drop((a, b, at, handle));
    pair.finish();
}

/// Two groups have one MAC address: its low 23 bits are those of the IP address.
#[test]
fn a_group_goes_on_when_another_one_of_its_mac_address_ends() {
    let mut pair = Pair::new();
    let [one, other] = ["224.1.2.3", "225.1.2.3"].map(|group| group.parse().unwrap());
    let mut sender = ready(&pair.a);
    let [mut stays, leaves] = [one, other].map(|group| {
        let member = ready(&pair.b);
        member.join(group).unwrap();
        member
    });
    leaves.leave(other).unwrap();
    let region = pair.b.region(4096);
    stays.receive(7, &[region.slice(0..4096).unwrap()]).unwrap();
    let destination = Destination::group(one).unwrap();
    let handle = pair.a.domain.address_handle(&destination).unwrap();
    send_to_group(&mut pair, &mut sender, &handle);
    assert_eq!(pair.wait_b(1)[0].id, 7, "its only member receives");
    drop((sender, stays, leaves, region, handle));
    pair.finish();
}
