//! The faults of a run that permit failures.

use ringside_bus::Instant;
use ringside_pmd::rdma::Status;

/// The possible effect of a fault on the data path of its device, until the device is recovered. A
/// fault of commands alone has no effect on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Harm {
    /// It may stop or lose its state.
    pub(crate) stops: bool,
    /// It may have no access to its memory.
    pub(crate) lacks_memory: bool,
    /// The driver has declared it failed.
    pub(crate) given_up: bool,
}

impl Harm {
    pub(crate) const fn is_any(self) -> bool {
        self.stops || self.lacks_memory || self.given_up
    }

    /// True if the device may report any status. One that the driver has declared failed for
    /// another reason reports what is right, and the driver flushes the rest.
    pub(crate) const fn may_mislead(self) -> bool {
        self.stops || self.lacks_memory
    }

    /// True if it explains that a request of the device itself failed with this status.
    pub(crate) fn explains(self, status: Status) -> bool {
        self.may_mislead() || self.given_up && status == Status::Flushed
    }
}

/// A moment of a run, to find faults since then.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Moment {
    pub(crate) at: Instant,
    pub(super) losses: u64,
    pub(super) outages: u64,
}

/// The faults of the whole run so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Weather {
    pub(crate) now: Instant,
    /// Frames that were lost, damaged or held back.
    pub(crate) losses: u64,
    /// Frames that arrived twice.
    pub(crate) copies: u64,
    /// The number of times that a link went down or the clock jumped: frames lost meanwhile are not
    /// counted.
    pub(crate) outages: u64,
    /// Sides whose link is down.
    pub(crate) link_down: [bool; 2],
    /// A function is in trouble.
    pub(crate) trouble: [bool; 2],
    /// The effect on its data path.
    pub(crate) harm: [Harm; 2],
}

impl Weather {
    /// True if the device of a side is in trouble.
    pub(crate) fn is_troubled_at(&self, side: usize) -> bool {
        self.trouble.get(side) == Some(&true)
    }

    /// The harm to the data path of a side.
    pub(crate) fn harm_at(&self, side: usize) -> Harm {
        self.harm.get(side).copied().unwrap_or_default()
    }

    /// The current moment.
    pub(crate) const fn moment(&self) -> Moment {
        Moment {
            at: self.now,
            losses: self.losses,
            outages: self.outages,
        }
    }

    /// Frames lost since `before`; the maximum if a link was down or the clock jumped since.
    pub(crate) fn lost_since(&self, before: Moment) -> u64 {
        if self.outages > before.outages || self.link_down.contains(&true) {
            u64::MAX
        } else {
            self.losses.saturating_sub(before.losses)
        }
    }
}
