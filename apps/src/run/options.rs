//! The options of `ringside run`.

use super::loopback::Loopback;
use crate::model::OutsideWire;
use clap::Args;
use ringside_bus::DeviceAddress;
use ringside_server::{FaultAt, Place};
use std::ffi::OsString;
use std::path::PathBuf;
use std::str::FromStr;

/// Functions of the model, and so programs that meet.
pub(super) const PORTS: u16 = 8;

/// The largest number of a first port: 10.0.255.x is the last network of the model.
const MAX_FIRST: i64 = 65_000;

const RUN_HELP: &str = "\
The program finds ringside's libibverbs.so.1 before rdma-core's. It has to be linked dynamically, and \
not be setuid. On a model, programs meet on one switch: give each its own port, or none to take the \
first that is free. Port N has the address 10.0.0.(N+1) and the GID index 1; index 0 is link-local. \
With --wire, programs on two hosts or in two containers meet: each side names the other, and one of them \
numbers its ports from another --first.

Examples:
  ringside run -- ibv_devinfo -v
  ringside run --port 0 -- ibv_rc_pingpong -g 1
  ringside run --port 1 -- ibv_rc_pingpong -g 1 localhost
  ringside run --port 0 -- ib_write_bw
  ringside run --port 1 -- ib_write_bw 10.0.0.1
  ringside run --port 0 --pcap rping.pcap -- rping -s -C 10
  ringside run --wire udp:192.0.2.2 -- ib_write_bw -x 1
  ringside run --wire udp:192.0.2.1 --first 8 -- ib_write_bw -x 1 192.0.2.1
  ringside run --device 0000:3b:00.0 -- ib_write_bw -x 1

The exit code is the program's, unless that succeeds and the model fails.";

#[derive(Args, Debug)]
#[command(after_help = RUN_HELP)]
pub(crate) struct Run {
    /// Device to run on, such as 0000:3b:00.0 or vfio-user:PATH; without it, a model
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) device: Option<DeviceAddress>,
    /// Run on a model, as without --device
    #[arg(long, conflicts_with = "device")]
    pub(crate) model: bool,
    /// Port of the model, one of eight: 0 to 7, or from the number of --first on; without it, the
    /// first that no program uses
    #[arg(long, value_name = "NUMBER", conflicts_with = "device")]
    pub(crate) port: Option<u16>,
    /// Join the wire of the model on another host or in another container; the first program of a
    /// model says it
    #[arg(
        long = "wire",
        value_name = "udp:PEER[:PORT][@[LOCAL][:PORT]]",
        conflicts_with = "device"
    )]
    pub(crate) wires: Vec<OutsideWire>,
    /// Number of the model's first port, 0 without it: models whose wires meet need different ones
    #[arg(long, value_name = "NUMBER", conflicts_with = "device",
          value_parser = clap::value_parser!(u16).range(0..=MAX_FIRST))]
    pub(crate) first: Option<u16>,
    /// Begin a fault of the model, such as "wire:drop 1000" (of a million frames) or "0:link-down",
    /// of its first port with any --first; it lasts until the last program of the model ends;
    /// `ringside model serve --help` lists all
    #[arg(
        long = "fault",
        value_name = "FUNCTION:FAULT",
        conflicts_with = "device"
    )]
    pub(crate) faults: Vec<FaultText>,
    /// Capture every frame on the model's wire until its last program ends; open it with Wireshark.
    /// For the first program of a model; later ones may omit it
    #[arg(long, value_name = "FILE", conflicts_with = "device")]
    pub(crate) pcap: Option<PathBuf>,
    /// TCP and UDP sockets that name a port of the model by its address use the loopback interface
    #[arg(
        long,
        value_name = "WHEN",
        default_value = "auto",
        conflicts_with = "device"
    )]
    pub(crate) loopback: Loopback,
    /// Move memory that the program registers into files, at its addresses, so that the model reads
    /// and writes it without system calls: whole pages, while they are registered. Not for a
    /// program that writes to memory in one thread while another one registers it
    #[arg(long, conflicts_with = "device")]
    pub(crate) share_memory: bool,
    /// Folder with the C libraries; without it, c-libraries beside this command
    #[arg(long, value_name = "FOLDER")]
    pub(crate) libraries: Option<PathBuf>,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    pub(crate) program: Vec<OsString>,
}

/// A fault and its side, checked, as the model's server takes it.
#[derive(Clone, Debug)]
pub(crate) struct FaultText(pub(super) String);

impl FromStr for FaultText {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let at: FaultAt = text.parse()?;
        let checked = at.place.check(at.fault, PORTS.into());
        checked.map_err(|error| match at.place {
            Place::Function(index) if index >= PORTS.into() => {
                format!("{error}: --fault counts ports from 0, whatever --first is")
            }
            _ => error,
        })?;
        Ok(Self(text.to_owned()))
    }
}
