use super::*;
use crate::completion::{Operation, Status};
use crate::inbox::{CAPACITY, HandleError};
use crate::table::{AttachError, Sides};
use ringside_bus::{Memory, PageSize};
use ringside_qp::{
    Fragment, Nop, QueuePairState, ReceiveQueue, SendFlags, SendInline, SendKind, SendQueue,
    SharedReceives, Write,
};
use ringside_spec::verbs::{CompletionElement, CompletionExtension};
use std::sync::atomic::Ordering;

const SIGNALLED: SendFlags = SendFlags::SIGNALLED;
const SILENT: SendFlags = SendFlags::NONE;

fn words(count: usize) -> Words {
    let length = (count * 8).max(4096);
    let memory = Memory::allocate(length, PageSize::FourKiB, None).unwrap();
    memory.words(0, count * 8).unwrap()
}

/// A queue pair, its completion queue, and the device that writes completions.
struct QueuesInMemory {
    send: SendQueue,
    receive: ReceiveQueue,
    queue: CompletionQueue,
    ring: Words,
    shadow: Words,
    state: Arc<QueuePairState>,
    written: u64,
}

fn bench_at(slots: usize, context: CompletionContext, shift: u32) -> QueuesInMemory {
    bench_of(slots, context, shift, false)
}

fn bench_of(
    slots: usize,
    context: CompletionContext,
    shift: u32,
    is_datagram: bool,
) -> QueuesInMemory {
    let state = QueuePairState::new(context, 42, 64, 8, shift).of_datagrams(is_datagram);
    let state = Arc::new(state);
    let page = Memory::allocate(4096, PageSize::FourKiB, None).unwrap();
    let doorbell = Doorbell::mapped(&page, 0).unwrap();
    let ring = words(slots * 4);
    let shadow = words(8);
    let mut queue = CompletionQueue::new(ring.clone(), shadow.clone(), 8).unwrap();
    queue.attach(Arc::clone(&state), Sides::Both).unwrap();
    QueuesInMemory {
        send: SendQueue::new(words(64 * 4), doorbell, Arc::clone(&state)).unwrap(),
        receive: ReceiveQueue::new(words(32 << shift), Arc::clone(&state)).unwrap(),
        queue,
        ring,
        shadow,
        state,
        written: 0,
    }
}

fn bench(slots: usize) -> QueuesInMemory {
    bench_at(slots, CompletionContext::new(3, 9), 0)
}

impl QueuesInMemory {
    fn put(&mut self, encode: impl Fn(bool) -> [u64; 4]) {
        let size = self.ring.count() as u64 / 4;
        let at = (self.written % size) as usize * 4;
        let quantum = encode((self.written / size).is_multiple_of(2));
        for (index, word) in quantum.into_iter().enumerate().take(3) {
            self.ring.store(at + index, word);
        }
        self.ring.store_release(at + 3, quantum[3]);
        self.written += 1;
    }

    fn success(&self, side: QueueSide, index: u16) -> CompletionElement {
        CompletionElement::success(side, self.state.context.0, 42, index)
    }

    fn complete(&mut self, element: CompletionElement) {
        self.put(|polarity| element.encode(polarity));
    }

    fn complete_send(&mut self, index: u16) {
        self.complete(self.success(QueueSide::Send, index));
    }

    fn fail(&mut self, side: QueueSide, index: u16, minor: u16) {
        let element = self.success(side, index);
        self.complete(CompletionElement {
            error: true,
            major: 1,
            minor,
            ..element
        });
    }

    /// A request of an event for any completion.
    fn ask(&mut self, announced: &mut Announced, is_told: bool) -> bool {
        self.ask_for(false, announced, is_told)
    }

    /// A request of an event, for any completion or for failures only.
    fn ask_for(&mut self, failed_only: bool, announced: &mut Announced, is_told: bool) -> bool {
        let elsewhere = Elsewhere::default();
        self.queue
            .has_unannounced(announced, is_told, failed_only, elsewhere)
    }

    fn poll(&mut self) -> Vec<Completion> {
        let mut batch = [Completion::EMPTY; 64];
        let count = self.queue.poll(&mut batch);
        batch[..count].to_vec()
    }

    fn post(&mut self, id: u64, flags: SendFlags) {
        let data = [0; 8];
        let request = SendInline {
            data: &data,
            kind: SendKind::Plain,
        };
        self.send.post(id, &request, flags).unwrap();
    }
}

fn ids(completions: &[Completion]) -> Vec<u64> {
    completions.iter().map(|completion| completion.id).collect()
}

fn statuses(completions: &[Completion]) -> Vec<Status> {
    completions
        .iter()
        .map(|completion| completion.status())
        .collect()
}

#[test]
fn every_signalled_send_completes_once_through_many_wraps_of_both_rings() {
    let mut bench = bench(16);
    for id in 0..1_000 {
        bench.post(id, SIGNALLED);
        assert_eq!(bench.poll(), []);
        bench.complete_send((id % 64) as u16);
        let found = bench.poll();
        assert_eq!(ids(&found), [id]);
        assert!(found[0].is_success() && found[0].is_send());
        assert_eq!((found[0].byte_length(), found[0].queue_pair()), (8, 42));
        assert_eq!(found[0].operation(), Operation::Send);
        assert_eq!(bench.poll(), []);
        assert_eq!(bench.send.used_quanta(), 0);
    }
    assert_eq!(bench.queue.anomalies(), Anomalies::default());
}

#[test]
fn completion_with_stale_polarity_is_not_delivered() {
    let mut bench = bench(4);
    for id in 0..4 {
        bench.post(id, SIGNALLED);
        bench.complete_send(id as u16);
    }
    assert_eq!(bench.poll().len(), 4);
    bench.post(4, SIGNALLED);
    // The four slots still hold completions of the first pass.
    assert_eq!(bench.poll(), []);
    bench.complete_send(4);
    assert_eq!(ids(&bench.poll()), [4]);
    assert_eq!(bench.poll(), []);
}

#[test]
fn a_signalled_completion_retires_the_silent_ones_before_it() {
    let mut bench = bench(16);
    for round in 0..50u64 {
        for id in 0..7 {
            bench.post(round * 8 + id, SILENT);
        }
        bench.post(round * 8 + 7, SIGNALLED);
        bench.complete_send(((round * 8 + 7) % 64) as u16);
        assert_eq!(ids(&bench.poll()), [round * 8 + 7]);
        assert_eq!(bench.send.used_quanta(), 0);
    }
    assert_eq!(bench.queue.anomalies(), Anomalies::default());
}

#[test]
fn a_signalled_send_that_the_device_passes_over_is_still_reported_once() {
    let mut bench = bench(16);
    for id in 0..6 {
        bench.post(id, if id == 1 { SILENT } else { SIGNALLED });
    }
    bench.complete_send(3);
    assert_eq!(ids(&bench.poll()), [0, 2, 3]);
    bench.complete_send(4);
    bench.complete_send(2);
    bench.complete_send(5);
    assert_eq!(ids(&bench.poll()), [4, 5]);
    let anomalies = bench.queue.anomalies();
    assert_eq!((anomalies.passed_over, anomalies.bad_index), (2, 1));
}

