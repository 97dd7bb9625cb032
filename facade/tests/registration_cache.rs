//! The cache of registrations on the model: the program sends from its own memory anywhere.
#![allow(unsafe_code)] // maps memory, and promises what the cache asks for

mod pair;

use pair::{End, LIMIT, connected};
use ringside::bus::function::DmaAccess;
use ringside::bus::{Around, Function, FunctionError, Iova};
use ringside::config::HugePages;
use ringside::driver::BringUpOptions;
use ringside::driver::rdma::{CacheError, Quotas};
use ringside::model::{Fault, Threaded, WorldSettings};
use ringside::prelude::*;
use ringside::spec::rdma::commands::Opcode;
use rustix::mm::{MapFlags, ProtFlags};
use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier, Mutex, mpsc};
use std::time::{Duration, Instant};

const PAGE: usize = 4096;

/// The functions of the model are opened by one test at a time.
static ONE: Mutex<()> = Mutex::new(());

/// Anonymous pages, mapped at an address of the kernel's choice or at a given one.
struct Pages {
    first: *mut u8,
    length: usize,
}

impl Pages {
    fn map(length: usize) -> Self {
        Self::map_at(std::ptr::null_mut(), length, MapFlags::empty()).unwrap()
    }

    /// Pages at a place that was unmapped; `None` if another thread has mapped something there
    /// since.
    fn map_again(at: *mut u8, length: usize) -> Option<Self> {
        Self::map_at(at, length, MapFlags::FIXED_NOREPLACE)
    }

    fn map_at(at: *mut u8, length: usize, flags: MapFlags) -> Option<Self> {
        let (flags, protection) = (
            flags | MapFlags::PRIVATE,
            ProtFlags::READ | ProtFlags::WRITE,
        );
        // SAFETY: a new mapping, which replaces none.
        let first = unsafe { rustix::mm::mmap_anonymous(at.cast(), length, protection, flags) };
        let first = first.ok()?.cast();
        Some(Self { first, length })
    }

    fn fill(&self, byte: u8) {
        // SAFETY: mapped; the device only reads, and no request is under way.
        unsafe { self.first.write_bytes(byte, self.length) };
    }

    fn at(&self, offset: usize) -> *const u8 {
        self.first.wrapping_add(offset)
    }

    /// Unmaps the pages and returns where they were.
    fn unmap(self) -> *mut u8 {
        let Self { first, length } = self;
        // SAFETY: mapped by `map_at`; nothing refers to the pages.
        unsafe { rustix::mm::munmap(first.cast::<c_void>(), length) }.unwrap();
        first
    }
}

fn settings(unmapping: Unmapping) -> CacheSettings {
    CacheSettings {
        unmapping,
        ..CacheSettings::default()
    }
}

fn cache(end: &End, settings: CacheSettings) -> RegistrationCache {
    cache_of(&end.domain, settings)
}

fn cache_of(domain: &ProtectionDomain, settings: CacheSettings) -> RegistrationCache {
    domain.registration_cache(permit(), settings).unwrap()
}

fn permit() -> LendPermit {
    // SAFETY: the tests unmap memory when no request names it, and tell a cache that is not watched
    //         before; a guard lives as long as its requests.
    unsafe { LendPermit::new() }
}

/// Regions of the left device.
fn regions(end: &End) -> u32 {
    end.device.object_usage().unwrap().memory_regions.used
}

/// Sends `bytes` bytes at `from` through the cache into `target`, and returns what arrived.
fn send(
    end: &mut End,
    cache: &RegistrationCache,
    from: *const u8,
    bytes: usize,
    target: &MemoryRegion,
) -> Vec<u8> {
    let held = cache.get(from, bytes).unwrap();
    let place = held.slice(0..bytes).unwrap();
    end.queue_pair
        .write(7, &[place], target.remote().at(0), Flags::SIGNALLED)
        .unwrap();
    end.queue_pair.ring();
    end.wait(7);
    let mut arrived = vec![0; bytes];
    assert!(target.read(0, &mut arrived));
    arrived
}

