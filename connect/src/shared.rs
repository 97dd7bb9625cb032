//! State shared by the calls, the connections and the thread of a connection manager.

use crate::error::{Closed, ConnectError};
use crate::lookup::{Lookup, NextHop, Peer, Resolver};
use crate::news::News;
use crate::service::{MAX_WAIT, Service};
use crate::state::State;
use ringside_bus::DeviceAddress;
use ringside_bus::process::Birth;
use ringside_cm::{ConnectionId, Manager};
use ringside_config::Within;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Between two looks for messages while a call waits for one, or after a look that found some:
/// other threads get the state meanwhile.
const BUSY: Duration = Duration::from_micros(200);
/// Between two looks otherwise.
const IDLE: Duration = Duration::from_millis(5);

/// Longest wait of a call: the clock cannot count to the end of [`Duration::MAX`].
const FOREVER: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// The time at which a call that waits for `wait` from now on returns.
pub(crate) fn deadline(wait: Duration) -> Instant {
    Instant::now() + wait.min(FOREVER)
}

/// The parts of a device that the manager uses.
pub(crate) struct Parts {
    pub(crate) manager: Manager,
    pub(crate) service: Service,
    pub(crate) device: DeviceAddress,
    pub(crate) path_mtu: u8,
    /// reads that the device answers, and that it has under way
    pub(crate) reads: (u8, u8),
}

/// State shared by the calls, connections and thread of the manager.
///
/// In a child by fork the thread does not exist, and it may have held the lock at the fork: there
/// no call takes the lock.
pub(crate) struct Shared {
    birth: Birth,
    /// that started the manager
    process: u32,
    began: Instant,
    state: Mutex<State>,
    changed: Condvar,
    /// calls that wait
    waiting: AtomicU32,
    is_ending: AtomicBool,
    /// that the manager was started on
    pub(crate) device: DeviceAddress,
    pub(crate) path_mtu: u8,
    /// reads that the device answers, and that it has under way
    pub(crate) reads: (u8, u8),
}

/// Takes a connection back whose making failed.
pub(crate) struct Unfinished<'a> {
    shared: &'a Shared,
    id: Option<ConnectionId>,
}

impl<'a> Unfinished<'a> {
    pub(crate) fn new(shared: &'a Shared, id: ConnectionId) -> Self {
        Self {
            shared,
            id: Some(id),
        }
    }

    /// It is made.
    pub(crate) fn keep(&mut self) {
        self.id = None;
    }
}

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        if let Some(id) = self.id {
            self.shared.destroy(id);
        }
    }
}

impl Shared {
    pub(crate) fn new(parts: Parts, resolve: Arc<Resolver>, seed: u64) -> Self {
        let state = State::new(parts.manager, parts.service, resolve, seed);
        Self {
            birth: Birth::now(),
            process: std::process::id(),
            began: Instant::now(),
            state: Mutex::new(state),
            changed: Condvar::new(),
            waiting: AtomicU32::new(0),
            is_ending: AtomicBool::new(false),
            device: parts.device,
            path_mtu: parts.path_mtu,
            reads: parts.reads,
        }
    }

    /// Refuses calls in a child by fork. Each call of the program begins with this.
    pub(crate) fn check_process(&self) -> Result<(), Closed> {
        match self.birth.is_here() {
            true => Ok(()),
            false => Err(Closed::OtherProcess {
                made_in: self.process,
                this: std::process::id(),
            }),
        }
    }

