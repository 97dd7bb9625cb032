//! The figures of `benches/scaling`: costs by number of queue pairs, and costs of making objects.
//!
//! `operations COUNT RUN ROUNDS [AHEAD]` posts and polls over COUNT queue pairs in bursts of 32,
//! RUN requests of each in turn, and prints nanoseconds per operation. With AHEAD it prefetches the
//! queue pair that is due that many turns later. `objects` makes queue pairs and regions on the
//! model and prints the time of each.

use ringside_benches::connected::{Result, connect, devices, placement, shut_down};
use ringside_benches::many::Many;
use ringside_benches::{CHAIN, RigError};
use ringside_bus::clock::ticks;
use ringside_bus::pinning::pin_to;
use ringside_bus::{PageSize, TscClock};
use ringside_config::Config;
use ringside_model::{Threaded, WorldSettings};
use ringside_pmd::Device;
use ringside_pmd::rdma::{Access, Completion, Flags, ProtectionDomain, QueuePairConfig};
use ringside_testkit::bring_up_all;
use std::time::{Duration, Instant};

/// Queue pairs made and timed.
const QUEUE_PAIRS: usize = 1000;

/// The region that is registered, in bytes.
const REGION: usize = 1 << 30;

/// The number of registrations.
const REGISTRATIONS: usize = 20;

#[inline(never)]
fn measured_posts(many: &mut Many) -> usize {
    (0..CHAIN as u64).map(|id| usize::from(many.post(id))).sum()
}

#[inline(never)]
fn measured_polls(many: &mut Many) -> usize {
    many.poll()
}

/// Returns nanoseconds per operation: the median of a hundred parts of the run.
fn operations(
    count: usize,
    run: usize,
    rounds: usize,
    ahead: usize,
) -> std::result::Result<f64, RigError> {
    const PARTS: usize = 100;
    let mut many = Many::new(count, run, ahead)?;
    let clock = TscClock::new();
    let bursts = rounds.div_ceil(CHAIN * PARTS);
    let mut parts = Vec::with_capacity(PARTS);
    // The first pass over all queue pairs accesses everything for the first time.
    for _ in 0..(count * run).div_ceil(CHAIN) {
        let posted = measured_posts(&mut many);
        many.complete(posted);
        measured_polls(&mut many);
    }
    for _ in 0..PARTS {
        let mut passed = 0;
        for _ in 0..bursts {
            let began = ticks();
            let posted = measured_posts(&mut many);
            let between = ticks();
            many.complete(posted);
            let again = ticks();
            let polled = measured_polls(&mut many);
            passed += between.wrapping_sub(began) + ticks().wrapping_sub(again);
            if (posted, polled) != (CHAIN, CHAIN) {
                let text = format!("{posted} posted and {polled} polled of {CHAIN}");
                return Err(RigError::from(text));
            }
        }
        parts.push(clock.nanoseconds(passed) as f64 / (bursts * CHAIN) as f64);
    }
    parts.sort_by(f64::total_cmp);
    Ok(parts.get(PARTS / 2).copied().unwrap_or(f64::NAN))
}

fn print(name: &str, mut spans: Vec<Duration>) {
    spans.sort_unstable();
    let at = |index: usize| spans.get(index).map_or(f64::NAN, Duration::as_secs_f64) * 1e6;
    println!(
        "{name} {:.1} {:.1}",
        at(spans.len() / 2),
        at(spans.len() * 99 / 100)
    );
}

fn timed<T>(spans: &mut Vec<Duration>, made: impl FnOnce() -> T) -> T {
    let began = Instant::now();
    let made = made();
    spans.push(began.elapsed());
    made
}

/// Starts a model on the second core with this thread on the first, if there are two.
fn start_model(functions: u16) -> Result<Threaded> {
    let settings = WorldSettings::with_functions(functions);
    if std::thread::available_parallelism()?.get() < 2 {
        return Ok(Threaded::start(&settings, None)?);
    }
    eprintln!("{}", placement()?);
    let model = Threaded::start(&settings, Some(1))?;
    // After the model's thread has started: a thread inherits the cores of its creator.
    pin_to(0)?;
    Ok(model)
}

