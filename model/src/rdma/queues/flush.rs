//! Flushing: one failed completion for each queue that has work pending.

use super::ActiveQueuePair;
use crate::rdma::objects::Element;
use crate::roce::{Requester, Responder};
use ringside_spec::rdma::ae_codes::{FLUSH_MAJOR_CODE, FlushCode};
use ringside_spec::rdma::commands::FlushWorkQueues;
use ringside_spec::rdma::control_completion::FlushResult;
use ringside_spec::verbs::{CompletionElement, QueueSide, SendHeader, SendOpcode};

impl ActiveQueuePair<'_, '_> {
    /// Flushes the queues that the command names and returns those that had work.
    pub(in crate::rdma) fn flush(&mut self, command: &FlushWorkQueues) -> FlushResult {
        if !self.resolve() {
            return FlushResult::Nothing;
        }
        let given = command.use_given_codes;
        let codes = |major, minor| match given {
            true => (major, minor),
            false => (FLUSH_MAJOR_CODE, FlushCode::General.code()),
        };
        self.drain_completions();
        let mut send = false;
        if command.flush_sq
            && let Some((index, operation)) = self.pending_send()
        {
            let codes = codes(command.sq_major_code, command.sq_minor_code);
            self.complete_flushed(QueueSide::Send, index, operation, codes);
            send = true;
        }
        let mut receive = false;
        if command.flush_rq
            && let Some(index) = self.pending_receive()
        {
            let codes = codes(command.rq_major_code, command.rq_minor_code);
            self.complete_flushed(QueueSide::Receive, index, 0, codes);
            receive = true;
        }
        match (send, receive) {
            (false, false) => FlushResult::Nothing,
            (false, true) => FlushResult::ReceiveQueue,
            (true, false) => FlushResult::SendQueue,
            (true, true) => FlushResult::Both,
        }
    }

    /// The oldest element of the send queue that is not complete, and its operation. Everything
    /// that was posted counts as flushed afterwards.
    fn pending_send(&mut self) -> Option<(u16, u8)> {
        let taken = self.qp.requester.as_ref().and_then(Requester::oldest);
        let mut oldest = taken.map(|token| {
            let work = self.qp.work(token);
            (work.index, work.operation)
        });
        if let Some(request) = self.qp.datagrams.front() {
            let work = self.qp.work(request.token);
            oldest = oldest.or(Some((work.index, work.operation)));
        }
        self.qp.requester = None;
        self.qp.datagrams.clear();
        // At most one round of the ring.
        let mut left = self.qp.send.quanta();
        while left > 0
            && let Some(header) = self.qp.send.peek()
        {
            let header = SendHeader(header);
            let (index, quanta) = (self.qp.send.next(), header.quanta() as u32);
            let operation = header.opcode() as u8;
            let padding = operation == SendOpcode::Nop.code() && !header.signalled();
            if !padding {
                oldest = oldest.or(Some((index as u16, operation)));
            }
            self.qp.send.advance(quanta);
            left = left.saturating_sub(quanta);
        }
        oldest
    }

    /// The oldest element of the receive queue that is not complete.
    fn pending_receive(&mut self) -> Option<u16> {
        // The responder stays: its refusal may not have left yet.
        let open = self
            .qp
            .responder
            .as_mut()
            .and_then(Responder::take_open_receive);
        let mut oldest = open.map(|index| index as u16);
        let quanta = self.qp.receive_quanta.max(1);
        for _ in 0..self.qp.receive.quanta() / quanta {
            if self.qp.receive.peek().is_none() {
                break;
            }
            oldest = oldest.or(Some(self.qp.receive.next() as u16));
            self.qp.receive.advance(quanta);
        }
        oldest
    }

    fn complete_flushed(
        &mut self,
        side: QueueSide,
        index: u16,
        operation: u8,
        (major, minor): (u16, u16),
    ) {
        let context = self.qp.context.completion_context;
        let element = CompletionElement {
            error: true,
            major,
            minor,
            operation,
            ..CompletionElement::success(side, context, self.qp.number, index)
        };
        let element = Element {
            words: element.encode(false),
            extension: None,
            notable: true,
        };
        let queue = match side {
            QueueSide::Send => self.qp.send_cq,
            QueueSide::Receive => self.qp.receive_cq,
        };
        self.objects.complete(queue, &element, self.context);
    }
}
