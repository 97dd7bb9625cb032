//! The transmit scheduler's tree, and the commands that change it.

use super::classes::Classes;
use super::command::{Answer, Command, Outcome};
use crate::chip::Context;
use crate::lan::classes::{CLASSES, FrameClasses};
use ringside_spec::lan::Parameters;
use ringside_spec::lan::admin::ReturnCode;
use ringside_spec::lan::admin::lldp::LldpSetLocalMib;
use ringside_spec::lan::admin::scheduler::{
    Element, ElementCommand, ElementType, GetTopology, GroupHeader, LayerProperties, MAX_LAYERS,
    MoveHeader, NO_NODE, Node, PortEts, QueryPortEts, RateLimitCommand, RateLimitFlags,
    RateLimitProfile, SUSPENDED, SchedulerProperties, SchedulerResources, TopologyBranch,
};
use std::collections::BTreeMap;

/// Nodes under one parent in each layer, the root's first. Source: Linux
/// `Documentation/networking/devlink/ice.rst`, `tx_scheduling_layers`: 8 in the tree of nine
/// layers.
const MAX_SIBLINGS: [u16; MAX_LAYERS] = [1, 8, 8, 8, 8, 8, 8, 8, 8];
const MAX_NODES: u16 = 1024;
const MAX_RATE_PROFILES: u16 = 256;
const RDMA_QUEUE_SETS: u16 = 1024;

const ROOT: u32 = 0x100;
const CLASS_0: u32 = 0x101;
const ENTRY_POINT: u32 = 0x102;
const FIRST_GIVEN: u32 = 0x200;

/// The node of a traffic class; class 0 is in the default tree.
const fn class_node(class: usize) -> u32 {
    match class {
        0 => CLASS_0,
        other => 0x110 + other as u32,
    }
}

/// A node of the tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    parent: u32,
    layer: u8,
    element: Element,
}

/// This function's part of the tree of one port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Scheduler {
    nodes: BTreeMap<u32, Place>,
    next: u32,
    rate_profiles: BTreeMap<(u8, u16), RateLimitProfile>,
    classes: Classes,
}

impl Scheduler {
    pub(super) fn new() -> Self {
        let mut tree = Self {
            nodes: BTreeMap::new(),
            next: FIRST_GIVEN,
            rate_profiles: BTreeMap::new(),
            classes: Classes::ONE,
        };
        let defaults = [
            (ROOT, NO_NODE, ElementType::RootPort),
            (CLASS_0, ROOT, ElementType::TrafficClass),
            (ENTRY_POINT, CLASS_0, ElementType::EntryPoint),
        ];
        for (layer, (node, parent, kind)) in (0..).zip(defaults) {
            let element = Element {
                kind: kind.code(),
                ..Element::unlimited()
            };
            tree.nodes.insert(
                node,
                Place {
                    parent,
                    layer,
                    element,
                },
            );
        }
        tree
    }

    /// Divides the port as a driver's MIB says (0x0A08). Drivers find the nodes of the classes by a
    /// query of the port (0x040E).
    pub(super) fn set_local_mib(&mut self, command: &Command) -> Outcome {
        let asked: LldpSetLocalMib = command.parameters();
        let length = usize::from(asked.length_bytes.get());
        let bytes = command.buffer.get(..length).ok_or(ReturnCode::Invalid)?;
        if let Some(classes) = Classes::of_mib(bytes)? {
            self.set_classes(classes);
        }
        command.done()
    }

    /// Traffic classes of received frames.
    pub(super) const fn frame_classes(&self) -> FrameClasses {
        self.classes.of_frames
    }

    /// Divides the port into classes: each has a node below the root. That of a class that is gone
    /// stays as long as it has children.
    fn set_classes(&mut self, classes: Classes) {
        self.classes = classes;
        for class in 1..CLASSES {
            let (node, used) = (class_node(class), classes.used >> class & 1 == 1);
            if used {
                let element = Element {
                    kind: ElementType::TrafficClass.code(),
                    ..Element::unlimited()
                };
                self.nodes.entry(node).or_insert(Place {
                    parent: ROOT,
                    layer: 1,
                    element,
                });
            } else if self.children(node) == 0 {
                self.nodes.remove(&node);
            }
        }
    }

