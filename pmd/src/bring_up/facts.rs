//! The facts that the stages found out about the device.

use super::StageError;
use crate::admin::commands::{
    Capabilities, FirmwareVersion, LinkState, SchedulerLimits, SwitchPort,
};
use crate::bring_up::stages::rdma_state::RdmaFacts;
use crate::ddp::PackageFacts;
use serde::Serialize;

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
    /// Number of its VSI (stage `vsi`).
    pub vsi: Option<u16>,
    /// Its link (stage `link`, and later events).
    pub link: Option<LinkState>,
    /// Why this device offers no RDMA (safe mode, or no such capability); `None`: it does.
    pub rdma_unavailable: Option<String>,
    /// The facts found by the RDMA stages.
    pub rdma: RdmaFacts,
}

fn require<'a, T>(
    fact: &'a Option<T>,
    missing: &'static str,
    stage: &'static str,
) -> Result<&'a T, StageError> {
    fact.as_ref()
        .ok_or(StageError::OutOfOrder { missing, stage })
}

impl Facts {
    /// The identity of the device.
    pub fn identity(&self) -> Result<&Identity, StageError> {
        require(&self.identity, "the identity", "claim")
    }

    /// Its abilities.
    pub fn capabilities(&self) -> Result<&Capabilities, StageError> {
        require(&self.capabilities, "the capabilities", "capabilities")
    }

    /// Its own MAC address.
    pub fn mac(&self) -> Result<[u8; 6], StageError> {
        require(&self.mac, "the MAC address", "mac-address").copied()
    }

    /// Its port and switch.
    pub fn switch(&self) -> Result<SwitchPort, StageError> {
        require(&self.switch, "the port", "switch-config").copied()
    }

    /// Its place in the scheduler's tree.
    pub fn scheduler(&self) -> Result<&SchedulerTree, StageError> {
        require(&self.scheduler, "the scheduler's tree", "scheduler")
    }

    /// Number of its VSI.
    pub fn vsi(&self) -> Result<u16, StageError> {
        require(&self.vsi, "the VSI", "vsi").copied()
    }

    /// Number of the physical function.
    pub fn function_number(&self) -> Result<u8, StageError> {
        require(
            &self.identity()?.function,
            "the function's number",
            "config-space",
        )
        .copied()
    }

    /// The node that RDMA queue sets go under.
    pub fn rdma_group_node(&self) -> Result<u32, StageError> {
        require(
            &self.scheduler()?.rdma_group_node,
            "the RDMA queue group",
            "rdma-nodes",
        )
        .copied()
    }
}
