//! Posting requests: what the slots behind `ibv_post_send` and `ibv_post_recv` do.

use crate::abi::{
    completed, ibv_qp, ibv_recv_wr, ibv_send_wr, ibv_sge, request, send_flags, state,
};
use crate::address::HandleObject;
use crate::completion::{CompletionObject, flushed};
use crate::errno;
use crate::fragments::{entries, fragments};
use crate::queue_pair::{Inner, Pair, QueuePairObject};
use ringside_pmd::rdma::{Connected, DatagramReady, PostError, QueuePair, SendFlags, To};
use ringside_qp::{Read, Send, SendInline, SendKind, Write, WriteInline};
use std::ffi::c_int;

/// Inline bytes of a request.
const INLINE_MOST: usize = ringside_spec::rdma::limits::MAX_INLINE_BYTES as usize;

/// Data of an inline request, gathered.
struct Inline {
    bytes: [u8; INLINE_MOST],
    length: usize,
}

impl Inline {
    fn as_slice(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or(&[])
    }

    /// # Safety
    /// `list` has `count` entries; each names memory of the program.
    unsafe fn gather(list: *const ibv_sge, count: c_int) -> Result<Self, c_int> {
        let mut inline = Self {
            bytes: [0; INLINE_MOST],
            length: 0,
        };
        // SAFETY: the caller's promise.
        for entry in unsafe { entries(list, count) }? {
            let length = entry.length as usize;
            let end = inline.length + length;
            let place = inline
                .bytes
                .get_mut(inline.length..end)
                .ok_or(libc::EINVAL)?;
            // SAFETY: the program's memory, as it promises; the place has that length.
            unsafe {
                std::ptr::copy_nonoverlapping(entry.addr as *const u8, place.as_mut_ptr(), length);
            }
            inline.length = end;
        }
        Ok(inline)
    }
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

/// Why a request was not posted.
enum Refused {
    /// an errno value
    Errno(c_int),
    /// the queue pair has failed: the request completes as flushed
    Flushed,
}

impl From<c_int> for Refused {
    fn from(error: c_int) -> Self {
        Self::Errno(error)
    }
}

impl From<PostError> for Refused {
    fn from(error: PostError) -> Self {
        match error {
            PostError::Failed | PostError::DeviceFailed | PostError::Destroyed => Self::Flushed,
            error => Self::Errno(errno::of_post(&error)),
        }
    }
}

/// # Safety
/// The request is valid, as verbs has it.
unsafe fn post_connected(
    pair: &mut QueuePair<Connected>,
    wanted: &ibv_send_wr,
    flags: SendFlags,
) -> Result<(), Refused> {
    let [remote_address, key, ..] = wanted.wr;
    let remote_key = key as u32;
    let immediate = u32::from_be(wanted.imm_data);
    let id = wanted.wr_id;
    if wanted.send_flags & send_flags::INLINE != 0 && wanted.opcode != request::RDMA_READ {
        // SAFETY: the caller's promise.
        let data = unsafe { Inline::gather(wanted.sg_list, wanted.num_sge) }?;
        let data = data.as_slice();
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
    // SAFETY: the caller's promise.
    let found = unsafe { fragments(wanted.sg_list, wanted.num_sge) }?;
    let fragments = found.as_slice();
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
        handle: &handle.handle,
        queue_pair: numbers as u32 & 0xFF_FFFF,
        queue_key: (numbers >> 32) as u32,
    };
    let id = wanted.wr_id;
    if wanted.send_flags & send_flags::INLINE != 0 {
        // SAFETY: the caller's promise.
        let data = unsafe { Inline::gather(wanted.sg_list, wanted.num_sge) }?;
        return Ok(pair.post_send_inline_to(id, &to, data.as_slice(), immediate, flags)?);
    }
    // SAFETY: the caller's promise.
    let found = unsafe { fragments(wanted.sg_list, wanted.num_sge) }?;
    Ok(pair.post_send_to(id, &to, found.as_slice(), immediate, flags)?)
}

impl Inner {
    /// # Safety
    /// The request is valid, as verbs has it.
    unsafe fn post_send(&mut self, wanted: &ibv_send_wr, signal_all: bool) -> Result<(), Refused> {
        if self.state == state::ERR {
            return Err(Refused::Flushed);
        }
        let flags = flags_of(wanted.send_flags, signal_all);
        match &mut self.pair {
            // SAFETY: the caller's promise.
            Pair::Connected(pair) => unsafe { post_connected(pair, wanted, flags) },
            Pair::DatagramReady(pair) if self.state == state::RTS => {
                // SAFETY: the caller's promise.
                unsafe { post_datagram(pair, wanted, flags) }
            }
            _ => Err(Refused::Errno(libc::EINVAL)),
        }
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
        if self.state == state::ERR {
            return Err(Refused::Flushed);
        }
        if self.state == state::RESET {
            return Err(Refused::Errno(libc::EINVAL));
        }
        // SAFETY: the caller's promise.
        let found = unsafe { fragments(wanted.sg_list, wanted.num_sge) }?;
        let (id, fragments) = (wanted.wr_id, found.as_slice());
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

/// The slot behind `ibv_post_send`: posts a list, and tells the device once.
///
/// # Safety
/// `pair` came from `ibv_create_qp`; the list and what it names is valid.
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
        match unsafe { inner.post_send(wanted, object.signal_all) } {
            Ok(()) => {}
            Err(Refused::Flushed) => {
                // SAFETY: a queue pair's completion queue outlives it.
                let queue = unsafe { CompletionObject::of(object.public.send_cq) };
                queue.complete(flushed(wanted.wr_id, object.public.qp_num, completed::SEND));
            }
            Err(Refused::Errno(error)) => {
                // SAFETY: the caller's place.
                unsafe { *refused = next };
                result = error;
                break;
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
/// `pair` came from `ibv_create_qp`; the list and what it names is valid.
pub(crate) unsafe extern "C" fn post_recv(
    pair: *mut ibv_qp,
    list: *mut ibv_recv_wr,
    refused: *mut *mut ibv_recv_wr,
) -> c_int {
    // SAFETY: the caller's promise.
    let object = unsafe { QueuePairObject::of(pair) };
    if !object.public.srq.is_null() {
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
            Err(Refused::Flushed) => {
                // SAFETY: a queue pair's completion queue outlives it.
                let queue = unsafe { CompletionObject::of(object.public.recv_cq) };
                queue.complete(flushed(wanted.wr_id, object.public.qp_num, completed::RECV));
            }
            Err(Refused::Errno(error)) => {
                // SAFETY: the caller's place.
                unsafe { *refused = next };
                return error;
            }
        }
        next = wanted.next;
    }
    0
}
