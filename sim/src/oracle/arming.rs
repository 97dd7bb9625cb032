//! Completion events: a queue that was armed gives one for a completion of the kind that it was
//! armed for, and none otherwise.

use ringside_pmd::rdma::{Completion, Notify, Status};

/// Completions that one poll took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Taken {
    any: bool,
    /// One that is solicited, or failed.
    notable: bool,
    /// One that the device itself reported, and one of these that is notable. The driver completes
    /// requests of a failed queue pair as flushed: such a completion need not have an event.
    of_device: bool,
    notable_of_device: bool,
}

impl Taken {
    pub(crate) fn of(done: &[Completion]) -> Self {
        let mut taken = Self::default();
        for one in done {
            let status = one.status();
            let notable = !status.is_success() || one.is_solicited();
            let of_device = status != Status::Flushed;
            taken.any = true;
            taken.notable |= notable;
            taken.of_device |= of_device;
            taken.notable_of_device |= of_device && notable;
        }
        taken
    }
}

/// The kind of a completion that an event is for; the greater one includes the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Notable,
    Any,
}

impl From<Notify> for Kind {
    fn from(notify: Notify) -> Self {
        match notify {
            Notify::Solicited => Self::Notable,
            Notify::Next => Self::Any,
        }
    }
}

impl Kind {
    fn is_among(self, [any, notable]: [bool; 2]) -> bool {
        match self {
            Self::Any => any,
            Self::Notable => notable,
        }
    }
}

/// The events that a completion queue may give, and the one that it must give.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Arming {
    /// The first completion of this kind must give an event.
    due: Option<Kind>,
    /// A completion of this kind may give one.
    allowed: Option<Kind>,
    /// The device may have one request more than the driver.
    further: bool,
    /// Completions taken since the request: any, and notable ones.
    since: [bool; 2],
    /// An event came before its completion was taken.
    owed: Option<Kind>,
    /// Completions of the side that its user never saw when the request was made.
    dropped: u64,
}

impl Arming {
    /// True if the next completion gives an event.
    pub(crate) fn is_due_next(&self) -> bool {
        self.due == Some(Kind::Any)
    }

    /// The queue is being armed. Until [`Self::was_empty`] no event is due, since a completion of
    /// before need not give one. A request that waits already serves this one too if it includes
    /// it.
    pub(crate) fn request(&mut self, notify: Notify, dropped: u64) {
        let kind = Kind::from(notify);
        if self.allowed.is_none() {
            self.since = [false; 2];
            self.dropped = dropped;
        }
        // The event of the narrower request may be under way.
        self.further |= self.allowed.is_some_and(|before| before < kind) && self.since[1];
        self.allowed = self.allowed.max(Some(kind));
    }

    /// A poll behind the request took nothing.
    pub(crate) fn was_empty(&mut self, notify: Notify) {
        self.due = self.due.max(Some(notify.into()));
    }

    /// A poll behind the request took completions, which may be of before.
    pub(crate) fn was_not_empty(&mut self) {
        self.due = None;
    }

    /// The queue got a new ring. The driver requests its event anew; the earlier request stays at
    /// the device if its event was under way.
    pub(crate) fn resized(&mut self) {
        self.further |= self.allowed.is_some();
    }

    /// Notes the completions of a poll. Returns true if an event is due.
    pub(crate) fn polled(&mut self, taken: Taken) -> bool {
        self.since[0] |= taken.any;
        self.since[1] |= taken.notable;
        let kinds = [taken.any, taken.notable];
        self.owed = self.owed.filter(|owed| !owed.is_among(kinds));
        let told = [taken.of_device, taken.notable_of_device];
        self.due.is_some_and(|due| due.is_among(told))
    }

    /// A poll found nothing more. Returns an objection if an event has come for a completion that
    /// has not. `dropped`: completions of the side that its user never saw, until now.
    pub(crate) fn was_emptied(&mut self, dropped: u64) -> Option<&'static str> {
        let owed = self.owed.take()?;
        if dropped > self.dropped {
            return None;
        }
        Some(match owed {
            Kind::Any => "it gave an event, and had no completion",
            Kind::Notable => "it gave an event, and had no solicited and no failed completion",
        })
    }

    /// True if an event is due that has not come.
    pub(crate) fn is_due(&self) -> bool {
        self.due.is_some()
    }

    /// The queue gave an event. Returns an objection if it was not armed.
    pub(crate) fn told(&mut self) -> Option<&'static str> {
        let Some(kind) = self.allowed else {
            return Some("it was not armed, and gave an event");
        };
        if !kind.is_among(self.since) {
            self.owed = Some(kind);
        }
        self.due = None;
        if !std::mem::take(&mut self.further) {
            self.allowed = None;
        }
        None
    }
}

#[cfg(test)]
mod tests;
