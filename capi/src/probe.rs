//! Checks the program's memory before it is registered.
//!
//! The kernel pins the pages of a region, and refuses those that are not there or that the program
//! may not write. A model in another process reaches memory by the file of the address space, which
//! ignores the protection of pages: nothing else would keep a peer from changing constants.

use std::ffi::{c_int, c_void};

/// Bytes of a page.
const PAGE: usize = 4096;

/// Checks that the range is mapped from its first to its last page, and that the first and the last
/// one may be read, or written if `writes`. The protection of pages between them is not looked at.
///
/// # Errors
/// `EINVAL` if the range ends beyond the address space, `EFAULT` if the device may not access it,
/// `ENOMEM` if there is no memory for a page that was never touched.
pub(crate) fn check(address: usize, length: usize, writes: bool) -> Result<(), c_int> {
    let end = address.checked_add(length);
    let end = end.and_then(|end| end.checked_next_multiple_of(PAGE));
    let end = end.filter(|_| length > 0).ok_or(libc::EINVAL)?;
    let first = address - address % PAGE;
    if !is_mapped(first, end - first) {
        return Err(libc::EFAULT);
    }
    touch(first, writes)?;
    touch(end - PAGE, writes)
}

/// True if every page of the range is mapped, present or not. The kernel answers with a byte a
/// page.
fn is_mapped(first: usize, length: usize) -> bool {
    const MAX_PAGES: usize = 64 << 10;
    let mut answers = vec![0; MAX_PAGES.min(length / PAGE)];
    (0..length).step_by(MAX_PAGES * PAGE).all(|done| {
        let place = std::ptr::with_exposed_provenance_mut::<c_void>(first + done);
        let piece = (length - done).min(MAX_PAGES * PAGE);
        // SAFETY: writes a byte for each page of the piece, of which there are as many as answers.
        unsafe { libc::mincore(place, piece, answers.as_mut_ptr()) == 0 }
    })
}

/// Makes a mapped page present, as an access by the program would, without changing its bytes.
fn touch(page: usize, writes: bool) -> Result<(), c_int> {
    match populate(page, writes) {
        0 => Ok(()),
        libc::ENOMEM => Err(libc::ENOMEM),
        // Both of a page that may not be accessed so, and of a kernel before 5.14.
        libc::EINVAL if !is_supported() => Ok(()),
        _ => Err(libc::EFAULT),
    }
}

/// The errno value of the kernel, or 0.
fn populate(page: usize, writes: bool) -> c_int {
    let advice = match writes {
        true => libc::MADV_POPULATE_WRITE,
        false => libc::MADV_POPULATE_READ,
    };
    let place = std::ptr::with_exposed_provenance_mut::<c_void>(page);
    // SAFETY: makes the page present; content and protection stay.
    match unsafe { libc::madvise(place, PAGE, advice) } {
        0 => 0,
        _ => std::io::Error::last_os_error()
            .raw_os_error()
            .unwrap_or(libc::EFAULT),
    }
}

/// True if the kernel knows the request: it then succeeds for a page of the stack.
fn is_supported() -> bool {
    let own = 0_u8;
    let at = (&raw const own).expose_provenance();
    populate(at - at % PAGE, true) == 0
}
