use super::*;

mod lending;
mod windows;
use crate::{CompletionContext, QueuePairState};
use ringside_bus::{Memory, PageSize};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Makes a receive queue of `elements` places, and the state by which completions retire them.
fn queue(number: u32, elements: u32) -> (ReceiveQueue, Arc<QueuePairState>) {
    wide_queue(number, elements, 0)
}

/// A queue of elements of `1 << shift` quanta.
fn wide_queue(number: u32, elements: u32, shift: u32) -> (ReceiveQueue, Arc<QueuePairState>) {
    let memory = Memory::allocate(4096, PageSize::FourKiB, None).unwrap();
    let ring = memory.words(0, (elements as usize * 32) << shift).unwrap();
    let context = CompletionContext::new(number, 1);
    let state = Arc::new(QueuePairState::new(context, number, 64, elements, shift));
    let queue = ReceiveQueue::new(ring, Arc::clone(&state)).unwrap();
    (queue, state)
}

/// Removes a member as the driver does: the copy of its receives is made first. Returns their
/// number.
fn remove(shared: &mut SharedReceives, number: u32) -> Option<usize> {
    let unused = shared.unused(number)?;
    shared.forget(number);
    Some(shared.put_back(&unused))
}

fn piece(id: u64) -> [Fragment; 1] {
    [Fragment {
        address: id * 4096,
        length_bytes: 100,
        steering_tag: 7,
    }]
}

/// Completes the oldest receive of a member; returns its number.
fn complete(state: &QueuePairState) -> u64 {
    let position = state.receive.tail();
    let request = state.receive.at(position).expect("a receive");
    state.receive.retire_to(position + 1);
    request.id
}

#[test]
fn members_are_kept_filled_and_each_receive_is_used_once() {
    let mut shared = SharedReceives::new(100, 1, 16);
    let states: Vec<_> = (0..4)
        .map(|number| {
            let (queue, state) = queue(number, 16);
            shared.add(number, queue, 3).unwrap();
            state
        })
        .collect();
    let mut next = 0;
    let mut used = Vec::new();
    for round in 0..500_usize {
        while shared.left() < 40 {
            shared.post(next, &piece(next)).unwrap();
            next += 1;
        }
        let state = &states[round * 7 % 4];
        assert!(state.receive.head() - state.receive.tail() >= 2, "{round}");
        used.push(complete(state));
        shared.consumed(state.number());
    }
    used.sort_unstable();
    let before = used.len();
    used.dedup();
    assert_eq!(used.len(), before);
}

#[test]
fn a_dry_pool_leaves_members_short_and_the_next_post_goes_to_them() {
    let mut shared = SharedReceives::new(10, 1, 16);
    let (queue, state) = queue(5, 16);
    shared.add(5, queue, 4).unwrap();
    shared.post(1, &piece(1)).unwrap();
    assert_eq!(state.receive.head(), 1);
    assert_eq!(complete(&state), 1);
    shared.consumed(5);
    for id in 2..8 {
        shared.post(id, &piece(id)).unwrap();
    }
    // Four are in the queue, two wait in the pool.
    assert_eq!((state.receive.head(), shared.left()), (5, 6));
    for id in 8..12 {
        shared.post(id, &piece(id)).unwrap();
    }
    assert_eq!(shared.left(), 10);
    let error = shared.post(12, &piece(12)).unwrap_err();
    assert_eq!(error, PostReceiveError::QueueFull);
}

#[test]
fn unused_receives_of_a_failed_or_removed_member_serve_the_others() {
    let mut shared = SharedReceives::new(100, 1, 16);
    let (first, failing) = queue(1, 16);
    let (second, other) = queue(2, 16);
    shared.add(1, first, 4).unwrap();
    for id in 0..4 {
        shared.post(id, &piece(id)).unwrap();
    }
    assert_eq!(complete(&failing), 0);
    shared.consumed(1);
    // The device flushes the two receives, one by one.
    for _ in 0..2 {
        let position = failing.receive.tail();
        let id = complete(&failing);
        assert!(shared.returned(1, id, position));
    }
    assert_eq!(shared.left(), 3);
    shared.add(2, second, 4).unwrap();
    assert_eq!(remove(&mut shared, 1), Some(1));
    assert_eq!(remove(&mut shared, 1), None);
    let mut ids: Vec<u64> = (0..3).map(|_| complete(&other)).collect();
    ids.sort_unstable();
    assert_eq!(ids, [1, 2, 3]);
    assert_eq!((shared.left(), shared.members()), (3, 1));
}

#[test]
fn a_failed_member_gets_no_further_receives() {
    let mut shared = SharedReceives::new(100, 1, 16);
    let (first, failing) = queue(1, 16);
    let (second, other) = queue(2, 16);
    shared.add(1, first, 2).unwrap();
    for id in 0..5 {
        shared.post(id, &piece(id)).unwrap();
    }
    // The first receive fails, the second one is flushed.
    assert_eq!(complete(&failing), 0);
    shared.failed(1);
    let position = failing.receive.tail();
    assert_eq!(complete(&failing), 1);
    assert!(shared.returned(1, 1, position));
    assert_eq!((failing.receive.tail(), shared.left()), (position + 1, 4));
    shared.add(2, second, 4).unwrap();
    let mut ids: Vec<u64> = (0..4).map(|_| complete(&other)).collect();
    ids.sort_unstable();
    assert_eq!(ids, [1, 2, 3, 4]);
    // One that is no member costs nothing.
    shared.failed(3);
    assert_eq!(shared.left(), 4);
}

