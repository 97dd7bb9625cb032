//! Each rule of the oracle detects its violation: an error is planted, and the rule is found by its
//! name.

mod deaf;
mod slow;

use deaf::Deaf;
use ringside_bus::Iova;
use ringside_model::Stepped;
use ringside_model::record::{Event, Recorder};
use ringside_model::wire::FrameFate;
use ringside_pmd::Device;
use ringside_pmd::rdma::{Access, Status};
use ringside_sim::{
    FaultEvent, FaultMix, Faults, Interference, Rule, Scenario, Seen, StepKind, Trace, Untouched,
    run, shrink,
};
use ringside_spec::rdma::commands::{CreateCompletionQueue, Opcode};
use ringside_spec::verbs::{CompletionElement, QueueSide};
use slow::{Lasts, Sluggish};
use std::collections::BTreeSet;

/// Changes completions between driver and user: each change happens once.
struct Changed<F>(F, bool);

impl<F: FnMut(&mut Vec<Seen>) -> bool> Interference for Changed<F> {
    fn seen(&mut self, _side: usize, seen: &mut Vec<Seen>) {
        if !self.1 {
            self.1 = (self.0)(seen);
        }
    }
}

fn changed(change: impl FnMut(&mut Vec<Seen>) -> bool) -> impl Interference {
    Changed(change, false)
}

/// An action on the world before one step.
struct Beside<F>(u32, F);

impl<F: FnMut(&Stepped, [&Device; 2], [Iova; 2])> Interference for Beside<F> {
    fn between(&mut self, step: u32, world: &Stepped, devices: [&Device; 2], ungranted: [Iova; 2]) {
        if step == self.0 {
            (self.1)(world, devices, ungranted);
        }
    }
}

fn none() -> FaultMix {
    FaultMix::Chosen(Vec::new())
}

/// Returns the rule that one of some seeds violates under this interference; without it none does.
fn broken<I: Interference>(plant: impl Fn() -> I) -> Option<Rule> {
    (1..=12).find_map(|seed| {
        let scenario = Scenario::new(seed, 80, none());
        let outcome = run(&scenario, Trace::Off, &mut plant());
        outcome.finding.map(|finding| finding.rule)
    })
}

fn is_plain(seen: &Seen) -> bool {
    seen.is_send && seen.datagram.is_none() && seen.status == Status::Success
}

#[test]
fn a_completion_that_comes_twice_is_found() {
    let rule = broken(|| {
        changed(|seen| {
            let first = seen.iter().find(|one| is_plain(one)).cloned();
            seen.extend(first.clone());
            first.is_some()
        })
    });
    assert_eq!(rule, Some(Rule::CompletesOnce));
}

#[test]
fn an_unexpected_completion_is_found() {
    let rule = broken(|| {
        changed(|seen| match seen.first_mut() {
            Some(first) => {
                first.id = 1 << 40;
                true
            }
            None => false,
        })
    });
    assert_eq!(rule, Some(Rule::CompletesOnce));
}

#[test]
fn a_completion_that_does_not_come_is_found() {
    // All completions of one queue pair from some time on, so that no later one shows the gap.
    let rule = broken(|| {
        let mut victim = None;
        changed(move |seen| {
            let first = seen.iter().find(|one| is_plain(one));
            victim = victim.or(first.map(|one| one.queue_pair));
            seen.retain(|one| !one.is_send || Some(one.queue_pair) != victim);
            false
        })
    });
    assert_eq!(rule, Some(Rule::Completes));
}

/// The one request of each run is a write, signalled or not, of which the device is not told.
#[test]
fn a_last_request_that_never_happens_is_found_signalled_or_not() {
    let mut told = 0;
    for seed in 10..=18 {
        let scenario = Scenario::new(seed, 80, none());
        let mut steps = scenario.steps.iter();
        let write = steps.find(|step| step.kind == StepKind::Write);
        let scenario = scenario.clone().keeping(&[write.expect("a write").number]);
        let outcome = run(&scenario, Trace::Off, &mut Untouched);
        assert_eq!(outcome.finding, None, "seed {seed}");
        // A device with mapped doorbells looks into the queues by itself.
        if outcome.counts.mapped_doorbells > 0 {
            continue;
        }
        told += 1;
        let outcome = run(&scenario, Trace::Off, &mut Deaf::default());
        let rule = outcome.finding.map(|finding| finding.rule);
        assert_eq!(rule, Some(Rule::Completes), "seed {seed}");
    }
    assert!(told > 5, "{told}");
}

