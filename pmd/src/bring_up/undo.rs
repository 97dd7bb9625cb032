//! Undo as data: one value for each effect.

use crate::rdma::address::MacAddress;
use ringside_spec::lan::admin::link::PhyConfig;
use std::fmt;

/// Takes one effect back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Undo {
    /// Writes the command register of configuration space as it was found.
    RestoreCommand {
        /// The value before bring-up.
        found: u16,
    },
    /// Unmaps and frees the DMA memory; leaks it unless the device's DMA has certainly stopped.
    CloseDmaPool,
    /// Takes bus mastering away and reads back that it is off.
    DisableBusMastering,
    /// Writes a register as it was found.
    RestoreRegister {
        /// Bytes from the beginning of BAR 0.
        offset: u64,
        /// The value before bring-up.
        found: u32,
    },
    /// Resets the physical function.
    ResetFunction,
    /// Says goodbye to the firmware and zeroes the registers of both rings.
    ShutDownAdminQueue,
    /// Clears the function's configuration in the firmware.
    ClearFunctionConfig,
    /// Releases a shared resource.
    ReleaseResource {
        /// The resource.
        resource: u16,
    },
    /// Sets the MAC's largest frame as it was found.
    RestoreFrameSize {
        /// Bytes.
        found: u16,
    },
    /// Frees a VSI; its number is unknown until the firmware gave it.
    FreeVsi {
        /// Its number.
        number: Option<u16>,
    },
    /// Removes a filter for a MAC address.
    RemoveMacRule {
        /// VSI that the rule delivers to.
        vsi: u16,
        /// The address.
        mac: [u8; 6],
        /// Number of the rule, unknown until the firmware gave it.
        rule: Option<u16>,
    },
    /// Disables the RDMA filters of a VSI.
    DisableRdmaFilters {
        /// Its number.
        vsi: u16,
    },
    /// Deletes a node of the scheduler's tree.
    DeleteNode {
        /// Its parent.
        parent: u32,
        /// Its id, unknown until the firmware gave it.
        node: Option<u32>,
    },
    /// Takes an RDMA queue set out of the scheduler's tree.
    RemoveRdmaQueueSet {
        /// Node that it is under.
        parent: u32,
        /// Its number.
        queue_set: u16,
    },
    /// Masks all link events.
    MaskLinkEvents {
        /// Logical port.
        port: u8,
    },
    /// Disables link status events.
    DisableLinkEvents {
        /// Logical port.
        port: u8,
    },
    /// Sets the PHY as it was found.
    RestorePhyConfig {
        /// Logical port.
        port: u8,
        /// The value before bring-up.
        found: PhyConfig,
    },
    /// The result of an RDMA stage.
    Rdma(RdmaUndo),
}

impl fmt::Display for Undo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::RestoreCommand { found } => {
                write!(f, "restore the PCI command register to {found:#06x}")
            }
            Self::CloseDmaPool => f.write_str("give the DMA memory back"),
            Self::DisableBusMastering => f.write_str("take bus mastering away"),
            Self::RestoreRegister { offset, found } => {
                write!(f, "restore register {offset:#08x} to {found:#x}")
            }
            Self::ResetFunction => f.write_str("reset the function"),
            Self::ShutDownAdminQueue => f.write_str("shut the admin queue down"),
            Self::ClearFunctionConfig => f.write_str("clear the function's configuration"),
            Self::ReleaseResource { resource } => write!(f, "release resource {resource}"),
            Self::RestoreFrameSize { found } => {
                write!(f, "restore the largest frame to {found} bytes")
            }
            Self::FreeVsi { number } => write!(f, "free VSI {}", known(number)),
            Self::RemoveMacRule { vsi, mac, rule } => {
                let rule = known(rule);
                write!(f, "remove rule {rule} of {} to VSI {vsi}", mac_text(mac))
            }
            Self::DisableRdmaFilters { vsi } => write!(f, "disable the RDMA filters of VSI {vsi}"),
            Self::DeleteNode { parent, node } => {
                write!(f, "delete scheduler node {} under {parent}", known(node))
            }
            Self::RemoveRdmaQueueSet { parent, queue_set } => {
                write!(f, "remove RDMA queue set {queue_set} under node {parent}")
            }
            Self::MaskLinkEvents { port } => write!(f, "mask the link events of port {port}"),
            Self::DisableLinkEvents { port } => {
                write!(f, "disable the link status events of port {port}")
            }
            Self::RestorePhyConfig { port, .. } => {
                write!(f, "restore the PHY configuration of port {port}")
            }
            Self::Rdma(undo) => undo.fmt(f),
        }
    }
}

