//! Tells the peers of a program that was killed that its connections are over.

use ringside_bus::vfio_user::{ClientLimits, VfioUserFunction};
use ringside_bus::{FunctionError, TscClock};
use ringside_config::Config;
use ringside_connect::farewell::{self, FILE_NAME, Farewell};
use ringside_pmd::{BringUpOptions, Device};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Longest wait for the function.
const MAX_WAIT: Duration = Duration::from_secs(2);
/// Longest wait for the link, in milliseconds: that of a model comes up at once, or is down by a
/// fault.
const MAX_LINK_WAIT_MS: u64 = 1000;
/// Between two attempts.
const PAUSE: Duration = Duration::from_millis(10);

/// Sends the messages that the program has left in its folder `files`, by the model's function at
/// `socket`, which it no longer uses. Programs that end by themselves leave none. A failure is only
/// printed: peers with requests under way notice the end without a message.
pub(crate) fn say(files: &Path, socket: &Path, config: Option<&Path>) {
    let left = match farewell::take(&files.join(FILE_NAME)) {
        Ok(left) if left.is_empty() => return,
        Ok(left) => left,
        Err(error) => return complain(&error.into()),
    };
    if let Err(error) = say_by(socket, config, &left) {
        complain(&error);
    }
}

/// True if a program, alive or killed, has messages for its peers there.
pub(crate) fn is_left(files: &Path) -> bool {
    files.join(FILE_NAME).exists()
}

fn complain(error: &anyhow::Error) {
    eprintln!("ringside: the peers of the killed program were not notified: {error:#}");
}

fn say_by(socket: &Path, config: Option<&Path>, left: &[Farewell]) -> anyhow::Result<()> {
    let mut config = config.map_or_else(|| Ok(Config::default()), Config::load)?;
    config.link.wait_ms = config.link.wait_ms.min(MAX_LINK_WAIT_MS);
    let function = Arc::new(connect(socket)?);
    let device = Device::bring_up(function, &config, BringUpOptions::default())?;
    farewell::say(&device, left)?;
    Ok(())
}

/// Connects to the function; waits while the model has not noticed that its user is gone.
fn connect(socket: &Path) -> Result<VfioUserFunction, FunctionError> {
    let limit = Instant::now() + MAX_WAIT;
    loop {
        let clock = Arc::new(TscClock::new());
        match VfioUserFunction::connect(socket, clock, ClientLimits::default()) {
            Err(_) if Instant::now() < limit => std::thread::sleep(PAUSE),
            result => return result,
        }
    }
}
