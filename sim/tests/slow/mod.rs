//! A function whose registers take a minute to be read, once.

use ringside_bus::{Around, Function, FunctionError, Iova};
use ringside_model::Stepped;
use ringside_pmd::Device;
use ringside_sim::Interference;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// See the module.
#[derive(Default)]
pub(crate) struct Sluggish {
    world: Option<Stepped>,
    due: Arc<AtomicBool>,
}

impl Interference for Sluggish {
    fn begin(&mut self, world: &Stepped) {
        self.world = Some(world.clone());
    }

    fn function(&mut self, _index: u16, function: Arc<dyn Function>) -> Arc<dyn Function> {
        Arc::new(Slow {
            inner: function,
            world: self.world.clone().expect("a world"),
            due: Arc::clone(&self.due),
        })
    }

    fn between(&mut self, step: u32, _: &Stepped, _: [&Device; 2], _: [Iova; 2]) {
        if step == 5 {
            self.due.store(true, Ordering::Relaxed);
        }
    }
}

struct Slow {
    inner: Arc<dyn Function>,
    world: Stepped,
    due: Arc<AtomicBool>,
}

impl Around for Slow {
    fn inner(&self) -> &Arc<dyn Function> {
        &self.inner
    }

    fn read32(&self, bar: u8, offset: u64) -> Result<u32, FunctionError> {
        if self.due.swap(false, Ordering::Relaxed) {
            self.world.jump(Duration::from_secs(60));
        }
        self.inner.read32(bar, offset)
    }
}
