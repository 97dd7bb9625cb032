//! The loop of the housekeeping thread.

use super::served::Served;
use super::told::Told;
use crate::signal::wait;
use ringside_config::HousekeepingSection;
use ringside_pmd::rdma::{Event, Interrupts, RdmaError};
use ringside_pmd::recovery::{FailureCause, Supervised, Supervision};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The longest sleep without an interrupt: the delay of events and flushes.
const WITHOUT_INTERRUPT: Duration = Duration::from_millis(2);

/// The longest wait until no other thread uses the device, before it is recovered. The next round
/// tries again.
const EXCLUSIVE_LIMIT: Duration = Duration::from_millis(100);

/// The least time between two looks if the IP stack still runs.
const LOOK: Duration = Duration::from_secs(1);

/// The interrupt of this period of service.
#[derive(Debug)]
enum Wakeup {
    /// Not connected yet in this period of service.
    Unknown,
    Connected(Interrupts),
    /// The device has none, or another owner has it.
    Nothing,
}

/// The descriptor of the host's request for the device, the thread's own: the device cannot be
/// borrowed while the thread sleeps.
fn release_request(served: &Served) -> Option<OwnedFd> {
    let device = served.driver();
    let own = device.release_request()?.try_clone_to_owned();
    own.inspect_err(
        |error| tracing::warn!(%error, "requests to release the device are seen a period later"),
    )
    .ok()
}

/// See the module.
#[derive(Debug)]
pub(super) struct Rounds {
    served: Arc<Served>,
    wakeup: Wakeup,
    supervision: Supervision,
    recover: bool,
    period: Duration,
    /// as last reported; `None` after a recovery, until the next look
    link_is_up: Option<bool>,
    /// before the recovery
    link_was_up: Option<bool>,
    /// the life in which the link was looked at last
    link_life: u32,
    /// the failures and recoveries that the program was told of
    told: Told,
    events: Vec<Event>,
    /// true from a rise of the link until the addresses are announced again
    announce: bool,
    /// the time at which the IP stack was looked at last
    looked: Instant,
    /// readable while the host asks for the device; `None` if the backend has no request
    release: Option<OwnedFd>,
}

impl Rounds {
    pub(super) fn new(served: Arc<Served>, section: &HousekeepingSection) -> Self {
        let probe = Duration::from_millis(section.probe_ms);
        let retry = Duration::from_millis(section.retry_ms);
        let release = release_request(&served);
        let mut rounds = Self {
            served: Arc::clone(&served),
            release,
            wakeup: Wakeup::Unknown,
            supervision: Supervision::new(probe, retry),
            recover: section.recover,
            period: Duration::from_millis(section.period_ms),
            link_is_up: None,
            link_was_up: None,
            link_life: 0,
            told: Told::new(served.known_life()),
            events: Vec::new(),
            announce: false,
            looked: Instant::now(),
        };
        // Changes are events from now on, also those before the thread's first round.
        rounds.look_at_link(&served.driver());
        rounds
    }

    /// Runs until the handoff requests the end.
    pub(super) fn run(&mut self) {
        while !self.served.handoff.is_stopped() {
            self.connect();
            self.round();
            self.look_at_stack();
            self.sleep();
        }
        self.wakeup = Wakeup::Nothing;
    }

    /// Connects the interrupt, once in each period of service.
    fn connect(&mut self) {
        if !matches!(self.wakeup, Wakeup::Unknown) {
            return;
        }
        self.wakeup = match self.served.driver().event_interrupts() {
            Ok(interrupts) => Wakeup::Connected(interrupts),
            // Connected again after the recovery.
            Err(RdmaError::DeviceFailed { .. }) => return,
            Err(error) => {
                tracing::debug!(%error, "no interrupt for the housekeeping thread: it wakes up by time only");
                Wakeup::Nothing
            }
        };
    }

