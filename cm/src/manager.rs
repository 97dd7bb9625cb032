//! The connection manager of one node: every connection and service request of it.

mod active;
mod connection;
mod datagram;
mod disconnect;
mod held;
mod interface;
mod passive;
mod receive;
mod timers;

#[cfg(test)]
mod tests;

pub use held::LISTENER_WAIT;
pub use interface::{
    Accept, Action, Connect, ConnectionId, Event, EventKind, Identity, ListenAt, ListenError,
    ListenerId, OutgoingMad, Parameters, Refused, RequestError, Resolve, ServiceAnswer,
    ServiceKind, StateName,
};

use crate::address::{Gid, PortSpace, ServiceId};
use crate::mad::{MAD_BYTES, Mad, Message};
use crate::message::{MAX_ADDITIONAL_INFORMATION_BYTES, MAX_REJECTION_PRIVATE_BYTES, Rejection};
use connection::{Connection, Path, ServiceKey, State};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::IpAddr;
use std::time::Duration;

/// Connections and open service requests at a time. What comes beyond is forgotten, and the
/// peer's repeats may find room later.
pub const MAX_CONNECTIONS: usize = 65_536;

/// The connection manager. See the crate's documentation.
#[derive(Debug)]
pub struct Manager {
    identity: Identity,
    random: Random,
    /// addresses of the node with their VLANs; the first is offered in rejections
    addresses: Vec<(Gid, Option<u16>)>,
    listeners: BTreeMap<ServiceId, Vec<Listener>>,
    listeners_made: u64,
    connections: BTreeMap<u32, Connection>,
    /// GUID and communication id of a peer: repeated requests are found here
    by_peer: BTreeMap<(u64, u32), u32>,
    /// GUID and queue pair of a peer: stale connections are found here
    by_queue_pair: BTreeMap<(u64, u32), u32>,
    /// repeated service requests are found here
    by_service_request: BTreeMap<ServiceKey, u32>,
    timers: BTreeSet<(Duration, u32)>,
    /// requests without a listener, in the order of their arrival
    held: VecDeque<held::Held>,
    actions: VecDeque<Action>,
    /// connections whose states changed; nothing unless someone watches
    changed: Option<BTreeSet<u32>>,
}

/// A program that waits for requests.
#[derive(Clone, Copy, Debug)]
struct Listener {
    id: ListenerId,
    at: ListenAt,
    kind: ServiceKind,
    /// requests that the program has neither read nor answered
    waiting: usize,
    backlog: usize,
}

/// Random numbers for communication ids and PSNs: unpredictable enough that ids of a former life
/// do not come again. Sequence by the finaliser of SplitMix64.
#[derive(Debug)]
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ mixed >> 31
    }

    fn packet_sequence_number(&mut self) -> u32 {
        self.next() as u32 & 0xFF_FFFF
    }
}

impl Manager {
    /// A manager without addresses or listeners.
    #[must_use]
    pub fn new(identity: Identity) -> Self {
        Self {
            random: Random(identity.seed),
            identity,
            addresses: Vec::new(),
            listeners: BTreeMap::new(),
            listeners_made: 0,
            connections: BTreeMap::new(),
            by_peer: BTreeMap::new(),
            by_queue_pair: BTreeMap::new(),
            by_service_request: BTreeMap::new(),
            timers: BTreeSet::new(),
            held: VecDeque::new(),
            actions: VecDeque::new(),
            changed: None,
        }
    }

    /// Adds an address of the node on a VLAN, or on frames without a tag. Requests for other
    /// addresses are refused. One address may be on several VLANs, with other peers on each.
    pub fn add_address(&mut self, address: IpAddr, vlan: Option<u16>) {
        let own = (Gid::from(address), vlan);
        if !self.addresses.contains(&own) {
            self.addresses.push(own);
        }
    }

    /// Removes an address from a VLAN. Connections that use it stay.
    pub fn remove_address(&mut self, address: IpAddr, vlan: Option<u16>) {
        let gone = (Gid::from(address), vlan);
        self.addresses.retain(|own| *own != gone);
    }

    /// True if the node has an address, on any VLAN.
    fn has_address(&self, gid: Gid) -> bool {
        self.addresses.iter().any(|(own, _)| *own == gid)
    }

