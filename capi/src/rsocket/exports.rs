//! The functions of `rdma/rsocket.h`, with the prefix `ringside_`.

use super::poll::{Set, select, wait};
use super::socket::{Options, Socket};
use super::table;
use super::transfer::Piece;
use crate::cm::socket_address;
use crate::errno::{self, answer};
use std::ffi::{c_int, c_void};
use std::time::Duration;

/// The result as C has it: a count, or -1 with `errno` set.
fn count(result: Result<usize, c_int>) -> isize {
    match result {
        Ok(count) => count as isize,
        Err(error) => errno::minus_one(error) as isize,
    }
}

fn number(result: Result<c_int, c_int>) -> c_int {
    result.unwrap_or_else(errno::minus_one)
}

/// Makes a stream socket. Errors: `ENOTSUP` for other kinds, `ENODEV` without a device.
#[unsafe(no_mangle)]
pub extern "C" fn ringside_rsocket(family: c_int, kind: c_int, protocol: c_int) -> c_int {
    let flags = kind & (libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC);
    let is_stream =
        kind & !flags == libc::SOCK_STREAM && [0, libc::IPPROTO_TCP].contains(&protocol);
    if !is_stream || ![libc::AF_INET, libc::AF_INET6].contains(&family) {
        return errno::minus_one(libc::ENOTSUP);
    }
    let made = Socket::make(Options::new(flags & libc::SOCK_NONBLOCK != 0));
    number(made.map(table::enter))
}

/// # Safety
/// `address` has `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringside_rbind(
    socket: c_int,
    address: *const libc::sockaddr,
    _length: libc::socklen_t,
) -> c_int {
    // SAFETY: the caller's promise.
    answer(table::socket(socket).and_then(|socket| unsafe { socket.bind(address) }))
}

/// Listens for connections.
#[unsafe(no_mangle)]
pub extern "C" fn ringside_rlisten(socket: c_int, backlog: c_int) -> c_int {
    answer(table::socket(socket).and_then(|socket| socket.listen(backlog)))
}

/// # Safety
/// `address` and `length` are null, or a place of that length.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringside_raccept(
    socket: c_int,
    address: *mut libc::sockaddr,
    length: *mut libc::socklen_t,
) -> c_int {
    match table::socket(socket).and_then(|socket| socket.accept()) {
        Ok(made) => {
            if !address.is_null() && !length.is_null() {
                // SAFETY: the caller's promise.
                unsafe { made.peer(address, length) };
            }
            made.descriptor
        }
        Err(error) => errno::minus_one(error),
    }
}

/// # Safety
/// `address` has `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringside_rconnect(
    socket: c_int,
    address: *const libc::sockaddr,
    _length: libc::socklen_t,
) -> c_int {
    // SAFETY: the caller's promise.
    answer(table::socket(socket).and_then(|socket| unsafe { socket.connect(address) }))
}

/// Ends one direction or both.
#[unsafe(no_mangle)]
pub extern "C" fn ringside_rshutdown(socket: c_int, how: c_int) -> c_int {
    let (reads, writes) = match how {
        libc::SHUT_RD => (true, false),
        libc::SHUT_WR => (false, true),
        libc::SHUT_RDWR => (true, true),
        _ => return errno::minus_one(libc::EINVAL),
    };
    answer(table::socket(socket).and_then(|socket| socket.shut(reads, writes)))
}

/// Closes a socket. What was sent arrives, unless the peer does not take it for 10 s.
#[unsafe(no_mangle)]
pub extern "C" fn ringside_rclose(socket: c_int) -> c_int {
    match table::remove(socket) {
        Ok(socket) => {
            if let Err(error) = socket.shut(true, true) {
                tracing::debug!(error, "a socket was closed without a farewell");
            }
            socket.close();
            0
        }
        Err(error) => errno::minus_one(error),
    }
}

/// # Safety
/// The piece is memory of the program.
unsafe fn receive(socket: c_int, pieces: &[Piece], flags: c_int) -> isize {
    let socket = table::socket(socket);
    // SAFETY: the caller's promise.
    count(socket.and_then(|socket| unsafe { socket.receive(pieces, flags) }))
}

/// # Safety
/// The piece is memory of the program.
unsafe fn send(socket: c_int, pieces: &[Piece], flags: c_int) -> isize {
    let socket = table::socket(socket);
    // SAFETY: the caller's promise.
    count(socket.and_then(|socket| unsafe { socket.send(pieces, flags) }))
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
pub unsafe extern "C" fn ringside_rrecv(
    socket: c_int,
    into: *mut c_void,
    length: usize,
    flags: c_int,
) -> isize {
    // SAFETY: the caller's promise.
    unsafe { receive(socket, &[(into.cast(), length)], flags) }
}

/// # Safety
/// As [`ringside_rrecv`]; `address` and `address_length` are null, or a place of that length.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringside_rrecvfrom(
    socket: c_int,
    into: *mut c_void,
    length: usize,
    flags: c_int,
    address: *mut libc::sockaddr,
    address_length: *mut libc::socklen_t,
) -> isize {
    // SAFETY: the caller's promise.
    unsafe {
        let got = ringside_rrecv(socket, into, length, flags);
        if got > 0
            && !address.is_null()
            && !address_length.is_null()
            && let Some(socket) = table::find(socket)
        {
            socket.peer(address, address_length);
        }
        got
    }
}

