//! The functions of `rdma/rsocket.h`, with the prefix `ringside_`.

use super::datagram::Datagram;
use super::directions::Directions;
use super::interest::{self, Change, InterestList};
use super::poll::{Patience, Set, select, wait};
use super::service;
use super::socket::{Options, Socket};
use super::table::{self, Entry};
use crate::cancel::Uncancelled;
use crate::cm::socket_address;
use crate::errno::{self, answer};
use std::ffi::{c_int, c_void};
use std::sync::Arc;
use std::time::Duration;

/// The result as C has it: a count, or -1 with `errno` set.
pub(super) fn count(result: Result<usize, c_int>) -> isize {
    match result {
        Ok(count) => count as isize,
        Err(error) => errno::minus_one(error) as isize,
    }
}

fn number(result: Result<c_int, c_int>) -> c_int {
    result.unwrap_or_else(errno::minus_one)
}

/// Enters a new socket; returns its descriptor. What the program closed by close(2), and had this
/// number before, ends without its descriptor: its peer is told, and its port is free. It keeps its
/// memory, since the drop of a socket would close the new one.
fn enter(socket: Entry) -> c_int {
    let (descriptor, displaced) = table::enter(socket);
    interest::displace(descriptor);
    if let Some(displaced) = displaced {
        tracing::warn!(descriptor, "a socket was closed by close instead of rclose");
        interest::forget(descriptor);
        match &displaced {
            Entry::Stream(stream) => {
                service::withdraw(stream);
                stream.retire();
            }
            Entry::Datagram(datagram) => datagram.retire(),
        }
        std::mem::forget(displaced);
    }
    descriptor
}

/// Makes a stream or datagram socket. Errors: `ENOTSUP` for other kinds, `ENODEV` without a device.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn ringside_rsocket(family: c_int, kind: c_int, protocol: c_int) -> c_int {
    let _call = Uncancelled::new();
    let flags = kind & (libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC);
    let options = Options::new(flags);
    let is_known = [libc::AF_INET, libc::AF_INET6].contains(&family);
    let made = match (kind & !flags, protocol) {
        (libc::SOCK_STREAM, 0 | libc::IPPROTO_TCP) if is_known => {
            Socket::make(family, options).map(|made| Entry::Stream(Arc::new(made)))
        }
        (libc::SOCK_DGRAM, 0 | libc::IPPROTO_UDP) if is_known => {
            Datagram::make(family, options).map(Entry::Datagram)
        }
        _ => Err(libc::ENOTSUP),
    };
    number(made.map(enter))
}

/// # Safety
/// `address` has `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn ringside_rbind(
    socket: c_int,
    address: *const libc::sockaddr,
    _length: libc::socklen_t,
) -> c_int {
    let _call = Uncancelled::new();
    // SAFETY: the caller's promise.
    answer(table::socket(socket).and_then(|socket| unsafe {
        match socket {
            Entry::Stream(stream) => stream.bind(address),
            Entry::Datagram(datagram) => datagram.bind(socket_address::read(address)),
        }
    }))
}

/// Listens for connections.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn ringside_rlisten(socket: c_int, backlog: c_int) -> c_int {
    let _call = Uncancelled::new();
    answer(table::stream(socket).and_then(|socket| socket.listen(backlog)))
}

