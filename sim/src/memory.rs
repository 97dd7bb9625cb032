//! The oracle's picture of memory: what every byte of every region must be.
//!
//! A region is cut into slots with gaps between them that nobody is ever let into. Whoever writes
//! to a slot has it alone until the request has ended; whoever reads from one shares it with other
//! readers. So each byte has one right value at all times, or two while it is being written.

use crate::random::Random;
use crate::rule::{Problem, Rule};
use ringside_pmd::rdma::{Fragment, MemoryRegion, RemoteAddress};
use std::ops::Range;

/// The purpose of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Everybody may do everything.
    Open,
    /// The same, with addresses from zero.
    ZeroBased,
    /// Peers may only read.
    ReadOnly,
    /// Receives of its own side; nothing for peers.
    Receives,
}

/// The possible states of a slot.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Pending {
    /// These bytes are being written, at this place of the region.
    Write { at: usize, bytes: Vec<u8> },
    /// Anything may be written here.
    Anything(Range<usize>),
}

#[derive(Debug)]
struct Slot {
    range: Range<usize>,
    readers: u32,
    taken: bool,
    pending: Option<Pending>,
}

/// A region and its picture.
#[derive(Debug)]
pub(crate) struct Arena {
    pub(crate) purpose: Purpose,
    /// `None` only while it is registered anew.
    pub(crate) region: Option<MemoryRegion>,
    picture: Vec<u8>,
    slots: Vec<Slot>,
}

/// The use of a slot; given back to [`Memory`] when it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Claim {
    pub(crate) side: usize,
    pub(crate) arena: usize,
    slot: usize,
    alone: bool,
}

/// Bytes between slots.
const GAP: usize = 64;

/// Sizes of the slots of a region. Those for receives have room for all that can be outstanding at
/// a time: else a connection whose receives are short waits for memory that others keep.
fn slot_sizes(purpose: Purpose, longest: usize) -> Vec<usize> {
    let (small, large) = match purpose {
        Purpose::Receives => (96, 12),
        _ => (16, 6),
    };
    let mut sizes = vec![256; small];
    sizes.extend(std::iter::repeat_n(5_000, large));
    if longest > 5_000 && purpose != Purpose::Receives {
        sizes.push(longest);
    }
    sizes
}

/// Bytes that a region of this purpose needs.
pub(crate) fn arena_bytes(purpose: Purpose, longest: usize) -> usize {
    GAP + slot_sizes(purpose, longest)
        .iter()
        .map(|size| size + GAP)
        .sum::<usize>()
}

impl Arena {
    /// The picture of a region, which is filled with noise.
    pub(crate) fn new(
        (purpose, longest): (Purpose, usize),
        region: MemoryRegion,
        random: &mut Random,
    ) -> Option<Self> {
        let picture = random.bytes(region.length());
        if !region.write(0, &picture) {
            return None;
        }
        let mut at = GAP;
        let mut slots = Vec::new();
        for size in slot_sizes(purpose, longest) {
            slots.push(Slot {
                range: at..at + size,
                readers: 0,
                taken: false,
                pending: None,
            });
            at += size + GAP;
        }
        Some(Self {
            purpose,
            region: Some(region),
            picture,
            slots,
        })
    }

    pub(crate) fn is_idle(&self) -> bool {
        let mut slots = self.slots.iter();
        slots.all(|slot| slot.readers == 0 && !slot.taken)
    }

    /// Nobody writes any more: what may have been written is right.
    pub(crate) fn settle_all(&mut self) {
        let open = self
            .slots
            .iter_mut()
            .filter_map(|slot| match slot.pending.take() {
                Some(Pending::Anything(range)) => Some(range),
                _ => None,
            });
        let open: Vec<Range<usize>> = open.collect();
        for range in open {
            let actual = self.actual(&range);
            if let Some(place) = self.picture.get_mut(range) {
                place.copy_from_slice(&actual);
            }
        }
    }

