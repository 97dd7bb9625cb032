//! Counts of forwarded packets: shared by the threads, reported as a table or as JSON.

use super::mode::Mode;
use crate::output::stdout;
use serde::Serialize;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::time::Instant;

/// One thread's share of a port, in a cache line of its own. Only that thread writes it.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(super) struct Counters {
    pub(super) received: AtomicU64,
    pub(super) received_bytes: AtomicU64,
    pub(super) sent: AtomicU64,
    pub(super) sent_bytes: AtomicU64,
    /// received and not sent on: dropped for lack of room, or by the mode
    pub(super) dropped: AtomicU64,
    pub(super) polls: AtomicU64,
    pub(super) empty_polls: AtomicU64,
    /// packets that the queue dropped because their descriptors made no sense
    pub(super) malformed: AtomicU64,
    /// descriptors of a transmit queue that does not move; 0 if it does
    pub(super) stuck: AtomicU64,
}

/// The state that all threads share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) stop: AtomicBool,
    pub(super) forwarding: AtomicBool,
    modes: Vec<AtomicU8>,
    names: Vec<String>,
    /// by port, then by thread
    counters: Vec<Vec<Counters>>,
}

impl Shared {
    pub(super) fn new(names: &[String], modes: Vec<Mode>, threads: usize) -> Self {
        let of_port = |_| (0..threads).map(|_| Counters::default()).collect();
        Self {
            stop: AtomicBool::new(false),
            forwarding: AtomicBool::new(false),
            modes: modes
                .into_iter()
                .map(|mode| AtomicU8::new(mode as u8))
                .collect(),
            names: names.to_vec(),
            counters: (0..names.len()).map(of_port).collect(),
        }
    }

    pub(super) fn counters(&self, port: usize, thread: usize) -> Option<&Counters> {
        self.counters.get(port)?.get(thread)
    }

    pub(super) fn mode(&self, port: usize) -> Mode {
        let mode = self.modes.get(port);
        Mode::of(mode.map_or(0, |mode| mode.load(Ordering::Relaxed)))
    }

    pub(super) fn set_mode(&self, mode: Mode) {
        for place in &self.modes {
            place.store(mode as u8, Ordering::Relaxed);
        }
    }

    pub(super) fn names(&self) -> &[String] {
        &self.names
    }

    fn totals(&self) -> Vec<Totals> {
        let sum = |threads: &Vec<Counters>| {
            let mut all = Totals::default();
            for one in threads {
                let pairs = [
                    (&mut all.rx_packets, &one.received),
                    (&mut all.rx_bytes, &one.received_bytes),
                    (&mut all.tx_packets, &one.sent),
                    (&mut all.tx_bytes, &one.sent_bytes),
                    (&mut all.dropped, &one.dropped),
                    (&mut all.polls, &one.polls),
                    (&mut all.empty_polls, &one.empty_polls),
                    (&mut all.malformed, &one.malformed),
                    (&mut all.tx_stuck, &one.stuck),
                ];
                for (total, counter) in pairs {
                    *total += counter.load(Ordering::Relaxed);
                }
            }
            all
        };
        self.counters.iter().map(sum).collect()
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
struct Totals {
    rx_packets: u64,
    rx_bytes: u64,
    tx_packets: u64,
    tx_bytes: u64,
    dropped: u64,
    polls: u64,
    empty_polls: u64,
    malformed: u64,
    /// of now: descriptors of queues that do not move
    tx_stuck: u64,
}

impl Totals {
    const fn since(self, before: Self) -> Self {
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
        }
    }
}

/// One port over a time.
#[derive(Serialize)]
struct Line<'a> {
    port: usize,
    device: &'a str,
    mode: &'static str,
    seconds: f64,
    rx_pps: f64,
    rx_gbits: f64,
    tx_pps: f64,
    tx_gbits: f64,
    #[serde(flatten)]
    counted: Totals,
}

#[derive(Serialize)]
struct Object<'a> {
    kind: &'static str,
    ports: Vec<Line<'a>>,
}

