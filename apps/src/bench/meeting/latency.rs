//! Latency between two processes: one message in flight.

use super::agreement::Test;
use super::end::{End, Link, Role, Watch};
use super::session::sleep_until_ended;
use crate::bench::latencies::Latencies;
use crate::bench::latency::{CHECK_EVERY, warm_up};
use crate::bench::plan::Amount;
use crate::bench::progress::Progress;
use crate::bench::verify::{copied, put};
use crate::cli::Operation;
use crate::failure::Failure;
use crate::interrupt;
use anyhow::anyhow;
use ringside_bus::clock::ticks;
use ringside_pmd::rdma::{Connected, Flags, Fragment, QueuePair, RemoteAddress};
use ringside_rendezvous::Step;

/// Times messages, as the client. Write and send: half a round trip; read: the whole.
pub(crate) fn measure(
    end: &mut End<'_>,
    link: &mut Link,
    test: &Test,
    progress: &mut Progress,
) -> Result<Latencies, Failure> {
    clear_last_byte(end, test)?;
    let mut player = Player::prepare(end, link.role, test)?;
    link.step(Step::Measuring)?;
    let mut times = Latencies::new()?;
    warm_up(test.amount, || {
        link.beat()?;
        player.round(end, link).map(drop)
    })?;
    let trips = if player.operation == Operation::Read {
        1
    } else {
        2
    };
    let began = ticks();
    let mut done = 0_u64;
    loop {
        if done.is_multiple_of(CHECK_EVERY) {
            link.beat()?;
            if interrupt::seen() {
                break;
            }
            let passed = u128::from(link.clock.nanoseconds(ticks().wrapping_sub(began)));
            match test.amount {
                Amount::Time(time) if passed >= time.as_nanos() => break,
                Amount::Time(time) => progress.at(passed as f64 / time.as_nanos() as f64),
                Amount::Messages(messages) => progress.at(done as f64 / messages as f64),
            }
        }
        if matches!(test.amount, Amount::Messages(messages) if done >= messages) {
            break;
        }
        let span = player.round(end, link)?;
        times.record(link.clock.nanoseconds(span) / trips);
        done += 1;
    }
    link.step(Step::Ended)?;
    Ok(times)
}

/// As the server, answers until the client ends the measurement; returns the number of answers.
pub(crate) fn answer(end: &mut End<'_>, link: &mut Link, test: &Test) -> Result<u64, Failure> {
    clear_last_byte(end, test)?;
    let mut player = Player::prepare(end, link.role, test)?;
    link.step(Step::Measuring)?;
    let mut answered = 0;
    while player.answer(end, link)? {
        answered += 1;
    }
    link.step(Step::Ended)?;
    Ok(answered)
}

/// The byte that is waited for must not be that of an earlier message.
fn clear_last_byte(end: &End<'_>, test: &Test) -> Result<(), Failure> {
    match (test.size as usize).checked_sub(1) {
        Some(last) => put(&end.side.target, last, &[0]),
        None => Ok(()),
    }
}

/// One side of a ping-pong.
pub(crate) struct Player {
    operation: Operation,
    size: usize,
    /// the message, for inline posts; its last byte counts the rounds
    message: Vec<u8>,
    inline: bool,
    source: Fragment,
    target: Fragment,
    remote: RemoteAddress,
    count: u8,
    received: Option<u32>,
}

impl Player {
    /// Posts receives. The last byte of the target is zero: cleared, or never written.
    pub(crate) fn prepare(end: &mut End<'_>, role: Role, test: &Test) -> Result<Self, Failure> {
        let size = test.size as usize;
        let operation = test.task.operation();
        let player = Self {
            operation,
            size,
            message: vec![0; size],
            inline: size <= test.inline as usize && operation != Operation::Read,
            source: end.side.source.slice(0..size)?,
            target: end.side.target.slice(end.slot(0)..end.slot(1))?,
            remote: end.remote(0)?,
            count: 0,
            received: None,
        };
        if operation == Operation::Send {
            // The server posts the next receive only after an answer, when the client may have
            // sent.
            let receives = if role == Role::Server { 2 } else { 1 };
            while queue_pair(end)?.receives_outstanding() < receives {
                queue_pair(end)?.receive(1, &[player.target])?;
            }
        }
        Ok(player)
    }

