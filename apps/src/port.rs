//! `ringside port`: the link, statistics and hash settings of a port, as `ethtool` shows them.

use crate::failure::Failure;
use crate::open::open;
use crate::output::stdout;
use crate::rule::Rule;
use crate::vsi::VsiText;
use anyhow::anyhow;
use clap::Args;
use ringside_bus::DeviceAddress;
use ringside_config::Config;
use ringside_pmd::admin::commands::LinkState;
use ringside_pmd::lan::port::{
    ErrorCorrection, FlowKind, MAX_MTU, MAX_QUEUES, Malicious, Module, Pause, Spreading,
};
use ringside_pmd::lan::{OpenVsi, Port, PortSettings, PortStatistic, Vsi};
use ringside_pmd::{BringUpOptions, Device};
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::{self, Write};

const HELP: &str = "\
The port is opened as a program would open it, looked at, and closed again: a device that another \
program holds cannot be shown.

Examples:
  ringside port --device 0000:3b:00.0
  ringside port --device model:0 --statistics --json
  ringside port --queues 4 --hash-table
  ringside port --queues 4 --rule 'udp4 dst-port 4791 action 1' --rule 'ether proto 0x0806 action 0-1'
  ringside port --vsi 02:aa:00:00:00:01,4 --vsi 02:aa:00:00:00:02

A rule is written in the words of `ethtool -N`:
KIND [FIELD VALUE]... action WHAT [mark NUMBER] [count]
  KIND    tcp4 udp4 sctp4 ip4 frag4, tcp6 udp6 sctp6 ip6 frag6, ether (neither IPv4 nor IPv6), any
  FIELD   src-ip dst-ip ADDRESS, src-port dst-port NUMBER, l4proto NUMBER (ip4, ip6),
          proto NUMBER (ether: its type, such as 0x0806), vlan ID
  WHAT    QUEUE, FIRST-LAST (2, 4, 8 ... queues by the hash), drop, or spread (as without a rule)
All rules of a kind name the same fields: the device has one set of fields for each kind. Rules go \
with the port, when the command ends: this one shows whether the device takes them. A program that \
runs keeps them: ringside forward --rule, or its command \"rule add\".

A further VSI has queues, filters, rules, spreading and statistics of its own (Port::add_vsi). Like a rule \
it goes when the command ends: this one shows whether the device takes it, and which queues it gets. \
A program that runs keeps it: ringside forward --vsi.

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
    /// The table of the hash that chooses receive queues, eight entries a row, as `ethtool -x`
    /// shows it; with --json it is always there
    #[arg(short = 'x', long)]
    hash_table: bool,
    /// Receive queues to open the port with, for the hash table that results
    #[arg(long, value_name = "COUNT", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=64))]
    queues: u8,
    /// Rule to add before the port is shown; give it once for each
    #[arg(long, value_name = "RULE")]
    rule: Vec<Rule>,
    /// Further VSI with this MAC address, and its number of receive and of transmit queues; give
    /// it once for each
    #[arg(long, value_name = "MAC[,QUEUES]")]
    vsi: Vec<VsiText>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// A rule that the device took.
#[derive(Serialize)]
struct ShownRule {
    number: u32,
    rule: String,
    /// packets that it counted
    packets: Option<u64>,
}

/// A VSI of the port.
#[derive(Serialize)]
struct ShownVsi {
    number: u16,
    address: String,
    /// counted from the function's first
    first_receive_queue: u16,
    receive_queues: u16,
    first_transmit_queue: u16,
    transmit_queues: u16,
    hash_table_entries: usize,
    spreading: ShownSpreading,
    /// of the port's own VSI they are those of the port
    statistics: Vec<PortStatistic>,
}

/// The choice of a packet's receive queue.
#[derive(Clone, Serialize)]
struct ShownSpreading {
    key: String,
    /// of each entry the queue, counted from the VSI's first
    table: Vec<u8>,
    /// by kind of packets, as rules name it; without a kind its packets go to the first queue
    fields: BTreeMap<String, Vec<String>>,
    /// both directions of a flow have the same hash
    is_symmetric: bool,
}

