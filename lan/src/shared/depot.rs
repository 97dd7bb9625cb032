//! Free buffers: magazines in per-thread caches, and the depot that caches exchange whole magazines
//! with.
//!
//! A magazine holds up to [`MAGAZINE`] buffer indices. Each thread owns two of them; it takes from
//! and gives to the loaded one, swaps with the spare one, and goes to the depot only when both are
//! empty or both are full. Runs of a fixed length swap earlier: when the loaded one has less than a
//! run, or less room than for one. So a queue that takes and gives runs copies each in one piece.
//! The depot is two lock-free stacks of magazines. All memory is made when the pool is.
//!
//! Source of the scheme: Bonwick and Adams, "Magazines and Vmem", USENIX 2001.

use super::thread;
use crate::copy::{copy_all_in, copy_all_out, copy_in, copy_out};
use crossbeam_queue::ArrayQueue;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Buffers of a magazine.
pub(super) const MAGAZINE: usize = 64;
/// Buffers of a run, which the queues take and give at once when they can.
pub(crate) const RUN: usize = 32;
const NO_MAGAZINE: u32 = u32::MAX;

struct Magazine {
    count: AtomicU32,
    /// the next of its stack
    next: AtomicU32,
    items: [AtomicU32; MAGAZINE],
}

impl Magazine {
    fn new() -> Self {
        Self {
            count: AtomicU32::new(0),
            next: AtomicU32::new(NO_MAGAZINE),
            items: std::array::from_fn(|_| AtomicU32::new(0)),
        }
    }

    fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed) as usize
    }

    fn set_count(&self, count: usize) {
        self.count.store(count as u32, Ordering::Relaxed);
    }
}

/// A stack of magazines. The head carries a tag that each change advances, so that a head that was
/// taken and put back meanwhile is not mistaken for an unchanged one.
struct Stack(AtomicU64);

impl Stack {
    const fn new() -> Self {
        Self(AtomicU64::new(NO_MAGAZINE as u64))
    }

    fn push(&self, magazines: &[Magazine], number: u32) {
        let Some(magazine) = magazines.get(number as usize) else {
            return;
        };
        let mut head = self.0.load(Ordering::Relaxed);
        loop {
            magazine.next.store(head as u32, Ordering::Relaxed);
            let new = (head >> 32).wrapping_add(1) << 32 | u64::from(number);
            match self
                .0
                .compare_exchange_weak(head, new, Ordering::Release, Ordering::Relaxed)
            {
                Ok(_) => return,
                Err(now) => head = now,
            }
        }
    }

    fn pop(&self, magazines: &[Magazine]) -> Option<u32> {
        let mut head = self.0.load(Ordering::Acquire);
        loop {
            let magazine = magazines.get(head as u32 as usize)?;
            let next = magazine.next.load(Ordering::Relaxed);
            let new = (head >> 32).wrapping_add(1) << 32 | u64::from(next);
            match self
                .0
                .compare_exchange_weak(head, new, Ordering::Acquire, Ordering::Acquire)
            {
                Ok(_) => return Some(head as u32),
                Err(now) => head = now,
            }
        }
    }
}

/// The buffers of one thread, on their own cache line, so that threads do not disturb each other.
#[repr(align(128))]
struct Cache {
    loaded: AtomicU32,
    spare: AtomicU32,
    /// buffers that this thread took and gave, ever
    taken: AtomicU64,
    given: AtomicU64,
}

impl Cache {
    /// The spare magazine becomes the loaded one.
    #[inline(always)]
    fn swap(&self) {
        let (loaded, spare) = (&self.loaded, &self.spare);
        let other = spare.load(Ordering::Relaxed);
        spare.store(loaded.load(Ordering::Relaxed), Ordering::Relaxed);
        loaded.store(other, Ordering::Relaxed);
    }
}

/// See the module.
pub(super) struct Depot {
    magazines: Box<[Magazine]>,
    caches: Box<[Cache]>,
    full: Stack,
    empty: Stack,
    /// for threads without a cache
    stray: ArrayQueue<u32>,
    stray_taken: AtomicU64,
    stray_given: AtomicU64,
}

impl Depot {
    /// A depot with the buffers `0..count`.
    pub(super) fn new(count: u32) -> Self {
        let filled = (count as usize).div_ceil(MAGAZINE);
        let threads = thread::MAX_THREADS as usize;
        let magazines: Box<[Magazine]> =
            (0..filled + 2 * threads).map(|_| Magazine::new()).collect();
        let cache = |thread: usize| Cache {
            loaded: AtomicU32::new((filled + 2 * thread) as u32),
            spare: AtomicU32::new((filled + 2 * thread + 1) as u32),
            taken: AtomicU64::new(0),
            given: AtomicU64::new(0),
        };
        let depot = Self {
            magazines,
            caches: (0..threads).map(cache).collect(),
            full: Stack::new(),
            empty: Stack::new(),
            stray: ArrayQueue::new(count.max(1) as usize),
            stray_taken: AtomicU64::new(0),
            stray_given: AtomicU64::new(0),
        };
        // Low numbers on top: a pool that is little used touches few pages.
        for number in (0..filled).rev() {
            let first = number * MAGAZINE;
            let last = (first + MAGAZINE).min(count as usize);
            if let Some(magazine) = depot.magazines.get(number) {
                for (item, index) in magazine.items.iter().zip(first..last) {
                    item.store(index as u32, Ordering::Relaxed);
                }
                magazine.set_count(last - first);
            }
            depot.full.push(&depot.magazines, number as u32);
        }
        depot
    }

