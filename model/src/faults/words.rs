//! Faults as people write them: a name and its numbers, such as `admin-fails 0x601 5`.

use super::Fault;
use crate::function::ResetKind;
use ringside_bus::{Direction, Iova, Refusal};
use ringside_spec::rdma::registers::HmcErrorInfo;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// All frames, where so many of a million are named.
const MILLION: u32 = 1_000_000;

/// Largest kind of error, and of object, that PFHMC_ERRORINFO can name.
const HMC_ERROR_KIND: u8 = (HmcErrorInfo::ERROR_TYPE_MASK >> HmcErrorInfo::ERROR_TYPE_SHIFT) as u8;
const HMC_OBJECT: u8 = (HmcErrorInfo::OBJECT_TYPE_MASK >> HmcErrorInfo::OBJECT_TYPE_SHIFT) as u8;

/// Largest code of an asynchronous event, and largest source.
const EVENT_CODE: u16 = 0xFFF;
const EVENT_SOURCE: u8 = 0xF;

/// How each fault is written, and what it does.
pub const FAULTS: &[(&str, &str)] = &[
    ("link-down", "the link stays down"),
    ("reset-never-ends", "the PF reset bit never clears"),
    (
        "firmware-never-ready",
        "GLNVM_ULD never says that everything is loaded",
    ),
    (
        "protocol-engine-status STATUS",
        "a protocol-engine processor reports this instead of 0x80",
    ),
    (
        "no-package",
        "no DDP package is in the device when the driver comes",
    ),
    (
        "admin-fails OPCODE CODE",
        "every answer to this admin command carries this code",
    ),
    (
        "admin-silent OPCODE",
        "this admin command is never answered",
    ),
    (
        "admin-delayed OPCODE MICROSECONDS",
        "this admin command is answered late (0xffff: all are)",
    ),
    (
        "admin-garbled OPCODE",
        "answers to this admin command make no sense (0xffff: to all)",
    ),
    (
        "firmware-stall",
        "the firmware does nothing until a reset of the function",
    ),
    (
        "control-queue-creation-fails",
        "CQP creation is answered with the error bit",
    ),
    (
        "control-queue-creation-silent",
        "CQP creation is never answered",
    ),
    (
        "control-fails OPCODE MAJOR MINOR",
        "every completion of this CQP command carries this error",
    ),
    (
        "control-silent OPCODE",
        "this CQP command is never completed",
    ),
    (
        "control-delayed OPCODE MICROSECONDS",
        "this CQP command is completed late (0xff: all are)",
    ),
    (
        "control-garbled OPCODE",
        "completions of this CQP command make no sense (0xff: of all)",
    ),
    ("function-reset", "once: somebody else resets the function"),
    ("core-reset", "once: somebody else resets the LAN engine"),
    (
        "global-reset",
        "once: somebody else resets LAN engine, MAC and PHY",
    ),
    (
        "firmware-reset",
        "once: somebody else resets the device, firmware included",
    ),
    (
        "function-dead",
        "the function reads as all ones and does nothing",
    ),
    (
        "interrupts-lost PARTS [SEED]",
        "interrupts are lost, so many parts of a million, chosen by seed",
    ),
    (
        "memory-at-most BYTES",
        "no more memory than this can be mapped for the function",
    ),
    (
        "dma-refused [ACCESSES [FIRST [BYTES]]]",
        "the host refuses accesses to memory: so many (0: all), at these addresses (everywhere)",
    ),
    (
        "dma-reads-refused [ACCESSES [FIRST [BYTES]]]",
        "the same, of reads alone",
    ),
    (
        "dma-writes-refused [ACCESSES [FIRST [BYTES]]]",
        "the same, of writes alone",
    ),
    (
        "hmc-error KIND OBJECT [DATA]",
        "once: the host memory cache reports this error",
    ),
    (
        "critical-error CODE",
        "once: the RDMA engine reports this critical error",
    ),
    (
        "engine-event CODE SOURCE QUEUE",
        "once: the RDMA engine reports this asynchronous event of that queue",
    ),
    (
        "protocol-engine-stall",
        "the RDMA engine stops until a reset of the function",
    ),
    (
        "drop PER_MILLION [SEED]",
        "wire: frames are lost, chosen by seed",
    ),
    ("duplicate PER_MILLION [SEED]", "wire: frames arrive twice"),
    (
        "reorder PER_MILLION [SEED [BEHIND]]",
        "wire: frames are overtaken by that many others (1)",
    ),
    (
        "delay PER_MILLION SEED MICROSECONDS",
        "wire: frames take that much longer",
    ),
    (
        "corrupt PER_MILLION [SEED]",
        "wire: one bit of a frame changes",
    ),
    (
        "mark PER_MILLION [SEED]",
        "wire: frames are marked \"congestion experienced\" if their sender allows",
    ),
];

