//! A userspace poll-mode driver for the Intel E810 with RDMA.
//!
//! An application needs this dependency only: [`open`] a device by its address, register memory,
//! connect queue pairs, poll completions. No kernel driver takes part. Without a card, the address
//! `model:0` selects the software model of the E810 in this process.
//!
//! ```
//! use ringside::prelude::*;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let config = Config::default();
//! let left = ringside::open("model:0", &config)?;
//! let right = ringside::open("model:1", &config)?;
//!
//! let (domain, peer_domain) = (left.protection_domain()?, right.protection_domain()?);
//! let source = domain.register(left.allocate(4096)?, Access::LOCAL_WRITE)?;
//! let rights = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
//! let target = peer_domain.register(right.allocate(4096)?, rights)?;
//!
//! let mut completions = left.completion_queue(64)?;
//! let peer_completions = right.completion_queue(64)?;
//! let queue_pair = domain.queue_pair(QueuePairConfig::reliable(&completions))?;
//! let peer = peer_domain.queue_pair(QueuePairConfig::reliable(&peer_completions))?;
//! let (here, there) = (queue_pair.endpoint(), peer.endpoint());
//! let mut queue_pair = queue_pair.connect(&there)?;
//! let _peer = peer.connect(&here)?;
//!
//! assert!(source.write(0, b"hello"));
//! queue_pair.write(1, &[source.slice(0..5)?], target.remote().at(0), Flags::SIGNALLED)?;
//! queue_pair.ring();
//! let mut batch = [Completion::EMPTY; 8];
//! let done = loop {
//!     if let Some(done) = completions.poll(&mut batch).first() {
//!         break *done;
//!     }
//! };
//! assert!(done.is_success());
//! let mut arrived = [0; 5];
//! assert!(target.read(0, &mut arrived));
//! assert_eq!(&arrived, b"hello");
//! # Ok(())
//! # }
//! ```
//!
//! The [`guide`] explains memory, threads, errors, recovery and tuning. The modules below re-export
//! the crates of the driver, so an application needs no other dependency.
#![forbid(unsafe_code)]

mod device;
mod error;
mod functions;
mod housekeeping;
mod network;
mod open;
mod signal;
mod sync;

/// The project's README: its Rust sample is compiled and run as a documentation test.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct Readme;

pub mod guide;
pub mod lending;
pub mod registry;

pub use device::Device;
pub use error::OpenError;
pub use housekeeping::{Driver, Events};
pub use network::NetworkError;
pub use open::{open, open_with};

/// Access to PCI functions: device addresses, DMA memory, clocks, pinning of threads.
pub use ringside_bus as bus;
/// Moments, deadlines and clocks.
pub use ringside_clock as clock;
/// Messages and settings of the connection manager: types that [`connect`] returns.
pub use ringside_cm as cm;
/// The configuration file: sections, defaults, validation.
pub use ringside_config as config;
/// The connection manager: listening and connecting by IP address and port.
pub use ringside_connect as connect;
/// Completion queues: types that [`driver`] returns.
pub use ringside_cq as cq;
/// The host memory cache: errors that [`driver`] returns.
pub use ringside_hmc as hmc;
/// Packet queues: packets, bursts, the packet pool.
pub use ringside_lan as lan;
/// The software model of the E810, for tests with faults and virtual time.
pub use ringside_model as model;
/// The driver: bring-up, verbs, recovery, workers.
pub use ringside_pmd as driver;
/// Work queues: the requests that [`driver::rdma::QueuePair::post`] takes, and errors of posting.
pub use ringside_qp as qp;
/// The RoCEv2 protocol engine: types that [`model`] returns.
pub use ringside_roce as roce;

/// The documented interface of the card: codes of events and statuses, registers, descriptors.
pub use ringside_spec as spec;

/// The IP stack on the port: ARP, neighbour discovery, ping, DHCP.
pub use ringside_stack as stack;

/// The names that most applications use.
pub mod prelude {
    pub use crate::{Device, OpenError, open};
    pub use ringside_bus::{DeviceAddress, DmaBuffer, LendPermit, Memory};
    pub use ringside_config::Config;
    pub use ringside_pmd::rdma::{
        Access, Base, CacheSettings, Completion, CompletionQueue, Connected, Endpoint, Event,
        Flags, MemoryRegion, ProtectionDomain, QueuePair, QueuePairConfig, Registered,
        RegistrationCache, RemoteRegion, SharedReceiveConfig, SharedReceiveQueue, Status,
        Unmapping,
    };
    pub use ringside_pmd::worker::{Polled, Worker};
}
