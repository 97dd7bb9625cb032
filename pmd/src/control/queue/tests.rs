use super::*;
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
        match self.answers.pop_front() {
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
            deadline: Duration::from_millis(10),
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
        let mut bench = Self::new();
        let ring = bench.pool.allocate(ENTRIES as usize * 32, 256).unwrap();
        let shadow = bench.pool.allocate(64, 128).unwrap();
        bench.engine.script().completions = Some(ring.words());
        assert!(bench.queue.use_completions(ring, ENTRIES as usize, shadow));
        bench
    }

    fn answer(&self, answer: Answer) {
        self.engine.script().answers.push_back(answer);
    }

    fn set(&self, register: u64, value: u32) {
        let mut inside = self.engine.script();
        inside.registers.insert(register, value);
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
    let mut bench = Bench::new();
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
    let mut bench = Bench::with_completions();
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
    let mut bench = Bench::with_completions();
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
        let mut bench = Bench::with_completions();
        bench.answer(Answer::Completion(wrong));
        let error = bench.queue.execute(Nop {}).unwrap_err();
        assert!(matches!(error, ControlError::Garbled { .. }), "{error}");
        let next = bench.queue.execute(Nop {}).unwrap_err();
        assert!(matches!(next, ControlError::Stuck { .. }), "{next}");
    }
}

#[test]
fn silence_ends_in_the_deadline_and_nothing_is_sent_afterwards() {
    for mut bench in [Bench::new(), Bench::with_completions()] {
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
    let mut bench = Bench::with_completions();
    bench.answer(Answer::Tail {
        error: Some((0xF000, 1)),
    });
    let error = bench.queue.execute(Nop {}).unwrap_err();
    assert!(error.is_refusal(), "{error}");
    assert!(!bench.queue.is_stuck());
}

#[test]
fn a_creation_that_fails_says_status_and_codes() {
    let mut bench = Bench::new();
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
    let mut bench = Bench::new();
    bench.set(CQP_TAIL, u32::MAX);
    bench.set(0x09_E880, u32::MAX);
    let error = bench.queue.execute(Nop {}).unwrap_err();
    assert!(
        matches!(error, ControlError::Function(FunctionError::Gone { .. })),
        "{error}"
    );
}
