//! Waiting for something to happen, and noticing that nothing does.

/// Rounds in which nothing happened, and since when. What is looked at now and then is with those who
/// wait: `pair` for both ends in one process, `meeting::end` for one of two.
pub(crate) struct Watch {
    /// Rounds since it last looked further.
    pub(crate) rounds: u32,
    /// Ticks of the first look of this lull.
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