/// Why words are no fault.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FaultWordsError {
    /// No such name.
    #[error("there is no fault '{name}'; there are: {}", names())]
    Unknown {
        /// What was given.
        name: String,
    },
    /// A number is missing.
    #[error("'{name}' wants {usage}")]
    Missing {
        /// The fault.
        name: String,
        /// How it is written.
        usage: &'static str,
    },
    /// Something is not a number, or too large.
    #[error("'{word}' is not a number in range; write '{usage}', decimal or 0x hexadecimal")]
    BadNumber {
        /// What was given.
        word: String,
        /// How it is written.
        usage: &'static str,
    },
    /// A number that is larger than makes sense.
    #[error("'{word}' is more than {largest}; write '{usage}'")]
    TooLarge {
        /// What was given.
        word: String,
        /// The largest that there is.
        largest: String,
        /// How it is written.
        usage: &'static str,
    },
    /// More than the fault takes.
    #[error("'{word}' is too much; write '{usage}'")]
    TooMany {
        /// The first that is too much.
        word: String,
        /// How it is written.
        usage: &'static str,
    },
}

fn names() -> String {
    let names = FAULTS
        .iter()
        .filter_map(|(usage, _)| usage.split(' ').next());
    names.collect::<Vec<_>>().join(", ")
}

/// The words after the name.
struct Words<'a, I> {
    name: &'a str,
    usage: &'static str,
    rest: I,
}

impl<'a, I: Iterator<Item = &'a str>> Words<'a, I> {
    fn optional<N: TryFrom<u64>>(&mut self, default: N) -> Result<N, FaultWordsError> {
        let Some(word) = self.rest.next() else {
            return Ok(default);
        };
        let number = match word.strip_prefix("0x") {
            Some(digits) => u64::from_str_radix(digits, 16),
            None => word.parse(),
        };
        let number = number.ok().and_then(|number| N::try_from(number).ok());
        number.ok_or_else(|| FaultWordsError::BadNumber {
            word: word.into(),
            usage: self.usage,
        })
    }

    fn number<N: TryFrom<u64> + Default>(&mut self) -> Result<N, FaultWordsError> {
        let Some(word) = self.rest.next() else {
            return Err(FaultWordsError::Missing {
                name: self.name.into(),
                usage: self.usage,
            });
        };
        let mut one = Words {
            name: self.name,
            usage: self.usage,
            rest: std::iter::once(word),
        };
        one.optional(N::default())
    }

    /// A number that may not be larger than `largest`.
    fn at_most<N>(&mut self, largest: N) -> Result<N, FaultWordsError>
    where
        N: TryFrom<u64> + Default + PartialOrd + std::fmt::Display + Copy,
    {
        let number = self.number::<N>()?;
        if number > largest {
            return Err(FaultWordsError::TooLarge {
                word: number.to_string(),
                largest: largest.to_string(),
                usage: self.usage,
            });
        }
        Ok(number)
    }

    fn end(mut self, fault: Fault) -> Result<Fault, FaultWordsError> {
        match self.rest.next() {
            None => Ok(fault),
            Some(word) => Err(FaultWordsError::TooMany {
                word: word.into(),
                usage: self.usage,
            }),
        }
    }
}

impl FromStr for Fault {
    type Err = FaultWordsError;

    /// Words apart by spaces, commas or colons.
    fn from_str(text: &str) -> Result<Self, FaultWordsError> {
        let separators = |character: char| character.is_whitespace() || ",:".contains(character);
        let mut words = text.split(separators).filter(|word| !word.is_empty());
        let name = words.next().unwrap_or_default();
        let known = FAULTS
            .iter()
            .find(|(usage, _)| usage.split(' ').next() == Some(name));
        let Some((usage, _)) = known else {
            return Err(FaultWordsError::Unknown { name: name.into() });
        };
        let mut words = Words {
            name,
            usage,
            rest: words,
        };
        let fault = words.fault()?;
        words.end(fault)
    }
}

