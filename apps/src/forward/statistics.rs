//! Counts of forwarded packets, shared by the threads.

use super::layout::{Layout, Place};
use super::mode::Mode;
use super::observed::DeviceDrops;
use super::queue_counts::{Counters, QueueDrops, QueuePackets, Stamps};
use serde::Serialize;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};

/// The state that all threads share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) stop: AtomicBool,
    forwarding: AtomicBool,
    /// bursts that every queue has been asked to send before it forwards, since the start
    first_bursts: AtomicU32,
    /// times that something was changed for the threads: queues were handed over, ports are to be
    /// stopped or started, the burst has another length
    pub(super) handovers: AtomicU32,
    /// packets of a burst
    burst: AtomicU8,
    /// by port: its queues are to be stopped
    stopped: Vec<AtomicBool>,
    /// by port
    modes: Vec<AtomicU8>,
    layout: Layout,
    /// by station, then by queue
    counters: Vec<Vec<Counters>>,
}

impl Shared {
    pub(super) fn new(layout: Layout, modes: Vec<Mode>, burst: u8) -> Self {
        let of_queues = |count| (0..count).map(|_| Counters::default()).collect();
        let stations = layout.stations().iter();
        Self {
            stop: AtomicBool::new(false),
            forwarding: AtomicBool::new(false),
            first_bursts: AtomicU32::new(0),
            handovers: AtomicU32::new(0),
            burst: AtomicU8::new(burst),
            stopped: modes.iter().map(|_| AtomicBool::new(false)).collect(),
            modes: modes
                .into_iter()
                .map(|mode| AtomicU8::new(mode as u8))
                .collect(),
            counters: stations.map(|one| of_queues(one.queues)).collect(),
            layout,
        }
    }

    pub(super) fn counters(&self, place: Place) -> Option<&Counters> {
        self.counters.get(place.station)?.get(place.queue)
    }

    pub(super) fn mode(&self, port: usize) -> Mode {
        let mode = self.modes.get(port);
        Mode::of(mode.map_or(0, |mode| mode.load(Ordering::Relaxed)))
    }

    /// Packets of a burst.
    pub(super) fn burst(&self) -> usize {
        self.burst.load(Ordering::Relaxed).into()
    }

    /// Sets the packets of a burst, 1 to 64, for all threads.
    pub(super) fn set_burst(&self, packets: u8) {
        self.burst.store(packets, Ordering::Relaxed);
        self.handovers.fetch_add(1, Ordering::Release);
    }

    /// Lets the threads forward, after every queue has sent that many bursts of generated packets.
    pub(super) fn start(&self, first_bursts: u32) {
        self.first_bursts.fetch_add(first_bursts, Ordering::Relaxed);
        self.forwarding.store(true, Ordering::Release);
    }

    /// Has the threads forward nothing until [`Shared::start`].
    pub(super) fn pause(&self) {
        self.forwarding.store(false, Ordering::Release);
    }

    /// True between [`Shared::start`] and [`Shared::pause`].
    pub(super) fn is_forwarding(&self) -> bool {
        self.forwarding.load(Ordering::Acquire)
    }

    /// Bursts that every queue has been asked to send before it forwards, since the start.
    pub(super) fn first_bursts(&self) -> u32 {
        self.first_bursts.load(Ordering::Relaxed)
    }

    /// True if the queues of a port are to be stopped.
    pub(super) fn is_stopped(&self, port: usize) -> bool {
        let stopped = self.stopped.get(port);
        stopped.is_some_and(|stopped| stopped.load(Ordering::Relaxed))
    }

    /// Asks the threads to stop the queues of a port and of its VSIs, or to start them.
    pub(super) fn set_stopped(&self, port: usize, stopped: bool) {
        if let Some(place) = self.stopped.get(port) {
            place.store(stopped, Ordering::Relaxed);
        }
        self.handovers.fetch_add(1, Ordering::Release);
    }

    /// True if all queues of a port and of its VSIs are stopped, or all started, as was asked.
    pub(super) fn has_settled(&self, port: usize) -> bool {
        let wanted = self.is_stopped(port);
        let stations = self.layout.of_port(port);
        let mut queues = stations
            .flat_map(|(station, _)| self.counters.get(station))
            .flatten();
        queues.all(|queue| queue.is_stopped.load(Ordering::Acquire) == wanted)
    }

