//! The control half of the E810's RDMA engine ("protocol engine"): registers, the control queue
//! pair and its commands, contexts, host memory cache, event queues.
//!
//! Sources: Linux `drivers/infiniband/hw/irdma` ("icrdma", GEN_2) for the values that a driver
//! uses, DPDK `ice_hw_autogen.h` for registers. Work queue elements and completions of the data
//! path are in [`crate::verbs`].

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
