//! The allowed ranges, and the conditions between keys.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::ops::RangeInclusive;

use ringside_bus::{DeviceAddress, tap};
use ringside_spec::lan::limits::MAX_MTU;

use crate::choice::{Core, NumaNode, PathMtu};
use crate::fault::Fault;
use crate::network::{LocalAddress, is_link_local, is_of_a_host, nearest};
use crate::sections::{
    Config, DdpSection, DeadlinesSection, DeviceSection, HousekeepingSection, LinkSection,
    MAX_FUNCTIONS, MemorySection, ModelSection, NetworkSection, RdmaSection, WorkerSection,
};

/// Bytes that RoCEv2 adds to a payload within an IP packet, at most: IPv6 40, UDP 8, base
/// transport header 12, RDMA header 16, immediate data 4, invariant CRC 4.
pub(crate) const ROCE_OVERHEAD_BYTES: u32 = 40 + 8 + 12 + 16 + 4 + 4;

/// The most addresses of a port.
const ADDRESSES: usize = 64;

/// The most addresses of a port that are on one VLAN, or on none: the stack's interface for it has
/// room for as many.
pub(crate) const ADDRESSES_OF_A_VLAN: usize = 8;

/// The most folders that are searched for a package.
const SEARCH_FOLDERS: usize = 16;

/// The highest number of a logical CPU that a thread can be pinned to.
const CORES: RangeInclusive<u64> = 0..=1023;

/// The faults found so far.
#[derive(Default)]
struct Checks {
    faults: Vec<Fault>,
}

impl Checks {
    fn fault(&mut self, key: &str, message: String) {
        self.faults.push(Fault {
            position: None,
            key: Some(key.to_owned()),
            message,
        });
    }

    /// Notes a fault unless `value` lies in `allowed`. `unit` follows the number ("ms", "").
    fn range(
        &mut self,
        key: &str,
        value: impl Into<u64> + Copy,
        allowed: RangeInclusive<u64>,
        unit: &str,
    ) {
        let value = value.into();
        if !allowed.contains(&value) {
            let space = if unit.is_empty() { "" } else { " " };
            let (low, high) = (allowed.start(), allowed.end());
            self.fault(
                key,
                format!(" = {value}: allowed is {low} to {high}{space}{unit}"),
            );
        }
    }

    fn require(&mut self, holds: bool, key: &str, value: impl Display, why: &str) {
        if !holds {
            self.fault(key, format!(" = {value}: {why}"));
        }
    }
}

impl Config {
    /// The largest path MTU whose packets `link.mtu` has room for; 256 bytes if there is none.
    #[must_use]
    pub fn largest_path_mtu(&self) -> PathMtu {
        let fits = |one: &PathMtu| one.bytes() + ROCE_OVERHEAD_BYTES <= self.link.mtu;
        let mut largest_first = PathMtu::ALL.into_iter().rev();
        largest_first.find(fits).unwrap_or(PathMtu::Bytes256)
    }

    /// Returns every fault in the values, without positions.
    pub(crate) fn faults(&self) -> Vec<Fault> {
        let mut checks = Checks::default();
        device(&mut checks, &self.device);
        memory(&mut checks, &self.memory);
        rdma(&mut checks, &self.rdma);
        link(&mut checks, &self.link);
        network(&mut checks, &self.network);
        ddp(&mut checks, &self.ddp);
        deadlines(&mut checks, &self.deadlines);
        housekeeping(&mut checks, &self.housekeeping);
        worker(&mut checks, &self.worker);
        model(&mut checks, &self.model);
        between_sections(&mut checks, self);
        checks.faults
    }
}

fn device(checks: &mut Checks, section: &DeviceSection) {
    if let DeviceAddress::VfioUser(path) = &section.address {
        checks.require(
            path.is_absolute(),
            "device.address",
            &section.address,
            "the path of a socket must be absolute, as in vfio-user:/run/e810.sock",
        );
    }
    checks.range(
        "device.reset_deadline_ms",
        section.reset_deadline_ms,
        100..=120_000,
        "ms",
    );
    checks.range(
        "device.ready_deadline_ms",
        section.ready_deadline_ms,
        100..=120_000,
        "ms",
    );
}

fn memory(checks: &mut Checks, section: &MemorySection) {
    if let NumaNode::Node(node) = section.numa_node {
        checks.range("memory.numa_node", node, 0..=1023, "");
    }
}

