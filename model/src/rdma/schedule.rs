//! Which queue pair works next.

use super::objects::queue_pair::QueuePair;
use super::queues::ActiveQueuePair;
use super::{RdmaEngine, Stall};
use crate::chip::Context;
use crate::frame::Frame;
use ringside_bus::Instant;
use ringside_spec::rdma::registers::CompletionQueueNumber;
use std::collections::VecDeque;

/// No timer runs.
const NEVER: Instant = Instant(u64::MAX);

/// Queue pairs that have their turn in one step.
const TURNS: usize = 32;

/// Queue pairs that worked lately, whose valid bits are looked at in every step where doorbells
/// are polled: two doorbells between two looks are one.
const RECENT: usize = 32;

/// Further queue pairs that are looked at in a step, one after the other.
const OTHERS: usize = 2;

/// The queue pairs with work, and the time of the next work.
pub(super) struct Schedule {
    ready: VecDeque<u32>,
    recent: VecDeque<u32>,
    others: usize,
    /// Not later than the earliest timer of any queue pair.
    next_timer: Instant,
    /// Queue pairs with a timer; some may have none any more.
    timed: Vec<u32>,
}

impl Default for Schedule {
    fn default() -> Self {
        Self {
            ready: VecDeque::with_capacity(64),
            recent: VecDeque::with_capacity(RECENT + 1),
            others: 0,
            next_timer: NEVER,
            timed: Vec::with_capacity(64),
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
        if let Some(qp) = found.and_then(Option::as_deref_mut)
            && !qp.listed
        {
            qp.listed = true;
            self.schedule.ready.push_back(number);
        }
    }

    /// A queue pair is gone.
    pub(super) fn forget(&mut self, number: u32) {
        let schedule = &mut self.schedule;
        schedule.ready.retain(|&other| other != number);
        schedule.recent.retain(|&other| other != number);
        schedule.timed.retain(|&other| other != number);
    }

    /// Does a bounded burst of work; true if anything was done.
    pub fn step(&mut self, context: &mut Context<'_>) -> bool {
        // Without bus mastering an engine stands still: a host that takes a function away from a
        // driver that died switches it off first, whatever is under way, and resets then.
        if !context.memory.is_bus_master() {
            return false;
        }
        let mut worked = false;
        match self.stall {
            Stall::No => {}
            Stall::Yes => return false,
            Stall::Ending => self.go_on(context),
        }
        worked |= self.end_delay(context);
        if self.page.is_some() {
            worked |= self.poll_doorbells(context);
            self.poll_valid_bits(context);
        }
        if context.now >= self.schedule.next_timer {
            worked |= self.run_timers(context);
        }
        if !self.foretold.is_empty() {
            self.report_foretold(context);
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
        worked
    }

    /// Lets a queue pair take what was posted to it.
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

    #[inline]
    fn poll_doorbells(&mut self, context: &mut Context<'_>) -> bool {
        let Some(page) = &mut self.page else {
            return false;
        };
        let rung = page.look();
        if let Some(value) = rung.send {
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
        for place in 0..self.schedule.recent.len() {
            if let Some(&number) = self.schedule.recent.get(place) {
                self.look_at(number, context);
            }
        }
        let count = self.queue_pairs.len();
        for _ in 0..OTHERS.min(count) {
            self.schedule.others = (self.schedule.others + 1) % count;
            self.look_at(self.schedule.others as u32, context);
        }
    }

    #[inline]
    fn look_at(&mut self, number: u32, context: &mut Context<'_>) {
        let found = self.queue_pairs.get_mut(number as usize);
        let Some(qp) = found.and_then(Option::as_deref_mut) else {
            return;
        };
        if qp.listed || !qp.sends() || qp.fault.is_some() {
            return;
        }
        let mut active = ActiveQueuePair {
            qp,
            objects: &mut self.objects,
            context,
        };
        if active.resolve() && active.qp.send.peek().is_some() {
            self.wake(number);
        }
    }

    /// The next frame for the wire, if there is one.
    pub fn next_frame(&mut self, context: &mut Context<'_>) -> Option<Frame> {
        if self.stall == Stall::Yes || !context.memory.is_bus_master() {
            return None;
        }
        if !self.objects.notifications.is_empty() {
            return self.objects.notifications.pop_front();
        }
        for _ in 0..self.schedule.ready.len() {
            let &number = self.schedule.ready.front()?;
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
            let frame = active.next_frame();
            let (deadline, more) = (active.qp.deadline(), active.qp.more);
            if frame.is_some() {
                // One packet of each in turn.
                self.schedule.ready.rotate_left(1);
                return frame;
            }
            self.watch(number, deadline);
            if more {
                self.schedule.ready.rotate_left(1);
            } else {
                self.rest(number);
            }
        }
        None
    }

    /// A queue pair has nothing to do for now.
    #[inline]
    fn rest(&mut self, number: u32) {
        self.schedule.ready.pop_front();
        let polled = self.page.is_some();
        let Some(qp) = self.queue_pair(number) else {
            return;
        };
        qp.listed = false;
        if polled && !qp.polled {
            qp.polled = true;
            self.schedule.recent.push_back(number);
            if self.schedule.recent.len() > RECENT
                && let Some(oldest) = self.schedule.recent.pop_front()
                && let Some(qp) = self.queue_pair(oldest)
            {
                qp.polled = false;
            }
        }
    }

    /// Remembers when a queue pair wants to be told the time.
    #[inline]
    fn watch(&mut self, number: u32, deadline: Option<Instant>) {
        let Some(deadline) = deadline else {
            return;
        };
        self.schedule.next_timer = self.schedule.next_timer.min(deadline);
        if let Some(qp) = self.queue_pair(number)
            && !qp.timed
        {
            qp.timed = true;
            self.schedule.timed.push(number);
        }
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

    /// When a timer runs out next, if any runs.
    #[must_use]
    pub fn next_timer(&self) -> Option<Instant> {
        if self.stall != Stall::No {
            return None;
        }
        let timer = Some(self.schedule.next_timer).filter(|timer| *timer != NEVER);
        timer.into_iter().chain(self.delayed_until()).min()
    }
}
