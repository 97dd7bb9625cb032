//! The state that a port and its queues share: access to the device, and its configuration.

use super::clock::PortClock;
use super::counted::Counted;
use super::director::Director;
use super::kinds::{FlowKind, Programmed};
use super::{MAX_QUEUES, PortError, PortSettings};
use crate::Registers;
use crate::admin::AdminQueue;
use crate::admin::commands::Capabilities;
use ringside_bus::{DmaPool, Doorbell};
use ringside_lan::{QueueKind, Service};
use ringside_spec::lan::admin::link::PhyConfig;
use ringside_spec::lan::admin::vsi::{ClassMapping, QUEUES_CONTIGUOUS, VsiProperties, VsiSections};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

/// The register that a queue's doorbell is.
const BAR: u8 = 0;

/// The parts of a device that a port uses, all of them results of its bring-up.
pub(crate) struct PortParts {
    pub(crate) registers: Registers,
    pub(crate) admin: Arc<AdminQueue>,
    pub(crate) pool: Arc<DmaPool>,
    pub(crate) registry: Arc<PortRegistry>,
    pub(crate) capabilities: Capabilities,
    /// number of the function
    pub(crate) function: u8,
    /// number of the logical port
    pub(crate) port: u8,
    pub(crate) vsi: u16,
    pub(crate) mac: [u8; 6],
    pub(crate) place: GroupPlace,
    /// packet type groups of the package's hash tables
    pub(crate) hash_groups: BTreeMap<u16, u8>,
    /// the same of its flow director tables
    pub(crate) filter_groups: BTreeMap<u16, u8>,
    /// the vector of the packet queues, where the function has one left for them
    pub(crate) vector: Option<u16>,
    /// the time in which a queue has to stop
    pub(crate) quiesce: Duration,
}

/// The place of the transmit queues' group in the scheduler's tree.
#[derive(Clone, Copy, Debug)]
pub(crate) enum GroupPlace {
    /// Beside the group of the RDMA queue sets.
    Beside {
        /// that group
        group: u32,
    },
    /// The queue is at the end of a branch of its own.
    Below {
        /// node of the traffic class, which the branch begins under
        class_node: u32,
        /// layer of the branch's first node
        entry_layer: u8,
        /// layers of the tree
        layers: u8,
    },
}

/// The open port of a device, if any, and leftovers of earlier ones.
#[derive(Debug, Default)]
pub(crate) struct PortRegistry {
    ports: Mutex<Ports>,
    /// the function's own address, while a port has put another in its place
    own_address: Mutex<Option<[u8; 6]>>,
}

#[derive(Debug, Default)]
struct Ports {
    open: Weak<PortShared>,
    /// of this port and of earlier ones, whose queues may have left buffers to the device
    services: Vec<Arc<Service>>,
}

impl PortRegistry {
    fn ports(&self) -> MutexGuard<'_, Ports> {
        self.ports.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn open(&self) -> Option<Arc<PortShared>> {
        self.ports().open.upgrade()
    }

    /// Notes the function's own address before a port changes it; `None`: it has it back.
    pub(super) fn note_address(&self, own: Option<[u8; 6]>) {
        *self.own_address() = own;
    }

    fn own_address(&self) -> MutexGuard<'_, Option<[u8; 6]>> {
        let address = self.own_address.lock();
        address.unwrap_or_else(PoisonError::into_inner)
    }

    /// The device failed: its queues do nothing more.
    pub(crate) fn fail(&self) {
        if let Some(port) = self.open() {
            port.cut_off();
        }
    }

    /// The function was reset, and that was confirmed: every packet goes back.
    pub(crate) fn release(&self) {
        if let Some(port) = self.open() {
            port.cut_off();
        }
        let services = std::mem::take(&mut self.ports().services);
        for service in services {
            service.release();
        }
    }

    /// Reads the device's clock for the port's time stamps, if it has any.
    pub(crate) fn refresh_clock(&self) {
        if let Some(port) = self.open()
            && let Some(clock) = port.clock.get()
            && port.service.in_service()
            && let Err(error) = clock.read(&port.registers)
        {
            tracing::debug!(%error, "the device's time was not read");
        }
    }

    /// The device is being shut down: the port's queues are stopped, its rules removed.
    pub(crate) fn shut_down(&self) {
        if let Some(port) = self.open() {
            port.shut_down();
        }
    }
}

