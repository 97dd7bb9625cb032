//! The way that packets take without a frame.

/// The function that the packets of a queue pair go to without a frame.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Way {
    /// Its port.
    pub(crate) port: usize,
    /// The changes, of everything that the way depends on, that it was found after.
    pub(crate) changes: u64,
}

impl Way {
    /// Not found yet.
    pub(super) const UNKNOWN: Self = Self {
        port: 0,
        changes: u64::MAX,
    };
}
