//! The pieces of memory that a request names.

use crate::abi::ibv_sge;
use ringside_pmd::rdma::Fragment;
use std::ffi::c_int;

/// Fragments of a request.
const FRAGMENTS_MOST: usize = 13;

/// Fragments of a request, on the stack.
pub(crate) struct Fragments {
    all: [Fragment; FRAGMENTS_MOST],
    count: usize,
}

impl Fragments {
    pub(crate) fn as_slice(&self) -> &[Fragment] {
        self.all.get(..self.count).unwrap_or(&[])
    }
}

/// # Safety
/// `list` has `count` entries.
pub(crate) unsafe fn entries<'a>(
    list: *const ibv_sge,
    count: c_int,
) -> Result<&'a [ibv_sge], c_int> {
    match usize::try_from(count) {
        Ok(0) => Ok(&[]),
        Ok(count) if count <= FRAGMENTS_MOST => {
            // SAFETY: the caller's promise.
            Ok(unsafe { std::slice::from_raw_parts(list, count) })
        }
        _ => Err(libc::EINVAL),
    }
}

/// # Safety
/// `list` has `count` entries.
pub(crate) unsafe fn fragments(list: *const ibv_sge, count: c_int) -> Result<Fragments, c_int> {
    let none = Fragment {
        address: 0,
        length_bytes: 0,
        steering_tag: 0,
    };
    let mut found = Fragments {
        all: [none; FRAGMENTS_MOST],
        count: 0,
    };
    // SAFETY: the caller's promise.
    let entries = unsafe { entries(list, count) }?;
    for (place, entry) in found.all.iter_mut().zip(entries) {
        *place = Fragment {
            address: entry.addr,
            length_bytes: entry.length,
            steering_tag: entry.lkey,
        };
    }
    found.count = entries.len();
    Ok(found)
}
