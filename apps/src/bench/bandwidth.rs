//! Bandwidth and message rate: many messages in flight.

use super::pair::{BATCH, Pair, Side, Watch};
use super::plan::{Amount, Plan};
use super::progress::Progress;
use super::report::BandwidthRow;
use super::slices::{SLICE_NANOSECONDS, Slices};
use crate::cli::Operation;
use crate::failure::Failure;
use crate::interrupt;
use ringside_bus::TscClock;
use ringside_bus::clock::ticks;
use ringside_pmd::rdma::{Flags, Fragment, PostError, QueuePair, RemoteAddress};
use std::ops::Range;

/// Posts before a doorbell, at most.
const BURST: u64 = 32;

/// The number of messages for each completion, unless the window is smaller.
const SIGNAL_EVERY: u64 = 32;

/// The size from which every message requests a completion: one completion for 32 large messages
/// would fall into one slice and show a peak that never happened.
const LARGE: u64 = 32 << 10;

/// One queue pair's side of a test.
pub(crate) struct Flow {
    source: Fragment,
    target: Fragment,
    remote: RemoteAddress,
    posted: u64,
    completed: u64,
    /// messages that it posts in all, at most
    pub(crate) limit: u64,
    /// messages for which the peer has posted receives
    pub(crate) granted: u64,
    /// receives that the server has posted, send tests only
    received: u64,
    receives_posted: u64,
}

impl Flow {
    /// Receives posted so far.
    pub(crate) fn receives_posted(&self) -> u64 {
        self.receives_posted
    }

    /// Receives that messages have taken so far.
    pub(crate) fn received(&self) -> u64 {
        self.received
    }
}

/// Measures one size.
pub(crate) fn measure(
    pair: &mut Pair<'_>,
    plan: &Plan,
    size: u64,
    progress: &mut Progress,
    verified_messages: u64,
) -> Result<BandwidthRow, Failure> {
    let places: Vec<_> = (0..plan.queue_pairs as usize)
        .map(|index| {
            let start = pair.slot(index);
            Place {
                slot: start..start + pair.stride,
                remote: pair.server.remote().at(start as u64),
            }
        })
        .collect();
    let mut run = Run::prepare(&pair.client, &pair.server, &places, plan, size)?;
    run.turn(pair, plan, progress)?;
    Ok(run.row(verified_messages))
}

/// Source and destination of a queue pair's messages.
pub(crate) struct Place {
    /// its part of the own regions
    pub(crate) slot: Range<usize>,
    /// its part of the peer's
    pub(crate) remote: RemoteAddress,
}

/// Messages in flight from one side.
pub(crate) struct Run {
    operation: Operation,
    size: u64,
    pub(crate) flows: Vec<Flow>,
    /// messages in flight on each queue pair, at most
    window: u64,
    signal_every: u64,
    inline: bool,
    message: Vec<u8>,
    limit: u64,
    done: u64,
    /// the last poll has left no completion
    drained: bool,
    /// ticks, at the start of the measurement
    began: u64,
    nanoseconds: u64,
    slices: Slices,
    /// the last look at the time of the test, nanoseconds since its start
    checked: u64,
    other_length: Option<u32>,
}

impl Run {
    /// `places`: one for each queue pair. `target`: the side whose regions receive the sends.
    pub(crate) fn prepare(
        side: &Side<'_>,
        target: &Side<'_>,
        places: &[Place],
        plan: &Plan,
        size: u64,
    ) -> Result<Self, Failure> {
        let bytes = size as usize;
        let flow = |(index, place): (usize, &Place)| -> Result<Flow, Failure> {
            // Leftovers of an earlier test of the same queue pair.
            let left = target.queue_pairs.get(index);
            let left = left.map_or(0, QueuePair::receives_outstanding);
            let start = place.slot.start;
            Ok(Flow {
                source: side.source.slice(start..start + bytes)?,
                target: target.target.slice(place.slot.clone())?,
                remote: place.remote,
                limit: u64::MAX,
                posted: 0,
                completed: 0,
                granted: u64::MAX,
                received: 0,
                receives_posted: left.into(),
            })
        };
        let flows = places.iter().enumerate().map(flow);
        let flows = flows.collect::<Result<Vec<_>, Failure>>()?;
        let window = match plan.operation {
            // A message without a receive waits for the peer's timer: send no more than receives
            // are posted.
            Operation::Send => plan.send_depth.min(plan.receive_depth),
            _ => plan.send_depth,
        };
        let window = u64::from(window);
        Ok(Self {
            operation: plan.operation,
            size,
            window,
            signal_every: match size {
                LARGE.. => 1,
                _ => SIGNAL_EVERY.min((window / 4).max(1)),
            },
            inline: size <= u64::from(plan.inline) && plan.operation != Operation::Read,
            message: vec![0; bytes],
            limit: match plan.amount {
                Amount::Messages(messages) => messages,
                Amount::Time(_) => u64::MAX,
            },
            flows,
            done: 0,
            drained: true,
            began: ticks(),
            nanoseconds: 0,
            slices: Slices::default(),
            checked: 0,
            other_length: None,
        })
    }