    fn magazine(&self, number: &AtomicU32) -> &Magazine {
        // In range by construction: numbers only ever move between caches and stacks.
        &self.magazines[number.load(Ordering::Relaxed) as usize]
    }

    #[inline]
    fn cache(&self) -> Option<&Cache> {
        self.caches.get(thread::number() as usize)
    }

    /// Takes up to `into.len()` buffers; returns how many there were.
    #[inline]
    pub(super) fn take(&self, into: &mut [u32]) -> usize {
        let Some(cache) = self.cache() else {
            return self.take_stray(into);
        };
        let mut done = 0;
        while done < into.len() {
            let loaded = self.magazine(&cache.loaded);
            let count = loaded.count();
            if count == 0 {
                if !self.reload(cache) {
                    break;
                }
                continue;
            }
            let take = count.min(into.len() - done);
            let from = &loaded.items[count - take..count];
            copy_all_out(from, &mut into[done..done + take]);
            loaded.set_count(count - take);
            done += take;
        }
        if done < into.len() {
            done += self.take_of_ended(&mut into[done..]);
        }
        let taken = cache.taken.load(Ordering::Relaxed);
        cache.taken.store(taken + done as u64, Ordering::Relaxed);
        if done < into.len() && !self.stray.is_empty() {
            done += self.take_stray(&mut into[done..]);
        }
        done
    }

    /// Takes buffers out of the caches of threads that ended; the caller counts them. Lock-free.
    #[cold]
    fn take_of_ended(&self, into: &mut [u32]) -> usize {
        let mut done = 0;
        thread::visit_ended(|number| {
            let Some(cache) = self.caches.get(number as usize) else {
                return false;
            };
            for place in [&cache.loaded, &cache.spare] {
                let magazine = self.magazine(place);
                let count = magazine.count();
                let take = count.min(into.len() - done);
                let from = magazine.items[count - take..count].iter();
                for (to, from) in into[done..done + take].iter_mut().zip(from) {
                    *to = from.load(Ordering::Relaxed);
                }
                magazine.set_count(count - take);
                done += take;
            }
            done < into.len()
        });
        done
    }

    /// Returns buffers.
    ///
    /// The counter is stored last, with release order: once a sum of the counters shows that all
    /// buffers are back, nothing of the pool is touched any more.
    #[inline]
    pub(super) fn give(&self, buffers: &[u32]) {
        let Some(cache) = self.cache() else {
            return self.give_stray(buffers);
        };
        let mut done = 0;
        while done < buffers.len() {
            let loaded = self.magazine(&cache.loaded);
            let count = loaded.count();
            if count == MAGAZINE {
                if !self.unload(cache) {
                    return self.give_some_stray(cache, &buffers[done..], done);
                }
                continue;
            }
            let give = (MAGAZINE - count).min(buffers.len() - done);
            let to = &loaded.items[count..count + give];
            copy_all_in(&buffers[done..done + give], to);
            loaded.set_count(count + give);
            done += give;
        }
        let given = cache.given.load(Ordering::Relaxed);
        cache.given.store(given + done as u64, Ordering::Release);
    }

    /// Takes a run if a magazine of this thread's cache holds one; false, and nothing taken,
    /// otherwise.
    #[inline(always)]
    pub(super) fn take_run(&self, into: &mut [u32; RUN]) -> bool {
        let Some(cache) = self.cache() else {
            return false;
        };
        let mut magazine = self.magazine(&cache.loaded);
        if magazine.count() < RUN {
            magazine = self.magazine(&cache.spare);
            if magazine.count() < RUN {
                return false;
            }
            cache.swap();
        }
        let count = magazine.count();
        let Some(run) = magazine.items.get(..count).and_then(<[_]>::last_chunk) else {
            return false;
        };
        copy_out::<RUN>(run, into);
        magazine.set_count(count - RUN);
        let taken = cache.taken.load(Ordering::Relaxed);
        cache.taken.store(taken + RUN as u64, Ordering::Relaxed);
        true
    }

    /// Returns a run if a magazine of this thread's cache has room for it; false, and nothing
    /// returned, otherwise.
    #[inline(always)]
    pub(super) fn give_run(&self, buffers: &[u32; RUN]) -> bool {
        let Some(cache) = self.cache() else {
            return false;
        };
        let mut magazine = self.magazine(&cache.loaded);
        if magazine.count() > MAGAZINE - RUN {
            magazine = self.magazine(&cache.spare);
            if magazine.count() > MAGAZINE - RUN {
                return false;
            }
            cache.swap();
        }
        let count = magazine.count();
        let Some(run) = magazine.items.get(count..).and_then(<[_]>::first_chunk) else {
            return false;
        };
        copy_in::<RUN>(buffers, run);
        magazine.set_count(count + RUN);
        let given = cache.given.load(Ordering::Relaxed);
        cache.given.store(given + RUN as u64, Ordering::Release);
        true
    }

