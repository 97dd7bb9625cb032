//! Options of `ringside model`.

use clap::{Args, Subcommand, ValueEnum};
use ringside_model::faults::FAULTS;
use ringside_model::{Fault, TimerAccess};
use ringside_server::FaultAt;
use ringside_server::ports::{UdpEnds, UdpEndsError};
use std::path::PathBuf;
use std::str::FromStr;

#[derive(Args, Debug)]
pub(crate) struct Model {
    #[command(subcommand)]
    pub(crate) command: ModelCommand,
}

#[derive(Subcommand, Debug)]
pub(crate) enum ModelCommand {
    /// Serve functions of the model over vfio-user until stopped
    Serve(Box<Serve>),
    /// Send a command to a server that runs with --control, and show its answer
    Tell(Tell),
}

const SERVE_HELP: &str = "\
All functions that one server serves are on one switch, whose further ports are wires to outside. A \
client that goes away, or dies, leaves its function reset and ready for the next. The server runs \
until SIGTERM, SIGINT or SIGHUP, then says what it counted; it exits with 4 if a driver broke the interface.

Examples:
  ringside model serve --socket /run/a.sock --socket /run/b.sock --doorbell-page
  ringside bring-up --device vfio-user:/run/a.sock
  qemu-system-x86_64 ... -object memory-backend-memfd,id=mem0,size=2G,share=on -numa node,memdev=mem0 \\
    -device '{\"driver\":\"vfio-user-pci\",\"socket\":{\"type\":\"unix\",\"path\":\"/run/a.sock\"}}'
  ringside model serve --socket /run/a.sock --dgram /run/model.wire,/run/vm.wire --pcap wire.pcap
  qemu-system-x86_64 ... -netdev dgram,id=n0,local.type=unix,local.path=/run/vm.wire,remote.type=unix,remote.path=/run/model.wire
  ringside model serve --socket /run/a.sock --first 16 --wire udp:192.0.2.7
  ringside model serve --socket /run/a.sock --tap tap0 --control /run/control.sock
  ringside model tell /run/control.sock fault 0 link-down";

#[derive(Args, Debug)]
#[command(after_help = SERVE_HELP)]
pub(crate) struct Serve {
    /// Socket path of a function; give it once for each function, the first is function 0
    #[arg(long = "socket", value_name = "PATH", required = true)]
    pub(crate) sockets: Vec<PathBuf>,
    /// Number of the first function, from which MAC address and serial number follow: servers whose
    /// wires meet need different ones
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    pub(crate) first: u16,
    /// Let clients map the doorbell page; otherwise each doorbell is a message
    #[arg(long)]
    pub(crate) doorbell_page: bool,
    /// Accept memory that its owner can cut while it is mapped: a client that does so kills the
    /// server
    #[arg(long)]
    pub(crate) accept_shrinkable_memory: bool,
    /// Send accesses outside the mapped memory of a client to the client, so that its IOMMU refuses
    /// and reports them; at most 256
    #[arg(long)]
    pub(crate) refused_through_client: bool,
    /// Carry every frame as bytes between the functions, which the model parses again: slower, with
    /// the same results
    #[arg(long)]
    pub(crate) frames_as_bytes: bool,
    /// Core of the model's thread [default: the configuration's model.thread_core]
    #[arg(long, value_name = "CORE")]
    pub(crate) core: Option<usize>,
    /// Microseconds without work before the server sleeps between looks
    #[arg(long, value_name = "MICROSECONDS", default_value_t = 200)]
    pub(crate) spin_us: u64,
    /// Wire of unix datagrams, one a frame, from LOCAL to REMOTE (QEMU: -netdev dgram); may be
    /// repeated
    #[arg(long = "dgram", value_name = "LOCAL,REMOTE")]
    pub(crate) datagram_wires: Vec<DatagramEnds>,
    /// Wire of UDP datagrams, one a frame, to the model of another host or container; may be
    /// repeated
    #[arg(long = "wire", value_name = "udp:PEER[:PORT][@[LOCAL][:PORT]]")]
    pub(crate) wires: Vec<OutsideWire>,
    /// Wire to a TAP interface, created if it is missing; needs CAP_NET_ADMIN or an owner's right;
    /// may be repeated
    #[arg(long = "tap", value_name = "NAME")]
    pub(crate) taps: Vec<String>,
    /// Capture every frame on the wire; open it with Wireshark
    #[arg(long, value_name = "FILE")]
    pub(crate) pcap: Option<PathBuf>,
    /// Record each command of the drivers; docs/recording.md has the format
    #[arg(long, value_name = "FILE")]
    pub(crate) record: Option<PathBuf>,
    /// Lose this many of a million frames on the wire, chosen by seed
    #[arg(long, value_name = "PER_MILLION[,SEED]")]
    pub(crate) drop: Option<LostFrames>,
    /// Give each function a timer, which time stamps of packets come from: Linux's ice then has a
    /// PTP hardware clock
    #[arg(long, value_enum, value_name = "ACCESS")]
    pub(crate) timer: Option<Timer>,
    /// Start without the device's own DDP package
    #[arg(long)]
    pub(crate) no_package: bool,
    /// Start with a fault of a function or of the wire, such as "0:link-down" or "wire:corrupt
    /// 1000"; may be repeated
    #[arg(long = "fault", value_name = "FUNCTION:FAULT", long_help = fault_help())]
    pub(crate) faults: Vec<FaultAt>,
    /// Control socket to listen on for `ringside model tell`
    #[arg(long, value_name = "PATH")]
    pub(crate) control: Option<PathBuf>,
    /// Folder of `ringside run`, whose last program ends the server
    #[arg(long, value_name = "FOLDER", hide = true)]
    pub(crate) users: Option<PathBuf>,
    /// Write the final report as JSON; "-" is standard output, and the rest then goes to standard
    /// error
    #[arg(long, value_name = "FILE|-")]
    pub(crate) report: Option<PathBuf>,
    /// Short for --report -
    #[arg(long, conflicts_with = "report")]
    pub(crate) json: bool,
}

