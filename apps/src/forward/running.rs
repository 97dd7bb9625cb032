//! Ports while their packets are forwarded: looked after, reported, and named by commands.

use super::report::Report;
use super::statistics::Shared;
use super::worker::Handover;
use crate::failure::Failure;
use crate::supervised::Brought;
use ringside_pmd::lan::Vsi;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

/// See the module.
pub(super) struct Running<'a> {
    pub(super) report: Report,
    shared: Arc<Shared>,
    ports: &'a mut [Brought],
    /// by thread
    handovers: Vec<Sender<Handover>>,
    /// of the device's counters
    next_look: Instant,
}

/// Between two looks at the device's counters, which have 32 bits.
const COUNTERS_EVERY: Duration = Duration::from_secs(1);

impl<'a> Running<'a> {
    pub(super) fn new(
        shared: Arc<Shared>,
        ports: &'a mut [Brought],
        handovers: Vec<Sender<Handover>>,
        json: bool,
    ) -> Self {
        let controls: Vec<_> = ports.iter().map(|port| &port.controls).collect();
        let report = Report::new(Arc::clone(&shared), &controls, json);
        Self {
            report,
            shared,
            ports,
            handovers,
            next_look: Instant::now(),
        }
    }

    /// Lets the threads forward, after every queue has sent that many bursts of generated packets.
    pub(super) fn start(&mut self, first_bursts: u32) {
        self.report.started();
        self.shared.start(first_bursts);
    }

    /// Has the threads forward nothing until [`Running::start`].
    pub(super) fn pause(&mut self) {
        self.shared.pause();
        self.report.paused();
    }

    /// Looks after the devices. Queues of a port that was opened again, and of its VSIs, go to the
    /// threads that had those of before. Errors: no device is left, or one reports no events any
    /// more.
    pub(super) fn supervise(&mut self) -> Result<(), Failure> {
        let now = Instant::now();
        if now >= self.next_look {
            self.next_look = now + COUNTERS_EVERY;
            self.report.look();
        }
        for (index, port) in self.ports.iter_mut().enumerate() {
            let Some(queues) = port.supervise()? else {
                continue;
            };
            let layout = self.shared.layout();
            for ((station, _), queues) in layout.of_port(index).zip(queues) {
                let pairs = queues.receive.into_iter().zip(queues.transmit);
                for (queue, (receive, transmit)) in pairs.enumerate() {
                    let handover = Handover {
                        station,
                        queue,
                        receive,
                        transmit,
                    };
                    if let Some(thread) = self.handovers.get(layout.thread_of(queue)) {
                        // A thread that has ended needs none; its panic is reported at the end.
                        let _ = thread.send(handover);
                    }
                }
            }
            self.report.reopened(index, &port.controls);
            self.shared.handovers.fetch_add(1, Ordering::Release);
        }
        if self.ports.iter().any(|port| port.check_reachable().is_ok()) {
            return Ok(());
        }
        self.ports.first().map_or(Ok(()), Brought::check_reachable)
    }

    /// Number of ports.
    pub(super) const fn count(&self) -> usize {
        self.ports.len()
    }

    #[cfg(test)]
    pub(super) const fn ports(&self) -> &[Brought] {
        self.ports
    }

    /// The port of a number, or its further VSI, such as `0.1`. Errors: the reason why there is
    /// none.
    pub(super) fn find(&self, name: &str) -> Result<&Vsi, String> {
        let (number, further) = match name.split_once('.') {
            Some((number, further)) => (number, Some(further)),
            None => (name, None),
        };
        // Reports know a port by the shortest form of its number.
        let number_of = |text: &str| {
            text.parse()
                .ok()
                .filter(|at: &usize| at.to_string() == text)
        };
        let port = number_of(number).and_then(|at| self.ports.get(at));
        let count = self.ports.len();
        let port = port.ok_or_else(|| format!("no port {number}: there are {count}"))?;
        let Some(further) = further else {
            return Ok(&port.controls.port);
        };
        let vsis = &port.controls.further;
        let place = number_of(further).and_then(|at| at.checked_sub(1));
        let vsi = place.and_then(|place| vsis.get(place));
        vsi.ok_or_else(|| match vsis.len() {
            0 => format!("port {number} has no further VSIs: --vsi adds them"),
            count => format!("no VSI {name}: port {number} has {number}.1 to {number}.{count}"),
        })
    }
}