/// A number that the firmware gave, if it did.
fn known<T: fmt::Display>(number: &Option<T>) -> String {
    match number {
        Some(number) => number.to_string(),
        None => "(not known to exist)".to_owned(),
    }
}

fn mac_text(mac: &[u8; 6]) -> String {
    let parts: Vec<String> = mac.iter().map(|byte| format!("{byte:02x}")).collect();
    parts.join(":")
}

impl Undo {
    /// True if a reset of the function does not do it: memory and configuration space.
    pub(crate) fn outlives_a_reset(&self) -> bool {
        matches!(self, Self::RestoreCommand { .. } | Self::CloseDmaPool)
    }

    /// True if a reset of the function does it, or [`Undo::ClearFunctionConfig`] after that.
    pub(crate) fn is_taken_by_a_reset(&self) -> bool {
        matches!(
            self,
            Self::ReleaseResource { .. }
                | Self::FreeVsi { .. }
                | Self::RemoveMacRule { .. }
                | Self::DisableRdmaFilters { .. }
                | Self::DeleteNode { .. }
                | Self::RemoveRdmaQueueSet { .. }
                | Self::Rdma(_)
        )
    }

    /// True if it restores a value from before the driver came.
    pub(crate) fn restores(&self) -> bool {
        matches!(
            self,
            Self::RestoreRegister { .. }
                | Self::RestoreFrameSize { .. }
                | Self::RestorePhyConfig { .. }
        )
    }

    /// True if both write back the same object, with any values.
    pub(crate) fn restores_the_same_as(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::RestoreRegister { offset, .. }, Self::RestoreRegister { offset: of, .. }) => {
                offset == of
            }
            (Self::RestoreFrameSize { .. }, Self::RestoreFrameSize { .. }) => true,
            (Self::RestorePhyConfig { port, .. }, Self::RestorePhyConfig { port: of, .. }) => {
                port == of
            }
            _ => false,
        }
    }
}

/// Takes back one effect of an RDMA stage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RdmaUndo {
    /// Destroys the control queue pair.
    DestroyControlQueue,
    /// Takes the memory behind the host memory cache away from the device.
    ClearSegments,
    /// Destroys the control completion queue.
    DestroyControlCompletions,
    /// Destroys the completion event queues.
    DestroyCompletionEvents,
    /// Destroys the asynchronous event queue.
    DestroyAsynchronousEvents,
    /// Deletes a node of the work scheduler.
    DeleteSchedulerNode {
        /// Its number.
        node: u16,
        /// Its parent's number.
        parent: u16,
        /// VSI that it is for.
        vsi: u16,
        /// True if it is a leaf.
        leaf: bool,
    },
    /// Deletes the entry of a local MAC address.
    DeleteAddress {
        /// The address.
        mac: MacAddress,
    },
    /// Destroys all queue pairs, completion queues and memory regions that are left.
    DestroyObjects,
}

impl fmt::Display for RdmaUndo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::DestroyControlQueue => f.write_str("destroy the control queue pair"),
            Self::ClearSegments => f.write_str("clear the segments of the host memory cache"),
            Self::DestroyControlCompletions => f.write_str("destroy the control completion queue"),
            Self::DestroyCompletionEvents => f.write_str("destroy the completion event queues"),
            Self::DestroyAsynchronousEvents => f.write_str("destroy the asynchronous event queue"),
            Self::DeleteSchedulerNode { node, .. } => {
                write!(f, "delete work scheduler node {node}")
            }
            Self::DeleteAddress { .. } => f.write_str("delete the local address"),
            Self::DestroyObjects => {
                f.write_str("destroy queue pairs, completion queues and memory regions")
            }
        }
    }
}