#[test]
fn an_unrequested_success_is_retired_and_not_reported() {
    let mut bench = bench(16);
    bench.post(1, SILENT);
    bench.post(2, SIGNALLED);
    bench.complete_send(0);
    bench.complete_send(1);
    assert_eq!(ids(&bench.poll()), [2]);
    assert_eq!(bench.queue.anomalies().unasked, 1);
}

#[test]
fn contexts_and_indexes_that_the_device_invents_reach_no_request() {
    let mut bench = bench(32);
    bench.post(1, SIGNALLED);
    bench.receive.post(2, &[]).unwrap();
    let good = bench.success(QueueSide::Send, 0);
    for context in [0, 3, 8 << 32 | 3, 9 << 32 | 4, 9 << 32 | 8, u64::MAX] {
        bench.complete(CompletionElement { context, ..good });
    }
    for index in [1, 63, 64, 128, 0x7FFF] {
        bench.complete_send(index);
        let element = bench.success(QueueSide::Receive, index);
        bench.complete(element);
    }
    assert_eq!(bench.poll(), []);
    let anomalies = bench.queue.anomalies();
    assert_eq!((anomalies.unknown_context, anomalies.bad_index), (6, 10));
    bench.complete_send(0);
    assert_eq!(ids(&bench.poll()), [1]);
}

#[test]
fn padding_is_no_request_even_if_the_device_completes_it() {
    let mut bench = bench(16);
    bench.post(1, SIGNALLED);
    let pieces = [Fragment::default(); 13];
    let long = Write {
        fragments: &pieces,
        remote_address: 0,
        remote_key: 0,
        immediate: Some(1),
    };
    bench.send.post(2, &long, SIGNALLED).unwrap();
    bench.complete_send(0);
    bench.complete_send(3);
    bench.complete_send(9);
    bench.complete_send(8);
    assert_eq!(ids(&bench.poll()), [1, 2]);
    assert_eq!(bench.queue.anomalies().bad_index, 2);
    assert_eq!(bench.send.used_quanta(), 0);
}

#[test]
fn one_flush_completion_becomes_one_for_each_request_with_the_reason_first() {
    for (limit, named) in [(1, 1), (2, 4), (5, 9), (64, 0x7FFF)] {
        let mut bench = bench(16);
        for id in 0..10 {
            bench.post(id, if id % 3 == 0 { SIGNALLED } else { SILENT });
        }
        bench.complete_send(0);
        // With an index behind a request that is due a completion, the reason goes to the oldest
        // one, though it asked for none.
        bench.fail(QueueSide::Send, named, 3);
        let mut found = Vec::new();
        let mut batch = [Completion::EMPTY; 64];
        for _ in 0..40 {
            let count = bench.queue.poll(&mut batch[..limit]);
            found.extend_from_slice(&batch[..count]);
        }
        assert_eq!(ids(&found), [0, 1, 2, 3, 4, 5, 6, 7, 8, 9], "batch {limit}");
        let mut wanted = vec![Status::Success, Status::RemoteAccess];
        wanted.extend([Status::Flushed; 8]);
        assert_eq!(statuses(&found), wanted);
        assert!(
            found[1..]
                .iter()
                .all(|completion| completion.byte_length() == 0)
        );
        assert_eq!(bench.send.used_quanta(), 0);
    }
}

#[test]
fn requests_posted_after_the_flush_complete_as_flushed_too() {
    let mut bench = bench(16);
    bench.post(1, SIGNALLED);
    bench.receive.post(2, &[]).unwrap();
    bench.fail(QueueSide::Send, 0, 8);
    assert_eq!(statuses(&bench.poll()), [Status::RetryExceeded]);
    bench.post(3, SILENT);
    bench.receive.post(4, &[]).unwrap();
    let found = bench.poll();
    assert_eq!(
        (ids(&found), statuses(&found)),
        (vec![3], vec![Status::Flushed])
    );
    // The receive queue has not been flushed yet.
    bench.fail(QueueSide::Receive, 0, 1);
    let found = bench.poll();
    assert_eq!(ids(&found), [2, 4]);
    assert!(found.iter().all(|completion| !completion.is_send()));
}

#[test]
fn a_flush_without_a_pending_request_is_made_in_software() {
    let mut bench = bench(16);
    let context = bench.state.context;
    bench.post(1, SIGNALLED);
    bench.post(2, SIGNALLED);
    bench.complete_send(0);
    // The device's own completion comes first although the flush request is older.
    bench
        .queue
        .handle()
        .flush(context, QueueSide::Send)
        .unwrap();
    let found = bench.poll();
    assert_eq!(ids(&found), [1, 2]);
    assert_eq!(statuses(&found), [Status::Success, Status::Flushed]);
    bench.post(3, SIGNALLED);
    assert_eq!(statuses(&bench.poll()), [Status::Flushed]);
}

#[test]
fn silent_sends_that_the_device_has_completed_are_not_flushed() {
    let mut bench = bench(16);
    let state = Arc::clone(&bench.state);
    bench.post(1, SILENT);
    bench.post(2, SILENT);
    state.settle_sends(state.send.head());
    // Posted while the queue pair failed: the device has not seen it.
    bench.post(3, SILENT);
    bench
        .queue
        .handle()
        .flush(state.context, QueueSide::Send)
        .unwrap();
    let found = bench.poll();
    assert_eq!(ids(&found), [3]);
    assert_eq!(statuses(&found), [Status::Flushed]);
    assert_eq!(bench.send.used_quanta(), 0);
}

#[test]
fn a_signalled_send_without_a_completion_is_flushed_whatever_the_device_says() {
    let mut bench = bench(16);
    bench.post(1, SIGNALLED);
    bench.state.settle_sends(bench.state.send.head());
    assert!(bench.queue.flush(bench.state.context, QueueSide::Send));
    assert_eq!(statuses(&bench.poll()), [Status::Flushed]);
}

#[test]
fn a_flush_that_names_no_outstanding_request_begins_at_the_oldest() {
    let mut bench = bench(16);
    bench.post(1, SIGNALLED);
    bench.post(2, SILENT);
    bench.fail(QueueSide::Send, 50, 2);
    let found = bench.poll();
    assert_eq!(ids(&found), [1, 2]);
    assert_eq!(statuses(&found), [Status::LocalProtection, Status::Flushed]);
    assert_eq!(bench.queue.anomalies(), Anomalies::default());
}

#[test]
fn a_flush_that_names_the_last_element_makes_no_success_of_older_ones() {
    let wanted = [Status::RemoteAccess, Status::Flushed, Status::Flushed];
    for side in [QueueSide::Send, QueueSide::Receive] {
        let mut bench = bench(16);
        for id in 0..3 {
            bench.post(id, SIGNALLED);
            bench.receive.post(id, &[]).unwrap();
        }
        bench.fail(side, 2, 3);
        let found = bench.poll();
        assert_eq!(ids(&found), [0, 1, 2], "{side:?}");
        assert_eq!(statuses(&found), wanted, "{side:?}");
        assert_eq!(bench.queue.anomalies(), Anomalies::default());
    }
}

