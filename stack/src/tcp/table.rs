//! All connections and listeners of a stack, and their sockets of smoltcp.

use super::connection::TcpConnection;
use super::entry::{Entry, Place, WINDOW_BYTES, confirm, connection};
use super::error::TcpError;
use super::segment::{Ends, request, stray};
use super::shared::{Backlog, Phase, Shared};
use crate::filters::Filters;
use crate::link::Link;
use ringside_clock::{Clock, Instant};
use ringside_lan::QueueState;
use ringside_pmd::Birth;
use smoltcp::socket::tcp::{Socket, SocketBuffer, State};
use smoltcp::wire::IpEndpoint;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

/// Sockets of a stack: connections, also those that are ending or were not accepted, and requests
/// that peers have not confirmed. Listeners have none: see [`Table::prepare`].
pub(crate) const SOCKETS: usize = 64;
/// The time in which the peer confirms a connection that it has asked for.
const HANDSHAKE: smoltcp::time::Duration = smoltcp::time::Duration::from_secs(10);
/// Requests of a listener that peers have not confirmed, beside the connections that it takes: a
/// host that confirms none does not keep others out.
const HALF_OPEN: usize = 8;
/// Port numbers of connections that the stack asks for. Source: RFC 6335, section 6.
const DYNAMIC: std::ops::RangeInclusive<u16> = 49_152..=65_535;

/// Connections of a listener that the program has not taken.
type Untaken = Arc<Shared<Backlog<TcpConnection>>>;

/// One listener.
struct Listening {
    address: SocketAddr,
    room: usize,
    backlog: Untaken,
    clock: Arc<dyn Clock>,
    sockets: Vec<Place>,
}

/// The connections and listeners of a stack.
pub(crate) struct Table {
    entries: Vec<Entry>,
    listeners: Vec<Listening>,
    /// chooses port numbers: another one in each process
    seed: u64,
    /// A child of a fork has copies of the handles, whose locks may be held for ever.
    birth: Birth,
}

impl Drop for Table {
    /// Ends the handles of a stack that is dropped.
    fn drop(&mut self) {
        if self.birth.is_here() {
            self.clear(&TcpError::Ended, &mut [], None);
        }
    }
}

fn link_of(links: &mut [Link], vlan: Option<u16>) -> Option<&mut Link> {
    links.iter_mut().find(|link| link.vlan == vlan)
}

/// True if a socket is in this state.
fn is_in((vlan, handle): Place, state: State, links: &mut [Link]) -> bool {
    link_of(links, vlan).is_some_and(|link| link.tcp(handle).state() == state)
}

/// The requests among the sockets of a listener that peers have not confirmed.
fn half_open(sockets: &[Place], links: &mut [Link]) -> usize {
    let requests = sockets.iter();
    let requests = requests.filter(|place| is_in(**place, State::SynReceived, links));
    requests.count()
}

/// Drops the oldest of them without a reset; false if there is none.
fn drop_oldest(sockets: &mut Vec<Place>, links: &mut [Link]) -> bool {
    let mut all = sockets.iter();
    let Some(oldest) = all.position(|place| is_in(*place, State::SynReceived, links)) else {
        return false;
    };
    let (vlan, handle) = sockets.remove(oldest);
    if let Some(link) = link_of(links, vlan) {
        link.remove_tcp(handle);
    }
    true
}

impl Listening {
    /// True if it has as many connections as it takes that the program has not.
    fn is_full(&self) -> bool {
        self.backlog.lock().ready.len() >= self.room
    }
}

fn new_socket() -> Socket<'static> {
    let buffer = || SocketBuffer::new(vec![0; WINDOW_BYTES]);
    let mut socket = Socket::new(buffer(), buffer());
    socket.set_nagle_enabled(false);
    socket
}

/// True if a listener at `listened` takes connections to `address`.
fn covers(listened: IpAddr, address: IpAddr) -> bool {
    listened.is_unspecified() || listened == address
}

fn endpoint(address: SocketAddr) -> IpEndpoint {
    IpEndpoint::new(address.ip().into(), address.port())
}

fn socket_address(endpoint: IpEndpoint) -> SocketAddr {
    SocketAddr::new(endpoint.addr.into(), endpoint.port)
}

