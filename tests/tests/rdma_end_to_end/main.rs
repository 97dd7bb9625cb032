//! Verbs, from bring-up to shutdown: two functions and the driver on both.
//!
//! The functions are those of one stepped world in this process. `RINGSIDE_TEST_DEVICES` can name
//! two addresses instead, separated by a comma, of cards or of models in other processes. Each test
//! body is the same there; `tests/guest` runs them in that way over VFIO.

mod connection;
mod containment;
mod errors;
mod faults;
mod link;
mod matrix;
mod regions;
mod register_writes;
mod threads;
mod transfers;
mod withholding;