#[test]
fn memory_from_anywhere_is_registered_once_and_sent() {
    let _one = ONE.lock();
    let [mut left, right] = connected(0);
    let target = right.region(64 << 10);
    let cache = cache(&left, settings(Unmapping::Watched));
    let before = regions(&left);
    let heap: Vec<u8> = (0..50_000_u32).map(|at| (at * 7) as u8).collect();
    for skip in [0, 1, 4095, 33] {
        let piece = &heap[skip..skip + 40_000];
        let arrived = send(&mut left, &cache, piece.as_ptr(), piece.len(), &target);
        assert!(arrived == piece, "offset {skip}");
    }
    let report = cache.report();
    assert!(
        report.misses <= 2,
        "the first range, and one that goes beyond its pages: {report:?}"
    );
    assert_eq!(report.hits + report.misses, 4);
    assert_eq!(regions(&left) - before, report.entries as u32);
    drop(cache);
    assert_eq!(regions(&left), before, "the cache has deregistered all");
}

#[test]
fn memory_that_is_mapped_again_at_the_same_address_is_registered_anew() {
    let _one = ONE.lock();
    let [mut left, right] = connected(0);
    let target = right.region(16 * PAGE);
    for unmapping in [Unmapping::Watched, Unmapping::Told] {
        let cache = cache(&left, settings(unmapping));
        let before = regions(&left);
        let mut at = Pages::map(4 * PAGE).unmap();
        let mut last_key = None;
        for round in 0..50_u8 {
            // Elsewhere if another thread has the place.
            let again = Pages::map_again(at, 4 * PAGE);
            let pages = again.unwrap_or_else(|| Pages::map(4 * PAGE));
            pages.fill(round + 1);
            let held = cache.get(pages.at(100), 2 * PAGE).unwrap();
            let again = cache.get(pages.at(PAGE), PAGE).unwrap();
            assert_eq!(held.local_key(), again.local_key());
            assert_ne!(
                Some(held.local_key()),
                last_key,
                "round {round}: the old region"
            );
            last_key = Some(held.local_key());
            drop((held, again));
            let arrived = send(&mut left, &cache, pages.at(0), 3 * PAGE, &target);
            assert!(
                arrived.iter().all(|byte| *byte == round + 1),
                "round {round}"
            );
            if unmapping == Unmapping::Told {
                cache.invalidate(pages.at(0), pages.length).unwrap();
            }
            at = pages.unmap();
        }
        let report = cache.report();
        assert_eq!(
            (report.entries, report.invalidated),
            (0, 50),
            "{unmapping:?}: {report:?}"
        );
        assert_eq!(regions(&left), before);
    }
}

#[test]
fn an_unmapped_page_ends_the_entry_that_holds_it_and_no_other() {
    let _one = ONE.lock();
    let [left, _right] = connected(0);
    let cache = cache(&left, settings(Unmapping::Watched));
    let (one, other) = (Pages::map(8 * PAGE), Pages::map(8 * PAGE));
    drop(cache.get(one.at(0), 3 * PAGE).unwrap());
    drop(cache.get(one.at(4 * PAGE), PAGE).unwrap());
    drop(cache.get(other.at(0), PAGE).unwrap());
    assert_eq!(cache.report().entries, 3);
    // The middle page of the first entry. Another thread may map something there afterwards.
    let [first, middle, rest] = [(0, 1), (1, 1), (2, 6)].map(|(from, pages)| Pages {
        first: one.first.wrapping_add(from * PAGE),
        length: pages * PAGE,
    });
    middle.unmap();
    assert_eq!(cache.report().entries, 2);
    drop(cache.get(one.at(0), PAGE).unwrap());
    drop(cache.get(one.at(4 * PAGE), PAGE).unwrap());
    drop(cache.get(other.at(0), PAGE).unwrap());
    let report = cache.report();
    assert_eq!((report.hits, report.misses, report.invalidated), (2, 4, 1));
    drop(cache);
    for pages in [first, rest, other] {
        pages.unmap();
    }
}

