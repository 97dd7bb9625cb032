//! The result of a benchmark, shown as perftest's columns, JSON, HdrHistogram files.

use super::latencies::Latencies;
use super::placement::Placement;
use super::plan::Plan;
use crate::cli::{Measure, Operation};
use crate::output::microseconds;
use serde::Serialize;
use std::io::{self, Write};
use std::time::Duration;

/// One line of a latency table; times in microseconds.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct LatencyRow {
    pub(crate) bytes: u64,
    pub(crate) iterations: u64,
    pub(crate) t_min_usec: f64,
    pub(crate) t_max_usec: f64,
    /// the median, as perftest has it; up to 0.8 % too much
    pub(crate) t_typical_usec: f64,
    pub(crate) t_avg_usec: f64,
    pub(crate) t_stdev_usec: f64,
    /// percentiles: up to 0.8 % too much; the greatest one for want of messages
    pub(crate) p99_usec: f64,
    pub(crate) p99_9_usec: f64,
    pub(crate) p99_99_usec: f64,
    /// messages whose every byte was compared, untimed
    pub(crate) verified_messages: u64,
}

/// One line of a bandwidth table.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct BandwidthRow {
    pub(crate) bytes: u64,
    pub(crate) iterations: u64,
    pub(crate) peak_bytes_per_second: f64,
    pub(crate) average_bytes_per_second: f64,
    pub(crate) messages_per_second: f64,
    pub(crate) verified_messages: u64,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Rows {
    Latency(Vec<LatencyRow>),
    Bandwidth(Vec<BandwidthRow>),
}

/// One table.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Table {
    #[serde(serialize_with = "operation_name")]
    pub(crate) operation: Operation,
    #[serde(serialize_with = "measure_name")]
    pub(crate) measure: Measure,
    pub(crate) queue_pairs: u32,
    pub(crate) mtu: u32,
    pub(crate) rows: Rows,
}

impl Table {
    /// A table without a row.
    pub(crate) fn empty(plan: &Plan, mtu: u32) -> Self {
        Self {
            operation: plan.operation,
            measure: plan.measure,
            queue_pairs: plan.queue_pairs,
            mtu,
            rows: match plan.measure {
                Measure::Lat => Rows::Latency(Vec::new()),
                Measure::Bw => Rows::Bandwidth(Vec::new()),
            },
        }
    }

    /// Messages whose every byte was compared.
    pub(crate) fn verified_messages(&self) -> u64 {
        match &self.rows {
            Rows::Latency(rows) => rows.iter().map(|row| row.verified_messages).sum(),
            Rows::Bandwidth(rows) => rows.iter().map(|row| row.verified_messages).sum(),
        }
    }
}

impl Rows {
    fn is_empty(&self) -> bool {
        match self {
            Self::Latency(rows) => rows.is_empty(),
            Self::Bandwidth(rows) => rows.is_empty(),
        }
    }
}

impl Report {
    /// Records that the queue pairs were connected within `connecting`, after the bring-up. The
    /// wait for the peer between the two does not count.
    pub(crate) fn ready_after(&mut self, connecting: Duration) {
        let stages = self.bring_up.iter().map(|stage| stage.microseconds);
        let all = stages.sum::<f64>() + microseconds(connecting);
        self.bring_up_to_rts_milliseconds = all / 1e3;
    }

    /// Adds rows to the last table, which has rows of that kind.
    pub(crate) fn push(&mut self, rows: Rows) {
        match (self.tables.last_mut().map(|table| &mut table.rows), rows) {
            (Some(Rows::Latency(all)), Rows::Latency(rows)) => all.extend(rows),
            (Some(Rows::Bandwidth(all)), Rows::Bandwidth(rows)) => all.extend(rows),
            (_, rows) => debug_assert!(rows.is_empty(), "a row without its table"),
        }
    }

    /// True if nothing was measured or compared.
    pub(crate) fn is_empty(&self) -> bool {
        self.verified.is_empty() && self.tables.iter().all(|table| table.rows.is_empty())
    }
}

fn operation_name<S: serde::Serializer>(value: &Operation, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(match value {
        Operation::Write => "write",
        Operation::Read => "read",
        Operation::Send => "send",
    })
}

fn measure_name<S: serde::Serializer>(value: &Measure, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(match value {
        Measure::Lat => "lat",
        Measure::Bw => "bw",
    })
}

/// One stage of a bring-up.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct StageTime {
    pub(crate) stage: String,
    pub(crate) microseconds: f64,
    pub(crate) summary: String,
}

/// Messages that were compared and not measured.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct VerifiedRow {
    pub(crate) operation: &'static str,
    pub(crate) bytes: u64,
    pub(crate) verified_messages: u64,
}

/// Register accesses of a test, doorbells among them: those of the measured part alone.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct RegisterAccesses {
    pub(crate) test: String,
    pub(crate) messages: u64,
    pub(crate) sender_writes: u64,
    pub(crate) sender_reads: u64,
    pub(crate) receiver_writes: u64,
    pub(crate) receiver_reads: u64,
}