    /// One message, and for write and send the answer; ticks from the post to the last arrival.
    #[inline]
    pub(crate) fn round(&mut self, end: &mut End<'_>, link: &mut Link) -> Result<u64, Failure> {
        self.count = self.count.wrapping_add(1);
        let began = ticks();
        self.post(end)?;
        let came = match self.operation {
            Operation::Write => self.wait_for_byte(end, link)?,
            Operation::Read => self.wait_for_completion(end, link, true)?,
            Operation::Send => self.wait_for_completion(end, link, false)?,
        };
        let span = ticks().wrapping_sub(began);
        if !came {
            return Err(Failure::operation(anyhow!(
                "the peer {} ended the test before this side did",
                link.session.peer()
            )));
        }
        match self.operation {
            Operation::Write => drop(end.side.poll(|_| {})?),
            Operation::Read => {}
            Operation::Send => queue_pair(end)?.receive(1, &[self.target])?,
        }
        Ok(span)
    }

    /// Waits for a message and answers it; false if the client has ended the test instead.
    #[inline]
    pub(crate) fn answer(&mut self, end: &mut End<'_>, link: &mut Link) -> Result<bool, Failure> {
        self.count = self.count.wrapping_add(1);
        let came = match self.operation {
            Operation::Write => self.wait_for_byte(end, link)?,
            Operation::Send => self.wait_for_completion(end, link, false)?,
            // Reads are the device's work alone.
            Operation::Read => sleep_until_ended(end, link)?,
        };
        if !came {
            return Ok(false);
        }
        if self.operation == Operation::Send {
            queue_pair(end)?.receive(1, &[self.target])?;
        }
        self.post(end)?;
        if self.operation == Operation::Write {
            end.side.poll(|_| {})?;
        }
        Ok(true)
    }

    #[inline]
    fn post(&mut self, end: &mut End<'_>) -> Result<(), Failure> {
        let write = self.operation == Operation::Write;
        if self.inline
            && let Some(last) = self.message.last_mut()
        {
            *last = self.count;
        } else if write && !self.inline {
            copied(end.side.source.write(self.size - 1, &[self.count]), 1)?;
        }
        let flags = Flags::SIGNALLED;
        let queue_pair = queue_pair(end)?;
        match (self.operation, self.inline) {
            (Operation::Write, true) => {
                queue_pair.write_inline(0, &self.message, self.remote, None, flags)?;
            }
            (Operation::Write, false) => {
                queue_pair.write(0, &[self.source], self.remote, flags)?;
            }
            (Operation::Read, _) => queue_pair.read(0, &[self.source], self.remote, flags)?,
            (Operation::Send, true) => queue_pair.send_inline(0, &self.message, None, flags)?,
            (Operation::Send, false) => queue_pair.send(0, &[self.source], flags)?,
        }
        queue_pair.ring();
        Ok(())
    }

    /// Polls the last byte of the target: RDMA writes leave no completion at the peer. False if the
    /// peer sends something on the TCP connection first.
    #[inline]
    fn wait_for_byte(&self, end: &mut End<'_>, link: &mut Link) -> Result<bool, Failure> {
        let mut watch = Watch::new();
        loop {
            let mut byte = [0];
            let there = match end.side.target.buffers() {
                [buffer] => buffer.read(self.size - 1, &mut byte),
                _ => false,
            };
            if there && byte[0] == self.count {
                return Ok(true);
            }
            if watch.idle_with(end.side.device, link)?.is_some() {
                return Ok(false);
            }
        }
    }

    /// Polls until a send or a receive is complete; false if the peer sends something on the TCP
    /// connection first.
    #[inline]
    fn wait_for_completion(
        &mut self,
        end: &mut End<'_>,
        link: &mut Link,
        send: bool,
    ) -> Result<bool, Failure> {
        let mut watch = Watch::new();
        let mut arrived = false;
        let received = &mut self.received;
        loop {
            let taken = end.side.poll(|completion| {
                arrived |= completion.is_send() == send;
                if !completion.is_send() {
                    *received = Some(completion.byte_length());
                }
            })?;
            if arrived {
                return Ok(true);
            }
            if taken == 0 && watch.idle_with(end.side.device, link)?.is_some() {
                return Ok(false);
            }
        }
    }

    /// Bytes of the last message that completed a receive.
    pub(crate) const fn received(&self) -> Option<u32> {
        self.received
    }

    /// Bytes of a message.
    pub(crate) const fn size(&self) -> u64 {
        self.size as u64
    }
}

fn queue_pair<'e>(end: &'e mut End<'_>) -> Result<&'e mut QueuePair<Connected>, Failure> {
    let first = end.side.queue_pairs.first_mut();
    first.ok_or_else(|| Failure::operation(anyhow!("there is no queue pair")))
}
