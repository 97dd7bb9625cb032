//! Posting requests: the slots behind `ibv_post_send` and `ibv_post_recv`.

use crate::abi::{
    completed, ibv_qp, ibv_recv_wr, ibv_send_wr, ibv_sge, request, send_flags, state,
};
use crate::address::HandleObject;
use crate::bind::{bind_of, note_bound};
use crate::completion::CompletionObject;
use crate::fragments::{entries, fragments};
use crate::pair::Pair;
use crate::queue_pair::{Inner, QueuePairObject};
use crate::refused::{Refused, refused};
use crate::room::Room;
use crate::work_completion::flushed;
use ringside_pmd::rdma::{Connected, DatagramReady, Fragment, QueuePair, SendFlags, To};
use ringside_qp::{LocalInvalidate, Read, Send, SendInline, SendKind, Write, WriteInline};
use std::ffi::c_int;
use std::mem::MaybeUninit;

/// Inline bytes of a request.
const MAX_INLINE: usize = ringside_spec::rdma::limits::MAX_INLINE_BYTES as usize;

/// Places for the data of one request.
struct Scratch {
    bytes: MaybeUninit<[u8; MAX_INLINE]>,
    fragment: MaybeUninit<Fragment>,
}

impl Scratch {
    const NEW: Self = Self {
        bytes: MaybeUninit::uninit(),
        fragment: MaybeUninit::uninit(),
    };

    /// Gathers inline data that fits into a request.
    ///
    /// # Safety
    /// Each entry names memory of the program.
    unsafe fn gather(&mut self, entries: &[ibv_sge]) -> Result<&[u8], c_int> {
        let place: *mut u8 = self.bytes.as_mut_ptr().cast();
        let mut end = 0;
        for entry in entries {
            let length = entry.length as usize;
            if length > MAX_INLINE - end {
                return Err(libc::EINVAL);
            }
            // SAFETY: the program's memory, as it promises; the place has so much room left.
            unsafe {
                std::ptr::copy_nonoverlapping(entry.addr as *const u8, place.add(end), length);
            }
            end += length;
        }
        // SAFETY: so many bytes were written.
        Ok(unsafe { std::slice::from_raw_parts(place, end) })
    }
}

/// The data of a request: bytes to send, or memory to send from or to read into.
enum Data<'a> {
    /// bytes in the request itself
    Inline(&'a [u8]),
    /// registered memory
    Fragments {
        list: &'a [Fragment],
        /// of the library: the slot is to be marked once the request is posted
        is_bounced: bool,
    },
}

fn flags_of(wanted: u32, signal_all: bool) -> SendFlags {
    let mut flags = SendFlags::NONE;
    if signal_all || wanted & send_flags::SIGNALED != 0 {
        flags = flags | SendFlags::SIGNALLED;
    }
    if wanted & send_flags::SOLICITED != 0 {
        flags = flags | SendFlags::SOLICITED;
    }
    if wanted & send_flags::FENCE != 0 {
        flags = flags | SendFlags::READ_FENCE;
    }
    flags
}

fn post_connected(
    pair: &mut QueuePair<Connected>,
    wanted: &ibv_send_wr,
    data: &Data<'_>,
    flags: SendFlags,
) -> Result<(), Refused> {
    let [remote_address, key, ..] = wanted.wr;
    let remote_key = key as u32;
    let immediate = u32::from_be(wanted.imm_data);
    let id = wanted.wr_id;
    let list = match data {
        Data::Inline(data) => {
            let kind = send_kind(wanted, immediate);
            return Ok(match (wanted.opcode, kind) {
                (request::RDMA_WRITE | request::RDMA_WRITE_WITH_IMM, _) => {
                    let immediate =
                        (wanted.opcode == request::RDMA_WRITE_WITH_IMM).then_some(immediate);
                    let write = WriteInline {
                        data,
                        remote_address,
                        remote_key,
                        immediate,
                    };
                    pair.post(id, &write, flags)
                }
                (_, Some(kind)) => pair.post(id, &SendInline { data, kind }, flags),
                _ => return Err(Refused::Errno(libc::EINVAL)),
            }?);
        }
        Data::Fragments { list, .. } => list,
    };
    let fragments = *list;
    Ok(match wanted.opcode {
        request::RDMA_WRITE | request::RDMA_WRITE_WITH_IMM => {
            let immediate = (wanted.opcode == request::RDMA_WRITE_WITH_IMM).then_some(immediate);
            let write = Write {
                fragments,
                remote_address,
                remote_key,
                immediate,
            };
            pair.post(id, &write, flags)
        }
        request::RDMA_READ => {
            let read = Read {
                fragments,
                remote_address,
                remote_key,
                invalidate_local: false,
            };
            pair.post(id, &read, flags)
        }
        _ => {
            let kind = send_kind(wanted, immediate).ok_or(Refused::Errno(libc::EINVAL))?;
            pair.post(id, &Send { fragments, kind }, flags)
        }
    }?)
}

