//! Counts of one receive and one transmit queue: kept by their thread, shown by reports.

use ringside_lan::{Drops, Packet};
use serde::Serialize;
use std::fmt::Write;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

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

    pub(super) fn read(&self) -> Option<Stamps> {
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
    pub(super) fn joined(self, other: Self) -> Self {
        Self {
            packets: self.packets + other.packets,
            first_ns: self.first_ns.min(other.first_ns),
            last_ns: self.last_ns.max(other.last_ns),
        }
    }
}

/// Packets and bytes of a receive and a transmit queue of one number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct QueuePackets {
    rx_packets: u64,
    rx_bytes: u64,
    tx_packets: u64,
    tx_bytes: u64,
}

impl QueuePackets {
    pub(super) fn of(counters: &Counters) -> Self {
        Self {
            rx_packets: counters.received.load(Ordering::Relaxed),
            rx_bytes: counters.received_bytes.load(Ordering::Relaxed),
            tx_packets: counters.sent.load(Ordering::Relaxed),
            tx_bytes: counters.sent_bytes.load(Ordering::Relaxed),
        }
    }

    pub(super) const fn since(self, before: Self) -> Self {
        Self {
            rx_packets: self.rx_packets - before.rx_packets,
            rx_bytes: self.rx_bytes - before.rx_bytes,
            tx_packets: self.tx_packets - before.tx_packets,
            tx_bytes: self.tx_bytes - before.tx_bytes,
        }
    }
}

/// A line of the packets of each queue; none for a single queue.
pub(super) fn queues_text(queues: &[QueuePackets]) -> String {
    let mut text = String::new();
    if queues.len() > 1 {
        text += "         by queue:";
        for (number, queue) in queues.iter().enumerate() {
            let QueuePackets {
                rx_packets,
                tx_packets,
                ..
            } = queue;
            let separator = if number > 0 { ";" } else { "" };
            // Writing to a string does not fail.
            let _ = write!(
                text,
                "{separator} {number} received {rx_packets}, sent {tx_packets}"
            );
        }
        text.push('\n');
    }
    text
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
    pub(super) fn of(counters: &Counters) -> Self {
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

    pub(super) fn since(mut self, before: Self) -> Self {
        for (count, before) in self.packets.iter_mut().zip(before.packets) {
            *count -= before;
        }
        self.pool_empty -= before.pool_empty;
        self
    }

    fn named(&self) -> impl Iterator<Item = (&'static str, u64)> {
        causes().zip(self.packets)
    }

    /// Packets dropped, of all causes.
    pub(super) fn all(&self) -> u64 {
        self.packets.iter().sum()
    }

    /// Packets that made no sense as the device delivered them.
    pub(super) fn malformed(&self) -> u64 {
        let malformed = self.named().filter(|(name, _)| MALFORMED.contains(name));
        malformed.map(|(_, count)| count).sum()
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
