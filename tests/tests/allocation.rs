//! The whole data path, on a connected queue pair of a device that was brought up, allocates
//! nothing.

use ringside_pmd::rdma::{Completion, Flags};
use ringside_testkit::{ConnectedEnd, bring_up_all, config, connect, shut_down, threaded};
use std::time::{Duration, Instant};

/// A receive, a send, an inline write and a read, each waited for, and copies into and out of a
/// region.
fn round(from: &mut ConnectedEnd, to: &mut ConnectedEnd, batch: &mut [Completion], begin: Instant) {
    let here = from.source.slice(0..64).unwrap();
    let there = to.target.slice(64..128).unwrap();
    let remote = to.target.remote();
    to.queue_pair.receive(1, &[there]).unwrap();
    from.queue_pair.send(2, &[here], Flags::SIGNALLED).unwrap();
    let mut data = [7; 48];
    assert!(from.source.write(0, &data) && from.source.read(0, &mut data));
    from.queue_pair
        .write_inline(3, &data, remote.at(128), None, Flags::SIGNALLED)
        .unwrap();
    from.queue_pair
        .read(4, &[here], remote.at(0), Flags::SIGNALLED)
        .unwrap();
    from.queue_pair.ring();
    let (mut sent, mut received) = (0, 0);
    while sent < 3 || received < 1 {
        let done = from.completions.poll(batch);
        assert!(done.iter().all(Completion::is_success));
        sent += done.len();
        received += to.completions.poll(batch).len();
        assert!(
            begin.elapsed() < Duration::from_secs(60),
            "{sent} {received}"
        );
    }
}

#[test]
fn posting_ringing_polling_and_receiving_allocate_nothing_after_the_connection_is_made() {
    let model = threaded();
    let devices: [_; 2] = bring_up_all(|index| model.function(index), &config());
    let [mut from, mut to] = connect(devices.each_ref(), 4096, |config| config.inline_bytes(64));
    let mut batch = [Completion::EMPTY; 32];
    let begin = Instant::now();
    round(&mut from, &mut to, &mut batch, begin);
    let counted = allocation_counter::measure(|| {
        for _ in 0..2_000 {
            round(&mut from, &mut to, &mut batch, begin);
        }
    });
    assert_eq!(counted.count_total, 0, "{counted:?}");
    drop((from, to));
    shut_down(devices);
}
