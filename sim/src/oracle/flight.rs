//! Datagrams in flight, and their queue pairs.

use super::requests::{Receive, Request};
use std::collections::VecDeque;

/// A datagram queue pair.
#[derive(Debug)]
pub(crate) struct DatagramEnd {
    pub(crate) number: u32,
    pub(crate) sends: VecDeque<Request>,
    pub(crate) receives: VecDeque<Receive>,
}

/// A datagram that was sent.
#[derive(Clone, Debug)]
pub(crate) struct Flight {
    pub(crate) id: u64,
    /// Side and queue pair that sent it.
    pub(crate) from: (usize, u32),
    /// The sides that may get it.
    pub(crate) to: [bool; 2],
    pub(crate) to_group: bool,
    pub(crate) bytes: Vec<u8>,
    pub(crate) immediate: Option<u32>,
    /// The number of times that each side received it.
    pub(crate) arrived: [u32; 2],
    /// No fault can have lost it.
    pub(crate) certain: bool,
}
