//! Verbs, from bring-up to shutdown: two functions of one stepped world and the driver on both.

mod connection;
mod errors;
mod faults;
mod link;
mod matrix;
mod pair;
mod regions;
mod threads;
mod transfers;
