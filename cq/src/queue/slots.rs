//! Reads one slot, finds the request that it names, and makes the completion of both.

use super::ring_words::{header_of, word};
use crate::completion::{Completion, Origin, ReceiveDetail, SoftwareNote};
use crate::inbox::NOTHING_IS_PLAIN;
use crate::table::{View, look_up, tracker};
use ringside_qp::QueuePairState;
use ringside_qp::state::{INDEX_SHIFT, Outstanding, SendRecordInfo, Tracker};
use ringside_spec::verbs::completion::{
    CompletionExtension, CompletionHeader, CompletionLength, CompletionSource,
};
use ringside_spec::verbs::status::{FLUSH_MAJOR, is_notice};
use ringside_spec::verbs::{FlushCode, QUANTUM_WORDS, QueueSide};
use std::sync::atomic::AtomicU64;

/// Returns the header of a plain success of a send, in the bits that a poll compares, without the
/// index. `valid` is the valid bit of the pass.
pub(super) const fn plain_send(valid: u64) -> u64 {
    CompletionHeader(valid).with_send_queue(true).0
}

/// One completion as read from the ring, without its context.
pub(super) struct Raw {
    pub(super) header: CompletionHeader,
    pub(super) payload_bytes: u32,
    pub(super) key_or_source: u32,
    /// the content of a second slot
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

    /// Returns the success that this error completion stands for, if it is only a notice about a
    /// datagram that was sent.
    pub(super) fn without_notice(&self, queue: &QueuePairState) -> Option<Self> {
        let header = self.header;
        let notice = queue.is_datagram() && header.send_queue() && header.error();
        if !notice || !is_notice(header.major() as u16) {
            return None;
        }
        let header = header.with_error(false).with_major(0).with_minor(0);
        Some(Self { header, ..*self })
    }

    /// Returns the completion of `request`: bits without a meaning are cleared, and `extended` now
    /// means that there is an immediate.
    #[inline(always)]
    pub(super) fn completion(&self, queue: &Tracker, id: u64, info: SendRecordInfo) -> Completion {
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
            origin: Origin::of(queue).naming(self.key_or_source),
        };
        if !self.header.error() && !self.header.send_queue() {
            self.note_source(&mut completion);
        }
        completion
    }

    /// Notes the source of a datagram in a successful receive.
    #[inline(always)]
    fn note_source(&self, completion: &mut Completion) {
        if let Some(mac) = self.extension.source_mac {
            completion.header = SoftwareNote::of_source(completion.header, mac);
        }
        if let Some(tag) = self.extension.vlan_tag {
            (completion.header, completion.origin) =
                SoftwareNote::of_vlan(completion.header, completion.origin, tag);
        }
    }
}

/// Takes plain successes of one side, and stops before any other slot.
///
/// `expected` has the valid bit of this pass and the side. Not inlined: in a larger function its
/// loop would run out of registers.
#[inline(never)]
pub(super) fn take_run<const SEND: bool>(
    slots: &[[AtomicU64; QUANTUM_WORDS]],
    expected: u64,
    view: View<'_>,
    places: &mut [Completion],
) -> usize {
    let mut taken = 0;
    for (slot, place) in slots.iter().zip(places) {
        if !take_plain::<SEND>(slot, expected, &view, place) {
            break;
        }
        taken += 1;
    }
    taken
}

/// Delivers a plain success if it is the next one of an attached queue; returns true if it is.
#[inline(always)]
pub(super) fn take_plain<const SEND: bool>(
    slot: &[AtomicU64; QUANTUM_WORDS],
    expected: u64,
    view: &View<'_>,
    place: &mut Completion,
) -> bool {
    let header = header_of(slot);
    // Any context finds a queue; requests are taken from it only if everything else matches.
    let Some(queue) = look_up::<SEND>(view, word(slot, 1)) else {
        return false;
    };
    let Some((id, info)) = queue.take_next(header.0 & COMPARED, expected) else {
        return false;
    };
    *place = if SEND {
        Completion {
            id,
            detail: info.0,
            header,
            origin: Origin::of(queue),
        }
    } else {
        // These bits are 0 already, as `expected` has them; the compiler learns it here.
        let zero = CompletionHeader::SEND_QUEUE_MASK | CompletionHeader::ERROR_MASK;
        let header = CompletionHeader(header.0 & !zero);
        let raw = Raw::read(slot, header, CompletionExtension::NONE);
        raw.completion(queue, id, info)
    };
    true
}

/// Delivers the next request of its queue, with silent ones before it. `None` if `raw` names
/// another.
pub(super) fn deliver(queue: &Tracker, place: &mut Completion, raw: &Raw) -> Option<()> {
    let index = raw.header.element_index() as u16;
    let taken = queue.take_next(raw.header.0 & CompletionHeader::ELEMENT_INDEX_MASK, 0);
    let (id, info) = taken.or_else(|| queue.take_behind_silent(index))?;
    *place = raw.completion(queue, id, info);
    Some(())
}

/// Header bits that distinguish a plain success of one side from all else, without the index.
const PLAIN: u64 = CompletionHeader::VALID_MASK
    | CompletionHeader::SEND_QUEUE_MASK
    | CompletionHeader::ERROR_MASK
    | CompletionHeader::EXTENDED_MASK
    | CompletionHeader::RESERVED;

/// Header bits that distinguish the plain success of one request from all else.
const COMPARED: u64 = PLAIN | CompletionHeader::ELEMENT_INDEX_MASK;

const _: () = assert!(NOTHING_IS_PLAIN & COMPARED == 0, "no header may equal it");
const _: () = assert!(
    CompletionHeader::ELEMENT_INDEX_MASK == 0x7FFF << INDEX_SHIFT,
    "the index is compared where it stands"
);

pub(super) fn find(state: &QueuePairState, raw: &Raw) -> Option<Outstanding> {
    tracker(state, raw.side()).find(raw.header.element_index())
}

/// Returns the oldest outstanding request of a queue, without padding.
pub(super) fn oldest(state: &QueuePairState, side: QueueSide) -> Option<Outstanding> {
    let tracker = tracker(state, side);
    tracker.next_from(tracker.tail())
}

/// Returns the request that gets the reason of a flush.
///
/// That is the oldest outstanding one, or of sends the one that the device names if no request
/// before it is due a completion. With any other index a send that the device never carried out
/// would count as a success.
pub(super) fn failed_first(state: &QueuePairState, raw: &Raw) -> Option<Outstanding> {
    let side = raw.side();
    let oldest = oldest(state, side)?;
    let named = match side {
        QueueSide::Send => find(state, raw),
        QueueSide::Receive => None,
    };
    let Some(named) = named else {
        return Some(oldest);
    };
    let sends = tracker(state, side);
    let mut next = oldest.position;
    while let Some(earlier) = sends.next_from(next)
        && earlier.position < named.position
    {
        if !earlier.info.silent() {
            return Some(oldest);
        }
        next = earlier.end();
    }
    Some(named)
}

/// Returns the completion of a request that the device skipped although it named a later one.
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

/// Returns the completion that the device would write for a request that it flushes because another
/// one failed.
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
