//! The connection manager of a device, and the calls that make connections.

use crate::connection::{Connection, Listener};
use crate::error::{Closed, ConnectError, ListenError, StartError};
use crate::lookup::{Lookup, NextHop, Peer};
use crate::news::{News, refused};
use crate::pair::{self, Settings};
use crate::service::Service;
use crate::shared::{Parts, Shared, Unfinished, deadline};
use ringside_cm::{Connect, EventKind, Identity, Manager, PortSpace, Reason, Refused, ServiceId};
use ringside_pmd::Device;
use ringside_pmd::rdma::QueuePair;
use ringside_pmd::rdma::address::eui_64;
use std::collections::VecDeque;
use std::hash::{BuildHasher, Hasher};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

/// Connections of a device by IP address and port.
///
/// It owns queue pair 1 of the device, and a thread that answers peers. All calls take any thread,
/// and each wait has its deadline.
///
/// Dropping it ends the connections that are left, and tells their peers. The drop returns once all
/// have confirmed: at once, if they use this crate; a peer on librdmacm that does not react lets it
/// take 350 ms. It repeats messages without an answer, and gives up 1 s after the last progress,
/// and after 5 s in all. Only then the device can have another manager.
///
/// A failure of the device ends queue pair 1 and all connections. Each of them is reported as lost
/// once ([`End::DeviceFailed`](crate::End::DeviceFailed)), and a call that waits for a peer returns
/// [`ConnectError::DeviceFailed`]. Once the device is in service again,
/// [`ConnectionManager::restore`] makes queue pair 1 again: listeners go on, and the peers of lost
/// connections are told.
///
/// If queue pair 1 or its completion queue fails alone, such as by an access to memory that the
/// host refused, the manager makes it again, and nothing is reported. If the device does not
/// confirm that the failed one is gone, the manager takes the device out of service, as a failure
/// of the device would, unless `housekeeping.recover` is off.
///
/// A child by fork has no part in it: calls fail with
/// [`Closed::OtherProcess`](crate::Closed::OtherProcess), and drops tell no peer.
pub struct ConnectionManager {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl std::fmt::Debug for ConnectionManager {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            formatter,
            "ConnectionManager({:?})",
            self.shared.addresses()
        )
    }
}

/// A number that differs in each life of the process.
fn seed() -> u64 {
    std::collections::hash_map::RandomState::new()
        .build_hasher()
        .finish()
}

/// Both ends of a connection, by addresses and ports.
struct Path {
    local: IpAddr,
    vlan: Option<u16>,
    source_port: u16,
    to: SocketAddr,
}

/// The request of a connection, with what the device has.
fn request(shared: &Shared, pair: &QueuePair, path: Path, settings: &Settings) -> Connect {
    Connect {
        local: path.local,
        vlan: path.vlan,
        remote: path.to.ip(),
        service: ServiceId::of(PortSpace::Tcp, path.to.port()),
        source_port: path.source_port,
        queue_pair: pair.number(),
        shared_receive_queue: false,
        responder_resources: settings.inbound_reads.min(shared.reads.0),
        initiator_depth: settings.outbound_reads.min(shared.reads.1),
        flow_control: true,
        retry_count: settings.retries,
        rnr_retry_count: settings.receiver_not_ready_retries,
        path_mtu: settings.path_mtu.map_or(shared.path_mtu, pair::mtu_code),
        traffic_class: settings.traffic_class,
        ack_timeout: settings.acknowledge_timeout,
        private_data: settings.private_data.clone(),
    }
}

impl ConnectionManager {
    /// Takes queue pair 1 of a device, and starts the thread. `resolve` looks for the next hop to a
    /// peer, from any thread. It must not wait for the peer's answer: [`Lookup::Asked`] has it
    /// called again.
    ///
    /// Errors: [`StartError`].
    pub fn start(
        device: &Device,
        resolve: impl Fn(Peer) -> Lookup<NextHop> + Send + Sync + 'static,
    ) -> Result<Self, StartError> {
        let mac = device
            .facts()
            .mac()
            .map_err(|error| StartError::NoIdentity {
                reason: error.to_string(),
            })?;
        let guid = u64::from_be_bytes(eui_64(mac));
        let seed = seed();
        let limits = device.rdma_limits()?;
        let cut = |count: u32| u8::try_from(count.min(127)).unwrap_or(127);
        let mtu = device.query_port()?.active_mtu;
        let parts = Parts {
            manager: Manager::new(Identity::of(guid, seed)),
            service: Service::open(device)?,
            device: device.function().address().clone(),
            path_mtu: pair::mtu_code(mtu),
            reads: (cut(limits.inbound_reads), cut(limits.outbound_reads)),
        };
        let shared = Arc::new(Shared::new(parts, Arc::new(resolve), seed));
        let of_thread = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("ringside-cm".to_owned())
            .spawn(move || of_thread.serve())?;
        Ok(Self {
            shared,
            thread: Some(thread),
        })
    }

