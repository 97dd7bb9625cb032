//! The sections of the configuration, their keys and the defaults.

use std::net::IpAddr;
use std::path::PathBuf;

use ringside_bus::DeviceAddress;
use ringside_spec::lan::limits::MAX_MTU;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::choice::{Core, HugePages, LinkSpeed, NumaNode, PathMtu, Polling, Protocol};
use crate::network::{LocalAddress, named_addresses};

/// The whole configuration. Each key's allowed range is checked by [`Config::validate`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// `[device]`: the function, and its time limits for a reset.
    pub device: DeviceSection,
    /// `[memory]`: the pages behind the memory that the device reads and writes.
    pub memory: MemorySection,
    /// `[rdma]`: the numbers of RDMA objects that the device is sized for.
    pub rdma: RdmaSection,
    /// `[link]`: frame size and speed.
    pub link: LinkSection,
    /// `[network]`: the port's IP addresses.
    pub network: NetworkSection,
    /// `[ddp]`: the device's pipeline package.
    pub ddp: DdpSection,
    /// `[deadlines]`: the longest waits for an answer.
    pub deadlines: DeadlinesSection,
    /// `[housekeeping]`: the thread that handles the device's events and recovers it.
    pub housekeeping: HousekeepingSection,
    /// `[worker]`: the cores that poll.
    pub worker: WorkerSection,
    /// `[model]`: the E810 in software.
    pub model: ModelSection,
}

impl Config {
    /// Completion event queues that the configuration asks for: `rdma.event_queues`, or one for
    /// each of `worker.cores`, at least 1.
    #[must_use]
    pub fn event_queues(&self) -> u16 {
        match self.rdma.event_queues {
            0 => u16::try_from(self.worker.cores.len()).map_or(u16::MAX, |cores| cores.max(1)),
            asked => asked,
        }
    }

    /// The logical CPU that the interrupt of a completion event queue is bound to, or the one of
    /// the device's other events (`None`). `None` if `worker.bind_interrupts` is off, or no CPU is
    /// named.
    #[must_use]
    pub fn core_of_interrupt(&self, event_queue: Option<u16>) -> Option<u32> {
        if !self.worker.bind_interrupts {
            return None;
        }
        match (event_queue, self.housekeeping.core) {
            (Some(event_queue), _) => self.core_of_event_queue(event_queue),
            (None, Core::Pinned(core)) => Some(core),
            (None, Core::Any) => None,
        }
    }

    /// The logical CPU of the worker that a completion event queue wakes: the entry of
    /// `worker.cores` with the same index. `None` if there is no such entry.
    #[must_use]
    pub fn core_of_event_queue(&self, event_queue: u16) -> Option<u32> {
        self.worker.cores.get(usize::from(event_queue)).copied()
    }
}

/// `[device]`
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default, expecting = "the table [device]")]
pub struct DeviceSection {
    /// The function to drive. Default: `model:0`.
    #[serde(with = "crate::address")]
    #[schemars(with = "String")]
    pub address: DeviceAddress,
    /// The time limit of a PF reset, in ms. 100..=120_000.
    ///
    /// The device grants 300 ms for the reset itself and 5 s for a configuration lock that another
    /// function may hold.
    #[schemars(range(min = 100, max = 120_000))]
    pub reset_deadline_ms: u64,
    /// The time limit of firmware and protocol engine after a reset, in ms. 100..=120_000.
    #[schemars(range(min = 100, max = 120_000))]
    pub ready_deadline_ms: u64,
}

impl Default for DeviceSection {
    fn default() -> Self {
        Self {
            address: DeviceAddress::Model(0),
            reset_deadline_ms: 5_300,
            ready_deadline_ms: 15_000,
        }
    }
}

/// `[memory]`
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default, expecting = "the table [memory]")]
pub struct MemorySection {
    /// Page size behind the device's memory. Default: [`HugePages::Auto`].
    pub hugepages: HugePages,
    /// NUMA node of that memory: `"auto"` or 0..=1023.
    pub numa_node: NumaNode,
}

impl Default for MemorySection {
    fn default() -> Self {
        Self {
            hugepages: HugePages::Auto,
            numa_node: NumaNode::Auto,
        }
    }
}

