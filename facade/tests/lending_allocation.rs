//! Lending and taking allocate nothing, also while the room is full.

mod pair;

use pair::{LIMIT, connected};
use ringside::lending::{Lender, OwnedSlice};
use ringside::prelude::*;
use std::time::Instant;

/// Slices that are lent at once. A table made for exactly as many has 128 places, of which it uses
/// no more than 112: each removal from it leaves a place that is neither used nor free.
const ROOM: usize = 112;
/// Requests of the test, all with other ids.
const TURNS: u64 = 20_000;
const EACH: usize = 64;

#[test]
fn a_full_room_is_lent_and_taken_many_times_without_an_allocation() {
    let [mut left, right] = connected(0);
    let shared = right.region(EACH);
    let target = shared.remote().at(0);
    let buffer = left.device.map_memory(vec![0; EACH * ROOM]).unwrap();
    let region = left.domain.register(buffer, Access::LOCAL_READ).unwrap();
    let mut rest = OwnedSlice::whole(region).unwrap();
    let mut lender = Lender::with_room(ROOM);
    for id in 0..ROOM as u64 {
        let (slice, others) = rest.split_at(EACH).unwrap();
        rest = others;
        lender
            .write(&mut left.queue_pair, id, slice, target, Flags::NONE)
            .unwrap();
    }
    left.queue_pair.ring();

    let (mut next, mut batch) = (ROOM as u64, [Completion::EMPTY; 32]);
    let limit = Instant::now() + LIMIT;
    // Of this thread: the threads of the library make others.
    let counted = allocation_counter::measure(|| {
        while next < TURNS {
            assert!(Instant::now() < limit, "{next} requests");
            for done in left.completions.poll(&mut batch) {
                assert_eq!((done.status(), lender.lent()), (Status::Success, ROOM));
                let slice = lender.take(done).expect("each request has a slice");
                lender
                    .write(&mut left.queue_pair, next, slice, target, Flags::NONE)
                    .unwrap();
                next += 1;
            }
            left.queue_pair.ring();
        }
    });
    assert_eq!(counted.count_total, 0);
    let counted = allocation_counter::measure(|| drop(vec![1]));
    assert_eq!(counted.count_total, 1, "allocations are counted");
}
