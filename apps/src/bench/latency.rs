//! Latency: one message in flight.

use super::latencies::Latencies;
use super::pair::{Pair, Side, Watch};
use super::plan::{Amount, Plan};
use super::progress::Progress;
use crate::cli::Operation;
use crate::failure::Failure;
use crate::interrupt;
use anyhow::anyhow;
use ringside_bus::clock::ticks;
use ringside_pmd::rdma::{Flags, Fragment};
use std::time::{Duration, Instant};

/// Messages before the first that counts, at most.
const WARM_UP: u64 = 1_000;

/// Messages between two comparisons of the clock with the time allowed.
pub(crate) const CHECK_EVERY: u64 = 256;

/// Exchanges messages before the first that counts, and returns their number: 1000, or as many as
/// the test has, or as many as fit in the time of the test. A signal ends it.
pub(crate) fn warm_up(
    amount: Amount,
    mut round: impl FnMut() -> Result<(), Failure>,
) -> Result<u64, Failure> {
    let (most, time) = match amount {
        Amount::Messages(messages) => (WARM_UP.min(messages), Duration::MAX),
        Amount::Time(time) => (WARM_UP, time),
    };
    let began = Instant::now();
    let mut done = 0;
    while done < most && !interrupt::seen() {
        round()?;
        done += 1;
        if began.elapsed() >= time {
            break;
        }
    }
    Ok(done)
}

/// Measures one size. Write and send: half a round trip; read: the whole. Returns the number of
/// messages before the first that counts, too.
pub(crate) fn measure(
    pair: &mut Pair<'_>,
    plan: &Plan,
    size: u64,
    progress: &mut Progress,
) -> Result<(Latencies, u64), Failure> {
    let mut test = Test::prepare(pair, plan, size)?;
    let mut times = Latencies::new()?;
    let before = warm_up(plan.amount, || test.round(pair).map(drop))?;
    let began = ticks();
    let mut done = 0;
    loop {
        match plan.amount {
            Amount::Messages(messages) if done >= messages => break,
            Amount::Messages(messages) if done.is_multiple_of(CHECK_EVERY) => {
                progress.at(done as f64 / messages as f64);
            }
            Amount::Time(time) if done.is_multiple_of(CHECK_EVERY) => {
                let passed = pair.clock.nanoseconds(ticks().wrapping_sub(began)) as f64;
                if passed >= time.as_nanos() as f64 {
                    break;
                }
                progress.at(passed / time.as_nanos() as f64);
            }
            _ => {}
        }
        if done.is_multiple_of(CHECK_EVERY) && interrupt::seen() {
            break;
        }
        let span = test.round(pair)?;
        let nanoseconds = pair.clock.nanoseconds(span) / test.trips;
        times.record(nanoseconds);
        done += 1;
    }
    Ok((times, before))
}

/// One size of one operation.
struct Test {
    operation: Operation,
    size: usize,
    /// the message, for inline posts; its last byte counts the rounds
    message: Vec<u8>,
    inline: bool,
    client_source: Fragment,
    server_source: Fragment,
    client_target: Fragment,
    server_target: Fragment,
    count: u8,
    trips: u64,
}

impl Test {
    fn prepare(pair: &mut Pair<'_>, plan: &Plan, size: u64) -> Result<Self, Failure> {
        let size = size as usize;
        let test = Self {
            operation: plan.operation,
            size,
            message: vec![0; size],
            inline: size <= plan.inline as usize && plan.operation != Operation::Read,
            client_source: pair.client.source.slice(0..size)?,
            server_source: pair.server.source.slice(0..size)?,
            client_target: pair.client.target.slice(0..size)?,
            server_target: pair.server.target.slice(0..size)?,
            count: 0,
            trips: if plan.operation == Operation::Read {
                1
            } else {
                2
            },
        };
        if size > 0 {
            for side in [&pair.client, &pair.server] {
                for region in [&side.source, &side.target] {
                    if !region.write(size - 1, &[0]) {
                        return Err(Failure::operation(anyhow!(
                            "{size} bytes exceed the region"
                        )));
                    }
                }
            }
        }
        if plan.operation == Operation::Send {
            let (client, server) = (test.client_target, test.server_target);
            post_receive(&mut pair.client, client)?;
            post_receive(&mut pair.server, server)?;
        }
        Ok(test)
    }

    /// One message, and for write and send the answer; ticks from first post to last arrival.
    #[inline]
    fn round(&mut self, pair: &mut Pair<'_>) -> Result<u64, Failure> {
        match self.operation {
            Operation::Write => self.write_round(pair),
            Operation::Read => self.read_round(pair),
            Operation::Send => self.send_round(pair),
        }
    }

