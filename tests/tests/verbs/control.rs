//! Control operations of several threads: their commands are under way at a time.

use crate::{check_breaches, finish};
use ringside_config::Config;
use ringside_model::faults::ANY_CONTROL_COMMAND;
use ringside_model::{Fault, Threaded};
use ringside_pmd::Device;
use ringside_pmd::rdma::{
    Access, Completion, CompletionQueue, Connected, Flags, ProtectionDomain, QueuePair,
    QueuePairConfig, RdmaError, RemoteRegion, Status,
};
use ringside_spec::lan::admin::Opcode as AdminOpcode;
use ringside_spec::rdma::commands::Opcode;
use ringside_testkit::{bring_up_all, config, threaded};
use std::time::{Duration, Instant};

/// Two devices on a model that runs on its own thread, in real time.
fn devices(model: &Threaded, change: impl Fn(&mut Config)) -> [Device; 2] {
    let mut config = config();
    change(&mut config);
    bring_up_all(|index| model.function(index), &config)
}

fn late(model: &Threaded, opcode: u8, by: Duration) {
    let fault = Fault::ControlCompletionLate { opcode, by };
    model.with(move |world| world.inject(0, fault)).unwrap();
}

/// Registers memory and takes events, 20 times.
fn operate(device: &Device, domain: &ProtectionDomain) {
    for _ in 0..20 {
        let buffer = device.allocate(4096).unwrap();
        let region = domain.register(buffer, Access::ALL).unwrap();
        device.poll_events(&mut Vec::new()).unwrap();
        region.deregister().unwrap();
    }
}

#[test]
fn operations_complete_while_an_earlier_command_is_under_way() {
    const LATE: Duration = Duration::from_secs(10);
    let model = threaded();
    let pair = devices(&model, |config| config.deadlines.control_queue_ms = 60_000);
    let domain = pair[0].protection_domain().unwrap();
    late(&model, Opcode::CreateCompletionQueue.code(), LATE);
    let begin = Instant::now();
    std::thread::scope(|scope| {
        let slow = scope.spawn(|| pair[0].completion_queue(64).map(|_| begin.elapsed()));
        // Beside it: memory, events, reports; none waits for the command of the other thread.
        while pair[0].object_usage().unwrap().completion_queues.used == 0 {
            assert!(begin.elapsed() < LATE, "its command was not sent");
            std::thread::yield_now();
        }
        operate(&pair[0], &domain);
        assert!(pair[0].check().is_none());
        let others = begin.elapsed();
        assert!(!slow.is_finished(), "20 regions took {others:?}");
        let slow = slow.join().unwrap().unwrap();
        // The model's clock counts cycles: its seconds differ a little from those of the system.
        let is_late = slow >= LATE.mul_f64(0.99);
        assert!(is_late && others < slow, "{others:?} and {slow:?}");
    });
    drop(domain);
    finish(&model, pair);
}

#[test]
fn a_command_under_way_ends_with_the_device_and_its_memory_comes_back_with_the_reset() {
    let model = threaded();
    let mut pair = devices(&model, |config| config.deadlines.control_queue_ms = 60_000);
    let domain = pair[0].protection_domain().unwrap();
    let used = pair[0].object_usage().unwrap().memory_regions.used;
    late(
        &model,
        Opcode::RegisterMemoryRegion.code(),
        Duration::from_secs(120),
    );
    let buffer = pair[0].allocate(1 << 20).unwrap();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| domain.register(buffer, Access::ALL).map(drop));
        while pair[0].object_usage().unwrap().memory_regions.used == used {
            std::thread::yield_now();
        }
        std::thread::sleep(Duration::from_millis(20));
        assert!(!waiting.is_finished());
        let begin = Instant::now();
        pair[0].give_up().unwrap();
        let refused = waiting.join().unwrap().unwrap_err();
        assert!(begin.elapsed() < Duration::from_secs(30));
        assert!(
            matches!(refused.error, RdmaError::DeviceFailed { .. }),
            "{refused}"
        );
        // The device may have registered it: the memory is not returned yet.
        assert!(refused.buffers.is_empty());
    });
    drop(domain);
    let report = pair[0].recover().unwrap();
    assert!(
        report.reclaimed_bytes >= 1 << 20,
        "{}",
        report.reclaimed_bytes
    );
    model.with(|world| world.clear_faults(0)).unwrap();
    let domain = pair[0].protection_domain().unwrap();
    let buffer = pair[0].allocate(1 << 20).unwrap();
    drop(domain.register(buffer, Access::ALL).unwrap());
    drop(domain);
    finish(&model, pair);
}