const fn send_kind(wanted: &ibv_send_wr, immediate: u32) -> Option<SendKind> {
    match wanted.opcode {
        request::SEND => Some(SendKind::Plain),
        request::SEND_WITH_IMM => Some(SendKind::Immediate(immediate)),
        // The key is a number of this side's order, in the place of the immediate data.
        request::SEND_WITH_INV => Some(SendKind::Invalidate(wanted.imm_data)),
        _ => None,
    }
}

/// # Safety
/// The request is valid, as verbs has it.
unsafe fn post_datagram(
    pair: &mut QueuePair<DatagramReady>,
    wanted: &ibv_send_wr,
    data: &Data<'_>,
    flags: SendFlags,
) -> Result<(), Refused> {
    let [handle, numbers, ..] = wanted.wr;
    let immediate = match wanted.opcode {
        request::SEND => None,
        request::SEND_WITH_IMM => Some(u32::from_be(wanted.imm_data)),
        _ => return Err(Refused::Errno(libc::EINVAL)),
    };
    if handle == 0 {
        return Err(Refused::Errno(libc::EINVAL));
    }
    // SAFETY: the caller's promise.
    let handle = unsafe { HandleObject::of(handle as *mut _) };
    let to = To {
        handle: handle.handle.handle(),
        queue_pair: numbers as u32 & 0xFF_FFFF,
        queue_key: (numbers >> 32) as u32,
    };
    let id = wanted.wr_id;
    Ok(match data {
        Data::Inline(data) => pair.post_send_inline_to(id, &to, data, immediate, flags),
        Data::Fragments { list, .. } => pair.post_send_to(id, &to, list, immediate, flags),
    }?)
}

/// Posts a write or a send of one piece of inline data that fits into a request. `None` for others.
///
/// # Safety
/// The request is valid, as verbs has it, and has one entry.
#[inline(never)]
unsafe fn post_plain_inline(
    pair: &mut QueuePair<Connected>,
    wanted: &ibv_send_wr,
    signal_all: bool,
    most: u32,
) -> Option<Result<(), Refused>> {
    let flags = flags_of(wanted.send_flags, signal_all);
    let (id, [remote_address, key, ..]) = (wanted.wr_id, wanted.wr);
    // SAFETY: the caller's promise.
    let only = unsafe { wanted.sg_list.read_unaligned() };
    if !(1..=most).contains(&only.length) {
        return None;
    }
    // SAFETY: the program's memory, as it promises.
    let data = unsafe { std::slice::from_raw_parts(only.addr as *const u8, only.length as usize) };
    match wanted.opcode {
        request::RDMA_WRITE => {
            let write = WriteInline {
                data,
                remote_address,
                remote_key: key as u32,
                immediate: None,
            };
            Some(pair.post(id, &write, flags).map_err(refused))
        }
        request::SEND => {
            let kind = SendKind::Plain;
            Some(
                pair.post(id, &SendInline { data, kind }, flags)
                    .map_err(refused),
            )
        }
        _ => None,
    }
}

