//! The room that a batch of requests needs, counted before any of them is posted.

use crate::abi::{ibv_send_wr, request, send_flags, state};
use crate::address::HandleObject;
use crate::bind::bind_of;
use crate::fragments::entries;
use crate::pair::Pair;
use crate::queue_pair::Inner;
use ringside_spec::rdma::limits::MAX_MESSAGE_BYTES;
use ringside_spec::verbs::MAX_QUANTA;
use ringside_spec::verbs::sizes::{inline_quanta, send_quanta};
use std::ffi::c_int;

/// Quanta of a block of the send queue: no request crosses the end of one.
const BLOCK: u64 = MAX_QUANTA as u64;

/// The room of a send queue, and the share of a batch.
pub(crate) struct Room<'a> {
    inner: &'a Inner,
    begin: u64,
    end: u64,
    free: u64,
    /// position before which all is complete
    tail: u64,
    /// requests whose inline data goes into memory of the library, and the longest of them
    bounced: (usize, usize),
}

impl<'a> Room<'a> {
    /// Errors: `EINVAL` if the queue pair sends nothing in its state.
    pub(crate) fn of(inner: &'a Inner) -> Result<Self, c_int> {
        let (begin, used, capacity) = match &inner.pair {
            Pair::Connected(pair) => (
                pair.send_quanta_posted(),
                pair.send_quanta_used(),
                pair.send_quanta_capacity(),
            ),
            Pair::DatagramReady(pair) if matches!(inner.state, state::RTS | state::SQD) => (
                pair.send_quanta_posted(),
                pair.send_quanta_used(),
                pair.send_quanta_capacity(),
            ),
            // Requests are flushed, and take no room.
            _ if inner.state == state::ERR => (0, 0, 0),
            _ => return Err(libc::EINVAL),
        };
        Ok(Self {
            inner,
            begin,
            end: begin,
            free: u64::from(capacity.saturating_sub(used)),
            tail: begin - u64::from(used),
            bounced: (0, 0),
        })
    }

    /// Counts a request.
    ///
    /// Errors: `EINVAL` for one that could not be posted.
    ///
    /// # Safety
    /// The request is valid, as verbs has it.
    pub(crate) unsafe fn take(&mut self, wanted: &ibv_send_wr) -> Result<(), c_int> {
        // SAFETY: the caller's promise.
        let quanta = unsafe { self.quanta(wanted) }? as u64;
        if self.end % BLOCK + quanta > BLOCK {
            self.end = self.end.next_multiple_of(BLOCK);
        }
        self.end += quanta;
        Ok(())
    }

    /// # Safety
    /// The request is valid, as verbs has it.
    unsafe fn quanta(&mut self, wanted: &ibv_send_wr) -> Result<usize, c_int> {
        match wanted.opcode {
            request::LOCAL_INV => return Ok(1),
            // SAFETY: the caller's promise.
            request::BIND_MW => return unsafe { bind_of(wanted) }.map(|_| 1),
            _ => {}
        }
        let most = self.inner.most_fragments;
        // SAFETY: the caller's promise.
        let list = unsafe { entries(wanted.sg_list, wanted.num_sge, most) }?;
        let length: u64 = list.iter().map(|entry| u64::from(entry.length)).sum();
        let mut most = u64::from(MAX_MESSAGE_BYTES);
        if let Pair::DatagramReady(pair) = &self.inner.pair {
            most = pair.message_bytes_most().into();
            let [handle, ..] = wanted.wr;
            if handle == 0 {
                return Err(libc::EINVAL);
            }
            // SAFETY: the caller's promise.
            let handle = unsafe { HandleObject::of(handle as *mut _) };
            if handle.handle.handle().protection_domain().number()
                != pair.protection_domain().number()
            {
                return Err(libc::EINVAL);
            }
        }
        if length > most {
            return Err(libc::EINVAL);
        }
        let immediate = match wanted.opcode {
            request::RDMA_WRITE_WITH_IMM | request::SEND_WITH_IMM => 1,
            _ => 0,
        };
        if wanted.send_flags & send_flags::INLINE == 0 || wanted.opcode == request::RDMA_READ {
            return Ok(send_quanta(list.len() + immediate));
        }
        if length <= u64::from(self.inner.inline_bytes) {
            return Ok(inline_quanta(length as usize));
        }
        let (count, longest) = self.bounced;
        self.bounced = (count + 1, longest.max(length as usize));
        Ok(send_quanta(1 + immediate))
    }

    /// Checks if all that was counted finds room.
    ///
    /// Errors: `ENOMEM` if not; `EINVAL` for inline data that the queue pair was not made for.
    pub(crate) fn check(&self) -> Result<(), c_int> {
        if self.end - self.begin > self.free {
            return Err(libc::ENOMEM);
        }
        match (self.bounced, &self.inner.bounce) {
            ((0, _), _) => Ok(()),
            ((count, longest), Some(bounce)) => bounce.check(self.tail, count, longest),
            _ => Err(libc::EINVAL),
        }
    }
}

impl Inner {
    /// Checks a request for a queue pair in the error state, which completes it as flushed.
    ///
    /// Errors: `EINVAL` for one that could not be posted in any state.
    ///
    /// # Safety
    /// The request is valid, as verbs has it.
    #[cold]
    pub(crate) unsafe fn check_flushed(&self, wanted: &ibv_send_wr) -> Result<(), c_int> {
        let is_datagram = matches!(
            self.pair,
            Pair::DatagramInitialised(_) | Pair::DatagramReady(_)
        );
        match wanted.opcode {
            request::SEND | request::SEND_WITH_IMM => {}
            request::RDMA_WRITE
            | request::RDMA_WRITE_WITH_IMM
            | request::RDMA_READ
            | request::SEND_WITH_INV
            | request::LOCAL_INV
            | request::BIND_MW
                if !is_datagram => {}
            _ => return Err(libc::EINVAL),
        }
        // SAFETY: the caller's promise.
        unsafe { Room::of(self)?.take(wanted) }
    }
}
