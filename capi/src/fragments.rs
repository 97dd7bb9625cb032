//! The pieces of memory that a request names.

use crate::abi::ibv_sge;
use ringside_pmd::rdma::Fragment;
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

/// Errors: `EINVAL` for more than `most`.
///
/// # Safety
/// `list` has `count` entries.
pub(crate) unsafe fn entries<'a>(
    list: *const ibv_sge,
    count: c_int,
    most: u32,
) -> Result<&'a [ibv_sge], c_int> {
    match usize::try_from(count) {
        Ok(0) => Ok(&[]),
        Ok(count) if count <= most as usize => {
            // SAFETY: the caller's promise.
            Ok(unsafe { std::slice::from_raw_parts(list, count) })
        }
        _ => Err(libc::EINVAL),
    }
}

/// Errors: `EINVAL` for more than `most`.
///
/// # Safety
/// `list` has `count` entries.
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
