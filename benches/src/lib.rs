//! Code that the benchmarks of the data path share: a queue pair and its completion queue in
//! ordinary memory, and a consumer that only writes completions.
//!
//! No device or model takes part in this module, so its figures cover posting and polling alone.
//! `connected` has two devices on one model; `lan` takes only the function that maps memory from
//! it.
#![forbid(unsafe_code)]

#[cfg(feature = "devices")]
pub mod connected;
#[cfg(feature = "lan")]
pub mod lan;
pub mod many;

use ringside_bus::{Doorbell, Memory, MemoryError, PageSize, Words};
use ringside_cq::{AttachError, Completion, CompletionQueue, QueueError, Sides};
use ringside_qp::request::Payload;
use ringside_qp::{
    CompletionContext, Fragment, PostReceiveError, PostSendError, QueuePairState, Read,
    ReceiveQueue, RingError, Send, SendDatagram, SendFlags, SendKind, SendQueue, SharedReceives,
    Write, WriteInline,
};
use ringside_spec::verbs::completion::CompletionHeader;
use ringside_spec::verbs::{CompletionElement, QueueSide};
use std::hint::black_box;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Quanta of the send ring, slots of the completion ring.
const RING: usize = 512;

/// Posts of a chain.
pub const CHAIN: usize = 32;

/// Number of the queue pair.
const NUMBER: u32 = 7;

/// Reasons why a rig could not be set up.
#[derive(Debug)]
pub struct RigError(String);

impl std::fmt::Display for RigError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for RigError {}

impl From<String> for RigError {
    fn from(text: String) -> Self {
        Self(text)
    }
}

macro_rules! from_error {
    ($($error:ty),*) => { $(
        impl From<$error> for RigError {
            fn from(error: $error) -> Self {
                Self(error.to_string())
            }
        }
    )* };
}
from_error!(
    MemoryError,
    RingError,
    QueueError,
    AttachError,
    PostReceiveError
);

/// A queue pair, its completion queue, and the consumer.
pub struct Rig {
    /// The posting side of requests.
    pub send: SendQueue,
    /// The polling side of completions.
    pub queue: CompletionQueue,
    consumer: Consumer,
    batch: [Completion; CHAIN],
    fragment: Fragment,
    remote_address: u64,
    remote_key: u32,
}

/// Replaces the device: writes the next completion where the device would.
///
/// Every request of the benchmarks takes one quantum, and both rings have the same length, so the
/// next request to complete has the index of the next completion.
struct Consumer {
    ring: Words,
    /// Words of a success without its index and valid bit.
    plain: [u64; 4],
    written: usize,
}

impl Consumer {
    fn new(ring: Words, context: CompletionContext, side: QueueSide) -> Self {
        let element = CompletionElement::success(side, context.0, NUMBER, 0);
        Self {
            ring,
            plain: element.encode(false),
            written: 0,
        }
    }

    /// Writes a successful completion of the oldest request, valid bit last.
    #[inline]
    fn complete(&mut self) {
        let index = self.written % RING;
        let [length, context, source, header] = self.plain;
        let header = CompletionHeader(header)
            .with_element_index(index as u64)
            .with_valid(self.written & RING == 0);
        let (slots, _) = self.ring.as_slice().as_chunks::<4>();
        if let Some(slot) = slots.get(index) {
            slot[0].store(length, Ordering::Relaxed);
            slot[1].store(context, Ordering::Relaxed);
            slot[2].store(source, Ordering::Relaxed);
            slot[3].store(header.0, Ordering::Release);
        }
        self.written += 1;
    }
}

fn words(count: usize) -> Result<Words, RigError> {
    let length = (count * 8).max(4096);
    let memory = Memory::allocate(length, PageSize::FourKiB, None)?;
    memory
        .words(0, count * 8)
        .ok_or_else(|| RigError(format!("{count} words do not fit {length} bytes")))
}

impl Rig {
    /// Makes an empty rig with everything allocated. Its doorbell is a page of memory, as with a
    /// model in this process.
    pub fn new() -> Result<Self, RigError> {
        let page = Memory::allocate(4096, PageSize::FourKiB, None)?;
        let doorbell = Doorbell::mapped(&page, 0);
        Self::with(doorbell.ok_or_else(|| RigError("no doorbell at offset 0".to_owned()))?)
    }

