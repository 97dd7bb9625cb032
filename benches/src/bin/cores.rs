//! Several cores: completion events that wake workers.
//!
//! `events [MESSAGES]`: for 1 to 8 workers, each asleep on the vector of its own completion event
//! queue, prints the events that each queue raised and the times that each worker was woken. Every
//! worker gets MESSAGES messages, one at a time. Nothing is timed; the program fails if an event
//! queue raised an event without a message for its worker.

use ringside_benches::connected::Result;
use ringside_pmd::Device;
use ringside_pmd::rdma::{
    Access, Completion, CompletionQueue, Connected, Flags, Interrupts, MemoryRegion, Notify,
    ProtectionDomain, QueuePair, QueuePairConfig,
};
use ringside_pmd::worker::{Policy, Polled, Sleeper, Worker};
use ringside_testkit::{bring_up_all, config, threaded};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Most workers of a run.
const WORKERS: u16 = 8;

/// The longest wait for a message, and the longest sleep of a worker.
const LIMIT: Duration = Duration::from_secs(60);

/// Bytes of a message.
const BYTES: usize = 8;

/// The receiving worker of one event queue.
struct Lane {
    device: Arc<Device>,
    completions: CompletionQueue,
    interrupts: Interrupts,
    queue_pair: QueuePair<Connected>,
    region: MemoryRegion,
    received: Arc<AtomicU64>,
    woken: Arc<AtomicU64>,
}

impl Lane {
    fn post(&mut self) -> Result<()> {
        let piece = [self.region.slice(0..BYTES)?];
        Ok(self.queue_pair.receive(0, &piece)?)
    }

    fn poll(&mut self) -> Polled {
        let mut place = Completion::EMPTY;
        if !self.completions.poll_one(&mut place) {
            return Polled::Idle;
        }
        // A failed post shows as a message that never comes.
        let _ = self.post();
        self.received.fetch_add(1, Ordering::Release);
        Polled::Worked
    }
}

/// Sleeps on the vector of the lane's event queue.
struct OnItsVector;

impl Sleeper<Lane> for OnItsVector {
    fn arm(&mut self, lane: &mut Lane) -> bool {
        lane.completions.arm(Notify::Next);
        lane.poll() == Polled::Idle
    }

    fn interrupt<'s>(&self, lane: &'s Lane) -> Option<BorrowedFd<'s>> {
        Some(lane.interrupts.as_fd())
    }

    fn woken(&mut self, lane: &mut Lane, interrupted: bool) {
        if interrupted {
            lane.woken.fetch_add(1, Ordering::Relaxed);
            // The device failed if this is refused: the messages do not come then.
            let _ = lane.interrupts.take();
        }
        let own = lane.completions.event_queue();
        let _ = lane.device.poll_completion_events_of(own, &mut Vec::new());
    }
}

/// The sending end of a lane, with the counters of its worker.
struct Sender {
    queue_pair: QueuePair<Connected>,
    completions: CompletionQueue,
    region: MemoryRegion,
    received: Arc<AtomicU64>,
    woken: Arc<AtomicU64>,
}

fn lane(
    left: &Device,
    right: &Arc<Device>,
    domains: &[ProtectionDomain; 2],
    event_queue: u16,
) -> Result<(Sender, Lane)> {
    let [near, far] = domains;
    let near_queue = left.completion_queue(64)?;
    let far_queue = right.completion_queue_on(64, event_queue)?;
    // Retries without limit: a worker may get no core for a while.
    let config = |queue| QueuePairConfig::reliable(queue).receiver_not_ready_retries(7);
    let a = near.queue_pair(config(&near_queue))?;
    let b = far.queue_pair(config(&far_queue))?;
    let (to_a, to_b) = (a.endpoint(), b.endpoint());
    let (received, woken) = (Arc::default(), Arc::default());
    let mut lane = Lane {
        device: Arc::clone(right),
        interrupts: right.interrupts_of(event_queue)?,
        completions: far_queue,
        queue_pair: b.connect(&to_a)?,
        region: far.register(right.allocate(4096)?, Access::ALL)?,
        received: Arc::clone(&received),
        woken: Arc::clone(&woken),
    };
    for _ in 0..4 {
        lane.post()?;
    }
    let sender = Sender {
        queue_pair: a.connect(&to_b)?,
        completions: near_queue,
        region: near.register(left.allocate(4096)?, Access::ALL)?,
        received,
        woken,
    };
    Ok((sender, lane))
}

impl Sender {
    /// Sends one message and waits until the worker has it.
    fn send(&mut self) -> Result<()> {
        let wanted = self.received.load(Ordering::Acquire) + 1;
        let piece = [self.region.slice(0..BYTES)?];
        self.queue_pair.send(0, &piece, Flags::SIGNALLED)?;
        self.queue_pair.ring();
        let begin = Instant::now();
        let mut place = Completion::EMPTY;
        let mut is_sent = false;
        while !is_sent || self.received.load(Ordering::Acquire) < wanted {
            is_sent |= self.completions.poll_one(&mut place);
            if begin.elapsed() > LIMIT || (is_sent && !place.is_success()) {
                return Err("a message did not arrive".into());
            }
            std::thread::yield_now();
        }
        Ok(())
    }
}

/// Runs with this many workers and prints a line.
fn events(workers: u16, messages: u64) -> Result<()> {
    let model = threaded();
    let mut config = config();
    config.rdma.event_queues = WORKERS;
    let [left, right] = bring_up_all(|index| model.function(index), &config);
    let right = Arc::new(right);
    let domains = [left.protection_domain()?, right.protection_domain()?];
    let (mut senders, mut threads) = (Vec::new(), Vec::new());
    for number in 0..workers {
        let (sender, lane) = lane(&left, &right, &domains, number)?;
        let policy = Policy::BusyThenSleep {
            idle: Duration::ZERO,
            longest: LIMIT,
            sleeper: Box::new(OnItsVector),
        };
        senders.push(sender);
        threads.push(Worker::start_with(
            policy,
            None,
            4,
            move || lane,
            Lane::poll,
        )?);
    }
    for _ in 0..messages {
        senders.iter_mut().try_for_each(Sender::send)?;
    }
    for worker in threads {
        worker.stop(LIMIT).map_err(|error| error.to_string())?;
    }
    let queues = right.event_queues()?;
    let counts: Vec<String> = queues.iter().map(|one| one.events.to_string()).collect();
    let woken: Vec<String> = senders
        .iter()
        .map(|sender| sender.woken.load(Ordering::Relaxed).to_string())
        .collect();
    println!(
        "{workers} events {} woken {}",
        counts.join(" "),
        woken.join(" ")
    );
    let wrong = queues.iter().any(|queue| match queue.number < workers {
        true => queue.events == 0 || queue.events > messages + 1,
        false => queue.events > 0,
    });
    drop((senders, domains));
    let right = Arc::into_inner(right).ok_or("a worker holds the device")?;
    for device in [left, right] {
        if let Some(failure) = device.shutdown().failures.first() {
            return Err(failure.to_string().into());
        }
    }
    model.stop();
    match wrong {
        true => Err("an event queue raised too many events, too few, or another's".into()),
        false => Ok(()),
    }
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["events"] => (1..=WORKERS).try_for_each(|workers| events(workers, 100)),
        ["events", messages] => {
            let messages = messages.parse()?;
            (1..=WORKERS).try_for_each(|workers| events(workers, messages))
        }
        _ => Err("usage: cores events [MESSAGES]".into()),
    }
}
