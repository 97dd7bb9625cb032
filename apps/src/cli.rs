//! The command line, in one place.

use crate::mac::Mac;
use crate::trouble::Kind;
use clap::{Args, Parser, Subcommand, ValueEnum};
use ringside_bus::DeviceAddress;
use ringside_config::LogFormat;
use std::path::{Path, PathBuf};

const EXIT_CODES: &str = "\
Exit codes:
  0  done
  1  failed; the message says what and how to fix it
  2  the command line or the configuration is wrong
  3  the device could not be claimed or brought up
  4  it ran, but data arrived wrong or the interface of the device was broken: a bug, please report it
130  a signal ended it early; what was measured until then is shown
141  the reader of standard output closed it";

/// Drives an Intel E810's RDMA engine from user space, without a kernel driver.
///
/// Without a card, everything runs on the built-in software model of the E810, which is the default
/// device (model:0). Start with: ringside bench
#[derive(Parser, Debug)]
#[command(name = "ringside", version, after_help = EXIT_CODES, propagate_version = true)]
pub(crate) struct Cli {
    /// Configuration file (TOML); a commented sample is config/ringside.toml
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Form of the log on standard error: plain, or json with an object a line; without it, as the
    /// environment variable RINGSIDE_LOG_FORMAT says, or plain
    #[arg(long, global = true, value_name = "FORM")]
    pub(crate) log_format: Option<LogFormat>,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    /// Measure latency and bandwidth of RDMA write, read and send between two functions
    Bench(Box<Bench>),
    /// Show a device's identity, abilities, firmware, limits and memory plan
    Info(Info),
    /// List the devices that ringside can drive here
    Devices(Devices),
    /// Bring a device up, stage by stage, and take it down again
    BringUp(BringUp),
    /// Bind a card to vfio-pci instead of the kernel's driver, so that ringside can claim it
    Bind(Bind),
    /// Bind a card to its previous driver
    Unbind(Unbind),
    /// Find obstacles to line rate on this machine, each with the command that removes it
    Doctor(Doctor),
    /// Check a configuration file; print samples and the schema
    Config(crate::config::Options),
    /// Serve the software model to other processes
    Model(crate::model::Model),
    /// Run an RDMA program on ringside instead of the kernel's driver
    Run(crate::run::Run),
    /// Simulate a random workload with faults from a seed, and check every byte and completion
    Sim(crate::sim::Sim),
    /// Forward packets between ports, in the modes of DPDK's testpmd
    Forward(crate::forward::Options),
    /// Show a port as ethtool does: link, statistics, offloads, spreading
    Port(crate::port::Options),
    /// Write packets of a port, or of a program that runs, to a pcapng file
    Capture(crate::capture::Options),
    /// Give the kernel a network interface over a port's queues
    Tap(crate::tap::Options),
}

/// The operation of a test.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    /// RDMA write
    Write,
    /// RDMA read
    Read,
    /// Send and receive
    Send,
}

impl Operation {
    pub(crate) const ALL: [Self; 3] = [Self::Write, Self::Read, Self::Send];

    pub(crate) const fn title(self) -> &'static str {
        match self {
            Self::Write => "RDMA_Write",
            Self::Read => "RDMA_Read",
            Self::Send => "Send",
        }
    }
}

/// The measure of a test.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Measure {
    /// Latency: one message in flight (write and send: half a round trip; read: the whole)
    Lat,
    /// Bandwidth and message rate: many messages in flight
    Bw,
}

impl Measure {
    pub(crate) const ALL: [Self; 2] = [Self::Lat, Self::Bw];

    pub(crate) const fn title(self) -> &'static str {
        match self {
            Self::Lat => "Latency",
            Self::Bw => "BW",
        }
    }
}

const BENCH_HELP: &str = "\
The flags are those of perftest (ib_write_bw and its kin). Without arguments all three operations \
are measured, latency at 8 bytes, then bandwidth at 8 bytes, 64 KiB and 1 MiB, in under 30 seconds. \
Each test also transfers a pattern, untimed, and compares every byte.