/// # Safety
/// `message` is valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringside_rrecvmsg(
    socket: c_int,
    message: *mut libc::msghdr,
    flags: c_int,
) -> isize {
    // SAFETY: the caller's promise.
    unsafe {
        let message = &mut *message;
        if message.msg_controllen > 0 {
            return errno::minus_one(libc::ENOTSUP) as isize;
        }
        message.msg_flags = 0;
        let pieces = pieces(message.msg_iov, message.msg_iovlen);
        receive(socket, &pieces, flags)
    }
}

/// # Safety
/// As [`ringside_rrecv`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringside_rread(socket: c_int, into: *mut c_void, length: usize) -> isize {
    // SAFETY: the caller's promise.
    unsafe { ringside_rrecv(socket, into, length, 0) }
}

/// # Safety
/// `vectors` has `length` entries.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringside_rreadv(
    socket: c_int,
    vectors: *const libc::iovec,
    length: c_int,
) -> isize {
    // SAFETY: the caller's promise.
    unsafe { receive(socket, &pieces(vectors, length.max(0) as usize), 0) }
}

/// # Safety
/// `from` has `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringside_rsend(
    socket: c_int,
    from: *const c_void,
    length: usize,
    flags: c_int,
) -> isize {
    // SAFETY: the caller's promise; the bytes are only read.
    unsafe { send(socket, &[(from.cast_mut().cast(), length)], flags) }
}

/// A stream has one peer: another one is refused with `EISCONN`.
///
/// # Safety
/// As [`ringside_rsend`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringside_rsendto(
    socket: c_int,
    from: *const c_void,
    length: usize,
    flags: c_int,
    address: *const libc::sockaddr,
    _address_length: libc::socklen_t,
) -> isize {
    if !address.is_null() {
        return errno::minus_one(libc::EISCONN) as isize;
    }
    // SAFETY: the caller's promise.
    unsafe { ringside_rsend(socket, from, length, flags) }
}

/// # Safety
/// `message` is valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringside_rsendmsg(
    socket: c_int,
    message: *const libc::msghdr,
    flags: c_int,
) -> isize {
    // SAFETY: the caller's promise.
    unsafe {
        let message = &*message;
        if message.msg_controllen > 0 {
            return errno::minus_one(libc::ENOTSUP) as isize;
        }
        send(socket, &pieces(message.msg_iov, message.msg_iovlen), flags)
    }
}

/// # Safety
/// As [`ringside_rsend`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringside_rwrite(
    socket: c_int,
    from: *const c_void,
    length: usize,
) -> isize {
    // SAFETY: the caller's promise.
    unsafe { ringside_rsend(socket, from, length, 0) }
}

/// # Safety
/// `vectors` has `length` entries.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringside_rwritev(
    socket: c_int,
    vectors: *const libc::iovec,
    length: c_int,
) -> isize {
    // SAFETY: the caller's promise.
    unsafe { send(socket, &pieces(vectors, length.max(0) as usize), 0) }
}

/// Waits for sockets and other descriptors.
///
/// # Safety
/// `entries` has `length` entries.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringside_rpoll(
    entries: *mut libc::pollfd,
    length: libc::nfds_t,
    milliseconds: c_int,
) -> c_int {
    let limit = u64::try_from(milliseconds).ok().map(Duration::from_millis);
    let entries = match entries.is_null() {
        true => &mut [],
        // SAFETY: the caller's promise.
        false => unsafe { std::slice::from_raw_parts_mut(entries, length as usize) },
    };
    number(wait(entries, limit))
}

/// Waits for sockets and other descriptors.
///
/// # Safety
/// The sets and the limit are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringside_rselect(
    length: c_int,
    reads: *mut libc::fd_set,
    writes: *mut libc::fd_set,
    errors: *mut libc::fd_set,
    limit: *mut libc::timeval,
) -> c_int {
    // SAFETY: the caller's promise.
    let limit = unsafe { limit.as_ref() }.map(|limit| {
        let seconds = u64::try_from(limit.tv_sec).unwrap_or(0);
        let micros = u64::try_from(limit.tv_usec).unwrap_or(0);
        Duration::from_secs(seconds) + Duration::from_micros(micros)
    });
    let set = |bits, events, more| Set {
        bits,
        events,
        stays: events | more,
    };
    let failed = libc::POLLHUP | libc::POLLERR;
    let sets = [
        set(reads, libc::POLLIN, failed),
        set(writes, libc::POLLOUT, libc::POLLERR),
        set(errors, libc::POLLPRI, libc::POLLERR),
    ];
    // SAFETY: the caller's promise.
    number(unsafe { select(length, &sets, limit) })
}

