//! The state that a cache's lock protects: entries, and registrations that are held or being made.

use super::super::memory_region::{DeregisterError, MemoryRegion};
use super::error::CacheError;
use super::index::Index;
use super::settings::CacheReport;
use ringside_bus::unmaps::{News, Unmaps};
use std::ops::Range;
use std::sync::{Arc, Weak};

/// A registered range. Dropping it deregisters.
#[derive(Debug)]
pub(super) struct Registration {
    /// `None` once it was deregistered: not while a `Registered` or an entry has it
    region: Option<MemoryRegion>,
    /// whole pages, by address in this process
    pub(super) range: Range<u64>,
    /// While it exists, the device may have access.
    presence: Arc<()>,
}

impl Registration {
    pub(super) fn new(region: MemoryRegion, range: Range<u64>) -> Self {
        Self {
            region: Some(region),
            range,
            presence: Arc::default(),
        }
    }

    #[inline]
    pub(super) fn region(&self) -> Option<&MemoryRegion> {
        self.region.as_ref()
    }

    /// Deregisters.
    ///
    /// Errors: [`DeregisterError`]: the device may have access from now on, and the range stays in
    /// use.
    pub(super) fn deregister(mut self) -> Result<(), DeregisterError> {
        self.end()
    }

    fn end(&mut self) -> Result<(), DeregisterError> {
        let Some(region) = self.region.take() else {
            return Ok(());
        };
        let ended = region.deregister().map(drop);
        if ended.is_err() {
            std::mem::forget(Arc::clone(&self.presence));
        }
        ended
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        // The region reports a failure.
        let _ = self.end();
    }
}

/// A registration that the cache has forgotten and that is in use, or being deregistered.
pub(super) struct Forgotten {
    pub(super) range: Range<u64>,
    pub(super) presence: Weak<()>,
}

/// A range that a thread registers at the moment.
pub(super) struct InMaking {
    pub(super) number: u64,
    pub(super) range: Range<u64>,
    /// part of it was invalidated meanwhile
    pub(super) is_spoiled: bool,
}

pub(super) type Entry = (Range<u64>, Arc<Registration>);

pub(super) struct State {
    pub(super) index: Index<Arc<Registration>>,
    pub(super) unmaps: Option<Unmaps>,
    pub(super) forgotten: Vec<Forgotten>,
    pub(super) in_making: Vec<InMaking>,
    pub(super) next_number: u64,
    pub(super) report: CacheReport,
}

fn is_idle(registration: &Arc<Registration>) -> bool {
    Arc::strong_count(registration) == 1
}

pub(super) fn share(one: &Range<u64>, other: &Range<u64>) -> bool {
    one.start < other.end && other.start < one.end
}

impl State {
    #[inline]
    pub(super) fn has_news(&self) -> bool {
        self.unmaps.as_ref().is_some_and(Unmaps::has_news)
    }

    /// Forgets what was unmapped since the last call. To be dropped once the lock is released.
    pub(super) fn take_news(&mut self) -> Vec<Entry> {
        if !self.has_news() {
            return Vec::new();
        }
        match self.unmaps.as_mut().map(Unmaps::take) {
            None => Vec::new(),
            Some(News::Everything) => self.invalidate(&(0..u64::MAX)),
            Some(News::Ranges(ranges)) => ranges
                .iter()
                .flat_map(|range| self.invalidate(range))
                .collect(),
        }
    }

    /// The error of a cache whose entries are all in use.
    pub(super) fn full(&self) -> CacheError {
        CacheError::Full {
            entries: self.index.len(),
            bytes: self.index.bytes(),
        }
    }

    /// True if a registration that holds the range is being made.
    pub(super) fn makes(&self, wanted: &Range<u64>) -> bool {
        self.in_making.iter().any(|one| {
            let holds = one.range.start <= wanted.start && wanted.end <= one.range.end;
            holds && !one.is_spoiled
        })
    }

    /// The number of registrations that are being made, and their bytes.
    pub(super) fn making(&self) -> (usize, u64) {
        let bytes = self
            .in_making
            .iter()
            .map(|one| one.range.end - one.range.start);
        (self.in_making.len(), bytes.sum())
    }

    pub(super) fn invalidate(&mut self, pages: &Range<u64>) -> Vec<Entry> {
        let removed = self.index.remove_overlapping(pages);
        self.report.invalidated += removed.len() as u64;
        for (range, registration) in &removed {
            self.forget(range, registration);
        }
        for one in &mut self.in_making {
            one.is_spoiled |= share(&one.range, pages);
        }
        removed
    }

    /// Notes a registration that is no entry any more: it may be in use, and the device has it
    /// until it was dropped.
    pub(super) fn forget(&mut self, range: &Range<u64>, registration: &Arc<Registration>) {
        self.forgotten.retain(|one| one.presence.strong_count() > 0);
        self.forgotten.push(Forgotten {
            range: range.clone(),
            presence: Arc::downgrade(&registration.presence),
        });
    }

    /// Takes out the entry not used for longest that is not in use.
    pub(super) fn evict(&mut self) -> Option<Entry> {
        let (range, registration) = self.index.remove_oldest(is_idle)?;
        self.forget(&range, &registration);
        Some((range, registration))
    }

    /// Registrations of these pages that are held, being made or being deregistered.
    pub(super) fn users_of(&self, pages: &Range<u64>) -> usize {
        let held = self
            .forgotten
            .iter()
            .filter(|one| share(&one.range, pages) && one.presence.strong_count() > 0);
        let made = self.in_making.iter().filter(|one| share(&one.range, pages));
        held.count() + made.count()
    }

    /// True if it was spoiled meanwhile.
    pub(super) fn end_making(&mut self, number: u64) -> bool {
        let place = self.in_making.iter().position(|one| one.number == number);
        place.is_some_and(|at| self.in_making.swap_remove(at).is_spoiled)
    }
}