#[test]
fn what_a_program_invalidates_ends_every_entry_of_its_pages() {
    let _one = ONE.lock();
    let [left, _right] = connected(0);
    let cache = cache(&left, settings(Unmapping::Told));
    let before = regions(&left);
    let pages = Pages::map(8 * PAGE);
    for first in [0, 2, 4] {
        drop(cache.get(pages.at(first * PAGE), PAGE).unwrap());
    }
    assert_eq!(regions(&left), before + 3);
    // From the middle of a page to the middle of another.
    cache
        .invalidate(pages.at(2 * PAGE + PAGE / 2), 2 * PAGE)
        .unwrap();
    assert_eq!((cache.report().entries, regions(&left)), (1, before + 1));
    cache.invalidate(pages.at(PAGE - 1), 1).unwrap();
    assert_eq!((cache.report().entries, regions(&left)), (0, before));
    assert_eq!(cache.report().invalidated, 3);
}

#[test]
fn an_entry_in_use_is_neither_evicted_nor_deregistered() {
    let _one = ONE.lock();
    let [mut left, right] = connected(0);
    let target = right.region(PAGE);
    let cache = cache(
        &left,
        CacheSettings {
            max_entries: 2,
            ..settings(Unmapping::Told)
        },
    );
    let pages = Pages::map(8 * PAGE);
    pages.fill(9);
    let before = regions(&left);
    let first = cache.get(pages.at(0), PAGE).unwrap();
    let second = cache.get(pages.at(2 * PAGE), PAGE).unwrap();
    let full = cache.get(pages.at(4 * PAGE), PAGE).unwrap_err();
    assert!(
        matches!(full, CacheError::Full { entries: 2, .. }),
        "{full}"
    );
    drop(second);
    // Evicts the idle entry, although the other one was used less recently.
    let third = cache.get(pages.at(4 * PAGE), PAGE).unwrap();
    assert_eq!((cache.report().evicted, regions(&left) - before), (1, 2));

    let busy = cache.invalidate(pages.at(0), PAGE).unwrap_err();
    assert!(matches!(busy, CacheError::InUse { entries: 1 }), "{busy}");
    // Forgotten, and still registered for its holder.
    let place = first.slice(0..PAGE).unwrap();
    left.queue_pair
        .write(1, &[place], target.remote().at(0), Flags::SIGNALLED)
        .unwrap();
    left.queue_pair.ring();
    left.wait(1);
    let anew = cache.get(pages.at(0), PAGE).unwrap();
    assert_ne!(anew.local_key(), first.local_key());
    drop((first, anew, third));
    cache.invalidate(pages.at(0), 8 * PAGE).unwrap();
    assert_eq!(regions(&left), before);
    pages.unmap();
}

/// Each thread finds none of the others' entries in the cache yet.
#[test]
fn threads_that_register_at_once_keep_to_the_limits_together() {
    const THREADS: usize = 4;
    let _one = ONE.lock();
    let [left, right] = connected(0);
    let limits = CacheSettings {
        max_entries: 1,
        max_bytes: 1 << 20,
        ..settings(Unmapping::Told)
    };
    let cache = cache(&left, limits);
    let pages = Pages::map(THREADS << 20);
    let first = pages.at(0).addr();
    let barrier = Barrier::new(THREADS);
    for _ in 0..20 {
        // Ranges of their own, and the same one, which there is room for.
        for (step, succeed) in [(1 << 20, 1), (0, THREADS)] {
            let get = |number: usize| {
                barrier.wait();
                let place = std::ptr::without_provenance(first + number * step);
                let made = cache.get(place, 1 << 20);
                barrier.wait();
                made.map(drop)
            };
            let made = std::thread::scope(|scope| {
                let get = &get;
                let threads: Vec<_> = (0..THREADS)
                    .map(|number| scope.spawn(move || get(number)))
                    .collect();
                let results = threads.into_iter().map(|thread| thread.join().unwrap());
                results.collect::<Vec<Result<(), CacheError>>>()
            });
            assert_eq!(made.iter().filter(|made| made.is_ok()).count(), succeed);
            let report = cache.report();
            assert_eq!((report.entries, report.bytes), (1, 1 << 20));
        }
    }
    cache.invalidate(pages.at(0), THREADS << 20).unwrap();
    drop((left, right));
    pages.unmap();
}

