//! Sockets by descriptor.

use super::datagram::Datagram;
use super::socket::Socket;
use ringside_bus::PerProcess;
use std::collections::HashMap;
use std::ffi::c_int;
use std::sync::{Arc, PoisonError, RwLock};

/// A socket of either kind.
#[derive(Clone)]
pub(super) enum Entry {
    Stream(Arc<Socket>),
    Datagram(Arc<Datagram>),
}

/// A child of a fork has none of its parent's: a thread of the parent may have had the lock.
static SOCKETS: PerProcess<RwLock<HashMap<c_int, Entry>>> = PerProcess::new();

fn sockets() -> &'static RwLock<HashMap<c_int, Entry>> {
    SOCKETS.get_or_init(RwLock::default)
}

/// Enters a socket; returns its descriptor, and the socket that still had this number: the program
/// has closed it by close(2).
pub(super) fn enter(socket: Entry) -> (c_int, Option<Entry>) {
    let descriptor = match &socket {
        Entry::Stream(stream) => stream.descriptor,
        Entry::Datagram(datagram) => datagram.descriptor(),
    };
    let mut sockets = sockets().write().unwrap_or_else(PoisonError::into_inner);
    let displaced = sockets.insert(descriptor, socket);
    (descriptor, displaced)
}

/// The socket of a descriptor; nothing for any other descriptor.
pub(super) fn find(descriptor: c_int) -> Option<Entry> {
    let sockets = sockets().read().unwrap_or_else(PoisonError::into_inner);
    sockets.get(&descriptor).cloned()
}

/// The socket of a descriptor, or `EBADF`.
pub(super) fn socket(descriptor: c_int) -> Result<Entry, c_int> {
    find(descriptor).ok_or(libc::EBADF)
}

/// The stream socket of a descriptor. Errors: `EBADF`; `EOPNOTSUPP` for another kind.
pub(super) fn stream(descriptor: c_int) -> Result<Arc<Socket>, c_int> {
    match socket(descriptor)? {
        Entry::Stream(stream) => Ok(stream),
        Entry::Datagram(_) => Err(libc::EOPNOTSUPP),
    }
}

/// Takes a socket out. It goes with its last call.
pub(super) fn remove(descriptor: c_int) -> Result<Entry, c_int> {
    let mut sockets = sockets().write().unwrap_or_else(PoisonError::into_inner);
    sockets.remove(&descriptor).ok_or(libc::EBADF)
}
