//! The kinds of faults of a run, and their amounts.

use super::commands::COMMANDS;
use super::event::{FaultEvent, FrameFault};
use super::kind::{FaultKind, SOURCES};
use super::later;
use crate::random::Random;
use ringside_model::Fault;
use ringside_model::faults::ANY_CONTROL_COMMAND;
use ringside_model::function::ResetKind;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// The kinds of faults of a run, each with its rate or count.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub enum FaultMix {
    /// Each seed draws kinds and amounts; one seed in five has no faults.
    #[default]
    BySeed,
    /// These kinds, with the given amount or one drawn by the seed.
    Chosen(Vec<(FaultKind, Option<u32>)>),
}

/// The text is not a list of faults.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MixError {
    /// No such kind.
    #[error("unknown fault '{given}'; the faults are: {}", names())]
    Unknown {
        /// The given value.
        given: String,
    },
    /// A word that names all faults, or none, beside others.
    #[error("'{given}' stands alone: leave it away, or name nothing else")]
    NotAlone {
        /// The word.
        given: String,
    },
    /// The amount is not a number, or too large.
    #[error("'{given}' is not an amount; write {kind}=NUMBER, 1 to 1000000")]
    Amount {
        /// The kind.
        kind: &'static str,
        /// The given value.
        given: String,
    },
}

fn names() -> String {
    let names: Vec<&str> = FaultKind::all().map(FaultKind::name).collect();
    format!("{}, and mixed, all or none", names.join(", "))
}

impl FromStr for FaultMix {
    type Err = MixError;

    /// Parses `mixed`, `all`, `none`, or a list of kinds separated by commas, each with `=AMOUNT`
    /// or without.
    fn from_str(text: &str) -> Result<Self, MixError> {
        match text {
            "mixed" => return Ok(Self::BySeed),
            "none" => return Ok(Self::Chosen(Vec::new())),
            "all" => {
                return Ok(Self::Chosen(
                    FaultKind::all().map(|kind| (kind, None)).collect(),
                ));
            }
            _ => {}
        }
        let words = text.split(',').map(str::trim);
        let chosen = words.map(|word| {
            let (name, amount) = match word.split_once('=') {
                Some((name, amount)) => (name, Some(amount)),
                None => (word, None),
            };
            let kind = FaultKind::named(name);
            let kind = kind.ok_or_else(|| {
                let given = name.to_owned();
                match ["mixed", "all", "none"].contains(&name) {
                    true => MixError::NotAlone { given },
                    false => MixError::Unknown { given },
                }
            })?;
            let amount = amount.map(|given| {
                let number = given
                    .parse()
                    .ok()
                    .filter(|number| (1..=1_000_000).contains(number));
                number.ok_or_else(|| MixError::Amount {
                    kind: kind.name(),
                    given: given.to_owned(),
                })
            });
            Ok((kind, amount.transpose()?))
        });
        Ok(Self::Chosen(chosen.collect::<Result<_, _>>()?))
    }
}

/// The text that [`FromStr`] reads as the same mix.
impl fmt::Display for FaultMix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let chosen = match self {
            Self::BySeed => return f.write_str("mixed"),
            Self::Chosen(chosen) if chosen.is_empty() => return f.write_str("none"),
            Self::Chosen(chosen) => chosen,
        };
        for (place, (kind, amount)) in chosen.iter().enumerate() {
            let comma = if place == 0 { "" } else { "," };
            write!(f, "{comma}{}", kind.name())?;
            if let Some(amount) = amount {
                write!(f, "={amount}")?;
            }
        }
        Ok(())
    }
}

/// The faults that a seed draws from a mix: rates for frames, and events of functions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Drawn {
    rates: Vec<(FaultKind, u32)>,
    pub(crate) of_functions: Vec<FaultEvent>,
    seed: u64,
}

impl FaultMix {
    /// Draws the faults of a seed, in a run of `steps` steps.
    pub(crate) fn draw(&self, seed: u64, steps: u32) -> Drawn {
        let mut sources = SOURCES.map(|source| Random::split(seed, source));
        let [random, ..] = &mut sources;
        let mut drawn = Drawn {
            seed: random.next(),
            ..Drawn::default()
        };
        let quiet = random.chance(200);
        let amounts: Vec<(FaultKind, u32)> = match self {
            Self::BySeed if quiet => Vec::new(),
            Self::BySeed => FaultKind::all()
                .filter_map(|kind| {
                    let random = sources.get_mut(kind.source())?;
                    let amount = kind.default_amount(random);
                    random.chance(kind.likelihood()).then_some((kind, amount))
                })
                .collect(),
            Self::Chosen(chosen) => chosen
                .iter()
                .map(|(kind, amount)| {
                    let default = kind.default_amount(random);
                    (*kind, amount.unwrap_or(default))
                })
                .collect(),
        };
        for (kind, amount) in amounts {
            if kind.is_rate() {
                drawn.rates.push((kind, amount));
                continue;
            }
            for _ in 0..amount.min(steps) {
                let place = kind.source();
                let Some(random) = sources.get_mut(place) else {
                    continue;
                };
                let event = match place {
                    0 => of_function(kind, steps, random),
                    _ => later::of_function(kind, steps, random),
                };
                drawn.of_functions.extend(event);
            }
        }
        drawn
    }
}