#[test]
fn fragments_come_back_as_they_were_posted() {
    let mut shared = SharedReceives::new(100, 1, 16);
    let (first, failing) = queue(1, 8);
    shared.add(1, first, 7).unwrap();
    // Over several passes of the ring.
    for id in 0..60 {
        shared.post(id, &piece(id)).unwrap();
        assert_eq!(complete(&failing), id);
        shared.consumed(1);
    }
    shared.post(60, &piece(60)).unwrap();
    let position = failing.receive.tail();
    let id = complete(&failing);
    assert!(shared.returned(1, id, position));
    assert_eq!(remove(&mut shared, 1), Some(0));
    let (second, other) = queue(2, 8);
    let ring = second.fragments_at(0);
    assert!(ring.iter().all(|piece| piece.length_bytes == 0));
    shared.add(2, second, 1).unwrap();
    let Some(Some(member)) = shared.members.get(2) else {
        panic!("no member");
    };
    assert_eq!(member.fragments_at(0), piece(60));
    assert_eq!(complete(&other), 60);
}

#[test]
fn the_limit_is_told_once() {
    let mut shared = SharedReceives::new(100, 1, 16);
    let (queue, state) = queue(1, 16);
    shared.add(1, queue, 8).unwrap();
    for id in 0..10 {
        shared.post(id, &piece(id)).unwrap();
    }
    shared.arm_limit(8);
    assert!(!shared.take_limit());
    for left in (5..10).rev() {
        complete(&state);
        shared.consumed(1);
        assert_eq!(shared.take_limit(), left == 7, "{left} left");
    }
    shared.arm_limit(100);
    assert!(shared.take_limit());
}

#[test]
fn queues_that_do_not_fit_are_handed_back() {
    let mut shared = SharedReceives::new(100, 2, 4);
    let (small, _) = queue(1, 16);
    let (error, small) = shared.add(1, small, 4).unwrap_err();
    assert!(
        matches!(error, MemberError::TooFewFragments { .. }),
        "{error}"
    );
    let (error, _) = shared.add(4, *small, 4).unwrap_err();
    assert!(
        matches!(error, MemberError::NumberTooHigh { .. }),
        "{error}"
    );
    let mut shared = SharedReceives::new(100, 1, 4);
    let (mut used, _) = queue(1, 16);
    used.post(1, &piece(1)).unwrap();
    let (error, _) = shared.add(1, used, 4).unwrap_err();
    assert!(
        matches!(error, MemberError::InUse { receives: 1, .. }),
        "{error}"
    );
    let two = [piece(1)[0], piece(2)[0]];
    let error = shared.post(1, &two).unwrap_err();
    assert!(matches!(error, PostReceiveError::TooManyFragments { .. }));
}

/// An element of a receive queue may take more fragments than the pool was made for.
#[test]
fn receives_of_more_fragments_than_the_pool_has_room_for_are_refused_in_every_state() {
    let mut shared = SharedReceives::new(4, 2, 16);
    let three = [1, 2, 3].map(|number| piece(number)[0]);
    let expected = PostReceiveError::TooManyFragments {
        given: 3,
        maximum: 2,
    };
    assert_eq!(shared.post(1, &three), Err(expected), "into the pool");
    let (wide, _) = wide_queue(1, 16, 2);
    assert!(wide.maximum_fragments() >= 3);
    shared.add(1, wide, 2).unwrap();
    assert_eq!(shared.post(1, &three), Err(expected), "for a member");
    shared.consumed(1);
    assert_eq!(shared.post(1, &three), Err(expected), "for one that waits");
    shared.post(1, &three[..2]).unwrap();
}

#[test]
fn queue_pairs_that_are_no_members_take_nothing_and_cost_no_receive() {
    let mut shared = SharedReceives::new(100, 1, 16);
    let (queue, state) = queue(1, 16);
    shared.add(1, queue, 4).unwrap();
    for id in 0..6 {
        shared.post(id, &piece(id)).unwrap();
    }
    for other in 0..100 {
        shared.consumed(2 + other % 30);
        assert_eq!(shared.left(), 6, "{other}");
    }
    complete(&state);
    shared.consumed(1);
    shared.consumed(7);
    shared.post(6, &piece(6)).unwrap();
    assert_eq!((shared.left(), state.receive.head()), (6, 5));
}

#[test]
fn the_limit_is_noticed_by_the_very_receive_that_reaches_it() {
    for posted in 1..=24_u64 {
        for limit in 1..=posted {
            let mut shared = SharedReceives::new(100, 1, 16);
            let (queue, state) = queue(5, 32);
            shared.add(5, queue, 16).unwrap();
            for id in 0..posted {
                shared.post(id, &piece(id)).unwrap();
            }
            shared.arm_limit(limit as u32);
            for left in (0..posted).rev() {
                complete(&state);
                shared.consumed(5);
                assert_eq!(u64::from(shared.left()), left);
                let reached = shared.take_limit();
                assert_eq!(reached, left + 1 == limit, "{posted} {limit} {left}");
            }
        }
    }
}

