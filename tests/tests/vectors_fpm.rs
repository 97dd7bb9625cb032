//! Sizing of the host memory cache compared with the values that Linux's own driver computed for
//! the same devices.
//!
//! `vectors/fpm.json` holds queries, the counts that irdma (6.12) chose and committed, the device's
//! answers, and the segment updates that followed. Our plan starts from wanted numbers, so each
//! test uses the final numbers of that driver; every count derived from them must then be the same.

use ringside_hmc::{
    Backing, BackingPolicy, CommitError, DeviceLimits, FpmAddress, Layout, LimitsError, Plan,
    SegmentKind, Setting, SizingError, Wanted,
};
use ringside_spec::rdma::commands::UpdateSegments;
use ringside_spec::rdma::fpm::{
    BUFFER_WORDS, FpmCommit, FpmQuery, FpmQueryError, ObjectType, PerObject,
};
use ringside_spec::rdma::layout::from_bytes;
use ringside_spec::rdma::limits::{COMPLETION_QUEUES, QUEUE_PAIRS};
use ringside_spec::rdma::segments::SegmentEntry;
use serde_json::Value;

/// The transport of a vector: RoCEv2, whose rules ours are.
const ROCE: u64 = 2;

fn vectors(kind: &str) -> Vec<Value> {
    let all: Vec<Value> =
        serde_json::from_str(include_str!("../vectors/fpm.json")).expect("fpm.json is JSON");
    all.into_iter()
        .filter(|vector| vector["kind"] == kind)
        .collect()
}

fn named(kind: &str, name: &str) -> Value {
    let found = vectors(kind)
        .into_iter()
        .find(|vector| vector["name"] == name);
    found.unwrap_or_else(|| panic!("no vector {name}"))
}

fn name(vector: &Value) -> &str {
    vector["name"].as_str().expect("a vector has a name")
}

fn number(value: &Value) -> u64 {
    value
        .as_u64()
        .unwrap_or_else(|| panic!("{value} is not a number"))
}

fn bytes(value: &Value) -> Vec<u8> {
    let text = value.as_str().expect("hexadecimal text");
    let digits = text.as_bytes().chunks(2);
    let byte = |pair: &[u8]| {
        let pair = std::str::from_utf8(pair).expect("ASCII");
        u8::from_str_radix(pair, 16).expect("hexadecimal")
    };
    digits.map(byte).collect()
}

fn words<const N: usize>(value: &Value) -> [u64; N] {
    from_bytes(&bytes(value)).expect("a buffer of that length")
}

fn query_of(vector: &Value) -> Result<FpmQuery, FpmQueryError> {
    FpmQuery::decode(&words::<BUFFER_WORDS>(&vector["input"]["query_buffer"]))
}

/// The final numbers of the other driver, as our wanted numbers; `None` if none was left for users.
fn wanted_of(committed: &Value) -> Option<Wanted> {
    let count = |object: &str| number(&committed[object]) as u32;
    Some(Wanted {
        queue_pairs: count("qp").checked_sub(3)?,
        completion_queues: count("cq").checked_sub(3)?,
        memory_regions: count("mr") - 1,
        pbles: count("pble"),
        address_handles: count("fsiav") - 1,
        arp_entries: count("arp").checked_sub(2)?,
        multicast_groups: count("fsimc").saturating_sub(1),
    })
}

/// The device's limits, as the other driver uses them: it reduces its requested counts to any
/// number and gives spare segments to page lists, past the maximum; and it does not compare counts
/// derived from the queue pairs with the maxima (ours does).
fn limits_of(query: &FpmQuery, committed: &Value) -> DeviceLimits {
    let mut query = *query;
    for object in ObjectType::ALL {
        let limit = &mut query.objects[object].max_count;
        match Setting::behind(object) {
            None => {}
            Some(Setting::QueuePairs) if *limit == 0 => {}
            Some(Setting::QueuePairs) => *limit = u32::MAX,
            Some(_) => *limit = number(&committed[object.name()]) as u32,
        }
    }
    DeviceLimits::from_query(&query).expect("limits that the other driver works with")
}