fn rdma(checks: &mut Checks, section: &RdmaSection) {
    checks.range("rdma.queue_pairs", section.queue_pairs, 1..=262_141, "");
    checks.range(
        "rdma.completion_queues",
        section.completion_queues,
        1..=524_285,
        "",
    );
    checks.range(
        "rdma.memory_regions",
        section.memory_regions,
        1..=8_388_607,
        "",
    );
    checks.range("rdma.pbles", section.pbles, 0..=536_870_911, "");
    checks.range(
        "rdma.address_handles",
        section.address_handles,
        1..=262_143,
        "",
    );
    checks.range("rdma.arp_entries", section.arp_entries, 1..=4_094, "");
    checks.range(
        "rdma.multicast_groups",
        section.multicast_groups,
        0..=4_095,
        "",
    );
    checks.range("rdma.event_queues", section.event_queues, 0..=1_024, "");
}

fn link(checks: &mut Checks, section: &LinkSection) {
    checks.range("link.mtu", section.mtu, 576..=MAX_MTU.into(), "bytes");
    checks.range("link.wait_ms", section.wait_ms, 0..=120_000, "ms");
}

fn network(checks: &mut Checks, section: &NetworkSection) {
    let count = section.addresses.len();
    checks.require(
        count <= ADDRESSES,
        "network.addresses",
        format_args!("{count} addresses"),
        "at most 64 are possible",
    );
    addresses_of_each_vlan(checks, section);
    for one in &section.addresses {
        if let Err(fault) = one.check() {
            checks.require(false, "network.addresses", one, &fault.to_string());
        }
    }
    for (at, one) in section.addresses.iter().enumerate() {
        let earlier = section.addresses.iter().take(at);
        let is_same = |other: &LocalAddress| (other.address, other.vlan) == (one.address, one.vlan);
        let is_new = !earlier.clone().any(is_same);
        checks.require(
            is_new,
            "network.addresses",
            one,
            "the address is listed twice; remove one",
        );
    }
    if let Some(name) = &section.host_interface {
        let quoted = format_args!("\"{name}\"");
        let key = "network.host_interface";
        checks.require(tap::is_name(name), key, quoted, tap::NAME_RULE);
    }
    gateways(checks, section);
}

fn gateways(checks: &mut Checks, section: &NetworkSection) {
    for (at, gateway) in section.gateways.iter().enumerate() {
        let earlier = section.gateways.iter().take(at);
        let same = earlier.filter(|other| other.is_ipv4() == gateway.is_ipv4());
        checks.require(
            same.count() == 0,
            "network.gateways",
            gateway,
            "at most one gateway of each IP version is possible; remove the others",
        );
        let is_end = nearest(&section.addresses, *gateway).is_some_and(|own| own.is_end(*gateway));
        checks.require(
            is_of_a_host(*gateway) && !is_end,
            "network.gateways",
            gateway,
            "no single station can have this address; name the router's own",
        );
        // The port has a link-local address without a VLAN, unless eight others take its place.
        let untagged = section.addresses.iter().filter(|own| own.vlan.is_none());
        let has_own = untagged.count() < ADDRESSES_OF_A_VLAN;
        let is_link_local = is_link_local(*gateway) && has_own;
        let near = |own: &LocalAddress| own.is_neighbour(*gateway);
        let is_near = is_link_local || section.addresses.iter().any(near);
        checks.require(
            is_near,
            "network.gateways",
            gateway,
            "no address of network.addresses is in the network of this gateway; add one, or correct the gateway",
        );
        let is_own = section.addresses.iter().any(|own| own.address == *gateway);
        checks.require(
            !is_own,
            "network.gateways",
            gateway,
            "this is an address of the port itself; name the router's",
        );
    }
}

/// Refuses more addresses on a VLAN than the stack answers for, once for each VLAN.
fn addresses_of_each_vlan(checks: &mut Checks, section: &NetworkSection) {
    let mut counts = BTreeMap::<_, usize>::new();
    for one in &section.addresses {
        *counts.entry(one.vlan).or_default() += 1;
    }
    for (vlan, count) in counts {
        let place = vlan.map_or("without a VLAN".to_owned(), |vlan| {
            format!("on VLAN {vlan}")
        });
        checks.require(
            count <= ADDRESSES_OF_A_VLAN,
            "network.addresses",
            format_args!("{count} addresses {place}"),
            "the port answers for at most 8 on each VLAN, and 8 without one; remove some, or move \
             them to another VLAN",
        );
    }
}