    fn actual(&self, range: &Range<usize>) -> Vec<u8> {
        let mut bytes = vec![0; range.len()];
        if let Some(region) = &self.region {
            let _ = region.read(range.start, &mut bytes);
        }
        bytes
    }
}

/// All regions of both sides.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    pub(crate) arenas: [Vec<Arena>; 2],
}

impl Memory {
    pub(crate) fn arena(&self, claim: Claim) -> Option<&Arena> {
        self.arenas.get(claim.side)?.get(claim.arena)
    }

    fn slot(&self, claim: Claim) -> Option<&Slot> {
        self.arena(claim)?.slots.get(claim.slot)
    }

    fn slot_mut(&mut self, claim: Claim) -> Option<&mut Slot> {
        let arena = self.arenas.get_mut(claim.side)?.get_mut(claim.arena)?;
        arena.slots.get_mut(claim.slot)
    }

    /// A slot for that many bytes in a region of one of these purposes: alone, or for reading.
    pub(crate) fn claim(
        &mut self,
        side: usize,
        purposes: &[Purpose],
        (length, alone): (usize, bool),
        random: &mut Random,
    ) -> Option<Claim> {
        let arenas = self.arenas.get_mut(side)?;
        let mut found = Vec::new();
        for (number, arena) in arenas.iter().enumerate() {
            if !purposes.contains(&arena.purpose) || arena.region.is_none() {
                continue;
            }
            let fits = |slot: &Slot| {
                let free = !slot.taken && (!alone || slot.readers == 0);
                free && slot.range.len() >= length
            };
            let numbered = arena.slots.iter().enumerate();
            let free = numbered.filter(|(_, slot)| fits(slot));
            found.extend(free.map(|(slot, _)| (number, slot)));
        }
        // Small messages leave the large slots to others.
        let small: Vec<(usize, usize)> = found
            .iter()
            .copied()
            .filter(|(arena, slot)| {
                let slot = arenas.get(*arena).and_then(|arena| arena.slots.get(*slot));
                slot.is_some_and(|slot| slot.range.len() < 1000)
            })
            .collect();
        let (arena, slot) = random.pick(if small.is_empty() { &found } else { &small })?;
        let claim = Claim {
            side,
            arena,
            slot,
            alone,
        };
        let slot = self.slot_mut(claim)?;
        if alone {
            slot.taken = true;
        } else {
            slot.readers += 1;
        }
        Some(claim)
    }

    /// Bytes of the slot.
    pub(crate) fn capacity(&self, claim: Claim) -> usize {
        self.slot(claim).map_or(0, |slot| slot.range.len())
    }

    /// First byte of the slot in its region.
    pub(crate) fn start(&self, claim: Claim) -> usize {
        self.slot(claim).map_or(0, |slot| slot.range.start)
    }

    /// Fresh bytes to send, unless somebody reads the slot already; what is in it then.
    pub(crate) fn source(&mut self, claim: Claim, length: usize, random: &mut Random) -> Vec<u8> {
        let alone = self.slot(claim).is_some_and(|slot| slot.readers == 1);
        let start = self.start(claim);
        let fresh = random.bytes(length);
        let arena = self
            .arenas
            .get_mut(claim.side)
            .and_then(|arenas| arenas.get_mut(claim.arena));
        let Some(arena) = arena else {
            return fresh;
        };
        let Some(place) = arena.picture.get_mut(start..start + length) else {
            return fresh;
        };
        if alone
            && arena
                .region
                .as_ref()
                .is_some_and(|region| region.write(start, &fresh))
        {
            place.copy_from_slice(&fresh);
        }
        place.to_vec()
    }

    /// The rightful content of the slot.
    pub(crate) fn content(&self, claim: Claim, length: usize) -> Vec<u8> {
        let start = self.start(claim);
        let arena = self.arena(claim);
        let bytes = arena.and_then(|arena| arena.picture.get(start..start + length));
        bytes.map(<[u8]>::to_vec).unwrap_or_default()
    }

