//! What objects are like now.

use super::engine::Engine;
use super::{CompletionQueue, MemoryRegion, RdmaError};
use ringside_spec::lan::admin::link::link_events;
use ringside_spec::rdma::commands::QueryStag;
use serde::Serialize;
use std::net::IpAddr;

/// Whether a port carries frames. Verbs: `ibv_port_state`.
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
    /// Whether it carries frames.
    pub state: PortState,
    /// Megabits a second; `None` while down or unknown.
    pub megabits_per_second: Option<u32>,
    /// Path MTU of queue pairs that ask for none, bytes.
    pub active_mtu: u32,
    /// Largest path MTU, bytes.
    pub most_mtu: u32,
    /// Largest message, bytes.
    pub message_bytes: u32,
    /// Addresses that queue pairs may send from: the GID table.
    pub addresses: Vec<IpAddr>,
    /// The partition key that it knows.
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
    /// It overflowed: nothing more comes through it.
    pub failed: bool,
}

impl Engine {
    pub(super) fn query_port(&self) -> Result<PortReport, RdmaError> {
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
            addresses: self.facts.addresses.clone(),
            partition_key: ringside_spec::rdma::qp_context::DEFAULT_P_KEY,
        })
    }
}

impl CompletionQueue {
    /// What it is like now.
    pub fn query(&self) -> Result<CompletionQueueReport, RdmaError> {
        let target = self.target();
        let (number, what) = (self.number(), "completion queue");
        let state = target.engine().open_state()?;
        let record = state.completion_queues.get(&number);
        let record = record.ok_or(RdmaError::Gone { what, number })?;
        Ok(CompletionQueueReport {
            number,
            slots: record.entries,
            users: record.users,
            failed: record.failed,
        })
    }
}

impl MemoryRegion {
    /// Whether its keys are good: no invalidation has taken them. Asks the device.
    pub fn is_valid(&self) -> Result<bool, RdmaError> {
        let mut guard = self.protection_domain().engine().open_state()?;
        let state = &mut *guard;
        let (number, what) = (self.number(), "memory region");
        let record = state.regions.get(&number);
        let stag_index = record.ok_or(RdmaError::Gone { what, number })?.stag_index;
        let answer = state.control.execute(QueryStag { stag_index })?;
        Ok(answer.minor_code == 0)
    }
}