#[test]
fn counts_that_follow_from_the_numbers_wanted_are_those_of_the_other_driver() {
    let (mut exact, mut but_inbound_reads) = (0, 0);
    for vector in vectors("fpm_exchange") {
        let committed = &vector["decoded"]["committed"];
        if vector["decoded"]["result"] != 0 || name(&vector) == "q1_1024_limits_to_2_qps" {
            continue; // Refused, or fewer queue pairs than the driver's own three.
        }
        let wanted = wanted_of(committed).unwrap_or_else(|| panic!("{}", name(&vector)));
        let limits = limits_of(&query_of(&vector).expect("readable"), committed);
        let plan = Plan::new(&limits, &wanted).unwrap_or_else(|e| panic!("{}: {e}", name(&vector)));
        let roce = number(&vector["input"]["protocol_used"]) == ROCE;
        for object in ObjectType::ALL {
            let inbound = matches!(
                object,
                ObjectType::InboundRead | ObjectType::InboundReadFreeList
            );
            if object == ObjectType::PortBitVector || (inbound && !roce) {
                continue; // Always one; and iWARP has another rule for inbound reads.
            }
            let theirs = number(&committed[object.name()]);
            let ours = u64::from(plan.count(object));
            assert_eq!(ours, theirs, "{}: {}", name(&vector), object.name());
        }
        if roce {
            let sent = words::<BUFFER_WORDS>(&vector["commit_buffer_sent"]);
            // The other driver writes the port bit vector's 1 too, which the device ignores.
            let mut ours = plan.commit_request();
            ours[ObjectType::PortBitVector.commit_word()] =
                sent[ObjectType::PortBitVector.commit_word()];
            assert_eq!(ours, sent, "{}", name(&vector));
            exact += 1;
        } else {
            but_inbound_reads += 1;
        }
    }
    assert_eq!((exact, but_inbound_reads), (24, 5));
}

#[test]
fn answers_give_the_places_and_segments_that_the_other_driver_saw() {
    let mut checked = 0;
    for vector in vectors("fpm_exchange") {
        let decoded = &vector["decoded"];
        let roce = number(&vector["input"]["protocol_used"]) == ROCE;
        let Some(wanted) = Some(&decoded["committed"])
            .filter(|_| decoded["result"] == 0 && roce)
            .and_then(wanted_of)
        else {
            continue;
        };
        let limits = limits_of(&query_of(&vector).expect("readable"), &decoded["committed"]);
        let plan = Plan::new(&limits, &wanted).expect("fits");
        let planned = plan.segments();
        let answer = FpmCommit::decode(&words(&vector["commit_buffer_returned"]));
        let layout =
            Layout::from_commit(plan, &answer).unwrap_or_else(|e| panic!("{}: {e}", name(&vector)));
        for object in ObjectType::ALL {
            let after = &decoded["after_commit"][object.name()];
            let placement = layout.placement(object);
            let ours = (u64::from(placement.count), placement.base);
            let theirs = (number(&after["count"]), FpmAddress(number(&after["base"])));
            assert_eq!(ours, theirs, "{}: {}", name(&vector), object.name());
        }
        let theirs = number(&decoded["segments_needed"]);
        assert_eq!(u64::from(layout.segments()), theirs, "{}", name(&vector));
        if name(&vector) != "bases_shifted" {
            assert_eq!(u64::from(planned), theirs, "{}", name(&vector));
        }
        checked += 1;
    }
    assert_eq!(checked, 24);
}

#[test]
fn limits_are_the_maxima_that_the_other_driver_read() {
    let mut accepted = 0;
    let mut refused = Vec::new();
    for vector in vectors("fpm_query")
        .into_iter()
        .chain(vectors("fpm_exchange"))
    {
        let Ok(query) = query_of(&vector) else {
            refused.push(name(&vector).to_owned());
            continue;
        };
        let limits = match DeviceLimits::from_query(&query) {
            Ok(limits) => limits,
            Err(LimitsError::Size { size_bytes, .. }) => {
                assert_eq!(size_bytes, 1 << 31, "{}", name(&vector));
                refused.push(name(&vector).to_owned());
                continue;
            }
            // Ours: commands name 4096 segments, and this function's begin behind them.
            Err(LimitsError::NoSegments) if query.first_segment >= 4096 => {
                refused.push(name(&vector).to_owned());
                continue;
            }
            Err(error) => panic!("{}: {error}", name(&vector)),
        };
        assert!(
            vector["decoded"].get("maxima").is_some(),
            "{}",
            name(&vector)
        );
        let ceilings = |object| match object {
            ObjectType::QueuePair => u64::from(QUEUE_PAIRS),
            ObjectType::CompletionQueue => u64::from(COMPLETION_QUEUES),
            _ => u64::MAX,
        };
        for object in ObjectType::ALL {
            let theirs = &vector["decoded"]["maxima"][object.name()];
            let maximum = number(&theirs["max_count"]).min(ceilings(object));
            assert_eq!(
                u64::from(limits.maximum(object)),
                maximum,
                "{}: {object:?}",
                name(&vector)
            );
            assert_eq!(limits.size_bytes(object), number(&theirs["size_bytes"]));
        }
        let theirs = &vector["decoded"]["misc"];
        let segments = number(&theirs["max_segments"]).min(4096 - u64::from(query.first_segment));
        assert_eq!(
            u64::from(limits.max_segments()),
            segments,
            "{}",
            name(&vector)
        );
        let event_queues = u64::from(limits.max_completion_event_queues());
        assert_eq!(
            event_queues,
            number(&theirs["max_ceqs"]),
            "{}",
            name(&vector)
        );
        accepted += 1;
    }
    // Sizes of 2 GiB each are invalid; the other driver computes with them.
    let mut expected: Vec<String> = [1, 2, 4, 5, 6, 7, 9, 11, 12, 13, 16, 18, 19, 20]
        .map(|word| format!("query_word_{word}_size_31_ones"))
        .into();
    expected.push("query_word_0_low_ones".into());
    // These it refuses as well.
    expected.push("query_word_21_low_ones".into());
    expected.extend(["xf", "q1", "rrf", "ooisc"].map(|x| format!("{x}_block_size_zero_fails")));
    refused.sort();
    expected.sort();
    assert_eq!(refused, expected);
    assert_eq!(accepted, 79 - expected.len());
}

