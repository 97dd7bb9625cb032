//! The RDMA engine ("protocol engine") of the E810, its control half: registers, the control queue
//! pair and its commands, contexts, host memory cache, event queues.
//!
//! In the sources: Linux `drivers/infiniband/hw/irdma` ("icrdma", GEN_2) for what a driver uses,
//! DPDK `ice_hw_autogen.h` for registers. Work queue elements and completions of the data path are
//! elsewhere in this crate.

pub mod ae_codes;
pub mod commands;
pub mod control_completion;
pub mod cqp_context;
pub mod events;
pub mod features;
pub mod fpm;
pub mod layout;
pub mod limits;
pub mod qp_context;
pub mod registers;
pub mod segments;
pub mod statistics;
