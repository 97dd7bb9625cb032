//! SIGINT (Ctrl-C), SIGTERM and SIGHUP (the terminal is gone) during a measurement.
//!
//! The first signal sets a flag: the measurement ends early, and what was measured is shown. Half a
//! second later the signals end the process at once, as if nothing handled them. The half second is
//! there because `timeout` and shells send a signal to the process and to its group, so that it
//! comes twice.
//!
//! System calls go on after a signal: see [`crate::patience`] for those that wait for another
//! process.

use crate::failure::Failure;
use crate::patience::SEEN;
pub(crate) use crate::patience::seen;
use anyhow::Context;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::{flag, low_level};
use std::io::Read;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The longest run that a flag can ask for: a year.
pub(crate) const MAX_SECONDS: u64 = 365 * 86_400;

/// Signals within this time count as one.
const ONE_SIGNAL: Duration = Duration::from_millis(500);

/// The time for which a wait goes on after a signal.
const AFTER_SIGNAL: Duration = Duration::from_secs(1);

/// A wait that a signal ends, once what was begun before has had the time to end.
#[derive(Default)]
pub(crate) struct Waiting {
    /// the time at which a signal was seen
    asked: Option<Instant>,
}

impl Waiting {
    /// Errors: a signal was seen 1 s ago.
    pub(crate) fn check(&mut self) -> Result<(), Failure> {
        if !seen() || self.asked.get_or_insert_with(Instant::now).elapsed() <= AFTER_SIGNAL {
            return Ok(());
        }
        Err(Failure::interrupted())
    }
}

/// Begins to catch the signals; a second call changes nothing.
pub(crate) fn catch() -> Result<(), Failure> {
    let seen = Arc::new(AtomicBool::new(false));
    if SEEN.set(Arc::clone(&seen)).is_err() {
        return Ok(());
    }
    install(seen).context("installing a handler of signals")?;
    Ok(())
}

/// Begins to catch the signals for a server, whose end takes its time: a second signal changes
/// nothing. Returns the flag.
pub(crate) fn catch_for_server() -> Result<Arc<AtomicBool>, Failure> {
    let seen = Arc::clone(SEEN.get_or_init(Arc::default));
    for signal in caught() {
        flag::register(signal, Arc::clone(&seen)).context("installing a handler of signals")?;
    }
    Ok(seen)
}

/// SIGHUP stays ignored if it was at the start.
fn caught() -> impl Iterator<Item = i32> {
    let hang_up = (!is_ignored(SIGHUP)).then_some(SIGHUP);
    [SIGINT, SIGTERM].into_iter().chain(hang_up)
}

fn install(seen: Arc<AtomicBool>) -> anyhow::Result<()> {
    let ends = Arc::new(AtomicBool::new(false));
    let (mut told, tell) = UnixStream::pair()?;
    for signal in caught() {
        flag::register_conditional_default(signal, Arc::clone(&ends))?;
        flag::register(signal, Arc::clone(&seen))?;
        low_level::pipe::register(signal, tell.try_clone()?)?;
    }
    let arm = move || {
        if told.read_exact(&mut [0]).is_ok() {
            std::thread::sleep(ONE_SIGNAL);
            ends.store(true, Ordering::Relaxed);
        }
    };
    let thread = std::thread::Builder::new().name("signals".into());
    thread
        .spawn(arm)
        .context("starting the thread for signals")?;
    Ok(())
}

/// Has a write beyond `ulimit -f` fail, instead of ending the process without a word. The handler
/// does nothing; programs that this process starts have the signal's usual effect again, as no
/// handler outlives `exec`. A signal that is ignored at the start stays ignored, here and there.
pub(crate) fn refuse_long_files() -> Result<(), Failure> {
    if !is_ignored(SIGXFSZ) {
        flag::register(SIGXFSZ, Arc::default()).context("installing a handler of signals")?;
    }
    Ok(())
}

/// True if the process ignores a signal since its start, as `nohup` has it ignore SIGHUP.
fn is_ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_have_the_usual_effect_of_a_file_that_is_too_long() {
        if is_ignored(SIGXFSZ) {
            return; // and so in programs
        }
        refuse_long_files().unwrap();
        let status = std::process::Command::new("cat")
            .arg("/proc/self/status")
            .output();
        let status = String::from_utf8(status.unwrap().stdout).unwrap();
        for mask in ["SigIgn:", "SigCgt:", "SigBlk:"] {
            let found = status.lines().find_map(|line| line.strip_prefix(mask));
            let found = u64::from_str_radix(found.unwrap().trim(), 16).unwrap();
            assert_eq!(found >> (SIGXFSZ - 1) & 1, 0, "{mask} {found:x}");
        }
    }
}