    /// Nodes that are not those of the default tree, and default ones that are gone, as
    /// id, parent, kind. Those of traffic classes are the firmware's own.
    pub(super) fn differences(&self) -> Vec<(u32, u32, u8)> {
        let default = Self::new();
        let added = self
            .nodes
            .iter()
            .filter(|(id, _)| !default.nodes.contains_key(id) && !self.is_class(**id));
        let gone = default
            .nodes
            .iter()
            .filter(|(id, _)| !self.nodes.contains_key(id));
        let added = added.map(|(id, place)| (*id, place.parent, place.element.kind));
        added.chain(gone.map(|(id, _)| (*id, NO_NODE, 0))).collect()
    }

    fn is_class(&self, node: u32) -> bool {
        let place = self.nodes.get(&node);
        place.is_some_and(|place| place.element.kind() == ElementType::TrafficClass)
    }

    /// Rate limit profiles that exist: layer and id.
    pub(super) fn profiles(&self) -> Vec<(u8, u16)> {
        self.rate_profiles.keys().copied().collect()
    }

    fn children(&self, parent: u32) -> usize {
        self.nodes
            .values()
            .filter(|place| place.parent == parent)
            .count()
    }

    /// Adds a node under `parent`; the id that it got.
    pub(super) fn add(
        &mut self,
        parent: u32,
        element: Element,
        context: &mut Context<'_>,
    ) -> Result<u32, ReturnCode> {
        let Some(above) = self.nodes.get(&parent) else {
            context
                .ledger
                .breach("scheduler node under a parent that does not exist", || {
                    format!("parent {parent:#x}")
                });
            return Err(ReturnCode::NoEntry);
        };
        let layer = above.layer + 1;
        let Some(siblings) = MAX_SIBLINGS.get(usize::from(layer)) else {
            context
                .ledger
                .breach("scheduler node below the last layer", || {
                    format!("parent {parent:#x}")
                });
            return Err(ReturnCode::Invalid);
        };
        // Source: ice `ice_sched.c`, `ice_sched_get_free_qparent`: the layer of queue groups.
        // iPXE's goes below the last node of the default tree (`ice.c`, `ice_admin_schedule`).
        let is_last = usize::from(layer) == MAX_LAYERS - 1 || parent == ENTRY_POINT;
        if element.kind() == ElementType::Leaf && !is_last {
            context
                .ledger
                .breach("scheduler leaf that is not in the last layer", || {
                    format!("layer {layer}, under {parent:#x}")
                });
            return Err(ReturnCode::Invalid);
        }
        if self.children(parent) >= usize::from(*siblings) || self.nodes.len() >= MAX_NODES.into() {
            return Err(ReturnCode::NoSpace);
        }
        let node = self.next;
        self.next = self
            .next
            .checked_add(1)
            .filter(|id| *id != NO_NODE)
            .unwrap_or(FIRST_GIVEN);
        self.nodes.insert(
            node,
            Place {
                parent,
                layer,
                element,
            },
        );
        Ok(node)
    }

    /// Removes a node that has no children.
    pub(super) fn remove(
        &mut self,
        parent: u32,
        node: u32,
        context: &mut Context<'_>,
    ) -> Result<(), ReturnCode> {
        let found = self
            .nodes
            .get(&node)
            .is_some_and(|place| place.parent == parent);
        if !found {
            context.ledger.breach(
                "scheduler node removed that is not under its parent",
                || format!("node {node:#x}, parent {parent:#x}"),
            );
            return Err(ReturnCode::NoEntry);
        }
        if self.children(node) > 0 || node == ROOT || self.is_class(node) {
            context
                .ledger
                .breach("scheduler node removed while it has children", || {
                    format!("node {node:#x}")
                });
            return Err(ReturnCode::Invalid);
        }
        self.nodes.remove(&node);
        Ok(())
    }

    /// Removes a leaf in any state, for a reset of queues.
    pub(super) fn drop_leaf(&mut self, node: u32) {
        self.nodes.remove(&node);
    }

