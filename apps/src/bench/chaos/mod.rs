//! `ringside bench --chaos`: injects faults under traffic, and measures the time until traffic
//! flows again.
//!
//! Each event: both directions verified, traffic in both directions, the fault, every outstanding
//! request completed exactly once, the device recovered, queue pairs made and connected again, both
//! directions verified.

mod fault;
mod report;
mod round;
mod traffic;

use super::bed::Bed;
use super::run::{judge, output, write_json};
use crate::cli::Bench;
use crate::failure::{Failure, both};
use crate::interrupt;
use crate::open::Cores;
use crate::release;
use crate::trouble::Kind;
use anyhow::anyhow;
use fault::Raiser;
use report::{ChaosReport, Row};
use ringside_bus::pinning::pin_to;
use ringside_bus::{DeviceAddress, Function};
use ringside_config::Config;
use ringside_pmd::{BringUpOptions, Device};
use round::Round;
use std::io::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Deadlines that a chaos run has at most: a stall is noticed when one has passed.
const DEADLINE_MS: u64 = 500;

pub(crate) fn run(
    options: &Bench,
    address: &DeviceAddress,
    config: &Config,
) -> Result<(), Failure> {
    super::plan::check(options).map_err(Failure::usage)?;
    let mut config = config.clone();
    let deadlines = &mut config.deadlines;
    deadlines.admin_queue_ms = deadlines.admin_queue_ms.min(DEADLINE_MS);
    deadlines.control_queue_ms = deadlines.control_queue_ms.min(DEADLINE_MS);
    let cores = Cores::choose(&options.cores, &config);
    interrupt::catch()?;
    let bed = Bed::find(options, address, &config, cores)?;
    let raiser = Raiser::choose(options, &bed)?;
    if let Some(core) = cores.driver {
        pin_to(core).map_err(Failure::usage)?;
    }
    let mut out = output(options);
    let driven = bed.driven(false);
    writeln!(
        out,
        "{driven}\nCommands have to be answered within {} ms (admin queue) and {} ms (control queue).\n",
        config.deadlines.admin_queue_ms, config.deadlines.control_queue_ms
    )?;
    let [client, server] = &bed.functions;
    let mut client = bring_up(client, &config)?;
    let server = bring_up(server, &config)?;
    let mut rows = Vec::new();
    let ended = events(
        options,
        &raiser,
        (&mut client, &server),
        &mut rows,
        &mut out,
    );
    let downs = [client.shutdown(), server.shutdown()];
    let ended = match ended {
        Ok(()) if interrupt::seen() => Err(Failure::interrupted()),
        ended => ended,
    };
    if rows.is_empty() && ended.is_err() {
        return ended;
    }
    let breaches = bed.breaches();
    let counted = breaches.as_ref().ok().and_then(Option::as_ref);
    let placement = bed.placement;
    let mut report = ChaosReport::new(driven, placement, &config, &rows, counted.map(Vec::len));
    report.ended_early = ended.as_ref().err().map(Failure::text);
    // After a failure too: the rounds until then were measured.
    let printed = report.print(&mut out).map_err(Failure::from);
    let told = both(printed, write_json(options, &report, &mut out));
    let judged = breaches.and_then(|found| judge(&found.unwrap_or_default(), &downs));
    let judged = match interrupt::seen() {
        true => both(judged, ended),
        false => both(ended, judged),
    };
    both(judged, told)
}

fn bring_up(function: &Arc<dyn Function>, config: &Config) -> Result<Device, Failure> {
    let device = Device::bring_up(Arc::clone(function), config, BringUpOptions::default())
        .map_err(|error| Failure::claim(anyhow!("{error}")))?;
    release::watch(&device)?;
    Ok(device)
}

/// Every event, in an order that follows from the seed. After a failure `rows` has those until
/// then.
fn events(
    options: &Bench,
    raiser: &Raiser<'_>,
    (client, server): (&mut Device, &Device),
    rows: &mut Vec<Row>,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let kinds = options.chaos_kinds();
    let limit = options.duration.map(Duration::from_secs);
    let rounds = match limit {
        Some(_) => u32::MAX,
        None => options.chaos_rounds.unwrap_or(3),
    };
    let began = Instant::now();
    let mut choice = Choice::new(options.chaos_seed.unwrap_or(1));
    for number in 1..=rounds {
        for kind in choice.shuffled(&kinds) {
            if interrupt::seen() {
                return Ok(());
            }
            if number > 1 && limit.is_some_and(|limit| began.elapsed() > limit) {
                return Ok(());
            }
            let lead = Duration::from_micros(choice.below(10_000));
            let round = Round { kind, lead, raiser };
            let row = round
                .run(client, server, out)
                .map_err(|error| error.and(&format!("round {number}, {}", kind.name())))?;
            rows.push(row);
            writeln!(out, "{number:>4} {row}")?;
            out.flush()?;
        }
        if limit.is_some_and(|limit| began.elapsed() > limit) {
            break;
        }
    }
    Ok(())
}

/// Choices that follow from a seed. Source: S. Vigna, xorshift64*.
struct Choice(u64);

impl Choice {
    fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 32) % bound.max(1)
    }

    fn shuffled(&mut self, kinds: &[Kind]) -> Vec<Kind> {
        let mut kinds = kinds.to_vec();
        for last in (1..kinds.len()).rev() {
            let other = self.below(last as u64 + 1) as usize;
            kinds.swap(last, other);
        }
        kinds
    }
}
