//! Small numbers for threads, so that each finds its own cache without a lock.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

/// The value of a thread that has not requested a number yet.
const UNKNOWN: u32 = u32::MAX;
/// A thread that gets none: all are taken, or it is ending.
const NONE: u32 = u32::MAX - 1;
/// Numbers given at once at most.
pub(super) const MAX_THREADS: u32 = 64;

/// A bit for each number that is taken. Taking one acquires what its last owner released.
static TAKEN: AtomicU64 = AtomicU64::new(0);
/// A bit for each number that was ever taken.
static USED: AtomicU64 = AtomicU64::new(0);
const _: () = assert!(MAX_THREADS == u64::BITS);

/// Frees the number when its thread ends.
struct Guard(u32);

impl Drop for Guard {
    fn drop(&mut self) {
        NUMBER.set(NONE);
        if self.0 < MAX_THREADS {
            release(self.0);
        }
    }
}

thread_local! {
    static NUMBER: Cell<u32> = const { Cell::new(UNKNOWN) };
    static GUARD: Guard = Guard(NUMBER.get());
}

/// Takes a number; false if it is taken.
fn claim(number: u32) -> bool {
    let bit = 1 << number;
    if TAKEN.fetch_or(bit, Ordering::Acquire) & bit != 0 {
        return false;
    }
    USED.fetch_or(bit, Ordering::Relaxed);
    true
}

fn release(number: u32) {
    TAKEN.fetch_and(!(1 << number), Ordering::Release);
}

/// Calls `visit` with each number that an ended thread had and no thread has now; no thread takes
/// the number meanwhile. Ends when `visit` returns false.
pub(super) fn visit_ended(mut visit: impl FnMut(u32) -> bool) {
    let mut ended = USED.load(Ordering::Relaxed) & !TAKEN.load(Ordering::Relaxed);
    while ended != 0 {
        let number = ended.trailing_zeros();
        ended &= ended - 1;
        if claim(number) {
            let goes_on = visit(number);
            release(number);
            if !goes_on {
                return;
            }
        }
    }
}

/// The number of this thread, below [`MAX_THREADS`]; larger if it has none.
///
/// No two live threads have the same one. A thread that takes over the number of one that ended
/// sees everything that the other wrote.
#[inline(always)]
pub(super) fn number() -> u32 {
    let number = NUMBER.get();
    if number == UNKNOWN { take() } else { number }
}

#[cold]
fn take() -> u32 {
    let number = (0..MAX_THREADS).find(|number| claim(*number));
    let number = number.unwrap_or(NONE);
    NUMBER.set(number);
    if number < MAX_THREADS && GUARD.try_with(|_| ()).is_err() {
        // The thread is ending: nothing would give the number back later.
        release(number);
        NUMBER.set(NONE);
        return NONE;
    }
    number
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn live_threads_have_different_numbers_and_ended_ones_give_theirs_back() {
        let barrier = std::sync::Barrier::new(8);
        let numbers: Vec<u32> = std::thread::scope(|scope| {
            let ask = || {
                let number = number();
                barrier.wait();
                number
            };
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(ask)).collect();
            threads.into_iter().map(|one| one.join().unwrap()).collect()
        });
        let distinct: std::collections::BTreeSet<_> = numbers.iter().collect();
        assert_eq!(distinct.len(), 8);
        for _ in 0..MAX_THREADS * 2 {
            let number = std::thread::spawn(number).join().unwrap();
            assert!(number < MAX_THREADS);
        }
    }
}
