//! Sending and receiving: those functions of `rdma/rsocket.h`, with the prefix `ringside_`.

use super::exports::{copy, count};
use super::gather::Piece;
use super::table::{self, Entry};
use crate::cancel::Uncancelled;
use crate::cm::socket_address;
use crate::errno;
use std::ffi::{c_int, c_void};

/// A place for the address of a sender.
type Place = (*mut libc::sockaddr, *mut libc::socklen_t);

const NOWHERE: Place = (std::ptr::null_mut(), std::ptr::null_mut());

/// Receives; returns how many bytes, and how many the datagram had that they are of.
///
/// # Safety
/// The pieces are memory of the program; the place has two null pointers, or is one of that length.
unsafe fn take(
    socket: c_int,
    pieces: &[Piece],
    flags: c_int,
    (address, length): Place,
) -> Result<(usize, usize), c_int> {
    let has_place = !address.is_null() && !length.is_null();
    // SAFETY: the caller's promise.
    unsafe {
        match table::socket(socket)? {
            Entry::Stream(stream) => {
                let got = stream.receive(pieces, flags)?;
                if got > 0 && has_place {
                    stream.peer(address, length);
                }
                Ok((got, got))
            }
            Entry::Datagram(datagram) => {
                let got = datagram.receive(pieces, flags)?;
                match got.from {
                    Some(from) if has_place => copy(&datagram.shown(from), address, length),
                    None if has_place => *length = 0,
                    _ => {}
                }
                Ok((got.bytes, got.length))
            }
        }
    }
}

/// # Safety
/// As [`take`].
unsafe fn receive(socket: c_int, pieces: &[Piece], flags: c_int, place: Place) -> isize {
    // SAFETY: the caller's promise.
    let got = unsafe { take(socket, pieces, flags, place) };
    let counts_all = flags & libc::MSG_TRUNC != 0;
    count(got.map(|(bytes, whole)| if counts_all { whole } else { bytes }))
}

/// # Safety
/// The pieces are memory of the program; the address is null or a socket address.
unsafe fn send(
    socket: c_int,
    pieces: &[Piece],
    flags: c_int,
    address: *const libc::sockaddr,
) -> isize {
    // SAFETY: the caller's promise.
    count(table::socket(socket).and_then(|socket| unsafe {
        match socket {
            Entry::Stream(_) if !address.is_null() => Err(libc::EISCONN),
            Entry::Stream(stream) => stream.send(pieces, flags),
            Entry::Datagram(datagram) => {
                let to = (!address.is_null()).then(|| socket_address::read(address));
                datagram.send(pieces, flags, to)
            }
        }
    }))
}

/// The vectors of `rreadv` and `rwritev`. Errors: `EINVAL` for a negative count.
///
/// # Safety
/// `vectors` has `count` entries.
unsafe fn counted(vectors: *const libc::iovec, count: c_int) -> Result<Vec<Piece>, c_int> {
    let count = usize::try_from(count).map_err(|_| libc::EINVAL)?;
    // SAFETY: the caller's promise.
    Ok(unsafe { pieces(vectors, count) })
}

/// # Safety
/// `vectors` has `count` entries.
unsafe fn pieces(vectors: *const libc::iovec, count: usize) -> Vec<Piece> {
    if vectors.is_null() {
        return Vec::new();
    }
    // SAFETY: the caller's promise.
    let vectors = unsafe { std::slice::from_raw_parts(vectors, count) };
    let pieces = vectors.iter();
    pieces
        .map(|one| (one.iov_base.cast(), one.iov_len))
        .collect()
}

/// # Safety
/// `into` has room for `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn ringside_rrecv(
    socket: c_int,
    into: *mut c_void,
    length: usize,
    flags: c_int,
) -> isize {
    let _call = Uncancelled::new();
    // SAFETY: the caller's promise.
    unsafe { receive(socket, &[(into.cast(), length)], flags, NOWHERE) }
}

/// # Safety
/// As [`ringside_rrecv`]; `address` and `address_length` are null, or a place of that length.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn ringside_rrecvfrom(
    socket: c_int,
    into: *mut c_void,
    length: usize,
    flags: c_int,
    address: *mut libc::sockaddr,
    address_length: *mut libc::socklen_t,
) -> isize {
    let _call = Uncancelled::new();
    let pieces = [(into.cast(), length)];
    // SAFETY: the caller's promise.
    unsafe { receive(socket, &pieces, flags, (address, address_length)) }
}

