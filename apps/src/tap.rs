//! `ringside tap`: a network interface of the kernel over a port's queues.

use crate::failure::Failure;
use crate::interrupt::{self, MAX_SECONDS};
use crate::mac::Mac;
use crate::mirror::{Direction, Mirror, MirrorServer};
use crate::open::open;
use crate::output::stdout;
use crate::supervised::{Brought, LOOK_EVERY, Queues, Wanted};
use anyhow::anyhow;
use clap::Args;
use ringside_bus::tap::TapError;
use ringside_bus::{DeviceAddress, tap};
use ringside_config::Config;
use ringside_lan::{Arming, Burst, Packet, ReceiveQueue, TransmitQueue};
use ringside_pmd::lan::port::{MAX_MTU, MTU_MIN, ReceiveInterrupt};
use ringside_pmd::lan::{Port, PortSettings, VlanStripping};
use ringside_server::ports::{MAX_FAILURES, Received, Sent, TapWire, Wire};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::Serialize;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd};
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
no reset for 5 s is gone: the command ends. While the device is out of service, or the port's link is down, \
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
    /// Seconds between reports; 0: only at the end
    #[arg(long, value_name = "SECONDS", default_value_t = 0, value_parser = clap::value_parser!(u64).range(..=MAX_SECONDS))]
    stats_period: u64,
    /// Reports as JSON, one object a line
    #[arg(long)]
    json: bool,
}

/// Packets of one direction before the other one has its turn.
const BURST: usize = 32;
/// Rounds without a packet after which the thread sleeps until either side has one.
const IDLE_ROUNDS: u32 = 1000;
/// The length of a sleep on a device without an interrupt for its receive queue.
const IDLE: Duration = Duration::from_micros(50);
/// Between two looks at the link.
const LINK_EVERY: Duration = Duration::from_secs(1);
/// Bytes of an Ethernet header, and of each VLAN tag in it.
const HEADER_BYTES: usize = 14;
const TAG_BYTES: usize = 4;
/// Tags that a frame may have beside its payload of --mtu bytes.
const MAX_TAGS: usize = 2;
/// Types that say that a tag follows. Source: IEEE 802.1Q, table 9-1.
const TAG_TYPES: [[u8; 2]; 2] = [[0x81, 0x00], [0x88, 0xA8]];
/// Bits of a tag that name the VLAN.
const VLAN_BITS: u16 = 0xFFF;

