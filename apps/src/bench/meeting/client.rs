//! The side that connects: it decides, measures and shows.

use super::agreement::{ANSWER_BYTES, Request, Task, Test, decode_answer, text};
use super::end::{End, Link};
use super::neighbours::Neighbours;
use super::session::{driven, finish, meet, part, plan_of, title};
use super::{bandwidth, latency, verify};
use crate::bench::plan::{Amount, Plan, plans};
use crate::bench::progress::Progress;
use crate::bench::report::{self, Rows, Table, VerifiedRow};
use crate::bench::run::Run;
use crate::bench::verify::verified_messages;
use crate::cli::{Bench, Measure, Operation};
use crate::failure::Failure;
use crate::interrupt;
use anyhow::anyhow;
use ringside_bus::DeviceAddress;
use ringside_pmd::Device;
use ringside_rendezvous::{SessionError, Step};
use std::io::Write;
use std::time::{Duration, Instant};

/// Sizes of a verification, unless named: odd ones among them.
const VERIFIED_SIZES: [u64; 6] = [1, 8, 100, 4096, 65_537, 1 << 20];

/// Between two looks for a signal.
const LOOK: Duration = Duration::from_millis(50);

pub(super) fn run(run: &mut Run<'_>, address: &DeviceAddress) -> Result<(), Failure> {
    let plans = plans(run.options).map_err(Failure::usage)?;
    let (served, mut link) = meet(run, address)?;
    // From here on there is something to lose.
    interrupt::catch()?;
    run.report.driven = driven(run, address, &link);
    run.report.devices = vec![
        address.to_string(),
        format!("peer at {}", link.session.peer()),
    ];
    writeln!(run.out, "\n{}\n", run.report.driven)?;
    let mut work = Work {
        run: &mut *run,
        device: &served.device,
        neighbours: &served.neighbours,
        unconnected: Some(Instant::now()),
    };
    let done = if work.run.options.verify_only {
        work.verify(&mut link)
    } else {
        work.measure(&mut link, &plans)
    };
    let done = done.and_then(|()| ask(&mut link, Request::End));
    match done {
        Ok(()) => finish(run, served, Some(link), Ok(())),
        Err(failure) => finish(run, served, None, Err(part(link, failure))),
    }
}

/// Requests a test, or the end; an error has the peer's reason for a refusal.
fn ask(link: &mut Link, request: Request) -> Result<(), Failure> {
    link.session.send(&request.encode(), link.limit)?;
    await_answer(link)?;
    let mut head = [0; ANSWER_BYTES];
    link.session.receive(&mut head, link.limit)?;
    let (agreed, length) = decode_answer(&head)?;
    let mut reason = vec![0; length];
    link.session.receive(&mut reason, link.limit)?;
    if agreed {
        return Ok(());
    }
    Err(Failure::usage(anyhow!(
        "the peer {} refuses: {}",
        link.session.peer(),
        text(&reason)
    )))
}

/// Waits until an answer begins. A signal ends the wait, once a peer that is alive has had the time
/// to answer.
fn await_answer(link: &mut Link) -> Result<(), Failure> {
    let began = Instant::now();
    let mut signals = interrupt::Waiting::default();
    while link.session.peek(LOOK)?.is_none() {
        signals.check()?;
        if began.elapsed() > link.limit {
            let (peer, limit) = (link.session.peer(), link.limit);
            return Err(SessionError::Silent { peer, limit }.into());
        }
    }
    Ok(())
}

fn test_of(plan: &Plan, task: Task, measure: Option<Measure>, size: u64, options: &Bench) -> Test {
    Test {
        task,
        measure,
        mtu: options.mtu(),
        size,
        amount: plan.amount,
        queue_pairs: plan.queue_pairs,
        rounds: verified_messages(size, plan.queue_pairs) as u32,
        send_depth: plan.send_depth,
        receive_depth: plan.receive_depth,
        inline: plan.inline,
        by_manager: options.manager,
    }
}

