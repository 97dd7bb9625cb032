//! `rdma-scheduler`: the work scheduler's nodes and the queue set that all queue pairs send
//! through.
//!
//! Root, VSI and traffic class are added, the last one disabled; the engine then names a queue set,
//! the firmware puts that into the port's own scheduler, and the node is enabled.
//! Source: irdma `ws.c`, `irdma_ws_add`; ice `ice_sched.c`, `ice_ena_vsi_rdma_qset`.

use crate::bring_up::{Context, Needs, RdmaUndo, Stage, StageError, Undo};
use crate::control::ControlError;
use crate::rdma::RdmaStageError;
use crate::rdma::engine::Engine;
use ringside_spec::rdma::commands::{SchedulerOperation, SchedulerPriority, WorkSchedulerNode};

pub(super) const STAGE: Stage = Stage {
    name: "rdma-scheduler",
    needs: Needs::Rdma,
    run,
};

/// Numbers of the nodes; the root's is fixed.
const ROOT: u16 = 0;
const VSI: u16 = 1;
const LEAF: u16 = 2;

/// Queue set handles have 10 bits, and 0 is none.
const HANDLES: std::ops::RangeInclusive<u32> = 1..=1023;

fn node(node_id: u16, parent_id: u16, vsi_number: u16, leaf: bool) -> WorkSchedulerNode {
    WorkSchedulerNode {
        weight: 1,
        vsi_number,
        node_id,
        parent_id,
        operation: SchedulerOperation::Add,
        traffic_class: 0,
        priority_type: SchedulerPriority::WeightedRoundRobin,
        leaf,
        enable: !leaf,
        ..WorkSchedulerNode::ZERO
    }
}

const fn delete_of(node: u16, parent: u16, vsi: u16, leaf: bool) -> Undo {
    Undo::Rdma(RdmaUndo::DeleteSchedulerNode {
        node,
        parent,
        vsi,
        leaf,
    })
}

fn run(context: &mut Context) -> Result<(), StageError> {
    let engine = context.engine()?;
    let admin = context.admin()?;
    let group = context.facts.rdma_group_node()?;
    let vsi = engine.facts.vsi_number;
    let (mut handle, mut of_leaf) = (0, None);
    for (number, parent, leaf) in [(ROOT, ROOT, false), (VSI, ROOT, false), (LEAF, VSI, true)] {
        let undo = context.record(delete_of(number, parent, vsi, leaf));
        let added = engine.control.execute(node(number, parent, vsi, leaf));
        if added.as_ref().is_err_and(ControlError::is_refusal) {
            context.discharge(undo);
        }
        handle = added.map_err(RdmaStageError::from)?.return_value;
        of_leaf = leaf.then_some(undo);
    }
    if !HANDLES.contains(&handle) {
        return Err(StageError::Unusable {
            what: format!("the RDMA engine named queue set {handle}, none of 1 to 1023"),
            remedy: "reset the device, or update its firmware".to_owned(),
        });
    }
    let queue_set = handle as u16;
    // The leaf goes before the firmware forgets the queue set that it feeds. Source: irdma `ws.c`,
    // irdma_remove_leaf.
    if let Some(undo) = of_leaf {
        context.discharge(undo);
    }
    let _ = context.record(Undo::RemoveRdmaQueueSet {
        parent: group,
        queue_set,
    });
    let _ = context.record(delete_of(LEAF, VSI, vsi, true));
    admin.add_rdma_queue_set(group, queue_set)?;
    let enable = WorkSchedulerNode {
        operation: SchedulerOperation::Modify,
        enable: true,
        ..node(LEAF, VSI, vsi, true)
    };
    let enabled = engine.control.execute(enable);
    enabled.map_err(RdmaStageError::from)?;
    engine.state().made.queue_set_handle = Some(queue_set);
    context.facts.rdma.queue_set_handle = Some(queue_set);
    Ok(())
}

pub(in crate::bring_up) fn delete(
    engine: &Engine,
    number: u16,
    parent: u16,
    vsi: u16,
    leaf: bool,
) -> Result<(), RdmaStageError> {
    let command = WorkSchedulerNode {
        operation: SchedulerOperation::Delete,
        enable: false,
        ..node(number, parent, vsi, leaf)
    };
    engine.control.execute(command)?;
    Ok(())
}