/// `[rdma]`: the numbers of objects to request. The device's own limits may be lower; bring-up then
/// names the key to lower and its largest value.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default, expecting = "the table [rdma]")]
pub struct RdmaSection {
    /// Transport. Only RoCEv2.
    pub protocol: Protocol,
    /// Queue pairs that applications may hold at once. 1..=262_141 (the driver uses three ids
    /// itself).
    #[schemars(range(min = 1, max = 262_141))]
    pub queue_pairs: u32,
    /// Completion queues that applications may hold at once. 1..=524_285.
    #[schemars(range(min = 1, max = 524_285))]
    pub completion_queues: u32,
    /// Memory regions registered at the same time. 1..=8_388_607.
    #[schemars(range(min = 1, max = 8_388_607))]
    pub memory_regions: u32,
    /// Page list entries for regions and rings that are not contiguous, one for each page of them.
    /// 0..=536_870_911.
    #[schemars(range(min = 0, max = 536_870_911))]
    pub pbles: u32,
    /// Peers that queue pairs may address at the same time. 1..=262_143.
    #[schemars(range(min = 1, max = 262_143))]
    pub address_handles: u32,
    /// ARP entries: MAC addresses of next hops that RDMA uses at the same time. 1..=4094.
    #[schemars(range(min = 1, max = 4094))]
    pub arp_entries: u32,
    /// Multicast groups. 0..=4095.
    #[schemars(range(min = 0, max = 4095))]
    pub multicast_groups: u32,
    /// Completion event queues, each with a vector of its own. 0..=1024; 0: one for each of
    /// `worker.cores`, at least one. The device may have fewer.
    #[schemars(range(min = 0, max = 1024))]
    pub event_queues: u16,
    /// Largest payload of one packet, in bytes: 256, 512, 1024, 2048 or 4096.
    pub path_mtu: PathMtu,
}

impl Default for RdmaSection {
    fn default() -> Self {
        Self {
            protocol: Protocol::Roce,
            queue_pairs: 64,
            completion_queues: 128,
            memory_regions: 1024,
            pbles: 65_536,
            address_handles: 256,
            arp_entries: 64,
            multicast_groups: 64,
            event_queues: 0,
            path_mtu: PathMtu::Bytes4096,
        }
    }
}

/// `[link]`
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default, expecting = "the table [link]")]
pub struct LinkSection {
    /// Largest IP packet of the port, in bytes, without Ethernet header and CRC. 576..=9702, and
    /// large enough for `rdma.path_mtu`.
    #[schemars(range(min = 576, max = MAX_MTU))]
    pub mtu: u32,
    /// Speed. Default: [`LinkSpeed::Auto`].
    pub speed: LinkSpeed,
    /// The time that bring-up waits for the link, in ms. 0..=120_000; 0 does not wait.
    #[schemars(range(min = 0, max = 120_000))]
    pub wait_ms: u64,
}

impl Default for LinkSection {
    fn default() -> Self {
        Self {
            mtu: 9_000,
            speed: LinkSpeed::Auto,
            wait_ms: 10_000,
        }
    }
}

/// `[network]`: the IP addresses that the port responds to and that RDMA sends from.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default, expecting = "the table [network]")]
pub struct NetworkSection {
    /// Addresses of the port. RDMA has two more, derived from the MAC address. At most 64,
    /// and at most 8 on each VLAN and without one.
    pub addresses: Vec<LocalAddress>,
    /// Gateways for all networks other than those of the addresses: at most one of each IP version,
    /// in the network of an address or, for IPv6, by its link-local address.
    #[serde(deserialize_with = "named_addresses")]
    pub gateways: Vec<IpAddr>,
    /// True if the port requests an IPv4 address from a DHCP server.
    pub dhcp: bool,
    /// True if a device that is opened with a housekeeping thread answers ARP and neighbour
    /// discovery from then on, where `addresses` or `dhcp` give it a network, or where there is a
    /// `host_interface`. The IP stack uses the port's queues until the program opens the port
    /// itself. Without it the program starts the stack.
    pub serve: bool,
    /// Name of a network interface of the kernel over the port, on a VSI with a MAC address of its
    /// own, so that the host's own traffic goes on beside RDMA; `None`: none. It exists while the
    /// device is open, and carries frames while the IP stack runs.
    pub host_interface: Option<String>,
}

impl Default for NetworkSection {
    fn default() -> Self {
        Self {
            addresses: Vec::new(),
            gateways: Vec::new(),
            dhcp: false,
            serve: true,
            host_interface: None,
        }
    }
}

impl NetworkSection {
    /// True if the configuration has the IP stack started when a device is opened.
    #[must_use]
    pub fn is_served(&self) -> bool {
        let has_use = self.dhcp || !self.addresses.is_empty() || self.host_interface.is_some();
        self.serve && has_use
    }
}

/// `[ddp]`: the package that Intel publishes for the E810's packet pipeline.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default, expecting = "the table [ddp]")]
pub struct DdpSection {
    /// Folders to search, in this order. At most 16.
    pub search: Vec<PathBuf>,
    /// File name within them, also tried with `.xz` and `.zst`; or an absolute path.
    pub file: PathBuf,
    /// True if bring-up fails without a package. If false, the device runs in safe mode without a
    /// package: one queue and no RDMA.
    pub require: bool,
}

impl Default for DdpSection {
    fn default() -> Self {
        Self {
            search: vec![
                PathBuf::from("/lib/firmware/updates/intel/ice/ddp"),
                PathBuf::from("/lib/firmware/intel/ice/ddp"),
                PathBuf::from("/usr/lib/firmware/intel/ice/ddp"),
            ],
            file: PathBuf::from("ice.pkg"),
            require: false,
        }
    }
}

