//! A cache of registrations, for programs that send from anywhere.
//!
//! [`RegistrationCache::get`] takes an address and a length. If a registration holds the range it
//! answers from memory; else it registers the pages of the range. Entries are the whole pages of
//! what was asked for. A range that overlaps entries is registered as one with them, and replaces
//! them; neighbours are not joined. The entries not used for longest are deregistered once the
//! cache holds more than its limits. An entry in use is never deregistered: each [`Registered`]
//! holds its registration, also after the cache has forgotten it.
//!
//! # What the program promises
//! Making a cache takes a [`LendPermit`], whose contract it is. In short: memory stays mapped while
//! a [`Registered`] of it exists; a [`Registered`] lives until the completion of the requests that
//! name it; and memory is not unmapped behind the cache's back:
//! - [`Unmapping::Told`], the default: call [`RegistrationCache::invalidate`] before memory is
//!   unmapped, moved, remapped or given up (`munmap`, `mremap`, `mmap` over it, `madvise`, and
//!   `free` where it unmaps);
//! - [`Unmapping::Watched`], for programs that cannot do that: the kernel reports this through
//!   userfaultfd, and nothing needs to be called. It leaves a gap between threads, which the
//!   variant describes. Memory that the kernel cannot watch (file mappings) is registered for each
//!   use.
//!
//! Memory that a peer may access is not cached: a peer may use a key at any time, so its region
//! has to be held by the program. Register it with
//! [`ProtectionDomain::register`](super::ProtectionDomain::register).

mod error;
mod index;
mod settings;
mod state;

use super::memory_region::{Access, MemoryRegion, SliceError};
use super::{ProtectionDomain, RdmaError};
pub use error::CacheError;
use index::Index;
use ringside_bus::LendPermit;
use ringside_bus::memory::DmaAccess;
use ringside_bus::unmaps::{Unmaps, UnmapsError};
use ringside_qp::Fragment;
use ringside_spec::rdma::limits::MAX_REGION_BYTES;
pub use settings::{CacheReport, CacheSettings, Unmapping};
use state::{Entry, InMaking, Registration, State};
use std::ops::Range;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Bytes of the pages that entries consist of.
const PAGE: u64 = 4096;
/// The longest wait for registrations of other threads, before another look.
const WAIT: Duration = Duration::from_millis(1);
/// The longest wait for them: longer than a command takes.
const LONGEST_WAIT: Duration = Duration::from_secs(10);

struct Shared {
    domain: ProtectionDomain,
    permit: LendPermit,
    settings: CacheSettings,
    state: Mutex<State>,
    /// a registration was made, or could not be made
    has_made: Condvar,
}

/// See the module. Clones share one cache. Dropping the last clone deregisters what is not in use.
#[derive(Clone)]
pub struct RegistrationCache(Arc<Shared>);

/// A range of the program's memory that is registered as long as this exists. Keep it until the
/// requests that name it have completed.
#[derive(Clone, Debug)]
pub struct Registered {
    registration: Arc<Registration>,
    /// of its first byte in the registration
    offset: usize,
    length: usize,
}

impl ProtectionDomain {
    /// A cache of registrations of the program's memory. The permit's contract is explained at
    /// [`RegistrationCache`].
    ///
    /// # Errors
    /// [`CacheError::RemoteAccess`], [`CacheError::NoRoom`] for limits of 0, and
    /// [`CacheError::Unmaps`] where the kernel denies userfaultfd and [`Unmapping::Watched`] is
    /// asked for.
    pub fn registration_cache(
        &self,
        permit: LendPermit,
        settings: CacheSettings,
    ) -> Result<RegistrationCache, CacheError> {
        if settings.access.is_remote() {
            return Err(CacheError::RemoteAccess);
        }
        if settings.max_entries == 0 || settings.max_bytes < PAGE {
            let CacheSettings {
                max_entries,
                max_bytes,
                ..
            } = settings;
            return Err(CacheError::NoRoom {
                max_entries,
                max_bytes,
            });
        }
        let unmaps = match settings.unmapping {
            Unmapping::Told => None,
            Unmapping::Watched => Some(Unmaps::new()?),
        };
        drop(self.engine().open_state()?);
        Ok(RegistrationCache(Arc::new(Shared {
            domain: self.clone(),
            permit,
            settings,
            state: Mutex::new(State {
                index: Index::new(),
                unmaps,
                forgotten: Vec::new(),
                in_making: Vec::new(),
                next_number: 0,
                report: CacheReport::default(),
            }),
            has_made: Condvar::new(),
        })))
    }
}

