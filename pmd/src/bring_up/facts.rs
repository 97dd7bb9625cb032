//! The facts that the stages found out about the device.

use crate::admin::commands::{
    Capabilities, FirmwareVersion, LinkState, SchedulerLimits, SwitchPort, VlanMode,
};
use crate::ddp::PackageFacts;
use ringside_hmc::Layout;
use ringside_spec::rdma::features::Features;
use ringside_spec::rdma::fpm::ObjectType;
use serde::Serialize;
use std::net::IpAddr;

/// The identity of the device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Identity {
    /// PCI vendor id.
    pub vendor: u16,
    /// PCI device id.
    pub device: u16,
    /// Subsystem vendor id.
    pub subsystem_vendor: u16,
    /// Subsystem id.
    pub subsystem: u16,
    /// PCI revision.
    pub revision: u8,
    /// Name of the part.
    pub name: &'static str,
    /// Device serial number, the same for all functions of a card.
    pub serial_number: Option<u64>,
    /// Number of the physical function, 0..=7; known once memory space is on.
    pub function: Option<u8>,
    /// Bytes of BAR 0.
    pub bar_bytes: u64,
}

/// The connection of the function.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Bus {
    /// Link as negotiated, such as `16 GT/s x16`; `None` where there is no such link.
    pub link: Option<String>,
    /// Link that the card could have.
    pub best_link: Option<String>,
    /// Interrupt vectors in the MSI-X table.
    pub vectors: u16,
}

/// The function's place in the scheduler's tree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SchedulerTree {
    /// Limits of the tree.
    pub limits: SchedulerLimits,
    /// Node of the port.
    pub port_node: u32,
    /// Node of traffic class 0.
    pub class_node: u32,
    /// Layer at which the driver's nodes begin, counted from the root's 0.
    pub entry_layer: u8,
    /// Node that RDMA queue sets go under; `None` until stage `rdma-nodes`.
    pub rdma_group_node: Option<u32>,
}

/// The facts found by the RDMA stages.
#[derive(Clone, Debug, Default)]
pub struct RdmaFacts {
    /// The numbers of objects that were requested and granted, and their places.
    pub layout: Option<Layout>,
    /// Completion event queues that the engine has.
    pub event_queues: u16,
    /// Versions that the engine reports.
    pub features: Option<Features>,
    /// Handle of the queue set that all queue pairs send through.
    pub queue_set_handle: Option<u16>,
    /// IP addresses that queue pairs may send from.
    pub addresses: Vec<IpAddr>,
}

/// The known facts about the device; a field is `None` until its stage has run.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// The identity of the device (stage `claim`).
    pub identity: Option<Identity>,
    /// Its connection (stage `config-space`).
    pub bus: Option<Bus>,
    /// Its firmware (stage `admin-queue`).
    pub firmware: Option<FirmwareVersion>,
    /// Its capabilities (stage `capabilities`).
    pub capabilities: Option<Capabilities>,
    /// Its own MAC address (stage `mac-address`).
    pub mac: Option<[u8; 6]>,
    /// Its port and switch (stage `switch-config`).
    pub switch: Option<SwitchPort>,
    /// Its place in the scheduler's tree (stage `scheduler`).
    pub scheduler: Option<SchedulerTree>,
    /// Its package (stage `ddp-package`).
    pub package: Option<PackageFacts>,
    /// The VLAN mode of the card (stage `port-params`).
    pub vlan_mode: VlanMode,
    /// Number of its VSI (stage `vsi`).
    pub vsi: Option<u16>,
    /// Its link (stage `link`, and later events).
    pub link: Option<LinkState>,
    /// The PHY could not be configured for lack of a module: that is done when one comes.
    pub phy_waits_for_module: bool,
    /// The reason why this device offers no RDMA (safe mode, or no such capability); `None` if it
    /// does.
    pub rdma_unavailable: Option<String>,
    /// The facts found by the RDMA stages.
    pub rdma: RdmaFacts,
}

impl RdmaFacts {
    /// The version of the engine's firmware, as Linux's irdma reports it: "MAJOR.MINOR". `None`
    /// before the stage that asks for it.
    #[must_use]
    pub fn firmware_version(&self) -> Option<String> {
        let firmware = self.features.as_ref()?.firmware;
        Some(format!("{}.{}", firmware.major(), firmware.minor()))
    }

    /// The number of objects of a kind that the device granted; 0 before the stage `rdma-sizing`.
    pub(super) fn granted(&self, object: ObjectType) -> u32 {
        let layout = self.layout.as_ref();
        layout.map_or(0, |layout| layout.count(object))
    }
}

/// A part that an earlier stage should have left and did not: a bug of this driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} is missing: stage {stage} has to run first; this is a bug of the driver")]
pub struct Missing {
    /// The part.
    pub what: &'static str,
    /// The stage that provides it.
    pub stage: &'static str,
}

/// `part`, or the stage that should have left it.
pub(super) fn require<T>(
    part: Option<T>,
    what: &'static str,
    stage: &'static str,
) -> Result<T, Missing> {
    part.ok_or(Missing { what, stage })
}

impl Facts {
    /// The identity of the device.
    pub fn identity(&self) -> Result<&Identity, Missing> {
        require(self.identity.as_ref(), "the identity", "claim")
    }

    /// Its abilities.
    pub fn capabilities(&self) -> Result<&Capabilities, Missing> {
        require(
            self.capabilities.as_ref(),
            "the capabilities",
            "capabilities",
        )
    }

    /// Its own MAC address.
    pub fn mac(&self) -> Result<[u8; 6], Missing> {
        require(self.mac, "the MAC address", "mac-address")
    }

    /// Its port and switch.
    pub fn switch(&self) -> Result<SwitchPort, Missing> {
        require(self.switch, "the port", "switch-config")
    }

    /// Its place in the scheduler's tree.
    pub fn scheduler(&self) -> Result<&SchedulerTree, Missing> {
        require(self.scheduler.as_ref(), "the scheduler's tree", "scheduler")
    }

    /// Number of its VSI.
    pub fn vsi(&self) -> Result<u16, Missing> {
        require(self.vsi, "the VSI", "vsi")
    }

    /// Number of the physical function.
    pub fn function_number(&self) -> Result<u8, Missing> {
        require(
            self.identity()?.function,
            "the function's number",
            "config-space",
        )
    }

    /// The node that RDMA queue sets go under.
    pub fn rdma_group_node(&self) -> Result<u32, Missing> {
        require(
            self.scheduler()?.rdma_group_node,
            "the RDMA queue group",
            "rdma-nodes",
        )
    }
}
