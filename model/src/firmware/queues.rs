//! Transmit queues and RDMA queue sets: leaves of the scheduler's tree.

use super::command::{Command, Outcome};
use super::generic::QUEUES as TRANSMIT_QUEUES;
use super::scheduler::Scheduler;
use super::switch::FIRMWARE_VSI;
use super::vsi::Vsis;
use crate::chip::Context;
use ringside_spec::lan::admin::ReturnCode;
use ringside_spec::lan::admin::queues::{
    AddRdmaQueueSets, AddTransmitQueues, DisableGroup, DisableTransmitQueues, DisabledQueue,
    MoveFlags, MoveQueues, MoveTransmitQueues, MovedQueue, PortChange, RdmaQueueSet,
    RdmaQueueSetGroup, TransmitQueue, TransmitQueueGroup,
};
use ringside_spec::lan::admin::scheduler::{Element, ElementType};
use ringside_spec::lan::admin::vsi::kind;
use ringside_spec::lan::transmit::{TransmitContext, owner};
use std::collections::BTreeMap;

const RDMA_QUEUE_SETS: u16 = 1024;

/// Bits of a function's number in a context, as in PF_FUNC_RID.
const FUNCTION_BITS: u8 = 7;

/// The parent of a leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Leaf {
    parent: u32,
    node: u32,
}

/// Queues by number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Queues {
    /// Number of their function.
    function: u8,
    transmit: BTreeMap<u16, TransmitLeaf>,
    rdma: BTreeMap<u16, Leaf>,
    /// Transmit queues that were added so far.
    added: u64,
}

/// A transmit queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct TransmitLeaf {
    leaf: Leaf,
    /// Tells it from one before it under the same number.
    serial: u64,
    context: [u8; TransmitContext::SIZE],
}

/// Counts a queue whose owner does not fit the type of its VSI, and one of a virtual function that
/// asks for time stamps. Source: ice `ice_base.c`, `ice_setup_tx_ctx`, where queues of channels
/// (mqprio) have the owner of their own VSI and the time stamps of the function's; the VSIs of
/// DPDK's ice are all the function's own.
fn check_owner(queue: &TransmitQueue, vsis: &Vsis, context: &mut Context<'_>) {
    let asked = TransmitContext::decode(&queue.context);
    let expected = match vsis.kind(asked.vsi) {
        Some(kind::PHYSICAL_FUNCTION) => owner::PHYSICAL_FUNCTION,
        Some(kind::VIRTUAL_MACHINE) => owner::VIRTUAL_MACHINE,
        Some(kind::VIRTUAL_FUNCTION) => owner::VIRTUAL_FUNCTION,
        _ => return,
    };
    let stamps = asked.time_stamp_enable && expected == owner::VIRTUAL_FUNCTION;
    if asked.owner != expected || stamps {
        let kind = "transmit queue that does not fit the type of its VSI";
        context.ledger.breach(kind, || {
            let number = queue.queue.get();
            format!("queue {number}: {asked:?}; its owner is {expected}")
        });
    }
}

/// Refuses a queue for a VSI that does not exist, and one that names another function. Drivers read
/// the function's number from PF_FUNC_RID.
/// Source: ice `ice_base.c`, `ice_setup_tx_ctx`; iPXE `ice.c`, `ice_probe`.
fn check_context(
    queue: &TransmitQueue,
    function: u8,
    vsis: &Vsis,
    context: &mut Context<'_>,
) -> Result<(), ReturnCode> {
    let asked = TransmitContext::decode(&queue.context);
    let number = queue.queue.get();
    let ledger = &mut context.ledger;
    if !vsis.exists(asked.vsi) && asked.vsi != FIRMWARE_VSI {
        let kind = "transmit queue for a VSI that does not exist";
        ledger.breach(kind, || format!("queue {number}, VSI {}", asked.vsi));
        return Err(ReturnCode::NoEntry);
    }
    if asked.function != function & FUNCTION_BITS {
        let kind = "transmit queue for another function";
        let named = asked.function;
        ledger.breach(kind, || {
            format!("queue {number} names function {named}, of function {function}")
        });
        return Err(ReturnCode::Invalid);
    }
    Ok(())
}

