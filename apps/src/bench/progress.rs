//! Progress on standard error: a line that is rewritten on a terminal, plain lines else.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

/// The interval at which a terminal's line is rewritten.
const REWRITE: Duration = Duration::from_millis(200);

/// Progress of one test.
pub(crate) struct Progress {
    what: String,
    terminal: bool,
    started: Instant,
    shown: Option<Instant>,
}

impl Progress {
    pub(crate) fn start(what: String) -> Self {
        Self {
            what,
            terminal: std::io::stderr().is_terminal(),
            started: Instant::now(),
            shown: None,
        }
    }

    /// Tells how far it is, `done` from 0 to 1; seldom enough to call between batches.
    pub(crate) fn at(&mut self, done: f64) {
        let now = Instant::now();
        let due = self
            .shown
            .map_or(self.started.elapsed() > REWRITE, |shown| {
                now - shown > REWRITE
            });
        if !due {
            return;
        }
        let mut out = std::io::stderr().lock();
        let percent = (done.clamp(0.0, 1.0) * 100.0) as u32;
        // Progress that cannot be shown is no reason to stop a measurement.
        if self.terminal {
            let _ = write!(out, "\r{} {percent:3} %", self.what);
        } else if self.shown.is_none() && self.started.elapsed() > Duration::from_secs(1) {
            let _ = writeln!(out, "{} ...", self.what);
        } else {
            return;
        }
        let _ = out.flush();
        self.shown = Some(now);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.terminal && self.shown.is_some() {
            let _ = write!(
                std::io::stderr(),
                "\r{:width$}\r",
                "",
                width = self.what.len() + 6
            );
        }
    }
}
