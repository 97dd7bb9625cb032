//! Function private memory: query, commit, segments.

use std::collections::BTreeMap;

use ringside_spec::rdma::commands::{Command, UpdateSegments};
use ringside_spec::rdma::fpm::{
    BUFFER_WORDS, CommitObject, FpmCommit, FpmQuery, FpmQueryError, ObjectType, PerObject,
    QueryMiscellaneous, QueryObject, QuerySegments,
};
use ringside_spec::rdma::segments::{FpmLocation, SEGMENT_BYTES, SegmentData, SegmentEntry};
use serde_json::Value;

use crate::vector::{Vector, hex, load, number, text_of, words};

#[test]
fn function_private_memory_is_read_and_written_like_the_kernel_does() {
    let vectors = load("fpm.json");
    let mut run = BTreeMap::new();
    for vector in &vectors {
        match vector.kind.as_str() {
            "fpm_query" => check_query(vector),
            "fpm_exchange" => {
                check_query(vector);
                check_exchange(vector);
            }
            "fpm_commit" => {
                check_grants(vector, &vector.words("bytes"));
            }
            "fpm_segment_programming" => {
                let of = text_of(&vector.get("input")["commit_of"]);
                let exchange = vectors
                    .iter()
                    .find(|other| other.name == of)
                    .expect("an exchange");
                check_segment_programming(vector, exchange);
            }
            other => panic!("{}: unexpected kind {other}", vector.name),
        }
        *run.entry(vector.kind.clone()).or_insert(0) += 1;
    }
    let expected = [
        ("fpm_commit", 2),
        ("fpm_exchange", 35),
        ("fpm_query", 44),
        ("fpm_segment_programming", 1),
    ];
    assert_eq!(
        run,
        expected
            .map(|(kind, count)| (kind.to_owned(), count))
            .into()
    );
}

/// The kernel's refusals because of the answer itself; the other refusals are about sizing.
fn expected_refusal(name: &str) -> Option<FpmQueryError> {
    let object = match name {
        "xf_block_size_zero_fails" => ObjectType::TransmitFifoFreeList,
        "q1_block_size_zero_fails" => ObjectType::InboundReadFreeList,
        "rrf_block_size_zero_fails" => ObjectType::ReadResponseFreeList,
        "ooisc_block_size_zero_fails" | "query_word_21_low_ones" => ObjectType::OutOfOrderFreeList,
        _ => return None,
    };
    Some(FpmQueryError::BlockSizeZero(object))
}

fn check_query(vector: &Vector) {
    let buffer = query_buffer(vector);
    let query = match (FpmQuery::decode(&buffer), expected_refusal(&vector.name)) {
        (Ok(query), None) => query,
        (Err(error), Some(expected)) => {
            assert_eq!(error, expected, "{}", vector.name);
            assert_eq!(
                vector.decoded("result").as_i64(),
                Some(-22),
                "{}",
                vector.name
            );
            return;
        }
        (result, expected) => panic!("{}: {result:?}, expected {expected:?}", vector.name),
    };
    let maxima = vector.decoded("maxima").as_object().expect("maxima");
    assert_eq!(maxima.len(), ObjectType::ALL.len());
    for (object, limit) in query.objects.iter() {
        let theirs = &maxima[object.name()];
        let ours = (u64::from(limit.max_count), limit.size_bytes);
        let theirs = (number(&theirs["max_count"]), number(&theirs["size_bytes"]));
        assert_eq!(ours, theirs, "{}: {}", vector.name, object.name());
    }
    let ours = [
        ("first_segment", u64::from(query.first_segment)),
        ("max_segments", u64::from(query.max_segments)),
        ("max_ceqs", u64::from(query.max_ceqs)),
        ("xf_block_size", u64::from(query.transmit_fifo_block)),
        ("q1_block_size", u64::from(query.inbound_read_block)),
        ("ht_multiplier", u64::from(query.hash_multiplier)),
        ("timer_bucket", u64::from(query.timer_bucket)),
        ("rrf_block_size", u64::from(query.read_response_block)),
        ("ooisc_block_size", u64::from(query.out_of_order_block)),
    ];
    let theirs = vector.decoded("misc").as_object().expect("an object");
    let theirs: Vec<_> = theirs
        .iter()
        .map(|(key, value)| (key.as_str(), number(value)))
        .collect();
    assert_eq!(ours.as_slice(), theirs, "{}", vector.name);
    assert_eq!(query.encode(), meaningful(&buffer), "{}", vector.name);
    assert_eq!(
        FpmQuery::decode(&query.encode()),
        Ok(query),
        "{}",
        vector.name
    );
}

