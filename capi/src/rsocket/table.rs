//! Sockets by descriptor.

use super::datagram::Datagram;
use super::socket::Socket;
use std::collections::HashMap;
use std::ffi::c_int;
use std::sync::{Arc, LazyLock, PoisonError, RwLock};

/// A socket of either kind.
#[derive(Clone)]
pub(super) enum Entry {
    Stream(Arc<Socket>),
    Datagram(Arc<Datagram>),
}

static SOCKETS: LazyLock<RwLock<HashMap<c_int, Entry>>> = LazyLock::new(RwLock::default);

/// Enters a socket; returns its descriptor.
pub(super) fn enter(socket: Entry) -> c_int {
    let descriptor = match &socket {
        Entry::Stream(stream) => stream.descriptor,
        Entry::Datagram(datagram) => datagram.descriptor(),
    };
    let mut sockets = SOCKETS.write().unwrap_or_else(PoisonError::into_inner);
    sockets.insert(descriptor, socket);
    descriptor
}

/// The socket of a descriptor; nothing for any other descriptor.
pub(super) fn find(descriptor: c_int) -> Option<Entry> {
    let sockets = SOCKETS.read().unwrap_or_else(PoisonError::into_inner);
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
    let mut sockets = SOCKETS.write().unwrap_or_else(PoisonError::into_inner);
    sockets.remove(&descriptor).ok_or(libc::EBADF)
}
