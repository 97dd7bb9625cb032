//! The device's side of DMA: the memory behind an address on the bus.
//!
//! A model has one for each function. It is the IOMMU of the software machine: an access to an
//! unmapped address, or a write to a read-only mapping, gives a [`DmaFault`] and touches no memory.

use crate::Iova;
use crate::memory::{DmaAccess, Memory, Words};
use std::cell::{Cell, RefCell};
use std::ops::Range;

pub use crate::refusal::{Direction, DmaFault, Refusal, RefusedAccess};

/// The most refused accesses that are kept until they are taken; more may be refused.
const MAX_REFUSED: usize = 64;

/// Bytes of a refused write that are kept.
const MAX_WRITTEN: usize = 8;

#[derive(Clone)]
struct Region {
    start: u64,
    end: u64,
    memory: Memory,
    offset: usize,
    access: DmaAccess,
}

/// The mappings of one function, sorted by address.
#[derive(Default)]
pub struct DmaSpace {
    regions: Vec<Region>,
    last: Cell<usize>,
    generation: u64,
    bus_master: bool,
    /// bus mastering is on and no refusal is in force: accesses need no check
    open: bool,
    /// those in force, each with the number of accesses that it has refused
    refusals: Vec<(Refusal, Cell<u64>)>,
    refused: RefCell<Vec<RefusedAccess>>,
}

impl DmaSpace {
    /// Makes an empty space with bus mastering off.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Switches bus mastering, as bit 2 of the PCI command register does.
    pub fn set_bus_master(&mut self, on: bool) {
        if self.bus_master != on {
            self.bus_master = on;
            self.open = on && self.refusals.is_empty();
            self.generation += 1;
        }
    }

    /// Sets the refusals of accesses; an empty slice lifts all. An access that several name is one
    /// of the first that is not used up. A refusal that is already in force keeps its count.
    pub fn set_refusals(&mut self, refusals: &[Refusal]) {
        if self.refusals.iter().map(|(known, _)| known).eq(refusals) {
            return;
        }
        let mut before = std::mem::take(&mut self.refusals);
        self.refusals = refusals
            .iter()
            .map(|&refusal| {
                let known = before.iter().position(|(known, _)| *known == refusal);
                known.map_or_else(|| (refusal, Cell::new(0)), |index| before.remove(index))
            })
            .collect();
        self.open = self.bus_master && refusals.is_empty();
        self.generation += 1;
    }

    /// True while a [`Refusal`] is in force, even if all its accesses are used up.
    #[inline(always)]
    #[must_use]
    pub const fn is_refusing(&self) -> bool {
        !self.refusals.is_empty()
    }

    /// Accesses that the refusals in force have refused so far.
    #[must_use]
    pub fn refusals(&self) -> u64 {
        self.refusals.iter().map(|(_, count)| count.get()).sum()
    }

    /// True if bus mastering is on.
    #[inline(always)]
    #[must_use]
    pub const fn is_bus_master(&self) -> bool {
        self.bus_master
    }

    /// Changes with every mapping and unmapping: a cached [`DmaSpace::words`] is valid only while
    /// this value is unchanged.
    #[inline(always)]
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Maps `length` bytes of `memory` from `offset` at `iova`. False if the range is empty, wraps,
    /// overlaps another, or is outside the memory.
    pub fn map(
        &mut self,
        iova: Iova,
        memory: &Memory,
        offset: usize,
        length: usize,
        access: DmaAccess,
    ) -> bool {
        let inside = offset
            .checked_add(length)
            .is_some_and(|end| end <= memory.length());
        let Some(end) = iova.0.checked_add(length as u64) else {
            return false;
        };
        let at = self.regions.partition_point(|region| region.start < end);
        let free = at == 0 || self.regions[at - 1].end <= iova.0;
        if length == 0 || !inside || !free {
            return false;
        }
        let region = Region {
            start: iova.0,
            end,
            memory: memory.clone(),
            offset,
            access,
        };
        self.regions.insert(at, region);
        self.generation += 1;
        true
    }

    /// Unmaps all mappings inside the range and returns their number. A mapping that is only partly
    /// inside stays (VFIO type 1 v2 refuses to split one).
    pub fn unmap(&mut self, iova: Iova, length: u64) -> usize {
        let end = iova.0.saturating_add(length);
        let before = self.regions.len();
        self.regions
            .retain(|region| region.start < iova.0 || region.end > end);
        self.generation += 1;
        self.last.set(0);
        before - self.regions.len()
    }

