//! Disjoint ranges of addresses, each with a value, in the order of their last use.

use std::collections::BTreeMap;
use std::ops::Range;

/// The end of the list.
const NONE: u32 = u32::MAX;

struct Slot<T> {
    range: Range<u64>,
    /// `None`: the slot is free
    value: Option<T>,
    newer: u32,
    older: u32,
}

/// See the module.
pub(super) struct Index<T> {
    by_start: BTreeMap<u64, u32>,
    slots: Vec<Slot<T>>,
    free: Vec<u32>,
    newest: u32,
    oldest: u32,
    bytes: u64,
}

impl<T> Index<T> {
    pub(super) fn new() -> Self {
        Self {
            by_start: BTreeMap::new(),
            slots: Vec::new(),
            free: Vec::new(),
            newest: NONE,
            oldest: NONE,
            bytes: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.by_start.len()
    }

    /// Bytes of all ranges.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The value whose range holds all of `wanted`, which becomes the one used last.
    #[inline]
    pub(super) fn find(&mut self, wanted: &Range<u64>) -> Option<&T> {
        let (_, &at) = self.by_start.range(..=wanted.start).next_back()?;
        let slot = self.slots.get(at as usize)?;
        if wanted.end > slot.range.end {
            return None;
        }
        if at != self.newest {
            self.unlink(at);
            self.link_newest(at);
        }
        self.slots.get(at as usize)?.value.as_ref()
    }

    /// The smallest range that holds `wanted` and every range that shares an address with it.
    pub(super) fn united(&self, wanted: &Range<u64>) -> Range<u64> {
        let mut united = wanted.clone();
        for at in self.overlapping(wanted) {
            if let Some(slot) = self.slots.get(at as usize) {
                united.start = united.start.min(slot.range.start);
                united.end = united.end.max(slot.range.end);
            }
        }
        united
    }

    /// Slots whose range shares an address with `wanted`.
    fn overlapping(&self, wanted: &Range<u64>) -> Vec<u32> {
        let before = self.by_start.range(..wanted.start).next_back();
        let before = before.filter(|(_, at)| {
            let slot = self.slots.get(**at as usize);
            slot.is_some_and(|slot| slot.range.end > wanted.start)
        });
        let inside = self.by_start.range(wanted.start..wanted.end);
        before
            .into_iter()
            .chain(inside)
            .map(|(_, &at)| at)
            .collect()
    }

    /// Takes out what shares an address with `wanted`.
    pub(super) fn remove_overlapping(&mut self, wanted: &Range<u64>) -> Vec<(Range<u64>, T)> {
        let found = self.overlapping(wanted);
        found.into_iter().filter_map(|at| self.remove(at)).collect()
    }

    /// Puts a value in, as the one used last. Nothing in the index may share an address with it.
    pub(super) fn insert(&mut self, range: Range<u64>, value: T) {
        debug_assert!(self.overlapping(&range).is_empty(), "ranges are disjoint");
        self.bytes += range.end - range.start;
        let slot = Slot {
            range: range.clone(),
            value: Some(value),
            newer: NONE,
            older: NONE,
        };
        let at = match self.free.pop() {
            Some(at) => {
                if let Some(place) = self.slots.get_mut(at as usize) {
                    *place = slot;
                }
                at
            }
            None => {
                self.slots.push(slot);
                (self.slots.len() - 1) as u32
            }
        };
        self.by_start.insert(range.start, at);
        self.link_newest(at);
    }

    /// Takes out the value that was not used for the longest time among those that are `idle`.
    pub(super) fn remove_oldest(&mut self, idle: impl Fn(&T) -> bool) -> Option<(Range<u64>, T)> {
        let mut at = self.oldest;
        while let Some(slot) = self.slots.get(at as usize) {
            if slot.value.as_ref().is_some_and(&idle) {
                return self.remove(at);
            }
            at = slot.newer;
        }
        None
    }

    fn remove(&mut self, at: u32) -> Option<(Range<u64>, T)> {
        self.unlink(at);
        let slot = self.slots.get_mut(at as usize)?;
        let value = slot.value.take()?;
        let range = slot.range.clone();
        self.bytes -= range.end - range.start;
        self.by_start.remove(&range.start);
        self.free.push(at);
        Some((range, value))
    }

    fn unlink(&mut self, at: u32) {
        let Some(slot) = self.slots.get_mut(at as usize) else {
            return;
        };
        let (newer, older) = (slot.newer, slot.older);
        match self.slots.get_mut(newer as usize) {
            Some(slot) => slot.older = older,
            None => self.newest = older,
        }
        match self.slots.get_mut(older as usize) {
            Some(slot) => slot.newer = newer,
            None => self.oldest = newer,
        }
    }

    fn link_newest(&mut self, at: u32) {
        let before = std::mem::replace(&mut self.newest, at);
        if let Some(slot) = self.slots.get_mut(at as usize) {
            slot.newer = NONE;
            slot.older = before;
        }
        match self.slots.get_mut(before as usize) {
            Some(slot) => slot.newer = at,
            None => self.oldest = at,
        }
    }
}

#[cfg(test)]
mod tests;