impl Table {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            entries: Vec::new(),
            listeners: Vec::new(),
            seed,
            birth: Birth::now(),
        }
    }

    /// True if it has connections, also such as are ending.
    pub(crate) fn has_connections(&self) -> bool {
        !self.entries.is_empty()
    }

    /// Sockets that are in use.
    fn sockets(&self) -> usize {
        let listening = self.listeners.iter().map(|one| one.sockets.len());
        self.entries.len() + listening.sum::<usize>()
    }

    /// Makes room for one socket: connections that only wait for late segments end, the oldest
    /// first, then requests that peers have not confirmed.
    fn make_room(&mut self, links: &mut [Link], filters: &mut Filters) -> bool {
        while self.sockets() >= SOCKETS {
            let late = self.entries.iter().position(|entry| {
                link_of(links, entry.place.0)
                    .is_some_and(|link| link.tcp(entry.place.1).state() == State::TimeWait)
            });
            match late {
                Some(late) => self.remove(late, links, filters),
                None if self.drop_request(links) => {}
                None => return false,
            }
        }
        true
    }

    /// Drops the oldest request of the listener that has most of them; false if there is none. The
    /// peer, if there is one, gets a reset when it confirms the connection.
    fn drop_request(&mut self, links: &mut [Link]) -> bool {
        let listeners = self.listeners.iter_mut();
        let most = listeners
            .map(|one| (half_open(&one.sockets, links), one))
            .max_by_key(|(requests, _)| *requests);
        most.is_some_and(|(_, listener)| drop_oldest(&mut listener.sockets, links))
    }

    fn remove(&mut self, at: usize, links: &mut [Link], filters: &mut Filters) {
        // The others stay in the order of their age, by which `make_room` takes them.
        let entry = self.entries.remove(at);
        if let Some(link) = link_of(links, entry.place.0) {
            link.remove_tcp(entry.place.1);
        }
        if entry.is_steered {
            filters.remove_tcp(entry.local);
        }
    }

    /// A dynamic port number that no connection and no listener has.
    fn free_port(&mut self, now: Instant) -> Option<u16> {
        // The numbers of two runs of a program differ, so that a peer which still has the first
        // one's connection does not confuse them.
        self.seed = (self.seed ^ now.0).wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        let count = DYNAMIC.len() as u64;
        let first = (self.seed >> 32) % count;
        let mut ports = (0..count).map(|step| DYNAMIC.start() + ((first + step) % count) as u16);
        ports.find(|port| {
            let mut entries = self.entries.iter();
            let mut listeners = self.listeners.iter();
            !entries.any(|entry| entry.local.port() == *port)
                && !listeners.any(|one| one.address.port() == *port)
        })
    }

    /// Listens; port 0 is replaced by a free one.
    pub(crate) fn listen(
        &mut self,
        mut address: SocketAddr,
        room: usize,
        filters: &mut Filters,
        clock: &Arc<dyn Clock>,
    ) -> Result<(SocketAddr, Untaken), TcpError> {
        let full = TcpError::TooMany { limit: SOCKETS };
        if address.port() == 0 {
            let port = self.free_port(clock.now());
            address.set_port(port.ok_or_else(|| full.clone())?);
        }
        let mut others = self.listeners.iter();
        let is_same = |other: &Listening| {
            other.address.port() == address.port()
                && !other.backlog.lock().abandoned
                && (covers(other.address.ip(), address.ip())
                    || covers(address.ip(), other.address.ip()))
        };
        if others.any(is_same) {
            return Err(TcpError::InUse(address));
        }
        if self.listeners.len() >= SOCKETS {
            return Err(full);
        }
        filters.add_tcp(address)?;
        let backlog = Arc::new(Shared::new(Backlog::new()));
        self.listeners.push(Listening {
            address,
            room,
            backlog: Arc::clone(&backlog),
            clock: Arc::clone(clock),
            sockets: Vec::new(),
        });
        Ok((address, backlog))
    }

    /// Asks for a connection to `peer` from `own`, an address of the link of `vlan`.
    pub(crate) fn connect(
        &mut self,
        (own, vlan): (IpAddr, Option<u16>),
        peer: SocketAddr,
        (links, filters): (&mut [Link], &mut Filters),
        clock: &Arc<dyn Clock>,
    ) -> Result<TcpConnection, TcpError> {
        let full = TcpError::TooMany { limit: SOCKETS };
        if !self.make_room(links, filters) {
            return Err(full);
        }
        let local = SocketAddr::new(own, self.free_port(clock.now()).ok_or(full)?);
        let link = link_of(links, vlan).ok_or(TcpError::Ended)?;
        filters.add_tcp(local)?;
        let handle = link.connect_tcp(new_socket(), endpoint(local), endpoint(peer));
        let Some(handle) = handle else {
            filters.remove_tcp(local);
            return Err(TcpError::NotPeer(peer));
        };
        let connection = connection(local, peer, Phase::Connecting, clock);
        self.entries
            .push(Entry::new((vlan, handle), &connection, true));
        Ok(connection)
    }

    /// True if a connection of its own on `vlan` has the ends of a segment.
    fn has(&self, request: &Ends, vlan: Option<u16>, links: &mut [Link]) -> bool {
        let mut entries = self.entries.iter().filter(|entry| entry.place.0 == vlan);
        if entries.any(|entry| (entry.local, entry.peer) == (request.to, request.from)) {
            return true;
        }
        let ends = Some((endpoint(request.to), endpoint(request.from)));
        let mut places = self.listeners.iter().flat_map(|one| &one.sockets);
        places.any(|place| {
            let socket = link_of(links, place.0).map(|link| link.tcp(place.1));
            place.0 == vlan
                && socket.is_some_and(|socket| {
                    socket.local_endpoint().zip(socket.remote_endpoint()) == ends
                })
        })
    }

    /// True if a connection or an unconfirmed request is with a host.
    pub(crate) fn talks_to(&self, host: IpAddr, links: &mut [Link]) -> bool {
        let is_peer = |entry: &Entry| entry.peer.ip() == host;
        let mut places = self.listeners.iter().flat_map(|one| &one.sockets);
        self.entries.iter().any(is_peer)
            || places.any(|(vlan, handle)| {
                let socket = link_of(links, *vlan).map(|link| link.tcp(*handle));
                let peer = socket.and_then(|socket| socket.remote_endpoint());
                peer.is_some_and(|peer| IpAddr::from(peer.addr) == host)
            })
    }

    /// The request for a connection in a frame, if there may be a use for it. Call
    /// [`Table::pump`] before it is processed, so that connections which were established count,
    /// then [`Table::prepare`], and [`Table::pump`] again after it.
    pub(crate) fn request(&self, frame: &[u8]) -> Option<Ends> {
        request(frame).filter(|_| !self.listeners.is_empty())
    }

    /// True for a segment to a listener that has neither SYN nor ACK nor RST, and is of no
    /// connection. It is dropped: the stack would say by a reset that none listens. Source: RFC
    /// 9293, section 3.10.7.2, the state LISTEN.
    pub(crate) fn drops(&self, frame: &[u8], vlan: Option<u16>, links: &mut [Link]) -> bool {
        let has_listeners = !self.listeners.is_empty();
        let segment = has_listeners.then(|| stray(frame)).flatten();
        segment.is_some_and(|segment| {
            let to = segment.to;
            let mut listeners = self.listeners.iter().map(|one| one.address);
            let is_heard = |one: SocketAddr| one.port() == to.port() && covers(one.ip(), to.ip());
            listeners.any(is_heard) && !self.has(&segment, vlan, links)
        })
    }

    /// Has a socket wait for a request that arrived by `vlan`, if a listener takes it. The stack
    /// refuses a request without one.
    ///
    /// Listeners have no sockets that wait: one of all addresses would need one for each VLAN.
    pub(crate) fn prepare(
        &mut self,
        request: &Ends,
        vlan: Option<u16>,
        (links, filters): (&mut [Link], &mut Filters),
    ) {
        let (to, is_known) = (request.to, self.has(request, vlan, links));
        let takes = |one: &Listening| {
            one.address.port() == to.port() && covers(one.address.ip(), to.ip()) && !one.is_full()
        };
        let Some(at) = self.listeners.iter().position(takes) else {
            return;
        };
        // A request for a connection that exists is for that one.
        if is_known || !link_of(links, vlan).is_some_and(|link| link.has(to.ip())) {
            return;
        }
        if let Some(listener) = self.listeners.get_mut(at)
            && half_open(&listener.sockets, links) >= listener.room + HALF_OPEN
        {
            drop_oldest(&mut listener.sockets, links);
        }
        if !self.make_room(links, filters) {
            return;
        }
        let mut socket = new_socket();
        socket.set_timeout(Some(HANDSHAKE));
        // It is closed, and a port 0 is no listener's.
        if socket.listen(endpoint(to)).is_ok()
            && let Some(listener) = self.listeners.get_mut(at)
            && let Some(link) = link_of(links, vlan)
        {
            listener.sockets.push((vlan, link.add_tcp(socket)));
        }
    }

    /// Moves bytes and states in both directions; ends all if the queues do nothing more.
    pub(crate) fn pump(
        &mut self,
        state: QueueState,
        (links, filters): (&mut [Link], &mut Filters),
        now: Instant,
    ) {
        if self.entries.is_empty() && self.listeners.is_empty() {
            return;
        }
        if state != QueueState::Running {
            self.clear(&TcpError::OutOfService, links, Some(filters));
            return;
        }
        for at in (0..self.entries.len()).rev() {
            let Some(entry) = self.entries.get_mut(at) else {
                continue;
            };
            let place = entry.place;
            let is_over = match link_of(links, place.0) {
                Some(link) => {
                    let has_address = link.has(entry.local.ip());
                    entry.pump(link.tcp(place.1), has_address, now)
                }
                None => true,
            };
            if is_over {
                self.remove(at, links, filters);
            }
        }
        self.accept(links, filters);
        self.drop_abandoned(links, filters);
    }

    /// Ends the listeners whose handles are gone.
    fn drop_abandoned(&mut self, links: &mut [Link], filters: &mut Filters) {
        self.listeners.retain(|listener| {
            if !listener.backlog.lock().abandoned {
                return true;
            }
            for (vlan, handle) in &listener.sockets {
                if let Some(link) = link_of(links, *vlan) {
                    link.remove_tcp(*handle);
                }
            }
            filters.remove_tcp(listener.address);
            false
        });
    }

    /// Hands connections that were established to their listeners. A listener that is full leaves
    /// them in their sockets until the program takes one.
    fn accept(&mut self, links: &mut [Link], filters: &mut Filters) {
        let entries = &mut self.entries;
        for listener in &mut self.listeners {
            let Listening {
                room,
                backlog,
                clock,
                sockets,
                ..
            } = listener;
            sockets.retain(|&(vlan, handle)| {
                let Some(link) = link_of(links, vlan) else {
                    return false;
                };
                let socket = link.tcp(handle);
                let ends = socket.local_endpoint().zip(socket.remote_endpoint());
                match (socket.state(), ends) {
                    (State::SynReceived, _) => return true,
                    // A request that was malformed or was reset has its socket wait again.
                    (State::Listen | State::Closed, _) | (_, None) => {
                        link.remove_tcp(handle);
                        return false;
                    }
                    _ if backlog.lock().ready.len() >= *room => {
                        // It lives as long as a connection does.
                        confirm(socket);
                        return true;
                    }
                    (_, Some((local, peer))) => {
                        confirm(socket);
                        let (local, peer) = (socket_address(local), socket_address(peer));
                        let made = connection(local, peer, Phase::Open, clock);
                        // It outlives the listener, which has this rule already.
                        let is_steered = filters.add_tcp(local).is_ok();
                        entries.push(Entry::new((vlan, handle), &made, is_steered));
                        backlog.lock().ready.push_back(made);
                        backlog.notify();
                    }
                }
                false
            });
        }
    }

    /// Ends all connections and listeners that have handles, with `error`.
    pub(crate) fn fail(&mut self, error: &TcpError, links: &mut [Link]) {
        for entry in &mut self.entries {
            let mut pipe = entry.pipe.lock();
            if !pipe.abandoned {
                pipe.fail(error.clone());
                if let Some(link) = link_of(links, entry.place.0) {
                    link.tcp(entry.place.1).abort();
                }
            }
            drop(pipe);
            entry.pipe.notify();
        }
        for listener in &self.listeners {
            listener.backlog.lock().end = Some(error.clone());
            listener.backlog.notify();
        }
    }

    /// The same, and forgets them: nothing can be sent.
    pub(crate) fn clear(
        &mut self,
        error: &TcpError,
        links: &mut [Link],
        filters: Option<&mut Filters>,
    ) {
        self.fail(error, links);
        let entries = std::mem::take(&mut self.entries);
        let listeners = std::mem::take(&mut self.listeners);
        let sockets = listeners.iter().flat_map(|listener| &listener.sockets);
        let places = entries.iter().map(|entry| &entry.place).chain(sockets);
        for (vlan, handle) in places {
            if let Some(link) = link_of(links, *vlan) {
                link.remove_tcp(*handle);
            }
        }
        let Some(filters) = filters else {
            return;
        };
        let own = entries.iter().filter(|entry| entry.is_steered);
        let own = own.map(|entry| entry.local);
        for address in own.chain(listeners.iter().map(|one| one.address)) {
            filters.remove_tcp(address);
        }
    }

    /// True while a connection has bytes, its end or its reset to deliver. One that waits for the
    /// peer's end only has none.
    pub(crate) fn is_ending(&self, links: &mut [Link]) -> bool {
        self.entries.iter().any(|entry| {
            link_of(links, entry.place.0).is_some_and(|link| {
                let state = link.tcp(entry.place.1).state();
                !matches!(state, State::FinWait2 | State::TimeWait)
            })
        })
    }
}