#[test]
fn a_status_for_which_there_is_no_reason_is_found() {
    for wrong in [
        Status::RetryExceeded,
        Status::Flushed,
        Status::LocalOperation,
    ] {
        let rule = broken(|| {
            changed(
                move |seen| match seen.iter_mut().find(|one| is_plain(one)) {
                    Some(one) => {
                        one.status = wrong;
                        true
                    }
                    None => false,
                },
            )
        });
        assert_eq!(rule, Some(Rule::StatusAllowed), "{wrong:?}");
    }
}

#[test]
fn completions_that_come_in_another_order_are_found() {
    let rule = broken(|| {
        changed(|seen| {
            let place = (1..seen.len()).find(|place| {
                let (one, two) = (&seen[place - 1], &seen[*place]);
                (one.queue_pair, one.is_send) == (two.queue_pair, two.is_send) && one.is_send
            });
            if let Some(place) = place {
                seen.swap(place - 1, place);
            }
            place.is_some()
        })
    });
    assert_eq!(rule, Some(Rule::InOrder));
}

#[test]
fn a_byte_that_changes_on_the_way_is_found() {
    struct Forger;
    impl Interference for Forger {
        fn forges(&self) -> Option<Box<dyn FnMut(u64) -> Option<u32> + Send>> {
            Some(Box::new(|frame| (frame > 10).then_some(frame as u32 * 7)))
        }
    }
    assert_eq!(broken(|| Forger), Some(Rule::BytesIntact));
}

#[test]
fn a_message_with_other_content_is_found() {
    let rule = broken(|| {
        changed(|seen| {
            let received = seen
                .iter_mut()
                .find(|one| !one.is_send && one.datagram.is_none());
            match received.filter(|one| one.status == Status::Success) {
                Some(one) => {
                    one.immediate = Some(one.immediate.unwrap_or(0) ^ 1);
                    true
                }
                None => false,
            }
        })
    });
    assert_eq!(rule, Some(Rule::MessageRight));
}

#[test]
fn a_byte_that_the_device_writes_where_it_may_not_is_found() {
    let rule = broken(|| {
        Beside(
            40,
            |world: &Stepped, _: [&Device; 2], ungranted: [Iova; 2]| {
                world.with(|world| {
                    let space = world.space(1).expect("two functions");
                    let at = ungranted[1].add(777);
                    let mut byte = [0];
                    space.read(at, &mut byte).expect("mapped");
                    space.write(at, &[byte[0] ^ 0x10]).expect("mapped");
                });
            },
        )
    });
    assert_eq!(rule, Some(Rule::OutsideUntouched));
}

/// Writes to memory that a device in trouble returned, as a device does that was not notified.
#[derive(Default)]
struct LateWriter;

impl Interference for LateWriter {
    fn reused(&mut self, side: usize, at: Iova, world: &Stepped) {
        world.with(|world| {
            let space = world.space(side).expect("two functions");
            let mut byte = [0];
            space.read(at.add(99), &mut byte).expect("mapped");
            space.write(at.add(99), &[byte[0] ^ 1]).expect("mapped");
        });
    }
}

#[test]
fn a_write_to_memory_that_was_given_back_in_trouble_is_found() {
    let mix: FaultMix = "command-fails=3".parse().unwrap();
    let rule = (1..=12).find_map(|seed| {
        let scenario = Scenario::new(seed, 80, mix.clone());
        let outcome = run(&scenario, Trace::Off, &mut LateWriter);
        outcome.finding.map(|finding| finding.rule)
    });
    assert_eq!(rule, Some(Rule::OutsideUntouched));
}

#[test]
fn an_object_that_is_left_over_is_found() {
    let rule = broken(|| {
        Beside(7, |_: &Stepped, devices: [&Device; 2], _: [Iova; 2]| {
            let domain = devices[0].protection_domain().expect("a domain");
            let buffer = devices[0].allocate(64).expect("memory");
            let region = domain.register(buffer, Access::ALL).expect("a region");
            std::mem::forget(region);
        })
    });
    assert_eq!(rule, Some(Rule::NothingLeft));
}

#[test]
fn a_breach_of_the_interface_is_found() {
    let rule = broken(|| {
        Beside(9, |_: &Stepped, devices: [&Device; 2], _: [Iova; 2]| {
            let registers = devices[1].registers();
            let arm = ringside_spec::rdma::registers::CQ_ARM;
            // A doorbell of a completion queue that does not exist.
            registers.write(arm, 4_000).expect("a register");
        })
    });
    assert_eq!(rule, Some(Rule::NoBreach));
}

/// Writes an unexpected completion into the first completion queue that is made.
#[derive(Default)]
struct Stray(Option<Recorder>);

