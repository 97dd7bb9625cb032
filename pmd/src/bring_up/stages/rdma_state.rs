//! The products and facts of the RDMA stages, their undos, and their order.

use super::{rdma_addresses, rdma_control_queue, rdma_host_memory, rdma_queues, rdma_scheduler};
use crate::bring_up::{Context, Stage, StageError, Undo};
use crate::rdma::RdmaStageError;
use crate::rdma::address::MacAddress;
use crate::rdma::engine::Engine;
use crate::trace::Exchange;
use ringside_hmc::Layout;
use ringside_spec::rdma::features::Features;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

/// The RDMA stages, in order; they run after those of the LAN half.
pub(super) const STAGES: &[Stage] = &[
    rdma_control_queue::STAGE,
    rdma_host_memory::SIZING,
    rdma_host_memory::SEGMENTS,
    rdma_queues::CONTROL_COMPLETIONS,
    rdma_queues::FEATURES,
    rdma_queues::COMPLETION_EVENTS,
    rdma_queues::ASYNCHRONOUS_EVENTS,
    rdma_scheduler::STAGE,
    rdma_addresses::STAGE,
];

/// The products of the RDMA stages: control queue pair, host memory cache, event queues.
#[derive(Default)]
pub struct RdmaState {
    pub(crate) engine: Option<Arc<Engine>>,
}

impl RdmaState {
    /// The engine, from the stage `rdma-control-queue` on.
    pub(super) fn engine(&self) -> Result<Arc<Engine>, StageError> {
        self.engine.clone().ok_or(StageError::OutOfOrder {
            missing: "the control queue pair",
            stage: "rdma-control-queue",
        })
    }
}

/// The facts found by the RDMA stages.
#[derive(Clone, Debug, Default)]
pub struct RdmaFacts {
    /// The numbers of objects that were requested and granted, and their places.
    pub layout: Option<Layout>,
    /// Versions that the engine reports.
    pub features: Option<Features>,
    /// Handle of the queue set that all queue pairs send through.
    pub queue_set_handle: Option<u16>,
    /// IP addresses that queue pairs may send from.
    pub addresses: Vec<IpAddr>,
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
    /// Destroys completion event queue 0.
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
            Self::DestroyCompletionEvents => f.write_str("destroy the completion event queue"),
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

impl RdmaUndo {
    /// Takes the effect back. It may never have come: that is no error.
    ///
    /// Resources that the engine refuses to take back, or does not answer for, are left to the
    /// reset of the
    /// function, which is recorded before all of this; that is a warning and no failure, unless
    /// there is no such reset.
    pub(crate) fn perform(&self, context: &mut Context) -> Result<(), StageError> {
        let Some(engine) = context.rdma.engine.clone() else {
            return Ok(());
        };
        let stuck = engine.state().control.is_stuck();
        let result = if stuck && *self == Self::DestroyObjects {
            engine.abandon_objects();
            Ok(())
        } else if stuck && *self != Self::DestroyControlQueue {
            Ok(())
        } else {
            self.perform_by(&engine)
        };
        let reset_follows = context.undos().any(|undo| *undo == Undo::ResetFunction);
        match result {
            Ok(()) if stuck => {
                let text = format!("left to the reset of the function: {self}");
                context.recorder().record(|| Exchange::Note { text });
            }
            Ok(()) => {}
            Err(error) if reset_follows => {
                context.warn(format!(
                    "left to the reset of the function: {self}: {error}"
                ));
            }
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    fn perform_by(&self, engine: &Engine) -> Result<(), RdmaStageError> {
        match self {
            Self::DestroyControlQueue => rdma_control_queue::destroy(engine),
            Self::ClearSegments => rdma_host_memory::clear(engine),
            Self::DestroyControlCompletions => rdma_queues::destroy_control_completions(engine),
            Self::DestroyCompletionEvents => rdma_queues::destroy_completion_events(engine),
            Self::DestroyAsynchronousEvents => rdma_queues::destroy_asynchronous_events(engine),
            Self::DeleteSchedulerNode {
                node,
                parent,
                vsi,
                leaf,
            } => rdma_scheduler::delete(engine, *node, *parent, *vsi, *leaf),
            Self::DeleteAddress { mac } => engine
                .state()
                .give_address(*mac)
                .map_err(RdmaStageError::from),
            Self::DestroyObjects => engine.destroy_objects().map_err(RdmaStageError::from),
        }
    }
}
