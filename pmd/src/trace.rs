//! A record of each stage: requests, answers, durations.

use serde::{Serialize, Serializer};
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Most exchanges kept for one stage; further ones are counted only.
pub const MAX_EXCHANGES: usize = 4096;

/// The kind of a register access.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum RegisterAccess {
    /// read once
    Read,
    /// written
    Write,
    /// read until it had the value that was waited for, or the deadline passed
    Poll,
}

/// The queue that a command went through.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum CommandQueue {
    /// the admin queue, to the firmware
    Admin,
    /// the control queue pair, to the RDMA engine
    Control,
}

/// One exchange with the device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum Exchange {
    /// A register of BAR 0.
    Register {
        /// read, written or polled
        access: RegisterAccess,
        /// bytes from the beginning of BAR 0
        offset: u64,
        /// the value read or written
        value: u32,
        /// the number of reads
        reads: u32,
        /// the time that they took
        #[serde(rename = "took_ns", serialize_with = "nanoseconds")]
        took: Duration,
    },
    /// A write to configuration space.
    ConfigurationSpace {
        /// bytes from the beginning
        offset: u16,
        /// value before
        before: u32,
        /// value written
        after: u32,
    },
    /// A command and its answer.
    Command {
        /// the queue that it went through
        queue: CommandQueue,
        /// its code
        opcode: u16,
        /// its name
        name: &'static str,
        /// the request
        asked: String,
        /// the answer
        answered: String,
        /// the number of times that it was sent
        attempts: u32,
        /// from the first doorbell to the answer
        #[serde(rename = "took_ns", serialize_with = "nanoseconds")]
        took: Duration,
    },
    /// Something found without an exchange, such as a file.
    Note {
        /// in words
        text: String,
    },
}

fn nanoseconds<S: Serializer>(value: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(u64::try_from(value.as_nanos()).unwrap_or(u64::MAX))
}

/// The data sheet's name of the register at `offset`, else its offset.
fn register_name(offset: u64) -> String {
    match ringside_spec::lan::registers::name_of(offset) {
        Some(name) => format!("{name} ({offset:#08x})"),
        None => format!("register {offset:#08x}"),
    }
}

impl fmt::Display for Exchange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Register {
                access,
                offset,
                value,
                reads,
                took,
            } => {
                let name = register_name(*offset);
                match access {
                    RegisterAccess::Read => write!(f, "read {name}: {value:#x}"),
                    RegisterAccess::Write => write!(f, "wrote {name}: {value:#x}"),
                    RegisterAccess::Poll => {
                        write!(
                            f,
                            "polled {name}: {value:#x} after {reads} reads, {took:.1?}"
                        )
                    }
                }
            }
            Self::ConfigurationSpace {
                offset,
                before,
                after,
            } => write!(
                f,
                "configuration space {offset:#05x}: {before:#x} -> {after:#x}"
            ),
            Self::Command {
                opcode,
                name,
                asked,
                answered,
                attempts,
                took,
                queue,
            } => {
                let queue = match queue {
                    CommandQueue::Admin => "admin",
                    CommandQueue::Control => "control",
                };
                write!(
                    f,
                    "{queue} {opcode:#06x} {name}: asked {asked}; answered {answered}; "
                )?;
                if *attempts > 1 {
                    write!(f, "{attempts} attempts, ")?;
                }
                write!(f, "{took:.1?}")
            }
            Self::Note { text } => f.write_str(text),
        }
    }
}

/// The result of a stage.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum StageOutcome {
    /// done
    Done,
    /// not run, and why
    Skipped(String),
    /// failed, with the reason
    Failed(String),
}

/// The result of one stage.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StageReport {
    /// The stage's name.
    pub stage: &'static str,
    /// Its result.
    pub outcome: StageOutcome,
    /// The duration.
    #[serde(rename = "took_ns", serialize_with = "nanoseconds")]
    pub took: Duration,
    /// A note for the user, such as a link that is slower than it could be.
    pub warnings: Vec<String>,
    /// Each exchange with the device, in order, at most [`MAX_EXCHANGES`].
    pub exchanges: Vec<Exchange>,
    /// Exchanges beyond those.
    pub exchanges_dropped: u64,
}

/// All stages, in order.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize)]
pub struct Trace {
    /// One report a stage.
    pub stages: Vec<StageReport>,
}

impl Trace {
    /// The total time of all stages.
    #[must_use]
    pub fn took(&self) -> Duration {
        self.stages.iter().map(|stage| stage.took).sum()
    }

    /// Every warning with the stage that gave it.
    pub fn warnings(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let of_stage = |report: &'_ StageReport| report.stage;
        self.stages.iter().flat_map(move |report| {
            let stage = of_stage(report);
            report
                .warnings
                .iter()
                .map(move |warning| (stage, warning.as_str()))
        })
    }
}

#[derive(Default)]
struct Kept {
    exchanges: Vec<Exchange>,
    dropped: u64,
}

struct Inner {
    on: AtomicBool,
    kept: Mutex<Kept>,
}

/// The recorder of exchanges while a stage runs; switched off afterwards, so that a device in
/// service keeps no history. Clones share one record.
#[derive(Clone)]
pub struct Recorder(Arc<Inner>);

impl Recorder {
    /// A recorder that is on.
    #[must_use]
    pub fn new() -> Self {
        Self(Arc::new(Inner {
            on: AtomicBool::new(true),
            kept: Mutex::default(),
        }))
    }

    /// Switches it on or off.
    pub fn switch(&self, on: bool) {
        self.0.on.store(on, Ordering::Relaxed);
    }

    /// Keeps the result of `exchange`, which is not called while the recorder is off.
    pub fn record(&self, exchange: impl FnOnce() -> Exchange) {
        if !self.0.on.load(Ordering::Relaxed) {
            return;
        }
        let mut kept = self.0.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.exchanges.len() < MAX_EXCHANGES {
            kept.exchanges.push(exchange());
        } else {
            kept.dropped += 1;
        }
    }

    /// Keeps a remark.
    pub fn note(&self, text: impl Into<String>) {
        self.record(|| Exchange::Note { text: text.into() });
    }

    /// Takes the kept exchanges, and the number of discarded ones.
    #[must_use]
    pub fn take(&self) -> (Vec<Exchange>, u64) {
        let mut kept = self.0.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = std::mem::take(&mut *kept);
        (kept.exchanges, kept.dropped)
    }
}

impl Default for Recorder {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Recorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Recorder")
    }
}
