//! The device's report of its host memory cache, and its list of features.
//!
//! Checked: a valid answer is encoded again unchanged; any plan made from it stays within the
//! device's limits; any layout made from a second answer has no overlapping objects and no more
//! than the plan requested.

use crate::source::Source;
use ringside_hmc::{DeviceLimits, Layout, Plan, Setting, Wanted};
use ringside_spec::rdma::features::Features;
use ringside_spec::rdma::fpm::{BUFFER_WORDS, FpmCommit, FpmQuery, ObjectType};

fn wanted(source: &mut Source) -> Wanted {
    let mut wanted = Wanted {
        queue_pairs: 8,
        completion_queues: 8,
        memory_regions: 64,
        pbles: 4096,
        address_handles: 8,
        arp_entries: 8,
        multicast_groups: 1,
    };
    for setting in Setting::ALL {
        let shift = source.byte();
        if shift != 0 {
            wanted = wanted.with(setting, source.number() >> (shift % 32));
        }
    }
    wanted
}

/// QUERY_FPM's and COMMIT_FPM's buffers.
pub fn host_memory(bytes: &[u8]) {
    let mut source = Source::new(bytes);
    let words: [u64; BUFFER_WORDS] = source.words();
    let Ok(query) = FpmQuery::decode(&words) else {
        return;
    };
    assert_eq!(FpmQuery::decode(&query.encode()).as_ref(), Ok(&query));
    let Ok(limits) = DeviceLimits::from_query(&query) else {
        return;
    };
    let plan = match Plan::new(&limits, &wanted(&mut source)) {
        Ok(plan) => plan,
        Err(error) => {
            assert!(!error.to_string().is_empty());
            return;
        }
    };
    for object in ObjectType::ALL {
        assert!(plan.count(object) <= limits.maximum(object), "{object:?}");
    }
    assert!(plan.segments() <= limits.max_segments());
    assert!(!plan.to_string().is_empty());
    let answer = FpmCommit::decode(&source.words());
    let Ok(layout) = Layout::from_commit(plan.clone(), &answer) else {
        return;
    };
    assert!(layout.segments() <= limits.max_segments());
    let mut places: Vec<(u64, u64)> = ObjectType::ALL
        .iter()
        .map(|object| layout.placement(*object))
        .filter(|place| place.count > 0)
        .map(|place| (place.base.0, place.end().0))
        .collect();
    places.sort_unstable();
    for pair in places.windows(2) {
        assert!(pair[0].1 <= pair[1].0, "two objects in one place: {pair:?}");
    }
    for object in ObjectType::ALL {
        assert!(layout.count(object) <= plan.count(object), "{object:?}");
    }
    let _ = (layout.pbles(), layout.steering_tag_index_bits());
}

/// QUERY_RDMA_FEATURES' buffer.
pub fn features(bytes: &[u8]) {
    let words: Vec<u64> = bytes
        .chunks_exact(8)
        .filter_map(|word| word.try_into().ok().map(u64::from_le_bytes))
        .collect();
    match Features::decode(&words) {
        Ok(features) => {
            let again = Features::decode(&features.encode()).expect("what was written");
            assert_eq!(again.firmware.major(), features.firmware.major());
            assert_eq!(again.firmware.minor(), features.firmware.minor());
            assert_eq!(
                again.hardware.map(|hardware| hardware.0).unwrap_or(0),
                features.hardware.map(|hardware| hardware.0).unwrap_or(0)
            );
            assert_eq!(again.max_queue_sets, features.max_queue_sets);
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}