/// # Safety
/// `address` and `length` are null, or a place of that length.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn ringside_raccept(
    socket: c_int,
    address: *mut libc::sockaddr,
    length: *mut libc::socklen_t,
) -> c_int {
    let _call = Uncancelled::new();
    match table::stream(socket).and_then(|socket| socket.accept()) {
        Ok(made) => {
            enter(Entry::Stream(Arc::clone(&made)));
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
pub unsafe extern "C-unwind" fn ringside_rconnect(
    socket: c_int,
    address: *const libc::sockaddr,
    _length: libc::socklen_t,
) -> c_int {
    let _call = Uncancelled::new();
    // SAFETY: the caller's promise.
    answer(table::socket(socket).and_then(|socket| unsafe {
        match socket {
            Entry::Stream(stream) => stream.connect(address),
            Entry::Datagram(_) if address.is_null() => Err(libc::EFAULT),
            Entry::Datagram(datagram) => match socket_address::read(address) {
                None if (*address).sa_family != libc::AF_UNSPEC as libc::sa_family_t => {
                    Err(libc::EAFNOSUPPORT)
                }
                peer => datagram.connect(peer),
            },
        }
    }))
}

/// Ends one direction or both.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn ringside_rshutdown(socket: c_int, how: c_int) -> c_int {
    let _call = Uncancelled::new();
    let directions = match how {
        libc::SHUT_RD => Directions::Reads,
        libc::SHUT_WR => Directions::Writes,
        libc::SHUT_RDWR => Directions::Both,
        _ => return errno::minus_one(libc::EINVAL),
    };
    answer(table::socket(socket).and_then(|socket| match socket {
        Entry::Stream(stream) => stream.shut(directions),
        Entry::Datagram(datagram) => datagram.shut(directions),
    }))
}

/// Closes a socket, or an interest list. What was sent arrives, unless the peer does not take it
/// for 10 s. A mapped buffer that a failed device may still write to stays registered: unmap it
/// before, which says so.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn ringside_rclose(socket: c_int) -> c_int {
    let _call = Uncancelled::new();
    if interest::remove(socket) {
        return 0;
    }
    interest::forget(socket);
    match table::remove(socket) {
        Ok(Entry::Stream(socket)) => {
            service::withdraw(&socket);
            if let Err(error) = socket.shut(Directions::Both) {
                tracing::debug!(error, "a socket was closed without a farewell");
            }
            socket.close();
            0
        }
        Ok(Entry::Datagram(socket)) => {
            socket.close();
            0
        }
        Err(error) => errno::minus_one(error),
    }
}

/// Waits for sockets and other descriptors.
///
/// # Safety
/// `entries` has `length` entries.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn ringside_rpoll(
    entries: *mut libc::pollfd,
    length: libc::nfds_t,
    milliseconds: c_int,
) -> c_int {
    let _call = Uncancelled::new();
    let patience = Patience::new(milliseconds);
    let entries = match entries.is_null() {
        true => &mut [],
        // SAFETY: the caller's promise.
        false => unsafe { std::slice::from_raw_parts_mut(entries, length as usize) },
    };
    number(wait(entries, &patience))
}

/// Errors: `EINVAL` for a negative time.
fn time_of(limit: &libc::timeval) -> Result<Duration, c_int> {
    match (u64::try_from(limit.tv_sec), u64::try_from(limit.tv_usec)) {
        (Ok(seconds), Ok(micros)) => {
            let seconds = Duration::from_secs(seconds);
            Ok(seconds.saturating_add(Duration::from_micros(micros)))
        }
        _ => Err(libc::EINVAL),
    }
}

/// Waits for sockets and other descriptors.
///
/// # Safety
/// The sets and the limit are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn ringside_rselect(
    length: c_int,
    reads: *mut libc::fd_set,
    writes: *mut libc::fd_set,
    errors: *mut libc::fd_set,
    limit: *mut libc::timeval,
) -> c_int {
    let _call = Uncancelled::new();
    // SAFETY: the caller's promise.
    let limit = unsafe { limit.as_ref() }.map(time_of).transpose();
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
    number(limit.and_then(|limit| unsafe { select(length, &sets, &Patience::within(limit)) }))
}

/// Makes an interest list of sockets and other descriptors.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn ringside_repoll_create(flags: c_int) -> c_int {
    let _call = Uncancelled::new();
    number(interest::make(flags))
}

