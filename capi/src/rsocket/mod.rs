//! Sockets over RDMA: the calls of `rdma/rsocket.h`, on connections of the connection manager.
//!
//! The protocol is that of rdma-core, so that either side may be rdma-core's: RDMA writes into a
//! buffer that the peer publishes in halves, with immediate data that says what was written.
//! Stream sockets only; datagrams are refused.

mod connecting;
mod exports;
mod flow;
mod link;
mod mapping;
mod memory;
mod options;
mod poll;
mod socket;
mod table;
mod transfer;
mod wire;
