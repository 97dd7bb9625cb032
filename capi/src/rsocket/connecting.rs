//! Addresses, listening, and making connections.

use super::link::Link;
use super::socket::{self, Core, Options, Phase, Socket};
use super::table::{self, Entry};
use crate::channel::{DESCRIPTORS, last_error};
use crate::cm::abi::{event, rdma_cm_event, rdma_cm_id, rdma_conn_param};
use crate::cm::{
    ringside_rdma_accept, ringside_rdma_ack_cm_event, ringside_rdma_bind_addr,
    ringside_rdma_create_event_channel, ringside_rdma_destroy_event_channel,
    ringside_rdma_destroy_id, ringside_rdma_listen, ringside_rdma_migrate_id, ringside_rdma_reject,
    ringside_rdma_resolve_addr,
};
use std::ffi::c_int;
use std::os::fd::{FromRawFd, OwnedFd};
use std::sync::Arc;

/// Longest wait for a neighbour's answer: longer than it is asked for.
const RESOLUTION_MS: c_int = 5000;

/// The result of a call that returns 0 or -1.
fn checked(result: c_int) -> Result<(), c_int> {
    match result {
        0 => Ok(()),
        _ => Err(last_error()),
    }
}

/// Descriptors that a new connection needs: of its queue of completions, and one for a moment.
const OF_CONNECTION: usize = DESCRIPTORS + 1;

/// Checks if the process may open as many descriptors as a connection needs, before something is
/// done that cannot be undone. Errors: `EMFILE`, `ENFILE`.
fn check_descriptors(like: c_int, count: usize) -> Result<(), c_int> {
    let copies = (0..count).map(|_| {
        // SAFETY: a descriptor of the caller; the copy is this owner's.
        unsafe {
            match libc::fcntl(like, libc::F_DUPFD_CLOEXEC, 0) {
                copy if copy >= 0 => Ok(OwnedFd::from_raw_fd(copy)),
                _ => Err(last_error()),
            }
        }
    });
    copies.collect::<Result<Vec<_>, _>>().map(drop)
}

impl Socket {
    /// # Safety
    /// `address` is a socket address.
    pub(super) unsafe fn bind(&self, address: *const libc::sockaddr) -> Result<(), c_int> {
        if self.core().phase != Phase::Made {
            return Err(libc::EINVAL);
        }
        // SAFETY: the socket's id; the caller's promise.
        checked(unsafe { ringside_rdma_bind_addr(self.id, address) })
    }

    pub(super) fn listen(&self, backlog: c_int) -> Result<(), c_int> {
        let mut core = self.core();
        match core.phase {
            Phase::Listening => return Ok(()),
            Phase::Made => {}
            _ => return Err(libc::EINVAL),
        }
        // SAFETY: the socket's id.
        checked(unsafe { ringside_rdma_listen(self.id, backlog) })?;
        core.phase = Phase::Listening;
        Ok(())
    }

    /// Begins to connect, and waits until that is done unless the socket does not wait: then
    /// `EINPROGRESS`. A further call asks whether it is done.
    ///
    /// # Safety
    /// `address` is a socket address.
    pub(super) unsafe fn connect(&self, address: *const libc::sockaddr) -> Result<(), c_int> {
        let mut core = self.core();
        match core.phase {
            Phase::Made => {}
            Phase::Connecting | Phase::Accepting => {
                let waits = !core.options.is_nonblocking;
                drop(core);
                return self.has_connected(waits);
            }
            Phase::Connected { .. } => return Ok(()),
            Phase::Listening => return Err(libc::EINVAL),
            Phase::Ended | Phase::Failed(_) => return Err(libc::ENOTCONN),
        }
        check_descriptors(self.descriptor, OF_CONNECTION)?;
        core.phase = Phase::Connecting;
        let waits = !core.options.is_nonblocking;
        let nowhere = std::ptr::null();
        // SAFETY: the socket's id; the caller's promise.
        let begun = unsafe { ringside_rdma_resolve_addr(self.id, nowhere, address, RESOLUTION_MS) };
        let begun = checked(begun);
        if let Err(error) = begun {
            // The program may try another address.
            core.phase = Phase::Made;
            return Err(error);
        }
        drop(core);
        self.has_connected(waits)
    }

