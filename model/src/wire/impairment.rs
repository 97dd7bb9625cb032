//! Faults of a wire, chosen by seed so that a run can be repeated.

use super::fate::{FrameFate, Script};
use super::message::HEADER_BYTES;
use crate::choice::Choice;
use crate::faults::Fault;
use ringside_bus::Instant;
use std::collections::BTreeMap;
use std::time::Duration;

/// Frames that may be under way for longer than others; more are not held.
const MAX_HELD: usize = 4096;

/// The longest wait of an overtaken frame on a silent wire.
const OVERTAKEN_FOR: Duration = Duration::from_micros(100);

fn strikes(choice: &mut Option<Choice>) -> bool {
    choice.as_mut().is_some_and(Choice::strikes)
}

/// The fate of one frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Fate {
    pub(super) lost: bool,
    pub(super) twice: bool,
    pub(super) damaged: bool,
    pub(super) marked: bool,
    /// Frames that go first.
    pub(super) overtaken_by: Option<u32>,
    pub(super) later_by: Option<Duration>,
    /// The bit that changes, if the script of the wire has chosen one.
    pub(super) damaged_bit: Option<u32>,
    pub(super) forged_bit: Option<u32>,
}

impl From<FrameFate> for Fate {
    fn from(fate: FrameFate) -> Self {
        Self {
            lost: fate.lost,
            twice: fate.twice,
            damaged: fate.damaged_bit.is_some(),
            marked: fate.marked,
            overtaken_by: fate.overtaken_by,
            later_by: fate.later_by,
            damaged_bit: fate.damaged_bit,
            forged_bit: fate.forged_bit,
        }
    }
}

/// A script, and the number of the next frame.
struct Scripted {
    script: Script,
    next: u64,
}

impl std::fmt::Debug for Scripted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Scripted")
            .field("next", &self.next)
            .finish()
    }
}

/// A frame that waits for its time.
#[derive(Debug)]
struct Held {
    from: usize,
    bytes: Vec<u8>,
    due: Instant,
    /// The number of frames that still overtake it, if it waits for that.
    behind: Option<u32>,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Impairment {
    drop: Option<Choice>,
    duplicate: Option<Choice>,
    reorder: Option<(Choice, u32)>,
    delay: Option<(Choice, Duration)>,
    corrupt: Option<Choice>,
    mark: Option<Choice>,
    scripted: Option<Scripted>,
    held: BTreeMap<u64, Held>,
    next_held: u64,
    /// The faults as they were injected, one of each kind.
    active: Vec<Fault>,
}

impl Impairment {
    /// Puts a fault on the wire, in place of one of its kind; faults of a function are ignored.
    pub(super) fn inject(&mut self, fault: Fault) {
        self.end(fault);
        let chosen = match fault {
            Fault::DropFrames { per_million, seed } => {
                self.drop = Choice::new(per_million, seed);
                per_million
            }
            Fault::DuplicateFrames { per_million, seed } => {
                self.duplicate = Choice::new(per_million, seed);
                per_million
            }
            Fault::ReorderFrames {
                per_million,
                seed,
                behind,
            } => {
                let choice = Choice::new(per_million, seed);
                self.reorder = choice.map(|choice| (choice, behind.max(1)));
                per_million
            }
            Fault::DelayFrames {
                per_million,
                seed,
                by,
            } => {
                self.delay = Choice::new(per_million, seed).map(|choice| (choice, by));
                per_million
            }
            Fault::CorruptFrames { per_million, seed } => {
                self.corrupt = Choice::new(per_million, seed);
                per_million
            }
            Fault::MarkFrames { per_million, seed } => {
                self.mark = Choice::new(per_million, seed);
                per_million
            }
            _ => return,
        };
        if chosen > 0 {
            self.active.push(fault);
        }
    }

    /// Ends the fault of this kind.
    pub(super) fn end(&mut self, fault: Fault) {
        match fault {
            Fault::DropFrames { .. } => self.drop = None,
            Fault::DuplicateFrames { .. } => self.duplicate = None,
            Fault::ReorderFrames { .. } => self.reorder = None,
            Fault::DelayFrames { .. } => self.delay = None,
            Fault::CorruptFrames { .. } => self.corrupt = None,
            Fault::MarkFrames { .. } => self.mark = None,
            _ => {}
        }
        let kind = std::mem::discriminant(&fault);
        self.active
            .retain(|known| std::mem::discriminant(known) != kind);
    }

