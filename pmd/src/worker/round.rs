//! The worker's loop.

use super::inbox::{Ended, Shared};
use super::{Policy, Polled, Sleeper};
use rustix::event::{PollFd, PollFlags, Timespec};
use std::any::Any;
use std::os::fd::AsFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Requests run between two polls, so that many of them don't hold up the data path for long.
const REQUESTS_A_ROUND: usize = 8;

/// Polls until the worker's stop is requested, or a poll or a request panics.
pub(super) fn run<S>(
    shared: &Shared<S>,
    mut state: S,
    mut poll: impl FnMut(&mut S) -> Polled,
    mut policy: Policy<S>,
) {
    // The receiver of the state must be notified of a panic.
    let outcome = catch_unwind(AssertUnwindSafe(|| match &mut policy {
        Policy::Busy => rounds(shared, &mut state, &mut poll),
        other => patient_rounds(shared, &mut state, &mut poll, other),
    }));
    let panic = outcome.err().map(|payload| panic_text(&*payload));
    // The poll closure and the sleeper may own values of the user: they are dropped before the end
    // is published.
    let dropped = catch_unwind(AssertUnwindSafe(|| drop((poll, policy))));
    let panic = panic.or_else(|| dropped.err().map(|payload| panic_text(&*payload)));
    shared.finish(Ended { state, panic });
}

fn rounds<S>(shared: &Shared<S>, state: &mut S, poll: &mut impl FnMut(&mut S) -> Polled) {
    let counters = &shared.counters.0;
    let (mut polls, mut polls_with_work) = (0_u64, 0_u64);
    loop {
        if shared.flags.0.any() && serve(shared, state) {
            return;
        }
        polls_with_work += u64::from(poll(state) == Polled::Worked);
        polls += 1;
        // Stores, not additions: no other thread writes them.
        counters.polls.store(polls, Ordering::Relaxed);
        counters
            .polls_with_work
            .store(polls_with_work, Ordering::Relaxed);
        std::hint::spin_loop();
    }
}

/// Polls between two reads of the clock while idle.
const POLLS_A_LOOK: u32 = 16;

/// The same for a worker that stops polling while it is idle.
fn patient_rounds<S>(
    shared: &Shared<S>,
    state: &mut S,
    poll: &mut impl FnMut(&mut S) -> Polled,
    policy: &mut Policy<S>,
) {
    let counters = &shared.counters.0;
    let (mut polls, mut polls_with_work) = (0_u64, 0_u64);
    let (mut idle_polls, mut idle_since) = (0_u32, None);
    let mut may_be_armed = false;
    loop {
        if shared.flags.0.any() {
            if serve(shared, state) {
                return;
            }
            idle_since = None;
        }
        let worked = poll(state) == Polled::Worked;
        polls_with_work += u64::from(worked);
        polls += 1;
        counters.polls.store(polls, Ordering::Relaxed);
        counters
            .polls_with_work
            .store(polls_with_work, Ordering::Relaxed);
        if worked {
            (idle_polls, idle_since) = (0, None);
            if std::mem::take(&mut may_be_armed)
                && let Policy::BusyThenSleep { sleeper, .. } = policy
            {
                sleeper.worked(state);
            }
            continue;
        }
        std::hint::spin_loop();
        idle_polls = idle_polls.wrapping_add(1);
        if !idle_polls.is_multiple_of(POLLS_A_LOOK) {
            continue;
        }
        let since = *idle_since.get_or_insert_with(Instant::now);
        match policy {
            Policy::BusyThenYield { idle } if since.elapsed() >= *idle => std::thread::yield_now(),
            Policy::BusyThenSleep {
                idle,
                longest,
                sleeper,
            } if since.elapsed() >= *idle => {
                may_be_armed = true;
                let may_have_work = sleep(shared, state, &mut **sleeper, *longest);
                // After a sleep that only its limit ended, the worker is as idle as before.
                idle_since = idle_since.filter(|_| !may_have_work);
            }
            _ => {}
        }
    }
}

/// Sleeps until the interrupt, a request, or the limit. True if there may be work.
fn sleep<S>(
    shared: &Shared<S>,
    state: &mut S,
    sleeper: &mut dyn Sleeper<S>,
    longest: Duration,
) -> bool {
    let Some(alarm) = &shared.alarm else {
        return true;
    };
    if !sleeper.arm(state) {
        return true;
    }
    // A thread that sets a flag after this sees that the worker sleeps; a flag that was set before
    // is seen here.
    let asleep = shared.flags.0.fall_asleep();
    let mut interrupted = false;
    if asleep {
        shared.counters.0.sleeps.fetch_add(1, Ordering::Relaxed);
        let longest = sleeper.longest(state, longest);
        let limit = Timespec {
            tv_sec: longest.as_secs() as i64,
            tv_nsec: longest.subsec_nanos().into(),
        };
        let interrupt = sleeper.interrupt(state);
        let mut waited: Vec<PollFd<'_>> = std::iter::once(alarm.as_fd())
            .chain(interrupt)
            .map(|descriptor| PollFd::from_borrowed_fd(descriptor, PollFlags::IN))
            .collect();
        // Woken by a signal, it polls a few times and sleeps again.
        if rustix::event::poll(&mut waited, Some(&limit)).is_ok() {
            let readable = waited.get(1).map(PollFd::revents);
            interrupted = readable.is_some_and(|events| events.contains(PollFlags::IN));
        }
    }
    shared.flags.0.wake();
    let mut count = [0; 8];
    let _ = rustix::io::read(alarm, &mut count);
    sleeper.woken(state, interrupted);
    // A request is seen by its flag.
    interrupted
}

/// Runs some requests. Returns whether the worker shall stop; then all of them were run.
#[cold]
fn serve<S>(shared: &Shared<S>, state: &mut S) -> bool {
    let stop = shared.flags.0.take_mail();
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
        shared.flags.0.leave_mail();
    }
    stop
}

/// The message of a panic.
pub(super) fn panic_text(payload: &(dyn Any + Send)) -> String {
    if let Some(text) = payload.downcast_ref::<&str>() {
        (*text).into()
    } else if let Some(text) = payload.downcast_ref::<String>() {
        text.clone()
    } else {
        "(a panic without text)".into()
    }
}
