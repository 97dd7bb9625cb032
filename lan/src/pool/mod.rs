//! The pool that packets' buffers come from.

use crate::packet::Packet;
use crate::raw::PoolReference;
use crate::shared::{PoolSettings, Shared};
use ringside_bus::{DmaPool, MemoryError};
use std::sync::{Arc, Mutex, PoisonError};

/// The reason why a pool could not be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PoolError {
    /// A size out of its range.
    #[error("{what} of {value} is not possible: {remedy}")]
    Size {
        /// The name of the setting.
        what: &'static str,
        /// Its value.
        value: u32,
        /// The range.
        remedy: &'static str,
    },
    /// No memory.
    #[error(transparent)]
    Memory(#[from] MemoryError),
}

/// The usage of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct PoolUsage {
    /// Buffers that there are.
    pub buffers: u32,
    /// Buffers that packets, rings and applications hold. Exact while nothing moves.
    pub in_use: u32,
}

/// A pool of packet buffers in memory that the device can access. Cheap to clone.
///
/// The last clone frees the memory. If packets of the pool are still held then, they stay usable,
/// and the memory is freed some time after the last of them was dropped: when a pool is made or
/// dropped, a device is shut down or opened by `ringside::open`, or by
/// [`PacketPool::free_dropped`]. Until then the function of the device stays claimed.
#[derive(Clone)]
pub struct PacketPool(Arc<Owner>);

/// Pools that were dropped while packets of theirs were held. No packet can be taken from them.
static DROPPED: Mutex<Vec<PoolReference>> = Mutex::new(Vec::new());

struct Owner(PoolReference);

impl Drop for Owner {
    fn drop(&mut self) {
        let in_use = self.0.shared().in_use();
        match in_use {
            0 => self.0.free(),
            _ => {
                tracing::debug!(in_use, "packet pool dropped while packets are held");
                let dropped = DROPPED.lock();
                dropped.unwrap_or_else(PoisonError::into_inner).push(self.0);
            }
        }
        PacketPool::free_dropped();
    }
}

impl PacketPool {
    /// A pool; all of its memory is made now.
    ///
    /// Errors: a size out of range, or no memory.
    pub fn new(dma: &Arc<DmaPool>, settings: PoolSettings) -> Result<Self, PoolError> {
        check(&settings)?;
        Self::free_dropped();
        let shared = Shared::new(dma, settings)?;
        Ok(Self(Arc::new(Owner(PoolReference::new(shared)))))
    }

    /// Frees the memory of dropped pools whose last packet was dropped meanwhile. Control path.
    pub fn free_dropped() {
        let mut dropped = DROPPED.lock().unwrap_or_else(PoisonError::into_inner);
        // Nothing takes packets from them, so a pool that is unused once stays unused.
        let unused = dropped.extract_if(.., |pool| pool.shared().in_use() == 0);
        let unused: Vec<PoolReference> = unused.collect();
        drop(dropped);
        for pool in unused {
            pool.free();
        }
    }

    pub(crate) fn shared(&self) -> &Shared {
        self.0.0.shared()
    }

    pub(crate) fn reference(&self) -> PoolReference {
        self.0.0
    }

    /// Its sizes.
    #[must_use]
    pub fn settings(&self) -> PoolSettings {
        *self.shared().settings()
    }

    /// The current usage.
    #[must_use]
    pub fn usage(&self) -> PoolUsage {
        let shared = self.shared();
        PoolUsage {
            buffers: shared.settings().buffers,
            in_use: u32::try_from(shared.in_use()).unwrap_or(u32::MAX),
        }
    }

    /// The device's time, read just now: completes [`Packet::timestamp`] of this pool's packets.
    /// `None`: it is unknown, and they have no time stamp. Nanoseconds.
    pub fn note_device_time(&self, time: Option<u64>) {
        self.shared().note_device_time(time);
    }

    /// An empty packet with the pool's headroom; `None` if all buffers are in use.
    #[inline]
    #[must_use]
    pub fn packet(&self) -> Option<Packet> {
        let mut index = [0];
        (self.shared().take(&mut index) == 1).then(|| {
            Packet::empty(
                self.reference(),
                index[0],
                self.shared().settings().headroom_bytes,
            )
        })
    }

    /// A packet with these bytes, in as many buffers as they take.
    ///
    /// `None` if there are not enough buffers, or if it takes more than 255; none is taken then.
    #[must_use]
    pub fn packet_with(&self, bytes: &[u8]) -> Option<Packet> {
        let mut packet = self.packet()?;
        let room = usize::from(self.shared().settings().buffer_bytes);
        let mut pieces = bytes.chunks(room);
        if let Some(first) = pieces.next() {
            packet.append(first)?;
        }
        for piece in pieces {
            let mut more = self.packet()?;
            more.append(piece)?;
            packet.chain(more).ok()?;
        }
        Some(packet)
    }
}

fn check(settings: &PoolSettings) -> Result<(), PoolError> {
    let PoolSettings {
        buffers,
        buffer_bytes,
        headroom_bytes,
    } = *settings;
    let wrong = |what, value: u32, remedy| {
        Err(PoolError::Size {
            what,
            value,
            remedy,
        })
    };
    if !(1..=1 << 24).contains(&buffers) {
        return wrong("a number of buffers", buffers, "choose 1 to 16777216");
    }
    if !(128..=16256).contains(&buffer_bytes) || !buffer_bytes.is_multiple_of(128) {
        let remedy = "choose a multiple of 128 bytes, 128 to 16256";
        return wrong("a buffer", buffer_bytes.into(), remedy);
    }
    if headroom_bytes > 4096 || !headroom_bytes.is_multiple_of(64) {
        let remedy = "choose a multiple of 64 bytes, up to 4096";
        return wrong("headroom", headroom_bytes.into(), remedy);
    }
    Ok(())
}

impl std::fmt::Debug for PacketPool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PacketPool({:?})", self.usage())
    }
}

#[cfg(test)]
mod tests;
