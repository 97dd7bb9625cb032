//! Waiting for something to happen, and noticing that nothing does.

/// Rounds without progress, and the time of the first. The waiting code checks events and
/// connections from time to time: `pair` for both ends in one process, `meeting::end` for one of
/// two.
pub(crate) struct Watch {
    /// Rounds since it last looked further.
    pub(crate) rounds: u32,
    /// Ticks of the first check since there is no progress.
    pub(crate) since: Option<u64>,
}

impl Watch {
    pub(crate) const fn new() -> Self {
        Self {
            rounds: 0,
            since: None,
        }
    }

    /// Something happened.
    #[inline(always)]
    pub(crate) fn progress(&mut self) {
        self.rounds = 0;
        self.since = None;
    }
}
