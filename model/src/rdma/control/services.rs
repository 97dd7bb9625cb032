//! Features, statistics, the work scheduler.

use super::{CommandFailure, DONE, Executed, NO_SUCH_OBJECT, Outcome, REFUSED};
use crate::chip::Context;
use crate::rdma::RdmaEngine;
use crate::rdma::access::reached;
use crate::rdma::queue_sets::QueueSet;
use ringside_bus::Iova;
use ringside_spec::rdma::commands::{
    GatherStatistics, QueryFeatures, SchedulerOperation, WorkSchedulerNode,
};
use ringside_spec::rdma::features::{Features, FirmwareInfo, HardwareInfo};
use ringside_spec::rdma::limits::SCHEDULER_NODES;

/// Queue set handles: 10 bits, 0 is none.
const QUEUE_SETS: u16 = 1024;

/// A node of the work scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::rdma) struct SchedulerNode {
    pub(in crate::rdma) parent: u16,
    pub(in crate::rdma) enabled: bool,
    /// Of a leaf: the handle of its queue set.
    pub(in crate::rdma) queue_set: Option<u16>,
}

impl RdmaEngine {
    pub(super) fn query_features(
        &mut self,
        command: &QueryFeatures,
        context: &mut Context<'_>,
    ) -> Executed {
        let features = Features {
            firmware: FirmwareInfo::ZERO.with_major(1).with_minor(53),
            hardware: Some(HardwareInfo::ZERO.with_major(2)),
            max_queue_sets: None,
        };
        let words = features.encode();
        let room = command.buffer_length as usize / 8;
        let words = words.get(..room.min(words.len())).unwrap_or(&words);
        let written = context
            .memory
            .write_words(Iova(command.buffer_address), words);
        reached(context, "feature buffer", written).ok_or(REFUSED)?;
        DONE
    }

    pub(super) fn gather_statistics(
        &mut self,
        command: &GatherStatistics,
        context: &mut Context<'_>,
    ) -> Executed {
        let words = self.objects.counters.to_words();
        let written = context
            .memory
            .write_words(Iova(command.buffer_address), &words);
        reached(context, "statistics buffer", written).ok_or(REFUSED)?;
        DONE
    }

    pub(super) fn scheduler_node(
        &mut self,
        command: &WorkSchedulerNode,
        context: &mut Context<'_>,
    ) -> Executed {
        match command.operation {
            SchedulerOperation::Add => self.add_scheduler_node(command, context),
            SchedulerOperation::Modify => self.modify_scheduler_node(command, context),
            SchedulerOperation::Delete => self.delete_scheduler_node(command, context),
            SchedulerOperation::Unknown(_) => Err(REFUSED),
        }
    }

    fn modify_scheduler_node(
        &mut self,
        command: &WorkSchedulerNode,
        context: &mut Context<'_>,
    ) -> Executed {
        let id = command.node_id;
        let Some(node) = self.scheduler_nodes.get_mut(&id) else {
            return Self::no_scheduler_node(command, context);
        };
        node.enabled = command.enable;
        let outside = |handle: &u16| !self.queue_sets.port_has(*handle);
        if let Some(handle) = node.queue_set.filter(outside)
            && command.enable
        {
            let kind = "scheduler leaf enabled before the port has its queue set";
            let ledger = &mut context.ledger;
            ledger.breach(kind, || format!("node {id}, queue set {handle}"));
        }
        DONE
    }

    /// The leaf of a queue set's handle: enabled or not.
    pub(in crate::rdma) fn leaf_of(&self, handle: u16) -> Option<bool> {
        let mut nodes = self.scheduler_nodes.values();
        let leaf = nodes.find(|node| node.queue_set == Some(handle))?;
        Some(leaf.enabled)
    }

    /// Counts a user of a queue set that does not send. A driver may still have a former one: in
    /// Linux all leaves are gone while traffic classes change, and no leaf may come back.
    /// Source: irdma `main.c`, `irdma_iidc_event_handler`; `ctrl.c`, irdma_sc_suspend_resume_qps;
    /// `verbs.c`, `irdma_attach_mcast`, which keeps the handle of the group's first member.
    pub(super) fn check_queue_set(&self, handle: u16, user: &str, context: &mut Context<'_>) {
        let state = self.queue_sets.state(handle, self.leaf_of(handle));
        let detail = || format!("{user}, queue set {handle}: {state:?}");
        match state {
            QueueSet::Sends => {}
            QueueSet::Former => context.ledger.remark("a queue set without a leaf", detail),
            _ => context
                .ledger
                .breach("a queue set that does not send", detail),
        }
    }

    fn no_scheduler_node(command: &WorkSchedulerNode, context: &mut Context<'_>) -> Executed {
        Self::refuse(
            context,
            "a command for an object that does not exist",
            NO_SUCH_OBJECT,
            || format!("scheduler node {}", command.node_id),
        )
    }

    fn add_scheduler_node(
        &mut self,
        command: &WorkSchedulerNode,
        context: &mut Context<'_>,
    ) -> Executed {
        let (node, parent) = (command.node_id, command.parent_id);
        if node >= SCHEDULER_NODES || self.scheduler_nodes.contains_key(&node) {
            return Self::refuse(
                context,
                "an object is created twice",
                NO_SUCH_OBJECT,
                || format!("scheduler node {node}"),
            );
        }
        let has_parent = node == 0
            || self
                .scheduler_nodes
                .get(&parent)
                .is_some_and(|parent| parent.queue_set.is_none());
        if !has_parent {
            return Self::refuse(
                context,
                "a scheduler node without a parent",
                NO_SUCH_OBJECT,
                || format!("node {node} below {parent}"),
            );
        }
        let queue_set = if command.leaf {
            let used = |handle: &u16| {
                let mut nodes = self.scheduler_nodes.values();
                nodes.any(|node| node.queue_set == Some(*handle))
            };
            let free = (1..QUEUE_SETS).find(|handle| !used(handle));
            let free = free.ok_or(REFUSED)?;
            self.queue_sets.give(free);
            Some(free)
        } else {
            None
        };
        let enabled = command.enable;
        self.scheduler_nodes.insert(
            node,
            SchedulerNode {
                parent,
                enabled,
                queue_set,
            },
        );
        Ok(Outcome {
            value: queue_set.unwrap_or(0).into(),
            minor: 0,
        })
    }

    fn delete_scheduler_node(
        &mut self,
        command: &WorkSchedulerNode,
        context: &mut Context<'_>,
    ) -> Executed {
        let id = command.node_id;
        let Some(node) = self.scheduler_nodes.get(&id).copied() else {
            return Self::no_scheduler_node(command, context);
        };
        let children = self
            .scheduler_nodes
            .iter()
            .filter(|(child, node)| **child != id && node.parent == id)
            .count();
        let users = self
            .queue_pairs
            .iter()
            .flatten()
            .filter(|qp| Some(qp.context.queue_set_handle) == node.queue_set && qp.sends())
            .count();
        if children > 0 || users > 0 {
            return Self::refuse(
                context,
                "an object is destroyed while others use it",
                CommandFailure::InvalidState,
                || format!("scheduler node {id}: {children} children, {users} queue pairs"),
            );
        }
        self.scheduler_nodes.remove(&id);
        if let Some(handle) = node.queue_set {
            self.queue_sets.take_back(handle);
        }
        DONE
    }
}
