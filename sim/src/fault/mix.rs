//! Which kinds of faults a run has, and how many.

use super::event::{FaultEvent, FrameFault};
use crate::random::Random;
use ringside_model::Fault;
use std::str::FromStr;

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FaultKind {
    /// Frames are lost.
    Drop,
    /// Frames arrive twice.
    Duplicate,
    /// Frames are overtaken.
    Reorder,
    /// Frames come later.
    Delay,
    /// A bit of a frame changes.
    Corrupt,
    /// Frames are marked "congestion experienced".
    Mark,
    /// The link of a function goes down for some steps.
    LinkDown,
}

impl FaultKind {
    /// Every kind.
    pub const ALL: [Self; 7] = [
        Self::Drop,
        Self::Duplicate,
        Self::Reorder,
        Self::Delay,
        Self::Corrupt,
        Self::Mark,
        Self::LinkDown,
    ];

    /// As it is written.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Drop => "drop",
            Self::Duplicate => "duplicate",
            Self::Reorder => "reorder",
            Self::Delay => "delay",
            Self::Corrupt => "corrupt",
            Self::Mark => "mark",
            Self::LinkDown => "link-down",
        }
    }

    /// What it does, in a line.
    #[must_use]
    pub const fn describe(self) -> &'static str {
        match self {
            Self::Drop => "frames are lost (of a million)",
            Self::Duplicate => "frames arrive twice (of a million)",
            Self::Reorder => "frames are overtaken by others (of a million)",
            Self::Delay => "frames come up to 200 us later (of a million)",
            Self::Corrupt => "a bit of a frame changes (of a million)",
            Self::Mark => "frames are marked \"congestion experienced\" (of a million)",
            Self::LinkDown => "the link of a function is down for some steps (times a run)",
        }
    }

    /// Whether its number is a rate of frames; else it counts events of a run.
    #[must_use]
    pub const fn is_rate(self) -> bool {
        !matches!(self, Self::LinkDown)
    }

    fn default_amount(self, random: &mut Random) -> u32 {
        if self.is_rate() {
            // From one in a thousand to one in ten, small ones as often as large ones.
            let tenths = random.below(3) as u32;
            1_000 * 10_u32.pow(tenths.min(1)) * (1 + random.below(10) as u32)
        } else {
            1 + random.below(2) as u32
        }
    }

    fn draw(self, random: &mut Random) -> Option<FrameFault> {
        Some(match self {
            Self::Drop => FrameFault::Drop,
            Self::Duplicate => FrameFault::Duplicate,
            Self::Reorder => FrameFault::Reorder(random.within(1, 6) as u32),
            Self::Delay => FrameFault::Delay(random.within(1, 200) as u32),
            Self::Corrupt => FrameFault::Corrupt(random.below(1 << 16) as u32),
            Self::Mark => FrameFault::Mark,
            Self::LinkDown => return None,
        })
    }
}

/// Kinds of faults, each with its rate or count.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub enum FaultMix {
    /// Each seed draws kinds and amounts itself; one seed in five has none.
    #[default]
    BySeed,
    /// These, with the amount that was named or drawn by seed.
    Chosen(Vec<(FaultKind, Option<u32>)>),
}

/// Words that are no list of faults.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MixError {
    /// No such kind.
    #[error("there is no fault '{given}'; there are: {}", names())]
    Unknown {
        /// What was given.
        given: String,
    },
    /// The amount is no number, or too large.
    #[error("'{given}' is no amount; write {kind}=NUMBER, 1 to 1000000")]
    Amount {
        /// Which kind.
        kind: &'static str,
        /// What was given.
        given: String,
    },
}

fn names() -> String {
    let names = FaultKind::ALL.map(FaultKind::name);
    format!("{}, and mixed, all or none", names.join(", "))
}

impl FromStr for FaultMix {
    type Err = MixError;

    /// `mixed`, `all`, `none`, or kinds apart by commas, each with `=AMOUNT` or without.
    fn from_str(text: &str) -> Result<Self, MixError> {
        match text {
            "mixed" => return Ok(Self::BySeed),
            "none" => return Ok(Self::Chosen(Vec::new())),
            "all" => return Ok(Self::Chosen(FaultKind::ALL.map(|kind| (kind, None)).into())),
            _ => {}
        }
        let words = text.split(',').map(str::trim);
        let chosen = words.map(|word| {
            let (name, amount) = match word.split_once('=') {
                Some((name, amount)) => (name, Some(amount)),
                None => (word, None),
            };
            let kind = FaultKind::ALL.into_iter().find(|kind| kind.name() == name);
            let kind = kind.ok_or_else(|| MixError::Unknown {
                given: name.to_owned(),
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

/// What a seed makes of a mix: rates for frames, and events of functions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Drawn {
    rates: Vec<(FaultKind, u32)>,
    pub(crate) of_functions: Vec<FaultEvent>,
    seed: u64,
}

impl FaultMix {
    /// What it means for a seed, in a run of so many steps.
    pub(crate) fn draw(&self, seed: u64, steps: u32) -> Drawn {
        let mut random = Random::split(seed, 0xFA17);
        let mut drawn = Drawn {
            seed: random.next(),
            ..Drawn::default()
        };
        let quiet = random.chance(200);
        let amounts: Vec<(FaultKind, u32)> = match self {
            Self::BySeed if quiet => Vec::new(),
            Self::BySeed => FaultKind::ALL
                .into_iter()
                .filter_map(|kind| {
                    let amount = kind.default_amount(&mut random);
                    let likely = if kind.is_rate() { 350 } else { 80 };
                    random.chance(likely).then_some((kind, amount))
                })
                .collect(),
            Self::Chosen(chosen) => chosen
                .iter()
                .map(|(kind, amount)| {
                    let default = kind.default_amount(&mut random);
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
                let event = of_function(kind, steps, &mut random);
                drawn.of_functions.extend(event);
            }
        }
        drawn
    }
}

fn of_function(kind: FaultKind, steps: u32, random: &mut Random) -> Option<FaultEvent> {
    let step = random.below(steps as usize) as u32;
    let function = random.below(2) as u16;
    let fault = match kind {
        FaultKind::LinkDown => Fault::LinkDown,
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
    /// Nothing happens to any frame.
    pub(crate) fn is_quiet(&self) -> bool {
        self.rates.is_empty()
    }

    /// What happens to a frame: depends on its number and the seed alone.
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
    fn a_list_is_read_and_what_is_wrong_with_it_is_said() {
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
