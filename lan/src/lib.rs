//! Packet queues: a pool of packet buffers, receive and transmit rings, bursts of owned packets.
//!
//! A [`Packet`] is an owned handle to one or more buffers of a [`PacketPool`]. [`ReceiveQueue`]
//! appends packets to a [`Burst`]; [`TransmitQueue`] takes them from one. Both queues are `Send`
//! and not `Sync`: each belongs to one core. After the queues have started, nothing here allocates,
//! takes a lock, logs or makes a system call.
//!
//! The crate handles rings and descriptors only. Contexts, registers and commands that start and
//! stop a queue belong to the driver, which gives a [`QueueControl`] to each queue.
//!
//! # Trust
//! A descriptor that the device wrote is untrusted: a length beyond the buffer, an unknown layout
//! or a chain without end is counted and the packet dropped. The handle to a buffer is exclusive
//! from the moment that the device reports it done until it is posted or sent again, so its bytes
//! can be borrowed as slices. [`Packet::bytes`] states the assumption about the device.

mod burst;
mod control;
mod copy;
mod drops;
mod filter;
#[cfg(test)]
mod golden;
mod hang;
mod packet;
mod pool;
mod raw;
mod receive;
mod ring;
mod shared;
#[cfg(test)]
mod testing;
mod toeplitz;
mod transmit;
mod vector;

pub use burst::{Burst, MAX_BURST};
pub use control::{ArmError, QueueControl, QueueKind, QueueState, Remains, Service, StopError};
pub use drops::Drops;
pub use filter::{
    FILTER_PACKET_BYTES, FILTER_PACKETS_BYTES, FILTER_RING_ENTRIES, FilterError, FilterMemory,
    FilterQueue,
};
pub use hang::{Hang, HangWatch};
pub use packet::{Flags, Layer4, OffloadError, Packet, Segment, TransmitRequest};
pub use pool::{PacketPool, PoolError, PoolUsage};
pub use receive::{Arming, ReceiveCounters, ReceiveQueue, ReceiveSettings};
pub use ring::RingError;
pub use shared::PoolSettings;
pub use toeplitz::{Flow, SymmetricToeplitz, Toeplitz};
pub use transmit::{TransmitCounters, TransmitQueue, TransmitSettings};
pub use vector::{PATH_VARIABLE, PacketPath, PathError};

// DMA memory of a pool is tied to the pool that it was cut from.
pub use ringside_bus::DmaPool;
