//! `ringside tap`: a network interface of the kernel over a port's queues.

use crate::failure::Failure;
use crate::interrupt::{self, MAX_SECONDS};
use crate::mac::Mac;
use crate::mirror::{Copies, Direction, Mirror, MirrorServer};
use crate::open::open;
use crate::output::stdout;
use crate::supervised::{Brought, LOOK_EVERY, Queues, Wanted};
use anyhow::anyhow;
use clap::Args;
use ringside_bus::DeviceAddress;
use ringside_bus::tap::{Tap, TapError};
use ringside_config::Config;
use ringside_lan::{Packet, ReceiveQueue, TransmitQueue};
use ringside_pmd::lan::port::{MAX_MTU, MTU_MIN, ReceiveInterrupt};
use ringside_pmd::lan::{Port, PortSettings, VlanStripping};
use ringside_stack::host::{
    Bridge, BridgeCounters, BridgeSettings, BridgedWay, InterfaceGone, PacketObserver,
};
use serde::Serialize;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

const HELP: &str = "\
The kernel gets an interface whose wire is the port: ssh, monitoring and routing go on after ringside \
has claimed the card. The interface has the port's address and MTU and is up when the command says so; \
give it its IP address then:

  ringside tap --device 0000:3b:00.0 --interface ring0 &
  ip addr add 192.0.2.1/24 dev ring0

Without --vlan, tags stay in the frames: the kernel's own VLAN interfaces work on top. With --vlan ID \
the interface is in that VLAN: the device inserts its tag into what the kernel sends, and frames of \
other VLANs and without a tag do not reach the kernel.

A device that fails is recovered, and its port opened again; \"recoveries\" counts that. A device that takes \
no reset for 5 s is gone: the command ends. Packets that \
came faster than the command took them are dropped by the device, and counted as \"device_dropped\". While the device is out of service, or the port's link is down, \
the interface has no carrier.

Keep the interface's MTU at --mtu: longer frames of the kernel are dropped, and counted as \"too_long\".

It needs CAP_NET_ADMIN in the network namespace that it runs in, and /dev/net/tun. The interface goes \
when the command ends, unless it was made beforehand (ip tuntap add dev NAME mode tap user USER). USER \
needs no right if the interface has the port's address and --mtu and is up: only what differs is set.

Examples:
  ringside tap --device model:0 --interface ring0 --stats-period 1
  ringside tap --interface ring0 --vlan 100 --mtu 9000 --json

Exit codes: 0 done, 1 an operation failed or the device is gone, 2 wrong arguments, 3 the device or the \
interface could not be opened, 130 interrupted before --duration was over, 141 standard output was closed.";

#[derive(Args, Debug)]
#[command(after_help = HELP)]
pub(crate) struct Options {
    /// Device address [default: the configuration's, which is model:0]
    #[arg(long, value_name = "ADDRESS")]
    device: Option<DeviceAddress>,
    /// Name of the kernel's interface
    #[arg(long, value_name = "NAME", default_value = "ring0")]
    interface: String,
    /// Largest payload of a frame, bytes
    #[arg(long, value_name = "BYTES", default_value_t = 1500, value_parser = clap::value_parser!(u16).range(i64::from(MTU_MIN)..=i64::from(MAX_MTU)))]
    mtu: u16,
    /// VLAN that the interface is in [default: tags stay in the frames]
    #[arg(long, value_name = "ID", value_parser = clap::value_parser!(u16).range(1..=4094))]
    vlan: Option<u16>,
    /// Let all packets of the wire in, not only those to the port's address and to groups
    #[arg(long)]
    promiscuous: bool,
    /// Let `ringside capture --attach PATH` see what the port receives and sends
    #[arg(long, value_name = "PATH")]
    mirror: Option<PathBuf>,
    /// Seconds to run [default: until interrupted]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(..=MAX_SECONDS))]
    duration: Option<u64>,
    /// Seconds between reports, each of what happened since the last one; 0: only at the end
    #[arg(long, value_name = "SECONDS", default_value_t = 0, value_parser = clap::value_parser!(u64).range(..=MAX_SECONDS))]
    stats_period: u64,
    /// Reports as JSON, one object a line
    #[arg(long)]
    json: bool,
}

/// Rounds without a packet after which the thread sleeps until either side has one.
const IDLE_ROUNDS: u32 = 1000;
/// Between two looks at the link.
const LINK_EVERY: Duration = Duration::from_secs(1);

/// Packets and bytes of one direction, and those that were dropped.
#[derive(Clone, Copy, Serialize)]
struct Way {
    packets: u64,
    bytes: u64,
    /// the other side had no room, or was down, or the device failed with them in its ring
    dropped: u64,
}

#[derive(Clone, Copy, Serialize)]
struct Counters {
    to_kernel: Way,
    to_wire: Way,
    /// frames of other VLANs
    other_vlan: u64,
    /// frames of the kernel that are longer than --mtu allows
    too_long: u64,
    /// frames of the wire that the device dropped: it had no free descriptor
    device_dropped: u64,
    /// times that the device was recovered
    recoveries: u64,
}

