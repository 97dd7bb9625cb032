//! Listeners: requests are answered as they come, and connections wait until the program takes
//! them.

use super::link::Link;
use super::service::{self, Next};
use super::socket::{self, Core, Options, Phase, Socket};
use crate::channel::{DESCRIPTORS, last_error};
use crate::cm::abi::{event, rdma_cm_event, rdma_cm_id, rdma_conn_param};
use crate::cm::{
    ringside_rdma_accept, ringside_rdma_ack_cm_event, ringside_rdma_create_event_channel,
    ringside_rdma_destroy_event_channel, ringside_rdma_destroy_id, ringside_rdma_listen,
    ringside_rdma_migrate_id, ringside_rdma_reject,
};
use std::ffi::c_int;
use std::os::fd::{FromRawFd, OwnedFd};
use std::sync::Arc;

/// The result of a call that returns 0 or -1.
pub(super) fn checked(result: c_int) -> Result<(), c_int> {
    match result {
        0 => Ok(()),
        _ => Err(last_error()),
    }
}

/// Descriptors that a new connection needs: of its queue of completions, and one for a moment.
pub(super) const OF_CONNECTION: usize = DESCRIPTORS + 1;

/// Checks if the process may open as many descriptors as a connection needs, before something is
/// done that cannot be undone. Errors: `EMFILE`, `ENFILE`.
pub(super) fn check_descriptors(like: c_int, count: usize) -> Result<(), c_int> {
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
    /// Listens; requests are answered from now on, also if the program makes no call.
    pub(super) fn listen(self: &Arc<Self>, backlog: c_int) -> Result<(), c_int> {
        let mut core = self.core();
        // The end of a device that failed before: the socket listens on the recovered one.
        self.progress(&mut core);
        match core.phase {
            // Not yet served if the kernel refused that in the first call.
            Phase::Listening => return service::serve(self, &mut core, serve),
            Phase::Made => {}
            _ => return Err(libc::EINVAL),
        }
        service::start()?;
        // SAFETY: the socket's id.
        checked(unsafe { ringside_rdma_listen(self.id, backlog) })?;
        core.arrivals.make_room(backlog);
        core.phase = Phase::Listening;
        service::serve(self, &mut core, serve)
    }

    /// Takes the next connection. Errors: `EMFILE` and `ENFILE` without descriptors for it; the
    /// request waits on. `ENODEV` once a failure of the device has ended the listener.
    pub(super) fn accept(self: &Arc<Self>) -> Result<Arc<Socket>, c_int> {
        let core = self.core();
        match core.phase {
            Phase::Listening => {}
            Phase::Failed(error) => return Err(error),
            _ => return Err(libc::EINVAL),
        }
        let waits = !core.options.is_nonblocking;
        let arrived = |core: &mut Core| {
            if core.phase == Phase::Listening && core.arrivals.waiting.is_empty() {
                // What has come is answered here, whether or not the library's thread has seen it.
                self.answer_requests(core);
                self.resume(core);
            }
            core.phase != Phase::Listening || core.arrivals.has_one()
        };
        let mut core = self.wait(core, waits, None, arrived)?;
        match core.phase {
            Phase::Listening => {}
            Phase::Failed(error) => return Err(error),
            // The listener was closed under the call.
            _ => return Err(libc::EBADF),
        }
        let made = core.arrivals.take();
        let options = core.options.clone();
        self.resume(&mut core);
        drop(core);
        let made = Arc::new(made?);
        let mut of_made = made.core();
        let sizes = of_made.options.sizes;
        of_made.options = Options { sizes, ..options };
        drop(of_made);
        Ok(made)
    }

    /// Lets the library's thread look for requests again, if there is room and a descriptor for
    /// one.
    fn resume(&self, core: &mut Core) {
        let arrivals = &mut core.arrivals;
        if arrivals.is_paused && !arrivals.is_full() && arrivals.shortage.is_none() {
            arrivals.is_paused = false;
            service::again(self);
        }
    }

    /// Answers the requests that have come, as far as there is room for their connections, and
    /// descriptors. Those that cannot be served are refused. A listener that is bound to an address
    /// fails with the device.
    fn answer_requests(&self, core: &mut Core) {
        core.arrivals.shortage = None;
        while !core.arrivals.is_full() && self.has_event() != 0 {
            let checked = check_descriptors(self.descriptor, DESCRIPTORS + OF_CONNECTION);
            core.arrivals.shortage = checked.err();
            if core.arrivals.shortage.is_some() {
                return core.tell();
            }
            let Some(read) = self.take_event() else {
                return;
            };
            // SAFETY: just read.
            if unsafe { (*read).event } == event::DEVICE_REMOVAL {
                // SAFETY: as above.
                unsafe { ringside_rdma_ack_cm_event(read) };
                core.fail(libc::ENODEV);
                return core.tell();
            }
            // SAFETY: just read; it is acknowledged by the call.
            if let Some(made) = unsafe { answer(read, self.family, &core.options) } {
                core.arrivals.waiting.push_back(made);
                core.tell();
            }
        }
    }
}

/// Answers requests for the library's thread. Without room or a descriptor, it looks again once
/// `raccept` finds both.
fn serve(socket: &Socket, core: &mut Core) -> Next {
    if core.phase != Phase::Listening {
        return Next::End;
    }
    socket.answer_requests(core);
    if core.phase != Phase::Listening {
        return Next::End;
    }
    let arrivals = &mut core.arrivals;
    arrivals.is_paused = arrivals.shortage.is_some() || arrivals.is_full();
    if arrivals.is_paused {
        Next::Pause
    } else {
        Next::Event
    }
}

/// Answers a request, and acknowledges its event. Nothing if it was refused.
///
/// # Safety
/// `read` was read from a listener's channel.
unsafe fn answer(read: *mut rdma_cm_event, family: c_int, options: &Options) -> Option<Socket> {
    // SAFETY: the caller's promise; private data lives as long as the event.
    let (id, kind, given, greeting) = unsafe {
        let given = (*read).param.conn;
        let greeting = socket::greeting(given.private_data, given.private_data_len);
        ((*read).id, (*read).event, given, greeting)
    };
    // SAFETY: the caller's promise.
    unsafe { ringside_rdma_ack_cm_event(read) };
    if kind != event::CONNECT_REQUEST {
        return None;
    }
    let channel = ringside_rdma_create_event_channel();
    if channel.is_null() {
        tracing::warn!(error = last_error(), "a connection of a socket is refused");
        // SAFETY: the id of the request.
        unsafe { refuse(id) };
        return None;
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
            let made = Socket::of(channel, id, Phase::Accepting, family, options.clone());
            made.core().link = Some(link);
            Some(made)
        }
        Err(error) => {
            tracing::warn!(error, "a connection of a socket is refused");
            // SAFETY: nothing else knows the id or the channel.
            unsafe {
                refuse(id);
                ringside_rdma_destroy_event_channel(channel);
            }
            None
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