    /// Makes a rig with a doorbell of the VFIO backend, in registers mapped from a descriptor. The
    /// descriptor is a memory file, which takes the same store as a card.
    pub fn over_vfio() -> Result<Self, RigError> {
        let system = |error: rustix::io::Errno| RigError(error.to_string());
        let name = "registers";
        let file = rustix::fs::memfd_create(name, rustix::fs::MemfdFlags::CLOEXEC);
        let file = file.map_err(system)?;
        rustix::fs::ftruncate(&file, 4096).map_err(system)?;
        Self::with(Doorbell::in_page_of(file.as_fd(), 0).map_err(system)?)
    }

    fn with(doorbell: Doorbell) -> Result<Self, RigError> {
        let context = CompletionContext::new(3, 1);
        let state = Arc::new(QueuePairState::new(context, NUMBER, RING as u32, 8, 0));
        let ring = words(RING * 4)?;
        let mut queue = CompletionQueue::new(ring.clone(), words(8)?, 16)?;
        queue.attach(Arc::clone(&state), Sides::Both)?;
        let consumer = Consumer::new(ring, context, QueueSide::Send);
        Ok(Self {
            send: SendQueue::new(words(RING * 4)?, doorbell, state)?,
            queue,
            consumer,
            batch: [Completion::EMPTY; CHAIN],
            fragment: black_box(Fragment {
                address: 0x7000_0000,
                length_bytes: 8,
                steering_tag: 0x100,
            }),
            remote_address: black_box(0x8000_0000),
            remote_key: black_box(0x200),
        })
    }

    /// Posts an RDMA write of 8 bytes from a registered buffer.
    #[inline]
    pub fn post_write(&mut self, id: u64, flags: SendFlags) -> Result<(), PostSendError> {
        let request = Write {
            fragments: std::slice::from_ref(&self.fragment),
            remote_address: self.remote_address,
            remote_key: self.remote_key,
            immediate: None,
        };
        self.send.post(id, &request, flags)
    }

    /// Posts an RDMA write of 8 bytes that travel in the element.
    #[inline]
    pub fn post_write_inline(&mut self, id: u64, flags: SendFlags) -> Result<(), PostSendError> {
        let data = id.to_le_bytes();
        let request = WriteInline {
            data: &data,
            remote_address: self.remote_address,
            remote_key: self.remote_key,
            immediate: None,
        };
        self.send.post(id, &request, flags)
    }

    /// Posts a send of 8 bytes from a registered buffer.
    #[inline]
    pub fn post_send(&mut self, id: u64, flags: SendFlags) -> Result<(), PostSendError> {
        let request = Send {
            fragments: std::slice::from_ref(&self.fragment),
            kind: SendKind::Plain,
        };
        self.send.post(id, &request, flags)
    }

    /// Posts an RDMA read of 8 bytes.
    #[inline]
    pub fn post_read(&mut self, id: u64, flags: SendFlags) -> Result<(), PostSendError> {
        let request = Read {
            fragments: std::slice::from_ref(&self.fragment),
            remote_address: self.remote_address,
            remote_key: self.remote_key,
            invalidate_local: false,
        };
        self.send.post(id, &request, flags)
    }

    /// Posts a datagram of 8 bytes.
    #[inline]
    pub fn post_datagram(&mut self, id: u64, flags: SendFlags) -> Result<(), PostSendError> {
        let request = SendDatagram {
            payload: Payload::Fragments(std::slice::from_ref(&self.fragment)),
            immediate: None,
            address_handle: 5,
            destination: self.remote_key,
            queue_key: 0x1234,
        };
        self.send.post(id, &request, flags)
    }

    /// Posts an RDMA write gathered from five fragments.
    #[inline]
    pub fn post_wide_write(&mut self, id: u64, flags: SendFlags) -> Result<(), PostSendError> {
        let request = Write {
            fragments: &[self.fragment; 5],
            remote_address: self.remote_address,
            remote_key: self.remote_key,
            immediate: None,
        };
        self.send.post(id, &request, flags)
    }

