//! The thread that serves stream sockets while the program makes no call: it answers the requests
//! of listeners, and makes the connections that were begun without waiting.

use super::epoll;
use super::socket::{Core, Socket};
use crate::device::lock;
use crate::threads;
use ringside_bus::PerProcess;
use std::collections::HashMap;
use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::time::Duration;

/// Longest sleep, and pause after the kernel refuses one.
const SLEEP_MS: c_int = 60_000;
const PAUSE: Duration = Duration::from_millis(100);
/// Events that are taken at a time.
const BATCH: usize = 16;

/// The sockets that are served. One is known by its address, which no other one has while it lives.
#[derive(Default)]
struct Served {
    sockets: HashMap<usize, (Weak<Socket>, Turn)>,
    /// the one that the thread serves now
    current: Option<usize>,
}

/// The rest of a socket's service.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    /// at its next event
    Event,
    /// once the program asks
    Pause,
    End,
}

/// Takes what has happened to a socket.
pub(super) type Turn = fn(&Socket, &mut Core) -> Next;

struct Service {
    /// reports the event of a socket once, until it is asked for the next
    events: OwnedFd,
    served: Mutex<Served>,
    is_free: Condvar,
}

static SERVICE: PerProcess<Mutex<Option<&'static Service>>> = PerProcess::new();

fn of_this_process() -> &'static Mutex<Option<&'static Service>> {
    SERVICE.get_or_init(Mutex::default)
}

fn service() -> Option<&'static Service> {
    *lock(of_this_process())
}

/// Starts the thread, if there is none. Errors: an errno value, as `EMFILE` and `EAGAIN`.
pub(super) fn start() -> Result<(), c_int> {
    let mut service = lock(of_this_process());
    if service.is_some() {
        return Ok(());
    }
    let new: &'static Service = Box::leak(Box::new(Service {
        events: epoll::create(true)?,
        served: Mutex::default(),
        is_free: Condvar::new(),
    }));
    threads::start("ringside-stream", || new.run()).map_err(|_| libc::EAGAIN)?;
    *service = Some(new);
    Ok(())
}

fn key(socket: &Socket) -> usize {
    std::ptr::from_ref(socket) as usize
}

/// Serves a socket from now on: `turn` is called after its events. `core` is the socket's.
pub(super) fn serve(socket: &Arc<Socket>, core: &mut Core, turn: Turn) -> Result<(), c_int> {
    let service = service().ok_or(libc::EAGAIN)?;
    if core.is_shared() {
        return Ok(());
    }
    let key = key(socket);
    let known = (Arc::downgrade(socket), turn);
    lock(&service.served).sockets.insert(key, known);
    if let Err(error) = service.control(libc::EPOLL_CTL_ADD, socket) {
        lock(&service.served).sockets.remove(&key);
        return Err(error);
    }
    core.share(true);
    Ok(())
}

/// Looks at a listener again, for which the thread paused.
pub(super) fn again(socket: &Socket) {
    if let Some(service) = service()
        && let Err(error) = service.control(libc::EPOLL_CTL_MOD, socket)
    {
        // The socket was closed meanwhile.
        tracing::debug!(error, "a socket is not served any more");
    }
}

/// Ends the service of a socket, and waits until the thread has left it: within the deadlines of
/// the card's commands, which answering a request needs.
pub(super) fn withdraw(socket: &Socket) {
    let Some(service) = service() else {
        return;
    };
    let key = key(socket);
    let mut served = lock(&service.served);
    if served.sockets.remove(&key).is_some() {
        let _ = service.control(libc::EPOLL_CTL_DEL, socket);
    }
    while served.current == Some(key) {
        let woken = service.is_free.wait(served);
        served = woken.unwrap_or_else(PoisonError::into_inner);
    }
}

impl Service {
    fn control(&self, operation: c_int, socket: &Socket) -> Result<(), c_int> {
        let event = libc::epoll_event {
            events: (libc::EPOLLIN | libc::EPOLLONESHOT) as u32,
            u64: key(socket) as u64,
        };
        let list = self.events.as_raw_fd();
        epoll::control(list, operation, socket.descriptor, Some(event))
    }

    fn run(&self) {
        loop {
            let mut events = [const { MaybeUninit::uninit() }; BATCH];
            let count = epoll::wait(self.events.as_raw_fd(), &mut events, SLEEP_MS);
            for event in events.iter().take(*count.as_ref().unwrap_or(&0)) {
                // SAFETY: written by the call.
                self.turn(unsafe { event.assume_init() }.u64 as usize);
            }
            if count.is_err() {
                std::thread::sleep(PAUSE);
            }
        }
    }

    /// Serves a socket once, if it is still served.
    fn turn(&self, key: usize) {
        let mut served = lock(&self.served);
        let known = served.sockets.get(&key);
        let Some((socket, turn)) = known.and_then(|(known, turn)| Some((known.upgrade()?, *turn)))
        else {
            served.sockets.remove(&key);
            return;
        };
        served.current = Some(key);
        drop(served);
        let mut core = socket.core();
        let next = turn(&socket, &mut core);
        if next == Next::Event {
            again(&socket);
        }
        core.share(next != Next::End);
        drop(core);
        let mut served = lock(&self.served);
        if next == Next::End && served.sockets.remove(&key).is_some() {
            let _ = self.control(libc::EPOLL_CTL_DEL, &socket);
        }
        drop(served);
        drop(socket);
        lock(&self.served).current = None;
        self.is_free.notify_all();
    }
}
