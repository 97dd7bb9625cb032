//! One slot at a time: what the device wrote, the request that it names, the completion of both.

use crate::completion::{Completion, DatagramOrigin, Origin, ReceiveDetail, SoftwareNote};
use crate::table::{Entry, find_entry};
use ringside_qp::state::{Outstanding, SendRecordInfo, Tracker};
use ringside_spec::verbs::completion::{
    CompletionExtension, CompletionHeader, CompletionLength, CompletionSource,
};
use ringside_spec::verbs::status::FLUSH_MAJOR;
use ringside_spec::verbs::{FlushCode, QUANTUM_WORDS, QueueSide};
use std::sync::atomic::{AtomicU64, Ordering};

/// One completion as read from the ring, without its context.
pub(super) struct Raw {
    pub(super) header: CompletionHeader,
    pub(super) payload_bytes: u32,
    pub(super) key_or_source: u32,
    /// what a second slot said
    pub(super) extension: CompletionExtension,
}

impl Raw {
    #[inline(always)]
    pub(super) fn read(
        slot: &[AtomicU64; QUANTUM_WORDS],
        header: CompletionHeader,
        extension: CompletionExtension,
    ) -> Self {
        Self {
            header,
            payload_bytes: CompletionLength(word(slot, 0)).payload_bytes() as u32,
            key_or_source: CompletionSource(word(slot, 2)).invalidated_or_source() as u32,
            extension,
        }
    }

    #[inline(always)]
    pub(super) const fn side(&self) -> QueueSide {
        if self.header.send_queue() {
            QueueSide::Send
        } else {
            QueueSide::Receive
        }
    }

    /// The completion of `request`: bits without a meaning are cleared, and `extended` comes to
    /// mean that there is an immediate.
    #[inline(always)]
    pub(super) fn completion(&self, queue_pair: u32, id: u64, info: SendRecordInfo) -> Completion {
        let detail = if self.header.send_queue() {
            info.0
        } else {
            ReceiveDetail::ZERO
                .with_payload_bytes(u64::from(self.payload_bytes))
                .with_immediate(u64::from(self.extension.immediate.unwrap_or(0)))
                .0
        };
        let defined = CompletionHeader(self.header.0 & CompletionHeader::DEFINED);
        let mut completion = Completion {
            id,
            detail,
            header: defined.with_extended(self.extension.immediate.is_some()),
            origin: Origin::ZERO
                .with_queue_pair(u64::from(queue_pair))
                .with_key_or_source(u64::from(self.key_or_source)),
        };
        if !self.header.error() && !self.header.send_queue() {
            self.note_source(&mut completion);
        }
        completion
    }

    /// Notes in a successful receive where its datagram came from.
    #[inline(always)]
    fn note_source(&self, completion: &mut Completion) {
        if let Some(mac) = self.extension.source_mac {
            completion.header = SoftwareNote::of_source(completion.header, mac);
        }
        if let Some(tag) = self.extension.vlan_tag {
            let note = SoftwareNote(completion.header.0).with_vlan_known(true);
            completion.header = CompletionHeader(note.0);
            let origin = DatagramOrigin(completion.origin.0).with_vlan_tag(tag.into());
            completion.origin = Origin(origin.0);
        }
    }
}

#[inline(always)]
pub(super) fn word(slot: &[AtomicU64; QUANTUM_WORDS], index: usize) -> u64 {
    u64::from_le(slot[index].load(Ordering::Relaxed))
}

/// Takes plain successes of one side, and stops before anything else.
///
/// `expected` has the valid bit of this pass and the side; all other bits that matter are clear.
#[inline(always)]
pub(super) fn take_run<const SEND: bool>(
    slots: &[[AtomicU64; QUANTUM_WORDS]],
    expected: CompletionHeader,
    entries: &[Entry],
    places: &mut [Completion],
) -> usize {
    let mut taken = 0;
    for (slot, place) in slots.iter().zip(places) {
        let header = header_of(slot);
        if (header.0 ^ expected.0) & NOT_PLAIN != 0 {
            break;
        }
        let delivered = if SEND {
            deliver(entries, slot, header, place)
        } else {
            find_entry(entries, word(slot, 1)).is_some_and(|entry| {
                let raw = Raw::read(slot, header, CompletionExtension::NONE);
                deliver_receive(entry, place, &raw).is_some()
            })
        };
        if !delivered {
            break;
        }
        taken += 1;
    }
    taken
}

