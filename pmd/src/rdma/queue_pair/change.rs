//! Changes to a queue pair that sends already, as verbs has them in RTS and SQD.
//!
//! The device takes the whole context anew with each modification, and the PSNs in it only at the
//! first step to RTS. A change to a queue pair that is stopped (SQD) reaches the device when it
//! resumes. Source: irdma `verbs.c`, irdma_modify_qp_roce, which sends the context in the same
//! steps.

use super::context::{Attributes, Path};
use super::life::{to_send, write_context};
use super::{Connected, DatagramReady, QueuePair, timer_steps};
use crate::rdma::claim::Claim;
use crate::rdma::numbers::within;
use crate::rdma::records::SendState;
use crate::rdma::session::Session;
use crate::rdma::{Access, RdmaError};

/// New values for a connection; `None` keeps the old one.
#[derive(Clone, Copy, Debug, Default)]
pub struct ConnectionChange {
    /// The operations that its peer may carry out here.
    pub remote_access: Option<Access>,
    /// Retries without an answer, 0..=7.
    pub retries: Option<u8>,
    /// Least time without an answer before a request is repeated, as
    /// [`SendAttributes::acknowledge_timeout`](super::SendAttributes::acknowledge_timeout).
    pub acknowledge_timeout: Option<u8>,
    /// Retries while the peer has no receive posted, 0..=7; 7 retries without end.
    pub receiver_not_ready_retries: Option<u8>,
}

impl ConnectionChange {
    fn apply(&self, attributes: &mut Attributes) -> Result<(), RdmaError> {
        if let Some(access) = self.remote_access {
            attributes.access = access;
        }
        if let Some(retries) = self.retries {
            within("the retry count", retries.into(), 0, 7)?;
            attributes.retries = retries;
        }
        if let Some(code) = self.acknowledge_timeout {
            within("the acknowledge timeout", code.into(), 0, 31)?;
            attributes.retransmission_timeout = timer_steps(code);
        }
        if let Some(retries) = self.receiver_not_ready_retries {
            let what = "the retry count for a receiver that is not ready";
            within(what, retries.into(), 0, 7)?;
            attributes.receiver_not_ready_retries = retries;
        }
        Ok(())
    }
}

impl QueuePair<Connected> {
    /// Changes the connection while it is in use. If its sending is stopped, new retries and
    /// timeouts and the peer's rights take effect once it resumes. Control path.
    ///
    /// Errors: [`RdmaError::OutOfRange`], [`RdmaError::Failed`] and those of a command; the old
    /// values stay.
    pub fn change(&mut self, wanted: &ConnectionChange) -> Result<(), RdmaError> {
        let mut next = self.inner.attributes.clone();
        wanted.apply(&mut next)?;
        self.change_to(next)
    }
}

impl QueuePair<DatagramReady> {
    /// Receives datagrams with this queue key from now on, or once its sending resumes. Control
    /// path.
    ///
    /// Errors: [`RdmaError::Failed`] and those of a command; the old key stays.
    pub fn set_queue_key(&mut self, queue_key: u32) -> Result<(), RdmaError> {
        let mut next = self.inner.attributes.clone();
        next.queue_key = queue_key;
        self.change_to(next)
    }
}

impl<S> QueuePair<S> {
    fn change_to(&mut self, next: Attributes) -> Result<(), RdmaError> {
        let inner = &mut self.inner;
        let mut state = inner.domain.engine().open_state()?;
        let (number, path) = (inner.number, inner.path.as_ref());
        state.change_claimed(number, (&inner.attributes, &next), path)?;
        drop(state);
        inner.attributes = next;
        Ok(())
    }
}

impl Session<'_> {
    /// Gives the device other attributes; puts the old ones back into the context if it refuses.
    fn change_claimed(
        &mut self,
        number: u32,
        (before, next): (&Attributes, &Attributes),
        path: Option<&Path>,
    ) -> Result<(), RdmaError> {
        self.claimed(Claim::QueuePair(number), |session| {
            let record = session.objects.queue_pairs.must(number)?.usable(number)?;
            write_context(&record.memory, next, number, path);
            if record.sending != SendState::Active {
                return Ok(());
            }
            let changed = session.execute(to_send(record, number));
            if changed.is_err()
                && let Ok(record) = session.objects.queue_pairs.must(number)
            {
                write_context(&record.memory, before, number, path);
            }
            changed?;
            Ok(())
        })
    }
}
