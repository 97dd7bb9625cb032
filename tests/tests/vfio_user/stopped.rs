//! A server that is stopped for a while, as by SIGSTOP, and goes on with the requests that it had.

use super::Served;
use super::driver::{devices, ends};
use ringside_pmd::rdma::{Completion, Flags};
use ringside_testkit::shut_down;
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(60);

/// A device fails while its server is stopped, with a receive posted and a message for it under
/// way. The receive completes once the server goes on, and nothing is written to its memory then.
fn stop_and_go_on(doorbell_page: bool) {
    let served = Served::start(doorbell_page);
    let mut devices = devices(&served);
    let [mut left, mut right] = ends(&devices, 4096);
    assert!(left.source.write(0, &[7; 64]));
    let held = served.hold();
    let into = right.target.slice(0..64).unwrap();
    right.queue_pair.receive(1, &[into]).unwrap();
    let from = left.source.slice(0..64).unwrap();
    left.queue_pair.send(2, &[from], Flags::SIGNALLED).unwrap();
    left.queue_pair.ring();
    devices[1].give_up().unwrap();
    let mut batch = [Completion::EMPTY; 4];
    let given = right.completions.poll(&mut batch).len();
    assert_eq!(given, 0, "the server may still write");
    assert!(!devices[1].is_contained());
    drop(held);

    let begin = Instant::now();
    while right.completions.poll(&mut batch).is_empty() {
        assert!(
            begin.elapsed() < LIMIT,
            "the server goes on, the receive does not complete"
        );
        let _ = devices[1].poll_events(&mut Vec::new());
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(right.target.write(0, &[1; 64]));
    // Its end, with success or not, shows that the message is not under way any more.
    while left.completions.poll(&mut batch).is_empty() {
        assert!(begin.elapsed() < LIMIT, "the send does not complete");
        std::thread::sleep(Duration::from_millis(1));
    }
    let mut bytes = [0; 64];
    assert!(right.target.read(0, &mut bytes));
    assert_eq!(bytes, [1; 64], "written after its completion");
    devices[1].recover().unwrap();
    drop((left, right));
    shut_down(devices);
}

#[test]
fn a_stopped_server_writes_nothing_after_a_completion_with_a_mapped_doorbell_page() {
    stop_and_go_on(true);
}

#[test]
fn a_stopped_server_writes_nothing_after_a_completion_with_every_doorbell_a_message() {
    stop_and_go_on(false);
}
