//! The measurements of perftest's programs, from either side.

use super::mismatch::{Arrived, check_repeated, check_report, mismatch, other_length};
use super::talk::{self, Common, Step};
use super::units;
use super::wanted::Wanted;
use crate::bench::bandwidth::Run as Flows;
use crate::bench::distributions::title;
use crate::bench::latencies::Latencies;
use crate::bench::meeting::agreement;
use crate::bench::meeting::bandwidth::drive;
use crate::bench::meeting::end::{End, Link, Role, Watch};
use crate::bench::meeting::latency::Player;
use crate::bench::plan::{Amount, Plan};
use crate::bench::progress::Progress;
use crate::bench::report::{self, Rows, Table};
use crate::bench::run::Run;
use crate::cli::{Measure, Operation};
use crate::failure::Failure;
use crate::interrupt;
use anyhow::anyhow;
use ringside_bus::clock::ticks;
use ringside_rendezvous::perftest::BandwidthReport;
use std::io::Write;

/// A connected test.
pub(super) struct Test<'a, 'o> {
    pub(super) run: &'a mut Run<'o>,
    pub(super) wanted: &'a Wanted,
    pub(super) common: &'a Common,
    pub(super) keys: &'a Step,
    /// counters of the device from before the peer could send anything
    pub(super) before: Arrived,
    /// when the last answer was sent, ticks
    pub(super) last: u64,
}

impl Test<'_, '_> {
    /// Measures, or lets the peer measure, each size.
    pub(super) fn play(&mut self, end: &mut End<'_>, link: &mut Link) -> Result<(), Failure> {
        match (self.wanted.measure, link.role) {
            (Measure::Lat, Role::Client) => self.latency(end, link),
            (Measure::Bw, Role::Client) => self.bandwidth(end, link),
            (Measure::Lat, Role::Server) => self.answer(end, link),
            (Measure::Bw, Role::Server) => self.serve(end, link),
        }
    }

    /// Begins the table that this side shows.
    fn table(&mut self) -> Result<(), Failure> {
        let plan = self.wanted.plan(self.run.options, self.wanted.largest());
        let table = Table::empty(&plan, self.common.mtu);
        report::print_head(&mut self.run.out, &table, self.run.options.report_gbits)?;
        self.run.report.tables.push(table);
        Ok(())
    }

    /// Synchronises as perftest does.
    fn step(&self, link: &mut Link) -> Result<(), Failure> {
        let told = talk::hand_shake(link, &self.keys.ours)?;
        check_repeated(&told, &self.keys.theirs, self.wanted)
    }

    /// Synchronises after the last message of a test; `check` finds a peer that is not done.
    fn last_step(
        &self,
        link: &mut Link,
        check: impl FnMut() -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let told = talk::last_hand_shake(link, &self.keys.ours, check)?;
        check_repeated(&told, &self.keys.theirs, self.wanted)
    }

    fn title(&self, size: u64) -> String {
        title(self.wanted.operation, self.wanted.measure, size)
    }

