//! Slices of a region that requests take and their completions give back.

mod pair;

use pair::{End, LIMIT, connected};
use ringside::lending::{Lender, OwnedSlice, Refusal};
use ringside::prelude::*;
use std::time::Instant;

fn slices(end: &End, each: usize, count: usize) -> Vec<OwnedSlice> {
    let buffer = end.device.map_memory(vec![0; each * count]).unwrap();
    let region = end.domain.register(buffer, Access::LOCAL_WRITE).unwrap();
    let mut rest = OwnedSlice::whole(region).unwrap();
    let mut all = Vec::new();
    for _ in 1..count {
        let (first, others) = rest.split_at(each).unwrap();
        all.push(first);
        rest = others;
    }
    all.push(rest);
    all
}

/// Polls until a slice has come back, and returns it with the status of its request.
fn back(end: &mut End, lender: &mut Lender) -> (OwnedSlice, u64, Status) {
    let limit = Instant::now() + LIMIT;
    let mut batch = [Completion::EMPTY; 1];
    loop {
        if let Some(done) = end.completions.poll(&mut batch).first() {
            let slice = lender.take(done).expect("each request has a slice");
            return (slice, done.id, done.status());
        }
        assert!(Instant::now() < limit, "no completion");
    }
}

fn first_byte(slice: &OwnedSlice) -> u8 {
    let mut byte = [0];
    assert!(slice.read(0, &mut byte));
    byte[0]
}

#[test]
fn a_lender_serves_one_device() {
    let [mut left, mut right] = connected(0);
    let mut lender = Lender::with_room(8);
    let mut of_left = slices(&left, 64, 1);
    lender
        .receive(&mut left.queue_pair, 1, of_left.remove(0))
        .unwrap();
    let of_right = slices(&right, 64, 1).remove(0);
    let refused = lender.receive(&mut right.queue_pair, 2, of_right);
    let refusal = refused.unwrap_err().refusal;
    assert!(
        matches!(refusal, Refusal::ForeignDevice { .. }),
        "{refusal}"
    );
    assert_eq!(
        refusal.to_string(),
        "the lender serves queue pairs of model:0: use another one for model:1"
    );
}

#[test]
fn each_slice_comes_back_with_its_own_completion() {
    let [mut left, mut right] = connected(10);
    let (mut here, mut there) = (Lender::with_room(8), Lender::with_room(8));
    for (id, slice) in slices(&right, 64, 4).into_iter().enumerate() {
        there
            .receive(&mut right.queue_pair, id as u64, slice)
            .unwrap();
    }
    for (id, mut slice) in slices(&left, 64, 4).into_iter().enumerate() {
        assert!(slice.write(0, &[id as u8 + 100; 64]));
        // Without a flag that asks for a completion.
        here.send(&mut left.queue_pair, id as u64, slice, Flags::NONE)
            .unwrap();
    }
    assert_eq!((here.lent(), there.lent()), (4, 4));
    left.queue_pair.ring();
    for (end, lender) in [(&mut left, &mut here), (&mut right, &mut there)] {
        for id in 0..4 {
            let (slice, done, status) = back(end, lender);
            assert_eq!((done, status), (id, Status::Success));
            assert_eq!((slice.length(), first_byte(&slice)), (64, id as u8 + 100));
        }
        assert_eq!(lender.lent(), 0);
    }
}

#[test]
fn reads_and_writes_of_a_peer_lend_as_well_and_a_flush_gives_back() {
    let [mut left, right] = connected(2);
    let shared = right.region(64);
    let mut lender = Lender::with_room(8);
    let mut each = slices(&left, 64, 2);
    let (into, mut from) = (each.pop().unwrap(), each.pop().unwrap());
    assert!(from.write(0, &[7; 64]) && !from.write(1, &[7; 64]));
    let target = shared.remote().at(0);
    lender
        .write(&mut left.queue_pair, 1, from, target, Flags::NONE)
        .unwrap();
    lender
        .read(&mut left.queue_pair, 2, into, target, Flags::NONE)
        .unwrap();
    left.queue_pair.ring();
    let (from, ..) = back(&mut left, &mut lender);
    let (into, id, status) = back(&mut left, &mut lender);
    assert_eq!((id, status, first_byte(&into)), (2, Status::Success, 7));

    lender.receive(&mut left.queue_pair, 3, from).unwrap();
    left.queue_pair.fail().unwrap();
    let (from, id, status) = back(&mut left, &mut lender);
    assert_eq!((id, status, first_byte(&from)), (3, Status::Flushed, 7));
}