impl Way {
    const fn of(way: &BridgedWay) -> Self {
        Self {
            packets: way.packets,
            bytes: way.bytes,
            dropped: way.dropped,
        }
    }

    const fn since(self, before: Self) -> Self {
        Self {
            // Frames that a failure of the device lost were counted before.
            packets: self.packets.saturating_sub(before.packets),
            bytes: self.bytes - before.bytes,
            dropped: self.dropped - before.dropped,
        }
    }
}

impl Counters {
    const fn of(bridge: &BridgeCounters, recoveries: u64) -> Self {
        Self {
            to_kernel: Way::of(&bridge.to_host),
            to_wire: Way::of(&bridge.to_wire),
            other_vlan: bridge.other_vlan,
            too_long: bridge.too_long,
            device_dropped: bridge.device_dropped,
            recoveries,
        }
    }

    const fn since(self, before: Self) -> Self {
        Self {
            to_kernel: self.to_kernel.since(before.to_kernel),
            to_wire: self.to_wire.since(before.to_wire),
            other_vlan: self.other_vlan - before.other_vlan,
            too_long: self.too_long - before.too_long,
            device_dropped: self.device_dropped - before.device_dropped,
            recoveries: self.recoveries - before.recoveries,
        }
    }
}

/// A report.
#[derive(Serialize)]
struct Report<'a> {
    kind: &'static str,
    device: &'a str,
    interface: &'a str,
    address: String,
    #[serde(flatten)]
    counters: Counters,
}

pub(crate) fn run(options: &Options, config: &Config) -> Result<(), Failure> {
    interrupt::catch()?;
    let address = options.device.as_ref().unwrap_or(&config.device.address);
    // First, so that a missing right is reported before a device is claimed.
    let tap = Tap::open(&options.interface).map_err(refused)?;
    let opened = open(address, config)?;
    let (mut brought, mut queues) =
        Brought::bring_up(opened.function, address, wanted(options), &[], config)?;
    let name = address.to_string();
    let done = match queues.pop() {
        Some(queues) => pump(options, &mut brought, queues, tap, &name),
        None => Ok(()),
    };
    let down = brought.shut_down();
    done?;
    down.map_err(|text| Failure::operation(anyhow!(text)))?;
    match interrupt::seen() && options.duration.is_some() {
        true => Err(Failure::interrupted()),
        false => Ok(()),
    }
}

fn wanted(options: &Options) -> Wanted {
    Wanted {
        own: PortSettings {
            mtu: options.mtu,
            promiscuous: options.promiscuous,
            vlan_stripping: match options.vlan {
                Some(_) => VlanStripping::On,
                None => VlanStripping::Off,
            },
            ..PortSettings::default()
        },
        further: Vec::new(),
    }
}

fn refused(error: TapError) -> Failure {
    match error {
        TapError::BadName { .. } => Failure::usage(error),
        other => Failure::claim(other),
    }
}

fn pump(
    options: &Options,
    brought: &mut Brought,
    queues: Queues,
    tap: Tap,
    name: &str,
) -> Result<(), Failure> {
    let port = &brought.controls.port;
    filter(port, options)?;
    let mac = port.mac();
    tap.configure(mac, options.mtu).map_err(refused)?;
    let mirror = match &options.mirror {
        Some(path) => Some(MirrorServer::start(path, &[name.to_owned()])?),
        None => None,
    };
    let mirror = mirror.as_ref();
    let tee = Tee::new(mirror.map(MirrorServer::mirror));
    let Some(queues) = first(queues) else {
        return Ok(());
    };
    let settings = BridgeSettings {
        mtu: options.mtu,
        vlan: options.vlan,
    };
    let mut carried = Carried {
        bridge: Bridge::new(Arc::new(tap), queues, settings, tee),
        recoveries: 0,
    };
    let interrupt = interrupt_of(&brought.controls.port);
    carried.bridge.set_interrupt(interrupt);
    let report = |kind, counters| Report {
        kind,
        device: name,
        interface: &options.interface,
        address: Mac(mac).to_string(),
        counters,
    };
    tell(&report("up", carried.counters()), options.json)?;
    let interval = |counters| tell(&report("interval", counters), options.json);
    let done = carry(options, brought, &mut carried, interval);
    carried.bridge.look_at(&brought.controls.port);
    carried.bridge.end();
    // What was carried is told also if it ended by a failure.
    let told = tell(&report("total", carried.counters()), options.json);
    done?;
    told
}