#[test]
fn overlapping_ranges_become_one_entry_and_old_holders_go_on() {
    let _one = ONE.lock();
    let [mut left, right] = connected(0);
    let target = right.region(PAGE);
    let cache = cache(&left, settings(Unmapping::Watched));
    let pages = Pages::map(8 * PAGE);
    pages.fill(3);
    let old = cache.get(pages.at(0), 2 * PAGE).unwrap();
    let whole = cache.get(pages.at(PAGE), 4 * PAGE).unwrap();
    let report = cache.report();
    assert_eq!((report.entries, report.merged), (1, 1));
    assert_eq!(report.bytes, 5 * PAGE as u64);
    let inside = cache.get(pages.at(0), 5 * PAGE).unwrap();
    assert_eq!(inside.local_key(), whole.local_key());
    for (id, held) in [(1, &old), (2, &whole)] {
        let place = held.slice(PAGE / 2..PAGE).unwrap();
        left.queue_pair
            .write(id, &[place], target.remote().at(0), Flags::SIGNALLED)
            .unwrap();
        left.queue_pair.ring();
        left.wait(id);
    }
    assert!(held_outside(&whole), "no byte beyond what was asked for");
    drop((old, whole, inside, cache));
    pages.unmap();
}

fn held_outside(held: &Registered) -> bool {
    held.slice(0..held.length() + 1).is_err() && held.slice(1..held.length()).is_ok()
}

#[test]
fn what_a_cache_does_not_take_is_refused_by_name() {
    let _one = ONE.lock();
    let [left, _right] = connected(0);
    let make = |settings| left.domain.registration_cache(permit(), settings);
    let remote = CacheSettings {
        access: Access::REMOTE_READ,
        ..CacheSettings::default()
    };
    assert!(matches!(make(remote), Err(CacheError::RemoteAccess)));
    let nothing = CacheSettings {
        max_entries: 0,
        ..CacheSettings::default()
    };
    assert!(matches!(make(nothing), Err(CacheError::NoRoom { .. })));
    let small = CacheSettings {
        max_bytes: 2 * PAGE as u64,
        ..CacheSettings::default()
    };
    let cache = make(small).unwrap();
    let pages = Pages::map(4 * PAGE);
    let long = cache.get(pages.at(1), 2 * PAGE);
    assert!(matches!(long, Err(CacheError::TooLong { .. })));
    assert!(matches!(
        cache.get(pages.at(0), 0),
        Err(CacheError::Rdma(_))
    ));
    let null = cache.get(std::ptr::null(), 10);
    assert!(matches!(null, Err(CacheError::Null { length: 10 })));
    let behind = cache.get(std::ptr::without_provenance(usize::MAX), 50);
    let text = behind.expect_err("no memory is there").to_string();
    assert!(
        text.contains("50 bytes at 0xffffffffffffffff end behind"),
        "{text}"
    );
    let wraps = std::ptr::without_provenance::<u8>(usize::MAX - 10);
    assert!(cache.get(wraps, 100).is_err());
    pages.unmap();
}

#[test]
fn a_file_mapping_is_registered_for_each_use() {
    let _one = ONE.lock();
    let [mut left, right] = connected(0);
    let target = right.region(PAGE);
    let cache = cache(&left, settings(Unmapping::Watched));
    // Bytes of this program's file.
    static TEXT: [u8; 3 * PAGE] = [0x5A; 3 * PAGE];
    let before = regions(&left);
    for _ in 0..3 {
        let arrived = send(&mut left, &cache, TEXT[10..].as_ptr(), PAGE, &target);
        assert!(arrived == TEXT[..PAGE]);
    }
    let report = cache.report();
    assert_eq!((report.entries, report.not_kept), (0, 3), "{report:?}");
    assert_eq!(regions(&left), before);
}

