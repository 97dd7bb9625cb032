//! Performs undos.

use super::stages::{
    rdma_asynchronous_events, rdma_completion_events, rdma_control_completions, rdma_control_queue,
    rdma_scheduler, rdma_segments,
};
use super::undo::{RdmaUndo, Undo};
use super::{Context, StageError, UndoFailure, reset};
use crate::admin::{AdminError, AdminQueue};
use crate::lan;
use crate::rdma::RdmaStageError;
use crate::rdma::engine::Engine;
use crate::trace::Exchange;
use ringside_bus::config_space::{COMMAND, Command};
use ringside_spec::lan::admin::ReturnCode;
use ringside_spec::lan::admin::link::{PhyConfig, link_events};
use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

/// The result of an unwinding.
#[derive(Clone, Debug, Default)]
pub struct Unwound {
    /// The undos performed, in that order, and those that clearing the function's configuration and
    /// its reset perform in their place.
    pub undone: Vec<Undo>,
    /// The undos that failed.
    pub failures: Vec<UndoFailure>,
    /// Memory given up because the device may still write to it, bytes.
    pub leaked_bytes: usize,
}

impl Context {
    /// Performs all recorded undos, latest first. If one fails, it is reported and the others are
    /// still performed.
    pub(crate) fn unwind(&mut self) -> Unwound {
        self.unwind_to(0)
    }

    /// The same, but for the oldest `keep`.
    pub(crate) fn unwind_to(&mut self, keep: usize) -> Unwound {
        self.recorder().switch(true);
        let mut unwound = Unwound::default();
        // Nodes of the scheduler's tree that are not empty.
        let mut kept = Vec::new();
        while let Some(undo) = self.take_last_undo(keep) {
            let is_covered = self.is_covered(&undo);
            if is_covered && is_of_any(&undo, &kept) {
                self.leave(&undo, &"what is under it stays");
                kept.extend(parent_of(&undo));
                unwound.undone.push(undo);
                continue;
            }
            let Err(error) = perform_surely(&undo, self) else {
                unwound.undone.push(undo);
                continue;
            };
            kept.extend(parent_of(&undo));
            if is_covered && is_unanswered(&error) {
                self.leave(&undo, &error);
                unwound.undone.push(undo);
                continue;
            }
            tracing::error!(device = %self.function().address(), %undo, %error, "undo failed");
            unwound.failures.push(UndoFailure { undo, error });
        }
        unwound.leaked_bytes = self.leaked_bytes();
        unwound
    }

    /// True if later undos perform this one, too: if they fail, that is the failure. The admin
    /// queue needs no goodbye before a reset: its registers are zeroed.
    fn is_covered(&self, undo: &Undo) -> bool {
        let follows = |wanted| self.undos().any(|undo| *undo == wanted);
        let is_cleared = undo.is_taken_by_a_reset() && follows(Undo::ClearFunctionConfig);
        (is_cleared || *undo == Undo::ShutDownAdminQueue) && follows(Undo::ResetFunction)
    }

    fn leave(&mut self, undo: &Undo, reason: &dyn Display) {
        self.warn(format!(
            "left to clearing the function's configuration and its reset: {undo}: {reason}"
        ));
    }
}

/// The scheduler's node that an undo takes something from.
const fn parent_of(undo: &Undo) -> Option<u32> {
    match undo {
        Undo::DeleteNode { parent, .. } | Undo::RemoveRdmaQueueSet { parent, .. } => Some(*parent),
        _ => None,
    }
}

/// True if an undo deletes one of these nodes; one with children stays. Source: ice `ice_sched.c`,
/// `ice_free_sched_node`.
fn is_of_any(undo: &Undo, nodes: &[u32]) -> bool {
    matches!(undo, Undo::DeleteNode { node: Some(node), .. } if nodes.contains(node))
}

/// True if the firmware has not answered.
const fn is_unanswered(error: &StageError) -> bool {
    matches!(
        error,
        StageError::Admin(
            AdminError::TimedOut { .. } | AdminError::Stopped { .. } | AdminError::RingDead { .. }
        )
    )
}

/// Performs an undo: once more if the firmware did not answer, and does after the admin queue was
/// started again.
fn perform_surely(undo: &Undo, context: &mut Context) -> Result<(), StageError> {
    let first = perform(undo, context);
    let is_late = matches!(&first, Err(StageError::Admin(AdminError::TimedOut { .. })));
    // The end of the queue starts no queue.
    if !is_late || *undo == Undo::ShutDownAdminQueue {
        return first;
    }
    if !running_admin(context).is_ok_and(|admin| !admin.has_stopped()) {
        return first;
    }
    match perform(undo, context) {
        // The firmware had done it, and its answer was lost.
        Err(StageError::Admin(error)) if error.code() == Some(ReturnCode::NoEntry) => Ok(()),
        second => second,
    }
}

