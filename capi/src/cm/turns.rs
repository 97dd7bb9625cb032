//! A lock that a thread cannot keep from others by taking it again at once.

use crate::device::lock;
use std::sync::{Mutex, MutexGuard, TryLockError};
use std::time::{Duration, Instant};

/// Between two attempts to lock until a time.
const PAUSE: Duration = Duration::from_millis(1);

/// A mutex that passes to a waiting thread before the one that unlocks it can have it again.
///
/// A mutex of the standard library stays with a thread that locks it again at once, as the thread
/// of the connection manager does while messages arrive faster than it reads them: a waiting thread
/// is woken, and finds it locked. Here the thread that is next has the `turn`, without which no
/// other one can lock the value.
#[derive(Debug)]
pub(super) struct Turns<T> {
    turn: Mutex<()>,
    value: Mutex<T>,
}

impl<T> Turns<T> {
    pub(super) const fn new(value: T) -> Self {
        Self {
            turn: Mutex::new(()),
            value: Mutex::new(value),
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, T> {
        let turn = lock(&self.turn);
        let value = lock(&self.value);
        drop(turn);
        value
    }

    /// Locks, if no other thread holds the lock for longer than that, and none has panicked with
    /// it.
    pub(super) fn lock_until(&self, limit: Instant) -> Option<MutexGuard<'_, T>> {
        let turn = lock_until(&self.turn, limit)?;
        let value = lock_until(&self.value, limit);
        drop(turn);
        value
    }
}

/// Locks, if no other thread holds the lock for longer than that, and none has panicked with it.
pub(super) fn lock_until<T>(mutex: &Mutex<T>, limit: Instant) -> Option<MutexGuard<'_, T>> {
    loop {
        match mutex.try_lock() {
            Ok(guard) => return Some(guard),
            Err(TryLockError::Poisoned(_)) => return None,
            Err(TryLockError::WouldBlock) if Instant::now() > limit => return None,
            Err(TryLockError::WouldBlock) => std::thread::sleep(PAUSE),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Turns;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::{Duration, Instant};

    const LIMIT: Duration = Duration::from_secs(20);
    /// The time for which the other thread holds the lock.
    const HELD: Duration = Duration::from_millis(2);
    const TIMES: usize = 50;

    /// Runs `locks` beside a thread that holds the lock, and takes it again at once.
    fn beside_a_greedy_thread(locks: impl Fn(&Turns<u64>)) {
        let (turns, ends) = (Turns::new(0), AtomicBool::new(false));
        std::thread::scope(|scope| {
            let greedy = scope.spawn(|| {
                let limit = Instant::now() + LIMIT;
                while !ends.load(Ordering::Relaxed) && Instant::now() < limit {
                    let mut rounds = turns.lock();
                    *rounds += 1;
                    let until = Instant::now() + HELD;
                    while Instant::now() < until {
                        std::hint::spin_loop();
                    }
                }
                ends.load(Ordering::Relaxed)
            });
            while *turns.lock() == 0 {
                std::thread::yield_now();
            }
            locks(&turns);
            ends.store(true, Ordering::Relaxed);
            assert!(greedy.join().unwrap(), "the lock did not come in time");
        });
    }

    #[test]
    fn a_thread_that_locks_again_at_once_keeps_no_other_one_out() {
        beside_a_greedy_thread(|turns| {
            for _ in 0..TIMES {
                // The other thread has it again.
                std::thread::sleep(HELD / 2);
                drop(turns.lock());
            }
        });
    }

    #[test]
    fn a_thread_that_waits_for_a_limited_time_gets_the_lock_too() {
        beside_a_greedy_thread(|turns| {
            for _ in 0..TIMES {
                std::thread::sleep(HELD / 2);
                let limit = Instant::now() + LIMIT;
                assert!(turns.lock_until(limit).is_some());
            }
        });
    }

    #[test]
    fn a_wait_for_a_lock_that_stays_taken_ends_at_its_limit() {
        let turns = Turns::new(());
        let held = turns.lock();
        let limit = Instant::now() + Duration::from_millis(20);
        assert!(turns.lock_until(limit).is_none());
        drop(held);
        assert!(turns.lock_until(limit).is_some());
    }
}
