//! The C interface of RDMA programs.
//!
//! `capi/build` links this crate into `libibverbs.so.1` and `librdmacm.so.1`, whose functions only
//! jump into the first, and builds `ringside-files.so`, which answers what programs read under
//! `/sys/class/infiniband`. A program that finds these libraries before rdma-core's runs on
//! ringside: on the device that the environment variable `RINGSIDE_DEVICE` names, without a kernel
//! driver.
//!
//! The structures in [`abi`] are those of rdma-core's public headers. ringside has no copy of the
//! headers: programs are built against rdma-core's. A test compares every field with
//! `tests/vectors/verbs_abi.json`.
//!
//! # Safety
//! Every exported function relies on the promises of a verbs caller: pointers to objects come from
//! this library, objects are not destroyed while another thread uses them, and structures have the
//! size in their header. Plain numbers (keys, lengths, opcodes) are checked.
#![allow(unsafe_code)] // a C interface: each function states what it trusts
#![allow(non_camel_case_types, non_upper_case_globals)] // names of a C interface
#![allow(unreachable_pub)] // exported symbols, reached from C

pub mod abi;
mod address;
mod bind;
mod bounce;
mod buffer;
mod builder;
mod cancel;
mod channel;
mod claim;
mod cm;
mod completion;
mod completion_channel;
mod completion_events;
mod context;
mod context_object;
mod device;
mod diagnosis;
mod environment;
mod errno;
mod events;
mod extended;
mod failing;
mod files;
mod fragments;
mod gid;
mod giving_way;
mod groups;
mod guarded;
mod interface;
mod live;
mod machine;
mod memory;
mod modify;
mod network;
mod open;
mod pair;
mod polling;
mod post;
mod probe;
mod queue_pair;
mod reach;
mod refused;
mod room;
mod rsocket;
mod shared;
mod shared_handles;
mod shared_posts;
mod signals;
mod standard_error;
mod text;
mod thread_domain;
mod thread_end;
mod threads;
mod transitions;
mod unsupported;
mod vectors;
mod verbs_table;
mod wakeup;
mod window;
mod work_completion;
