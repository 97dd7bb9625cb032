//! A period of service of the device of this process: from its bring-up, or from a recovery, to the
//! next failure. Contexts belong to the period that they were opened in, and fail with it; contexts
//! that are opened after a recovery belong to the next one.
//!
//! The process does not shut it down: programs exit without destroying anything, from any thread.
//! A card is reset by the kernel when its descriptor closes, a model by its server.

use crate::abi::{ibv_cq, ibv_device, ibv_qp};
use crate::claim::Failure;
use crate::failing::Failing;
use crate::machine::{InService, Machine};
use crate::network::Network;
use crate::reach::Reaches;
use crate::vectors::Vectors;
use crate::wakeup::Wakeup;
use ringside_bus::PerProcess;
use ringside_config::{LocalAddress, entry_towards, towards};
use ringside_connect::{Lookup, Within};
use ringside_pmd::rdma::MAX_GIDS;
use ringside_pmd::rdma::address::{MacAddress, eui_64, multicast_mac};
use ringside_pmd::recovery::Containment;
use std::collections::HashMap;
use std::ffi::{c_char, c_int};
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// A way to look up: an own address, and a peer's.
pub(crate) type Way = (IpAddr, IpAddr);
/// The MAC address on a way; `None` while the neighbour is being asked. Errors: an errno value.
pub(crate) type Found = Result<Option<MacAddress>, c_int>;

/// Takes a lock, also after a panic of its holder: every change under these locks is one
/// assignment.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Bytes behind the public part of a device: vendor libraries compare the first word there with
/// pointers of their own, and must find none.
const PRIVATE_BYTES: usize = 64;

/// The longest wait for a DHCP server when a program opens the device. dnsmasq takes three seconds
/// to find out that an address is free before it offers it.
pub(crate) const LEASE_WAIT: Duration = Duration::from_secs(5);
/// The time between two looks for its address.
const LEASE_STEP: Duration = Duration::from_millis(2);

/// The device, in the form of the public headers.
#[repr(C)]
struct DeviceObject {
    public: ibv_device,
    private: [u8; PRIVATE_BYTES],
}

// SAFETY: plain values; its pointers are never followed, and nothing changes it once it is made.
unsafe impl Send for DeviceObject {}
// SAFETY: as above.
unsafe impl Sync for DeviceObject {}

/// Returns the device in the form of the public headers. A child of a fork has it at the same
/// address.
pub(crate) fn object() -> *mut ibv_device {
    static OBJECT: OnceLock<DeviceObject> = OnceLock::new();
    (&raw const OBJECT.get_or_init(device_object).public).cast_mut()
}

/// Objects by number, for events.
#[derive(Default)]
pub(crate) struct Registry {
    pub(crate) completion_queues: HashMap<u32, usize>,
    pub(crate) queue_pairs: HashMap<u32, usize>,
    /// threads that wait for completions of the library's own queues
    pub(crate) own_queues: HashMap<u32, Arc<Wakeup>>,
}

impl Registry {
    pub(crate) fn completion_queue(&self, number: u32) -> Option<*mut ibv_cq> {
        let address = self.completion_queues.get(&number)?;
        Some(*address as *mut ibv_cq)
    }

    pub(crate) fn queue_pair(&self, number: u32) -> Option<*mut ibv_qp> {
        let address = self.queue_pairs.get(&number)?;
        Some(*address as *mut ibv_qp)
    }
}

/// A period of service of the device.
pub(crate) struct Port {
    machine: Arc<Machine>,
    /// number of the bring-up or recovery that began it
    life: u32,
    pub(crate) mac: MacAddress,
    /// the device is a model, which runs on the cores of this machine
    pub(crate) is_model: bool,
    /// the GID table; an index stays with its address as long as that is there
    gids: Mutex<Vec<Option<LocalAddress>>>,
    containment: Containment,
    /// nothing if the stack did not start: then only own addresses are reached
    network: Mutex<Option<Arc<Network>>>,
    pub(crate) registry: Mutex<Registry>,
    pub(crate) vectors: Vectors,
    /// registered memory, by local key
    pub(crate) reaches: Reaches,
    /// contexts that receive asynchronous events, by address
    pub(crate) contexts: Mutex<Vec<usize>>,
    pub(crate) failing: Failing,
    /// the device failed: the period is over
    has_failed: AtomicBool,
    /// it did not answer: its requests complete once it does, or is gone
    pub(crate) are_requests_late: Arc<AtomicBool>,
    /// the host wants the device back
    is_asked_for: AtomicBool,
}