/// Delivers a plain success of a send if it is the next of an attached queue; says whether it is.
#[inline(always)]
pub(super) fn deliver(
    entries: &[Entry],
    slot: &[AtomicU64; QUANTUM_WORDS],
    header: CompletionHeader,
    place: &mut Completion,
) -> bool {
    find_entry(entries, word(slot, 1))
        .is_some_and(|entry| deliver_send(entry, place, header).is_some())
}

/// Word 3, read before all others.
#[inline(always)]
pub(super) fn header_of(slot: &[AtomicU64; QUANTUM_WORDS]) -> CompletionHeader {
    CompletionHeader(u64::from_le(slot[3].load(Ordering::Acquire)))
}

/// Delivers the next signalled send; nothing if this is not it.
#[inline(always)]
pub(super) fn deliver_send(
    entry: &Entry,
    place: &mut Completion,
    header: CompletionHeader,
) -> Option<()> {
    let sends = &entry.state.send;
    let (id, info) = sends.take_next(header.element_index())?;
    *place = Completion {
        id,
        detail: info.0,
        header,
        origin: Origin::of(sends),
    };
    Some(())
}

/// Delivers the next receive; nothing if this is not it.
#[inline(always)]
pub(super) fn deliver_receive(entry: &Entry, place: &mut Completion, raw: &Raw) -> Option<()> {
    let receives = &entry.state.receive;
    let (id, info) = receives.take_next(receive_place(receives, raw.header)?)?;
    *place = raw.completion(receives.number(), id, info);
    Some(())
}

/// Bits that end a run of plain successes, once XORed with those expected.
pub(super) const NOT_PLAIN: u64 = CompletionHeader::VALID_MASK
    | CompletionHeader::SEND_QUEUE_MASK
    | CompletionHeader::ERROR_MASK
    | CompletionHeader::EXTENDED_MASK
    | CompletionHeader::RESERVED;

/// Index in its ring of the receive that a completion names; the device counts quanta.
#[inline(always)]
fn receive_place(receives: &Tracker, header: CompletionHeader) -> Option<u64> {
    let index = header.element_index();
    let place = index >> receives.element_shift();
    (place << receives.element_shift() == index).then_some(place)
}

pub(super) fn find(entry: &Entry, raw: &Raw) -> Option<Outstanding> {
    match raw.side() {
        QueueSide::Send => entry.state.send.find(raw.header.element_index()),
        QueueSide::Receive => {
            let receives = &entry.state.receive;
            receives.find(receive_place(receives, raw.header)?)
        }
    }
}

/// The oldest outstanding request of a queue, padding passed over.
pub(super) fn oldest(entry: &Entry, side: QueueSide) -> Option<Outstanding> {
    let tracker = entry.tracker(side);
    (tracker.tail()..tracker.head()).find_map(|position| tracker.at(position))
}

/// The tail behind a request.
pub(super) fn after(side: QueueSide, request: &Outstanding) -> u64 {
    match side {
        QueueSide::Send => request.position + request.info.quanta().max(1),
        QueueSide::Receive => request.position + 1,
    }
}

/// A request that the device did not name although it named a later one.
pub(super) fn passed_over(
    side: QueueSide,
    queue_pair: u32,
    request: &Outstanding,
) -> Option<Completion> {
    let mut completion = flushed(side, queue_pair, request);
    match side {
        QueueSide::Send if !request.info.signalled() => return None,
        QueueSide::Send => completion.header = completion.header.with_error(false),
        QueueSide::Receive => {
            let note = SoftwareNote::ZERO.with_unreported(true);
            completion.header = CompletionHeader(completion.header.0 | note.0);
        }
    }
    Some(completion)
}

/// What the device would write for a request that it flushes because of another.
pub(super) fn flushed(side: QueueSide, queue_pair: u32, request: &Outstanding) -> Completion {
    Completion {
        id: request.id,
        detail: request.info.0,
        header: CompletionHeader::ZERO
            .with_error(true)
            .with_major(u64::from(FLUSH_MAJOR))
            .with_minor(u64::from(FlushCode::General.code()))
            .with_send_queue(side == QueueSide::Send),
        origin: Origin::ZERO.with_queue_pair(u64::from(queue_pair)),
    }
}
