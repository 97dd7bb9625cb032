//! Completions decoded and polled; shadow words.

use crate::{load, memory, number, recorded_fragments, text, words_of};
use ringside_bus::{Doorbell, Memory, PageSize, Words};
use ringside_cq::{Completion, CompletionQueue, Datagram, Operation, Sides, Status};
use ringside_qp::{
    CompletionContext, Fragment, LocalInvalidate, Nop, QueuePairState, Read, ReceiveQueue, Send,
    SendFlags, SendKind, SendQueue, Write,
};
use ringside_spec::rdma::events::{CQ_SHADOW_ARM_WORD, CqShadowArm};
use ringside_spec::verbs::{CompletionElement, CompletionExtension, QueueSide};
use serde_json::Value;
use std::sync::Arc;

const RING: u32 = 512;

/// The posted work and the completion queue that a vector describes.
struct Rig {
    queue: CompletionQueue,
    ring: Words,
    shadow: Words,
    state: Arc<QueuePairState>,
}

/// The name of the recorded completion, so that only this send requests a completion.
fn named(words: &[u64]) -> CompletionElement {
    CompletionElement::decode(&words[..4].try_into().unwrap())
}

fn post_sends(send: &mut SendQueue, posted: &Value, element: &CompletionElement) {
    let pieces = recorded_fragments();
    for id in 0..8 {
        send.post(id, &Nop, SendFlags::NONE).unwrap();
    }
    send.state().send.retire_to(8);
    for request in posted.as_array().unwrap() {
        let id = number(request, "id");
        let is_named = number(request, "index") == u64::from(element.element_index);
        let flags = if is_named {
            SendFlags::SIGNALLED
        } else {
            SendFlags::NONE
        };
        let wide = number(request, "quanta") == 2;
        let result = match number(request, "opcode") {
            0 if wide => send.post(id, &write(&pieces[..2], Some(1)), flags),
            0 => send.post(id, &write(&pieces[..1], None), flags),
            1 => {
                let read = Read {
                    fragments: &pieces[..3],
                    remote_address: 0,
                    remote_key: 0,
                    invalidate_local: false,
                };
                send.post(id, &read, flags)
            }
            3 => {
                let request = Send {
                    fragments: &pieces[..1],
                    kind: SendKind::Plain,
                };
                send.post(id, &request, flags)
            }
            10 => send.post(id, &LocalInvalidate { key: 1 }, flags),
            other => panic!("operation {other}"),
        };
        result.unwrap();
        let position = number(request, "index");
        assert_eq!(
            send.state().send.at(position).map(|found| found.id),
            Some(id)
        );
    }
}

fn write(fragments: &[Fragment], immediate: Option<u32>) -> Write<'_> {
    Write {
        fragments,
        remote_address: 0,
        remote_key: 0,
        immediate,
    }
}

/// True if the recorded operation is that of a datagram: the real drivers know by the queue pair.
fn is_of_datagram(poll: &Value) -> bool {
    matches!(number(poll, "op"), 0x24 | 0x25)
}

fn rig(input: &Value, recorded: &[u64], of_datagrams: bool) -> Rig {
    let shift = number(input, "rq_wqe_shift") as u32;
    let element = named(recorded);
    let context = CompletionContext::new(5, 3);
    let queue_pair = element.queue_pair;
    let state = QueuePairState::new(context, queue_pair, RING, 8, shift);
    let state = Arc::new(state.of_datagrams(of_datagrams));
    let page = Memory::allocate(4096, PageSize::FourKiB, None).unwrap();
    let doorbell = Doorbell::mapped(&page, 0).unwrap();
    let mut send = SendQueue::new(memory(RING as usize * 4), doorbell, Arc::clone(&state)).unwrap();
    post_sends(&mut send, &input["sq_posted"], &element);
    let mut receive = ReceiveQueue::new(memory(32 << shift), Arc::clone(&state)).unwrap();
    for id in input["rq_posted_ids"].as_array().unwrap() {
        receive.post(id.as_u64().unwrap(), &[]).unwrap();
    }
    let slots = number(input, "cq_size") as usize;
    let (ring, shadow) = (memory(slots * 4), memory(8));
    let mut queue = CompletionQueue::new(ring.clone(), shadow.clone(), 8).unwrap();
    queue.attach(Arc::clone(&state), Sides::Both).unwrap();
    let mut rig = Rig {
        queue,
        ring,
        shadow,
        state,
    };
    rig.move_to(input, slots);
    rig.write(
        number(input, "slot") as usize,
        slots,
        recorded,
        element.context != 0,
    );
    rig
}

impl Rig {
    /// Brings the queue to the vector's slot and polarity.
    fn move_to(&mut self, input: &Value, slots: usize) {
        let second_pass = number(input, "expected_polarity") == 0;
        let wanted = number(input, "slot") as usize + if second_pass { slots } else { 0 };
        for position in 0..wanted {
            let filler = CompletionElement::success(QueueSide::Send, 0, 0, 0);
            let words = filler.encode((position / slots).is_multiple_of(2));
            self.write(position % slots, slots, &words, false);
            assert_eq!(self.queue.poll(&mut [Completion::EMPTY]), 0);
        }
    }