impl<'a, I: Iterator<Item = &'a str>> Words<'a, I> {
    fn fault(&mut self) -> Result<Fault, FaultWordsError> {
        Ok(match self.name {
            "link-down" => Fault::LinkDown,
            "reset-never-ends" => Fault::ResetNeverEnds,
            "firmware-never-ready" => Fault::FirmwareNeverReady,
            "protocol-engine-status" => Fault::ProtocolEngineStatus(self.number()?),
            "no-package" => Fault::NoPackageLoaded,
            "admin-fails" => Fault::AdminCommandFails {
                opcode: self.number()?,
                code: self.number()?,
            },
            "admin-silent" => Fault::AdminCommandSilent {
                opcode: self.number()?,
            },
            "control-queue-creation-fails" => Fault::ControlQueueCreationFails,
            "control-queue-creation-silent" => Fault::ControlQueueCreationSilent,
            "control-fails" => Fault::ControlCommandFails {
                opcode: self.number()?,
                major: self.number()?,
                minor: self.number()?,
            },
            "control-silent" => Fault::ControlCommandSilent {
                opcode: self.number()?,
            },
            "admin-delayed" => Fault::AdminCommandDelayed {
                opcode: self.number()?,
                by: Duration::from_micros(self.number()?),
            },
            "admin-garbled" => Fault::AdminCommandGarbled {
                opcode: self.number()?,
            },
            "firmware-stall" => Fault::FirmwareStall,
            "control-delayed" => Fault::ControlCommandDelayed {
                opcode: self.number()?,
                by: Duration::from_micros(self.number()?),
            },
            "control-garbled" => Fault::ControlCommandGarbled {
                opcode: self.number()?,
            },
            "function-reset" => Fault::Reset(ResetKind::Function),
            "core-reset" => Fault::Reset(ResetKind::Core),
            "global-reset" => Fault::Reset(ResetKind::Global),
            "firmware-reset" => Fault::Reset(ResetKind::Firmware),
            "function-dead" => Fault::FunctionDead,
            "interrupts-lost" => Fault::InterruptsLost {
                per_million: self.at_most(MILLION)?,
                seed: self.optional(1)?,
            },
            "memory-at-most" => Fault::MappedMemoryAtMost {
                bytes: self.number()?,
            },
            "dma-refused" => Fault::DmaRefused(self.refusal(None)?),
            "dma-reads-refused" => Fault::DmaRefused(self.refusal(Some(Direction::Read))?),
            "dma-writes-refused" => Fault::DmaRefused(self.refusal(Some(Direction::Write))?),
            "hmc-error" => Fault::HmcError {
                kind: self.at_most(HMC_ERROR_KIND)?,
                object: self.at_most(HMC_OBJECT)?,
                data: self.optional(0)?,
            },
            "critical-error" => Fault::CriticalError {
                code: self.number()?,
            },
            "engine-event" => Fault::EngineEvent {
                code: self.at_most(EVENT_CODE)?,
                source: self.at_most(EVENT_SOURCE)?,
                queue_number: self.number()?,
            },
            "protocol-engine-stall" => Fault::ProtocolEngineStall,
            _ => return self.fault_of_the_wire(),
        })
    }

    fn refusal(&mut self, direction: Option<Direction>) -> Result<Refusal, FaultWordsError> {
        let everything = Refusal::EVERYTHING;
        let accesses = self.optional(0)?;
        Ok(Refusal {
            direction,
            accesses: (accesses > 0).then_some(accesses),
            first: Iova(self.optional(everything.first.0)?),
            bytes: self.optional(everything.bytes)?,
        })
    }

    fn fault_of_the_wire(&mut self) -> Result<Fault, FaultWordsError> {
        let per_million = self.at_most(MILLION)?;
        let seed = if self.name == "delay" {
            self.number()?
        } else {
            self.optional(1)?
        };
        Ok(match self.name {
            "drop" => Fault::DropFrames { per_million, seed },
            "duplicate" => Fault::DuplicateFrames { per_million, seed },
            "reorder" => Fault::ReorderFrames {
                per_million,
                seed,
                behind: self.optional(1)?,
            },
            "delay" => Fault::DelayFrames {
                per_million,
                seed,
                by: Duration::from_micros(self.number()?),
            },
            "corrupt" => Fault::CorruptFrames { per_million, seed },
            "mark" => Fault::MarkFrames { per_million, seed },
            name => return Err(FaultWordsError::Unknown { name: name.into() }),
        })
    }
}