/// The list of a descriptor. Errors: `EBADF` for a descriptor that is not open; `EINVAL` for
/// another.
fn interest_list(descriptor: c_int) -> Result<Arc<InterestList>, c_int> {
    interest::find(descriptor).ok_or_else(|| {
        // SAFETY: asks for flags only.
        match unsafe { libc::fcntl(descriptor, libc::F_GETFD) } {
            -1 => libc::EBADF,
            _ => libc::EINVAL,
        }
    })
}

/// Changes an interest list, as epoll_ctl(2) does.
///
/// # Safety
/// `event` is null or valid, if the operation reads it.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn ringside_repoll_ctl(
    list: c_int,
    operation: c_int,
    descriptor: c_int,
    event: *const libc::epoll_event,
) -> c_int {
    let _call = Uncancelled::new();
    // SAFETY: the caller's promise, which is for the operations that read it.
    let event = || unsafe { event.as_ref() }.copied().ok_or(libc::EFAULT);
    let changed = interest_list(list).and_then(|found| {
        let change = match operation {
            _ if descriptor == list => return Err(libc::EINVAL),
            libc::EPOLL_CTL_ADD => Change::Add(event()?),
            libc::EPOLL_CTL_MOD => Change::Modify(event()?),
            libc::EPOLL_CTL_DEL => Change::Delete,
            _ => return Err(libc::EINVAL),
        };
        found.change(descriptor, change)
    });
    answer(changed)
}

/// Waits for the events of an interest list, as epoll_wait(2) does.
///
/// # Safety
/// `events` has room for `length` events.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn ringside_repoll_wait(
    list: c_int,
    events: *mut libc::epoll_event,
    length: c_int,
    milliseconds: c_int,
) -> c_int {
    let _call = Uncancelled::new();
    let patience = Patience::new(milliseconds);
    let found = interest_list(list).and_then(|list| match usize::try_from(length) {
        Err(_) | Ok(0) => Err(libc::EINVAL),
        Ok(_) if events.is_null() => Err(libc::EFAULT),
        Ok(length) => {
            // SAFETY: the caller's promise; the type allows room that was never written.
            let room = unsafe { std::slice::from_raw_parts_mut(events.cast(), length) };
            list.wait(room, &patience)
        }
    });
    count(found) as c_int
}

/// # Safety
/// `address` and `length` are a place of that length.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn ringside_rgetpeername(
    socket: c_int,
    address: *mut libc::sockaddr,
    length: *mut libc::socklen_t,
) -> c_int {
    let _call = Uncancelled::new();
    answer(table::socket(socket).and_then(|socket| {
        // SAFETY: the caller's promise.
        unsafe {
            match socket {
                Entry::Stream(stream) => stream.peer(address, length),
                Entry::Datagram(datagram) => {
                    copy(&datagram.shown(datagram.peer()?), address, length)
                }
            }
        }
        Ok(())
    }))
}

/// # Safety
/// As [`ringside_rgetpeername`].
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn ringside_rgetsockname(
    socket: c_int,
    address: *mut libc::sockaddr,
    length: *mut libc::socklen_t,
) -> c_int {
    let _call = Uncancelled::new();
    answer(table::socket(socket).map(|socket| {
        // SAFETY: the caller's promise.
        unsafe {
            match socket {
                Entry::Stream(stream) => stream.own(address, length),
                Entry::Datagram(datagram) => copy(&datagram.shown(datagram.own()), address, length),
            }
        }
    }))
}

impl Socket {
    /// # Safety
    /// `address` and `length` are a place of that length.
    pub(super) unsafe fn peer(&self, address: *mut libc::sockaddr, length: *mut libc::socklen_t) {
        // SAFETY: the socket's id; the caller's promise.
        unsafe { self.show(&(*self.id).route.addr.dst_storage, address, length) };
    }

    /// # Safety
    /// As [`Socket::peer`].
    unsafe fn own(&self, address: *mut libc::sockaddr, length: *mut libc::socklen_t) {
        // SAFETY: the socket's id; the caller's promise.
        unsafe { self.show(&(*self.id).route.addr.src_storage, address, length) };
    }