#[test]
fn a_device_of_one_segment_is_too_small_for_the_counts_of_the_other_driver() {
    let vector = named("fpm_exchange", "max_segments_1_fails");
    let limits = DeviceLimits::from_query(&query_of(&vector).expect("readable")).expect("sensible");
    assert_eq!(vector["decoded"]["result"], -22);
    let modest = Wanted {
        queue_pairs: 1,
        completion_queues: 1,
        memory_regions: 1,
        pbles: 512,
        address_handles: 1,
        arp_entries: 8,
        multicast_groups: 1,
    };
    assert_eq!(Plan::new(&limits, &modest).expect("fits").segments(), 1);
    let more = Wanted {
        queue_pairs: 100,
        ..modest
    };
    let error = Plan::new(&limits, &more).expect_err("does not fit");
    assert!(
        matches!(error, SizingError::TooMuchMemory { maximum: 1, .. }),
        "{error}"
    );
}

#[test]
fn answers_that_contradict_the_request_are_refused() {
    let exchange = named("fpm_exchange", "worked_example_roce");
    let committed = &exchange["decoded"]["committed"];
    let limits = limits_of(&query_of(&exchange).expect("readable"), committed);
    let plan = Plan::new(&limits, &wanted_of(committed).expect("users")).expect("fits");
    let mut checked = 0;
    for vector in vectors("fpm_commit") {
        let answer = FpmCommit::decode(&words(&vector["bytes"]));
        for object in ObjectType::ALL {
            let after = &vector["decoded"]["after_commit"][object.name()];
            assert_eq!(
                u64::from(answer.0[object].count),
                number(&after["count"]),
                "{object:?}"
            );
            assert_eq!(
                answer.0[object].base(),
                number(&after["base"]),
                "{object:?}"
            );
        }
        let result = Layout::from_commit(plan.clone(), &answer);
        assert!(
            matches!(result, Err(CommitError::Raised { .. })),
            "{result:?}"
        );
        checked += 1;
    }
    assert_eq!(checked, 2);
}

/// The segment updates of a whole backing, object by object as the other driver creates them.
#[test]
fn segment_updates_are_those_of_the_other_driver() {
    let exchange = named("fpm_exchange", "worked_example_roce");
    let committed = &exchange["decoded"]["committed"];
    let limits = limits_of(&query_of(&exchange).expect("readable"), committed);
    let plan = Plan::new(&limits, &wanted_of(committed).expect("users")).expect("fits");
    let answer = FpmCommit::decode(&words(&exchange["commit_buffer_returned"]));
    let layout = Layout::from_commit(plan, &answer).expect("sound");

    let programming = named("fpm_segment_programming", "create_objects.worked_example");
    let mut theirs = programming["decoded"]["operations"]
        .as_array()
        .expect("a list")
        .iter();
    let mut address = number(&programming["input"]["first_dma_address"]);
    let mut backing = Backing::new(&layout, BackingPolicy::Whole);
    let created = ObjectType::ALL
        .into_iter()
        .filter(|&o| o != ObjectType::PageBufferList);
    for object in created {
        let mut entries = Vec::new();
        for memory in backing
            .missing(object, 0..layout.count(object))
            .expect("in range")
        {
            entries.push(memory.segment_entry(address).expect("a segment"));
            backing.note(memory).expect("was missing");
            address += memory.bytes();
        }
        for operation in entries.chunks(UpdateSegments::MAX_ENTRIES) {
            let expected = theirs.next().expect("as many operations");
            assert_eq!(expected["object"], object.name());
            let command = UpdateSegments::decode(&words::<8>(&expected["wqe"])).expect("an update");
            let list = bytes(&expected["buffer"]);
            let listed = list
                .chunks_exact(16)
                .map(|pair| SegmentEntry::from_words(from_bytes::<2>(pair).expect("two words")));
            let in_list = usize::from(command.list_entries);
            let sent: Vec<_> = command
                .inline_entries()
                .chain(listed.take(in_list))
                .collect();
            assert_eq!(operation, sent, "{object:?}");
        }
    }
    assert!(theirs.next().is_none(), "the other driver sent more");
    let kinds = PerObject::from_fn(|object| {
        let base = layout.placement(object).base.location().segment;
        backing.kind(base as u16)
    });
    let direct = kinds
        .iter()
        .filter(|&(_, kind)| kind == Some(SegmentKind::Direct))
        .count();
    assert!(
        direct >= 18,
        "every object with memory starts in a direct segment"
    );
}
