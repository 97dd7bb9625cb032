//! `scheduler`: limits of the transmit scheduler, its default tree, room for our own nodes.
//!
//! Source: ice `ice_sched.c`, `ice_sched_init_port`.

use crate::admin::{AdminError, AdminQueue};
use crate::bring_up::{Context, Needs, SchedulerTree, Stage, StageError};
use ringside_spec::lan::admin::scheduler::{ElementType, Node};

pub(super) const STAGE: Stage = Stage {
    name: "scheduler",
    needs: Needs::Device,
    run,
};

fn run(context: &mut Context) -> Result<(), StageError> {
    let admin = context.admin()?;
    let port = context.facts.switch()?.port;
    let limits = admin.scheduler_limits()?;
    let branch = admin.default_topology(port)?;
    let (root, class) = match branch.as_slice() {
        [root, class, ..]
            if root.element.kind() == ElementType::RootPort
                && class.element.kind() == ElementType::TrafficClass =>
        {
            (root.node.get(), class.node.get())
        }
        _ => {
            return Err(StageError::Unusable {
                what: "the scheduler's default tree does not begin with port and traffic class"
                    .to_owned(),
                remedy: "update the firmware".to_owned(),
            });
        }
    };
    for node in branch.iter().skip(1) {
        let checked = check_node(&admin, node);
        tolerate_refusal(context, "queried", node, checked)?;
    }
    let entry = branch
        .iter()
        .position(|node| node.element.kind() == ElementType::EntryPoint);
    let entry_layer = entry.unwrap_or(2);
    // The entry points give way to our own nodes. They come back when the function's
    // configuration is cleared, which is recorded as undo since stage `clear-pf-config`.
    for node in branch.iter().skip(entry_layer).rev() {
        let deleted = admin.delete_node(node.parent.get(), node.node.get());
        tolerate_refusal(context, "deleted", node, deleted.map_err(StageError::from))?;
    }
    context.facts.scheduler = Some(SchedulerTree {
        limits,
        port_node: root,
        class_node: class,
        entry_layer: u8::try_from(entry_layer).unwrap_or(u8::MAX),
        rdma_group_node: None,
    });
    Ok(())
}

/// Takes a refusal of the firmware for the node's state and goes on: the driver's own nodes go
/// beside it. All other errors stay errors.
///
/// Source: ice `ice_sched.c`, `ice_rm_dflt_leaf_node` and `ice_free_sched_node`.
fn tolerate_refusal(
    context: &mut Context,
    action: &str,
    node: &Node,
    result: Result<(), StageError>,
) -> Result<(), StageError> {
    let Err(StageError::Admin(error @ AdminError::Refused { .. })) = result else {
        return result;
    };
    context.warn(format!(
        "node {} of the scheduler's default tree cannot be {action} and stays as it is: {error}",
        node.node.get()
    ));
    Ok(())
}

/// Checks that the node, queried alone, equals the one of the branch.
fn check_node(admin: &AdminQueue, listed: &Node) -> Result<(), StageError> {
    let alone = admin.query_node(listed.node.get())?;
    if alone.parent == listed.parent && alone.element.kind == listed.element.kind {
        return Ok(());
    }
    Err(StageError::Unusable {
        what: format!(
            "scheduler node {} has another parent or kind than in its branch",
            listed.node.get()
        ),
        remedy: "reset the whole device, or update its firmware".to_owned(),
    })
}