fn query_buffer(vector: &Vector) -> [u64; BUFFER_WORDS] {
    words(&hex(text_of(&vector.get("input")["query_buffer"]))).expect("22 words")
}

/// The buffer without the bits that the sweep set although they mean nothing.
fn meaningful(buffer: &[u64; BUFFER_WORDS]) -> [u64; BUFFER_WORDS] {
    let mut kept = [0; BUFFER_WORDS];
    kept[0] = buffer[0] & QuerySegments::DEFINED;
    kept[15] = buffer[15] & QueryMiscellaneous::DEFINED;
    for object in ObjectType::ALL {
        let Some(word) = object.query_word() else {
            continue;
        };
        let from = QueryObject(buffer[word]);
        let count = from.max_count() & u64::from(object.count_mask());
        kept[word] = from.with_max_count(count).0;
        if object == ObjectType::PageBufferList {
            kept[word] = QueryObject(kept[word]).with_size(0).0;
        }
    }
    kept
}

fn check_exchange(vector: &Vector) {
    if vector.decoded("result").as_i64() != Some(0) {
        return;
    }
    let committed = vector.decoded("committed");
    let counts = PerObject::from_fn(|object| match object {
        ObjectType::PortBitVector => 1,
        _ => count(&committed[object.name()]),
    });
    let request = FpmCommit::encode_request(&counts);
    assert_eq!(
        request,
        vector.words("commit_buffer_sent"),
        "{}",
        vector.name
    );
    let asked = FpmCommit::decode(&request);
    assert!(
        asked
            .0
            .iter()
            .all(|(object, grant)| grant.count == counts[object])
    );

    let answer = vector.words("commit_buffer_returned");
    let grants = check_grants(vector, &answer);
    assert_eq!(grants.encode(), answer, "{}", vector.name);
}

fn count(value: &Value) -> u32 {
    u32::try_from(number(value)).expect("a count of 32 bits")
}

fn check_grants(vector: &Vector, answer: &[u64; BUFFER_WORDS]) -> FpmCommit {
    let grants = FpmCommit::decode(answer);
    let theirs = vector
        .decoded("after_commit")
        .as_object()
        .expect("an object");
    assert_eq!(theirs.len(), ObjectType::ALL.len());
    for (object, grant) in grants.0.iter() {
        let theirs = &theirs[object.name()];
        let theirs = (number(&theirs["count"]), number(&theirs["base"]));
        assert_eq!(
            (u64::from(grant.count), grant.base()),
            theirs,
            "{}",
            vector.name
        );
        let word = CommitObject(answer[object.commit_word()]);
        assert_eq!(word.base_by_512() * 512, grant.base());
    }
    grants
}

/// Replays the creation of all objects: each in turn gets the segments that are not yet there.
fn check_segment_programming(vector: &Vector, exchange: &Vector) {
    let grants = FpmCommit::decode(&exchange.words("commit_buffer_returned"));
    let query = FpmQuery::decode(&query_buffer(exchange)).expect("a good answer");
    let mut address = vector.input("first_dma_address");
    let mut next_segment = 0;
    let mut ours = Vec::new();
    for (object, grant) in grants.0.iter() {
        if object == ObjectType::PageBufferList || grant.count == 0 {
            continue;
        }
        let last = grant.base() + u64::from(grant.count) * query.objects[object].size_bytes - 1;
        let mut entries = Vec::new();
        while next_segment <= FpmLocation::of(last).segment {
            let segment = u16::try_from(next_segment).expect("a segment");
            entries.push(SegmentEntry::write(
                segment,
                SegmentData::backed(address, true),
            ));
            address += SEGMENT_BYTES;
            next_segment += 1;
        }
        if !entries.is_empty() {
            ours.push((object, entries));
        }
    }
    let operations = vector.decoded("operations").as_array().expect("operations");
    assert_eq!(operations.len(), ours.len());
    for (operation, (object, entries)) in operations.iter().zip(ours) {
        assert_eq!(text_of(&operation["object"]), object.name());
        let theirs = words(&hex(text_of(&operation["wqe"]))).expect("a command");
        let read = UpdateSegments::decode(&theirs).expect("a segment update");
        let (command, listed) =
            UpdateSegments::from_entries(0, &entries, read.list_address()).expect("they fit");
        assert_eq!(command.encode(true), theirs);
        assert_eq!(
            Command::decode(&theirs),
            Ok(Command::UpdateSegments(command))
        );
        let list: Vec<u8> = listed
            .iter()
            .flat_map(|entry| entry.words())
            .flat_map(u64::to_le_bytes)
            .collect();
        assert_eq!(list, hex(text_of(&operation["buffer"])));
    }
}
