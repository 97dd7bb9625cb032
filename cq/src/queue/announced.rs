//! The completions that a program was told of, for programs that take one for each event.

use super::CompletionQueue;
use super::ring_words::header_of;

/// The unread completions that events have told of. An event tells of one: the first one of which
/// none told before. Counted in slots of the ring, from request to request of an event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Announced {
    /// the place that was read next at the last request, and the ring's slots; none before the
    /// first
    seen: Option<Seen>,
    /// slots beyond that place whose completions events told of
    told: usize,
    /// all completions were taken after the last event: those that come are new
    is_settled: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Seen {
    /// in slots, modulo two passes of the ring
    position: usize,
    slots: usize,
}

impl CompletionQueue {
    /// The program requests an event. True if there is a completion that no poll has taken and no
    /// event has told of: the device, too, need not tell of it. Always true for completions of a
    /// ring that was replaced, and if it [owes reports](CompletionQueue::owes_reports).
    ///
    /// `is_told`: an event was given since the request before. Control path: looks at the slots of
    /// completions of which events told.
    pub fn has_unannounced(&self, announced: &mut Announced, is_told: bool) -> bool {
        let slots = self.slots();
        let second_pass = if self.polarity() { 0 } else { slots };
        let position = self.ring.index() + second_pass;
        let told = match announced.seen {
            Some(seen) if seen.slots == slots && !announced.is_settled => {
                let taken = (position + 2 * slots - seen.position) % (2 * slots);
                (announced.told + usize::from(is_told)).saturating_sub(taken)
            }
            // The first request, or all is new.
            _ => 0,
        };
        let mut ahead = 0;
        let mut next = self.written_ahead(ahead);
        while ahead < told
            && let Some(width) = next
        {
            ahead += width;
            next = self.written_ahead(ahead);
        }
        *announced = Announced {
            seen: Some(Seen { position, slots }),
            told: ahead,
            is_settled: false,
        };
        next.is_some() || !self.backlog.is_empty() || self.owes_reports()
    }

    /// A poll found no more completions after the last event was given, and none can be given
    /// before the next request: what comes from now on is new to the program. Does nothing if a
    /// completion has come meanwhile.
    pub fn settle(&self, announced: &mut Announced) {
        announced.is_settled |= self.written_ahead(0).is_none() && self.backlog.is_empty();
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
