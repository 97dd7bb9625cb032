//! Each cause of a failure, idle and under traffic.

use crate::traffic::{Side, connect, exchange};
use ringside_bus::Refusal;
use ringside_model::Fault;
use ringside_model::function::ResetKind;
use ringside_pmd::rdma::{Access, Event, PostError, RdmaError};
use ringside_pmd::recovery::{FailureCause, RecoverError, RecoveryReport, Supervision};
use ringside_testkit::{End, Pair};
use std::time::Duration;

/// A fault, the cause that the driver must name, and true if it is found only by a health check.
struct Case {
    fault: Fault,
    cause: FailureCause,
    silent: bool,
}

fn cases() -> Vec<Case> {
    let reset = |kind, cause| Case {
        fault: Fault::Reset(kind),
        cause,
        silent: false,
    };
    let error = |fault, cause| Case {
        fault,
        cause,
        silent: false,
    };
    let silent = |fault, cause| Case {
        fault,
        cause,
        silent: true,
    };
    vec![
        reset(ResetKind::Function, FailureCause::FunctionReset),
        reset(ResetKind::Core, FailureCause::CoreReset),
        reset(ResetKind::Global, FailureCause::GlobalReset),
        reset(ResetKind::Firmware, FailureCause::FirmwareReset),
        error(
            Fault::HmcError {
                kind: 3,
                object: 5,
                data: 0x77,
            },
            FailureCause::HostMemoryCache {
                error_type: 3,
                object_type: 5,
                data: 0x77,
            },
        ),
        error(
            Fault::CriticalError { code: 0x1234 },
            FailureCause::CriticalError { code: 0x1234 },
        ),
        silent(Fault::ProtocolEngineStall, FailureCause::ControlQueueSilent),
        silent(Fault::FirmwareStall, FailureCause::FirmwareSilent),
        silent(
            Fault::DmaRefused(Refusal::EVERYTHING),
            FailureCause::PciException,
        ),
        error(Fault::FunctionDead, FailureCause::Gone),
    ]
}

/// Lets time pass until the device reports its failure; returns the event, which arrives once.
fn wait_for_failure(pair: &mut Pair, sides: &mut [Side; 2], case: &Case) -> FailureCause {
    let mut events = Vec::new();
    for _ in 0..1000 {
        if case.silent {
            pair.a.device.probe();
        }
        match pair.a.device.poll_events(&mut events) {
            Ok(_) => {}
            Err(error) => panic!("{error} before the event"),
        }
        if let [event] = events.as_slice() {
            let Event::DeviceFailed { cause } = event else {
                panic!("{event:?}");
            };
            let again = pair.a.device.poll_events(&mut Vec::new());
            assert_eq!(again, Err(RdmaError::DeviceFailed { cause: *cause }));
            return *cause;
        }
        assert!(events.is_empty(), "{events:?}");
        sides[0].count(&mut pair.a);
        sides[1].count(&mut pair.b);
        pair.pass();
    }
    panic!("{:?} went unnoticed", case.fault);
}

/// Checks the recovery of `a`: memory and rings are returned, all stages in order.
fn recover(pair: &mut Pair, case: &Case) -> RecoveryReport {
    if case.fault == Fault::FunctionDead {
        let error = pair
            .a
            .device
            .recover()
            .expect_err("the device does not respond");
        assert!(matches!(*error, RecoverError::NotReset { .. }), "{error}");
        assert!(error.to_string().contains("recover again"), "{error}");
        pair.world.with(|world| world.clear_faults(0));
    }
    if matches!(case.fault, Fault::DmaRefused(_)) {
        let error = pair.a.device.recover().expect_err("no ring is read");
        assert!(
            matches!(*error, RecoverError::NotBroughtUp { .. }),
            "{error}"
        );
        pair.world.with(|world| world.clear_faults(0));
    }
    let report = pair
        .a
        .device
        .recover()
        .unwrap_or_else(|error| panic!("{:?}: {error}", case.fault));
    assert_eq!((report.cause, report.life), (case.cause, 2));
    let stages: Vec<_> = report.stages.iter().map(|stage| stage.stage).collect();
    assert_eq!(stages, ["contain", "reset", "release", "bring-up"]);
    assert!(!report.trace.stages.is_empty());
    report
}

