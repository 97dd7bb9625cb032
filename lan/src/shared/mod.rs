//! State that a pool, its packets and its queues share: the buffers, their owners, and their
//! chains.

mod depot;
mod thread;

use depot::Depot;
pub(crate) use depot::RUN;
use ringside_bus::{DmaBuffer, DmaPool, Iova, MemoryError, Words};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

/// Ends a chain of buffers.
pub(crate) const NO_BUFFER: u32 = u32::MAX;

/// Sizes of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolSettings {
    /// Buffers, 1..=2^24. Rings, packets in flight and 128 for each thread that uses the pool (its
    /// cache) have to fit. The cache of a thread that ended is emptied when buffers run short.
    pub buffers: u32,
    /// Bytes of a buffer that the device may fill: a multiple of 128, 128..=16256.
    pub buffer_bytes: u16,
    /// Bytes kept free ahead of received data, for headers to be put in front: a multiple of 64.
    pub headroom_bytes: u16,
}

impl Default for PoolSettings {
    /// 8192 buffers of 2048 bytes behind 128 bytes of headroom.
    fn default() -> Self {
        Self {
            buffers: 8192,
            buffer_bytes: 2048,
            headroom_bytes: 128,
        }
    }
}

/// State that the pool and every packet of it share. Exists until no buffer is in use.
pub(crate) struct Shared {
    memory: Option<DmaBuffer>,
    words: Words,
    iova: Iova,
    stride: u32,
    settings: PoolSettings,
    depot: Depot,
    /// next buffer, offset and length of each buffer inside a chain
    links: Box<[AtomicU64]>,
    /// handles beyond the first to the packet that begins in each buffer
    shares: Box<[AtomicU32]>,
    /// the device may still write to some buffer
    abandoned: AtomicBool,
    /// the device's time as it was read last, nanoseconds; [`NO_TIME`]: unknown
    device_time: AtomicU64,
}

/// No time stamp is complete before the device's time was read.
const NO_TIME: u64 = u64::MAX;

/// A segment inside a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Link {
    pub(crate) next: u32,
    pub(crate) offset: u16,
    pub(crate) length: u16,
}

impl Shared {
    /// Makes all memory of a pool; the sizes have been checked.
    pub(crate) fn new(dma: &Arc<DmaPool>, settings: PoolSettings) -> Result<Self, MemoryError> {
        let stride = u32::from(settings.buffer_bytes) + u32::from(settings.headroom_bytes);
        let bytes = settings.buffers as usize * stride as usize;
        let memory = dma.allocate(bytes, 4096)?;
        Ok(Self {
            words: memory.words(),
            iova: memory.iova(),
            memory: Some(memory),
            stride,
            settings,
            depot: Depot::new(settings.buffers),
            links: (0..settings.buffers)
                .map(|_| AtomicU64::new(NO_BUFFER.into()))
                .collect(),
            shares: (0..settings.buffers).map(|_| AtomicU32::new(0)).collect(),
            abandoned: AtomicBool::new(false),
            device_time: AtomicU64::new(NO_TIME),
        })
    }

    /// The device's time as it was read last, nanoseconds.
    #[inline]
    pub(crate) fn device_time(&self) -> Option<u64> {
        let time = self.device_time.load(Ordering::Relaxed);
        (time != NO_TIME).then_some(time)
    }

    pub(crate) fn note_device_time(&self, time: Option<u64>) {
        self.device_time
            .store(time.unwrap_or(NO_TIME), Ordering::Relaxed);
    }

    pub(crate) const fn settings(&self) -> &PoolSettings {
        &self.settings
    }

    /// The device address of a buffer.
    #[inline(always)]
    pub(crate) fn iova(&self, index: u32) -> u64 {
        self.iova.0 + u64::from(index) * u64::from(self.stride)
    }

    /// Bytes from the pool's first to a buffer's first.
    #[inline(always)]
    pub(crate) fn place(&self, index: u32) -> usize {
        index as usize * self.stride as usize
    }

    /// Bytes of a buffer, headroom included.
    #[inline(always)]
    pub(crate) const fn stride(&self) -> u32 {
        self.stride
    }

    /// All memory of the pool.
    #[inline(always)]
    pub(crate) const fn words(&self) -> &Words {
        &self.words
    }

    /// Copies bytes of the pool out without making a slice of them; false if they lie outside.
    pub(crate) fn copy_out(&self, at: usize, into: &mut [u8]) -> bool {
        self.memory
            .as_ref()
            .is_some_and(|memory| memory.read(at, into))
    }

