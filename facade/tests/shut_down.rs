//! The end of a device: calls on its objects afterwards say that it was shut down, and not that
//! something is used up; a reset that came before is noticed.

mod pair;

use pair::connected;
use ringside::driver::lan::{PortError, PortSettings};
use ringside::driver::rdma::SharedReceiveConfig;
use ringside::model::Fault;
use ringside::model::function::ResetKind;
use ringside::prelude::*;
use ringside::registry::{Registry, RegistrySettings};
use ringside::spec::rdma::registers::{CQP_STATUS, CqpStatus};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::fmt::Display;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// The functions of the model are opened by one test at a time.
static ONE: Mutex<()> = Mutex::new(());

fn says<T, E: Display>(call: &str, result: Result<T, E>) {
    let Err(error) = result else {
        panic!("{call}: no error");
    };
    let text = error.to_string();
    assert!(text.contains("the device was shut down"), "{call}: {text}");
}

#[test]
fn every_call_after_a_shutdown_names_the_shutdown() {
    let _one = ONE.lock();
    let [left, _right] = connected(0);
    let pair::End {
        queue_pair,
        mut completions,
        domain,
        device,
    } = left;
    let buffer = device.allocate(4096).unwrap();
    let open = device.driver().open_port(&PortSettings::default()).unwrap();
    let _ = device.shutdown();
    says("register", domain.register(buffer, Access::LOCAL_WRITE));
    let reliable = QueuePairConfig::reliable(&completions);
    says("queue_pair", domain.queue_pair(reliable));
    let datagram = QueuePairConfig::datagram(&completions);
    says("datagram_queue_pair", domain.datagram_queue_pair(datagram));
    let shared = SharedReceiveConfig::default();
    says("shared_receive_queue", domain.shared_receive_queue(&shared));
    says("query of a completion queue", completions.query());
    says("resize", completions.resize(1000));
    says("query of a queue pair", queue_pair.query());
    says("reset", queue_pair.reset());
    let counters = open.port.statistics();
    assert_eq!(counters, Err(PortError::OutOfService));
}

/// Commands to a device that was reset are not answered: each would be waited for until its
/// deadline.
#[test]
fn a_shutdown_notices_a_reset_that_nothing_has_noticed_before() {
    let _one = ONE.lock();
    let mut config = Config::default();
    config.housekeeping.thread = false;
    config.deadlines.control_queue_ms = 60_000;
    config.deadlines.admin_queue_ms = 60_000;
    let device = ringside::open("model:0", &config).unwrap();
    let model = device.model().unwrap();
    model.with(|world| world.inject(0, Fault::Reset(ResetKind::Function)));
    let function = device.driver().function().clone();
    let has_begun = Instant::now();
    while CqpStatus(function.read32(0, CQP_STATUS).unwrap()).done() {
        assert!(
            has_begun.elapsed() < pair::LIMIT,
            "the model resets nothing"
        );
        std::thread::yield_now();
    }
    let began = Instant::now();
    let report = device.shutdown();
    let took = began.elapsed();
    assert!(took < Duration::from_secs(50), "{took:?}: {report:#?}");
}

/// Demands that the events are over, and that each wait for their descriptor ends at once.
fn are_over(events: &ringside::Events) {
    let limit = Timespec {
        tv_sec: 1,
        tv_nsec: 0,
    };
    for round in 0..2 {
        let mut polled = [PollFd::new(events, PollFlags::IN)];
        assert_eq!(poll(&mut polled, Some(&limit)), Ok(1), "round {round}");
        assert!(events.is_over());
        events.take(&mut Vec::new());
    }
}

#[test]
fn a_task_that_waits_for_events_learns_of_the_shutdown() {
    let _one = ONE.lock();
    let config = Config::default();
    let device = ringside::open("model:0", &config).unwrap();
    let events = device.events().unwrap();
    events.take(&mut Vec::new());
    assert!(!events.is_over());
    let _ = device.shutdown();
    are_over(&events);

    let registry = Registry::new(&RegistrySettings::default()).unwrap();
    let handle = registry.open("model:0", &config).unwrap();
    let events = handle.device().unwrap().events().unwrap();
    assert!(!events.is_over());
    registry.close().unwrap();
    are_over(&events);
}
