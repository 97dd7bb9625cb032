//! Slices of a region that are lent to requests: each belongs to the program or to one request, and
//! comes back with the request's completion.
//!
//! [`MemoryRegion::slice`] names bytes for a request and leaves it to the program not to touch them
//! until the request has completed. A program that wants the compiler to see to that divides a
//! region into [`OwnedSlice`]s: a request takes one by value, and [`Lender::take`] gives it back
//! for the completion. The other calls do not know of it, and cost nothing more.
//!
//! ```
//! use ringside::lending::{Lender, OwnedSlice};
//! use ringside::prelude::*;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let config = Config::default();
//! # let (left, right) = (ringside::open("model:0", &config)?, ringside::open("model:1", &config)?);
//! # let (domain, peer_domain) = (left.protection_domain()?, right.protection_domain()?);
//! # let (mut completions, mut peer_completions) = (left.completion_queue(16)?, right.completion_queue(16)?);
//! # let near = domain.queue_pair(QueuePairConfig::reliable(&completions))?;
//! # let far = peer_domain.queue_pair(QueuePairConfig::reliable(&peer_completions))?;
//! # let (here, there) = (near.endpoint(), far.endpoint());
//! # let (mut near, mut far) = (near.connect(&there)?, far.connect(&here)?);
//! let region = domain.register(left.map_memory(vec![0; 4096])?, Access::LOCAL_READ)?;
//! let slice = OwnedSlice::whole(region)?;
//! # let peer = peer_domain.register(right.allocate(4096)?, Access::LOCAL_WRITE)?;
//! # far.receive(1, &[peer.slice(0..4096)?])?;
//! let (mut head, _rest) = slice.split_at(64)?;
//! assert!(head.write(0, b"hello"));
//! let mut lender = Lender::with_room(16);
//! lender.send(&mut near, 7, head, Flags::NONE)?;
//! // `head` is gone until the request has completed.
//! near.ring();
//! let mut batch = [Completion::EMPTY; 8];
//! let head = loop {
//!     if let Some(done) = completions.poll(&mut batch).first() {
//!         break lender.take(done).expect("the slice of request 7");
//!     }
//! };
//! assert_eq!(head.length(), 64);
//! # Ok(())
//! # }
//! ```

use ringside_bus::DeviceAddress;
use ringside_pmd::rdma::{
    Access, Completion, Connected, Flags, Fragment, MemoryRegion, PostError, QueuePair,
    RemoteAddress, SliceError,
};
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

/// Bytes of a region that have one owner. The region is deregistered once all of its slices are
/// dropped.
#[derive(Debug)]
pub struct OwnedSlice {
    region: Arc<MemoryRegion>,
    range: Range<usize>,
}

/// A region that peers reach by its keys: a slice of it would have more than one user.
#[derive(Debug, thiserror::Error)]
#[error(
    "the region lets peers in, or windows to it: register it with LOCAL_READ or LOCAL_WRITE only"
)]
pub struct Reachable {
    /// The region, unchanged.
    pub region: Box<MemoryRegion>,
}

/// The place of a division is outside the slice.
#[derive(Debug, thiserror::Error)]
#[error("a slice of {length} bytes cannot be divided at {at}")]
pub struct Outside {
    /// The requested place.
    pub at: usize,
    /// Bytes of the slice.
    pub length: usize,
    /// The slice, unchanged.
    pub slice: OwnedSlice,
}

impl OwnedSlice {
    /// All bytes of a region, which is used through its slices only from now on.
    ///
    /// Errors: [`Reachable`] for a region that is registered for peers or windows.
    pub fn whole(region: MemoryRegion) -> Result<Self, Reachable> {
        let outsiders = [
            Access::REMOTE_READ,
            Access::REMOTE_WRITE,
            Access::BIND_WINDOW,
        ];
        let access = region.access();
        if outsiders.into_iter().any(|one| access.contains(one)) {
            let region = Box::new(region);
            return Err(Reachable { region });
        }
        let range = 0..region.length();
        let region = Arc::new(region);
        Ok(Self { region, range })
    }

    /// Bytes.
    #[must_use]
    pub fn length(&self) -> usize {
        self.range.len()
    }

