//! Completion event queues and the asynchronous event queue.

use crate::chip::Context;
use crate::rdma::access::unreached;
use crate::rdma::hmc::{Hmc, HmcFault};
use crate::rdma::ring::Ring;
use ringside_spec::rdma::ae_codes::AeCode;
use ringside_spec::rdma::commands::AeSource;
use ringside_spec::rdma::events::{AsynchronousEvent, CompletionEvent};

/// A ring of entries that the device writes and software reads, with a valid bit.
pub(in crate::rdma) struct EventQueue {
    ring: Ring,
    entries: u32,
    next: u32,
    polarity: bool,
    /// Entries written and not yet acknowledged (only the asynchronous event queue reports that).
    outstanding: u32,
    /// An event had no room.
    overflown: bool,
}

impl EventQueue {
    /// An empty queue of `entries` entries on a ring.
    pub(in crate::rdma) fn new(ring: Ring, entries: u32) -> Self {
        Self {
            ring,
            entries,
            next: 0,
            polarity: true,
            outstanding: 0,
            overflown: false,
        }
    }

    pub(in crate::rdma) fn resolve(
        &mut self,
        hmc: &mut Hmc,
        context: &Context<'_>,
    ) -> Result<(), HmcFault> {
        self.ring.resolve(hmc, context.memory)
    }

    fn advance(&mut self) {
        self.next += 1;
        if self.next >= self.entries {
            self.next = 0;
            self.polarity = !self.polarity;
        }
    }

    /// Writes a completion event for the queue with this context.
    pub(in crate::rdma) fn tell_completion(
        &mut self,
        completion_context: u64,
        hmc: &mut Hmc,
        context: &mut Context<'_>,
    ) {
        if let Err(fault) = self.resolve(hmc, context) {
            give_up(context, "completion event queue", fault);
            return;
        }
        let event = CompletionEvent {
            completion_context,
            valid: self.polarity,
        };
        let [word] = event.encode();
        self.ring.store_release(self.next as usize, word);
        self.advance();
    }

    /// Software has taken so many asynchronous events.
    pub(in crate::rdma) fn give_back(&mut self, count: u32, context: &mut Context<'_>) {
        if count > self.outstanding {
            let outstanding = self.outstanding;
            context.ledger.breach(
                "more asynchronous events given back than were raised",
                || format!("{count} of {outstanding}"),
            );
        }
        self.outstanding = self.outstanding.saturating_sub(count);
    }

    /// Writes an asynchronous event; false if there is no room for it.
    pub(in crate::rdma) fn tell(
        &mut self,
        event: &Event,
        hmc: &mut Hmc,
        context: &mut Context<'_>,
    ) -> bool {
        if let Err(fault) = self.resolve(hmc, context) {
            give_up(context, "asynchronous event queue", fault);
            return false;
        }
        if self.outstanding >= self.entries {
            self.overflown = true;
            context
                .ledger
                .breach("the asynchronous event queue is full", || {
                    format!("{event:?} lost, {} entries", self.entries)
                });
            return false;
        }
        let entry = AsynchronousEvent {
            completion_context: event.completion_context,
            queue_number: event.queue_number,
            wqe_index: event.wqe_index,
            overflow: self.overflown,
            ae_code: event.code,
            source: event.source,
            iwarp_state: 0,
            tcp_state: 0,
            q2_data_written: 0,
            valid: self.polarity,
        };
        self.overflown = false;
        let [first, second] = entry.encode();
        let at = self.next as usize * 2;
        self.ring.store(at, first);
        self.ring.store_release(at + 1, second);
        self.outstanding += 1;
        self.advance();
        true
    }
}

/// An asynchronous event, before it has a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::rdma) struct Event {
    pub(in crate::rdma) code: AeCode,
    pub(in crate::rdma) source: AeSource,
    pub(in crate::rdma) queue_number: u32,
    pub(in crate::rdma) wqe_index: u16,
    pub(in crate::rdma) completion_context: u64,
}

/// The same for a queue without which nothing can be reported.
#[cold]
fn give_up(context: &mut Context<'_>, what: &'static str, fault: HmcFault) {
    if let HmcFault::Memory(fault) = fault {
        context.refused(fault);
    }
    report(context, what, fault);
}

/// Writes a fault of the host memory cache into the ledger.
#[cold]
pub(in crate::rdma) fn report(context: &mut Context<'_>, what: &'static str, fault: HmcFault) {
    match fault {
        HmcFault::Memory(fault) => unreached(context, what, fault),
        HmcFault::NoPageOfList { .. } => {
            context.ledger.breach("a page list entry is no page", || {
                format!("{what}: {fault}")
            })
        }
        other => context
            .ledger
            .breach("an object of the host memory cache is not backed", || {
                format!("{what}: {other}")
            }),
    }
}
