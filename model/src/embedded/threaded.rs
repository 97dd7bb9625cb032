//! The model on a thread of its own, in real time.

use super::function::{Bell, Carrier, CarrierError, DOORBELL_PAGE_BYTES, EmbeddedFunction};
use crate::device::{Reply, Request};
use crate::world::{World, WorldSettings};
use crossbeam_queue::ArrayQueue;
use ringside_bus::pinning::{PinError, pin_to};
use ringside_bus::process::Birth;
use ringside_bus::{Clock, DeviceAddress, Function, Memory, MemoryError, PageSize, TscClock};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::mpsc;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::{JoinHandle, Thread, available_parallelism};
use std::time::Duration;

/// The deadline of a request to the model's thread.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// Requests that may be under way at once.
const REQUESTS: usize = 256;

/// Rings that may wait: room is left for requests.
const RINGS: usize = REQUESTS / 2;

/// Looks for room for a ring until the thread that rings offers its core to others.
const LOOKS_BEFORE_YIELD: u32 = 2_000;

/// Rounds without work after which the thread pauses in each: a pause makes room for the core's
/// other thread, and delays what it waits for.
const IDLE_BEFORE_PAUSE: u32 = 4_000;

/// Rounds without work between two readings of the clock, which takes as long as a round does.
const CLOCK_EVERY: u32 = 8;

/// Rounds without work after which the thread offers its core to others each round.
const IDLE_BEFORE_YIELD: u32 = 20_000;

/// The same of a thread that has one core with all others of the process: what it waits for needs
/// that core.
const IDLE_BEFORE_YIELD_ON_ONE_CORE: u32 = 64;

/// The time without work after which the thread sleeps, so that an unused model does not use a
/// core.
const IDLE_BEFORE_SLEEP: Duration = Duration::from_millis(5);

/// The shortest sleep; see [`World::nap`]. A message ends a sleep, a doorbell in memory does not.
const SHORTEST_NAP: Duration = Duration::from_micros(50);

/// The reason why the model does not run.
#[derive(Debug, thiserror::Error)]
pub enum ThreadedError {
    /// Its core cannot be had.
    #[error("the model's thread: {0}")]
    Pin(#[from] PinError),
    /// No memory for doorbell pages.
    #[error("the model's doorbell pages: {0}")]
    Memory(#[from] MemoryError),
    /// No thread.
    #[error(
        "the model's thread could not be started: {0}; raise the limit of processes (ulimit -u)"
    )]
    Spawn(#[from] std::io::Error),
}

enum Message {
    Ask {
        function: usize,
        request: Request,
        answer: mpsc::SyncSender<Reply>,
    },
    Ring {
        function: usize,
        bell: Bell,
        value: u32,
    },
    Look(Box<dyn FnOnce(&mut World) + Send>),
}

struct Shared {
    messages: ArrayQueue<Message>,
    doorbell_pages: Vec<Memory>,
    stop: AtomicBool,
    alive: AtomicBool,
    /// The thread sleeps, or is about to: it looks for messages once more before it does.
    asleep: AtomicBool,
    /// The thread, once it runs.
    thread: OnceLock<Thread>,
}

/// The model on its own thread; see the module. Dropping it stops the thread; functions that still
/// exist then report that the device does not respond.
pub struct Threaded {
    shared: Arc<Shared>,
    clock: Arc<TscClock>,
    function_count: usize,
    thread: Mutex<Option<JoinHandle<()>>>,
    birth: Birth,
}

impl Threaded {
    /// Starts the thread, pinned to `core` if one is given.
    pub fn start(settings: &WorldSettings, core: Option<usize>) -> Result<Self, ThreadedError> {
        Self::start_with(settings, core, SHORTEST_NAP)
    }