    /// Pieces of the slot's first bytes, for a request.
    pub(crate) fn fragments(&self, claim: Claim, length: usize, pieces: usize) -> Vec<Fragment> {
        let Some(region) = self.arena(claim).and_then(|arena| arena.region.as_ref()) else {
            return Vec::new();
        };
        let start = self.start(claim);
        let pieces = pieces.clamp(1, length.max(1));
        let cut = |number: usize| start + length * number / pieces;
        let all = (0..pieces).filter_map(|number| region.slice(cut(number)..cut(number + 1)).ok());
        all.collect()
    }

    /// The address of the slot's first byte for a peer.
    pub(crate) fn remote(&self, claim: Claim) -> Option<RemoteAddress> {
        let region = self.arena(claim)?.region.as_ref()?;
        Some(region.remote().at(self.start(claim) as u64))
    }

    /// From now on these bytes may appear at the slot's start.
    pub(crate) fn expect(&mut self, claim: Claim, bytes: Vec<u8>) {
        if let Some(slot) = self.slot_mut(claim) {
            let at = slot.range.start;
            slot.pending = Some(Pending::Write { at, bytes });
        }
    }

    /// From now on anything may appear in the slot's first bytes.
    pub(crate) fn expect_anything(&mut self, claim: Claim, length: usize) {
        if let Some(slot) = self.slot_mut(claim) {
            let start = slot.range.start;
            slot.pending = Some(Pending::Anything(start..start + length));
        }
    }

    fn release(&mut self, claim: Claim) -> Option<Pending> {
        let slot = self.slot_mut(claim)?;
        if claim.alone {
            slot.taken = false;
            slot.pending.take()
        } else {
            slot.readers = slot.readers.saturating_sub(1);
            None
        }
    }

    /// The use has ended well: what was to be written is there, and nothing else.
    pub(crate) fn done(&mut self, claim: Claim, what: &str) -> Result<(), Problem> {
        match self.release(claim) {
            Some(Pending::Write { at, bytes }) => {
                self.paint(claim, at, &bytes);
                self.compare_slot(claim, Rule::BytesIntact, what)
            }
            Some(Pending::Anything(_)) | None => Ok(()),
        }
    }

    /// A message has come into the slot, at this place in it.
    pub(crate) fn received(
        &mut self,
        claim: Claim,
        (offset, bytes): (usize, &[u8]),
        what: &str,
    ) -> Result<(), Problem> {
        self.release(claim);
        let at = self.start(claim) + offset;
        self.paint(claim, at, bytes);
        self.compare_slot(claim, Rule::BytesIntact, what)
    }

    /// The same where another message may have been written before: behind this one anything may be.
    pub(crate) fn received_over(
        &mut self,
        claim: Claim,
        length: usize,
        bytes: &[u8],
        what: &str,
    ) -> Result<(), Problem> {
        let actual = self.look(claim, length);
        self.adopt(claim, length);
        if actual.starts_with(bytes) {
            return self.compare_slot(claim, Rule::OutsideUntouched, what);
        }
        Err(Problem::new(
            Rule::BytesIntact,
            format!("{what}: they are others"),
        ))
    }

    /// The bytes that are in the slot, right or not.
    pub(crate) fn look(&self, claim: Claim, length: usize) -> Vec<u8> {
        let start = self.start(claim);
        let arena = self.arena(claim);
        arena
            .map(|arena| arena.actual(&(start..start + length)))
            .unwrap_or_default()
    }

    /// Takes what is in the slot's first bytes for right.
    pub(crate) fn adopt(&mut self, claim: Claim, length: usize) {
        let actual = self.look(claim, length);
        self.release(claim);
        let at = self.start(claim);
        self.paint(claim, at, &actual);
    }