    /// Divides it into its first `at` bytes and the rest.
    ///
    /// Errors: [`Outside`], with the slice.
    pub fn split_at(self, at: usize) -> Result<(Self, Self), Outside> {
        let length = self.length();
        if at > length {
            return Err(Outside {
                at,
                length,
                slice: self,
            });
        }
        let middle = self.range.start + at;
        let first = Self {
            region: Arc::clone(&self.region),
            range: self.range.start..middle,
        };
        let rest = Self {
            region: self.region,
            range: middle..self.range.end,
        };
        Ok((first, rest))
    }

    /// Copies bytes into it, from `offset` on; false if they do not fit, and it is then unchanged.
    #[must_use]
    pub fn write(&mut self, offset: usize, from: &[u8]) -> bool {
        match self.place(offset, from.len()) {
            Some(at) => self.region.write(at, from),
            None => false,
        }
    }

    /// Copies bytes of it, from `offset` on; false if it has fewer, and `into` is then unchanged.
    #[must_use]
    pub fn read(&self, offset: usize, into: &mut [u8]) -> bool {
        match self.place(offset, into.len()) {
            Some(at) => self.region.read(at, into),
            None => false,
        }
    }

    /// The place in the region of so many bytes from `offset` on.
    fn place(&self, offset: usize, length: usize) -> Option<usize> {
        let end = offset.checked_add(length)?;
        (end <= self.length()).then_some(self.range.start + offset)
    }

    fn fragment(&self) -> Result<Fragment, SliceError> {
        self.region.slice(self.range.clone())
    }
}

