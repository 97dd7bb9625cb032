//! The connection manager of this process, with its thread and its queue pair.

use super::abi::{event, rdma_cm_id, rdma_conn_param};
use super::farewells::Farewells;
use super::id::{Detail, IdObject, Notice, Resolution, Step, User, notices_of};
use super::lives::Lives;
use super::ports::Ports;
use super::route::{self, Shared};
use super::services::{Question, Service as DatagramService};
use super::turns::Turns;
use crate::device::{Port, lock};
use crate::threads;
use crate::wakeup::Wakeup;
use ringside_bus::PerProcess;
use ringside_cm::{
    Action, AddressHeader, ConnectionId, Event, EventKind, Identity, ListenerId, Manager,
    OutgoingMad, Parameters, ServiceStatus,
};
use ringside_config::LocalAddress;
use ringside_connect::Service;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::ffi::c_int;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// The longest sleep of the thread.
const SLEEP: Duration = Duration::from_millis(100);
/// Between two looks whether a neighbour has answered.
const ASKING: Duration = Duration::from_millis(1);
/// Unread events of a channel beyond which requests that are over are discarded.
const MOST_UNREAD: usize = 4096;

/// The connection manager, once for all ids.
pub(super) struct Node {
    pub(super) lives: Lives,
    pub(super) began: Instant,
    pub(super) state: Turns<State>,
    pub(super) wake: Arc<Wakeup>,
    /// the peers were told that the process ends
    pub(super) left: Mutex<bool>,
}

/// State that calls and the thread change.
pub(super) struct State {
    pub(super) manager: Manager,
    pub(super) service: Service,
    pub(super) farewells: Farewells,
    /// all ids, so that those of a channel are found when it is destroyed
    pub(super) ids: BTreeSet<usize>,
    pub(super) connections: HashMap<ConnectionId, usize>,
    pub(super) listeners: HashMap<ListenerId, usize>,
    pub(super) ports: Ports,
    /// ids whose peers' addresses are being resolved
    pub(super) resolving: BTreeMap<usize, Resolution>,
    /// datagram services of the library
    pub(super) served: HashMap<ListenerId, DatagramService>,
    /// their questions to peers
    pub(super) questions: HashMap<ConnectionId, Question>,
    /// the device is out of service: messages for after its recovery
    pub(super) lost: Option<VecDeque<OutgoingMad>>,
    /// messages from before a recovery
    pub(super) kept: VecDeque<OutgoingMad>,
    /// the addresses that the manager has
    addresses: Vec<LocalAddress>,
    /// the completion queue whose events wake the thread
    pub(super) watched: u32,
}

static NODE: PerProcess<&'static Node> = PerProcess::new();

/// The connection manager; an errno value if there is no device, or in a child of a fork whose
/// parent left ids or sockets to it.
pub(super) fn node() -> Result<&'static Node, c_int> {
    if let Some(node) = NODE.get() {
        return Ok(*node);
    }
    if NODE.is_inherited() && (User::exists()) {
        // Their connections are the parent's.
        return Err(libc::ENODEV);
    }
    NODE.get_or_try_init(|| {
        let node: &'static Node = Box::leak(Box::new(Node::open()?));
        node.start()?;
        Ok(node)
    })
    .copied()
}

/// Two threads may call `exit`, as those of rping do: the C library then runs this in one of them,
/// and the other would end the process meanwhile. So it is a destructor of the library as well: the
/// second call waits for the first.
extern "C" fn at_exit() {
    if let Some(node) = NODE.get() {
        node.leave();
    }
}

#[used]
// SAFETY: the loader calls the functions of this section when the process ends.
#[unsafe(link_section = ".fini_array")]
static DESTRUCTOR: extern "C" fn() = at_exit;

/// A number that differs in each run of the process.
fn seed() -> u64 {
    let mut bytes = [0; 8];
    // SAFETY: eight bytes are written to a live value.
    unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
    u64::from_ne_bytes(bytes)
}

impl Node {
    /// The device in the present period of service.
    pub(super) fn port(&self) -> Arc<Port> {
        self.lives.port()
    }

    /// The context and the protection domain of ids that are made now.
    pub(super) fn shared(&self) -> Shared {
        self.lives.shared()
    }

