//! The groups of transmit queues in the scheduler's tree, and the nodes above them.
//!
//! A node takes a limited number of children, which the firmware reports for each layer: 8 in a
//! tree of nine layers. Groups are added below nodes that have room, from the lowest layer upwards.
//! Source: ice `ice_sched.c`, `ice_sched_add_nodes_to_layer`, `ice_sched_get_free_qparent`.

use super::PortError;
use crate::admin::commands::SchedulerLimits;
use crate::admin::{AdminError, AdminQueue};
use ringside_spec::lan::admin::ReturnCode;
use ringside_spec::lan::admin::scheduler::NO_NODE;

/// Layers from a queue group to the end of the tree, the queues included.
const LAYERS_BELOW: u8 = 2;

/// The function's place in the tree, as its bring-up left it.
#[derive(Clone, Debug)]
pub(crate) struct TreePlace {
    pub(crate) limits: SchedulerLimits,
    /// node of the traffic class
    pub(crate) class_node: u32,
    /// layer of the first nodes below it, counted from the root's 0
    pub(crate) entry_layer: u8,
    /// group of the RDMA queue sets
    pub(crate) rdma_group: Option<u32>,
}

/// A node above a queue, or a group.
#[derive(Clone, Copy, Debug)]
struct Place {
    node: u32,
    parent: u32,
    /// counted from the root's 0
    layer: u8,
    /// children that are known
    children: u16,
    /// it was added here, and is deleted with its last child
    is_own: bool,
    /// the firmware takes no more children
    is_full: bool,
}

/// See the module. All VSIs of a port share it.
#[derive(Clone, Debug)]
pub(super) struct QueueTree {
    tree: TreePlace,
    places: Vec<Place>,
}

impl QueueTree {
    /// The tree of a function. If there is a group of RDMA queue sets, other groups go beside it;
    /// once its parent is full, to further branches below the traffic class.
    pub(super) fn new(tree: TreePlace, admin: &AdminQueue) -> Result<Self, AdminError> {
        let class = Place {
            node: tree.class_node,
            parent: NO_NODE,
            layer: tree.entry_layer.saturating_sub(1),
            children: u16::from(tree.rdma_group.is_some()),
            is_own: false,
            is_full: false,
        };
        let mut places = vec![class];
        if let Some(group) = tree.rdma_group {
            let node = admin.query_node(group)?.parent.get();
            let layer = tree.limits.layers.saturating_sub(LAYERS_BELOW + 1);
            if node != class.node {
                places.push(Place {
                    node,
                    layer,
                    children: 1,
                    ..class
                });
            }
        }
        Ok(Self { tree, places })
    }

    /// The number of groups for so many queues of a VSI.
    pub(super) fn groups_for(&self, queues: usize) -> usize {
        let queues_layer = self.tree.limits.layers.saturating_sub(1);
        queues.div_ceil(self.children_max(queues_layer).into())
    }

    /// The most children, of this layer, under one parent.
    fn children_max(&self, layer: u8) -> u16 {
        let limits = &self.tree.limits.siblings_max;
        limits.get(usize::from(layer)).copied().unwrap_or(1).max(1)
    }

    fn group_layer(&self) -> u8 {
        self.tree.limits.layers.saturating_sub(LAYERS_BELOW)
    }

    /// Adds a group, with the nodes above it that it needs; returns its node.
    ///
    /// Errors: those of the commands, [`PortError::TooMany`]; the tree is as before.
    pub(super) fn add_group(&mut self, admin: &AdminQueue) -> Result<u32, PortError> {
        if self.tree.entry_layer > self.group_layer() {
            return Ok(self.tree.class_node);
        }
        loop {
            let Some(parent) = self.lowest_with_room() else {
                return Err(PortError::TooMany {
                    what: "groups of transmit queues in the scheduler's tree",
                    wanted: self.groups() + 1,
                    limit: self.groups(),
                });
            };
            match self.add_below(parent, admin) {
                // Children that were not added here fill it.
                Err(error) if error.code() == Some(ReturnCode::NoSpace) && self.fill(parent) => {}
                added => return Ok(added?),
            }
        }
    }

    /// Deletes a group, and the nodes above it that have no other.
    pub(super) fn delete_group(&mut self, group: u32, admin: &AdminQueue) {
        let mut node = group;
        while let Some(at) = self.places.iter().position(|place| place.node == node) {
            let place = self.places.remove(at);
            if !place.is_own || place.children > 0 {
                self.places.insert(at, place);
                return;
            }
            if let Err(error) = admin.delete_node(place.parent, node) {
                tracing::warn!(%error, node, "a scheduler node stays until the next reset");
                return;
            }
            node = place.parent;
            if let Some(above) = self.place(node) {
                above.children = above.children.saturating_sub(1);
            }
        }
    }

    fn groups(&self) -> usize {
        let layer = self.group_layer();
        let own = self.places.iter().filter(|place| place.is_own);
        own.filter(|place| place.layer == layer).count()
    }

    fn place(&mut self, node: u32) -> Option<&mut Place> {
        self.places.iter_mut().find(|place| place.node == node)
    }

    /// The first node of the lowest layer above groups that takes one more child.
    fn lowest_with_room(&self) -> Option<Place> {
        let fits = |place: &&Place| {
            let room = place.children < self.children_max(place.layer + 1);
            room && !place.is_full && place.layer < self.group_layer()
        };
        let fitting = self.places.iter().filter(fits);
        fitting.rev().max_by_key(|place| place.layer).copied()
    }

    /// Marks a node that was not added here as full; false for others.
    fn fill(&mut self, full: Place) -> bool {
        match self.place(full.node) {
            Some(place) if !place.is_own => {
                place.is_full = true;
                true
            }
            _ => false,
        }
    }

    /// Adds a branch down to a group.
    fn add_below(&mut self, top: Place, admin: &AdminQueue) -> Result<u32, AdminError> {
        let mut parent = top;
        while parent.layer < self.group_layer() {
            let node = match admin.add_node(parent.node) {
                Ok(node) => node,
                Err(error) => {
                    if parent.node != top.node {
                        self.delete_group(parent.node, admin);
                    }
                    return Err(error);
                }
            };
            if let Some(above) = self.place(parent.node) {
                above.children += 1;
            }
            parent = Place {
                node,
                parent: parent.node,
                layer: parent.layer + 1,
                children: 0,
                is_own: true,
                is_full: false,
            };
            self.places.push(parent);
        }
        Ok(parent.node)
    }
}
