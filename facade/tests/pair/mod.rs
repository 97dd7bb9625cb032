//! Two functions of the model and a connection between them.
#![allow(dead_code)] // each test file uses its part

use ringside::prelude::*;
use std::time::{Duration, Instant};

pub(crate) const LIMIT: Duration = Duration::from_secs(30);

/// One end of a connection.
pub(crate) struct End {
    pub(crate) queue_pair: QueuePair<Connected>,
    pub(crate) completions: CompletionQueue,
    pub(crate) domain: ProtectionDomain,
    pub(crate) device: Device,
}

/// Opens two functions and connects a queue pair of each.
pub(crate) fn connected(first: u16) -> [End; 2] {
    let mut config = Config::default();
    config.model.functions = 16;
    let open = |index: u16| ringside::open(&format!("model:{index}"), &config).unwrap();
    connect([open(first), open(first + 1)])
}

/// Connects a queue pair of each of two devices.
pub(crate) fn connect(devices: [Device; 2]) -> [End; 2] {
    let made = devices.map(|device| {
        let domain = device.protection_domain().unwrap();
        let completions = device.completion_queue(256).unwrap();
        let queue_pair = domain
            .queue_pair(QueuePairConfig::reliable(&completions))
            .unwrap();
        (device, domain, completions, queue_pair)
    });
    let [here, there] = [made[0].3.endpoint(), made[1].3.endpoint()];
    let [left, right] = made;
    let end = |(device, domain, completions, queue_pair): (_, _, _, QueuePair), peer| End {
        queue_pair: queue_pair
            .connect(peer)
            .map_err(|error| error.error)
            .unwrap(),
        completions,
        domain,
        device,
    };
    [end(left, &there), end(right, &here)]
}

impl End {
    /// Waits for the success of the request `id`.
    pub(crate) fn wait(&mut self, id: u64) {
        let end = Instant::now() + LIMIT;
        let mut batch = [Completion::EMPTY; 8];
        loop {
            for done in self.completions.poll(&mut batch) {
                assert!(done.is_success(), "request {}: {}", done.id, done.status());
                if done.id == id {
                    return;
                }
            }
            assert!(Instant::now() < end, "request {id} does not complete");
        }
    }

    /// A region of the device's own memory that the peer may read and write.
    pub(crate) fn region(&self, length: usize) -> MemoryRegion {
        let rights = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ;
        let buffer = self.device.allocate(length).unwrap();
        self.domain.register(buffer, rights).unwrap()
    }
}
