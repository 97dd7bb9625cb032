//! Commands about completion queues and event queues.

use super::{
    CONTROL_COMPLETION_QUEUE, CommandFailure, DONE, Executed, NO_SUCH_OBJECT, REFUSED,
    cache_failure,
};
use crate::chip::Context;
use crate::rdma::RdmaEngine;
use crate::rdma::access::aligned;
use crate::rdma::hmc::capacity;
use crate::rdma::objects::completion_queue::{CompletionQueue, CompletionQueueSettings};
use crate::rdma::objects::event_queues::EventQueue;
use crate::rdma::ring::{Place, Ring};
use ringside_bus::{Direction, Iova};
use ringside_spec::rdma::commands::{
    CreateAsynchronousEventQueue, CreateCompletionEventQueue, CreateCompletionQueue,
    DestroyCompletionEventQueue, DestroyCompletionQueue, ModifyCompletionQueue, PageList,
};
use ringside_spec::rdma::fpm::ObjectType;
use ringside_spec::rdma::limits::{
    ASYNCHRONOUS_EVENT_BYTES, CCQ_SHADOW_ALIGNMENT, COMPLETION_EVENT_BYTES, EVENT_RING_ALIGNMENT,
    MAX_AEQ_ENTRIES, MAX_CEQ_ENTRIES, MAX_CQ_ENTRIES_ENCODED, SHADOW_BYTES,
};

/// Pages of the ring of a completion queue that are kept without a look at the other queues.
const FEW_PAGES: usize = 64;

/// A ring as commands describe it.
struct Described {
    what: &'static str,
    /// entries that it is to have, and the most that it may have
    entries: u32,
    most: u32,
    address: u64,
    first_entry: u32,
    list: PageList,
    listed: bool,
}

impl Described {
    /// Its place; size, page list and alignment are checked.
    fn place(&self, context: &mut Context<'_>) -> Result<Place, CommandFailure> {
        if !(1..=self.most).contains(&self.entries) {
            let (what, entries) = (self.what, self.entries);
            context.ledger.breach("a ring of impossible size", || {
                format!("{what}: {entries} entries")
            });
            return Err(REFUSED);
        }
        let wanted = if self.listed {
            PageList::OneLevel
        } else {
            PageList::Contiguous
        };
        if self.list != wanted {
            let (what, list) = (self.what, self.list);
            context.ledger.breach(
                "page list and address of a ring contradict each other",
                || format!("{what}: {list:?}"),
            );
            return Err(REFUSED);
        }
        if self.listed {
            return Ok(Place::Listed(self.first_entry.into()));
        }
        if !aligned(context, self.what, self.address, EVENT_RING_ALIGNMENT) {
            return Err(REFUSED);
        }
        Ok(Place::Contiguous(Iova(self.address)))
    }
}

impl RdmaEngine {
    pub(super) fn create_completion_queue(
        &mut self,
        command: &CreateCompletionQueue,
        context: &mut Context<'_>,
    ) -> Executed {
        let number = command.cq_number;
        if !self.objects.hmc.static_pages_allocated {
            return Self::refuse(
                context,
                "an object is created before its memory is there",
                CommandFailure::InvalidState,
                || format!("completion queue {number} before SHMC_PAGES_ALLOCATED"),
            );
        }
        let free = match self.objects.completion_queues.get(number as usize) {
            Some(slot) => slot.is_none(),
            None => {
                return Self::refuse(
                    context,
                    "an object beyond those that were committed",
                    NO_SUCH_OBJECT,
                    || format!("completion queue {number}"),
                );
            }
        };
        if !free {
            return Self::refuse(
                context,
                "an object is created twice",
                NO_SUCH_OBJECT,
                || format!("completion queue {number}"),
            );
        }
        let place = Described {
            what: "completion queue",
            entries: command.size_entries,
            most: MAX_CQ_ENTRIES_ENCODED,
            address: command.ring_address,
            first_entry: command.first_pble_index,
            list: command.pble_levels_code,
            listed: command.ring_virtual,
        }
        .place(context)?;
        let alignment = if number == CONTROL_COMPLETION_QUEUE {
            CCQ_SHADOW_ALIGNMENT
        } else {
            SHADOW_BYTES
        };
        aligned(context, "shadow area", command.shadow_address, alignment);
        if command.extended_cqe {
            return Self::refuse(context, "64-byte completions", REFUSED, || {
                "not on this card".into()
            });
        }
        self.check_pages(number, place, command.size_entries, context)?;
        let event_queue = self.event_queue(command, context)?;
        let queue = CompletionQueue::new(CompletionQueueSettings {
            number,
            place,
            size: command.size_entries,
            shadow: Iova(command.shadow_address),
            completion_context: command.completion_context,
            event_queue,
            check_overflow: command.check_overflow,
            one_event_at_a_time: command.ceqe_mask,
        });
        self.keep_completion_queue(queue, context)
    }