    /// Frees all places without completions.
    pub fn retire_all(&mut self) {
        let state = self.send.state();
        state.send.retire_to(state.send.head());
    }

    /// Lets the consumer complete the oldest `count` requests.
    #[inline]
    pub fn complete(&mut self, count: usize) {
        for _ in 0..count {
            self.consumer.complete();
        }
    }

    /// Polls once, for at most a chain's completions.
    #[inline]
    pub fn poll(&mut self) -> usize {
        self.queue.poll(&mut self.batch)
    }
}

impl Rig {
    /// Polls once, for one completion.
    #[inline]
    pub fn poll_one(&mut self) -> bool {
        let [place, ..] = &mut self.batch;
        self.queue.poll_one(place)
    }
}

/// A completion queue for receives, and the consumer.
struct Received {
    queue: CompletionQueue,
    consumer: Consumer,
    batch: [Completion; CHAIN],
    fragment: Fragment,
}

impl Received {
    fn new() -> Result<(Self, ReceiveQueue), RigError> {
        let context = CompletionContext::new(3, 1);
        let state = QueuePairState::new(context, NUMBER, 64, RING as u32, 0);
        let state = Arc::new(state);
        let ring = words(RING * 4)?;
        let mut queue = CompletionQueue::new(ring.clone(), words(8)?, 16)?;
        queue.attach(Arc::clone(&state), Sides::Both)?;
        let received = Self {
            queue,
            consumer: Consumer::new(ring, context, QueueSide::Receive),
            batch: [Completion::EMPTY; CHAIN],
            fragment: black_box(Fragment {
                address: 0x7000_0000,
                length_bytes: 8,
                steering_tag: 0x100,
            }),
        };
        Ok((received, ReceiveQueue::new(words(RING * 4)?, state)?))
    }
}

/// A queue pair with its own receive queue.
pub struct OwnReceives {
    receives: ReceiveQueue,
    received: Received,
}

impl OwnReceives {
    /// Makes a rig with 16 receives posted.
    pub fn new() -> Result<Self, RigError> {
        let (received, receives) = Received::new()?;
        let mut rig = Self { receives, received };
        for id in 0..16 {
            rig.receives.post(id, &[rig.received.fragment])?;
        }
        Ok(rig)
    }

    /// Completes a receive, polls it, and posts another.
    #[inline(always)]
    pub fn turn(&mut self, id: u64) -> usize {
        let Received {
            queue,
            consumer,
            batch,
            fragment,
        } = &mut self.received;
        consumer.complete();
        let count = queue.poll(batch);
        // A user reads each completion.
        for done in batch.get(..count).unwrap_or(&[]) {
            black_box(done.id);
        }
        count
            - usize::from(
                self.receives
                    .post(id, std::slice::from_ref(fragment))
                    .is_err(),
            )
    }
}

/// A receive queue that is fed from a pool.
pub struct PooledReceives {
    receives: SharedReceives,
    received: Received,
}

impl PooledReceives {
    /// Makes a rig with 64 receives posted, in windows of 16.
    pub fn new() -> Result<Self, RigError> {
        let (received, own) = Received::new()?;
        let mut receives = SharedReceives::new(256, 1, 16);
        let added = receives.add(NUMBER, own, 16);
        added.map_err(|(error, _)| RigError(error.to_string()))?;
        let mut rig = Self { receives, received };
        for id in 0..64 {
            rig.receives.post(id, &[rig.received.fragment])?;
        }
        Ok(rig)
    }

    /// As [`OwnReceives::turn`].
    #[inline(always)]
    pub fn turn(&mut self, id: u64) -> usize {
        let Received {
            queue,
            consumer,
            batch,
            fragment,
        } = &mut self.received;
        consumer.complete();
        let count = queue.poll(batch);
        for done in batch.get(..count).unwrap_or(&[]) {
            if done.is_received() {
                self.receives.consumed(done.queue_pair());
            }
            black_box(done.id);
        }
        count
            - usize::from(
                self.receives
                    .post(id, std::slice::from_ref(fragment))
                    .is_err(),
            )
    }
}