impl Port {
    #[cfg(test)]
    pub(crate) fn model(&self) -> Option<&ringside_model::Threaded> {
        self.machine.model()
    }

    /// The period of service that a bring-up or a recovery has begun.
    pub(crate) fn begin(machine: Arc<Machine>) -> Result<Arc<Self>, Failure> {
        let no_rdma = |error: &dyn std::fmt::Display| Failure::of(libc::ENODEV, error);
        let device = machine
            .device()
            .ok_or_else(|| no_rdma(&"it is being recovered"))?;
        let gids = device.verbs_gids().map_err(|error| no_rdma(&error))?;
        let vectors = Vectors::of(&device).map_err(|error| no_rdma(&error))?;
        let mac = device.facts().mac().map_err(|error| no_rdma(&error))?;
        let containment = device.containment().map_err(|error| no_rdma(&error))?;
        let network =
            Network::start(&device, machine.host(), machine.leased()).inspect_err(|error| {
                let text = format!("no IP stack, so that peers are not found: {error}");
                crate::diagnosis::say(machine.name(), &text);
            });
        let (life, is_model) = (device.life(), machine.is_model());
        drop(device);
        Ok(Arc::new(Self {
            machine,
            life,
            mac,
            is_model,
            gids: Mutex::new(gids.into_iter().map(|gid| Some(gid.address)).collect()),
            containment,
            network: Mutex::new(network.ok().map(Arc::new)),
            registry: Mutex::default(),
            vectors,
            reaches: Reaches::default(),
            contexts: Mutex::default(),
            failing: Failing::default(),
            has_failed: AtomicBool::new(false),
            are_requests_late: Arc::default(),
            is_asked_for: AtomicBool::new(false),
        }))
    }

    /// Waits until a DHCP server has granted an address, which comes into the GID table, if the
    /// configuration asks for one; says so if none has in time.
    pub(crate) fn await_lease(&self) {
        let end = Instant::now() + LEASE_WAIT;
        while let (Some(network), Ok(device)) = (self.network(), self.device()) {
            if !device.config().network.dhcp {
                return;
            }
            if network.follow_lease(&device) {
                drop(device);
                return self.refresh_gids();
            }
            drop(device);
            if Instant::now() >= end {
                let text = format!(
                    "no DHCP server has granted an address within {} s: the program begins without \
                     one",
                    LEASE_WAIT.as_secs()
                );
                return crate::diagnosis::say(self.machine.name(), &text);
            }
            std::thread::sleep(LEASE_STEP);
        }
    }

    /// The IP stack, if it runs.
    pub(crate) fn network(&self) -> Option<Arc<Network>> {
        lock(&self.network).clone()
    }

    /// Starts the IP stack again if it did not start, or has ended, although the device is in
    /// service: a command of the firmware may have failed, for instance.
    pub(crate) fn renew_network(&self) {
        let former = self.network();
        if former.as_ref().is_some_and(|network| !network.has_ended()) {
            return;
        }
        let Ok(device) = self.device() else { return };
        // The port's queues are free before the next stack takes them.
        if let Some(network) = former {
            network.end();
        }
        match Network::start(&device, self.machine.host(), self.machine.leased()) {
            Ok(network) => {
                tracing::warn!("the IP stack runs again");
                *lock(&self.network) = Some(Arc::new(network));
            }
            Err(error) => tracing::warn!(%error, "the IP stack does not start"),
        }
    }

    /// The device through all its failures.
    pub(crate) const fn machine(&self) -> &Arc<Machine> {
        &self.machine
    }