    /// The clock of the measurement starts.
    pub(crate) fn begin(&mut self) {
        (self.began, self.checked, self.slices) = (ticks(), 0, Slices::default());
    }

    /// Looks at the clock; `Some` once in a slice of time: whether no more is to be posted, because
    /// the time of a test is over or a signal ends it.
    pub(crate) fn tick(
        &mut self,
        clock: &TscClock,
        amount: Amount,
        progress: &mut Progress,
    ) -> Option<bool> {
        let passed = clock.nanoseconds(ticks().wrapping_sub(self.began));
        self.slices.look(passed, self.done, self.drained);
        if passed.saturating_sub(self.checked) < SLICE_NANOSECONDS {
            return None;
        }
        self.checked = passed;
        match amount {
            Amount::Time(time) => {
                progress.at(passed as f64 / time.as_nanos() as f64);
                Some(u128::from(passed) >= time.as_nanos() || interrupt::seen())
            }
            Amount::Messages(messages) => {
                progress.at(self.done as f64 / messages as f64);
                Some(interrupt::seen())
            }
        }
    }

    /// The clock of the measurement stops.
    pub(crate) fn end(&mut self, clock: &TscClock) {
        let span = ticks().wrapping_sub(self.began);
        self.nanoseconds = clock.nanoseconds(span).max(1);
    }

    /// Everything that was to be posted was, or `stop`; and all of it is complete.
    pub(crate) fn is_over(&self, stop: bool) -> bool {
        let posted: u64 = self.flows.iter().map(|flow| flow.posted).sum();
        (stop || posted >= self.limit) && self.done >= posted
    }

    /// The measurement.
    pub(crate) fn row(&self, verified_messages: u64) -> BandwidthRow {
        let seconds = self.nanoseconds as f64 / 1e9;
        let average = self.done as f64 * self.size as f64 / seconds;
        BandwidthRow {
            bytes: self.size,
            iterations: self.done,
            peak_bytes_per_second: (self.slices.peak * self.size as f64).max(average),
            average_bytes_per_second: average,
            messages_per_second: self.done as f64 / seconds,
            verified_messages,
        }
    }

    /// Posts and polls until the amount is reached, then drains.
    fn turn(
        &mut self,
        pair: &mut Pair<'_>,
        plan: &Plan,
        progress: &mut Progress,
    ) -> Result<(), Failure> {
        self.post_receives(&mut pair.server, plan.receive_depth)?;
        self.begin();
        let mut stop = false;
        let mut watch = Watch::new();
        loop {
            let mut worked = if stop {
                0
            } else {
                self.post(&mut pair.client)?
            };
            worked += self.complete(&mut pair.client)?;
            if self.operation == Operation::Send {
                worked += self.take_receives(&mut pair.server)?;
                self.post_receives(&mut pair.server, plan.receive_depth)?;
            }
            if let Some(over) = self.tick(&pair.clock, plan.amount, progress) {
                stop = over;
            }
            if self.is_over(stop) && self.all_received() {
                self.end(&pair.clock);
                return Ok(());
            }
            if worked == 0 {
                watch.idle(pair)?;
            } else {
                watch.progress();
            }
        }
    }

    fn all_received(&self) -> bool {
        self.operation != Operation::Send
            || self.flows.iter().all(|flow| flow.received == flow.posted)
    }