#[test]
fn a_request_that_is_refused_keeps_no_slice() {
    let [mut left, _right] = connected(4);
    let mut lender = Lender::with_room(2);
    let mut each = slices(&left, 64, 3);
    let pair = &mut left.queue_pair;
    lender.receive(pair, 1, each.pop().unwrap()).unwrap();
    let twice = lender.receive(pair, 1, each.pop().unwrap()).unwrap_err();
    assert!(
        matches!(twice.refusal, Refusal::Duplicate { id: 1 }),
        "{twice}"
    );
    // A send may have the id of a receive.
    lender.send(pair, 1, twice.slice, Flags::NONE).unwrap();
    let full = lender.receive(pair, 2, each.pop().unwrap()).unwrap_err();
    assert!(matches!(full.refusal, Refusal::Full { room: 2 }), "{full}");
    assert_eq!((full.slice.length(), lender.lent()), (64, 2));

    left.queue_pair.fail().unwrap();
    let mut larger = Lender::with_room(2);
    let failed = larger
        .receive(&mut left.queue_pair, 9, full.slice)
        .unwrap_err();
    assert!(matches!(failed.refusal, Refusal::Post(_)), "{failed}");
    assert_eq!((failed.slice.length(), larger.lent()), (64, 0));
    let outside = failed.slice.split_at(65).unwrap_err();
    assert_eq!((outside.at, outside.slice.length()), (65, 64));
}

/// Numbers of queue pairs are used again: a request of the later queue pair has a slice of its own.
#[test]
fn slices_of_a_queue_pair_that_is_destroyed_come_back_before_its_number_is_used_again() {
    let [mut left, right] = connected(8);
    let mut lender = Lender::with_room(3);
    let mut each = slices(&left, 64, 4);
    let new = |left: &End| {
        let config = QueuePairConfig::reliable(&left.completions);
        let made = left.domain.queue_pair(config).unwrap();
        let connected = made.connect(&right.queue_pair.endpoint());
        connected.map_err(|failed| failed.error).unwrap()
    };
    let (mut former, mut other) = (new(&left), new(&left));
    let number = former.number();
    for (at, id) in [(1, 5), (2, 6)] {
        let mut slice = each.pop().unwrap();
        assert!(slice.write(0, &[at]));
        lender.receive(&mut former, id, slice).unwrap();
    }
    lender.receive(&mut other, 5, each.pop().unwrap()).unwrap();
    former.destroy().unwrap();
    let limit = Instant::now() + LIMIT;
    let mut later = loop {
        let later = new(&left);
        if later.number() == number {
            break later;
        }
        // Not a poll: the number of the former queue pair returns before the lender hears of it.
        left.completions.take_requests();
        assert!(Instant::now() < limit, "no queue pair {number} again");
    };

    let mut returned: Vec<u8> = lender.forget(number).iter().map(first_byte).collect();
    returned.sort_unstable();
    assert_eq!((returned, lender.lent()), (vec![1, 2], 1));
    assert_eq!(lender.forget(number).len(), 0);
    lender.receive(&mut later, 5, each.pop().unwrap()).unwrap();
    later.destroy().unwrap();
    assert_eq!((lender.forget(number).len(), lender.lent()), (1, 1));
    assert_eq!(lender.forget(other.number()).len(), 1);
}

#[test]
fn a_region_that_peers_reach_has_no_owned_slices() {
    let [left, _right] = connected(6);
    for access in [
        Access::REMOTE_READ,
        Access::REMOTE_WRITE,
        Access::BIND_WINDOW,
    ] {
        let buffer = left.device.allocate(4096).unwrap();
        let region = left.domain.register(buffer, access).unwrap();
        let refused = OwnedSlice::whole(region).unwrap_err();
        assert_eq!(refused.region.length(), 4096);
    }
}

#[test]
fn a_room_without_a_limit_is_possible() {
    let lender = Lender::with_room(usize::MAX);
    assert_eq!(lender.lent(), 0);
}
