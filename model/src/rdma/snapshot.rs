//! What a driver can leave behind in the RDMA engine.

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