A latency test begins with messages that are not timed: 1000, or as many as it has (-n), or as many as fit \
in its time (-D); with --perftest the first write or send. Counters of the device, captures and the listening \
side count them, too.

t_min, t_max and t_avg, in --hgrm Max and Mean, are exact. t_typical and the percentiles, in JSON and --hgrm too, are the upper ends \
of buckets up to 0.8 % wide, of which t_stdev is computed. A percentile of too few messages is t_max, as \
perftest has it: 99.99 % of fewer than 10000.

\"BW peak\" is the best rate in a part of the test of 5 ms or more, and the average if there was none.

Examples:
  ringside bench                              everything, briefly
  ringside bench write lat -s 64 -n 100000    one table, one size
  ringside bench read bw -a --report_gbits    all sizes from 2 B to 8 MiB
  ringside bench send lat --hgrm lat.hgrm     the whole distribution, for HdrHistogram's plotter
  ringside bench write bw -n 1000 --pcap w.pcap   capture the wire; open it with Wireshark
  ringside bench --chaos                      faults under traffic, and the time to recover from each

A request that fails (wrong key, receive too short, peer gone) completes only once the device's event \
about it has been taken. The bench takes events when nothing has completed for a thousand polls or more: \
such an error shows after a short lull, with the event that reported it.

Two processes, each with a function of its own, here two functions of a model in a third process:
  ringside model serve --socket /run/a.sock --socket /run/b.sock --doorbell-page
  ringside bench --listen 127.0.0.1 --device vfio-user:/run/a.sock
  ringside bench --connect 127.0.0.1 --device vfio-user:/run/b.sock write lat

Hosts whose only link is the card: the exchange too goes over the port, with the IP addresses of the \
configuration (network.addresses) and no interface of the kernel:
  ringside bench --listen 0.0.0.0 --over nic --device 0000:18:00.0
  ringside bench --connect 192.0.2.1 --over nic --device 0000:18:00.0 write lat

The side that connects decides what is measured and shows it; flags of the side that listens are what \
it insists on. Both compare every byte of the pattern. The peer is not authenticated: listen on an \
address that only trusted machines reach.";

/// Default port of two processes: perftest's.
pub(crate) const MEETING_PORT: u16 = 18515;