#[test]
fn a_flush_skips_only_sends_without_completion_to_the_one_that_it_names() {
    let all = [Status::RemoteAccess, Status::Flushed, Status::Flushed];
    for (posted, named, first) in [
        ([SILENT, SILENT, SIGNALLED], 1, 1),
        ([SILENT, SIGNALLED, SILENT], 2, 0),
    ] {
        let mut bench = bench(16);
        for (id, flags) in posted.into_iter().enumerate() {
            bench.post(id as u64, flags);
        }
        bench.fail(QueueSide::Send, named, 3);
        let found = bench.poll();
        assert_eq!(ids(&found), [0, 1, 2][first..]);
        assert_eq!(statuses(&found), all[..3 - first]);
    }
}

#[test]
fn a_receive_that_failed_is_the_oldest_one_for_any_index() {
    for index in [0, 1, 2, 60, 0x7FFF] {
        let mut bench = bench(16);
        for id in 0..3 {
            bench.receive.post(id, &[]).unwrap();
        }
        let failed = CompletionElement {
            error: true,
            major: 0xA5C3,
            minor: 7,
            ..bench.success(QueueSide::Receive, index)
        };
        bench.complete(failed);
        bench.complete(bench.success(QueueSide::Receive, 1));
        let unknown = Status::Unknown {
            major: 0xA5C3,
            minor: 7,
        };
        let found = bench.poll();
        assert_eq!(ids(&found), [0, 1], "index {index}");
        assert_eq!(statuses(&found), [unknown, Status::Success]);
        assert_eq!(bench.queue.anomalies(), Anomalies::default());
    }
}

#[test]
fn a_datagram_is_told_from_a_message_by_its_queue_pair() {
    for is_datagram in [false, true] {
        let mut bench = bench_of(16, CompletionContext::new(3, 9), 0, is_datagram);
        // Operations that no other driver reads, with and without a second slot.
        for (index, (operation, extended)) in [
            (4, false),
            (0x24, false),
            (0, true),
            (0x25, true),
            (0x0B, true),
        ]
        .into_iter()
        .enumerate()
        {
            bench.receive.post(index as u64, &[]).unwrap();
            bench.complete(CompletionElement {
                payload_bytes: 140,
                operation,
                extended,
                invalidated_or_ipv4: true,
                invalidated_or_source: 0xAB_CDEF,
                ..bench.success(QueueSide::Receive, index as u16)
            });
            if extended {
                let extension = CompletionExtension {
                    source_mac: Some(0x0200_0000_0007),
                    vlan_tag: Some(0xE123),
                    immediate: None,
                };
                bench.put(|polarity| extension.encode(polarity));
            }
            let found = bench.poll();
            assert_eq!(ids(&found), [index as u64]);
            let datagram = found[0].datagram();
            let source = datagram.map(|found| (found.source_queue_pair, found.payload_bytes));
            assert_eq!(source, is_datagram.then_some((0xAB_CDEF, 100)));
            let key = (!is_datagram && !extended).then_some(0xAB_CDEF);
            assert!(extended || found[0].invalidated_key() == key);
            if let (Some(datagram), true) = (datagram, extended) {
                assert_eq!(datagram.vlan_tag, Some(0xE123));
                assert_eq!(datagram.source_mac, Some([2, 0, 0, 0, 0, 7]));
            }
            assert_eq!(found[0].queue_pair(), 42);
        }
    }
}

#[test]
fn an_error_of_unknown_kind_ends_its_own_request_and_keeps_its_codes() {
    let mut bench = bench(16);
    bench.post(1, SIGNALLED);
    bench.post(2, SIGNALLED);
    let element = bench.success(QueueSide::Send, 0);
    bench.complete(CompletionElement {
        error: true,
        major: 0xA5C3,
        minor: 7,
        ..element
    });
    bench.complete_send(1);
    let unknown = Status::Unknown {
        major: 0xA5C3,
        minor: 7,
    };
    assert_eq!(statuses(&bench.poll()), [unknown, Status::Success]);
}

#[test]
fn a_notice_about_a_sent_datagram_is_a_success_of_a_datagram_queue_pair_only() {
    for (is_datagram, side) in [
        (true, QueueSide::Send),
        (false, QueueSide::Send),
        (true, QueueSide::Receive),
    ] {
        let context = CompletionContext::new(3, 9);
        let mut bench = bench_of(16, context, 0, is_datagram);
        bench.post(1, SILENT);
        bench.post(2, SIGNALLED);
        bench.post(3, SIGNALLED);
        bench.receive.post(4, &[]).unwrap();
        let index = u16::from(side == QueueSide::Send);
        let (major, minor) = (0xE123, 5);
        bench.complete(CompletionElement {
            error: true,
            major,
            minor,
            ..bench.success(side, index)
        });
        bench.complete_send(2);
        let notice = is_datagram && side == QueueSide::Send;
        let polled = bench.poll();
        let status = polled[0].status();
        if notice {
            assert_eq!(status, Status::Success);
        } else {
            assert_eq!(status, Status::Unknown { major, minor }, "{side:?}");
        }
        let wanted: &[u64] = match side {
            QueueSide::Send => &[2, 3],
            // The device passes over the second send.
            QueueSide::Receive => &[4, 2, 3],
        };
        assert_eq!(ids(&polled), wanted);
        let passed_over = bench.queue.anomalies().passed_over;
        assert_eq!(passed_over, u64::from(side == QueueSide::Receive));
    }
}

#[test]
fn receives_carry_length_immediate_and_invalidated_key() {
    let mut bench = bench(4);
    for id in 0..5 {
        bench.receive.post(id, &[]).unwrap();
    }
    let plain = bench.success(QueueSide::Receive, 0);
    bench.complete(CompletionElement {
        payload_bytes: 100,
        operation: 4,
        ..plain
    });
    let invalidating = CompletionElement {
        element_index: 1,
        invalidated_or_source: 0xABC,
        invalidated_or_ipv4: true,
        solicited: true,
        ..plain
    };
    bench.complete(invalidating);
    let with_immediate = CompletionElement {
        element_index: 2,
        extended: true,
        operation: 0x0B,
        ..plain
    };
    bench.complete(with_immediate);
    let found = bench.poll();
    assert_eq!(ids(&found), [0, 1], "half a pair is nothing yet");
    assert_eq!(
        (found[0].byte_length(), found[0].invalidated_key()),
        (100, None)
    );
    assert_eq!(found[1].invalidated_key(), Some(0xABC));
    assert!(found[1].is_solicited());
    let extension = CompletionExtension {
        immediate: Some(0x1122_3344),
        ..CompletionExtension::default()
    };
    bench.put(|polarity| extension.encode(polarity));
    let found = bench.poll();
    assert_eq!(ids(&found), [2]);
    assert_eq!(found[0].immediate(), Some(0x1122_3344));
    assert_eq!(found[0].operation(), Operation::ReceiveWriteImmediate);
}

