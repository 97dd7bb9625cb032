//! Chooses the queue pair that works next.

use super::RdmaEngine;
use super::heads::Heads;
use super::objects::queue_pair::QueuePair;
use super::queues::ActiveQueuePair;
use super::registers::DoorbellPage;
use super::stall::Stall;
use crate::chip::Context;
use crate::frame::Frame;
use ringside_bus::{DmaSpace, Instant};
use ringside_spec::rdma::registers::{CompletionQueueNumber, SendDoorbell};
use std::collections::VecDeque;
use std::sync::atomic::{Ordering, fence};

/// No timer runs.
const NEVER: Instant = Instant(u64::MAX);

/// Queue pairs that have their turn in one step.
const TURNS: usize = 32;

/// The number of queue pairs whose next valid bit is read in a step where doorbells are polled: of
/// several doorbells between two steps only the last is seen.
const LOOKS: usize = 4;

/// Steps with work after which elements after published tails are looked for nevertheless.
const BUSY_STEPS: u32 = 64;

/// Packets that leave while the command that stops their queue pair is under way.
const PACKETS_BEFORE_STOP: usize = 32;

/// The queue pairs with work, and the time of the next work.
pub(super) struct Schedule {
    ready: VecDeque<u32>,
    heads: Heads,
    /// Queue pairs that published their tail and are idle since: software that read the tail before
    /// may have posted without a doorbell.
    told: Vec<u32>,
    /// Steps with work since the first of them became idle.
    busy_steps: u32,
    /// Not later than the earliest timer of any queue pair.
    next_timer: Instant,
    /// Queue pairs with a timer; some may have none any more.
    timed: Vec<u32>,
}

impl Default for Schedule {
    fn default() -> Self {
        Self {
            ready: VecDeque::with_capacity(64),
            heads: Heads::default(),
            told: Vec::with_capacity(64),
            busy_steps: 0,
            next_timer: NEVER,
            timed: Vec::with_capacity(64),
        }
    }
}

impl Schedule {
    /// The queue pair whose packet leaves next.
    #[inline]
    pub(super) fn front(&self) -> Option<u32> {
        self.ready.front().copied()
    }

    /// True if several queue pairs have work.
    #[inline]
    pub(super) fn has_several(&self) -> bool {
        self.ready.len() > 1
    }

    /// The queue pair in front has sent: the next one has its turn.
    #[inline]
    pub(super) fn end_turn(&mut self) {
        if self.has_several() {
            self.ready.rotate_left(1);
        }
    }

    /// A queue pair may have something to do.
    #[inline]
    pub(super) fn wake(&mut self, qp: &mut QueuePair) {
        // It stays in the list until its ring has been read, also if it is listed already and
        // about to leave.
        qp.more = true;
        if !qp.listed {
            qp.listed = true;
            self.ready.push_back(qp.number);
        }
    }

    /// The queue pair in front has nothing to do for now. `polls`: doorbells are polled.
    #[inline]
    fn rest(&mut self, qp: &mut QueuePair, polls: bool) {
        self.ready.pop_front();
        qp.listed = false;
        if polls {
            self.heads.rest(qp);
        }
        if std::mem::take(&mut qp.told) {
            self.told.push(qp.number);
        }
    }

    /// Puts the queue pair in front, the only one with work, to rest if it has none either.
    #[inline]
    pub(super) fn rest_if_quiet(&mut self, qp: &mut QueuePair, polls: bool) {
        if qp.is_quiet() && !qp.more {
            self.watch(qp);
            self.rest(qp, polls);
        }
    }

    /// The queue pair in front sends nothing: it goes to the end if it may have more to take, else
    /// to rest. `polls` as of [`Self::rest`].
    #[inline]
    fn pass(&mut self, qp: &mut QueuePair, polls: bool) {
        self.watch(qp);
        if qp.more {
            self.ready.rotate_left(1);
        } else {
            self.rest(qp, polls);
        }
    }

    /// Notes the deadline of a queue pair's timer.
    #[inline]
    fn watch(&mut self, qp: &mut QueuePair) {
        let Some(deadline) = qp.deadline() else {
            return;
        };
        self.next_timer = self.next_timer.min(deadline);
        if !qp.timed {
            qp.timed = true;
            self.timed.push(qp.number);
        }
    }
}

impl RdmaEngine {
    fn queue_pair(&mut self, number: u32) -> Option<&mut QueuePair> {
        let slot = self.queue_pairs.get_mut(number as usize)?;
        slot.as_deref_mut()
    }

    /// A queue pair may have something to do.
    #[inline]
    pub(super) fn wake(&mut self, number: u32) {
        let found = self.queue_pairs.get_mut(number as usize);
        if let Some(Some(qp)) = found {
            self.schedule.wake(qp);
        }
    }

