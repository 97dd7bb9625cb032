//! Queue pairs.
//!
//! Kinds and states are types. A reliable [`QueuePair`] is made unconnected and takes receives;
//! [`QueuePair::connect`] turns it into a `QueuePair<Connected>`, which has the functions that post
//! sends. A datagram queue pair has no such function: it becomes a `QueuePair<DatagramReady>` with
//! a queue key, and each post names its destination. A queue pair that the device reports as failed
//! refuses further posts; its outstanding requests complete with an error.

mod change;
mod config;
mod context;
mod create;
mod datagram;
mod drain;
mod inner;
mod life;
mod local;
mod outstanding;
mod post;
mod query;
mod reset;
mod state;
mod steps;

pub use change::ConnectionChange;
pub use config::{QueuePairConfig, timer_steps};
pub use datagram::{ReadyError, To};
pub use drain::{DrainError, SendSwitch};
pub use post::PostError;
pub use query::{PeerReport, QueuePairReport, QueuePairStage};
pub use reset::ResetError;
pub use state::{
    Connected, DatagramInitialised, DatagramReady, Drained, Initialised, OfDatagrams, Receiving,
    Resettable, Sending,
};
pub use steps::{ReceiveAttributes, SendAttributes};

use super::connection::Endpoint;
use super::records::QueuePairCondition;
use super::{ProtectionDomain, RdmaError};
use crate::Returned;
use create::Number;
use inner::Inner;
use ringside_bus::DeviceAddress;
use ringside_qp::ReceiveQueue;
use ringside_spec::rdma::ae_codes::FlushCode;
use ringside_spec::rdma::commands::QueuePairType;
use std::marker::PhantomData;
use std::sync::Arc;

/// A queue pair. `Send`, not `Sync`: only one core uses it. Dropping it destroys it; its
/// outstanding requests are not reported.
#[derive(Debug)]
pub struct QueuePair<S = Initialised> {
    inner: Inner,
    state: PhantomData<S>,
}

/// A connection that was not made.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct ConnectError<S = Initialised> {
    /// The error.
    #[source]
    pub error: RdmaError,
    queue_pair: Option<Returned<QueuePair<S>>>,
}

impl<S> ConnectError<S> {
    fn before(error: RdmaError, queue_pair: QueuePair<S>) -> Self {
        Self {
            error,
            queue_pair: Some(Returned::new(queue_pair)),
        }
    }

    fn after(error: RdmaError) -> Self {
        Self {
            error,
            queue_pair: None,
        }
    }

    /// The error of a step of this queue pair.
    fn of(error: RdmaError, queue_pair: QueuePair<S>) -> Self {
        match error.leaves_object() {
            true => Self::before(error, queue_pair),
            false => Self::after(error),
        }
    }

    /// The queue pair, in its former state, if the device refused the step or got no command for
    /// it; otherwise it is destroyed. Attributes may be those of the refused step.
    #[must_use]
    pub fn into_queue_pair(self) -> Option<QueuePair<S>> {
        self.queue_pair.map(Returned::into_inner)
    }
}

impl ProtectionDomain {
    /// Makes a queue pair.
    ///
    /// Errors: [`RdmaError::Capacity`], [`RdmaError::OutOfRange`] and others; nothing is left over.
    pub fn queue_pair(&self, config: QueuePairConfig) -> Result<QueuePair, RdmaError> {
        let kind = QueuePairType::RoceReliableConnected;
        let inner = create::create(self, config, kind, Number::Any)?;
        Ok(QueuePair {
            inner,
            state: PhantomData,
        })
    }
}

impl QueuePair {
    /// Connects to a peer, which has to connect to this one's [`QueuePair::endpoint`] too.
    ///
    /// The path MTU is the smaller one of both.
    ///
    /// Errors: [`ConnectError`]; with the queue pair if it does not receive yet.
    pub fn connect(self, peer: &Endpoint) -> Result<QueuePair<Connected>, ConnectError> {
        if let Err(error) = self.inner.attributes.check_peer(peer) {
            return Err(ConnectError::before(error, self));
        }
        let receiving = self.let_receive(peer)?;
        let sending = receiving.let_send();
        sending.map_err(|refused| ConnectError::after(refused.error))
    }

