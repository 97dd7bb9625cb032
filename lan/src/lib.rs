//! Packet queues: a pool of packet buffers, receive and transmit rings, bursts of owned packets.
//!
//! A [`Packet`] is an owned handle to one or more buffers of a [`PacketPool`]. [`ReceiveQueue`]
//! appends packets to a [`Burst`]; [`TransmitQueue`] takes them from one. Both queues are `Send` and
//! not `Sync`: each belongs to one core. After the queues have started, nothing here allocates, takes
//! a lock, logs or makes a system call.
//!
//! The crate knows rings and descriptors only. Contexts, registers and commands that start and stop a
//! queue belong to the driver, which hands a [`QueueControl`] to each queue.
//!
//! # Trust
//! A descriptor that the device wrote is untrusted: a length beyond the buffer, an unknown layout or
//! a chain without end is counted and the packet dropped. The handle to a buffer is exclusive from
//! the moment that the device reports it done until it is posted or sent again, so its bytes can be
//! borrowed as slices. See [`Packet::bytes`] for what that assumes of the device.

mod burst;
mod control;
mod packet;
mod pool;
mod raw;
mod receive;
mod ring;
#[cfg(test)]
mod testing;
mod toeplitz;
mod transmit;

pub use burst::{BURST_MAX, Burst};
pub use control::{QueueControl, QueueKind, QueueState, Remains, Service, StopError};
pub use packet::{Flags, Layer4, OffloadError, Packet, Segment, TransmitRequest};
pub use pool::{PacketPool, PoolError, PoolSettings, PoolUsage};
pub use receive::{ReceiveCounters, ReceiveQueue, ReceiveSettings};
pub use ring::RingError;
pub use toeplitz::{Flow, SymmetricToeplitz, Toeplitz};
pub use transmit::{TransmitCounters, TransmitQueue, TransmitSettings};

// DMA memory of a pool is tied to the pool that it was cut from.
pub use ringside_bus::DmaPool;