    /// A queue pair was made.
    pub(super) fn schedule_new(&mut self, number: u32) {
        self.schedule.heads.add(number);
    }

    /// True if the cache may not hold all queue pairs.
    #[inline]
    pub(crate) fn has_many(&self) -> bool {
        self.schedule.heads.are_many()
    }

    /// Has a queue pair whose doorbell was rung brought into the cache, before it is worked on.
    /// Returns the number of its peer's queue pair, for which [`Self::prefetch_peer`] does the
    /// same. `None` if there is none, or if the cache holds all of them anyway.
    #[inline(always)]
    pub(crate) fn prefetch_rung(&self) -> Option<u32> {
        let number = SendDoorbell(self.page.as_ref()?.rung_send()?).qp_number();
        let peer = self.schedule.heads.prefetch(number)?;
        if let Some(Some(qp)) = self.queue_pairs.get(number as usize) {
            qp.prefetch();
        }
        Some(peer)
    }

    /// Has the places that the next request of a queue pair takes brought into the cache, once the
    /// queue pair itself is.
    #[inline]
    fn prefetch_places(&self, number: u32) {
        if self.has_many()
            && let Some(Some(qp)) = self.queue_pairs.get(number as usize)
        {
            qp.prefetch_places();
        }
    }

    /// Has a queue pair that is about to receive brought into the cache, with its next element.
    #[inline]
    pub(crate) fn prefetch_peer(&self, number: u32) {
        let _ = self.schedule.heads.prefetch(number);
        if let Some(Some(qp)) = self.queue_pairs.get(number as usize) {
            qp.prefetch();
        }
    }

    /// Removes a destroyed queue pair.
    pub(super) fn forget(&mut self, number: u32) {
        let schedule = &mut self.schedule;
        schedule.ready.retain(|&other| other != number);
        schedule.told.retain(|&other| other != number);
        schedule.timed.retain(|&other| other != number);
        schedule.heads.remove(number);
    }

    /// True if [`Self::step`] would find nothing to do.
    #[inline(always)]
    pub(crate) fn rests(&mut self, memory: &DmaSpace, now: Instant) -> bool {
        let schedule = &mut self.schedule;
        let is_rung = self.page.as_ref().is_none_or(DoorbellPage::is_rung);
        let is_quiet = memory.is_bus_master()
            && !is_rung
            && schedule.ready.is_empty()
            && schedule.told.is_empty()
            && now < schedule.next_timer
            && matches!(self.stall, Stall::No)
            && self.injected_events.is_empty()
            && self.objects.looped_back.is_empty();
        if !is_quiet || self.has_late_commands() {
            return false;
        }
        let stamp = (memory.generation(), self.objects.hmc.generation());
        self.schedule.heads.check(stamp);
        self.schedule.heads.look_over(LOOKS)
    }

    /// True if it may have packets for the wire.
    #[inline(always)]
    pub(crate) fn may_send(&self) -> bool {
        !self.schedule.ready.is_empty() || !self.objects.notifications.is_empty()
    }

    /// True if complete packets wait to leave.
    #[inline(always)]
    pub(crate) fn has_sent(&self) -> bool {
        !self.objects.notifications.is_empty()
    }

    /// Does a bounded burst of work; true if anything was done.
    pub fn step(&mut self, context: &mut Context<'_>) -> bool {
        // Without bus mastering an engine stops: a host that recovers a function from a failed
        // driver switches it off first, at any time, and resets then.
        if !context.memory.is_bus_master() {
            return false;
        }
        let mut worked = false;
        match self.stall {
            Stall::No => {}
            Stall::Yes => return false,
            Stall::Ending => self.go_on(context),
        }
        worked |= self.has_late_commands() && self.end_waiting(context);
        if self.page.is_some() {
            worked |= self.poll_doorbells(context);
            self.poll_valid_bits(context);
        }
        if context.now >= self.schedule.next_timer {
            worked |= self.run_timers(context);
        }
        if !self.injected_events.is_empty() {
            self.report_injected_events(context);
            worked = true;
        }
        if !self.objects.looped_back.is_empty() {
            self.loop_back(context);
            worked = true;
        }
        for place in 0..self.schedule.ready.len().min(TURNS) {
            let Some(&number) = self.schedule.ready.get(place) else {
                break;
            };
            worked |= self.work(number, context);
        }
        if !self.schedule.told.is_empty() {
            self.schedule.busy_steps += 1;
            if !worked || self.schedule.busy_steps >= BUSY_STEPS {
                worked |= self.look_behind_tails(context);
            }
        }
        worked
    }

