//! The data path: taking elements from send queues, packets to and from the wire, completions.

mod congestion;
mod datagram;
mod flush;
mod local;
mod receive;
mod send;
mod transmit;

use super::hmc::HmcFault;
use super::objects::event_queues::{Event, report};
use super::objects::queue_pair::{QueuePair, Work};
use super::objects::{Element, Objects};
use crate::chip::Context;
use crate::packet::Psn;
use crate::roce::ResponseOutcome;
use ringside_spec::rdma::ae_codes::AeCode;
use ringside_spec::rdma::commands::{AccessRights, AeSource};
use ringside_spec::verbs::{CompletionElement, QueueSide};

pub(super) use receive::REMOTE_WRITE;
pub(super) use send::LOCAL_READ;

/// The right that a peer needs for a read.
const REMOTE_READ: AccessRights = AccessRights::ZERO.with_remote_read(true);

/// A queue pair at work, with everything that it may touch.
pub(super) struct ActiveQueuePair<'a, 'c> {
    pub(super) qp: &'a mut QueuePair,
    pub(super) objects: &'a mut Objects,
    pub(super) context: &'a mut Context<'c>,
}

impl ActiveQueuePair<'_, '_> {
    /// Finds the queue pair's memory; stops it permanently if there is none.
    #[inline]
    pub(super) fn resolve(&mut self) -> bool {
        match self.qp.resolve(&mut self.objects.hmc, self.context.memory) {
            Ok(()) => true,
            Err(fault) => {
                self.lost(fault);
                false
            }
        }
    }

    /// Memory that the queue pair needs is not accessible.
    #[cold]
    pub(super) fn lost(&mut self, fault: HmcFault) {
        report(self.context, "queue pair", fault);
        if !self.qp.stopped {
            self.fail(AeCode::QueuePairCatastrophic, AeSource::SendQueue, 0);
        }
    }

    /// Stops the queue pair and raises the one event of its error, and then the event of a suspend
    /// command or of draining that has not ended.
    #[cold]
    pub(super) fn fail(&mut self, code: AeCode, source: AeSource, wqe_index: u16) {
        if self.qp.stopped {
            return;
        }
        self.qp.stop();
        self.raise(code, source, wqe_index);
        self.settle();
    }

    /// Raises the event of a suspend command that has not ended, for a queue pair that is
    /// destroyed. Drivers count one event for each suspend command.
    /// Source: irdma `hw.c`, `irdma_process_aeq`, which counts it for a queue pair that is gone;
    /// `ctrl.c`, `irdma_sc_suspend_resume_qps`.
    pub(super) fn end_suspend(&mut self) {
        if self.qp.suspended && std::mem::take(&mut self.qp.quiesce) {
            self.raise(AeCode::SuspendComplete, AeSource::None, 0);
        }
    }

    pub(super) fn raise(&mut self, code: AeCode, source: AeSource, wqe_index: u16) {
        let event = Event {
            code,
            source,
            queue_number: self.qp.number,
            wqe_index,
            completion_context: self.qp.context.completion_context,
        };
        self.objects.raise(&event, self.context);
    }

    /// Takes an acknowledgement that comes without a packet.
    #[inline]
    pub(super) fn acknowledged(&mut self, psn: Psn, partition_key: u16) {
        let now = self.context.now;
        let Some(requester) = &mut self.qp.requester else {
            return;
        };
        match requester.on_acknowledgement(now, psn, partition_key) {
            ResponseOutcome::Ignored(_) => return,
            ResponseOutcome::Fault(fault) => self.requester_failed(fault),
            // An acknowledgement has no bytes to place.
            ResponseOutcome::Acknowledged
            | ResponseOutcome::Repeating
            | ResponseOutcome::Place(_) => {}
        }
        self.drain_completions();
    }

    /// Writes the completions of the requests that are done.
    #[inline]
    pub(super) fn drain_completions(&mut self) {
        while let Some(done) = self
            .qp
            .requester
            .as_mut()
            .and_then(crate::roce::Requester::next_completion)
        {
            let work = self.qp.work(done.token);
            if work.invalidates != 0 && !self.invalidate_after_read(work.invalidates, work.index) {
                return;
            }
            self.complete_send(work);
        }
        if self.qp.fault.is_some() || self.qp.quiesce {
            self.settle();
        }
    }

    /// Writes the completion of an element of the send queue, if it requests one.
    #[inline]
    fn complete_send(&mut self, work: Work) {
        if !work.signalled {
            return;
        }
        let element = CompletionElement {
            operation: work.operation,
            ..CompletionElement::success(
                QueueSide::Send,
                self.qp.context.completion_context,
                self.qp.number,
                work.index,
            )
        };
        let element = Element {
            words: element.encode(false),
            extension: None,
            notable: false,
        };
        self.objects
            .complete(self.qp.send_cq, &element, self.context);
    }

    /// Continues after the requests under way: with an element that cannot be executed, or the end
    /// of draining.
    #[cold]
    pub(super) fn settle(&mut self) {
        if !self.qp.is_idle() {
            return;
        }
        if let Some(fault) = self.qp.fault.take() {
            self.fail(fault.code, AeSource::SendQueue, fault.index);
        }
        if std::mem::take(&mut self.qp.quiesce) {
            self.raise(AeCode::SuspendComplete, AeSource::None, 0);
        }
    }
}
