//! The pieces of memory that a request names.

use crate::abi::ibv_sge;
use ringside_pmd::rdma::Fragment;
use ringside_spec::verbs::sizes::MAX_FRAGMENTS;
use std::cell::UnsafeCell;
use std::ffi::c_int;
use std::mem::offset_of;

const _: () = assert!(
    size_of::<Fragment>() == size_of::<ibv_sge>()
        && align_of::<Fragment>() == align_of::<ibv_sge>()
        && offset_of!(Fragment, address) == offset_of!(ibv_sge, addr)
        && offset_of!(Fragment, length_bytes) == offset_of!(ibv_sge, length)
        && offset_of!(Fragment, steering_tag) == offset_of!(ibv_sge, lkey),
    "a program's list is read as a list of fragments"
);

thread_local! {
    /// The entries of a list that was not aligned.
    static COPIED: UnsafeCell<[ibv_sge; MAX_FRAGMENTS]> = const {
        UnsafeCell::new([ibv_sge { addr: 0, length: 0, lkey: 0 }; MAX_FRAGMENTS])
    };
}

/// Copies a list out of a packed structure of the program: libiscsi has such lists.
///
/// Errors: `EINVAL` for more than [`MAX_FRAGMENTS`].
///
/// # Safety
/// `list` has `count` entries. The result is used before the next call on this thread.
#[cold]
#[inline(never)]
unsafe fn copied<'a>(list: *const ibv_sge, count: usize) -> Result<&'a [ibv_sge], c_int> {
    COPIED.with(|place| {
        // SAFETY: the thread's own place, and the caller has no use for an earlier result.
        let place = unsafe { &mut *place.get() };
        let place = place.get_mut(..count).ok_or(libc::EINVAL)?;
        for (index, entry) in place.iter_mut().enumerate() {
            // SAFETY: the caller's promise.
            *entry = unsafe { list.add(index).read_unaligned() };
        }
        // SAFETY: the place lasts as long as the thread.
        Ok(unsafe { std::slice::from_raw_parts(place.as_ptr(), count) })
    })
}

/// The entries of a list at any address.
///
/// Errors: `EINVAL` for more than `most`.
///
/// # Safety
/// `list` has `count` entries. The result is used before the next call on this thread.
pub(crate) unsafe fn entries<'a>(
    list: *const ibv_sge,
    count: c_int,
    most: u32,
) -> Result<&'a [ibv_sge], c_int> {
    match usize::try_from(count) {
        Ok(0) => Ok(&[]),
        Ok(count) if count <= most as usize && list.is_aligned() => {
            // SAFETY: the caller's promise.
            Ok(unsafe { std::slice::from_raw_parts(list, count) })
        }
        // SAFETY: the caller's promise.
        Ok(count) if count <= most as usize => unsafe { copied(list, count) },
        _ => Err(libc::EINVAL),
    }
}

/// The fragments of a list at any address.
///
/// Errors: `EINVAL` for more than `most`.
///
/// # Safety
/// `list` has `count` entries. The result is used before the next call on this thread.
pub(crate) unsafe fn fragments<'a>(
    list: *const ibv_sge,
    count: c_int,
    most: u32,
) -> Result<&'a [Fragment], c_int> {
    // SAFETY: the caller's promise.
    let entries = unsafe { entries(list, count, most) }?;
    // SAFETY: both have the same layout, which is checked above.
    Ok(unsafe { std::slice::from_raw_parts(entries.as_ptr().cast(), entries.len()) })
}