/// Prints median and 99th percentile in microseconds, a line for each kind of object.
fn objects() -> Result<()> {
    let model = start_model(1)?;
    let mut config = Config::default();
    config.rdma.queue_pairs = 2 * QUEUE_PAIRS as u32;
    let [device] = bring_up_all(|index| model.function(index), &config);
    let domain = device.protection_domain()?;
    let completions = device.completion_queue(4096)?;
    let wanted = QueuePairConfig::reliable(&completions)
        .send_requests(64)
        .receive_requests(64);
    let (mut made, mut ended) = (Vec::new(), Vec::new());
    let mut queue_pairs = Vec::with_capacity(QUEUE_PAIRS);
    for _ in 0..QUEUE_PAIRS {
        queue_pairs.push(timed(&mut made, || domain.queue_pair(wanted.clone()))?);
    }
    for queue_pair in queue_pairs {
        timed(&mut ended, || drop(queue_pair));
    }
    print("queue-pair-created", made);
    print("queue-pair-destroyed", ended);
    let (mut registered, mut ended) = (Vec::new(), Vec::new());
    let mut buffer = device.allocate(REGION)?;
    for _ in 0..REGISTRATIONS {
        let region = timed(&mut registered, || domain.register(buffer, Access::ALL))
            .map_err(|failed| failed.error)?;
        let mut buffers =
            timed(&mut ended, || region.deregister()).map_err(|failed| failed.to_string())?;
        buffer = buffers
            .pop()
            .ok_or("the region's memory was not returned")?;
    }
    print("contiguous-region-registered", registered);
    print("contiguous-region-deregistered", ended);
    drop(buffer);
    pages(&device, &domain)?;
    drop((completions, domain));
    match device.shutdown().failures.first() {
        Some(failure) => Err(failure.to_string().into()),
        None => Ok(()),
    }
}

/// Prints the same for a region of single pages out of order, so that the device needs a page list.
fn pages(device: &Device, domain: &ProtectionDomain) -> Result<()> {
    const PAGE: usize = 2 << 20;
    let made = (0..REGION / PAGE).map(|_| device.allocate_aligned(PAGE, PageSize::TwoMiB));
    let mut buffers = made.collect::<std::result::Result<Vec<_>, _>>()?;
    // Adjacent pages would form one piece.
    buffers.sort_by_key(|buffer| (buffer.iova().0 / PAGE as u64 % 2, buffer.iova().0));
    let size = buffers
        .first()
        .map_or(0, |buffer| buffer.page_size().bytes());
    println!("region-pages {size}");
    let (mut registered, mut ended) = (Vec::new(), Vec::new());
    for _ in 0..REGISTRATIONS {
        let region = timed(&mut registered, || {
            domain.register_all(buffers, Access::ALL)
        })
        .map_err(|failed| failed.error)?;
        buffers = timed(&mut ended, || region.deregister()).map_err(|failed| failed.to_string())?;
    }
    print("region-registered", registered);
    print("region-deregistered", ended);
    Ok(())
}

/// Returns nanoseconds per 8-byte write from function to function of the model, over `count` queue
/// pairs in turn, up to 128 in flight: the median of twenty parts of the run.
fn through_model(count: usize, in_flight: usize, rounds: usize) -> Result<f64> {
    const PARTS: usize = 20;
    let model = start_model(2)?;
    let devices = devices(|index| model.function(index), count);
    let [mut near, far] = connect(&devices, count, 4096)?;
    let piece = [near.region.slice(0..8)?];
    let remote = far.region.remote().at(0);
    let mut batch = [Completion::EMPTY; CHAIN];
    let (mut next, mut parts) = (0, Vec::with_capacity(PARTS));
    // One part more, and at least one pass over all queue pairs: the first part is not counted.
    for part in 0..=PARTS {
        let messages = if part == 0 { count } else { 0 }.max(rounds / PARTS);
        let (mut posted, mut done) = (0, 0);
        let began = Instant::now();
        while done < messages {
            while posted < messages && posted - done < in_flight {
                let queue_pair = near.queue_pairs.get_mut(next).ok_or("no queue pair")?;
                queue_pair.write(posted as u64, &piece, remote, Flags::SIGNALLED)?;
                queue_pair.ring();
                next = (next + 1) % count;
                posted += 1;
            }
            let taken = near.completions.poll(&mut batch);
            if !taken.iter().all(Completion::is_success) {
                return Err("a write failed".into());
            }
            done += taken.len();
            if began.elapsed() > Duration::from_secs(120) {
                return Err("the model has stopped".into());
            }
        }
        if part > 0 {
            parts.push(began.elapsed().as_secs_f64() * 1e9 / messages as f64);
        }
    }
    drop((near, far));
    shut_down(devices)?;
    parts.sort_by(f64::total_cmp);
    Ok(parts.get(PARTS / 2).copied().unwrap_or(f64::NAN))
}

fn main() -> Result<()> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let words: Vec<_> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["operations", count, run, rounds, ahead @ ..] => {
            let ahead = ahead.first().map_or(Ok(0), |text| text.parse())?;
            let (count, run, rounds) = (count.parse()?, run.parse()?, rounds.parse()?);
            println!("{:.2}", operations(count, run, rounds, ahead)?);
            Ok(())
        }
        ["through-model", count, rounds, in_flight @ ..] => {
            let in_flight = in_flight.first().map_or(Ok(4), |text| text.parse())?;
            let (count, rounds) = (count.parse()?, rounds.parse()?);
            println!("{:.2}", through_model(count, in_flight, rounds)?);
            Ok(())
        }
        ["objects"] => objects(),
        _ => Err("usage: scaling operations COUNT RUN ROUNDS [AHEAD] | scaling through-model COUNT ROUNDS [IN_FLIGHT] | scaling objects".into()),
    }
}