    /// The device, for a call. It is not recovered until the result is dropped.
    ///
    /// # Errors
    /// `EIO` once the device has failed, also after its recovery: the objects of this period are
    /// lost.
    pub(crate) fn device(&self) -> Result<InService<'_>, c_int> {
        let device = self
            .machine
            .device()
            .filter(|device| device.life() == self.life);
        device.filter(|_| !self.has_failed()).ok_or(libc::EIO)
    }

    /// True once the device has failed.
    pub(crate) fn has_failed(&self) -> bool {
        self.has_failed.load(Ordering::Acquire)
    }

    /// Ends the period of service.
    pub(crate) fn fail(&self) {
        self.has_failed.store(true, Ordering::Release);
    }

    /// Waits until a device that failed writes nothing more to the program's memory: at most 10 s
    /// after the failure, however many objects are destroyed, plus one attempt to stop its DMA.
    /// Returns at once while the device is in service.
    ///
    /// # Errors
    /// `EBUSY` if it may still write: the object stays, and can be destroyed later.
    pub(crate) fn await_rest(&self) -> Result<(), c_int> {
        const LIMIT: Duration = Duration::from_secs(10);
        if self.containment.wait(LIMIT) {
            return Ok(());
        }
        tracing::warn!("the failed device may still write: an object stays");
        Err(libc::EBUSY)
    }

    /// True once the device has failed, or the host wants it back.
    pub(crate) fn is_over(&self) -> bool {
        self.has_failed() || self.is_asked_for.load(Ordering::Acquire)
    }

    /// True if the library recovers the failed device, and has not tried without success.
    pub(crate) fn may_recover(&self) -> bool {
        let machine = self.machine();
        self.has_failed() && machine.housekeeping().recover && !machine.is_failing()
    }

    /// Has the device recovered: queue pair 1 is lost, and without it no connection is made or
    /// ended any more. Does nothing if the library does not recover devices.
    pub(crate) fn give_up(&self) {
        let Ok(device) = self.device() else { return };
        if !self.machine().housekeeping().recover {
            return;
        }
        match device.give_up() {
            Ok(()) => tracing::error!("queue pair 1 is lost: the device is recovered"),
            Err(error) => tracing::debug!(%error, "queue pair 1 is lost"),
        }
    }

    /// Notes that the host wants the device back. False if that was known: it repeats its request.
    pub(crate) fn note_request(&self) -> bool {
        !self.is_asked_for.swap(true, Ordering::AcqRel)
    }

    /// GUID of the node in the byte order of the wire: the MAC address, stretched.
    pub(crate) fn guid(&self) -> u64 {
        u64::from_ne_bytes(eui_64(self.mac))
    }

    /// The GID table, by index.
    pub(crate) fn gids(&self) -> Vec<Option<LocalAddress>> {
        lock(&self.gids).clone()
    }

    /// The addresses of the GID table, in the order of their indexes.
    pub(crate) fn addresses(&self) -> Vec<LocalAddress> {
        lock(&self.gids).iter().flatten().copied().collect()
    }

    /// An entry of the GID table, or `None` behind its end. Its length is constant, so that
    /// programs which ask for it once find addresses that come later.
    pub(crate) fn gid_entry(&self, index: usize) -> Option<Option<LocalAddress>> {
        (index < MAX_GIDS).then(|| self.gid(index))
    }

    /// The address of an entry of the GID table.
    pub(crate) fn gid(&self, index: usize) -> Option<LocalAddress> {
        lock(&self.gids).get(index).copied().flatten()
    }

    /// The first entry of the GID table with an address.
    pub(crate) fn own(&self, address: IpAddr) -> Option<LocalAddress> {
        let gids = lock(&self.gids);
        let mut own = gids.iter().flatten();
        own.find(|own| own.address == address).copied()
    }

    /// The own address that packets to a peer have: as the stack's networks and routers say, else
    /// one of the peer's network or of its family. A group is sent to as the router's network, if
    /// it is one of IPv4.
    pub(crate) fn source_towards(&self, peer: IpAddr) -> Option<LocalAddress> {
        let is_routed = !peer.is_unspecified() && !peer.is_loopback();
        let is_asked = is_routed && (peer.is_ipv4() || !peer.is_multicast());
        let network = self.network().filter(|_| is_asked);
        let routed = network.and_then(|network| network.source_towards(peer));
        // The stack may have an address before the table has it.
        let routed = routed.filter(|own| self.own(own.address).is_some());
        routed.or_else(|| towards(&self.addresses(), peer))
    }

    /// The entry of the GID table from which a peer is reached, of those with an own address: of
    /// one address on several VLANs the nearest one, else the first.
    pub(crate) fn own_towards(&self, own: IpAddr, peer: IpAddr) -> Option<LocalAddress> {
        entry_towards(&self.addresses(), own, peer)
    }

    /// The VLAN on which a peer is reached from an own address.
    pub(crate) fn vlan_towards(&self, own: IpAddr, peer: IpAddr) -> Option<u16> {
        self.own_towards(own, peer)?.vlan
    }

    /// The entry of an address of the device: that on the VLAN of another own address, else the
    /// first.
    fn own_beside(&self, own: &LocalAddress, address: IpAddr) -> Option<LocalAddress> {
        let there = self.gid_index(address, Within::Vlan(own.vlan));
        let here = there.and_then(|index| self.gid(index));
        here.or_else(|| self.own(address))
    }

    /// The index of an address of the device on a VLAN, or of its first entry on any.
    pub(crate) fn gid_index(&self, address: IpAddr, within: Within) -> Option<usize> {
        let fits = |own: &LocalAddress| own.address == address && within.holds(own);
        let gids = lock(&self.gids);
        gids.iter()
            .position(|own| own.is_some_and(|own| fits(&own)))
    }

    /// The device's table has changed: takes addresses that are gone out of this one, and gives new
    /// ones the first free indexes.
    pub(crate) fn refresh_gids(&self) {
        let device = self.device();
        // Locked first: another thread may have read the device's table earlier.
        let mut gids = lock(&self.gids);
        let table =
            device.and_then(|device| device.gids().map_err(|error| crate::errno::of(&error)));
        let now: Vec<LocalAddress> = match table {
            Ok(table) => table.into_iter().map(|gid| gid.address).collect(),
            Err(error) => {
                tracing::warn!(%error, "the GID table is not read");
                return;
            }
        };
        for gid in gids.iter_mut() {
            *gid = gid.filter(|own| now.contains(own));
        }
        for own in now {
            if gids.contains(&Some(own)) {
                continue;
            }
            match gids.iter_mut().find(|gid| gid.is_none()) {
                Some(free) => *free = Some(own),
                None => gids.push(Some(own)),
            }
        }
    }

    /// Looks for the MAC address of a neighbour, or of the router on the way to a peer; asks for it
    /// if it is new, and does not wait: `None` until the answer comes.
    ///
    /// # Errors
    /// `ETIMEDOUT` if it did not answer, `EHOSTUNREACH` if there is no route.
    pub(crate) fn find(
        &self,
        address: IpAddr,
        within: Within,
    ) -> Result<Option<MacAddress>, c_int> {
        if let Some(known) = self.known(address, within) {
            return Ok(Some(known));
        }
        let network = self.network().ok_or(libc::EHOSTUNREACH)?;
        network.find(address, within)
    }

    /// The MAC address of a group, or of an address of the device itself.
    fn known(&self, address: IpAddr, within: Within) -> Option<MacAddress> {
        let own = || self.gid_index(address, within).map(|_| self.mac);
        multicast_mac(address).or_else(own)
    }

    /// As [`Self::find`], from an own address and on its VLAN: messages of the connection manager
    /// leave on no other.
    ///
    /// # Errors
    /// As of [`Self::find`]; `EADDRNOTAVAIL`, the address is not the device's.
    pub(crate) fn find_towards(
        &self,
        own: IpAddr,
        peer: IpAddr,
    ) -> Result<Option<MacAddress>, c_int> {
        let own = self.own_towards(own, peer).ok_or(libc::EADDRNOTAVAIL)?;
        self.find(peer, Within::Vlan(own.vlan))
    }

    /// As [`Self::find_towards`] for many ways, each an own address and a peer's, with one question
    /// to the stack's thread.
    pub(crate) fn find_all_towards(&self, ways: &[Way]) -> HashMap<Way, Found> {
        let mut found = HashMap::new();
        let mut asked = Vec::new();
        for way in ways {
            let (own, peer) = *way;
            let Some(own) = self.own_towards(own, peer) else {
                found.insert(*way, Err(libc::EADDRNOTAVAIL));
                continue;
            };
            let within = Within::Vlan(own.vlan);
            match self.known(peer, within) {
                Some(known) => drop(found.insert(*way, Ok(Some(known)))),
                None => asked.push((*way, (peer, within))),
            }
        }
        let Some(network) = self.network().filter(|_| !asked.is_empty()) else {
            let unreachable = asked
                .into_iter()
                .map(|(way, _)| (way, Err(libc::EHOSTUNREACH)));
            found.extend(unreachable);
            return found;
        };
        let (ways, peers): (Vec<_>, Vec<_>) = asked.into_iter().unzip();
        found.extend(ways.into_iter().zip(network.find_all(peers)));
        found
    }

    /// As [`Self::find`] on one VLAN, for the connection manager.
    pub(crate) fn lookup(&self, address: IpAddr, vlan: Option<u16>) -> Lookup {
        match self.find(address, Within::Vlan(vlan)) {
            Ok(Some(mac)) => Lookup::Found(mac),
            Ok(None) => Lookup::Asked,
            Err(_) => Lookup::Unknown,
        }
    }

    /// The MAC address of the next hop to a peer from an own address, with the VLAN that it is on;
    /// waits for the answer, 3 s at most. That is the VLAN of the own address, unless only another
    /// one has a route to the peer, or the peer is an address of the device on another one.
    ///
    /// # Errors
    /// `ETIMEDOUT` if it does not answer, `EHOSTUNREACH` if there is no route.
    pub(crate) fn way(
        &self,
        own: &LocalAddress,
        address: IpAddr,
    ) -> Result<(MacAddress, Option<u16>), c_int> {
        if let Some(group) = multicast_mac(address) {
            return Ok((group, own.vlan));
        }
        if let Some(entry) = self.own_beside(own, address) {
            return Ok((self.mac, entry.vlan));
        }
        let network = self.network().ok_or(libc::EHOSTUNREACH)?;
        let found = match network.resolve(address, Within::Vlan(own.vlan)) {
            Err(libc::EHOSTUNREACH) => network.resolve(address, Within::All),
            found => found,
        }?;
        Ok((found.mac, found.vlan_tag))
    }
}