    /// Fills each queue pair's window, one doorbell a burst.
    pub(crate) fn post(&mut self, side: &mut Side<'_>) -> Result<u64, Failure> {
        let mut total = 0;
        let mut left = self.limit - self.flows.iter().map(|flow| flow.posted).sum::<u64>();
        for (index, flow) in self.flows.iter_mut().enumerate() {
            let in_flight = flow.posted - flow.completed;
            let room = (self.window - in_flight).min(flow.granted.saturating_sub(flow.posted));
            // Waiting for a whole burst's room saves doorbells: one a burst, not one a message.
            let left_here = left.min(flow.limit - flow.posted);
            let least = BURST.min((self.window / 2).max(1)).min(left_here);
            let burst = room.min(BURST).min(left_here);
            if burst < least || burst == 0 {
                continue;
            }
            let queue_pair = &mut side.queue_pairs[index];
            for place in 1..=burst {
                let sequence = flow.posted;
                // The last of a burst is always signalled, so nothing waits for a later one.
                let signalled = place == burst || (sequence + 1).is_multiple_of(self.signal_every);
                let flags = if signalled {
                    Flags::SIGNALLED
                } else {
                    Flags::NONE
                };
                let id = (index as u64) << 48 | sequence;
                let posted = match (self.operation, self.inline) {
                    (Operation::Write, true) => {
                        queue_pair.write_inline(id, &self.message, flow.remote, None, flags)
                    }
                    (Operation::Write, false) => {
                        queue_pair.write(id, &[flow.source], flow.remote, flags)
                    }
                    (Operation::Read, _) => queue_pair.read(id, &[flow.source], flow.remote, flags),
                    (Operation::Send, true) => {
                        queue_pair.send_inline(id, &self.message, None, flags)
                    }
                    (Operation::Send, false) => queue_pair.send(id, &[flow.source], flags),
                };
                match posted {
                    Ok(()) => {}
                    Err(PostError::QueueFull) => break,
                    Err(error) => return Err(error.into()),
                }
                flow.posted += 1;
                left -= 1;
                total += 1;
            }
            queue_pair.ring();
        }
        Ok(total)
    }

    /// Takes completions; each counts for all messages up to its own.
    pub(crate) fn complete(&mut self, side: &mut Side<'_>) -> Result<u64, Failure> {
        let (flows, done) = (&mut self.flows, &mut self.done);
        let taken = side.poll(|completion| {
            let index = (completion.id >> 48) as usize;
            if let Some(flow) = flows.get_mut(index) {
                let upto = (completion.id & ((1 << 48) - 1)) + 1;
                *done += upto.saturating_sub(flow.completed);
                flow.completed = flow.completed.max(upto);
            }
        })?;
        self.drained = taken < BATCH;
        Ok(taken as u64)
    }

    pub(crate) fn take_receives(&mut self, side: &mut Side<'_>) -> Result<u64, Failure> {
        let (flows, size, other_length) = (&mut self.flows, self.size, &mut self.other_length);
        let taken = side.poll(|completion| {
            if let Some(flow) = flows.get_mut(completion.id as usize) {
                flow.received += 1;
            }
            if u64::from(completion.byte_length()) != size {
                *other_length = Some(completion.byte_length());
            }
        })?;
        Ok(taken as u64)
    }

    /// The length of a message that arrived with another than this test's.
    pub(crate) const fn other_length(&self) -> Option<u32> {
        self.other_length
    }

    /// Bytes of a message.
    pub(crate) const fn size(&self) -> u64 {
        self.size
    }

    /// Keeps each queue pair of the server supplied with receives.
    pub(crate) fn post_receives(&mut self, side: &mut Side<'_>, depth: u32) -> Result<(), Failure> {
        if self.operation != Operation::Send {
            return Ok(());
        }
        for (index, flow) in self.flows.iter_mut().enumerate() {
            let queue_pair = &mut side.queue_pairs[index];
            while flow.receives_posted - flow.received < u64::from(depth) {
                match queue_pair.receive(index as u64, &[flow.target]) {
                    Ok(()) => flow.receives_posted += 1,
                    Err(PostError::QueueFull) => break,
                    Err(error) => return Err(error.into()),
                }
            }
        }
        Ok(())
    }
}
