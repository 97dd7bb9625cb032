//! A connection between devices in real time.

use ringside_pmd::Device;
use ringside_pmd::rdma::{
    Access, Completion, CompletionQueue, Connected, MemoryRegion, QueuePair, QueuePairConfig,
    Status,
};
use std::time::{Duration, Instant};

/// The longest wait for a completion.
const LIMIT: Duration = Duration::from_secs(60);

/// One end of a connection; the test keeps the device. Fields are dropped in this order: a queue
/// pair before its resources.
pub struct ConnectedEnd {
    /// The queue pair.
    pub queue_pair: QueuePair<Connected>,
    /// Its completion queue, of 256 entries.
    pub completions: CompletionQueue,
    /// The region that this end sends from.
    pub source: MemoryRegion,
    /// The region that the other end may access.
    pub target: MemoryRegion,
}

/// Connects two devices. Each end has two regions of `region_bytes` with all rights; `change`
/// changes the configuration of both queue pairs.
#[must_use]
pub fn connect(
    devices: [&Device; 2],
    region_bytes: usize,
    change: impl Fn(QueuePairConfig) -> QueuePairConfig,
) -> [ConnectedEnd; 2] {
    let halves = devices.map(|device| {
        let domain = device.protection_domain().expect("a protection domain");
        let completions = device.completion_queue(256).expect("a completion queue");
        let regions = [(); 2].map(|()| {
            let buffer = device.allocate(region_bytes).expect("memory");
            domain.register(buffer, Access::ALL).expect("a region")
        });
        let wanted = change(QueuePairConfig::reliable(&completions));
        let queue_pair = domain.queue_pair(wanted).expect("a queue pair");
        (queue_pair, completions, regions)
    });
    let [first, second] = halves.each_ref().map(|half| half.0.endpoint());
    let mut peers = [second, first].into_iter();
    halves.map(|(queue_pair, completions, [source, target])| {
        let peer = peers.next().expect("one for each end");
        ConnectedEnd {
            queue_pair: queue_pair.connect(&peer).expect("connected"),
            completions,
            source,
            target,
        }
    })
}

impl ConnectedEnd {
    /// Waits at most a minute until `count` requests have completed, all with success. Returns the
    /// completions.
    pub fn wait(&mut self, count: usize) -> Vec<Completion> {
        let begin = Instant::now();
        let mut batch = [Completion::EMPTY; 16];
        let mut done = Vec::with_capacity(count);
        while done.len() < count {
            done.extend_from_slice(self.completions.poll(&mut batch));
            let failed = done.iter().find(|one| one.status() != Status::Success);
            assert!(failed.is_none(), "{failed:?}");
            let came = done.len();
            assert!(
                begin.elapsed() < LIMIT,
                "{came} of {count} completions came"
            );
            std::thread::yield_now();
        }
        done
    }

    /// Waits for one completion, as [`wait`](Self::wait).
    pub fn wait_one(&mut self) -> Completion {
        self.wait(1).swap_remove(0)
    }
}