impl Drop for Port {
    /// The device may be shut down next, such as after an opening that failed late: the stack does
    /// not send on queues that are gone.
    fn drop(&mut self) {
        if let Some(network) = lock(&self.network).take() {
            network.stop();
        }
    }
}

static PRESENT: PerProcess<Mutex<Arc<Port>>> = PerProcess::new();

/// The present period of service; `None` before the device is opened.
pub(crate) fn present() -> Option<Arc<Port>> {
    PRESENT.get().map(|port| Arc::clone(&lock(port)))
}

/// The process has joined a multicast group.
static HAS_JOINED: AtomicBool = AtomicBool::new(false);

/// Notes that the process is to leave multicast groups at its end.
pub(crate) fn note_member() {
    HAS_JOINED.store(true, Ordering::Relaxed);
}

/// Leaves the multicast groups of a process that ends: its queue pairs are not destroyed. Does
/// nothing for other processes. A panic, such as of a log that has ended before, goes no further.
extern "C" fn at_exit() {
    if HAS_JOINED.load(Ordering::Relaxed) {
        let _ = std::panic::catch_unwind(leave_groups);
    }
}

/// A handler of a signal may end the process while it holds one of the locks: then nothing is said.
fn leave_groups() {
    let Some(Ok(port)) = PRESENT.get().map(Mutex::try_lock) else {
        return;
    };
    let network = port
        .network
        .try_lock()
        .ok()
        .and_then(|network| network.clone());
    drop(port);
    if let Some(network) = network {
        network.leave_groups();
    }
}

