//! Faults as people write them: a name and its numbers, such as `admin-fails 0x601 5`.

use super::Fault;
use crate::reset_kind::ResetKind;
use ringside_bus::{Direction, Iova, Refusal};
use ringside_spec::rdma::registers::HmcErrorInfo;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// All frames, where a rate is a number of a million.
const MILLION: u32 = 1_000_000;

/// Largest kind of error, and of object, that PFHMC_ERRORINFO can name.
const HMC_ERROR_KIND: u8 = (HmcErrorInfo::ERROR_TYPE_MASK >> HmcErrorInfo::ERROR_TYPE_SHIFT) as u8;
const HMC_OBJECT: u8 = (HmcErrorInfo::OBJECT_TYPE_MASK >> HmcErrorInfo::OBJECT_TYPE_SHIFT) as u8;

/// Largest code of an asynchronous event, and largest source.
const EVENT_CODE: u16 = 0xFFF;
const EVENT_SOURCE: u8 = 0xF;

/// Declares each fault once: its name, its numbers as help names them, what it does, the value with
/// the format of its numbers, and the value that words make.
macro_rules! faults {
    ($words:ident; $(
        $name:literal $numbers:literal, $effect:literal,
        $value:pat => ($($format:tt)*), $read:expr;
    )*) => {
        /// Each fault as it is written, with its effect.
        pub const FAULTS: &[(&str, &str)] = &[$((concat!($name, $numbers), $effect)),*];

        impl Fault {
            /// The first word of how it is written.
            #[must_use]
            pub const fn name(&self) -> &'static str {
                #[allow(unused_variables)]
                match *self {
                    $($value => $name,)*
                }
            }
        }

        impl fmt::Display for Fault {
            /// Writes the words that [`FromStr`] reads.
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.name())?;
                match *self {
                    $($value => write!(f, $($format)*),)*
                }
            }
        }

        impl<'a, I: Iterator<Item = &'a str>> Words<'a, I> {
            fn fault(self) -> Result<Fault, FaultWordsError> {
                let mut $words = self;
                let fault = match $words.name {
                    $($name => $read,)*
                    name => return Err(FaultWordsError::Unknown { name: name.into() }),
                };
                $words.end(fault)
            }
        }
    };
}

