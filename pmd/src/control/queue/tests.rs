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
    /// given once a caller lets the engine catch up: it had no core
    behind: VecDeque<Answer>,
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

    fn catch_up(&mut self) -> bool {
        let behind = self.behind.pop_front();
        self.give(behind);
        behind.is_some()
    }
}

struct QueueOnEngine {
    engine: Arc<Engine>,
    pool: Arc<DmaPool>,
    queue: ControlQueue,
}

impl QueueOnEngine {
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

    fn completing(rig: Self) -> Self {
        let ring = rig.pool.allocate(ENTRIES as usize * 32, 256).unwrap();
        let shadow = rig.pool.allocate(64, 128).unwrap();
        rig.engine.script().completions = Some(ring.words());
        assert!(rig.queue.use_completions(ring, ENTRIES as usize, shadow));
        rig
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

impl Drop for QueueOnEngine {
    fn drop(&mut self) {
        self.pool.close().unwrap();
    }
}

#[test]
fn a_tail_that_moves_is_the_answer_and_its_error_bit_a_refusal() {
    let rig = QueueOnEngine::new();
    for _ in 0..10 {
        rig.answer(Answer::Tail { error: None });
        assert!(rig.queue.execute(Nop {}).is_ok());
    }
    rig.answer(Answer::Tail {
        error: Some((0xFFFF, 0x8002)),
    });
    let error = rig.queue.execute(Nop {}).unwrap_err();
    assert_eq!(
        error,
        ControlError::Refused {
            opcode: Opcode::Nop,
            failure: CommandFailure::InvalidState,
        }
    );
    assert!(!rig.queue.is_stuck());
}

#[test]
fn completions_answer_over_many_turns_of_both_rings() {
    let rig = QueueOnEngine::with_completions();
    for round in 0..3 * ENTRIES + 1 {
        rig.answer(Answer::Completion(ControlCompletion {
            return_value: round + 7,
            minor_code: 3,
            ..completion(round % ENTRIES)
        }));
        let done = rig.queue.execute(Nop {}).unwrap();
        assert_eq!((done.return_value, done.minor_code), (round + 7, 3));
    }
}

#[test]
fn a_completion_with_the_error_bit_is_a_refusal() {
    let rig = QueueOnEngine::with_completions();
    rig.answer(Answer::Completion(ControlCompletion {
        error: true,
        major_code: 0x1234,
        minor_code: 0x5678,
        ..completion(0)
    }));
    let error = rig.queue.execute(Nop {}).unwrap_err();
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
        let rig = QueueOnEngine::with_completions();
        rig.answer(Answer::Completion(wrong));
        let error = rig.queue.execute(Nop {}).unwrap_err();
        assert!(matches!(error, ControlError::Garbled { .. }), "{error}");
        let next = rig.queue.execute(Nop {}).unwrap_err();
        assert!(matches!(next, ControlError::Stuck { .. }), "{next}");
    }
}

#[test]
fn silence_ends_in_the_deadline_and_nothing_is_sent_afterwards() {
    for rig in [QueueOnEngine::new(), QueueOnEngine::with_completions()] {
        rig.answer(Answer::Silence);
        let error = rig.queue.execute(Nop {}).unwrap_err();
        assert!(
            matches!(error, ControlError::TimedOut { waited_ms: 10, .. }),
            "{error}"
        );
        let waited = rig.engine.now();
        assert!(
            waited >= Instant(10_000_000) && waited < Instant(12_000_000),
            "{waited:?}"
        );
        rig.answer(Answer::Tail { error: None });
        let next = rig.queue.execute(Nop {}).unwrap_err();
        assert!(matches!(next, ControlError::Stuck { .. }), "{next}");
        let left = rig.engine.script().answers.len();
        assert_eq!(left, 1, "the doorbell was rung again");
    }
}

#[test]
fn the_refusal_of_the_completion_queue_itself_is_seen_in_the_register() {
    let rig = QueueOnEngine::with_completions();
    rig.answer(Answer::Tail {
        error: Some((0xF000, 1)),
    });
    let error = rig.queue.execute(Nop {}).unwrap_err();
    assert!(error.is_refusal(), "{error}");
    assert!(!rig.queue.is_stuck());
}

#[test]
fn a_creation_that_fails_says_status_and_codes() {
    let rig = QueueOnEngine::new();
    let error = rig.queue.create().unwrap_err();
    assert!(
        matches!(error, ControlError::NotCreated { status: 0, .. }),
        "{error}"
    );
    // The status is written to 0 first, so an engine that fails has to be one that answers.
    rig.set(CQP_ERROR_CODES, 0x0012_0034);
    let error = rig.queue.create().unwrap_err();
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
    let rig = QueueOnEngine::new();
    let registers = rig.queue.registers.clone();
    for entries in [0, 3, 100, 4096] {
        let settings = ControlQueueSettings {
            entries,
            deadline: Duration::from_millis(1),
        };
        let refused = ControlQueue::prepare(registers.clone(), &rig.pool, settings);
        assert_eq!(refused.unwrap_err(), ControlError::WrongSize { entries });
    }
}

#[test]
fn a_device_that_is_gone_is_no_silent_one() {
    let rig = QueueOnEngine::new();
    rig.set(CQP_TAIL, u32::MAX);
    rig.set(0x09_E880, u32::MAX);
    let error = rig.queue.execute(Nop {}).unwrap_err();
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
    let rig = QueueOnEngine::patient();
    rig.scope(|scope| {
        let first = scope.spawn(|| rig.queue.execute(Nop {}));
        rig.until_under_way(1);
        let second = scope.spawn(|| rig.queue.execute(Nop {}));
        rig.until_under_way(2);
        rig.complete(valued(1, 11));
        assert_eq!(second.join().unwrap().unwrap().return_value, 11);
        // The first one still waits: its entry is not used again.
        assert_eq!(rig.queue.commands_under_way(), 1);
        assert!(!first.is_finished());
        rig.complete(valued(0, 10));
        assert_eq!(first.join().unwrap().unwrap().return_value, 10);
    });
    assert_eq!(rig.queue.commands_under_way(), 0);
}

#[test]
fn an_entry_is_used_again_only_after_its_answer() {
    let rig = QueueOnEngine::patient();
    let rings = || rig.engine.script().registers.get(&CQP_DOORBELL).copied();
    rig.scope(|scope| {
        let slow = scope.spawn(|| rig.queue.execute(Nop {}));
        rig.until_under_way(1);
        for slot in [1, 2, 3] {
            rig.answer(Answer::Completion(completion(slot)));
            rig.queue.execute(Nop {}).unwrap();
        }
        // Entry 0 is next, and its command is not answered: this one waits for it.
        let next = scope.spawn(|| rig.queue.execute(Nop {}));
        for _ in 0..1000 {
            std::thread::yield_now();
            assert_eq!((rings(), rig.queue.commands_under_way()), (Some(0), 1));
        }
        rig.answer(Answer::Completion(valued(0, 7)));
        rig.complete(valued(0, 5));
        assert_eq!(slow.join().unwrap().unwrap().return_value, 5);
        assert_eq!(next.join().unwrap().unwrap().return_value, 7);
    });
}

#[test]
fn one_entry_stays_free_and_a_command_without_room_says_so_after_its_deadline() {
    let rig = QueueOnEngine::waiting(Duration::from_millis(10));
    let rig = QueueOnEngine::completing(rig);
    rig.queue.rings.lock().in_use = ENTRIES - 1;
    let error = rig.queue.execute(Nop {}).unwrap_err();
    let ControlError::Full { commands, .. } = error else {
        panic!("{error}");
    };
    assert_eq!(commands, ENTRIES - 1);
    // It was not sent.
    assert!(error.is_refusal());
    assert!(!rig.engine.script().registers.contains_key(&CQP_DOORBELL));
}

#[test]
fn threads_without_an_entry_get_theirs_in_the_order_in_which_they_asked() {
    let rig = QueueOnEngine::patient();
    rig.scope(|scope| {
        let execute = || scope.spawn(|| rig.queue.execute(Nop {}).unwrap().return_value);
        let under_way: Vec<_> = (1..ENTRIES)
            .map(|commands| {
                let thread = execute();
                rig.until_under_way(commands);
                thread
            })
            .collect();
        let in_line: Vec<_> = (1..ENTRIES as usize)
            .map(|threads| {
                let thread = execute();
                let limit = Limit::new();
                while rig.queue.rings.lock().line.len() != threads {
                    limit.check(|| format!("{threads} threads in line"));
                }
                thread
            })
            .collect();
        let limit = Limit::new();
        for slot in 0..2 * (ENTRIES - 1) {
            let head = (slot + ENTRIES - 1) % ENTRIES;
            while rig.queue.rings.lock().head != head && slot < ENTRIES {
                limit.check(|| format!("the command that follows entry {slot}"));
            }
            rig.complete(valued(slot % ENTRIES, slot));
        }
        let answers = under_way.into_iter().chain(in_line);
        for (slot, thread) in (0..).zip(answers) {
            assert_eq!(thread.join().unwrap(), slot);
        }
    });
}

#[test]
fn a_thread_in_line_waits_as_long_as_entries_become_free() {
    let deadline = Duration::from_millis(3);
    let rig = QueueOnEngine::completing(QueueOnEngine::waiting(deadline));
    rig.queue.rings.lock().in_use = ENTRIES - 1;
    let (limit, end) = (Limit::new(), rig.engine.now().plus(3 * deadline));
    rig.scope(|scope| {
        let waiting = scope.spawn(|| rig.queue.execute(Nop {}));
        while rig.engine.now() < end {
            // As if another thread were always faster.
            rig.queue.rings.lock().freed += 1;
            limit.check(|| "three deadlines".into());
        }
        let error = waiting.join().unwrap().unwrap_err();
        assert!(matches!(error, ControlError::Full { .. }), "{error}");
        assert!(rig.engine.now() >= end, "{error}");
    });
}

/// Threads that share a core have their commands under way at a time only if one that waits yields.
#[test]
fn a_thread_that_waits_longer_yields_its_core() {
    const YIELDS: Duration = Duration::from_micros(20);
    let rig = QueueOnEngine::with_completions();
    rig.answer(Answer::Completion(completion(0)));
    rig.queue.execute(Nop {}).unwrap();
    assert!(rig.engine.longest_pause() < YIELDS);
    let error = rig.queue.execute(Nop {}).unwrap_err();
    assert!(matches!(error, ControlError::TimedOut { .. }), "{error}");
    assert!(rig.engine.longest_pause() >= YIELDS);
}

#[test]
fn a_thread_that_waits_longer_lets_a_device_without_a_core_catch_up() {
    let rig = QueueOnEngine::with_completions();
    let behind = Answer::Completion(completion(0));
    rig.engine.script().behind.push_back(behind);
    assert!(rig.queue.execute(Nop {}).is_ok());
}

#[test]
fn silence_for_one_command_leaves_the_others_their_answers() {
    let rig = QueueOnEngine::patient();
    rig.scope(|scope| {
        let other = scope.spawn(|| rig.queue.execute(Nop {}));
        rig.until_under_way(1);
        // As a command that was not answered leaves it.
        rig.queue.rings.lock().ended = Some(Ended::Stuck);
        let next = rig.queue.execute(Nop {}).unwrap_err();
        assert!(matches!(next, ControlError::Stuck { .. }), "{next}");
        assert!(!other.is_finished());
        rig.complete(valued(0, 3));
        assert_eq!(other.join().unwrap().unwrap().return_value, 3);
    });
}

#[test]
fn a_wrong_answer_ends_all_commands_that_wait_and_abandoning_too() {
    for abandoned in [false, true] {
        let rig = QueueOnEngine::patient();
        rig.scope(|scope| {
            let waiting: Vec<_> = (0..3)
                .map(|_| scope.spawn(|| rig.queue.execute(Nop {})))
                .collect();
            rig.until_under_way(3);
            match abandoned {
                true => rig.queue.abandon(FailureCause::Requested),
                false => rig.complete(completion(3)),
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
        let next = rig.queue.execute(Nop {}).unwrap_err();
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
    let rig = QueueOnEngine::patient();
    rig.scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                for _ in 0..EACH {
                    rig.queue.execute(Nop {}).unwrap();
                }
            });
        }
        // The device: up to three commands of the ring of four, the latest first.
        let (mut tail, mut answered) = (0, 0);
        let limit = Limit::new();
        while answered < THREADS * EACH {
            let doorbell = rig.engine.script().registers.get(&CQP_DOORBELL).copied();
            let head = doorbell.unwrap_or(0);
            let waiting = (head + ENTRIES - tail) % ENTRIES;
            for ahead in (0..waiting).rev() {
                rig.complete(completion((tail + ahead) % ENTRIES));
            }
            tail = head;
            answered += waiting;
            limit.check(|| format!("{} commands; {answered} came", THREADS * EACH));
        }
    });
    assert_eq!(rig.queue.commands_under_way(), 0);
    assert!(!rig.queue.is_stuck());
}
