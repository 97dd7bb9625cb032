//! An opened device.

use crate::error::OpenError;
use crate::functions::OpenFunction;
use crate::housekeeping::{Driver, Events, Housekeeper, Neighbours, Observer, Served};
use crate::network::{Asker, NetworkError};
use ringside_bus::process::Birth;
use ringside_bus::{DeviceAddress, DmaBuffer, Memory, PageSize};
use ringside_config::{Config, LocalAddress};
use ringside_connect::ConnectionManager;
use ringside_model::Threaded;
use ringside_pmd::ShutdownReport;
use ringside_pmd::rdma::{
    CompletionQueue, Destination, Event, EventQueueReport, Gid, Interrupts, MapError, ObjectUsage,
    PortReport, ProtectionDomain, Quotas, RdmaError, RdmaLimits, Statistic,
};
use ringside_pmd::recovery::{
    FailureCause, RecoverError, RecoveryReport, Supervised, Supervision, Watch,
};
use ringside_stack::StackError;
use ringside_stack::host::{HostInterface, HostReport};
use std::net::IpAddr;
use std::sync::{Arc, MutexGuard};
use std::time::Duration;

/// The longest wait until no other thread uses the device.
const EXCLUSIVE_LIMIT: Duration = Duration::from_secs(10);

/// A device in service, with everything that must live as long as it does.
///
/// It has the verbs of [`ringside_pmd::Device`]; the calls that are rarely used are behind
/// [`Device::driver`]. By default a housekeeping thread belongs to it (`[housekeeping]` of the
/// configuration): it handles events, flushes failed queue pairs and recovers the device, so a
/// program learns of every failure from [`CompletionQueue::poll`]. All calls are control path and
/// can be made from any thread.
///
/// Dropping it shuts the device down; [`Device::shutdown`] does the same and returns the report.
pub struct Device {
    /// ends before the device is shut down
    housekeeper: Option<Housekeeper>,
    served: Arc<Served>,
    address: DeviceAddress,
    /// keeps the thread of the model alive; dropped after the device
    model: Option<OpenFunction>,
    birth: Birth,
}

impl std::fmt::Debug for Device {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Device({})", self.address)
    }
}

impl Device {
    /// Puts a device that was brought up into service.
    pub(crate) fn serve(
        device: ringside_pmd::Device,
        address: DeviceAddress,
        model: Option<OpenFunction>,
        config: &Config,
        host: Option<HostInterface>,
    ) -> Result<Self, OpenError> {
        // Dropped at an error: then the stack ends before the device is shut down.
        let mut opened = Self {
            housekeeper: None,
            served: Arc::new(Served::new(device).map_err(OpenError::Thread)?),
            address,
            model,
            birth: Birth::now(),
        };
        let served = &opened.served;
        if let Some(host) = host {
            served.neighbours().keep_host(host);
        }
        let section = &config.housekeeping;
        if section.thread && config.network.is_served() {
            served.offer_neighbours().map_err(Box::new)?;
        }
        if section.thread {
            let started = Housekeeper::start(served, section);
            opened.housekeeper = Some(started.map_err(OpenError::Thread)?);
        }
        Ok(opened)
    }

    /// The address that the device was opened by.
    #[must_use]
    pub fn address(&self) -> &DeviceAddress {
        &self.address
    }

    /// The model in this process that the function belongs to; `None` for other devices. Tests use
    /// it to inject faults.
    #[must_use]
    pub fn model(&self) -> Option<&Threaded> {
        self.model.as_ref().map(OpenFunction::model)
    }

