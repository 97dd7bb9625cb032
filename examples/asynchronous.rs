//! Completions and events as streams of an asynchronous program: tasks of tokio that wait for the
//! descriptors of the device. No thread polls; the program sleeps until the device interrupts it.
//!
//! Run: `cargo run -p ringside-nic --example asynchronous -- [FIRST SECOND]`
//!
//! FIRST and SECOND are addresses of devices on one network, such as `0000:3b:00.0` or
//! `vfio-user:/run/e810.sock`; default `model:0` and `model:1`.

use ringside::Events;
use ringside::bus::Readable;
use ringside::driver::rdma::{Interrupts, Notify};
use ringside::prelude::*;
use std::collections::VecDeque;
use std::time::Duration;

type Error = Box<dyn std::error::Error>;

const MESSAGES: u64 = 200;
const BYTES: usize = 64;
const LIMIT: Duration = Duration::from_secs(20);

/// Completions of one queue, one after another.
struct Completions<'d> {
    device: &'d Device,
    queue: CompletionQueue,
    interrupts: Interrupts,
    readable: Readable,
    ready: VecDeque<Completion>,
    /// times that the program slept
    slept: u64,
}

impl<'d> Completions<'d> {
    fn new(device: &'d Device, entries: u32) -> Result<Self, Error> {
        let interrupts = device.interrupts()?;
        Ok(Self {
            device,
            queue: device.completion_queue(entries)?,
            readable: Readable::new(&interrupts)?,
            interrupts,
            ready: VecDeque::new(),
            slept: 0,
        })
    }

    fn poll(&mut self) -> bool {
        let mut batch = [Completion::EMPTY; 16];
        self.ready.extend(self.queue.poll(&mut batch));
        !self.ready.is_empty()
    }

    /// The next completion. Cancelling it loses nothing.
    async fn next(&mut self) -> Result<Completion, Error> {
        loop {
            if let Some(done) = self.ready.pop_front() {
                return Ok(done);
            }
            if self.poll() {
                continue;
            }
            self.queue.arm(Notify::Next);
            // What came before the queue was armed may give no event.
            if self.poll() {
                continue;
            }
            self.readable.take(|| self.interrupts.take()).await??;
            self.slept += 1;
            self.device.poll_completion_events(&mut Vec::new())?;
        }
    }
}

/// Events of a device, one after another.
struct EventStream {
    events: Events,
    readable: Readable,
    ready: VecDeque<Event>,
}

impl EventStream {
    fn new(device: &Device) -> Result<Self, Error> {
        let events = device
            .events()
            .ok_or("the device has no housekeeping thread")?;
        Ok(Self {
            readable: Readable::new(&events)?,
            events,
            ready: VecDeque::new(),
        })
    }

    /// The next event; `None` once the device was shut down. Cancelling it loses nothing.
    async fn next(&mut self) -> Result<Option<Event>, Error> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Ok(Some(event));
            }
            // Looked at before the last events are taken: none comes after it.
            let is_over = self.events.is_over();
            let mut events = Vec::new();
            self.readable.take(|| self.events.take(&mut events)).await?;
            self.ready.extend(events);
            if is_over && self.ready.is_empty() {
                return Ok(None);
            }
        }
    }
}

/// Sends one message after another, each when the one before has completed.
async fn send(
    completions: &mut Completions<'_>,
    mut queue_pair: QueuePair<Connected>,
) -> Result<(), Error> {
    for number in 0..MESSAGES {
        queue_pair.send_inline(number, &number.to_le_bytes(), None, Flags::SIGNALLED)?;
        queue_pair.ring();
        let done = completions.next().await?;
        if !done.is_success() || done.id != number {
            return Err(format!("message {number}: request {}, {}", done.id, done.status()).into());
        }
        tokio::task::yield_now().await;
    }
    Ok(())
}

/// Takes the messages in order.
async fn receive(
    completions: &mut Completions<'_>,
    mut queue_pair: QueuePair<Connected>,
    region: &MemoryRegion,
) -> Result<(), Error> {
    for number in 0..MESSAGES {
        let done = completions.next().await?;
        if !done.is_success() {
            return Err(format!("receive {}: {}", done.id, done.status()).into());
        }
        let at = done.id as usize * BYTES;
        let mut bytes = [0; 8];
        assert!(region.read(at, &mut bytes), "the slot is in the region");
        if u64::from_le_bytes(bytes) != number {
            return Err(format!("{bytes:?} arrived for message {number}").into());
        }
        queue_pair.receive(done.id, &[region.slice(at..at + BYTES)?])?;
    }
    Ok(())
}

async fn run() -> Result<(), Error> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let address = |index: usize, default| arguments.get(index).map_or(default, String::as_str);
    let config = Config::default();
    let left = ringside::open(address(0, "model:0"), &config)?;
    let right = ringside::open(address(1, "model:1"), &config)?;
    let mut sent = Completions::new(&left, 64)?;
    let mut received = Completions::new(&right, 64)?;
    let mut events = EventStream::new(&left)?;

    let (near, far) = (left.protection_domain()?, right.protection_domain()?);
    let region = far.register(right.allocate(32 * BYTES)?, Access::LOCAL_WRITE)?;
    let one = near.queue_pair(QueuePairConfig::reliable(&sent.queue))?;
    let two = far.queue_pair(QueuePairConfig::reliable(&received.queue))?;
    let (here, there) = (one.endpoint(), two.endpoint());
    let (one, mut two) = (one.connect(&there)?, two.connect(&here)?);
    for slot in 0..32 {
        two.receive(
            slot as u64,
            &[region.slice(slot * BYTES..(slot + 1) * BYTES)?],
        )?;
    }

    // An address that is added while the device is in service is an event.
    let gid = left.add_address("10.77.0.1/24".parse()?)?;
    let event = events.next().await?.ok_or("no event before the end")?;
    println!("event: {event:?}, for index {}", gid.index);

    tokio::try_join!(send(&mut sent, one), receive(&mut received, two, &region))?;
    println!(
        "{MESSAGES} messages; the sender slept {} times, the receiver {} times",
        sent.slept, received.slept
    );
    if sent.slept + received.slept == 0 {
        return Err("nothing was waited for by interrupt".into());
    }

    // The end of the device ends the stream: a task of its own would return here.
    drop((sent, received));
    let _ = left.shutdown();
    while let Some(event) = events.next().await? {
        println!("event: {event:?}");
    }
    println!("no more events: the device was shut down");
    Ok(())
}

fn main() -> Result<(), Error> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        match tokio::time::timeout(LIMIT, run()).await {
            Ok(result) => result,
            Err(_) => Err("not done within 20 s".into()),
        }
    })
}