/// Checks that every older object refuses calls with the reason, and is dropped without a command.
fn check_stale(pair: &mut Pair, side: &mut Side) {
    let refused = side.post(&side.region.remote(), 1);
    assert_eq!(refused, Err(PostError::DeviceFailed));
    let failed = |error: RdmaError| {
        assert!(matches!(error, RdmaError::DeviceFailed { .. }), "{error}");
        assert!(error.to_string().contains("Device::recover"), "{error}");
    };
    failed(
        pair.a
            .domain
            .queue_pair(pair.a.config())
            .expect_err("stale"),
    );
    let buffer = pair.a.device.allocate(4096).expect("memory");
    failed(
        pair.a
            .domain
            .register(buffer, Access::ALL)
            .expect_err("stale")
            .error,
    );
    failed(side.queue_pair.query().map(|_| ()).expect_err("stale"));
}

fn survive(case: &Case, traffic: bool, seed: u32) {
    let mut pair = Pair::new();
    let mut sides = connect(&pair);
    let remotes = [sides[1].region.remote(), sides[0].region.remote()];
    if traffic {
        for (side, remote) in sides.iter_mut().zip(&remotes) {
            side.post(remote, 8).expect("room");
        }
        for _ in 0..seed {
            pair.world.clock().pause(Duration::from_nanos(300));
        }
    }
    pair.world.with(|world| world.inject(0, case.fault));
    let cause = wait_for_failure(&mut pair, &mut sides, case);
    assert_eq!(cause, case.cause, "{:?}", case.fault);
    // All outstanding requests have completed, once, before the bring-up.
    let [a, b] = &mut sides;
    a.count(&mut pair.a);
    assert_eq!(a.outstanding(), 0, "{:?}", case.fault);
    if traffic {
        assert!(a.posted.len() > 16);
    }
    check_stale(&mut pair, a);
    let report = recover(&mut pair, case);
    // If it took several attempts, the first one reported their number.
    let again = matches!(case.fault, Fault::DmaRefused(_));
    assert_eq!(report.queue_pairs, usize::from(!again));
    check_stale(&mut pair, a);
    // The peer was not reset: its requests end by their retries.
    for _ in 0..100_000 {
        b.count(&mut pair.b);
        let sends_left = b.outstanding() > 0 && b.queue_pair.send_quanta_used() > 0;
        let _ = pair.b.device.poll_events(&mut Vec::new());
        if !sends_left {
            break;
        }
        pair.pass();
    }
    drop(sides);
    renew(&mut pair);
    exchange(&mut pair, 0x5A);
    pair.finish();
}

/// Makes domain and completion queue of `a` again.
pub(crate) fn renew(pair: &mut Pair) {
    pair.a.domain = pair.a.device.protection_domain().expect("a domain");
    pair.a.completions = pair.a.device.completion_queue(256).expect("a queue");
    let End { device, .. } = &pair.a;
    assert_eq!(device.failure(), None);
    assert_eq!(device.quarantine().expect("in service"), []);
}

#[test]
fn an_idle_device_is_back_in_service_after_each_cause() {
    for case in cases() {
        survive(&case, false, 0);
    }
}

#[test]
fn under_traffic_everything_completes_exactly_once_for_every_cause() {
    for case in cases() {
        for seed in [0, 3, 40] {
            survive(&case, true, seed);
        }
    }
}

/// A probe sends commands, which a device that was reset does not answer: it looks for a reset
/// first.
#[test]
fn a_reset_is_noticed_by_a_probe_without_a_command_that_times_out() {
    let pair = Pair::new();
    let mut supervision = Supervision::default();
    pair.world
        .with(|world| world.inject(0, Fault::Reset(ResetKind::Function)));
    let begun = pair.world.clock().now();
    let cause = pair.a.device.observe(&mut supervision, &mut Vec::new());
    let waited = pair.world.clock().now().since(begun);
    assert_eq!(cause, Ok(Some(FailureCause::FunctionReset)));
    assert!(waited < Duration::from_millis(50), "{waited:?}");
}
