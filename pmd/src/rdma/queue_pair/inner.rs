//! The parts of a queue pair, which are the same in every state, and its end.

use super::QueuePairConfig;
use super::context::{Attributes, Path};
use crate::rdma::connection::Endpoint;
use crate::rdma::engine::Engine;
use crate::rdma::lifecycle::By;
use crate::rdma::protection_domain::Share;
use crate::rdma::records::{Condition, FedEnd};
use crate::rdma::{ProtectionDomain, RdmaError};
use ringside_qp::{ReceiveQueue, SendQueue};
use std::sync::Arc;

/// The queue pair in every state. Dropping it destroys it.
#[derive(Debug)]
pub(super) struct Inner {
    pub(super) send: SendQueue,
    /// nothing once a shared receive queue feeds it
    pub(super) receive: Option<ReceiveQueue>,
    pub(super) receive_capacity: u32,
    pub(super) condition: Arc<Condition>,
    pub(super) number: u32,
    pub(super) attributes: Attributes,
    pub(super) peer: Option<Endpoint>,
    /// its owner has requested that
    pub(super) is_destroyed: bool,
    /// the way to its peer, from the step to RTR on
    pub(super) path: Option<Path>,
    /// keeps number and engine
    pub(super) domain: ProtectionDomain,
    pub(super) share: Option<Share>,
    /// the configuration that it was made with: a reset makes it again from that
    pub(super) config: Box<QueuePairConfig>,
}

impl Inner {
    pub(super) fn engine(&self) -> &Arc<Engine> {
        self.domain.engine()
    }

    pub(super) fn destroy(&mut self) -> Result<(), RdmaError> {
        self.engine().check_process()?;
        if std::mem::replace(&mut self.is_destroyed, true) {
            return Ok(());
        }
        let mut state = self.engine().state();
        let destroyed = state.destroy_queue_pair(self.number, By::Owner);
        let end = match destroyed {
            Ok(()) => FedEnd::Gone,
            Err(_) => FedEnd::Unconfirmed,
        };
        state.depart(self.number, end);
        destroyed
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if self.engine().is_elsewhere() {
            return;
        }
        if let Err(error) = self.destroy() {
            tracing::error!(%error, number = self.number, "queue pair dropped");
        }
    }
}
