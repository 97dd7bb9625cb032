//! The completions that a program was told of, for programs that take one for each event.

use super::CompletionQueue;
use super::ring_words::{header_of, word};
use crate::table::tracker;
use ringside_qp::{CompletionContext, QueuePairState};
use ringside_spec::verbs::QueueSide;

/// The unread completions that events have told of: an event tells of one. Counted from request to
/// request of an event: each event adds one, each completion that is taken removes one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Announced {
    /// the last request; none before the first
    seen: Option<Seen>,
    /// unread completions that events had told of by then; in slots, as far as they are in the ring
    told: usize,
    /// all completions were taken after the last event: those that come are new
    is_settled: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Seen {
    /// slots of the ring taken by then
    position: usize,
    slots: usize,
    /// completions taken by then that the device did not write
    beside: usize,
}

/// Completions that the program takes from its completion queue, and that this queue does not have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Elsewhere {
    /// those that can be taken now
    pub ready: usize,
    /// completions taken so far; less those that were polled from this queue, and that the program
    /// did not get yet. Modulo the size of the type.
    pub taken: usize,
}

impl CompletionQueue {
    /// The program requests an event. True if there is a completion that no poll has taken and no
    /// event has told of: the device, too, need not tell of it. Always true for completions of a
    /// ring that was replaced.
    ///
    /// `is_told`: an event was given since the request before. `failed_only`: true only for
    /// failures that the device does not report. Control path: looks at failed queue pairs, and at
    /// the slots of completions that events told of.
    pub fn has_unannounced(
        &mut self,
        announced: &mut Announced,
        is_told: bool,
        failed_only: bool,
        elsewhere: Elsewhere,
    ) -> bool {
        // A queue pair may have failed.
        self.take_requests();
        let now = Seen {
            position: self.position(),
            slots: self.slots(),
            beside: self.reported.wrapping_add(elsewhere.taken),
        };
        let told = announced.left(now, is_told);
        let mut ahead = 0;
        let mut next = self.written_ahead(ahead);
        while ahead < told
            && let Some(width) = next
        {
            ahead += width;
            next = self.written_ahead(ahead);
        }
        let left = told.saturating_sub(ahead);
        // If the ring has more, all that was told of is in it.
        let failed = match next.is_none() || failed_only {
            true => self.owed_reports(left + 1),
            false => 0,
        };
        let beside = failed + self.backlog.len() + elsewhere.ready;
        *announced = Announced {
            seen: Some(now),
            told: ahead + left.min(beside),
            is_settled: false,
        };
        match failed_only {
            true => failed > left,
            false => next.is_some() || beside > left,
        }
    }

    /// A poll found no more completions after the last event was given, and none can be given
    /// before the next request: what comes from now on is new to the program. Does nothing if a
    /// completion has come meanwhile.
    pub fn settle(&self, announced: &mut Announced) {
        announced.is_settled |= self.written_ahead(0).is_none() && self.backlog.is_empty();
    }

    /// Slots taken so far, modulo the size of the type.
    pub(super) fn position(&self) -> usize {
        let passed = self.passes.wrapping_mul(self.slots());
        passed.wrapping_add(self.ring.index())
    }

    /// Requests of failed queue pairs that polls report beside what is in the ring; at most about
    /// `limit`. Receives that a shared queue takes back are not counted.
    fn owed_reports(&self, limit: usize) -> usize {
        if self.flushed.is_empty() && self.drain.is_none() {
            return 0;
        }
        let in_ring = self.unread_of_flushed();
        let (limit, mut count) = (limit + in_ring, 0);
        if let Some(drain) = &self.drain
            && !self
                .table
                .is_flushed(drain.side, CompletionContext(drain.context))
        {
            // Its requests before the one that the device named, and that one; at least one.
            count += 1;
        }
        for context in &self.flushed {
            for side in [QueueSide::Send, QueueSide::Receive] {
                if count < limit
                    && self.table.is_flushed(side, *context)
                    && let Some(state) = self.table.find(side, context.0)
                {
                    count += reports(state, side, limit - count);
                }
            }
        }
        count.saturating_sub(in_ring)
    }

    /// Unread completions in the ring of queues that have failed.
    fn unread_of_flushed(&self) -> usize {
        let (mut ahead, mut count) = (0, 0);
        while let Some(width) = self.written_ahead(ahead) {
            let slot = self.ring.ahead(ahead);
            let side = match header_of(slot).send_queue() {
                true => QueueSide::Send,
                false => QueueSide::Receive,
            };
            let context = CompletionContext(word(slot, 1));
            count += usize::from(self.table.is_flushed(side, context));
            ahead += width;
        }
        count
    }

    /// Slots of the completion that stands `ahead` slots after the next one: 1 or 2; none if the
    /// device has not written it.
    fn written_ahead(&self, ahead: usize) -> Option<usize> {
        let slots = self.slots();
        if ahead >= slots {
            return None;
        }
        let header = header_of(self.ring.ahead(ahead));
        let is_next_pass = self.ring.index() + ahead >= slots;
        let is_written = self.is_there(header) != is_next_pass;
        is_written.then_some(1 + usize::from(header.extended()))
    }
}

impl Announced {
    /// The completions that events told of and that are unread now. `is_told`: one more event was
    /// given since the last request.
    fn left(&self, now: Seen, is_told: bool) -> usize {
        match self.seen {
            Some(seen) if seen.slots == now.slots && !self.is_settled => {
                let told = (self.told + usize::from(is_told)).cast_signed();
                let left = told.saturating_sub(now.since(seen).cast_signed());
                left.max(0).cast_unsigned()
            }
            // The first request, or all is new.
            _ => 0,
        }
    }
}

impl Seen {
    /// Completions taken since `before`; more than half of the type's values are fewer than none.
    fn since(self, before: Self) -> usize {
        let of_ring = self.position.wrapping_sub(before.position);
        of_ring.wrapping_add(self.beside.wrapping_sub(before.beside))
    }
}

/// The requests of a failed queue that are reported, at most `limit`. Sends without completion are
/// not, if the device has completed them.
fn reports(state: &QueuePairState, side: QueueSide, limit: usize) -> usize {
    let tracker = tracker(state, side);
    let settled = match side {
        QueueSide::Send => state.settled_sends(),
        QueueSide::Receive if state.is_fed() => return 0,
        QueueSide::Receive => 0,
    };
    let mut next = tracker.next_from(tracker.tail());
    let mut count = 0;
    while let Some(request) = next
        && count < limit
    {
        count += usize::from(request.position >= settled || !request.info.silent());
        next = tracker.next_from(request.end());
    }
    count
}
