//! A bench between two processes: each drives one function, and they agree on the test over TCP.
//! `docs/exchange.md` specifies their messages.

pub(super) mod agreement;
mod attempts;
pub(super) mod bandwidth;
mod client;
pub(super) mod end;
pub(super) mod latency;
mod managed;
pub(crate) mod neighbours;
mod over_nic;
mod server;
pub(super) mod session;
mod verify;

use super::plan::check;
use super::run::{Run, sized};
use crate::cli::Bench;
use crate::failure::Failure;
use anyhow::anyhow;
use ringside_bus::DeviceAddress;
use ringside_config::Config;

/// Checks the flags of a bench between two processes; the configuration for it.
pub(super) fn checked(
    options: &Bench,
    address: &DeviceAddress,
    config: &Config,
) -> Result<Config, Failure> {
    check(options).map_err(Failure::usage)?;
    if let DeviceAddress::Model(_) = address {
        return Err(Failure::usage(anyhow!(
            "{address} is inside this process, where no other process reaches it: serve the model with \
             ringside model serve, and name its socket with --device vfio-user:PATH"
        )));
    }
    Ok(sized(config, options))
}

pub(super) fn run(run: &mut Run<'_>, address: &DeviceAddress) -> Result<(), Failure> {
    if run.options.listen.is_some() {
        return server::run(run, address);
    }
    client::run(run, address)
}
