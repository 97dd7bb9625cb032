//! The messages that end many connections: a limited number under way, with repetitions.

use ringside_cm::OutgoingMad;
use ringside_cm::mad::{Mad, Message};
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Messages under way at most. A peer has room for some hundred that it has not read yet, and takes
/// those of other nodes, too.
const AT_A_TIME: usize = 128;

/// Wait for an answer before each repetition, and after the last one.
const PATIENCE: [Duration; 3] = [
    Duration::from_millis(50),
    Duration::from_millis(100),
    Duration::from_millis(200),
];

/// A message without an answer counts as under way for this time: a peer may look for messages
/// each 5 ms only.
const UNANSWERED: Duration = Duration::from_millis(5);

/// Longest time without progress: longer than the waits for one message together.
const QUIET: Duration = Duration::from_secs(1);

/// Longest time in all.
const LONGEST: Duration = Duration::from_secs(5);

/// A message and the number of times that it was sent.
struct Parting {
    message: OutgoingMad,
    /// the connection that its answer names; `None` if no answer comes
    awaits: Option<u32>,
    sent: usize,
}

impl Parting {
    fn new(message: OutgoingMad) -> Self {
        let awaits = match Mad::decode(message.payload.as_slice()).map(|mad| mad.message) {
            Ok(Message::Disconnect(request)) => Some(request.local_comm_id),
            _ => None,
        };
        Self {
            message,
            awaits,
            sent: 0,
        }
    }

    /// The time for which it is under way when it is sent now; nothing if it was sent often enough.
    fn patience(&self) -> Option<Duration> {
        match self.awaits {
            Some(_) => PATIENCE.get(self.sent).copied(),
            None => (self.sent == 0).then_some(UNANSWERED),
        }
    }
}

/// Messages that tell peers of the end of connections, and the time of each.
///
/// Every message is sent once before the first one is repeated. Those without an answer are sent
/// once. The caller passes the time, and sends.
pub(super) struct Rounds {
    began: Instant,
    /// the last answer, or the last message that was sent for the first time
    progress: Instant,
    next: VecDeque<Parting>,
    /// messages under way, and until when
    under_way: Vec<(Parting, Instant)>,
    /// messages that were repeated, and not answered
    given_up: usize,
}

impl Rounds {
    pub(super) fn new(now: Instant, messages: impl IntoIterator<Item = OutgoingMad>) -> Self {
        Self {
            began: now,
            progress: now,
            next: messages.into_iter().map(Parting::new).collect(),
            under_way: Vec::new(),
            given_up: 0,
        }
    }

    /// The messages to send now, no more than there is room for.
    pub(super) fn due(&mut self, now: Instant, room: usize) -> Vec<OutgoingMad> {
        let under_way = std::mem::take(&mut self.under_way).into_iter();
        let (over, still): (Vec<_>, Vec<_>) = under_way.partition(|(_, until)| *until <= now);
        self.under_way = still;
        for (parting, _) in over {
            match parting.patience() {
                Some(_) => self.next.push_back(parting),
                None => self.given_up += usize::from(parting.awaits.is_some()),
            }
        }
        let mut due = Vec::new();
        while self.under_way.len() < AT_A_TIME
            && due.len() < room
            && let Some(mut parting) = self.next.pop_front()
        {
            let Some(patience) = parting.patience() else {
                continue;
            };
            if parting.sent == 0 {
                self.progress = now;
            }
            parting.sent += 1;
            due.push(parting.message.clone());
            self.under_way.push((parting, now + patience));
        }
        due
    }

    /// Notes that a peer confirmed the end of the connection with this number here.
    pub(super) fn confirm(&mut self, now: Instant, id: u32) {
        let is_it = |one: &Parting| one.awaits == Some(id);
        let found = match self.under_way.iter().position(|(one, _)| is_it(one)) {
            Some(place) => Some(self.under_way.swap_remove(place).0),
            None => {
                let place = self.next.iter().position(is_it);
                place.and_then(|place| self.next.remove(place))
            }
        };
        if found.is_some() {
            self.progress = now;
        }
    }

    /// True if no message has to be sent or answered any more.
    pub(super) fn is_over(&self) -> bool {
        let is_answered = |(one, _): &(Parting, Instant)| one.awaits.is_none();
        self.next.is_empty() && self.under_way.iter().all(is_answered)
    }

    /// True if the time for it is over.
    pub(super) fn is_late(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.progress) >= QUIET
            || now.saturating_duration_since(self.began) >= LONGEST
    }

    /// Peers that have not confirmed.
    pub(super) fn left(&self) -> usize {
        let under_way = self.under_way.iter().map(|(one, _)| one);
        let asked = self.next.iter().chain(under_way);
        self.given_up + asked.filter(|one| one.awaits.is_some()).count()
    }
}

#[cfg(test)]
mod tests;
