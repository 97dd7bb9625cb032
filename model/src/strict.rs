//! The ledger of breaches: everything that a driver did and the interface forbids.
//!
//! A breach never stops the model: it does what the card would do, or nothing, and counts the
//! breach.
//! Our own tests and benchmarks demand an empty ledger.

use std::collections::BTreeMap;

/// One kind of breach, how often it happened and the first case of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Breach {
    /// A short name, such as `reserved bit set in CREATE_CQ`.
    pub kind: &'static str,
    /// The number of times.
    pub count: u64,
    /// The details of the first time.
    pub first: String,
}

/// All breaches of one function, by kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ledger {
    breaches: BTreeMap<&'static str, (u64, String)>,
    /// Breaches are not counted: the driver cannot know yet that another owner has reset its
    /// function.
    excused: bool,
}

impl Ledger {
    /// Counts a breach; `detail` is called only the first time.
    #[cold]
    pub fn breach(&mut self, kind: &'static str, detail: impl FnOnce() -> String) {
        if self.excused {
            tracing::debug!(kind, detail = %detail(), "not held against the driver");
            return;
        }
        let entry = self.breaches.entry(kind).or_insert_with(|| (0, detail()));
        entry.0 += 1;
        if entry.0 == 1 {
            tracing::warn!(kind, detail = %entry.1, "the driver broke the interface");
        }
    }

    /// Starts or ends a period in which breaches are not counted: another owner has reset the
    /// function, and the driver cannot know that before it resets the function itself.
    pub fn excuse(&mut self, on: bool) {
        self.excused = on;
    }

    /// The number of breaches of all kinds.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.breaches.values().map(|(count, _)| count).sum()
    }

    /// Every kind that happened.
    #[must_use]
    pub fn breaches(&self) -> Vec<Breach> {
        let entries = self.breaches.iter();
        entries
            .map(|(&kind, (count, first))| Breach {
                kind,
                count: *count,
                first: first.clone(),
            })
            .collect()
    }
}