/// Packets and bytes of one direction, and those that were dropped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
struct Way {
    packets: u64,
    bytes: u64,
    /// the other side had no room, or was down
    dropped: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
struct Counters {
    to_kernel: Way,
    to_wire: Way,
    /// frames of other VLANs
    other_vlan: u64,
    /// frames of the kernel that are longer than --mtu allows
    too_long: u64,
    /// times that the device was recovered
    recoveries: u64,
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
    let wire = TapWire::open(&options.interface).map_err(refused)?;
    let opened = open(address, config)?;
    let (mut brought, mut queues) =
        Brought::bring_up(opened.function, address, wanted(options), &[], config)?;
    let name = address.to_string();
    let done = match queues.pop() {
        Some(queues) => pump(options, &mut brought, queues, wire, &name),
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
    wire: TapWire,
    name: &str,
) -> Result<(), Failure> {
    let port = &brought.controls.port;
    filter(port, options)?;
    let mac = port.mac();
    tap::configure(&options.interface, mac, options.mtu).map_err(refused)?;
    let mirror = match &options.mirror {
        Some(path) => Some(MirrorServer::start(path, &[name.to_owned()])?),
        None => None,
    };
    let mirror = mirror.as_ref();
    let bridge = Bridge::new(options, queues, wire, mirror.map(MirrorServer::mirror));
    let Some(mut bridge) = bridge else {
        return Ok(());
    };
    bridge.interrupt = interrupt_of(&brought.controls.port);
    let report = |kind, counters| Report {
        kind,
        device: name,
        interface: &options.interface,
        address: Mac(mac).to_string(),
        counters,
    };
    tell(&report("up", bridge.counters), options.json)?;
    let interval = |counters| tell(&report("interval", counters), options.json);
    let done = carry(options, brought, &mut bridge, interval);
    // What was carried is told also if it ended by a failure.
    let told = tell(&report("total", bridge.counters), options.json);
    done?;
    told
}

/// Carries frames and looks after the device until the time is over or a signal arrives.
fn carry(
    options: &Options,
    brought: &mut Brought,
    bridge: &mut Bridge,
    interval: impl Fn(Counters) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let begin = Instant::now();
    let end = options
        .duration
        .map(|seconds| begin + Duration::from_secs(seconds));
    let period = Duration::from_secs(options.stats_period);
    let mut next = begin + period;
    let (mut look, mut look_at_link) = (begin, begin);
    let mut idle = 0;
    while !interrupt::seen() {
        idle = if bridge.round()? == 0 { idle + 1 } else { 0 };
        if idle >= IDLE_ROUNDS {
            let wakes = [Some(look), Some(look_at_link), end];
            bridge.sleep(wakes.into_iter().flatten().min().unwrap_or(look));
        }
        let now = Instant::now();
        if end.is_some_and(|end| now >= end) {
            break;
        }
        if now >= look {
            look = now + LOOK_EVERY;
            if let Some(queues) = brought.supervise()? {
                bridge.replace(queues, interrupt_of(&brought.controls.port));
                look_at_link = now;
            }
            if !brought.is_in_service() {
                bridge.set_carrier(false);
            }
            brought.check_reachable()?;
        }
        if now >= look_at_link {
            look_at_link = now + LINK_EVERY;
            bridge.set_carrier(brought.has_link());
        }
        if !period.is_zero() && now >= next {
            interval(bridge.counters)?;
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
        recoveries,
    } = counters;
    let text = match (json, *kind) {
        (true, _) => serde_json::to_string(report).map_err(io::Error::from)?,
        (false, "up") => format!("{interface}: up, address {address}, over {device}"),
        (false, _) => format!(
            "{interface}: to the kernel {} packets, {} dropped; to the wire {} packets, {} dropped; \
             {other_vlan} of other VLANs, {too_long} longer than the MTU; {recoveries} recoveries",
            to_kernel.packets, to_kernel.dropped, to_wire.packets, to_wire.dropped
        ),
    };
    let mut out = stdout();
    writeln!(out, "{text}")?;
    Ok(out.flush()?)
}

/// Both directions.
struct Bridge {
    wire: TapWire,
    receive: ReceiveQueue,
    interrupt: Option<ReceiveInterrupt>,
    transmit: TransmitQueue,
    vlan: Option<u16>,
    mirror: Option<Arc<Mirror>>,
    burst: Burst,
    frame: Vec<u8>,
    mtu: usize,
    /// the last state that the interface was given
    carrier: Option<bool>,
    counters: Counters,
    failures: u32,
}

impl Bridge {
    /// `None` without queues.
    fn new(
        options: &Options,
        queues: Queues,
        wire: TapWire,
        mirror: Option<Arc<Mirror>>,
    ) -> Option<Self> {
        let mtu = usize::from(options.mtu);
        Some(Self {
            wire,
            receive: queues.receive.into_iter().next()?,
            interrupt: None,
            transmit: queues.transmit.into_iter().next()?,
            vlan: options.vlan,
            mirror,
            burst: Burst::with_limit(BURST),
            // A frame that the kernel cuts to the buffer is longer than `is_too_long` allows.
            frame: vec![0; mtu + HEADER_BYTES + MAX_TAGS * TAG_BYTES + 1],
            mtu,
            carrier: None,
            counters: Counters::default(),
            failures: 0,
        })
    }

    /// Continues with the queues of a port that was opened again.
    fn replace(&mut self, queues: Vec<Queues>, interrupt: Option<ReceiveInterrupt>) {
        for of_port in queues {
            let pairs = of_port.receive.into_iter().zip(of_port.transmit);
            for (receive, transmit) in pairs {
                (self.receive, self.transmit) = (receive, transmit);
            }
        }
        self.interrupt = interrupt;
        self.counters.recoveries += 1;
    }

    /// Sleeps until a frame comes from either side, at most until `end`. Signals end it, too.
    fn sleep(&mut self, end: Instant) {
        let limit = end.saturating_duration_since(Instant::now());
        let Some(interrupt) = &self.interrupt else {
            std::thread::sleep(IDLE.min(limit));
            return;
        };
        match self.receive.arm() {
            Ok(Arming::Armed) => {}
            Ok(Arming::PollAgain) => return,
            // The device is being recovered: only the kernel has frames.
            Err(_) => return wait_for(&[self.wire.descriptor()], limit),
        }
        wait_for(&[self.wire.descriptor(), interrupt.as_fd()], limit);
        // An error is one of the device, which supervision sees.
        let _ = interrupt.take();
        if self.receive.has_packets() {
            let _ = self.receive.disarm();
        }
    }

    /// Shows the kernel if the port can carry frames. An old kernel refuses: the
    /// interface then always has a carrier.
    fn set_carrier(&mut self, up: bool) {
        if self.carrier != Some(up) {
            self.carrier = Some(up);
            let _ = self.wire.set_carrier(up);
        }
    }

    /// A burst each way; returns how many frames there were.
    fn round(&mut self) -> Result<usize, Failure> {
        Ok(self.send_to_kernel() + self.send_to_wire()?)
    }

    fn send_to_kernel(&mut self) -> usize {
        let count = self.receive.receive(&mut self.burst);
        if let Some(mirror) = &self.mirror {
            mirror.copy(0, Direction::Received, self.burst.packets());
        }
        for packet in self.burst.packets() {
            if !is_of(self.vlan, packet) {
                self.counters.other_vlan += 1;
                continue;
            }
            let length = packet.length();
            let way = &mut self.counters.to_kernel;
            let Some(frame) = self.frame.get_mut(..length) else {
                way.dropped += 1;
                continue;
            };
            if !packet.read(0, frame) {
                way.dropped += 1;
                continue;
            }
            match self.wire.send(frame) {
                Sent::Gone => {
                    way.packets += 1;
                    way.bytes += length as u64;
                }
                Sent::NoRoom | Sent::NoPeer | Sent::Refused => way.dropped += 1,
            }
        }
        self.burst.clear();
        count
    }

    fn send_to_wire(&mut self) -> Result<usize, Failure> {
        let mut count = 0;
        while count < BURST {
            let length = match self.wire.receive(&mut self.frame) {
                Received::Frame(length) => length,
                Received::Nothing => break,
                Received::Failed => {
                    self.failures += 1;
                    if self.failures < MAX_FAILURES {
                        break;
                    }
                    return Err(Failure::operation(anyhow!(
                        "the kernel's interface is gone: it was removed; start the command again"
                    )));
                }
            };
            self.failures = 0;
            count += 1;
            let frame = self.frame.get(..length).unwrap_or_default();
            if is_too_long(frame, self.mtu) {
                self.counters.too_long += 1;
                continue;
            }
            let Some(mut packet) = self.transmit.pool().packet_with(frame) else {
                self.transmit.reclaim();
                self.counters.to_wire.dropped += 1;
                continue;
            };
            packet.set_vlan(self.vlan);
            if self.burst.push(packet).is_err() {
                break;
            }
        }
        self.send();
        Ok(count)
    }

    fn send(&mut self) {
        if self.burst.is_empty() {
            return;
        }
        let before = *self.transmit.counters();
        let offered = self.burst.len();
        let copies = self
            .mirror
            .as_ref()
            .map(|mirror| mirror.take(0, Direction::Sent, self.burst.packets()));
        self.transmit.send(&mut self.burst);
        self.burst.clear();
        let after = self.transmit.counters();
        let sent = after.packets - before.packets;
        if let (Some(mirror), Some(copies)) = (&self.mirror, copies) {
            mirror.give(copies, sent as usize);
        }
        let way = &mut self.counters.to_wire;
        way.packets += sent;
        way.bytes += after.bytes - before.bytes;
        way.dropped += offered as u64 - sent;
    }
}

/// Sleeps until one of the descriptors is readable, or a signal came.
fn wait_for(descriptors: &[BorrowedFd<'_>], limit: Duration) {
    let limit = Timespec {
        tv_sec: limit.as_secs() as i64,
        tv_nsec: limit.subsec_nanos().into(),
    };
    let mut waited: Vec<_> = descriptors
        .iter()
        .map(|descriptor| PollFd::from_borrowed_fd(*descriptor, PollFlags::IN))
        .collect();
    let _ = poll(&mut waited, Some(&limit));
}

/// True if a packet is of the interface's VLAN. Without a VLAN every packet is.
fn is_of(vlan: Option<u16>, packet: &Packet) -> bool {
    vlan.is_none() || packet.vlan().map(|tag| tag & VLAN_BITS) == vlan
}

/// True if the payload of a frame is longer than the MTU. Tags are no payload.
fn is_too_long(frame: &[u8], mtu: usize) -> bool {
    let kind_at = |at: usize| frame.get(at..).and_then(<[u8]>::first_chunk::<2>);
    let is_tag = |tag: &usize| {
        let kind = kind_at(HEADER_BYTES - 2 + tag * TAG_BYTES);
        kind.is_some_and(|kind| TAG_TYPES.contains(kind))
    };
    let tags = (0..MAX_TAGS).take_while(is_tag).count();
    frame.len() > mtu + HEADER_BYTES + tags * TAG_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_are_no_part_of_the_mtu() {
        let frame = |tags: usize, payload: usize| {
            let mut frame = vec![0; 12];
            for _ in 0..tags {
                frame.extend([0x81, 0, 0, 100]);
            }
            frame.extend([8, 0]);
            frame.resize(frame.len() + payload, 0);
            frame
        };
        for tags in 0..=MAX_TAGS {
            assert!(!is_too_long(&frame(tags, 1500), 1500), "{tags} tags");
            assert!(is_too_long(&frame(tags, 1501), 1500), "{tags} tags");
        }
        assert!(!is_too_long(&[], 1500));
    }
}
