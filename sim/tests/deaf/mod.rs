//! Devices that get no doorbell of a queue pair any more.

use ringside_bus::{Around, Doorbell, Function, FunctionError, Iova};
use ringside_model::Stepped;
use ringside_pmd::Device;
use ringside_sim::Interference;
use ringside_spec::rdma::registers::{DOORBELL_PAGE, DOORBELL_PAGE_SEND, WQE_ALLOCATE};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// From the first step on no doorbell of a send queue reaches a device.
#[derive(Default)]
pub(crate) struct Deaf(Arc<AtomicBool>);

impl Interference for Deaf {
    fn function(&mut self, _index: u16, function: Arc<dyn Function>) -> Arc<dyn Function> {
        Arc::new(Without {
            inner: function,
            deaf: Arc::clone(&self.0),
        })
    }

    fn between(&mut self, _step: u32, world: &Stepped, devices: [&Device; 2], _: [Iova; 2]) {
        // A device looks once more at a queue pair that was connected just now.
        if !self.0.load(Ordering::Relaxed) {
            for device in devices {
                device.query_port().expect("a port");
                world.clock().pause(Duration::from_millis(1));
            }
        }
        self.0.store(true, Ordering::Relaxed);
    }
}

struct Without {
    inner: Arc<dyn Function>,
    deaf: Arc<AtomicBool>,
}

impl Around for Without {
    fn inner(&self) -> &Arc<dyn Function> {
        &self.inner
    }

    fn doorbell(self: Arc<Self>, bar: u8, offset: u64) -> Result<Doorbell, FunctionError> {
        let doorbell = Arc::clone(&self.inner).doorbell(bar, offset)?;
        if ![WQE_ALLOCATE, DOORBELL_PAGE + DOORBELL_PAGE_SEND].contains(&offset) {
            return Ok(doorbell);
        }
        let deaf = Arc::clone(&self.deaf);
        Ok(Doorbell::message(move |value| {
            if !deaf.load(Ordering::Relaxed) {
                doorbell.ring(value);
            }
        }))
    }
}
