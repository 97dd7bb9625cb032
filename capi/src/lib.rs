//! The C interface of RDMA programs.
//!
//! `capi/build` links this crate into `libibverbs.so.1`. A program that finds it before
//! rdma-core's runs on ringside: on the device that the environment variable `RINGSIDE_DEVICE`
//! names, without a kernel driver.
//!
//! The structures in [`abi`] are those of rdma-core's public headers, which are not here: programs
//! are built against theirs. A test compares every field with `tests/vectors/verbs_abi.json`.
//!
//! # Safety
//! Every exported function trusts what verbs has a caller promise: pointers to objects come from
//! this library, are not destroyed while another thread uses them, and structures are as long as
//! their header says. What a program only reads or writes by a number (keys, lengths, opcodes) is
//! checked.
#![allow(unsafe_code)] // a C interface: each function states what it trusts
#![allow(non_camel_case_types, non_upper_case_globals)] // names of a C interface
#![allow(unreachable_pub)] // exported symbols, reached from C

pub mod abi;
mod address;
mod channel;
mod cm;
mod completion;
mod context;
mod context_object;
mod device;
mod errno;
mod events;
mod fragments;
mod gid;
mod memory;
mod open;
mod post;
mod queue_pair;
mod shared;
mod text;
mod transitions;
mod unsupported;
mod verbs_table;
mod wakeup;