#[derive(Args, Debug, Clone)]
#[command(after_help = BENCH_HELP)]
pub(crate) struct Bench {
    /// Operation to measure [default: all three]
    #[arg(value_enum)]
    pub(crate) operation: Option<Operation>,
    /// Latency or bandwidth [default: both]
    #[arg(value_enum)]
    pub(crate) measure: Option<Measure>,
    /// Message size in bytes, 0 to 8388608
    #[arg(short = 's', long, value_name = "BYTES", conflicts_with = "all")]
    pub(crate) size: Option<u64>,
    /// All sizes from 2 bytes to 8 MiB, by powers of two
    #[arg(short = 'a', long)]
    pub(crate) all: bool,
    /// Messages a test, at least 5 [default: as many as fit its time]
    #[arg(
        short = 'n',
        long = "iters",
        value_name = "COUNT",
        conflicts_with = "duration"
    )]
    pub(crate) iterations: Option<u64>,
    /// Seconds a test, instead of a number of messages
    #[arg(short = 'D', long, value_name = "SECONDS")]
    pub(crate) duration: Option<u64>,
    /// Queue pairs, 1 to 64 (latency tests use one) [default: 1]
    #[arg(short = 'q', long = "qp", value_name = "COUNT")]
    pub(crate) queue_pairs: Option<u32>,
    /// Messages in flight on each queue pair [default: 128]
    #[arg(short = 't', long = "tx-depth", value_name = "COUNT")]
    pub(crate) send_depth: Option<u32>,
    /// Receives posted on each queue pair [default: 512]
    #[arg(short = 'r', long = "rx-depth", value_name = "COUNT")]
    pub(crate) receive_depth: Option<u32>,
    /// Send up to this many bytes inside the work request, 0 to 101 [default: 101 for latency, 0
    /// for bandwidth]
    #[arg(short = 'I', long = "inline_size", value_name = "BYTES")]
    pub(crate) inline: Option<u32>,
    /// Path MTU in bytes: 256, 512, 1024, 2048 or 4096; of two processes that of the one that
    /// connects [default: rdma.path_mtu of the configuration, or 4096]
    #[arg(short = 'm', long, value_name = "BYTES")]
    pub(crate) mtu: Option<u32>,
    /// without `mtu`, bytes
    #[arg(skip = 4096_u32)]
    pub(crate) configured_mtu: u32,
    /// the most that `link.mtu` of the configuration has room for, bytes
    #[arg(skip = 4096_u32)]
    pub(crate) largest_mtu: u32,
    /// Time without an answer after which a request is repeated: 4.096 us x 2^N, 14 to 18, so 67 ms
    /// to 1.07 s (the unit of a card's timer is not documented) [default: 14]
    #[arg(short = 'u', long = "qp-timeout", value_name = "N")]
    pub(crate) timeout: Option<u8>,
    /// Report bandwidth in Gb/s instead of MB/s
    #[arg(long = "report_gbits", alias = "report-gbits")]
    pub(crate) report_gbits: bool,
    /// Also write the report as JSON, to ringside-bench.json unless --out_json_file names a file
    #[arg(long = "out_json", alias = "out-json")]
    pub(crate) out_json: bool,
    /// Write the report as JSON to this file; "-" is standard output, and tables then go to
    /// standard error
    #[arg(long = "out_json_file", alias = "out-json-file", value_name = "FILE")]
    pub(crate) out_json_file: Option<PathBuf>,
    /// Show each stage of bring-up
    #[arg(short = 'v', long)]
    pub(crate) verbose: bool,
    /// Write latency distributions in HdrHistogram's percentile format. Several tests have a file
    /// each, beside FILE: lat.hgrm becomes lat-rdma_write-latency-8-b.hgrm
    #[arg(long, value_name = "FILE")]
    pub(crate) hgrm: Option<PathBuf>,
    /// Capture every frame on the wire; slows the run, so do not quote its figures
    #[arg(long, value_name = "FILE")]
    pub(crate) pcap: Option<PathBuf>,
    /// Print the register accesses, doorbells included, below each row; slows doorbells, so do not
    /// quote its times
    #[arg(long)]
    pub(crate) count_writes: bool,
    /// Function that sends; its peer is the next one of the same model
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) device: Option<DeviceAddress>,
    /// Function that answers, if both are PCI addresses or vfio-user:PATH
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) peer: Option<DeviceAddress>,
    /// Core of the driver, then core of the model, such as 0,1 [default: two different ones]
    #[arg(long, value_name = "CORE,CORE", value_delimiter = ',', num_args = 1)]
    pub(crate) cores: Vec<usize>,
    /// Wait for the bench of another process at this local address; the default port is 18515
    #[arg(long, value_name = "HOST[:PORT]", conflicts_with_all = ["connect", "peer", "pcap", "hgrm", "out_json", "out_json_file", "count_writes"])]
    pub(crate) listen: Option<String>,
    /// Connect to the bench of another process that listens there
    #[arg(long, value_name = "HOST[:PORT]", conflicts_with_all = ["peer", "pcap", "count_writes"])]
    pub(crate) connect: Option<String>,
    /// Network that carries the exchange with the other process: the kernel's, or the port's own
    /// (nic), whose addresses --listen and --connect then name
    #[arg(
        long,
        value_enum,
        value_name = "NETWORK",
        default_value_t = Over::Kernel,
        conflicts_with = "chaos"
    )]
    pub(crate) over: Over,
    /// Seconds to wait for the other process [default: 60 with --listen, 5 with --connect]
    #[arg(long, value_name = "SECONDS")]
    pub(crate) wait: Option<u64>,
    /// Transfer patterns both ways by every operation, with and without immediate data, and compare
    /// every byte; measures nothing (with --connect)
    #[arg(long, requires = "connect")]
    pub(crate) verify_only: bool,
    /// Connect the queue pairs by the connection manager, as rdma_cm does; memory and steps stay
    /// with the exchange over TCP (with --listen or --connect)
    #[arg(short = 'R', long = "connection-manager", conflicts_with_all = ["perftest", "chaos"])]
    pub(crate) manager: bool,
    /// Use perftest's exchange: the other side is ib_write_bw, ib_read_lat or another of its
    /// programs (with --listen or --connect; name the operation that it measures)
    #[arg(long, conflicts_with_all = ["verify_only", "duration"])]
    pub(crate) perftest: bool,
    /// Index of the GID that this side sends from, as `ringside info` shows it and as --gid-index
    /// of perftest
    /// [default: one of the peer's kind; of a client, that of IPv4 if the configuration names one,
    /// else the link-local one]
    #[arg(short = 'x', long, value_name = "INDEX", requires = "perftest")]
    pub(crate) gid_index: Option<u16>,
    /// MAC address of perftest's side, if it does not answer ARP or neighbour discovery
    #[arg(long, value_name = "MAC", requires = "perftest")]
    pub(crate) peer_mac: Option<Mac>,
    /// Measure the time of recovery from resets, stalls, errors and lost links under traffic. A
    /// link is down for 20 ms, which its total includes
    #[arg(long, conflicts_with_all = ["listen", "connect", "pcap", "hgrm", "count_writes", "operation", "measure", "size", "all", "iterations", "queue_pairs", "send_depth", "receive_depth", "inline", "mtu", "timeout", "verbose"])]
    pub(crate) chaos: bool,
    /// Times that each kind is raised [default: 3; or as often as fits -D]
    #[arg(long, value_name = "COUNT", requires = "chaos", conflicts_with = "duration", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) chaos_rounds: Option<u32>,
    /// Kinds of faults to raise [default: all]
    #[arg(
        long,
        value_enum,
        value_name = "KIND,...",
        value_delimiter = ',',
        num_args = 1,
        requires = "chaos"
    )]
    pub(crate) chaos_kinds: Vec<Kind>,
    /// Seed of the order and the moments [default: 1]
    #[arg(long, value_name = "NUMBER", requires = "chaos")]
    pub(crate) chaos_seed: Option<u64>,
    /// Control socket of the server of the device
    #[arg(
        long,
        value_name = "PATH",
        requires = "chaos",
        conflicts_with = "chaos_prompt"
    )]
    pub(crate) chaos_control: Option<PathBuf>,
    /// Number of the device in that server [default: 0]
    #[arg(long, value_name = "NUMBER", requires = "chaos")]
    pub(crate) chaos_function: Option<usize>,
    /// Print each fault and wait for a person to raise it
    #[arg(long, requires = "chaos")]
    pub(crate) chaos_prompt: bool,
    /// Behaviour of an idle core; two busy processes on one core have to yield
    /// [default: spin where each process of three can have a core, else yield]
    #[arg(long, value_enum, value_name = "HOW")]
    pub(crate) idle: Option<Idle>,
}

