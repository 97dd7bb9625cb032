//! The transmit scheduler's tree, and the RDMA queue sets at its leaves.

use super::{check_count, read_at, read_list};
use crate::admin::{AdminError, AdminQueue, Answer, Data};
use ringside_spec::lan::admin::queues::{
    AddRdmaQueueSets, DISABLE_TIMEOUT_100US, DisableFlags, DisableGroup, DisableScope,
    DisableTransmitQueues, DisabledQueue, RdmaQueueSet, RdmaQueueSetGroup,
};
use ringside_spec::lan::admin::scheduler::{
    Element, ElementCommand, GetTopology, GroupHeader, MAX_LAYERS, NO_NODE, Node,
    QuerySchedulerResources, SchedulerResources, TopologyBranch,
};
use ringside_spec::lan::admin::{BUFFER_SIZE, Opcode};
use serde::Serialize;
use zerocopy::IntoBytes;

/// Branches of the default topology at most.
const MAX_BRANCHES: usize = 8;

/// Limits of the scheduler.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SchedulerLimits {
    /// Layers that are visible to software, 3..=9.
    pub layers: u8,
    /// RDMA queue sets of the device.
    pub rdma_queue_sets: u16,
    /// Nodes under one parent, for each layer from the root's.
    pub siblings_max: Vec<u16>,
}

impl AdminQueue {
    /// Limits of the scheduler (0x0412).
    pub fn scheduler_limits(&self) -> Result<SchedulerLimits, AdminError> {
        let parameters = QuerySchedulerResources::zeroed();
        let data = Data::Receive(SchedulerResources::SIZE);
        let answer = self.execute(Opcode::QuerySchedulerResources, &parameters, data)?;
        decode_limits(&answer)
    }

    /// The first branch of the tree that the firmware made for `port` (0x0400), root first.
    pub fn default_topology(&self, port: u8) -> Result<Vec<Node>, AdminError> {
        let parameters = GetTopology {
            port,
            ..GetTopology::zeroed()
        };
        let data = Data::Receive(BUFFER_SIZE);
        let answer = self.execute(Opcode::GetDefaultTopology, &parameters, data)?;
        decode_topology(&answer)
    }

    /// The node with id `node` (0x0404).
    pub fn query_node(&self, node: u32) -> Result<Node, AdminError> {
        let opcode = Opcode::QuerySchedulerElements;
        let asked = Node {
            node: node.into(),
            ..Node::zeroed()
        };
        let answer = self.execute(opcode, &one_element(), Data::Send(asked.as_bytes()))?;
        check_count(
            opcode,
            1,
            answer.parameters::<ElementCommand>().answered.get(),
        )?;
        let found: Node = read_at(opcode, &answer.data, 0)?;
        if found.node.get() != node {
            let reason = format!("node {node:#x} was asked and {:#x} came", found.node.get());
            return Err(AdminError::malformed(opcode, reason));
        }
        Ok(found)
    }

    /// Adds a generic node under `parent` (0x0401); returns its id.
    pub fn add_node(&self, parent: u32) -> Result<u32, AdminError> {
        let opcode = Opcode::AddSchedulerElements;
        let mut buffer = group(parent, 1).as_bytes().to_vec();
        buffer.extend_from_slice(Node::generic_under(parent).as_bytes());
        let answer = self.execute(opcode, &one_element(), Data::Send(&buffer))?;
        check_count(
            opcode,
            1,
            answer.parameters::<ElementCommand>().answered.get(),
        )?;
        let added: Node = read_at(opcode, &answer.data, GroupHeader::SIZE)?;
        node_id(opcode, added.node.get())
    }

    /// Deletes a node that has no children (0x040F).
    pub fn delete_node(&self, parent: u32, node: u32) -> Result<(), AdminError> {
        let mut buffer = group(parent, 1).as_bytes().to_vec();
        buffer.extend_from_slice(&node.to_le_bytes());
        let opcode = Opcode::DeleteSchedulerElements;
        self.execute(opcode, &one_element(), Data::Send(&buffer))?;
        Ok(())
    }