/// Undoes the effect. An effect that never happened is no error.
///
/// An object whose number the firmware has not given cannot be named. Clearing the function's
/// configuration, recorded before, covers it.
fn perform(undo: &Undo, context: &mut Context) -> Result<(), StageError> {
    let admin = || running_admin(context);
    match undo {
        Undo::RestoreCommand { found } => restore_command(context, *found)?,
        Undo::CloseDmaPool => close_pool(context)?,
        Undo::DisableBusMastering => disable_bus_mastering(context)?,
        Undo::RestoreRegister { offset, found } => context.registers().write(*offset, *found)?,
        Undo::ResetFunction => reset_function(context)?,
        Undo::ShutDownAdminQueue => {
            if let Ok(admin) = context.admin() {
                admin.shut_down()?;
            }
        }
        Undo::ClearFunctionConfig => admin()?.clear_function_config()?,
        Undo::ReleaseResource { resource } => admin()?.release_resource(*resource)?,
        Undo::RestoreFrameSize { found } => admin()?.set_mac_config(*found)?,
        Undo::FreeVsi { number } => {
            let admin = admin()?;
            number.map_or(Ok(()), |number| admin.free_vsi(number))?;
        }
        Undo::RemoveMacRule { vsi, rule, .. } => {
            let admin = admin()?;
            rule.map_or(Ok(()), |rule| admin.remove_rule(*vsi, rule))?;
        }
        Undo::DisableRdmaFilters { vsi } => {
            admin()?.update_vsi(*vsi, &lan::vsi::rdma_filters(false))?;
        }
        Undo::DeleteNode { parent, node } => {
            let admin = admin()?;
            node.map_or(Ok(()), |node| admin.delete_node(*parent, node))?;
        }
        Undo::RemoveRdmaQueueSet { parent, queue_set } => {
            admin()?.remove_rdma_queue_set(*parent, *queue_set)?;
        }
        Undo::MaskLinkEvents { port } => {
            admin()?.set_link_event_mask(*port, lan::link::ALL_MASKED)?;
        }
        Undo::DisableLinkEvents { port } => {
            admin()?.link_status(*port, link_events::DISABLE)?;
        }
        Undo::RestorePhyConfig { port, found } => restore_phy(admin()?.as_ref(), *port, found)?,
        Undo::Rdma(undo) => perform_rdma(undo, context)?,
    }
    Ok(())
}

/// Without a module there is nothing that could be restored, and the firmware is busy.
fn restore_phy(admin: &AdminQueue, port: u8, found: &PhyConfig) -> Result<(), AdminError> {
    match admin.set_phy_config(port, found) {
        Err(AdminError::Refused {
            code: ReturnCode::Busy | ReturnCode::Invalid,
            ..
        }) => {
            tracing::warn!(
                port,
                "the PHY stays as it is: there is no module in the port, or another one"
            );
            Ok(())
        }
        other => other,
    }
}

/// The admin queue, started again if the firmware had stopped answering.
fn running_admin(context: &Context) -> Result<Arc<AdminQueue>, StageError> {
    let admin = context.admin()?;
    admin.revive()?;
    Ok(admin)
}

/// Resets by register, once the device has loaded; by the bus if that does not end.
fn reset_function(context: &Context) -> Result<(), StageError> {
    let registers = context.registers();
    let ready = Duration::from_millis(context.config().device.ready_deadline_ms);
    reset::wait_for_load(registers, ready)?;
    let limit = Duration::from_millis(context.config().device.reset_deadline_ms);
    match reset::trigger_and_wait(registers, limit) {
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
    // The device's DMA has stopped: the owners of its memory can be dropped.
    context.ports.release();
    if let Some(engine) = &context.engine {
        engine.release();
    }
    context.set_admin(None);
    context.engine = None;
    let result = pool.close();
    context.leaked(pool.usage().leaked_bytes);
    context.set_pool(None);
    Ok(result?)
}

/// Undoes the effect. An effect that never happened is no error.
///
/// If the engine refuses to free a resource, or does not answer, the reset of the function frees
/// it: its undo is performed later. So are those of all that a queue pair uses which the device
/// keeps. That is a warning and no failure, unless no reset is recorded.
fn perform_rdma(undo: &RdmaUndo, context: &mut Context) -> Result<(), StageError> {
    let Some(engine) = context.engine.clone() else {
        return Ok(());
    };
    let stuck = engine.control.is_stuck();
    let reset_follows = context.undos().any(|undo| *undo == Undo::ResetFunction);
    let is_left = match undo {
        RdmaUndo::DestroyControlQueue => false,
        RdmaUndo::DestroyObjects => stuck,
        _ => stuck || engine.has_lost_queue_pairs(),
    };
    if is_left {
        if *undo == RdmaUndo::DestroyObjects {
            engine.abandon_objects();
        }
        if !reset_follows {
            return Err(StageError::Unusable {
                what: format!("{undo}: the RDMA engine does not answer, or keeps a queue pair"),
                remedy: "reset the function".to_owned(),
            });
        }
        let text = format!("left to the reset of the function: {undo}");
        context.recorder().record(|| Exchange::Note { text });
        return Ok(());
    }
    match perform_by(undo, &engine) {
        Ok(()) => {}
        Err(error) if reset_follows => {
            context.warn(format!(
                "left to the reset of the function: {undo}: {error}"
            ));
        }
        Err(error) => return Err(error.into()),
    }
    Ok(())
}

fn perform_by(undo: &RdmaUndo, engine: &Engine) -> Result<(), RdmaStageError> {
    match undo {
        RdmaUndo::DestroyControlQueue => rdma_control_queue::destroy(engine),
        RdmaUndo::ClearSegments => rdma_segments::clear(engine),
        RdmaUndo::DestroyControlCompletions => rdma_control_completions::destroy(engine),
        RdmaUndo::DestroyCompletionEvents => rdma_completion_events::destroy(engine),
        RdmaUndo::DestroyAsynchronousEvents => rdma_asynchronous_events::destroy(engine),
        RdmaUndo::DeleteSchedulerNode {
            node,
            parent,
            vsi,
            leaf,
        } => rdma_scheduler::delete(engine, *node, *parent, *vsi, *leaf),
        RdmaUndo::DeleteAddress { mac } => engine
            .state()
            .give_address(*mac)
            .map_err(RdmaStageError::from),
        RdmaUndo::DestroyObjects => engine.destroy_objects().map_err(RdmaStageError::from),
    }
}