fn leaf(element: Element) -> Element {
    Element {
        kind: ElementType::Leaf.code(),
        ..element
    }
}

impl Queues {
    pub(super) fn of_function(function: u8) -> Self {
        Self {
            function,
            ..Self::default()
        }
    }

    /// Numbers of the transmit queues.
    pub(super) fn transmit(&self) -> Vec<u16> {
        self.transmit.keys().copied().collect()
    }

    /// Transmit queues: number, serial, context.
    pub(super) fn contexts(
        &self,
    ) -> impl Iterator<Item = (u16, u64, [u8; TransmitContext::SIZE])> + '_ {
        let queues = self.transmit.iter();
        queues.map(|(number, queue)| (*number, queue.serial, queue.context))
    }

    /// True if a transmit queue belongs to the VSI.
    pub(super) fn sends_for(&self, vsi: u16) -> bool {
        let mut queues = self.transmit.values();
        queues.any(|queue| TransmitContext::decode(&queue.context).vsi == vsi)
    }

    /// Numbers of the RDMA queue sets.
    pub(super) fn rdma(&self) -> Vec<u16> {
        self.rdma.keys().copied().collect()
    }

    /// A reset took all queues.
    pub(super) fn clear(&mut self, scheduler: &mut Scheduler) {
        for queue in self.transmit.values() {
            scheduler.drop_leaf(queue.leaf.node);
        }
        for leaf in self.rdma.values() {
            scheduler.drop_leaf(leaf.node);
        }
        *self = Self {
            added: self.added,
            ..Self::of_function(self.function)
        };
    }

    /// Adds all transmit queues, or none: a driver is not told the nodes of a request that fails.
    pub(super) fn add_transmit(
        &mut self,
        command: &mut Command,
        scheduler: &mut Scheduler,
        vsis: &Vsis,
        context: &mut Context<'_>,
    ) -> Outcome {
        let before = (self.transmit.clone(), scheduler.clone());
        let outcome = self.add_each_transmit(command, scheduler, vsis, context);
        if outcome.is_err() {
            (self.transmit, *scheduler) = before;
        }
        outcome
    }

    fn add_each_transmit(
        &mut self,
        command: &mut Command,
        scheduler: &mut Scheduler,
        vsis: &Vsis,
        context: &mut Context<'_>,
    ) -> Outcome {
        let asked: AddTransmitQueues = command.parameters();
        let mut at = 0;
        for _ in 0..asked.group_count {
            let group: TransmitQueueGroup = command.item(at)?;
            at += TransmitQueueGroup::SIZE;
            for _ in 0..group.count {
                let mut queue: TransmitQueue = command.item(at)?;
                let number = queue.queue.get();
                if number >= TRANSMIT_QUEUES || self.transmit.contains_key(&number) {
                    context.ledger.breach(
                        "transmit queue added under a number in use or too high",
                        || format!("queue {number}"),
                    );
                    return Err(ReturnCode::Exists);
                }
                check_context(&queue, self.function, vsis, context)?;
                check_owner(&queue, vsis, context);
                let parent = group.parent.get();
                let node = scheduler.add(parent, leaf(queue.element), context)?;
                self.added += 1;
                let added = TransmitLeaf {
                    leaf: Leaf { parent, node },
                    serial: self.added,
                    context: queue.context,
                };
                self.transmit.insert(number, added);
                queue.node = node.into();
                command.put(at, &queue)?;
                at += TransmitQueue::SIZE;
            }
        }
        command.done()
    }

    /// Adds all RDMA queue sets, or none.
    pub(super) fn add_rdma(
        &mut self,
        command: &mut Command,
        scheduler: &mut Scheduler,
        context: &mut Context<'_>,
    ) -> Outcome {
        let before = (self.rdma.clone(), scheduler.clone());
        let outcome = self.add_each_rdma(command, scheduler, context);
        if outcome.is_err() {
            (self.rdma, *scheduler) = before;
        }
        outcome
    }

    fn add_each_rdma(
        &mut self,
        command: &mut Command,
        scheduler: &mut Scheduler,
        context: &mut Context<'_>,
    ) -> Outcome {
        let asked: AddRdmaQueueSets = command.parameters();
        let mut at = 0;
        for _ in 0..asked.group_count {
            let group: RdmaQueueSetGroup = command.item(at)?;
            at += RdmaQueueSetGroup::SIZE;
            for _ in 0..group.count.get() {
                let mut set: RdmaQueueSet = command.item(at)?;
                let number = set.queue_set.get();
                if number == 0 || number >= RDMA_QUEUE_SETS || self.rdma.contains_key(&number) {
                    context.ledger.breach(
                        "RDMA queue set added under a number in use or not valid",
                        || format!("queue set {number}"),
                    );
                    return Err(ReturnCode::Exists);
                }
                let parent = group.parent.get();
                let node = scheduler.add(parent, leaf(set.element), context)?;
                self.rdma.insert(number, Leaf { parent, node });
                set.node = node.into();
                command.put(at, &set)?;
                at += RdmaQueueSet::SIZE;
            }
        }
        command.done()
    }

    /// Moves queues to another node of the scheduler (0x0C32). There is one port and one traffic
    /// class to move within.
    /// Source: DPDK `ice_tm.c`, `ice_tm_setup_txq_node`; Linux `ice_common.c`,
    /// `ice_aq_cfg_lan_txq`.
    pub(super) fn move_transmit(
        &mut self,
        command: &Command,
        scheduler: &mut Scheduler,
        context: &mut Context<'_>,
    ) -> Outcome {
        let asked: MoveTransmitQueues = command.parameters();
        let ports = PortChange(asked.port_change);
        if MoveFlags(asked.flags).operation() == 0 || ports.source() != ports.destination() {
            return Err(ReturnCode::Invalid);
        }
        let head: MoveQueues = command.item(0)?;
        let (from, to) = (head.source_parent.get(), head.destination_parent.get());
        for index in 0..usize::from(asked.count) {
            let moved: MovedQueue = command.item(MoveQueues::SIZE + index * MovedQueue::SIZE)?;
            if moved.class != 0 {
                return Err(ReturnCode::Invalid);
            }
            let leaf = Leaf {
                parent: from,
                node: moved.node.get(),
            };
            let found = self.transmit.get_mut(&moved.queue.get());
            let Some(queue) = found.filter(|queue| queue.leaf == leaf) else {
                context.ledger.breach(
                    "transmit queue moved that does not exist under its parent",
                    || format!("{moved:?} under {from:#x}"),
                );
                return Err(ReturnCode::NoEntry);
            };
            scheduler.move_leaf(leaf.node, to)?;
            queue.leaf.parent = to;
        }
        command.answer(&MoveTransmitQueues {
            blocked_domains: 0.into(),
            ..asked
        })
    }

    pub(super) fn disable(
        &mut self,
        command: &Command,
        scheduler: &mut Scheduler,
        context: &mut Context<'_>,
    ) -> Outcome {
        let asked: DisableTransmitQueues = command.parameters();
        let mut at = 0;
        for _ in 0..asked.group_count {
            let group: DisableGroup = command.item(at)?;
            let count = usize::from(group.count);
            for index in 0..count {
                let queue = DisabledQueue(command.number16(at + DisableGroup::SIZE + 2 * index)?);
                self.disable_one(queue, group.parent.get(), scheduler, context)?;
            }
            at += DisableGroup::size_with(count);
        }
        command.answer(&DisableTransmitQueues {
            blocked_domains: 0.into(),
            ..asked
        })
    }

    fn disable_one(
        &mut self,
        queue: DisabledQueue,
        parent: u32,
        scheduler: &mut Scheduler,
        context: &mut Context<'_>,
    ) -> Result<(), ReturnCode> {
        let number = queue.number();
        let found = if queue.rdma_queue_set() {
            self.rdma.get(&number).copied()
        } else {
            self.transmit.get(&number).map(|queue| queue.leaf)
        };
        let Some(leaf) = found.filter(|leaf| leaf.parent == parent) else {
            context.ledger.breach(
                "queue disabled that does not exist under its parent",
                || format!("{queue:?} under {parent:#x}"),
            );
            return Err(ReturnCode::NoEntry);
        };
        scheduler.remove(leaf.parent, leaf.node, context)?;
        if queue.rdma_queue_set() {
            self.rdma.remove(&number);
        } else {
            self.transmit.remove(&number);
        }
        Ok(())
    }
}
