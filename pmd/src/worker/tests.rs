use super::*;
use ringside_bus::pinning::allowed_cores;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Instant;

/// Far beyond what anything here takes; a test that reaches it has found a hang.
const LIMIT: Duration = Duration::from_secs(30);

fn idle<S>(_: &mut S) -> Polled {
    Polled::Idle
}

/// A worker that is busy with one request until the flag is set.
fn blocked_worker(inbox: usize) -> (Worker<Vec<u32>>, Arc<AtomicBool>) {
    let worker = Worker::start(None, inbox, Vec::new, idle).unwrap();
    let release = Arc::new(AtomicBool::new(false));
    let of_worker = Arc::clone(&release);
    let (begun, begins) = mpsc::channel();
    worker
        .send(move |_| {
            begun.send(()).unwrap();
            while !of_worker.load(Ordering::Acquire) {
                std::thread::yield_now();
            }
        })
        .unwrap();
    begins.recv_timeout(LIMIT).unwrap();
    (worker, release)
}

#[test]
fn a_worker_owns_its_state_polls_it_and_hands_it_back() {
    let worker = Worker::start(
        None,
        4,
        || 0_u64,
        |state| {
            *state += 1;
            if *state % 2 == 0 {
                Polled::Worked
            } else {
                Polled::Idle
            }
        },
    )
    .unwrap();
    let handle = worker.handle();
    while worker.ask(|state| *state, LIMIT).unwrap() < 10 {}
    let state = worker.stop(LIMIT).unwrap();
    let statistics = handle.statistics();
    assert_eq!(statistics.polls, state);
    assert_eq!(statistics.polls_with_work, state / 2);
    assert!(statistics.requests >= 1);
}

#[test]
fn a_worker_runs_on_the_core_it_was_given() {
    let core = *allowed_cores().last().unwrap();
    let status = || std::fs::read_to_string("/proc/thread-self/status").unwrap();
    let worker = Worker::start(Some(core), 4, status, idle).unwrap();
    let of_state = worker.stop(LIMIT).unwrap();
    let list = of_state
        .lines()
        .find_map(|line| line.strip_prefix("Cpus_allowed_list:"))
        .unwrap();
    assert_eq!(list.trim(), core.to_string());
}

#[test]
fn a_core_that_is_not_there_is_an_error_of_the_start_and_the_state_is_never_made() {
    let made = Arc::new(AtomicBool::new(false));
    let of_state = Arc::clone(&made);
    let make = move || of_state.store(true, Ordering::Relaxed);
    let error = Worker::start(Some(1_000_000), 4, make, idle).unwrap_err();
    assert!(matches!(error, WorkerError::Core(_)), "{error:?}");
    assert!(error.to_string().contains("1000000"), "{error}");
    assert!(!made.load(Ordering::Relaxed));
}

#[test]
fn a_state_that_cannot_be_made_is_an_error_of_the_start() {
    let make = || -> u32 { panic!("no {}", "memory") };
    let error = Worker::start(None, 4, make, idle).unwrap_err();
    assert_eq!(
        error,
        WorkerError::NoState {
            text: "no memory".into()
        }
    );
}

#[test]
fn requests_run_in_the_order_sent_and_all_of_them_before_the_stop() {
    let (worker, release) = blocked_worker(64);
    for number in 0..50 {
        worker.send(move |list| list.push(number)).unwrap();
    }
    let handle = worker.handle();
    release.store(true, Ordering::Release);
    let list = worker.stop(LIMIT).unwrap();
    assert_eq!(list, (0..50).collect::<Vec<_>>());
    assert_eq!(handle.statistics().requests, 51);
}

#[test]
fn an_inbox_beyond_the_limit_is_refused() {
    for wanted in [65_537, usize::MAX] {
        let refused = Worker::start(None, wanted, Vec::<u32>::new, idle).err();
        assert!(
            matches!(refused, Some(WorkerError::InboxTooLarge { given, .. }) if given == wanted),
            "{refused:?}"
        );
    }
}

