//! Runs of plain packets, as the paths take them. Safety: see the module above.

use crate::packet::Packet;
use std::mem::ManuallyDrop;
use std::sync::atomic::AtomicU64;

/// Descriptors of a group.
pub(crate) const GROUP: usize = 8;
/// Values that slots of a receive ring have in front of the first and behind the last: a path reads
/// a whole vector around each.
pub(crate) const MARGIN: usize = 8;

/// First half of a packet of one buffer and no requests, apart from the buffer.
#[derive(Clone, Copy)]
#[repr(align(32))]
pub(crate) struct Template(pub(super) [u64; 4]);

impl Template {
    /// `packet` names no buffer: its drop would give back nothing, and does not happen.
    pub(crate) fn of(packet: Packet) -> Self {
        let packet = ManuallyDrop::new(packet);
        // SAFETY: point 5: 32 bytes without padding, all initialised, 8-aligned.
        Self(unsafe { std::ptr::from_ref(&*packet).cast::<[u64; 4]>().read() })
    }
}

/// Plain packets that a path has handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct Handled {
    /// packets
    pub(crate) packets: usize,
    /// their bytes
    pub(crate) bytes: u64,
}

/// A contiguous part of a receive ring.
pub(crate) struct Arrivals<'a> {
    /// four words to a descriptor
    pub(crate) words: &'a [AtomicU64],
    /// [`MARGIN`] values, the buffers of the descriptors, and as many values again
    pub(crate) slots: &'a [u32],
    pub(crate) template: &'a Template,
    /// longest packet of one buffer
    pub(crate) buffer_bytes: u16,
}

/// Buffers on their way into a receive ring.
#[derive(Clone, Copy)]
pub(crate) struct Posted {
    /// device address of the first byte that the device may fill in buffer 0
    pub(crate) base: u64,
    /// bytes from buffer to buffer
    pub(crate) stride: u32,
}

/// A contiguous part of a transmit ring.
pub(crate) struct Departures<'a> {
    /// two words to a descriptor
    pub(crate) words: &'a [AtomicU64],
    /// place of the buffers of the descriptors
    pub(crate) slots: &'a mut [u32],
    pub(crate) plain: &'a Outgoing,
}

/// Plain packets of a transmit queue.
pub(crate) struct Outgoing {
    pub(crate) template: Template,
    /// device address of buffer 0
    pub(crate) base: u64,
    /// bytes from buffer to buffer
    pub(crate) stride: u32,
    /// longest packet
    pub(crate) bytes_max: u32,
}
