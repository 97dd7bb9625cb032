//! The placement of send elements, the time of the doorbell, and the size of rings.

use crate::{bytes, load, memory, number, recorded_fragments, text};
use ringside_bus::{Doorbell, Memory, PageSize, Words};
use ringside_qp::{CompletionContext, Nop, QueuePairState, SendFlags, SendQueue, Write};
use ringside_spec::verbs::sizes;
use serde_json::Value;
use std::sync::Arc;

const RING: u32 = 512;

struct Rig {
    queue: SendQueue,
    ring: Words,
    page: Words,
}

fn rig(queue_pair: u32) -> Rig {
    let page = Memory::allocate(4096, PageSize::FourKiB, None).unwrap();
    let context = CompletionContext::new(0, 1);
    let state = Arc::new(QueuePairState::new(context, queue_pair, RING, 2, 0));
    let ring = memory(RING as usize * 4);
    let doorbell = Doorbell::mapped(&page, 0).unwrap();
    Rig {
        queue: SendQueue::new(ring.clone(), doorbell, state).unwrap(),
        ring,
        page: page.words(0, 8).unwrap(),
    }
}

impl Rig {
    /// Moves the head on by quanta that are posted and completed.
    fn advance(&mut self, quanta: u64) {
        for id in 0..quanta {
            self.queue.post(id, &Nop, SendFlags::NONE).unwrap();
            let state = self.queue.state();
            state.send.retire_to(state.send.head());
        }
    }
}

fn list(value: &Value) -> Vec<u64> {
    value
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one.as_u64().unwrap())
        .collect()
}

#[test]
fn elements_are_placed_and_padded_as_the_real_drivers_do() {
    let pieces = recorded_fragments();
    let placements = load("sq_wqe", 563, "sq_placement", 12);
    let mut compared = 0;
    for vector in &placements {
        let input = &vector["input"];
        let Some(operations) = input["operations"].as_array() else {
            continue;
        };
        let name = text(vector, "name");
        let mut rig = rig(1);
        let start = number(input, "start_index");
        // The polarity kept at index 0 is that of the pass before.
        let second_pass = start != 0 && number(input, "polarity_at_start") == 0;
        rig.advance(start + if second_pass { u64::from(RING) } else { 0 });
        let before = rig.queue.head();
        for (id, operation) in operations.iter().enumerate() {
            let request = Write {
                fragments: &pieces[..number(operation, "fragments") as usize],
                remote_address: 0x1234_5678_9ABC_DEF0,
                remote_key: 1_513_931_685,
                immediate: (number(operation, "immediate") != 0).then_some(7),
            };
            rig.queue
                .post(id as u64, &request, SendFlags::SIGNALLED)
                .unwrap();
        }
        compare_placement(name, &rig, before, &vector["decoded"]);
        compared += 1;
    }
    assert_eq!(compared, 11);
}

fn compare_placement(name: &str, rig: &Rig, before: u64, decoded: &Value) {
    let size = u64::from(RING);
    let state = &rig.queue.state().send;
    let used = before..rig.queue.head();
    let indexes: Vec<u64> = used
        .clone()
        .filter_map(|position| state.at(position).map(|_| position % size))
        .collect();
    assert_eq!(indexes, list(&decoded["wqe_indexes"]), "{name}");
    assert_eq!(
        u64::from(rig.queue.head_index()),
        number(decoded, "head"),
        "{name}"
    );
    let header = |position: u64| rig.ring.load((position % size) as usize * 4 + 3);
    let headers: Vec<u64> = used.clone().map(header).collect();
    assert_eq!(headers, list(&decoded["header_words"]), "{name}");
    // Ours: no quanta are overwritten ahead of the head (see `SendQueue`), so the recorded bits are
    // compared before it only. From the head on every bit must be invalid, by our own invariant.
    let valid_bits = bytes(decoded, "valid_bits_all_quanta");
    for position in used.clone() {
        let index = (position % size) as usize;
        let recorded = valid_bits[index / 8] >> (index % 8) & 1 == 1;
        assert_eq!(
            header(position) >> 63 == 1,
            recorded,
            "{name}, index {index}"
        );
    }
    for position in used.end..used.end + size - (used.end - used.start) {
        let valid = (position / size).is_multiple_of(2);
        assert_ne!(
            header(position) >> 63 == 1,
            valid,
            "{name}, ahead at {position}"
        );
    }
}

