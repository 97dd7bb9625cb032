//! State shared by the calls, the connections and the thread of a connection manager.

use crate::addresses::Addresses;
use crate::error::{Closed, ConnectError, End};
use crate::lookup::{Lookup, NextHop, Peer, Within};
use crate::pair::Settings;
use crate::service::{MAX_WAIT, Service};
use ringside_cm::{
    Accept, Action, ConnectionId, Event, EventKind, ListenerId, Manager, OutgoingMad, Parameters,
};
use ringside_pmd::rdma::{ProtectionDomain, QueuePair};
use ringside_pmd::recovery::FailureCause;
use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Between two looks for messages while a call waits for one.
const BUSY: Duration = Duration::from_micros(200);
/// Between two looks otherwise.
const IDLE: Duration = Duration::from_millis(5);
/// Longest wait for the last messages to leave.
const FAREWELL: Duration = Duration::from_millis(200);
/// Messages that wait for the recovery of the device: a last one for each connection.
const MAX_KEPT: usize = ringside_cm::MAX_CONNECTIONS;
/// Ports of programs that connect.
const EPHEMERAL: std::ops::Range<u16> = 32768..61000;

/// Longest wait of a call: the clock cannot count to the end of [`Duration::MAX`].
const FOREVER: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// The resolver of a manager: looks for the next hop to an IP address.
pub(crate) type Resolver = dyn Fn(Peer) -> Lookup<NextHop> + Send + Sync;

/// The resolver as queue pair 1 uses it: its messages stay on the VLANs of their own addresses.
fn neighbours(resolve: &Resolver) -> impl Fn(IpAddr, Option<u16>) -> Lookup {
    move |address, vlan| {
        let within = Within::Vlan(vlan);
        resolve(Peer { address, within }).mac()
    }
}

/// The time at which a call that waits for `wait` from now on returns.
pub(crate) fn deadline(wait: Duration) -> Instant {
    Instant::now() + wait.min(FOREVER)
}

/// A request that was not answered yet.
pub(crate) struct Waiting {
    pub(crate) id: ConnectionId,
    pub(crate) parameters: Parameters,
    pub(crate) peer: SocketAddr,
    pub(crate) private_data: Vec<u8>,
}

/// News of a connection.
pub(crate) enum News {
    /// from the connection manager
    Event(EventKind),
    /// the device failed, and the connection with it
    Lost(FailureCause),
    /// the manager is closed, and the connection with it
    Closed(Closed),
}

/// Queue pair 1, or the reason why there is none.
enum Gsi {
    InService(Box<Service>),
    /// the device failed; these messages tell the peers of it
    Lost {
        cause: FailureCause,
        kept: VecDeque<OutgoingMad>,
        /// of the failed device: shows if it is shut down
        domain: ProtectionDomain,
    },
    /// there will be none again
    Closed(Closed),
}

/// State that calls and the thread change.
pub(crate) struct State {
    pub(crate) manager: Manager,
    gsi: Gsi,
    /// messages from before a recovery, which are sent as there is room
    kept: VecDeque<OutgoingMad>,
    resolve: Arc<Resolver>,
    addresses: Addresses,
    /// unread news of each connection
    pub(crate) events: HashMap<ConnectionId, VecDeque<News>>,
    /// unread requests of each listener
    pub(crate) requests: HashMap<ListenerId, VecDeque<Waiting>>,
    next_port: u16,
    /// calls that wait
    waiting: u32,
}

/// The parts of a device that the manager uses.
pub(crate) struct Parts {
    pub(crate) manager: Manager,
    pub(crate) service: Service,
    pub(crate) path_mtu: u8,
    /// reads that the device answers, and that it has under way
    pub(crate) reads: (u8, u8),
}

/// State shared by the calls, connections and thread of the manager.
pub(crate) struct Shared {
    began: Instant,
    state: Mutex<State>,
    changed: Condvar,
    is_ending: AtomicBool,
    pub(crate) path_mtu: u8,
    /// reads that the device answers, and that it has under way
    pub(crate) reads: (u8, u8),
}

/// The error of an attempt that these news end; `Ok` for other news.
pub(crate) fn refused(news: News, peer: IpAddr) -> Result<(), ConnectError> {
    match news {
        News::Event(EventKind::Rejected {
            reason,
            private_data,
            ..
        }) => Err(ConnectError::Rejected {
            reason,
            private_data,
        }),
        News::Event(EventKind::Unreachable) => Err(ConnectError::Unreachable { peer }),
        News::Event(EventKind::Disconnected { .. }) => Err(ConnectError::Ended { peer }),
        News::Lost(cause) => Err(ConnectError::DeviceFailed { cause }),
        News::Closed(closed) => Err(closed.into()),
        News::Event(_) => Ok(()),
    }
}