    /// Sleeps until an interrupt, a request of the program, or the end of the period.
    fn sleep(&mut self) {
        let wake = Some(self.served.handoff.wake().as_fd());
        let release = self.release.as_ref().map(AsFd::as_fd);
        let Wakeup::Connected(interrupts) = &self.wakeup else {
            wait([wake, release], self.period.min(WITHOUT_INTERRUPT));
            return;
        };
        wait([wake, release, Some(interrupts.as_fd())], self.period);
        // Enabled again before the round checks the device, so that a later event raises it.
        if let Err(error) = interrupts.take() {
            tracing::debug!(%error, "the interrupt of this period of service ended");
            self.wakeup = Wakeup::Unknown;
        }
    }

    /// Handles events and checks the device once.
    fn round(&mut self) {
        let (failed, life) = self.observe();
        self.hand_over();
        if let Some(cause) = failed {
            self.served.note_failure(life, cause);
        }
        if let Some(cause) = failed
            && self.recover
        {
            self.recover_from(cause, life);
        }
    }

    /// Starts an IP stack again that has panicked.
    fn look_at_stack(&mut self) {
        if self.looked.elapsed() >= LOOK {
            self.served.revive_neighbours();
            self.looked = Instant::now();
        }
    }

    fn observe(&mut self) -> (Option<FailureCause>, u32) {
        let served = Arc::clone(&self.served);
        let device = served.driver();
        let life = device.life();
        // Otherwise a call of the program has recovered the device, and prepares the network: the
        // event of the recovery and changes of the link wait for that.
        let is_done = life == served.known_life();
        let from = self.events.len();
        let failed = match device.observe(&mut self.supervision, &mut self.events) {
            Ok(failed) => failed,
            Err(error) => {
                tracing::warn!(%error, "events of the device");
                None
            }
        };
        self.told.place(life, is_done, &mut self.events, from);
        if failed.is_none() && is_done {
            self.look_at_link(&device);
        }
        (failed, life)
    }

    /// Reports changes of the link, also one during a recovery.
    fn look_at_link(&mut self, device: &ringside_pmd::Device) {
        let life = device.life();
        if std::mem::replace(&mut self.link_life, life) != life {
            self.link_was_up = self.link_is_up.take().or(self.link_was_up);
        }
        if let Err(error) = device.poll_port_events(&mut self.link_is_up, &mut self.events) {
            tracing::debug!(%error, "reports of the firmware");
        }
        let Some(is_up) = self.link_is_up else {
            return;
        };
        if self
            .link_was_up
            .take()
            .is_some_and(|was_up| was_up != is_up)
        {
            self.events.push(match is_up {
                true => Event::PortUp,
                false => Event::PortDown,
            });
        }
    }

    fn hand_over(&mut self) {
        self.served.note_requests(&self.events);
        self.announce |= self.events.contains(&Event::PortUp);
        if self.announce {
            // Another thread may have the stack: the next round tries again.
            self.announce = !self.served.announce_again();
        }
        for event in self.events.drain(..) {
            self.served.handoff.put(event);
        }
    }

    fn recover_from(&mut self, cause: FailureCause, life: u32) {
        let served = Arc::clone(&self.served);
        let Some(mut device) = served.exclusive(EXCLUSIVE_LIMIT) else {
            return;
        };
        // The program may have recovered it meanwhile.
        if device.life() != life {
            return;
        }
        self.wakeup = Wakeup::Unknown;
        let supervision = &mut self.supervision;
        let supervised = served.recovering(|| device.recover_in_turn(supervision, cause));
        drop(device);
        match supervised {
            Supervised::Recovered(report) => {
                // Before the program learns of the recovery: then the port answers as before.
                served.restart_neighbours();
                tracing::info!(%cause, life = report.life, took = ?report.took, "the device was recovered");
                let end = self.events.len();
                self.told.place(report.life, true, &mut self.events, end);
                self.served.note_recovery(life, Ok(&report));
            }
            Supervised::Failing(error) => {
                tracing::error!(%error, "the device was not recovered");
                self.served.note_recovery(life, Err(&error));
            }
            Supervised::InService | Supervised::Waiting(_) => {}
        }
        self.hand_over();
    }
}
