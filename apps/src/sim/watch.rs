//! Tells of a run that does not end: a loop of driver or model that lets no time pass is
//! beyond what the run itself can find.

use std::io::Write;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The time of a run after which its seed is printed, and again after as long.
const LONG: Duration = Duration::from_secs(60);

/// The run of each job: its seed, and the moment at which it is printed.
struct State {
    under_way: Vec<Option<(u64, Instant)>>,
    jobs: u16,
}

/// See the module.
pub(super) struct Watch {
    state: Mutex<State>,
    job_ended: Condvar,
}

/// A job that has begun. It ends with this.
pub(super) struct Job<'a> {
    watch: &'a Watch,
    number: usize,
}

impl Watch {
    pub(super) fn new(jobs: u16) -> Self {
        let under_way = vec![None; jobs.into()];
        Self {
            state: Mutex::new(State { under_way, jobs }),
            job_ended: Condvar::new(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn job(&self, number: u16) -> Job<'_> {
        Job {
            watch: self,
            number: number.into(),
        }
    }

    /// Returns once all jobs have ended.
    pub(super) fn look_at_jobs(&self) {
        let mut state = self.state();
        while state.jobs > 0 {
            let waited = self.job_ended.wait_timeout(state, LONG / 60);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
            for seed in state.late(Instant::now()) {
                // A line that cannot be shown is no reason to stop.
                let _ = writeln!(
                    std::io::stderr(),
                    "seed {seed} has been running for {} s or more",
                    LONG.as_secs()
                );
            }
        }
    }
}

impl State {
    /// The seeds of runs that take long, each once in a while.
    fn late(&mut self, now: Instant) -> Vec<u64> {
        let late = self.under_way.iter_mut().flatten();
        let late = late.filter(|(_, told)| *told <= now);
        late.map(|(seed, told)| {
            *told = now + LONG;
            *seed
        })
        .collect()
    }
}

impl Job<'_> {
    /// A run of this job begins; its last one has ended.
    pub(super) fn run(&self, seed: u64) {
        if let Some(place) = self.watch.state().under_way.get_mut(self.number) {
            *place = Some((seed, Instant::now() + LONG));
        }
    }
}

impl Drop for Job<'_> {
    fn drop(&mut self) {
        let mut state = self.watch.state();
        state.jobs = state.jobs.saturating_sub(1);
        if let Some(place) = state.under_way.get_mut(self.number) {
            *place = None;
        }
        drop(state);
        self.watch.job_ended.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_that_take_long_are_told_once_in_a_while() {
        let watch = Watch::new(2);
        let (one, other) = (watch.job(0), watch.job(1));
        one.run(7);
        let later = Instant::now() + LONG;
        assert!(watch.state().late(Instant::now()).is_empty());
        assert_eq!(watch.state().late(later), [7]);
        assert!(watch.state().late(later).is_empty());
        other.run(8);
        one.run(9);
        assert_eq!(watch.state().late(later + 2 * LONG), [9, 8]);
        drop(one);
        assert_eq!(watch.state().late(later + 4 * LONG), [8]);
        drop(other);
        watch.look_at_jobs();
    }
}
