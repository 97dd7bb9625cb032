//! wakes FIRST SECOND [COUNT]: measures the time from an interrupt of SECOND until a sleeping
//! worker runs, and its CPU time meanwhile.
//!
//! FIRST and SECOND are PCI addresses, or vfio-user:PATH, or both `model`: two functions of a model
//! in this process. COUNT messages (1000) of 8 bytes are sent from one to the other, each once the
//! worker sleeps. The time is that from the sender's doorbell to the poll that finds the message,
//! so it includes the device's own share. For comparison it measures the same with the sender's own
//! polling thread, and between two threads with only an event descriptor.
//!
//! Exit status 0: no wake-up was lost, and the idle worker used less than 2 % of a core.

use ringside_bus::Function;
use ringside_config::{Config, HugePages, Polling, WorkerSection};
use ringside_model::{Threaded, WorldSettings};
use ringside_pmd::rdma::{Completion, CompletionQueue, Connected, Flags, MemoryRegion, QueuePair};
use ringside_pmd::worker::{Policy, Polled, Worker};
use ringside_pmd::{BringUpOptions, Device};
use ringside_testkit::claim;
use ringside_tests::receiver::{End, OnInterrupt, Receiver};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd};
use rustix::time::{ClockId, clock_gettime};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Longest wait for any step.
const LIMIT: Duration = Duration::from_secs(60);

/// A message that was not found after this time counts as a lost wake-up.
const LOST: Duration = Duration::from_secs(5);

/// The time that the worker is left idle.
const IDLE: Duration = Duration::from_secs(5);

/// The share of a core that an idle worker may use.
const IDLE_PERCENT: f64 = 2.0;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

fn bring_up(function: Arc<dyn Function>, config: &Config) -> Result<Device> {
    let device = Device::bring_up(function, config, BringUpOptions::default());
    Ok(device.map_err(|error| error.to_string())?)
}

fn section(polling: Polling, sleep_ms: u64) -> WorkerSection {
    WorkerSection {
        polling,
        sleep_ms,
        ..WorkerSection::default()
    }
}

fn start(receiver: Receiver, section: &WorkerSection) -> Result<Worker<Receiver>> {
    let policy = Policy::of(section, OnInterrupt);
    Ok(Worker::start_with(
        policy,
        None,
        16,
        move || receiver,
        Receiver::poll,
    )?)
}

/// Waits until `done`, at most `limit`; false if it never was.
fn wait(limit: Duration, mut done: impl FnMut() -> bool) -> bool {
    let begin = Instant::now();
    while !done() {
        if begin.elapsed() > limit {
            return false;
        }
        std::thread::sleep(Duration::from_micros(200));
    }
    true
}

/// The end that sends.
struct Sender {
    queue_pair: QueuePair<Connected>,
    completions: CompletionQueue,
    region: MemoryRegion,
    sent: u64,
}

impl Sender {
    /// Sends one message; when its doorbell was rung.
    fn send(&mut self) -> Result<Instant> {
        let piece = [self.region.slice(0..8)?];
        self.queue_pair.send(self.sent, &piece, Flags::SIGNALLED)?;
        self.sent += 1;
        let rung = Instant::now();
        self.queue_pair.ring();
        let mut batch = [Completion::EMPTY; 4];
        let completions = &mut self.completions;
        if wait(LIMIT, || !completions.poll(&mut batch).is_empty()) {
            Ok(rung)
        } else {
            Err("a send did not complete".into())
        }
    }
}

/// Sorted spans, for quantiles.
struct Spans(Vec<Duration>);

impl Spans {
    fn new(mut spans: Vec<Duration>) -> Self {
        spans.sort_unstable();
        Self(spans)
    }

    fn at(&self, quantile: f64) -> f64 {
        let last = self.0.len().saturating_sub(1);
        let index = (last as f64 * quantile).round() as usize;
        self.0
            .get(index)
            .map_or(f64::NAN, |span| span.as_secs_f64() * 1e6)
    }

    fn print(&self, what: &str) {
        println!(
            "{what}: median {:.1} us, 99% {:.1} us, longest {:.1} us",
            self.at(0.5),
            self.at(0.99),
            self.at(1.0)
        );
    }
}