#[test]
fn threads_that_map_send_and_unmap_never_meet_an_old_region() {
    /// Places in each thread's part.
    const PLACES: usize = 8;
    let _one = ONE.lock();
    let ends: Vec<End> = connected(0).into_iter().collect();
    let [mut left, right] = <[End; 2]>::try_from(ends).ok().unwrap();
    let target = right.region(PAGE);
    let small = CacheSettings {
        max_entries: 8,
        ..settings(Unmapping::Watched)
    };
    let cache = cache(&left, small);
    let keys = &Mutex::new(());
    // Each thread maps in a part of its own: see the limit of `Unmapping::Watched`.
    let area = Pages::map(3 * PLACES * 2 * PAGE);
    let first = area.first.expose_provenance();
    let areas: Vec<usize> = (0..3)
        .map(|thread| first + thread * PLACES * 2 * PAGE)
        .collect();
    // Stacks of the threads must not come to lie there.
    let started = &Barrier::new(4);
    let uses = &AtomicU64::new(0);
    std::thread::scope(|scope| {
        for (thread, area) in areas.into_iter().enumerate() {
            let cache = cache.clone();
            scope.spawn(move || {
                started.wait();
                started.wait();
                let (mut last, mut place) = (None, 0);
                for round in 0..300 {
                    // The memory of others of the process may come to lie there, to stay.
                    let at = std::ptr::with_exposed_provenance_mut(area + place * 2 * PAGE);
                    let Some(pages) = Pages::map_again(at, 2 * PAGE) else {
                        (last, place) = (None, (place + 1) % PLACES);
                        continue;
                    };
                    let length = PAGE + (round + thread) % PAGE;
                    let held = cache.get(pages.at(0), length).unwrap();
                    assert_ne!(last, Some(held.local_key()));
                    uses.fetch_add(1, Ordering::Relaxed);
                    last = Some(held.local_key());
                    drop(held);
                    pages.unmap();
                }
                let _all = keys.lock();
            });
        }
        let steady = vec![0xC3_u8; 2 * PAGE];
        started.wait();
        area.unmap();
        started.wait();
        for _ in 0..300 {
            let arrived = send(&mut left, &cache, steady.as_ptr(), PAGE, &target);
            assert!(arrived.iter().all(|byte| *byte == 0xC3));
        }
    });
    let report = cache.report();
    let uses = uses.load(Ordering::Relaxed);
    assert!(uses >= 300, "{uses} uses");
    // Each use but the last of a thread was unmapped before the next one.
    let forgotten = report.invalidated + report.evicted + report.not_kept;
    assert!(forgotten + 3 >= uses, "{uses} uses, {report:?}");
}

#[test]
fn threads_that_share_addresses_and_invalidate_first_never_meet_an_old_region() {
    let _one = ONE.lock();
    let [left, _right] = connected(0);
    let before = regions(&left);
    let cache = cache(&left, CacheSettings::default());
    let area = Pages::map(2 * PAGE);
    let first = area.first.expose_provenance();
    // The key of the last owner of the addresses, written while they are mapped.
    let last = &AtomicU64::new(0);
    let [uses, changes] = &[AtomicU64::new(0), AtomicU64::new(0)];
    let started = &Barrier::new(4);
    std::thread::scope(|scope| {
        for thread in 1..4 {
            let cache = cache.clone();
            scope.spawn(move || {
                let at = std::ptr::with_exposed_provenance_mut(first);
                started.wait();
                started.wait();
                let deadline = Instant::now() + Duration::from_secs(20);
                let is_enough =
                    || uses.load(Ordering::Relaxed) >= 600 && changes.load(Ordering::Relaxed) >= 50;
                while !is_enough() && Instant::now() < deadline {
                    let Some(pages) = Pages::map_again(at, 2 * PAGE) else {
                        std::thread::yield_now();
                        continue;
                    };
                    let held = cache.get(pages.at(0), 2 * PAGE).unwrap();
                    let mine = thread << 32 | u64::from(held.local_key());
                    let other = last.swap(mine, Ordering::Relaxed);
                    assert_ne!(other as u32, mine as u32, "a key of unmapped memory");
                    uses.fetch_add(1, Ordering::Relaxed);
                    changes.fetch_add(u64::from(other >> 32 != thread), Ordering::Relaxed);
                    drop(held);
                    cache.invalidate(pages.at(0), 2 * PAGE).unwrap();
                    pages.unmap();
                    // Otherwise the thread that runs takes the addresses again and again.
                    std::thread::sleep(Duration::from_micros(50));
                }
            });
        }
        started.wait();
        area.unmap();
        started.wait();
    });
    let [uses, changes] = [uses, changes].map(|count| count.load(Ordering::Relaxed));
    assert!(
        uses >= 600 && changes >= 50,
        "{uses} uses, {changes} by another thread"
    );
    let report = cache.report();
    assert_eq!((report.hits, report.invalidated), (0, uses), "{report:?}");
    assert_eq!(regions(&left), before);
}