#[test]
fn few_receives_are_shared_out_evenly() {
    let mut shared = SharedReceives::new(100, 1, 16);
    let mut states = Vec::new();
    for number in [3, 1, 2] {
        let (queue, state) = queue(number, 16);
        shared.add(number, queue, 8).unwrap();
        states.push(state);
    }
    for id in 0..6 {
        shared.post(id, &piece(id)).unwrap();
    }
    let held = |state: &Arc<QueuePairState>| state.receive.head() - state.receive.tail();
    assert_eq!(states.iter().map(held).collect::<Vec<_>>(), [2, 2, 2]);
    // A member that comes later gets the next ones, until it has as many as the others.
    let (queue, late) = queue(9, 16);
    shared.add(9, queue, 8).unwrap();
    shared.post(6, &piece(6)).unwrap();
    shared.post(7, &piece(7)).unwrap();
    assert_eq!(held(&late), 2);
}

#[test]
fn receives_completed_on_a_member_are_counted() {
    let mut shared = SharedReceives::new(10, 1, 16);
    let (queue, state) = queue(3, 16);
    shared.add(3, queue, 8).unwrap();
    for id in 0..5 {
        shared.post(id, &piece(id)).unwrap();
    }
    assert_eq!(shared.retired(3), Some(0));
    for completed in 1..=3 {
        complete(&state);
        assert_eq!(shared.retired(3), Some(completed));
    }
    assert_eq!(shared.retired(4), None, "not a member");
}

#[test]
fn receives_beyond_the_capacity_return_to_the_pool() {
    let mut shared = SharedReceives::new(2, 1, 16);
    let members: Vec<_> = (0..8)
        .map(|number| {
            let (queue, state) = queue(number, 16);
            shared.add(number, queue, 8).unwrap();
            state
        })
        .collect();
    for id in 0..8 {
        shared.post(id, &piece(id)).unwrap();
    }
    let removed = (0..8).filter_map(|number| remove(&mut shared, number));
    assert_eq!(removed.sum::<usize>(), 8);
    let mut returned: Vec<_> = std::iter::from_fn(|| shared.take_waiting()).collect();
    returned.sort_unstable();
    assert_eq!(returned, (0..8).collect::<Vec<_>>());
    drop(members);
}

#[test]
fn receives_of_a_removed_member_are_as_posted_when_its_ring_is_another_owners_memory() {
    let memory = Memory::allocate(4096, PageSize::FourKiB, None).unwrap();
    let ring = || memory.words(0, 8 * 32).unwrap();
    let state = QueuePairState::new(CompletionContext::new(1, 1), 1, 64, 8, 0);
    let mut shared = SharedReceives::new(100, 1, 16);
    let member = ReceiveQueue::new(ring(), Arc::new(state)).unwrap();
    shared.add(1, member, 4).unwrap();
    for id in 1..5 {
        shared.post(id, &piece(id)).unwrap();
    }
    let unused = shared.unused(1).unwrap();
    // The device confirmed; the pool gave the ring to another owner.
    let theirs = ring();
    for word in theirs.as_slice() {
        word.store(u64::MAX, Ordering::Relaxed);
    }
    shared.forget(1);
    assert_eq!((shared.left(), shared.members()), (0, 0));
    shared.post(5, &piece(5)).unwrap();
    assert_eq!((shared.put_back(&unused), shared.left()), (4, 5));
    for (index, word) in theirs.as_slice().iter().enumerate() {
        let found = word.load(Ordering::Relaxed);
        assert_eq!(found, u64::MAX, "word {index} was written");
    }
    let mut found = Vec::new();
    while let Some((id, pieces)) = shared.pool.oldest() {
        assert_eq!(pieces, piece(id));
        found.push(id);
        shared.pool.drop_oldest();
    }
    assert_eq!(found, [5, 1, 2, 3, 4]);
}

/// Its completion was taken out of a ring that was replaced, and is delivered after the end of the
/// queue pair.
#[test]
fn a_completion_that_is_delivered_after_its_queue_pair_has_ended_leaves_room_for_another() {
    let mut shared = SharedReceives::new(16, 1, 16);
    let (first, state) = queue(3, 16);
    let (second, _) = queue(5, 16);
    shared.add(3, first, 4).unwrap();
    shared.add(5, second, 4).unwrap();
    (0..16).for_each(|id| shared.post(id, &piece(id)).unwrap());
    assert_eq!(shared.left(), 16);
    complete(&state);
    assert_eq!(remove(&mut shared, 3), Some(3));
    shared.consumed(3);
    assert_eq!(shared.left(), 15);
    shared.post(20, &piece(20)).unwrap();
    assert_eq!(shared.left(), 16);
    let full = shared.post(21, &piece(21));
    assert_eq!(full, Err(PostReceiveError::QueueFull));
}