#[test]
fn a_full_inbox_hands_the_request_back_and_it_can_be_sent_again() {
    let (worker, release) = blocked_worker(2);
    worker.send(|list| list.push(1)).unwrap();
    worker.send(|list| list.push(2)).unwrap();
    let mut refused = match worker.send(|list| list.push(3)) {
        Err(SendError::Full(request)) => request.into_inner(),
        other => panic!("{other:?}"),
    };
    assert_eq!(worker.ask(|_| (), LIMIT), Err(AskError::Full));
    release.store(true, Ordering::Release);
    loop {
        match worker.send(refused) {
            Ok(()) => break,
            Err(error) => refused = error.into_request(),
        }
        std::thread::yield_now();
    }
    assert_eq!(worker.stop(LIMIT).unwrap(), [1, 2, 3]);
}

#[test]
fn a_question_not_begun_in_time_is_withdrawn_and_never_run() {
    let (worker, release) = blocked_worker(4);
    let limit = Duration::from_millis(5);
    assert_eq!(
        worker.ask(|list| list.push(1), limit),
        Err(AskError::NotBegun { limit })
    );
    release.store(true, Ordering::Release);
    assert!(worker.stop(LIMIT).unwrap().is_empty());
}

#[test]
fn a_question_begun_but_late_takes_effect_and_says_so() {
    let worker = Worker::start(None, 4, Vec::new, idle).unwrap();
    let release = Arc::new(AtomicBool::new(false));
    let limit = Duration::from_millis(50);
    let error = loop {
        let of_worker = Arc::clone(&release);
        let question = move |list: &mut Vec<u32>| {
            while !of_worker.load(Ordering::Acquire) {
                std::thread::yield_now();
            }
            list.push(1);
        };
        match worker.ask(question, limit) {
            // The machine is busy; it was withdrawn.
            Err(AskError::NotBegun { .. }) => {}
            other => break other.unwrap_err(),
        }
    };
    assert_eq!(error, AskError::NotAnswered { limit });
    release.store(true, Ordering::Release);
    assert_eq!(worker.stop(LIMIT).unwrap(), [1]);
}

