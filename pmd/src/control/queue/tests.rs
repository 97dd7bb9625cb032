use super::*;
use crate::rdma::RdmaError;
use crate::trace::Recorder;
use ringside_bus::dma_pool::PoolSettings;
use ringside_bus::double::{Double, Script};
use ringside_bus::{Function, FunctionError, PageSize, Words};
use ringside_spec::rdma::commands::Nop;
use std::collections::{BTreeMap, VecDeque};

/// Commands that the rings under test hold.
const ENTRIES: u32 = 4;

/// The engine's action when its doorbell rings.
#[derive(Clone, Copy, Debug)]
enum Answer {
    Silence,
    Tail { error: Option<(u16, u16)> },
    Completion(ControlCompletion),
}

#[derive(Default)]
struct Inside {
    registers: BTreeMap<u64, u32>,
    answers: VecDeque<Answer>,
    completions: Option<Words>,
    written: u32,
}

impl Inside {
    fn answer(&mut self) {
        let answer = self.answers.pop_front();
        self.give(answer);
    }

    fn give(&mut self, answer: Option<Answer>) {
        match answer {
            None | Some(Answer::Silence) => {}
            Some(Answer::Tail { error }) => {
                let tail = self.registers.get(&CQP_TAIL).copied().unwrap_or(0);
                let (major, minor) = error.unwrap_or((0, 0));
                let codes = CqpErrorCodes::ZERO
                    .with_major(major.into())
                    .with_minor(minor.into());
                let tail = CqpTail(tail)
                    .with_tail((CqpTail(tail).tail() + 1) % ENTRIES)
                    .with_operation_error(error.is_some());
                self.registers.insert(CQP_ERROR_CODES, codes.0);
                self.registers.insert(CQP_TAIL, tail.0);
            }
            Some(Answer::Completion(completion)) => {
                let ring = self.completions.clone().expect("a ring of completions");
                let slot = (self.written % ENTRIES) as usize;
                let valid = (self.written / ENTRIES).is_multiple_of(2);
                let words = ControlCompletion {
                    valid,
                    ..completion
                }
                .encode();
                for (index, word) in words.iter().enumerate() {
                    ring.store(slot * 4 + index, *word);
                }
                self.written += 1;
            }
        }
    }
}

/// An engine that answers as it is told.
type Engine = Double<Inside>;

impl Script for Inside {
    fn read(&self, offset: u64) -> u32 {
        self.registers.get(&offset).copied().unwrap_or(0)
    }

    fn write(&mut self, offset: u64, value: u32) {
        self.registers.insert(offset, value);
        if offset == CQP_DOORBELL {
            self.answer();
        }
    }
}

struct Bench {
    engine: Arc<Engine>,
    pool: Arc<DmaPool>,
    queue: ControlQueue,
}

impl Bench {
    /// A queue that sees its answers in a register.
    fn new() -> Self {
        Self::waiting(Duration::from_millis(10))
    }

    fn waiting(deadline: Duration) -> Self {
        let engine = Arc::new(Engine::new(Inside::default(), Duration::ZERO));
        let function = Arc::clone(&engine) as Arc<dyn Function>;
        let settings = PoolSettings {
            largest_page: PageSize::FourKiB,
            ..PoolSettings::default()
        };
        let pool = DmaPool::new(Arc::clone(&function), settings).unwrap();
        let registers = Registers::new(function, Recorder::new());
        let settings = ControlQueueSettings {
            entries: ENTRIES,
            deadline,
        };
        let queue = ControlQueue::prepare(registers, &pool, settings).unwrap();
        Self {
            engine,
            pool,
            queue,
        }
    }

    /// A queue that gets completions.
    fn with_completions() -> Self {
        Self::completing(Self::new())
    }

    /// The same for threads of this test: virtual time passes quickly while they wait.
    fn patient() -> Self {
        Self::completing(Self::waiting(Duration::from_secs(1 << 24)))
    }

    fn completing(bench: Self) -> Self {
        let ring = bench.pool.allocate(ENTRIES as usize * 32, 256).unwrap();
        let shadow = bench.pool.allocate(64, 128).unwrap();
        bench.engine.script().completions = Some(ring.words());
        assert!(bench.queue.use_completions(ring, ENTRIES as usize, shadow));
        bench
    }

    fn answer(&self, answer: Answer) {
        self.engine.script().answers.push_back(answer);
    }

