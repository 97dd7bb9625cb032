//! The `ringside` command.
#![forbid(unsafe_code)]

mod bench;
mod bind;
mod bring_up;
mod capture;
mod cli;
mod config;
mod devices;
mod doctor;
mod failure;
mod farewell;
mod file_size;
#[cfg(test)]
mod fixture;
mod forward;
mod info;
mod interrupt;
mod log;
mod mac;
mod mirror;
mod model;
mod open;
mod open_files;
mod outfile;
mod output;
mod patience;
mod port;
mod release;
mod rule;
mod run;
mod sim;
mod supervised;
mod tap;
mod trouble;
mod users;
mod vsi;

use anyhow::anyhow;
use clap::Parser;
use clap::error::ErrorKind;
use cli::{Cli, Command};
use failure::Failure;
use std::ffi::OsString;
use std::io::{IsTerminal, Write};
use std::process::ExitCode;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(text) => return show(&text),
    };
    // Results are in the output; the log is for finding causes.
    let usual = match &cli.command {
        // Its devices fail on purpose.
        Command::Sim(options) if options.trace.is_none() => "off",
        _ => "error",
    };
    // The variable may be in the form of another log, for the program that is started.
    let is_for_program = matches!(cli.command, Command::Run(_));
    let done = log::start(cli.log_format, usual, is_for_program)
        .and_then(|()| run(&cli))
        .and_then(|()| Ok(output::stdout().flush()?));
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}

/// Shows the help or the version, or why the arguments are wrong. A file or a pipe that does not
/// take the help is an error, as of any other output.
fn show(text: &clap::Error) -> ExitCode {
    if text.kind() == ErrorKind::InvalidUtf8 {
        return no_text(std::env::args_os()).report();
    }
    if text.use_stderr() || std::io::stdout().is_terminal() {
        text.exit();
    }
    let mut out = output::stdout();
    match write!(out, "{}", text.render()).and_then(|()| out.flush()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => Failure::from(error).report(),
    }
}

/// Names the arguments that are no text, which the parser does not. Paths need not be text, except
/// within other values, such as the address of a device.
fn no_text(arguments: impl Iterator<Item = OsString>) -> Failure {
    let wrong = arguments.filter(|one| one.to_str().is_none());
    let wrong: Vec<_> = wrong.map(|one| format!("{one:?}")).collect();
    Failure::usage(anyhow!(
        "{}: not text in UTF-8, which this argument has to be: name a path in UTF-8",
        wrong.join(", ")
    ))
}

/// The name of a command that reads no configuration.
fn unconfigured(command: &Command) -> Option<&'static str> {
    match command {
        Command::Sim(_) => Some("sim"),
        Command::Bind(_) => Some("bind"),
        Command::Unbind(_) => Some("unbind"),
        Command::Config(_) => Some("config"),
        Command::Model(options) if !options.is_configured() => Some("model tell"),
        _ => None,
    }
}

fn run(cli: &Cli) -> Result<(), Failure> {
    interrupt::refuse_long_files()?;
    if let (Some(_), Some(name)) = (&cli.config, unconfigured(&cli.command)) {
        return Err(Failure::usage(anyhow!(
            "--config has no effect on `ringside {name}`: leave it away"
        )));
    }
    let config = open::load_config(cli.config.as_deref())?;
    match &cli.command {
        Command::Bench(options) => bench::run(options, &config),
        Command::Info(options) => info::run(options, &config),
        Command::Devices(options) => devices::run(options, &config),
        Command::BringUp(options) => bring_up::run(options, &config),
        Command::Bind(options) => bind::bind(options),
        Command::Unbind(options) => bind::unbind(options),
        Command::Doctor(options) => doctor::run(options, &config),
        Command::Config(options) => config::run(options),
        Command::Model(options) => model::run(options, &config),
        Command::Run(options) => run::run(options, cli.config.as_deref()),
        Command::Sim(options) => sim::run_command(options),
        Command::Forward(options) => forward::run(options, &config),
        Command::Port(options) => port::run(options, &config),
        Command::Capture(options) => capture::run(options, &config),
        Command::Tap(options) => tap::run(options, &config),
    }
}
