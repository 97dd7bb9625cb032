//! A device for tests: it writes given data into the rings, valid or not.

use crate::{
    ArmError, Burst, Packet, PacketPath, PacketPool, PoolSettings, QueueControl, ReceiveQueue,
    ReceiveSettings, Service, StopError, TransmitQueue, TransmitSettings,
};
use ringside_bus::dma_pool::{Placement, PoolSettings as DmaSettings};
use ringside_bus::{DmaBuffer, DmaPool, Doorbell, Memory, PageSize, Words};
use ringside_model::{Stepped, WorldSettings};
use ringside_spec::lan::receive::{WriteBack0, WriteBack1, WriteBack2, WriteBack3, profile};
use ringside_spec::lan::transmit::{DataCommand, kind};
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
    fn inserts_outer_tag_alone(&self) -> bool {
        false
    }
    fn arm(&self) -> Result<(), ArmError> {
        Ok(())
    }
    fn disarm(&self) -> Result<(), ArmError> {
        Ok(())
    }
}

/// Memory that a device reaches, and where a queue's doorbell goes.
pub(crate) struct QueueParts {
    pub(crate) dma: Arc<DmaPool>,
    pub(crate) service: Arc<Service>,
    pub(crate) control: Arc<Control>,
    pub(crate) page: Memory,
    _world: Stepped,
}

impl QueueParts {
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

    /// A running receive queue for frames of any length, and its ring.
    pub(crate) fn receiver(
        &self,
        descriptors: u16,
        pool: PacketPool,
        path: Option<PacketPath>,
    ) -> (ReceiveQueue, Words) {
        let (memory, ring) = self.ring(descriptors, 32);
        let settings = ReceiveSettings {
            descriptors,
            frame_bytes_max: 9728,
            path,
        };
        let (service, control) = (self.service.clone(), self.control.clone());
        let bell = self.doorbell();
        let mut queue = ReceiveQueue::new(settings, memory, pool, bell, service, control).unwrap();
        queue.start().unwrap();
        (queue, ring)
    }

    /// A running transmit queue, and its ring.
    pub(crate) fn transmitter(
        &self,
        descriptors: u16,
        pool: PacketPool,
        path: Option<PacketPath>,
    ) -> (TransmitQueue, Words) {
        let (memory, ring) = self.ring(descriptors, 16);
        let settings = TransmitSettings { descriptors, path };
        let (service, control) = (self.service.clone(), self.control.clone());
        let bell = self.doorbell();
        let mut queue = TransmitQueue::new(settings, memory, pool, bell, service, control).unwrap();
        queue.start().unwrap();
        (queue, ring)
    }

    pub(crate) fn doorbell(&self) -> Doorbell {
        Doorbell::mapped(&self.page, 0).unwrap()
    }

    /// The value that was rung last.
    pub(crate) fn rung(&self) -> u32 {
        self.page.words(0, 8).unwrap().load(0) as u32
    }
}

impl Drop for QueueParts {
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
    /// A valid descriptor.
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

/// The packets that a queue has received.
pub(crate) fn received(queue: &mut ReceiveQueue) -> Vec<Packet> {
    let mut burst = Burst::with_limit(64);
    queue.receive(&mut burst);
    burst.drain().collect()
}

/// Sends packets; returns how many the queue took, and the rest.
pub(crate) fn sent(
    queue: &mut TransmitQueue,
    packets: impl IntoIterator<Item = Packet>,
) -> (usize, Burst) {
    let mut burst = Burst::with_limit(64);
    for packet in packets {
        burst.push(packet).unwrap();
    }
    let count = queue.send(&mut burst);
    (count, burst)
}

/// The device is done with everything up to the last report that was asked for.
pub(crate) fn complete(ring: &Words) {
    for word in (1..ring.count()).step_by(2) {
        if DataCommand(ring.load(word)).report_status() {
            ring.store_release(word, kind::DONE);
        }
    }
}
