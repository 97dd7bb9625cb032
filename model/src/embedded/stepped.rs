//! The model in the caller's thread and in virtual time.

use super::function::{Bell, Carrier, CarrierError, DOORBELL_PAGE_BYTES, EmbeddedFunction};
use crate::device::{Reply, Request};
use crate::world::{World, WorldSettings};
use ringside_bus::{Clock, DeviceAddress, Function, Instant, Memory, MemoryError, PageSize};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The most steps of the world in one wait, so that a model that never becomes idle ends in the
/// caller's deadline and not in an endless loop.
const STEPS_PER_PAUSE: usize = 10_000;

/// Virtual nanoseconds that a pause passes at least: a caller that only spins still meets its
/// deadline.
const SMALLEST_STEP: Duration = Duration::from_nanos(100);

/// The payload with which [`Stepped::end_at`] unwinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeOver;

struct Inside {
    world: World,
    now: Instant,
    /// see [`Stepped::end_at`]
    end: Option<Instant>,
    is_over: bool,
}

/// See the module. Cloning shares the world.
#[derive(Clone)]
pub struct Stepped(Arc<Shared>);

struct Shared {
    inside: Mutex<Inside>,
    /// Doorbell pages of the functions, where they are mapped.
    doorbell_pages: Vec<Memory>,
}

impl Stepped {
    /// A world at time zero. Every doorbell is a message.
    #[must_use]
    pub fn new(settings: &WorldSettings) -> Self {
        Self::of(World::new(settings), Vec::new())
    }

    /// The same with doorbells that a driver maps, as with [`super::Threaded`]: plain stores to a
    /// page that the world reads in each step. Of two doorbells between two steps it sees the
    /// latter.
    ///
    /// # Errors
    /// There is no memory for the pages.
    pub fn with_mapped_doorbells(settings: &WorldSettings) -> Result<Self, MemoryError> {
        let mut world = World::new(settings);
        let page = |_| Memory::allocate(DOORBELL_PAGE_BYTES as usize, PageSize::FourKiB, None);
        let pages = (0..world.function_count()).map(page);
        let pages = pages.collect::<Result<Vec<_>, _>>()?;
        for (index, page) in pages.iter().enumerate() {
            world.share_doorbell_page(index, page.clone());
        }
        Ok(Self::of(world, pages))
    }

    fn of(world: World, doorbell_pages: Vec<Memory>) -> Self {
        let now = Instant(0);
        Self(Arc::new(Shared {
            inside: Mutex::new(Inside {
                world,
                now,
                end: None,
                is_over: false,
            }),
            doorbell_pages,
        }))
    }

    /// True if a driver maps its doorbells.
    #[must_use]
    pub fn has_mapped_doorbells(&self) -> bool {
        !self.0.doorbell_pages.is_empty()
    }

    /// Function `index`, as a driver claims it; `None` if there is none.
    #[must_use]
    pub fn function(&self, index: u16) -> Option<Arc<dyn Function>> {
        let count = self.0.inside().world.function_count();
        (usize::from(index) < count).then(|| {
            Arc::new(EmbeddedFunction {
                address: DeviceAddress::Model(index),
                index: usize::from(index),
                clock: self.clock(),
                carrier: Arc::clone(&self.0),
            }) as Arc<dyn Function>
        })
    }

    /// The clock that passes time in this world.
    #[must_use]
    pub fn clock(&self) -> Arc<dyn Clock> {
        Arc::clone(&self.0) as Arc<dyn Clock>
    }

    /// Lets the clock jump ahead, as that of a machine does which was suspended: all at once, with
    /// nothing happening in between.
    pub fn jump(&self, by: Duration) {
        let mut inside = self.0.inside();
        inside.now = inside.now.plus(by);
    }

    /// Ends the caller once its clock is beyond `end`: the next pause unwinds with [`TimeOver`], as
    /// a panic without a message. So a test is told of a call that would never return. From then on
    /// the functions are gone, so that no destructor waits for them. `None` ends that; returns the
    /// end that was set before.
    pub fn end_at(&self, end: Option<Instant>) -> Option<Instant> {
        std::mem::replace(&mut self.0.inside().end, end)
    }

    /// Looks at, or changes, the world between steps.
    pub fn with<T>(&self, look: impl FnOnce(&mut World) -> T) -> T {
        look(&mut self.0.inside().world)
    }
}

impl Shared {
    fn inside(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Clock for Shared {
    fn now(&self) -> Instant {
        self.inside().now
    }

    fn pause(&self, at_most: Duration) {
        let mut inside = self.inside();
        let now = inside.now;
        let steps = (0..STEPS_PER_PAUSE)
            .take_while(|_| inside.world.step(now))
            .count();
        // Time passes when there was nothing to do, and then no further than the next timer.
        let passes = match inside.world.next_timer() {
            _ if steps > 0 => SMALLEST_STEP,
            Some(timer) => timer
                .since(now)
                .clamp(SMALLEST_STEP, at_most.max(SMALLEST_STEP)),
            None => at_most.max(SMALLEST_STEP),
        };
        inside.now = now.plus(passes);
        if inside.end.is_some_and(|end| inside.now > end) && !std::thread::panicking() {
            (inside.end, inside.is_over) = (None, true);
            drop(inside);
            std::panic::resume_unwind(Box::new(TimeOver));
        }
    }
}

impl Carrier for Shared {
    fn ask(&self, function: usize, request: Request) -> Result<Reply, CarrierError> {
        let mut inside = self.inside();
        if inside.is_over {
            return Err(CarrierError::Gone("its time was over".into()));
        }
        let now = inside.now;
        inside.world.step(now);
        Ok(inside.world.handle(function, request))
    }

    fn ring(&self, function: usize, bell: Bell, value: u32) {
        // The deadline of the thread that waits for the device's answer detects a removed device.
        let _ = self.ask(function, bell.write(value));
    }

    fn doorbell_page(&self, function: usize) -> Option<&Memory> {
        self.doorbell_pages.get(function)
    }
}
