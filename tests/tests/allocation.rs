//! The whole data path, on a connected queue pair of a device that was brought up, allocates nothing.

use ringside_config::{Config, HugePages};
use ringside_model::{Threaded, WorldSettings};
use ringside_pmd::rdma::{
    Access, Completion, CompletionQueue, Connected, Flags, MemoryRegion, QueuePair, QueuePairConfig,
};
use ringside_pmd::{BringUpOptions, Device};
use std::time::{Duration, Instant};

struct End {
    // Dropped in this order: a queue pair before its resources.
    queue_pair: QueuePair<Connected>,
    completions: CompletionQueue,
    region: MemoryRegion,
}

fn ends(devices: &[Device; 2]) -> [End; 2] {
    let halves = devices.each_ref().map(|device| {
        let domain = device.protection_domain().unwrap();
        let memory = device.allocate(4096).unwrap();
        let region = domain.register(memory, Access::ALL).unwrap();
        let completions = device.completion_queue(256).unwrap();
        let config = QueuePairConfig::reliable(&completions);
        let queue_pair = domain.queue_pair(config.inline_bytes(64)).unwrap();
        (queue_pair, completions, region)
    });
    let endpoints = halves.each_ref().map(|half| half.0.endpoint());
    let mut peers = endpoints.into_iter().rev();
    halves.map(|(queue_pair, completions, region)| End {
        queue_pair: queue_pair.connect(&peers.next().unwrap()).unwrap(),
        completions,
        region,
    })
}

/// A receive, a send, an inline write and a read, each waited for.
fn round(from: &mut End, to: &mut End, batch: &mut [Completion], begin: Instant) {
    let here = from.region.slice(0..64).unwrap();
    let there = to.region.slice(64..128).unwrap();
    let remote = to.region.remote();
    to.queue_pair.receive(1, &[there]).unwrap();
    from.queue_pair.send(2, &[here], Flags::SIGNALLED).unwrap();
    let data = [7; 48];
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
    let model = Threaded::start(&WorldSettings::with_functions(2), None).unwrap();
    let mut config = Config::default();
    config.memory.hugepages = HugePages::None;
    let devices = [0, 1].map(|index| {
        let function = model.function(index).unwrap();
        Device::bring_up(function, &config, BringUpOptions::default()).unwrap()
    });
    let [mut from, mut to] = ends(&devices);
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
    for device in devices {
        assert!(device.shutdown().failures.is_empty());
    }
}