impl Interference for Stray {
    fn begin(&mut self, world: &Stepped) {
        let recorder = Recorder::in_memory(10_000);
        world.with(|world| world.record(&recorder));
        self.0 = Some(recorder);
    }

    fn between(&mut self, _step: u32, world: &Stepped, _: [&Device; 2], _: [Iova; 2]) {
        let Some(recorder) = self.0.take() else {
            return;
        };
        let made = recorder
            .take()
            .into_iter()
            .find_map(|entry| match entry.event {
                Event::Control(command) if entry.function == 0 => {
                    let made = CreateCompletionQueue::decode(&command.element).ok();
                    // The first ones belong to the driver, for its commands.
                    made.filter(|made| made.cq_number > 2)
                }
                _ => None,
            });
        let made = made.expect("a completion queue was made");
        let stray = CompletionElement::success(QueueSide::Send, 5 << 32 | 9, 9, 3);
        world.with(|world| {
            let space = world.space(0).expect("a function");
            let at = Iova(made.ring_address);
            space.write_words(at, &stray.encode(true)).expect("mapped");
        });
    }
}

#[test]
fn something_that_a_device_cannot_say_is_found() {
    // Not every seed shows it: completions of a destroyed queue pair are not an anomaly.
    let rule = (1..=12).find_map(|seed| {
        let scenario = Scenario::new(seed, 0, none());
        let outcome = run(&scenario, Trace::Off, &mut Stray::default());
        outcome.finding.map(|finding| finding.rule)
    });
    assert_eq!(rule, Some(Rule::NoAnomaly));
}

/// Some frames are lost, and repeated after a time-out, although the run has no faults.
fn losses_without_a_fault() -> impl Interference {
    Beside(0, |world: &Stepped, _: [&Device; 2], _: [Iova; 2]| {
        let some = |frame| FrameFate {
            lost: (40..44).contains(&frame),
            ..FrameFate::default()
        };
        world.with(|world| world.switch().set_script(Some(Box::new(some))));
    })
}

#[test]
fn an_answer_that_only_a_repetition_brings_is_found() {
    let findings = (1..=12).filter_map(|seed| {
        let scenario = Scenario::new(seed, 80, none());
        run(&scenario, Trace::Off, &mut losses_without_a_fault()).finding
    });
    let found = findings.map(|found| found.rule);
    let found: BTreeSet<_> = found.collect();
    assert!(found.contains(&Rule::AnsweredInTime), "{found:?}");
}

/// Makes the second failed completion of a queue, which was flushed, a success.
fn a_success_after_a_failure(is_send: bool) -> impl Interference {
    let mut failed = BTreeSet::new();
    changed(move |seen| {
        let of_queue = |one: &&mut Seen| one.is_send == is_send && one.datagram.is_none();
        for one in seen.iter_mut().filter(of_queue) {
            let has_failed = one.status != Status::Success && !failed.insert(one.queue_pair);
            if has_failed && one.status == Status::Flushed {
                one.status = Status::Success;
                return true;
            }
        }
        false
    })
}

#[test]
fn a_success_after_a_failure_of_its_queue_is_found() {
    for is_send in [true, false] {
        let findings = (1..=12).filter_map(|seed| {
            let scenario = Scenario::new(seed, 80, none());
            let mut plant = a_success_after_a_failure(is_send);
            run(&scenario, Trace::Off, &mut plant).finding
        });
        let findings: Vec<_> = findings.collect();
        assert!(!findings.is_empty());
        for found in findings {
            assert_eq!(found.rule, Rule::StatusAllowed, "{found}");
            assert!(found.what.contains("one before it failed"), "{found}");
        }
    }
}

#[test]
fn a_call_that_takes_too_long_is_found() {
    let rule = broken(|| Sluggish::new(Lasts::AMinute));
    assert_eq!(rule, Some(Rule::EndsInTime));
}

#[test]
fn a_call_that_never_returns_is_found_with_its_step() {
    let outcome = (1..=12).find_map(|seed| {
        let scenario = Scenario::new(seed, 80, none());
        let outcome = run(&scenario, Trace::Steps, &mut Sluggish::new(Lasts::Forever));
        outcome.finding.is_some().then_some(outcome)
    });
    let outcome = outcome.expect("a seed that reads a register");
    let finding = outcome.finding.expect("found");
    assert_eq!(finding.rule, Rule::EndsInTime);
    assert!(
        finding.what.ends_with("does not end within 30 s"),
        "{finding}"
    );
    assert!(finding.step >= Some(slow::STEP), "{finding}");
    assert!(!outcome.trace.is_empty());
}

