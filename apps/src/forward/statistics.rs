//! Counts of forwarded packets: shared by the threads, reported as a table or as JSON.

use super::layout::{Layout, Place};
use super::mode::Mode;
use super::observed::{DeviceDrops, Observed, VsiName};
use super::queue_counts::{Counters, QueueDrops, QueuePackets, Stamps, queues_text};
use crate::output::stdout;
use crate::supervised::Controls;
use ringside_pmd::lan::port::Malicious;
use serde::Serialize;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};
use std::time::Instant;

/// The state that all threads share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) stop: AtomicBool,
    pub(super) forwarding: AtomicBool,
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

    fn totals(&self) -> Vec<Totals> {
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
struct Totals {
    rx_packets: u64,
    rx_bytes: u64,
    tx_packets: u64,
    tx_bytes: u64,
    /// of all causes and queues
    dropped: u64,
    polls: u64,
    empty_polls: u64,
    malformed: u64,
    /// of now: descriptors of queues that do not move
    tx_stuck: u64,
    /// by number of the queue
    queues: Vec<QueuePackets>,
    /// by number of the queue
    queue_drops: Vec<QueueDrops>,
    /// packets that the device dropped
    device_drops: DeviceDrops,
    /// events of its detection of malicious drivers; none for a further VSI: the port has them
    #[serde(skip_serializing_if = "Option::is_none")]
    malicious_events: Option<u64>,
    /// times that the device was recovered
    recoveries: u64,
    /// since the start; none without --device-time, and before the first packet
    #[serde(skip_serializing_if = "Option::is_none")]
    time_stamps: Option<Stamps>,
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

    fn since(&self, before: &Self) -> Self {
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

/// One station over a time.
#[derive(Serialize)]
struct Line<'a> {
    port: usize,
    #[serde(flatten)]
    vsi: Option<VsiName>,
    /// in commands
    #[serde(skip)]
    name: String,
    #[serde(skip)]
    label: String,
    device: &'a str,
    mode: &'static str,
    seconds: f64,
    rx_pps: f64,
    rx_gbits: f64,
    tx_pps: f64,
    tx_gbits: f64,
    #[serde(flatten)]
    counted: Totals,
    /// the latest events
    #[serde(skip_serializing_if = "Option::is_none")]
    malicious: Option<&'a [Malicious]>,
}

#[derive(Serialize)]
struct Object<'a> {
    kind: &'static str,
    ports: &'a [Line<'a>],
    /// the further ones of all ports
    vsis: &'a [Line<'a>],
}

/// Reports the counts since the last report, and since the start.
pub(super) struct Report {
    shared: Arc<Shared>,
    /// by station
    observed: Vec<Observed>,
    json: bool,
    begin: (Instant, Vec<Totals>),
    last: (Instant, Vec<Totals>),
    shown: usize,
}

impl Report {
    /// `ports` are the controls of each port.
    pub(super) fn new(shared: Arc<Shared>, ports: &[&Controls], json: bool) -> Self {
        let stations = shared.layout().stations().iter();
        let observed = stations.filter_map(|station| {
            let controls = ports.get(station.port)?;
            Observed::new(controls, station.place)
        });
        let mut report = Self {
            begin: (Instant::now(), Vec::new()),
            last: (Instant::now(), Vec::new()),
            observed: observed.collect(),
            shared,
            json,
            shown: 0,
        };
        report.clear();
        report
    }

    /// A port was opened again: its stations have other controls now.
    pub(super) fn reopened(&mut self, port: usize, controls: &Controls) {
        for (index, station) in self.shared.layout().of_port(port) {
            if let Some(observed) = self.observed.get_mut(index) {
                observed.reopened(controls, station.place);
            }
        }
    }

    fn sample(&mut self) -> (Instant, Vec<Totals>) {
        let mut totals = self.shared.totals();
        for (total, observed) in totals.iter_mut().zip(&mut self.observed) {
            observed.look();
            total.device_drops = observed.drops();
            total.malicious_events = observed.events();
            total.recoveries = observed.recoveries();
        }
        (Instant::now(), totals)
    }

    /// Since the last interval.
    pub(super) fn interval(&mut self) -> io::Result<()> {
        let now = self.sample();
        let before = std::mem::replace(&mut self.last, now);
        self.show("interval", "all", &before)
    }

    /// Since the start, or since [`Report::clear`].
    pub(super) fn totals(&mut self) -> io::Result<()> {
        self.totals_of("all")
    }

    /// The same for the port or VSI that commands name so.
    pub(super) fn totals_of(&mut self, name: &str) -> io::Result<()> {
        self.last = self.sample();
        self.shown = 0;
        let begin = self.begin.clone();
        self.show("total", name, &begin)
    }

    /// Resets the counts.
    pub(super) fn clear(&mut self) {
        self.begin = self.sample();
        self.last = self.begin.clone();
    }