    /// Ends the thread.
    pub(crate) fn end(&self) {
        self.is_ending.store(true, Ordering::Relaxed);
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls the manager, and does what it wants.
    pub(crate) fn with<T>(&self, call: impl FnOnce(&mut State, Duration) -> T) -> T {
        let mut state = self.lock();
        let now = self.began.elapsed();
        state.follow_addresses();
        let result = call(&mut state, now);
        state.act(now);
        drop(state);
        self.changed.notify_all();
        result
    }

    /// Forgets a connection; tells the peer, if there is one. Does nothing in a child by fork.
    pub(crate) fn destroy(&self, id: ConnectionId) {
        if self.check_process().is_err() {
            return;
        }
        self.with(|state, now| {
            state.events.remove(&id);
            state.manager.destroy(now, id);
        });
    }

    /// Waits until `take` gives something; nothing at the limit, once the manager is closed, and in
    /// a child by fork.
    pub(crate) fn wait<T>(
        &self,
        limit: Instant,
        mut take: impl FnMut(&mut State) -> Option<T>,
    ) -> Option<T> {
        self.check_process().ok()?;
        let mut state = self.lock();
        self.waiting.fetch_add(1, Ordering::Relaxed);
        self.changed.notify_all();
        let found = loop {
            if let Some(found) = take(&mut state) {
                break Some(found);
            }
            let left = limit.saturating_duration_since(Instant::now());
            if left.is_zero() || state.is_closed() {
                break None;
            }
            let waited = self.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        };
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        found
    }

    /// The next event of a connection.
    pub(crate) fn next_event(
        &self,
        id: ConnectionId,
        peer: IpAddr,
        limit: Instant,
        waited: Duration,
    ) -> Result<News, ConnectError> {
        if let Some(news) = self.wait(limit, |state| state.next_event(id)) {
            return Ok(news);
        }
        self.with(|state, now| state.check_open(now))?;
        Err(ConnectError::Deadline { peer, waited })
    }

    /// The next hop to a peer; waits up to `limit` while the peer is being asked for it.
    pub(crate) fn resolve(
        &self,
        wanted: Peer,
        limit: Instant,
        waited: Duration,
    ) -> Result<NextHop, ConnectError> {
        let peer = wanted.address;
        let patience = Instant::now() + MAX_WAIT;
        loop {
            let resolve = self.with(|state, now| {
                state.check(now)?;
                Ok::<_, ConnectError>(Arc::clone(state.resolver()))
            })?;
            let found = resolve(wanted);
            let now = Instant::now();
            match found {
                Lookup::Found(hop) => return Ok(hop),
                Lookup::Asked if now >= limit => {
                    return Err(ConnectError::Deadline { peer, waited });
                }
                Lookup::Asked if now < patience => std::thread::sleep(BUSY),
                Lookup::Asked | Lookup::Unknown => {
                    // The stack ends with the device.
                    self.with(|state, now| state.check(now))?;
                    return Err(ConnectError::NoNeighbour { peer });
                }
            }
        }
    }

    /// The addresses that it listens on and connects from; none in a child by fork.
    pub(crate) fn addresses(&self) -> Vec<IpAddr> {
        match self.check_process() {
            Ok(()) => self.with(|state, _| state.addresses().list()),
            Err(_) => Vec::new(),
        }
    }

    /// The next hop to a peer, and the own address to connect from with its VLAN: the one of the
    /// hop's network, or the one that the program has chosen, on whose VLAN the peer is looked for
    /// then. The manager refuses one that the device does not have.
    pub(crate) fn route(
        &self,
        peer: IpAddr,
        chosen: Option<IpAddr>,
        limit: Instant,
        waited: Duration,
    ) -> Result<(NextHop, IpAddr, Option<u16>), ConnectError> {
        let own = |own| self.with(|state, _| state.addresses().own_towards(own, peer));
        let entry = chosen.and_then(own);
        let within = entry.map_or(Within::All, |own| Within::Vlan(own.vlan));
        let address = peer;
        let hop = self.resolve(Peer { address, within }, limit, waited)?;
        if let Some(chosen) = chosen {
            return Ok((hop, chosen, entry.and_then(|own| own.vlan)));
        }
        if let Some(near) = hop.local_address {
            return Ok((hop, near, hop.vlan));
        }
        let found = self.with(|state, _| state.addresses().towards(peer));
        let own = found.ok_or(ConnectError::NoAddress { peer })?;
        Ok((hop, own.address, own.vlan))
    }

    /// The thread: answers peers until the manager ends.
    pub(crate) fn serve(&self) {
        while !self.is_ending.load(Ordering::Relaxed) {
            let mut state = self.lock();
            let now = self.began.elapsed();
            let has_arrived = state.serve(now);
            state.notice_end(now);
            state.manager.tick(now);
            state.act(now);
            let rest = if has_arrived || self.waiting.load(Ordering::Relaxed) > 0 {
                BUSY
            } else {
                IDLE
            };
            let next = state.manager.deadline();
            let rest = next.map_or(rest, |at| at.saturating_sub(now).min(rest));
            self.changed.notify_all();
            // A call that begins to wait ends this sleep.
            drop(self.changed.wait_timeout(state, rest.max(BUSY)));
        }
        let now = self.began.elapsed();
        let leave = self.lock().take_leave(now);
        self.changed.notify_all();
        // Calls that others make meanwhile do not wait for the peers.
        if let Some(leave) = leave {
            leave.tell();
        }
    }
}