    /// The event queue that a completion queue names; refused if it does not exist. That of the
    /// control completion queue is made with its help.
    /// Source: irdma `hw.c`, `irdma_ctrl_init_hw`, `irdma_rt_init_hw`.
    fn event_queue(
        &self,
        command: &CreateCompletionQueue,
        context: &mut Context<'_>,
    ) -> Result<Option<u16>, CommandFailure> {
        let (number, wanted) = (command.cq_number, command.ceq_number);
        let all = &self.objects.completion_event_queues;
        let exists = matches!(all.get(usize::from(wanted)), Some(Some(_)));
        if !command.ceq_number_valid || exists || number == CONTROL_COMPLETION_QUEUE {
            return Ok(command.ceq_number_valid.then_some(wanted));
        }
        let kind = "a completion queue with an event queue that does not exist";
        let ledger = &mut context.ledger;
        ledger.breach(kind, || {
            format!("completion queue {number}, event queue {wanted}")
        });
        Err(NO_SUCH_OBJECT)
    }

    /// Refuses a completion queue with which the rings of all have more pages than the card has
    /// page list entries: each page of a ring has an entry of its own. The model keeps the place of
    /// each page.
    /// Source: irdma `pble.c`, `irdma_get_pble`.
    fn check_pages(
        &self,
        number: u32,
        place: Place,
        size: u32,
        context: &mut Context<'_>,
    ) -> Result<(), CommandFailure> {
        let pages = CompletionQueue::pages_of(place, size, context);
        if pages <= FEW_PAGES {
            return Ok(());
        }
        let queues = self.objects.completion_queues.iter().flatten();
        let others = queues.filter(|queue| queue.settings.number != number);
        let kept: usize = others.map(|queue| queue.pages()).sum();
        let most = capacity().objects[ObjectType::PageBufferList].max_count;
        if kept + pages <= most as usize {
            return Ok(());
        }
        let kind = "completion queues with more pages than there are page list entries";
        let ledger = &mut context.ledger;
        ledger.breach(kind, || {
            format!("{kept} pages, and {pages} of queue {number}")
        });
        Err(REFUSED)
    }

    fn keep_completion_queue(
        &mut self,
        mut queue: CompletionQueue,
        context: &mut Context<'_>,
    ) -> Executed {
        let settings = queue.settings;
        if !queue.resolve(&mut self.objects.hmc, context) {
            return Err(REFUSED);
        }
        let words = [
            settings.number.into(),
            settings.size.into(),
            settings.shadow.0,
            settings.completion_context,
        ];
        let kept = self.objects.hmc.keep(
            ObjectType::CompletionQueue,
            settings.number,
            &words,
            context.memory,
        );
        if let Err(fault) = kept {
            return Err(cache_failure(context, "completion queue context", fault));
        }
        if let Some(slot) = self
            .objects
            .completion_queues
            .get_mut(settings.number as usize)
        {
            *slot = Some(Box::new(queue));
            self.objects.late_arms.forget(settings.number);
        }
        DONE
    }

    pub(super) fn modify_completion_queue(
        &mut self,
        command: &ModifyCompletionQueue,
        context: &mut Context<'_>,
    ) -> Executed {
        let number = command.cq_number;
        if self.objects.completion_queue(number).is_none() {
            return Self::refuse(
                context,
                "a command for an object that does not exist",
                NO_SUCH_OBJECT,
                || format!("completion queue {number}"),
            );
        }
        if !command.resize {
            return DONE;
        }
        let place = Described {
            what: "completion queue",
            entries: command.size_entries,
            most: MAX_CQ_ENTRIES_ENCODED,
            address: command.ring_address,
            first_entry: command.first_pble_index,
            list: command.pble_levels_code,
            listed: command.ring_virtual,
        }
        .place(context)?;
        self.check_pages(number, place, command.size_entries, context)?;
        let found = self.objects.completion_queues.get_mut(number as usize);
        let Some(queue) = found.and_then(Option::as_deref_mut) else {
            return Err(NO_SUCH_OBJECT);
        };
        queue.move_to(place, command.size_entries);
        if !queue.resolve(&mut self.objects.hmc, context) {
            return Err(REFUSED);
        }
        // Doorbells that were rung before the command count before it. A page in memory keeps the
        // last one only, and software that asks again after each of four commands would seem to
        // have asked for nothing.
        queue.look_at_arm(false);
        DONE
    }