/// A connection between both devices: each side's completion queue and queue pair.
fn connected(
    pair: &[Device; 2],
    domains: &[ProtectionDomain; 2],
) -> [(CompletionQueue, QueuePair<Connected>); 2] {
    let [(near, a), (far, b)] = [0, 1].map(|side: usize| {
        let completions = pair[side].completion_queue(64).unwrap();
        let wanted = QueuePairConfig::reliable(&completions);
        let queue_pair = domains[side].queue_pair(wanted).unwrap();
        (completions, queue_pair)
    });
    let (to_a, to_b) = (a.endpoint(), b.endpoint());
    [
        (near, a.connect(&to_b).unwrap()),
        (far, b.connect(&to_a).unwrap()),
    ]
}

/// Makes a connection from `left` to `right`, writes, and destroys it again; with a key that does
/// not exist if `wrong`.
fn connection(
    pair: &[Device; 2],
    domains: &[ProtectionDomain; 2],
    remote: RemoteRegion,
    wrong: bool,
) {
    let [(mut completions, mut a), _far] = connected(pair, domains);
    let buffer = pair[0].allocate(4096).unwrap();
    let region = domains[0].register(buffer, Access::ALL).unwrap();
    let target = match wrong {
        true => RemoteRegion {
            key: remote.key ^ 0x5A00,
            ..remote
        },
        false => remote,
    };
    let pieces = [region.slice(0..64).unwrap()];
    a.write(1, &pieces, target.at(0), Flags::SIGNALLED).unwrap();
    a.ring();
    let mut place = Completion::EMPTY;
    let begin = Instant::now();
    while !completions.poll_one(&mut place) {
        assert!(begin.elapsed() < Duration::from_secs(60));
        std::thread::yield_now();
    }
    assert_eq!(place.is_success(), !wrong, "{place:?}");
}

#[test]
fn four_threads_make_and_destroy_everything_beside_failing_queue_pairs() {
    const ROUNDS: usize = 15;
    let model = threaded();
    let pair = devices(&model, |_| ());
    let domains = [0, 1].map(|side: usize| pair[side].protection_domain().unwrap());
    let buffer = pair[1].allocate(4096).unwrap();
    let target = domains[1].register(buffer, Access::ALL).unwrap();
    // Completions of commands change their order.
    late(&model, ANY_CONTROL_COMMAND, Duration::from_micros(20));
    late(
        &model,
        Opcode::CreateQueuePair.code(),
        Duration::from_micros(90),
    );
    late(
        &model,
        Opcode::RegisterMemoryRegion.code(),
        Duration::from_micros(300),
    );
    let before = [0, 1].map(|side: usize| pair[side].object_usage().unwrap());
    let remote = target.remote();
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let events = scope.spawn(|| {
            while !done.load(std::sync::atomic::Ordering::Acquire) {
                for device in &pair {
                    device.poll_events(&mut Vec::new()).unwrap();
                    let _ = device.statistics().unwrap();
                }
                std::thread::sleep(Duration::from_micros(200));
            }
        });
        let workers: Vec<_> = (0..4)
            .map(|worker| {
                let (pair, domains) = (&pair, &domains);
                scope.spawn(move || {
                    for round in 0..ROUNDS {
                        connection(pair, domains, remote, (worker + round) % 3 == 0);
                    }
                })
            })
            .collect();
        let results: Vec<_> = workers.into_iter().map(|worker| worker.join()).collect();
        done.store(true, std::sync::atomic::Ordering::Release);
        events.join().unwrap();
        for result in results {
            result.unwrap();
        }
    });
    for side in 0..2 {
        let mut after = pair[side].object_usage().unwrap();
        after.host_memory_cache_bytes = before[side].host_memory_cache_bytes;
        assert_eq!(after, before[side]);
        assert!(pair[side].quarantine().unwrap().is_empty());
    }
    drop((target, domains));
    finish(&model, pair);
}

