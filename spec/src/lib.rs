//! The documented interface of the E810: registers, descriptors, commands, contexts.
//!
//! Layouts only: no input or output, no unsafe code, no policy. This is the one place where bits
//! are named. Driver and model both read it, so every layout also has a witness from elsewhere:
//! the golden vectors under `tests/vectors`.
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
