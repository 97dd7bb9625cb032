//! The InfiniBand connection manager (CM) over RoCEv2.
//!
//! Two programs set up a reliable connection, or find the queue pair of a datagram service, with
//! management datagrams (MADs) between their queue pairs 1. This crate holds the messages and the
//! state machines of both sides.
//!
//! [`Manager`] does no input or output. The caller passes in received MADs and the time, and takes
//! out [`Action`]s: MADs to send and events for the program. The same manager serves the C
//! libraries, Rust programs, simulations and tests. It interoperates with Linux's `rdma_cm` and
//! follows Linux where that differs from the standard.
//!
//! ```
//! use ringside_cm::{Action, Arrived, Identity, Manager, PortSpace, ServiceId};
//! use std::net::Ipv4Addr;
//! use std::time::Duration;
//!
//! let address = Ipv4Addr::new(10, 0, 0, 1);
//! let mut manager = Manager::new(Identity::of(0x5054_00ff_fe00_0001, 42));
//! manager.add_address(address.into(), None);
//! manager.listen(ServiceId::of(PortSpace::Tcp, 7471), None, 16).unwrap();
//! while let Some(action) = manager.next_action() {
//!     match action {
//!         Action::Send(_mad) => {}   // from queue pair 1 to queue pair 1
//!         Action::Event(_event) => {} // for the program
//!     }
//! }
//! # let _: Option<Arrived<'_>> = None;
//! # let _: Option<Duration> = manager.deadline();
//! ```
//!
//! Sources: InfiniBand Architecture Specification volume 1, chapters 12 and 13 and annex A11; the
//! behaviour of Linux 6.12, recorded in `tests/vectors/ib_cm.json`.
#![forbid(unsafe_code)]

mod address;
pub mod gsi;
mod layout;
pub mod mad;
mod manager;
pub mod message;
mod reason;
pub mod timing;

pub use address::{AddressHeader, Gid, HeaderError, PortSpace, ServiceId};
pub use gsi::{Arrived, Discard};
pub use mad::{Mad, MadError, Message};
pub use manager::{
    Accept, Action, Connect, ConnectionId, Event, EventKind, Identity, LISTENER_WAIT, ListenAt,
    ListenError, ListenerId, MAX_CONNECTIONS, Manager, OutgoingMad, Parameters, Refused,
    RequestError, Resolve, ServiceAnswer, ServiceKind, StateName,
};
pub use reason::{Reason, ServiceStatus};
