//! The oracle's model of memory: the expected value of every byte of every region.
//!
//! A region is divided into slots with gaps between them that no request may access. A request that
//! writes to a slot owns it until the request has ended; a request that reads from one shares it
//! with other readers. So each byte has one expected value at any time, or two while it is being
//! written.

use crate::random::Random;
use crate::rule::{Problem, Rule};
use ringside_pmd::rdma::{Fragment, MemoryRegion, RemoteAddress};
use std::ops::Range;

/// The purpose of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// All accesses are permitted.
    Open,
    /// Like [`Purpose::Open`], with addresses from zero.
    ZeroBased,
    /// Peers may only read.
    ReadOnly,
    /// Memory for receives of its own side; no access for peers.
    Receives,
}

/// The possible states of a slot.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Pending {
    /// These bytes are being written, at this place of the region.
    Write { at: usize, bytes: Vec<u8> },
    /// Any bytes may be written here.
    Anything(Range<usize>),
}

#[derive(Debug)]
struct Slot {
    range: Range<usize>,
    readers: u32,
    taken: bool,
    pending: Option<Pending>,
}

/// A region and its expected content.
#[derive(Debug)]
pub(crate) struct Arena {
    pub(crate) purpose: Purpose,
    /// It is memory of the application, not of the device's pool.
    pub(crate) is_own: bool,
    /// `None` only while it is being reregistered.
    pub(crate) region: Option<MemoryRegion>,
    picture: Vec<u8>,
    slots: Vec<Slot>,
}

/// The use of a slot; returned to [`Memory`] when it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Claim {
    pub(crate) side: usize,
    pub(crate) arena: usize,
    slot: usize,
    alone: bool,
}

/// Bytes between slots.
const GAP: usize = 64;

/// Sizes of the slots of a region. There are enough slots for all receives that can be outstanding
/// at the same time; otherwise a connection without receives would wait for memory that other
/// connections hold.
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
    /// Makes the expected content of a region, which is filled with random bytes.
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
            is_own: false,
            region: Some(region),
            picture,
            slots,
        })
    }

    pub(crate) fn is_idle(&self) -> bool {
        let mut slots = self.slots.iter();
        slots.all(|slot| slot.readers == 0 && !slot.taken)
    }

    /// No writes are in progress any more: the current content of slots that may have been written
    /// is accepted.
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

    /// Claims a slot for `bytes` bytes in a region of one of these purposes: exclusively, or for
    /// reading.
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

    /// Returns new bytes to send. If the slot has another reader already, returns its content.
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

    /// Returns the expected content of the slot.
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

    /// Returns the address of the slot's first byte for a peer.
    pub(crate) fn remote(&self, claim: Claim) -> Option<RemoteAddress> {
        let region = self.arena(claim)?.region.as_ref()?;
        Some(region.remote().at(self.start(claim) as u64))
    }

    /// Expects these bytes at the slot's start from now on.
    pub(crate) fn expect(&mut self, claim: Claim, bytes: Vec<u8>) {
        if let Some(slot) = self.slot_mut(claim) {
            let at = slot.range.start;
            slot.pending = Some(Pending::Write { at, bytes });
        }
    }

    /// Expects any bytes at the slot's start from now on.
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

    /// Ends a successful use: checks that the written bytes are there, and that no other byte
    /// changed.
    pub(crate) fn done(&mut self, claim: Claim, what: &str) -> Result<(), Problem> {
        match self.release(claim) {
            Some(Pending::Write { at, bytes }) => {
                self.paint(claim, at, &bytes);
                self.compare_slot(claim, Rule::BytesIntact, what)
            }
            Some(Pending::Anything(_)) | None => Ok(()),
        }
    }

    /// A message has been placed in the slot, at this offset.
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

    /// As above, if another message may have been written before: after this one any bytes are
    /// accepted.
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

    /// The present bytes of the slot, right or wrong.
    pub(crate) fn look(&self, claim: Claim, length: usize) -> Vec<u8> {
        let start = self.start(claim);
        let arena = self.arena(claim);
        arena
            .map(|arena| arena.actual(&(start..start + length)))
            .unwrap_or_default()
    }

    /// Accepts the present content of the slot's first bytes as right.
    pub(crate) fn adopt(&mut self, claim: Claim, length: usize) {
        let actual = self.look(claim, length);
        self.release(claim);
        let at = self.start(claim);
        self.paint(claim, at, &actual);
    }

    /// The use has ended with an unknown result: each byte is the old or the new one.
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

    /// Compares every byte that no request may be writing.
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
    /// The first byte that differs from its expected value.
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
