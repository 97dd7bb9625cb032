//! Verbs: protection domains, memory regions, queue pairs, completion queues, events.
//!
//! ```no_run
//! # fn example(device: &ringside_pmd::Device, peer: &ringside_pmd::rdma::Endpoint,
//! #     remote: ringside_pmd::rdma::RemoteRegion) -> Result<(), Box<dyn std::error::Error>> {
//! use ringside_pmd::rdma::{Access, Completion, Flags, QueuePairConfig};
//! let domain = device.protection_domain()?;
//! let region = domain.register(device.allocate(4096)?, Access::LOCAL_WRITE)?;
//! let mut completions = device.completion_queue(256)?;
//! let mut queue_pair = domain.queue_pair(QueuePairConfig::reliable(&completions))?.connect(peer)?;
//! queue_pair.write(1, &[region.slice(0..64)?], remote.at(0), Flags::SIGNALLED)?;
//! queue_pair.ring();
//! let (mut batch, mut events) = ([Completion::EMPTY; 32], Vec::new());
//! for done in completions.poll(&mut batch) {
//!     println!("request {}: {:?}", done.id, done.status());
//! }
//! // A failed request completes only after this, here or on another thread.
//! device.poll_events(&mut events)?;
//! # Ok(())
//! # }
//! ```

mod accumulated;
pub mod address;
mod address_handle;
pub(crate) mod carried;
mod claim;
mod completion_events;
mod completion_queue;
mod connected;
pub mod connection;
pub(crate) mod containment;
mod earlier;
mod end;
pub(crate) mod engine;
mod error;
mod event;
mod event_request;
pub(crate) mod event_vectors;
mod events;
mod fast_region;
mod faults;
mod gid_changes;
pub(crate) mod gids;
mod group_list;
mod group_rules;
mod health;
pub(crate) mod host_memory;
pub(crate) mod interrupt;
mod kept;
pub(crate) mod lifecycle;
mod limits;
mod memory_region;
mod memory_window;
mod multicast;
pub(crate) mod numbers;
pub(crate) mod objects;
mod protection_domain;
mod quarantine;
mod query;
mod queue_pair;
pub(crate) mod records;
mod refused;
mod registration_cache;
pub(crate) mod session;
mod shared_receives;
mod shutdown;
mod statistics;
mod sync;
mod usage;

pub use address_handle::{AddressHandle, Destination};
pub use completion_events::EventQueueReport;
pub use completion_queue::{CompletionQueue, CompletionTarget, MAX_COMPLETIONS, ResizeError};
pub use connection::Endpoint;
pub use earlier::Earlier;
pub use error::{FastRegionError, RdmaError, RdmaStageError};
pub use event::Event;
pub use event_request::Notify;
pub use fast_region::{FastRegion, LoadError};
pub use faults::PeerFaults;
pub use gids::{Gid, MAX_GIDS};
pub use group_list::MulticastGroups;
pub use interrupt::Interrupts;
pub use kept::Quarantined;
pub use limits::RdmaLimits;
pub use memory_region::{
    Access, Base, DeregisterError, MemoryRegion, RegisterError, RemoteAddress, RemoteRegion,
    ReregisterError, SliceError,
};
pub use memory_window::{BindError, MemoryWindow, WindowKept, WindowKind};
pub use protection_domain::{ProtectionDomain, Quotas};
pub use query::{CompletionQueueReport, PortReport, PortState};
pub use queue_pair::{
    ConnectError, Connected, ConnectionChange, DatagramInitialised, DatagramReady, DrainError,
    Drained, Initialised, OfDatagrams, PeerReport, PostError, QueuePair, QueuePairConfig,
    QueuePairReport, QueuePairStage, ReadyError, ReceiveAttributes, Receiving, ResetError,
    Resettable, SendAttributes, SendSwitch, Sending, To, timer_steps,
};
pub use registration_cache::{
    CacheError, CacheReport, CacheSettings, Registered, RegistrationCache, Unmapping,
};
pub use ringside_bus::{DmaBuffer, LendPermit, Memory};
pub use ringside_cq::{Announced, Anomalies, Completion, Datagram, Elsewhere, Operation, Status};
pub use ringside_qp::{Fragment, SendFlags, SendFlags as Flags, WorkRequest};
pub use ringside_spec::verbs::Route;

/// The requests that [`QueuePair::post`] takes. Some are named as traits of the standard library
/// are, therefore they have a module of their own.
pub mod requests {
    pub use ringside_qp::{
        BindWindow, FastRegister, LocalInvalidate, Nop, PageSizeCode, Payload, Read, RequestError,
        Send, SendDatagram, SendFlags, SendInline, SendKind, WorkRequest, Write, WriteInline,
    };
}
pub use shared_receives::{Place, SharedReceiveConfig, SharedReceiveQueue};
pub use statistics::Statistic;
pub use usage::{MapError, ObjectUsage, Usage};