#[test]
fn a_pair_that_wraps_into_the_first_slot_is_read_with_both_polarities() {
    let mut bench = bench(4);
    for id in 0..7 {
        bench.receive.post(id, &[]).unwrap();
    }
    for index in 0..3 {
        bench.complete(bench.success(QueueSide::Receive, index));
    }
    assert_eq!(bench.poll().len(), 3);
    let pair = CompletionElement {
        extended: true,
        ..bench.success(QueueSide::Receive, 3)
    };
    bench.complete(pair);
    assert_eq!(bench.poll(), []);
    let extension = CompletionExtension {
        immediate: Some(7),
        ..Default::default()
    };
    bench.put(|polarity| extension.encode(polarity));
    assert_eq!(bench.poll()[0].immediate(), Some(7));
    assert_eq!(
        (bench.queue.head_index(), bench.queue.polarity()),
        (1, false)
    );
}

#[test]
fn what_waits_is_counted_across_the_end_of_the_ring_and_pairs_of_slots_count_once() {
    let mut bench = bench(4);
    let (mut index, mut waiting) = (0, 0);
    // In a ring of four slots, the pair lies at every place once, across the end too.
    for round in 0..6 {
        bench.receive.post(2 * round, &[]).unwrap();
        bench.receive.post(2 * round + 1, &[]).unwrap();
        assert_eq!(bench.queue.waiting(), 0);
        for extended in [false, true] {
            bench.complete(CompletionElement {
                extended,
                ..bench.success(QueueSide::Receive, index)
            });
            if extended {
                bench.put(|polarity| CompletionExtension::default().encode(polarity));
            }
            (index, waiting) = ((index + 1) % 8, waiting + 1);
            assert_eq!(bench.queue.waiting(), waiting);
        }
        assert_eq!(bench.poll().len(), waiting);
        waiting = 0;
    }
    for index in 0..4 {
        bench.complete(bench.success(QueueSide::Receive, index));
    }
    assert_eq!(bench.queue.waiting(), 4, "a full ring");
}

#[test]
fn receives_passed_over_by_the_device_are_reported_as_such() {
    let mut bench = bench_at(16, CompletionContext::new(0, 1), 2);
    for id in 10..14 {
        bench.receive.post(id, &[]).unwrap();
    }
    bench.complete(bench.success(QueueSide::Receive, 8));
    bench.complete(bench.success(QueueSide::Receive, 9));
    let found = bench.poll();
    assert_eq!(ids(&found), [10, 11, 12]);
    let wanted = [Status::Unreported, Status::Unreported, Status::Success];
    assert_eq!(statuses(&found), wanted);
    // The queue pair goes on: a shared receive queue feeds it further.
    assert!(found.iter().all(Completion::is_consumed));
    bench.fail(QueueSide::Receive, 12, 2);
    let failed = bench.poll();
    assert!(!failed[0].is_consumed(), "{failed:?}");
    assert_eq!(
        bench.queue.anomalies().bad_index,
        1,
        "an index inside an element"
    );
}

#[test]
fn completions_of_a_side_that_reports_elsewhere_are_refused() {
    let mut bench = bench(16);
    let context = bench.state.context;
    assert!(bench.queue.detach(context));
    bench
        .queue
        .attach(Arc::clone(&bench.state), Sides::Receive)
        .unwrap();
    bench.post(1, SIGNALLED);
    bench.complete_send(0);
    assert_eq!(bench.poll(), []);
    assert_eq!(bench.queue.anomalies().wrong_queue, 1);
    assert!(!bench.queue.flush(context, QueueSide::Send));
}

#[test]
fn another_core_attaches_and_detaches_through_the_handle() {
    let mut bench = bench(16);
    let context = bench.state.context;
    let handle = bench.queue.handle();
    handle.detach(context).unwrap();
    let before = Arc::strong_count(&bench.state);
    assert_eq!(bench.poll(), []);
    assert_eq!(
        Arc::strong_count(&bench.state),
        before - 2,
        "one for each side"
    );
    bench.post(1, SIGNALLED);
    bench.complete_send(0);
    let state = Arc::clone(&bench.state);
    std::thread::spawn(move || handle.attach(state, Sides::Both).unwrap())
        .join()
        .unwrap();
    assert_eq!(ids(&bench.poll()), [1]);
    let far = Arc::new(QueuePairState::new(
        CompletionContext::new(8, 1),
        1,
        64,
        8,
        0,
    ));
    let error = bench.queue.handle().attach(far, Sides::Both).unwrap_err();
    assert!(matches!(
        error,
        HandleError::Attach(AttachError::NoSuchSlot { .. })
    ));
    let taken = Arc::new(QueuePairState::new(
        CompletionContext::new(3, 10),
        1,
        64,
        8,
        0,
    ));
    bench.queue.handle().attach(taken, Sides::Both).unwrap();
    assert_eq!(bench.poll(), []);
    assert_eq!(bench.queue.anomalies().attach_refused, 1);
}

#[test]
fn a_full_inbox_is_an_error_and_loses_no_request() {
    let mut bench = bench(16);
    let context = bench.state.context;
    let handle = bench.queue.handle();
    for _ in 0..CAPACITY {
        handle.flush(context, QueueSide::Send).unwrap();
    }
    let error = handle.detach(context).unwrap_err();
    assert_eq!(error, HandleError::InboxFull { waiting: CAPACITY });
    bench.poll();
    handle.detach(context).unwrap();
}

#[test]
fn the_end_of_a_queue_pair_is_accepted_when_no_other_can_be_attached() {
    let mut bench = bench(16);
    let handle = bench.queue.handle();
    let other = |number| {
        let context = CompletionContext::new(2, number);
        Arc::new(QueuePairState::new(context, 1, 64, 8, 0))
    };
    let mut attached = Vec::new();
    let full = loop {
        let state = other(attached.len() as u32 + 2);
        match handle.attach(Arc::clone(&state), Sides::Both) {
            Ok(()) => attached.push(state.context),
            Err(error) => break error,
        }
    };
    let waiting = attached.len();
    assert_eq!(full, HandleError::InboxFull { waiting });
    assert_eq!(waiting, CAPACITY / 4);
    for context in &attached {
        handle.flush(*context, QueueSide::Send).unwrap();
        handle.flush(*context, QueueSide::Receive).unwrap();
        handle.detach(*context).unwrap();
        handle.attach(other(0), Sides::Both).unwrap_err();
    }
    bench.queue.take_requests();
    // All places are free again.
    for number in 0..attached.len() {
        handle.attach(other(number as u32), Sides::Both).unwrap();
    }
    handle.attach(other(0), Sides::Both).unwrap_err();
}

#[test]
fn an_owner_may_take_the_requests_of_other_cores_without_a_poll() {
    let mut bench = bench(16);
    let context = bench.state.context;
    let handle = bench.queue.handle();
    bench.post(7, SendFlags::SIGNALLED);
    for _ in 0..CAPACITY {
        handle.flush(context, QueueSide::Send).unwrap();
    }
    bench.queue.take_requests();
    // There is room again, and what the requests ask for is not lost: the next poll reports it.
    handle.flush(context, QueueSide::Receive).unwrap();
    assert_eq!(ids(&bench.poll()), [7]);
}

#[test]
fn the_shadow_head_is_what_was_read_and_wraps_with_the_ring() {
    let mut bench = bench(4);
    for id in 0..9u64 {
        bench.post(id, SIGNALLED);
        bench.complete_send(id as u16);
        bench.poll();
        assert_eq!(bench.shadow.load(0), (id + 1) % 4);
    }
}