    /// Errors: `EINPROGRESS` if that is not decided yet, else why it is not connected.
    fn has_connected(&self, waits: bool) -> Result<(), c_int> {
        match self.connected(waits).map(|core| core.phase) {
            Ok(Phase::Failed(error)) => Err(error),
            Ok(_) => Ok(()),
            Err(libc::EAGAIN) => Err(libc::EINPROGRESS),
            Err(error) => Err(error),
        }
    }

    /// Takes the next connection; returns its descriptor. Requests that cannot be served are
    /// refused and skipped. Errors: `EMFILE` and `ENFILE` without descriptors for it; the request
    /// waits on.
    pub(super) fn accept(&self) -> Result<Arc<Socket>, c_int> {
        let core = self.core();
        let (phase, options) = (core.phase, core.options.clone());
        drop(core);
        if phase != Phase::Listening {
            return Err(libc::EINVAL);
        }
        loop {
            let asked = |core: &mut Core| core.phase != Phase::Listening || self.has_event() != 0;
            let core = self.wait(self.core(), !options.is_nonblocking, None, asked)?;
            let phase = core.phase;
            drop(core);
            if phase != Phase::Listening {
                // The listener was closed under the call.
                return Err(libc::EBADF);
            }
            check_descriptors(self.descriptor, DESCRIPTORS + OF_CONNECTION)?;
            let Some(read) = self.take_event() else {
                // Another thread has taken the request, or its peer has given up.
                continue;
            };
            // SAFETY: just read; it is acknowledged by the call.
            if let Some(made) = unsafe { answer(read, &options) }? {
                let made = Arc::new(made);
                table::enter(Entry::Stream(Arc::clone(&made)));
                return Ok(made);
            }
        }
    }
}

/// Answers a request, and acknowledges its event. Nothing if it was refused. Errors: `EMFILE` and
/// `ENFILE`, if another thread has taken the last descriptors; it was refused.
///
/// # Safety
/// `read` was read from a listener's channel.
unsafe fn answer(read: *mut rdma_cm_event, options: &Options) -> Result<Option<Socket>, c_int> {
    // SAFETY: the caller's promise; private data lives as long as the event.
    let (id, kind, given, greeting) = unsafe {
        let given = (*read).param.conn;
        let greeting = socket::greeting(given.private_data, given.private_data_len);
        ((*read).id, (*read).event, given, greeting)
    };
    // SAFETY: the caller's promise.
    unsafe { ringside_rdma_ack_cm_event(read) };
    if kind != event::CONNECT_REQUEST {
        return Ok(None);
    }
    let unserved = |error| match error {
        libc::EMFILE | libc::ENFILE => Err(error),
        _ => Ok(None),
    };
    let channel = ringside_rdma_create_event_channel();
    if channel.is_null() {
        let error = last_error();
        // SAFETY: the id of the request.
        unsafe { refuse(id) };
        return unserved(error);
    }
    // SAFETY: the id of the request, and the channel that was just made.
    let moved = checked(unsafe { ringside_rdma_migrate_id(id, channel) });
    let begun = moved.and_then(|()| {
        let greeting = greeting.ok_or(libc::EPROTONOSUPPORT)?;
        // SAFETY: the id has a route and no queue pair; the socket's end drops the link first.
        let mut link = unsafe { Link::make(id, options.sizes) }?;
        let told = link.greeting().bytes();
        link.begin(greeting);
        let wanted = rdma_conn_param {
            private_data: told.as_ptr().cast(),
            private_data_len: told.len() as u8,
            ..given
        };
        // SAFETY: the id of the request; live parameters.
        checked(unsafe { ringside_rdma_accept(id, &raw const wanted) })?;
        Ok(link)
    });
    match begun {
        Ok(link) => {
            let made = Socket::of(channel, id, Phase::Accepting, options.clone());
            made.core().link = Some(link);
            Ok(Some(made))
        }
        Err(error) => {
            tracing::warn!(error, "a connection of a socket is refused");
            // SAFETY: nothing else knows the id or the channel.
            unsafe {
                refuse(id);
                ringside_rdma_destroy_event_channel(channel);
            }
            unserved(error)
        }
    }
}

/// # Safety
/// `id` is of a request, and nothing else uses it.
unsafe fn refuse(id: *mut rdma_cm_id) {
    // SAFETY: the caller's promise.
    unsafe {
        ringside_rdma_reject(id, std::ptr::null(), 0);
        ringside_rdma_destroy_id(id);
    }
}