#[test]
fn our_ring_holds_more_than_the_real_drivers_because_it_clears_nothing_ahead() {
    let placements = load("sq_wqe", 563, "sq_placement", 12);
    let capacity = placements
        .iter()
        .find(|one| one["name"] == "placement.capacity_one_quantum")
        .unwrap();
    let mut rig = rig(1);
    let mut accepted = 0;
    while rig.queue.post(accepted, &Nop, SendFlags::NONE).is_ok() {
        accepted += 1;
    }
    assert_eq!(number(&capacity["decoded"], "accepted"), 255);
    assert_eq!(accepted, 511);
}

#[test]
fn the_doorbell_has_the_recorded_value_and_is_always_rung() {
    let vectors = load("sq_wqe", 563, "sq_doorbell", 24);
    let mut left_out = 0;
    for vector in &vectors {
        let queue_pair = number(&vector["input"], "qp_number");
        let mut rig = rig(queue_pair as u32);
        rig.advance(1);
        rig.queue.ring_doorbell();
        let rung = rig.page.load(0);
        assert_eq!(rung, queue_pair, "{}", vector["name"]);
        let decoded = &vector["decoded"];
        if number(decoded, "rung") == 1 {
            assert_eq!(rung, number(decoded, "value"), "{}", vector["name"]);
        } else {
            // Ours: always rung, as rdma-core does; only the kernel leaves it out at times.
            assert!(text(vector, "name").ends_with("@kernel"));
            left_out += 1;
        }
    }
    assert!(left_out > 0);
}

#[test]
fn sizes_of_elements_and_rings_are_the_recorded_ones() {
    let tables = load("sq_wqe", 563, "code_table", 10);
    for table in &tables {
        let name = text(table, "name");
        let (input, decoded) = (&table["input"], &table["decoded"]);
        if name == "sizes.quanta_by_fragments" {
            for (count, quanta) in list(&decoded["sq_quanta"]).into_iter().enumerate() {
                assert_eq!(sizes::send_quanta(count) as u64, quanta, "{count} slots");
            }
            for (count, size) in list(&decoded["rq_bytes"]).into_iter().enumerate() {
                assert_eq!(
                    sizes::receive_element_bytes(count) as u64,
                    size,
                    "{count} fragments"
                );
            }
        } else if name.starts_with("sizes.shift") {
            let inline = number(input, "inline") as usize;
            for (count, shift) in list(&decoded["shift_by_fragments_0_to_14"])
                .iter()
                .enumerate()
            {
                assert_eq!(
                    u64::from(sizes::element_shift(count, inline)),
                    *shift,
                    "{name}"
                );
            }
        } else {
            compare_depths(name, input, decoded);
        }
    }
}

fn compare_depths(name: &str, input: &Value, decoded: &Value) {
    let shift = number(input, "shift") as u32;
    let depth = |list: &Value, index: usize| u32::try_from(list[index].as_i64().unwrap()).ok();
    for (index, requests) in list(&input["work_requests"]).into_iter().enumerate() {
        let requests = requests as u32;
        let receive = depth(&decoded["rq_quanta"], index);
        assert_eq!(
            sizes::receive_ring_quanta(requests, shift),
            receive,
            "{name} {requests}"
        );
        // Ours: 16 quanta more than requested, not 258, so never a larger ring than theirs.
        let theirs = depth(&decoded["sq_quanta"], index);
        let ours = sizes::send_ring_quanta(requests, shift);
        if let Some(theirs) = theirs {
            let ours = ours.unwrap_or(u32::MAX);
            assert!(
                ours <= theirs && ours >= (requests << shift) + 16,
                "{name} {requests}"
            );
        }
    }
}
