//! The state that a VSI of a port and its queues share: access to the device, and its
//! configuration.
//!
//! The port has the function's own VSI. A further one ([`Further`]) keeps the port open.

use super::clock::PortClock;
use super::counted::Counted;
use super::director::Director;
use super::error::PortError;
use super::hash_table::Spreading;
use super::hashing::Hashing;
use super::registry::{Place, PortRegistry, Registered, Taken, Wanted};
use super::settings::{MAX_QUEUES, PortSettings};
use super::tags::VlanStripping;
use super::tree::{QueueTree, TreePlace};
use crate::Registers;
use crate::admin::commands::{Capabilities, VlanMode};
use crate::admin::{AdminQueue, Loopback};
use crate::lan::vsi;
use ringside_bus::{DmaPool, Doorbell};
use ringside_lan::{QueueKind, Service};
use ringside_spec::lan::admin::link::PhyConfig;
use ringside_spec::lan::admin::switch::Resource;
use ringside_spec::lan::admin::vsi::{QUEUES_CONTIGUOUS, VsiProperties, VsiSections, kind};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
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
    pub(crate) switch_id: u16,
    pub(crate) vlan_mode: VlanMode,
    pub(crate) vsi: u16,
    pub(crate) mac: [u8; 6],
    /// the function's place in the scheduler's tree
    pub(crate) tree: TreePlace,
    /// packet type groups of the package's hash tables
    pub(crate) hash_groups: BTreeMap<u16, u8>,
    /// the same of its flow director tables
    pub(crate) filter_groups: BTreeMap<u16, u8>,
    /// the vector of the packet queues, where the function has one left for them
    pub(crate) vector: Option<u16>,
    /// vectors of receive queues that interrupt
    pub(crate) receive_vectors: Range<u16>,
    /// the time in which a queue has to stop
    pub(crate) quiesce: Duration,
}

/// The part of a VSI that the port's own does not have.
#[derive(Debug)]
pub(super) struct Further {
    /// the port, which stays open while the VSI exists
    pub(super) port: Arc<PortShared>,
    /// its place among the VSIs of the port, and its queues
    pub(super) taken: Taken,
    /// packets of other VSIs of the function
    pub(super) loopback: Loopback,
}

/// A group that parts of the program hold.
#[derive(Clone, Copy, Debug)]
pub(super) struct Held {
    /// the parts that hold it
    pub(super) users: usize,
    /// the program did not add it beside them
    pub(super) alone: bool,
}

/// The address of [`Port::set_address`](super::Port::set_address).
#[derive(Clone, Copy, Debug)]
pub(super) struct OwnAddress {
    pub(super) mac: [u8; 6],
    pub(super) rule: u16,
    /// the program added it as a further address, too: it stays one when the port gets another
    pub(super) is_added: bool,
}

/// A kind of frames, all of which one rule lets in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum FrameKind {
    /// Frames to single stations.
    Unicast,
    /// Frames to groups.
    Group,
}

/// The packets that a VSI lets in beside those to its addresses, as the program requested.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Modes {
    /// all packets of the wire
    pub(super) promiscuous: bool,
    /// all packets to groups
    pub(super) all_multicast: bool,
}