    /// Looks for elements that software posted without a doorbell, because the tail that it read
    /// showed that the device was still working. True if there was one.
    ///
    /// Done here and not where the tail is published: a fence takes as long as all stores before
    /// it, and would delay the sender of a packet.
    #[inline]
    fn look_behind_tails(&mut self, context: &mut Context<'_>) -> bool {
        // The tails must be visible before the valid bits are read.
        fence(Ordering::SeqCst);
        self.schedule.busy_steps = 0;
        let mut found = false;
        while let Some(number) = self.schedule.told.pop() {
            found |= self.look_at(number, context);
        }
        found
    }

    /// Lets a queue pair take its posted elements.
    #[inline]
    fn work(&mut self, number: u32, context: &mut Context<'_>) -> bool {
        let found = self.queue_pairs.get_mut(number as usize);
        let Some(qp) = found.and_then(Option::as_deref_mut) else {
            return false;
        };
        let mut active = ActiveQueuePair {
            qp,
            objects: &mut self.objects,
            context,
        };
        let worked = active.fetch();
        active.drain_completions();
        worked
    }

    /// Takes the doorbells of the page, unless the engine is stopped.
    #[cold]
    pub(super) fn take_doorbells_before_commands(&mut self, context: &mut Context<'_>) {
        if context.memory.is_bus_master() && matches!(self.stall, Stall::No) {
            self.poll_doorbells(context);
        }
    }

    #[inline(always)]
    fn poll_doorbells(&mut self, context: &mut Context<'_>) -> bool {
        let Some(page) = &mut self.page else {
            return false;
        };
        let rung = page.take();
        if let Some(value) = rung.send {
            self.prefetch_places(SendDoorbell(value).qp_number());
            self.look_before(SendDoorbell(value).qp_number(), context);
            self.ring_send(value, context);
        }
        if let Some(value) = rung.arm {
            let number = CompletionQueueNumber(value).number();
            self.objects.arm(number, context);
        }
        rung.send.is_some() || rung.arm.is_some()
    }

    /// Looks for work whose doorbell was overwritten by another before it was seen.
    #[inline]
    fn poll_valid_bits(&mut self, context: &mut Context<'_>) {
        let stamp = (context.memory.generation(), self.objects.hmc.generation());
        self.schedule.heads.check(stamp);
        for _ in 0..self.schedule.heads.count().min(LOOKS) {
            if let Some(number) = self.schedule.heads.look() {
                self.look_at(number, context);
            }
        }
        self.schedule.heads.prefetch_next(LOOKS);
    }

    /// The same at queue pairs that were made just before the one that rang: those of one core are
    /// often rung in the order in which they were made, and of their doorbells only the last is
    /// seen.
    #[inline]
    fn look_before(&mut self, number: u32, context: &mut Context<'_>) {
        // With so few, all are read in each step.
        if self.schedule.heads.count() <= LOOKS {
            return;
        }
        let stamp = (context.memory.generation(), self.objects.hmc.generation());
        self.schedule.heads.check(stamp);
        let Some(place) = self.schedule.heads.place(number) else {
            return;
        };
        for by in (1..LOOKS).rev() {
            if let Some(other) = self.schedule.heads.look_before(place, by) {
                self.look_at(other, context);
            }
        }
    }

    /// Wakes a queue pair whose next element is there; false if there is none.
    #[inline]
    fn look_at(&mut self, number: u32, context: &mut Context<'_>) -> bool {
        let found = self.queue_pairs.get_mut(number as usize);
        let Some(qp) = found.and_then(Option::as_deref_mut) else {
            return false;
        };
        if qp.listed || !qp.sends() || qp.fault.is_some() {
            return false;
        }
        let mut active = ActiveQueuePair {
            qp,
            objects: &mut self.objects,
            context,
        };
        if !active.resolve() {
            return false;
        }
        if active.qp.send.peek().is_none() {
            self.schedule.heads.rest(active.qp);
            return false;
        }
        self.wake(number);
        true
    }

    /// Sends what software rang for before the command that stops a queue pair. A device works on
    /// requests while it fetches the command: programs send a last message and disconnect.
    #[cold]
    pub(super) fn send_before_stop(&mut self, number: u32, context: &mut Context<'_>) {
        self.work(number, context);
        let Some(qp) = self.queue_pair(number) else {
            return;
        };
        let was_listed = std::mem::replace(&mut qp.listed, true);
        let others = std::mem::replace(&mut self.schedule.ready, VecDeque::from([number]));
        let mut leaving = std::mem::take(&mut self.objects.notifications);
        for _ in 0..PACKETS_BEFORE_STOP {
            let Some(mut frame) = self.next_frame(context) else {
                break;
            };
            // The memory is the program's again once the queue pair is flushed.
            if frame.payload.take_along(context.memory).is_err() {
                break;
            }
            leaving.push_back(frame);
        }
        leaving.append(&mut self.objects.notifications);
        self.objects.notifications = leaving;
        self.schedule.ready = others;
        if let Some(qp) = self.queue_pair(number) {
            qp.listed = was_listed;
        }
    }

