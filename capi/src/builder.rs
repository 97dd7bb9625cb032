//! Requests that a program builds call by call, before any of them is posted.
//!
//! The device may read a request as soon as it is in the ring. So the requests of a batch are kept
//! here until the program completes it, and an abort leaves nothing behind.

use crate::abi::{ibv_send_wr, ibv_sge, send_flags};
use crate::bounce::MAX_BOUNCE;
use std::ffi::c_int;
use std::ops::Range;

/// Requests of a batch: as many as the largest send queue holds.
const MAX_REQUESTS: usize = ringside_spec::verbs::sizes::MAX_RING_QUANTA as usize;
/// Fragments of a request.
const MAX_FRAGMENTS: usize = ringside_spec::rdma::limits::MAX_FRAGMENTS as usize;

/// The requests of a batch. It allocates until it has held its largest batch.
#[derive(Default)]
pub(crate) struct Builder {
    requests: Vec<Planned>,
    entries: Vec<ibv_sge>,
    bytes: Vec<u8>,
    /// the first error of the batch, 0 if there is none
    error: c_int,
}

/// A request, whose data is in the builder's lists.
struct Planned {
    request: ibv_send_wr,
    data: Data,
    /// the inline data, once the batch is complete
    inline: ibv_sge,
}

/// The place of a request's data.
#[derive(Clone)]
enum Data {
    Entries(Range<usize>),
    Inline(Range<usize>),
}

impl Builder {
    /// Notes that the batch cannot be posted. The first reason counts.
    pub(crate) fn refuse(&mut self, error: c_int) {
        if self.error == 0 {
            self.error = error;
        }
    }

    /// Adds a request without data. `wr` is its union: remote memory, or a datagram's destination.
    pub(crate) fn add(&mut self, id: u64, flags: u32, opcode: c_int, number: u32, wr: [u64; 4]) {
        if self.requests.len() >= MAX_REQUESTS {
            return self.refuse(libc::ENOMEM);
        }
        self.requests.push(Planned {
            request: ibv_send_wr {
                wr_id: id,
                next: std::ptr::null_mut(),
                sg_list: std::ptr::null_mut(),
                num_sge: 0,
                opcode,
                // The setter of the data decides if it is inline.
                send_flags: flags & !send_flags::INLINE,
                imm_data: number,
                wr,
                qp_type: 0,
                padding: 0,
                rest: [0; 6],
            },
            data: Data::Entries(0..0),
            inline: NOTHING,
        });
    }

    /// The request that setters are for. Without one, the batch is refused.
    fn last(&mut self) -> Option<&mut Planned> {
        if self.requests.is_empty() {
            self.refuse(libc::EINVAL);
        }
        self.requests.last_mut()
    }

    /// Gives the last request its destination.
    pub(crate) fn set_destination(&mut self, handle: u64, queue_pair: u32, key: u32) {
        if let Some(planned) = self.last() {
            planned.request.wr = [handle, u64::from(key) << 32 | u64::from(queue_pair), 0, 0];
        }
    }

    /// Gives the last request the window and the memory that it binds.
    pub(crate) fn set_bind(&mut self, bind: [u64; 6]) {
        if let Some(planned) = self.last() {
            planned.request.rest = bind;
        }
    }

    /// Gives the last request its fragments.
    pub(crate) fn set_entries(&mut self, list: &[ibv_sge]) {
        if list.len() > MAX_FRAGMENTS {
            return self.refuse(libc::EINVAL);
        }
        let begin = self.entries.len();
        self.entries.extend_from_slice(list);
        let range = begin..self.entries.len();
        if let Some(planned) = self.last() {
            planned.data = Data::Entries(range);
            planned.request.send_flags &= !send_flags::INLINE;
        }
    }

    /// Gives the last request its inline data, which is copied now.
    pub(crate) fn set_inline<'a>(&mut self, pieces: impl Iterator<Item = &'a [u8]>) {
        let begin = self.bytes.len();
        for piece in pieces {
            if self.bytes.len() - begin + piece.len() > MAX_BOUNCE as usize {
                return self.refuse(libc::EINVAL);
            }
            self.bytes.extend_from_slice(piece);
        }
        let range = begin..self.bytes.len();
        if let Some(planned) = self.last() {
            planned.data = Data::Inline(range);
            planned.request.send_flags |= send_flags::INLINE;
        }
    }

    /// The requests of the batch as a program would post them.
    ///
    /// Errors: the first error of the batch.
    pub(crate) fn finish(&mut self) -> Result<impl Iterator<Item = &ibv_send_wr> + Clone, c_int> {
        if self.error != 0 {
            return Err(self.error);
        }
        for planned in &mut self.requests {
            match planned.data.clone() {
                Data::Entries(range) => {
                    planned.request.num_sge = range.len() as c_int;
                    let list = self.entries.get(range).unwrap_or(&[]);
                    planned.request.sg_list = list.as_ptr().cast_mut();
                }
                Data::Inline(range) => {
                    let bytes = self.bytes.get(range).unwrap_or(&[]);
                    planned.inline.addr = bytes.as_ptr() as u64;
                    planned.inline.length = bytes.len() as u32;
                    planned.request.num_sge = 1;
                    planned.request.sg_list = &raw mut planned.inline;
                }
            }
        }
        Ok(self.requests.iter().map(|planned| &planned.request))
    }

    /// Forgets the batch.
    pub(crate) fn clear(&mut self) {
        self.requests.clear();
        self.entries.clear();
        self.bytes.clear();
        self.error = 0;
    }
}

const NOTHING: ibv_sge = ibv_sge {
    addr: 0,
    length: 0,
    lkey: 0,
};

#[cfg(test)]
#[path = "builder/tests.rs"]
mod tests;
