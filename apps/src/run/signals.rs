//! Signals that come while a program runs.
//!
//! A signal that was ignored when the command started stays ignored, here and in the program:
//! `nohup` and shells without job control count on that.

use rustix::process::Signal;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::os::raw::c_int;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Each signal that is caught, and the form in which it is passed on. Ctrl-C goes to the program
/// too, which decides.
const CAUGHT: [(c_int, Option<Signal>); 3] = [
    (SIGINT, None),
    (SIGTERM, Some(Signal::TERM)),
    (SIGHUP, Some(Signal::HUP)),
];

/// The signals that are passed on to a program, each with a flag that is set once it has come.
pub(super) struct PassedOn(Vec<(Signal, Arc<AtomicBool>)>);

impl PassedOn {
    /// Begins to catch the signals that are not ignored.
    pub(super) fn catch() -> std::io::Result<Self> {
        let ignored = ignored_in(&std::fs::read_to_string("/proc/self/status").unwrap_or_default());
        let mut passed_on = Vec::new();
        for (number, passed_as) in CAUGHT {
            if ignored >> (number - 1) & 1 == 1 {
                continue;
            }
            let has_come = Arc::new(AtomicBool::new(false));
            signal_hook::flag::register(number, Arc::clone(&has_come))?;
            passed_on.extend(passed_as.map(|signal| (signal, has_come)));
        }
        Ok(Self(passed_on))
    }

    /// Returns the signals that have come since the last call.
    pub(super) fn take(&self) -> impl Iterator<Item = Signal> {
        let came = self.0.iter();
        came.filter_map(|(signal, has_come)| {
            has_come.swap(false, Ordering::Relaxed).then_some(*signal)
        })
    }
}

/// The mask of ignored signals in `/proc/PID/status`; bit 0 is signal 1.
fn ignored_in(status: &str) -> u64 {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .unwrap_or(0)
}