impl RegistrationCache {
    /// The `length` bytes at `first`, registered: from the cache, or now.
    ///
    /// A hit takes a lock for some 100 ns and makes no system call. A miss registers: some
    /// microseconds, and commands to the device.
    ///
    /// # Errors
    /// [`CacheError`]; nothing is left over.
    pub fn get(&self, first: *const u8, length: usize) -> Result<Registered, CacheError> {
        let shared = &*self.0;
        let start = first.expose_provenance() as u64;
        let Some(end) = start.checked_add(length as u64) else {
            let first = start;
            return Err(CacheError::Wraps { first, length });
        };
        let wanted = start..end;
        if !shared.domain.engine().over.load(Ordering::Relaxed) && length > 0 {
            let mut state = shared.state();
            if !state.has_news()
                && let Some(found) = state.index.find(&wanted)
            {
                let found = Registered::new(Arc::clone(found), &wanted);
                state.report.hits += 1;
                return Ok(found);
            }
        }
        shared.get_slowly(&wanted)
    }

    /// Forgets and deregisters every entry that shares a page with the `length` bytes at `first`.
    /// After success the device has no access to them through this cache. Call it before memory is
    /// unmapped, unless the kernel reports that. It is allowed with [`Unmapping::Watched`] too, and
    /// closes its gap for this range.
    ///
    /// # Errors
    /// [`CacheError::InUse`]: entries are forgotten, and some are held by a [`Registered`] still;
    /// complete their requests, drop it, and call this again. The same while another thread
    /// deregisters an entry. [`CacheError::Deregister`]: the device did not confirm, and the memory
    /// must stay mapped until the device's shutdown; further calls for it return
    /// [`CacheError::InUse`], as they do if the device did not confirm the end of an entry that
    /// made room, was replaced or cleared, or whose last [`Registered`] was dropped.
    pub fn invalidate(&self, first: *const u8, length: usize) -> Result<(), CacheError> {
        let start = first.addr() as u64;
        let range = start..start.saturating_add(length as u64);
        // No page begins behind the last multiple.
        let end = range.end.checked_next_multiple_of(PAGE);
        let pages = start / PAGE * PAGE..end.unwrap_or(u64::MAX);
        let shared = &*self.0;
        let removed = shared.state().invalidate(&pages);
        let mut result = Ok(());
        for (_, registration) in removed {
            let Some(registration) = Arc::into_inner(registration) else {
                continue;
            };
            if let Err(error) = registration.deregister() {
                result = Err(CacheError::Deregister(Box::new(error)));
            }
        }
        let entries = shared.state().users_of(&pages);
        match entries {
            0 => result,
            _ if result.is_err() => result,
            entries => Err(CacheError::InUse { entries }),
        }
    }

    /// Deregisters every entry that is not in use; returns how many.
    pub fn clear(&self) -> usize {
        let mut idle = Vec::new();
        let mut state = self.0.state();
        while let Some(entry) = state.evict() {
            idle.push(entry);
        }
        drop(state);
        idle.len()
    }

    /// Its counts.
    #[must_use]
    pub fn report(&self) -> CacheReport {
        let mut state = self.0.state();
        let gone = state.take_news();
        let report = CacheReport {
            entries: state.index.len(),
            bytes: state.index.bytes(),
            ..state.report
        };
        drop(state);
        drop(gone);
        report
    }
}

impl std::fmt::Debug for RegistrationCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("RegistrationCache")
            .field(&self.0.settings)
            .finish()
    }
}