#[used]
// SAFETY: the loader calls the functions of this section when the process ends.
#[unsafe(link_section = ".fini_array")]
static DESTRUCTOR: extern "C" fn() = at_exit;

/// The present period of service. The first call of a process opens the device, others wait for
/// that.
pub(crate) fn present_or_open(
    open: impl FnOnce() -> Result<Arc<Port>, Failure>,
) -> Result<Arc<Port>, Failure> {
    let present = PRESENT.get_or_try_init(|| open().map(Mutex::new))?;
    Ok(Arc::clone(&lock(present)))
}

/// True if a parent of this process had opened the device.
pub(crate) fn is_inherited() -> bool {
    PRESENT.is_inherited()
}

/// The device was recovered: `port` is the present period of service from now on.
pub(crate) fn replace(port: Arc<Port>) {
    let present = PRESENT.get_or_init(|| Mutex::new(Arc::clone(&port)));
    let former = std::mem::replace(&mut *lock(present), port);
    drop(former);
}

/// Writes text and a final zero into a C array.
pub(crate) fn put_text<const N: usize>(array: &mut [c_char; N], text: &str) {
    let most = N.saturating_sub(1);
    for (place, byte) in array.iter_mut().zip(text.bytes().take(most)) {
        *place = byte as c_char;
    }
}

fn device_object() -> DeviceObject {
    const CHANNEL_ADAPTER: c_int = 1;
    const TRANSPORT_IB: c_int = 0;
    let mut public = ibv_device {
        ops: [0; 2],
        node_type: CHANNEL_ADAPTER,
        transport_type: TRANSPORT_IB,
        name: [0; 64],
        dev_name: [0; 64],
        dev_path: [0; 256],
        ibdev_path: [0; 256],
    };
    put_text(&mut public.name, "ringside0");
    put_text(&mut public.dev_name, "uverbs0");
    put_text(&mut public.dev_path, "/sys/class/infiniband_verbs/uverbs0");
    put_text(&mut public.ibdev_path, "/sys/class/infiniband/ringside0");
    DeviceObject {
        public,
        private: [0; PRIVATE_BYTES],
    }
}
