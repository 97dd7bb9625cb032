use ringside_spec::rdma::fpm::FpmCommit;

use super::*;
use crate::example::query;

fn refused(change: impl FnOnce(&mut FpmQuery)) -> LimitsError {
    let mut query = query();
    change(&mut query);
    DeviceLimits::from_query(&query).expect_err("senseless limits")
}

#[test]
fn sensible_limits_are_taken_as_they_are() {
    let limits = DeviceLimits::from_query(&query()).expect("sensible");
    assert_eq!(limits.maximum(ObjectType::InboundRead), 262_144);
    assert_eq!(limits.size_bytes(ObjectType::QueuePair), 512);
    assert_eq!(
        (limits.max_segments(), limits.max_completion_event_queues()),
        (64, 64)
    );
}

#[test]
fn each_senseless_limit_is_refused_by_name() {
    let cq = ObjectType::CompletionQueue;
    assert_eq!(
        refused(|query| query.objects[cq].size_bytes = 1 << 16),
        LimitsError::Size {
            object: cq,
            size_bytes: 1 << 16
        }
    );
    assert_eq!(
        refused(|query| query.objects[cq].size_bytes = 0),
        LimitsError::Size {
            object: cq,
            size_bytes: 0
        }
    );
    assert_eq!(
        refused(|query| query.objects[cq].size_bytes = 96),
        LimitsError::Size {
            object: cq,
            size_bytes: 96
        }
    );
    // Its size is not reported, but counts.
    let fixed = ObjectType::PortBitVector;
    assert_eq!(
        refused(|query| query.objects[fixed].size_bytes = 0),
        LimitsError::Size {
            object: fixed,
            size_bytes: 0
        }
    );
    let floors = [
        (ObjectType::QueuePair, 4),
        (ObjectType::CompletionQueue, 4),
        (ObjectType::MemoryRegion, 2),
        (ObjectType::AddressVector, 2),
        (ObjectType::Arp, 2),
    ];
    for (object, floor) in floors {
        let least = crate::example::limits(|query| query.objects[object].max_count = floor);
        assert_eq!(least.maximum(object), floor);
        assert_eq!(
            refused(|query| query.objects[object].max_count = floor - 1),
            LimitsError::TooFew {
                object,
                maximum: floor - 1,
                floor
            }
        );
    }
    assert_eq!(
        refused(|query| query.max_segments = 0),
        LimitsError::NoSegments
    );
    assert_eq!(
        refused(|query| query.max_ceqs = 0),
        LimitsError::NoEventQueues
    );
    assert_eq!(
        refused(|query| query.hash_multiplier = 0),
        LimitsError::HashMultiplierZero
    );
    let zero = LimitsError::BlockSizeZero;
    let free_list = ObjectType::TransmitFifoFreeList;
    assert_eq!(
        refused(|query| query.transmit_fifo_block = 0),
        zero(free_list)
    );
    let free_list = ObjectType::InboundReadFreeList;
    assert_eq!(
        refused(|query| query.inbound_read_block = 0),
        zero(free_list)
    );
    let free_list = ObjectType::ReadResponseFreeList;
    assert_eq!(
        refused(|query| query.read_response_block = 0),
        zero(free_list)
    );
    let free_list = ObjectType::OutOfOrderFreeList;
    assert_eq!(
        refused(|query| query.objects[free_list].max_count = 1),
        zero(free_list)
    );
}

#[test]
fn numbers_beyond_what_commands_can_name_are_not_used() {
    let limits = crate::example::limits(|query| {
        query.max_segments = 0x3FFF;
        query.objects[ObjectType::QueuePair].max_count = u32::MAX;
        query.objects[ObjectType::CompletionQueue].max_count = u32::MAX;
    });
    assert_eq!(limits.max_segments(), 4096);
    let late = crate::example::limits(|query| {
        query.max_segments = 0x3FFF;
        query.first_segment = 96;
    });
    assert_eq!((late.max_segments(), late.segments_end()), (4000, 4096));
    assert_eq!((late.first_segment(), limits.first_segment()), (96, 0));
    assert_eq!(limits.maximum(ObjectType::QueuePair), 1 << 18);
    assert_eq!(limits.maximum(ObjectType::CompletionQueue), 1 << 19);
}

#[test]
fn no_answer_makes_reading_or_planning_panic() {
    use rand::rngs::SmallRng;
    use rand::{Rng, SeedableRng};
    let mut planned = 0;
    for seed in 0..20_000 {
        let mut random = SmallRng::seed_from_u64(seed);
        let mut words = query().encode();
        for _ in 0..random.random_range(1..4) {
            let word = random.random_range(0..words.len());
            words[word] = match random.random_range(0..5) {
                0 => random.random(),
                1 => random.random::<u64>() & random.random::<u64>() & random.random::<u64>(),
                2 | 3 => words[word] ^ 1 << random.random_range(0..64),
                _ => [0, u64::MAX][random.random_range(0..2)],
            };
        }
        let Ok(query) = FpmQuery::decode(&words) else {
            continue;
        };
        let Ok(limits) = DeviceLimits::from_query(&query) else {
            continue;
        };
        let mut wanted = crate::example::wanted();
        let setting = crate::Setting::ALL[random.random_range(0..7)];
        wanted = wanted.with(
            setting,
            random.random::<u32>() >> random.random_range(0..32),
        );
        let Ok(plan) = crate::Plan::new(&limits, &wanted) else {
            continue;
        };
        planned += 1;
        let mut answer = crate::example::commit(&plan).encode();
        let word = random.random_range(0..answer.len());
        answer[word] ^= random.random::<u64>() & random.random::<u64>();
        let Ok(layout) = crate::Layout::from_commit(plan, &FpmCommit::decode(&answer)) else {
            continue;
        };
        let backing = crate::Backing::new(&layout, crate::BackingPolicy::Sparse);
        assert!(
            backing.segments() <= limits.max_segments() as usize,
            "seed {seed}"
        );
        assert!(format!("{layout}").contains("segments"), "seed {seed}");
    }
    assert!(
        planned > 1000,
        "only {planned} answers were plausible: the test tests little"
    );
}
