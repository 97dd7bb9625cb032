//! Buffers that the library allocates, and the newest form of registration: `ibv_alloc_buf`,
//! `ibv_reg_buf_mr` and `ibv_reg_mr_ex` of release 65.
//!
//! A buffer is ordinary memory that begins at a page. There are no regions of descriptors.

use crate::abi::{ibv_mr, ibv_mr_init_attr, ibv_pd, register};
use crate::cancel::Uncancelled;
use crate::errno;
use crate::memory::ibv_reg_mr_iova2;
use std::ffi::{c_int, c_void};

/// `struct ibv_buf`: opaque to programs.
#[derive(Debug)]
pub struct Buffer {
    domain: *mut ibv_pd,
    address: *mut c_void,
    length: usize,
}

/// Bytes of a page, at which a buffer begins.
const PAGE: usize = 4096;

/// Allocates memory; `into` gets its handle. Returns its address, null with `errno` if there is
/// none.
///
/// # Safety
/// `domain` is one of this library and outlives the buffer; `into` is valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_alloc_buf(
    domain: *mut ibv_pd,
    length: usize,
    into: *mut *mut Buffer,
) -> *mut c_void {
    let mut address = std::ptr::null_mut();
    // SAFETY: the place for the address is valid, and the alignment a power of two.
    let error = unsafe { libc::posix_memalign(&raw mut address, PAGE, length) };
    if error != 0 {
        return errno::null(error);
    }
    let made = Box::new(Buffer {
        domain,
        address,
        length,
    });
    // SAFETY: the caller's promise.
    unsafe { *into = Box::into_raw(made) };
    address
}

/// Frees a buffer.
///
/// # Safety
/// `buffer` came from [`ibv_alloc_buf`], and no region of it is registered.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_free_buf(buffer: *mut Buffer) {
    // SAFETY: the caller's promise; the memory came from `posix_memalign`.
    unsafe {
        libc::free((*buffer).address);
        drop(Box::from_raw(buffer));
    }
}

/// Registers a part of a buffer.
///
/// Errors: `EINVAL` for a domain that the buffer was not allocated for, and for a part that is not
/// inside; those of `ibv_reg_mr`.
///
/// # Safety
/// `domain` and `buffer` are of this library; the buffer stays until the region is deregistered.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_reg_buf_mr(
    domain: *mut ibv_pd,
    buffer: *mut Buffer,
    address: *mut c_void,
    length: usize,
    access: c_int,
) -> *mut ibv_mr {
    let _call = Uncancelled::new();
    let mut wanted = ibv_mr_init_attr {
        length,
        access,
        comp_mask: register::BUFFER | register::ADDRESS,
        iova: 0,
        addr: address,
        fd: -1,
        fd_offset: 0,
        dmah: std::ptr::null_mut(),
        buf: buffer.cast(),
    };
    // SAFETY: the caller's promise.
    unsafe { ibv_reg_mr_ex(domain, &raw mut wanted) }
}

/// Registers memory, or a part of a buffer.
///
/// Errors: `EOPNOTSUPP` for descriptors and handles of DMA, and for fields that do not exist;
/// `EINVAL` without an address; those of [`ibv_reg_buf_mr`].
///
/// # Safety
/// `domain` is of this library, `wanted` is valid, and the memory stays until the region is
/// deregistered.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_reg_mr_ex(
    domain: *mut ibv_pd,
    wanted: *mut ibv_mr_init_attr,
) -> *mut ibv_mr {
    use register::{ADDRESS, BUFFER, DESCRIPTOR, DESCRIPTOR_OFFSET, IOVA};
    let _call = Uncancelled::new();
    // SAFETY: the caller's promise.
    let wanted = unsafe { &*wanted };
    let has = |field| wanted.comp_mask & field != 0;
    if has(BUFFER) {
        // SAFETY: the caller's promise.
        let buffer = unsafe { &*wanted.buf.cast::<Buffer>() };
        let is_inside = has(ADDRESS) && buffer.contains(wanted.addr as usize, wanted.length);
        if buffer.domain != domain || !is_inside || has(DESCRIPTOR) {
            return errno::null(libc::EINVAL);
        }
    }
    if has(!(IOVA | ADDRESS | BUFFER | DESCRIPTOR_OFFSET)) {
        return errno::null(libc::EOPNOTSUPP);
    }
    if !has(ADDRESS) || has(DESCRIPTOR_OFFSET) {
        return errno::null(libc::EINVAL);
    }
    let named = match has(IOVA) {
        true => wanted.iova,
        false => wanted.addr as u64,
    };
    let flags = wanted.access as u32;
    // SAFETY: the caller's promise.
    unsafe { ibv_reg_mr_iova2(domain, wanted.addr, wanted.length, named, flags) }
}

/// Refused with `ENODATA`: no buffer has a descriptor.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_export_buf_dmabuf_fd(_: *mut Buffer) -> c_int {
    errno::set(libc::ENODATA);
    -1
}

impl Buffer {
    fn contains(&self, address: usize, length: usize) -> bool {
        let offset = address.checked_sub(self.address as usize);
        offset.is_some_and(|offset| offset <= self.length && length <= self.length - offset)
    }
}