/// Looks up and lets go, over entries of a cache. Counted by name: see the test.
#[inline(never)]
fn measured_cache_hits(cache: &RegistrationCache, pages: &Pages, rounds: usize) -> usize {
    let mut found = 0;
    for round in 0..rounds {
        let at = pages.at((round * 7 % 512) * 2 * PAGE + round % 64);
        found += usize::from(cache.get(at, 4000).is_ok());
    }
    found
}

/// Prints the time of a hit in a cache of 512 entries. Instructions:
/// `valgrind --tool=callgrind --toggle-collect='*measured_cache_hits*' TEST a_hit`.
#[test]
fn a_hit_is_no_registration_and_its_time_is_printed() {
    const ROUNDS: usize = 10_240;
    let _one = ONE.lock();
    let [left, _right] = connected(0);
    let cache = cache(&left, settings(Unmapping::Told));
    let pages = Pages::map(1024 * PAGE);
    for entry in 0..512 {
        drop(cache.get(pages.at(entry * 2 * PAGE), PAGE).unwrap());
    }
    let began = std::time::Instant::now();
    assert_eq!(measured_cache_hits(&cache, &pages, ROUNDS), ROUNDS);
    println!(
        "a hit of 512 entries: {:?}",
        began.elapsed() / ROUNDS as u32
    );
    let report = cache.report();
    assert_eq!(
        (report.misses, report.hits, report.entries),
        (512, ROUNDS as u64, 512)
    );
    cache.invalidate(pages.at(0), pages.length).unwrap();
    pages.unmap();
}

#[test]
fn all_of_the_address_space_can_be_invalidated() {
    let _one = ONE.lock();
    let [left, _right] = connected(0);
    let cache = cache(&left, settings(Unmapping::Told));
    let pages = Pages::map(4 * PAGE);
    drop(cache.get(pages.at(0), 100).unwrap());
    assert_eq!(cache.report().entries, 1);
    cache.invalidate(std::ptr::null(), usize::MAX).unwrap();
    assert_eq!(cache.report().entries, 0);
    pages.unmap();
}

/// A function whose next unmapping of memory waits: the device has access until then.
struct LateUnmapping {
    inner: Arc<dyn Function>,
    is_armed: AtomicBool,
    has_begun: mpsc::Sender<()>,
    go_on: Mutex<mpsc::Receiver<()>>,
}

impl Around for LateUnmapping {
    fn inner(&self) -> &Arc<dyn Function> {
        &self.inner
    }

    fn unmap_dma(&self, iova: Iova, length: u64) -> Result<(), FunctionError> {
        if self.is_armed.swap(false, Ordering::Relaxed) {
            self.has_begun.send(()).unwrap();
            self.go_on.lock().unwrap().recv_timeout(LIMIT).unwrap();
        }
        self.inner.unmap_dma(iova, length)
    }
}

/// A call that deregisters the first page.
type Ending = fn(&RegistrationCache, &Pages) -> Result<(), CacheError>;