#[test]
fn operations_complete_while_the_firmware_is_asked_for_a_group() {
    const LATE: Duration = Duration::from_secs(10);
    let model = threaded();
    let pair = devices(&model, |config| config.deadlines.admin_queue_ms = 60_000);
    let domain = pair[0].protection_domain().unwrap();
    let completions = pair[0].completion_queue(16).unwrap();
    let config = QueuePairConfig::datagram(&completions);
    let made = domain.datagram_queue_pair(config).unwrap();
    let member = made.ready(1).unwrap();
    let delayed = Fault::AdminCommandDelayed {
        opcode: AdminOpcode::AddSwitchRules.code(),
        by: LATE,
    };
    model.with(move |world| world.inject(0, delayed)).unwrap();
    let begin = Instant::now();
    std::thread::scope(|scope| {
        let joining = scope.spawn(move || {
            let joined = member.join([239, 1, 2, 3].into());
            (member, joined)
        });
        while pair[0].object_usage().unwrap().multicast_groups.used == 0 {
            assert!(begin.elapsed() < LATE, "the group was not begun");
            std::thread::yield_now();
        }
        operate(&pair[0], &domain);
        assert!(!joining.is_finished(), "{:?}", begin.elapsed());
        let (member, joined) = joining.join().unwrap();
        joined.unwrap();
        member.destroy().unwrap();
    });
    drop((completions, domain));
    finish(&model, pair);
}

#[test]
fn requests_of_a_queue_pair_that_waits_for_its_failure_end_when_the_device_is_given_up() {
    let model = threaded();
    let pair = devices(&model, |config| config.deadlines.control_queue_ms = 60_000);
    let domains = [0, 1].map(|side: usize| pair[side].protection_domain().unwrap());
    let [(mut completions, mut a), _far] = connected(&pair, &domains);
    let buffer = pair[0].allocate(4096).unwrap();
    let region = domains[0].register(buffer, Access::ALL).unwrap();
    a.receive(7, &[region.slice(0..64).unwrap()]).unwrap();
    let opcode = Opcode::ModifyQueuePair.code();
    let silent = Fault::ControlCommandSilent { opcode };
    model.with(move |world| world.inject(0, silent)).unwrap();
    std::thread::scope(|scope| {
        let failing = scope.spawn(|| a.fail().map(drop));
        std::thread::sleep(Duration::from_millis(100));
        pair[0].give_up().unwrap();
        assert!(failing.join().unwrap().is_err());
    });
    let mut done = Completion::EMPTY;
    let begin = Instant::now();
    while !completions.poll_one(&mut done) {
        assert!(begin.elapsed() < Duration::from_secs(10), "it waits");
        std::thread::yield_now();
    }
    assert_eq!((done.id, done.status()), (7, Status::Flushed));
}

#[test]
fn a_shutdown_waits_for_commands_under_way_and_refuses_later_operations() {
    let model = threaded();
    let pair = devices(&model, |_| ());
    late(&model, ANY_CONTROL_COMMAND, Duration::from_millis(2));
    let [left, right] = pair;
    let domain = left.protection_domain().unwrap();
    let buffers: Vec<_> = (0..4).map(|_| left.allocate(4096).unwrap()).collect();
    std::thread::scope(|scope| {
        let workers: Vec<_> = buffers
            .into_iter()
            .map(|mut buffer| {
                let domain = &domain;
                scope.spawn(move || {
                    loop {
                        match domain.register(buffer, Access::ALL) {
                            // Deregistering may come after the shutdown: that gives memory back
                            // too.
                            Ok(region) => match region.deregister().unwrap().pop() {
                                Some(back) => buffer = back,
                                None => return,
                            },
                            Err(refused) => {
                                assert_eq!(refused.error, RdmaError::ShutDown);
                                return;
                            }
                        }
                    }
                })
            })
            .collect();
        std::thread::sleep(Duration::from_millis(50));
        let report = left.shutdown();
        for worker in workers {
            worker.join().unwrap();
        }
        assert!(report.failures.is_empty(), "{:#?}", report.failures);
        assert_eq!(report.leaked_bytes, 0);
    });
    drop(domain);
    let report = right.shutdown();
    assert!(report.failures.is_empty(), "{:#?}", report.failures);
    check_breaches(&model);
}
