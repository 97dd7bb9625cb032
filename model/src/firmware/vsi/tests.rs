//! Maps of receive queues.

use super::*;

const SCATTERED: u16 = 1;

fn interval(first: u16, count: u16) -> QueueMap {
    let mut properties = VsiProperties::zeroed();
    properties.queue_mapping[0] = first.into();
    properties.queue_mapping[1] = count.into();
    QueueMap::of(&properties)
}

/// A list of two queues; those behind them do not count.
fn list(queues: [u16; 2]) -> QueueMap {
    let mut properties = VsiProperties::zeroed();
    properties.mapping_flags = SCATTERED.into();
    properties.class_mapping[0] = ClassMapping::ZERO.with_count_log2(1).0.into();
    properties.queue_mapping = [77.into(); MAX_LISTED];
    for (place, queue) in properties.queue_mapping.iter_mut().zip(queues) {
        *place = queue.into();
    }
    QueueMap::of(&properties)
}

#[test]
fn maps_that_name_a_queue_twice_are_found() {
    for (one, other, expected) in [
        (interval(0, 4), interval(4, 4), false),
        (interval(0, 5), interval(4, 4), true),
        (interval(0, 16), interval(4, 4), true),
        (interval(4, 4), interval(4, 4), true),
        (interval(4, 0), interval(0, 16), false),
        (interval(0, 0), interval(0, 0), false),
        (interval(0, u16::MAX), interval(2047, 1), true),
        (interval(0, u16::MAX), interval(2048, 1), false),
        (interval(u16::MAX, 9), interval(u16::MAX, 1), true),
        (interval(u16::MAX, 9), interval(0, 9), false),
        (interval(0, 4), list([4, 9]), false),
        (interval(0, 4), list([9, 3]), true),
        (interval(9, 1), list([9, 3]), true),
        (interval(77, 1), list([9, 3]), false),
        (interval(9, 0), list([9, 3]), false),
        (list([1, 2]), list([3, 4]), false),
        (list([1, 2]), list([2, 3]), true),
        (list([77, 2]), list([3, 77]), true),
    ] {
        assert_eq!(one.overlaps(&other), expected, "{one:?} {other:?}");
        assert_eq!(other.overlaps(&one), expected, "{other:?} {one:?}");
    }
}

/// Each map names 2048 queues: the check of one queue against the other would take 3 thousand
/// million comparisons, which is seconds.
#[test]
fn the_maps_of_all_vsis_are_compared_at_once() {
    let maps: Vec<_> = (0..VSI_COUNT).map(|_| interval(0, MAX_QUEUES)).collect();
    let other = interval(MAX_QUEUES, MAX_QUEUES);
    // A busy machine delays some of the tries.
    let is_at_once = (0..5).any(|_| {
        let began = std::time::Instant::now();
        assert!(!maps.iter().any(|map| map.overlaps(&other)));
        began.elapsed() < std::time::Duration::from_secs(1)
    });
    assert!(is_at_once, "more than a second");
}
