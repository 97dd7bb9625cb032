//! What perftest's programs do once they are connected, from either side.

use super::Wanted;
use super::records::{BandwidthReport, Keys};
use super::talk::{self, Common};
use crate::bench::bandwidth::Run as Flows;
use crate::bench::meeting::agreement;
use crate::bench::meeting::bandwidth::drive;
use crate::bench::meeting::end::{End, Link, Role, Watch};
use crate::bench::meeting::latency::Player;
use crate::bench::plan::{Amount, Plan};
use crate::bench::progress::Progress;
use crate::bench::report::{self, BandwidthRow, LatencyRow, Rows, Table};
use crate::bench::{Distribution, Run};
use crate::cli::{Measure, Operation};
use crate::failure::Failure;
use anyhow::anyhow;
use ringside_bus::clock::ticks;
use std::io::Write;

/// A connected test.
pub(super) struct Test<'a, 'o> {
    pub(super) run: &'a mut Run<'o>,
    pub(super) wanted: &'a Wanted,
    pub(super) common: &'a Common,
    pub(super) keys: &'a Keys,
    pub(super) distributions: Vec<Distribution>,
    /// when the last answer was sent, ticks
    pub(super) last: u64,
}

impl Test<'_, '_> {
    /// Measures, or lets the peer measure, each size; what there is to show.
    pub(super) fn play(
        &mut self,
        end: &mut End<'_>,
        link: &mut Link,
    ) -> Result<Option<Table>, Failure> {
        let measures = link.role == Role::Client;
        match (self.wanted.measure, measures) {
            (Measure::Lat, true) => self.latency(end, link).map(Some),
            (Measure::Bw, true) => self.bandwidth(end, link).map(Some),
            (Measure::Lat, false) => self.answer(end, link).map(|()| None),
            (Measure::Bw, false) => self.serve(end, link),
        }
    }

    fn table(&mut self, rows: Rows) -> Result<Table, Failure> {
        let table = Table {
            operation: self.wanted.operation,
            measure: self.wanted.measure,
            queue_pairs: self.wanted.queue_pairs,
            mtu: self.common.mtu,
            rows,
        };
        report::print_head(&mut self.run.out, &table, self.run.options.report_gbits)?;
        Ok(table)
    }

    /// How perftest keeps step.
    fn step(&self, link: &mut Link) -> Result<(), Failure> {
        talk::hand_shake(link, self.keys).map(drop)
    }

    fn title(&self, size: u64) -> String {
        let wanted = self.wanted;
        format!(
            "{} {} {size} B",
            wanted.operation.title(),
            wanted.measure.title()
        )
    }

    /// The test of one size, as the players know it.
    fn test(&self, size: u64) -> agreement::Test {
        let plan = self.wanted.plan(self.run.options, size);
        agreement::Test {
            task: self.wanted.operation.into(),
            measure: Some(self.wanted.measure),
            mtu: self.common.mtu,
            size,
            amount: plan.amount,
            queue_pairs: plan.queue_pairs,
            rounds: 0,
            send_depth: plan.send_depth,
            receive_depth: plan.receive_depth,
            inline: plan.inline,
        }
    }

    fn latency(&mut self, end: &mut End<'_>, link: &mut Link) -> Result<Table, Failure> {
        let mut table = self.table(Rows::Latency(Vec::new()))?;
        let mut rows = Vec::new();
        let trips = if self.wanted.operation == Operation::Read {
            1
        } else {
            2
        };
        for &size in &self.wanted.sizes {
            let mut progress = Progress::start(self.title(size));
            let mut player = Player::prepare(end, link.role, &self.test(size))?;
            if self.wanted.operation == Operation::Send {
                self.step(link)?;
            }
            let mut times = report::histogram()?;
            for done in 0..self.wanted.messages {
                if let Some(span) = self.time(&mut player, end, link, done)? {
                    times.saturating_record((link.clock.nanoseconds(span) / trips).max(1));
                }
                if done.is_multiple_of(256) {
                    progress.at(done as f64 / self.wanted.messages as f64);
                }
            }
            settle(end, link)?;
            drop(progress);
            let row = LatencyRow {
                iterations: self.wanted.messages,
                ..report::latency_row(size, &times, 0)
            };
            report::print_latency(&mut self.run.out, &row)?;
            self.run.out.flush()?;
            rows.push(row);
            self.distributions.push((self.title(size), times));
        }
        if self.wanted.operation != Operation::Write {
            self.step(link)?;
        }
        table.rows = Rows::Latency(rows);
        Ok(table)
    }

