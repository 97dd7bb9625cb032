//! `ringside model`: the software model for other processes.

mod options;
mod serve;
mod tell;

pub(crate) use options::{Model, OutsideWire};

use crate::failure::Failure;
use options::ModelCommand;
use ringside_config::Config;

impl Model {
    /// True if the configuration has a meaning for the command.
    pub(crate) const fn is_configured(&self) -> bool {
        matches!(self.command, ModelCommand::Serve(_))
    }
}

pub(crate) fn run(options: &Model, config: &Config) -> Result<(), Failure> {
    match &options.command {
        ModelCommand::Serve(options) => serve::run(options, config),
        ModelCommand::Tell(options) => tell::run(options),
    }
}

/// Sends a command to a server through its control socket.
pub(crate) fn tell(socket: &std::path::Path, line: &str) -> Result<(), Failure> {
    let (_, outcome) = tell::exchange(socket, line.to_owned())?;
    outcome
}
