//! Completions (CQE): a device that writes any data to a completion ring, at any time.
//!
//! Checked: a completion names a request that was posted on its side and was not completed before,
//! in the order of posting; a ring frees no more than was taken from it; a detached queue pair has
//! no further completions; a flush completes all remaining requests.

use crate::source::Source;
use ringside_bus::{Doorbell, Memory, PageSize, Words};
use ringside_cq::{Completion, CompletionContext, CompletionQueue, QueuePairState, Sides};
use ringside_qp::{
    Fragment, ReceiveQueue, SendFlags, SendInline, SendKind, SendQueue, Write, WriteInline,
};
use ringside_spec::verbs::{CompletionElement, CompletionExtension, QUANTUM_WORDS, QueueSide};
use std::sync::Arc;

/// Slots of the completion ring.
const SLOTS: usize = 16;
/// Places of the send ring, in quanta.
const SEND_QUANTA: u32 = 64;
/// Places of the receive ring.
const RECEIVES: u32 = 32;
const NUMBER: u32 = 42;

/// Polls after which half a completion is given up: enough to observe the wait.
const PATIENCE: u32 = 5;

/// Bytes of one place in the memory: the largest ring.
const PLACE_BYTES: usize = 2 * SLOTS * QUANTUM_WORDS * 8;

thread_local! {
    // allocated once: allocation takes longer than an input
    static MEMORY: Memory =
        Memory::allocate(Place::COUNT * PLACE_BYTES, PageSize::FourKiB, None).expect("two pages");
}

/// The ranges of the memory.
#[derive(Clone, Copy)]
enum Place {
    Completions,
    /// The ring after a resize, and again the first after the next.
    OtherCompletions,
    Shadow,
    Send,
    Receive,
    Doorbell,
}

impl Place {
    const COUNT: usize = 6;

    /// Returns this many zeroed words of the range.
    fn words(self, count: usize) -> Words {
        let at = self as usize * PLACE_BYTES;
        let words = MEMORY.with(|memory| memory.words(at, count * 8));
        let words = words.expect("inside the memory");
        words.fill(0);
        words
    }
}

/// The requests posted on one side and not completed; numbers rise.
#[derive(Default)]
struct Posted {
    open: std::collections::VecDeque<(u64, bool)>,
}

impl Posted {
    fn complete(&mut self, id: u64) {
        loop {
            let (oldest, signalled) = self.open.pop_front().unwrap_or_else(|| {
                panic!("{id} was completed twice, or never posted, or after a later one")
            });
            if oldest == id {
                return;
            }
            assert!(!signalled, "{oldest} was left out, {id} came");
        }
    }
}

struct Queues {
    context: CompletionContext,
    send: SendQueue,
    receive: ReceiveQueue,
    queue: CompletionQueue,
    /// The range of the current ring.
    place: Place,
    ring: Words,
    state: Arc<QueuePairState>,
    next_id: u64,
    sent: Posted,
    received: Posted,
    attached: bool,
    /// Slots that the device has written.
    written: u64,
}

impl Queues {
    fn new() -> Self {
        let context = CompletionContext::new(3, 9);
        let state = Arc::new(QueuePairState::new(
            context,
            NUMBER,
            SEND_QUANTA,
            RECEIVES,
            0,
        ));
        let at = Place::Doorbell as usize * PLACE_BYTES;
        let doorbell = MEMORY.with(|memory| Doorbell::mapped(memory, at));
        let doorbell = doorbell.expect("a doorbell in the memory");
        let ring = Place::Completions.words(SLOTS * QUANTUM_WORDS);
        let shadow = Place::Shadow.words(8);
        let mut queue = CompletionQueue::new(ring.clone(), shadow, 8).expect("a ring");
        queue.give_up_half_written_after(PATIENCE);
        queue
            .attach(Arc::clone(&state), Sides::Both)
            .expect("a free slot");
        let send = Place::Send.words(SEND_QUANTA as usize * QUANTUM_WORDS);
        let receive = Place::Receive.words(RECEIVES as usize * QUANTUM_WORDS);
        Self {
            context,
            send: SendQueue::new(send, doorbell, Arc::clone(&state)).expect("a ring"),
            receive: ReceiveQueue::new(receive, Arc::clone(&state)).expect("a ring"),
            queue,
            place: Place::Completions,
            ring,
            state,
            next_id: 0,
            sent: Posted::default(),
            received: Posted::default(),
            attached: true,
            written: 0,
        }
    }

    fn post_send(&mut self, how: u8) {
        let flags = if how & 1 == 0 {
            SendFlags::SIGNALLED
        } else {
            SendFlags::NONE
        };
        let id = self.next_id;
        let data = [0; 100];
        let fragment = Fragment {
            address: 0x1000,
            length_bytes: 64,
            steering_tag: 0x100,
        };
        let posted = match how >> 1 & 3 {
            0 => self.send.post(
                id,
                &SendInline {
                    data: &data[..8],
                    kind: SendKind::Plain,
                },
                flags,
            ),
            1 => self.send.post(
                id,
                &WriteInline {
                    data: &data,
                    remote_address: 0,
                    remote_key: 0,
                    immediate: None,
                },
                flags,
            ),
            _ => self.send.post(
                id,
                &Write {
                    fragments: &[fragment; 6],
                    remote_address: 0,
                    remote_key: 0,
                    immediate: None,
                },
                flags,
            ),
        };
        if posted.is_ok() {
            self.next_id += 1;
            self.sent.open.push_back((id, how & 1 == 0));
        }
        assert!(self.send.used_quanta() <= self.send.capacity_quanta());
    }