/// The configuration that a shutdown removes.
#[derive(Debug, Default)]
pub(super) struct Configured {
    /// nodes of the scheduler with their parents, in the order in which they were added
    pub(super) nodes: Vec<(u32, u32)>,
    /// queues that the device uses
    pub(super) running: BTreeSet<(QueueKind, u16)>,
    /// receive queues whose contexts were written
    pub(super) contexts: BTreeSet<u16>,
    /// rules for all frames to single stations, and to groups
    pub(super) promiscuous: BTreeMap<bool, u16>,
    /// rules for further addresses
    pub(super) addresses: BTreeMap<[u8; 6], u16>,
    /// the address that took the place of the function's own, and its rule
    pub(super) own: Option<([u8; 6], u16)>,
    /// rules for VLANs
    pub(super) vlans: BTreeMap<u16, u16>,
    /// list of VSIs that those rules name
    pub(super) prune_list: Option<u16>,
    /// profiles and rows of the hash
    pub(super) hashes: BTreeMap<FlowKind, Programmed>,
    /// profiles of the hash that others have replaced
    pub(super) freed_profiles: Vec<u16>,
    /// the VSI is in its own group of hash profiles
    pub(super) is_hashed: bool,
    /// both directions of a flow have one hash
    pub(super) is_symmetric: bool,
    /// settings of the PHY before the port changed them
    pub(super) found_phy: Option<PhyConfig>,
    /// the LED blinks
    pub(super) is_identified: bool,
    doorbells: Vec<Doorbell>,
    closed: bool,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct PortShared {
    pub(super) registers: Registers,
    admin: Arc<AdminQueue>,
    pub(super) registry: Arc<PortRegistry>,
    pub(super) pool: Arc<DmaPool>,
    pub(super) service: Arc<Service>,
    pub(super) function: u8,
    pub(super) port: u8,
    pub(super) vsi: u16,
    pub(super) mac: [u8; 6],
    /// node that transmit queues go under
    pub(super) group: u32,
    pub(super) table_entries: usize,
    /// packet type groups of the package; none if its file is not known
    pub(super) hash_groups: BTreeMap<u16, u8>,
    pub(super) filter_groups: BTreeMap<u16, u8>,
    /// queues that the port makes: receive and transmit
    pub(super) queues: (usize, usize),
    /// the function's first queues, as the device numbers them: receive and transmit
    pub(super) queues_first: (u32, u32),
    /// queues that the function has: receive and transmit
    pub(super) queues_max: (usize, usize),
    /// vector that has the device write descriptors back in time
    pub(super) vector: Option<u16>,
    pub(super) quiesce: Duration,
    /// the timer that packets are stamped from, if they are
    pub(super) clock: OnceLock<PortClock>,
    configured: Mutex<Configured>,
    pub(super) statistics: Mutex<Counted>,
    /// rules, and the queues that program them
    pub(super) director: Mutex<Director>,
}

impl PortShared {
    pub(super) fn open(parts: PortParts, settings: &PortSettings) -> Result<Arc<Self>, PortError> {
        let capabilities = &parts.capabilities;
        check_limits(capabilities, settings)?;
        let registry = Arc::clone(&parts.registry);
        let mut ports = registry.ports();
        let in_service = |port: &Arc<Self>| port.service.in_service();
        if ports.open.upgrade().as_ref().is_some_and(in_service) {
            return Err(PortError::AlreadyOpen);
        }
        let admin = parts.admin;
        // A reset came before an earlier port could give the address back.
        let own_address = *registry.own_address();
        if let Some(own) = own_address {
            admin.write_mac(own)?;
            registry.note_address(None);
        }
        let mut configured = Configured::default();
        let group = match add_group(parts.place, &admin, &mut configured) {
            Ok(group) => group,
            Err(error) => {
                delete_nodes(&admin, &mut configured);
                return Err(error);
            }
        };
        let shared = Arc::new(Self {
            registers: parts.registers,
            registry: parts.registry,
            pool: parts.pool,
            service: Service::new(),
            function: parts.function,
            port: parts.port,
            vsi: parts.vsi,
            mac: parts.mac,
            group,
            table_entries: capabilities.hash_table_entries as usize,
            hash_groups: parts.hash_groups,
            filter_groups: parts.filter_groups,
            queues: (settings.receive_queues, settings.transmit_queues),
            queues_first: (
                capabilities.receive_queues.first,
                capabilities.transmit_queues.first,
            ),
            queues_max: (
                capabilities.receive_queues.count as usize,
                capabilities.transmit_queues.count as usize,
            ),
            director: Mutex::default(),
            vector: parts.vector,
            quiesce: parts.quiesce,
            clock: OnceLock::new(),
            configured: Mutex::new(configured),
            statistics: Mutex::default(),
            admin,
        });
        shared.start_statistics()?;
        shared.open_vector()?;
        ports.open = Arc::downgrade(&shared);
        ports
            .services
            .retain(|service| Arc::strong_count(service) > 1 || service.kept_buffers() > 0);
        ports.services.push(Arc::clone(&shared.service));
        Ok(shared)
    }

    pub(super) fn configured(&self) -> MutexGuard<'_, Configured> {
        self.configured
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// The way to the firmware, while the device is in service.
    pub(super) fn admin(&self) -> Result<&AdminQueue, PortError> {
        if self.service.in_service() {
            Ok(&self.admin)
        } else {
            Err(PortError::OutOfService)
        }
    }

    pub(super) fn doorbell(&self, offset: u64) -> Result<Doorbell, PortError> {
        let function = Arc::clone(self.registers.function());
        let doorbell = function.doorbell(BAR, offset)?;
        self.configured().doorbells.push(doorbell.clone());
        Ok(doorbell)
    }

