//! Undo as data: what takes each effect back.

use super::stages::rdma_state::{RdmaState, RdmaUndo};
use super::{Context, StageError, UndoFailure};
use crate::admin::AdminQueue;
use crate::lan;
use ringside_bus::config_space::{COMMAND, Command};
use ringside_spec::lan::admin::link::{PhyConfig, link_events};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Takes one effect back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Undo {
    /// Writes the command register of configuration space as it was found.
    RestoreCommand {
        /// As found.
        found: u16,
    },
    /// Unmaps the DMA memory and gives it back; leaks it if the device is not known to be silent.
    CloseDmaPool,
    /// Takes bus mastering away and reads back that it is off.
    DisableBusMastering,
    /// Writes a register as it was found.
    RestoreRegister {
        /// Bytes from the beginning of BAR 0.
        offset: u64,
        /// As found.
        found: u32,
    },
    /// Resets the physical function.
    ResetFunction,
    /// Says goodbye to the firmware and zeroes the registers of both rings.
    ShutDownAdminQueue,
    /// Has the firmware forget what the function configured.
    ClearFunctionConfig,
    /// Gives a shared resource back.
    ReleaseResource {
        /// Which.
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
        /// As found.
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

/// The result of an unwinding.
#[derive(Clone, Debug, Default)]
pub struct Unwound {
    /// The undos performed, in that order.
    pub undone: Vec<Undo>,
    /// The undos that failed.
    pub failures: Vec<UndoFailure>,
    /// Memory given up because the device may still write to it, bytes.
    pub leaked_bytes: usize,
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

    /// True if both write back the same object, whatever its value.
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

    /// Takes the effect back. It may never have come: that is no error.
    pub(crate) fn perform(&self, context: &mut Context) -> Result<(), StageError> {
        match self {
            Self::RestoreCommand { found } => restore_command(context, *found),
            Self::CloseDmaPool => close_pool(context),
            Self::DisableBusMastering => disable_bus_mastering(context),
            Self::RestoreRegister { offset, found } => {
                Ok(context.registers().write(*offset, *found)?)
            }
            Self::ResetFunction => reset_function(context),
            Self::ShutDownAdminQueue => match context.admin() {
                Ok(admin) => Ok(admin.shut_down()?),
                Err(_) => Ok(()),
            },
            Self::Rdma(undo) => undo.perform(context),
            other => other.perform_by_firmware(&*admin(context)?),
        }
    }

    /// Those that are commands to the firmware. What is not known to exist has no number to be
    /// named by; clearing the function's configuration, recorded before, covers it.
    fn perform_by_firmware(&self, admin: &AdminQueue) -> Result<(), StageError> {
        match self {
            Self::ClearFunctionConfig => admin.clear_function_config(),
            Self::ReleaseResource { resource } => admin.release_resource(*resource),
            Self::RestoreFrameSize { found } => admin.set_mac_config(*found),
            Self::FreeVsi { number } => match number {
                Some(number) => admin.free_vsi(*number),
                None => Ok(()),
            },
            Self::RemoveMacRule { rule, .. } => match rule {
                Some(rule) => admin.remove_rule(*rule),
                None => Ok(()),
            },
            Self::DisableRdmaFilters { vsi } => {
                admin.update_vsi(*vsi, &lan::vsi::rdma_filters(false))
            }
            Self::DeleteNode { parent, node } => match node {
                Some(node) => admin.delete_node(*parent, *node),
                None => Ok(()),
            },
            Self::RemoveRdmaQueueSet { parent, queue_set } => {
                admin.remove_rdma_queue_set(*parent, *queue_set)
            }
            Self::MaskLinkEvents { port } => {
                admin.set_link_event_mask(*port, lan::link::ALL_MASKED)
            }
            Self::DisableLinkEvents { port } => {
                admin.link_status(*port, link_events::DISABLE).map(|_| ())
            }
            Self::RestorePhyConfig { port, found } => admin.set_phy_config(*port, found),
            Self::RestoreCommand { .. }
            | Self::CloseDmaPool
            | Self::DisableBusMastering
            | Self::RestoreRegister { .. }
            | Self::ResetFunction
            | Self::ShutDownAdminQueue
            | Self::Rdma(_) => Ok(()),
        }?;
        Ok(())
    }
}

/// The admin queue, started again if the firmware had stopped answering.
fn admin(context: &Context) -> Result<Arc<AdminQueue>, StageError> {
    let admin = context.admin()?;
    admin.revive()?;
    Ok(admin)
}

/// Resets by register; by the bus if that does not end.
fn reset_function(context: &Context) -> Result<(), StageError> {
    let registers = context.registers();
    let limit = Duration::from_millis(context.config().device.reset_deadline_ms);
    match lan::reset::trigger_and_wait(registers, limit) {
        Ok(()) => Ok(()),
        Err(error) => {
            tracing::warn!(%error, "function reset by register failed; resetting by the bus");
            context.function().reset().map_err(|_| error)
        }
    }
}

fn restore_command(context: &Context, found: u16) -> Result<(), StageError> {
    let now = context.read_config16(COMMAND)?;
    Ok(context.write_config16(COMMAND, now, found)?)
}

fn disable_bus_mastering(context: &mut Context) -> Result<(), StageError> {
    let now = context.read_config16(COMMAND)?;
    let off = Command(now).with_bus_master(false).0;
    context.write_config16(COMMAND, now, off)?;
    let after = Command(context.read_config16(COMMAND)?);
    if after.bus_master() {
        return Err(StageError::Unusable {
            what: "bus mastering is still on after it was taken away".to_owned(),
            remedy: "reset or unplug the device; the memory it was given is not reused".to_owned(),
        });
    }
    context.set_silent(true);
    Ok(())
}

fn close_pool(context: &mut Context) -> Result<(), StageError> {
    let Ok(pool) = context.pool().cloned() else {
        return Ok(());
    };
    if !context.silent() {
        let bytes = pool.usage().mapped_bytes;
        context.leaked(bytes);
        return Err(StageError::Unusable {
            what: format!(
                "the device could not be silenced, so its {bytes} bytes of DMA memory stay mapped"
            ),
            remedy: "end this process to free them".to_owned(),
        });
    }
    // The device is silent: what held its memory can go.
    context.ports.release();
    if let Some(engine) = &context.rdma.engine {
        engine.release();
    }
    context.set_admin(None);
    context.rdma = RdmaState::default();
    let result = pool.close();
    context.leaked(pool.usage().leaked_bytes);
    context.set_pool(None);
    Ok(result?)
}