impl Inner {
    /// # Safety
    /// The request is valid, as verbs has it.
    #[inline(never)]
    unsafe fn post_send(&mut self, wanted: &ibv_send_wr, signal_all: bool) -> Result<(), Refused> {
        if self.state == state::ERR {
            // SAFETY: the caller's promise.
            unsafe { self.check_flushed(wanted) }?;
            return Err(Refused::Flushed);
        }
        let flags = flags_of(wanted.send_flags, signal_all);
        match wanted.opcode {
            request::LOCAL_INV => return self.invalidate(wanted, flags),
            // SAFETY: the caller's promise.
            request::BIND_MW => return unsafe { self.bind(wanted, flags) },
            _ => {}
        }
        let mut scratch = Scratch::NEW;
        // SAFETY: the caller's promise.
        let data = unsafe { self.data(wanted, &mut scratch) }?;
        match &mut self.pair {
            Pair::Connected(pair) => post_connected(pair, wanted, &data, flags)?,
            Pair::DatagramReady(pair) if matches!(self.state, state::RTS | state::SQD) => {
                // SAFETY: the caller's promise.
                unsafe { post_datagram(pair, wanted, &data, flags) }?;
            }
            _ => return Err(Refused::Errno(libc::EINVAL)),
        }
        if let Data::Fragments {
            is_bounced: true, ..
        } = data
        {
            self.note_bounced();
        }
        Ok(())
    }

    #[cold]
    fn note_bounced(&mut self) {
        if let (Some((_, head)), Some(bounce)) = (self.position(), &mut self.bounce) {
            bounce.posted(head);
        }
    }

    /// Posts the requests that programs post most: a write or a send of one piece on a connection.
    /// `None` for others, of which nothing was posted.
    ///
    /// # Safety
    /// The request is valid, as verbs has it.
    #[inline(always)]
    unsafe fn post_plain(
        &mut self,
        wanted: &ibv_send_wr,
        signal_all: bool,
    ) -> Option<Result<(), Refused>> {
        let Pair::Connected(pair) = &mut self.pair else {
            return None;
        };
        if wanted.num_sge != 1 || self.state != state::RTS {
            return None;
        }
        if wanted.send_flags & send_flags::INLINE != 0 {
            // SAFETY: the caller's promise, and a list of one entry.
            return unsafe { post_plain_inline(pair, wanted, signal_all, self.inline_bytes) };
        }
        let flags = flags_of(wanted.send_flags, signal_all);
        let (id, [remote_address, key, ..]) = (wanted.wr_id, wanted.wr);
        // SAFETY: a list of one entry, whose layout is that of a fragment: see `fragments`.
        let only: Fragment = unsafe { wanted.sg_list.cast::<Fragment>().read_unaligned() };
        let fragments = &[only];
        match wanted.opcode {
            request::RDMA_WRITE => {
                let write = Write {
                    fragments,
                    remote_address,
                    remote_key: key as u32,
                    immediate: None,
                };
                Some(pair.post(id, &write, flags).map_err(refused))
            }
            request::SEND => {
                let kind = SendKind::Plain;
                Some(
                    pair.post(id, &Send { fragments, kind }, flags)
                        .map_err(refused),
                )
            }
            _ => None,
        }
    }

    #[cold]
    fn invalidate(&mut self, wanted: &ibv_send_wr, flags: SendFlags) -> Result<(), Refused> {
        let Pair::Connected(pair) = &mut self.pair else {
            return Err(Refused::Errno(libc::EINVAL));
        };
        // The key is in the place of the immediate data.
        let key = wanted.imm_data;
        Ok(pair.post(
            wanted.wr_id,
            &LocalInvalidate { key },
            flags.of_invalidation(),
        )?)
    }

    /// # Safety
    /// The objects that the request names are of this library.
    #[cold]
    unsafe fn bind(&mut self, wanted: &ibv_send_wr, flags: SendFlags) -> Result<(), Refused> {
        let Pair::Connected(pair) = &mut self.pair else {
            return Err(Refused::Errno(libc::EINVAL));
        };
        // SAFETY: the caller's promise.
        unsafe {
            pair.post(wanted.wr_id, &bind_of(wanted)?, flags)?;
            note_bound(wanted);
        }
        Ok(())
    }