    /// Copies a name of the id, as a socket of this family shows it.
    ///
    /// # Safety
    /// As [`Socket::peer`].
    unsafe fn show(
        &self,
        name: &libc::sockaddr_storage,
        address: *mut libc::sockaddr,
        length: *mut libc::socklen_t,
    ) {
        // SAFETY: a live address; the caller's promise.
        unsafe {
            match socket_address::read((&raw const *name).cast()) {
                Some(known) => {
                    copy(
                        &socket_address::shown_to(self.family, known),
                        address,
                        length,
                    );
                }
                None => copy(name, address, length),
            }
        }
    }
}

/// Copies an address, cut to the place; writes its full length.
///
/// # Safety
/// `from` is an address; `into` has `length` bytes.
pub(super) unsafe fn copy(
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
pub unsafe extern "C-unwind" fn ringside_rsetsockopt(
    socket: c_int,
    level: c_int,
    name: c_int,
    value: *const c_void,
    length: libc::socklen_t,
) -> c_int {
    let _call = Uncancelled::new();
    let socket = table::socket(socket);
    // SAFETY: the caller's promise.
    answer(socket.and_then(|socket| unsafe {
        match socket {
            Entry::Stream(stream) => stream.set_option(level, name, value, length),
            Entry::Datagram(datagram) => datagram.set_option(level, name, value, length),
        }
    }))
}

/// # Safety
/// `value` and `length` are a place of that length.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn ringside_rgetsockopt(
    socket: c_int,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    length: *mut libc::socklen_t,
) -> c_int {
    let _call = Uncancelled::new();
    let found = table::socket(socket).and_then(|socket| match socket {
        Entry::Stream(stream) => stream.option(level, name),
        Entry::Datagram(datagram) => datagram.option(level, name),
    });
    // SAFETY: the caller's promise.
    answer(found.and_then(|found| unsafe { found.write(value, length) }))
}

/// Flags of a socket, or of an interest list. In C the argument is variadic, which on x86-64 is
/// passed as any other.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn ringside_rfcntl(socket: c_int, command: c_int, argument: c_int) -> c_int {
    let _call = Uncancelled::new();
    if interest::find(socket).is_some() {
        // SAFETY: the commands that programs use take a number.
        return unsafe { libc::fcntl(socket, command, argument) };
    }
    number(table::socket(socket).and_then(|socket| match socket {
        Entry::Stream(stream) => stream.control(command, argument),
        Entry::Datagram(datagram) => datagram.control(command, argument),
    }))
}

/// Maps a buffer of the program for its peer.
///
/// # Safety
/// The buffer has `length` bytes, and stays until it is unmapped or the socket is closed.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn ringside_riomap(
    socket: c_int,
    buffer: *mut c_void,
    length: usize,
    rights: c_int,
    _flags: c_int,
    offset: i64,
) -> i64 {
    let _call = Uncancelled::new();
    let socket = table::stream(socket);
    // SAFETY: the caller's promise.
    let mapped = socket.and_then(|socket| unsafe { socket.map(buffer, length, rights, offset) });
    mapped.unwrap_or_else(|error| errno::minus_one(error).into())
}

/// Takes a mapped buffer back.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn ringside_riounmap(
    socket: c_int,
    buffer: *mut c_void,
    length: usize,
) -> c_int {
    let _call = Uncancelled::new();
    answer(table::stream(socket).and_then(|socket| socket.unmap(buffer, length)))
}

/// Writes into a buffer that the peer mapped.
///
/// # Safety
/// `from` has `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn ringside_riowrite(
    socket: c_int,
    from: *const c_void,
    length: usize,
    offset: i64,
    flags: c_int,
) -> isize {
    let _call = Uncancelled::new();
    let socket = table::stream(socket);
    let piece = (from.cast_mut().cast(), length);
    // SAFETY: the caller's promise; the bytes are only read.
    count(socket.and_then(|socket| unsafe { socket.write_mapped(piece, offset, flags) }))
}