    /// A line of each station: what happened after `before`.
    fn lines(&self, before: &(Instant, Vec<Totals>)) -> Vec<Line<'_>> {
        let seconds = (self.last.0 - before.0).as_secs_f64().max(1e-9);
        let layout = self.shared.layout();
        let totals = self.last.1.iter().zip(&before.1);
        let stations = layout.stations().iter().zip(&self.observed).zip(totals);
        let lines = stations.enumerate().map(|(index, (of, (now, before)))| {
            let (station, observed) = of;
            let counted = now.since(before);
            let gbits = |bytes: u64| bytes as f64 * 8.0 / seconds / 1e9;
            Line {
                port: station.port,
                vsi: observed.vsi_name(station.place),
                name: station.name(),
                label: layout.label(index),
                device: layout.device(index),
                mode: self.shared.mode(station.port).name(),
                seconds,
                rx_pps: counted.rx_packets as f64 / seconds,
                rx_gbits: gbits(counted.rx_bytes),
                tx_pps: counted.tx_packets as f64 / seconds,
                tx_gbits: gbits(counted.tx_bytes),
                malicious: counted.malicious_events.map(|count| observed.last(count)),
                counted,
            }
        });
        lines.collect()
    }

    fn show(
        &mut self,
        kind: &'static str,
        name: &str,
        before: &(Instant, Vec<Totals>),
    ) -> io::Result<()> {
        let mut lines = self.lines(before);
        lines.retain(|line| name == "all" || line.name == name);
        if self.json {
            let further = lines.iter().position(|line| line.vsi.is_some());
            let (ports, vsis) = lines.split_at(further.unwrap_or(lines.len()));
            let text = serde_json::to_string(&Object { kind, ports, vsis })?;
            return writeln!(stdout(), "{text}");
        }
        let text = table(kind, &lines, self.shown.is_multiple_of(20));
        let count = lines.len();
        self.shown += count;
        write!(stdout(), "{text}")
    }

    /// A report of everything since the counters were made.
    #[cfg(test)]
    pub(super) fn from_zero(shared: Arc<Shared>, ports: &[&Controls]) -> Self {
        let mut report = Self::new(shared, ports, true);
        for totals in &mut report.begin.1 {
            let queues = totals.queues.len();
            *totals = Totals::default();
            totals.queues = vec![QueuePackets::default(); queues];
            totals.queue_drops = vec![QueueDrops::default(); queues];
        }
        report
    }

    /// The report since the start: an object for each port, and the table.
    #[cfg(test)]
    pub(super) fn total_of_test(&mut self) -> (serde_json::Value, String) {
        self.last = self.sample();
        let lines = self.lines(&self.begin);
        let value = serde_json::to_value(&lines).unwrap();
        (value, table("total", &lines, true))
    }
}

/// Lines of a table, with the names of its columns or without.
fn table(kind: &str, lines: &[Line<'_>], with_names: bool) -> String {
    let mut text = String::new();
    if with_names {
        text += &format!(
            "{kind:>8} {:<16} {:<9} {:>12} {:>8} {:>12} {:>8} {:>10} {:>7}\n",
            "port", "mode", "rx pkt/s", "rx Gb/s", "tx pkt/s", "tx Gb/s", "dropped", "empty %"
        );
    }
    for port in lines {
        let counted = &port.counted;
        let empty = counted.empty_polls as f64 * 100.0 / counted.polls.max(1) as f64;
        text += &format!(
            "{:>7.1}s {:<16} {:<9} {:>12.0} {:>8.3} {:>12.0} {:>8.3} {:>10} {:>7.1}\n",
            port.seconds,
            port.label,
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
        if counted.recoveries > 0 {
            text += &format!(
                "         the device was recovered: {}\n",
                counted.recoveries
            );
        }
        text += &drops_text(port);
        if kind == "total" {
            text += &format!(
                "         received {} packets, {} bytes; sent {} packets, {} bytes; {} malformed\n",
                counted.rx_packets,
                counted.rx_bytes,
                counted.tx_packets,
                counted.tx_bytes,
                counted.malformed
            );
            text += &queues_text(&counted.queues);
            if let Some(stamps) = counted.time_stamps {
                text += &format!(
                    "         time stamps of the device: {} packets, the first at {} ns, the last at {} ns\n",
                    stamps.packets, stamps.first_ns, stamps.last_ns
                );
            }
        }
    }
    text
}

/// Lines of the packets that were dropped, by queue and cause, and of the queues that the device
/// stopped; none without drops.
fn drops_text(port: &Line<'_>) -> String {
    let mut text = String::new();
    for (number, queue) in port.counted.queue_drops.iter().enumerate() {
        let causes = queue.text();
        if !causes.is_empty() {
            text += &format!("         dropped, queue {number}: {causes}\n");
        }
    }
    let causes = port.counted.device_drops.text();
    if !causes.is_empty() {
        text += &format!("         dropped by the device: {causes}\n");
    }
    for event in port.malicious.unwrap_or_default() {
        text += &format!("         {event}\n");
    }
    text
}