    fn open() -> Result<Self, c_int> {
        let (lives, mut service) = Lives::begin()?;
        let port = lives.port();
        let seed = seed();
        let mut manager = Manager::new(Identity::of(u64::from_be(port.guid()), seed));
        let addresses = port.addresses();
        for own in &addresses {
            manager.add_address(own.address, own.vlan);
        }
        let farewells = Farewells::open(&mut manager, &mut service);
        let wake = Arc::new(Wakeup::default());
        let watched = watch_queue(&port, &service, &wake);
        Ok(Self {
            lives,
            began: Instant::now(),
            state: Turns::new(State {
                manager,
                service,
                farewells,
                ids: BTreeSet::new(),
                connections: HashMap::new(),
                listeners: HashMap::new(),
                ports: Ports::new(seed),
                resolving: BTreeMap::new(),
                served: HashMap::new(),
                questions: HashMap::new(),
                lost: None,
                kept: VecDeque::new(),
                addresses,
                watched,
            }),
            wake,
            left: Mutex::new(false),
        })
    }

    /// Starts its thread, which lasts as long as the process.
    fn start(&'static self) -> Result<(), c_int> {
        threads::start("ringside-cm", || watch(self)).map_err(|_| libc::EAGAIN)?;
        // SAFETY: the function needs nothing that may be gone when the process ends.
        unsafe { libc::atexit(at_exit) };
        Ok(())
    }

    /// Calls the manager, and performs its actions.
    pub(super) fn with<T>(&self, call: impl FnOnce(&mut State, Duration) -> T) -> T {
        let mut state = self.state.lock();
        let result = call(&mut state, self.began.elapsed());
        state.act(self);
        drop(state);
        // The next deadline may be another one.
        self.wake.set();
        result
    }

    /// As [`Self::with`], for an id: between the check and the call, no thread withdraws it.
    /// Errors: `ENOENT` for an id that the program destroys: no table gets it any more.
    pub(super) fn with_id<T>(
        &self,
        object: &IdObject,
        call: impl FnOnce(&mut State, Duration) -> Result<T, c_int>,
    ) -> Result<T, c_int> {
        self.with(|state, now| {
            object.private().expect_present()?;
            call(state, now)
        })
    }

    /// One round of the thread; returns how long it may sleep.
    fn round(&self) -> Duration {
        let mut state = self.state.lock();
        let asked = self.began.elapsed();
        let wanted = state.unresolved();
        let mut found = HashMap::new();
        if !wanted.is_empty() {
            // Calls of the program go on meanwhile.
            drop(state);
            found = self.port().find_all_towards(&wanted);
            state = self.state.lock();
        }
        let now = self.began.elapsed();
        self.follow_device(&mut state, now);
        let mut rest = match &state.lost {
            None => state.receive(&self.port(), now),
            Some(_) => SLEEP,
        };
        if state.lost.is_none() && state.watched != state.service.queue_number() {
            state.watched = watch_queue(&self.port(), &state.service, &self.wake);
            // It is armed at once.
            rest = rest.min(ASKING);
        }
        if state.lost.is_none() && state.service.is_lost() {
            self.port().give_up();
        }
        if let Some(pause) = state.resolve(self, (asked, now), &found) {
            rest = rest.min(pause);
        }
        state.manager.tick(now);
        state.act(self);
        let next = state.manager.deadline();
        next.map_or(rest, |at| at.saturating_sub(now).min(rest))
    }
}

/// Has the events of the service's completion queue wake a thread, and those of a former one no
/// more. Returns the number of the queue.
pub(super) fn watch_queue(port: &Port, service: &Service, wake: &Arc<Wakeup>) -> u32 {
    let number = service.queue_number();
    let own_queues = &mut lock(&port.registry).own_queues;
    own_queues.clear();
    own_queues.insert(number, Arc::clone(wake));
    number
}

fn watch(node: &Node) {
    loop {
        let sleep = node.round();
        node.wake.wait(sleep);
    }
}

impl State {
    /// Takes messages that arrived, and sends those that waited. Returns the longest sleep
    /// afterwards: none if more may have arrived, a short one if some wait for their peers' MAC
    /// addresses.
    fn receive(&mut self, port: &Port, now: Duration) -> Duration {
        self.service.arm();
        let manager = &mut self.manager;
        let has_more = self.service.poll(|arrived| {
            if let Err(reason) = manager.receive(now, arrived) {
                tracing::debug!(%reason, "a datagram for queue pair 1 was dropped");
            }
        });
        self.follow_addresses(port);
        self.send_kept(port);
        let waits = self
            .service
            .retry(&|address, vlan| port.lookup(address, vlan));
        match (has_more, waits) {
            (true, _) => Duration::ZERO,
            (false, true) => ASKING,
            (false, false) => SLEEP,
        }
    }