/// Reports the counts since the last report, and since the start.
pub(super) struct Report {
    shared: Arc<Shared>,
    json: bool,
    begin: (Instant, Vec<Totals>),
    last: (Instant, Vec<Totals>),
    lines: usize,
}

impl Report {
    pub(super) fn new(shared: Arc<Shared>, json: bool) -> Self {
        let now = (Instant::now(), shared.totals());
        Self {
            begin: now.clone(),
            last: now,
            shared,
            json,
            lines: 0,
        }
    }

    /// Since the last interval.
    pub(super) fn interval(&mut self) -> io::Result<()> {
        let now = (Instant::now(), self.shared.totals());
        let before = std::mem::replace(&mut self.last, now);
        self.show("interval", &before)
    }

    /// Since the start, or since [`Report::clear`].
    pub(super) fn totals(&mut self) -> io::Result<()> {
        self.last = (Instant::now(), self.shared.totals());
        self.lines = 0;
        let begin = self.begin.clone();
        self.show("total", &begin)
    }

    /// Resets the counts.
    pub(super) fn clear(&mut self) {
        self.begin = (Instant::now(), self.shared.totals());
        self.last = self.begin.clone();
    }

    fn show(&mut self, kind: &'static str, before: &(Instant, Vec<Totals>)) -> io::Result<()> {
        let seconds = (self.last.0 - before.0).as_secs_f64().max(1e-9);
        let names = self.shared.names();
        let totals = self.last.1.iter().zip(&before.1);
        let line = |(port, (now, before)): (usize, (&Totals, &Totals))| {
            let counted = now.since(*before);
            let gbits = |bytes: u64| bytes as f64 * 8.0 / seconds / 1e9;
            Line {
                port,
                device: names.get(port).map_or("", String::as_str),
                mode: self.shared.mode(port).name(),
                seconds,
                rx_pps: counted.rx_packets as f64 / seconds,
                rx_gbits: gbits(counted.rx_bytes),
                tx_pps: counted.tx_packets as f64 / seconds,
                tx_gbits: gbits(counted.tx_bytes),
                counted,
            }
        };
        let ports: Vec<Line<'_>> = totals.enumerate().map(line).collect();
        if self.json {
            let text = serde_json::to_string(&Object { kind, ports })?;
            return writeln!(stdout(), "{text}");
        }
        let text = table(kind, &ports, self.lines.is_multiple_of(20));
        self.lines += ports.len();
        write!(stdout(), "{text}")
    }
}

/// Lines of a table, with the names of its columns or without.
fn table(kind: &str, ports: &[Line<'_>], with_names: bool) -> String {
    let mut text = String::new();
    if with_names {
        text += &format!(
            "{kind:>8} {:<16} {:<9} {:>12} {:>8} {:>12} {:>8} {:>10} {:>7}\n",
            "port", "mode", "rx pkt/s", "rx Gb/s", "tx pkt/s", "tx Gb/s", "dropped", "empty %"
        );
    }
    for port in ports {
        let counted = &port.counted;
        let empty = counted.empty_polls as f64 * 100.0 / counted.polls.max(1) as f64;
        text += &format!(
            "{:>7.1}s {:<16} {:<9} {:>12.0} {:>8.3} {:>12.0} {:>8.3} {:>10} {:>7.1}\n",
            port.seconds,
            port.device,
            port.mode,
            port.rx_pps,
            port.rx_gbits,
            port.tx_pps,
            port.tx_gbits,
            counted.dropped,
            empty
        );
        if counted.tx_stuck > 0 {
            text += &format!(
                "         transmit does not move: {} descriptors wait for the device; check the link \
                 and pause frames, else recover the device\n",
                counted.tx_stuck
            );
        }
        if kind == "total" {
            text += &format!(
                "         received {} packets, {} bytes; sent {} packets, {} bytes; {} malformed\n",
                counted.rx_packets,
                counted.rx_bytes,
                counted.tx_packets,
                counted.tx_bytes,
                counted.malformed
            );
        }
    }
    text
}