/// Why news end a connection; nothing for those that do not.
pub(crate) const fn end_of(news: &News) -> Option<End> {
    match news {
        News::Event(EventKind::Disconnected { by_peer: true }) => Some(End::Disconnected),
        News::Event(EventKind::Disconnected { by_peer: false } | EventKind::Unreachable) => {
            Some(End::Silent)
        }
        News::Event(EventKind::Rejected { reason, .. }) => Some(End::Rejected(*reason)),
        News::Lost(cause) => Some(End::DeviceFailed(*cause)),
        News::Closed(closed) => Some(End::Closed(*closed)),
        News::Event(_) => None,
    }
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

impl State {
    pub(crate) fn take_port(&mut self) -> u16 {
        let port = self.next_port;
        self.next_port = match port + 1 {
            end if end >= EPHEMERAL.end => EPHEMERAL.start,
            next => next,
        };
        port
    }

    /// The next unread news of a connection.
    pub(crate) fn next_event(&mut self, id: ConnectionId) -> Option<News> {
        self.events.get_mut(&id)?.pop_front()
    }

    /// Errors: the device has failed, and the manager was not restored; or the manager is closed.
    pub(crate) fn check(&mut self, now: Duration) -> Result<(), ConnectError> {
        self.notice_end(now);
        match self.gsi {
            Gsi::InService(_) => Ok(()),
            Gsi::Lost { cause, .. } => Err(ConnectError::DeviceFailed { cause }),
            Gsi::Closed(closed) => Err(closed.into()),
        }
    }

    /// Errors: as of [`Self::check`], and the queue pair is none of the manager's device.
    pub(crate) fn check_pair(
        &mut self,
        now: Duration,
        pair: &QueuePair,
    ) -> Result<(), ConnectError> {
        self.check(now)?;
        match &self.gsi {
            Gsi::InService(service) if !pair.protection_domain().is_beside(service.domain()) => {
                let queue_pair = pair.number();
                Err(ConnectError::ForeignQueuePair { queue_pair })
            }
            _ => Ok(()),
        }
    }

    /// Errors: there will be no queue pair 1 again.
    pub(crate) fn check_open(&mut self, now: Duration) -> Result<(), Closed> {
        self.notice_end(now);
        match self.gsi {
            Gsi::Closed(closed) => Err(closed),
            Gsi::InService(_) | Gsi::Lost { .. } => Ok(()),
        }
    }

    /// Takes queue pair 1 out of use if the device failed or is shut down: its connections are
    /// over.
    fn notice_end(&mut self, now: Duration) {
        let (failure, domain) = match &self.gsi {
            Gsi::InService(service) => (service.failure(), service.domain()),
            Gsi::Lost { domain, .. } => (None, domain),
            Gsi::Closed(_) => return,
        };
        self.gsi = match failure {
            Some(cause) => Gsi::Lost {
                cause,
                kept: std::mem::take(&mut self.kept),
                domain: domain.clone(),
            },
            None if domain.is_shut_down() => {
                self.requests.clear();
                Gsi::Closed(Closed::ShutDown)
            }
            None => return,
        };
        self.manager.lose_device();
        self.act(now);
    }

    /// Puts queue pair 1 of the recovered device into use.
    pub(crate) fn resume(&mut self, service: Service, resolve: Arc<Resolver>) {
        if let Gsi::Lost { kept, .. } = &mut self.gsi {
            self.kept = std::mem::take(kept);
        }
        self.gsi = Gsi::InService(Box::new(service));
        self.resolve = resolve;
        self.addresses.look_again();
        self.follow_addresses();
    }

    /// Takes addresses into account that were added to the device or removed from it.
    fn follow_addresses(&mut self) {
        if let Gsi::InService(service) = &self.gsi {
            self.addresses.follow(service.domain(), &mut self.manager);
        }
    }

    /// The first VLAN of an own address.
    pub(crate) fn vlan_of(&self, own: IpAddr) -> Option<u16> {
        match &self.gsi {
            Gsi::InService(service) => service.vlan_of(own),
            Gsi::Lost { .. } | Gsi::Closed(_) => None,
        }
    }

    /// Does what the manager wants.
    fn act(&mut self, now: Duration) {
        while let Some(action) = self.manager.next_action() {
            match (action, &mut self.gsi) {
                (Action::Send(mad), Gsi::InService(service)) => {
                    let neighbour = neighbours(&*self.resolve);
                    service.send(mad, &neighbour);
                }
                (Action::Send(mad), Gsi::Lost { kept, .. }) if kept.len() < MAX_KEPT => {
                    kept.push_back(mad);
                }
                (Action::Send(mad), Gsi::Lost { .. } | Gsi::Closed(_)) => {
                    let to = mad.destination.address();
                    tracing::debug!(%to, "a peer is not notified of the end of a connection");
                }
                (Action::Event(event), _) => self.tell(event, now),
            }
        }
    }

    /// Takes the messages that arrived, and sends those that waited.
    fn serve(&mut self, now: Duration) {
        self.follow_addresses();
        let Gsi::InService(service) = &mut self.gsi else {
            return;
        };
        let manager = &mut self.manager;
        service.poll(|arrived| {
            if let Err(reason) = manager.receive(now, arrived) {
                tracing::debug!(%reason, "a datagram for queue pair 1 was dropped");
            }
        });
        // While messages wait, each turn looks whether their peers have answered.
        service.retry(&neighbours(&*self.resolve));
        if service.is_lost() {
            service.give_up();
        }
        self.send_kept();
    }

    /// Sends messages from before a recovery, as many as there is room for.
    fn send_kept(&mut self) {
        let Gsi::InService(service) = &mut self.gsi else {
            return;
        };
        while service.has_room()
            && let Some(mad) = self.kept.pop_front()
        {
            service.send(mad, &neighbours(&*self.resolve));
        }
    }

    /// Waits until the messages that are left were sent.
    fn send_last(&mut self) {
        let limit = Instant::now() + FAREWELL;
        while Instant::now() < limit {
            self.send_kept();
            let left = !self.kept.is_empty();
            let Gsi::InService(service) = &mut self.gsi else {
                return;
            };
            service.poll(|_| {});
            let waits = service.retry(&neighbours(&*self.resolve));
            if !left && !waits && !service.is_sending() {
                return;
            }
            std::thread::yield_now();
        }
    }

    fn tell(&mut self, event: Event, now: Duration) {
        match event.kind {
            EventKind::Request {
                listener,
                parameters,
                header,
                private_data,
            } => {
                let Some(requests) = self.requests.get_mut(&listener) else {
                    return;
                };
                self.events.insert(event.id, VecDeque::new());
                requests.push_back(Waiting {
                    id: event.id,
                    parameters,
                    peer: SocketAddr::new(header.source, header.source_port),
                    private_data,
                });
            }
            EventKind::DeviceFailed => {
                let news = match self.gsi {
                    Gsi::InService(_) => return,
                    Gsi::Lost { cause, .. } => News::Lost(cause),
                    Gsi::Closed(closed) => News::Closed(closed),
                };
                if let Some(events) = self.events.get_mut(&event.id) {
                    events.push_back(news);
                }
            }
            kind => {
                if matches!(kind, EventKind::Disconnected { by_peer: true }) {
                    // Confirms; an end that this side asked for needs that no more.
                    let _ = self.manager.disconnect(now, event.id);
                }
                let news = News::Event(kind);
                if end_of(&news).is_some() && self.withdraw(event.id) {
                    self.events.remove(&event.id);
                    self.manager.destroy(now, event.id);
                } else if let Some(events) = self.events.get_mut(&event.id) {
                    events.push_back(news);
                }
            }
        }
    }

    /// Takes a request that its peer has given up out of those that wait for the program; true if
    /// it was one.
    fn withdraw(&mut self, id: ConnectionId) -> bool {
        self.requests.values_mut().any(|requests| {
            let place = requests.iter().position(|waiting| waiting.id == id);
            place.and_then(|place| requests.remove(place)).is_some()
        })
    }
}

impl Shared {
    pub(crate) fn new(parts: Parts, resolve: Arc<Resolver>, seed: u64) -> Self {
        let span = u64::from(EPHEMERAL.end - EPHEMERAL.start);
        let mut state = State {
            manager: parts.manager,
            gsi: Gsi::InService(Box::new(parts.service)),
            kept: VecDeque::new(),
            resolve,
            addresses: Addresses::default(),
            events: HashMap::new(),
            requests: HashMap::new(),
            next_port: EPHEMERAL.start + (seed % span) as u16,
            waiting: 0,
        };
        state.follow_addresses();
        Self {
            began: Instant::now(),
            state: Mutex::new(state),
            changed: Condvar::new(),
            is_ending: AtomicBool::new(false),
            path_mtu: parts.path_mtu,
            reads: parts.reads,
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

    /// Forgets a connection; tells the peer, if there is one.
    pub(crate) fn destroy(&self, id: ConnectionId) {
        self.with(|state, now| {
            state.events.remove(&id);
            state.manager.destroy(now, id);
        });
    }

    /// Waits until `take` gives something; nothing at the limit, or once the manager is closed.
    pub(crate) fn wait<T>(
        &self,
        limit: Instant,
        mut take: impl FnMut(&mut State) -> Option<T>,
    ) -> Option<T> {
        let mut state = self.lock();
        state.waiting += 1;
        self.changed.notify_all();
        let found = loop {
            if let Some(found) = take(&mut state) {
                break Some(found);
            }
            let left = limit.saturating_duration_since(Instant::now());
            if left.is_zero() || matches!(state.gsi, Gsi::Closed(_)) {
                break None;
            }
            let waited = self.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        };
        state.waiting -= 1;
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
        (peer, within): (IpAddr, Within),
        limit: Instant,
        waited: Duration,
    ) -> Result<NextHop, ConnectError> {
        let patience = Instant::now() + MAX_WAIT;
        loop {
            let resolve = self.with(|state, now| {
                state.check(now)?;
                Ok::<_, ConnectError>(Arc::clone(&state.resolve))
            })?;
            let found = resolve(Peer {
                address: peer,
                within,
            });
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

    /// The settings of an answer: what both sides can do.
    pub(crate) fn answer(&self, pair: u32, agreed: &mut Parameters, own: &Settings) -> Accept {
        agreed.responder_resources = agreed
            .responder_resources
            .min(own.inbound_reads)
            .min(self.reads.0);
        agreed.initiator_depth = agreed
            .initiator_depth
            .min(own.outbound_reads)
            .min(self.reads.1);
        Accept {
            queue_pair: pair,
            shared_receive_queue: false,
            responder_resources: agreed.responder_resources,
            initiator_depth: agreed.initiator_depth,
            flow_control: true,
            rnr_retry_count: own.receiver_not_ready_retries,
            private_data: own.private_data.clone(),
        }
    }

    /// The addresses that it listens on and connects from.
    pub(crate) fn addresses(&self) -> Vec<IpAddr> {
        self.with(|state, _| state.addresses.list())
    }

    /// The own address to connect to a peer from, and its VLAN: the one of the next hop's network,
    /// unless the program has chosen another one.
    pub(crate) fn local_for(
        &self,
        peer: IpAddr,
        hop: &NextHop,
        chosen: Option<IpAddr>,
    ) -> Result<(IpAddr, Option<u16>), ConnectError> {
        match (chosen, hop.local_address) {
            (Some(chosen), near) if near != Some(chosen) => {
                Ok((chosen, self.with(|state, _| state.vlan_of(chosen))))
            }
            (_, Some(near)) => Ok((near, hop.vlan)),
            (_, None) => self
                .with(|state, _| state.addresses.towards(peer))
                .map(|own| (own.address, own.vlan))
                .ok_or(ConnectError::NoAddress { peer }),
        }
    }

    /// The thread: answers peers until the manager ends.
    pub(crate) fn serve(&self) {
        while !self.is_ending.load(Ordering::Relaxed) {
            let mut state = self.lock();
            let now = self.began.elapsed();
            state.serve(now);
            state.notice_end(now);
            state.manager.tick(now);
            state.act(now);
            let rest = if state.waiting > 0 { BUSY } else { IDLE };
            let next = state.manager.deadline();
            let rest = next.map_or(rest, |at| at.saturating_sub(now).min(rest));
            self.changed.notify_all();
            // A call that begins to wait ends this sleep.
            drop(self.changed.wait_timeout(state, rest.max(BUSY)));
        }
        self.take_leave();
    }

    /// Tells the peers of what is left, waits until the messages have left, not for answers, and
    /// gives queue pair 1 back.
    fn take_leave(&self) {
        let mut state = self.lock();
        let now = self.began.elapsed();
        let left: Vec<ConnectionId> = state.events.keys().copied().collect();
        for id in left {
            state.manager.destroy(now, id);
        }
        state.act(now);
        state.send_last();
        if state.check_open(now).is_ok() {
            state.gsi = Gsi::Closed(Closed::Dropped);
            state.requests.clear();
            for events in state.events.values_mut() {
                events.push_back(News::Closed(Closed::Dropped));
            }
        }
        drop(state);
        self.changed.notify_all();
    }
}