/// The configuration that a shutdown removes.
#[derive(Debug, Default)]
pub(super) struct Configured {
    /// groups of the scheduler that transmit queues go under
    pub(super) groups: Vec<u32>,
    /// queues that the device uses
    pub(super) running: BTreeSet<(QueueKind, u16)>,
    /// receive queues whose contexts were written
    pub(super) contexts: BTreeSet<u16>,
    /// requests that the next two rules follow from
    pub(super) modes: Modes,
    /// rules that let all frames of a kind in
    pub(super) promiscuous: BTreeMap<FrameKind, u16>,
    /// rules for further addresses
    pub(super) addresses: BTreeMap<[u8; 6], u16>,
    /// groups among them that parts of the program hold
    pub(super) held: BTreeMap<[u8; 6], Held>,
    /// the address that took the place of the function's own
    pub(super) own: Option<OwnAddress>,
    /// rules for VLANs
    pub(super) vlans: BTreeMap<u16, u16>,
    /// tags of received packets
    pub(super) vlan_stripping: VlanStripping,
    /// rules of a further VSI for its own address and for broadcast
    pub(super) own_rules: Vec<u16>,
    /// key and whole table that the device has
    pub(super) written: Option<Spreading>,
    /// key and table that the caller set
    pub(super) spreading: Option<Spreading>,
    /// settings of the PHY before the port changed them
    pub(super) found_phy: Option<PhyConfig>,
    /// the LED blinks
    pub(super) is_identified: bool,
    doorbells: Vec<Doorbell>,
    /// the shutdown has begun: nothing is started any more
    pub(super) closed: bool,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct PortShared {
    pub(super) registers: Registers,
    admin: Arc<AdminQueue>,
    pub(super) capabilities: Capabilities,
    /// of all VSIs of the port
    tree: Arc<Mutex<QueueTree>>,
    pub(super) switch_id: u16,
    pub(super) vlan_mode: VlanMode,
    pub(super) registry: Arc<PortRegistry>,
    /// kept until it is closed
    place: Arc<Place>,
    pub(super) pool: Arc<DmaPool>,
    pub(super) service: Arc<Service>,
    pub(super) function: u8,
    pub(super) port: u8,
    pub(super) vsi: u16,
    pub(super) mac: [u8; 6],
    pub(super) table_entries: usize,
    /// packet type groups of the package; none if its file is not known
    pub(super) hash_groups: BTreeMap<u16, u8>,
    pub(super) filter_groups: BTreeMap<u16, u8>,
    /// queues that the VSI makes: receive and transmit
    pub(super) queues: (usize, usize),
    /// the first of each, counted from the function's first
    pub(super) first: (u16, u16),
    /// `None`: this is the port's own VSI
    pub(super) further: Option<Further>,
    /// the function's first queues, as the device numbers them: receive and transmit
    pub(super) queues_first: (u32, u32),
    /// queues that the function has: receive and transmit
    pub(super) queues_max: (usize, usize),
    /// vector that has the device write descriptors back in time
    pub(super) vector: Option<u16>,
    /// vectors of receive queues that interrupt, of all VSIs
    pub(super) receive_vectors: Range<u16>,
    pub(super) quiesce: Duration,
    /// the timer that packets are stamped from, if they are
    pub(super) clock: OnceLock<PortClock>,
    configured: Mutex<Configured>,
    /// held while a queue is started or stopped, see [`PortShared::queue_turn`]
    pub(super) turn: Mutex<()>,
    pub(super) statistics: Mutex<Counted>,
    /// profiles of the hash
    pub(super) hashing: Mutex<Hashing>,
    /// rules, and the queues that program them
    pub(super) director: Mutex<Director>,
    /// profiles and rows of the port and its VSIs that the firmware did not take back
    pub(super) unfreed: Mutex<Vec<(Resource, u16)>>,
}

impl PortShared {
    pub(super) fn open(parts: PortParts, settings: &PortSettings) -> Result<Arc<Self>, PortError> {
        let capabilities = &parts.capabilities;
        check_limits(capabilities, settings)?;
        let registry = Arc::clone(&parts.registry);
        let opening = registry.open_port()?;
        let admin = parts.admin;
        // The firmware did not take it back from an earlier port.
        registry.return_address(|own| admin.write_mac(own))?;
        let tree = Arc::new(Mutex::new(QueueTree::new(parts.tree, &admin)?));
        // One more queue: that of the rules.
        let configured = groups_for(&tree, settings.transmit_queues + 1, &admin)?;
        let shared = Arc::new(Self {
            table_entries: capabilities.hash_table_entries as usize,
            queues_first: (
                capabilities.receive_queues.first,
                capabilities.transmit_queues.first,
            ),
            queues_max: (
                capabilities.receive_queues.count as usize,
                capabilities.transmit_queues.count as usize,
            ),
            capabilities: parts.capabilities,
            tree,
            switch_id: parts.switch_id,
            vlan_mode: parts.vlan_mode,
            registers: parts.registers.gated(),
            registry: parts.registry,
            place: Arc::default(),
            pool: parts.pool,
            service: Service::new(),
            function: parts.function,
            port: parts.port,
            vsi: parts.vsi,
            mac: parts.mac,
            hash_groups: parts.hash_groups,
            filter_groups: parts.filter_groups,
            queues: (settings.receive_queues, settings.transmit_queues),
            first: (0, 0),
            further: None,
            hashing: Mutex::default(),
            director: Mutex::default(),
            unfreed: Mutex::default(),
            vector: parts.vector,
            receive_vectors: parts.receive_vectors,
            quiesce: parts.quiesce,
            clock: OnceLock::new(),
            configured: Mutex::new(configured),
            turn: Mutex::default(),
            statistics: Mutex::default(),
            admin,
        });
        shared.start_statistics()?;
        shared.open_vector()?;
        opening.opened(&shared, &shared.place);
        Ok(shared)
    }

