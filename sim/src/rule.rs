//! The rules, by name.

use std::fmt;

/// The rules for every run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Rule {
    /// No request completes twice, and nothing completes that was not posted.
    CompletesOnce,
    /// Each signalled request completes; each message of a success was received.
    Completes,
    /// A request ends with a status that the faults so far permit.
    StatusAllowed,
    /// Completions of a queue come in the order of its requests, and messages in that of the sends.
    InOrder,
    /// Every byte that was transferred is right.
    BytesIntact,
    /// Length, immediate data, invalidated key, kind and source are those of the message.
    MessageRight,
    /// No byte changes unless a request may write it.
    OutsideUntouched,
    /// Destroyed objects leave nothing behind: no objects, no memory, and nothing in the device
    /// after shutdown.
    NothingLeft,
    /// The driver keeps to the interface of the device.
    NoBreach,
    /// The driver observes nothing impossible of the device.
    NoAnomaly,
    /// No request waits in full for an answer that nothing has lost.
    AnsweredInTime,
    /// Every call ends within its deadline.
    EndsInTime,
    /// A valid call succeeds unless a fault prevents it, and an invalid one is refused.
    CallRight,
    /// An event is reported only if its cause happened, and an armed queue gives one.
    EventRight,
    /// Nothing panics.
    NoPanic,
}

impl Rule {
    /// Every rule.
    pub const ALL: [Self; 15] = [
        Self::CompletesOnce,
        Self::Completes,
        Self::StatusAllowed,
        Self::InOrder,
        Self::BytesIntact,
        Self::MessageRight,
        Self::OutsideUntouched,
        Self::NothingLeft,
        Self::NoBreach,
        Self::NoAnomaly,
        Self::AnsweredInTime,
        Self::EndsInTime,
        Self::CallRight,
        Self::EventRight,
        Self::NoPanic,
    ];

    /// Its name in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::CompletesOnce => "completes-once",
            Self::Completes => "completes",
            Self::StatusAllowed => "status-allowed",
            Self::InOrder => "in-order",
            Self::BytesIntact => "bytes-intact",
            Self::MessageRight => "message-right",
            Self::OutsideUntouched => "outside-untouched",
            Self::NothingLeft => "nothing-left",
            Self::NoBreach => "no-breach",
            Self::NoAnomaly => "no-anomaly",
            Self::AnsweredInTime => "answered-in-time",
            Self::EndsInTime => "ends-in-time",
            Self::CallRight => "call-right",
            Self::EventRight => "event-right",
            Self::NoPanic => "no-panic",
        }
    }

    /// Its description.
    #[must_use]
    pub const fn describe(self) -> &'static str {
        match self {
            Self::CompletesOnce => "no request completes twice, and none that was not posted",
            Self::Completes => {
                "each signalled request completes, each message of a success is received"
            }
            Self::StatusAllowed => "a request ends with a status that the faults so far allow",
            Self::InOrder => "completions and messages come in the order of their requests",
            Self::BytesIntact => "every byte that was transferred is right",
            Self::MessageRight => "length, immediate data, key and source are those of the message",
            Self::OutsideUntouched => "no byte changes unless a request may write it",
            Self::NothingLeft => "destroyed objects leave nothing behind",
            Self::NoBreach => "the driver keeps to the interface of the device",
            Self::NoAnomaly => "the driver observes nothing impossible of the device",
            Self::AnsweredInTime => "no request waits in full for an answer that nothing has lost",
            Self::EndsInTime => "every call ends within its deadline",
            Self::CallRight => "valid calls succeed, invalid ones are refused",
            Self::EventRight => "events have a cause, and armed queues give one",
            Self::NoPanic => "nothing panics",
        }
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A violated rule, found by code that has neither step nor time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Problem {
    pub(crate) rule: Rule,
    pub(crate) what: String,
}

impl Problem {
    pub(crate) fn new(rule: Rule, what: impl Into<String>) -> Self {
        Self {
            rule,
            what: what.into(),
        }
    }
}

/// A violated rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The rule.
    pub rule: Rule,
    /// The observation.
    pub what: String,
    /// The step in which it was found; `None` before the first and after the last.
    pub step: Option<u32>,
    /// Virtual time, nanoseconds.
    pub time_ns: u64,
}

/// Parts of the texts of errors that only the machine of the simulation gives: EAGAIN, ENOMEM,
/// ENFILE, EMFILE, EFBIG and ENOSPC, and too little memory for a device. Devices and wire are
/// simulated.
const OF_MACHINE: [&str; 7] = [
    "(os error 11)",
    "(os error 12)",
    "(os error 23)",
    "(os error 24)",
    "(os error 27)",
    "(os error 28)",
    "bytes of DMA memory are requested",
];

impl Finding {
    /// True if the machine refused memory or files that the run needs. Such a run proves nothing
    /// about driver and model, and takes another course elsewhere.
    #[must_use]
    pub fn is_of_machine(&self) -> bool {
        OF_MACHINE.iter().any(|part| self.what.contains(part))
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.rule, self.what)?;
        match self.step {
            Some(step) => write!(f, " (step {step}, {} ns)", self.time_ns),
            None => write!(f, " ({} ns)", self.time_ns),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringside_bus::MemoryError;

    fn finding(what: String) -> Finding {
        Finding {
            rule: Rule::CallRight,
            what,
            step: None,
            time_ns: 0,
        }
    }

    #[test]
    fn a_machine_that_lacks_memory_or_files_is_told_from_a_broken_rule() {
        let refused = MemoryError::System {
            operation: "memfd_create",
            length: 4096,
            error: std::io::Error::from_raw_os_error(24).to_string(),
        };
        let too_much = MemoryError::NotEnough {
            length: 2,
            available_bytes: 1,
        };
        for error in [refused, too_much] {
            let finding = finding(format!("bring-up: {error}"));
            assert!(finding.is_of_machine(), "{finding}");
        }
        let error = MemoryError::NoAddressSpace { length: 4096 };
        assert!(!finding(format!("a region: {error}")).is_of_machine());
    }
}
