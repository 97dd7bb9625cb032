//! `ringside bench`: measures and verifies the traffic between two functions.

mod accesses;
mod bandwidth;
mod bed;
mod capture;
pub(crate) mod chaos;
mod distributions;
mod in_process;
mod latencies;
mod latency;
mod meeting;
mod pair;
mod perftest;
mod placement;
mod plan;
mod progress;
pub(crate) mod report;
mod run;
mod slices;
mod verify;
mod watch;

use crate::cli::Bench;
use crate::failure::Failure;
use ringside_config::Config;

pub(crate) fn run(options: &Bench, config: &Config) -> Result<(), Failure> {
    run::can_be_written(options)?;
    let options = &Bench {
        configured_mtu: config.rdma.path_mtu.bytes(),
        largest_mtu: config.largest_path_mtu().bytes(),
        ..options.clone()
    };
    let address = options.device.as_ref().unwrap_or(&config.device.address);
    if options.chaos {
        return chaos::run(options, address, config);
    }
    if !options.meets() {
        return in_process::run(options, address, config);
    }
    let config = meeting::checked(options, address, config)?;
    let mut run = run::Run::new(options, &config);
    if options.perftest {
        return perftest::run(&mut run, address);
    }
    meeting::run(&mut run, address)
}
