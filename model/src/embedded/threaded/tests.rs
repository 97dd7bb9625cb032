//! Sleeps of the model's thread, and their ends.

use super::*;
use std::time::Instant;

/// A nap that no test lasts.
const ENDLESS: Duration = Duration::from_secs(600);

/// The time in which something that takes microseconds has happened, also on a busy machine.
const LIMIT: Duration = Duration::from_secs(60);

fn until(what: &str, mut is_true: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_true() {
        assert!(began.elapsed() < LIMIT, "{what}: not in {LIMIT:?}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A model whose thread sleeps until it is woken.
fn asleep() -> Threaded {
    let settings = WorldSettings::with_functions(1);
    let model = Threaded::start_with(&settings, None, ENDLESS).unwrap();
    fall_asleep(&model);
    model
}

fn fall_asleep(model: &Threaded) {
    until("the thread sleeps", || {
        model.shared.asleep.load(Ordering::SeqCst)
    });
}

#[test]
fn a_request_wakes_a_model_that_sleeps() {
    let model = asleep();
    let function = model.function(0).unwrap();
    let mut vendor = [0; 2];
    function.config_read(0, &mut vendor).unwrap();
    assert_eq!(u16::from_le_bytes(vendor), 0x8086);
}

#[test]
fn a_doorbell_by_message_wakes_a_model_that_sleeps() {
    let model = asleep();
    let bell = Bell { bar: 0, offset: 0 };
    model.shared.ring(0, bell, 0);
    until("the ring is taken", || model.shared.messages.is_empty());
}

#[test]
fn a_look_and_the_end_wake_a_model_that_sleeps() {
    let model = asleep();
    assert_eq!(model.with(|world| world.function_count()), Some(1));
    fall_asleep(&model);
    model.stop();
    assert!(!model.shared.alive.load(Ordering::SeqCst));
}

#[test]
fn a_look_that_panics_gets_no_answer_and_the_model_goes_on() {
    let model = Threaded::start(&WorldSettings::with_functions(1), None).unwrap();
    let answer = model.with(|world| {
        assert!(world.function_count() > 1, "the panic of this test");
        world.function_count()
    });
    assert_eq!(answer, None);
    assert_eq!(model.with(|world| world.function_count()), Some(1));
}

/// The number of times that a thread of this process has gone to sleep.
fn sleeps(thread: &str) -> u64 {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    let files = tasks.map(|task| task.path().join("status"));
    let texts = files.filter_map(|file| std::fs::read_to_string(file).ok());
    let mut named =
        texts.filter(|text| text.lines().any(|line| line == format!("Name:\t{thread}")));
    let status = named.next().expect("the thread");
    let count = status
        .lines()
        .find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    count.unwrap().trim().parse().unwrap()
}

#[test]
fn a_model_without_work_sleeps_a_millisecond_at_a_time() {
    let settings = WorldSettings::with_functions(1);
    let model = Threaded::start(&settings, None).unwrap();
    model.with(|_| rename("e810-idle"));
    fall_asleep(&model);
    // A nap is a hundredth of the time before it.
    std::thread::sleep(Duration::from_millis(200));
    let (before, began) = (sleeps("e810-idle"), Instant::now());
    std::thread::sleep(Duration::from_millis(500));
    let (slept, time) = (sleeps("e810-idle") - before, began.elapsed());
    assert!(
        u128::from(slept) <= time.as_millis() * 3 / 2,
        "{slept} sleeps in {time:?}"
    );
}

/// Gives the calling thread a name that no thread of another test has.
fn rename(name: &str) {
    std::fs::write("/proc/thread-self/comm", name).unwrap();
}

#[test]
fn a_model_on_the_only_core_of_its_process_offers_it_soon() {
    let core = ringside_bus::pinning::allowed_cores()[0];
    let on_one = std::thread::spawn(move || {
        pin_to(core).unwrap();
        (rounds_before_yield(None), rounds_before_yield(Some(core)))
    });
    let rounds = (IDLE_BEFORE_YIELD_ON_ONE_CORE, IDLE_BEFORE_YIELD);
    assert_eq!(on_one.join().unwrap(), rounds);
}