    /// The next packet for the wire, if there is one.
    pub fn next_frame(&mut self, context: &mut Context<'_>) -> Option<Frame> {
        self.next_run(0, context)
    }

    /// The next frame for the wire, which may hold packets of one message with up to `run_bytes` of
    /// payload; 0: one packet.
    pub fn next_run(&mut self, run_bytes: u32, context: &mut Context<'_>) -> Option<Frame> {
        let mut frame = Frame::default();
        self.fill_next(run_bytes, &mut frame, context)
            .then_some(frame)
    }

    /// The same into `frame`, which is large to move; false if there is none.
    #[inline]
    pub fn fill_next(
        &mut self,
        run_bytes: u32,
        frame: &mut Frame,
        context: &mut Context<'_>,
    ) -> bool {
        if self.stall == Stall::Yes || !context.memory.is_bus_master() {
            return false;
        }
        if let Some(first) = self.objects.notifications.pop_front() {
            *frame = first;
            return true;
        }
        // A refusal by the host then affects one packet.
        let run_bytes = match context.memory.is_refusing() {
            true => 0,
            false => run_bytes,
        };
        for _ in 0..self.schedule.ready.len() {
            let Some(&number) = self.schedule.ready.front() else {
                return false;
            };
            let found = self.queue_pairs.get_mut(number as usize);
            let Some(qp) = found.and_then(Option::as_deref_mut) else {
                self.schedule.ready.pop_front();
                continue;
            };
            let mut active = ActiveQueuePair {
                qp,
                objects: &mut self.objects,
                context,
            };
            if active.next_frame(run_bytes, frame) {
                // One frame of each in turn.
                self.schedule.end_turn();
                return true;
            }
            let qp = active.qp;
            self.schedule.pass(qp, self.page.is_some());
        }
        false
    }

    /// Passes over queue pairs in front that have nothing to send, as [`Self::fill_next`] does.
    pub(super) fn pass_quiet(&mut self, stamp: (u64, u64)) {
        for _ in 0..self.schedule.ready.len() {
            let Some(number) = self.schedule.front() else {
                return;
            };
            let found = self.queue_pairs.get_mut(number as usize);
            let Some(qp) = found.and_then(Option::as_deref_mut) else {
                return;
            };
            if !qp.is_quiet() || !qp.is_resolved(stamp) {
                return;
            }
            self.schedule.pass(qp, self.page.is_some());
        }
    }

    /// Gives the queue pair in front its turn, if an acknowledgement is all that it would bring.
    /// True if that is the next packet.
    #[inline]
    pub(crate) fn acknowledges_next(&mut self, memory: &DmaSpace) -> bool {
        let stamp = (memory.generation(), self.objects.hmc.generation());
        let alone = !self.schedule.has_several() && self.stall == Stall::No;
        let (Some(number), true) = (self.schedule.front(), alone) else {
            return false;
        };
        let Some(qp) = self.queue_pair(number) else {
            return false;
        };
        let only = qp.only_acknowledges(stamp);
        if only {
            qp.more = false;
        }
        only
    }

    #[cold]
    fn run_timers(&mut self, context: &mut Context<'_>) -> bool {
        let mut worked = false;
        let mut next = NEVER;
        let mut place = 0;
        while let Some(&number) = self.schedule.timed.get(place) {
            let found = self.queue_pairs.get_mut(number as usize);
            let qp = found.and_then(Option::as_deref_mut);
            let deadline = qp.and_then(|qp| {
                if qp
                    .deadline()
                    .is_some_and(|deadline| deadline <= context.now)
                {
                    let mut active = ActiveQueuePair {
                        qp,
                        objects: &mut self.objects,
                        context,
                    };
                    active.on_time();
                    worked = true;
                    // Told again only once it has had its turn.
                    return active.qp.deadline().filter(|&at| at > active.context.now);
                }
                qp.deadline()
            });
            if worked {
                self.wake(number);
            }
            match deadline {
                Some(deadline) => {
                    next = next.min(deadline);
                    place += 1;
                }
                None => {
                    self.schedule.timed.swap_remove(place);
                    if let Some(qp) = self.queue_pair(number) {
                        qp.timed = false;
                    }
                }
            }
        }
        self.schedule.next_timer = next;
        worked
    }

    /// The moment at which the next timer expires, if any is running.
    #[must_use]
    pub fn next_timer(&self) -> Option<Instant> {
        if self.stall != Stall::No {
            return None;
        }
        let timer = Some(self.schedule.next_timer).filter(|timer| *timer != NEVER);
        let control = self.delayed_until().into_iter();
        let control = control.chain(self.next_late_completion());
        timer.into_iter().chain(control).min()
    }
}
