//! Signals that come while a program runs.
//!
//! A signal that was ignored when the command started stays ignored, here and in the program:
//! `nohup` and shells without job control count on that.

use rustix::process::Signal;
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGWINCH};
use signal_hook::iterator::SignalsInfo;
use signal_hook::iterator::exfiltrator::WithRawSiginfo;
use std::os::raw::c_int;

/// The senders whose signals are passed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Senders {
    /// processes: the terminal sends these to the program too
    Processes,
    All,
}

/// Each signal that is caught.
const CAUGHT: [(c_int, Signal, Senders); 7] = [
    (SIGINT, Signal::INT, Senders::Processes),
    (SIGQUIT, Signal::QUIT, Senders::Processes),
    (SIGWINCH, Signal::WINCH, Senders::Processes),
    (SIGTERM, Signal::TERM, Senders::All),
    (SIGHUP, Signal::HUP, Senders::All),
    (SIGUSR1, Signal::USR1, Senders::All),
    (SIGUSR2, Signal::USR2, Senders::All),
];

/// The signals that are passed on to a program.
pub(super) struct PassedOn(SignalsInfo<WithRawSiginfo>);

impl PassedOn {
    /// Begins to catch the signals that are not ignored.
    pub(super) fn catch() -> std::io::Result<Self> {
        let ignored = ignored_in(&std::fs::read_to_string("/proc/self/status").unwrap_or_default());
        let caught = CAUGHT.iter().map(|(number, ..)| *number);
        let caught = caught.filter(|number| ignored >> (number - 1) & 1 == 0);
        SignalsInfo::new(caught).map(Self)
    }

    /// Returns the signals that have come since the last call.
    pub(super) fn take(&mut self) -> impl Iterator<Item = Signal> {
        let came = self.0.pending();
        came.filter_map(|told| passed_as(told.si_signo, told.si_code))
    }
}

/// The signal to send to the program. A code above 0 is that of the kernel. Source: sigaction(2).
fn passed_as(number: c_int, code: c_int) -> Option<Signal> {
    let caught = CAUGHT.into_iter().find(|(caught, ..)| *caught == number);
    let (_, signal, from) = caught?;
    (from == Senders::All || code <= 0).then_some(signal)
}

/// The mask of ignored signals in `/proc/PID/status`; bit 0 is signal 1.
fn ignored_in(status: &str) -> u64 {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_terminals_signals_come_to_the_program_once() {
        let (of_the_kernel, of_a_process, of_a_thread) = (0x80, 0, -6);
        for (number, signal) in [(SIGINT, Signal::INT), (SIGQUIT, Signal::QUIT)] {
            assert_eq!(passed_as(number, of_the_kernel), None);
            assert_eq!(passed_as(number, of_a_process), Some(signal));
            assert_eq!(passed_as(number, of_a_thread), Some(signal));
        }
        assert_eq!(passed_as(SIGHUP, of_the_kernel), Some(Signal::HUP));
    }
}