impl ShownSpreading {
    fn of(vsi: &Vsi) -> Self {
        let (key, table) = match vsi.spreading() {
            Some(Spreading { key, table }) => (hex(&key), table),
            None => (String::new(), Vec::new()),
        };
        let kinds = FlowKind::ALL.into_iter().filter_map(|kind| {
            let fields = vsi.hash_fields(kind)?;
            let names = fields.iter().map(ToString::to_string).collect();
            Some((kind.to_string(), names))
        });
        Self {
            key,
            table,
            fields: kinds.collect(),
            is_symmetric: vsi.has_symmetric_hash(),
        }
    }

    /// Lines for people, in the form of `ethtool -x`.
    fn lines(&self, with_table: bool) -> Vec<String> {
        let indent = "    ";
        let mut lines = Vec::new();
        let rows = if with_table { &self.table[..] } else { &[] };
        for (row, queues) in rows.chunks(TABLE_ROW).enumerate() {
            let queues: String = queues.iter().map(|queue| format!(" {queue:5}")).collect();
            lines.push(format!("{indent}{:5}:{queues}", row * TABLE_ROW));
        }
        lines.push(format!("{indent}hash key: {}", self.key));
        lines.push(format!("{indent}hash function: Toeplitz"));
        let symmetric = match self.is_symmetric {
            true => "both directions of a flow have the same hash",
            false => "each direction of a flow has its own hash",
        };
        lines.push(format!("{indent}symmetric: {symmetric}"));
        if self.fields.is_empty() {
            lines.push(format!("{indent}hash fields: none, one queue receives all"));
        }
        for (kind, fields) in &self.fields {
            let fields = match fields.as_slice() {
                [] => "none".to_owned(),
                some => some.join(", "),
            };
            lines.push(format!("{indent}hash fields of {kind}: {fields}"));
        }
        lines
    }
}

impl ShownVsi {
    fn of(vsi: &Vsi, statistics: Vec<PortStatistic>) -> Self {
        let (receive, transmit) = (vsi.receive_queues(), vsi.transmit_queues());
        Self {
            number: vsi.number(),
            address: hex(&vsi.mac()),
            first_receive_queue: receive.start,
            receive_queues: receive.len() as u16,
            first_transmit_queue: transmit.start,
            transmit_queues: transmit.len() as u16,
            hash_table_entries: vsi.hash_table_entries(),
            spreading: ShownSpreading::of(vsi),
            statistics,
        }
    }
}

#[derive(Serialize)]
struct Shown {
    device: String,
    address: String,
    vsi: u16,
    link: LinkState,
    pause: Pause,
    error_correction: ErrorCorrection,
    module: Option<Module>,
    mtu_max: u16,
    receive_queues: usize,
    receive_queues_max: usize,
    transmit_queues_max: usize,
    hash_key: String,
    hash_table_entries: usize,
    offloads: &'static [&'static str],
    rules: Vec<ShownRule>,
    /// the port's own first
    vsis: Vec<ShownVsi>,
    statistics: Vec<PortStatistic>,
    /// queues of this function that the device has stopped since it was asked last
    malicious: Vec<Malicious>,
}

/// Entries of a row of the hash table, as `ethtool -x` prints it.
const TABLE_ROW: usize = 8;

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
    "ntuple-filters",
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
    for rule in &options.rule {
        let added = open.port.add_rule(&rule.0);
        added.map_err(|error| Failure::operation(anyhow!("rule '{rule}': {error}")))?;
    }
    let mut further = Vec::new();
    for vsi in &options.vsi {
        let added = open.port.add_vsi(&vsi.settings());
        further.push(added.map_err(|error| Failure::operation(anyhow!("VSI {vsi}: {error}")))?);
    }
    let spreading = ShownSpreading::of(&open.port);
    let shown = Shown {
        device: address.to_string(),
        address: hex(&open.port.mac()),
        vsi: open.port.vsi(),
        link: open.port.link()?,
        pause: open.port.pause()?,
        error_correction: open.port.error_correction()?,
        module: open.port.module()?,
        mtu_max: MAX_MTU,
        receive_queues: open.receive.len(),
        receive_queues_max: MAX_QUEUES,
        transmit_queues_max: MAX_QUEUES,
        hash_key: spreading.key,
        hash_table_entries: open.port.hash_table_entries(),
        offloads: OFFLOADS,
        rules: shown_rules(&open.port)?,
        vsis: shown_vsis(&open.port, &further, options.statistics)?,
        statistics: match options.statistics {
            true => open.port.statistics()?,
            false => Vec::new(),
        },
        malicious: open.port.malicious_events()?,
    };
    let told = match options.json {
        true => serde_json::to_string_pretty(&shown).map_err(io::Error::from),
        false => Ok(text(&shown, options.hash_table)),
    };
    let told = told.and_then(|text| writeln!(stdout(), "{}", text.trim_end()));
    drop((further, open));
    let down = device.shutdown();
    told?;
    match down.failures.first() {
        Some(failure) => Err(Failure::operation(anyhow!("{failure}"))),
        None => Ok(()),
    }
}

