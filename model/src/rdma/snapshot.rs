//! The state that a driver can leave in the RDMA engine.

use super::RdmaEngine;

/// Everything that differs from an engine after reset.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RdmaSnapshot {
    /// The control queue pair exists.
    pub control_queue: bool,
    /// Numbers of the queue pairs.
    pub queue_pairs: Vec<u32>,
    /// Numbers of the completion queues.
    pub completion_queues: Vec<u32>,
    /// Numbers of the completion event queues.
    pub completion_event_queues: Vec<u16>,
    /// The asynchronous event queue exists.
    pub asynchronous_event_queue: bool,
    /// Steering tags (index part) in use.
    pub steering_tags: Vec<u32>,
    /// Segments of the host memory cache that are backed.
    pub segments: Vec<u16>,
    /// Entries of the ARP table.
    pub arp_entries: Vec<u16>,
    /// Nodes of the work scheduler.
    pub scheduler_nodes: Vec<u16>,
    /// Address handles.
    pub address_handles: Vec<u32>,
    /// Multicast groups.
    pub multicast_groups: Vec<u16>,
    /// The VSI lets RDMA frames in.
    pub receive_enabled: bool,
}

/// Indexes of the places that are taken.
fn taken<T, N: TryFrom<usize>>(table: &[Option<T>]) -> Vec<N> {
    let numbered = table.iter().enumerate();
    let present = numbered.filter(|(_, slot)| slot.is_some());
    present
        .filter_map(|(index, _)| N::try_from(index).ok())
        .collect()
}

impl RdmaEngine {
    /// Everything that a driver could leave behind.
    #[must_use]
    pub fn snapshot(&self) -> RdmaSnapshot {
        let objects = &self.objects;
        RdmaSnapshot {
            control_queue: self.control.is_some(),
            queue_pairs: taken(&self.queue_pairs),
            completion_queues: taken(&objects.completion_queues),
            completion_event_queues: taken(&objects.completion_event_queues),
            asynchronous_event_queue: objects.asynchronous_events.is_some(),
            steering_tags: objects.regions.in_use().collect(),
            segments: objects.hmc.backed().collect(),
            arp_entries: taken(objects.arp.entries()),
            scheduler_nodes: self.scheduler_nodes.keys().copied().collect(),
            address_handles: objects.address_handles.keys().copied().collect(),
            multicast_groups: self.multicast_groups.keys().copied().collect(),
            receive_enabled: self.receive_enabled,
        }
    }
}
