//! Counts of forwarded packets, shared by the threads.

use super::layout::{Layout, Place};
use super::mode::Mode;
use super::observed::DeviceDrops;
use ringside_lan::{Drops, Packet};
use serde::Serialize;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};

/// Counts of a receive and a transmit queue of one number, in cache lines of their own. Only the
/// thread of these queues writes them.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(super) struct Counters {
    pub(super) received: AtomicU64,
    pub(super) received_bytes: AtomicU64,
    pub(super) sent: AtomicU64,
    pub(super) sent_bytes: AtomicU64,
    pub(super) polls: AtomicU64,
    pub(super) empty_polls: AtomicU64,
    /// packets that the receive and the transmit queue dropped, by cause
    pub(super) by_queue: [AtomicU64; Drops::CAUSES],
    /// packets received that the mode does not send
    pub(super) by_mode: AtomicU64,
    /// packets received that the transmit queue had no room for
    pub(super) queue_full: AtomicU64,
    /// packets received that a transmit queue out of service did not take
    pub(super) out_of_service: AtomicU64,
    /// times that the pool had too few buffers for the receive queue
    pub(super) pool_empty: AtomicU64,
    /// descriptors of a transmit queue that does not move; 0 if it does
    pub(super) stuck: AtomicU64,
    /// the queues were stopped by command
    pub(super) is_stopped: AtomicBool,
    pub(super) stamps: StampCounters,
}

/// Time stamps of one thread's packets. Only that thread writes it.
#[derive(Debug, Default)]
pub(super) struct StampCounters {
    packets: AtomicU64,
    /// of the first and the last packet, nanoseconds of the device's clock
    first_ns: AtomicU64,
    last_ns: AtomicU64,
}

impl StampCounters {
    /// Counts packets that the device has stamped.
    pub(super) fn note(&self, packets: &[Packet]) {
        let mut count = self.packets.load(Ordering::Relaxed);
        for stamp in packets.iter().filter_map(Packet::timestamp) {
            if count == 0 {
                self.first_ns.store(stamp, Ordering::Relaxed);
            }
            self.last_ns.store(stamp, Ordering::Relaxed);
            count += 1;
        }
        self.packets.store(count, Ordering::Relaxed);
    }

    fn read(&self) -> Option<Stamps> {
        let packets = self.packets.load(Ordering::Relaxed);
        (packets > 0).then(|| Stamps {
            packets,
            first_ns: self.first_ns.load(Ordering::Relaxed),
            last_ns: self.last_ns.load(Ordering::Relaxed),
        })
    }
}

/// Time stamps of a port's packets since the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Stamps {
    pub(super) packets: u64,
    pub(super) first_ns: u64,
    pub(super) last_ns: u64,
}

impl Stamps {
    fn joined(self, other: Self) -> Self {
        Self {
            packets: self.packets + other.packets,
            first_ns: self.first_ns.min(other.first_ns),
            last_ns: self.last_ns.max(other.last_ns),
        }
    }
}

/// The state that all threads share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) stop: AtomicBool,
    pub(super) forwarding: AtomicBool,
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
        self.handovers.fetch_add(1, Ordering::Release);
        self.forwarding.store(true, Ordering::Release);
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

/// Causes of the program, after those of the queues.
const OWN_CAUSES: [&str; 3] = ["mode", "queue_full", "out_of_service"];
const CAUSES: usize = Drops::CAUSES + OWN_CAUSES.len();
/// Receive queue's causes: descriptors of the device that make no sense.
const MALFORMED: [&str; 3] = ["bad_length", "bad_profile", "chain_too_long"];

fn causes() -> impl Iterator<Item = &'static str> {
    Drops::NAMES.into_iter().chain(OWN_CAUSES)
}

/// Drops of a receive and a transmit queue of one number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct QueueDrops {
    packets: [u64; CAUSES],
    /// refills, not packets: the device drops packets when it runs out of descriptors
    pool_empty: u64,
}

impl QueueDrops {
    fn of(counters: &Counters) -> Self {
        let own = [
            &counters.by_mode,
            &counters.queue_full,
            &counters.out_of_service,
        ];
        let mut packets = [0; CAUSES];
        for (count, from) in packets.iter_mut().zip(counters.by_queue.iter().chain(own)) {
            *count = from.load(Ordering::Relaxed);
        }
        Self {
            packets,
            pool_empty: counters.pool_empty.load(Ordering::Relaxed),
        }
    }

    fn since(mut self, before: Self) -> Self {
        for (count, before) in self.packets.iter_mut().zip(before.packets) {
            *count -= before;
        }
        self.pool_empty -= before.pool_empty;
        self
    }

    fn named(&self) -> impl Iterator<Item = (&'static str, u64)> {
        causes().zip(self.packets)
    }

    /// Causes that are not 0, for people.
    pub(super) fn text(&self) -> String {
        let short = ("refills with an empty pool", self.pool_empty);
        let all = self.named().chain([short]).filter(|(_, count)| *count > 0);
        let all: Vec<_> = all.map(|(name, count)| format!("{name} {count}")).collect();
        all.join(", ")
    }
}

impl Serialize for QueueDrops {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let short = ("pool_empty", self.pool_empty);
        serializer.collect_map(self.named().chain([short]))
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
        let drops = QueueDrops::of(one);
        self.dropped += drops.packets.iter().sum::<u64>();
        let malformed = drops.named().filter(|(name, _)| MALFORMED.contains(name));
        self.malformed += malformed.map(|(_, count)| count).sum::<u64>();
        self.queue_drops.push(drops);
        let stamps = [self.time_stamps, one.stamps.read()];
        self.time_stamps = stamps.into_iter().flatten().reduce(Stamps::joined);
    }

    pub(super) fn since(&self, before: &Self) -> Self {
        let queues = self.queue_drops.iter().zip(&before.queue_drops);
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
            queue_drops: queues.map(|(now, before)| now.since(*before)).collect(),
            device_drops: self.device_drops.since(before.device_drops),
            malicious_events: self
                .malicious_events
                .map(|now| now - before.malicious_events.unwrap_or_default()),
            recoveries: self.recoveries - before.recoveries,
            time_stamps: self.time_stamps,
        }
    }
}
