use super::*;

fn take(registry: &PortRegistry, vsis_max: usize, count: usize) -> Result<Taken, PortError> {
    let wanted = Wanted { among: 1..9, count };
    registry.take(vsis_max, wanted.clone(), wanted)
}

#[test]
fn vsis_end_at_the_number_that_the_function_has() {
    let registry = PortRegistry::default();
    let first = take(&registry, 3, 1).expect("the port's own and one");
    let second = take(&registry, 3, 1).expect("and two");
    assert_eq!((first.place, second.place), (1, 2));
    let error = take(&registry, 3, 1).expect_err("and three");
    let limit = PortError::TooMany {
        what: "VSIs",
        wanted: 4,
        limit: 3,
    };
    assert_eq!(error, limit);
    registry.give(&first);
    let again = take(&registry, 3, 1).expect("the place is free");
    assert_eq!((again.place, again.receive), (1, 1..2));
}

#[test]
fn the_queues_of_a_vsi_are_in_a_row_and_no_other_ones() {
    let registry = PortRegistry::default();
    let all = [2, 3, 2].map(|count| take(&registry, 9, count).expect("room"));
    let ranges = all.clone().map(|taken| taken.receive);
    assert_eq!(ranges, [1..3, 3..6, 6..8]);
    let [_, middle, _] = all;
    registry.give(&middle);
    let error = take(&registry, 9, 4).expect_err("3 in the gap and 1 at the end");
    let limit = PortError::TooMany {
        what: "receive queues in a row beside those in use",
        wanted: 4,
        limit: 3,
    };
    assert_eq!(error, limit);
    assert_eq!(take(&registry, 9, 3).expect("the gap").transmit, 3..6);
    assert_eq!(take(&registry, 9, 1).expect("the end").receive, 8..9);
    assert!(take(&registry, 9, 1).is_err(), "all are in use");
}