    /// Puts RDMA queue set `queue_set` under node `parent` (0x0C33); returns the id of its node.
    ///
    /// `queue_set` is the handle that the control queue pair gave for the work-scheduler leaf.
    pub fn add_rdma_queue_set(&self, parent: u32, queue_set: u16) -> Result<u32, AdminError> {
        let opcode = Opcode::AddRdmaQueueSets;
        let head = RdmaQueueSetGroup {
            parent: parent.into(),
            count: 1.into(),
            ..RdmaQueueSetGroup::zeroed()
        };
        let set = RdmaQueueSet {
            queue_set: queue_set.into(),
            // without a type, as Linux leaves it: the firmware makes it a leaf
            element: Element::unlimited(),
            ..RdmaQueueSet::zeroed()
        };
        let mut buffer = head.as_bytes().to_vec();
        buffer.extend_from_slice(set.as_bytes());
        let parameters = AddRdmaQueueSets {
            group_count: 1,
            ..AddRdmaQueueSets::zeroed()
        };
        let answer = self.execute(opcode, &parameters, Data::Send(&buffer))?;
        let added: RdmaQueueSet = read_at(opcode, &answer.data, RdmaQueueSetGroup::SIZE)?;
        match added.node.get() {
            0 => Err(AdminError::malformed(opcode, "the queue set got no node")),
            node => node_id(opcode, node),
        }
    }

    /// Takes an RDMA queue set from under node `parent` (0x0C31).
    pub fn remove_rdma_queue_set(&self, parent: u32, queue_set: u16) -> Result<(), AdminError> {
        let head = DisableGroup {
            parent: parent.into(),
            count: 1,
            ..DisableGroup::zeroed()
        };
        let queue = DisabledQueue::ZERO
            .with_number(queue_set)
            .with_rdma_queue_set(true);
        let mut buffer = head.as_bytes().to_vec();
        buffer.extend_from_slice(&queue.0.to_le_bytes());
        buffer.resize(DisableGroup::size_with(1), 0);
        let parameters = DisableTransmitQueues {
            flags: DisableFlags::ZERO.with_flush(true).0,
            group_count: 1,
            scope: DisableScope::ZERO
                .with_timeout_100us(DISABLE_TIMEOUT_100US)
                .0
                .into(),
            ..DisableTransmitQueues::zeroed()
        };
        let opcode = Opcode::DisableTransmitQueues;
        self.execute(opcode, &parameters, Data::Send(&buffer))?;
        Ok(())
    }
}

fn one_element() -> ElementCommand {
    ElementCommand {
        requested: 1.into(),
        ..ElementCommand::zeroed()
    }
}

fn group(parent: u32, count: u16) -> GroupHeader {
    GroupHeader {
        parent: parent.into(),
        count: count.into(),
        ..GroupHeader::zeroed()
    }
}

fn node_id(opcode: Opcode, node: u32) -> Result<u32, AdminError> {
    match node {
        NO_NODE => Err(AdminError::malformed(opcode, "the node got no id")),
        node => Ok(node),
    }
}

pub(super) fn decode_limits(answer: &Answer) -> Result<SchedulerLimits, AdminError> {
    let opcode = Opcode::QuerySchedulerResources;
    let all: SchedulerResources = read_at(opcode, &answer.data, 0)?;
    let count = all.properties.logical_levels.get();
    let layers = match u8::try_from(count) {
        Ok(layers) if (3..=MAX_LAYERS).contains(&usize::from(layers)) => layers,
        _ => {
            let reason = format!("{count} layers, expected 3 to {MAX_LAYERS}");
            return Err(AdminError::malformed(opcode, reason));
        }
    };
    let siblings = all.layers.iter().map(|layer| layer.siblings_max.get());
    Ok(SchedulerLimits {
        layers,
        rdma_queue_sets: all.properties.rdma_queue_sets.get(),
        siblings_max: siblings.take(usize::from(layers)).collect(),
    })
}

pub(super) fn decode_topology(answer: &Answer) -> Result<Vec<Node>, AdminError> {
    let opcode = Opcode::GetDefaultTopology;
    let count = answer.parameters::<GetTopology>().branch_count.into();
    let branches: Vec<TopologyBranch> = read_list(opcode, &answer.data, 0, count, MAX_BRANCHES)?;
    let Some(branch) = branches.first() else {
        return Err(AdminError::malformed(opcode, "it has no branch"));
    };
    let nodes = usize::from(branch.header.count.get());
    let Some(nodes) = branch.nodes.get(..nodes) else {
        let reason = format!("a branch of {nodes} nodes is longer than {MAX_LAYERS}");
        return Err(AdminError::malformed(opcode, reason));
    };
    Ok(nodes.to_vec())
}