    /// Tells the VSI which receive queues it has: `count` from the first on.
    pub(super) fn map_queues(&self, count: usize) -> Result<(), PortError> {
        let mut properties = VsiProperties {
            valid_sections: VsiSections::ZERO.with_receive_queue_map(true).0.into(),
            mapping_flags: QUEUES_CONTIGUOUS.into(),
            ..VsiProperties::zeroed()
        };
        let [first, number, ..] = &mut properties.queue_mapping;
        *first = 0.into();
        *number = (count as u16).into();
        let [class, ..] = &mut properties.class_mapping;
        let log2 = count.next_power_of_two().trailing_zeros() as u16;
        *class = ClassMapping::ZERO.with_count_log2(log2).0.into();
        Ok(self.admin()?.update_vsi(self.vsi, &properties)?)
    }

    /// Takes the queues out of service and retires their doorbells.
    fn cut_off(&self) {
        self.service.fail();
        for doorbell in &self.configured().doorbells {
            if let Err(error) = doorbell.retire() {
                tracing::error!(%error, "a doorbell of a packet queue stays in service");
            }
        }
    }

    /// Takes back what was asked of PHY and LED.
    fn restore_phy(&self) {
        let (found, blinks) = {
            let mut configured = self.configured();
            let blinks = std::mem::take(&mut configured.is_identified);
            (configured.found_phy.take(), blinks)
        };
        if let Some(found) = found
            && let Err(error) = self.admin.set_phy_config(self.port, &found)
        {
            tracing::warn!(%error, "the PHY keeps the settings of this port");
        }
        if blinks && let Err(error) = self.admin.set_port_led(self.port, false) {
            tracing::warn!(%error, "the LED of the port goes on blinking");
        }
    }

    /// Takes everything back that was configured; once.
    fn shut_down(&self) {
        {
            let mut configured = self.configured();
            if std::mem::replace(&mut configured.closed, true) {
                return;
            }
        }
        if !self.service.in_service() {
            return;
        }
        self.restore_address();
        self.remove_filters();
        self.remove_rules();
        self.remove_hashes();
        let running: Vec<_> = self.configured().running.iter().copied().collect();
        let mut quiet = true;
        for (kind, number) in running {
            let stopped = match kind {
                QueueKind::Receive => self.disable_receive(number),
                QueueKind::Transmit => self.disable_transmit(number),
            };
            if let Err(error) = stopped {
                tracing::error!(%error, "a packet queue did not stop");
                quiet = false;
            }
        }
        self.restore_phy();
        if let Err(error) = self.map_queues(1) {
            tracing::warn!(%error, "the VSI keeps its packet queues");
        }
        self.close_vector();
        self.cut_off();
        if quiet {
            self.clear_contexts();
            self.service.release();
            delete_nodes(&self.admin, &mut self.configured());
        }
    }
}

impl Drop for PortShared {
    /// Runs when the port and all its queues were dropped. In a child by fork the port is the
    /// parent's.
    fn drop(&mut self) {
        if self.pool.is_elsewhere() {
            return;
        }
        self.shut_down();
    }
}

/// Refuses more queues than the function has.
fn check_limits(capabilities: &Capabilities, settings: &PortSettings) -> Result<(), PortError> {
    let limits = [
        (
            "receive queues",
            settings.receive_queues,
            &capabilities.receive_queues,
        ),
        (
            "transmit queues",
            settings.transmit_queues,
            &capabilities.transmit_queues,
        ),
    ];
    for (what, wanted, range) in limits {
        let limit = MAX_QUEUES.min(range.count as usize);
        if wanted > limit {
            return Err(PortError::TooMany {
                what,
                wanted,
                limit,
            });
        }
    }
    Ok(())
}

/// Layers from a queue group to the end of the tree, the queues included.
const LAYERS_BELOW: u8 = 2;

/// Adds a group for transmit queues at `place`.
fn add_group(
    place: GroupPlace,
    admin: &AdminQueue,
    configured: &mut Configured,
) -> Result<u32, PortError> {
    let mut add = |parent| -> Result<u32, PortError> {
        let node = admin.add_node(parent)?;
        configured.nodes.push((parent, node));
        Ok(node)
    };
    match place {
        GroupPlace::Beside { group } => add(admin.query_node(group)?.parent.get()),
        GroupPlace::Below {
            class_node,
            entry_layer,
            layers,
        } => {
            let mut node = class_node;
            for _ in entry_layer..=layers - LAYERS_BELOW {
                node = add(node)?;
            }
            Ok(node)
        }
    }
}

fn delete_nodes(admin: &AdminQueue, configured: &mut Configured) {
    while let Some((parent, node)) = configured.nodes.pop() {
        if let Err(error) = admin.delete_node(parent, node) {
            tracing::warn!(%error, node, "a scheduler node stays until the next reset");
        }
    }
}