    /// Takes requests for a service at addresses of the node: `None` means all of them.
    ///
    /// `backlog` limits the requests that the program has not answered yet, nor read
    /// ([`Manager::request_read`]); those beyond are forgotten, and the callers repeat them.
    /// Requests of the last [`LISTENER_WAIT`] are taken too: take the actions afterwards. They are
    /// questions for datagrams in their port space, and requests for connections in the others.
    ///
    /// Errors: [`ListenError`].
    pub fn listen(
        &mut self,
        service: ServiceId,
        at: impl Into<ListenAt>,
        backlog: usize,
    ) -> Result<ListenerId, ListenError> {
        let kind = match service.port() {
            Some((PortSpace::Udp, _)) => ServiceKind::Datagrams,
            _ => ServiceKind::Connections,
        };
        self.listen_for(kind, service, at, backlog)
    }

    /// As [`Manager::listen`], for requests of a kind: RDMA_PS_IB has services of both. Those of
    /// the other kind are refused.
    ///
    /// Errors: [`ListenError`].
    pub fn listen_for(
        &mut self,
        kind: ServiceKind,
        service: ServiceId,
        at: impl Into<ListenAt>,
        backlog: usize,
    ) -> Result<ListenerId, ListenError> {
        if matches!(service.port(), Some((PortSpace::IpOverInfiniBand, _))) {
            return Err(ListenError::NotOnRoce);
        }
        let at = at.into();
        if let ListenAt::Address(address) = at
            && !self.has_address(address.into())
        {
            return Err(ListenError::AddressNotLocal { address });
        }
        let listeners = self.listeners.entry(service).or_default();
        if listeners.iter().any(|other| at.overlaps(other.at)) {
            return Err(ListenError::InUse { service });
        }
        self.listeners_made += 1;
        let id = ListenerId(self.listeners_made);
        listeners.push(Listener {
            id,
            at,
            kind,
            waiting: 0,
            backlog: backlog.max(1),
        });
        self.take_held(service);
        Ok(id)
    }

    /// Ends a listener. Requests that the program has neither read nor answered are rejected.
    pub fn unlisten(&mut self, now: Duration, listener: ListenerId) {
        for listeners in self.listeners.values_mut() {
            listeners.retain(|one| one.id != listener);
        }
        self.listeners.retain(|_, listeners| !listeners.is_empty());
        let waiting = self.connections.values().filter(|one| {
            one.listener == Some(listener)
                && matches!(one.state, State::RequestReceived | State::ServiceReceived)
        });
        for id in waiting.map(|one| one.id).collect::<Vec<_>>() {
            self.destroy(now, ConnectionId(id));
        }
    }

    /// The next MAD to send or event for the program.
    pub fn next_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// Notes from now on which connections change their states: see [`Manager::next_changed`].
    pub fn watch_changes(&mut self) {
        self.changed.get_or_insert_default();
    }

    /// A connection whose state has changed since it was last returned here; it may be gone.
    pub fn next_changed(&mut self) -> Option<ConnectionId> {
        self.changed.as_mut()?.pop_first().map(ConnectionId)
    }

    /// The time of the next [`Manager::tick`], if anything waits.
    #[must_use]
    pub fn deadline(&self) -> Option<Duration> {
        let timer = self.timers.first().map(|(at, _)| *at);
        timer.into_iter().chain(self.held_until()).min()
    }

    /// The state of a connection; `None` if it no longer exists.
    #[must_use]
    pub fn state(&self, id: ConnectionId) -> Option<StateName> {
        self.connections.get(&id.0).map(|one| one.state.name())
    }

    /// The required settings of a connection's queue pair, as far as the peer has sent them.
    #[must_use]
    pub fn parameters(&self, id: ConnectionId) -> Option<Parameters> {
        self.connections.get(&id.0).map(|one| one.parameters)
    }

