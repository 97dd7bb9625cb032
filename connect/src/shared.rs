//! State shared by the calls, the connections and the thread of a connection manager.

use crate::error::{ConnectError, End};
use crate::pair::Settings;
use crate::service::{LONGEST_WAIT, Lookup, Service};
use ringside_cm::{
    Accept, Action, ConnectionId, Event, EventKind, ListenerId, Manager, OutgoingMad, Parameters,
};
use ringside_pmd::rdma::address::MacAddress;
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

/// The resolver of a manager: looks for the MAC address of an IP address.
pub(crate) type Resolver = dyn Fn(IpAddr) -> Lookup + Send + Sync;

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
}

/// Queue pair 1, or the reason why there is none.
enum Gsi {
    InService(Box<Service>),
    /// the device failed; these messages tell the peers of it
    Lost {
        cause: FailureCause,
        kept: VecDeque<OutgoingMad>,
    },
}

/// State that calls and the thread change.
pub(crate) struct State {
    pub(crate) manager: Manager,
    gsi: Gsi,
    /// messages from before a recovery, which are sent as there is room
    kept: VecDeque<OutgoingMad>,
    resolve: Arc<Resolver>,
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
    pub(crate) addresses: Vec<IpAddr>,
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
    pub(crate) addresses: Vec<IpAddr>,
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

    /// Errors: the device has failed, and the manager was not restored.
    pub(crate) fn check(&mut self, now: Duration) -> Result<(), ConnectError> {
        self.notice_failure(now);
        match self.gsi {
            Gsi::InService(_) => Ok(()),
            Gsi::Lost { cause, .. } => Err(ConnectError::DeviceFailed { cause }),
        }
    }

    /// Takes queue pair 1 out of use if the device failed: its connections are over.
    fn notice_failure(&mut self, now: Duration) {
        let Gsi::InService(service) = &self.gsi else {
            return;
        };
        let Some(cause) = service.failure() else {
            return;
        };
        let kept = std::mem::take(&mut self.kept);
        self.gsi = Gsi::Lost { cause, kept };
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
    }

    /// Does what the manager wants.
    fn act(&mut self, now: Duration) {
        while let Some(action) = self.manager.next_action() {
            match (action, &mut self.gsi) {
                (Action::Send(mad), Gsi::InService(service)) => service.send(mad, &*self.resolve),
                (Action::Send(mad), Gsi::Lost { kept, .. }) if kept.len() < MAX_KEPT => {
                    kept.push_back(mad);
                }
                (Action::Send(mad), Gsi::Lost { .. }) => {
                    let to = mad.destination.address();
                    tracing::debug!(%to, "a peer is not told of the end of a connection");
                }
                (Action::Event(event), _) => self.tell(event, now),
            }
        }
    }

    /// Takes the messages that arrived, and sends those that waited.
    fn serve(&mut self, now: Duration) {
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
        service.retry(&*self.resolve);
        self.send_kept();
        self.notice_failure(now);
    }

    /// Sends messages from before a recovery, as many as there is room for.
    fn send_kept(&mut self) {
        let Gsi::InService(service) = &mut self.gsi else {
            return;
        };
        while service.has_room()
            && let Some(mad) = self.kept.pop_front()
        {
            service.send(mad, &*self.resolve);
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
                if let Gsi::Lost { cause, .. } = self.gsi
                    && let Some(events) = self.events.get_mut(&event.id)
                {
                    events.push_back(News::Lost(cause));
                }
            }
            kind => {
                if matches!(kind, EventKind::Disconnected { by_peer: true }) {
                    // Confirms; an end that this side asked for needs that no more.
                    let _ = self.manager.disconnect(now, event.id);
                }
                if let Some(events) = self.events.get_mut(&event.id) {
                    events.push_back(News::Event(kind));
                }
            }
        }
    }
}

impl Shared {
    pub(crate) fn new(parts: Parts, resolve: Arc<Resolver>, seed: u64) -> Self {
        let span = u64::from(EPHEMERAL.end - EPHEMERAL.start);
        Self {
            began: Instant::now(),
            state: Mutex::new(State {
                manager: parts.manager,
                gsi: Gsi::InService(Box::new(parts.service)),
                kept: VecDeque::new(),
                resolve,
                events: HashMap::new(),
                requests: HashMap::new(),
                next_port: EPHEMERAL.start + (seed % span) as u16,
                waiting: 0,
            }),
            changed: Condvar::new(),
            is_ending: AtomicBool::new(false),
            addresses: parts.addresses,
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

    /// Waits until `take` gives something; nothing at the limit.
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
            if left.is_zero() {
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
        self.wait(limit, |state| state.next_event(id))
            .ok_or(ConnectError::Deadline { peer, waited })
    }

    /// The MAC address of a peer; waits while the peer is being asked for it.
    pub(crate) fn resolve(&self, peer: IpAddr) -> Result<MacAddress, ConnectError> {
        let limit = Instant::now() + LONGEST_WAIT;
        loop {
            let resolve = self.with(|state, now| {
                state.check(now)?;
                Ok::<_, ConnectError>(Arc::clone(&state.resolve))
            })?;
            match resolve(peer) {
                Lookup::Found(mac) => return Ok(mac),
                Lookup::Asked if Instant::now() < limit => std::thread::sleep(BUSY),
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

    /// The own address that reaches a peer: of its family, and link-local if the peer's is.
    pub(crate) fn local_for(&self, peer: IpAddr) -> Result<IpAddr, ConnectError> {
        let narrow = |ip: &IpAddr| matches!(ip, IpAddr::V6(six) if six.is_unicast_link_local());
        let own = self.addresses.iter().copied();
        let mut same = own.filter(|own| own.is_ipv4() == peer.is_ipv4());
        let fitting = same.clone().find(|own| narrow(own) == narrow(&peer));
        let found = fitting.or_else(|| same.next());
        found.ok_or(ConnectError::NoAddress { peer })
    }

    /// The thread: answers peers until the manager ends.
    pub(crate) fn serve(&self) {
        while !self.is_ending.load(Ordering::Relaxed) {
            let mut state = self.lock();
            let now = self.began.elapsed();
            state.serve(now);
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

    /// Tells the peers of what is left, and waits until the messages have left, not for answers.
    fn take_leave(&self) {
        let mut state = self.lock();
        let now = self.began.elapsed();
        let left: Vec<ConnectionId> = state.events.drain().map(|(id, _)| id).collect();
        for id in left {
            state.manager.destroy(now, id);
        }
        state.act(now);
        let limit = Instant::now() + FAREWELL;
        while Instant::now() < limit {
            state.send_kept();
            let left = !state.kept.is_empty();
            let Gsi::InService(service) = &mut state.gsi else {
                return;
            };
            if !left && !service.is_sending() {
                return;
            }
            service.poll(|_| {});
            std::thread::yield_now();
        }
    }
}