    /// Discards a request that ended before the program read it: its id, its event and its
    /// connection. False if the program has the id.
    pub(super) fn discard_unread(&mut self, now: Duration, id: usize) -> bool {
        // SAFETY: an id leaves the tables before it is destroyed.
        let object = unsafe { IdObject::of(id as *mut rdma_cm_id) };
        if object.private().step != Step::Requested {
            return false;
        }
        let of_request = |notice: &Notice| notice.id == id && notice.listener != 0;
        // SAFETY: an id leaves the tables before it is destroyed.
        let notices = unsafe { notices_of(id as *mut rdma_cm_id) };
        if notices.is_none_or(|notices| notices.withdraw(of_request).is_empty()) {
            return false;
        }
        // SAFETY: no program has seen it.
        unsafe { self.discard_request(now, id) };
        true
    }

    /// Discards the id of a request and its connection; the peer is told.
    ///
    /// # Safety
    /// The id was made for this request, and no program has seen it.
    pub(super) unsafe fn discard_request(&mut self, now: Duration, id: usize) {
        // SAFETY: the caller's promise.
        let connection = unsafe { IdObject::of(id as *mut rdma_cm_id) }
            .private()
            .connection;
        if let Some(connection) = connection {
            self.connections.remove(&connection);
            self.manager.destroy(now, connection);
        }
        self.ids.remove(&id);
        // SAFETY: the caller's promise, and no table names it any more.
        unsafe { IdObject::free(id as *mut rdma_cm_id) };
    }

    /// Gives the manager the addresses that the port has got since, by DHCP for instance, and takes
    /// back those that it has lost.
    fn follow_addresses(&mut self, port: &Port) {
        let now = port.addresses();
        if now == self.addresses {
            return;
        }
        for lost in self.addresses.iter().filter(|old| !now.contains(old)) {
            self.manager.remove_address(lost.address, lost.vlan);
        }
        for own in &now {
            self.manager.add_address(own.address, own.vlan);
        }
        self.addresses = now;
    }

    pub(super) fn act(&mut self, node: &Node) {
        let port = node.port();
        self.farewells.follow(&mut self.manager, &port);
        while let Some(action) = self.manager.next_action() {
            match action {
                Action::Send(mad) => self.send(&port, mad),
                Action::Event(event) => {
                    if let Some(event) = self.take_datagrams(node.began.elapsed(), event) {
                        self.tell(node, event);
                    }
                }
            }
        }
    }

    /// Passes an event to the channel of its id.
    fn tell(&mut self, node: &Node, event: Event) {
        let found = self.connections.get(&event.id).copied();
        let notice = match (event.kind, found) {
            (
                EventKind::Request {
                    listener,
                    parameters,
                    header,
                    private_data,
                },
                _,
            ) => {
                let detail = Detail::Connection(shown(&parameters));
                self.request(node, (event.id, listener), header, Some(parameters))
                    .map(|notice| Notice {
                        detail,
                        data: private_data,
                        ..notice
                    })
            }
            (
                EventKind::ServiceRequest {
                    listener,
                    header,
                    private_data,
                },
                _,
            ) => self
                .request(node, (event.id, listener), header, None)
                .map(|notice| Notice {
                    data: private_data,
                    ..notice
                }),
            // The id was told already.
            (EventKind::DeviceFailed, _) => None,
            // As from Linux: a program learns the end of a request when it accepts it. The event
            // stays: a program that was told of one by poll, and reads it, must not sleep.
            (_, Some(id)) if is_request(id) => {
                if is_flooded(id) {
                    self.discard_unread(node.began.elapsed(), id);
                }
                None
            }
            (kind, Some(id)) => Some(notice_of(node, id, kind)),
            (_, None) => None,
        };
        if let Some(notice) = notice {
            push(notice);
        }
    }

    /// Makes the id of a request.
    fn request(
        &mut self,
        node: &Node,
        (connection, listener): (ConnectionId, ListenerId),
        header: AddressHeader,
        parameters: Option<Parameters>,
    ) -> Option<Notice> {
        let listening = *self.listeners.get(&listener)? as *mut rdma_cm_id;
        // SAFETY: a listener leaves the table before it is destroyed.
        let (space, kind, channel, context, local_port) = unsafe {
            let port = IdObject::of(listening)
                .private()
                .local
                .map_or(0, |local| local.port());
            let public = &*listening;
            (
                public.ps,
                public.qp_type,
                public.channel,
                public.context,
                port,
            )
        };
        let local = SocketAddr::new(header.destination, local_port);
        let remote = SocketAddr::new(header.source, header.source_port);
        let id = IdObject::make(space, kind);
        let mtu = parameters.map_or_else(|| route::path_mtu(&node.port()), |all| all.path_mtu);
        // SAFETY: just made, and seen by no one else yet.
        unsafe {
            (*id).channel = channel;
            (*id).context = context;
            route::show_device(id, node.shared());
            route::show_local(id, local);
            route::show_remote(id, remote);
            route::show_path(id, mtu, parameters.map_or(0, |all| all.traffic_class));
            let mut private = IdObject::of(id).private();
            private.step = Step::Requested;
            private.local = Some(local);
            private.device = node.shared().context as usize;
            private.remote = Some(remote);
            private.connection = Some(connection);
            private.parameters = parameters;
        }
        self.ids.insert(id as usize);
        self.connections.insert(connection, id as usize);
        Some(Notice {
            listener: listening as usize,
            ..Notice::new(id as usize, event::CONNECT_REQUEST, 0)
        })
    }
}