fn shown_rules(port: &Port) -> Result<Vec<ShownRule>, Failure> {
    let rules = port.rules().into_iter().map(|(number, rule)| {
        Ok(ShownRule {
            number: number.0,
            rule: Rule(rule).to_string(),
            packets: port.rule_hits(number)?,
        })
    });
    rules.collect()
}

fn shown_vsis(port: &Port, further: &[OpenVsi], counted: bool) -> Result<Vec<ShownVsi>, Failure> {
    let mut vsis = vec![ShownVsi::of(port, Vec::new())];
    for open in further {
        let statistics = match counted {
            true => open.vsi.statistics()?,
            false => Vec::new(),
        };
        vsis.push(ShownVsi::of(&open.vsi, statistics));
    }
    Ok(vsis)
}

/// `2`, or `2 to 5`.
fn queues_text(first: u16, count: u16) -> String {
    match count {
        1 => format!("queue {first}"),
        _ => format!("queues {first} to {}", first + count - 1),
    }
}

fn vsi_text(vsi: &ShownVsi) -> String {
    format!(
        "  VSI {}: address {}, receive {}, transmit {}, {} hash entries",
        vsi.number,
        vsi.address,
        queues_text(vsi.first_receive_queue, vsi.receive_queues),
        queues_text(vsi.first_transmit_queue, vsi.transmit_queues),
        vsi.hash_table_entries
    )
}

fn media_text(shown: &Shown) -> Vec<String> {
    let word = |on: bool| if on { "on" } else { "off" };
    let correction = match shown.error_correction {
        ErrorCorrection::Automatic => "automatic",
        ErrorCorrection::Off => "off",
        ErrorCorrection::ReedSolomon => "Reed-Solomon",
        ErrorCorrection::BaseR => "BASE-R",
    };
    let pause = shown.pause;
    let mut lines = vec![
        format!(
            "  pause frames: transmit {}, receive {}",
            word(pause.transmit),
            word(pause.receive)
        ),
        format!("  error correction: {correction}"),
    ];
    let Some(module) = &shown.module else {
        lines.push("  module: none, or it does not answer".to_owned());
        return lines;
    };
    let mut text = format!(
        "  module: {} {}, serial number {}",
        module.vendor, module.part_number, module.serial_number
    );
    if let Some(temperature) = module.temperature_celsius {
        text += &format!(", {temperature:.1} C");
    }
    if let Some(supply) = module.supply_volts {
        text += &format!(", {supply:.2} V");
    }
    lines.push(text);
    lines
}

fn text(shown: &Shown, with_table: bool) -> String {
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
    lines.extend(media_text(shown));
    lines.push(format!(
        "  largest frame of the MAC: {} bytes; MTU up to {}",
        link.frame_bytes_max, shown.mtu_max
    ));
    lines.push(format!(
        "  queues: {} of up to {} receive, up to {} transmit",
        shown.receive_queues, shown.receive_queues_max, shown.transmit_queues_max
    ));
    lines.push(format!("  offloads: {}", shown.offloads.join(", ")));
    for rule in &shown.rules {
        lines.push(match rule.packets {
            Some(packets) => format!("  rule {}: {}, {packets} packets", rule.number, rule.rule),
            None => format!("  rule {}: {}", rule.number, rule.rule),
        });
    }
    for vsi in &shown.vsis {
        lines.push(vsi_text(vsi));
        lines.extend(vsi.spreading.lines(with_table));
        let counted = vsi.statistics.iter();
        lines.extend(counted.map(|one| format!("    {}: {}", one.name, one.value)));
    }
    for one in &shown.statistics {
        lines.push(format!("  {}: {}", one.name, one.value));
    }
    lines.extend(shown.malicious.iter().map(|event| format!("  {event}")));
    lines.join("\n")
}