    /// One message and its answer; ticks, if there was one before to count from.
    ///
    /// A write test is begun by perftest's server: its client answers, and counts from answer to
    /// answer. Source: perftest `perftest_resources.c`, `run_iter_lat_write`.
    fn time(
        &mut self,
        player: &mut Player,
        end: &mut End<'_>,
        link: &mut Link,
        done: u64,
    ) -> Result<Option<u64>, Failure> {
        if self.wanted.operation != Operation::Write {
            return player.round(end, link).map(Some);
        }
        if !player.answer(end, link)? {
            return Err(self.early(link, done));
        }
        let now = ticks();
        let span = now.wrapping_sub(std::mem::replace(&mut self.last, now));
        Ok((done > 0).then_some(span))
    }

    /// The peer spoke when it was to send.
    fn early(&self, link: &Link, done: u64) -> Failure {
        Failure::operation(anyhow!(
            "the peer {} was done after {done} messages of {}; give both sides the same -n and sizes",
            link.session.peer(),
            self.wanted.messages
        ))
    }

    /// The server's part of a latency test.
    fn answer(&mut self, end: &mut End<'_>, link: &mut Link) -> Result<(), Failure> {
        let send = self.wanted.operation == Operation::Send;
        if self.wanted.operation == Operation::Read {
            talk::sleep_until_spoken_to(link, end.side.device)?;
            writeln!(
                self.run.out,
                "{}: the peer has read",
                self.title(self.wanted.largest())
            )?;
            return self.step(link);
        }
        for &size in &self.wanted.sizes {
            let mut player = Player::prepare(end, link.role, &self.test(size))?;
            if send {
                self.step(link)?;
            }
            for done in 0..self.wanted.messages {
                if !send {
                    player.round(end, link)?;
                } else if !player.answer(end, link)? {
                    return Err(self.early(link, done));
                }
            }
            settle(end, link)?;
            let title = self.title(size);
            writeln!(self.run.out, "{title}: {} answered", self.wanted.messages)?;
            self.run.out.flush()?;
        }
        if send { self.step(link) } else { Ok(()) }
    }

    fn bandwidth(&mut self, end: &mut End<'_>, link: &mut Link) -> Result<Table, Failure> {
        let mut table = self.table(Rows::Bandwidth(Vec::new()))?;
        let mut rows = Vec::new();
        let send = self.wanted.operation == Operation::Send;
        for &size in &self.wanted.sizes {
            let mut progress = Progress::start(self.title(size));
            let plan = self.wanted.plan(self.run.options, size);
            let mut flows = self.flows(end, &plan, size)?;
            if send {
                self.step(link)?;
            }
            drive(&mut flows, end, link, &plan, &mut progress)?;
            drop(progress);
            if send && self.wanted.sizes.len() > 1 {
                self.step(link)?;
            }
            let row = flows.row(0);
            report::print_bandwidth(&mut self.run.out, &row, self.run.options.report_gbits)?;
            self.run.out.flush()?;
            rows.push(row);
        }
        if !send {
            self.step(link)?;
            let last = rows.last().map(of_row).unwrap_or_default();
            talk::exchange_reports(link, &last)?;
        }
        self.step(link)?;
        table.rows = Rows::Bandwidth(rows);
        Ok(table)
    }

    /// Each queue pair carries as many messages as any other.
    fn flows(&self, end: &End<'_>, plan: &Plan, size: u64) -> Result<Flows, Failure> {
        let mut flows = Flows::prepare(&end.side, &end.side, &end.places(), plan, size)?;
        for flow in &mut flows.flows {
            flow.limit = self.wanted.messages;
        }
        Ok(flows)
    }

