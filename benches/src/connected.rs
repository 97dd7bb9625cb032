//! Two devices on one model, and many connections between them. Unlike those of `testkit`, all
//! connections of a device share one completion queue, and errors are returned to the program.

use ringside_bus::Function;
use ringside_bus::hand_off::hand_off;
use ringside_config::Config;
use ringside_pmd::Device;
use ringside_pmd::rdma::{
    Access, CompletionQueue, Connected, MemoryRegion, ProtectionDomain, QueuePair, QueuePairConfig,
};
use ringside_testkit::bring_up_all;
use std::sync::Arc;
use std::time::Duration;

/// Fails with a text for the person who runs the benchmark.
pub type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// Requests that each queue pair holds.
pub const DEPTH: u32 = 64;

/// One device's end of many connections.
pub struct End {
    /// The queue pairs, each connected to the one of the same index at the other end.
    pub queue_pairs: Vec<QueuePair<Connected>>,
    /// The queue of all their completions.
    pub completions: CompletionQueue,
    /// Memory that both ends may use.
    pub region: MemoryRegion,
    _domain: ProtectionDomain,
}

/// The devices of functions 0 and 1, which `function` returns, with room for this many queue pairs.
#[must_use]
pub fn devices(
    function: impl FnMut(u16) -> Option<Arc<dyn Function>>,
    queue_pairs: usize,
) -> [Device; 2] {
    let mut config = Config::default();
    config.rdma.queue_pairs = queue_pairs as u32 + 1;
    bring_up_all(function, &config)
}

/// `count` connections between two devices, with `region_bytes` of memory at each end.
pub fn connect(devices: &[Device; 2], count: usize, region_bytes: usize) -> Result<[End; 2]> {
    let mut halves = Vec::with_capacity(2);
    for device in devices {
        let domain = device.protection_domain()?;
        let completions = device.completion_queue(count as u32 * DEPTH)?;
        let region = domain.register(device.allocate(region_bytes)?, Access::ALL);
        let region = region.map_err(|failed| failed.error)?;
        let wanted = QueuePairConfig::reliable(&completions)
            .send_requests(DEPTH)
            .receive_requests(DEPTH);
        let made = (0..count).map(|_| domain.queue_pair(wanted.clone()));
        let made = made.collect::<std::result::Result<Vec<_>, _>>()?;
        halves.push((made, completions, region, domain));
    }
    let addresses: Vec<Vec<_>> = halves
        .iter()
        .map(|(made, ..)| made.iter().map(QueuePair::endpoint).collect())
        .collect();
    let mut ends = Vec::with_capacity(2);
    for ((made, completions, region, domain), peers) in
        halves.into_iter().zip(addresses.iter().rev())
    {
        let connected = made
            .into_iter()
            .zip(peers)
            .map(|(made, peer)| made.connect(peer));
        let connected = connected.collect::<std::result::Result<Vec<_>, _>>();
        ends.push(End {
            queue_pairs: connected.map_err(|failed| failed.error)?,
            completions,
            region,
            _domain: domain,
        });
    }
    ends.try_into().map_err(|_| "two ends".into())
}

/// Shuts both devices down.
///
/// # Errors
/// The first failure of a shutdown.
pub fn shut_down(devices: [Device; 2]) -> Result<()> {
    for device in devices {
        if let Some(failure) = device.shutdown().failures.first() {
            return Err(failure.to_string().into());
        }
    }
    Ok(())
}

/// Time for the probe of the two cores, at most.
const PROBE: Duration = Duration::from_secs(10);

/// The placement of a program whose driver spins on core 0 and whose model spins on core 1, with
/// the time of a cache line from one to the other. Call it before both spin.
pub fn placement() -> Result<String> {
    let nanoseconds = hand_off(0, 1, PROBE)?;
    Ok(format!(
        "line hand-off {nanoseconds:.0} ns, driver on core 0, model on core 1"
    ))
}