    /// The test of one size, in the form of the meeting's parts.
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
            by_manager: false,
        }
    }

    fn latency(&mut self, end: &mut End<'_>, link: &mut Link) -> Result<(), Failure> {
        self.table()?;
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
            let mut times = Latencies::new()?;
            let mut done = 0;
            while done < self.wanted.messages {
                if done.is_multiple_of(256) {
                    if interrupt::seen() {
                        break;
                    }
                    progress.at(done as f64 / self.wanted.messages as f64);
                }
                match self.time(&mut player, end, link, done)? {
                    Some(span) => times.record(link.clock.nanoseconds(span) / trips),
                    None => times.skip(),
                }
                done += 1;
            }
            settle(end, link)?;
            drop(progress);
            if !times.is_empty() {
                let row = report::latency_row(size, &times, 0);
                report::print_latency(&mut self.run.out, &row)?;
                self.run.out.flush()?;
                self.run.report.push(Rows::Latency(vec![row]));
                self.run.distributions.push((self.title(size), times));
            }
            not_interrupted()?;
        }
        if self.wanted.operation != Operation::Write {
            self.step(link)?;
        }
        Ok(())
    }

    /// One message and its answer; ticks, if the message is [`timed`].
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
            let span = player.round(end, link)?;
            self.check_length(player, player.size())?;
            return Ok(timed(self.wanted.operation, done).then_some(span));
        }
        if !player.answer(end, link)? {
            return Err(self.early(link, done));
        }
        let now = ticks();
        let span = now.wrapping_sub(std::mem::replace(&mut self.last, now));
        Ok(timed(self.wanted.operation, done).then_some(span))
    }

    /// The peer spoke when it was to send.
    fn early(&self, link: &Link, done: u64) -> Failure {
        let found = format!(
            "the peer {} was done after {done} messages of {}",
            link.session.peer(),
            self.wanted.messages
        );
        mismatch(self.wanted, &found)
    }

    /// A message that arrived is as long as this side awaits.
    fn check_length(&self, player: &Player, size: u64) -> Result<(), Failure> {
        match player.received() {
            Some(bytes) if u64::from(bytes) != size => Err(other_length(bytes, size, self.wanted)),
            _ => Ok(()),
        }
    }

    /// The server's part of a latency test.
    fn answer(&mut self, end: &mut End<'_>, link: &mut Link) -> Result<(), Failure> {
        let send = self.wanted.operation == Operation::Send;
        if self.wanted.operation == Operation::Read {
            talk::sleep_until_spoken_to(link, end.side.device, self.wanted)?;
            let arrived = self.before.since(end.side.device)?;
            arrived.check_server(self.wanted)?;
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
                } else {
                    self.check_length(&player, size)?;
                }
            }
            settle(end, link)?;
            let title = self.title(size);
            writeln!(self.run.out, "{title}: {} answered", self.wanted.messages)?;
            self.run.out.flush()?;
        }
        if send { self.step(link) } else { Ok(()) }
    }

    fn bandwidth(&mut self, end: &mut End<'_>, link: &mut Link) -> Result<(), Failure> {
        self.table()?;
        let send = self.wanted.operation == Operation::Send;
        let mut last = BandwidthReport::default();
        let mut used = None;
        for &size in &self.wanted.sizes {
            let mut progress = Progress::start(self.title(size));
            let plan = self.wanted.plan(self.run.options, size);
            drop(used.take());
            let flows = used.insert(self.flows(end, &plan, size)?);
            if send {
                self.step(link)?;
            }
            drive(flows, end, link, &plan, &mut progress)?;
            drop(progress);
            let row = flows.row(0);
            last = units::of_row(&row, self.run.options.report_gbits);
            report::print_bandwidth(&mut self.run.out, &row, self.run.options.report_gbits)?;
            self.run.out.flush()?;
            self.run.report.push(Rows::Bandwidth(vec![row]));
            not_interrupted()?;
            if send && self.wanted.sizes.len() > 1 {
                self.step(link)?;
            }
        }
        if !send {
            self.step(link)?;
            talk::exchange_reports(link, &last)?;
        }
        if let Some(flows) = &mut used {
            // The device counts a message only if there is a receive for it.
            flows.post_receives(&mut end.side, 1)?;
        }
        // A peer with -b may begin its own requests only now, and does not answer until they end.
        self.last_step(link, || {
            let arrived = self.before.since(end.side.device)?;
            arrived.check_client(self.wanted)
        })
    }

    /// Each queue pair carries as many messages as any other.
    fn flows(&self, end: &End<'_>, plan: &Plan, size: u64) -> Result<Flows, Failure> {
        let mut flows = Flows::prepare(&end.side, &end.side, &end.places(), plan, size)?;
        for flow in &mut flows.flows {
            flow.limit = self.wanted.messages;
        }
        Ok(flows)
    }

    /// The server's part of a bandwidth test; returns the peer's report.
    fn serve(&mut self, end: &mut End<'_>, link: &mut Link) -> Result<(), Failure> {
        if self.wanted.operation == Operation::Send {
            return self.receive(end, link);
        }
        self.table()?;
        talk::sleep_until_spoken_to(link, end.side.device, self.wanted)?;
        let arrived = self.before.since(end.side.device)?;
        arrived.check_server(self.wanted)?;
        self.step(link)?;
        let told = talk::exchange_reports(link, &BandwidthReport::default())?;
        check_report(&told, self.wanted)?;
        let row = units::as_row(&told);
        report::print_bandwidth(&mut self.run.out, &row, self.run.options.report_gbits)?;
        self.run.report.push(Rows::Bandwidth(vec![row]));
        self.step(link)
    }

    /// The server's part of a bandwidth test of sends.
    fn receive(&mut self, end: &mut End<'_>, link: &mut Link) -> Result<(), Failure> {
        for &size in &self.wanted.sizes {
            let plan = self.wanted.plan(self.run.options, size);
            let Amount::Messages(expected) = plan.amount else {
                return Err(Failure::operation(anyhow!("perftest counts messages")));
            };
            let mut flows = self.flows(end, &plan, size)?;
            flows.post_receives(&mut end.side, plan.receive_depth)?;
            self.step(link)?;
            let received = self.receive_all(&mut flows, end, link, expected)?;
            let title = self.title(size);
            writeln!(self.run.out, "{title}: {received} received")?;
            self.run.out.flush()?;
            if self.wanted.sizes.len() > 1 {
                self.step(link)?;
            }
        }
        self.last_step(link, || Ok(()))
    }

    /// Receives so many messages of one size.
    fn receive_all(
        &self,
        flows: &mut Flows,
        end: &mut End<'_>,
        link: &mut Link,
        expected: u64,
    ) -> Result<u64, Failure> {
        let depth = self.run.options.receive_depth();
        let mut watch = Watch::new();
        let (mut received, mut spoken) = (0, false);
        while received < expected {
            let taken = flows.take_receives(&mut end.side)?;
            if let Some(bytes) = flows.other_length() {
                return Err(other_length(bytes, flows.size(), self.wanted));
            }
            received += taken;
            if taken > 0 {
                flows.post_receives(&mut end.side, depth)?;
                watch.progress();
            } else if spoken {
                // Messages that the peer sent before this word would have been taken by now.
                let peer = link.session.peer();
                let found =
                    format!("the peer {peer} was done after {received} of {expected} messages");
                return Err(mismatch(self.wanted, &found));
            } else {
                spoken = watch.idle_with(end.side.device, link)?.is_some();
            }
        }
        Ok(received)
    }
}

/// True if the time of a message counts, `done` messages after the first.
///
/// The first write has no answer before it to count from. The first send waits until perftest's
/// server has measured the speed of its clock, 0.2 to 1 s: it does so after the last record.
/// Source: perftest `perftest_resources.c`, `run_iter_lat_write` and `run_iter_lat_send`
/// (`get_cpu_mhz`).
fn timed(operation: Operation, done: u64) -> bool {
    done > 0 || operation == Operation::Read
}

/// A signal ends the test: the peer learns it by the end of the connection.
fn not_interrupted() -> Result<(), Failure> {
    match interrupt::seen() {
        true => Err(Failure::interrupted()),
        false => Ok(()),
    }
}

/// Waits until the device has sent all posted requests.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_message_is_timed_if_the_peer_is_ready_for_it() {
        for (operation, first) in [
            (Operation::Write, false),
            (Operation::Read, true),
            (Operation::Send, false),
        ] {
            assert_eq!(timed(operation, 0), first, "{operation:?}");
            assert!(timed(operation, 1), "{operation:?}");
        }
    }
}
