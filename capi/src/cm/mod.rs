//! The implementation of `librdmacm.so.1`: connection management for programs, over queue pair 1.
//!
//! `librdmacm.so.1` itself only forwards: its functions are in `libibverbs.so.1`, where the device
//! is. The functions here have its names with the prefix `ringside_`.

pub mod abi;
mod addressing;
mod connecting;
pub(crate) mod datagrams;
mod endpoint;
mod events;
mod farewells;
mod id;
mod leaving;
mod lives;
mod looked_up;
mod multicast;
mod node;
mod options;
mod pairs;
mod ports;
mod recovery;
mod resolving;
mod route;
mod services;
mod shared;
pub(crate) mod socket_address;
mod turns;
mod unsupported;

pub(crate) use abi::space;
pub(crate) use addressing::{
    abandon, retire, ringside_rdma_bind_addr, ringside_rdma_create_event_channel,
    ringside_rdma_create_id, ringside_rdma_destroy_event_channel, ringside_rdma_destroy_id,
    ringside_rdma_migrate_id,
};
pub(crate) use connecting::{
    ringside_rdma_accept, ringside_rdma_connect, ringside_rdma_disconnect, ringside_rdma_listen,
    ringside_rdma_reject,
};
pub(crate) use events::{ringside_rdma_ack_cm_event, ringside_rdma_get_cm_event};
pub(crate) use options::ringside_rdma_set_option;
pub(crate) use pairs::{ringside_rdma_create_qp, ringside_rdma_destroy_qp};
pub(crate) use resolving::{ringside_rdma_resolve_addr, ringside_rdma_resolve_route};
