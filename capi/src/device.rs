//! The device of this process: found by `RINGSIDE_DEVICE`, brought up once, kept until the end.
//!
//! The process does not shut it down: programs exit without destroying anything, from any thread.
//! A card is reset by the kernel when its descriptor closes, a model by its server.

use crate::abi::{ibv_cq, ibv_device, ibv_qp};
use crate::network::Network;
use crate::reach::Reaches;
use crate::vectors::Vectors;
use crate::wakeup::Wakeup;
use ringside_bus::vfio_user::{ClientLimits, VfioUserFunction};
use ringside_bus::{DeviceAddress, Function, FunctionError, TscClock, VfioFunction};
use ringside_config::Config;
use ringside_connect::Lookup;
use ringside_model::{Threaded, WorldSettings};
use ringside_pmd::rdma::address::{MacAddress, multicast_mac};
use ringside_pmd::{BringUpOptions, Device};
use std::collections::HashMap;
use std::ffi::{c_char, c_int};
use std::net::IpAddr;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// Takes a lock, also after a panic of its holder: every change under these locks is one
/// assignment.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Bytes behind the public part of a device: vendor libraries compare the first word there with
/// pointers of their own, and must find none.
const PRIVATE_BYTES: usize = 64;

/// Most completion vectors without a configuration: each takes memory for the events of all
/// completion queues. Some virtual functions and machines have fewer.
const MAX_VECTORS: u16 = 32;

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

/// Returns the device in the form of the public headers. A child of a fork has it at the same address.
pub(crate) fn object() -> *mut ibv_device {
    static OBJECT: OnceLock<DeviceObject> = OnceLock::new();
    (&raw const OBJECT.get_or_init(device_object).public).cast_mut()
}

/// Objects by number, for events.
#[derive(Default)]
pub(crate) struct Registry {
    pub(crate) completion_queues: HashMap<u32, usize>,
    pub(crate) queue_pairs: HashMap<u32, usize>,
    /// who waits for completions of queues of the library itself
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

/// The device in service.
pub(crate) struct Port {
    pub(crate) device: Device,
    pub(crate) mac: MacAddress,
    /// the device is a model, which runs on the cores of this machine
    pub(crate) is_model: bool,
    /// the GID table; an index stays with its address as long as that is there
    gids: Mutex<Vec<Option<IpAddr>>>,
    /// nothing if the stack did not start: then only own addresses are reached
    pub(crate) network: Option<Network>,
    pub(crate) registry: Mutex<Registry>,
    pub(crate) vectors: Vectors,
    /// registered memory, by local key
    pub(crate) reaches: Reaches,
    /// contexts that receive asynchronous events, by address
    pub(crate) contexts: Mutex<Vec<usize>>,
    /// the device failed, and is not recovered
    pub(crate) has_failed: AtomicBool,
    /// the model in this process, where there is one
    _model: Option<Threaded>,
}

/// The reason why there is no device.
pub(crate) struct Failure {
    pub(crate) errno: c_int,
    pub(crate) text: String,
}

impl Failure {
    pub(crate) fn of(errno: c_int, error: impl std::fmt::Display) -> Self {
        let text = error.to_string();
        Self { errno, text }
    }
}

pub(crate) fn start_log() {
    use tracing_subscriber::EnvFilter;
    if std::env::var_os("RUST_LOG").is_some() {
        let log = tracing_subscriber::fmt().with_env_filter(EnvFilter::from_default_env());
        // The program may have a log of its own from Rust code: then that stays.
        let _ = log.with_writer(std::io::stderr).try_init();
    }
}

fn claim(
    address: &DeviceAddress,
    config: &Config,
) -> Result<(Arc<dyn Function>, Option<Threaded>), Failure> {
    let clock = Arc::new(TscClock::new());
    match address {
        DeviceAddress::VfioUser(path) => {
            let function = VfioUserFunction::connect(path, clock, ClientLimits::default());
            let errno = |error: &FunctionError| match error {
                FunctionError::InUse { .. } => libc::EBUSY,
                _ => libc::ENODEV,
            };
            let function = function.map_err(|error| Failure::of(errno(&error), error))?;
            Ok((Arc::new(function), None))
        }
        DeviceAddress::Pci { .. } => {
            let function = VfioFunction::claim(address, clock);
            let function = function.map_err(|error| Failure::of(libc::EBUSY, error))?;
            Ok((Arc::new(function), None))
        }
        DeviceAddress::Model(index) => {
            let functions = u16::try_from(config.model.functions).unwrap_or(u16::MAX);
            let model = Threaded::start(&WorldSettings::with_functions(functions), None);
            let model = model.map_err(|error| Failure::of(libc::EIO, error))?;
            let function = model.function(*index);
            let missing =
                || Failure::of(libc::ENODEV, format!("the model has no function {index}"));
            Ok((function.ok_or_else(missing)?, Some(model)))
        }
    }
}

/// The configuration without a file, and the values of keys that a file does not name: programs of
/// verbs expect more objects than an application that makes its own configuration, and a completion
/// vector for each core.
fn sized_for_programs() -> Config {
    let mut config = Config::default();
    config.rdma.queue_pairs = 512;
    config.rdma.completion_queues = 1024;
    config.rdma.memory_regions = 16_384;
    config.rdma.address_handles = 512;
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    config.rdma.event_queues =
        u16::try_from(cores).map_or(MAX_VECTORS, |cores| cores.min(MAX_VECTORS));
    config
}

/// The address that `name` is, and the configuration that the environment names.
fn named(name: &str) -> Result<(DeviceAddress, Config), Failure> {
    let invalid = |error: &dyn std::fmt::Display| Failure::of(libc::EINVAL, error);
    let address = name.parse().map_err(|error| invalid(&error))?;
    let config = match std::env::var_os("RINGSIDE_CONFIG") {
        Some(path) => {
            Config::load_over(path, &sized_for_programs()).map_err(|error| invalid(&error))?
        }
        None => sized_for_programs(),
    };
    Ok((address, config))
}

/// Looks whether there is a device of that name, and opens nothing.
///
/// A program that only looks for devices keeps no descriptor: it may close all it knows of, as
/// daemons do, and open the device afterwards.
pub(crate) fn look_for(name: &str) -> Result<(), Failure> {
    let (address, config) = named(name)?;
    let missing = |text: String| Err(Failure::of(libc::ENODEV, text));
    match &address {
        DeviceAddress::VfioUser(path) if !path.exists() => missing(format!(
            "there is no socket at {}: start its server (ringside model serve)",
            path.display()
        )),
        DeviceAddress::Model(index) if u32::from(*index) >= config.model.functions => {
            missing(format!("the model has no function {index}"))
        }
        _ => Ok(()),
    }
}

impl Port {
    #[cfg(test)]
    pub(crate) fn model(&self) -> Option<&Threaded> {
        self._model.as_ref()
    }