    /// Connections and open service requests.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.connections.len()
    }

    fn event(&mut self, id: u32, kind: EventKind) {
        let id = ConnectionId(id);
        self.actions.push_back(Action::Event(Event { id, kind }));
    }

    fn send(&mut self, path: Path, payload: [u8; MAD_BYTES]) {
        self.actions
            .push_back(Action::Send(outgoing(path, payload)));
    }

    fn send_message(&mut self, path: Path, transaction_id: u64, message: Message) {
        self.send(path, encoded(transaction_id, message));
    }

    /// A communication id that no connection has. Never 0: peers read that as "unknown".
    fn new_id(&mut self) -> u32 {
        loop {
            let id = self.random.next() as u32;
            if id != 0 && !self.connections.contains_key(&id) {
                return id;
            }
        }
    }

    fn insert(&mut self, connection: Connection) {
        self.note_change(connection.id);
        self.connections.insert(connection.id, connection);
    }

    fn note_change(&mut self, id: u32) {
        if let Some(changed) = &mut self.changed {
            changed.insert(id);
        }
    }

    /// Changes the state of a connection and with it its timer.
    fn set_state(&mut self, id: u32, state: State) {
        self.note_change(id);
        let Some(one) = self.connections.get_mut(&id) else {
            return;
        };
        if let Some(at) = one.state.deadline() {
            self.timers.remove(&(at, id));
        }
        let answered = one.state.waits_for_program() && !state.waits_for_program();
        one.state = state;
        if let Some(at) = one.state.deadline() {
            self.timers.insert((at, id));
        }
        if answered && let Some(listener) = one.listener {
            self.uncount_waiting(listener);
        }
    }

    /// Takes a connection out of the tables of peers: it no longer makes others repeats or stale.
    fn forget_peer(&mut self, id: u32) {
        let Some(one) = self.connections.get(&id) else {
            return;
        };
        let peer = (one.peer_guid, one.remote_id);
        if self.by_peer.get(&peer) == Some(&id) {
            self.by_peer.remove(&peer);
        }
        let request = (one.path.vlan, one.path.remote, one.remote_id);
        if self.by_service_request.get(&request) == Some(&id) {
            self.by_service_request.remove(&request);
        }
        self.forget_queue_pair(id);
    }

    /// Another connection with the peer's queue pair no longer makes this one stale.
    fn forget_queue_pair(&mut self, id: u32) {
        let Some(one) = self.connections.get(&id) else {
            return;
        };
        let key = (one.peer_guid, one.parameters.queue_pair);
        if self.by_queue_pair.get(&key) == Some(&id) {
            self.by_queue_pair.remove(&key);
        }
    }

    /// Back to idle: the connection is over, its id still the program's.
    fn idle(&mut self, id: u32) {
        self.forget_peer(id);
        self.set_state(id, State::Idle);
    }

    fn remove(&mut self, id: u32) {
        self.idle(id);
        self.connections.remove(&id);
    }

    /// The connection of an own and a remote id; `remote` 0 finds one whose peer is not known.
    fn find(&self, own: u32, remote: u32) -> Option<&Connection> {
        let found = self.connections.get(&own)?;
        (found.remote_id == remote && !found.state.is_service()).then_some(found)
    }

    /// Sends a rejection for a connection.
    fn reject_message(&mut self, id: u32, rejected: u8, refusal: &Refused) {
        let Some(one) = self.connections.get(&id) else {
            return;
        };
        let (path, transaction) = (one.path, one.transaction);
        let message = Message::Reject(rejection(one.id, one.remote_id, rejected, refusal));
        self.send_message(path, transaction, message);
    }
}

/// A MAD to a peer.
fn outgoing(path: Path, payload: [u8; MAD_BYTES]) -> OutgoingMad {
    OutgoingMad {
        source: path.local,
        vlan: path.vlan,
        destination: path.remote,
        traffic_class: path.traffic_class,
        payload: Box::new(payload),
    }
}

fn encoded(transaction_id: u64, message: Message) -> [u8; MAD_BYTES] {
    let mad = Mad {
        transaction_id,
        attribute_modifier: 0,
        message,
    };
    mad.encode()
}

/// REJ:Message REJected and MRA:Message MRAed.
const ABOUT_REQUEST: u8 = 0;
/// A reply.
const ABOUT_REPLY: u8 = 1;
/// Another message, or none.
const ABOUT_OTHER: u8 = 2;

/// A rejection. The lengths were checked where `refusal` was made.
fn rejection(local: u32, remote: u32, rejected: u8, refusal: &Refused) -> Rejection {
    Rejection {
        local_comm_id: local,
        remote_comm_id: remote,
        message_rejected: rejected,
        rejected_info_length: refusal.additional_information.len() as u8,
        reason: refusal.reason.0,
        additional_info: area(&refusal.additional_information)
            .unwrap_or([0; MAX_ADDITIONAL_INFORMATION_BYTES]),
        private_data: area(&refusal.private_data).unwrap_or([0; MAX_REJECTION_PRIVATE_BYTES]),
    }
}

/// Bytes with zeros behind.
///
/// Errors: [`RequestError::TooLong`].
fn area<const N: usize>(bytes: &[u8]) -> Result<[u8; N], RequestError> {
    let mut area = [0; N];
    let place = area.get_mut(..bytes.len()).ok_or(RequestError::TooLong {
        length_bytes: bytes.len(),
        maximum_bytes: N,
    })?;
    place.copy_from_slice(bytes);
    Ok(area)
}
