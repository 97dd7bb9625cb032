//! One event: traffic, a fault, and back to traffic.

use super::fault::Raiser;
use super::report::Row;
use super::traffic::{Side, connect, verify};
use crate::failure::Failure;
use crate::interrupt;
use crate::trouble::Kind;
use anyhow::anyhow;
use ringside_pmd::Device;
use ringside_pmd::lan::FirmwareEvent;
use ringside_pmd::rdma::{Event, RdmaError};
use ringside_pmd::recovery::{FailureCause, RecoveryReport};
use std::io::Write;
use std::time::{Duration, Instant};

/// The time in which a fault has to be noticed: a person may have to type it.
const NOTICED_WITHIN: Duration = Duration::from_secs(30);

/// The interval at which firmware and engine are probed.
const PROBE_EVERY: Duration = Duration::from_millis(10);

/// The interval at which events are polled.
const EVENTS_EVERY: Duration = Duration::from_micros(100);

/// The time for which the link is down.
const FLAP: Duration = Duration::from_millis(20);

/// An event to come.
pub(super) struct Round<'r> {
    pub(super) kind: Kind,
    /// traffic before it
    pub(super) lead: Duration,
    pub(super) raiser: &'r Raiser<'r>,
}

impl Round<'_> {
    pub(super) fn run(
        &self,
        client: &mut Device,
        server: &Device,
        out: &mut dyn Write,
    ) -> Result<Row, Failure> {
        let mut sides = connect(client, server)?;
        let mut verified = verify(&mut sides, 1)?;
        let until = Instant::now() + self.lead;
        while Instant::now() < until {
            keep_going(&mut sides)?;
        }
        let raised = Instant::now();
        let mut row = match self.kind {
            Kind::LinkDown => self.flap(raised, &mut sides, client, server, out)?,
            _ => self.fail(raised, sides, client, server, out)?,
        };
        let began = Instant::now();
        let mut sides = connect(client, server)?;
        verified += verify(&mut sides, 2)?;
        row.reconnect = began.elapsed();
        row.total = raised.elapsed();
        row.verified = verified;
        Ok(row)
    }

    /// A fault after which the device has to be recovered.
    fn fail(
        &self,
        raised: Instant,
        mut sides: [Side; 2],
        client: &mut Device,
        server: &Device,
        out: &mut dyn Write,
    ) -> Result<Row, Failure> {
        let mut row = Row::new(self.kind);
        self.raiser.begin(self.kind, out)?;
        let cause = self.wait_for_failure(&mut sides, client);
        let cause = cause.inspect_err(|_| self.withdraw(out))?;
        row.detect = raised.elapsed();
        row.cause = Some(cause.name());
        let noticed = Instant::now();
        let [one, other] = &mut sides;
        one.drain("the device that failed")?;
        row.flush = noticed.elapsed();
        other.give_up()?;
        server.poll_events(&mut Vec::new())?;
        other.drain("its peer")?;
        row.completed = one.succeeded() + other.succeeded();
        row.flushed = one.flushed() + other.flushed();
        if self.kind.outlives_a_reset() {
            self.raiser.end(self.kind, out)?;
        }
        let report = self.recover(client)?;
        for stage in &report.stages {
            match stage.stage {
                "bring-up" => row.bring_up += stage.took,
                _ => row.reset += stage.took,
            }
        }
        // Queue pairs of the ended period of service are dropped without a command.
        drop(sides);
        Ok(row)
    }

    /// Ends a fault that would outlive this command, after a wait that failed.
    fn withdraw(&self, out: &mut dyn Write) {
        if self.kind.outlives_a_reset() || self.kind == Kind::LinkDown {
            // The failure of the wait is reported.
            let _ = self.raiser.end(self.kind, out);
        }
    }

    /// Recovers a device; repeatedly if the fault must be ended first.
    fn recover(&self, client: &mut Device) -> Result<RecoveryReport, Failure> {
        let mut wait = Wait::begin();
        loop {
            match client.recover() {
                Ok(report) => return Ok(report),
                Err(error) if wait.is_over()? || !self.kind.outlives_a_reset() => {
                    return Err(Failure::operation(anyhow!("{error}")));
                }
                Err(_) => std::thread::sleep(PROBE_EVERY),
            }
        }
    }

    /// Continues the traffic until the device's event reports that it failed.
    fn wait_for_failure(
        &self,
        sides: &mut [Side; 2],
        client: &Device,
    ) -> Result<FailureCause, Failure> {
        let mut wait = Wait::begin();
        let (mut look, mut probe) = (wait.began, wait.began);
        let mut events = Vec::new();
        loop {
            keep_going(sides)?;
            let now = Instant::now();
            if self.kind.is_silent() && now >= probe {
                client.probe();
                probe = now + PROBE_EVERY;
            }
            if now < look {
                continue;
            }
            look = now + EVENTS_EVERY;
            match client.poll_events(&mut events) {
                Ok(_) => {}
                Err(RdmaError::DeviceFailed { cause }) => {
                    return Err(Failure::wrong(anyhow!(
                        "no event reported the failure of the device ({cause})"
                    )));
                }
                Err(error) => return Err(error.into()),
            }
            let failed = events.iter().find_map(|event| match event {
                Event::DeviceFailed { cause } => Some(*cause),
                _ => None,
            });
            if let Some(cause) = failed {
                return Ok(cause);
            }
            if wait.is_over()? {
                return Err(Failure::operation(anyhow!(
                    "{} went unnoticed for {} s",
                    self.kind.name(),
                    NOTICED_WITHIN.as_secs()
                )));
            }
        }
    }

    /// The link goes down and up again: queue pairs survive it if their retries suffice.
    fn flap(
        &self,
        raised: Instant,
        sides: &mut [Side; 2],
        client: &Device,
        server: &Device,
        out: &mut dyn Write,
    ) -> Result<Row, Failure> {
        let mut row = Row::new(self.kind);
        self.raiser.begin(self.kind, out)?;
        wait_for_link(client, sides, false).inspect_err(|_| self.withdraw(out))?;
        row.detect = raised.elapsed();
        row.cause = Some("link-down");
        let until = Instant::now() + FLAP;
        while Instant::now() < until {
            keep_going(sides)?;
        }
        let ended = Instant::now();
        self.raiser.end(self.kind, out)?;
        wait_for_link(client, sides, true)?;
        row.bring_up = ended.elapsed();
        for device in [client, server] {
            device.poll_events(&mut Vec::new())?;
        }
        let [one, other] = sides;
        for side in [&mut *one, &mut *other] {
            side.give_up()?;
        }
        let began = Instant::now();
        one.drain("this side")?;
        other.drain("its peer")?;
        row.flush = began.elapsed();
        row.completed = one.succeeded() + other.succeeded();
        row.flushed = one.flushed() + other.flushed();
        Ok(row)
    }
}