    /// Claims and brings up the device that `name` names.
    pub(crate) fn open(name: &str) -> Result<Arc<Self>, Failure> {
        let (address, config) = named(name)?;
        let (function, model) = claim(&address, &config)?;
        let options = BringUpOptions {
            fail_at: None,
            progress: None,
            predictable: None,
        };
        let device = Device::bring_up(function, &config, options)
            .map_err(|error| Failure::of(libc::EIO, error))?;
        let no_rdma = |error: &dyn std::fmt::Display| Failure::of(libc::ENODEV, error);
        let addresses = device.local_addresses().map_err(|error| no_rdma(&error))?;
        let mut gids = addresses;
        // As on Linux: the link-local address comes first.
        gids.sort_by_key(
            |address| !matches!(address, IpAddr::V6(six) if six.is_unicast_link_local()),
        );
        let vectors = Vectors::of(&device).map_err(|error| no_rdma(&error))?;
        let mac = device.facts().mac().map_err(|error| no_rdma(&error))?;
        let network = Network::start(&device).inspect_err(|error| {
            eprintln!("ringside: {name}: no IP stack, so that peers are not found: {error}");
        });
        Ok(Arc::new(Self {
            device,
            mac,
            is_model: !matches!(address, DeviceAddress::Pci { .. }),
            gids: Mutex::new(gids.into_iter().map(Some).collect()),
            network: network.ok(),
            registry: Mutex::default(),
            vectors,
            reaches: Reaches::default(),
            contexts: Mutex::default(),
            has_failed: AtomicBool::new(false),
            _model: model,
        }))
    }

    /// GUID of the node in the byte order of the wire: the MAC address, stretched.
    pub(crate) fn guid(&self) -> u64 {
        let [a, b, c, d, e, f] = self.mac;
        u64::from_ne_bytes([a ^ 2, b, c, 0xFF, 0xFE, d, e, f])
    }

    /// The GID table, by index.
    pub(crate) fn gids(&self) -> Vec<Option<IpAddr>> {
        lock(&self.gids).clone()
    }

    /// The addresses of the GID table, in the order of their indexes.
    pub(crate) fn addresses(&self) -> Vec<IpAddr> {
        lock(&self.gids).iter().flatten().copied().collect()
    }

    /// An address of the GID table.
    pub(crate) fn gid(&self, index: usize) -> Option<IpAddr> {
        lock(&self.gids).get(index).copied().flatten()
    }

    /// The index of an address of the device.
    pub(crate) fn gid_index(&self, address: IpAddr) -> Option<usize> {
        let gids = lock(&self.gids);
        gids.iter().position(|gid| *gid == Some(address))
    }

    /// The device's table has changed: takes addresses that are gone out of this one, and gives new
    /// ones the first free indexes.
    pub(crate) fn refresh_gids(&self) {
        let now = match self.device.local_addresses() {
            Ok(now) => now,
            Err(error) => {
                tracing::warn!(%error, "the GID table is not read");
                return;
            }
        };
        let mut gids = lock(&self.gids);
        for gid in gids.iter_mut() {
            *gid = gid.filter(|address| now.contains(address));
        }
        for address in now {
            if gids.contains(&Some(address)) {
                continue;
            }
            match gids.iter_mut().find(|gid| gid.is_none()) {
                Some(free) => *free = Some(address),
                None => gids.push(Some(address)),
            }
        }
    }

    /// Looks for the MAC address of a neighbour, or of the router on the way to a peer; asks for it if
    /// it is new, and does not wait for the answer.
    pub(crate) fn lookup(&self, address: IpAddr) -> Lookup {
        if let Some(group) = multicast_mac(address) {
            return Lookup::Found(group);
        }
        if self.gid_index(address).is_some() {
            return Lookup::Found(self.mac);
        }
        let network = self.network.as_ref();
        network.map_or(Lookup::Unknown, |network| network.lookup(address))
    }

    /// The same, with the VLAN that the neighbour is on; waits for the answer, 3 s at most.
    pub(crate) fn way(&self, address: IpAddr) -> Option<(MacAddress, Option<u16>)> {
        if let Some(group) = multicast_mac(address) {
            return Some((group, None));
        }
        if self.gid_index(address).is_some() {
            return Some((self.mac, None));
        }
        let found = self.network.as_ref()?.resolve(address)?;
        Some((found.mac, found.vlan_tag))
    }
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