/// All of them, for caches of one entry.
const ENDINGS: [(&str, Ending); 4] = [
    ("clear", |cache, _| {
        assert_eq!(cache.clear(), 1);
        Ok(())
    }),
    ("eviction", |cache, pages| {
        cache.get(pages.at(2 * PAGE), PAGE).map(drop)
    }),
    ("last holder", |cache, pages| {
        let held = cache.get(pages.at(0), PAGE).unwrap();
        cache.invalidate(pages.at(0), PAGE).unwrap_err();
        drop(held);
        Ok(())
    }),
    ("invalidation", |cache, pages| {
        cache.invalidate(pages.at(0), PAGE)
    }),
];

/// A cache of one entry.
fn cache_of_one(domain: &ProtectionDomain) -> RegistrationCache {
    let settings = CacheSettings {
        max_entries: 1,
        ..settings(Unmapping::Told)
    };
    cache_of(domain, settings)
}

#[test]
fn memory_is_in_use_until_another_thread_has_deregistered_it() {
    let model = Threaded::start(&WorldSettings::with_functions(1), None).unwrap();
    let (has_begun, begins) = mpsc::channel();
    let (release, go_on) = mpsc::channel();
    let late = Arc::new(LateUnmapping {
        inner: model.function(0).unwrap(),
        is_armed: AtomicBool::new(false),
        has_begun,
        go_on: Mutex::new(go_on),
    });
    let mut config = Config::default();
    config.memory.hugepages = HugePages::None;
    let function = Arc::clone(&late) as Arc<dyn Function>;
    let options = BringUpOptions::default();
    let device = ringside::driver::Device::bring_up(function, &config, options).unwrap();
    let domain = device.protection_domain().unwrap();
    let cache = cache_of_one(&domain);
    let pages = Pages::map(4 * PAGE);
    for (name, end) in ENDINGS {
        drop(cache.get(pages.at(0), PAGE).unwrap());
        late.is_armed.store(true, Ordering::Relaxed);
        std::thread::scope(|scope| {
            // Moved as an address: the pages stay mapped until the thread has ended.
            let first = pages.first.expose_provenance();
            let cache = &cache;
            let ending = scope.spawn(move || {
                let first = std::ptr::with_exposed_provenance_mut(first);
                let length = 4 * PAGE;
                end(cache, &Pages { first, length }).unwrap();
            });
            begins.recv_timeout(LIMIT).unwrap();
            let result = cache.invalidate(pages.at(0), PAGE);
            release.send(()).unwrap();
            ending.join().unwrap();
            let refused = result.expect_err(name);
            assert!(
                matches!(refused, CacheError::InUse { entries: 1 }),
                "{name}: {refused}"
            );
        });
        cache.invalidate(pages.at(0), PAGE).unwrap();
    }
    drop((cache, domain));
    assert!(device.shutdown().failures.is_empty());
    pages.unmap();
    model.stop();
}

#[test]
fn memory_whose_deregistration_is_not_confirmed_stays_in_use() {
    let model = Threaded::start(&WorldSettings::with_functions(1), None).unwrap();
    let mut config = Config::default();
    config.memory.hugepages = HugePages::None;
    let function = model.function(0).unwrap();
    let options = BringUpOptions::default();
    let device = ringside::driver::Device::bring_up(function, &config, options).unwrap();
    let domain = device.protection_domain().unwrap();
    let cache = cache_of_one(&domain);
    let refused = Fault::ControlCommandFails {
        opcode: Opcode::DeallocateStag.code(),
        major: 0x1234,
        minor: 0x5678,
    };
    let mut mapped = Vec::new();
    for (name, end) in ENDINGS {
        let pages = Pages::map(4 * PAGE);
        drop(cache.get(pages.at(0), PAGE).unwrap());
        model.with(move |world| world.inject(0, refused));
        let ended = end(&cache, &pages);
        model.with(|world| world.clear_faults(0));
        match name {
            "invalidation" => assert!(matches!(ended, Err(CacheError::Deregister(_)))),
            _ => ended.unwrap(),
        }
        let result = cache.invalidate(pages.at(0), PAGE).expect_err(name);
        assert!(
            matches!(result, CacheError::InUse { entries: 1 }),
            "{name}: {result}"
        );
        cache
            .invalidate(pages.at(PAGE), PAGE)
            .expect("another page");
        mapped.push(pages);
    }
    drop((cache, domain));
    assert!(device.shutdown().failures.is_empty());
    for pages in mapped {
        pages.unmap();
    }
    model.stop();
}

