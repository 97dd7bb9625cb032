//! `rdma-nodes`: the scheduler's nodes from the traffic class down to a group for RDMA queue sets.
//!
//! Source: ice `ice_sched.c`, `ice_cfg_vsi_rdma`.

use crate::bring_up::{Context, Needs, Stage, StageError, Undo};

pub(super) const STAGE: Stage = Stage {
    name: "rdma-nodes",
    needs: Needs::Rdma,
    run,
};

/// Layers from a queue group to the end of the tree, the queues included.
const LAYERS_BELOW: u8 = 2;

fn run(context: &mut Context) -> Result<(), StageError> {
    let admin = context.admin()?;
    let tree = context.facts.scheduler()?;
    let group_layer = tree.limits.layers - LAYERS_BELOW;
    let (entry_layer, mut parent) = (tree.entry_layer, tree.class_node);
    if entry_layer > group_layer {
        return Err(StageError::Unusable {
            what: format!(
                "the scheduler's tree of {} layers has no room below layer {entry_layer}",
                tree.limits.layers
            ),
            remedy: "choose the device's default scheduler topology and update its firmware"
                .to_owned(),
        });
    }
    for _ in entry_layer..=group_layer {
        let undo = |node| Undo::DeleteNode { parent, node };
        let token = context.record(undo(None));
        let node = admin.add_node(parent)?;
        context.amend(token, undo(Some(node)));
        parent = node;
    }
    if let Some(tree) = &mut context.facts.scheduler {
        tree.rdma_group_node = Some(parent);
    }
    Ok(())
}
