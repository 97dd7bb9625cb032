//! Reports of the device on a port: packets that it dropped, and queues that it stopped.

use ringside_pmd::lan::Port;
use ringside_pmd::lan::port::Malicious;
use serde::Serialize;

/// Counters of the port's statistics that count packets which the device dropped.
const NAMES: [&str; 10] = [
    // no receive descriptor was free, or the frame was longer than the queue takes
    "rx_dropped",
    "tx_errors",
    "rx_crc_errors.nic",
    "illegal_bytes.nic",
    "rx_length_errors.nic",
    "rx_undersize.nic",
    "rx_oversize.nic",
    "rx_fragments.nic",
    "rx_jabber.nic",
    "tx_dropped_link_down.nic",
];

/// Packets that the device dropped at a port. It has no count for a single queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct DeviceDrops([u64; NAMES.len()]);

impl DeviceDrops {
    /// Reads them; without an answer of the device the counts stay.
    fn read(&mut self, port: &Port) {
        for one in port.statistics().unwrap_or_default() {
            if let Some(place) = NAMES.iter().position(|name| *name == one.name) {
                self.0[place] = one.value;
            }
        }
    }

    pub(super) fn since(mut self, before: Self) -> Self {
        for (count, before) in self.0.iter_mut().zip(before.0) {
            // A reset of the device begins its counts again.
            *count = count.saturating_sub(before);
        }
        self
    }

    /// Causes that are not 0, for people.
    pub(super) fn text(&self) -> String {
        let all = NAMES.iter().zip(self.0).filter(|(_, count)| *count > 0);
        let all: Vec<_> = all.map(|(name, count)| format!("{name} {count}")).collect();
        all.join(", ")
    }
}

impl Serialize for DeviceDrops {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(NAMES.iter().zip(self.0))
    }
}

/// Malicious events that are kept for a port: the latest.
const KEPT: usize = 32;

/// A port, and the device's reports on it.
pub(super) struct Observed<'a> {
    port: &'a Port,
    drops: DeviceDrops,
    events: u64,
    kept: Vec<Malicious>,
}

impl<'a> Observed<'a> {
    pub(super) fn new(port: &'a Port) -> Self {
        Self {
            port,
            drops: DeviceDrops::default(),
            events: 0,
            kept: Vec::new(),
        }
    }

    /// Asks the device; returns the packets that it dropped and the number of its malicious events.
    pub(super) fn look(&mut self) -> (DeviceDrops, u64) {
        self.drops.read(self.port);
        let events = self.port.malicious_events().unwrap_or_default();
        self.events += events.len() as u64;
        self.kept.extend(events);
        self.kept.drain(..self.kept.len().saturating_sub(KEPT));
        (self.drops, self.events)
    }

    /// The last events.
    pub(super) fn last(&self, count: u64) -> &[Malicious] {
        let skipped = self.kept.len().saturating_sub(count as usize);
        &self.kept[skipped..]
    }
}
