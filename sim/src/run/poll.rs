//! Lets time pass, takes completions and events, and checks them.

use super::Run;
use crate::oracle::{Seen, Taken};
use crate::rig::Handle;
use crate::rule::{Problem, Rule};
use ringside_pmd::rdma::{Completion, Event};
use std::time::Duration;

/// The longest wait for a request that has to complete, in virtual time.
const WAIT_LIMIT: Duration = Duration::from_secs(60);

/// The same limit while a function is in trouble.
const TROUBLED_WAIT: Duration = Duration::from_millis(50);

/// Completions that one poll takes.
pub(super) const BATCH: usize = 8;

fn seen(done: &Completion) -> Seen {
    Seen {
        id: done.id,
        queue_pair: done.queue_pair(),
        is_send: done.is_send(),
        status: done.status(),
        operation: done.operation(),
        byte_length: done.byte_length(),
        immediate: done.immediate(),
        invalidated_key: done.invalidated_key(),
        datagram: done.datagram(),
        solicited: done.is_solicited(),
    }
}

impl Run<'_> {
    /// Time passes, then everything is polled.
    pub(super) fn pass(&mut self) -> Result<(), Problem> {
        let spans = [1, 5, 20, 100, 100, 500, 2_000, 20_000];
        let span = self.random.pick(&spans).unwrap_or(1);
        for _ in 0..self.random.within(1, 4) {
            self.clock.pause(Duration::from_micros(span));
        }
        self.poll_all()
    }

    /// Polls one queue for a few completions.
    pub(super) fn poll_a_little(&mut self) -> Result<(), Problem> {
        self.clock.pause(Duration::from_micros(2));
        let (side, queue) = (self.random.below(2), self.random.below(2));
        let most = self.random.within(1, 5);
        self.poll_queue(side, queue, most)?;
        Ok(())
    }

    /// Takes all completions, then events, then their consequences.
    pub(super) fn poll_all(&mut self) -> Result<(), Problem> {
        for _ in 0..2 {
            for side in 0..2 {
                let queues = self.side(side).queues.len();
                for queue in 0..queues {
                    while self.poll_queue(side, queue, BATCH)? > 0 {}
                }
                self.ledger.queues_empty(side);
                self.take_events(side)?;
            }
        }
        Ok(())
    }

    /// Takes at most this many completions of a queue; returns their number.
    pub(super) fn poll_queue(
        &mut self,
        side: usize,
        number: usize,
        most: usize,
    ) -> Result<usize, Problem> {
        let mut batch = [Completion::EMPTY; BATCH];
        let most = most.min(BATCH);
        let place = self.side(side);
        let Some(queue) = place.queues.get_mut(number) else {
            return Ok(0);
        };
        let batch = batch.get_mut(..most).unwrap_or(&mut []);
        let done: Vec<Completion> = match &mut place.shared {
            Some(shared) => shared.poll(&mut queue.queue, batch).to_vec(),
            None => queue.queue.poll(batch).to_vec(),
        };
        let is_due = queue.arming.polled(Taken::of(&done));
        let number_of_queue = queue.queue.number();
        if is_due {
            self.expect_completion_event(side, number, number_of_queue)?;
        }
        if done.is_empty() {
            self.check_owed_completion(side, number)?;
        }
        let count = done.len();
        let mut all: Vec<Seen> = done.iter().map(seen).collect();
        self.interference.seen(side, &mut all);
        for one in &all {
            self.judge(side, one)?;
            if self.watched.remove(&one.id)
                && let Some(raw) = done.iter().find(|raw| raw.id == one.id)
            {
                self.caught.insert(one.id, (one.clone(), *raw));
            }
        }
        Ok(count)
    }

    fn judge(&mut self, side: usize, one: &Seen) -> Result<(), Problem> {
        self.note(|| {
            format!(
                "side {side}: {} {} of queue pair {}: {:?}, {:?}",
                if one.is_send { "send" } else { "receive" },
                one.id,
                one.queue_pair,
                one.operation,
                one.status
            )
        });
        let status = one.status.to_string().len() as u64;
        self.digest
            .add(&[one.id, side as u64, one.byte_length.into(), status]);
        self.counts.completed += 1;
        self.counts.succeeded += u64::from(one.status.is_success());
        self.counts.bytes += u64::from(one.byte_length);
        let long =
            one.status.is_success() && one.byte_length as usize > super::transfers::MAX_BYTES;
        self.counts.long_messages += u64::from(long);
        self.look_at_wire();
        self.ledger.completed(side, one)
    }

    /// Reads the events on the wire so far.
    pub(super) fn look_at_wire(&mut self) {
        let book = self.wire.book();
        let weather = &mut self.ledger.weather;
        (weather.losses, weather.copies) = (book.losses, book.copies);
        weather.now = self.clock.now();
        for (side, harm) in self.sides.iter().zip(&mut weather.harm) {
            harm.given_up |= side.device.failure().is_some();
        }
    }

    /// Checks that an armed queue that got a completion has an event that names it.
    fn expect_completion_event(
        &mut self,
        side: usize,
        place: usize,
        number: u32,
    ) -> Result<(), Problem> {
        let taken = self.take_completion_events(side)?;
        let still = self
            .side(side)
            .queues
            .get(place)
            .is_some_and(|queue| queue.arming.is_due());
        if !taken || !still || self.is_troubled_at(side) {
            return Ok(());
        }
        let text = format!(
            "completion queue {number} of side {side} was armed and got a completion, but no event names it"
        );
        Err(Problem::new(Rule::EventRight, text))
    }

    /// Checks that these queues may have given an event.
    pub(super) fn judge_completion_events(
        &mut self,
        side: usize,
        named: &[u32],
    ) -> Result<(), Problem> {
        for number in named {
            let queues = &mut self.side(side).queues;
            let queue = queues
                .iter_mut()
                .find(|queue| queue.queue.number() == *number);
            let why = match queue {
                Some(queue) => queue.arming.told(),
                None => Some("no queue with this number was ever armed"),
            };
            if let Some(why) = why.filter(|_| !self.is_troubled_at(side)) {
                let text = format!("completion queue {number} of side {side}: {why}");
                return Err(Problem::new(Rule::EventRight, text));
            }
        }
        Ok(())
    }

    /// Checks that an event that came before its completion had one. A queue pair that has failed,
    /// or is destroyed, may have had completions that its user does not get.
    fn check_owed_completion(&mut self, side: usize, number: usize) -> Result<(), Problem> {
        let dropped = self.dropped(side);
        let Some(queue) = self.side(side).queues.get_mut(number) else {
            return Ok(());
        };
        let of_device = queue.queue.number();
        let Some(why) = queue.arming.was_emptied(dropped) else {
            return Ok(());
        };
        if self.is_troubled_at(side) || self.ledger.has_failed_end(side) {
            return Ok(());
        }
        let text = format!("completion queue {of_device} of side {side}: {why}");
        Err(Problem::new(Rule::EventRight, text))
    }

    /// Requests of a side that were outstanding when their queue pairs were destroyed.
    pub(super) fn dropped(&self, side: usize) -> u64 {
        self.ledger.dropped.get(side).copied().unwrap_or(0)
    }

    fn take_events(&mut self, side: usize) -> Result<(), Problem> {
        let mut events = Vec::new();
        self.must(side, "events", |run| {
            run.side(side).device.poll_events(&mut events)
        })?;
        self.look_at_wire();
        for event in events {
            self.note(|| format!("side {side}: {event:?}"));
            self.digest.add(&[side as u64, 0xE7E]);
            self.judge_event(side, &event)?;
        }
        Ok(())
    }

    pub(super) fn judge_event(&mut self, side: usize, event: &Event) -> Result<(), Problem> {
        let why = match event {
            Event::QueuePairFailed { queue_pair, .. } => {
                let Some(number) = self.ledger.link_of(side, *queue_pair) else {
                    return self.judge_datagram_failure(side, *queue_pair);
                };
                let weather = self.ledger.weather;
                let Some(link) = self.ledger.links.get_mut(&number) else {
                    return Ok(());
                };
                let disturbed = link.may_have_failed(side, &weather);
                if let Some(end) = link.ends.get_mut(side) {
                    end.torn = true;
                }
                if disturbed {
                    return Ok(());
                }
                "nothing has disturbed its connection"
            }
            Event::DeviceFailed { .. } if self.is_troubled_at(side) => {
                if let Some(told) = self.told.get_mut(side) {
                    *told += 1;
                }
                return self.ledger.contained(side);
            }
            Event::GidChange { .. } if self.expects_gid_change(side) => return Ok(()),
            Event::Notice { .. } | Event::PeerSuspected { .. } => return Ok(()),
            _ if self.is_troubled_at(side) => return Ok(()),
            _ => "no fault explains it",
        };
        Err(Problem::new(
            Rule::EventRight,
            format!("side {side}: {event:?}: {why}"),
        ))
    }

    /// Checks the failure of a queue pair without connection: destroyed ones may fail, those for
    /// datagrams not.
    fn judge_datagram_failure(&self, side: usize, number: u32) -> Result<(), Problem> {
        let end = self.ledger.datagrams.get(side).and_then(Option::as_ref);
        if end.is_none_or(|end| end.number != number) || self.is_troubled_at(side) {
            return Ok(());
        }
        Err(Problem::new(
            Rule::EventRight,
            format!(
                "side {side}: datagram queue pair {number} has failed, and no fault explains it"
            ),
        ))
    }

    /// Runs everything until this request has completed; returns its completion. `None` if a
    /// function is in trouble.
    pub(super) fn wait_for(&mut self, id: u64) -> Result<Option<(Seen, Completion)>, Problem> {
        self.ring_all();
        let end = self.clock.now().plus(WAIT_LIMIT);
        loop {
            self.feed_all()?;
            self.poll_all()?;
            if let Some(done) = self.caught.remove(&id) {
                return Ok(Some(done));
            }
            if self.clock.now() >= end || self.gives_up(end) {
                break;
            }
            self.clock.pause(Duration::from_millis(5));
        }
        self.watched.remove(&id);
        if self.is_troubled() {
            return Ok(None);
        }
        let text = format!(
            "request {id} has not completed within {} s",
            WAIT_LIMIT.as_secs()
        );
        Err(Problem::new(Rule::Completes, text))
    }

    /// A function is in trouble: outstanding requests complete when it is recovered.
    fn gives_up(&self, end: ringside_bus::Instant) -> bool {
        let waited = WAIT_LIMIT.saturating_sub(end.since(self.clock.now()));
        self.is_troubled() && waited > TROUBLED_WAIT
    }

    /// Rings the doorbells of both devices.
    pub(super) fn ring_all(&mut self) {
        for held in self.held.values_mut().flatten() {
            if let Handle::Ready(queue_pair) = &held.handle {
                queue_pair.ring();
            }
        }
        for side in &self.sides {
            if let Some(queue_pair) = &side.datagrams {
                queue_pair.ring();
            }
        }
    }

    /// Runs everything until no result is outstanding.
    pub(super) fn settle(&mut self) -> Result<(), Problem> {
        self.ring_all();
        let end = self.clock.now().plus(WAIT_LIMIT);
        loop {
            self.feed_all()?;
            self.poll_all()?;
            let Some(missing) = self.ledger.awaited() else {
                return Ok(());
            };
            if self.clock.now() >= end {
                if self.is_troubled() {
                    return Ok(());
                }
                return Err(Problem::new(Rule::Completes, missing));
            }
            self.clock.pause(Duration::from_millis(5));
        }
    }
}
