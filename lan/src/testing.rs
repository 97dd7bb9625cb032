//! A device for tests: it writes given data into the rings, valid or not.

use crate::{PacketPool, PoolSettings, QueueControl, Service, StopError};
use ringside_bus::dma_pool::{Placement, PoolSettings as DmaSettings};
use ringside_bus::{DmaBuffer, DmaPool, Doorbell, Memory, PageSize, Words};
use ringside_model::{Stepped, WorldSettings};
use ringside_spec::lan::receive::{WriteBack0, WriteBack1, WriteBack2, WriteBack3, profile};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Answers for a device: it confirms each request, or does not.
#[derive(Default)]
pub(crate) struct Control {
    pub(crate) refuses_to_start: AtomicBool,
    pub(crate) refuses_to_stop: AtomicBool,
}

impl QueueControl for Control {
    fn configure(&self) -> Result<(), StopError> {
        Ok(())
    }
    fn enable(&self) -> Result<(), StopError> {
        match self.refuses_to_start.load(Ordering::Relaxed) {
            true => Err(StopError::OutOfService),
            false => Ok(()),
        }
    }
    fn disable(&self) -> Result<(), StopError> {
        match self.refuses_to_stop.load(Ordering::Relaxed) {
            true => Err(StopError::OutOfService),
            false => Ok(()),
        }
    }
}

/// Memory that a device reaches, and where a queue's doorbell goes.
pub(crate) struct Bench {
    pub(crate) dma: Arc<DmaPool>,
    pub(crate) service: Arc<Service>,
    pub(crate) control: Arc<Control>,
    pub(crate) page: Memory,
    _world: Stepped,
}

impl Bench {
    pub(crate) fn new() -> Self {
        let world = Stepped::new(&WorldSettings::with_functions(1));
        let function = world.function(0).unwrap();
        let settings = DmaSettings {
            largest_page: PageSize::FourKiB,
            exact: true,
            numa_node: None,
            placement: Placement::Seeded(1),
        };
        Self {
            dma: DmaPool::new(function, settings).unwrap(),
            service: Service::new(),
            control: Arc::default(),
            page: Memory::window(4096, 0, 4096).unwrap(),
            _world: world,
        }
    }

    pub(crate) fn pool(&self, buffers: u32) -> PacketPool {
        let settings = PoolSettings {
            buffers,
            ..PoolSettings::default()
        };
        PacketPool::new(&self.dma, settings).unwrap()
    }

    pub(crate) fn ring(&self, descriptors: u16, bytes: usize) -> (DmaBuffer, Words) {
        let buffer = self.dma.allocate(usize::from(descriptors) * bytes, 4096);
        let buffer = buffer.unwrap();
        let words = buffer.words();
        (buffer, words)
    }

    pub(crate) fn doorbell(&self) -> Doorbell {
        Doorbell::mapped(&self.page, 0).unwrap()
    }

    /// The value that was rung last.
    pub(crate) fn rung(&self) -> u32 {
        self.page.words(0, 8).unwrap().load(0) as u32
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        // No device writes: the pool may go.
        self.dma.close().unwrap();
    }
}

/// A descriptor as the device writes it back.
#[derive(Clone, Copy)]
pub(crate) struct Wrote {
    pub(crate) first: WriteBack0,
    pub(crate) status: WriteBack1,
    pub(crate) tags: WriteBack2,
    pub(crate) flow: WriteBack3,
}

impl Wrote {
    /// A sound one.
    pub(crate) fn bytes(count: u64, last: bool) -> Self {
        Self {
            first: WriteBack0::ZERO
                .with_profile(profile::NIC.into())
                .with_packet_type(24)
                .with_bytes(count),
            status: WriteBack1::ZERO.with_done(true).with_end_of_packet(last),
            tags: WriteBack2::ZERO,
            flow: WriteBack3::ZERO.with_flow_id(u32::MAX.into()),
        }
    }

    pub(crate) fn to(self, ring: &Words, index: usize) {
        ring.store(index * 4, self.first.0);
        ring.store(index * 4 + 2, self.tags.0);
        ring.store(index * 4 + 3, self.flow.0);
        ring.store_release(index * 4 + 1, self.status.0);
    }
}
