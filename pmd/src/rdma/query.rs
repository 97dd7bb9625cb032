//! The current state of objects.

use super::engine::Engine;
use super::{CompletionQueue, MemoryRegion, RdmaError};
use ringside_spec::lan::admin::link::link_events;
use ringside_spec::rdma::commands::QueryStag;
use serde::Serialize;
use std::net::IpAddr;

/// The state of a port. Verbs: `ibv_port_state`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum PortState {
    /// It does.
    Active,
    /// The link is down.
    Down,
}

/// A port. Verbs: `ibv_port_attr`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PortReport {
    /// True if it carries frames.
    pub state: PortState,
    /// Megabits a second; `None` while down or unknown.
    pub megabits_per_second: Option<u32>,
    /// Path MTU of queue pairs without one of their own, bytes.
    pub active_mtu: u32,
    /// Largest path MTU, bytes.
    pub most_mtu: u32,
    /// Largest message, bytes.
    pub message_bytes: u32,
    /// Addresses that queue pairs may send from: the GID table.
    pub addresses: Vec<IpAddr>,
    /// Its partition key.
    pub partition_key: u16,
}

/// A completion queue. Verbs: `ibv_cq`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct CompletionQueueReport {
    /// Its number.
    pub number: u32,
    /// Slots of its ring.
    pub slots: u32,
    /// Queues of queue pairs that report to it.
    pub users: u32,
    /// It overflowed, or the host refused the device a write to it: nothing more comes through it.
    pub failed: bool,
    /// I/O virtual address of its ring, which the messages of an IOMMU name.
    pub ring: u64,
}

impl Engine {
    pub(crate) fn query_port(&self) -> Result<PortReport, RdmaError> {
        // One that failed is no bus master, and its firmware answers nothing.
        drop(self.open_state()?);
        let link = self.admin.link_status(self.facts.port, link_events::KEEP)?;
        Ok(PortReport {
            state: if link.up {
                PortState::Active
            } else {
                PortState::Down
            },
            megabits_per_second: link.megabits_per_second,
            active_mtu: self.facts.path_mtu,
            most_mtu: 4096,
            message_bytes: ringside_spec::rdma::limits::MAX_MESSAGE_BYTES,
            addresses: self.gids().addresses(),
            partition_key: ringside_spec::rdma::qp_context::DEFAULT_P_KEY,
        })
    }
}

impl CompletionQueue {
    /// Its current state.
    pub fn query(&self) -> Result<CompletionQueueReport, RdmaError> {
        let target = self.target();
        let number = self.number();
        let state = target.engine().open_state()?;
        let record = state.objects.completion_queues.must(number)?;
        Ok(CompletionQueueReport {
            number,
            slots: record.entries,
            users: record.users,
            failed: record.failed,
            ring: record.ring.iova().0,
        })
    }
}

impl MemoryRegion {
    /// True if its keys are valid: no invalidation has closed them. Asks the device.
    pub fn is_valid(&self) -> Result<bool, RdmaError> {
        let mut state = self.protection_domain().engine().open_state()?;
        let stag_index = state.objects.regions.must(self.number())?.stag_index;
        let answer = state.execute(QueryStag { stag_index })?;
        Ok(answer.minor_code == 0)
    }
}
