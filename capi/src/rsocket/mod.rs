//! Sockets over RDMA: the calls of `rdma/rsocket.h`, on connections of the connection manager.
//!
//! The protocol is that of rdma-core, so that either side may be rdma-core's: RDMA writes into a
//! buffer that the peer publishes in halves, with immediate data that says what was written.
//! Datagram sockets have a protocol of their own: see [`datagram`].

mod arrivals;
mod bell;
mod call;
mod connecting;
mod datagram;
mod directions;
mod epoll;
mod exports;
mod flow;
mod gather;
mod interest;
mod link;
mod listener;
mod mapping;
mod memory;
mod messages;
mod options;
mod poll;
mod service;
mod socket;
mod table;
mod transfer;
mod turns;
mod wire;
