//! `epoll` over sockets and other descriptors: `repoll_create`, `repoll_ctl` and `repoll_wait`.
//!
//! The descriptor of an interest list is one of the kernel's epoll, which has the descriptors that
//! are not sockets of this library; the list itself has the sockets.

use super::epoll;
use super::poll::{Armed, Patience, entry};
use super::table;
use crate::signals::Held;
use ringside_bus::PerProcess;
use std::collections::HashMap;
use std::ffi::{c_int, c_short};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

const IN: u32 = libc::EPOLLIN as u32;
const OUT: u32 = libc::EPOLLOUT as u32;
const ERR: u32 = libc::EPOLLERR as u32;
const HUP: u32 = libc::EPOLLHUP as u32;
/// Other names of "can be read" and "can be written".
const ALSO_IN: u32 = libc::EPOLLRDNORM as u32;
const ALSO_OUT: u32 = libc::EPOLLWRNORM as u32;
const PEER_ENDED: u32 = libc::EPOLLRDHUP as u32;
const ONCE: u32 = libc::EPOLLONESHOT as u32;
const EXCLUSIVE: u32 = libc::EPOLLEXCLUSIVE as u32;
/// The bits that the kernel takes together with that.
const WITH_EXCLUSIVE: u32 =
    EXCLUSIVE | IN | OUT | ERR | HUP | libc::EPOLLWAKEUP as u32 | libc::EPOLLET as u32;

/// A child of a fork has none of its parent's: a thread of the parent may have had a lock.
static LISTS: PerProcess<RwLock<HashMap<c_int, Arc<InterestList>>>> = PerProcess::new();

fn lists() -> &'static RwLock<HashMap<c_int, Arc<InterestList>>> {
    LISTS.get_or_init(RwLock::default)
}

/// The list of a descriptor; nothing for any other descriptor.
pub(super) fn find(descriptor: c_int) -> Option<Arc<InterestList>> {
    let lists = lists().read().unwrap_or_else(PoisonError::into_inner);
    lists.get(&descriptor).cloned()
}

/// Makes an interest list; returns its descriptor. `flags`: `EPOLL_CLOEXEC`, and
/// `O_NONBLOCK`, which has no effect. Errors: `EINVAL`, and those of the kernel.
pub(super) fn make(flags: c_int) -> Result<c_int, c_int> {
    if flags & !(libc::EPOLL_CLOEXEC | libc::O_NONBLOCK) != 0 {
        return Err(libc::EINVAL);
    }
    let made = epoll::create(flags & libc::EPOLL_CLOEXEC != 0)?.into_raw_fd();
    displace(made);
    let list = InterestList {
        kernel: made,
        state: Mutex::default(),
    };
    let mut lists = lists().write().unwrap_or_else(PoisonError::into_inner);
    lists.insert(made, Arc::new(list));
    Ok(made)
}

/// A new socket or list has this number: a list that still has it was closed by close(2), and ends
/// without its descriptor.
pub(super) fn displace(descriptor: c_int) {
    if find(descriptor).is_none() {
        return;
    }
    let mut lists = lists().write().unwrap_or_else(PoisonError::into_inner);
    let former = lists.remove(&descriptor);
    drop(lists);
    if let Some(list) = former {
        list.end(true);
    }
}

/// Closes a list. Returns false if the descriptor is no list's.
pub(super) fn remove(descriptor: c_int) -> bool {
    let mut lists = lists().write().unwrap_or_else(PoisonError::into_inner);
    let removed = lists.remove(&descriptor);
    drop(lists);
    removed.inspect(|list| list.end(false)).is_some()
}

/// Takes a socket that is closed out of every list.
pub(super) fn forget(socket: c_int) {
    let lists = lists().read().unwrap_or_else(PoisonError::into_inner);
    let all: Vec<_> = lists.values().cloned().collect();
    // A list that is in use keeps no other one from being made.
    drop(lists);
    for list in all {
        let mut state = list.state();
        let before = state.interests.len();
        state.interests.retain(|one| one.socket != socket);
        if state.interests.len() < before {
            // A call that sleeps keeps the socket.
            state.wake();
        }
    }
}

/// A change of a list.
pub(super) enum Change {
    Add(libc::epoll_event),
    Modify(libc::epoll_event),
    Delete,
}

/// A socket of a list.
struct Interest {
    socket: c_int,
    /// as the program asked, with flags
    events: u32,
    data: u64,
    /// false once an event that is reported once was reported, until the next change
    is_armed: bool,
}

impl Interest {
    fn new(socket: c_int, asked: libc::epoll_event) -> Self {
        Self {
            socket,
            events: asked.events,
            data: asked.u64,
            is_armed: true,
        }
    }

    /// The requested events in terms of `poll`.
    fn asked(&self) -> c_short {
        let bit = |events: u32, event| if self.events & events != 0 { event } else { 0 };
        bit(IN | ALSO_IN, libc::POLLIN)
            | bit(OUT | ALSO_OUT, libc::POLLOUT)
            | bit(PEER_ENDED, libc::POLLRDHUP)
    }