    /// Makes queue pair 1 of the recovered device again, with all that belongs to it; `resolve`
    /// replaces the one of [`ConnectionManager::start`]. `device` is the one that the manager was
    /// started on. Does nothing if it has not failed.
    ///
    /// Listeners go on with the requests that peers send or repeat from now on; a request that
    /// [`Listener::next`] gave out before the failure can still be accepted, with a queue pair of
    /// the recovered device. The peers of connections that were lost are told (DREQ, or REJ if the
    /// connection was not established). A peer that was not reached, and still believes in an old
    /// connection, is told when it asks: DREP answers its DREQ, and it refuses a request of the
    /// same queue pair number as stale (REJ 10), which is repeated once it has ended the old
    /// connection.
    ///
    /// Errors: [`StartError`]; the device is still out of service, for instance. Nothing changes,
    /// and it can be called again.
    pub fn restore(
        &self,
        device: &Device,
        resolve: impl Fn(Peer) -> Lookup<NextHop> + Send + Sync + 'static,
    ) -> Result<(), StartError> {
        let shared = &self.shared;
        self.check_device(device)?;
        if shared.with(|state, now| state.check(now)).is_ok() {
            return Ok(());
        }
        let service = Service::open(device)?;
        shared.with(|state, _| state.resume(service, Arc::new(resolve)));
        Ok(())
    }

    /// Checks that [`ConnectionManager::restore`] takes this device, in service or not.
    ///
    /// Errors: [`StartError::ForeignDevice`], [`StartError::Closed`].
    pub fn check_device(&self, device: &Device) -> Result<(), StartError> {
        let shared = &self.shared;
        shared.check_process()?;
        let is_own = shared.with(|state, now| {
            state.check_open(now)?;
            Ok::<_, Closed>(state.is_of(device))
        })?;
        match is_own {
            true => Ok(()),
            false => Err(StartError::ForeignDevice {
                made_on: shared.device.clone(),
                given: device.function().address().clone(),
            }),
        }
    }

    /// The addresses that it listens on and connects from: those of the device's GID table, in its
    /// order. It follows addresses that are added to the device or removed from it; connections
    /// that use a removed address stay. None in a child by fork.
    #[must_use]
    pub fn addresses(&self) -> Vec<IpAddr> {
        self.shared.addresses()
    }

    /// Listens on an address and a port; on all addresses if it is unspecified. At most `backlog`
    /// requests wait for [`Listener::next`]; further ones are dropped, and repeated by their
    /// senders. A backlog of 0 counts as 1.
    ///
    /// Errors: [`ListenError`].
    pub fn listen(&self, at: SocketAddr, backlog: usize) -> Result<Listener, ListenError> {
        if at.port() == 0 {
            return Err(ListenError::NoPort);
        }
        self.shared.check_process()?;
        let service = ServiceId::of(PortSpace::Tcp, at.port());
        let address = Some(at.ip()).filter(|ip| !ip.is_unspecified());
        let made = self.shared.with(|state, now| {
            state.check_open(now)?;
            let id = state.manager.listen(service, address, backlog)?;
            state.requests.insert(id, VecDeque::new());
            Ok::<_, ListenError>(id)
        })?;
        Ok(Listener::new(Arc::clone(&self.shared), made))
    }

    /// Connects a queue pair to a listener, within `wait`: from the own address in the peer's
    /// network (or the router's), on its VLAN, unless [`Settings::local_address`] names another
    /// one. Address and VLAN of the queue pair's configuration are replaced; its priority stays.
    ///
    /// Errors: [`ConnectError`]; the queue pair is destroyed.
    pub fn connect(
        &self,
        pair: QueuePair,
        to: SocketAddr,
        settings: &Settings,
        wait: Duration,
    ) -> Result<Connection, ConnectError> {
        let limit = deadline(wait);
        let shared = &self.shared;
        shared.check_process()?;
        let peer = to.ip();
        let is_broadcast = peer == IpAddr::V4(Ipv4Addr::BROADCAST);
        if peer.is_unspecified() || peer.is_multicast() || is_broadcast {
            return Err(ConnectError::NoPeer { peer });
        }
        settings.check()?;
        shared.with(|state, now| state.check_pair(now, &pair))?;
        let (hop, local, vlan) = shared.route(peer, settings.local_address, limit, wait)?;
        let id = shared.with(|state, now| {
            state.check(now)?;
            let path = Path {
                local,
                vlan,
                to,
                source_port: state.take_port(),
            };
            let request = request(shared, &pair, path, settings);
            let id = state.manager.connect(now, &request)?;
            state.events.insert(id, VecDeque::new());
            Ok::<_, ConnectError>(id)
        })?;
        let mut unfinished = Unfinished::new(shared, id);
        let (mut agreed, private_data) = loop {
            match shared.next_event(id, peer, limit, wait)? {
                News::Event(EventKind::Reply {
                    parameters,
                    private_data,
                }) => break (parameters, private_data),
                other => refused(other, peer)?,
            }
        };
        settings.limit(shared.reads, &mut agreed);
        let pair = match pair::set(pair, &agreed, hop.mac) {
            Ok(pair) => pair,
            Err(error) => {
                let because = Refused::because(Reason::CONSUMER);
                // A connection that no longer exists needs no refusal.
                let _ = shared.with(|state, _| state.manager.reject(id, &because));
                return Err(error);
            }
        };
        shared.with(|state, _| state.ready(id, peer))?;
        unfinished.keep();
        Ok(Connection::new(
            Arc::clone(shared),
            id,
            to,
            private_data,
            pair,
        ))
    }
}

impl Drop for ConnectionManager {
    fn drop(&mut self) {
        if self.shared.check_process().is_err() {
            // In a child by fork: the thread stayed in the process that started it.
            std::mem::forget(self.thread.take());
            return;
        }
        self.shared.end();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!(
                "the thread of the connection manager had panicked; report this as a bug"
            );
        }
    }
}