    pub(super) fn set_mode(&self, mode: Mode) {
        for place in &self.modes {
            place.store(mode as u8, Ordering::Relaxed);
        }
    }

    pub(super) const fn layout(&self) -> &Layout {
        &self.layout
    }

    pub(super) fn totals(&self) -> Vec<Totals> {
        let of_station = |queues: &Vec<Counters>| {
            let mut all = Totals::default();
            for one in queues {
                all.add(one);
            }
            all
        };
        self.counters.iter().map(of_station).collect()
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Totals {
    pub(super) rx_packets: u64,
    pub(super) rx_bytes: u64,
    pub(super) tx_packets: u64,
    pub(super) tx_bytes: u64,
    /// of all causes and queues
    pub(super) dropped: u64,
    pub(super) polls: u64,
    pub(super) empty_polls: u64,
    pub(super) malformed: u64,
    /// of now: descriptors of queues that do not move
    pub(super) tx_stuck: u64,
    /// by number of the queue
    pub(super) queues: Vec<QueuePackets>,
    /// by number of the queue
    pub(super) queue_drops: Vec<QueueDrops>,
    /// packets that the device dropped
    pub(super) device_drops: DeviceDrops,
    /// events of its detection of malicious drivers; none for a further VSI: the port has them
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) malicious_events: Option<u64>,
    /// times that the device was recovered
    pub(super) recoveries: u64,
    /// since the start; none without --device-time, and before the first packet
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) time_stamps: Option<Stamps>,
}

impl Totals {
    fn add(&mut self, one: &Counters) {
        let pairs = [
            (&mut self.rx_packets, &one.received),
            (&mut self.rx_bytes, &one.received_bytes),
            (&mut self.tx_packets, &one.sent),
            (&mut self.tx_bytes, &one.sent_bytes),
            (&mut self.polls, &one.polls),
            (&mut self.empty_polls, &one.empty_polls),
            (&mut self.tx_stuck, &one.stuck),
        ];
        for (total, counter) in pairs {
            *total += counter.load(Ordering::Relaxed);
        }
        self.queues.push(QueuePackets::of(one));
        let drops = QueueDrops::of(one);
        self.dropped += drops.all();
        self.malformed += drops.malformed();
        self.queue_drops.push(drops);
        let stamps = [self.time_stamps, one.stamps.read()];
        self.time_stamps = stamps.into_iter().flatten().reduce(Stamps::joined);
    }

    pub(super) fn since(&self, before: &Self) -> Self {
        let queues = self.queues.iter().zip(&before.queues);
        let drops = self.queue_drops.iter().zip(&before.queue_drops);
        Self {
            rx_packets: self.rx_packets - before.rx_packets,
            rx_bytes: self.rx_bytes - before.rx_bytes,
            tx_packets: self.tx_packets - before.tx_packets,
            tx_bytes: self.tx_bytes - before.tx_bytes,
            dropped: self.dropped - before.dropped,
            polls: self.polls - before.polls,
            empty_polls: self.empty_polls - before.empty_polls,
            malformed: self.malformed - before.malformed,
            tx_stuck: self.tx_stuck,
            queues: queues.map(|(now, before)| now.since(*before)).collect(),
            queue_drops: drops.map(|(now, before)| now.since(*before)).collect(),
            device_drops: self.device_drops.since(before.device_drops),
            malicious_events: self
                .malicious_events
                .map(|now| now - before.malicious_events.unwrap_or_default()),
            recoveries: self.recoveries - before.recoveries,
            time_stamps: self.time_stamps,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_has_the_events_since_the_last_one_and_the_stuck_packets_of_now() {
        let before = Totals {
            tx_stuck: 5,
            malicious_events: Some(3),
            recoveries: 1,
            ..Totals::default()
        };
        let now = Totals {
            tx_stuck: 4,
            malicious_events: Some(5),
            recoveries: 3,
            ..Totals::default()
        };
        let interval = Totals {
            tx_stuck: 4,
            malicious_events: Some(2),
            recoveries: 2,
            ..Totals::default()
        };
        assert_eq!(now.since(&before), interval);
        let first = now.since(&Totals::default());
        assert_eq!(first.malicious_events, Some(5));
    }
}