    fn node(&self, id: u32) -> Result<Node, ReturnCode> {
        let place = self.nodes.get(&id).ok_or(ReturnCode::NoEntry)?;
        Ok(Node {
            parent: place.parent.into(),
            node: id.into(),
            element: place.element,
        })
    }

    fn counted(command: &Command, asked: &ElementCommand, done: u16) -> Outcome {
        let answer = ElementCommand {
            answered: done.into(),
            ..*asked
        };
        command.answer(&answer)
    }

    /// One group per command: all that drivers send.
    fn one_group(
        command: &Command,
        context: &mut Context<'_>,
    ) -> Result<ElementCommand, ReturnCode> {
        let asked: ElementCommand = command.parameters();
        if asked.requested.get() != 1 {
            context
                .ledger
                .breach("scheduler command without exactly one group", || {
                    format!("{} groups", asked.requested.get())
                });
            return Err(ReturnCode::Invalid);
        }
        Ok(asked)
    }

    pub(super) fn default_topology(&self, command: &mut Command) -> Outcome {
        let mut branch = TopologyBranch::zeroed();
        let mut count = 0u16;
        for (place, id) in branch.nodes.iter_mut().zip([ROOT, CLASS_0, ENTRY_POINT]) {
            if let Ok(node) = self.node(id) {
                *place = node;
                count += 1;
            }
        }
        branch.header.parent = NO_NODE.into();
        branch.header.count = count.into();
        command.put(0, &branch)?;
        let asked: GetTopology = command.parameters();
        command.answer_with(
            &GetTopology {
                branch_count: 1,
                ..asked
            },
            TopologyBranch::SIZE,
        )
    }

    /// Adds all nodes of a group, or none: a driver is not told the ids of a request that fails.
    pub(super) fn add_elements(
        &mut self,
        command: &mut Command,
        context: &mut Context<'_>,
    ) -> Outcome {
        let before = self.clone();
        let outcome = self.add_each(command, context);
        if outcome.is_err() {
            *self = before;
        }
        outcome
    }

    fn add_each(&mut self, command: &mut Command, context: &mut Context<'_>) -> Outcome {
        let asked = Self::one_group(command, context)?;
        let group: GroupHeader = command.item(0)?;
        for index in 0..usize::from(group.count.get()) {
            let at = GroupHeader::SIZE + index * Node::SIZE;
            let mut node: Node = command.item(at)?;
            let generic = matches!(
                node.element.kind(),
                ElementType::Generic | ElementType::Padded
            );
            if !generic || node.parent != group.parent {
                context
                    .ledger
                    .breach("scheduler node of a kind that a driver cannot add", || {
                        format!("{:?} under {:#x}", node.element.kind(), node.parent.get())
                    });
                return Err(ReturnCode::Invalid);
            }
            let id = self.add(group.parent.get(), node.element, context)?;
            node.node = id.into();
            command.put(at, &node)?;
        }
        Self::counted(command, &asked, 1)
    }

    pub(super) fn delete_elements(
        &mut self,
        command: &Command,
        context: &mut Context<'_>,
    ) -> Outcome {
        let asked = Self::one_group(command, context)?;
        let group: GroupHeader = command.item(0)?;
        for index in 0..usize::from(group.count.get()) {
            let node = command.number32(GroupHeader::SIZE + 4 * index)?;
            self.remove(group.parent.get(), node, context)?;
        }
        Self::counted(command, &asked, 1)
    }

    pub(super) fn move_elements(
        &mut self,
        command: &Command,
        context: &mut Context<'_>,
    ) -> Outcome {
        let asked = Self::one_group(command, context)?;
        let header: MoveHeader = command.item(0)?;
        let (from, to) = (header.source_parent.get(), header.destination_parent.get());
        for index in 0..usize::from(header.count.get()) {
            let node = command.number32(MoveHeader::SIZE + 4 * index)?;
            let layers = (self.nodes.get(&to), self.nodes.get(&node));
            let fits = matches!(layers, (Some(parent), Some(place))
                if place.parent == from && parent.layer + 1 == place.layer);
            if !fits {
                context
                    .ledger
                    .breach("scheduler node moved to where it does not fit", || {
                        format!("node {node:#x} from {from:#x} to {to:#x}")
                    });
                return Err(ReturnCode::Invalid);
            }
            self.move_leaf(node, to)?;
        }
        Self::counted(command, &asked, 1)
    }