#[test]
fn arming_requests_any_or_solicited_events_and_rings_the_queue_number() {
    let mut bench = bench(4);
    let page = Memory::allocate(4096, PageSize::FourKiB, None).unwrap();
    let doorbell = Doorbell::mapped(&page, 64).unwrap();
    bench.queue.arm(&doorbell, 99, false);
    assert_eq!(bench.shadow.load(4), 114_688);
    assert_eq!(page.words(64, 8).unwrap().load(0), 99);
    bench.queue.arm(&doorbell, 99, true);
    assert_eq!(bench.shadow.load(4), 163_840);
}

#[test]
fn for_any_data_of_a_device_no_request_completes_twice_and_nothing_panics() {
    let mut noise = 0x2545_F491_4F6C_DD1Du64;
    let mut random = move |limit: u64| {
        noise ^= noise << 13;
        noise ^= noise >> 7;
        noise ^= noise << 17;
        noise % limit
    };
    for seed in 0..60 {
        let mut bench = bench(16);
        let mut completed = std::collections::HashSet::new();
        let mut posted = 0;
        for _ in 0..400 {
            let flags = if random(2) == 0 { SIGNALLED } else { SILENT };
            posted += u64::from(bench.send.post(posted, &Nop, flags).is_ok());
            let receive_id = 1 << 32 | posted;
            let _ = bench.receive.post(receive_id, &[]);
            let element = CompletionElement {
                element_index: random(70) as u16,
                error: random(40) == 0,
                major: random(3) as u16,
                minor: random(14) as u16,
                extended: random(9) == 0,
                context: if random(5) == 0 {
                    random(u64::MAX)
                } else {
                    9 << 32 | 3
                },
                operation: random(64) as u8,
                ..bench.success(
                    if random(2) == 0 {
                        QueueSide::Send
                    } else {
                        QueueSide::Receive
                    },
                    0,
                )
            };
            bench.complete(element);
            for completion in bench.poll() {
                let key = (completion.is_send(), completion.id);
                if completion.is_send() {
                    assert!(completed.insert(key), "seed {seed}: {completion:?} twice");
                }
                assert!(completion.id & 0xFFFF_FFFF <= posted);
            }
        }
    }
}

#[test]
fn posting_and_polling_may_be_on_different_cores() {
    const REQUESTS: u64 = 20_000;
    let QueuesInMemory {
        mut send,
        mut queue,
        ring,
        state,
        ..
    } = bench(16);
    let context = state.context.0;
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
    let poster = std::thread::spawn(move || {
        for id in 0..REQUESTS {
            while send.post(id, &Nop, SIGNALLED).is_err() {
                assert!(std::time::Instant::now() < deadline, "queue stays full");
                std::thread::yield_now();
            }
        }
    });
    let mut next = 0;
    let mut written = 0u64;
    while next < REQUESTS {
        assert!(std::time::Instant::now() < deadline, "stopped at {next}");
        // The device completes posted requests as far as the ring has room.
        let head = state.send.head();
        while written < head && written < next + 16 {
            let element =
                CompletionElement::success(QueueSide::Send, context, 42, (written % 64) as u16);
            let at = (written % 16) as usize * 4;
            let quantum = element.encode((written / 16).is_multiple_of(2));
            for (index, word) in quantum.into_iter().enumerate() {
                ring.store_release(at + index, word);
            }
            written += 1;
        }
        let mut batch = [Completion::EMPTY; 8];
        let count = queue.poll(&mut batch);
        for completion in &batch[..count] {
            assert_eq!(completion.id, next);
            next += 1;
        }
        std::thread::yield_now();
    }
    poster.join().unwrap();
    assert_eq!(queue.anomalies(), Anomalies::default());
}

#[test]
fn memory_that_is_no_ring_is_refused() {
    for slots in [0, 1, 2, 3, 5, 6, 24] {
        let error = CompletionQueue::new(words(slots * 4), words(8), 1).unwrap_err();
        assert_eq!(error, QueueError::WrongSize { words: slots * 4 });
    }
    let error = CompletionQueue::new(words(16), words(7), 1).unwrap_err();
    assert_eq!(error, QueueError::ShadowTooSmall { words: 7 });
}

#[test]
fn half_a_completion_does_not_hold_up_a_flush_for_ever() {
    let mut bench = bench(16);
    bench.post(1, SIGNALLED);
    bench.post(2, SIGNALLED);
    let half = CompletionElement {
        extended: true,
        ..bench.success(QueueSide::Receive, 0)
    };
    bench.complete(half);
    assert_eq!(bench.poll(), []);
    assert!(bench.queue.flush(bench.state.context, QueueSide::Send));
    for _ in 1..HALF_WRITTEN_POLLS {
        assert_eq!(bench.poll(), [], "it may still come");
    }
    let found = bench.poll();
    assert_eq!(ids(&found), [1, 2]);
    assert_eq!(bench.queue.anomalies().half_written, 1);
    assert_eq!(bench.send.used_quanta(), 0);
}

#[test]
fn completions_in_a_former_ring_of_a_detached_queue_pair_are_dropped() {
    let mut bench = bench(16);
    bench.post(1, SIGNALLED);
    bench.complete_send(0);
    bench
        .queue
        .replace(CompletionQueue::check_ring(words(16 * 4)).unwrap());
    assert_eq!(bench.queue.backlog().count(), 1);
    assert!(bench.queue.detach(bench.state.context));
    assert_eq!(bench.poll(), []);
    assert_eq!(bench.queue.backlog().count(), 0);
}

#[test]
fn a_queue_pair_that_ends_between_two_rings_leaves_no_completion() {
    let mut bench = bench(16);
    bench.post(1, SIGNALLED);
    bench.complete_send(0);
    let ring = || CompletionQueue::check_ring(words(16 * 4)).unwrap();
    bench.queue.replace(ring());
    assert_eq!(bench.queue.backlog().count(), 1);
    // From another core: it is read while the ring is replaced.
    bench.queue.handle().detach(bench.state.context).unwrap();
    bench.queue.replace(ring());
    assert_eq!(bench.poll(), []);
    assert_eq!(bench.queue.backlog().count(), 0);
}

/// The device has the new ring already when another core flushes the queue pair.
#[test]
fn successes_in_a_new_ring_precede_the_flush_of_another_core() {
    let mut bench = bench(16);
    for id in 0..3 {
        bench.post(id, SIGNALLED);
    }
    bench.complete_send(0);
    let context = bench.state.context;
    bench
        .queue
        .handle()
        .flush(context, QueueSide::Send)
        .unwrap();
    bench.ring = words(16 * 4);
    bench.written = 0;
    let ring = CompletionQueue::check_ring(bench.ring.clone()).unwrap();
    bench.complete_send(1);
    bench.queue.replace(ring);
    let found: Vec<_> = bench
        .poll()
        .iter()
        .map(|done| (done.id, done.status()))
        .collect();
    let (success, flushed) = (Status::Success, Status::Flushed);
    assert_eq!(found, [(0, success), (1, success), (2, flushed)]);
    assert_eq!(bench.queue.anomalies(), Anomalies::default());
}

