use ringside_spec::rdma::fpm::ObjectLimit;

use super::*;
use crate::example::{limits, wanted};

fn plan(wanted: &Wanted) -> Plan {
    Plan::new(&limits(|_| {}), wanted).expect("fits")
}

#[test]
fn a_plan_requests_the_wanted_numbers_and_the_drivers_own() {
    let plan = plan(&wanted());
    let count = |object| plan.count(object);
    assert_eq!(
        count(ObjectType::QueuePair),
        128,
        "64 and 3 of the driver's"
    );
    assert_eq!(count(ObjectType::CompletionQueue), 256);
    assert_eq!(count(ObjectType::MemoryRegion), 1024, "1023 and index 0");
    assert_eq!(count(ObjectType::PageBufferList), 65_536);
    assert_eq!(count(ObjectType::AddressVector), 256);
    assert_eq!(
        count(ObjectType::Arp),
        64,
        "62, index 0, and the port's own"
    );
    assert_eq!(count(ObjectType::MulticastGroup), 64, "63 and index 0");
}

#[test]
fn dependent_counts_follow_the_rules_of_the_device() {
    let plan = plan(&wanted());
    let count = |object| plan.count(object);
    assert_eq!(count(ObjectType::HashTableEntry), 512 * 2);
    assert_eq!(count(ObjectType::TransmitFifo), 4 * 4 * 128);
    assert_eq!(count(ObjectType::TransmitFifoFreeList), 4 * 128);
    assert_eq!(
        count(ObjectType::InboundRead),
        65_536,
        "254 * 128 + 512, to the power of two"
    );
    assert_eq!(count(ObjectType::InboundReadFreeList), 16_384);
    assert_eq!(count(ObjectType::Timer), 2 * 512);
    assert_eq!(count(ObjectType::ReadResponse), 32 * 128);
    assert_eq!(count(ObjectType::ReadResponseFreeList), 32 * 128 / 4);
    assert_eq!(count(ObjectType::Header), 128);
    assert_eq!(count(ObjectType::Metadata), 1024);
    assert_eq!(count(ObjectType::PortBitVector), 1);
    assert_eq!(count(ObjectType::OutOfOrder), 0);
    assert_eq!(count(ObjectType::OutOfOrderFreeList), 0);
}

#[test]
fn out_of_order_state_and_read_responses_follow_if_the_device_has_them() {
    let with = limits(|query| {
        query.objects[ObjectType::OutOfOrder].max_count = 32_768;
        query.objects[ObjectType::OutOfOrder].size_bytes = 64;
        query.objects[ObjectType::OutOfOrderFreeList].max_count = 8192;
        query.out_of_order_block = 4;
        query.objects[ObjectType::ReadResponse].max_count = 0;
        query.objects[ObjectType::ReadResponseFreeList].max_count = 0;
        query.read_response_block = 0;
    });
    let plan = Plan::new(&with, &wanted()).expect("fits");
    assert_eq!(plan.count(ObjectType::OutOfOrder), 4096);
    assert_eq!(plan.count(ObjectType::OutOfOrderFreeList), 1024);
    assert_eq!(plan.count(ObjectType::ReadResponse), 0);
    assert_eq!(plan.count(ObjectType::ReadResponseFreeList), 0);
    // A block size without a list says nothing.
    let block_alone = limits(|query| {
        query.objects[ObjectType::OutOfOrder].max_count = 32_768;
        query.objects[ObjectType::OutOfOrder].size_bytes = 64;
        query.out_of_order_block = 4;
    });
    let plan = Plan::new(&block_alone, &wanted()).expect("fits");
    assert_eq!(plan.count(ObjectType::OutOfOrderFreeList), 0);
}