    fn start_with(
        settings: &WorldSettings,
        core: Option<usize>,
        shortest_nap: Duration,
    ) -> Result<Self, ThreadedError> {
        let mut world = World::new(settings);
        let function_count = world.function_count();
        let allocate = |_| Memory::allocate(DOORBELL_PAGE_BYTES as usize, PageSize::FourKiB, None);
        let doorbell_pages: Vec<_> = (0..function_count)
            .map(allocate)
            .collect::<Result<_, _>>()?;
        for (index, page) in doorbell_pages.iter().enumerate() {
            world.share_doorbell_page(index, page.clone());
        }
        let shared = Arc::new(Shared {
            messages: ArrayQueue::new(REQUESTS),
            doorbell_pages,
            stop: AtomicBool::new(false),
            alive: AtomicBool::new(true),
            asleep: AtomicBool::new(false),
            thread: OnceLock::new(),
        });
        let clock = Arc::new(TscClock::new());
        let (report, pinned) = mpsc::sync_channel(1);
        let (inside, time) = (Arc::clone(&shared), Arc::clone(&clock));
        let thread = std::thread::Builder::new()
            .name("e810-model".into())
            .spawn(move || {
                let _ = inside.thread.set(std::thread::current());
                let outcome = core.map_or(Ok(()), pin_to);
                let go_on = outcome.is_ok();
                let _ = report.send(outcome);
                let _alive = Alive(Arc::clone(&inside));
                if go_on {
                    let before_yield = rounds_before_yield(core);
                    run(&mut world, &inside, &time, shortest_nap, before_yield);
                }
            })?;
        let outcome = pinned.recv().unwrap_or(Ok(()));
        let thread = Mutex::new(Some(thread));
        let started = Self {
            shared,
            clock,
            function_count,
            thread,
            birth: Birth::now(),
        };
        outcome?;
        Ok(started)
    }

    /// Function `index`, as a driver claims it; `None` if there is none.
    #[must_use]
    pub fn function(&self, index: u16) -> Option<Arc<dyn Function>> {
        (usize::from(index) < self.function_count).then(|| {
            Arc::new(EmbeddedFunction {
                address: DeviceAddress::Model(index),
                index: usize::from(index),
                clock: Arc::clone(&self.clock) as Arc<dyn Clock>,
                carrier: Arc::clone(&self.shared),
            }) as Arc<dyn Function>
        })
    }

    /// Runs `look` on the world between two rounds of its thread; `None` if the thread has ended,
    /// and in a child by fork, which has no such thread.
    pub fn with<T: Send + 'static>(
        &self,
        look: impl FnOnce(&mut World) -> T + Send + 'static,
    ) -> Option<T> {
        if !self.birth.is_here() {
            return None;
        }
        let (sender, receiver) = mpsc::sync_channel(1);
        let message = Message::Look(Box::new(move |world| {
            let _ = sender.send(look(world));
        }));
        self.shared.messages.push(message).ok()?;
        self.shared.wake();
        receiver.recv_timeout(ANSWER_WITHIN).ok()
    }

    /// Stops the thread and waits for it. Functions that still exist report that the device does
    /// not respond.
    pub fn stop(&self) {
        self.shared.stop.store(true, Ordering::Release);
        self.shared.wake();
        let thread = self
            .thread
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        let Some(thread) = thread else {
            return;
        };
        if !self.birth.is_here() {
            // In a child by fork: the thread stayed in the process that started it.
            std::mem::forget(thread);
        } else if thread.join().is_err() {
            tracing::error!("the model's thread panicked");
        }
    }
}