    /// Adds a VSI to the function of this port, with a group for its transmit queues.
    pub(super) fn add_vsi(
        self: &Arc<Self>,
        mac: [u8; 6],
        loopback: Loopback,
        settings: &PortSettings,
    ) -> Result<Arc<Self>, PortError> {
        self.check_open()?;
        let taken = self.take(settings)?;
        let made = self.make_vsi(&taken, loopback, settings.transmit_queues);
        if made.is_err() {
            self.registry.give(&taken);
        }
        let (vsi, configured) = made?;
        let shared = Arc::new(Self {
            registers: self.registers.clone(),
            admin: Arc::clone(&self.admin),
            capabilities: self.capabilities.clone(),
            tree: Arc::clone(&self.tree),
            switch_id: self.switch_id,
            vlan_mode: self.vlan_mode,
            registry: Arc::clone(&self.registry),
            place: Arc::clone(&self.place),
            pool: Arc::clone(&self.pool),
            service: Service::new(),
            function: self.function,
            port: self.port,
            vsi,
            mac,
            table_entries: self.table_entries,
            hash_groups: self.hash_groups.clone(),
            filter_groups: self.filter_groups.clone(),
            queues: (settings.receive_queues, settings.transmit_queues),
            first: (taken.receive.start, taken.transmit.start),
            queues_first: self.queues_first,
            queues_max: self.queues_max,
            vector: self.vector,
            receive_vectors: self.receive_vectors.clone(),
            quiesce: self.quiesce,
            clock: OnceLock::new(),
            configured: Mutex::new(configured),
            turn: Mutex::default(),
            statistics: Mutex::default(),
            hashing: Mutex::default(),
            director: Mutex::default(),
            unfreed: Mutex::default(),
            further: Some(Further {
                port: Arc::clone(self),
                taken: taken.clone(),
                loopback,
            }),
        });
        self.registry.added(taken, vsi, &shared);
        // A shutdown that has begun by now may not have seen the VSI; a later one sees it.
        self.check_open()?;
        shared.start_statistics()?;
        Ok(shared)
    }

    /// Refuses a VSI of a port that is being shut down.
    fn check_open(&self) -> Result<(), PortError> {
        match self.configured().closed {
            true => Err(PortError::OutOfService),
            false => Ok(()),
        }
    }

    /// Takes queues beside those of this port; the next one of each kind stays free for its rules.
    fn take(&self, settings: &PortSettings) -> Result<Taken, PortError> {
        let receive = Wanted {
            among: self.queues.0 + 1..self.queues_max.0,
            count: settings.receive_queues,
        };
        let transmit = Wanted {
            among: self.queues.1 + 1..self.queues_max.1,
            count: settings.transmit_queues,
        };
        let vsis_max = self.capabilities.vsis as usize;
        self.registry.take(vsis_max, receive, transmit)
    }

    /// Adds a VSI, and groups for its transmit queues; returns its number and the record of the
    /// groups.
    fn make_vsi(
        &self,
        taken: &Taken,
        loopback: Loopback,
        transmit_queues: usize,
    ) -> Result<(u16, Configured), PortError> {
        let admin = self.admin()?;
        let queues = taken.receive.clone();
        let properties = vsi::further_properties(self.switch_id, self.vlan_mode, queues, loopback);
        let configured = groups_for(&self.tree, transmit_queues, admin)?;
        match admin.add_vsi(kind::VIRTUAL_MACHINE, &properties) {
            Ok(vsi) => Ok((vsi, configured)),
            Err(error) => {
                delete_groups(&self.tree, configured.groups, admin);
                Err(error.into())
            }
        }
    }

