//! The end of a device: calls on its objects afterwards say that it was shut down, and not that
//! something is used up; a reset that came before is noticed.

mod pair;

use pair::connected;
use ringside::driver::lan::{PortError, PortSettings};
use ringside::driver::rdma::SharedReceiveConfig;
use ringside::model::Fault;
use ringside::model::function::ResetKind;
use ringside::prelude::*;
use ringside::spec::rdma::registers::{CQP_STATUS, CqpStatus};
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