    /// The events of `epoll` for those that `poll` found: requested ones, errors and hang-ups.
    fn found(&self, found: c_short) -> u32 {
        let bit = |event, events: u32| if found & event != 0 { events } else { 0 };
        let asked = bit(libc::POLLIN, IN | ALSO_IN)
            | bit(libc::POLLOUT, OUT | ALSO_OUT)
            | bit(libc::POLLRDHUP, PEER_ENDED);
        (asked & self.events) | bit(libc::POLLERR, ERR) | bit(libc::POLLHUP, HUP)
    }
}

const fn is_exclusive(events: u32) -> bool {
    events & EXCLUSIVE != 0
}

/// Wakes a call that waits.
struct Waker {
    event: Arc<OwnedFd>,
    is_used: bool,
}

#[derive(Default)]
struct State {
    interests: Vec<Interest>,
    /// place of the socket that is looked at first, so that none is passed over for others
    first: usize,
    /// true if the kernel's descriptors are reported before the sockets this time
    is_kernels_turn: bool,
    wakers: Vec<Waker>,
    is_closed: bool,
    /// its descriptor is another's now
    is_displaced: bool,
}

impl State {
    /// Ends the sleeps of calls that wait: the list has changed.
    fn wake(&self) {
        self.wake_but(None);
    }

    /// Ends the sleeps of calls that wait, but for that of one.
    fn wake_but(&self, one: Option<&Arc<OwnedFd>>) {
        let is_other = |waker: &&Waker| one.is_none_or(|one| !Arc::ptr_eq(one, &waker.event));
        let used = self.wakers.iter().filter(|waker| waker.is_used);
        for waker in used.filter(is_other) {
            let one = 1_u64;
            // SAFETY: eight bytes of a live value; the descriptor does not wait.
            unsafe { libc::write(waker.event.as_raw_fd(), (&raw const one).cast(), 8) };
        }
    }

    /// An event descriptor for a call that waits; none if the process has no descriptor left: the
    /// call looks by itself after its longest sleep.
    fn waker(&mut self) -> Option<Arc<OwnedFd>> {
        if let Some(free) = self.wakers.iter_mut().find(|waker| !waker.is_used) {
            free.is_used = true;
            return Some(Arc::clone(&free.event));
        }
        // SAFETY: no memory is handed over.
        let made = unsafe { libc::eventfd(0, libc::EFD_NONBLOCK | libc::EFD_CLOEXEC) };
        if made < 0 {
            return None;
        }
        // SAFETY: the new descriptor has no other owner.
        let event = Arc::new(unsafe { OwnedFd::from_raw_fd(made) });
        self.wakers.push(Waker {
            event: Arc::clone(&event),
            is_used: true,
        });
        Some(event)
    }

    fn change(&mut self, socket: c_int, change: Change) -> Result<(), c_int> {
        let place = self.interests.iter().position(|one| one.socket == socket);
        match (change, place) {
            (Change::Add(_), Some(_)) => return Err(libc::EEXIST),
            (Change::Add(event), None) if is_exclusive(event.events) => {
                if event.events & !WITH_EXCLUSIVE != 0 {
                    return Err(libc::EINVAL);
                }
                self.interests.push(Interest::new(socket, event));
            }
            (Change::Add(event), None) => self.interests.push(Interest::new(socket, event)),
            (Change::Modify(event), Some(place)) => {
                if is_exclusive(event.events | self.interests[place].events) {
                    return Err(libc::EINVAL);
                }
                self.interests[place] = Interest::new(socket, event);
            }
            (Change::Delete, Some(place)) => drop(self.interests.remove(place)),
            (Change::Modify(_) | Change::Delete, None) => return Err(libc::ENOENT),
        }
        self.wake();
        Ok(())
    }

    /// Looks at each socket once; writes the events of those that are ready, as far as there is
    /// room, and returns how many.
    fn ready_sockets(&mut self, into: &mut [MaybeUninit<libc::epoll_event>]) -> usize {
        let length = self.interests.len();
        let mut count = 0;
        for turn in 0..length {
            if count == into.len() {
                break;
            }
            let place = (self.first + turn) % length;
            let interest = &mut self.interests[place];
            if !interest.is_armed {
                continue;
            }
            let socket = table::find(interest.socket);
            let found = socket.map_or(0, |socket| socket.ready(interest.asked()));
            let events = interest.found(found);
            if events == 0 {
                continue;
            }
            interest.is_armed = interest.events & ONCE == 0;
            into[count].write(libc::epoll_event {
                events,
                u64: interest.data,
            });
            count += 1;
            if count == into.len() {
                self.first = (place + 1) % length;
            }
        }
        count
    }

    /// Adds the descriptors that report events of the sockets. True if they must be looked at once
    /// more.
    fn arm(&self, sources: &mut Vec<libc::pollfd>, armed: &mut Armed) -> bool {
        let mut is_new = false;
        for interest in self.interests.iter().filter(|one| one.is_armed) {
            if let Some(socket) = table::find(interest.socket) {
                is_new |= armed.add(&socket, interest.asked(), sources);
            }
        }
        is_new
    }
}