fn ddp(checks: &mut Checks, section: &DdpSection) {
    let folders = section.search.len();
    checks.require(
        folders <= SEARCH_FOLDERS,
        "ddp.search",
        format_args!("{folders} folders"),
        "at most 16 are searched",
    );
    for folder in section.search.iter().filter(|folder| !folder.is_absolute()) {
        checks.require(
            false,
            "ddp.search",
            folder.display(),
            "a folder must be an absolute path",
        );
    }
    let file = &section.file;
    let plain = file.is_absolute() || file.components().count() == 1;
    checks.require(
        plain && file.file_name().is_some(),
        "ddp.file",
        file.display(),
        "give a file name, or an absolute path",
    );
    checks.require(
        file.is_absolute() || !section.search.is_empty() || !section.require,
        "ddp.search",
        "[]",
        "a package is required, but no folder is searched and ddp.file is no absolute path",
    );
}

fn deadlines(checks: &mut Checks, section: &DeadlinesSection) {
    checks.range(
        "deadlines.admin_queue_ms",
        section.admin_queue_ms,
        1..=60_000,
        "ms",
    );
    checks.range(
        "deadlines.control_queue_ms",
        section.control_queue_ms,
        1..=60_000,
        "ms",
    );
    checks.range(
        "deadlines.resource_lock_ms",
        section.resource_lock_ms,
        1..=600_000,
        "ms",
    );
    checks.range("deadlines.quiesce_ms", section.quiesce_ms, 1..=60_000, "ms");
    checks.range(
        "deadlines.connect_ms",
        section.connect_ms,
        1..=600_000,
        "ms",
    );
}

fn housekeeping(checks: &mut Checks, section: &HousekeepingSection) {
    const MAX_MS: u64 = 3_600_000;
    if let Core::Pinned(core) = section.core {
        checks.range("housekeeping.core", core, CORES, "");
    }
    checks.range(
        "housekeeping.period_ms",
        section.period_ms,
        1..=60_000,
        "ms",
    );
    checks.range("housekeeping.probe_ms", section.probe_ms, 1..=MAX_MS, "ms");
    checks.range("housekeeping.retry_ms", section.retry_ms, 1..=MAX_MS, "ms");
}

fn worker(checks: &mut Checks, section: &WorkerSection) {
    for (index, &core) in section.cores.iter().enumerate() {
        checks.range("worker.cores", core, CORES, "");
        let before = section.cores.iter().take(index);
        checks.require(
            !before.into_iter().any(|&other| other == core),
            "worker.cores",
            core,
            "two workers would busy-poll on one core; name each core once",
        );
    }
    checks.range(
        "worker.poll_batch",
        section.poll_batch,
        1..=256,
        "completions",
    );
    checks.range("worker.inbox", section.inbox, 2..=65_536, "requests");
    checks.range("worker.idle_us", section.idle_us, 0..=1_000_000, "us");
    checks.range("worker.sleep_ms", section.sleep_ms, 1..=60_000, "ms");
}

fn model(checks: &mut Checks, section: &ModelSection) {
    checks.range(
        "model.functions",
        section.functions,
        1..=MAX_FUNCTIONS.into(),
        "",
    );
    if let Core::Pinned(core) = section.thread_core {
        checks.range("model.thread_core", core, CORES, "");
    }
}

fn between_sections(checks: &mut Checks, config: &Config) {
    let names_cores = !config.worker.cores.is_empty() || config.housekeeping.core != Core::Any;
    checks.require(
        !config.worker.bind_interrupts || names_cores,
        "worker.bind_interrupts",
        true,
        "no interrupt has a core to be bound to; name worker.cores or housekeeping.core",
    );
    let path_mtu = config.rdma.path_mtu.bytes();
    let needed = path_mtu + ROCE_OVERHEAD_BYTES;
    if config.link.mtu < needed {
        checks.fault(
            "link.mtu",
            format!(
                " = {}: rdma.path_mtu = {path_mtu} needs at least {needed} bytes; raise link.mtu \
                 or lower rdma.path_mtu",
                config.link.mtu
            ),
        );
    }
    if let DeviceAddress::Model(function) = config.device.address {
        let functions = config.model.functions;
        checks.require(
            u32::from(function) < functions,
            "device.address",
            &config.device.address,
            &format!("the model has model.functions = {functions}, counted from 0"),
        );
        if let Core::Pinned(core) = config.model.thread_core {
            checks.require(
                !config.worker.cores.contains(&core),
                "model.thread_core",
                core,
                "a worker polls on that core (worker.cores); the two would starve each other",
            );
        }
    }
}