faults! { words;
    "link-down" "", "the link stays down",
    Fault::LinkDown => (""), Fault::LinkDown;

    "module-absent" "", "there is no module in the port",
    Fault::ModuleAbsent => (""), Fault::ModuleAbsent;

    "lldp-agent" "", "the firmware's LLDP agent runs, with priority flow control",
    Fault::LldpAgent => (""), Fault::LldpAgent;

    "reset-never-ends" "", "the PF reset bit never clears",
    Fault::ResetNeverEnds => (""), Fault::ResetNeverEnds;

    "firmware-never-ready" "", "GLNVM_ULD never reports that everything is loaded",
    Fault::FirmwareNeverReady => (""), Fault::FirmwareNeverReady;

    "protocol-engine-status" " STATUS", "a protocol-engine processor reports this instead of 0x80",
    Fault::ProtocolEngineStatus(status) => (" {status:#x}"),
    Fault::ProtocolEngineStatus(words.number()?);

    "no-package" "", "no DDP package is in the device when the driver comes",
    Fault::NoPackageLoaded => (""), Fault::NoPackageLoaded;

    "flash-package" "", "only the package of the flash is active when the driver comes",
    Fault::FlashPackageOnly => (""), Fault::FlashPackageOnly;

    "admin-fails" " OPCODE CODE", "every answer to this admin command carries this code",
    Fault::AdminCommandFails { opcode, code } => (" {opcode:#06x} {code}"),
    Fault::AdminCommandFails { opcode: words.number()?, code: words.number()? };

    "admin-silent" " OPCODE", "this admin command is never answered",
    Fault::AdminCommandSilent { opcode } => (" {opcode:#06x}"),
    Fault::AdminCommandSilent { opcode: words.number()? };

    "admin-delayed" " OPCODE MICROSECONDS",
    "this admin command is answered late (0xffff: all are)",
    Fault::AdminCommandDelayed { opcode, by } => (" {opcode:#06x} {}", by.as_micros()),
    Fault::AdminCommandDelayed { opcode: words.number()?, by: words.microseconds()? };

    "admin-garbled" " OPCODE", "answers to this admin command make no sense (0xffff: to all)",
    Fault::AdminCommandGarbled { opcode } => (" {opcode:#06x}"),
    Fault::AdminCommandGarbled { opcode: words.number()? };

    "firmware-stall" "", "the firmware does nothing until a reset of the function",
    Fault::FirmwareStall => (""), Fault::FirmwareStall;

    "control-queue-creation-fails" "", "CQP creation is answered with the error bit",
    Fault::ControlQueueCreationFails => (""), Fault::ControlQueueCreationFails;

    "control-queue-creation-silent" "", "CQP creation is never answered",
    Fault::ControlQueueCreationSilent => (""), Fault::ControlQueueCreationSilent;

    "control-fails" " OPCODE MAJOR MINOR",
    "every completion of this CQP command carries this error",
    Fault::ControlCommandFails { opcode, major, minor } => (" {opcode:#x} {major:#x} {minor:#x}"),
    Fault::ControlCommandFails {
        opcode: words.number()?,
        major: words.number()?,
        minor: words.number()?,
    };

    "control-silent" " OPCODE", "this CQP command is never completed",
    Fault::ControlCommandSilent { opcode } => (" {opcode:#x}"),
    Fault::ControlCommandSilent { opcode: words.number()? };

    "control-delayed" " OPCODE MICROSECONDS", "this CQP command is completed late (0xff: all are)",
    Fault::ControlCommandDelayed { opcode, by } => (" {opcode:#x} {}", by.as_micros()),
    Fault::ControlCommandDelayed { opcode: words.number()?, by: words.microseconds()? };

    "control-late" " OPCODE MICROSECONDS",
    "completions of this CQP command come late, later commands do not wait (0xff: all are)",
    Fault::ControlCompletionLate { opcode, by } => (" {opcode:#x} {}", by.as_micros()),
    Fault::ControlCompletionLate { opcode: words.number()?, by: words.microseconds()? };

    "control-garbled" " OPCODE", "completions of this CQP command make no sense (0xff: of all)",
    Fault::ControlCommandGarbled { opcode } => (" {opcode:#x}"),
    Fault::ControlCommandGarbled { opcode: words.number()? };

    "function-reset" "", "once: another owner resets the function",
    Fault::Reset(ResetKind::Function) => (""), Fault::Reset(ResetKind::Function);

    "core-reset" "", "once: another owner resets the LAN engine",
    Fault::Reset(ResetKind::Core) => (""), Fault::Reset(ResetKind::Core);

    "global-reset" "", "once: another owner resets LAN engine, MAC and PHY",
    Fault::Reset(ResetKind::Global) => (""), Fault::Reset(ResetKind::Global);

    "firmware-reset" "", "once: another owner resets the device, firmware included",
    Fault::Reset(ResetKind::Firmware) => (""), Fault::Reset(ResetKind::Firmware);

    "function-dead" "", "the function reads as all ones and does nothing",
    Fault::FunctionDead => (""), Fault::FunctionDead;

    "interrupts-lost" " PARTS [SEED]",
    "interrupts are lost: PARTS of a million, chosen by seed",
    Fault::InterruptsLost { per_million, seed } => (" {per_million} {seed}"),
    Fault::InterruptsLost { per_million: words.at_most(MILLION)?, seed: words.optional(1)? };

    "memory-at-most" " BYTES", "at most BYTES of memory can be mapped for the function",
    Fault::MappedMemoryAtMost { bytes } => (" {bytes}"),
    Fault::MappedMemoryAtMost { bytes: words.number()? };

    "dma-refused" " [ACCESSES [FIRST [BYTES]]]",
    "the host refuses this number of accesses to memory (0: all), at these addresses (everywhere)",
    Fault::DmaRefused(refusal @ Refusal { direction: None, .. }) => (" {}", Place(refusal)),
    Fault::DmaRefused(words.refusal(None)?);

    "dma-reads-refused" " [ACCESSES [FIRST [BYTES]]]", "the same, of reads alone",
    Fault::DmaRefused(refusal @ Refusal { direction: Some(Direction::Read), .. }) =>
        (" {}", Place(refusal)),
    Fault::DmaRefused(words.refusal(Some(Direction::Read))?);

    "dma-writes-refused" " [ACCESSES [FIRST [BYTES]]]", "the same, of writes alone",
    Fault::DmaRefused(refusal @ Refusal { direction: Some(Direction::Write), .. }) =>
        (" {}", Place(refusal)),
    Fault::DmaRefused(words.refusal(Some(Direction::Write))?);

    "hmc-error" " KIND OBJECT [DATA]", "once: the host memory cache reports this error",
    Fault::HmcError { kind, object, data } => (" {kind} {object} {data:#x}"),
    Fault::HmcError {
        kind: words.at_most(HMC_ERROR_KIND)?,
        object: words.at_most(HMC_OBJECT)?,
        data: words.optional(0)?,
    };

    "critical-error" " CODE", "once: the RDMA engine reports this critical error",
    Fault::CriticalError { code } => (" {code:#x}"),
    Fault::CriticalError { code: words.number()? };

    "engine-event" " CODE SOURCE QUEUE",
    "once: the RDMA engine reports this asynchronous event of that queue",
    Fault::EngineEvent { code, source, queue_number } => (" {code:#06x} {source} {queue_number}"),
    Fault::EngineEvent {
        code: words.at_most(EVENT_CODE)?,
        source: words.at_most(EVENT_SOURCE)?,
        queue_number: words.number()?,
    };

    "protocol-engine-stall" "", "the RDMA engine stops until a reset of the function",
    Fault::ProtocolEngineStall => (""), Fault::ProtocolEngineStall;

    "drop" " PER_MILLION [SEED]", "wire: frames are lost, chosen by seed",
    Fault::DropFrames { per_million, seed } => (" {per_million} {seed}"),
    Fault::DropFrames { per_million: words.at_most(MILLION)?, seed: words.optional(1)? };

    "duplicate" " PER_MILLION [SEED]", "wire: frames arrive twice",
    Fault::DuplicateFrames { per_million, seed } => (" {per_million} {seed}"),
    Fault::DuplicateFrames { per_million: words.at_most(MILLION)?, seed: words.optional(1)? };

    "reorder" " PER_MILLION [SEED [BEHIND]]",
    "wire: frames are overtaken by that many others (1)",
    Fault::ReorderFrames { per_million, seed, behind } => (" {per_million} {seed} {behind}"),
    Fault::ReorderFrames {
        per_million: words.at_most(MILLION)?,
        seed: words.optional(1)?,
        behind: words.optional(1)?,
    };

    "delay" " PER_MILLION SEED MICROSECONDS", "wire: frames take that much longer",
    Fault::DelayFrames { per_million, seed, by } => (" {per_million} {seed} {}", by.as_micros()),
    Fault::DelayFrames {
        per_million: words.at_most(MILLION)?,
        seed: words.number()?,
        by: words.microseconds()?,
    };

    "corrupt" " PER_MILLION [SEED]", "wire: one bit of a frame changes",
    Fault::CorruptFrames { per_million, seed } => (" {per_million} {seed}"),
    Fault::CorruptFrames { per_million: words.at_most(MILLION)?, seed: words.optional(1)? };

    "mark" " PER_MILLION [SEED]",
    "wire: frames are marked \"congestion experienced\" if their sender allows",
    Fault::MarkFrames { per_million, seed } => (" {per_million} {seed}"),
    Fault::MarkFrames { per_million: words.at_most(MILLION)?, seed: words.optional(1)? };
}