    /// Answers now, without a doorbell.
    fn complete(&self, completion: ControlCompletion) {
        let answer = Answer::Completion(completion);
        self.engine.script().give(Some(answer));
    }

    /// Waits until so many commands are under way.
    fn until_under_way(&self, commands: u32) {
        let limit = Limit::new();
        while self.queue.commands_under_way() != commands {
            let now = self.queue.commands_under_way();
            limit.check(|| format!("{commands} commands under way; there are {now}"));
        }
    }

    /// Runs threads that execute commands. A failure of the test ends their commands: otherwise the
    /// scope would wait for their deadlines, which are not reached in the life of the test.
    fn scope<'env, T>(
        &'env self,
        run: impl for<'scope> FnOnce(&'scope std::thread::Scope<'scope, 'env>) -> T,
    ) -> T {
        std::thread::scope(|scope| {
            let _ending = AbandonsOnFailure(&self.queue);
            run(scope)
        })
    }

    fn set(&self, register: u64, value: u32) {
        let mut inside = self.engine.script();
        inside.registers.insert(register, value);
    }
}

/// The limit of a wait for other threads, in real time.
struct Limit(std::time::Instant);

impl Limit {
    const LENGTH: Duration = Duration::from_secs(30);

    fn new() -> Self {
        Self(std::time::Instant::now() + Self::LENGTH)
    }

    /// Yields; panics once the time is over.
    fn check(&self, awaited: impl FnOnce() -> String) {
        let in_time = std::time::Instant::now() < self.0;
        assert!(in_time, "not within {:?}: {}", Self::LENGTH, awaited());
        std::thread::yield_now();
    }
}

struct AbandonsOnFailure<'a>(&'a ControlQueue);

impl Drop for AbandonsOnFailure<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.abandon(FailureCause::Requested);
        }
    }
}

fn completion(wqe_index: u32) -> ControlCompletion {
    ControlCompletion {
        cqp_context: COMPLETION_CONTEXT,
        wqe_index: wqe_index as u16,
        ..ControlCompletion::ZERO
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        self.pool.close().unwrap();
    }
}

#[test]
fn a_tail_that_moves_is_the_answer_and_its_error_bit_a_refusal() {
    let bench = Bench::new();
    for _ in 0..10 {
        bench.answer(Answer::Tail { error: None });
        assert!(bench.queue.execute(Nop {}).is_ok());
    }
    bench.answer(Answer::Tail {
        error: Some((0xFFFF, 0x8002)),
    });
    let error = bench.queue.execute(Nop {}).unwrap_err();
    assert_eq!(
        error,
        ControlError::Refused {
            opcode: Opcode::Nop,
            failure: CommandFailure::InvalidState,
        }
    );
    assert!(!bench.queue.is_stuck());
}

#[test]
fn completions_answer_over_many_turns_of_both_rings() {
    let bench = Bench::with_completions();
    for round in 0..3 * ENTRIES + 1 {
        bench.answer(Answer::Completion(ControlCompletion {
            return_value: round + 7,
            minor_code: 3,
            ..completion(round % ENTRIES)
        }));
        let done = bench.queue.execute(Nop {}).unwrap();
        assert_eq!((done.return_value, done.minor_code), (round + 7, 3));
    }
}

#[test]
fn a_completion_with_the_error_bit_is_a_refusal() {
    let bench = Bench::with_completions();
    bench.answer(Answer::Completion(ControlCompletion {
        error: true,
        major_code: 0x1234,
        minor_code: 0x5678,
        ..completion(0)
    }));
    let error = bench.queue.execute(Nop {}).unwrap_err();
    assert!(error.is_refusal());
    assert!(error.to_string().contains("0x1234"), "{error}");
}

#[test]
fn a_completion_of_another_command_or_queue_is_not_taken_for_the_answer() {
    let foreign = ControlCompletion {
        cqp_context: 1,
        ..completion(0)
    };
    for wrong in [completion(2), foreign] {
        let bench = Bench::with_completions();
        bench.answer(Answer::Completion(wrong));
        let error = bench.queue.execute(Nop {}).unwrap_err();
        assert!(matches!(error, ControlError::Garbled { .. }), "{error}");
        let next = bench.queue.execute(Nop {}).unwrap_err();
        assert!(matches!(next, ControlError::Stuck { .. }), "{next}");
    }
}