/// The whole report.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Report {
    /// the measured device, in one line
    pub(crate) driven: String,
    /// of a bench in one process
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) placement: Option<Placement>,
    pub(crate) devices: Vec<String>,
    pub(crate) bring_up: Vec<StageTime>,
    /// the bring-up, and the time in which the first queue pairs are connected; of two processes
    /// without the wait for the peer between them
    pub(crate) bring_up_to_rts_milliseconds: f64,
    pub(crate) tables: Vec<Table>,
    /// the results of the comparisons besides the tables' rows
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) verified: Vec<VerifiedRow>,
    /// with `--count-writes`, one for each row of the tables
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) register_accesses: Vec<RegisterAccesses>,
    /// why it ended before everything was measured
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ended_early: Option<String>,
    /// kinds of breach; `None` where the device is in another process, which counts them
    pub(crate) interface_breaches: Option<u64>,
    pub(crate) warnings: Vec<String>,
}

pub(crate) fn latency_row(bytes: u64, times: &Latencies, verified_messages: u64) -> LatencyRow {
    let in_microseconds = |nanoseconds: u64| nanoseconds as f64 / 1000.0;
    let all_but_one_in = |beyond| in_microseconds(times.all_but_one_in(beyond));
    LatencyRow {
        bytes,
        iterations: times.messages(),
        t_min_usec: in_microseconds(times.least()),
        t_max_usec: in_microseconds(times.most()),
        t_typical_usec: in_microseconds(times.at(0.5)),
        t_avg_usec: times.mean() / 1000.0,
        t_stdev_usec: times.deviation() / 1000.0,
        p99_usec: all_but_one_in(100),
        p99_9_usec: all_but_one_in(1_000),
        p99_99_usec: all_but_one_in(10_000),
        verified_messages,
    }
}

/// Prints a table's head.
pub(crate) fn print_head(out: &mut dyn Write, table: &Table, gbits: bool) -> io::Result<()> {
    let line = "-".repeat(match table.measure {
        Measure::Lat => 140,
        Measure::Bw => 88,
    });
    writeln!(out, "{line}")?;
    writeln!(
        out,
        "{:>40} {} Test",
        table.operation.title(),
        table.measure.title()
    )?;
    writeln!(
        out,
        " Queue pairs: {:<4} MTU: {:<5} Transport: RoCEv2 RC",
        table.queue_pairs, table.mtu
    )?;
    writeln!(out, "{line}")?;
    match table.measure {
        Measure::Lat => writeln!(
            out,
            " {:<10} {:<12} {:<12} {:<12} {:<17} {:<12} {:<13} {:<11} {:<13} {:<14}",
            "#bytes",
            "#iterations",
            "t_min[usec]",
            "t_max[usec]",
            "t_typical[usec]",
            "t_avg[usec]",
            "t_stdev[usec]",
            "99%[usec]",
            "99.9%[usec]",
            "99.99%[usec]"
        ),
        Measure::Bw => {
            let unit = if gbits { "Gb/sec" } else { "MB/sec" };
            writeln!(
                out,
                " {:<10} {:<14} {:<18} {:<20} {:<14}",
                "#bytes",
                "#iterations",
                format!("BW peak[{unit}]"),
                format!("BW average[{unit}]"),
                "MsgRate[Mpps]"
            )
        }
    }
}

pub(crate) fn print_latency(out: &mut dyn Write, row: &LatencyRow) -> io::Result<()> {
    writeln!(
        out,
        " {:<10} {:<12} {:<12.2} {:<12.2} {:<17.2} {:<12.2} {:<13.2} {:<11.2} {:<13.2} {:<14.2}",
        row.bytes,
        row.iterations,
        row.t_min_usec,
        row.t_max_usec,
        row.t_typical_usec,
        row.t_avg_usec,
        row.t_stdev_usec,
        row.p99_usec,
        row.p99_9_usec,
        row.p99_99_usec
    )
}

/// Prints the head of a verification.
pub(crate) fn print_verified_head(out: &mut dyn Write) -> io::Result<()> {
    let line = "-".repeat(62);
    writeln!(out, "{line}")?;
    writeln!(
        out,
        " {:<26} {:<10} Messages compared on this side",
        "Operation", "#bytes"
    )
}

pub(crate) fn print_verified(out: &mut dyn Write, row: &VerifiedRow) -> io::Result<()> {
    let VerifiedRow {
        operation,
        bytes,
        verified_messages,
    } = row;
    writeln!(out, " {operation:<26} {bytes:<10} {verified_messages}")
}

/// `MB` is 2^20 bytes and `Gb` 10^9 bits, as in perftest.
pub(crate) fn print_bandwidth(
    out: &mut dyn Write,
    row: &BandwidthRow,
    gbits: bool,
) -> io::Result<()> {
    let shown = |bytes: f64| {
        if gbits {
            bytes * 8.0 / 1e9
        } else {
            bytes / f64::from(1 << 20)
        }
    };
    writeln!(
        out,
        " {:<10} {:<14} {:<18.2} {:<20.2} {:<14.6}",
        row.bytes,
        row.iterations,
        shown(row.peak_bytes_per_second),
        shown(row.average_bytes_per_second),
        row.messages_per_second / 1e6
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_until_ready_has_the_bring_up() {
        let stage = |microseconds| StageTime {
            stage: String::new(),
            microseconds,
            summary: String::new(),
        };
        let mut report = Report {
            bring_up: vec![stage(1_500.0), stage(2_000.0)],
            ..Report::default()
        };
        report.ready_after(Duration::from_millis(2));
        assert_eq!(report.bring_up_to_rts_milliseconds, 5.5);
    }
}
