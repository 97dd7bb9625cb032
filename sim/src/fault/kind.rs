//! The kinds of faults that a run may have. Each is declared once: its name, its effect, the number
//! of seeds in a thousand that have it, and the words of its events.

use super::event::{FaultEvent, FrameFault};
use crate::random::Random;

/// The random source of a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Draws {
    /// Drawn for each frame.
    Frames,
    /// Drawn for a run.
    Runs,
    /// Drawn for a run, from another random source: a seed keeps the faults that it had before this
    /// kind was added.
    RunsLater,
    /// The same, from a third source.
    RunsLatest,
}

/// The random sources of all kinds. One that is added leaves what others draw.
pub(super) const SOURCES: [u64; 3] = [0xFA17, 0x1A7E, 0x01AF];

/// The declaration of a kind.
struct Declared {
    kind: FaultKind,
    name: &'static str,
    effect: &'static str,
    /// The number of seeds in a thousand that have it, when the seed decides.
    likelihood: usize,
    draws: Draws,
    /// First words of the events of this kind: names of the model's faults, except for frames and
    /// the clock.
    words: &'static [&'static str],
}

macro_rules! kinds {
    ($($kind:ident $name:literal $effect:literal, $likelihood:literal $draws:ident,
        [$($word:literal),*];)*) => {
        /// A kind of fault.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum FaultKind {
            $(#[doc = concat!("In short: ", $effect, ".")] $kind,)*
        }

        const KINDS: &[Declared] = &[$(Declared {
            kind: FaultKind::$kind,
            name: $name,
            effect: $effect,
            likelihood: $likelihood,
            draws: Draws::$draws,
            words: &[$($word),*],
        }),*];
    };
}

kinds! {
    Drop "drop" "frames are lost", 350 Frames, ["drop"];
    Duplicate "duplicate" "frames arrive twice", 350 Frames, ["duplicate"];
    Reorder "reorder" "frames are overtaken by others", 350 Frames, ["reorder"];
    Delay "delay" "frames come up to 200 us later", 350 Frames, ["delay"];
    Corrupt "corrupt" "a bit of a frame changes", 350 Frames, ["corrupt"];
    Mark "mark" "frames are marked \"congestion experienced\"", 350 Frames, ["mark"];
    LinkDown "link-down" "the link of a function is down for some steps", 60 Runs, ["link-down"];
    ClockJump "clock-jump" "the clock jumps ahead by up to 10 s", 40 Runs, ["clock-jump"];
    Reset "reset" "another owner resets a function, or the device of which it is", 15 Runs,
        ["function-reset", "core-reset", "global-reset", "firmware-reset"];
    HmcError "hmc-error" "the host memory cache reports an error", 15 Runs, ["hmc-error"];
    CriticalError "critical-error" "the RDMA engine reports a critical error", 15 Runs,
        ["critical-error"];
    EngineStall "protocol-engine-stall" "the RDMA engine stops", 15 Runs,
        ["protocol-engine-stall"];
    FirmwareStall "firmware-stall" "the firmware stops", 15 Runs, ["firmware-stall"];
    FunctionDead "function-dead" "a function reads as all ones", 15 Runs, ["function-dead"];
    CommandFails "command-fails" "a command of the control queue is refused for some steps",
        15 Runs, ["control-fails"];
    CommandSilent "command-silent" "a command of the control queue is never answered", 15 Runs,
        ["control-silent"];
    CommandDelayed "command-delayed" "a command of the control queue is answered late", 60 Runs,
        ["control-delayed"];
    CommandGarbled "command-garbled" "answers of the control queue are invalid", 15 Runs,
        ["control-garbled"];
    MemoryShort "memory-short" "no further memory can be mapped for some steps", 15 Runs,
        ["memory-at-most"];
    DmaRefused "dma-refused" "the host refuses accesses of a function to its memory", 15 RunsLater,
        ["dma-refused", "dma-reads-refused", "dma-writes-refused"];
    InterruptsLost "interrupts-lost" "interrupts do not arrive for some steps", 60 RunsLater,
        ["interrupts-lost"];
    AdminFails "admin-fails" "a command of the admin queue is refused for some steps", 15 RunsLater,
        ["admin-fails"];
    AdminSilent "admin-silent" "a command of the admin queue is never answered", 15 RunsLater,
        ["admin-silent"];
    AdminDelayed "admin-delayed" "a command of the admin queue is answered late", 60 RunsLater,
        ["admin-delayed"];
    AdminGarbled "admin-garbled" "answers of the admin queue are invalid", 15 RunsLater,
        ["admin-garbled"];
    CommandLate "command-late" "an answer of the control queue comes late, and later commands do not wait",
        60 RunsLatest, ["control-late"];
}