/// # Safety
/// `message` is valid.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn ringside_rrecvmsg(
    socket: c_int,
    message: *mut libc::msghdr,
    flags: c_int,
) -> isize {
    let _call = Uncancelled::new();
    // SAFETY: the caller's promise.
    unsafe {
        let message = &mut *message;
        if !message.msg_control.is_null() && message.msg_controllen > 0 {
            return errno::minus_one(libc::ENOTSUP) as isize;
        }
        message.msg_flags = 0;
        let pieces = pieces(message.msg_iov, message.msg_iovlen);
        let has_name = !message.msg_name.is_null();
        let place = match table::find(socket) {
            // As with TCP, the name is that of a connection.
            Some(Entry::Datagram(_)) if has_name => {
                (message.msg_name.cast(), &raw mut message.msg_namelen)
            }
            _ => NOWHERE,
        };
        let got = take(socket, &pieces, flags, place);
        if got.is_ok_and(|(bytes, whole)| bytes < whole) {
            message.msg_flags = libc::MSG_TRUNC;
        }
        let counts_all = flags & libc::MSG_TRUNC != 0;
        count(got.map(|(bytes, whole)| if counts_all { whole } else { bytes }))
    }
}

/// # Safety
/// As [`ringside_rrecv`].
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn ringside_rread(
    socket: c_int,
    into: *mut c_void,
    length: usize,
) -> isize {
    let _call = Uncancelled::new();
    // SAFETY: the caller's promise.
    unsafe { ringside_rrecv(socket, into, length, 0) }
}

/// # Safety
/// `vectors` has `length` entries.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn ringside_rreadv(
    socket: c_int,
    vectors: *const libc::iovec,
    length: c_int,
) -> isize {
    let _call = Uncancelled::new();
    // SAFETY: the caller's promise.
    unsafe {
        match counted(vectors, length) {
            Ok(pieces) => receive(socket, &pieces, 0, NOWHERE),
            Err(error) => errno::minus_one(error) as isize,
        }
    }
}

/// # Safety
/// `from` has `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn ringside_rsend(
    socket: c_int,
    from: *const c_void,
    length: usize,
    flags: c_int,
) -> isize {
    let _call = Uncancelled::new();
    // SAFETY: the caller's promise; the bytes are only read.
    unsafe { ringside_rsendto(socket, from, length, flags, std::ptr::null(), 0) }
}

/// A stream has one peer: another one is refused with `EISCONN`.
///
/// # Safety
/// As [`ringside_rsend`].
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn ringside_rsendto(
    socket: c_int,
    from: *const c_void,
    length: usize,
    flags: c_int,
    address: *const libc::sockaddr,
    _address_length: libc::socklen_t,
) -> isize {
    let _call = Uncancelled::new();
    // SAFETY: the caller's promise; the bytes are only read.
    unsafe { send(socket, &[(from.cast_mut().cast(), length)], flags, address) }
}

/// # Safety
/// `message` is valid.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn ringside_rsendmsg(
    socket: c_int,
    message: *const libc::msghdr,
    flags: c_int,
) -> isize {
    let _call = Uncancelled::new();
    // SAFETY: the caller's promise.
    unsafe {
        let message = &*message;
        if !message.msg_control.is_null() && message.msg_controllen > 0 {
            return errno::minus_one(libc::ENOTSUP) as isize;
        }
        let pieces = pieces(message.msg_iov, message.msg_iovlen);
        let to = match table::find(socket) {
            Some(Entry::Datagram(_)) => message.msg_name.cast_const().cast(),
            _ => std::ptr::null(),
        };
        send(socket, &pieces, flags, to)
    }
}

/// # Safety
/// As [`ringside_rsend`].
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn ringside_rwrite(
    socket: c_int,
    from: *const c_void,
    length: usize,
) -> isize {
    let _call = Uncancelled::new();
    // SAFETY: the caller's promise.
    unsafe { ringside_rsend(socket, from, length, 0) }
}

/// # Safety
/// `vectors` has `length` entries.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn ringside_rwritev(
    socket: c_int,
    vectors: *const libc::iovec,
    length: c_int,
) -> isize {
    let _call = Uncancelled::new();
    // SAFETY: the caller's promise.
    unsafe {
        match counted(vectors, length) {
            Ok(pieces) => send(socket, &pieces, 0, std::ptr::null()),
            Err(error) => errno::minus_one(error) as isize,
        }
    }
}