/// The timer of a function.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Timer {
    /// The function controls it, and its driver starts it
    Controlled,
    /// Another function controls it, and has started it
    Running,
    /// Another function controls it, and has not started it: time stamps are refused
    Stopped,
}

impl From<Timer> for TimerAccess {
    fn from(timer: Timer) -> Self {
        match timer {
            Timer::Controlled => Self::Controlled,
            Timer::Running => Self::Running,
            Timer::Stopped => Self::Stopped,
        }
    }
}

fn fault_help() -> String {
    let lines = FAULTS
        .iter()
        .map(|(usage, meaning)| format!("  {usage:<36} {meaning}\n"));
    format!(
        "Begin with a fault of a function (its number) or of the wire (\"wire\"), such as \
         \"0:link-down\" or \"wire:corrupt 1000\"; may be repeated. Faults:\n{}",
        lines.collect::<String>()
    )
}

const TELL_HELP: &str = "\
Commands:
  status                  counters, faults, breaches, and what drivers have left in the functions
  fault FUNCTION FAULT    begin a fault of a function, or of the wire (FUNCTION is then \"wire\")
  clear FUNCTION [FAULT]  end one fault, or all
  flush                   write out the capture
  end                     end the server, as SIGTERM does
  help                    all faults

Examples:
  ringside model tell /run/control.sock fault 0 link-down
  ringside model tell /run/control.sock clear 0
  ringside model tell /run/control.sock fault wire drop 1000 7

The answer is one line of JSON; the exit code is 1 if the server refused.";

#[derive(Args, Debug)]
#[command(after_help = TELL_HELP)]
pub(crate) struct Tell {
    /// Control socket of the server, its --control
    pub(crate) path: PathBuf,
    /// Command for the server
    #[arg(required = true, value_name = "COMMAND")]
    pub(crate) words: Vec<String>,
}

/// Both ends of a datagram wire.
#[derive(Clone, Debug)]
pub(crate) struct DatagramEnds {
    pub(crate) local: PathBuf,
    pub(crate) far: PathBuf,
}

impl FromStr for DatagramEnds {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once(',') {
            Some((local, far)) if !local.is_empty() && !far.is_empty() && !far.contains(',') => {
                Ok(Self {
                    local: local.into(),
                    far: far.into(),
                })
            }
            _ => Err("two paths with a comma between them are wanted: ours, then theirs".into()),
        }
    }
}

/// A wire to another host or container.
#[derive(Clone, Debug)]
pub(crate) struct OutsideWire(pub(crate) UdpEnds);

impl FromStr for OutsideWire {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let Some(ends) = text.strip_prefix("udp:") else {
            return Err("udp: and the peer's address are wanted, such as udp:192.0.2.7".into());
        };
        let ends = ends.parse().map(Self);
        ends.map_err(|error: UdpEndsError| error.to_string())
    }
}

/// As it is given.
impl std::fmt::Display for OutsideWire {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "udp:{}", self.0)
    }
}

/// The share of frames that is lost.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LostFrames(pub(crate) Fault);

impl FromStr for LostFrames {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let fault = format!("drop {text}").parse::<Fault>();
        fault.map(Self).map_err(|error| error.to_string())
    }
}
