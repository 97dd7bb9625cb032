use super::*;

/// Receives in the queue of a member.
fn held(state: &Arc<QueuePairState>) -> u64 {
    state.receive.head() - state.receive.tail()
}

/// A pool of 64 receives that were posted before any member came.
fn posted() -> SharedReceives {
    let mut shared = SharedReceives::new(64, 1, 128);
    for id in 0..64 {
        shared.post(id, &piece(id)).unwrap();
    }
    shared
}

fn join(shared: &mut SharedReceives, number: u32, window: u32) -> Arc<QueuePairState> {
    let (queue, state) = queue(number, 64);
    shared.add(number, queue, window).unwrap();
    state
}

/// Messages use all receives that a member has; as many are posted again.
fn use_all(shared: &mut SharedReceives, state: &QueuePairState) {
    let used: Vec<u64> = (0..state.receive.head() - state.receive.tail())
        .map(|_| complete(state))
        .collect();
    used.iter().for_each(|_| shared.consumed(state.number()));
    for id in used {
        shared.post(id, &piece(id)).unwrap();
    }
    assert_eq!(shared.left(), 64);
}

#[test]
fn late_members_get_receives_that_the_first_ones_left() {
    let mut shared = posted();
    let states: Vec<_> = (0..22)
        .map(|number| join(&mut shared, number, 16))
        .collect();
    let mut expected = vec![16, 16, 4, 4, 4, 4];
    expected.resize(22, 1);
    assert_eq!(states.iter().map(held).collect::<Vec<_>>(), expected);
    // All are given: one that comes now has to wait for a receive that is posted.
    let late = join(&mut shared, 30, 16);
    assert_eq!((held(&late), shared.left()), (0, 64));
    shared.post(0, &piece(0)).unwrap();
    assert_eq!(held(&late), 1);
}

#[test]
fn a_member_that_uses_its_receives_gets_more_at_a_time_and_a_quarter_stays() {
    let mut shared = posted();
    let states: Vec<_> = (0..6).map(|number| join(&mut shared, number, 16)).collect();
    let busy = &states[5];
    assert_eq!(held(busy), 4);
    for _ in 0..50 {
        use_all(&mut shared, busy);
    }
    assert_eq!(held(busy), 4, "the last quarter is for others");
    // Others leave: their receives serve the one that is busy, up to its window.
    for number in 0..2 {
        remove(&mut shared, number).unwrap();
    }
    for _ in 0..50 {
        use_all(&mut shared, busy);
    }
    assert_eq!(held(busy), 16);
}

#[test]
fn a_failed_member_is_not_given_more() {
    let mut shared = posted();
    let states: Vec<_> = (0..3).map(|number| join(&mut shared, number, 16)).collect();
    let failing = &states[2];
    complete(failing);
    shared.failed(2);
    while held(failing) > 0 {
        let position = failing.receive.tail();
        let id = complete(failing);
        assert!(shared.returned(2, id, position));
    }
    shared.consumed(2);
    assert_eq!(held(failing), 0);
}