/// A wait for a fault, or for its end.
struct Wait {
    began: Instant,
    signals: interrupt::Waiting,
}

impl Wait {
    fn begin() -> Self {
        Self {
            began: Instant::now(),
            signals: interrupt::Waiting::default(),
        }
    }

    /// True once it has taken too long. Errors: a signal ends it. A fault that was raised before
    /// the signal is noticed and mended within the time until then.
    fn is_over(&mut self) -> Result<bool, Failure> {
        self.signals.check()?;
        Ok(self.began.elapsed() > NOTICED_WITHIN)
    }
}

/// Posts and polls on both sides, once.
fn keep_going(sides: &mut [Side; 2]) -> Result<(), Failure> {
    let [one, other] = sides;
    let remotes = [other.remote(), one.remote()];
    for (side, remote) in [one, other].into_iter().zip(&remotes) {
        side.post(remote)?;
        side.poll()?;
    }
    Ok(())
}

/// Continues the traffic until the firmware reports that the link is up, or down.
fn wait_for_link(client: &Device, sides: &mut [Side; 2], wanted: bool) -> Result<(), Failure> {
    let mut wait = Wait::begin();
    let mut look = wait.began;
    loop {
        keep_going(sides)?;
        let now = Instant::now();
        if now < look {
            continue;
        }
        look = now + EVENTS_EVERY;
        let told = client.poll_firmware_events()?;
        let link = told.iter().rev().find_map(|event| match event {
            FirmwareEvent::Link(state) => Some(state.up),
            _ => None,
        });
        if link == Some(wanted) {
            return Ok(());
        }
        if wait.is_over()? {
            let word = if wanted { "up" } else { "down" };
            return Err(Failure::operation(anyhow!(
                "no report within {} s that the link is {word}",
                NOTICED_WITHIN.as_secs()
            )));
        }
    }
}
