//! The actions of a run besides its steps: where a fault needs one, or at random. They use a random
//! source of their own, so that a seed keeps its steps.

use super::Run;
use super::poll::BATCH;
use crate::random::Random;
use crate::rule::{Problem, Rule};
use ringside_model::Fault;
use ringside_pmd::rdma::{
    Completion, CompletionQueue, Connected, Event, Flags, Notify, QueuePair, QueuePairConfig,
    RdmaError, Status,
};
use std::time::Duration;

/// The number of runs in a thousand that have additional actions between their steps.
const RUNS_WITH_SCENES: usize = 125;

/// In those runs, the number of steps in a thousand that are followed by an overflow of a
/// completion queue, and by a read that invalidates its local key.
const OVERFLOWS: usize = 10;
const CLOSING_READS: usize = 20;

/// The longest time until an overflow is reported, in virtual time.
const REPORTED_WITHIN: Duration = Duration::from_millis(20);

/// True if a fault is one of the admin queue.
fn is_of_firmware(fault: Fault) -> bool {
    matches!(
        fault,
        Fault::AdminCommandFails { .. }
            | Fault::AdminCommandSilent { .. }
            | Fault::AdminCommandDelayed { .. }
            | Fault::AdminCommandGarbled { .. }
    )
}

impl Run<'_> {
    /// Runs after each step.
    pub(super) fn after_step(&mut self, seed: u64, step: u32) -> Result<(), Problem> {
        let own = Random::split(seed, 0x3_0000_0000 + u64::from(step));
        let kept = std::mem::replace(&mut self.random, own);
        let mut result = self.follow_faults();
        if self.reuse.wanted {
            result = result.and_then(|()| self.reuse_memory());
        }
        if self.own.wanted {
            self.random = Random::split(seed, 0x5_0000_0000 + u64::from(step));
            result = result.and_then(|()| self.bring_own());
            self.random = Random::split(seed, 0x6_0000_0000 + u64::from(step));
        }
        if Random::split(seed, 0xE87B).chance(RUNS_WITH_SCENES) {
            result = result.and_then(|()| self.scenes());
        }
        self.random = Random::split(seed, 0x4_0000_0000 + u64::from(step));
        result = result.and_then(|()| self.exchange_packets());
        self.random = kept;
        result
    }

    /// Performs the actions that show the effect of a fault.
    fn follow_faults(&mut self) -> Result<(), Problem> {
        for side in 0..2 {
            let mut faults = self.ending.iter();
            if faults.any(|(_, of, fault)| usize::from(*of) == side && is_of_firmware(*fault)) {
                self.ask_firmware(side)?;
            }
            if self.side(side).interrupts.is_some() && !self.is_troubled() {
                self.keep_armed(side)?;
            }
        }
        Ok(())
    }

    fn scenes(&mut self) -> Result<(), Problem> {
        if self.random.chance(OVERFLOWS) && !self.is_troubled() {
            self.overflow()?;
        }
        if self.random.chance(CLOSING_READS) && !self.is_troubled() {
            self.closing_read()?;
        }
        Ok(())
    }

    /// Sends the admin commands that a fault may be about.
    fn ask_firmware(&mut self, side: usize) -> Result<(), Problem> {
        let before = self.clock.now();
        let asked = self.must(side, "a port's state", |run| {
            run.side(side).device.query_port()
        })?;
        let late = self.clock.now().since(before) >= Duration::from_micros(10);
        self.counts.admin_troubles += u64::from(asked.is_none() || late);
        self.change_membership(side)
    }

    /// Connects the interrupts of both sides.
    pub(super) fn connect_interrupts(&mut self) -> Result<(), Problem> {
        for side in 0..2 {
            let place = self.side(side);
            let interrupts = place.device.interrupts();
            let interrupts = interrupts.map_err(|error| {
                Problem::new(Rule::CallRight, format!("connecting an interrupt: {error}"))
            })?;
            place.interrupts = Some(interrupts);
        }
        Ok(())
    }

    /// Keeps one queue of the side armed.
    fn keep_armed(&mut self, side: usize) -> Result<(), Problem> {
        self.take_completion_events(side)?;
        let queue = self.side(side).queues.first();
        if queue.is_some_and(|queue| !queue.arming.is_due_next()) {
            self.arm_queue(side, 0, Notify::Next)?;
        }
        Ok(())
    }

    /// Returns true if the interrupt arrived, also without a waiting thread. Call it before events
    /// are taken: an interrupt covers all events until then.
    pub(super) fn was_interrupted(&mut self, side: usize) -> Result<bool, Problem> {
        // A wait without an interrupt unmasks the vector: an interrupt behind a lost one arrives
        // then.
        for _ in 0..2 {
            let Some(interrupts) = &self.side(side).interrupts else {
                return Ok(true);
            };
            match interrupts.wait(Duration::ZERO) {
                Ok(false) => {}
                Ok(true) => return Ok(true),
                Err(_) if self.is_troubled_at(side) => return Ok(true),
                Err(error) => {
                    let text = format!("side {side}, waiting for an interrupt: {error}");
                    return Err(Problem::new(Rule::CallRight, text));
                }
            }
        }
        Ok(false)
    }

    /// Handles a completion event without an interrupt.
    pub(super) fn miss_interrupt(&mut self, side: usize) -> Result<(), Problem> {
        self.counts.interrupts_lost += 1;
        if self.is_troubled_at(side) || self.lossy.get(side) == Some(&true) {
            return Ok(());
        }
        Err(Problem::new(
            Rule::EventRight,
            format!("side {side}: a completion event came without its interrupt"),
        ))
    }

    /// Interrupts are no longer lost. Events of that time are taken first.
    pub(super) fn interrupts_are_back(&mut self, side: usize) -> Result<(), Problem> {
        self.poll_all()?;
        // The wait unmasks the vector, if its last interrupt was lost.
        self.take_completion_events(side)?;
        if let Some(lossy) = self.lossy.get_mut(side) {
            *lossy = false;
        }
        Ok(())
    }

    /// Makes a queue pair whose completion queue is too small, and its peer.
    fn cramped_pair(
        &mut self,
        side: usize,
        room: u32,
    ) -> Result<Option<(CompletionQueue, QueuePair<Connected>, Peer)>, Problem> {
        self.must(side, "a queue pair on a small completion queue", |run| {
            let make = |run: &mut Self, side: usize, room: u32| -> Result<_, RdmaError> {
                let place = run.side(side);
                let queue = place.device.completion_queue(room)?;
                let config = QueuePairConfig::reliable(&queue);
                let queue_pair = place.domain.queue_pair(config)?;
                Ok((queue, queue_pair))
            };
            let (queue, mine) = make(run, side, room).map_err(|error| error.to_string())?;
            let (theirs, peer) = make(run, 1 - side, 16).map_err(|error| error.to_string())?;
            let (to_mine, to_peer) = (mine.endpoint(), peer.endpoint());
            let mine = mine.connect(&to_peer).map_err(|error| error.to_string())?;
            let peer = peer.connect(&to_mine).map_err(|error| error.to_string())?;
            Ok::<_, String>((queue, mine, (peer, theirs)))
        })
    }

    /// Makes a completion queue overflow: the overflow is reported, and each request still
    /// completes once and in order.
    fn overflow(&mut self) -> Result<(), Problem> {
        let side = self.random.below(2);
        let room = self.random.within(1, 6) as u32;
        let Some((mut queue, mut queue_pair, peer)) = self.cramped_pair(side, room)? else {
            return Ok(());
        };
        let number = queue.number();
        let usable = queue.slots() - 1;
        let count = usable + self.random.within(1, 12);
        self.note(|| format!("side {side}: {count} requests for completion queue {number}"));
        let mut posted: Vec<u64> = Vec::new();
        while posted.len() < count {
            let id = self.take_id();
            match queue_pair.no_operation(id, Flags::SIGNALLED) {
                Ok(()) => posted.push(id),
                Err(error) => {
                    // Its queue is full: continue with this number.
                    self.note(|| format!("side {side}: {error}"));
                    break;
                }
            }
        }
        queue_pair.ring();
        let overflows = posted.len() > usable;
        let reported = self.wait_for_overflow(side, number)?;
        if reported != overflows {
            let text = format!(
                "side {side}: {} requests for completion queue {number} of {usable}: reported {reported}",
                posted.len()
            );
            return Err(Problem::new(Rule::EventRight, text));
        }
        let mut done = Vec::new();
        for _ in 0..posted.len() + 4 {
            let mut batch = [Completion::EMPTY; BATCH];
            done.extend_from_slice(queue.poll(&mut batch));
        }
        if overflows {
            self.counts.overflows += 1;
            if let Some(of_side) = self.overflowed.get_mut(side) {
                *of_side = true;
            }
        }
        check_overflow(side, &posted, &done, overflows)?;
        self.call("dropping what overflowed", |_| {
            drop((queue_pair, peer, queue))
        })
    }

    fn wait_for_overflow(&mut self, side: usize, number: u32) -> Result<bool, Problem> {
        let end = self.clock.now().plus(REPORTED_WITHIN);
        let mut reported = 0;
        while self.clock.now() < end {
            self.clock.pause(Duration::from_micros(200));
            let mut events = Vec::new();
            self.must(side, "events", |run| {
                run.side(side).device.poll_events(&mut events)
            })?;
            for event in events {
                self.note(|| format!("side {side}: {event:?}"));
                match event {
                    Event::CompletionQueueFailed {
                        completion_queue, ..
                    } if completion_queue == number => reported += 1,
                    other => self.judge_event(side, &other)?,
                }
            }
        }
        if reported > 1 {
            let text = format!("completion queue {number} failed {reported} times");
            return Err(Problem::new(Rule::EventRight, text));
        }
        Ok(reported == 1)
    }
}

/// The other end of a cramped connection, with its completion queue.
type Peer = (QueuePair<Connected>, CompletionQueue);

/// Checks that each request completed once, in order; after the overflow the last ones as flushed.
fn check_overflow(
    side: usize,
    posted: &[u64],
    done: &[Completion],
    overflows: bool,
) -> Result<(), Problem> {
    let ids: Vec<u64> = done.iter().map(|one| one.id).collect();
    let statuses = done.iter().map(Completion::status);
    let flushed = done
        .iter()
        .filter(|one| one.status() == Status::Flushed)
        .count();
    let orderly = statuses.is_sorted_by_key(|status| status != Status::Success);
    if ids == posted && orderly && (flushed > 0) == overflows {
        return Ok(());
    }
    let text = format!("side {side}: {posted:?} were posted to a small queue, {done:?} came");
    Err(Problem::new(Rule::CompletesOnce, text))
}
