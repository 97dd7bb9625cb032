use super::*;

/// A place of the owner's memory.
fn place(slot: u64) -> Fragment {
    Fragment {
        address: 0x10_0000 + slot * 0x1000,
        length_bytes: 0x1000,
        steering_tag: 9,
    }
}

/// A pool with receives 0..20 for members 3 and 4 with windows of 4, and their states.
fn filled() -> (SharedReceives, [Arc<QueuePairState>; 2]) {
    let mut shared = SharedReceives::new(20, 1, 16);
    let states = [3, 4].map(|number| {
        let (queue, state) = queue(number, 16);
        shared.add(number, queue, 4).unwrap();
        state
    });
    for id in 0..20 {
        shared.post(id, &piece(id)).unwrap();
    }
    (shared, states)
}

/// The number of the receive that is taken for a message.
fn take(shared: &mut SharedReceives) -> Option<u64> {
    shared.take_for(|id, pieces| {
        assert_eq!(pieces, piece(id));
        id
    })
}

#[test]
fn receives_that_members_have_are_used_before_lent_ones_and_each_once() {
    let (mut shared, [first, second]) = filled();
    shared.begin_lending();
    assert_eq!(shared.left(), 20);
    for slot in 0..4 {
        assert!(shared.lend(3, slot, place(slot)));
        assert!(shared.lend(4, slot, place(slot)));
    }
    assert_eq!(
        shared.left(),
        20,
        "lent places are not receives of the pool"
    );
    let mut used = Vec::new();
    for _ in 0..4 {
        assert!(!shared.is_lent(3));
        used.push(complete(&first));
        shared.consumed(3);
    }
    assert!(shared.is_lent(3) && !shared.is_lent(4));
    assert_eq!(shared.left(), 16);
    for slot in 0..4 {
        assert_eq!(complete(&first), slot);
        shared.consumed(3);
        used.push(take(&mut shared).unwrap());
    }
    // The other member takes all that is left, also what windows would have kept away from it.
    for _ in 0..4 {
        used.push(complete(&second));
        shared.consumed(4);
    }
    while let Some(id) = take(&mut shared) {
        used.push(id);
    }
    used.sort_unstable();
    assert_eq!(used, (0..20).collect::<Vec<_>>());
    assert_eq!(shared.left(), 0);
}

#[test]
fn posts_wait_in_the_pool_and_the_capacity_holds() {
    let mut shared = SharedReceives::new(3, 1, 16);
    let (queue, state) = queue(3, 16);
    shared.begin_lending();
    shared.add(3, queue, 4).unwrap();
    for id in 0..3 {
        shared.post(id, &piece(id)).unwrap();
    }
    assert_eq!(shared.post(3, &piece(3)), Err(PostReceiveError::QueueFull));
    assert_eq!(state.receive.head(), 0, "no member has one");
    assert!(!shared.lend(5, 0, place(0)), "5 is not a member");
    assert!(shared.lend(3, 7, place(0)));
    assert_eq!(complete(&state), 7);
    shared.consumed(3);
    assert_eq!(take(&mut shared), Some(0));
    shared.post(3, &piece(3)).unwrap();
    assert_eq!(shared.left(), 3);
}

#[test]
fn a_failed_member_returns_what_it_had_of_the_pool_alone() {
    let (mut shared, [first, _]) = filled();
    shared.begin_lending();
    assert!(shared.lend(3, 0, place(0)));
    // Flushed in order: four of the pool, one that was lent.
    for position in 0..5 {
        let id = complete(&first);
        assert!(shared.returned(3, id, position));
    }
    assert_eq!(shared.left(), 20);
    assert_eq!(remove(&mut shared, 3), Some(0));
    assert_eq!(remove(&mut shared, 4), Some(4));
    let mut left: Vec<_> = std::iter::from_fn(|| take(&mut shared)).collect();
    left.sort_unstable();
    assert_eq!(left, (0..20).collect::<Vec<_>>());
}