#[test]
fn a_flushed_queue_pair_that_ends_before_the_ring_is_replaced_is_forgotten() {
    let mut bench = bench(16);
    let context = bench.state.context;
    assert!(bench.queue.flush(context, QueueSide::Send));
    bench.poll();
    bench.queue.handle().detach(context).unwrap();
    let ring = CompletionQueue::check_ring(words(16 * 4)).unwrap();
    bench.queue.replace(ring);
    bench.poll();
    let plain = plain_send(CompletionHeader::VALID_MASK);
    assert_eq!(bench.queue.inbox.expected(), plain);
}

/// A receive that completed in a former ring is outstanding no more: no queue could use it again.
#[test]
fn receives_of_a_shared_queue_in_a_former_ring_outlive_their_queue_pair() {
    for lends in [false, true] {
        let mut bench = bench(16);
        let mut shared = SharedReceives::new(16, 1, 64);
        let fed = ReceiveQueue::new(words(32), Arc::clone(&bench.state)).unwrap();
        shared.add(42, fed, 4).unwrap();
        shared.post(7, &[Fragment::default()]).unwrap();
        if lends {
            shared.begin_lending();
        }
        bench.post(1, SIGNALLED);
        bench.complete_send(0);
        bench.complete(bench.success(QueueSide::Receive, 0));
        let ring = CompletionQueue::check_ring(words(16 * 4)).unwrap();
        bench.queue.replace(ring);
        assert_eq!(bench.queue.backlog().count(), 2);
        assert!(bench.queue.detach(bench.state.context));
        // What a lending queue copies goes with its queue pair: no posted receive was used.
        let expected: &[u64] = if lends { &[] } else { &[7] };
        assert_eq!(ids(&bench.poll()), expected);
    }
}

#[test]
fn a_poll_reads_no_more_slots_than_the_ring_has_while_the_device_keeps_writing() {
    let mut bench = bench(16);
    let stray = CompletionElement {
        context: u64::MAX,
        ..bench.success(QueueSide::Send, 0)
    };
    // A device that keeps writing ahead of the reader: the ring is filled for two passes.
    let words = |polarity: bool| stray.encode(polarity);
    for slot in 0..16 {
        for (index, word) in words(true).into_iter().enumerate() {
            bench.ring.store(slot * 4 + index, word);
        }
    }
    let ring = bench.ring.clone();
    let stop = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let device = {
        let stop = Arc::clone(&stop);
        std::thread::spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                for polarity in [false, true] {
                    let header = stray.encode(polarity)[3];
                    for slot in 0..16 {
                        ring.store_release(slot * 4 + 3, header);
                    }
                }
            }
        })
    };
    for _ in 0..2_000 {
        let before = bench.queue.anomalies().unknown_context;
        assert_eq!(bench.poll(), []);
        let looked_at = bench.queue.anomalies().unknown_context - before;
        assert!(looked_at <= 16, "{looked_at} slots in one poll");
    }
    stop.store(true, Ordering::Relaxed);
    device.join().unwrap();
}

#[test]
fn poll_one_takes_what_a_poll_takes_one_by_one() {
    let mut bench = bench(4);
    let mut place = Completion::EMPTY;
    assert!(!bench.queue.poll_one(&mut place));
    for id in 0..40 {
        bench.post(id, if id % 3 == 0 { SILENT } else { SIGNALLED });
        bench.receive.post(100 + id, &[]).unwrap();
        if id % 3 != 0 {
            bench.complete_send((id % 64) as u16);
            assert!(bench.queue.poll_one(&mut place));
            assert_eq!((place.id, place.is_send()), (id, true));
        }
        bench.complete(bench.success(QueueSide::Receive, (id % 8) as u16));
        assert!(bench.queue.poll_one(&mut place));
        assert_eq!((place.id, place.is_received()), (100 + id, true));
        assert!(!bench.queue.poll_one(&mut place));
        assert_eq!(bench.shadow.load(0), u64::from(bench.queue.head_index()));
    }
    bench.post(40, SIGNALLED);
    assert!(bench.queue.flush(bench.state.context, QueueSide::Send));
    assert!(bench.queue.poll_one(&mut place));
    assert_eq!((place.id, place.status()), (39, Status::Flushed));
    assert!(bench.queue.poll_one(&mut place));
    assert_eq!((place.id, place.status()), (40, Status::Flushed));
    assert_eq!(bench.queue.anomalies(), Anomalies::default());
}

#[test]
fn no_completion_of_a_queue_pair_follows_its_detachment_by_another_core() {
    let mut bench = bench(16);
    let mut place = Completion::EMPTY;
    for id in 0..3 {
        bench.post(id, SIGNALLED);
        bench.complete_send(id as u16);
    }
    assert!(bench.queue.poll_one(&mut place));
    let detach = bench.queue.handle().detach(bench.state.context);
    detach.unwrap();
    // Two completions are in the ring; their queue pair is detached.
    assert!(!bench.queue.poll_one(&mut place));
    assert_eq!(bench.poll(), []);
    assert_eq!(bench.queue.anomalies().unknown_context, 2);
}

/// Random numbers below a limit, the same for the same seed.
fn draws(seed: u64) -> impl FnMut(u64) -> u64 {
    let mut random = seed;
    move |below| {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (random >> 33) % below
    }
}

/// Requests of events, polls and completions in any order, over many passes of the ring: a request
/// is told of a completion that no event has told of, and of no other.
#[test]
fn requests_of_events_know_what_was_told() {
    let mut bench = bench(8);
    let mut announced = Announced::default();
    // Counted from the first completion.
    let (mut written, mut read, mut told) = (0_u64, 0_u64, 0_u64);
    let mut is_new = true;
    let mut draw = draws(1);
    let mut outcomes = [0; 2];
    for step in 0..20_000 {
        match draw(4) {
            0 if written - read < 7 => {
                bench.post(written, SIGNALLED);
                bench.complete_send((written % 64) as u16);
                written += 1;
            }
            1 => {
                let mut batch = [Completion::EMPTY; 1];
                read += bench.queue.poll(&mut batch) as u64;
            }
            2 => {
                bench.queue.settle(&mut announced);
                is_new |= written == read;
            }
            _ => {
                let is_told = draw(2) == 0;
                told = match is_new {
                    true => read,
                    false => read.max(told + u64::from(is_told)),
                };
                let is_due = written > told;
                let found = bench.ask(&mut announced, is_told);
                assert_eq!(found, is_due, "step {step}: {written} {read} {told}");
                told = told.min(written);
                is_new = false;
                outcomes[usize::from(is_due)] += 1;
            }
        }
    }
    assert!(outcomes.iter().all(|&count| count > 500), "{outcomes:?}");
    assert!(written > 2_000);
}