#[test]
fn a_few_queue_pairs_take_little_memory() {
    let few = Wanted {
        queue_pairs: 1,
        completion_queues: 1,
        memory_regions: 1,
        pbles: 0,
        address_handles: 1,
        arp_entries: 1,
        multicast_groups: 0,
    };
    let plan = plan(&few);
    assert_eq!(plan.count(ObjectType::QueuePair), 4);
    assert_eq!(plan.count(ObjectType::PageBufferList), 0);
    assert_eq!(plan.segments(), 1);
}

#[test]
fn request_holds_the_planned_counts() {
    let plan = plan(&wanted());
    let request = FpmCommit::decode(&plan.commit_request());
    for object in ObjectType::ALL {
        assert_eq!(request.0[object].count, plan.count(object), "{object:?}");
        assert_eq!(request.0[object].base_by_512, 0);
    }
}

#[test]
fn a_number_above_a_maximum_is_named_with_the_largest_value_that_fits() {
    let cases = [
        (
            Setting::QueuePairs,
            1022,
            ObjectType::QueuePair,
            2048,
            1024,
            1021,
        ),
        (
            Setting::CompletionQueues,
            2046,
            ObjectType::CompletionQueue,
            2049,
            2048,
            2045,
        ),
        (
            Setting::MemoryRegions,
            16_384,
            ObjectType::MemoryRegion,
            16_385,
            16_384,
            16_383,
        ),
        (
            Setting::Pbles,
            262_145,
            ObjectType::PageBufferList,
            262_145,
            262_144,
            262_144,
        ),
        (
            Setting::AddressHandles,
            1024,
            ObjectType::AddressVector,
            1025,
            1024,
            1023,
        ),
        (Setting::ArpEntries, 255, ObjectType::Arp, 257, 256, 254),
        (
            Setting::MulticastGroups,
            512,
            ObjectType::MulticastGroup,
            513,
            512,
            511,
        ),
    ];
    for (setting, value, object, needed, maximum, lower_to) in cases {
        let error = Plan::new(&limits(|_| {}), &wanted().with(setting, value)).expect_err("over");
        assert_eq!(
            error,
            SizingError::TooMany {
                setting,
                value,
                object,
                needed,
                maximum,
                lower_to: Some(lower_to),
            }
        );
        let lowered = wanted().with(setting, lower_to);
        Plan::new(&limits(|_| {}), &lowered).expect("the advice works");
    }
}

#[test]
fn every_dependent_count_over_its_maximum_blames_the_queue_pairs() {
    for object in ObjectType::ALL {
        let dependent = Setting::behind(object) == Some(Setting::QueuePairs);
        let absent = matches!(
            object,
            ObjectType::OutOfOrder | ObjectType::OutOfOrderFreeList
        );
        if !dependent || absent {
            continue;
        }
        let exactly = plan(&wanted()).count(object);
        let tight = |count| {
            let limits = limits(|query| query.objects[object].max_count = count);
            Plan::new(&limits, &wanted())
        };
        tight(exactly).expect("just fits");
        match tight(exactly - 1) {
            Err(SizingError::TooMany {
                setting: Setting::QueuePairs,
                object: named,
                ..
            }) => {
                assert_eq!(named, object);
            }
            other => panic!("{object:?}: {other:?}"),
        }
    }
}

#[test]
fn advice_reports_that_no_value_of_one_setting_helps() {
    let limits = limits(|query| query.objects[ObjectType::Timer].max_count = 512);
    let error = Plan::new(&limits, &wanted()).expect_err("two buckets are the least");
    assert!(
        matches!(error, SizingError::TooMany { lower_to: None, .. }),
        "{error:?}"
    );
    assert!(
        error
            .to_string()
            .contains("no value of rdma.queue_pairs alone"),
        "{error}"
    );
}