impl Drop for Threaded {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Marks the thread as ended, also after a panic.
struct Alive(Arc<Shared>);

impl Drop for Alive {
    fn drop(&mut self) {
        self.0.alive.store(false, Ordering::Release);
        while self.0.messages.pop().is_some() {}
    }
}

/// Rounds without work after which this thread, pinned to `core` or not, offers its core to others.
fn rounds_before_yield(core: Option<usize>) -> u32 {
    let has_one = core.is_none() && available_parallelism().is_ok_and(|cores| cores.get() == 1);
    match has_one {
        true => IDLE_BEFORE_YIELD_ON_ONE_CORE,
        false => IDLE_BEFORE_YIELD,
    }
}

fn run(
    world: &mut World,
    shared: &Shared,
    clock: &TscClock,
    shortest_nap: Duration,
    before_yield: u32,
) {
    let before_pause = IDLE_BEFORE_PAUSE.min(before_yield);
    let mut idle = 0u32;
    let mut now = clock.now();
    let mut idle_since = now;
    while !shared.stop.load(Ordering::Relaxed) {
        // Asked first, as taking from an empty queue is a fence.
        let mut worked = !shared.messages.is_empty() && answer_all(world, shared);
        if idle.is_multiple_of(CLOCK_EVERY) || idle > before_pause {
            now = clock.now();
        }
        worked |= world.step(now);
        idle = if worked { 0 } else { idle.saturating_add(1) };
        if idle <= before_pause {
            idle_since = now;
        } else if idle <= before_yield {
            std::hint::spin_loop();
        } else if now.since(idle_since) <= IDLE_BEFORE_SLEEP {
            std::thread::yield_now();
        } else {
            shared.sleep(world.nap(now, now.since(idle_since), shortest_nap));
        }
    }
}

/// Performs requests that wait, as many as have room at most: one that rings without end does not
/// stop the world. True if there was one.
#[cold]
fn answer_all(world: &mut World, shared: &Shared) -> bool {
    let mut worked = false;
    for _ in 0..shared.messages.capacity() {
        let Some(message) = shared.messages.pop() else {
            break;
        };
        worked = true;
        match message {
            Message::Ask {
                function,
                request,
                answer,
            } => {
                let _ = answer.send(world.handle(function, request));
            }
            Message::Ring {
                function,
                bell,
                value,
            } => drop(world.handle(function, bell.write(value))),
            // A panic in it is its sender's, who gets no answer: the model serves others too.
            Message::Look(look) => drop(catch_unwind(AssertUnwindSafe(|| look(world)))),
        }
    }
    worked
}

impl Shared {
    /// Lets the model's thread, which calls this, sleep until a message comes or the time is over.
    #[cold]
    fn sleep(&self, at_most: Duration) {
        self.asleep.store(true, Ordering::SeqCst);
        // Either this thread sees a message that was left before, or its sender sees `asleep`.
        fence(Ordering::SeqCst);
        if self.messages.is_empty() && !self.stop.load(Ordering::Relaxed) {
            std::thread::park_timeout(at_most);
        }
        self.asleep.store(false, Ordering::Relaxed);
    }

    /// Wakes the model's thread if it sleeps, after a message was left for it.
    fn wake(&self) {
        fence(Ordering::SeqCst);
        if self.asleep.load(Ordering::Relaxed)
            && let Some(thread) = self.thread.get()
        {
            thread.unpark();
        }
    }

    fn gone(&self) -> CarrierError {
        CarrierError::Gone("the model's thread has ended".into())
    }
}

impl Carrier for Shared {
    fn ask(&self, function: usize, request: Request) -> Result<Reply, CarrierError> {
        if !self.alive.load(Ordering::Acquire) {
            return Err(self.gone());
        }
        let (sender, receiver) = mpsc::sync_channel(1);
        let message = Message::Ask {
            function,
            request,
            answer: sender,
        };
        if self.messages.push(message).is_err() {
            return Err(CarrierError::Gone(format!(
                "{REQUESTS} requests are already waiting"
            )));
        }
        self.wake();
        // The thread answers within microseconds unless it is not scheduled: spin first.
        for _ in 0..2_000 {
            match receiver.try_recv() {
                Ok(reply) => return Ok(reply),
                Err(mpsc::TryRecvError::Disconnected) => return Err(self.gone()),
                Err(mpsc::TryRecvError::Empty) => std::hint::spin_loop(),
            }
        }
        receiver
            .recv_timeout(ANSWER_WITHIN)
            .map_err(|error| match error {
                mpsc::RecvTimeoutError::Timeout => {
                    CarrierError::TimedOut(ANSWER_WITHIN.as_millis() as u64)
                }
                mpsc::RecvTimeoutError::Disconnected => self.gone(),
            })
    }

    fn ring(&self, function: usize, bell: Bell, value: u32) {
        let mut message = Message::Ring {
            function,
            bell,
            value,
        };
        let mut looks = 0u32;
        let mut until = None;
        while self.alive.load(Ordering::Acquire) {
            if self.messages.len() < RINGS {
                match self.messages.push(message) {
                    Ok(()) => return self.wake(),
                    Err(back) => message = back,
                }
            }
            // The thread takes all that wait within microseconds, unless it is not scheduled.
            looks += 1;
            if looks < LOOKS_BEFORE_YIELD {
                std::hint::spin_loop();
                continue;
            }
            std::thread::yield_now();
            let now = std::time::Instant::now();
            if now > *until.get_or_insert(now + ANSWER_WITHIN) {
                return;
            }
        }
    }

    fn doorbell_page(&self, function: usize) -> Option<&Memory> {
        self.doorbell_pages.get(function)
    }
}

#[cfg(test)]
mod tests;
