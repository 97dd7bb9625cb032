//! Packet queues on ordinary memory, and a device that only writes descriptors back.
//!
//! No engine of a model takes part: figures cover the driver's receive and transmit calls alone.
//! The model only provides the function that the pool maps its memory for, so this is not a pair of
//! devices as in `testkit`.

use crate::RigError;
use ringside_bus::dma_pool::{Placement, PoolSettings as DmaSettings};
use ringside_bus::{DmaPool, Doorbell, Memory, PageSize, Words};
use ringside_lan::{
    Burst, PacketPool, PoolSettings, ReceiveQueue, ReceiveSettings, Service, TransmitQueue,
    TransmitSettings,
};
use ringside_model::{Stepped, WorldSettings};
use ringside_spec::lan::receive::{WriteBack0, WriteBack1, WriteBack3, packet_type, profile};
use ringside_spec::lan::transmit::{DataCommand, kind};
use std::sync::Arc;

/// Packets of a burst.
pub const BURST: usize = 32;
/// Descriptors of each ring.
const RING: usize = 1024;
/// Bytes of each packet, without its check sequence.
const PACKET_BYTES: u64 = 60;

/// One receive queue and one transmit queue over one pool.
pub struct LanRig {
    /// The receive queue.
    pub receive: ReceiveQueue,
    /// The transmit queue.
    pub send: TransmitQueue,
    received: Words,
    sent: Words,
    next: usize,
    dma: Arc<DmaPool>,
    _world: Stepped,
}

impl LanRig {
    /// Started queues of 1024 descriptors.
    pub fn new() -> Result<Self, RigError> {
        let text = |error: &dyn std::fmt::Display| RigError::from(error.to_string());
        let world = Stepped::new(&WorldSettings::with_functions(1));
        let function = world
            .function(0)
            .ok_or_else(|| RigError::from("the model has no function".to_owned()))?;
        let settings = DmaSettings {
            largest_page: PageSize::FourKiB,
            exact: true,
            numa_node: None,
            placement: Placement::Seeded(1),
        };
        let dma = DmaPool::new(function, settings).map_err(|error| text(&error))?;
        let pool = PacketPool::new(&dma, PoolSettings::default()).map_err(|error| text(&error))?;
        let page = Memory::window(4096, 0, 4096)?;
        let doorbell = |place| {
            Doorbell::mapped(&page, place)
                .ok_or_else(|| RigError::from("the page has no doorbell".to_owned()))
        };
        let service = Service::new();
        let memory = dma
            .allocate(RING * 32, 4096)
            .map_err(|error| text(&error))?;
        let received = memory.words();
        let settings = ReceiveSettings {
            descriptors: RING as u16,
            ..ReceiveSettings::default()
        };
        let mut receive = ReceiveQueue::new(
            settings,
            memory,
            pool.clone(),
            doorbell(0)?,
            service.clone(),
            Arc::new(()),
        )
        .map_err(|error| text(&error))?;
        let memory = dma
            .allocate(RING * 16, 4096)
            .map_err(|error| text(&error))?;
        let sent = memory.words();
        let settings = TransmitSettings {
            descriptors: RING as u16,
            ..TransmitSettings::default()
        };
        let control = Arc::new(());
        let mut send = TransmitQueue::new(settings, memory, pool, doorbell(8)?, service, control)
            .map_err(|error| text(&error))?;
        receive.start().map_err(|error| text(&error))?;
        send.start().map_err(|error| text(&error))?;
        Ok(Self {
            receive,
            send,
            received,
            sent,
            next: 0,
            dma,
            _world: world,
        })
    }

    /// The device writes a burst of packets back, in order, the status of each last.
    pub fn arrive(&mut self) {
        let first = WriteBack0::ZERO
            .with_profile(profile::NIC.into())
            .with_packet_type(packet_type::IPV4_UDP.into())
            .with_bytes(PACKET_BYTES);
        let status = WriteBack1::ZERO
            .with_done(true)
            .with_end_of_packet(true)
            .with_checksums_checked(true)
            .with_hash_valid(true)
            .with_hash(0x1234_5678);
        let flow = WriteBack3::ZERO.with_flow_id(u32::MAX.into());
        for _ in 0..BURST {
            let at = self.next * 4;
            self.received.store(at, first.0);
            self.received.store(at + 2, 0);
            self.received.store(at + 3, flow.0);
            self.received.store_release(at + 1, status.0);
            self.next = (self.next + 1) % RING;
        }
    }

    /// The device reports every descriptor for which the driver requested a report.
    pub fn complete(&mut self) {
        for index in 0..RING {
            let at = index * 2 + 1;
            if DataCommand(self.sent.load(at)).report_status() {
                self.sent.store_release(at, kind::DONE);
            }
        }
    }
}

impl Drop for LanRig {
    fn drop(&mut self) {
        let _ = self.receive.stop();
        let _ = self.send.stop();
        // No device writes, so the pool can be closed.
        let _ = self.dma.close();
    }
}

/// An empty burst of [`BURST`] packets.
#[must_use]
pub fn burst() -> Burst {
    Burst::with_limit(BURST)
}