#[test]
fn a_panicking_poll_is_told_to_those_who_ask_and_to_the_stop_with_the_state() {
    let worker = Worker::start(
        None,
        4,
        || 0_u32,
        |state| {
            assert!(*state < 3, "poll {state} is one too many");
            *state += 1;
            Polled::Worked
        },
    )
    .unwrap();
    let handle = worker.handle();
    let error = loop {
        if let Err(error) = handle.ask(|_| (), LIMIT) {
            break error;
        }
    };
    let text = "poll 3 is one too many".to_string();
    assert_eq!(error, AskError::Panicked { text: text.clone() });
    assert!(matches!(handle.send(|_| ()), Err(SendError::Stopped(_))));
    match worker.stop(LIMIT) {
        Err(StopError::Panicked { text: said, state }) => {
            assert_eq!((said, state.into_inner()), (text, 3));
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_panicking_question_is_told_to_who_asked_it_and_to_those_who_wait_behind_it() {
    let (worker, release) = blocked_worker(4);
    let handles = [worker.handle(), worker.handle()];
    let waiting = handles
        .map(|handle| std::thread::spawn(move || handle.ask(|_| panic!("broken question"), LIMIT)));
    release.store(true, Ordering::Release);
    let text = "broken question".to_string();
    for asker in waiting {
        let outcome: Result<(), AskError> = asker.join().unwrap();
        assert_eq!(outcome, Err(AskError::Panicked { text: text.clone() }));
    }
    assert!(matches!(
        worker.stop(LIMIT),
        Err(StopError::Panicked { .. })
    ));
}

#[test]
fn a_stop_that_comes_too_early_gives_the_worker_back_to_be_stopped_again() {
    let (worker, release) = blocked_worker(4);
    let again = match worker.stop(Duration::from_millis(5)) {
        Err(StopError::Late { worker, .. }) => worker.into_inner(),
        other => panic!("{other:?}"),
    };
    release.store(true, Ordering::Release);
    assert!(again.stop(LIMIT).is_ok());
}

#[test]
fn a_handle_outlives_its_worker_and_says_that_it_stopped() {
    let worker = Worker::start(None, 4, || (), idle).unwrap();
    let handle = worker.handle();
    worker.stop(LIMIT).unwrap();
    assert_eq!(handle.ask(|()| (), LIMIT), Err(AskError::Stopped));
    assert!(matches!(handle.send(|()| ()), Err(SendError::Stopped(_))));
}

#[test]
fn a_dropped_worker_stops_and_its_state_is_dropped() {
    let state = Arc::new(());
    let of_worker = Arc::clone(&state);
    let worker = Worker::start(None, 4, move || of_worker, idle).unwrap();
    assert_eq!(Arc::strong_count(&state), 2);
    drop(worker);
    assert_eq!(Arc::strong_count(&state), 1);
}

#[test]
fn a_worker_without_work_sleeps_again_without_polling_for_its_idle_time() {
    let policy = Policy::BusyThenSleep {
        idle: Duration::from_millis(200),
        longest: Duration::from_millis(1),
        sleeper: Box::new(NoInterrupt),
    };
    let worker = Worker::start_with(policy, None, 1, || (), |_| idle(&mut ())).unwrap();
    let polls_after = |sleeps: u64| {
        let give_up = Instant::now() + LIMIT;
        loop {
            let so_far = worker.statistics();
            if so_far.sleeps >= sleeps {
                return (so_far.polls, so_far.sleeps);
            }
            assert!(Instant::now() < give_up, "{so_far:?}");
            std::thread::sleep(Duration::from_millis(1));
        }
    };
    let (before, first) = polls_after(1);
    let (after, last) = polls_after(first + 10);
    // Sixteen polls a sleep; 200 ms of polling would be a hundred thousand.
    assert!(
        after - before <= (last - first + 1) * 32,
        "{} polls",
        after - before
    );
    worker.stop(LIMIT).unwrap();
}

/// A means of waking that counts, and lets a worker sleep for a millisecond.
struct Counting {
    worked: Arc<AtomicU32>,
}

impl Sleeper<u32> for Counting {
    fn arm(&mut self, _: &mut u32) -> bool {
        true
    }

    fn interrupt<'s>(&self, _: &'s u32) -> Option<std::os::fd::BorrowedFd<'s>> {
        None
    }

    fn woken(&mut self, _: &mut u32, _: bool) {}

    fn worked(&mut self, _: &mut u32) {
        self.worked.fetch_add(1, Ordering::Relaxed);
    }

    fn longest(&self, _: &u32, policy: Duration) -> Duration {
        assert_eq!(policy, 100 * LIMIT);
        Duration::from_millis(1)
    }
}

#[test]
fn the_means_of_waking_limits_a_sleep_and_hears_once_of_work_after_it() {
    let worked = Arc::new(AtomicU32::new(0));
    let policy = Policy::BusyThenSleep {
        idle: Duration::ZERO,
        longest: 100 * LIMIT,
        sleeper: Box::new(Counting {
            worked: Arc::clone(&worked),
        }),
    };
    let poll = |left: &mut u32| {
        let polled = match *left {
            0 => Polled::Idle,
            _ => Polled::Worked,
        };
        *left = left.saturating_sub(1);
        polled
    };
    let worker = Worker::start_with(policy, None, 1, || 0, poll).unwrap();
    let sleeps = || worker.statistics().sleeps;
    let wait = |count: u64| {
        let give_up = Instant::now() + LIMIT;
        while sleeps() < count {
            assert!(Instant::now() < give_up, "{:?}", worker.statistics());
            std::thread::sleep(Duration::from_millis(1));
        }
    };
    wait(5);
    for round in 0..3 {
        assert_eq!(worked.load(Ordering::Relaxed), round);
        worker.ask(|left| *left = 10, LIMIT).unwrap();
        wait(sleeps() + 3);
    }
    assert_eq!(worked.load(Ordering::Relaxed), 3);
    assert_eq!(worker.stop(LIMIT).unwrap(), 0);
}

#[test]
fn a_name_that_no_thread_can_have_is_refused() {
    let made = Worker::start_named("a\0b", Policy::Busy, None, 1, || (), idle);
    let refused = made.map(drop).unwrap_err().to_string();
    assert!(refused.contains(r#""a\0b" has a NUL byte"#), "{refused}");
}

#[test]
fn a_request_that_was_refused_a_million_times_runs_like_any_other() {
    let (worker, release) = blocked_worker(1);
    worker.send(|_| ()).unwrap();
    let mut request: Request<Vec<u32>> = Box::new(|state| state.push(7));
    for _ in 0..1_000_000 {
        request = worker.send(request).unwrap_err().into_request();
    }
    release.store(true, Ordering::Release);
    let give_up = Instant::now() + LIMIT;
    while let Err(error) = worker.send(request) {
        request = error.into_request();
        assert!(Instant::now() < give_up, "the inbox stays full");
        std::thread::yield_now();
    }
    assert_eq!(worker.stop(LIMIT).unwrap(), [7]);
}

#[test]
fn many_cores_reach_one_worker_and_no_request_is_lost_or_run_twice() {
    const SENDERS: u32 = 4;
    const EACH: u32 = 5_000;
    let worker = Worker::start(None, 8, || vec![0_u32; SENDERS as usize], idle).unwrap();
    let senders: Vec<_> = (0..SENDERS)
        .map(|sender| {
            let handle = worker.handle();
            std::thread::spawn(move || {
                for number in 0..EACH {
                    let mut request: Request<Vec<u32>> = Box::new(move |next| {
                        // In order for each sender: a lost or repeated one would break the count.
                        if next[sender as usize] == number {
                            next[sender as usize] += 1;
                        }
                    });
                    while let Err(error) = handle.send(request) {
                        request = error.into_request();
                        std::thread::yield_now();
                    }
                }
            })
        })
        .collect();
    for sender in senders {
        sender.join().unwrap();
    }
    let handle = worker.handle();
    assert_eq!(worker.stop(LIMIT).unwrap(), [EACH; SENDERS as usize]);
    assert_eq!(
        handle.statistics().requests,
        u64::from(SENDERS) * u64::from(EACH)
    );
}

#[test]
fn stopping_while_others_ask_answers_or_refuses_each_of_them() {
    for _ in 0..50 {
        let worker = Worker::start(None, 2, || 0_u32, idle).unwrap();
        let run = Arc::new(AtomicU32::new(0));
        let askers: Vec<_> = (0..3)
            .map(|_| {
                let (handle, run) = (worker.handle(), Arc::clone(&run));
                std::thread::spawn(move || {
                    let mut answered = 0;
                    loop {
                        let run = Arc::clone(&run);
                        let question = move |_: &mut u32| run.fetch_add(1, Ordering::Relaxed);
                        match handle.ask(question, LIMIT) {
                            Ok(_) => answered += 1,
                            Err(AskError::Full) => std::thread::yield_now(),
                            Err(AskError::Stopped) => return answered,
                            Err(error) => panic!("{error}"),
                        }
                    }
                })
            })
            .collect();
        while worker.statistics().requests < 10 {
            std::thread::yield_now();
        }
        worker.stop(LIMIT).unwrap();
        let answered: u32 = askers.into_iter().map(|asker| asker.join().unwrap()).sum();
        assert_eq!(answered, run.load(Ordering::Relaxed));
    }
}

#[test]
fn two_workers_on_two_cores_work_at_once_and_hand_each_other_requests() {
    let cores = allowed_cores();
    let (first, last) = (cores.first().copied(), cores.last().copied());
    let count = |state: &mut u32| {
        if *state > 0 {
            Polled::Worked
        } else {
            Polled::Idle
        }
    };
    let left = Worker::start(first, 64, || 0_u32, count).unwrap();
    let right = Worker::start(last, 64, || 0_u32, count).unwrap();
    let to_right = right.handle();
    for _ in 0..100 {
        let to_right = to_right.clone();
        left.ask(
            move |state| {
                *state += 1;
                to_right.send(|state| *state += 1).is_ok()
            },
            LIMIT,
        )
        .unwrap();
        // Each is taken before the next, so that none finds the inbox full.
        right.ask(|_| (), LIMIT).unwrap();
    }
    assert_eq!(left.stop(LIMIT).unwrap(), 100);
    assert_eq!(right.stop(LIMIT).unwrap(), 100);
}

#[test]
fn errors_of_a_worker_can_cross_threads_by_reference() {
    fn is_sync<T: std::error::Error + Send + Sync + 'static>() {}
    // A state that is `Send` only, as a queue pair is.
    is_sync::<StopError<std::cell::Cell<u32>>>();
    is_sync::<SendError<std::cell::Cell<u32>>>();
}