/// From a write to an event descriptor until the thread that sleeps on it runs.
fn bare_wakes(count: usize) -> Result<Spans> {
    let event = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
    let awake = Arc::new(AtomicUsize::new(0));
    let (theirs, seen) = (Arc::clone(&event), Arc::clone(&awake));
    let sleeper = std::thread::spawn(move || {
        let mut times = Vec::with_capacity(count);
        let limit = Timespec {
            tv_sec: 5,
            tv_nsec: 0,
        };
        while times.len() < count {
            let mut waited = [PollFd::new(&theirs, PollFlags::IN)];
            if rustix::event::poll(&mut waited, Some(&limit)) != Ok(1) {
                break;
            }
            times.push(Instant::now());
            let _ = rustix::io::read(&theirs, &mut [0; 8]);
            seen.store(times.len(), Ordering::Release);
        }
        times
    });
    let mut written = Vec::with_capacity(count);
    for index in 0..count {
        std::thread::sleep(Duration::from_micros(300));
        written.push(Instant::now());
        rustix::io::write(&event, &1_u64.to_ne_bytes())?;
        wait(LOST, || awake.load(Ordering::Acquire) > index);
    }
    let times = sleeper.join().map_err(|_| "the sleeper panicked")?;
    let spans = times.iter().zip(&written).map(|(at, from)| *at - *from);
    Ok(Spans::new(spans.collect()))
}

/// The same without any worker: the sender polls for its own message.
fn to_poller(receiver: &mut Receiver, sender: &mut Sender, count: usize) -> Result<Spans> {
    let mut spans = Vec::with_capacity(count);
    for _ in 0..count {
        std::thread::sleep(Duration::from_micros(300));
        let piece = [sender.region.slice(0..8)?];
        sender
            .queue_pair
            .send(sender.sent, &piece, Flags::SIGNALLED)?;
        sender.sent += 1;
        let rung = Instant::now();
        sender.queue_pair.ring();
        while receiver.poll() == Polled::Idle {
            if rung.elapsed() > LIMIT {
                return Err("a message did not come".into());
            }
        }
        spans.push(rung.elapsed());
        let mut batch = [Completion::EMPTY; 4];
        let completions = &mut sender.completions;
        wait(LIMIT, || !completions.poll(&mut batch).is_empty());
    }
    receiver.received.clear();
    Ok(Spans::new(spans))
}

/// Sends `count` messages one by one; each once the worker sleeps.
fn to_sleeper(
    worker: &Worker<Receiver>,
    sender: &mut Sender,
    count: usize,
) -> Result<(Spans, u64)> {
    let look = |state: &mut Receiver| (Arc::clone(&state.count), state.received.len());
    let (seen, before) = worker.ask(look, LIMIT)?;
    let mut rung = Vec::with_capacity(count);
    let mut lost = 0;
    let mut slept = worker.statistics().sleeps;
    for index in 1..=count {
        wait(LOST, || worker.statistics().sleeps > slept);
        // The time between the counter and the system call that sleeps.
        std::thread::sleep(Duration::from_micros(300));
        slept = worker.statistics().sleeps;
        rung.push(sender.send()?);
        let come = || seen.load(Ordering::Acquire) >= before + index;
        if !wait(LOST, come) {
            lost += 1;
            // a request ends its sleep
            worker.ask(|_| (), LIMIT)?;
        }
    }
    let at = worker.ask(move |state| state.received.split_off(before), LIMIT)?;
    let spans = at.iter().zip(&rung).map(|((_, at), from)| *at - *from);
    Ok((Spans::new(spans.collect()), lost))
}