/// Carries frames and looks after the device until the time is over or a signal arrives.
fn carry(
    options: &Options,
    brought: &mut Brought,
    carried: &mut Carried,
    interval: impl Fn(Counters) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let begin = Instant::now();
    let end = options
        .duration
        .map(|seconds| begin + Duration::from_secs(seconds));
    let period = Duration::from_secs(options.stats_period);
    let mut next = begin + period;
    let (mut look, mut look_at_link) = (begin, begin);
    let mut told = carried.counters();
    let mut idle = 0;
    while !interrupt::seen() {
        let moved = carried.bridge.round().map_err(gone)?;
        idle = if moved == 0 { idle + 1 } else { 0 };
        if idle >= IDLE_ROUNDS {
            let wakes = [Some(look), Some(look_at_link), end];
            let wake = wakes.into_iter().flatten().min().unwrap_or(look);
            let limit = wake.saturating_duration_since(Instant::now());
            carried.bridge.sleep(limit, None);
        }
        let now = Instant::now();
        if end.is_some_and(|end| now >= end) {
            break;
        }
        if now >= look {
            look = now + LOOK_EVERY;
            if let Some(queues) = brought.supervise()? {
                carried.replace(queues, interrupt_of(&brought.controls.port));
                look_at_link = now;
            }
            if !brought.is_in_service() {
                carried.bridge.set_carrier(false);
            }
            brought.check_reachable()?;
        }
        if now >= look_at_link {
            look_at_link = now + LINK_EVERY;
            carried.bridge.set_carrier(brought.has_link());
            carried.bridge.look_at(&brought.controls.port);
        }
        if !period.is_zero() && now >= next {
            let counters = carried.counters();
            interval(counters.since(told))?;
            told = counters;
            next += period;
        }
    }
    Ok(())
}

/// The interrupt of the port's receive queue. Without one, as on a function with few vectors, an
/// idle interface polls the device.
fn interrupt_of(port: &Port) -> Option<ReceiveInterrupt> {
    port.receive_interrupt(&[0]).ok()
}

/// Opens the port for the packets that an interface of the kernel receives.
fn filter(port: &Port, options: &Options) -> Result<(), Failure> {
    port.set_all_multicast(true)?;
    if let Some(vlan) = options.vlan {
        port.add_vlan(vlan)?;
    }
    Ok(())
}

fn tell(report: &Report<'_>, json: bool) -> Result<(), Failure> {
    let Report {
        kind,
        device,
        interface,
        address,
        counters,
    } = report;
    let Counters {
        to_kernel,
        to_wire,
        other_vlan,
        too_long,
        device_dropped,
        recoveries,
    } = counters;
    let text = match (json, *kind) {
        (true, _) => serde_json::to_string(report).map_err(io::Error::from)?,
        (false, "up") => format!("{interface}: up, address {address}, over {device}"),
        (false, _) => format!(
            "{interface}{}: to the kernel {} packets, {} dropped; to the wire {} packets, {} dropped; \
             {other_vlan} of other VLANs, {too_long} longer than the MTU, {device_dropped} dropped by the \
             device; {recoveries} recoveries",
            if *kind == "total" { " in all" } else { "" },
            to_kernel.packets,
            to_kernel.dropped,
            to_wire.packets,
            to_wire.dropped
        ),
    };
    let mut out = stdout();
    writeln!(out, "{text}")?;
    Ok(out.flush()?)
}

fn gone(error: InterfaceGone) -> Failure {
    Failure::operation(anyhow!("{error}; start the command again"))
}

/// The first queue of each kind.
fn first(queues: Queues) -> Option<(ReceiveQueue, TransmitQueue)> {
    queues.receive.into_iter().zip(queues.transmit).next()
}

/// A bridge through recoveries of the device.
struct Carried {
    bridge: Bridge<Tee>,
    recoveries: u64,
}

impl Carried {
    fn counters(&self) -> Counters {
        Counters::of(self.bridge.counters(), self.recoveries)
    }

    /// Continues with the queues of a port that was opened again.
    fn replace(&mut self, queues: Vec<Queues>, interrupt: Option<ReceiveInterrupt>) {
        if let Some(queues) = queues.into_iter().find_map(first) {
            self.bridge.replace(queues);
        }
        self.bridge.set_interrupt(interrupt);
        self.recoveries += 1;
    }
}

/// Copies packets for an attached capture.
struct Tee {
    mirror: Option<Arc<Mirror>>,
    /// of packets that were offered
    copies: Copies,
}

impl Tee {
    fn new(mirror: Option<Arc<Mirror>>) -> Self {
        Self {
            mirror,
            copies: Copies::default(),
        }
    }
}

impl PacketObserver for Tee {
    fn received(&mut self, packets: &[Packet]) {
        if let Some(mirror) = &self.mirror {
            mirror.copy(0, Direction::Received, packets);
        }
    }

    fn offered(&mut self, packets: &[Packet]) {
        if let Some(mirror) = &self.mirror {
            self.copies = mirror.take(0, Direction::Sent, packets);
        }
    }

    fn sent(&mut self, count: usize, dropped: u64) {
        if let Some(mirror) = &self.mirror {
            mirror.give(std::mem::take(&mut self.copies), count, dropped);
        }
    }
}