/// # Safety
/// `address` and `length` are a place of that length.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringside_rgetpeername(
    socket: c_int,
    address: *mut libc::sockaddr,
    length: *mut libc::socklen_t,
) -> c_int {
    // SAFETY: the caller's promise.
    answer(table::socket(socket).map(|socket| unsafe { socket.peer(address, length) }))
}

/// # Safety
/// As [`ringside_rgetpeername`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringside_rgetsockname(
    socket: c_int,
    address: *mut libc::sockaddr,
    length: *mut libc::socklen_t,
) -> c_int {
    // SAFETY: the caller's promise.
    answer(table::socket(socket).map(|socket| unsafe { socket.own(address, length) }))
}

impl Socket {
    /// # Safety
    /// `address` and `length` are a place of that length.
    unsafe fn peer(&self, address: *mut libc::sockaddr, length: *mut libc::socklen_t) {
        // SAFETY: the socket's id; the caller's promise.
        unsafe {
            copy(
                &raw const (*self.id).route.addr.dst_storage,
                address,
                length,
            )
        };
    }

    /// # Safety
    /// As [`Socket::peer`].
    unsafe fn own(&self, address: *mut libc::sockaddr, length: *mut libc::socklen_t) {
        // SAFETY: the socket's id; the caller's promise.
        unsafe {
            copy(
                &raw const (*self.id).route.addr.src_storage,
                address,
                length,
            )
        };
    }
}

/// Copies an address, cut to the place; writes its full length.
///
/// # Safety
/// `from` is an address; `into` has `length` bytes.
unsafe fn copy(
    from: *const libc::sockaddr_storage,
    into: *mut libc::sockaddr,
    length: *mut libc::socklen_t,
) {
    // SAFETY: the caller's promise; a storage is longer than any address.
    unsafe {
        let whole = socket_address::length(&*from);
        let cut = (*length).min(whole);
        std::ptr::copy_nonoverlapping(from.cast::<u8>(), into.cast(), cut as usize);
        *length = whole;
    }
}

/// # Safety
/// `value` has `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringside_rsetsockopt(
    socket: c_int,
    level: c_int,
    name: c_int,
    value: *const c_void,
    length: libc::socklen_t,
) -> c_int {
    let socket = table::socket(socket);
    // SAFETY: the caller's promise.
    answer(socket.and_then(|socket| unsafe { socket.set_option(level, name, value, length) }))
}

/// # Safety
/// `value` and `length` are a place of that length.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringside_rgetsockopt(
    socket: c_int,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    length: *mut libc::socklen_t,
) -> c_int {
    let found = table::socket(socket).and_then(|socket| socket.option(level, name));
    let bytes = size_of::<c_int>();
    // SAFETY: the caller's promise.
    answer(found.and_then(|found| unsafe {
        if (*length as usize) < bytes {
            return Err(libc::EINVAL);
        }
        value.cast::<c_int>().write_unaligned(found);
        // A linger has a time behind its switch: none.
        if (*length as usize) >= 2 * bytes && (level, name) == (libc::SOL_SOCKET, libc::SO_LINGER) {
            value.cast::<c_int>().add(1).write_unaligned(0);
            *length = 2 * bytes as libc::socklen_t;
        } else {
            *length = bytes as libc::socklen_t;
        }
        Ok(())
    }))
}

/// Flags of a socket. In C the argument is variadic, which on x86-64 is passed as any other.
#[unsafe(no_mangle)]
pub extern "C" fn ringside_rfcntl(socket: c_int, command: c_int, argument: c_int) -> c_int {
    number(table::socket(socket).and_then(|socket| socket.control(command, argument)))
}

/// Maps a buffer of the program for its peer.
///
/// # Safety
/// The buffer has `length` bytes, and stays until it is unmapped or the socket is closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringside_riomap(
    socket: c_int,
    buffer: *mut c_void,
    length: usize,
    rights: c_int,
    _flags: c_int,
    offset: i64,
) -> i64 {
    let socket = table::socket(socket);
    // SAFETY: the caller's promise.
    let mapped = socket.and_then(|socket| unsafe { socket.map(buffer, length, rights, offset) });
    mapped.unwrap_or_else(|error| errno::minus_one(error).into())
}

/// Takes a mapped buffer back.
#[unsafe(no_mangle)]
pub extern "C" fn ringside_riounmap(socket: c_int, buffer: *mut c_void, length: usize) -> c_int {
    answer(table::socket(socket).and_then(|socket| socket.unmap(buffer, length)))
}

/// Writes into a buffer that the peer mapped.
///
/// # Safety
/// `from` has `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringside_riowrite(
    socket: c_int,
    from: *const c_void,
    length: usize,
    offset: i64,
    flags: c_int,
) -> isize {
    let socket = table::socket(socket);
    let piece = (from.cast_mut().cast(), length);
    // SAFETY: the caller's promise; the bytes are only read.
    count(socket.and_then(|socket| unsafe { socket.write_mapped(piece, offset, flags) }))
}