    /// Moves a node, as a transmit queue's leaf, to another parent of the same layer.
    pub(super) fn move_leaf(&mut self, leaf: u32, to: u32) -> Result<(), ReturnCode> {
        let above = self.nodes.get(&to).ok_or(ReturnCode::NoEntry)?;
        let layer = above.layer + 1;
        let place = self.nodes.get(&leaf).ok_or(ReturnCode::NoEntry)?;
        if place.layer != layer {
            return Err(ReturnCode::Invalid);
        }
        let siblings = MAX_SIBLINGS.get(usize::from(layer)).copied().unwrap_or(0);
        if place.parent != to && self.children(to) >= siblings.into() {
            return Err(ReturnCode::NoSpace);
        }
        if let Some(place) = self.nodes.get_mut(&leaf) {
            place.parent = to;
        }
        Ok(())
    }

    pub(super) fn configure_elements(
        &mut self,
        command: &Command,
        context: &mut Context<'_>,
    ) -> Outcome {
        let asked: ElementCommand = command.parameters();
        for index in 0..usize::from(asked.requested.get()) {
            let new: Node = command.item(index * Node::SIZE)?;
            if self.has_rate_limit(&new.element) {
                let node = new.node.get();
                context.ledger.remark(
                    "transmit rate limit that the model keeps and does not apply",
                    || format!("node {node:#x}"),
                );
            }
            let place = self
                .nodes
                .get_mut(&new.node.get())
                .ok_or(ReturnCode::NoEntry)?;
            let kind = place.element.kind;
            place.element = Element {
                kind,
                ..new.element
            };
        }
        Self::counted(command, &asked, asked.requested.get())
    }

    /// True if a node gets a profile that a driver has made: that of no limit is the firmware's.
    fn has_rate_limit(&self, element: &Element) -> bool {
        let shared = element.shared_limit.get();
        let named = [
            element.committed.profile.get(),
            element.excess.profile.get(),
            shared,
        ];
        let mut made = self.rate_profiles.keys();
        made.any(|(_, made)| named.contains(made))
    }

    pub(super) fn query_elements(&self, command: &mut Command) -> Outcome {
        let asked: ElementCommand = command.parameters();
        for index in 0..usize::from(asked.requested.get()) {
            let at = index * Node::SIZE;
            let wanted: Node = command.item(at)?;
            let node = self.node(wanted.node.get())?;
            command.put(at, &node)?;
        }
        Self::counted(command, &asked, asked.requested.get())
    }

    pub(super) fn suspend(&mut self, command: &Command, suspend: bool) -> Outcome {
        let asked: ElementCommand = command.parameters();
        for index in 0..usize::from(asked.requested.get()) {
            let id = command.number32(4 * index)?;
            let place = self.nodes.get_mut(&id).ok_or(ReturnCode::NoEntry)?;
            let others = place.element.flags & !SUSPENDED;
            place.element.flags = if suspend { others | SUSPENDED } else { others };
        }
        Self::counted(command, &asked, asked.requested.get())
    }

    pub(super) fn port_ets(&self, command: &mut Command) -> Outcome {
        let asked: QueryPortEts = command.parameters();
        if asked.port_node.get() != ROOT {
            return Err(ReturnCode::NoEntry);
        }
        let mut ets = PortEts {
            valid_classes: self.classes.used,
            share: self.classes.share,
            class_nodes: [NO_NODE.into(); CLASSES],
            ..PortEts::zeroed()
        };
        for (class, node) in ets.class_nodes.iter_mut().enumerate() {
            if self.classes.used >> class & 1 == 1 {
                *node = class_node(class).into();
            }
        }
        command.put(0, &ets)?;
        Ok(Answer {
            parameters: asked.to_raw(),
            length: PortEts::SIZE,
        })
    }