    /// Returns one buffer, like [`Depot::give`].
    #[inline]
    pub(super) fn give_one(&self, buffer: u32) {
        if let Some(cache) = self.cache() {
            let loaded = self.magazine(&cache.loaded);
            let count = loaded.count();
            if let Some(item) = loaded.items.get(count) {
                item.store(buffer, Ordering::Relaxed);
                loaded.set_count(count + 1);
                let given = cache.given.load(Ordering::Relaxed);
                return cache.given.store(given + 1, Ordering::Release);
            }
        }
        self.give(&[buffer]);
    }

    /// The loaded magazine is empty: gets another. False if there is none.
    #[cold]
    fn reload(&self, cache: &Cache) -> bool {
        let (loaded, spare) = (&cache.loaded, &cache.spare);
        let (empty, other) = (
            loaded.load(Ordering::Relaxed),
            spare.load(Ordering::Relaxed),
        );
        if self.magazine(spare).count() > 0 {
            loaded.store(other, Ordering::Relaxed);
            spare.store(empty, Ordering::Relaxed);
            return true;
        }
        let Some(full) = self.full.pop(&self.magazines) else {
            return false;
        };
        self.empty.push(&self.magazines, empty);
        loaded.store(full, Ordering::Relaxed);
        true
    }

    /// The loaded magazine is full: gets an empty one. False if there is none, which only
    /// threads without cache can cause.
    #[cold]
    fn unload(&self, cache: &Cache) -> bool {
        let (loaded, spare) = (&cache.loaded, &cache.spare);
        let (full, other) = (
            loaded.load(Ordering::Relaxed),
            spare.load(Ordering::Relaxed),
        );
        if self.magazine(spare).count() < MAGAZINE {
            loaded.store(other, Ordering::Relaxed);
            spare.store(full, Ordering::Relaxed);
            return true;
        }
        let Some(empty) = self.empty.pop(&self.magazines) else {
            return false;
        };
        self.full.push(&self.magazines, full);
        loaded.store(empty, Ordering::Relaxed);
        true
    }

    #[cold]
    fn take_stray(&self, into: &mut [u32]) -> usize {
        let mut done = 0;
        for to in into {
            let found = self.stray.pop().or_else(|| self.one_of_a_magazine());
            let Some(index) = found.or_else(|| self.one_of_ended()) else {
                break;
            };
            *to = index;
            done += 1;
        }
        self.stray_taken.fetch_add(done as u64, Ordering::Relaxed);
        done
    }

    /// Empties a full magazine into the queue of strays, all but one buffer.
    fn one_of_a_magazine(&self) -> Option<u32> {
        let number = self.full.pop(&self.magazines)?;
        let magazine = self.magazines.get(number as usize)?;
        let count = magazine.count();
        let mut items = magazine.items.iter().take(count);
        let first = items.next().map(|item| item.load(Ordering::Relaxed));
        for item in items {
            // There is room for all buffers of the pool.
            let _ = self.stray.push(item.load(Ordering::Relaxed));
        }
        magazine.set_count(0);
        self.empty.push(&self.magazines, number);
        first
    }

    fn one_of_ended(&self) -> Option<u32> {
        let mut one = [0];
        (self.take_of_ended(&mut one) == 1).then_some(one[0])
    }

    #[cold]
    fn give_stray(&self, buffers: &[u32]) {
        for index in buffers {
            let _ = self.stray.push(*index);
        }
        self.stray_given
            .fetch_add(buffers.len() as u64, Ordering::Release);
    }

    #[cold]
    fn give_some_stray(&self, cache: &Cache, buffers: &[u32], done: usize) {
        for index in buffers {
            let _ = self.stray.push(*index);
        }
        let given = cache.given.load(Ordering::Relaxed) + (done + buffers.len()) as u64;
        cache.given.store(given, Ordering::Release);
    }

    #[cfg(test)]
    pub(super) fn strays(&self) -> usize {
        self.stray.len()
    }

    /// Buffers that are in use. Exact while no thread takes any; otherwise at least the number in
    /// use at the end of the call's first half.
    pub(super) fn in_use(&self) -> u64 {
        let given = self.caches.iter().map(|one| &one.given);
        let given = given.chain(std::iter::once(&self.stray_given));
        let given: u64 = given.map(|one| one.load(Ordering::Acquire)).sum();
        let taken = self.caches.iter().map(|one| &one.taken);
        let taken = taken.chain(std::iter::once(&self.stray_taken));
        let taken: u64 = taken.map(|one| one.load(Ordering::Acquire)).sum();
        taken.wrapping_sub(given)
    }
}