/// An interest list, in the words of epoll(7): descriptors, and the events that are waited for.
pub(super) struct InterestList {
    /// the kernel's, which is the list's own
    kernel: c_int,
    state: Mutex<State>,
}

impl Drop for InterestList {
    fn drop(&mut self) {
        let state = self.state.get_mut();
        if !state.unwrap_or_else(PoisonError::into_inner).is_displaced {
            // SAFETY: the list's own descriptor.
            unsafe { libc::close(self.kernel) };
        }
    }
}

/// A call that sleeps: others wake it, and its signals are held back between its sleeps.
struct Sleeper<'list> {
    list: &'list InterestList,
    event: Option<Arc<OwnedFd>>,
    held: Held,
}

impl InterestList {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the list, and the calls that wait for it.
    fn end(&self, is_displaced: bool) {
        let mut state = self.state();
        state.is_closed = true;
        state.is_displaced = is_displaced;
        state.interests.clear();
        state.wake();
    }

    /// Changes what the list waits for. Errors: those of epoll_ctl(2); `EINVAL` also for another
    /// list with sockets, which cannot be waited for.
    pub(super) fn change(&self, descriptor: c_int, change: Change) -> Result<(), c_int> {
        if table::find(descriptor).is_some() {
            return self.state().change(descriptor, change);
        }
        if find(descriptor).is_some() {
            return Err(libc::EINVAL);
        }
        let (operation, event) = match change {
            Change::Add(event) => (libc::EPOLL_CTL_ADD, Some(event)),
            Change::Modify(event) => (libc::EPOLL_CTL_MOD, Some(event)),
            Change::Delete => (libc::EPOLL_CTL_DEL, None),
        };
        epoll::control(self.kernel, operation, descriptor, event)
    }

    /// Waits until something of the list is ready. Writes the events, as far as there is room, and
    /// returns how many; 0 at the limit. Events are reported as long as they last, also with
    /// `EPOLLET`. Errors: `EINTR` after a handler of a signal,
    /// `EBADF` once the list is closed.
    pub(super) fn wait(
        &self,
        into: &mut [MaybeUninit<libc::epoll_event>],
        patience: &Patience,
    ) -> Result<usize, c_int> {
        let mut sleeper = None;
        loop {
            let count = self.look(into)?;
            if count > 0 || patience.is_over() {
                return Ok(count);
            }
            if patience.spins() {
                continue;
            }
            match &mut sleeper {
                // What changes from here on wakes it; what changed before is seen by one more look.
                None => sleeper = Some(Sleeper::new(self)),
                Some(sleeper) => sleeper.sleep(patience)?,
            }
        }
    }

    /// Looks at everything once. The kernel's descriptors and the sockets take turns to be first.
    fn look(&self, into: &mut [MaybeUninit<libc::epoll_event>]) -> Result<usize, c_int> {
        let mut state = self.state();
        if state.is_closed {
            return Err(libc::EBADF);
        }
        state.is_kernels_turn = !state.is_kernels_turn;
        if state.is_kernels_turn {
            let count = epoll::wait(self.kernel, into, 0)?;
            return Ok(count + state.ready_sockets(&mut into[count..]));
        }
        let count = state.ready_sockets(into);
        if count > 0 {
            // Reported in any case: an event that is reported once must not be lost by an error.
            return Ok(count + epoll::wait(self.kernel, &mut into[count..], 0).unwrap_or(0));
        }
        epoll::wait(self.kernel, into, 0)
    }
}

impl<'list> Sleeper<'list> {
    fn new(list: &'list InterestList) -> Self {
        Self {
            list,
            event: list.state().waker(),
            held: Held::new(),
        }
    }

    fn sleep(&self, patience: &Patience) -> Result<(), c_int> {
        let own = self.event.as_ref().map(|event| event.as_raw_fd());
        let watched = [Some(self.list.kernel), own].into_iter().flatten();
        let mut sources = watched
            .map(|descriptor| entry(descriptor, libc::POLLIN))
            .collect();
        let mut armed = Armed::default();
        let is_new = self.list.state().arm(&mut sources, &mut armed);
        let slept = if is_new {
            Ok(0)
        } else {
            self.held.poll(&mut sources, patience.left())
        };
        if armed.rouse() {
            // Another call that sleeps on the same socket has not seen the event.
            self.list.state().wake_but(self.event.as_ref());
        }
        if let Some(own) = own {
            let mut count = 0_u64;
            // SAFETY: eight bytes of a live value; the descriptor does not wait.
            unsafe { libc::read(own, (&raw mut count).cast(), 8) };
        }
        slept.map(|_| ())
    }
}

impl Drop for Sleeper<'_> {
    fn drop(&mut self) {
        let Some(own) = &self.event else {
            return;
        };
        let mut state = self.list.state();
        let mut wakers = state.wakers.iter_mut();
        if let Some(waker) = wakers.find(|waker| Arc::ptr_eq(own, &waker.event)) {
            waker.is_used = false;
        }
    }
}