#[test]
fn a_range_without_a_place_for_its_region_is_not_in_use_and_idle_entries_make_place() {
    let _one = ONE.lock();
    let [left, _right] = connected(0);
    let quotas = Quotas {
        memory_regions: 1,
        ..Quotas::default()
    };
    let domain = left.device.protection_domain_with(quotas).unwrap();
    let cache = cache_of(&domain, settings(Unmapping::Told));
    let pages = Pages::map(4 * PAGE);
    let buffer = left.device.allocate(PAGE).unwrap();
    let region = domain.register(buffer, Access::LOCAL_WRITE).unwrap();
    cache.get(pages.at(0), PAGE).expect_err("one region");
    cache.invalidate(pages.at(0), PAGE).expect("no user");
    drop(region);
    drop(cache.get(pages.at(0), PAGE).expect("a place"));
    let held = cache.get(pages.at(2 * PAGE), PAGE).expect("that place");
    let report = cache.report();
    assert_eq!((report.misses, report.evicted, report.entries), (2, 1, 1));
    cache.get(pages.at(0), PAGE).expect_err("it is in use");
    drop((held, cache, domain));
    pages.unmap();
}

/// True if the pages are those of a file.
fn are_in_file(pages: &Pages) -> bool {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let first = pages.first as usize;
    let holds = |line: &&str| {
        let (from, rest) = line.split_once('-').unwrap();
        let (to, _) = rest.split_once(' ').unwrap();
        let [from, to] = [from, to].map(|at| usize::from_str_radix(at, 16).unwrap());
        (from..to).contains(&first)
    };
    maps.lines().find(holds).unwrap().contains("memfd:ringside")
}

/// The program uses the memory again once the deregistration has returned.
#[test]
fn pages_in_a_file_stay_there_when_a_reset_frees_a_region_that_was_not_confirmed() {
    let model = Threaded::start(&WorldSettings::with_functions(1), None).unwrap();
    let mut config = Config::default();
    config.memory.hugepages = HugePages::None;
    config.deadlines.control_queue_ms = 2000;
    let function = model.function(0).unwrap();
    let options = BringUpOptions::default();
    let mut device = ringside::driver::Device::bring_up(function, &config, options).unwrap();
    let domain = device.protection_domain().unwrap();
    let lend = |pages: &Pages| {
        let pool = device.pool().unwrap();
        // SAFETY: the pages stay mapped until the device was shut down, and only this thread uses
        //         them.
        let lent = unsafe { pool.lend_in_file(pages.first as usize, PAGE, DmaAccess::ReadWrite) };
        let region = domain.register(lent.unwrap(), Access::ALL);
        region.map_err(|refused| refused.error).unwrap()
    };
    let pages = [Pages::map(PAGE), Pages::map(PAGE)];
    for one in &pages {
        one.fill(7);
    }
    let [confirmed, unconfirmed] = [lend(&pages[0]), lend(&pages[1])];
    assert!(pages.iter().all(are_in_file));
    drop(confirmed.deregister().unwrap());
    assert!(!are_in_file(&pages[0]));
    let opcode = Opcode::DeallocateStag.code();
    model.with(move |world| world.inject(0, Fault::ControlCommandSilent { opcode }));
    unconfirmed.deregister().expect_err("the device is silent");
    assert!(device.is_contained());
    model.with(|world| world.clear_faults(0));
    device.recover().unwrap();
    assert!(are_in_file(&pages[1]));
    drop(domain);
    assert!(device.shutdown().failures.is_empty());
    for one in pages {
        one.unmap();
    }
    model.stop();
}
