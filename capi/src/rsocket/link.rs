//! The queue pair of a connection with its memory: posts, completions, and their reports.

mod endpoint;

use super::flow::{Incoming, Outgoing, Overrun, Part};
use super::gather::Gather;
use super::memory::Buffer;
use super::wire::{
    Greeting, MAPPING_BYTES, Mapping, Message, TARGET_BYTES, TARGETS, Target, scaled, unscaled,
};
use crate::abi::{ibv_mr, ibv_sge, ibv_wc, send_flags, status};
use crate::cm::abi::rdma_cm_id;
use crate::completion::poll_cq;
use crate::completion_events::{ibv_ack_cq_events, ibv_get_cq_event, req_notify_cq};
use crate::memory::ibv_dereg_mr;
pub(super) use endpoint::Sizes;
use endpoint::{Endpoint, RECEIVE};
use std::collections::VecDeque;
use std::ffi::c_int;

/// The most bytes that a request holds itself: options ask for no more.
const MAX_INLINE_BYTES: usize = ringside_spec::rdma::limits::MAX_INLINE_BYTES as usize;
/// Completions that are taken at a time.
const BATCH: usize = 16;
/// Requests that use no bytes of the send buffer have one of these numbers.
const CONTROL: u64 = 1 << 62;
const PROBE: u64 = 1 << 61;
const DISCONNECT: u64 = CONTROL | 1;

/// The results of completions, besides the accounts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum News {
    /// the peer sends no more
    Shutdown,
    /// the connection is at its end, by the peer or by this side
    Disconnect,
    /// it failed, with an errno value
    Failed(c_int),
}

impl News {
    /// The news after one more. News after the end of the peer's data replace that; news after the
    /// end of the connection are its consequences, and are dropped.
    pub(super) fn later(before: Option<Self>, news: Self) -> Self {
        match before {
            None | Some(Self::Shutdown) => news,
            Some(ended) => ended,
        }
    }
}

/// A registered buffer of the program.
pub(super) struct Mapped {
    pub(super) region: *mut ibv_mr,
    pub(super) mapping: Mapping,
    /// entry of the peer's list; nothing for a buffer that only this side uses
    pub(super) index: Option<u16>,
}

impl Mapped {
    /// Takes the buffer from the device. Errors: those of `ibv_dereg_mr`; it is as it was.
    pub(super) fn deregister(&mut self) -> Result<(), c_int> {
        if self.region.is_null() {
            return Ok(());
        }
        // SAFETY: registered by the socket, and named by no one else.
        match unsafe { ibv_dereg_mr(self.region) } {
            0 => {
                self.region = std::ptr::null_mut();
                Ok(())
            }
            error => Err(error),
        }
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // One that the device keeps stays registered.
        let _ = self.deregister();
    }
}

/// A connection's queue pair with its memory. Only used under the socket's lock.
pub(super) struct Link {
    // The first field goes first: the device stops before its memory goes.
    endpoint: Endpoint,
    sizes: Sizes,
    send_buffer: Buffer,
    receive_buffer: Buffer,
    /// target entries, then the list of mappings
    list: Buffer,
    outgoing: Outgoing,
    pub(super) incoming: Incoming,
    peer: Option<Greeting>,
    /// entry of the peer's list that is written next
    peer_entry: u32,
    /// the program's buffers
    pub(super) mapped: Vec<Mapped>,
    /// indices into the peer's list that were not sent to it yet
    pub(super) untold: VecDeque<u16>,
    is_armed: bool,
    is_probing: bool,
}

impl Link {
    /// Makes queue pair and memory for an id with a route. Errors: an errno value.
    ///
    /// # Safety
    /// `id` is an id of this library without a queue pair, and outlives the link.
    pub(super) unsafe fn make(id: *mut rdma_cm_id, sizes: Sizes) -> Result<Self, c_int> {
        let list = TARGETS * TARGET_BYTES + usize::from(sizes.mappings) * MAPPING_BYTES;
        // SAFETY: the caller's promise; an id has a protection domain with its route.
        let made = unsafe {
            let endpoint = Endpoint::make(id, &sizes)?;
            let domain = (*id).pd;
            Self {
                endpoint,
                sizes,
                send_buffer: Buffer::make(domain, sizes.send_bytes as usize, false)?,
                receive_buffer: Buffer::make(domain, sizes.receive_bytes as usize, true)?,
                list: Buffer::make(domain, list, true)?,
                outgoing: Outgoing::new(sizes.send_requests, sizes.send_bytes),
                incoming: Incoming::new(sizes.receives, sizes.receive_bytes),
                peer: None,
                peer_entry: 0,
                mapped: Vec::new(),
                untold: VecDeque::new(),
                is_armed: false,
                is_probing: false,
            }
        };
        made.endpoint.post_receives(sizes.receives)?;
        Ok(made)
    }

