//! A function whose registers take long to be read.

use ringside_bus::{Around, Function, FunctionError, Iova};
use ringside_model::Stepped;
use ringside_pmd::Device;
use ringside_sim::Interference;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The step from which on a register takes long.
pub(crate) const STEP: u32 = 5;

/// The time of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lasts {
    /// A minute, once.
    AMinute,
    /// The driver's thread never comes back.
    Forever,
}

/// See the module.
pub(crate) struct Sluggish {
    lasts: Lasts,
    world: Option<Stepped>,
    due: Arc<AtomicBool>,
}

impl Sluggish {
    pub(crate) fn new(lasts: Lasts) -> Self {
        Self {
            lasts,
            world: None,
            due: Arc::default(),
        }
    }
}

impl Interference for Sluggish {
    fn begin(&mut self, world: &Stepped) {
        self.world = Some(world.clone());
    }

    fn function(&mut self, _index: u16, function: Arc<dyn Function>) -> Arc<dyn Function> {
        Arc::new(Slow {
            inner: function,
            lasts: self.lasts,
            world: self.world.clone().expect("a world"),
            due: Arc::clone(&self.due),
        })
    }

    fn between(&mut self, step: u32, _: &Stepped, _: [&Device; 2], _: [Iova; 2]) {
        if step == STEP {
            self.due.store(true, Ordering::Relaxed);
        }
    }
}

struct Slow {
    inner: Arc<dyn Function>,
    lasts: Lasts,
    world: Stepped,
    due: Arc<AtomicBool>,
}

impl Around for Slow {
    fn inner(&self) -> &Arc<dyn Function> {
        &self.inner
    }

    fn read32(&self, bar: u8, offset: u64) -> Result<u32, FunctionError> {
        if self.due.swap(false, Ordering::Relaxed) {
            match self.lasts {
                Lasts::AMinute => self.world.jump(Duration::from_secs(60)),
                Lasts::Forever => loop {
                    self.inner.clock().pause(Duration::from_millis(1));
                },
            }
        }
        self.inner.read32(bar, offset)
    }
}