/// The accesses that a host refuses, as words: their number and their addresses.
struct Place(Refusal);

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Refusal { first, bytes, .. } = self.0;
        let accesses = self.0.accesses.unwrap_or(0);
        write!(f, "{accesses} {:#x} {bytes:#x}", first.0)
    }
}

/// The reason why words do not name a fault.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FaultWordsError {
    /// No such name.
    #[error("there is no fault '{name}'; there are: {}", names())]
    Unknown {
        /// The given text.
        name: String,
    },
    /// A number is missing.
    #[error("'{name}' needs {usage}")]
    Missing {
        /// The fault.
        name: String,
        /// Its form.
        usage: &'static str,
    },
    /// Something is not a number, or too large.
    #[error("'{word}' is not a number in range; write '{usage}', decimal or 0x hexadecimal")]
    BadNumber {
        /// The given text.
        word: String,
        /// Its form.
        usage: &'static str,
    },
    /// A number above the largest permitted one.
    #[error("'{word}' is more than {largest}; write '{usage}'")]
    TooLarge {
        /// The given text.
        word: String,
        /// The largest that there is.
        largest: String,
        /// Its form.
        usage: &'static str,
    },
    /// More than the fault takes.
    #[error("'{word}' is one value too many; write '{usage}'")]
    TooMany {
        /// The first value that is too many.
        word: String,
        /// Its form.
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
        let rest = words;
        Words { name, usage, rest }.fault()
    }
}

impl<'a, I: Iterator<Item = &'a str>> Words<'a, I> {
    fn microseconds(&mut self) -> Result<Duration, FaultWordsError> {
        Ok(Duration::from_micros(self.number()?))
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
}

#[cfg(test)]
mod tests;