/// Has a function refuse queue pairs.
fn refuse_on(world: &Stepped, function: usize) {
    let refused = ringside_model::Fault::ControlCommandFails {
        opcode: Opcode::CreateQueuePair.code(),
        major: 1,
        minor: 2,
    };
    world.with(|world| world.inject(function, refused));
}

#[test]
fn a_call_that_is_refused_without_a_reason_is_found() {
    let refuse = || {
        Beside(3, |world: &Stepped, _: [&Device; 2], _: [Iova; 2]| {
            refuse_on(world, 0)
        })
    };
    let rule = broken(refuse);
    assert_eq!(rule, Some(Rule::CallRight));
}

#[test]
fn trouble_of_one_side_does_not_excuse_a_refusal_of_the_other() {
    // A command that no driver sends: the device is in trouble, and nothing happens.
    let (opcode, code) = (0x0F00, 1);
    let trouble = FaultEvent::Function {
        step: 0,
        function: 0,
        fault: ringside_model::Fault::AdminCommandFails { opcode, code },
        steps: 1_000,
    };
    let refuse = || {
        Beside(3, |world: &Stepped, _: [&Device; 2], _: [Iova; 2]| {
            refuse_on(world, 1)
        })
    };
    let found = (1..=12).find_map(|seed| {
        let mut scenario = Scenario::new(seed, 80, none());
        scenario.faults = Faults::Events(vec![trouble]);
        let untouched = run(&scenario, Trace::Off, &mut Untouched);
        assert_eq!(untouched.finding, None, "seed {seed}");
        let outcome = run(&scenario, Trace::Off, &mut refuse());
        // Behind the last step the first device is recovered.
        outcome.finding.filter(|finding| finding.step.is_some())
    });
    let found = found.expect("a queue pair that is refused");
    assert_eq!(found.rule, Rule::CallRight, "{found}");
    assert!(found.what.starts_with("side 1"), "{found}");
}

#[test]
fn an_event_without_a_cause_is_found() {
    let rule = broken(|| {
        Beside(3, |world: &Stepped, _: [&Device; 2], _: [Iova; 2]| {
            let fault = ringside_model::Fault::CriticalError { code: 7 };
            world.with(|world| world.inject(1, fault));
        })
    });
    assert_eq!(rule, Some(Rule::EventRight));
}

#[test]
fn a_panic_is_found() {
    let rule = broken(|| {
        Beside(3, |_: &Stepped, _: [&Device; 2], _: [Iova; 2]| {
            panic!("planted, to be found");
        })
    });
    assert_eq!(rule, Some(Rule::NoPanic));
}

#[test]
fn a_panic_is_found_with_its_step_and_the_steps_before() {
    let plant = || {
        Beside(3, |_: &Stepped, _: [&Device; 2], _: [Iova; 2]| {
            panic!("planted, to be found");
        })
    };
    let scenario = Scenario::new(1, 80, none());
    let outcome = run(&scenario, Trace::Steps, &mut plant());
    let finding = outcome.finding.expect("found");
    assert_eq!((finding.rule, finding.step), (Rule::NoPanic, Some(3)));
    assert!(outcome.trace.len() > 3, "{:?}", outcome.trace);
    // The search needs none of the steps behind it.
    let shrunk = shrink(&scenario, 3, || Box::new(plant())).expect("it shows again");
    let last = shrunk.scenario.steps.last().map(|step| step.number);
    assert!(last <= Some(3), "{last:?}");
}

#[test]
fn a_finding_is_made_short_and_shows_itself_again() {
    // A driver that drops the completions of all sends of a long message, under many faults.
    let plant = || {
        changed(|seen| {
            seen.retain(|one| !(is_plain(one) && one.byte_length > 1000));
            false
        })
    };
    let mix: FaultMix = "drop=20000,duplicate=20000,delay=20000".parse().unwrap();
    let found = (1..=12).find_map(|seed| {
        let scenario = Scenario::new(seed, 60, mix.clone());
        let outcome = run(&scenario, Trace::Off, &mut plant());
        outcome.finding.map(|finding| (scenario, finding))
    });
    let (scenario, finding) = found.expect("a finding");
    let shrunk = shrink(&scenario, 200, || Box::new(plant())).expect("it shows again");
    assert_eq!(shrunk.finding.rule, finding.rule);
    let ringside_sim::Faults::Events(events) = &shrunk.scenario.faults else {
        panic!("faults are not listed");
    };
    assert!(
        events.len() <= 2 && shrunk.scenario.steps.len() <= 8,
        "{shrunk:?}"
    );
    let again = run(&shrunk.scenario, Trace::Off, &mut plant());
    assert_eq!(again.finding, Some(shrunk.finding));
}