    /// The server's part of a bandwidth test; what the peer reports.
    fn serve(&mut self, end: &mut End<'_>, link: &mut Link) -> Result<Option<Table>, Failure> {
        if self.wanted.operation == Operation::Send {
            return self.receive(end, link).map(|()| None);
        }
        let mut table = self.table(Rows::Bandwidth(Vec::new()))?;
        talk::sleep_until_spoken_to(link, end.side.device)?;
        self.step(link)?;
        let told = talk::exchange_reports(link, &BandwidthReport::default())?;
        let row = as_row(&told);
        report::print_bandwidth(&mut self.run.out, &row, self.run.options.report_gbits)?;
        self.step(link)?;
        table.rows = Rows::Bandwidth(vec![row]);
        Ok(Some(table))
    }

    /// The server's part of a bandwidth test of sends.
    fn receive(&mut self, end: &mut End<'_>, link: &mut Link) -> Result<(), Failure> {
        for &size in &self.wanted.sizes {
            let plan = self.wanted.plan(self.run.options, size);
            let Amount::Messages(awaited) = plan.amount else {
                return Err(Failure::operation(anyhow!("perftest counts messages")));
            };
            let mut flows = self.flows(end, &plan, size)?;
            flows.post_receives(&mut end.side, plan.receive_depth)?;
            self.step(link)?;
            let received = receive_all(&mut flows, end, link, &plan, awaited)?;
            let title = self.title(size);
            writeln!(self.run.out, "{title}: {received} received")?;
            self.run.out.flush()?;
            if self.wanted.sizes.len() > 1 {
                self.step(link)?;
            }
        }
        self.step(link)
    }
}

/// Receives so many messages of one size.
fn receive_all(
    flows: &mut Flows,
    end: &mut End<'_>,
    link: &mut Link,
    plan: &Plan,
    awaited: u64,
) -> Result<u64, Failure> {
    let mut watch = Watch::new();
    let (mut received, mut spoken) = (0, false);
    while received < awaited {
        let taken = flows.take_receives(&mut end.side)?;
        received += taken;
        if taken > 0 {
            flows.post_receives(&mut end.side, plan.receive_depth)?;
            watch.progress();
        } else if spoken {
            // What it sent before it spoke would have been taken by now.
            return Err(Failure::operation(anyhow!(
                "the peer {} was done after {received} messages of {awaited}; give both sides the same -n, -q and sizes",
                link.session.peer()
            )));
        } else {
            spoken = watch.idle_with(end.side.device, link)?.is_some();
        }
    }
    Ok(received)
}

/// Until the device has sent all that was posted.
fn settle(end: &mut End<'_>, link: &mut Link) -> Result<(), Failure> {
    let mut watch = Watch::new();
    let posted = |end: &End<'_>| {
        let queue_pairs = end.side.queue_pairs.iter();
        queue_pairs
            .map(|queue_pair| queue_pair.send_quanta_used())
            .sum::<u32>()
    };
    while posted(end) > 0 {
        if end.side.poll(|_| {})? == 0 {
            watch.idle_with(end.side.device, link)?;
        }
    }
    Ok(())
}

const MEBIBYTE: f64 = 1_048_576.0;

fn of_row(row: &BandwidthRow) -> BandwidthReport {
    BandwidthReport {
        bytes: row.bytes,
        iterations: row.iterations,
        peak: row.peak_bytes_per_second / MEBIBYTE,
        average: row.average_bytes_per_second / MEBIBYTE,
        rate: row.messages_per_second / 1e6,
    }
}

fn as_row(report: &BandwidthReport) -> BandwidthRow {
    BandwidthRow {
        bytes: report.bytes,
        iterations: report.iterations,
        peak_bytes_per_second: report.peak * MEBIBYTE,
        average_bytes_per_second: report.average * MEBIBYTE,
        messages_per_second: report.rate * 1e6,
        verified_messages: 0,
    }
}
