//! The worker's loop.

use super::Polled;
use super::inbox::{Ended, MAIL, STOP, Shared};
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;

/// Requests run between two polls, so that many of them don't hold up the data path for long.
const REQUESTS_A_ROUND: usize = 8;

/// Polls until the worker is told to stop, or a poll or a request panics.
pub(super) fn run<S>(shared: &Shared<S>, mut state: S, mut poll: impl FnMut(&mut S) -> Polled) {
    // Whoever gets the state after a panic is told that it was one.
    let outcome = catch_unwind(AssertUnwindSafe(|| rounds(shared, &mut state, &mut poll)));
    let panic = outcome.err().map(|payload| panic_text(&*payload));
    // The poll closure may own things of the user's: gone before the end is told.
    let dropped = catch_unwind(AssertUnwindSafe(|| drop(poll)));
    let panic = panic.or_else(|| dropped.err().map(|payload| panic_text(&*payload)));
    shared.finish(Ended { state, panic });
}

fn rounds<S>(shared: &Shared<S>, state: &mut S, poll: &mut impl FnMut(&mut S) -> Polled) {
    let counters = &shared.counters.0;
    let (mut polls, mut polls_with_work) = (0_u64, 0_u64);
    loop {
        if shared.flags.0.load(Ordering::Relaxed) != 0 && serve(shared, state) {
            return;
        }
        polls_with_work += u64::from(poll(state) == Polled::Worked);
        polls += 1;
        // Stores, not additions: nobody else writes them.
        counters.polls.store(polls, Ordering::Relaxed);
        counters
            .polls_with_work
            .store(polls_with_work, Ordering::Relaxed);
        std::hint::spin_loop();
    }
}

/// Runs some requests. Returns whether the worker shall stop; then all of them were run.
#[cold]
fn serve<S>(shared: &Shared<S>, state: &mut S) -> bool {
    let flags = shared.flags.0.fetch_and(!MAIL, Ordering::AcqRel);
    let stop = flags & STOP != 0;
    let at_most = if stop {
        shared.inbox.len()
    } else {
        REQUESTS_A_ROUND
    };
    for _ in 0..at_most {
        let Some(request) = shared.inbox.pop() else {
            return stop;
        };
        request(state);
        shared.counters.0.requests.fetch_add(1, Ordering::Relaxed);
    }
    if !stop {
        // There may be more.
        shared.flags.0.fetch_or(MAIL, Ordering::Relaxed);
    }
    stop
}

/// What a panic said.
pub(super) fn panic_text(payload: &(dyn Any + Send)) -> String {
    if let Some(text) = payload.downcast_ref::<&str>() {
        (*text).into()
    } else if let Some(text) = payload.downcast_ref::<String>() {
        text.clone()
    } else {
        "(a panic without text)".into()
    }
}
