//! The counts of a port up to the last reading.

/// Totals: hardware counters start anywhere and wrap.
#[derive(Debug, Default)]
pub(super) struct Counted {
    pub(super) last: Vec<u64>,
    pub(super) total: Vec<u64>,
}
