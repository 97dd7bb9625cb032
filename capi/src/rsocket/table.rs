//! Sockets by descriptor.

use super::socket::Socket;
use std::collections::HashMap;
use std::ffi::c_int;
use std::sync::{Arc, LazyLock, PoisonError, RwLock};

static SOCKETS: LazyLock<RwLock<HashMap<c_int, Arc<Socket>>>> = LazyLock::new(RwLock::default);

/// Enters a socket; returns its descriptor.
pub(super) fn enter(socket: Socket) -> c_int {
    let descriptor = socket.descriptor;
    let mut sockets = SOCKETS.write().unwrap_or_else(PoisonError::into_inner);
    sockets.insert(descriptor, Arc::new(socket));
    descriptor
}

/// The socket of a descriptor; nothing for any other descriptor.
pub(super) fn find(descriptor: c_int) -> Option<Arc<Socket>> {
    let sockets = SOCKETS.read().unwrap_or_else(PoisonError::into_inner);
    sockets.get(&descriptor).cloned()
}

/// The socket of a descriptor, or `EBADF`.
pub(super) fn socket(descriptor: c_int) -> Result<Arc<Socket>, c_int> {
    find(descriptor).ok_or(libc::EBADF)
}

/// Takes a socket out. It goes with its last call.
pub(super) fn remove(descriptor: c_int) -> Result<Arc<Socket>, c_int> {
    let mut sockets = SOCKETS.write().unwrap_or_else(PoisonError::into_inner);
    sockets.remove(&descriptor).ok_or(libc::EBADF)
}