#[test]
fn too_much_memory_names_the_largest_consumer_and_a_value_that_fits() {
    let small = limits(|query| query.max_segments = 2);
    let error = Plan::new(&small, &wanted()).expect_err("over");
    let SizingError::TooMuchMemory {
        setting,
        value: 64,
        lower_to: Some(value),
        ..
    } = error
    else {
        panic!("{error:?}");
    };
    assert_eq!(setting, Setting::QueuePairs);
    let lowered = Plan::new(&small, &wanted().with(setting, value)).expect("the advice works");
    assert!(lowered.segments() <= 2);
    Plan::new(&small, &wanted().with(setting, value + 1)).expect_err("and is not too modest");

    let lists = Wanted {
        queue_pairs: 1,
        pbles: 262_144,
        memory_regions: 1,
        ..wanted()
    };
    let small = limits(|query| query.max_segments = 1);
    let error = Plan::new(&small, &lists).expect_err("over");
    assert!(matches!(
        error,
        SizingError::TooMuchMemory {
            setting: Setting::Pbles,
            ..
        }
    ));
    assert!(
        error.to_string().contains("lower rdma.pbles to at most"),
        "{error}"
    );
}

#[test]
fn zero_is_refused_where_one_is_needed() {
    for setting in Setting::ALL {
        let result = Plan::new(&limits(|_| {}), &wanted().with(setting, 0));
        match setting {
            Setting::Pbles | Setting::MulticastGroups => assert!(result.is_ok()),
            _ => assert_eq!(result, Err(SizingError::Zero(setting))),
        }
    }
}

#[test]
fn more_is_never_planned_for_less() {
    // The search for the largest value that fits relies on this claim.
    let limits = limits(|_| {});
    for setting in Setting::ALL {
        let mut before = needed_counts(&limits, &wanted().with(setting, 0));
        for value in (1..3000).chain([5000, 20_000, 1 << 18, 1 << 24, u32::MAX - 1, u32::MAX]) {
            let counts = needed_counts(&limits, &wanted().with(setting, value));
            for (object, count) in counts.iter() {
                assert!(count >= before[object], "{setting:?} = {value}: {object:?}");
            }
            before = counts;
        }
    }
}

#[test]
fn every_wanted_number_up_to_the_largest_is_planned_or_refused() {
    for setting in Setting::ALL {
        let huge = wanted().with(setting, u32::MAX);
        assert!(Plan::new(&limits(|_| {}), &huge).is_err());
        let mut large = limits(|query| {
            query.max_segments = 0xFFF;
            query.transmit_fifo_block = u32::MAX;
            query.objects[ObjectType::TransmitFifo].max_count = u32::MAX;
            query.objects[ObjectType::TransmitFifo].size_bytes = 32_768;
        });
        assert!(Plan::new(&large, &huge).is_err());
        large = limits(|query| {
            query.out_of_order_block = 1;
            for object in ObjectType::ALL {
                query.objects[object] = ObjectLimit {
                    max_count: u32::MAX,
                    size_bytes: 32_768,
                };
            }
        });
        assert!(Plan::new(&large, &huge).is_err());
    }
}

#[test]
fn the_table_shows_every_object_and_the_sum() {
    let text = plan(&wanted()).to_string();
    assert_eq!(text.lines().count(), 1 + 20 + 1);
    let row: Vec<_> = text
        .lines()
        .nth(1)
        .expect("rows")
        .split_whitespace()
        .collect();
    assert_eq!(row, ["qp", "128", "-", "1024", "512", "-", "64.0"]);
    let rows = text.lines().skip(1).take(20);
    let kib = rows.map(|row| {
        row.split_whitespace()
            .last()
            .unwrap()
            .parse::<f64>()
            .unwrap()
    });
    let sum: f64 = kib.sum();
    let shown = text.rsplit(' ').nth(3).unwrap().parse::<f64>().unwrap();
    // Each row is rounded to a tenth.
    assert!(sum > 0.0 && (sum - shown).abs() < 2.0, "{sum}: {text}");
    assert!(text.ends_with("KiB in use"));
    assert!(text.contains("3 of 64 segments (6 MiB)"), "{text}");
}