/// The reason why a request was not posted with a slice.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// The lender holds as many slices as it has room for.
    #[error("{room} slices are lent: take those of completed requests first")]
    Full {
        /// Its room.
        room: usize,
    },
    /// A request of this queue pair with the same id has a slice already.
    #[error("request {id} has a slice: choose another id, or take its completion first")]
    Duplicate {
        /// The id.
        id: u64,
    },
    /// The lender serves another device, and completions name queue pairs by numbers, which both
    /// devices have.
    #[error("the lender serves queue pairs of {lent_to}: use another one for {given}")]
    ForeignDevice {
        /// The device whose queue pairs have slices.
        lent_to: Box<DeviceAddress>,
        /// The device of the queue pair.
        given: Box<DeviceAddress>,
    },
    /// The slice is too long for a request.
    #[error(transparent)]
    Slice(#[from] SliceError),
    /// The queue pair refused the request.
    #[error(transparent)]
    Post(#[from] PostError),
}

/// A request that was not posted, with its slice.
#[derive(Debug, thiserror::Error)]
#[error("nothing was lent: {refusal}")]
pub struct NotLent {
    /// The reason.
    #[source]
    pub refusal: Refusal,
    /// The slice, which is the program's again.
    pub slice: OwnedSlice,
}

/// A request: number of the queue pair, true for a send, id.
type Key = (u32, bool, u64);

/// The slices that requests have. One for the queue pairs of a thread and a device, with a fixed
/// room.
///
/// A queue pair that is destroyed reports no more completions, and a later queue pair can have its
/// number. Call [`Lender::forget`] after each destruction: until then the slices of the requests
/// that were outstanding take up room, and a request of the later queue pair with the same id is a
/// [`Refusal::Duplicate`], or its completion gives back the slice of the former request.
#[derive(Debug)]
pub struct Lender {
    lent: HashMap<Key, OwnedSlice>,
    room: usize,
    /// the device that had the first slice
    device: Option<DeviceAddress>,
}

/// The largest room that memory is allocated for before it is used.
const MAX_PREPARED: usize = 1 << 20;

impl Lender {
    /// A lender of at most `room` slices at a time. Lending and taking allocate nothing, up to a
    /// million slices. Now and then lending puts the table in order, which takes longer the larger
    /// the room is.
    #[must_use]
    pub fn with_room(room: usize) -> Self {
        // Places of removed entries are not all free at once. A table that is at most half full
        // frees them in place; a fuller one would allocate a larger table.
        let capacity = room.min(MAX_PREPARED).saturating_mul(2);
        Self {
            lent: HashMap::with_capacity(capacity),
            room,
            device: None,
        }
    }

    /// Slices that requests have.
    #[must_use]
    pub fn lent(&self) -> usize {
        self.lent.len()
    }

    /// Posts a receive into the slice.
    ///
    /// Errors: [`NotLent`], with the slice.
    pub fn receive(
        &mut self,
        queue_pair: &mut QueuePair<Connected>,
        id: u64,
        slice: OwnedSlice,
    ) -> Result<(), NotLent> {
        self.lend(queue_pair, (false, id), slice, |queue_pair, piece| {
            queue_pair.receive(id, &[piece])
        })
    }

    /// Posts a send of the slice. It is signalled with any `flags`, since its completion brings
    /// the slice back. Ring the queue pair's doorbell as after other posts.
    ///
    /// Errors: [`NotLent`], with the slice.
    pub fn send(
        &mut self,
        queue_pair: &mut QueuePair<Connected>,
        id: u64,
        slice: OwnedSlice,
        flags: Flags,
    ) -> Result<(), NotLent> {
        let flags = flags | Flags::SIGNALLED;
        self.lend(queue_pair, (true, id), slice, |queue_pair, piece| {
            queue_pair.send(id, &[piece], flags)
        })
    }

    /// Posts an RDMA write of the slice, as [`Lender::send`] posts a send.
    ///
    /// Errors: [`NotLent`], with the slice.
    pub fn write(
        &mut self,
        queue_pair: &mut QueuePair<Connected>,
        id: u64,
        slice: OwnedSlice,
        to: RemoteAddress,
        flags: Flags,
    ) -> Result<(), NotLent> {
        let flags = flags | Flags::SIGNALLED;
        self.lend(queue_pair, (true, id), slice, |queue_pair, piece| {
            queue_pair.write(id, &[piece], to, flags)
        })
    }

    /// Posts an RDMA read into the slice, as [`Lender::send`] posts a send.
    ///
    /// Errors: [`NotLent`], with the slice.
    pub fn read(
        &mut self,
        queue_pair: &mut QueuePair<Connected>,
        id: u64,
        slice: OwnedSlice,
        from: RemoteAddress,
        flags: Flags,
    ) -> Result<(), NotLent> {
        let flags = flags | Flags::SIGNALLED;
        self.lend(queue_pair, (true, id), slice, |queue_pair, piece| {
            queue_pair.read(id, &[piece], from, flags)
        })
    }

    /// Gives back the slice of a request that has completed, with any status; `None` if it has none
    /// here, as for a receive that outlives its queue pair.
    pub fn take(&mut self, done: &Completion) -> Option<OwnedSlice> {
        // Another queue pair may have the number.
        if done.outlives_queue_pair() {
            return None;
        }
        self.lent
            .remove(&(done.queue_pair(), done.is_send(), done.id))
    }

    /// Gives back the slices of a queue pair that is destroyed, in no order: its outstanding
    /// requests do not complete. `queue_pair` is the number that it had ([`QueuePair::number`]).
    ///
    /// Call it after [`QueuePair::destroy`], or after the queue pair is dropped, and before its
    /// number can be that of another one. Before the destruction the device may still use the
    /// bytes. If the destruction failed, it may do so until it is reset: drop the slices then.
    pub fn forget(&mut self, queue_pair: u32) -> Vec<OwnedSlice> {
        let of_it = self.lent.extract_if(|key, _| key.0 == queue_pair);
        of_it.map(|(_, slice)| slice).collect()
    }

    fn lend(
        &mut self,
        queue_pair: &mut QueuePair<Connected>,
        (is_send, id): (bool, u64),
        slice: OwnedSlice,
        post: impl FnOnce(&mut QueuePair<Connected>, Fragment) -> Result<(), PostError>,
    ) -> Result<(), NotLent> {
        let key = (queue_pair.number(), is_send, id);
        let posted = self
            .check_device(queue_pair.device_address())
            .and_then(|()| self.check(key, &slice))
            .and_then(|piece| Ok(post(queue_pair, piece)?));
        match posted {
            Ok(()) => {
                self.device
                    .get_or_insert_with(|| queue_pair.device_address().clone());
                self.lent.insert(key, slice);
                Ok(())
            }
            Err(refusal) => Err(NotLent { refusal, slice }),
        }
    }

    fn check_device(&self, given: &DeviceAddress) -> Result<(), Refusal> {
        match &self.device {
            Some(device) if device != given => Err(Refusal::ForeignDevice {
                lent_to: Box::new(device.clone()),
                given: Box::new(given.clone()),
            }),
            _ => Ok(()),
        }
    }

    fn check(&self, key: Key, slice: &OwnedSlice) -> Result<Fragment, Refusal> {
        if self.lent.contains_key(&key) {
            return Err(Refusal::Duplicate { id: key.2 });
        }
        if self.lent.len() >= self.room {
            return Err(Refusal::Full { room: self.room });
        }
        Ok(slice.fragment()?)
    }
}