    /// The data of a request. Inline data that does not fit into the request is copied.
    ///
    /// # Safety
    /// The request is valid, as verbs has it.
    #[inline(always)]
    unsafe fn data<'a>(
        &self,
        wanted: &ibv_send_wr,
        scratch: &'a mut Scratch,
    ) -> Result<Data<'a>, c_int> {
        if wanted.send_flags & send_flags::INLINE == 0 || wanted.opcode == request::RDMA_READ {
            // SAFETY: the caller's promise.
            let list = unsafe { fragments(wanted.sg_list, wanted.num_sge, self.most_fragments) }?;
            let is_bounced = false;
            return Ok(Data::Fragments { list, is_bounced });
        }
        // SAFETY: the caller's promise.
        let entries = unsafe { entries(wanted.sg_list, wanted.num_sge, self.most_fragments) }?;
        if let [only] = entries
            && (1..=self.inline_bytes).contains(&only.length)
        {
            let (data, length) = (only.addr as *const u8, only.length as usize);
            // SAFETY: the program's memory, as it promises.
            return Ok(Data::Inline(unsafe {
                std::slice::from_raw_parts(data, length)
            }));
        }
        let length: u64 = entries.iter().map(|entry| u64::from(entry.length)).sum();
        if length <= u64::from(self.inline_bytes) {
            // SAFETY: the caller's promise.
            return unsafe { scratch.gather(entries) }.map(Data::Inline);
        }
        let (Some(bounce), Some((tail, _))) = (&self.bounce, self.position()) else {
            return Err(libc::EINVAL);
        };
        // SAFETY: the caller's promise.
        let fragment = unsafe { bounce.copy(tail, entries) }?;
        let fragment: &Fragment = scratch.fragment.write(fragment);
        Ok(Data::Fragments {
            list: std::slice::from_ref(fragment),
            is_bounced: true,
        })
    }

    /// Tail and head of the send queue, quanta since it was made.
    fn position(&self) -> Option<(u64, u64)> {
        let (head, used) = match &self.pair {
            Pair::Connected(pair) => (pair.send_quanta_posted(), pair.send_quanta_used()),
            Pair::DatagramReady(pair) => (pair.send_quanta_posted(), pair.send_quanta_used()),
            _ => return None,
        };
        Some((head - u64::from(used), head))
    }

    fn ring(&self) {
        match &self.pair {
            Pair::Connected(pair) => pair.ring(),
            Pair::DatagramReady(pair) => pair.ring(),
            _ => {}
        }
    }

    /// # Safety
    /// The request is valid, as verbs has it.
    unsafe fn post_receive(&mut self, wanted: &ibv_recv_wr) -> Result<(), Refused> {
        if self.state == state::RESET {
            return Err(Refused::Errno(libc::EINVAL));
        }
        let most = self.attributes.cap.max_recv_sge;
        // SAFETY: the caller's promise.
        let found = unsafe { fragments(wanted.sg_list, wanted.num_sge, most) }?;
        if self.state == state::ERR {
            return Err(Refused::Flushed);
        }
        let (id, fragments) = (wanted.wr_id, found);
        Ok(match &mut self.pair {
            Pair::Initialised(pair) => pair.receive(id, fragments),
            Pair::Receiving(pair) => pair.receive(id, fragments),
            Pair::Connected(pair) => pair.receive(id, fragments),
            Pair::DatagramInitialised(pair) => pair.receive(id, fragments),
            Pair::DatagramReady(pair) => pair.receive(id, fragments),
            Pair::Gone => return Err(Refused::Flushed),
        }?)
    }
}

/// Posts all requests of a batch, or none, and rings the doorbell once.
///
/// Errors: an errno value; `ENOMEM` if they do not all find room.
///
/// # Safety
/// The requests are valid, as verbs has it.
pub(crate) unsafe fn post_all<'a>(
    object: &QueuePairObject,
    requests: impl Iterator<Item = &'a ibv_send_wr> + Clone,
) -> Result<(), c_int> {
    let mut inner = object.inner();
    let mut room = Room::of(&inner)?;
    for wanted in requests.clone() {
        // SAFETY: the caller's promise.
        unsafe { room.take(wanted) }?;
    }
    if inner.state == state::ERR || inner.pair.has_failed() {
        return object.flush(&inner, requests, object.capacities().max_send_wr);
    }
    room.check()?;
    for wanted in requests {
        // SAFETY: the caller's promise.
        match unsafe { inner.post_send(wanted, object.signal_all) } {
            Ok(()) => {}
            // It failed just now. The whole batch had room in the ring, so it has room here.
            Err(Refused::Flushed) => object.flush(&inner, std::iter::once(wanted), u32::MAX)?,
            Err(Refused::Errno(error)) => {
                tracing::error!(error, "a request of a batch was not posted");
                return Err(error);
            }
        }
    }
    inner.ring();
    Ok(())
}

