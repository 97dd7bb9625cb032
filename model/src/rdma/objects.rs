//! The objects that commands create, and their state for the data path.

pub(super) mod arp;
pub(super) mod completion_queue;
pub(super) mod event_queues;
pub(super) mod multicast;
pub(super) mod queue_pair;
pub(super) mod work_queue;

use super::counters::Counters;
use super::hmc::Hmc;
use super::translation::Tables;
use crate::chip::Context;
use crate::frame::Frame;
use crate::rdma::regions::RegionTable;
use arp::ArpTable;
pub(super) use completion_queue::Element;
use completion_queue::{CompletionQueue, LateAcknowledgements, LateArms, Written};
use event_queues::{Event, EventQueue};
use ringside_bus::DmaSpace;
use ringside_spec::rdma::ae_codes::AeCode;
use ringside_spec::rdma::commands::{AeSource, CreateAddressHandle};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Everything but the queue pairs: borrowed together while one of those works.
pub(super) struct Objects {
    pub(super) hmc: Hmc,
    pub(super) regions: RegionTable,
    pub(super) completion_queues: Vec<Option<Box<CompletionQueue>>>,
    pub(super) late_acknowledgements: LateAcknowledgements,
    pub(super) late_arms: LateArms,
    /// Queue pairs that were destroyed. A program may ring one that its driver destroyed under it:
    /// Linux destroys all of a device that goes, and takes the doorbell page after that. Source:
    /// Linux `drivers/infiniband/core/rdma_core.c`, `uverbs_destroy_ufile_hw`.
    pub(super) former_queue_pairs: BTreeSet<u32>,
    pub(super) completion_event_queues: Vec<Option<EventQueue>>,
    pub(super) asynchronous_events: Option<EventQueue>,
    pub(super) arp: ArpTable,
    pub(super) address_handles: BTreeMap<u32, CreateAddressHandle>,
    /// Datagrams to groups that return to this function.
    pub(super) looped_back: VecDeque<Frame>,
    /// Frames that leave ahead of those of any queue pair: congestion notifications, the
    /// refusals of queue pairs that were destroyed, and what was posted before a queue pair was
    /// stopped.
    pub(super) notifications: VecDeque<Frame>,
    pub(super) counters: Counters,
}

impl Objects {
    /// None yet, in segments from `first_segment` on.
    pub(super) fn new(first_segment: u16) -> Self {
        Self {
            hmc: Hmc::new(first_segment),
            regions: RegionTable::new(0),
            completion_queues: Vec::new(),
            late_acknowledgements: LateAcknowledgements::default(),
            late_arms: LateArms::default(),
            former_queue_pairs: BTreeSet::new(),
            completion_event_queues: Vec::new(),
            asynchronous_events: None,
            arp: ArpTable::default(),
            address_handles: BTreeMap::new(),
            looped_back: VecDeque::new(),
            notifications: VecDeque::new(),
            counters: Counters::default(),
        }
    }

    pub(super) fn tables<'a>(&'a mut self, memory: &'a DmaSpace) -> Tables<'a> {
        Tables {
            regions: &mut self.regions,
            hmc: &mut self.hmc,
            memory,
        }
    }

    /// True if this completion queue exists.
    pub(super) fn has_completion_queue(&self, number: u32) -> bool {
        let slot = self.completion_queues.get(number as usize);
        slot.is_some_and(Option::is_some)
    }

    /// A completion queue.
    pub(super) fn completion_queue(&mut self, number: u32) -> Option<&mut CompletionQueue> {
        let slot = self.completion_queues.get_mut(number as usize)?;
        slot.as_deref_mut()
    }

    /// Writes a completion, and sends an event if the queue is armed.
    #[inline]
    pub(super) fn complete(&mut self, number: u32, element: &Element, context: &mut Context<'_>) {
        let found = self.completion_queues.get_mut(number as usize);
        let Some(queue) = found.and_then(Option::as_deref_mut) else {
            return;
        };
        match queue.write(element, &mut self.hmc, context) {
            Written::Quietly | Written::Lost => {}
            Written::Tell => self.tell(number, context),
            written @ (Written::Overflow | Written::Refused) => {
                let code = match written {
                    Written::Refused => AeCode::CompletionQueueCatastrophic,
                    _ => AeCode::CompletionQueueError,
                };
                let completion_context = queue.settings.completion_context;
                let event = Event {
                    code,
                    source: AeSource::CompletionQueue,
                    queue_number: number,
                    wqe_index: 0,
                    completion_context,
                };
                self.raise(&event, context);
            }
        }
    }

    /// Writes a completion event for a queue, or records that one is due.
    pub(super) fn tell(&mut self, number: u32, context: &mut Context<'_>) {
        let found = self.completion_queues.get_mut(number as usize);
        let Some(queue) = found.and_then(Option::as_deref_mut) else {
            return;
        };
        let Some(event_queue) = queue.settings.event_queue else {
            return;
        };
        let slot = self
            .completion_event_queues
            .get_mut(usize::from(event_queue));
        match slot.and_then(Option::as_mut) {
            Some(events) if queue.may_tell() => {
                let completion_context = queue.settings.completion_context;
                events.tell_completion(completion_context, &mut self.hmc, context);
                context.causes.completion_event_queues.push(event_queue);
            }
            Some(_) => {}
            // No event queue yet: stays armed.
            None => queue.armed = completion_queue::Armed::Any,
        }
    }

    /// Software has taken the event of a completion queue.
    pub(super) fn acknowledge(&mut self, number: u32, context: &mut Context<'_>) {
        let found = self.completion_queues.get_mut(number as usize);
        let waiting = match found.and_then(Option::as_deref_mut) {
            Some(queue) => queue.acknowledge(),
            None if self.late_acknowledgements.take(number) => false,
            None => {
                context.ledger.breach(
                    "acknowledge of a completion queue that does not exist",
                    || format!("queue {number}"),
                );
                false
            }
        };
        if waiting {
            self.tell(number, context);
        }
    }

    /// Takes the arm request of a completion queue, after its doorbell.
    pub(super) fn arm(&mut self, number: u32, context: &mut Context<'_>) {
        let found = self.completion_queues.get_mut(number as usize);
        match found.and_then(Option::as_deref_mut) {
            Some(queue) => {
                if queue.resolve(&mut self.hmc, context) && queue.take_arm() {
                    self.tell(number, context);
                }
            }
            None if self.late_arms.take(number) => {}
            None => context
                .ledger
                .breach("doorbell of a completion queue that does not exist", || {
                    format!("queue {number}")
                }),
        }
    }

    /// Raises an asynchronous event.
    #[cold]
    pub(super) fn raise(&mut self, event: &Event, context: &mut Context<'_>) {
        tracing::debug!(?event, "asynchronous event");
        match &mut self.asynchronous_events {
            Some(queue) => {
                queue.tell(event, &mut self.hmc, context);
                context.causes.asynchronous_event = true;
            }
            None => tracing::debug!(?event, "no asynchronous event queue: lost"),
        }
    }
}