impl Registered {
    fn new(registration: Arc<Registration>, wanted: &Range<u64>) -> Self {
        Self {
            offset: (wanted.start - registration.range.start) as usize,
            length: (wanted.end - wanted.start) as usize,
            registration,
        }
    }

    /// Bytes.
    #[must_use]
    pub fn length(&self) -> usize {
        self.length
    }

    /// A piece of it for a request: a range of bytes, counted from the address that was asked for.
    ///
    /// # Errors
    /// [`SliceError`] if it is not inside, or too long for one fragment (2^31 - 1 bytes).
    pub fn slice(&self, range: Range<usize>) -> Result<Fragment, SliceError> {
        let outside = SliceError {
            start: range.start,
            end: range.end,
            length_bytes: self.length,
        };
        if range.end > self.length || range.start > range.end {
            return Err(outside);
        }
        let inside = self.offset + range.start..self.offset + range.end;
        let region = self.registration.region().ok_or(outside)?;
        region.slice(inside).map_err(|_| outside)
    }

    /// Key of the region that holds it; others in the same region have the same.
    #[must_use]
    pub fn local_key(&self) -> u32 {
        let region = self.registration.region();
        region.map_or(0, MemoryRegion::local_key)
    }
}

/// A registration that is about to be made.
struct Plan {
    number: u64,
    range: Range<u64>,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[cold]
    fn get_slowly(&self, wanted: &Range<u64>) -> Result<Registered, CacheError> {
        drop(self.domain.engine().open_state()?);
        if wanted.start == 0 {
            let length = wanted.end;
            return Err(CacheError::Null { length });
        }
        let own = self.pages(wanted)?;
        let mut may_unite = true;
        let end = Instant::now() + LONGEST_WAIT;
        loop {
            // What the lock protects is deregistered after it was released.
            let mut gone = Vec::new();
            let planned = self.plan(wanted, &own, may_unite, &mut gone);
            drop(gone);
            let plan = match planned? {
                Planned::Found(found) => return Ok(found),
                Planned::Wait if Instant::now() < end => {
                    self.await_others();
                    continue;
                }
                Planned::Wait => return Err(self.state().full()),
                Planned::Register(plan) => plan,
            };
            let is_watched = self.watch(&plan.range);
            match self.register(&plan.range) {
                Ok(region) => return Ok(self.enter(&plan, region, wanted, is_watched)),
                Err(error) => {
                    self.give_up(&plan);
                    if plan.range != own {
                        may_unite = false;
                    } else if !is_scarcity(&error) || !self.make_room() {
                        return Err(error.into());
                    }
                }
            }
        }
    }

    /// The whole pages of a range.
    fn pages(&self, wanted: &Range<u64>) -> Result<Range<u64>, CacheError> {
        let length = wanted.end - wanted.start;
        let end = wanted.end.checked_next_multiple_of(PAGE);
        let Some(end) = end.filter(|_| length > 0) else {
            return Err(CacheError::Rdma(RdmaError::OutOfRange {
                what: "the length of a memory region",
                given: length,
                least: 1,
                most: MAX_REGION_BYTES,
            }));
        };
        let pages = wanted.start / PAGE * PAGE..end;
        if pages.end - pages.start > self.settings.max_bytes {
            return Err(CacheError::TooLong {
                length,
                max_bytes: self.settings.max_bytes,
            });
        }
        Ok(pages)
    }