    /// The greeting of this side for the peer.
    pub(super) fn greeting(&self) -> Greeting {
        Greeting {
            credits: self.sizes.receives,
            mappings: scaled(self.sizes.mappings),
            is_swapped: false,
            targets: Target {
                address: self.list.address(),
                key: self.list.remote_key(),
                length: TARGETS as u32,
            },
            buffer: Target {
                address: self.receive_buffer.address(),
                key: self.receive_buffer.remote_key(),
                length: self.sizes.receive_bytes / 2,
            },
        }
    }

    /// Takes the peer's greeting.
    pub(super) fn begin(&mut self, greeting: Greeting) {
        self.outgoing.begin(&greeting);
        self.peer_entry = 1 % greeting.targets.length;
        self.peer = Some(greeting);
    }

    /// Entries of the peer's list of mappings.
    pub(super) fn peer_mappings(&self) -> u16 {
        self.peer.map_or(0, |peer| unscaled(peer.mappings))
    }

    /// The descriptor that is readable after a completion, once armed.
    pub(super) fn descriptor(&self) -> c_int {
        // SAFETY: the channel lives as long as the endpoint.
        unsafe { (*self.endpoint.channel).fd }
    }

    /// Asks for an event. True if that is new: completions have to be looked for once more.
    pub(super) fn arm(&mut self) -> bool {
        if self.is_armed {
            return false;
        }
        self.is_armed = true;
        // SAFETY: the endpoint's queue.
        unsafe { req_notify_cq(self.endpoint.queue, 0) };
        true
    }

    /// Takes the event. True if it was there.
    pub(super) fn take_event(&mut self) -> bool {
        let mut is_taken = false;
        let (mut queue, mut context) = (std::ptr::null_mut(), std::ptr::null_mut());
        // SAFETY: the endpoint's channel, which does not wait; live places.
        unsafe {
            while ibv_get_cq_event(self.endpoint.channel, &raw mut queue, &raw mut context) == 0 {
                ibv_ack_cq_events(queue, 1);
                self.is_armed = false;
                is_taken = true;
            }
        }
        is_taken
    }

    /// Takes completions, and posts receives again. Returns news until there is none.
    pub(super) fn poll(&mut self) -> Option<News> {
        loop {
            // SAFETY: numbers: all zero is a value.
            let mut done: [ibv_wc; BATCH] = unsafe { std::mem::zeroed() };
            // SAFETY: the endpoint's queue; room for a batch.
            let count = unsafe { poll_cq(self.endpoint.queue, BATCH as c_int, done.as_mut_ptr()) };
            let taken = done.get(..usize::try_from(count).unwrap_or(0));
            let mut all = None;
            let mut receives = 0;
            for completion in taken.unwrap_or_default() {
                let news = if completion.wr_id & RECEIVE == 0 {
                    self.sent(completion)
                } else if completion.status == status::SUCCESS {
                    receives += 1;
                    self.received(Message::of(u32::from_be(completion.imm_data)))
                } else {
                    None
                };
                all = news.map(|news| News::later(all, news)).or(all);
            }
            if let Err(error) = self.endpoint.post_receives(receives) {
                all = Some(News::later(all, News::Failed(error)));
            }
            if all.is_some() || count < BATCH as c_int {
                return all;
            }
        }
    }

    fn sent(&mut self, completion: &ibv_wc) -> Option<News> {
        match completion.wr_id {
            PROBE => self.is_probing = false,
            number if number & CONTROL != 0 => self.outgoing.complete_control(),
            buffered => self.outgoing.complete(buffered as u32),
        }
        match completion.status {
            status::SUCCESS if completion.wr_id == DISCONNECT => Some(News::Disconnect),
            status::SUCCESS => None,
            RETRIES_EXCEEDED => Some(News::Failed(libc::ETIMEDOUT)),
            status::WR_FLUSH_ERR => Some(News::Failed(libc::ECONNRESET)),
            _ => Some(News::Failed(libc::EIO)),
        }
    }

    fn received(&mut self, message: Message) -> Option<News> {
        match message {
            Message::Data(bytes) => {
                if let Err(Overrun { bytes, granted }) = self.incoming.arrived(bytes) {
                    tracing::warn!(bytes, granted, "the peer wrote more than it may");
                    return Some(News::Failed(libc::EIO));
                }
            }
            Message::Credits(limit) => self.outgoing.grant(limit),
            Message::Mapped(_) => self.incoming.count_message(),
            Message::Disconnect => return Some(News::Disconnect),
            Message::Shutdown => return Some(News::Shutdown),
            Message::KeepAlive | Message::Unknown(_) => {}
        }
        None
    }