impl Bench {
    pub(crate) fn queue_pairs(&self) -> u32 {
        self.queue_pairs.unwrap_or(1)
    }

    pub(crate) fn send_depth(&self) -> u32 {
        self.send_depth.unwrap_or(128)
    }

    pub(crate) fn receive_depth(&self) -> u32 {
        self.receive_depth.unwrap_or(512)
    }

    pub(crate) fn mtu(&self) -> u32 {
        self.mtu.unwrap_or(self.configured_mtu)
    }

    /// The least time before a request is repeated, in the card's steps. Drivers write 5, which is
    /// taken for perftest's default of 14.
    pub(crate) fn retransmission_timeout(&self) -> u8 {
        5 << (self.timeout.unwrap_or(14).clamp(14, 18) - 14)
    }

    /// The file for the report as JSON.
    pub(crate) fn json_path(&self) -> Option<&Path> {
        let usual = self.out_json.then_some(Path::new("ringside-bench.json"));
        self.out_json_file.as_deref().or(usual)
    }

    /// The faults of a chaos run.
    pub(crate) fn chaos_kinds(&self) -> Vec<Kind> {
        match self.chaos_kinds.as_slice() {
            [] => Kind::all().collect(),
            kinds => kinds.to_vec(),
        }
    }

    /// True if the peer is another process.
    pub(crate) fn meets(&self) -> bool {
        self.listen.is_some() || self.connect.is_some()
    }
}

