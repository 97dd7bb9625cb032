//! The ledger of breaches: everything that a driver did and the interface forbids.
//!
//! A breach never stops the model: it does what the card would do, or nothing, and counts the
//! breach.
//! Our own tests and benchmarks demand an empty ledger.

use std::collections::BTreeMap;

/// Cases of a kind that are kept besides the first.
const FURTHER: usize = 7;

/// Cases of a kind after which no further one is looked at.
const LOOKED_AT: u64 = 1000;

/// One kind of breach or remark, how often it happened and its cases.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Breach {
    /// A short name, such as `reserved bit set in CREATE_CQ`.
    pub kind: &'static str,
    /// The number of times.
    pub count: u64,
    /// The details of the first time.
    pub first: String,
    /// The details of other cases that differ from the first and from each other, seven at most.
    pub further: Vec<String>,
}

/// The cases of a kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Cases {
    count: u64,
    first: String,
    further: Vec<String>,
}

/// All breaches of one function, by kind, and remarks: accesses that are no fault of the driver but
/// that the model does not do as a card would.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ledger {
    breaches: BTreeMap<&'static str, Cases>,
    remarks: BTreeMap<&'static str, Cases>,
    /// Breaches are not counted: the driver cannot know yet that another owner has reset its
    /// function.
    excused: bool,
}

impl Ledger {
    /// Counts a breach; `detail` is called for the first thousand times only.
    #[cold]
    pub fn breach(&mut self, kind: &'static str, detail: impl FnOnce() -> String) {
        if self.excused {
            tracing::debug!(kind, detail = %detail(), "not held against the driver");
            return;
        }
        let cases = self.breaches.entry(kind).or_default();
        cases.add(detail);
        if cases.count == 1 {
            tracing::warn!(kind, detail = %cases.first, "the driver broke the interface");
        }
    }

    /// Counts something that the model does not do, or tolerates as a card does; as
    /// [`Ledger::breach`].
    #[cold]
    pub fn remark(&mut self, kind: &'static str, detail: impl FnOnce() -> String) {
        let cases = self.remarks.entry(kind).or_default();
        cases.add(detail);
        if cases.count == 1 {
            tracing::info!(kind, detail = %cases.first, "remark");
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
        self.breaches.values().map(|cases| cases.count).sum()
    }

    /// Every kind that happened.
    #[must_use]
    pub fn breaches(&self) -> Vec<Breach> {
        listed(&self.breaches)
    }

    /// Every kind of remark.
    #[must_use]
    pub fn remarks(&self) -> Vec<Breach> {
        listed(&self.remarks)
    }
}

impl Cases {
    fn add(&mut self, detail: impl FnOnce() -> String) {
        self.count += 1;
        if self.count == 1 {
            self.first = detail();
        } else if self.further.len() < FURTHER && self.count <= LOOKED_AT {
            let case = detail();
            if case != self.first && !self.further.contains(&case) {
                self.further.push(case);
            }
        }
    }
}

fn listed(kinds: &BTreeMap<&'static str, Cases>) -> Vec<Breach> {
    let entries = kinds.iter();
    entries
        .map(|(&kind, cases)| Breach {
            kind,
            count: cases.count,
            first: cases.first.clone(),
            further: cases.further.clone(),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_keeps_eight_cases_that_differ() {
        let mut ledger = Ledger::default();
        for case in [1, 1, 2, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10] {
            ledger.breach("wrong", || format!("{case}"));
        }
        ledger.remark("odd", || "1".to_owned());
        let [breach] = &ledger.breaches()[..] else {
            panic!("one kind");
        };
        assert_eq!((breach.count, breach.first.as_str()), (13, "1"));
        assert_eq!(breach.further, ["2", "3", "4", "5", "6", "7", "8"]);
        assert_eq!(ledger.count(), 13, "remarks are no breaches");
        assert_eq!(ledger.remarks().len(), 1);
    }
}
