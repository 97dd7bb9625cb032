//! The places of a queue pair of a shared receive queue: memory of the library that messages are
//! received into.

use crate::device::Port;
use crate::errno;
use ringside_bus::Memory;
use ringside_pmd::rdma::{Access, MemoryRegion, ProtectionDomain, SharedReceiveQueue};
use std::ffi::c_int;
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicBool, Ordering};

/// The fewest and the most places of a queue pair, unless they would need too much memory. It has
/// as many as receives can be posted, within these. While none is free, the peer of a connection
/// waits, and a datagram is lost.
const PLACES: RangeInclusive<u32> = 128..=4096;
/// Bytes of a place for a datagram: the longest one, and the header before it.
const DATAGRAM_BYTES: usize = 4096 + 40;
/// Bytes of a place that stay in memory once they were used, on a model.
const KEPT_BYTES: usize = 512 << 10;

/// Limits of the places of a queue pair with a connection.
pub(super) struct Limits {
    /// bytes of a place of few, and of one of as many as there can be, unless the program posts
    /// longer receives first
    place_bytes: RangeInclusive<usize>,
    /// bytes of all places
    all_bytes: usize,
    /// The longest receives that are copied. Longer ones are given to the queue pairs.
    pub(super) longest: usize,
}

/// A card's places are pinned.
const ON_A_CARD: Limits = Limits {
    place_bytes: 64 << 10..=64 << 10,
    all_bytes: 4 << 20,
    longest: 1 << 20,
};
/// A model's take the memory that messages have used. Not so in a process that may have few
/// addresses.
const ON_A_MODEL: Limits = Limits {
    place_bytes: 1 << 20..=8 << 20,
    all_bytes: 4 << 30,
    longest: 8 << 20,
};

impl Limits {
    /// Bytes of a place where so many receives can be posted, unless longer ones are posted first.
    pub(super) fn place_bytes(&self, receives: u32) -> usize {
        let share = self.all_bytes / places(receives) as usize;
        let whole = 1 << share.max(1).ilog2();
        whole.clamp(*self.place_bytes.start(), *self.place_bytes.end())
    }
}

pub(super) fn limits(port: &Port) -> &'static Limits {
    if port.is_model && !has_little_room() {
        &ON_A_MODEL
    } else {
        &ON_A_CARD
    }
}

/// True once the kernel has refused the addresses of a model's places, as it does to programs that
/// lock more memory than they may.
static WAS_REFUSED: AtomicBool = AtomicBool::new(false);

/// True if the process may not have any number of addresses (`ulimit -v`): some queue pairs with a
/// model's places would take all of them.
fn has_little_room() -> bool {
    let mut limit = libc::rlimit {
        rlim_cur: libc::RLIM_INFINITY,
        rlim_max: libc::RLIM_INFINITY,
    };
    // SAFETY: a live place.
    unsafe { libc::getrlimit(libc::RLIMIT_AS, &raw mut limit) };
    limit.rlim_cur != libc::RLIM_INFINITY || WAS_REFUSED.load(Ordering::Relaxed)
}

/// Places that the receive queue of a queue pair has room for.
pub(crate) fn places(receives: u32) -> u32 {
    receives.clamp(*PLACES.start(), *PLACES.end())
}

/// The queue pair that places are made for.
#[derive(Clone, Copy)]
pub(super) struct Wanted {
    /// receives that can be posted
    pub(super) receives: u32,
    /// bytes of the longest receive posted so far
    pub(super) longest: usize,
    pub(super) is_datagram: bool,
}

impl Wanted {
    /// Number and bytes of the places.
    fn sizes(self, port: &Port) -> (usize, usize) {
        let count = places(self.receives) as usize;
        if self.is_datagram {
            return (count, DATAGRAM_BYTES);
        }
        let limits = limits(port);
        let usual = limits.place_bytes(self.receives);
        let bytes = self.longest.next_power_of_two().max(usual);
        (count.min((limits.all_bytes / bytes).max(1)), bytes)
    }
}

/// The places of a queue pair.
pub(super) struct Places {
    pub(super) region: MemoryRegion,
    /// its memory, if pages are given back after long messages
    sparse: Option<Memory>,
    pub(super) bytes: usize,
    pub(super) count: usize,
    /// those that the queue pair does not have in its receive queue
    pub(super) idle: Vec<u64>,
    /// differs after each reset of the queue pair
    pub(super) generation: u64,
}

impl Places {
    /// Makes the places of a queue pair; fewer and shorter ones, as on a card, where the process
    /// may not have as much memory as on a model. Errors: an errno value.
    pub(super) fn make(
        port: &Port,
        domain: &ProtectionDomain,
        wanted: Wanted,
        generation: u64,
    ) -> Result<Self, c_int> {
        match Self::of_sizes(port, domain, wanted.sizes(port), generation) {
            Err(libc::ENOMEM | libc::EAGAIN) if port.is_model && !has_little_room() => {
                WAS_REFUSED.store(true, Ordering::Relaxed);
                Self::of_sizes(port, domain, wanted.sizes(port), generation)
            }
            made => made,
        }
    }

    fn of_sizes(
        port: &Port,
        domain: &ProtectionDomain,
        (count, bytes): (usize, usize),
        generation: u64,
    ) -> Result<Self, c_int> {
        let length = count * bytes;
        let sparse = match port.is_model && bytes > KEPT_BYTES {
            true => Some(Memory::sparse(length).map_err(|error| errno::of(&error.into()))?),
            false => None,
        };
        let device = port.device()?;
        let memory = match &sparse {
            Some(memory) => {
                let mapped = device.map_memory(memory.clone());
                mapped.map_err(|refused| refused.error)
            }
            None => device.allocate(length),
        };
        let memory = memory.map_err(|error| errno::of(&error))?;
        let region = domain.register(memory, Access::LOCAL_READ | Access::LOCAL_WRITE);
        Ok(Self {
            region: region.map_err(|refused| errno::of(&refused.error))?,
            sparse,
            bytes,
            count,
            idle: (0..count as u64).rev().collect(),
            generation,
        })
    }

    /// A message was copied: its place is free, and pages of a long one are given back.
    pub(super) fn free(&mut self, place: u64, message_bytes: usize) {
        if message_bytes > KEPT_BYTES
            && let Some(memory) = &self.sparse
        {
            let begin = place as usize * self.bytes;
            memory.discard(begin + KEPT_BYTES..begin + self.bytes);
        }
        self.idle.push(place);
    }

    /// Lends the queue pair the places that it does not have, as far as its receive queue has room.
    /// It never has more than `most`.
    pub(super) fn lend(&mut self, number: u32, queue: &mut SharedReceiveQueue, most: usize) {
        let spare = self.count.saturating_sub(most);
        while self.idle.len() > spare
            && let Some(&place) = self.idle.last()
        {
            let begin = place as usize * self.bytes;
            let Ok(piece) = self.region.slice(begin..begin + self.bytes) else {
                return;
            };
            if !queue.lend(number, place, piece) {
                return;
            }
            self.idle.pop();
        }
    }
}