/// Tests of a verification only, in order.
fn verifications(options: &Bench) -> Vec<Test> {
    let sizes = match (options.all, options.size) {
        (true, _) => (1..=23).map(|power| 1 << power).collect(),
        (false, Some(size)) => vec![size],
        (false, None) => VERIFIED_SIZES.to_vec(),
    };
    let wanted = |operation: Operation| options.operation.is_none_or(|one| one == operation);
    let mut tests = Vec::new();
    for task in Task::ALL
        .into_iter()
        .filter(|task| wanted(task.operation()))
    {
        tests.extend(sizes.iter().map(|&size| Test {
            task,
            measure: None,
            mtu: options.mtu(),
            size,
            amount: Amount::Time(Duration::ZERO),
            queue_pairs: options.queue_pairs(),
            rounds: verified_messages(size, options.queue_pairs()) as u32,
            send_depth: options.send_depth(),
            receive_depth: options.receive_depth(),
            inline: options.inline.unwrap_or(0),
            by_manager: options.manager,
        }));
    }
    tests
}

struct Work<'a, 'o, 'd> {
    run: &'a mut Run<'o>,
    device: &'d Device,
    neighbours: &'d Neighbours,
    /// when the work began, until queue pairs are connected
    unconnected: Option<Instant>,
}

impl<'d> Work<'_, '_, 'd> {
    /// Agrees on a test and connects for it; then messages are transferred and compared.
    fn begin(&mut self, link: &mut Link, test: &Test) -> Result<(End<'d>, Plan, u64), Failure> {
        ask(link, Request::Test(*test))?;
        let plan = plan_of(test);
        let mut end = End::connect((self.device, self.neighbours), &plan, test, link)?;
        if let Some(began) = self.unconnected.take() {
            self.run.report.ready_after(began.elapsed());
        }
        let verified = verify::verify(&mut end, link, test)?;
        Ok((end, plan, verified))
    }

    fn measure(&mut self, link: &mut Link, plans: &[Plan]) -> Result<(), Failure> {
        for plan in plans {
            let table = Table::empty(plan, self.run.options.mtu());
            report::print_head(&mut self.run.out, &table, self.run.options.report_gbits)?;
            self.run.report.tables.push(table);
            for &size in &plan.sizes {
                let task = Task::from(plan.operation);
                let test = test_of(plan, task, Some(plan.measure), size, self.run.options);
                self.row(link, &test, plan.measure)?;
                self.run.out.flush()?;
                if interrupt::seen() {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    fn row(&mut self, link: &mut Link, test: &Test, measure: Measure) -> Result<(), Failure> {
        let mut progress = Progress::start(title(test));
        let (mut end, plan, verified) = self.begin(link, test)?;
        let out = &mut self.run.out;
        match measure {
            Measure::Lat => {
                let times = latency::measure(&mut end, link, test, &mut progress)?;
                drop(progress);
                if !times.is_empty() {
                    let row = report::latency_row(test.size, &times, verified);
                    report::print_latency(out, &row)?;
                    self.run.report.push(Rows::Latency(vec![row]));
                    self.run.distributions.push((title(test), times));
                }
            }
            Measure::Bw => {
                let row = bandwidth::measure(&mut end, link, test, &plan, &mut progress, verified)?;
                drop(progress);
                if row.iterations > 0 {
                    report::print_bandwidth(out, &row, self.run.options.report_gbits)?;
                    self.run.report.push(Rows::Bandwidth(vec![row]));
                }
            }
        }
        Ok(link.step(Step::Done)?)
    }

    /// Transfers and compares only.
    fn verify(&mut self, link: &mut Link) -> Result<(), Failure> {
        report::print_verified_head(&mut self.run.out)?;
        for test in verifications(self.run.options) {
            let progress = Progress::start(title(&test));
            let (end, _, messages) = self.begin(link, &test)?;
            link.step(Step::Done)?;
            drop((end, progress));
            let row = VerifiedRow {
                operation: test.task.title(),
                bytes: test.size,
                verified_messages: messages,
            };
            report::print_verified(&mut self.run.out, &row)?;
            self.run.out.flush()?;
            self.run.report.verified.push(row);
            if interrupt::seen() {
                break;
            }
        }
        Ok(())
    }
}