fn of_function(kind: FaultKind, steps: u32, random: &mut Random) -> Option<FaultEvent> {
    let step = random.below(steps as usize) as u32;
    let function = random.below(2) as u16;
    let opcode = random.pick(&COMMANDS).unwrap_or(ANY_CONTROL_COMMAND);
    let fault = match kind {
        FaultKind::ClockJump => {
            return Some(FaultEvent::Clock {
                step,
                milliseconds: random.within(1, 10_000) as u32,
            });
        }
        FaultKind::LinkDown => Fault::LinkDown,
        FaultKind::Reset => {
            let kinds = [
                ResetKind::Function,
                ResetKind::Core,
                ResetKind::Global,
                ResetKind::Firmware,
            ];
            Fault::Reset(random.pick(&kinds)?)
        }
        FaultKind::HmcError => Fault::HmcError {
            kind: random.below(16) as u8,
            object: random.below(32) as u8,
            data: random.below(1 << 30) as u32,
        },
        FaultKind::CriticalError => Fault::CriticalError {
            code: random.within(1, 0xFFFF) as u32,
        },
        FaultKind::EngineStall => Fault::ProtocolEngineStall,
        FaultKind::FirmwareStall => Fault::FirmwareStall,
        FaultKind::FunctionDead => Fault::FunctionDead,
        FaultKind::CommandFails => Fault::ControlCommandFails {
            opcode,
            major: 1,
            minor: random.within(1, 0x7FFF) as u16,
        },
        FaultKind::CommandSilent => Fault::ControlCommandSilent { opcode },
        FaultKind::CommandDelayed => Fault::ControlCommandDelayed {
            opcode,
            by: Duration::from_micros(random.within(10, 20_000) as u64),
        },
        FaultKind::CommandGarbled => Fault::ControlCommandGarbled { opcode },
        FaultKind::MemoryShort => Fault::MappedMemoryAtMost { bytes: 0 },
        _ => return None,
    };
    Some(FaultEvent::Function {
        step,
        function,
        fault,
        steps: random.within(1, 20) as u32,
    })
}

impl Drawn {
    /// True if no frame has a fault.
    pub(crate) fn is_quiet(&self) -> bool {
        self.rates.is_empty()
    }

    /// Returns the faults of a frame. They depend only on its number and the seed.
    pub(crate) fn of_frame(&self, frame: u64) -> impl Iterator<Item = FrameFault> + '_ {
        let mut random = Random::split(self.seed, frame);
        self.rates.iter().filter_map(move |(kind, rate)| {
            let strikes = random.below(1_000_000) < *rate as usize;
            let fault = kind.draw(&mut random);
            fault.filter(|_| strikes)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_parsed_and_its_errors_are_named() {
        let mix: FaultMix = "drop=5000, delay".parse().unwrap();
        let expected = vec![(FaultKind::Drop, Some(5000)), (FaultKind::Delay, None)];
        assert_eq!(mix, FaultMix::Chosen(expected));
        assert_eq!("mixed".parse(), Ok(FaultMix::BySeed));
        let error = "drop,burn".parse::<FaultMix>().unwrap_err().to_string();
        assert!(
            error.contains("'burn'") && error.contains("duplicate"),
            "{error}"
        );
        let error = "drop=0".parse::<FaultMix>().unwrap_err().to_string();
        assert!(error.contains("drop=NUMBER"), "{error}");
    }

    #[test]
    fn rates_are_met_and_the_choice_follows_from_the_seed() {
        let mix: FaultMix = "drop=100000".parse().unwrap();
        let lost = |seed| -> Vec<u64> {
            let drawn = mix.draw(seed, 100);
            (0..10_000)
                .filter(|frame| drawn.of_frame(*frame).next() == Some(FrameFault::Drop))
                .collect()
        };
        assert_eq!(lost(1), lost(1));
        assert_ne!(lost(1), lost(2));
        assert!((900..1100).contains(&lost(1).len()), "{}", lost(1).len());
    }
}