    /// Finds the range after all, or makes room for it and notes that it is being made.
    fn plan(
        &self,
        wanted: &Range<u64>,
        own: &Range<u64>,
        may_unite: bool,
        gone: &mut Vec<Entry>,
    ) -> Result<Planned, CacheError> {
        let CacheSettings {
            max_entries,
            max_bytes,
            ..
        } = self.settings;
        let mut state = self.state();
        gone.extend(state.take_news());
        if let Some(found) = state.index.find(wanted) {
            let found = Registered::new(Arc::clone(found), wanted);
            state.report.hits += 1;
            return Ok(Planned::Found(found));
        }
        let united = state.index.united(own);
        let range = match may_unite && united.end - united.start <= max_bytes {
            true => united,
            false => own.clone(),
        };
        let bytes = range.end - range.start;
        // Those that other threads make just now become entries, too.
        let (others, of_others) = state.making();
        let is_taken = others >= max_entries || of_others + bytes > max_bytes;
        if is_taken || state.makes(wanted) {
            return Ok(Planned::Wait);
        }
        while state.index.len() + others >= max_entries
            || state.index.bytes() + of_others + bytes > max_bytes
        {
            let Some(evicted) = state.evict() else {
                if others > 0 {
                    return Ok(Planned::Wait);
                }
                return Err(state.full());
            };
            state.report.evicted += 1;
            gone.push(evicted);
        }
        state.next_number += 1;
        let number = state.next_number;
        state.in_making.push(InMaking {
            number,
            range: range.clone(),
            is_spoiled: false,
        });
        Ok(Planned::Register(Plan { number, range }))
    }

    /// True if entries of this range can be kept.
    fn watch(&self, range: &Range<u64>) -> bool {
        let watched = match &self.state().unmaps {
            None => return true,
            Some(unmaps) => unmaps.watcher(),
        };
        match watched.watch(range.clone()) {
            Ok(()) => true,
            Err(error @ UnmapsError::NotWatched { .. }) => {
                tracing::debug!(%error, "registered for one use");
                false
            }
            Err(error) => {
                tracing::warn!(%error, "registered for one use");
                false
            }
        }
    }

    fn register(&self, range: &Range<u64>) -> Result<MemoryRegion, RdmaError> {
        let access = self.settings.access;
        let of_device = match access.contains(Access::LOCAL_WRITE) {
            true => DmaAccess::ReadWrite,
            false => DmaAccess::Read,
        };
        let length = (range.end - range.start) as usize;
        let pool = &self.domain.engine().pool;
        let lent = pool.lend_permitted(&self.permit, range.start as usize, length, of_device)?;
        let registered = self.domain.register(lent, access);
        registered.map_err(|refused| refused.error)
    }

    /// Keeps a new registration, unless it was invalidated while it was made.
    fn enter(
        &self,
        plan: &Plan,
        region: MemoryRegion,
        wanted: &Range<u64>,
        is_watched: bool,
    ) -> Registered {
        let registration = Arc::new(Registration::new(region, plan.range.clone()));
        let made = Registered::new(Arc::clone(&registration), wanted);
        let mut state = self.state();
        let mut gone = state.take_news();
        let is_spoiled = state.end_making(plan.number);
        state.report.misses += 1;
        if is_spoiled || !is_watched {
            state.report.not_kept += 1;
            state.forget(&plan.range, &registration);
        } else {
            let replaced = state.index.remove_overlapping(&plan.range);
            state.report.merged += replaced.len() as u64;
            for (range, one) in &replaced {
                state.forget(range, one);
            }
            gone.extend(replaced);
            state.index.insert(plan.range.clone(), registration);
        }
        drop(state);
        self.has_made.notify_all();
        drop(gone);
        made
    }

    fn give_up(&self, plan: &Plan) {
        self.state().end_making(plan.number);
        self.has_made.notify_all();
    }

    /// Waits a moment for the registrations that other threads make: one may be the wanted one, or
    /// leave room. Each is a command, which has a deadline of its own.
    fn await_others(&self) {
        drop(self.has_made.wait_timeout(self.state(), WAIT));
    }

    /// Deregisters the entry not used for longest; false if there is none.
    fn make_room(&self) -> bool {
        let mut state = self.state();
        let evicted = state.evict();
        state.report.evicted += u64::from(evicted.is_some());
        drop(state);
        evicted.is_some()
    }
}

/// The result of [`Shared::plan`].
enum Planned {
    Found(Registered),
    Register(Plan),
    /// Registrations that other threads make just now take the rest of the room.
    Wait,
}

/// True if fewer registrations may help.
fn is_scarcity(error: &RdmaError) -> bool {
    matches!(
        error,
        RdmaError::Capacity { .. }
            | RdmaError::Quota { .. }
            | RdmaError::Memory(_)
            | RdmaError::PageList(_)
    )
}
