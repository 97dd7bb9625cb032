//! The port: queues of packets on a device that was brought up, beside RDMA.
//!
//! [`Device::open_port`](crate::Device::open_port) makes N receive and M transmit queues on the
//! function's own VSI and hands them out; each may go to another core. The [`Port`] itself is the
//! control path: filters, spreading, link, statistics. [`Port::add_vsi`] makes further VSIs, each
//! with queues, filters and spreading of its own. When the device fails, the queues do nothing
//! more; once it was reset, stopping or dropping them gives every packet back.

mod address;
mod clock;
mod control;
mod counted;
mod director;
mod error;
mod filters;
mod hash;
mod hash_table;
mod hashing;
mod interrupt;
mod kinds;
mod malicious;
mod media;
mod registry;
mod restore;
mod rules;
mod settings;
mod shared;
mod sizes;
mod sleeper;
mod spread;
mod stamps;
mod station;
mod statistics;
mod steering;
mod tables;
mod tags;
mod tree;
mod unfreed;
mod vectors;
mod vsi;

pub use error::PortError;
pub use hash_table::{DEFAULT_KEY, Spreading};
pub use interrupt::ReceiveInterrupt;
pub use kinds::{FlowKind, HashField};
pub use malicious::{Detector, Malicious};
pub use media::{ErrorCorrection, Module, Pause};
pub(crate) use registry::PortRegistry;
pub use restore::{PortSetup, VsiSetup};
pub use rules::{FlowMatch, FlowRule, FlowTarget, RuleKind, RuleNumber};
pub use settings::{MAX_MTU, MAX_QUEUES, MTU_MIN, PortSettings};
pub(crate) use shared::PortParts;
pub(crate) use sizes::check;
pub use sleeper::{PacketSleeper, ReceivesPackets};
pub use statistics::PortStatistic;
pub use tags::VlanStripping;
pub(crate) use tree::TreePlace;
pub use vsi::{MAX_VSI_RECEIVE_QUEUES, OpenVsi, Vsi, VsiSettings};

use crate::admin::commands::LinkState;
use ringside_lan::{PacketPool, ReceiveQueue, ReceiveSettings, TransmitQueue, TransmitSettings};
use ringside_spec::lan::limits::FRAME_OVERHEAD_BYTES;
use shared::PortShared;
use std::sync::Arc;

/// A port with its queues, all in service.
#[derive(Debug)]
pub struct OpenPort {
    /// The control path.
    pub port: Port,
    /// Receive queues, by number.
    pub receive: Vec<ReceiveQueue>,
    /// Transmit queues, by number.
    pub transmit: Vec<TransmitQueue>,
    /// The pool of all of them.
    pub pool: PacketPool,
}

/// Control of a port; clones control the same one. It controls the port's own [`Vsi`], and the
/// parts that all VSIs share. Once all of them and all queues and further VSIs of the port are
/// dropped, its configuration is removed from the device.
#[derive(Clone)]
pub struct Port {
    own: Vsi,
}

impl OpenPort {
    /// Opens the function's port; all queues are in service when this returns.
    ///
    /// Control path. Errors: [`PortError`]; the configuration has been undone.
    pub(crate) fn open(parts: PortParts, settings: &PortSettings) -> Result<Self, PortError> {
        let shared = PortShared::open(parts, settings)?;
        let queues = Queues::open(&shared, settings)?;
        // Last: nothing is delivered before every queue can take it.
        shared.map_queues(settings.receive_queues)?;
        let own = Vsi { shared };
        own.strip_vlan(settings.vlan_stripping)?;
        own.set_promiscuous(settings.promiscuous)?;
        Ok(Self {
            port: Port { own },
            receive: queues.receive,
            transmit: queues.transmit,
            pool: queues.pool,
        })
    }
}

/// The queues of a VSI, all started, and their pool.
struct Queues {
    receive: Vec<ReceiveQueue>,
    transmit: Vec<TransmitQueue>,
    pool: PacketPool,
}

impl Queues {
    /// Makes and starts them, and sets the spreading over them.
    fn open(shared: &Arc<PortShared>, settings: &PortSettings) -> Result<Self, PortError> {
        let pool = PacketPool::new(&shared.pool, sizes::pool(settings))?;
        if settings.time_stamps {
            shared.stamp_packets(shared.capabilities.timers.as_ref(), &pool)?;
        }
        let (mut receive, mut transmit) = (Vec::new(), Vec::new());
        for number in 0..settings.transmit_queues as u16 {
            let sizes = TransmitSettings {
                descriptors: settings.transmit_descriptors,
                path: settings.packet_path,
            };
            let mut queue = shared.transmit_queue(number, sizes, pool.clone())?;
            queue.start()?;
            transmit.push(queue);
        }
        for number in 0..settings.receive_queues as u16 {
            let sizes = ReceiveSettings {
                descriptors: settings.receive_descriptors,
                frame_bytes_max: settings.mtu + FRAME_OVERHEAD_BYTES,
                path: settings.packet_path,
            };
            let mut queue = shared.receive_queue(number, sizes, pool.clone())?;
            queue.start_with(sizes::share(settings))?;
            receive.push(queue);
        }
        let spreading = Spreading {
            key: settings.hash_key,
            table: hash_table::even_table(settings.receive_queues),
        };
        shared.write_spreading(&mut shared.configured(), &spreading)?;
        if settings.receive_queues > 1 {
            shared.hash_all(&mut shared.hashing())?;
        }
        Ok(Self {
            receive,
            transmit,
            pool,
        })
    }
}

impl Port {
    /// Number of the VSI of its queues.
    #[must_use]
    pub fn vsi(&self) -> u16 {
        self.shared.vsi
    }

    /// The state of the link, read from the firmware. Control path.
    pub fn link(&self) -> Result<LinkState, PortError> {
        let keep = ringside_spec::lan::admin::link::link_events::KEEP;
        let admin = self.shared.admin()?;
        Ok(admin.link_status(self.shared.port, keep)?)
    }
}

impl std::fmt::Debug for Port {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Port")
            .field("vsi", &self.vsi())
            .field("state", &self.state())
            .finish_non_exhaustive()
    }
}