/// True for the id of a request that the program has not accepted.
fn is_request(id: usize) -> bool {
    // SAFETY: an id leaves the tables before it is destroyed.
    let object = unsafe { IdObject::of(id as *mut rdma_cm_id) };
    let step = object.private().step;
    step == Step::Requested
}

/// True if the channel of an id has so many unread events that a request which is over is not kept.
fn is_flooded(id: usize) -> bool {
    // SAFETY: an id leaves the tables before it is destroyed.
    let notices = unsafe { notices_of(id as *mut rdma_cm_id) };
    notices.is_some_and(|notices| notices.unread() > MOST_UNREAD)
}

/// Puts an event into the channel of its id, or of its listener.
pub(super) fn push(notice: Notice) {
    let owner = notice.counted() as *mut rdma_cm_id;
    // SAFETY: ids leave the tables of the connection manager before they are destroyed.
    if let Some(notices) = unsafe { notices_of(owner) } {
        notices.push(notice);
    }
}

fn shown(parameters: &Parameters) -> rdma_conn_param {
    rdma_conn_param {
        private_data: std::ptr::null(),
        private_data_len: 0,
        responder_resources: parameters.responder_resources,
        initiator_depth: parameters.initiator_depth,
        flow_control: parameters.flow_control.into(),
        retry_count: parameters.retry_count,
        rnr_retry_count: parameters.rnr_retry_count,
        srq: parameters.shared_receive_queue.into(),
        qp_num: parameters.queue_pair,
    }
}

/// The data that programs read about an existing id.
fn notice_of(node: &Node, id: usize, kind: EventKind) -> Notice {
    match kind {
        EventKind::Reply {
            parameters,
            private_data,
        } => {
            // SAFETY: an id leaves the tables before it is destroyed.
            let object = unsafe { IdObject::of(id as *mut rdma_cm_id) };
            object.private().parameters = Some(parameters);
            Notice {
                detail: Detail::Connection(shown(&parameters)),
                data: private_data,
                is_reply: true,
                ..Notice::new(id, event::CONNECT_RESPONSE, 0)
            }
        }
        EventKind::Rejected {
            reason,
            private_data,
            ..
        } => Notice {
            data: private_data,
            ..Notice::new(id, event::REJECTED, reason.0.into())
        },
        EventKind::Unreachable => Notice::new(id, event::UNREACHABLE, -libc::ETIMEDOUT),
        EventKind::Disconnected { by_peer } => {
            let status = if by_peer { 0 } else { -libc::ETIMEDOUT };
            Notice::new(id, event::DISCONNECTED, status)
        }
        EventKind::TimeWaitOver => Notice::new(id, event::TIMEWAIT_EXIT, 0),
        EventKind::ServiceReply {
            status,
            queue_pair,
            queue_key,
            private_data,
        } if status == ServiceStatus::VALID => Notice {
            detail: service_detail(node, id, queue_pair, queue_key),
            data: private_data,
            ..Notice::new(id, event::ESTABLISHED, 0)
        },
        EventKind::ServiceReply {
            status,
            private_data,
            ..
        } => Notice {
            data: private_data,
            ..Notice::new(id, event::UNREACHABLE, status.0.into())
        },
        EventKind::Established
        | EventKind::Request { .. }
        | EventKind::ServiceRequest { .. }
        | EventKind::DeviceFailed => Notice::new(id, event::ESTABLISHED, 0),
    }
}

fn service_detail(node: &Node, id: usize, queue_pair: u32, queue_key: u32) -> Detail {
    // SAFETY: an id leaves the tables before it is destroyed.
    let private = unsafe { IdObject::of(id as *mut rdma_cm_id) }.private();
    let (Some(local), Some(remote)) = (private.local, private.remote) else {
        return Detail::None;
    };
    let class = private.traffic_class;
    let route = route::towards(&node.port(), local.ip(), remote.ip(), class);
    route.map_or(Detail::None, |route| Detail::Datagram {
        route,
        queue_pair,
        queue_key,
    })
}