    pub(super) fn destroy_completion_queue(
        &mut self,
        command: &DestroyCompletionQueue,
        context: &mut Context<'_>,
    ) -> Executed {
        let number = command.cq_number;
        let slot = self.objects.completion_queues.get_mut(number as usize);
        match slot.and_then(Option::take) {
            None => Self::refuse(
                context,
                "a command for an object that does not exist",
                NO_SUCH_OBJECT,
                || format!("completion queue {number}"),
            ),
            Some(queue) if queue.users > 0 => {
                let users = queue.users;
                if let Some(slot) = self.objects.completion_queues.get_mut(number as usize) {
                    *slot = Some(queue);
                }
                Self::refuse(
                    context,
                    "an object is destroyed while others use it",
                    CommandFailure::InvalidState,
                    || format!("completion queue {number}, used by {users} work queues"),
                )
            }
            Some(queue) => {
                self.objects.late_acknowledgements.expect(&queue);
                self.objects.late_arms.expect(&queue);
                DONE
            }
        }
    }

    pub(super) fn create_ceq(
        &mut self,
        command: &CreateCompletionEventQueue,
        context: &mut Context<'_>,
    ) -> Executed {
        let number = command.ceq_number;
        let place = Described {
            what: "completion event queue",
            entries: command.size_entries,
            most: MAX_CEQ_ENTRIES,
            address: command.ring_address,
            first_entry: command.first_pble_index,
            list: command.pble_levels_code,
            listed: command.ring_virtual,
        }
        .place(context)?;
        let slot = self
            .objects
            .completion_event_queues
            .get_mut(usize::from(number));
        match slot {
            Some(slot @ None) => {
                let words = command.size_entries as usize * COMPLETION_EVENT_BYTES / 8;
                let mut queue = EventQueue::new(
                    Ring::new(place, words, Direction::Write),
                    command.size_entries,
                );
                if let Err(fault) = queue.resolve(&mut self.objects.hmc, context) {
                    return Err(cache_failure(context, "completion event queue", fault));
                }
                *slot = Some(queue);
                DONE
            }
            Some(_) => Self::refuse(
                context,
                "an object is created twice",
                NO_SUCH_OBJECT,
                || format!("completion event queue {number}"),
            ),
            None => Self::refuse(
                context,
                "an object beyond those that were committed",
                NO_SUCH_OBJECT,
                || format!("completion event queue {number}"),
            ),
        }
    }

    pub(super) fn destroy_ceq(
        &mut self,
        command: &DestroyCompletionEventQueue,
        context: &mut Context<'_>,
    ) -> Executed {
        let number = command.ceq_number;
        let users = self
            .objects
            .completion_queues
            .iter()
            .flatten()
            .filter(|queue| queue.settings.event_queue == Some(number))
            // The control completion queue outlives its event queue.
            .filter(|queue| queue.settings.number != CONTROL_COMPLETION_QUEUE)
            .count();
        if users > 0 {
            return Self::refuse(
                context,
                "an object is destroyed while others use it",
                CommandFailure::InvalidState,
                || format!("completion event queue {number}, used by {users} completion queues"),
            );
        }
        let slot = self
            .objects
            .completion_event_queues
            .get_mut(usize::from(number));
        match slot.and_then(Option::take) {
            Some(_) => DONE,
            None => Self::refuse(
                context,
                "a command for an object that does not exist",
                NO_SUCH_OBJECT,
                || format!("completion event queue {number}"),
            ),
        }
    }

    pub(super) fn create_aeq(
        &mut self,
        command: &CreateAsynchronousEventQueue,
        context: &mut Context<'_>,
    ) -> Executed {
        let place = Described {
            what: "asynchronous event queue",
            entries: command.size_entries,
            most: MAX_AEQ_ENTRIES,
            address: command.ring_address,
            first_entry: command.first_pble_index,
            list: command.pble_levels_code,
            listed: command.ring_virtual,
        }
        .place(context)?;
        if self.objects.asynchronous_events.is_some() {
            return Self::refuse(
                context,
                "an object is created twice",
                NO_SUCH_OBJECT,
                || "asynchronous event queue".into(),
            );
        }
        let words = command.size_entries as usize * ASYNCHRONOUS_EVENT_BYTES / 8;
        let mut queue = EventQueue::new(
            Ring::new(place, words, Direction::Write),
            command.size_entries,
        );
        if let Err(fault) = queue.resolve(&mut self.objects.hmc, context) {
            return Err(cache_failure(context, "asynchronous event queue", fault));
        }
        self.objects.asynchronous_events = Some(queue);
        DONE
    }

    pub(super) fn destroy_aeq(&mut self, context: &mut Context<'_>) -> Executed {
        match self.objects.asynchronous_events.take() {
            Some(_) => DONE,
            None => Self::refuse(
                context,
                "a command for an object that does not exist",
                NO_SUCH_OBJECT,
                || "asynchronous event queue".into(),
            ),
        }
    }
}