impl FaultKind {
    /// Every kind.
    pub fn all() -> impl Iterator<Item = Self> {
        KINDS.iter().map(|declared| declared.kind)
    }

    const fn declared(self) -> &'static Declared {
        // The list is in the order of the enumeration: one macro makes both.
        &KINDS[self as usize]
    }

    /// The name of the kind.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.declared().name
    }

    /// The kind of this name, or of a name that it had before.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        let name = match name {
            "engine-stall" => "protocol-engine-stall",
            name => name,
        };
        Self::all().find(|kind| kind.name() == name)
    }

    /// Its effect, in one line.
    #[must_use]
    pub const fn describe(self) -> &'static str {
        self.declared().effect
    }

    /// True if its amount is a rate of frames in a million; otherwise it is a count of events in a
    /// run.
    #[must_use]
    pub const fn is_rate(self) -> bool {
        matches!(self.declared().draws, Draws::Frames)
    }

    /// The number of seeds in a thousand that have it, when the seed decides.
    pub(super) const fn likelihood(self) -> usize {
        self.declared().likelihood
    }

    /// The number of its random source, in [`SOURCES`].
    pub(super) const fn source(self) -> usize {
        match self.declared().draws {
            Draws::Frames | Draws::Runs => 0,
            Draws::RunsLater => 1,
            Draws::RunsLatest => 2,
        }
    }

    /// Returns the kind of an event.
    #[must_use]
    pub fn of(event: &FaultEvent) -> Option<Self> {
        let text = event.to_string();
        let word = text.split([':', '@', '/']).next()?;
        let mut declared = KINDS.iter();
        let found = declared.find(|declared| declared.words.contains(&word));
        found.map(|declared| declared.kind)
    }

    pub(super) fn default_amount(self, random: &mut Random) -> u32 {
        if self.is_rate() {
            // From one in a thousand to one in ten; each power of ten is equally likely.
            let tenths = random.below(3) as u32;
            1_000 * 10_u32.pow(tenths.min(1)) * (1 + random.below(10) as u32)
        } else {
            1
        }
    }

    pub(super) fn draw(self, random: &mut Random) -> Option<FrameFault> {
        Some(match self {
            Self::Drop => FrameFault::Drop,
            Self::Duplicate => FrameFault::Duplicate,
            Self::Reorder => FrameFault::Reorder(random.within(1, 6) as u32),
            Self::Delay => FrameFault::Delay(random.within(1, 200) as u32),
            Self::Corrupt => FrameFault::Corrupt(random.below(1 << 16) as u32),
            Self::Mark => FrameFault::Mark,
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringside_model::faults::FAULTS;

    #[test]
    fn words_of_a_kind_are_those_of_one_fault_of_the_model() {
        let names: Vec<&str> = FAULTS
            .iter()
            .filter_map(|(usage, _)| usage.split(' ').next())
            .collect();
        for declared in KINDS {
            assert_eq!(declared.kind.name(), declared.name);
            for word in declared.words {
                assert!(names.contains(word) || *word == "clock-jump", "{word}");
                let claims = KINDS.iter().filter(|other| other.words.contains(word));
                assert_eq!(claims.count(), 1, "{word}");
            }
        }
    }

    /// Faults of the model that no run has: those of the bring-up and of a port without a module,
    /// and asynchronous events without their cause. Tests of the driver have them.
    const NOT_DRAWN: [&str; 10] = [
        "module-absent",
        "lldp-agent",
        "reset-never-ends",
        "firmware-never-ready",
        "protocol-engine-status",
        "no-package",
        "flash-package",
        "control-queue-creation-fails",
        "control-queue-creation-silent",
        "engine-event",
    ];

    #[test]
    fn every_fault_of_the_model_has_a_kind_or_is_left_out_by_name() {
        for (usage, _) in FAULTS {
            let name = usage.split(' ').next().unwrap();
            let of_a_kind = KINDS.iter().any(|kind| kind.words.contains(&name));
            assert!(of_a_kind != NOT_DRAWN.contains(&name), "{name}");
        }
    }

    #[test]
    fn a_former_name_is_read() {
        for kind in FaultKind::all() {
            assert_eq!(FaultKind::named(kind.name()), Some(kind));
        }
        let stall = FaultKind::named("engine-stall");
        assert_eq!(stall, Some(FaultKind::EngineStall));
        assert_eq!(FaultKind::named("stall"), None);
    }

    #[test]
    fn every_kind_is_documented() {
        let document = include_str!("../../../docs/simulation.md");
        for kind in FaultKind::all() {
            let name = format!("`{}`", kind.name());
            assert!(document.contains(&name), "{name}");
        }
    }
}