#[test]
fn a_removed_member_with_lent_places_returns_what_is_of_the_pool() {
    let (mut shared, [first, _]) = filled();
    shared.begin_lending();
    assert!(shared.lend(3, 0, place(0)));
    complete(&first);
    shared.consumed(3);
    assert_eq!(remove(&mut shared, 3), Some(3));
    assert_eq!(shared.left(), 19);
    let (queue, state) = queue(3, 16);
    shared.add(3, queue, 4).unwrap();
    assert_eq!(state.receive.head(), 0);
    assert!(shared.is_lent(3));
}

#[test]
fn the_limit_is_reached_by_messages_in_lent_places() {
    let (mut shared, _) = filled();
    shared.begin_lending();
    shared.arm_limit(20);
    assert!(!shared.take_limit());
    assert!(take(&mut shared).is_some());
    assert!(shared.take_limit() && !shared.take_limit());
}

#[test]
fn an_ended_service_lends_nothing() {
    let (mut shared, _) = filled();
    shared.begin_lending();
    shared.close();
    assert!(!shared.lend(3, 0, place(0)));
    assert!(shared.post(20, &piece(20)).is_err());
    assert!(shared.take_waiting().is_some());
}

#[test]
fn receives_that_completed_before_lending_began_are_of_the_pool_when_they_are_delivered() {
    let (mut shared, [first, _]) = filled();
    // Two have completed; no completion was delivered.
    complete(&first);
    complete(&first);
    shared.begin_lending();
    assert_eq!(shared.left(), 20);
    for slot in 0..4 {
        assert!(shared.lend(3, slot, place(slot)));
    }
    for left in [19, 18] {
        assert!(!shared.is_lent(3));
        shared.consumed(3);
        assert_eq!(shared.left(), left);
    }
    for _ in 0..2 {
        assert!(!shared.is_lent(3));
        complete(&first);
        shared.consumed(3);
    }
    assert!(shared.is_lent(3));
    assert_eq!(complete(&first), 0, "the first place that was lent");
}

#[test]
fn a_removed_member_also_returns_what_completed_before_lending_began() {
    let (mut shared, [first, second]) = filled();
    let used = complete(&first);
    for state in [&first, &second, &second] {
        complete(state);
    }
    shared.begin_lending();
    assert!(shared.lend(3, 0, place(0)));
    shared.consumed(3);
    assert_eq!(remove(&mut shared, 3), Some(3));
    assert_eq!(remove(&mut shared, 4), Some(4));
    assert_eq!(shared.left(), 19);
    let mut left: Vec<_> = std::iter::from_fn(|| take(&mut shared)).collect();
    left.sort_unstable();
    let others: Vec<_> = (0..20).filter(|id| *id != used).collect();
    assert_eq!(left, others);
}

#[test]
fn places_are_lent_beside_receives_that_completed_and_were_not_delivered() {
    let (mut shared, [first, _]) = filled();
    for _ in 0..3 {
        complete(&first);
    }
    shared.begin_lending();
    let mut lent = 0;
    while shared.lend(3, 100 + lent, place(lent)) {
        lent += 1;
    }
    assert_eq!(remove(&mut shared, 3), Some(4));
    assert_eq!(remove(&mut shared, 4), Some(4));
    let mut left: Vec<_> = std::iter::from_fn(|| take(&mut shared)).collect();
    left.sort_unstable();
    assert_eq!(left, (0..20).collect::<Vec<_>>());
    assert_eq!(lent, 11, "a ring of 15 receives, four of the pool");
}

#[test]
fn a_delivered_receive_of_the_pool_makes_room_for_a_lent_one() {
    let (mut shared, [first, _]) = filled();
    for _ in 0..3 {
        complete(&first);
    }
    shared.begin_lending();
    while shared.lend(3, 0, place(0)) {}
    for _ in 0..3 {
        shared.consumed(3);
        assert!(shared.lend(3, 0, place(0)));
        assert!(!shared.lend(3, 0, place(0)));
    }
}
