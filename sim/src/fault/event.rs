//! One fault that strikes once.

use ringside_model::Fault;
use ringside_model::wire::FrameFate;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// The fault of one frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FrameFault {
    /// It is lost.
    Drop,
    /// It arrives twice.
    Duplicate,
    /// This number of later frames overtake it.
    Reorder(u32),
    /// It is delayed by this many microseconds.
    Delay(u32),
    /// This bit of it is inverted, counted modulo the number of its bits.
    Corrupt(u32),
    /// It is marked "congestion experienced".
    Mark,
}

impl FrameFault {
    /// True if the frame may be lost or delayed.
    #[must_use]
    pub const fn loses(self) -> bool {
        matches!(
            self,
            Self::Drop | Self::Delay(_) | Self::Corrupt(_) | Self::Reorder(_)
        )
    }

    pub(crate) fn add_to(self, fate: &mut FrameFate) {
        match self {
            Self::Drop => fate.lost = true,
            Self::Duplicate => fate.twice = true,
            Self::Reorder(behind) => fate.overtaken_by = Some(behind),
            Self::Delay(microseconds) => {
                fate.later_by = Some(Duration::from_micros(microseconds.into()));
            }
            Self::Corrupt(bit) => fate.damaged_bit = Some(bit),
            Self::Mark => fate.marked = true,
        }
    }
}

/// One fault that strikes once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultEvent {
    /// A fault of a frame on the wire.
    Frame {
        /// Number of the frame, counted from 0 over all ports.
        frame: u64,
        /// The fault.
        fault: FrameFault,
    },
    /// A fault of a function.
    Function {
        /// The step of the workload before which it strikes.
        step: u32,
        /// The function.
        function: u16,
        /// The fault.
        fault: Fault,
        /// Its duration in steps, if it does not end by itself.
        steps: u32,
    },
    /// The clock jumps ahead, and all timers are due at once.
    Clock {
        /// The step of the workload before which it strikes.
        step: u32,
        /// The distance.
        milliseconds: u32,
    },
}

impl fmt::Display for FaultEvent {
    /// The form that [`FromStr`] parses: `drop@17`, `reorder:2@40`, `link-down/0@step12+5`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Frame { frame, fault } => {
                match fault {
                    FrameFault::Drop => f.write_str("drop"),
                    FrameFault::Duplicate => f.write_str("duplicate"),
                    FrameFault::Reorder(behind) => write!(f, "reorder:{behind}"),
                    FrameFault::Delay(microseconds) => write!(f, "delay:{microseconds}"),
                    FrameFault::Corrupt(bit) => write!(f, "corrupt:{bit}"),
                    FrameFault::Mark => f.write_str("mark"),
                }?;
                write!(f, "@{frame}")
            }
            Self::Function {
                step,
                function,
                fault,
                steps,
            } => {
                let words = fault.to_string().replace(' ', ":");
                write!(f, "{words}/{function}@step{step}+{steps}")
            }
            Self::Clock { step, milliseconds } => {
                write!(f, "clock-jump:{milliseconds}@step{step}")
            }
        }
    }
}

/// The text is not an event.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "'{given}' is not an event of a run; copy events from the output of a run: drop@17, reorder:2@40, link-down/0@step12+5"
)]
pub struct EventError {
    /// The given value.
    pub given: String,
}

impl FromStr for FaultEvent {
    type Err = EventError;

    fn from_str(text: &str) -> Result<Self, EventError> {
        parse(text.trim()).ok_or_else(|| EventError {
            given: text.to_owned(),
        })
    }
}

fn parse(text: &str) -> Option<FaultEvent> {
    let (what, when) = text.split_once('@')?;
    if let Some(milliseconds) = what.strip_prefix("clock-jump:") {
        return Some(FaultEvent::Clock {
            step: when.strip_prefix("step")?.parse().ok()?,
            milliseconds: milliseconds.parse().ok()?,
        });
    }
    if let Some(when) = when.strip_prefix("step") {
        let (step, steps) = when.split_once('+')?;
        let (words, function) = what.rsplit_once('/')?;
        return Some(FaultEvent::Function {
            step: step.parse().ok()?,
            function: function.parse().ok()?,
            fault: words.parse().ok()?,
            steps: steps.parse().ok()?,
        });
    }
    let (name, number) = match what.split_once(':') {
        Some((name, number)) => (name, Some(number.parse().ok()?)),
        None => (what, None),
    };
    let fault = match (name, number) {
        ("drop", None) => FrameFault::Drop,
        ("duplicate", None) => FrameFault::Duplicate,
        ("mark", None) => FrameFault::Mark,
        ("reorder", Some(behind)) => FrameFault::Reorder(behind),
        ("delay", Some(microseconds)) => FrameFault::Delay(microseconds),
        ("corrupt", Some(bit)) => FrameFault::Corrupt(bit),
        _ => return None,
    };
    let frame = when.parse().ok()?;
    Some(FaultEvent::Frame { frame, fault })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_survive_printing_and_parsing() {
        for text in [
            "drop@17",
            "duplicate@0",
            "reorder:2@40",
            "delay:150@3",
            "corrupt:977@12",
            "mark@5",
            "link-down/0@step12+5",
            "hmc-error:3:2:0x0/1@step40+1",
            "clock-jump:70@step9",
        ] {
            let event: FaultEvent = text.parse().unwrap();
            assert_eq!(event.to_string(), text);
        }
        for text in [
            "drop",
            "drop:3@1",
            "delay@1",
            "drop@x",
            "nothing/0@step1+1",
            "",
        ] {
            assert!(text.parse::<FaultEvent>().is_err(), "{text}");
        }
    }
}