    /// Writes one or two slots. Ours: the context is a slot of our table, not a pointer, so word 1
    /// of the first slot is replaced unless it is 0.
    fn write(&self, slot: usize, slots: usize, words: &[u64], replace_context: bool) {
        for (index, word) in words.iter().enumerate() {
            let at = (slot * 4 + index) % (slots * 4);
            let word = if replace_context && index == 1 {
                self.state.context.0
            } else {
                *word
            };
            self.ring.store(at, word);
        }
    }

    /// Polls one completion at a time, as the recorded polls did.
    fn polls(&mut self, limit: usize) -> Vec<Completion> {
        let mut found = Vec::new();
        let mut place = [Completion::EMPTY];
        for _ in 0..limit {
            if self.queue.poll(&mut place) == 1 {
                found.push(place[0]);
            }
        }
        found
    }
}

fn status(poll: &Value) -> Status {
    match text(poll, "status") {
        "success" => Status::Success,
        _ => Status::from_codes(number(poll, "major") as u16, number(poll, "minor") as u16),
    }
}

fn compare(name: &str, ours: &Completion, poll: &Value) {
    assert_eq!(ours.id, number(poll, "id"), "{name}");
    assert_eq!(ours.status(), status(poll), "{name}");
    assert_eq!(ours.is_send(), number(poll, "is_sq") != 0, "{name}");
    assert_eq!(
        u64::from(ours.queue_pair()),
        number(poll, "qp_number"),
        "{name}"
    );
    assert_eq!(ours.is_success(), number(poll, "error") == 0, "{name}");
    let immediate =
        (number(poll, "immediate_valid") != 0).then(|| number(poll, "immediate") as u32);
    assert_eq!(ours.immediate(), immediate, "{name}");
    if ours.is_success() {
        // Ours: no length with an error; verbs leaves it undefined, the real drivers leave the
        // posted one.
        assert_eq!(
            u64::from(ours.byte_length()),
            number(poll, "bytes"),
            "{name}"
        );
        assert_eq!(
            ours.is_solicited(),
            number(poll, "solicited") != 0,
            "{name}"
        );
    }
    if ours.is_success() && !ours.is_send() {
        let key = (number(poll, "stag_invalidated") != 0)
            .then(|| number(poll, "invalidated_stag") as u32);
        // Ours: for a datagram the same bit means IPv4.
        let datagram = is_of_datagram(poll);
        let key = key.filter(|_| !datagram);
        assert_eq!(ours.invalidated_key(), key, "{name}");
        // Ours: the 24 bits that packets carry.
        assert_eq!(
            u64::from(ours.source_queue_pair()),
            number(poll, "source_qp") & 0xFF_FFFF,
            "{name}"
        );
        assert_eq!(ours.datagram().is_some(), datagram, "{name}");
        if let Some(found) = ours.datagram() {
            compare_source(name, &found, poll);
        }
        let write_immediate = matches!(number(poll, "op"), 0x09 | 0x0B) && immediate.is_some();
        let found = ours.operation() == Operation::ReceiveWriteImmediate;
        assert_eq!(found, write_immediate, "{name}");
    }
}

fn compare_source(name: &str, found: &Datagram, poll: &Value) {
    assert_eq!(found.ipv4, number(poll, "ipv4") != 0, "{name}");
    assert_eq!(
        u64::from(found.payload_bytes),
        number(poll, "bytes") - Datagram::PAYLOAD_OFFSET as u64,
        "{name}"
    );
    let tag = (number(poll, "vlan_valid") != 0).then(|| number(poll, "vlan") as u16);
    assert_eq!(found.vlan_tag, tag, "{name}");
    let written = found.source_mac.map(|mac| {
        let octets: Vec<String> = mac.iter().map(|octet| format!("{octet:02x}")).collect();
        octets.join(":")
    });
    // Ours: no datagram comes from a group.
    let known = number(poll, "smac_valid") != 0 && !text(poll, "smac").starts_with("ff");
    let recorded = known.then(|| text(poll, "smac").to_owned());
    assert_eq!(written, recorded, "{name}");
}

