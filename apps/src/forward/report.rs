//! Reports of the counts, as a table or as JSON.

use super::observed::{Observed, VsiName};
use super::queue_counts::queues_text;
#[cfg(test)]
use super::queue_counts::{QueueDrops, QueuePackets};
use super::statistics::{Shared, Totals};
use super::stopwatch::Stopwatch;
use crate::output::stdout;
use crate::supervised::Controls;
use ringside_pmd::lan::port::Malicious;
use serde::Serialize;
use std::io::{self, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

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
    /// in which packets were forwarded
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
    forwarded: Stopwatch,
    begin: Sample,
    last: Sample,
    shown: usize,
    /// the counts when forwarding ended, of which rates are: the drain of the queues counts on
    ended: Option<Sample>,
}

/// The counts of each station, and the time for which packets were forwarded until each.
type Sample = Vec<(Duration, Totals)>;

impl Report {
    /// `ports` are the controls of each port.
    pub(super) fn new(shared: Arc<Shared>, ports: &[&Controls], json: bool) -> Self {
        let stations = shared.layout().stations().iter();
        let observed = stations.filter_map(|station| {
            let controls = ports.get(station.port)?;
            Observed::new(controls, station.place)
        });
        let mut report = Self {
            begin: Vec::new(),
            last: Vec::new(),
            observed: observed.collect(),
            shared,
            json,
            forwarded: Stopwatch::default(),
            shown: 0,
            ended: None,
        };
        report.begin = report.sample();
        report.last.clone_from(&report.begin);
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

    fn sample(&mut self) -> Sample {
        let mut totals = self.shared.totals();
        for (total, observed) in totals.iter_mut().zip(&mut self.observed) {
            observed.look();
            total.device_drops = observed.drops();
            total.malicious_events = observed.events();
            total.recoveries = observed.recoveries();
        }
        let now = self.forwarded.elapsed(Instant::now());
        totals.into_iter().map(|totals| (now, totals)).collect()
    }

    /// Packets are forwarded from now on.
    pub(super) fn started(&mut self) {
        self.forwarded.run(Instant::now());
    }

    /// Packets are not forwarded until [`Report::started`]: the pause counts for no rate.
    pub(super) fn paused(&mut self) {
        self.forwarded.pause(Instant::now());
    }

    /// Nothing is forwarded any more: the time and the rates of the last report end here.
    pub(super) fn end(&mut self) {
        self.ended = Some(self.sample());
    }

    /// Reads the device's counters, which have 32 bits. To be called once a second.
    pub(super) fn look(&mut self) {
        for observed in &mut self.observed {
            observed.look();
        }
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

    /// Resets the counts of the port or VSI that commands name so, or of all.
    pub(super) fn clear(&mut self, name: &str) {
        self.last = self.sample();
        let stations = self.shared.layout().stations().iter();
        for ((begin, now), station) in self.begin.iter_mut().zip(&self.last).zip(stations) {
            if name == "all" || station.name() == name {
                begin.clone_from(now);
            }
        }
    }

    /// A line of each station: what happened after `before`.
    fn lines(&self, before: &Sample) -> Vec<Line<'_>> {
        let layout = self.shared.layout();
        let rated = self.ended.as_ref().unwrap_or(&self.last);
        let totals = self.last.iter().zip(rated).zip(before);
        let stations = layout.stations().iter().zip(&self.observed).zip(totals);
        let lines = stations
            .enumerate()
            .map(|(index, (of, ((now, rated), before)))| {
                let (station, observed) = of;
                let seconds = rated.0.saturating_sub(before.0).as_secs_f64();
                let counted = now.1.since(&before.1);
                let rated = rated.1.since(&before.1);
                // During a pause a thread may count the burst that it had begun.
                let rate = |count: u64| match seconds > 0.0 {
                    true => count as f64 / seconds,
                    false => 0.0,
                };
                let gbits = |bytes: u64| rate(bytes) * 8.0 / 1e9;
                Line {
                    port: station.port,
                    vsi: observed.vsi_name(station.place),
                    name: station.name(),
                    label: layout.label(index),
                    device: layout.device(index),
                    mode: self.shared.mode(station.port).name(),
                    seconds,
                    rx_pps: rate(rated.rx_packets),
                    rx_gbits: gbits(rated.rx_bytes),
                    tx_pps: rate(rated.tx_packets),
                    tx_gbits: gbits(rated.tx_bytes),
                    malicious: counted.malicious_events.map(|count| observed.last(count)),
                    counted,
                }
            });
        lines.collect()
    }

    fn show(&mut self, kind: &'static str, name: &str, before: &Sample) -> io::Result<()> {
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
        for (_, totals) in &mut report.begin {
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
