//! The parts of the engine's state that one operation has for itself while its commands are under
//! way.

use parking_lot::{Condvar, MutexGuard};
use std::borrow::BorrowMut;
use std::collections::BTreeMap;
use std::fmt::{self, Display};
use std::ops::DerefMut;
use std::time::{Duration, Instant};

/// A part that an operation claims.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Claim {
    /// The state of one queue pair in the device: its owner's operations and its failure.
    QueuePair(u32),
    /// Multicast groups and their members. Claimed after a queue pair.
    Groups,
    /// The table of MAC addresses. Claimed after the other two.
    Addresses,
    /// The buffer of the device's counters.
    Statistics,
}

impl Display for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::QueuePair(number) => write!(f, "queue pair {number}"),
            Self::Groups => f.write_str("the table of multicast groups"),
            Self::Addresses => f.write_str("the table of MAC addresses"),
            Self::Statistics => f.write_str("the buffer of the counters"),
        }
    }
}

/// The claims that operations have.
#[derive(Debug, Default)]
pub(super) struct Claims {
    /// each with the number of its taking
    taken: BTreeMap<Claim, u64>,
    next: u64,
}

impl Claims {
    /// Takes a claim. If another operation has it: the number of that taking, so that a waiting
    /// operation sees if the claim changes hands.
    fn take(&mut self, claim: Claim) -> Result<(), u64> {
        if let Some(number) = self.taken.get(&claim) {
            return Err(*number);
        }
        self.taken.insert(claim, self.next);
        self.next += 1;
        Ok(())
    }
}

/// Takes `claim` in a locked state, which is unlocked while another operation has it. False if one
/// other operation has it for longer than `limit`. `ended` is signalled by [`Held`].
pub(super) fn take<S: BorrowMut<Claims>>(
    state: &mut MutexGuard<'_, S>,
    ended: &Condvar,
    claim: Claim,
    limit: Duration,
) -> bool {
    let mut waits_for = None;
    let mut deadline = Instant::now();
    loop {
        let claims: &mut Claims = (**state).borrow_mut();
        let Err(holder) = claims.take(claim) else {
            return true;
        };
        if waits_for.replace(holder) != Some(holder) {
            deadline = Instant::now() + limit;
        } else if Instant::now() >= deadline {
            return false;
        }
        ended.wait_until(state, deadline);
    }
}

/// A claim that was taken. It ends with this value, also when the operation panics.
pub(super) struct Held<'s, S>
where
    S: DerefMut<Target: BorrowMut<Claims>>,
{
    /// the locked state of the engine, or the session that holds it
    pub(super) of: &'s mut S,
    pub(super) ended: &'s Condvar,
    pub(super) claim: Claim,
}

impl<S> Drop for Held<'_, S>
where
    S: DerefMut<Target: BorrowMut<Claims>>,
{
    fn drop(&mut self) {
        let claims: &mut Claims = (**self.of).borrow_mut();
        claims.taken.remove(&self.claim);
        self.ended.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use parking_lot::Mutex;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    const ONE: Claim = Claim::QueuePair(7);
    const LONG: Duration = Duration::from_secs(30);
    const SHORT: Duration = Duration::from_millis(20);

    #[derive(Default)]
    struct Shared {
        claims: Mutex<Claims>,
        ended: Condvar,
    }

    impl Shared {
        fn take(&self, claim: Claim, limit: Duration) -> bool {
            take(&mut self.claims.lock(), &self.ended, claim, limit)
        }

        /// An operation that takes a claim and does `work` with the state unlocked.
        fn run(&self, claim: Claim, work: impl FnOnce()) {
            let mut state = self.claims.lock();
            assert!(take(&mut state, &self.ended, claim, LONG));
            let held = Held {
                of: &mut state,
                ended: &self.ended,
                claim,
            };
            MutexGuard::unlocked(held.of, work);
        }
    }

    #[test]
    fn a_claim_ends_with_its_operation_also_when_that_panics() {
        let shared = Shared::default();
        shared.run(ONE, || ());
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            shared.run(ONE, || panic!("on purpose"))
        }));
        panicked.expect_err("it panics");
        assert!(shared.take(ONE, SHORT));
    }

    #[test]
    fn one_that_waits_gets_the_claim_when_it_ends() {
        let shared = Shared::default();
        std::thread::scope(|scope| {
            let (begun, begins) = std::sync::mpsc::channel();
            let (end, ends) = std::sync::mpsc::channel();
            let shared = &shared;
            scope.spawn(move || {
                shared.run(ONE, move || {
                    begun.send(()).unwrap();
                    ends.recv().unwrap();
                });
            });
            begins.recv().unwrap();
            // Another claim is free, and this one is not.
            assert!(shared.take(Claim::Groups, SHORT));
            assert!(!shared.take(ONE, SHORT));
            let waits = scope.spawn(|| shared.take(ONE, LONG));
            std::thread::sleep(SHORT);
            end.send(()).unwrap();
            let asked = Instant::now();
            assert!(waits.join().unwrap());
            assert!(asked.elapsed() < LONG / 2, "it was not woken");
        });
    }

    #[test]
    fn the_limit_holds_for_one_operation_and_not_for_all_before() {
        let shared = Shared::default();
        assert!(shared.take(ONE, SHORT));
        let (step, limit) = (LONG / 600, LONG / 30);
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| shared.take(ONE, limit));
            // Many operations, each shorter than the limit, together longer.
            for _ in 0..30 {
                std::thread::sleep(step);
                let mut claims = shared.claims.lock();
                claims.taken.remove(&ONE);
                assert_eq!(claims.take(ONE), Ok(()));
                shared.ended.notify_all();
            }
            std::thread::sleep(step);
            shared.claims.lock().taken.remove(&ONE);
            shared.ended.notify_all();
            assert!(waits.join().unwrap(), "it gave up too early");
        });
    }
}