    /// Reads the target entry that the peer writes next, once the last one is used up.
    fn look_for_target(&mut self) {
        let Some(entry) = self.outgoing.exhausted() else {
            return;
        };
        let offset = (entry * TARGET_BYTES) as u32;
        // The words are cleared before the peer may write them: what has an address and a length
        // is whole.
        let (address, rest) = (self.list.word(offset), self.list.word(offset + 8));
        let target = Target::of_words(address, rest);
        if target.address == 0 || target.length == 0 {
            return;
        }
        self.list.clear_word(offset);
        self.list.clear_word(offset + 8);
        self.outgoing.refill(target);
    }

    /// True if data may be sent.
    pub(super) fn can_send(&mut self) -> bool {
        self.look_for_target();
        self.peer.is_some() && self.outgoing.can_send()
    }

    /// True if a request may be posted that uses no target entry.
    pub(super) fn can_post(&self) -> bool {
        self.peer.is_some() && self.outgoing.can_post()
    }

    pub(super) fn can_control(&self) -> bool {
        self.outgoing.has_control()
    }

    /// True if nothing is on its way.
    pub(super) fn is_idle(&self) -> bool {
        self.outgoing.is_idle()
    }

    /// Sends up to `length` bytes of the program, as many as one transfer has. Data may be sent.
    ///
    /// # Safety
    /// `from` has `length` bytes of the program's memory.
    pub(super) unsafe fn send(&mut self, from: &mut Gather<'_>, length: u32) -> Result<u32, c_int> {
        let bytes = length.min(self.outgoing.room()).min(Message::MAX_BYTES);
        let target = self.outgoing.aim(bytes);
        self.outgoing.count_message();
        let immediate = Message::Data(bytes).immediate();
        // SAFETY: the caller's promise.
        unsafe { self.write(from, bytes, target, Some(immediate)) }?;
        Ok(bytes)
    }

    /// Writes up to `target.length` bytes of the program into a buffer of the peer, without
    /// notifying it. A request may be posted. Returns the number of bytes.
    ///
    /// # Safety
    /// `from` has `target.length` bytes.
    pub(super) unsafe fn write_direct(
        &mut self,
        from: *const u8,
        target: Target,
    ) -> Result<u32, c_int> {
        let bytes = target.length.min(self.outgoing.ring_room());
        let piece = [(from.cast_mut(), bytes as usize)];
        // SAFETY: the caller's promise.
        unsafe { self.write(&mut Gather::new(&piece), bytes, target, None) }?;
        Ok(bytes)
    }

    /// Posts bytes: within the request, or through the send buffer.
    ///
    /// # Safety
    /// `from` has `bytes` bytes of the program's memory.
    unsafe fn write(
        &mut self,
        from: &mut Gather<'_>,
        bytes: u32,
        target: Target,
        immediate: Option<u32>,
    ) -> Result<(), c_int> {
        if bytes <= self.endpoint.inline_bytes {
            self.outgoing.take(0);
            let mut copy = [0_u8; MAX_INLINE_BYTES];
            let start = from.straight(bytes as usize).unwrap_or_else(|| {
                // SAFETY: the caller's promise; the copy has room for the inline bytes.
                from.read(bytes as usize, |done, at, part| unsafe {
                    std::ptr::copy_nonoverlapping(at, copy.as_mut_ptr().add(done), part);
                });
                copy.as_ptr()
            });
            let mut whole = [ibv_sge {
                addr: start as u64,
                length: bytes,
                lkey: 0,
            }];
            let flags = send_flags::INLINE;
            return self
                .endpoint
                .post_write(0, &mut whole, flags, target, immediate);
        }
        let parts = self.outgoing.take(bytes);
        let mut pieces = parts.map(|part| self.piece(part));
        let [_, second] = parts;
        for part in parts {
            // SAFETY: the parts have `bytes` bytes together; the caller's promise.
            from.read(part.length as usize, |done, at, length| unsafe {
                self.send_buffer.fill(part.offset + done as u32, at, length);
            });
        }
        let used = if second.length == 0 { 1 } else { 2 };
        let pieces = pieces.get_mut(..used).unwrap_or_default();
        self.endpoint
            .post_write(bytes.into(), pieces, 0, target, immediate)
    }

    fn piece(&self, part: Part) -> ibv_sge {
        ibv_sge {
            addr: self.send_buffer.address() + u64::from(part.offset),
            length: part.length,
            lkey: self.send_buffer.local_key(),
        }
    }