#[test]
fn silence_ends_in_the_deadline_and_nothing_is_sent_afterwards() {
    for bench in [Bench::new(), Bench::with_completions()] {
        bench.answer(Answer::Silence);
        let error = bench.queue.execute(Nop {}).unwrap_err();
        assert!(
            matches!(error, ControlError::TimedOut { waited_ms: 10, .. }),
            "{error}"
        );
        let waited = bench.engine.now();
        assert!(
            waited >= Instant(10_000_000) && waited < Instant(12_000_000),
            "{waited:?}"
        );
        bench.answer(Answer::Tail { error: None });
        let next = bench.queue.execute(Nop {}).unwrap_err();
        assert!(matches!(next, ControlError::Stuck { .. }), "{next}");
        let left = bench.engine.script().answers.len();
        assert_eq!(left, 1, "the doorbell was rung again");
    }
}

#[test]
fn the_refusal_of_the_completion_queue_itself_is_seen_in_the_register() {
    let bench = Bench::with_completions();
    bench.answer(Answer::Tail {
        error: Some((0xF000, 1)),
    });
    let error = bench.queue.execute(Nop {}).unwrap_err();
    assert!(error.is_refusal(), "{error}");
    assert!(!bench.queue.is_stuck());
}

#[test]
fn a_creation_that_fails_says_status_and_codes() {
    let bench = Bench::new();
    let error = bench.queue.create().unwrap_err();
    assert!(
        matches!(error, ControlError::NotCreated { status: 0, .. }),
        "{error}"
    );
    // The status is written to 0 first, so an engine that fails has to be one that answers.
    bench.set(CQP_ERROR_CODES, 0x0012_0034);
    let error = bench.queue.create().unwrap_err();
    assert!(
        matches!(
            error,
            ControlError::NotCreated {
                major: 0x12,
                minor: 0x34,
                ..
            }
        ),
        "{error}"
    );
}

#[test]
fn a_ring_that_the_device_does_not_have_is_refused() {
    let bench = Bench::new();
    let registers = bench.queue.registers.clone();
    for entries in [0, 3, 100, 4096] {
        let settings = ControlQueueSettings {
            entries,
            deadline: Duration::from_millis(1),
        };
        let refused = ControlQueue::prepare(registers.clone(), &bench.pool, settings);
        assert_eq!(refused.unwrap_err(), ControlError::WrongSize { entries });
    }
}

#[test]
fn a_device_that_is_gone_is_no_silent_one() {
    let bench = Bench::new();
    bench.set(CQP_TAIL, u32::MAX);
    bench.set(0x09_E880, u32::MAX);
    let error = bench.queue.execute(Nop {}).unwrap_err();
    assert!(
        matches!(error, ControlError::Function(FunctionError::Gone { .. })),
        "{error}"
    );
}

fn valued(wqe_index: u32, return_value: u32) -> ControlCompletion {
    ControlCompletion {
        return_value,
        ..completion(wqe_index)
    }
}

#[test]
fn two_commands_are_under_way_and_each_thread_gets_its_own_answer_in_any_order() {
    let bench = Bench::patient();
    bench.scope(|scope| {
        let first = scope.spawn(|| bench.queue.execute(Nop {}));
        bench.until_under_way(1);
        let second = scope.spawn(|| bench.queue.execute(Nop {}));
        bench.until_under_way(2);
        bench.complete(valued(1, 11));
        assert_eq!(second.join().unwrap().unwrap().return_value, 11);
        // The first one still waits: its entry is not used again.
        assert_eq!(bench.queue.commands_under_way(), 1);
        assert!(!first.is_finished());
        bench.complete(valued(0, 10));
        assert_eq!(first.join().unwrap().unwrap().return_value, 10);
    });
    assert_eq!(bench.queue.commands_under_way(), 0);
}

#[test]
fn an_entry_is_used_again_only_after_its_answer() {
    let bench = Bench::patient();
    let rings = || bench.engine.script().registers.get(&CQP_DOORBELL).copied();
    bench.scope(|scope| {
        let slow = scope.spawn(|| bench.queue.execute(Nop {}));
        bench.until_under_way(1);
        for slot in [1, 2, 3] {
            bench.answer(Answer::Completion(completion(slot)));
            bench.queue.execute(Nop {}).unwrap();
        }
        // Entry 0 is next, and its command is not answered: this one waits for it.
        let next = scope.spawn(|| bench.queue.execute(Nop {}));
        for _ in 0..1000 {
            std::thread::yield_now();
            assert_eq!((rings(), bench.queue.commands_under_way()), (Some(0), 1));
        }
        bench.answer(Answer::Completion(valued(0, 7)));
        bench.complete(valued(0, 5));
        assert_eq!(slow.join().unwrap().unwrap().return_value, 5);
        assert_eq!(next.join().unwrap().unwrap().return_value, 7);
    });
}