    /// The use has ended and nobody knows how far it came: each byte is the old or the new one.
    pub(crate) fn unknown(&mut self, claim: Claim, what: &str) -> Result<(), Problem> {
        let pending = self.release(claim);
        let (range, new) = match &pending {
            Some(Pending::Write { at, bytes }) => (*at..at + bytes.len(), Some(bytes)),
            Some(Pending::Anything(range)) => (range.clone(), None),
            None => return Ok(()),
        };
        let Some(arena) = self.arena(claim) else {
            return Ok(());
        };
        let actual = arena.actual(&range);
        let old = arena.picture.get(range.clone()).unwrap_or(&[]);
        if let Some(new) = new {
            let wrong = actual
                .iter()
                .zip(old)
                .zip(new)
                .position(|((is, old), new)| is != old && is != new);
            if let Some(place) = wrong {
                let at = range.start + place;
                return Err(Problem::new(
                    Rule::BytesIntact,
                    format!(
                        "{what}: byte {at} of {} is neither the old nor the new one",
                        name(claim)
                    ),
                ));
            }
        }
        self.paint(claim, range.start, &actual);
        self.compare_slot(claim, Rule::OutsideUntouched, what)
    }

    fn paint(&mut self, claim: Claim, at: usize, bytes: &[u8]) {
        let arena = self
            .arenas
            .get_mut(claim.side)
            .and_then(|arenas| arenas.get_mut(claim.arena));
        let place = arena.and_then(|arena| arena.picture.get_mut(at..at + bytes.len()));
        if let Some(place) = place {
            place.copy_from_slice(bytes);
        }
    }

    fn compare_slot(&self, claim: Claim, rule: Rule, what: &str) -> Result<(), Problem> {
        let (Some(arena), Some(slot)) = (self.arena(claim), self.slot(claim)) else {
            return Ok(());
        };
        let around = slot.range.start - GAP..slot.range.end + GAP;
        let picture = arena.picture.get(around.clone()).unwrap_or(&[]);
        let actual = arena.actual(&around);
        let Some(place) = actual
            .iter()
            .zip(picture)
            .position(|(is, ought)| is != ought)
        else {
            return Ok(());
        };
        let at = around.start + place;
        let inside = slot.range.contains(&at);
        let rule = if inside { rule } else { Rule::OutsideUntouched };
        let wrong = actual
            .iter()
            .zip(picture)
            .filter(|(is, ought)| is != ought)
            .count();
        Err(Problem::new(
            rule,
            format!(
                "{what}: {wrong} wrong bytes in the slot at {} of {}, the first at {at}",
                slot.range.start,
                name(claim)
            ),
        ))
    }

    /// Compares every byte that nobody may be writing.
    pub(crate) fn compare(&self) -> Result<(), Problem> {
        for (side, arenas) in self.arenas.iter().enumerate() {
            for (number, arena) in arenas.iter().enumerate() {
                let Some(at) = arena.first_wrong() else {
                    continue;
                };
                return Err(Problem::new(
                    Rule::OutsideUntouched,
                    format!(
                        "byte {at} of region {number} ({:?}) of side {side} has changed, and no request may write there",
                        arena.purpose
                    ),
                ));
            }
        }
        Ok(())
    }
}

impl Arena {
    /// The first byte that is not as it must be.
    fn first_wrong(&self) -> Option<usize> {
        self.region.as_ref()?;
        let actual = self.actual(&(0..self.picture.len()));
        if actual == self.picture {
            return None;
        }
        let mut wrong = actual
            .iter()
            .zip(&self.picture)
            .enumerate()
            .filter(|(_, (is, ought))| is != ought)
            .map(|(at, _)| at);
        wrong.find(|at| {
            let excused = self.slots.iter().any(|slot| match &slot.pending {
                Some(Pending::Anything(range)) => range.contains(at),
                Some(Pending::Write { at: start, bytes }) => {
                    let new = at.checked_sub(*start).and_then(|place| bytes.get(place));
                    new.is_some() && new == actual.get(*at)
                }
                None => false,
            });
            !excused
        })
    }
}

fn name(claim: Claim) -> String {
    format!("region {} of side {}", claim.arena, claim.side)
}