    /// Copies unread bytes to the program; takes them unless `is_peek`: then those behind the first
    /// `peeked` are copied. Returns how many.
    ///
    /// # Safety
    /// `into` has room for `length` bytes.
    pub(super) unsafe fn receive(
        &mut self,
        into: *mut u8,
        length: usize,
        is_peek: bool,
        peeked: usize,
    ) -> usize {
        let mut done = 0;
        let mut skipped = if is_peek { peeked as u32 } else { 0 };
        while let Some(part) = self.incoming.unread(skipped, length - done) {
            // SAFETY: no more than `length` bytes altogether; the caller's promise.
            unsafe {
                self.receive_buffer
                    .read(part.offset, into.add(done), part.length as usize);
            }
            done += part.length as usize;
            if is_peek {
                skipped += part.length;
            } else {
                self.incoming.consume(part.length);
            }
        }
        done
    }

    /// Tells the peer what it may send, if there is news and a control message is free.
    pub(super) fn give_credits(&mut self) -> Result<(), c_int> {
        let Some(peer) = self.peer else {
            return Ok(());
        };
        if !self.incoming.owes() || !self.outgoing.take_control() {
            return Ok(());
        }
        let (limit, half) = self.incoming.settle();
        let immediate = Some(Message::Credits(limit).immediate());
        let Some(half) = half else {
            let nowhere = Target::default();
            return self
                .endpoint
                .post_write(CONTROL, &mut [], 0, nowhere, immediate);
        };
        let granted = Target {
            address: self.receive_buffer.address() + u64::from(half.offset),
            key: self.receive_buffer.remote_key(),
            length: half.length,
        };
        let entry = u64::from(self.peer_entry) * TARGET_BYTES as u64;
        self.peer_entry = (self.peer_entry + 1) % peer.targets.length;
        let target = Target {
            address: peer.targets.address.wrapping_add(entry),
            ..peer.targets
        };
        let bytes = granted.bytes(peer.is_swapped);
        self.post_bytes(CONTROL, &bytes, target, immediate)
    }

    /// Posts a few bytes within the request.
    fn post_bytes(
        &self,
        number: u64,
        bytes: &[u8],
        target: Target,
        immediate: Option<u32>,
    ) -> Result<(), c_int> {
        let mut whole = [ibv_sge {
            addr: bytes.as_ptr() as u64,
            length: bytes.len() as u32,
            lkey: 0,
        }];
        self.endpoint
            .post_write(number, &mut whole, send_flags::INLINE, target, immediate)
    }

    /// Tells the peer that this side sends no more, or is at its end. A control message is free.
    pub(super) fn control(&mut self, message: Message) -> Result<(), c_int> {
        if !self.outgoing.take_control() {
            return Err(libc::EAGAIN);
        }
        let number = match message {
            Message::Disconnect => DISCONNECT,
            _ => CONTROL,
        };
        let immediate = Some(message.immediate());
        self.endpoint
            .post_write(number, &mut [], 0, Target::default(), immediate)
    }

    /// Writes no bytes to the peer, which must acknowledge that: finds out that it is gone. It
    /// notices nothing.
    pub(super) fn probe(&mut self) -> Result<(), c_int> {
        let Some(peer) = self.peer.filter(|_| !self.is_probing && self.is_idle()) else {
            return Ok(());
        };
        self.is_probing = true;
        self.endpoint
            .post_write(PROBE, &mut [], 0, peer.targets, None)
    }

    /// Tells the peer of the next buffer that it may write to. A request may be posted.
    pub(super) fn tell_mapping(&mut self) -> Result<(), c_int> {
        let (Some(index), Some(peer)) = (self.untold.pop_front(), self.peer) else {
            return Ok(());
        };
        let found = self.mapped.iter().find(|one| one.index == Some(index));
        // It was unmapped before it was announced to the peer.
        let Some(mapping) = found.map(|one| one.mapping) else {
            return Ok(());
        };
        let targets = u64::from(peer.targets.length) * TARGET_BYTES as u64;
        let offset = targets + u64::from(index) * MAPPING_BYTES as u64;
        let target = Target {
            address: peer.targets.address.wrapping_add(offset),
            ..peer.targets
        };
        self.outgoing.take(0);
        self.outgoing.count_message();
        let bytes = mapping.bytes(peer.is_swapped);
        let immediate = Some(Message::Mapped(index).immediate());
        self.post_bytes(0, &bytes, target, immediate)
    }

    /// The peer's buffer at an offset.
    pub(super) fn mapping_at(&self, offset: u64) -> Option<Target> {
        let first = (TARGETS * TARGET_BYTES) as u32;
        (0..u32::from(self.sizes.mappings)).find_map(|index| {
            let place = first + index * MAPPING_BYTES as u32;
            let words = [0, 8, 16].map(|more| self.list.word(place + more));
            let [offset_of, address, rest] = words;
            let mapping = Mapping {
                offset: offset_of,
                target: Target::of_words(address, rest),
            };
            mapping.at(offset)
        })
    }
}

/// `IBV_WC_RETRY_EXC_ERR`.
const RETRIES_EXCEEDED: c_int = 12;
