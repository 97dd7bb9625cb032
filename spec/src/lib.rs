//! The documented interface of the E810: registers, descriptors, commands, contexts.
//!
//! Layouts only: no input or output, no unsafe code, no policy. Bits are named only in this crate.
//! Driver and model share it, so every layout also has an independent witness: the golden vectors
//! under `tests/vectors`. Offsets of LAN registers have no vector: each names its source, and
//! Linux's drivers on the model are the witness.
//!
//! All structures in memory are little-endian. A "word" is 64 bits; a "quantum" is 32 bytes.
#![forbid(unsafe_code)]

#[doc(hidden)]
pub use pastey as __pastey;

mod words;

mod codes;
pub mod lan;
pub mod rdma;
pub mod verbs;
