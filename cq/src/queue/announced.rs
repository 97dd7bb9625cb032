//! Which completions a program was told of, for programs that take one completion for each event.

use super::CompletionQueue;
use super::ring_words::header_of;

/// The unread completions that events have told of. An event tells of one: the first one of which
/// none told before. Counted in slots of the ring, from request to request of an event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Announced {
    /// where the ring was read to at the last request, and the ring's slots; none before the first
    seen: Option<Seen>,
    /// slots beyond that place whose completions events told of
    told: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Seen {
    /// in slots, modulo two passes of the ring
    position: usize,
    slots: usize,
}

impl CompletionQueue {
    /// The program requests an event. True if there is a completion that no poll has taken and no
    /// event has told of: the device, too, need not tell of it.
    ///
    /// `is_told`: an event was given since the request before. `aside`: completions that wait
    /// besides those of this queue. Control path: looks at the slots of completions of which events
    /// told.
    pub fn has_unannounced(&self, announced: &mut Announced, is_told: bool, aside: usize) -> bool {
        let slots = self.slots();
        let second_pass = if self.polarity() { 0 } else { slots };
        let position = self.ring.index() + second_pass;
        let told = match announced.seen {
            Some(seen) if seen.slots == slots => {
                let taken = (position + 2 * slots - seen.position) % (2 * slots);
                (announced.told + usize::from(is_told)).saturating_sub(taken)
            }
            // The first request, or the first one since the ring was replaced.
            _ => 0,
        };
        announced.seen = Some(Seen { position, slots });
        let mut ahead = 0;
        let mut next = self.written_ahead(ahead);
        while ahead < told
            && let Some(width) = next
        {
            ahead += width;
            next = self.written_ahead(ahead);
        }
        let left = told.saturating_sub(ahead);
        let aside = aside + self.backlog.len();
        announced.told = ahead + left.min(aside);
        next.is_some() || aside > left
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