    /// The group of a transmit queue, counted from the function's first. Each group has the same
    /// number of a VSI's queues, or one more: groups share the bandwidth equally.
    pub(super) fn group_of(&self, queue: u16) -> Option<u32> {
        let place = usize::from(queue.saturating_sub(self.first.1));
        let groups = &self.configured().groups;
        groups.get(place.checked_rem(groups.len())?).copied()
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

    /// Tells the VSI which receive queues it has: `count` from its first on.
    pub(super) fn map_queues(&self, count: usize) -> Result<(), PortError> {
        let mut properties = VsiProperties {
            valid_sections: VsiSections::ZERO.with_receive_queue_map(true).0.into(),
            mapping_flags: QUEUES_CONTIGUOUS.into(),
            ..VsiProperties::zeroed()
        };
        let (first, _) = self.first;
        vsi::map_queues(&mut properties, first..first + count as u16);
        Ok(self.admin()?.update_vsi(self.vsi, &properties)?)
    }

    /// The way of packets that other VSIs of the function send to this one.
    pub(super) fn loopback(&self) -> Loopback {
        let further = self.further.as_ref();
        further.map_or(Loopback::Allowed, |further| further.loopback)
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
        if blinks && let Err(error) = self.admin.set_port_led(false) {
            tracing::warn!(%error, "the LED of the port goes on blinking");
        }
    }

    /// Frees a further VSI. Its queues have stopped; their numbers may be used again afterwards.
    fn free_vsi(&self) {
        let Some(further) = &self.further else {
            return;
        };
        match self.admin.free_vsi(self.vsi) {
            Ok(()) => self.registry.give(&further.taken),
            Err(error) => {
                tracing::warn!(%error, vsi = self.vsi, "a VSI stays until the next reset");
            }
        }
    }
}

impl PortShared {
    /// Ends the use of the queues: their owners see it, and their doorbells reach no device.
    fn end_service(&self) {
        self.service.fail();
        self.registry.vectors.end(self.vsi);
        for doorbell in &self.configured().doorbells {
            if let Err(error) = doorbell.retire() {
                tracing::error!(%error, "a doorbell of a packet queue stays in service");
            }
        }
    }
}

impl Registered for PortShared {
    fn service(&self) -> &Arc<Service> {
        &self.service
    }

    fn registers(&self) -> &Registers {
        &self.registers
    }

    fn cut_off(&self) {
        self.end_service();
        // A thread that opens, changes or closes the port must not write during a reset.
        self.registers.close();
    }

    fn shut_down(&self) {
        {
            // A queue that is being started is among the running ones afterwards.
            let _turn = self.queue_turn();
            if std::mem::replace(&mut self.configured().closed, true) {
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
        self.free_last();
        self.registry.vectors.close(self.vsi);
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
        if self.further.is_none() {
            self.restore_phy();
            if let Err(error) = self.map_queues(1) {
                tracing::warn!(%error, "the VSI keeps its packet queues");
            }
            self.close_vector();
        }
        self.end_service();
        if quiet {
            self.clear_contexts();
            self.service.release();
            let groups = std::mem::take(&mut self.configured().groups);
            delete_groups(&self.tree, groups, &self.admin);
            self.free_vsi();
        }
    }

    fn refresh_clock(&self) {
        if let Some(clock) = self.clock.get()
            && self.service.in_service()
            && let Err(error) = clock.read(&self.registers)
        {
            tracing::debug!(%error, "the device's time was not read");
        }
    }

    fn sample_counters(&self) -> bool {
        let sampled = self.sample();
        if let Err(error) = &sampled {
            tracing::debug!(%error, "the counters were not read");
        }
        sampled.is_ok()
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

/// Adds groups for so many transmit queues of a VSI; they are recorded.
fn groups_for(
    tree: &Mutex<QueueTree>,
    queues: usize,
    admin: &AdminQueue,
) -> Result<Configured, PortError> {
    let mut configured = Configured::default();
    let wanted = locked(tree).groups_for(queues);
    for _ in 0..wanted {
        let added = locked(tree).add_group(admin);
        match added {
            Ok(group) => configured.groups.push(group),
            Err(error) => {
                delete_groups(tree, configured.groups, admin);
                return Err(error);
            }
        }
    }
    Ok(configured)
}

/// Deletes groups whose queues are gone, the last one first.
fn delete_groups(tree: &Mutex<QueueTree>, groups: Vec<u32>, admin: &AdminQueue) {
    for group in groups.into_iter().rev() {
        locked(tree).delete_group(group, admin);
    }
}

fn locked(tree: &Mutex<QueueTree>) -> MutexGuard<'_, QueueTree> {
    tree.lock().unwrap_or_else(PoisonError::into_inner)
}