    fn write_round(&mut self, pair: &mut Pair<'_>) -> Result<u64, Failure> {
        self.count = self.count.wrapping_add(1);
        if let Some(last) = self.message.last_mut() {
            *last = self.count;
        }
        let remote = pair.server.remote();
        let began = ticks();
        self.post_write(&mut pair.client, self.client_source, remote)?;
        self.wait_for_byte(pair, |pair| &pair.server)?;
        let remote = pair.client.remote();
        self.post_write(&mut pair.server, self.server_source, remote)?;
        self.wait_for_byte(pair, |pair| &pair.client)?;
        let span = ticks().wrapping_sub(began);
        pair.client.poll(|_| {})?;
        pair.server.poll(|_| {})?;
        Ok(span)
    }

    #[inline]
    fn post_write(
        &self,
        side: &mut Side<'_>,
        source: Fragment,
        remote: ringside_pmd::rdma::RemoteRegion,
    ) -> Result<(), Failure> {
        let queue_pair = &mut side.queue_pairs[0];
        if self.inline {
            queue_pair.write_inline(0, &self.message, remote.at(0), None, Flags::SIGNALLED)?;
        } else {
            let written = side.source.write(self.size - 1, &[self.count]);
            debug_assert!(written);
            queue_pair.write(0, &[source], remote.at(0), Flags::SIGNALLED)?;
        }
        queue_pair.ring();
        Ok(())
    }

    /// Polls the last byte of the target: RDMA writes leave no completion at the peer.
    #[inline]
    fn wait_for_byte(
        &self,
        pair: &mut Pair<'_>,
        side: for<'s, 'd> fn(&'s Pair<'d>) -> &'s Side<'d>,
    ) -> Result<(), Failure> {
        let mut watch = Watch::new();
        loop {
            let mut byte = [0];
            let there = match side(pair).target.buffers() {
                [buffer] => buffer.read(self.size - 1, &mut byte),
                _ => false,
            };
            if there && byte[0] == self.count {
                return Ok(());
            }
            watch.idle(pair)?;
        }
    }

    fn read_round(&mut self, pair: &mut Pair<'_>) -> Result<u64, Failure> {
        let remote = pair.server.remote();
        let began = ticks();
        let queue_pair = &mut pair.client.queue_pairs[0];
        queue_pair.read(0, &[self.client_source], remote.at(0), Flags::SIGNALLED)?;
        queue_pair.ring();
        let mut watch = Watch::new();
        while pair.client.poll(|_| {})? == 0 {
            watch.idle(pair)?;
        }
        Ok(ticks().wrapping_sub(began))
    }

    fn send_round(&mut self, pair: &mut Pair<'_>) -> Result<u64, Failure> {
        let began = ticks();
        self.post_send(&mut pair.client, self.client_source)?;
        wait_for_receive(pair, |pair| &mut pair.server)?;
        post_receive(&mut pair.server, self.server_target)?;
        self.post_send(&mut pair.server, self.server_source)?;
        wait_for_receive(pair, |pair| &mut pair.client)?;
        let span = ticks().wrapping_sub(began);
        post_receive(&mut pair.client, self.client_target)?;
        Ok(span)
    }

    #[inline]
    fn post_send(&self, side: &mut Side<'_>, source: Fragment) -> Result<(), Failure> {
        let queue_pair = &mut side.queue_pairs[0];
        if self.inline {
            queue_pair.send_inline(0, &self.message, None, Flags::SIGNALLED)?;
        } else {
            queue_pair.send(0, &[source], Flags::SIGNALLED)?;
        }
        queue_pair.ring();
        Ok(())
    }
}

#[inline]
fn post_receive(side: &mut Side<'_>, target: Fragment) -> Result<(), Failure> {
    Ok(side.queue_pairs[0].receive(1, &[target])?)
}

#[inline]
fn wait_for_receive(
    pair: &mut Pair<'_>,
    side: for<'s, 'd> fn(&'s mut Pair<'d>) -> &'s mut Side<'d>,
) -> Result<(), Failure> {
    let mut watch = Watch::new();
    let mut arrived = false;
    while !arrived {
        let taken = side(pair).poll(|completion| arrived |= !completion.is_send())?;
        if taken == 0 {
            watch.idle(pair)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Messages of a warm-up of which each takes this long.
    fn of(amount: Amount, each: Duration) -> u64 {
        let mut rounds = 0;
        let count = warm_up(amount, || {
            rounds += 1;
            std::thread::sleep(each);
            Ok(())
        });
        let count = count.unwrap();
        assert_eq!(count, rounds);
        count
    }

    #[test]
    fn a_warm_up_has_at_most_as_many_messages_and_as_much_time_as_the_test() {
        assert_eq!(of(Amount::Messages(7), Duration::ZERO), 7);
        assert_eq!(of(Amount::Messages(70_000), Duration::ZERO), 1_000);
        let time = Duration::from_millis(20);
        let few = of(Amount::Time(time), Duration::from_millis(5));
        assert!((1..=4).contains(&few), "{few}");
        assert_eq!(
            of(Amount::Time(Duration::from_secs(60)), Duration::ZERO),
            1_000
        );
    }
}