/// `[deadlines]`: the longest waits for an answer, in ms, before the device counts as failed.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default, expecting = "the table [deadlines]")]
pub struct DeadlinesSection {
    /// One admin queue command. 1..=60_000.
    #[schemars(range(min = 1, max = 60_000))]
    pub admin_queue_ms: u64,
    /// One control queue pair command. 1..=60_000.
    #[schemars(range(min = 1, max = 60_000))]
    pub control_queue_ms: u64,
    /// A lock that another function holds (global configuration, package). 1..=600_000.
    #[schemars(range(min = 1, max = 600_000))]
    pub resource_lock_ms: u64,
    /// Quieting the device at teardown. 1..=60_000.
    #[schemars(range(min = 1, max = 60_000))]
    pub quiesce_ms: u64,
    /// The exchange of addresses with a peer. 1..=600_000.
    #[schemars(range(min = 1, max = 600_000))]
    pub connect_ms: u64,
}

impl Default for DeadlinesSection {
    fn default() -> Self {
        Self {
            admin_queue_ms: 1_000,
            control_queue_ms: 5_000,
            resource_lock_ms: 30_000,
            quiesce_ms: 1_000,
            connect_ms: 10_000,
        }
    }
}

/// `[housekeeping]`: the thread that takes events, flushes failed queue pairs, and recovers the
/// device, beside the threads that poll.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default, expecting = "the table [housekeeping]")]
pub struct HousekeepingSection {
    /// True if each opened device has such a thread. If not, the program calls `supervise`.
    pub thread: bool,
    /// Logical CPU of the thread: `"any"` or a number. It sleeps nearly always, so it may be a CPU
    /// that does other work.
    pub core: Core,
    /// True if a failed device is brought up again automatically.
    pub recover: bool,
    /// Longest sleep, in ms: the delay of changes that raise no interrupt. 1..=60_000. Above
    /// 20,000, counters of 32 bits can wrap unnoticed between two sleeps at full rate.
    #[schemars(range(min = 1, max = 60_000))]
    pub period_ms: u64,
    /// Time between two probes of firmware and RDMA engine, in ms. 1..=3_600_000.
    #[schemars(range(min = 1, max = 3_600_000))]
    pub probe_ms: u64,
    /// Time between two attempts to recover the device, in ms. A device that fails again and again
    /// soon after its recovery waits longer each time, up to 32 times this. 1..=3_600_000.
    #[schemars(range(min = 1, max = 3_600_000))]
    pub retry_ms: u64,
}

impl Default for HousekeepingSection {
    fn default() -> Self {
        Self {
            thread: true,
            core: Core::Any,
            recover: true,
            period_ms: 20,
            probe_ms: 1_000,
            retry_ms: 1_000,
        }
    }
}

/// `[worker]`
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default, expecting = "the table [worker]")]
pub struct WorkerSection {
    /// Logical CPUs of the workers, one worker each, no CPU twice. Empty: one worker, not pinned.
    pub cores: Vec<u32>,
    /// Completions taken by one poll. 1..=256.
    #[schemars(range(min = 1, max = 256))]
    pub poll_batch: u32,
    /// The most requests from other cores that may wait for one worker. 2..=65_536.
    #[schemars(range(min = 2, max = 65_536))]
    pub inbox: u32,
    /// The way a worker waits for work. Default: [`Polling::Busy`].
    pub polling: Polling,
    /// The idle time after which a worker yields or sleeps, in us. 0..=1_000_000.
    #[schemars(range(min = 0, max = 1_000_000))]
    pub idle_us: u64,
    /// True if the interrupt of each worker's completion event queue is bound to its core, and that
    /// of the housekeeping thread to its own, where these are named. Only of a card; needs root.
    pub bind_interrupts: bool,
    /// Longest sleep, in ms: work without an interrupt is found at its end. 1..=60_000.
    #[schemars(range(min = 1, max = 60_000))]
    pub sleep_ms: u64,
}

impl Default for WorkerSection {
    fn default() -> Self {
        Self {
            cores: Vec::new(),
            poll_batch: 32,
            inbox: 256,
            polling: Polling::Busy,
            idle_us: 50,
            bind_interrupts: false,
            sleep_ms: 100,
        }
    }
}

/// Functions of the model in a process. Each is a card of its own on the model's switch; 64 are
/// more than a test needs, and their devices open in seconds.
pub const MAX_FUNCTIONS: u32 = 64;

/// `[model]`
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default, expecting = "the table [model]")]
pub struct ModelSection {
    /// Functions on the model's switch. 1..=64.
    #[schemars(range(min = 1, max = 64))]
    pub functions: u32,
    /// Logical CPU of the model's thread: `"any"` or a number.
    pub thread_core: Core,
}

impl Default for ModelSection {
    fn default() -> Self {
        Self {
            functions: 2,
            thread_core: Core::Any,
        }
    }
}