#[test]
fn a_completion_of_two_slots_is_told_of_once() {
    let mut bench = bench(8);
    let mut announced = Announced::default();
    let mut ask = |bench: &mut QueuesInMemory| bench.ask(&mut announced, true);
    assert!(!ask(&mut bench));
    bench.receive.post(1, &[Fragment::default()]).unwrap();
    let extension = CompletionExtension {
        immediate: Some(7),
        ..CompletionExtension::NONE
    };
    let element = CompletionElement {
        extended: true,
        ..bench.success(QueueSide::Receive, 0)
    };
    bench.complete(element);
    bench.put(|polarity| extension.encode(polarity));
    // The event of the device told of it.
    assert!(!ask(&mut bench));
    // A second one is new, then told of.
    bench.receive.post(2, &[Fragment::default()]).unwrap();
    bench.receive.post(3, &[Fragment::default()]).unwrap();
    bench.complete(bench.success(QueueSide::Receive, 1));
    bench.complete(bench.success(QueueSide::Receive, 2));
    assert!(ask(&mut bench));
    assert!(!ask(&mut bench));
}

/// The device reports a failed queue pair once; polls report its other requests. A program that
/// polls one for each event is told of each, whether it polls before it asks or after.
#[test]
fn a_request_tells_of_what_the_device_has_not_reported_of_a_failed_queue_pair() {
    for asks_first in [false, true] {
        let mut bench = bench(8);
        let mut announced = Announced::default();
        assert!(!bench.ask(&mut announced, false));
        for id in 0..3 {
            bench.post(id, SIGNALLED);
        }
        bench.fail(QueueSide::Send, 0, 3);
        assert!(bench.queue.flush(bench.state.context, QueueSide::Send));
        // The event of the device told of its completion.
        let mut is_told = true;
        let mut place = Completion::EMPTY;
        for left in [2, 1, 0] {
            if !asks_first {
                assert!(bench.queue.poll_one(&mut place));
            }
            let before = announced;
            is_told = bench.ask_for(true, &mut announced, is_told);
            assert_eq!(is_told, left > 0, "{left} left");
            announced = before;
            is_told = bench.ask(&mut announced, true);
            assert_eq!(is_told, left > 0, "{left} left");
            if asks_first {
                assert!(bench.queue.poll_one(&mut place));
            }
        }
        // Posted while the queue pair failed.
        bench.post(3, SIGNALLED);
        assert!(bench.ask(&mut announced, is_told));
        assert!(bench.queue.poll_one(&mut place));
        assert_eq!((place.id, place.status()), (3, Status::Flushed));
        assert!(!bench.ask(&mut announced, true));
    }
}

/// A send without completion that the device has carried out gives no report.
#[test]
fn a_failed_queue_pair_owes_no_report_of_a_send_that_is_done() {
    let mut bench = bench(8);
    let mut announced = Announced::default();
    bench.post(0, SILENT);
    bench.post(1, SILENT);
    bench.state.settle_sends(1);
    assert!(bench.queue.flush(bench.state.context, QueueSide::Send));
    assert!(bench.ask_for(true, &mut announced, false));
    let mut place = Completion::EMPTY;
    assert!(bench.queue.poll_one(&mut place));
    assert_eq!((place.id, place.status()), (1, Status::Flushed));
    bench.post(2, SILENT);
    bench.state.settle_sends(3);
    assert!(!bench.ask(&mut announced, true));
    assert!(!bench.queue.poll_one(&mut place));
}

/// Receives that a shared receive queue takes back are no reports.
#[test]
fn a_failed_queue_pair_owes_no_report_of_receives_that_serve_others() {
    for lends in [false, true] {
        let mut bench = bench(8);
        let mut announced = Announced::default();
        let mut shared = SharedReceives::new(16, 1, 64);
        let fed = ReceiveQueue::new(words(32), Arc::clone(&bench.state)).unwrap();
        shared.add(42, fed, 4).unwrap();
        shared.post(7, &[Fragment::default()]).unwrap();
        if lends {
            shared.begin_lending();
        }
        assert!(bench.queue.flush(bench.state.context, QueueSide::Receive));
        assert!(!bench.ask(&mut announced, false));
        // Its own ones, of a queue pair that is not fed.
        let mut other = bench_of(8, CompletionContext::new(3, 9), 0, false);
        other.receive.post(1, &[Fragment::default()]).unwrap();
        assert!(other.queue.flush(other.state.context, QueueSide::Receive));
        assert!(other.ask(&mut announced, false));
    }
}

/// Messages that arrive beside requests of a failed queue, in any order with polls and requests of
/// events: each event stands for one of them, wherever it came from.
#[test]
fn events_of_failed_queues_and_of_messages_are_counted_together() {
    let mut draw = draws(7);
    let mut outcomes = [0; 2];
    for round in 0..300 {
        let mut bench = bench(4 << (round % 3));
        let mut announced = Announced::default();
        assert!(bench.queue.flush(bench.state.context, QueueSide::Send));
        let (mut sends, mut messages, mut read, mut told) = (0_u64, 0_u64, 0_u64, 0_u64);
        // Taken since the last request; messages in the ring.
        let (mut taken, mut in_ring) = (0, 0);
        assert!(!bench.ask(&mut announced, false));
        for step in 0..150 {
            let unread = sends + messages - read;
            match draw(4) {
                0 if unread < 60 => {
                    bench.post(sends, SIGNALLED);
                    sends += 1;
                }
                1 if in_ring < 3 => {
                    bench.receive.post(messages, &[]).unwrap();
                    let index = (messages % 8) as u16;
                    bench.complete(bench.success(QueueSide::Receive, index));
                    messages += 1;
                    in_ring += 1;
                }
                2 => {
                    let mut place = Completion::EMPTY;
                    if bench.queue.poll_one(&mut place) {
                        (read, taken) = (read + 1, taken + 1);
                        in_ring -= u64::from(place.is_received());
                    }
                }
                _ => {
                    // An event that the device or another thread gave.
                    let is_told = draw(2) == 0;
                    told = (told + u64::from(is_told))
                        .saturating_sub(taken)
                        .min(unread);
                    taken = 0;
                    let is_due = unread > told;
                    let found = bench.ask(&mut announced, is_told);
                    assert_eq!(found, is_due, "round {round}, step {step}: {unread} {told}");
                    outcomes[usize::from(is_due)] += 1;
                }
            }
        }
    }
    assert!(outcomes.iter().all(|&count| count > 500), "{outcomes:?}");
}

#[test]
fn what_a_new_ring_has_is_told_of() {
    let mut bench = bench(16);
    let mut announced = Announced::default();
    for id in 0..5 {
        bench.post(id, SIGNALLED);
        bench.complete_send(id as u16);
    }
    assert_eq!(bench.poll().len(), 5);
    assert!(!bench.ask(&mut announced, false));
    bench.ring = words(16 * 4);
    bench.written = 0;
    let ring = CompletionQueue::check_ring(bench.ring.clone()).unwrap();
    bench.queue.replace(ring);
    bench.post(5, SIGNALLED);
    bench.complete_send(5);
    assert!(bench.ask(&mut announced, false));
    assert!(!bench.ask(&mut announced, true));
}

