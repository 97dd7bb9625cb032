use super::*;
use crate::example::{commit, layout, limits, wanted};

fn plan() -> Plan {
    Plan::new(&limits(|_| {}), &wanted()).expect("fits")
}

fn answered(change: impl FnOnce(&mut PerObject<ObjectGrant>)) -> Result<Layout, CommitError> {
    let plan = plan();
    let mut answer = commit(&plan);
    change(&mut answer.0);
    Layout::from_commit(plan, &answer)
}

#[test]
fn an_echoed_answer_gives_counts_and_places() {
    let layout = layout(&wanted());
    let queue_pairs = layout.placement(ObjectType::QueuePair);
    assert_eq!(
        queue_pairs,
        Placement {
            count: 128,
            size_bytes: 512,
            base: FpmAddress(0)
        }
    );
    let completion_queues = layout.placement(ObjectType::CompletionQueue);
    assert_eq!(completion_queues.base, queue_pairs.end());
    assert_eq!(completion_queues.address(2), Some(FpmAddress(65_536 + 128)));
    assert_eq!(completion_queues.address(256), None);
    assert_eq!(layout.lowered().count(), 0);
    assert_eq!(layout.segments(), layout.plan().segments());
    assert_eq!(layout.pbles().entries(), 65_536);
}

#[test]
fn lowered_counts_are_taken_and_named() {
    let layout = answered(|grants| grants[ObjectType::CompletionQueue].count = 100).expect("sound");
    let lowered: Vec<_> = layout.lowered().collect();
    assert_eq!(lowered, [(ObjectType::CompletionQueue, 256, 100)]);
    assert_eq!(layout.count(ObjectType::CompletionQueue), 100);
}

#[test]
fn raised_counts_are_refused_for_each_object() {
    for object in ObjectType::ALL {
        let asked = plan().count(object);
        let granted = asked + 1;
        assert_eq!(
            answered(|grants| grants[object].count = granted),
            Err(CommitError::Raised {
                object,
                asked,
                granted
            })
        );
    }
}

#[test]
fn too_few_for_one_user_are_refused() {
    let reserved = [
        (ObjectType::QueuePair, 3),
        (ObjectType::CompletionQueue, 3),
        (ObjectType::MemoryRegion, 1),
        (ObjectType::AddressVector, 1),
    ];
    for (object, reserved) in reserved {
        let result = answered(|grants| grants[object].count = reserved);
        assert_eq!(
            result,
            Err(CommitError::TooFew {
                object,
                granted: reserved,
                reserved
            })
        );
        answered(|grants| grants[object].count = reserved + 1).expect("one user");
    }
}

#[test]
fn objects_that_share_memory_are_refused() {
    for object in ObjectType::ALL.into_iter().skip(1) {
        if plan().count(object) == 0 {
            continue;
        }
        let result = answered(|grants| grants[object].base_by_512 -= 1);
        assert!(
            matches!(result, Err(CommitError::Overlap { .. })),
            "{object:?}: {result:?}"
        );
    }
    let result = answered(|grants| {
        for object in ObjectType::ALL {
            grants[object].base_by_512 = 0;
        }
    });
    assert!(
        matches!(result, Err(CommitError::Overlap { .. })),
        "all bases 0: {result:?}"
    );
}

#[test]
fn order_of_bases_is_free_and_gaps_are_allowed() {
    let layout = answered(|grants| {
        let end = commit(&plan()).0[ObjectType::PageBufferList].base_by_512 + 4096;
        grants[ObjectType::QueuePair].base_by_512 = end;
    })
    .expect("queue pairs last");
    assert_eq!(layout.segments(), plan().segments() + 1);
}

#[test]
fn objects_past_the_last_segment_are_refused() {
    let segments_by_512 = (SEGMENT_BYTES / 512) as u32;
    let last = |base| answered(|grants| grants[ObjectType::PageBufferList].base_by_512 = base);
    let pbles_by_512 = 65_536 * 8 / 512;
    last(64 * segments_by_512 - pbles_by_512).expect("just inside");
    for base in [64 * segments_by_512 - pbles_by_512 + 1, u32::MAX] {
        assert!(matches!(
            last(base),
            Err(CommitError::OutOfSegments {
                object: ObjectType::PageBufferList,
                max_segments: 64,
                ..
            })
        ));
    }
}

#[test]
fn segments_of_a_function_are_counted_from_its_first_one() {
    let first = 60;
    let limits = limits(|query| query.first_segment = first);
    assert_eq!((limits.max_segments(), limits.segments_end()), (64, 124));
    let plan = Plan::new(&limits, &wanted()).expect("as many segments as from 0 on");
    let offset = u32::from(first) * (SEGMENT_BYTES / 512) as u32;
    let of = |pbles: Option<u32>| {
        let mut answer = commit(&plan);
        for object in ObjectType::ALL {
            answer.0[object].base_by_512 += offset;
        }
        if let Some(base) = pbles {
            answer.0[ObjectType::PageBufferList].base_by_512 = base;
        }
        Layout::from_commit(plan.clone(), &answer)
    };
    let layout = of(None).expect("sound");
    assert_eq!(layout.segments(), u32::from(first) + plan.segments());
    let text = layout.to_string();
    let used = format!("{} of 64 segments", plan.segments());
    assert!(text.contains(&used), "{text}");
    let last = offset + 64 * (SEGMENT_BYTES / 512) as u32 - 65_536 * 8 / 512;
    of(Some(last)).expect("just inside");
    assert!(matches!(
        of(Some(last + 1)),
        Err(CommitError::OutOfSegments { .. })
    ));
}

#[test]
fn places_of_absent_objects_do_not_matter() {
    let layout = answered(|grants| grants[ObjectType::OutOfOrder].base_by_512 = u32::MAX);
    assert_eq!(
        layout.expect("no object, no place").segments(),
        plan().segments()
    );
}

#[test]
fn steering_tags_have_at_least_14_index_bits() {
    assert_eq!(layout(&wanted()).steering_tag_index_bits(), 14);
    let many = limits(|query| query.objects[ObjectType::MemoryRegion].max_count = 1 << 20);
    let plan = Plan::new(
        &many,
        &crate::Wanted {
            memory_regions: 20_000,
            ..wanted()
        },
    )
    .expect("fits");
    let answer = commit(&plan);
    let layout = Layout::from_commit(plan, &answer).expect("sound");
    assert_eq!(layout.steering_tag_index_bits(), 15);
}

#[test]
fn the_table_shows_what_was_granted_and_where() {
    let text = layout(&wanted()).to_string();
    let row: Vec<_> = text
        .lines()
        .nth(2)
        .expect("rows")
        .split_whitespace()
        .collect();
    assert_eq!(row, ["cq", "256", "256", "2048", "64", "0x10000", "16.0"]);
}