    #[inline]
    pub(crate) fn take(&self, into: &mut [u32]) -> usize {
        self.depot.take(into)
    }

    /// Takes a run from this thread's cache; false, and nothing taken, if that has none.
    #[inline(always)]
    pub(crate) fn take_run(&self, into: &mut [u32; RUN]) -> bool {
        self.depot.take_run(into)
    }

    #[inline(always)]
    pub(crate) fn give(&self, buffers: &[u32]) {
        let given = <&[u32; RUN]>::try_from(buffers).is_ok_and(|run| self.depot.give_run(run));
        if !given {
            self.depot.give(buffers);
        }
    }

    /// Returns one buffer.
    #[inline]
    pub(crate) fn give_one(&self, buffer: u32) {
        self.depot.give_one(buffer);
    }

    #[inline]
    pub(crate) fn link(&self, index: u32) -> Link {
        let word = match self.links.get(index as usize) {
            Some(link) => link.load(Ordering::Relaxed),
            None => u64::from(NO_BUFFER),
        };
        Link {
            next: word as u32,
            offset: (word >> 32) as u16,
            length: (word >> 48) as u16,
        }
    }

    #[inline]
    pub(crate) fn set_link(&self, index: u32, link: Link) {
        if let Some(place) = self.links.get(index as usize) {
            let word =
                u64::from(link.next) | u64::from(link.offset) << 32 | u64::from(link.length) << 48;
            place.store(word, Ordering::Relaxed);
        }
    }

    /// One more handle to the packet that begins in a buffer.
    pub(crate) fn add_share(&self, index: u32) {
        if let Some(shares) = self.shares.get(index as usize) {
            shares.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// One handle less; true if it was the last one.
    pub(crate) fn drop_share(&self, index: u32) -> bool {
        let Some(shares) = self.shares.get(index as usize) else {
            return true;
        };
        // Zero means that this handle is the only one: no other thread can change that.
        if shares.load(Ordering::Acquire) == 0 {
            return true;
        }
        let before = shares.fetch_sub(1, Ordering::AcqRel);
        if before == 0 {
            // The other handle went between the two: this one was the last.
            shares.store(0, Ordering::Relaxed);
            return true;
        }
        false
    }

    /// One handle less to the packet that begins in a buffer, and whose first link has been set. Of
    /// the last one, its buffers go back.
    #[cold]
    pub(crate) fn give_share(&self, first: u32) {
        if self.drop_share(first) {
            self.give_chain(first, self.link(first).next);
        }
    }

    /// Buffers of such a packet.
    #[cold]
    pub(crate) fn count_chain(&self, first: u32) -> usize {
        let next = |buffer: &u32| Some(self.link(*buffer).next).filter(|next| *next != NO_BUFFER);
        // Bounded for any links, as in `give_rest`.
        let most = self.settings.buffers as usize;
        std::iter::successors(Some(first), next).take(most).count()
    }

    /// True if there is one handle only.
    pub(crate) fn is_sole(&self, index: u32) -> bool {
        let shares = self.shares.get(index as usize);
        shares.is_none_or(|shares| shares.load(Ordering::Acquire) == 0)
    }

    /// Frees a chain: `index`, and the buffers from `next` on.
    #[inline]
    pub(crate) fn give_chain(&self, index: u32, next: u32) {
        if next == NO_BUFFER {
            return self.give_one(index);
        }
        self.give_rest(index, next);
    }

    #[cold]
    fn give_rest(&self, index: u32, mut next: u32) {
        // Bounded for any links: no chain is longer than the number of buffers.
        for _ in 0..self.settings.buffers {
            if next == NO_BUFFER {
                break;
            }
            let after = self.link(next).next;
            self.give(&[next]);
            next = after;
        }
        self.give(&[index]);
    }

    /// Free buffers that no magazine holds.
    #[cfg(test)]
    pub(crate) fn strays(&self) -> usize {
        self.depot.strays()
    }

    pub(crate) fn in_use(&self) -> u64 {
        self.depot.in_use()
    }

    /// The device may write to buffers of this pool until it is reset: the memory is not reused.
    pub(crate) fn abandon(&self) {
        self.abandoned.store(true, Ordering::Release);
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        if let Some(memory) = self.memory.take()
            && self.abandoned.load(Ordering::Acquire)
        {
            memory.leak();
        }
    }
}