fn used(clock: ClockId) -> Duration {
    let time = clock_gettime(clock);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Interrupts that the kernel has counted for VFIO's event descriptors, all vectors together.
fn counted_by_the_kernel() -> u64 {
    let text = std::fs::read_to_string("/proc/interrupts").unwrap_or_default();
    let lines = text.lines().filter(|line| line.contains("vfio-msix"));
    let numbers = lines.flat_map(|line| line.split_whitespace().skip(1));
    numbers.filter_map(|word| word.parse::<u64>().ok()).sum()
}

/// The share of a core that an idle worker uses, in percent; it sleeps as long as the defaults let
/// it.
fn idle(worker: &Worker<Receiver>) -> Result<f64> {
    let before = (
        worker.ask(|_| used(ClockId::ThreadCPUTime), LIMIT)?,
        used(ClockId::ProcessCPUTime),
        worker.statistics().sleeps,
    );
    std::thread::sleep(IDLE);
    let process = used(ClockId::ProcessCPUTime) - before.1;
    let sleeps = worker.statistics().sleeps - before.2;
    let thread = worker.ask(|_| used(ClockId::ThreadCPUTime), LIMIT)? - before.0;
    let percent = |span: Duration| span.as_secs_f64() * 100.0 / IDLE.as_secs_f64();
    println!(
        "idle for {IDLE:?}: the worker used {:.3} % of a core, its process {:.3} %, in {sleeps} sleeps",
        percent(thread),
        percent(process)
    );
    Ok(percent(thread))
}

fn measure(left: &Device, right: &Arc<Device>, count: usize) -> Result<()> {
    bare_wakes(count)?.print("an event descriptor alone");
    let (here, there) = (End::on(left)?, End::on(right)?);
    let (to_left, to_right) = (here.queue_pair.endpoint(), there.queue_pair.endpoint());
    let connect = |queue_pair: QueuePair, to| {
        let connected = queue_pair.connect(to);
        connected.map_err(|failed| failed.error)
    };
    let mut sender = Sender {
        queue_pair: connect(here.queue_pair, &to_right)?,
        completions: here.completions,
        region: here.region,
        sent: 0,
    };
    let peer = connect(there.queue_pair, &to_left)?;
    let mut receiver = Receiver::new(Arc::clone(right), there.completions, peer, there.region)?;

    to_poller(&mut receiver, &mut sender, count)?.print("a message, polled for");
    // So long that only the interrupt can end it.
    let worker = start(receiver, &section(Polling::BusyThenSleep, 60_000))?;
    let (slept, lost) = to_sleeper(&worker, &mut sender, count)?;
    slept.print("a message, to a worker that sleeps");
    let (interrupted, early) = worker.ask(|state| (state.interrupted, state.early), LIMIT)?;
    println!(
        "{count} messages, {} sleeps, {interrupted} ended by the interrupt, {early} messages found while arming, {lost} wakes lost",
        worker.statistics().sleeps
    );
    println!(
        "interrupts that the kernel counted for vfio-msix: {}",
        counted_by_the_kernel()
    );
    let receiver = worker.stop(LIMIT)?;

    let worker = start(receiver, &section(Polling::BusyThenSleep, 100))?;
    let percent = idle(&worker)?;
    drop(worker.stop(LIMIT)?);
    drop((sender, here.domain, there.domain));
    if lost > 0 || percent >= IDLE_PERCENT {
        return Err(format!("{lost} wakes were lost; idle took {percent:.2} % of a core").into());
    }
    Ok(())
}

fn main() -> Result<()> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let (first, second, count) = match arguments.as_slice() {
        [first, second] => (first, second, 1000),
        [first, second, count] => (first, second, count.parse()?),
        _ => return Err("usage: wakes FIRST SECOND [COUNT]".into()),
    };
    let mut config = Config::default();
    let model = match first.as_str() {
        "model" => {
            config.memory.hugepages = HugePages::None;
            Some(Threaded::start(&WorldSettings::with_functions(2), None)?)
        }
        _ => None,
    };
    let open = |text: &str, index| match &model {
        Some(model) => model
            .function(index)
            .ok_or_else(|| "no such function".into()),
        None => claim(&text.parse()?),
    };
    let left = bring_up(open(first, 0)?, &config)?;
    let right = Arc::new(bring_up(open(second, 1)?, &config)?);
    measure(&left, &right, count)?;
    let right = Arc::into_inner(right).ok_or("another owner still has the device")?;
    for device in [left, right] {
        if let Some(failure) = device.shutdown().failures.first() {
            return Err(failure.to_string().into());
        }
    }
    Ok(())
}
