//! Calls that a failure meets on the way: they end at once, and name it.

use crate::causes::renew;
use ringside_model::Fault;
use ringside_model::function::ResetKind;
use ringside_pmd::rdma::{Access, Event, QueuePairConfig, RdmaError};
use ringside_pmd::recovery::FailureCause;
use ringside_testkit::{Pair, config};
use std::time::Duration;

/// A region that cannot be made; its error.
fn refused(pair: &Pair) -> RdmaError {
    let buffer = pair.a.device.allocate(4096).expect("memory");
    let made = pair.a.domain.register(buffer, Access::ALL);
    made.expect_err("the device failed").error
}

#[test]
fn a_command_that_waits_for_its_answer_ends_at_once_when_the_device_was_reset() {
    for (kind, cause) in [
        (ResetKind::Function, FailureCause::FunctionReset),
        (ResetKind::Core, FailureCause::CoreReset),
        (ResetKind::Global, FailureCause::GlobalReset),
        (ResetKind::Firmware, FailureCause::FirmwareReset),
    ] {
        let mut config = config();
        config.deadlines.control_queue_ms = 5_000;
        let mut pair = Pair::with(&config);
        pair.world.with(|world| world.inject(0, Fault::Reset(kind)));
        let began = pair.world.clock().now();
        assert_eq!(refused(&pair), RdmaError::DeviceFailed { cause });
        let took = pair.world.clock().now().since(began);
        assert!(took < Duration::from_millis(50), "{cause}: {took:?}");
        // Another call, before events are taken: nothing is sent.
        assert_eq!(refused(&pair), RdmaError::DeviceFailed { cause });
        assert_eq!(pair.a.events(), [Event::DeviceFailed { cause }]);
        pair.a.device.recover().expect("back in service");
        renew(&mut pair);
        pair.finish();
    }
}

#[test]
fn objects_of_two_periods_of_service_are_refused_with_the_failure_between_them() {
    let mut pair = Pair::new();
    let (old_config, old_domain) = (pair.a.config(), pair.a.domain.clone());
    let old_region = pair.a.region(4096);
    pair.a.device.give_up().expect("in service");
    pair.a.device.recover().expect("back in service");
    let now = pair.a.device.protection_domain().expect("a domain");
    let queue = pair.a.device.completion_queue(16).expect("a queue");
    let failed = RdmaError::DeviceFailed {
        cause: FailureCause::Requested,
    };
    let error = now.queue_pair(old_config).expect_err("an old queue");
    assert_eq!(error, failed);
    let config = QueuePairConfig::reliable(&queue);
    let error = old_domain.queue_pair(config).expect_err("an old domain");
    assert_eq!(error, failed);
    let error = old_region.reregister(&now, Access::ALL).expect_err("old");
    assert!(error.to_string().contains("the device failed"), "{error}");
    drop((error, queue, now, old_domain));
    renew(&mut pair);
    pair.finish();
}
