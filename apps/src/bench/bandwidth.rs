//! Bandwidth and message rate: many messages in flight.

use super::pair::{Pair, Watch};
use super::plan::{Amount, Plan};
use super::progress::Progress;
use super::report::BandwidthRow;
use crate::cli::Operation;
use crate::failure::Failure;
use ringside_bus::clock::ticks;
use ringside_pmd::rdma::{Flags, Fragment, PostError, RemoteAddress};

/// Posts before a doorbell, at most.
const BURST: u64 = 32;

/// One message of so many asks for a completion, unless the window is smaller.
const SIGNAL_EVERY: u64 = 32;

/// From this many bytes on every message asks for a completion: one completion for 32 of them would
/// fall into one slice and make a peak that never was.
const LARGE: u64 = 32 << 10;

/// Slices of at least this long are compared for the peak.
const SLICE_NANOSECONDS: u64 = 5_000_000;

/// One queue pair's side of a test.
struct Flow {
    source: Fragment,
    target: Fragment,
    remote: RemoteAddress,
    posted: u64,
    completed: u64,
    /// receives that the server has posted, send tests only
    received: u64,
    receives_posted: u64,
}

/// Measures one size.
pub(crate) fn measure(
    pair: &mut Pair<'_>,
    plan: &Plan,
    size: u64,
    progress: &mut Progress,
    verified_messages: u64,
) -> Result<BandwidthRow, Failure> {
    let mut run = Run::prepare(pair, plan, size)?;
    run.turn(pair, plan, progress)?;
    let seconds = run.nanoseconds as f64 / 1e9;
    let bytes = run.done as f64 * size as f64;
    let average = bytes / seconds;
    Ok(BandwidthRow {
        bytes: size,
        iterations: run.done,
        peak_bytes_per_second: run.peak.max(average),
        average_bytes_per_second: average,
        messages_per_second: run.done as f64 / seconds,
        verified_messages,
    })
}

struct Run {
    operation: Operation,
    size: u64,
    flows: Vec<Flow>,
    /// messages in flight on each queue pair, at most
    window: u64,
    signal_every: u64,
    inline: bool,
    message: Vec<u8>,
    limit: u64,
    done: u64,
    nanoseconds: u64,
    peak: f64,
}

impl Run {
    fn prepare(pair: &Pair<'_>, plan: &Plan, size: u64) -> Result<Self, Failure> {
        let bytes = size as usize;
        let remote = pair.server.remote();
        let flow = |index: usize| -> Result<Flow, Failure> {
            let start = pair.slot(index);
            Ok(Flow {
                source: pair.client.source.slice(start..start + bytes)?,
                target: pair.server.target.slice(start..start + bytes)?,
                remote: remote.at(start as u64),
                posted: 0,
                completed: 0,
                received: 0,
                receives_posted: 0,
            })
        };
        let flows = (0..plan.queue_pairs as usize)
            .map(flow)
            .collect::<Result<Vec<_>, Failure>>()?;
        let window = match plan.operation {
            // A message without a receive waits for the peer's timer: keep within what is posted.
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
            nanoseconds: 0,
            peak: 0.0,
        })
    }

    /// Posts and polls until the amount is reached, then drains.
    fn turn(
        &mut self,
        pair: &mut Pair<'_>,
        plan: &Plan,
        progress: &mut Progress,
    ) -> Result<(), Failure> {
        self.post_receives(pair, plan.receive_depth)?;
        let began = ticks();
        let (mut slice_began, mut slice_done) = (began, 0);
        let mut stop = false;
        let mut watch = Watch::new();
        loop {
            let mut worked = if stop { 0 } else { self.post(pair)? };
            worked += self.complete(pair)?;
            if self.operation == Operation::Send {
                worked += self.take_receives(pair)?;
                self.post_receives(pair, plan.receive_depth)?;
            }
            let now = ticks();
            let slice = pair.clock.nanoseconds(now.wrapping_sub(slice_began));
            if slice >= SLICE_NANOSECONDS {
                let rate = (self.done - slice_done) as f64 * self.size as f64 * 1e9 / slice as f64;
                self.peak = self.peak.max(rate);
                (slice_began, slice_done) = (now, self.done);
                let passed = pair.clock.nanoseconds(now.wrapping_sub(began));
                match plan.amount {
                    Amount::Time(time) => {
                        stop = u128::from(passed) >= time.as_nanos();
                        progress.at(passed as f64 / time.as_nanos() as f64);
                    }
                    Amount::Messages(messages) => progress.at(self.done as f64 / messages as f64),
                }
            }
            let posted: u64 = self.flows.iter().map(|flow| flow.posted).sum();
            if (stop || posted >= self.limit) && self.done >= posted && self.all_received() {
                self.nanoseconds = pair.clock.nanoseconds(now.wrapping_sub(began)).max(1);
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
    fn post(&mut self, pair: &mut Pair<'_>) -> Result<u64, Failure> {
        let mut total = 0;
        let mut left = self.limit - self.flows.iter().map(|flow| flow.posted).sum::<u64>();
        for (index, flow) in self.flows.iter_mut().enumerate() {
            let room = self.window - (flow.posted - flow.completed);
            // Waiting for a whole burst's room saves doorbells: one a burst, not one a message.
            let least = BURST.min((self.window / 2).max(1)).min(left);
            let burst = room.min(BURST).min(left);
            if burst < least || burst == 0 {
                continue;
            }
            let queue_pair = &mut pair.client.queue_pairs[index];
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

    /// A completion stands for all messages up to its own.
    fn complete(&mut self, pair: &mut Pair<'_>) -> Result<u64, Failure> {
        let (flows, done) = (&mut self.flows, &mut self.done);
        let taken = pair.client.poll(|completion| {
            let index = (completion.id >> 48) as usize;
            if let Some(flow) = flows.get_mut(index) {
                let upto = (completion.id & ((1 << 48) - 1)) + 1;
                *done += upto.saturating_sub(flow.completed);
                flow.completed = flow.completed.max(upto);
            }
        })?;
        Ok(taken as u64)
    }

    fn take_receives(&mut self, pair: &mut Pair<'_>) -> Result<u64, Failure> {
        let flows = &mut self.flows;
        let taken = pair.server.poll(|completion| {
            if let Some(flow) = flows.get_mut(completion.id as usize) {
                flow.received += 1;
            }
        })?;
        Ok(taken as u64)
    }

    /// Keeps each queue pair of the server supplied with receives.
    fn post_receives(&mut self, pair: &mut Pair<'_>, depth: u32) -> Result<(), Failure> {
        if self.operation != Operation::Send {
            return Ok(());
        }
        for (index, flow) in self.flows.iter_mut().enumerate() {
            let queue_pair = &mut pair.server.queue_pairs[index];
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