    /// Ends all faults; held frames arrive when they are due.
    pub(super) fn clear(&mut self) {
        let held = std::mem::take(&mut self.held);
        *self = Self {
            held,
            scripted: self.scripted.take(),
            next_held: self.next_held,
            ..Self::default()
        };
    }

    /// Lets `script` decide what happens to each frame, in place of all faults; `None` ends that.
    pub(super) fn script(&mut self, script: Option<Script>) {
        self.scripted = script.map(|script| Scripted { script, next: 0 });
    }

    /// The faults that were put on the wire and not ended.
    pub(super) fn active(&self) -> &[Fault] {
        &self.active
    }

    /// True if a fault may affect frames, or frames are held back.
    pub(super) fn is_any(&self) -> bool {
        let plain = [&self.drop, &self.duplicate, &self.corrupt, &self.mark];
        plain.into_iter().any(Option::is_some)
            || self.reorder.is_some()
            || self.delay.is_some()
            || self.scripted.is_some()
            || !self.held.is_empty()
    }

    /// The fate of the next frame. Each kind draws for each frame that is not lost, so that one
    /// kind's choice does not depend on another's.
    pub(super) fn judge(&mut self) -> Fate {
        if let Some(scripted) = &mut self.scripted {
            let number = scripted.next;
            scripted.next += 1;
            return (scripted.script)(number).into();
        }
        if strikes(&mut self.drop) {
            return Fate {
                lost: true,
                ..Fate::default()
            };
        }
        let reorder = self.reorder.as_mut();
        let overtaken = reorder.and_then(|(choice, behind)| choice.strikes().then_some(*behind));
        let delay = self.delay.as_mut();
        let later = delay.and_then(|(choice, by)| choice.strikes().then_some(*by));
        Fate {
            lost: false,
            twice: strikes(&mut self.duplicate),
            damaged: strikes(&mut self.corrupt),
            marked: strikes(&mut self.mark),
            overtaken_by: overtaken,
            later_by: later,
            ..Fate::default()
        }
    }

    /// Changes one bit behind the addresses, which a switch needs whole to be of any use.
    pub(super) fn damage(&mut self, bytes: &mut [u8], fate: Fate) {
        let Some((_, body)) = bytes.split_at_mut_checked(HEADER_BYTES) else {
            return;
        };
        if body.is_empty() {
            return;
        }
        let bits = body.len() * 8;
        let bit = match (fate.damaged_bit, &mut self.corrupt) {
            (Some(bit), _) => bit as usize % bits,
            (None, Some(choice)) => choice.below(bits),
            (None, None) => return,
        };
        if let Some(byte) = body.get_mut(bit / 8) {
            *byte ^= 1 << (bit % 8);
        }
    }

    /// Keeps a frame back; gives it back if there is no room for more or nothing to wait for.
    pub(super) fn hold(
        &mut self,
        from: usize,
        bytes: Vec<u8>,
        fate: Fate,
        now: Instant,
    ) -> Option<Vec<u8>> {
        let wait = match (fate.overtaken_by, fate.later_by) {
            (None, None) => return Some(bytes),
            (Some(_), None) => OVERTAKEN_FOR,
            (_, Some(by)) => by,
        };
        if self.held.len() >= MAX_HELD {
            return Some(bytes);
        }
        let held = Held {
            from,
            bytes,
            due: now.plus(wait),
            // A frame that is late anyway waits for its time only.
            behind: fate.overtaken_by.filter(|_| fate.later_by.is_none()),
        };
        self.held.insert(self.next_held, held);
        self.next_held += 1;
        None
    }

    /// Notes that a frame has passed: those that it has overtaken wait for one less.
    pub(super) fn passed(&mut self) {
        for held in self.held.values_mut() {
            held.behind = held.behind.map(|behind| behind.saturating_sub(1));
        }
    }

    /// A frame whose time has come: where from, and its bytes.
    pub(super) fn release(&mut self, now: Instant) -> Option<(usize, Vec<u8>)> {
        let mut all = self.held.iter();
        let (number, _) = all.find(|(_, held)| held.due <= now || held.behind == Some(0))?;
        let number = *number;
        let held = self.held.remove(&number)?;
        Some((held.from, held.bytes))
    }

    /// The moment at which the next held frame is due.
    pub(super) fn next_timer(&self) -> Option<Instant> {
        self.held.values().map(|held| held.due).min()
    }
}