#[test]
fn one_entry_stays_free_and_a_command_without_room_says_so_after_its_deadline() {
    let bench = Bench::waiting(Duration::from_millis(10));
    let bench = Bench::completing(bench);
    bench.queue.rings().in_use = ENTRIES - 1;
    let error = bench.queue.execute(Nop {}).unwrap_err();
    let ControlError::Full { commands, .. } = error else {
        panic!("{error}");
    };
    assert_eq!(commands, ENTRIES - 1);
    // It was not sent.
    assert!(error.is_refusal());
    assert!(!bench.engine.script().registers.contains_key(&CQP_DOORBELL));
}

/// Threads that share a core have their commands under way at a time only if one that waits yields.
#[test]
fn a_thread_that_waits_longer_yields_its_core() {
    const YIELDS: Duration = Duration::from_micros(20);
    let bench = Bench::with_completions();
    bench.answer(Answer::Completion(completion(0)));
    bench.queue.execute(Nop {}).unwrap();
    assert!(bench.engine.longest_pause() < YIELDS);
    let error = bench.queue.execute(Nop {}).unwrap_err();
    assert!(matches!(error, ControlError::TimedOut { .. }), "{error}");
    assert!(bench.engine.longest_pause() >= YIELDS);
}

#[test]
fn silence_for_one_command_leaves_the_others_their_answers() {
    let bench = Bench::patient();
    bench.scope(|scope| {
        let other = scope.spawn(|| bench.queue.execute(Nop {}));
        bench.until_under_way(1);
        // As a command that was not answered leaves it.
        bench.queue.rings().ended = Some(Ended::Stuck);
        let next = bench.queue.execute(Nop {}).unwrap_err();
        assert!(matches!(next, ControlError::Stuck { .. }), "{next}");
        assert!(!other.is_finished());
        bench.complete(valued(0, 3));
        assert_eq!(other.join().unwrap().unwrap().return_value, 3);
    });
}

#[test]
fn a_wrong_answer_ends_all_commands_that_wait_and_abandoning_too() {
    for abandoned in [false, true] {
        let bench = Bench::patient();
        bench.scope(|scope| {
            let waiting: Vec<_> = (0..3)
                .map(|_| scope.spawn(|| bench.queue.execute(Nop {})))
                .collect();
            bench.until_under_way(3);
            match abandoned {
                true => bench.queue.abandon(FailureCause::Requested),
                false => bench.complete(completion(3)),
            }
            for one in waiting {
                let error = one.join().unwrap().unwrap_err();
                // Whether the device carried it out is not known.
                assert!(!error.is_refusal(), "{error}");
                let is_abandoned = matches!(error, ControlError::Abandoned { .. });
                assert_eq!(is_abandoned, abandoned, "{error}");
            }
        });
        // A command that was not sent is not in the device. The error has the cause of a failure.
        let next = bench.queue.execute(Nop {}).unwrap_err();
        assert!(next.is_refusal(), "{next}");
        let cause = FailureCause::Requested;
        let names_cause = RdmaError::from(next) == RdmaError::DeviceFailed { cause };
        assert_eq!(names_cause, abandoned);
    }
}

#[test]
fn commands_of_many_threads_answered_in_any_order_are_all_answered_once() {
    const THREADS: u32 = 4;
    const EACH: u32 = 100;
    let bench = Bench::patient();
    bench.scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                for _ in 0..EACH {
                    bench.queue.execute(Nop {}).unwrap();
                }
            });
        }
        // The device: up to three commands of the ring of four, the latest first.
        let (mut tail, mut answered) = (0, 0);
        let limit = Limit::new();
        while answered < THREADS * EACH {
            let doorbell = bench.engine.script().registers.get(&CQP_DOORBELL).copied();
            let head = doorbell.unwrap_or(0);
            let waiting = (head + ENTRIES - tail) % ENTRIES;
            for ahead in (0..waiting).rev() {
                bench.complete(completion((tail + ahead) % ENTRIES));
            }
            tail = head;
            answered += waiting;
            limit.check(|| format!("{} commands; {answered} came", THREADS * EACH));
        }
    });
    assert_eq!(bench.queue.commands_under_way(), 0);
    assert!(!bench.queue.is_stuck());
}
