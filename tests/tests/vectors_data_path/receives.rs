//! Receive elements and their ring.

use crate::{fragments, load, memory, number, text, words_of};
use ringside_bus::Words;
use ringside_qp::{CompletionContext, QueuePairState, ReceiveQueue};
use ringside_spec::verbs::{Fragment, ReceiveElement};
use std::sync::Arc;

fn queue(elements: u32, shift: u32) -> (ReceiveQueue, Words) {
    let context = CompletionContext::new(0, 1);
    let state = Arc::new(QueuePairState::new(context, 1, 64, elements, shift));
    let ring = memory((elements as usize * 4) << shift);
    (ReceiveQueue::new(ring.clone(), state).unwrap(), ring)
}

#[test]
fn every_receive_element_is_encoded_and_read_back() {
    for vector in load("rq_wqe", 41, "rq_wqe", 36) {
        let name = text(&vector, "name");
        let input = &vector["input"];
        let wanted = words_of(&vector, "bytes");
        let written = words_of(&vector, "written");
        let shift = (number(input, "wqe_size_bytes") / 32).ilog2();
        let (mut queue, ring) = queue(4, shift);
        let polarity = number(input, "polarity") != 0;
        let pieces = fragments(input);
        // Polarity 0 is that of the second pass.
        for id in 0..if polarity { 0 } else { 4 } {
            queue.post(id, &[]).unwrap();
            queue.state().receive.retire_to((id + 1) << shift);
        }
        let posted = queue.post(9, &pieces);
        if pieces.len() > queue.maximum_fragments() {
            // Ours: 13 pieces at most, the device's limit; the encoder itself would take 14 or 15.
            assert!(posted.is_err() && pieces.len() > 13, "{name}");
            continue;
        }
        posted.unwrap();
        for index in 0..wanted.len() {
            let differs = (ring.load(index) ^ wanted[index]) & written[index];
            assert_eq!(differs, 0, "{name}: word {index}");
        }
        let element = ReceiveElement::new(&wanted).unwrap();
        let found: Vec<Fragment> = element.fragments().take(pieces.len()).collect();
        assert_eq!(found, pieces, "{name}");
        assert!(element.is_well_formed(polarity), "{name}");
    }
}

#[test]
fn receive_rings_wrap_and_fill_as_the_real_drivers_do() {
    for vector in load("rq_wqe", 41, "rq_ring", 5) {
        let input = &vector["input"];
        let shift = number(input, "shift") as u32;
        let (mut queue, ring) = queue(number(input, "ring_wqes") as u32, shift);
        let decoded = &vector["decoded"];
        if let Some(posts) = decoded["posts"].as_array() {
            for (id, post) in posts.iter().enumerate() {
                queue.post(id as u64, &[]).unwrap();
                let at = number(post, "byte_offset") as usize / 8;
                assert_eq!(ring.load(at + 3), number(post, "header"), "post {id}");
                queue.state().receive.retire_to((id as u64 + 1) << shift);
            }
        } else {
            let mut accepted = 0;
            while queue.post(accepted, &[]).is_ok() {
                accepted += 1;
            }
            assert_eq!(accepted, number(decoded, "accepted"));
            assert_eq!(number(decoded, "doorbell_rung"), 0, "there is none");
        }
    }
}