/// A queue pair with silent sends, whose send queue the device flushes: its state.
fn flushed_sender(bench: &mut QueuesInMemory, slot: u32, sends: u64) -> Arc<QueuePairState> {
    let context = CompletionContext::new(slot, 1);
    let state = Arc::new(QueuePairState::new(context, 100 + slot, 64, 8, 0));
    bench.queue.attach(Arc::clone(&state), Sides::Both).unwrap();
    let page = Memory::allocate(4096, PageSize::FourKiB, None).unwrap();
    let doorbell = Doorbell::mapped(&page, 0).unwrap();
    let mut send = SendQueue::new(words(64 * 4), doorbell, Arc::clone(&state)).unwrap();
    let request = SendInline {
        data: &[0; 8],
        kind: SendKind::Plain,
    };
    for id in 0..sends {
        send.post(id, &request, SILENT).unwrap();
    }
    let element = CompletionElement::success(QueueSide::Send, context.0, state.number(), 0);
    bench.complete(CompletionElement {
        error: true,
        major: FLUSH_MAJOR,
        minor: 0x0101,
        ..element
    });
    state
}

/// One flush completion stands for all requests of a queue: more than the ring has slots.
#[test]
fn a_new_ring_loses_nothing_behind_flush_completions_of_many_requests() {
    for sends in [1, 4, 16, 17, 40] {
        let mut bench = bench(16);
        let failed = [4, 5, 6, 7].map(|slot| flushed_sender(&mut bench, slot, sends));
        bench.post(77, SIGNALLED);
        bench.complete_send(0);
        let ring = CompletionQueue::check_ring(words(64 * 4)).unwrap();
        bench.queue.replace(ring);
        let mut found = Vec::new();
        for _ in 0..10 {
            found.extend(bench.poll());
        }
        let of = |number| {
            let own = found.iter().filter(move |one| one.queue_pair() == number);
            own.map(|one| one.status()).collect::<Vec<_>>()
        };
        for state in &failed {
            let all = of(state.number());
            assert_eq!(all.len(), sends as usize);
            let other = all.iter().filter(|status| **status != Status::Flushed);
            assert_eq!(other.count(), 1, "the reason, once: {all:?}");
            assert_ne!(all[0], Status::Flushed, "the reason is first");
        }
        assert_eq!(of(42), [Status::Success], "{sends} sends each");
        assert_eq!(bench.queue.anomalies(), Anomalies::default());
    }
}

/// Both threads begin at the same moment: the times at which the detachment comes are those of a
/// change of rings, some of them between two completions of one read.
#[test]
fn a_queue_pair_that_another_core_detaches_during_a_change_of_rings_leaves_no_completion() {
    for round in 0..800 {
        let mut bench = bench(64);
        // A receive after each few sends: a poll looks for requests of other cores between them.
        for id in 0..56 {
            bench.post(id, SIGNALLED);
            bench.complete_send(id as u16);
            if id % 8 == 1 {
                bench.receive.post(100 + id, &[]).unwrap();
                bench.complete(bench.success(QueueSide::Receive, (id / 8) as u16));
            }
        }
        let handle = bench.queue.handle();
        let context = bench.state.context;
        let ring = CompletionQueue::check_ring(words(64 * 4)).unwrap();
        let [ready, go] = [(); 2].map(|()| std::sync::atomic::AtomicBool::new(false));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                ready.store(true, Ordering::Release);
                while !go.load(Ordering::Acquire) {
                    std::hint::spin_loop();
                }
                for _ in 0..round % 50 {
                    std::hint::spin_loop();
                }
                handle.detach(context).unwrap();
            });
            while !ready.load(Ordering::Acquire) {
                std::thread::yield_now();
            }
            go.store(true, Ordering::Release);
            bench.queue.replace(ring);
        });
        assert_eq!(bench.poll(), [], "round {round}");
        assert_eq!(bench.queue.backlog().count(), 0);
    }
}

/// The count of polls begins anew with each completion that was waited for.
#[test]
fn second_halves_that_come_late_one_after_the_other_are_all_waited_for() {
    let mut bench = bench(16);
    for id in 0..2 {
        bench.receive.post(id, &[]).unwrap();
    }
    bench.post(9, SIGNALLED);
    assert!(bench.queue.flush(bench.state.context, QueueSide::Send));
    assert_eq!(ids(&bench.poll()), [9]);
    for id in 0..2 {
        let element = CompletionElement {
            extended: true,
            ..bench.success(QueueSide::Receive, id)
        };
        bench.complete(element);
        // The limit is 4096.
        for _ in 0..4000 {
            assert_eq!(bench.poll(), []);
        }
        let extension = CompletionExtension {
            immediate: Some(5),
            ..CompletionExtension::NONE
        };
        bench.put(|polarity| extension.encode(polarity));
        assert_eq!(ids(&bench.poll()), [u64::from(id)]);
    }
    assert_eq!(bench.queue.anomalies().half_written, 0);
}

#[test]
fn a_slot_of_which_another_queue_pair_has_one_side_is_taken() {
    let mut bench = bench(16);
    let [first, second] = [11, 12].map(|generation| {
        let context = CompletionContext::new(5, generation);
        Arc::new(QueuePairState::new(context, generation, 64, 8, 0))
    });
    bench.queue.attach(first, Sides::Send).unwrap();
    let refused = bench.queue.attach(second, Sides::Receive);
    assert_eq!(refused, Err(AttachError::SlotTaken { slot: 5 }));
}

/// Attached, flushed on both sides and detached: four requests for each.
#[test]
fn all_queue_pairs_of_an_unpolled_queue_come_fail_and_go() {
    let mut queue = CompletionQueue::new(words(16 * 4), words(8), 128).unwrap();
    let handle = queue.handle();
    for slot in 0..128 {
        let context = CompletionContext::new(slot, 3);
        let state = Arc::new(QueuePairState::new(context, slot, 64, 8, 0));
        handle.attach(state, Sides::Both).unwrap();
        for side in [QueueSide::Send, QueueSide::Receive] {
            handle.flush(context, side).unwrap();
        }
        handle.detach(context).unwrap();
    }
    assert_eq!(queue.poll(&mut [Completion::EMPTY; 4]), 0);
    assert_eq!(queue.anomalies(), Anomalies::default());
}

/// The library keeps notes of its own in bits that the device must leave at zero.
#[test]
fn reserved_bits_of_a_receive_say_nothing() {
    let mut bench = bench(16);
    bench.receive.post(1, &[]).unwrap();
    bench.receive.post(2, &[]).unwrap();
    let reserved = CompletionHeader::RESERVED;
    assert_ne!(reserved, 0);
    let element = CompletionElement {
        extended: true,
        ..bench.success(QueueSide::Receive, 0)
    };
    let with_reserved = |element: CompletionElement, polarity| {
        let mut words = element.encode(polarity);
        words[3] |= reserved;
        words
    };
    bench.put(|polarity| with_reserved(element, polarity));
    let extension = CompletionExtension {
        immediate: Some(5),
        ..CompletionExtension::NONE
    };
    bench.put(|polarity| extension.encode(polarity));
    let failure = CompletionElement {
        error: true,
        major: 1,
        minor: 2,
        ..bench.success(QueueSide::Receive, 1)
    };
    bench.put(|polarity| with_reserved(failure, polarity));
    let found = bench.poll();
    assert_eq!(ids(&found), [1, 2]);
    assert_eq!(found[0].status(), Status::Success);
    assert_eq!(found[0].datagram(), None);
    for one in found {
        assert!(!one.outlives_queue_pair());
        assert_ne!(one.status(), Status::Unreported);
    }
}