impl fmt::Display for Fault {
    /// As [`FromStr`] reads it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LinkDown => f.write_str("link-down"),
            Self::ResetNeverEnds => f.write_str("reset-never-ends"),
            Self::FirmwareNeverReady => f.write_str("firmware-never-ready"),
            Self::ProtocolEngineStatus(status) => write!(f, "protocol-engine-status {status:#x}"),
            Self::NoPackageLoaded => f.write_str("no-package"),
            Self::AdminCommandFails { opcode, code } => {
                write!(f, "admin-fails {opcode:#06x} {code}")
            }
            Self::AdminCommandSilent { opcode } => write!(f, "admin-silent {opcode:#06x}"),
            Self::ControlQueueCreationFails => f.write_str("control-queue-creation-fails"),
            Self::ControlQueueCreationSilent => f.write_str("control-queue-creation-silent"),
            Self::ControlCommandFails {
                opcode,
                major,
                minor,
            } => write!(f, "control-fails {opcode:#x} {major:#x} {minor:#x}"),
            Self::ControlCommandSilent { opcode } => write!(f, "control-silent {opcode:#x}"),
            Self::AdminCommandDelayed { opcode, by } => {
                write!(f, "admin-delayed {opcode:#06x} {}", by.as_micros())
            }
            Self::AdminCommandGarbled { opcode } => write!(f, "admin-garbled {opcode:#06x}"),
            Self::FirmwareStall => f.write_str("firmware-stall"),
            Self::ControlCommandDelayed { opcode, by } => {
                write!(f, "control-delayed {opcode:#x} {}", by.as_micros())
            }
            Self::ControlCommandGarbled { opcode } => write!(f, "control-garbled {opcode:#x}"),
            Self::Reset(kind) => f.write_str(match kind {
                ResetKind::Function => "function-reset",
                ResetKind::Core => "core-reset",
                ResetKind::Global => "global-reset",
                ResetKind::Firmware => "firmware-reset",
            }),
            Self::FunctionDead => f.write_str("function-dead"),
            Self::InterruptsLost { per_million, seed } => {
                write!(f, "interrupts-lost {per_million} {seed}")
            }
            Self::MappedMemoryAtMost { bytes } => write!(f, "memory-at-most {bytes}"),
            Self::DmaRefused(refusal) => {
                f.write_str(match refusal.direction {
                    None => "dma-refused",
                    Some(Direction::Read) => "dma-reads-refused",
                    Some(Direction::Write) => "dma-writes-refused",
                })?;
                let Refusal { first, bytes, .. } = refusal;
                let accesses = refusal.accesses.unwrap_or(0);
                write!(f, " {accesses} {:#x} {bytes:#x}", first.0)
            }
            Self::HmcError { kind, object, data } => {
                write!(f, "hmc-error {kind} {object} {data:#x}")
            }
            Self::CriticalError { code } => write!(f, "critical-error {code:#x}"),
            Self::EngineEvent {
                code,
                source,
                queue_number,
            } => write!(f, "engine-event {code:#06x} {source} {queue_number}"),
            Self::ProtocolEngineStall => f.write_str("protocol-engine-stall"),
            Self::DropFrames { per_million, seed } => write!(f, "drop {per_million} {seed}"),
            Self::DuplicateFrames { per_million, seed } => {
                write!(f, "duplicate {per_million} {seed}")
            }
            Self::ReorderFrames {
                per_million,
                seed,
                behind,
            } => write!(f, "reorder {per_million} {seed} {behind}"),
            Self::DelayFrames {
                per_million,
                seed,
                by,
            } => write!(f, "delay {per_million} {seed} {}", by.as_micros()),
            Self::CorruptFrames { per_million, seed } => write!(f, "corrupt {per_million} {seed}"),
            Self::MarkFrames { per_million, seed } => write!(f, "mark {per_million} {seed}"),
        }
    }
}

#[cfg(test)]
mod tests;