    /// The driver's own device, for the calls that are not repeated here: registers, facts, pool,
    /// packet queues. The device is not recovered while a thread holds the returned value. Do not
    /// call it in a child by fork: it waits for ever if the parent forked during a recovery.
    #[must_use]
    pub fn driver(&self) -> Driver<'_> {
        self.served.driver()
    }

    /// True if the device has a housekeeping thread.
    #[must_use]
    pub const fn has_housekeeping(&self) -> bool {
        self.housekeeper.is_some()
    }

    /// Takes the events since the last call, appends them to `events` and returns their number.
    /// Without a housekeeping thread it also handles them, so the program has to call it regularly.
    /// With one, an event is delivered after the thread has handled it: the event of a queue pair
    /// that failed may come shortly after the completions that were flushed.
    ///
    /// Errors: none with a housekeeping thread; else those of
    /// [`ringside_pmd::Device::poll_events`].
    pub fn poll_events(&self, events: &mut Vec<Event>) -> Result<usize, RdmaError> {
        self.check_process()?;
        match self.has_housekeeping() {
            true => Ok(self.served.take_events(events)),
            false => {
                let before = events.len();
                let polled = self.driver().poll_events(events);
                self.note_requests(events, before);
                polled
            }
        }
    }

    /// The events as a descriptor for a poll loop, or for `AsyncFd` of tokio; `None` without a
    /// housekeeping thread.
    #[must_use]
    pub fn events(&self) -> Option<Events> {
        let served = self.has_housekeeping().then(|| Arc::clone(&self.served));
        served.map(Events)
    }

    /// Handles events, checks the device's health, and recovers the device if it failed: the work
    /// of the housekeeping thread, for programs without one. Call it regularly, from one thread.
    /// With a housekeeping thread it takes the events and returns the state of the device. With
    /// `housekeeping.recover = false` it leaves a failed device as it is, and returns
    /// [`Supervised::Waiting`] until the program calls [`Device::recover`].
    ///
    /// Control path: as long as a recovery takes. Errors: those of [`Device::poll_events`].
    pub fn supervise(
        &self,
        supervision: &mut Supervision,
        events: &mut Vec<Event>,
    ) -> Result<Supervised, RdmaError> {
        self.check_process()?;
        if self.has_housekeeping() {
            self.served.take_events(events);
            let failure = self.failure();
            return Ok(failure.map_or(Supervised::InService, Supervised::Waiting));
        }
        let before = events.len();
        let (observed, life, recovers) = {
            let device = self.driver();
            let observed = device.observe(supervision, events);
            let recovers = device.config().housekeeping.recover;
            (observed, device.life(), recovers)
        };
        self.note_requests(events, before);
        let failed = observed?;
        let Some(cause) = failed else {
            return Ok(Supervised::InService);
        };
        self.served.note_failure(life, cause);
        if !recovers {
            return Ok(Supervised::Waiting(cause));
        }
        let supervised = match self.served.exclusive(EXCLUSIVE_LIMIT) {
            Some(mut device) if device.life() == life => {
                let recover = || device.recover_in_turn(supervision, cause);
                self.served.recovering(recover)
            }
            Some(_) => return Ok(Supervised::InService),
            None => return Ok(Supervised::Waiting(cause)),
        };
        match &supervised {
            Supervised::Recovered(report) => {
                self.served.restart_neighbours();
                self.served.note_recovery(life, Ok(report));
            }
            Supervised::Failing(error) => self.served.note_recovery(life, Err(error)),
            Supervised::InService | Supervised::Waiting(_) => {}
        }
        Ok(supervised)
    }

    fn note_requests(&self, events: &[Event], before: usize) {
        self.served
            .note_requests(events.get(before..).unwrap_or(&[]));
    }

    /// Resets the device and brings it up again. A device that is in service is taken out of
    /// service first. The housekeeping thread recovers failed devices itself, unless
    /// `housekeeping.recover = false`.
    ///
    /// Errors: [`RecoverError`]. The device stays out of service, and this can be called again.
    pub fn recover(&self) -> Result<RecoveryReport, Box<RecoverError>> {
        if let Err(error) = self.birth.check(&self.address) {
            return Err(Box::new(RecoverError::OtherProcess(error)));
        }
        let Some(mut device) = self.served.exclusive(EXCLUSIVE_LIMIT) else {
            return Err(Box::new(RecoverError::InUse {
                cause: self.failure().unwrap_or(FailureCause::Requested),
                waited_ms: EXCLUSIVE_LIMIT.as_millis() as u64,
            }));
        };
        let life = device.life();
        let cause = device.failure().unwrap_or(FailureCause::Requested);
        self.served.note_failure(life, cause);
        let recovered = self.served.recovering(|| device.recover());
        drop(device);
        if recovered.is_ok() {
            self.served.restart_neighbours();
        }
        let result = recovered.as_ref().map_err(|error| &**error);
        self.served.note_recovery(life, result);
        recovered
    }

    /// True while a thread recovers the device.
    pub(crate) fn is_recovering(&self) -> bool {
        self.served.is_recovering()
    }

    /// Notifies `observer` of failures and recoveries from now on, and of a present failure.
    pub(crate) fn observe_by(&self, observer: Arc<dyn Observer>) {
        self.served.observe_by(Arc::clone(&observer));
        let (failure, life) = {
            let device = self.driver();
            (device.failure(), device.life())
        };
        // A recovery may have ended before the observer was set.
        observer.recovered(life, FailureCause::Requested);
        if let Some(cause) = failure {
            self.served.note_failure(life, cause);
        }
    }

    /// Refuses calls in a child process made by `fork`, where locks may be held permanently. The
    /// calls of [`Device::driver`] do so themselves.
    fn check_process(&self) -> Result<(), RdmaError> {
        Ok(self.birth.check(&self.address)?)
    }

    fn neighbours(&self) -> Result<MutexGuard<'_, Neighbours>, RdmaError> {
        self.check_process()?;
        Ok(self.served.neighbours())
    }

    /// Resolves the IP address of a peer or a group to a destination, for a connection or an
    /// address handle. Asks by ARP or neighbour discovery, and waits for the answer.
    ///
    /// The first call starts an IP stack on a thread of its own, on the port's only receive and
    /// transmit queue, with the addresses of the GID table and the gateways of `[network]`, unless
    /// `network.serve` did so when the device was opened. From then on the port answers ARP,
    /// neighbour discovery and ping for its addresses, also after a recovery of the device. A
    /// program that opens the port for itself runs [`ringside_stack::Stack`] on a queue of its own
    /// instead.
    ///
    /// Control path: takes at most the time of three requests, one second apart. Other calls do not
    /// wait for that. A search without an answer is remembered for a second: until then it fails at
    /// once, with the requests and the time of that search. Errors: [`NetworkError`].
    pub fn resolve(&self, address: IpAddr) -> Result<Destination, NetworkError> {
        Ok(self.asker()?.resolve(address)?)
    }

    /// The running stack. Other calls need the network while this one waits for a peer.
    fn asker(&self) -> Result<Asker, NetworkError> {
        let mut network = self.neighbours()?;
        Ok(network.require(&self.driver())?.asker())
    }

    /// Starts the IP stack that [`Device::resolve`] uses, so that the port answers before this side
    /// resolves a peer. Does nothing if it runs. A recovery of the device starts it again.
    ///
    /// Errors: those of [`Device::resolve`], except for the address.
    pub fn serve_network(&self) -> Result<(), NetworkError> {
        self.neighbours()?.require(&self.driver())?;
        Ok(())
    }

    /// Starts the connection manager: connections by IP address and port, compatible with `rdma_cm`
    /// and so with C programs over librdmacm. It starts the IP stack of [`Device::resolve`] and
    /// resolves peers with it. A device has one connection manager; after a recovery of the device,
    /// call [`Device::restore_connections`].
    ///
    /// ```
    /// use ringside::connect::{ConnectError, Reason, Settings};
    /// use ringside::prelude::*;
    /// use std::time::Duration;
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// const WAIT: Duration = Duration::from_secs(20);
    /// let config = Config::default();
    /// let left = ringside::open("model:0", &config)?;
    /// let right = ringside::open("model:1", &config)?;
    /// let (client, server) = (left.connection_manager()?, right.connection_manager()?);
    ///
    /// let address = std::net::SocketAddr::new(server.addresses()[0], 7471);
    /// let listener = server.listen(address, 8)?;
    /// std::thread::scope(|scope| -> Result<(), Box<dyn std::error::Error>> {
    ///     let accepting = scope.spawn(|| {
    ///         let request = listener.next(WAIT).expect("a request");
    ///         assert_eq!(&request.private_data()[..5], b"hello");
    ///         let domain = right.protection_domain().expect("a domain");
    ///         let completions = right.completion_queue(16).expect("a queue");
    ///         let pair = domain.queue_pair(QueuePairConfig::reliable(&completions)).expect("a pair");
    ///         let mut connection =
    ///             request.accept(pair, &Settings::with_data(b"welcome"), WAIT).expect("a connection");
    ///         assert!(connection.wait_for_end(WAIT), "the client ends it");
    ///     });
    ///     let domain = left.protection_domain()?;
    ///     let completions = left.completion_queue(16)?;
    ///     let pair = domain.queue_pair(QueuePairConfig::reliable(&completions))?;
    ///     let connection = client.connect(pair, address, &Settings::with_data(b"hello"), WAIT)?;
    ///     assert_eq!(&connection.private_data()[..7], b"welcome");
    ///     assert!(connection.disconnect(WAIT), "the server confirms");
    ///     accepting.join().expect("the server");
    ///     Ok(())
    /// })?;
    ///
    /// // Nothing listens on the next port: the refusal says so.
    /// let domain = left.protection_domain()?;
    /// let completions = left.completion_queue(16)?;
    /// let pair = domain.queue_pair(QueuePairConfig::reliable(&completions))?;
    /// let absent = std::net::SocketAddr::new(server.addresses()[0], 7472);
    /// match client.connect(pair, absent, &Settings::default(), WAIT) {
    ///     Err(ConnectError::Rejected { reason, .. }) => {
    ///         assert_eq!(reason, Reason::INVALID_SERVICE_ID);
    ///     }
    ///     other => panic!("{other:?}"),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Errors: [`NetworkError`].
    pub fn connection_manager(&self) -> Result<ConnectionManager, NetworkError> {
        let mut network = self.neighbours()?;
        let running = network.require(&self.driver())?;
        Ok(ConnectionManager::start(&self.driver(), running.finder())?)
    }

    /// Puts the connection manager into service again after a recovery of the device: its queue
    /// pair 1, and the IP stack of [`Device::resolve`]. Does nothing if the manager is in service.
    /// `manager` is the one that this device started.
    ///
    /// Listeners go on. Connections from before are lost: their ends report
    /// [`End::DeviceFailed`](ringside_connect::End), and their peers are told now. See
    /// [`ConnectionManager::restore`].
    ///
    /// ```
    /// use ringside::connect::{ConnectError, End, Settings};
    /// use ringside::prelude::*;
    /// use std::time::Duration;
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// const WAIT: Duration = Duration::from_secs(20);
    /// let config = Config::default();
    /// let left = ringside::open("model:0", &config)?;
    /// let right = ringside::open("model:1", &config)?;
    /// let (client, server) = (left.connection_manager()?, right.connection_manager()?);
    /// let address = std::net::SocketAddr::new(server.addresses()[0], 7471);
    /// let listener = server.listen(address, 8)?;
    /// let pair = |device: &Device| {
    ///     let completions = device.completion_queue(16).expect("a queue");
    ///     let domain = device.protection_domain().expect("a domain");
    ///     domain.queue_pair(QueuePairConfig::reliable(&completions)).expect("a pair")
    /// };
    /// let connect = || {
    ///     std::thread::scope(|scope| {
    ///         let accepting = scope.spawn(|| {
    ///             let request = listener.next(WAIT).expect("a request");
    ///             request.accept(pair(&right), &Settings::default(), WAIT)
    ///         });
    ///         let near = client.connect(pair(&left), address, &Settings::default(), WAIT);
    ///         Ok::<_, ConnectError>((near?, accepting.join().expect("the server")?))
    ///     })
    /// };
    /// let (mut near, mut far) = connect()?;
    ///
    /// right.recover()?; // the housekeeping thread does so after a failure
    /// assert!(far.wait_for_end(WAIT));
    /// assert!(matches!(far.end(), Some(End::DeviceFailed(_))));
    /// right.restore_connections(&server)?;
    /// assert!(near.wait_for_end(WAIT), "the client was told");
    /// assert_eq!(near.end(), Some(End::Disconnected));
    /// connect()?; // with the listener from before
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Errors: [`NetworkError`]; the device is still out of service, for instance, or `manager` is
    /// one of another device. It can be called again.
    pub fn restore_connections(&self, manager: &ConnectionManager) -> Result<(), NetworkError> {
        // Before the stack of another device is started.
        manager.check_device(&self.driver())?;
        let mut network = self.neighbours()?;
        let running = network.require(&self.driver())?;
        Ok(manager.restore(&self.driver(), running.finder())?)
    }

    /// Adds an address while the device is in service: see [`ringside_pmd::Device::add_address`]. A
    /// running IP stack then answers ARP and neighbour discovery for it.
    ///
    /// Errors: [`NetworkError`]; the address table is then unchanged.
    pub fn add_address(&self, address: LocalAddress) -> Result<Gid, NetworkError> {
        let mut network = self.neighbours()?;
        network.drop_former(self.life());
        let gid = self.driver().add_address(address)?;
        network.forget_lease(address);
        let added = network.running().map(|running| running.add(address));
        match added.unwrap_or(Ok(())) {
            Ok(()) => Ok(gid),
            // The next stack takes the address from the table.
            Err(StackError::Ended) => {
                network.drop_ended();
                Ok(gid)
            }
            Err(error) => {
                let (ip, vlan) = (address.address, address.vlan);
                self.driver().remove_address(ip, vlan)?;
                Err(error.into())
            }
        }
    }

    /// Removes an address: see [`ringside_pmd::Device::remove_address`]. A running IP stack no
    /// longer answers for it, if it did: it has room for eight addresses.
    ///
    /// Errors: [`NetworkError`]; the address table is then unchanged.
    pub fn remove_address(&self, address: IpAddr, vlan: Option<u16>) -> Result<Gid, NetworkError> {
        let mut network = self.neighbours()?;
        network.drop_former(self.life());
        let gid = self.driver().remove_address(address, vlan)?;
        let removed = network
            .running()
            .map(|running| running.remove(address, vlan));
        match removed.unwrap_or(Ok(())) {
            Ok(()) | Err(StackError::Unknown { .. }) => Ok(gid),
            Err(StackError::Ended) => {
                network.drop_ended();
                Ok(gid)
            }
            Err(error) => {
                self.driver().add_address(gid.address)?;
                Err(error.into())
            }
        }
    }

    /// The address that a DHCP server granted (`network.dhcp`); `None` without a lease, and while
    /// the IP stack does not run. It is not in the GID table: with [`Device::add_address`] queue
    /// pairs choose it by its index, and the connection manager listens on it and connects from it.
    /// When the server grants another address, remove the former one.
    #[must_use]
    pub fn leased_address(&self) -> Option<LocalAddress> {
        self.neighbours().ok()?.running()?.leased()
    }

    /// State and counts of the host's network interface (`network.host_interface`); `None` without
    /// one. It carries frames while the IP stack runs, see [`Device::serve_network`].
    #[must_use]
    pub fn host_interface(&self) -> Option<HostReport> {
        self.neighbours().ok()?.host()
    }

    /// The cause of the device's failure; `None` while it is in service. Sends no command. In a
    /// child by fork `None`: calls say that the device is the parent's.
    #[must_use]
    pub fn failure(&self) -> Option<FailureCause> {
        // In a child locks may be held permanently.
        self.birth.is_here().then(|| self.driver().failure())?
    }

    /// The number of bring-ups: 1 until the first recovery. In a child by fork that at the fork.
    #[must_use]
    pub fn life(&self) -> u32 {
        match self.birth.is_here() {
            true => self.driver().life(),
            false => self.served.known_life(),
        }
    }

    /// Maps memory of the application for the device: see [`ringside_pmd::Device::map_memory`].
    /// Errors: those of the driver, with the memory.
    pub fn map_memory(&self, memory: impl Into<Memory>) -> Result<DmaBuffer, MapError> {
        let memory = memory.into();
        match self.check_process() {
            Ok(()) => self.driver().map_memory(memory),
            Err(error) => Err(MapError { error, memory }),
        }
    }

    /// Shuts the device down and restores the state in which it was found. The function can be
    /// opened again once all objects, packets and pools of the device are dropped; by another
    /// process after a call of
    /// [`PacketPool::free_dropped`](ringside_lan::PacketPool::free_dropped), if a packet was
    /// dropped after its pool. See [`ringside_pmd::Device::shutdown`].
    #[must_use]
    pub fn shutdown(mut self) -> ShutdownReport {
        self.end().unwrap_or_default()
    }

    fn end(&mut self) -> Option<ShutdownReport> {
        if !self.birth.is_here() {
            // In a child by fork: the device, its threads and its network are the parent's.
            return None;
        }
        // The stack delivers what TCP connections still have, outside the lock.
        let former = std::mem::take(&mut *self.served.neighbours());
        drop(former);
        drop(self.housekeeper.take());
        // Tasks that wait for events learn that none will come.
        self.served.handoff.end();
        self.served.take().map(ringside_pmd::Device::shutdown)
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        for failure in self.end().iter().flat_map(|report| &report.failures) {
            tracing::error!(device = %self.address, %failure, "shutdown");
        }
    }
}

