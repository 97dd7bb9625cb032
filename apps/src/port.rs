//! `ringside port`: what `ethtool` shows of an interface: link, statistics, spreading.

use crate::failure::Failure;
use crate::open::open;
use crate::output::stdout;
use anyhow::anyhow;
use clap::Args;
use ringside_bus::DeviceAddress;
use ringside_config::Config;
use ringside_pmd::admin::commands::LinkState;
use ringside_pmd::lan::port::{DEFAULT_KEY, MTU_MAX, QUEUES_MAX};
use ringside_pmd::lan::{PortSettings, PortStatistic};
use ringside_pmd::{BringUpOptions, Device};
use serde::Serialize;
use std::io::{self, Write};

const HELP: &str = "\
The port is opened as a program would open it, looked at, and closed again: a device that another
program holds cannot be shown.

Examples:
  ringside port --device 0000:3b:00.0
  ringside port --device model:0 --statistics --json
  ringside port --queues 4

Exit codes: 0 done, 1 an operation failed, 2 wrong arguments, 3 the device could not be opened.";

#[derive(Args, Debug)]
#[command(after_help = HELP)]
pub(crate) struct Options {
    /// Device address [default: the configuration's, which is model:0]
    #[arg(long, value_name = "ADDRESS")]
    device: Option<DeviceAddress>,
    /// Every counter of VSI and port, as `ethtool -S` names them
    #[arg(short = 'S', long)]
    statistics: bool,
    /// Receive queues to open the port with, for the hash table that results
    #[arg(long, value_name = "COUNT", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=64))]
    queues: u8,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Shown {
    device: String,
    address: String,
    vsi: u16,
    link: LinkState,
    mtu_max: u16,
    receive_queues: usize,
    receive_queues_max: usize,
    transmit_queues_max: usize,
    hash_key: String,
    hash_table_entries: usize,
    offloads: &'static [&'static str],
    statistics: Vec<PortStatistic>,
}

/// The features of the driver, named as by `ethtool -k`.
const OFFLOADS: &[&str] = &[
    "rx-checksumming",
    "tx-checksum-ipv4",
    "tx-checksum-ipv6",
    "tx-checksum-sctp",
    "tx-tcp-segmentation",
    "tx-tcp6-segmentation",
    "tx-udp-segmentation",
    "scatter-gather",
    "rx-vlan-offload",
    "tx-vlan-offload",
    "rx-vlan-filter",
    "receive-hashing",
];

fn hex(bytes: &[u8]) -> String {
    let parts: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    parts.join(":")
}

pub(crate) fn run(options: &Options, config: &Config) -> Result<(), Failure> {
    let address = options.device.as_ref().unwrap_or(&config.device.address);
    let opened = open(address, config)?;
    let device = Device::bring_up(opened.function, config, BringUpOptions::default())
        .map_err(|error| Failure::claim(anyhow!("{error}")))?;
    let settings = PortSettings {
        receive_queues: options.queues.into(),
        ..PortSettings::default()
    };
    let open = device
        .open_port(&settings)
        .map_err(|error| Failure::claim(anyhow!("{address}: {error}")))?;
    let shown = Shown {
        device: address.to_string(),
        address: hex(&open.port.mac()),
        vsi: open.port.vsi(),
        link: open.port.link()?,
        mtu_max: MTU_MAX,
        receive_queues: open.receive.len(),
        receive_queues_max: QUEUES_MAX,
        transmit_queues_max: QUEUES_MAX,
        hash_key: hex(&DEFAULT_KEY),
        hash_table_entries: open.port.hash_table_entries(),
        offloads: OFFLOADS,
        statistics: match options.statistics {
            true => open.port.statistics()?,
            false => Vec::new(),
        },
    };
    let told = match options.json {
        true => serde_json::to_string_pretty(&shown).map_err(io::Error::from),
        false => Ok(text(&shown)),
    };
    let told = told.and_then(|text| writeln!(stdout(), "{}", text.trim_end()));
    drop(open);
    let down = device.shutdown();
    told?;
    match down.failures.first() {
        Some(failure) => Err(Failure::operation(anyhow!("{failure}"))),
        None => Ok(()),
    }
}

fn text(shown: &Shown) -> String {
    let mut lines = vec![format!(
        "{}: address {}, VSI {}",
        shown.device, shown.address, shown.vsi
    )];
    let link = &shown.link;
    lines.push(match (link.up, link.megabits_per_second) {
        (true, Some(speed)) => format!("  link: up, {speed} Mb/s"),
        (true, None) => "  link: up".to_owned(),
        (false, _) if link.media => "  link: down".to_owned(),
        (false, _) => "  link: down, no module or cable".to_owned(),
    });
    lines.push(format!(
        "  largest frame of the MAC: {} bytes; MTU up to {}",
        link.frame_bytes_max, shown.mtu_max
    ));
    lines.push(format!(
        "  queues: {} of up to {} receive, up to {} transmit",
        shown.receive_queues, shown.receive_queues_max, shown.transmit_queues_max
    ));
    lines.push(format!(
        "  hash: Toeplitz over addresses and ports, {} entries, queues in turn",
        shown.hash_table_entries
    ));
    lines.push(format!("  hash key: {}", shown.hash_key));
    lines.push(format!("  offloads: {}", shown.offloads.join(", ")));
    for one in &shown.statistics {
        lines.push(format!("  {}: {}", one.name, one.value));
    }
    lines.join("\n")
}