impl QueuePairObject {
    /// Completes requests that were posted after the queue pair had failed: all, or none and
    /// `ENOMEM` if more than `capacity` would wait to be polled.
    #[cold]
    fn flush<'a>(
        &self,
        inner: &Inner,
        requests: impl Iterator<Item = &'a ibv_send_wr> + Clone,
        capacity: u32,
    ) -> Result<(), c_int> {
        // SAFETY: a queue pair's completion queue outlives it.
        let queue = unsafe { CompletionObject::of(self.plain().send_cq) };
        let number = self.plain().qp_num;
        let made = requests.map(|wanted| flushed(wanted.wr_id, number, completed::SEND));
        let earlier = inner.pair.outstanding(true);
        queue.complete(made, earlier.as_ref(), capacity)
    }

    /// Completes a send in the same way.
    #[cold]
    fn flush_send(&self, inner: &Inner, wanted: &ibv_send_wr) -> Result<(), c_int> {
        let capacity = self.capacities().max_send_wr;
        self.flush(inner, std::iter::once(wanted), capacity)
    }

    /// Completes a receive in the same way.
    #[cold]
    fn flush_receive(&self, inner: &Inner, wanted: &ibv_recv_wr) -> Result<(), c_int> {
        // SAFETY: a queue pair's completion queue outlives it.
        let queue = unsafe { CompletionObject::of(self.plain().recv_cq) };
        let made = flushed(wanted.wr_id, self.plain().qp_num, completed::RECV);
        let (capacity, earlier) = (self.capacities().max_recv_wr, inner.pair.outstanding(false));
        queue.complete(std::iter::once(made), earlier.as_ref(), capacity)
    }
}

/// Implements `ibv_post_send`: posts a list, and rings the doorbell once.
///
/// # Safety
/// `pair` came from `ibv_create_qp`; the list and the memory that it names are valid.
pub(crate) unsafe extern "C" fn post_send(
    pair: *mut ibv_qp,
    list: *mut ibv_send_wr,
    refused: *mut *mut ibv_send_wr,
) -> c_int {
    // SAFETY: the caller's promise.
    let object = unsafe { QueuePairObject::of(pair) };
    let mut inner = object.inner();
    let mut next = list;
    let mut result = 0;
    while !next.is_null() {
        // SAFETY: the caller's promise.
        let wanted = unsafe { &*next };
        // SAFETY: the caller's promise.
        let posted = match unsafe { inner.post_plain(wanted, object.signal_all) } {
            Some(Ok(())) => {
                next = wanted.next;
                continue;
            }
            Some(Err(error)) => Err(error),
            // SAFETY: the caller's promise.
            None => unsafe { inner.post_send(wanted, object.signal_all) },
        };
        match posted {
            Ok(()) => {}
            Err(refusal) => {
                if let Err(error) = refusal.settle(|| object.flush_send(&inner, wanted)) {
                    // SAFETY: the caller's place.
                    unsafe { *refused = next };
                    result = error;
                    break;
                }
            }
        }
        next = wanted.next;
    }
    inner.ring();
    result
}

/// The slot behind `ibv_post_recv`.
///
/// # Safety
/// `pair` came from `ibv_create_qp`; the list and the memory that it names are valid.
pub(crate) unsafe extern "C" fn post_recv(
    pair: *mut ibv_qp,
    list: *mut ibv_recv_wr,
    refused: *mut *mut ibv_recv_wr,
) -> c_int {
    // SAFETY: the caller's promise.
    let object = unsafe { QueuePairObject::of(pair) };
    if !object.plain().srq.is_null() {
        // SAFETY: the caller's place.
        unsafe { *refused = list };
        return libc::EINVAL;
    }
    let mut inner = object.inner();
    let mut next = list;
    while !next.is_null() {
        // SAFETY: the caller's promise.
        let wanted = unsafe { &*next };
        // SAFETY: the caller's promise.
        match unsafe { inner.post_receive(wanted) } {
            Ok(()) => {}
            Err(refusal) => {
                if let Err(error) = refusal.settle(|| object.flush_receive(&inner, wanted)) {
                    // SAFETY: the caller's place.
                    unsafe { *refused = next };
                    return error;
                }
            }
        }
        next = wanted.next;
    }
    0
}