/// Calls that are forwarded to the driver under the same names. Errors: those of the driver.
macro_rules! forward {
    ($($(#[$doc:meta])* $name:ident($($argument:ident: $kind:ty),*) -> $result:ty;)*) => {
        impl Device {$(
            $(#[$doc])*
            pub fn $name(&self, $($argument: $kind),*) -> $result {
                self.check_process()?;
                self.driver().$name($($argument),*)
            }
        )*}
    };
}

forward! {
    /// Makes a protection domain.
    protection_domain() -> Result<ProtectionDomain, RdmaError>;
    /// Makes a protection domain with limits on its objects.
    protection_domain_with(quotas: Quotas) -> Result<ProtectionDomain, RdmaError>;
    /// Allocates zeroed memory that the device can access, contiguous for the device: `length`
    /// bytes, rounded up to a multiple of 64, aligned to 4096.
    allocate(length: usize) -> Result<DmaBuffer, RdmaError>;
    /// Allocates memory as [`Device::allocate`] does, aligned to a page of this size.
    allocate_aligned(length: usize, alignment: PageSize) -> Result<DmaBuffer, RdmaError>;
    /// Makes a completion queue that holds at least `completions` entries, 1..=524287.
    completion_queue(completions: u32) -> Result<CompletionQueue, RdmaError>;
    /// Makes a completion queue that reports to completion event queue `event_queue`: see
    /// [`ringside_pmd::Device::completion_queue_on`].
    completion_queue_on(completions: u32, event_queue: u16) -> Result<CompletionQueue, RdmaError>;
    /// The completion event queues, with the vector and the counted events of each.
    event_queues() -> Result<Vec<EventQueueReport>, RdmaError>;
    /// Connects the interrupt of completion event queue 0; one owner at a time.
    interrupts() -> Result<Interrupts, RdmaError>;
    /// Connects the interrupt of one completion event queue; one owner for each.
    interrupts_of(event_queue: u16) -> Result<Interrupts, RdmaError>;
    /// Takes the events of one completion event queue: see
    /// [`ringside_pmd::Device::poll_completion_events_of`].
    poll_completion_events_of(event_queue: u16, queues: &mut Vec<u32>)
        -> Result<usize, RdmaError>;
    /// Takes completion events: appends to `queues` the numbers of the armed completion queues that
    /// have completions to poll, and returns their count. Arm each of them again for its next
    /// event.
    poll_completion_events(queues: &mut Vec<u32>) -> Result<usize, RdmaError>;
    /// The counters of the RDMA engine and the port, under the names that Linux shows. Without the
    /// housekeeping thread call this at least every 25 s: see
    /// [`ringside_pmd::Device::statistics`].
    statistics() -> Result<Vec<Statistic>, RdmaError>;
    /// Queries the firmware for the state of the port. Verbs: `ibv_query_port`.
    query_port() -> Result<PortReport, RdmaError>;
    /// The IP addresses that its queue pairs may send from; the first one is the default.
    local_addresses() -> Result<Vec<IpAddr>, RdmaError>;
    /// The GID table: the addresses of the port and their indexes.
    gids() -> Result<Vec<Gid>, RdmaError>;
    /// The limits of the device.
    rdma_limits() -> Result<RdmaLimits, RdmaError>;
    /// The number of objects in use and its limit, for each kind.
    object_usage() -> Result<ObjectUsage, RdmaError>;
    /// Returns a [`Watch`]: it shows threads that take no events, by one load, whether the device
    /// failed in this period of service.
    watch() -> Result<Watch, RdmaError>;
    /// Raises [`Event::PeerSuspected`] once a peer has caused `faults` faults; 0 switches that off.
    watch_peers(faults: u32) -> Result<(), RdmaError>;
}

mod tcp;
#[cfg(test)]
mod tests;