/// The network of the exchange between two processes.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Over {
    /// A socket of the kernel
    Kernel,
    /// TCP on the port's own queues
    Nic,
}

/// The behaviour of a polling core without work.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Idle {
    /// Poll without pause
    Spin,
    /// Yield the core between polls
    Yield,
}

#[derive(Args, Debug)]
pub(crate) struct Info {
    /// Device address [default: the configuration's, which is model:0]
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) device: Option<DeviceAddress>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct Devices {
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

const BIND_HELP: &str = "\
Needs root. The driver that the function has now is noted under /run/ringside/bind, and `ringside \
unbind` gives it back. The binding lasts until then, or until the machine restarts.

Examples:
  ringside bind 0000:3b:00.0 --dry-run     show the commands, change nothing
  ringside bind 0000:3b:00.0 0000:3b:00.1  both ports of a card";

#[derive(Args, Debug)]
#[command(after_help = BIND_HELP)]
pub(crate) struct Bind {
    /// PCI addresses, such as 0000:3b:00.0
    #[arg(value_name = "ADDRESS", required = true)]
    pub(crate) addresses: Vec<DeviceAddress>,
    /// Driver to bind it to
    #[arg(long, value_name = "NAME", default_value = "vfio-pci", value_parser = driver_name)]
    pub(crate) driver: String,
    /// Print the commands and do nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Bind even if it is in use, or it is no E810: waits until a process that has claimed it
    /// releases it
    #[arg(long)]
    pub(crate) force: bool,
}

/// A name that a driver of the kernel may have: it becomes part of a path and of a command.
fn driver_name(text: &str) -> Result<String, String> {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b"_-".contains(&byte);
    match !text.is_empty() && text.bytes().all(is_part) && !text.starts_with('-') {
        true => Ok(text.to_owned()),
        false => Err("a driver's name has letters, digits, `_` and `-`".into()),
    }
}

#[derive(Args, Debug)]
pub(crate) struct Unbind {
    /// PCI addresses, such as 0000:3b:00.0
    #[arg(value_name = "ADDRESS", required = true)]
    pub(crate) addresses: Vec<DeviceAddress>,
    /// Print the commands and do nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Unbind even if it is in use: waits until a process that has claimed it releases it
    #[arg(long)]
    pub(crate) force: bool,
}

#[derive(Args, Debug)]
pub(crate) struct Doctor {
    /// Card to examine [default: every E810]
    #[arg(value_name = "ADDRESS")]
    pub(crate) address: Option<DeviceAddress>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct BringUp {
    /// Device address [default: the configuration's, which is model:0]
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) device: Option<DeviceAddress>,
    /// Show every exchange: request, answer, time
    #[arg(long)]
    pub(crate) trace: bool,
    /// Make this stage fail (model only), to see the undos; "list" prints the stages
    #[arg(long, value_name = "STAGE")]
    pub(crate) fail_at: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}