#[test]
fn every_completion_is_decoded_and_retires_what_the_real_drivers_retire() {
    let vectors = load("cqe", 119, "cqe_decode", 91);
    let (mut polled, mut absent) = (0, 0);
    for vector in &vectors {
        let name = text(vector, "name");
        let recorded = words_of(vector, "bytes");
        let decoded = &vector["decoded"];
        if name.ends_with("fffe_minor_0004@rdma_core") {
            // Ours: only major code 1 is a flush, as in the kernel; rdma-core also takes 0xFFFE.
            assert_eq!(
                Status::from_codes(0xFFFE, 4),
                Status::Unknown {
                    major: 0xFFFE,
                    minor: 4
                }
            );
            continue;
        }
        let polls = decoded["polls"].as_array().unwrap();
        let of_datagrams = polls.iter().any(is_of_datagram);
        let mut rig = rig(&vector["input"], &recorded, of_datagrams);
        let wanted: Vec<&Value> = polls
            .iter()
            .filter(|poll| poll["present"] == true)
            .collect();
        // Ours: receives that the device skipped are reported first, with their own status.
        let passed = passed_over(&rig, &recorded);
        let ours = rig.polls(polls.len() + passed);
        let (before, ours) = ours.split_at(passed.min(ours.len()));
        assert!(
            before.iter().all(|one| one.status() == Status::Unreported),
            "{name}"
        );
        assert_eq!(ours.len(), wanted.len(), "{name}: {ours:?}");
        for (ours, poll) in ours.iter().zip(&wanted) {
            compare(name, ours, poll);
            polled += 1;
        }
        absent += usize::from(wanted.is_empty());
        assert_eq!(rig.state.send.tail(), number(decoded, "sq_tail"), "{name}");
        assert_eq!(
            rig.state.receive.tail() >> rig.state.receive.element_shift(),
            number(decoded, "rq_tail"),
            "{name}"
        );
        compare_head(name, &rig, decoded);
    }
    assert_eq!((polled, absent), (POLLED, 3));
}

/// Completions in all vectors that are compared.
const POLLED: usize = 100;

fn passed_over(rig: &Rig, recorded: &[u64]) -> usize {
    let element = named(recorded);
    if element.side == QueueSide::Send || element.error {
        return 0;
    }
    usize::from(element.element_index) >> rig.state.receive.element_shift()
}

fn compare_head(name: &str, rig: &Rig, decoded: &Value) {
    let head = u64::from(rig.queue.head_index());
    let recorded = number(decoded, "cq_head");
    assert_eq!(rig.shadow.load(0), head, "{name}");
    assert_eq!(
        u64::from(rig.queue.polarity()),
        number(decoded, "cq_polarity"),
        "{name}"
    );
    if head == recorded {
        return;
    }
    // Ours: a flush completion is consumed when it is read; the real drivers keep their head on it
    // until its queue is empty, and rewrite it in memory.
    assert!(
        name.contains("_error_major_0001"),
        "{name}: head {head}, recorded {recorded}"
    );
    assert_eq!(head, recorded + 1, "{name}");
}

#[test]
fn extensions_of_datagrams_carry_source_and_vlan() {
    let vectors = load("cqe", 119, "cqe_decode", 91);
    let mut compared = 0;
    for vector in vectors
        .iter()
        .filter(|one| text(one, "name").starts_with("cqe.rq_ud"))
    {
        let recorded = words_of(vector, "bytes");
        let extension = CompletionExtension::decode(&recorded[4..8].try_into().unwrap());
        let poll = &vector["decoded"]["polls"][0];
        let valid = |flag: &str, value: u64| (number(poll, flag) != 0).then_some(value);
        let mac = text(poll, "smac").split(':').fold(0, |mac, octet| {
            mac << 8 | u64::from_str_radix(octet, 16).unwrap()
        });
        assert_eq!(extension.source_mac, valid("smac_valid", mac));
        let vlan = number(poll, "vlan");
        assert_eq!(extension.vlan_tag.map(u64::from), valid("vlan_valid", vlan));
        compared += 1;
    }
    assert_eq!(compared, 4);
}

#[test]
fn shadow_words_are_written_as_the_real_drivers_do() {
    for vector in load("cqe", 119, "shadow_update", 28) {
        let (input, decoded) = (&vector["input"], &vector["decoded"]);
        let before = number(input, "shadow_word_4_before");
        let after = number(decoded, "shadow_word_4_after");
        if text(&vector, "name").starts_with("arm.") {
            let shadow = memory(8);
            let mut queue = CompletionQueue::new(memory(16), shadow.clone(), 1).unwrap();
            shadow.store(CQ_SHADOW_ARM_WORD, before);
            let page = Memory::allocate(4096, PageSize::FourKiB, None).unwrap();
            let doorbell = Doorbell::mapped(&page, 8).unwrap();
            let number_of_queue = number(input, "cq_number") as u32;
            queue.arm(
                &doorbell,
                number_of_queue,
                number(input, "solicited_only") != 0,
            );
            assert_eq!(shadow.load(CQ_SHADOW_ARM_WORD), after, "{}", vector["name"]);
            let rung = page.words(8, 8).unwrap().load(0);
            assert_eq!(rung, number(decoded, "doorbell_value"));
        } else {
            // Queues are not resized by this driver: the layout alone.
            let word = CqShadowArm(before & CqShadowArm::DEFINED);
            let count = word.cq_select() + number(input, "retired_buffers");
            let ours = word.with_cq_select(count & CqShadowArm::CQ_SELECT_MASK);
            assert_eq!(ours.0, after, "{}", vector["name"]);
        }
    }
}