    /// Mapped ranges: first address and bytes.
    pub fn mappings(&self) -> impl Iterator<Item = (Iova, u64)> + '_ {
        self.regions
            .iter()
            .map(|region| (Iova(region.start), region.end - region.start))
    }

    /// Checks an access against bus mastering and the refusals. `None` stands for a view, which may
    /// read and write.
    #[cold]
    fn pass(
        &self,
        iova: Iova,
        length: usize,
        direction: Option<Direction>,
    ) -> Result<(), DmaFault> {
        if !self.bus_master {
            return Err(DmaFault::BusMasterOff { iova });
        }
        let refuses = |(refusal, count): &&(Refusal, Cell<u64>)| {
            let meant = match (refusal.direction, direction) {
                (Some(refused), Some(asked)) => refused == asked,
                _ => true,
            };
            let spent = refusal
                .accesses
                .is_some_and(|accesses| count.get() >= accesses);
            meant && !spent && refusal.touches(iova, length)
        };
        let Some((refusal, count)) = self.refusals.iter().find(refuses) else {
            return Ok(());
        };
        count.set(count.get() + 1);
        Err(DmaFault::Refused {
            iova,
            length: length as u64,
            direction: direction.or(refusal.direction).unwrap_or(Direction::Read),
        })
    }

    #[inline]
    fn find(&self, iova: Iova, length: usize) -> Result<(&Region, usize), DmaFault> {
        if !self.open {
            self.pass(iova, length, Some(Direction::Read))?;
        }
        self.locate(iova, length)
    }

    #[inline]
    fn locate(&self, iova: Iova, length: usize) -> Result<(&Region, usize), DmaFault> {
        let fault = DmaFault::NotMapped {
            iova,
            length: length as u64,
        };
        let end = iova.0.checked_add(length as u64).ok_or(fault)?;
        let region = match self.regions.get(self.last.get()) {
            Some(region) if region.start <= iova.0 && end <= region.end => region,
            _ => {
                let after = self
                    .regions
                    .partition_point(|region| region.start <= iova.0);
                let index = after.checked_sub(1).ok_or(fault)?;
                let region = self.regions.get(index).ok_or(fault)?;
                if end > region.end {
                    return Err(fault);
                }
                self.last.set(index);
                region
            }
        };
        Ok((region, region.offset + (iova.0 - region.start) as usize))
    }

    #[inline]
    fn find_writable(&self, iova: Iova, length: usize) -> Result<(&Region, usize), DmaFault> {
        if !self.open {
            self.pass(iova, length, Some(Direction::Write))?;
        }
        self.locate_writable(iova, length)
    }

    #[inline]
    fn locate_writable(&self, iova: Iova, length: usize) -> Result<(&Region, usize), DmaFault> {
        let found = self.locate(iova, length)?;
        if found.0.access == DmaAccess::Read {
            return Err(DmaFault::ReadOnly {
                iova,
                length: length as u64,
            });
        }
        Ok(found)
    }

    /// Calls `each` with the parts of a range that several mappings hold together: first address
    /// and bytes before it. On a bus only the address counts, not the number of mappings.
    #[cold]
    fn each_mapping(
        &self,
        iova: Iova,
        length: usize,
        mut each: impl FnMut(Iova, Range<usize>) -> Result<(), DmaFault>,
    ) -> Result<(), DmaFault> {
        let mut done = 0;
        while done < length {
            let at = iova.add(done as u64);
            let (region, _) = self.locate(at, 1)?;
            let here = (region.end - at.0).min((length - done) as u64) as usize;
            each(at, done..done + here)?;
            done += here;
        }
        Ok(())
    }

    /// Checks that a range can be accessed, without accessing it.
    pub fn check(&self, iova: Iova, length: usize, access: DmaAccess) -> Result<(), DmaFault> {
        let one = |at, length| match access {
            DmaAccess::Read => self.find(at, length).map(drop),
            DmaAccess::ReadWrite => self.find_writable(at, length).map(drop),
        };
        match one(iova, length) {
            Err(DmaFault::NotMapped { .. }) if length > 1 => {
                self.each_mapping(iova, length, |at, part| one(at, part.len()))
            }
            result => result,
        }
    }

    /// The refused reads and writes since the last call, oldest first; at most 64 are kept.
    /// Accesses while bus mastering is off are not included: they never reach the bus.
    #[must_use]
    pub fn take_refused(&self) -> Vec<RefusedAccess> {
        self.refused.take()
    }

    /// Keeps the data of a refused access that a bus would show. `written` is the data of a write
    /// to `iova`.
    #[cold]
    fn refuse(&self, fault: DmaFault, written: Option<(Iova, &[u8])>) -> DmaFault {
        let (DmaFault::NotMapped { iova, .. } | DmaFault::ReadOnly { iova, .. }) = fault else {
            return fault;
        };
        let mut refused = self.refused.borrow_mut();
        if refused.len() < MAX_REFUSED {
            let written = written.map(|(start, bytes)| {
                let skip = usize::try_from(iova.0.saturating_sub(start.0)).unwrap_or(usize::MAX);
                let rest = bytes.get(skip..).unwrap_or(&[]);
                rest.iter().take(MAX_WRITTEN).copied().collect()
            });
            refused.push(RefusedAccess { iova, written });
        }
        fault
    }

    /// DMA read.
    pub fn read(&self, iova: Iova, into: &mut [u8]) -> Result<(), DmaFault> {
        let fault = DmaFault::NotMapped {
            iova,
            length: into.len() as u64,
        };
        match self.find(iova, into.len()) {
            Ok((region, offset)) if region.memory.read(offset, into) => Ok(()),
            Err(DmaFault::NotMapped { .. }) if into.len() > 1 => {
                let checked = self.check(iova, into.len(), DmaAccess::Read);
                checked.map_err(|fault| self.refuse(fault, None))?;
                self.each_mapping(iova, into.len(), |at, part| {
                    self.read(at, into.get_mut(part).ok_or(fault)?)
                })
            }
            Ok((region, _)) => Err(gone(&region.memory, iova, into.len(), Direction::Read)),
            Err(fault) => Err(self.refuse(fault, None)),
        }
    }

    /// Reads what lies in one mapping. False where a check of [`DmaSpace::read`] might fail or
    /// leave a trace, which that call then does; nothing has happened.
    #[inline]
    #[must_use]
    pub fn read_plainly(&self, iova: Iova, into: &mut [u8]) -> bool {
        self.open
            && self
                .locate(iova, into.len())
                .is_ok_and(|(region, offset)| region.memory.read(offset, into))
    }

    /// The same for [`DmaSpace::write`].
    #[inline]
    #[must_use]
    pub fn write_plainly(&self, iova: Iova, from: &[u8]) -> bool {
        self.open
            && self
                .locate_writable(iova, from.len())
                .is_ok_and(|(region, offset)| region.memory.write(offset, from))
    }

    /// The most bytes that [`Self::copy_plainly`] copies.
    pub const MAX_PLAIN_COPY: usize = Memory::MAX_WHOLE_COPY;

    /// Copies a few bytes that lie in one mapping of `from` to one of `to`, all read before the
    /// first is written. False where a check of [`DmaSpace::read`] or [`DmaSpace::write`] might
    /// fail or leave a trace, or where the bytes do not move within this process or are more than
    /// [`Self::MAX_PLAIN_COPY`]; nothing has happened then.
    #[inline]
    #[must_use]
    pub fn copy_plainly(from: &Self, at: Iova, to: &Self, to_at: Iova, length: usize) -> bool {
        if !from.open || !to.open {
            return false;
        }
        let (Ok(source), Ok(target)) = (from.locate(at, length), to.locate_writable(to_at, length))
        else {
            return false;
        };
        Memory::copy_whole(
            &source.0.memory,
            source.1,
            &target.0.memory,
            target.1,
            length,
        )
    }

    /// DMA write.
    pub fn write(&self, iova: Iova, from: &[u8]) -> Result<(), DmaFault> {
        let fault = DmaFault::NotMapped {
            iova,
            length: from.len() as u64,
        };
        match self.find_writable(iova, from.len()) {
            Ok((region, offset)) if region.memory.write(offset, from) => Ok(()),
            Err(DmaFault::NotMapped { .. }) if from.len() > 1 => {
                let checked = self.check(iova, from.len(), DmaAccess::ReadWrite);
                checked.map_err(|fault| self.refuse(fault, Some((iova, from))))?;
                self.each_mapping(iova, from.len(), |at, part| {
                    self.write(at, from.get(part).ok_or(fault)?)
                })
            }
            Ok((region, _)) => Err(gone(&region.memory, iova, from.len(), Direction::Write)),
            Err(fault) => Err(self.refuse(fault, Some((iova, from)))),
        }
    }

    /// Copies from one function's memory to another's (or its own), without an intermediate buffer.
    pub fn copy(
        from: &Self,
        at: Iova,
        to: &Self,
        to_at: Iova,
        length: usize,
    ) -> Result<(), DmaFault> {
        let found = from.find(at, length).and_then(|source| {
            let target = to.find_writable(to_at, length)?;
            Ok((source, target))
        });
        let ((source, offset), (target, target_offset)) = match found {
            Ok(found) => found,
            Err(DmaFault::NotMapped { .. }) if length > 1 => {
                Self::check_copy(from, at, to, to_at, length)?;
                return from.each_mapping(at, length, |at, part| {
                    to.each_mapping(to_at.add(part.start as u64), part.len(), |to_at, piece| {
                        let at = at.add(piece.start as u64);
                        Self::copy(from, at, to, to_at, piece.len())
                    })
                });
            }
            Err(fault @ DmaFault::Refused { .. }) => return Err(fault),
            Err(fault) => {
                Self::check_copy(from, at, to, to_at, length)?;
                return Err(fault);
            }
        };
        let copied = Memory::copy(
            &source.memory,
            offset,
            &target.memory,
            target_offset,
            length,
        );
        match copied {
            true => Ok(()),
            false if source.memory.is_readable(offset, length) => {
                Err(gone(&target.memory, to_at, length, Direction::Write))
            }
            false => Err(gone(&source.memory, at, length, Direction::Read)),
        }
    }

    /// Checks both ends of a copy. A refused access is kept at the end that refuses it.
    #[cold]
    fn check_copy(
        from: &Self,
        at: Iova,
        to: &Self,
        to_at: Iova,
        length: usize,
    ) -> Result<(), DmaFault> {
        let readable = from.check(at, length, DmaAccess::Read);
        readable.map_err(|fault| from.refuse(fault, None))?;
        to.check(to_at, length, DmaAccess::ReadWrite)
            .map_err(|fault| {
                let (DmaFault::NotMapped { iova, .. } | DmaFault::ReadOnly { iova, .. }) = fault
                else {
                    return fault;
                };
                let skip = iova.0.saturating_sub(to_at.0);
                let rest = (length as u64).saturating_sub(skip).min(MAX_WRITTEN as u64) as usize;
                let mut first = [0; MAX_WRITTEN];
                let bytes = first.get_mut(..rest).unwrap_or(&mut []);
                match from.read(at.add(skip), bytes) {
                    Ok(()) => to.refuse(fault, Some((iova, bytes))),
                    Err(_) => fault,
                }
            })
    }

    /// A view of a structure made of whole words; `length` in bytes.
    ///
    /// It bypasses the look-up, so take a new view when [`DmaSpace::generation`] has changed.
    pub fn words(&self, iova: Iova, length: usize) -> Result<Words, DmaFault> {
        self.view(iova, length, None)
    }

    /// As [`DmaSpace::words`], for a structure that the device only reads or only writes: a
    /// [`Refusal`] of the other direction does not apply to it.
    pub fn view(
        &self,
        iova: Iova,
        length: usize,
        direction: Option<Direction>,
    ) -> Result<Words, DmaFault> {
        if !self.open {
            self.pass(iova, length, direction)?;
        }
        let (region, offset) = self.locate_writable(iova, length)?;
        let fault = DmaFault::Misaligned { iova, alignment: 8 };
        region.memory.words(offset, length).ok_or(fault)
    }

    /// Reads `N` words. The address needs only 4-byte alignment, as some of the card's addresses
    /// have.
    pub fn read_words<const N: usize>(&self, iova: Iova) -> Result<[u64; N], DmaFault> {
        let mut words = [0; N];
        for (index, word) in words.iter_mut().enumerate() {
            let mut bytes = [0; 8];
            self.read(iova.add(index as u64 * 8), &mut bytes)?;
            *word = u64::from_le_bytes(bytes);
        }
        Ok(words)
    }

    /// Writes words in ascending order.
    pub fn write_words(&self, iova: Iova, words: &[u64]) -> Result<(), DmaFault> {
        for (index, word) in words.iter().enumerate() {
            self.write(iova.add(index as u64 * 8), &word.to_le_bytes())?;
        }
        Ok(())
    }
}

/// The reason why mapped memory could not be read or written.
#[cold]
fn gone(memory: &Memory, iova: Iova, length: usize, direction: Direction) -> DmaFault {
    let length = length as u64;
    if !memory.is_positional() {
        return DmaFault::NotMapped { iova, length };
    }
    DmaFault::Gone {
        iova,
        length,
        direction,
        owner_ended: memory.owner_has_ended(),
    }
}

#[cfg(test)]
mod tests;
