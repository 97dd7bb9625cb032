//! Polls of a model's completion queues that find nothing.
//!
//! The model and the peer are processes of this machine. A program that polls without end takes the
//! cores that they need, so its polls give the core away from time to time.
//!
//! On a busy machine the core comes back only after others have used it for a while, some
//! milliseconds each. A thread that sleeps until something happens gets it sooner: there, calls
//! that may sleep do so without giving way before.

use crate::cancel::Uncancelled;
use ringside_bus::{Clock, TscClock};
use std::cell::Cell;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// Polls in a row that find nothing, after which others get the core, where each poller has one.
const EMPTY_POLLS: u32 = 64;
/// The cores that two programs and their model need, to poll each on its own.
const ENOUGH_CORES: usize = 3;
/// Empty polls of other queues, after which the thread gives way at another one.
const ELSEWHERE: u32 = 8;
/// Time after which the core comes back if the model and a peer have used it only.
const SHORT: Duration = Duration::from_micros(500);
/// Calls that may sleep, for which a machine counts as busy once the core came back late.
const BUSY_CALLS: u32 = 64;

static BUSY: Busy = Busy(AtomicU32::new(0));

/// Calls that may sleep, for which the machine counts as busy from now on.
struct Busy(AtomicU32);

impl Busy {
    /// The core came back after this time.
    fn note(&self, away: Duration) {
        if away > SHORT {
            self.0.store(BUSY_CALLS, Ordering::Relaxed);
        }
    }

    /// A call that may sleep begins. True if the machine is busy.
    fn counts(&self) -> bool {
        let less = |calls: u32| calls.checked_sub(1);
        let before = self
            .0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        before.is_ok()
    }
}

thread_local! {
    /// Read twice for each time a thread gives way, in half the time that `Instant` takes. Each
    /// thread has its own: a child of a fork would wait for one that another thread makes.
    static CLOCK: TscClock = TscClock::new();
    static PLACE: Cell<Place> = const { Cell::new(Place::NONE) };
    /// The thread is in a call that sleeps rather than give way.
    static SLEEPS: Cell<bool> = const { Cell::new(false) };
}

/// A call of this thread that sleeps if it finds nothing. As long as it lives, polls give the core
/// away unless the machine is busy.
pub(crate) struct MaySleep {
    before: bool,
}

impl MaySleep {
    pub(crate) fn begin() -> Self {
        Self {
            before: SLEEPS.replace(BUSY.counts()),
        }
    }
}

impl Drop for MaySleep {
    fn drop(&mut self) {
        SLEEPS.set(self.before);
    }
}

/// Gives the core to others, and notes if they keep it long.
pub(crate) fn give_way() {
    CLOCK.with(|clock| {
        let began = clock.now();
        std::thread::yield_now();
        BUSY.note(clock.now().since(began));
    });
}

/// The place at which a thread gives way: a program that polls several queues in turn does so once
/// a round.
#[derive(Clone, Copy, Debug)]
struct Place {
    /// address of a queue: its empty polls give way
    queue: usize,
    /// empty polls of others since
    elsewhere: u32,
}

impl Place {
    /// The first queue becomes it.
    const NONE: Self = Self {
        queue: 0,
        elsewhere: ELSEWHERE,
    };

    /// The place after an empty poll of `queue`, and true if that gives way.
    const fn after(self, queue: usize) -> (Self, bool) {
        let elsewhere = self.elsewhere + 1;
        if self.queue != queue && elsewhere < ELSEWHERE {
            return (Self { elsewhere, ..self }, false);
        }
        let elsewhere = 0;
        (Self { queue, elsewhere }, true)
    }
}

/// True if others shall get the core now. `queue` is the address of the queue whose last `empty`
/// polls found nothing.
pub(crate) fn gives_way(queue: usize, empty: u32) -> bool {
    if empty < empty_polls() || SLEEPS.get() {
        return false;
    }
    PLACE.with(|place| {
        let (next, gives_way) = place.get().after(queue);
        place.set(next);
        gives_way
    })
}

/// Polls in a row that find nothing, after which others get the core: one, if there are fewer cores
/// than pollers, of which one may wait for this core.
fn empty_polls() -> u32 {
    static POLLS: OnceLock<u32> = OnceLock::new();
    *POLLS.get_or_init(|| {
        // The number of cores is read from files.
        let _call = Uncancelled::new();
        match std::thread::available_parallelism() {
            Ok(cores) if cores.get() < ENOUGH_CORES => 1,
            _ => EMPTY_POLLS,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::{BUSY, BUSY_CALLS, Busy, EMPTY_POLLS, MaySleep, Place, SHORT, gives_way};
    use std::sync::atomic::AtomicU32;

    /// The polls of a sequence that give way.
    fn ways(polls: &[usize]) -> Vec<usize> {
        let mut place = Place::NONE;
        let mut gives_way = |queue: &usize| {
            let (next, gives) = place.after(*queue);
            place = next;
            gives
        };
        (0..polls.len())
            .filter(|at| gives_way(&polls[*at]))
            .collect()
    }

    #[test]
    fn a_thread_that_polls_one_queue_gives_way_at_each_poll_also_when_it_goes_to_another() {
        assert_eq!(ways(&[1; 3]), [0, 1, 2]);
        assert_eq!(ways(&[&[1; 2][..], &[2; 10]].concat()), [0, 1, 9, 10, 11]);
    }

    #[test]
    fn a_machine_is_busy_for_some_calls_after_the_core_came_back_late() {
        let busy = Busy(AtomicU32::new(0));
        busy.note(SHORT);
        assert!(!busy.counts());
        busy.note(SHORT * 2);
        let calls = (0..2 * BUSY_CALLS).filter(|_| busy.counts()).count();
        assert_eq!(calls, BUSY_CALLS as usize);
    }

    #[test]
    fn a_call_that_may_sleep_does_not_give_way_on_a_busy_machine() {
        assert!(gives_way(1, EMPTY_POLLS));
        {
            // Other threads count too, but fewer calls.
            BUSY.note(SHORT * 2);
            let _call = MaySleep::begin();
            assert!(!gives_way(1, EMPTY_POLLS));
        }
        assert!(gives_way(1, EMPTY_POLLS));
    }

    #[test]
    fn a_thread_that_polls_queues_in_turn_gives_way_once_a_round() {
        assert_eq!(ways(&[1, 2, 3].repeat(4)), [0, 3, 6, 9]);
    }
}