    pub(super) fn resources(&self, command: &mut Command) -> Outcome {
        let properties = SchedulerProperties {
            physical_levels: (MAX_LAYERS as u16).into(),
            logical_levels: (MAX_LAYERS as u16).into(),
            device_domains_max: 32,
            function_domains_max: 32,
            rdma_queue_sets: RDMA_QUEUE_SETS.into(),
            ..SchedulerProperties::zeroed()
        };
        let mut layers = [LayerProperties::zeroed(); MAX_LAYERS];
        for (number, (layer, siblings)) in (0..).zip(layers.iter_mut().zip(MAX_SIBLINGS)) {
            *layer = LayerProperties {
                logical_layer: number,
                chunk_size: 1,
                device_nodes_max: MAX_NODES.into(),
                function_nodes_max: MAX_NODES.into(),
                siblings_max: siblings.into(),
                committed_profiles_max: MAX_RATE_PROFILES.into(),
                excess_profiles_max: MAX_RATE_PROFILES.into(),
                shared_profiles_max: MAX_RATE_PROFILES.into(),
                ..LayerProperties::zeroed()
            };
        }
        command.put(0, &SchedulerResources { properties, layers })?;
        Ok(Answer {
            parameters: command.descriptor.parameters,
            length: SchedulerResources::SIZE,
        })
    }

    /// Adds all profiles, or none.
    pub(super) fn add_rate_profiles(&mut self, command: &mut Command) -> Outcome {
        let before = self.rate_profiles.clone();
        let outcome = self.add_each_profile(command);
        if outcome.is_err() {
            self.rate_profiles = before;
        }
        outcome
    }

    fn add_each_profile(&mut self, command: &mut Command) -> Outcome {
        let asked: RateLimitCommand = command.parameters();
        for index in 0..usize::from(asked.count.get()) {
            let at = index * RateLimitProfile::SIZE;
            let mut profile: RateLimitProfile = command.item(at)?;
            let layer = profile.level;
            if layer == 0 || usize::from(layer) > MAX_LAYERS {
                return Err(ReturnCode::Invalid);
            }
            let free =
                (1..MAX_RATE_PROFILES).find(|id| !self.rate_profiles.contains_key(&(layer, *id)));
            let id = free.ok_or(ReturnCode::NoSpace)?;
            profile.profile = id.into();
            profile.flags = RateLimitFlags(profile.flags).with_invalid(false).0;
            self.rate_profiles.insert((layer, id), profile);
            command.put(at, &profile)?;
        }
        command.answer(&RateLimitCommand {
            processed: asked.count,
            ..asked
        })
    }

    pub(super) fn query_rate_profiles(&self, command: &mut Command) -> Outcome {
        let asked: RateLimitCommand = command.parameters();
        for index in 0..usize::from(asked.count.get()) {
            let at = index * RateLimitProfile::SIZE;
            let wanted: RateLimitProfile = command.item(at)?;
            let key = (wanted.level, wanted.profile.get());
            let profile = *self.rate_profiles.get(&key).ok_or(ReturnCode::NoEntry)?;
            command.put(at, &profile)?;
        }
        command.answer(&RateLimitCommand {
            processed: asked.count,
            ..asked
        })
    }

    pub(super) fn remove_rate_profiles(
        &mut self,
        command: &Command,
        context: &mut Context<'_>,
    ) -> Outcome {
        let asked: RateLimitCommand = command.parameters();
        for index in 0..usize::from(asked.count.get()) {
            let profile: RateLimitProfile = command.item(index * RateLimitProfile::SIZE)?;
            let key = (profile.level, profile.profile.get());
            if self.rate_profiles.remove(&key).is_none() {
                context
                    .ledger
                    .breach("rate limit profile removed that does not exist", || {
                        format!("layer {}, profile {}", key.0, key.1)
                    });
                return Err(ReturnCode::NoEntry);
            }
        }
        command.answer(&RateLimitCommand {
            processed: asked.count,
            ..asked
        })
    }
}
