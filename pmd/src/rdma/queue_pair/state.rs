//! The states of a [`QueuePair`](super::QueuePair), which are types, and traits of groups of them.

use sealed::Sealed;

mod sealed {
    pub trait Sealed {}
}

/// A queue pair that is not connected yet: receives may be posted.
#[derive(Clone, Copy, Debug)]
pub struct Initialised;

/// A connected queue pair.
#[derive(Clone, Copy, Debug)]
pub struct Connected;

/// A queue pair that receives and answers its peer, and does not send of itself yet.
#[derive(Clone, Copy, Debug)]
pub struct Receiving;

/// A connected queue pair that does not send: sent requests are acknowledged, posted ones wait.
#[derive(Clone, Copy, Debug)]
pub struct Drained;

/// A datagram queue pair without queue key: receives may be posted.
#[derive(Clone, Copy, Debug)]
pub struct DatagramInitialised;

/// A datagram queue pair that sends and receives.
#[derive(Clone, Copy, Debug)]
pub struct DatagramReady;

/// A state in which sends are posted.
pub trait Sending: Sealed {}

impl Sending for Connected {}
impl Sending for DatagramReady {}

/// A state of a datagram queue pair.
pub trait OfDatagrams: Sealed {}

impl OfDatagrams for DatagramInitialised {}
impl OfDatagrams for DatagramReady {}

/// A state that a reset leads out of.
pub trait Resettable: Sealed {
    /// The state after the reset.
    type After;
}

macro_rules! resettable {
    ($($before:ty => $after:ty,)*) => {$(
        impl Sealed for $before {}
        impl Resettable for $before {
            type After = $after;
        }
    )*};
}

resettable! {
    Initialised => Initialised,
    Receiving => Initialised,
    Connected => Initialised,
    Drained => Initialised,
    DatagramInitialised => DatagramInitialised,
    DatagramReady => DatagramInitialised,
}