    /// Has the device take it to RTR.
    fn let_receive(mut self, peer: &Endpoint) -> Result<QueuePair<Receiving>, ConnectError> {
        let engine = Arc::clone(self.inner.engine());
        let result = engine.open_state().and_then(|mut state| {
            state.let_receive(self.inner.number, &self.inner.attributes, peer)
        });
        match result {
            Ok(path) => {
                self.inner.peer = Some(*peer);
                self.inner.path = Some(path);
                Ok(QueuePair {
                    inner: self.inner,
                    state: PhantomData,
                })
            }
            Err(error) => Err(ConnectError::of(error, self)),
        }
    }
}

impl<S> QueuePair<S> {
    /// Its number, 18 bits.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.inner.number
    }

    /// The address of its device.
    #[must_use]
    pub fn device_address(&self) -> &DeviceAddress {
        self.inner.engine().registers.function().address()
    }

    /// The facts that a peer needs in order to connect to it.
    #[must_use]
    pub fn endpoint(&self) -> Endpoint {
        self.inner.attributes.endpoint(self.inner.number)
    }

    /// Its protection domain.
    #[must_use]
    pub fn protection_domain(&self) -> &ProtectionDomain {
        &self.inner.domain
    }

    /// The VLAN tag of its packets: priority in bits 13 to 15, number in bits 0 to 11.
    #[must_use]
    pub fn vlan_tag(&self) -> Option<u16> {
        self.inner.attributes.vlan_tag
    }

    /// Receives posted and not completed; 0 if a shared receive queue feeds it.
    #[must_use]
    pub fn receives_outstanding(&self) -> u32 {
        self.inner.receive.as_ref().map_or(0, ReceiveQueue::used)
    }

    /// Receives that can be outstanding.
    #[must_use]
    pub fn receive_capacity(&self) -> u32 {
        self.inner.receive_capacity
    }

    /// True if the device reported a failure, or the queue pair is destroyed.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.inner.condition.get() != QueuePairCondition::Usable
    }

    /// Destroys it. Its outstanding requests are not reported.
    ///
    /// Errors: the device did not confirm, and its memory is kept until the shutdown; or
    /// [`RdmaError::Fed`]: a shared receive queue feeds it and has to destroy it.
    pub fn destroy(mut self) -> Result<(), RdmaError> {
        self.inner.destroy()
    }
}

impl QueuePair<Connected> {
    /// The peer it is connected to.
    #[must_use]
    pub fn peer(&self) -> Option<&Endpoint> {
        self.inner.peer.as_ref()
    }
}

impl<S> QueuePair<S> {
    /// Takes its receive queue, for a shared one that feeds it; `None` if it was taken already.
    pub(super) fn take_receive_queue(&mut self) -> Option<ReceiveQueue> {
        self.inner.receive.take()
    }

    pub(super) fn put_receive_queue(&mut self, queue: ReceiveQueue) {
        self.inner.receive = Some(queue);
    }
}

impl<S> QueuePair<S> {
    /// Breaks the connection, or ends the service of datagrams: all outstanding requests complete
    /// as flushed, and no more can be posted. The peer receives no answers from now on.
    ///
    /// Errors: the device did not confirm. A device that no longer answers commands counts as
    /// failed; all requests on it complete once its DMA is stopped.
    pub fn fail(&mut self) -> Result<(), RdmaError> {
        let engine = self.inner.engine();
        let mut state = engine.open_state()?;
        let failed = state.fail_queue_pair(
            self.inner.number,
            FlushCode::General,
            FlushCode::General,
            None,
        );
        if failed.is_err() {
            engine.look_after(&mut state, true);
        }
        failed.map(|_| ())
    }
}