    fn post_receive(&mut self) {
        let id = self.next_id;
        if self.receive.post(id, &[]).is_ok() {
            self.next_id += 1;
            self.received.open.push_back((id, true));
        }
        assert!(self.receive.used() <= self.receive.capacity());
    }

    /// Writes the slot after the last, with the expected valid bit.
    fn put(&mut self, encode: impl FnOnce(bool) -> [u64; QUANTUM_WORDS]) {
        let slots = self.ring.count() as u64 / QUANTUM_WORDS as u64;
        let at = (self.written % slots) as usize * QUANTUM_WORDS;
        let quantum = encode((self.written / slots).is_multiple_of(2));
        for (index, word) in quantum.into_iter().enumerate() {
            self.ring.store(at + index, word);
        }
        self.written += 1;
    }

    /// Writes a completion as a device might, with some of its fields wrong.
    fn put_likely(&mut self, source: &mut Source) {
        let [how, index, what, detail] = source.array();
        let side = if how & 1 == 0 {
            QueueSide::Send
        } else {
            QueueSide::Receive
        };
        let context = if how & 2 == 0 {
            self.context.0
        } else {
            source.word()
        };
        let element = CompletionElement::success(side, context, NUMBER, index.into());
        let element = CompletionElement {
            error: how & 4 != 0,
            extended: how & 8 != 0,
            invalidated_or_ipv4: how & 16 != 0,
            operation: what & 63,
            major: if how & 32 == 0 { 1 } else { 0xFFFF },
            minor: detail.into(),
            payload_bytes: detail.into(),
            ..element
        };
        self.put(|polarity| element.encode(polarity));
        if how & 64 != 0 {
            let extension = CompletionExtension {
                immediate: Some(7),
                ..CompletionExtension::NONE
            };
            self.put(|polarity| extension.encode(polarity));
        }
    }

    fn poll(&mut self, places: usize) {
        let mut batch = [Completion::EMPTY; 32];
        let places = places.clamp(1, batch.len());
        let count = self.queue.poll(&mut batch[..places]);
        assert!(count <= places);
        for completion in &batch[..count] {
            assert!(self.attached, "a detached queue pair: {completion:?}");
            assert_eq!(completion.queue_pair(), NUMBER);
            // each of these methods must accept any completion
            let _ = (
                completion.status(),
                completion.operation(),
                completion.immediate(),
                completion.invalidated_key(),
                completion.datagram(),
                completion.source_queue_pair(),
            );
            if completion.is_send() {
                self.sent.complete(completion.id);
            } else {
                self.received.complete(completion.id);
            }
        }
        let used = self.send.used_quanta();
        assert!(used <= self.send.capacity_quanta(), "{used} quanta in use");
        assert!(self.receive.used() <= self.receive.capacity());
    }

    /// Checks that nothing is left after a flush in software.
    fn finish(&mut self) {
        if !self.attached {
            return;
        }
        assert!(self.queue.flush(self.context, QueueSide::Send));
        assert!(self.queue.flush(self.context, QueueSide::Receive));
        // Completions of the device come first, then the posted requests: bounded. A half-written
        // completion is waited for, and then given up.
        let in_use = |queues: &Self| queues.send.used_quanta() + queues.receive.used();
        for _ in 0..PATIENCE as usize * 4 * SLOTS {
            if in_use(self) == 0 && self.queue.backlog().next().is_none() {
                break;
            }
            self.poll(7);
        }
        assert_eq!(in_use(self), 0, "{:?}", self.queue.anomalies());
        let left = |posted: &Posted| posted.open.iter().filter(|(_, told)| *told).count();
        assert_eq!((left(&self.sent), left(&self.received)), (0, 0));
    }

    fn step(&mut self, source: &mut Source) {
        let step = source.byte();
        let detail = step >> 4;
        match step & 15 {
            0..=2 => self.post_send(detail),
            3 => self.post_receive(),
            4..=6 => self.put_likely(source),
            7 => {
                // any data, in order, with the right valid bit
                let quantum: [u64; QUANTUM_WORDS] = source.words();
                self.put(|polarity| {
                    let [a, b, c, d] = quantum;
                    [a, b, c, d & (u64::MAX >> 1) | u64::from(polarity) << 63]
                });
            }
            8 => {
                // any data, at any slot
                let quantum: [u64; QUANTUM_WORDS] = source.words();
                let slots = self.ring.count() / QUANTUM_WORDS;
                let at = usize::from(detail) % slots * QUANTUM_WORDS;
                for (index, word) in quantum.into_iter().enumerate() {
                    self.ring.store(at + index, word);
                }
            }
            9 => {
                let side = if detail & 1 == 0 {
                    QueueSide::Send
                } else {
                    QueueSide::Receive
                };
                assert_eq!(self.queue.flush(self.context, side), self.attached);
            }
            10 => {
                assert_eq!(self.queue.detach(self.context), self.attached);
                self.attached = false;
            }
            11 => {
                // the old ring is read when the queue moves: its range is free again
                self.place = match self.place {
                    Place::Completions => Place::OtherCompletions,
                    _ => Place::Completions,
                };
                let ring = self.place.words((SLOTS << (detail & 1)) * QUANTUM_WORDS);
                self.ring = ring.clone();
                let ring = CompletionQueue::check_ring(ring).expect("a ring");
                self.queue.replace(ring);
                self.written = 0;
            }
            _ => self.poll(usize::from(detail)),
        }
        assert!(self.state.send.tail() <= self.state.send.head());
        assert!(self.state.receive.tail() <= self.state.receive.head());
    }
}

/// Completion queue entries (CQE).
pub fn completions(bytes: &[u8]) {
    let mut source = Source::new(bytes);
    let mut queues = Queues::new();
    while !source.is_empty() {
        queues.step(&mut source);
    }
    queues.finish();
}
