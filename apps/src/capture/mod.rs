//! `ringside capture`: packets of a port into a file.

mod filter;
mod pcapng;
mod sink;

use crate::failure::Failure;
use crate::interrupt::{self, MAX_SECONDS};
use crate::mirror::{Copied, Direction, GREETING, now_ns};
use crate::open::open;
use crate::output::stdout;
use anyhow::anyhow;
use clap::{Args, ValueEnum};
use filter::Filter;
use pcapng::Interface;
use ringside_bus::DeviceAddress;
use ringside_config::Config;
use ringside_lan::{Burst, MAX_BURST, Packet};
use ringside_pmd::lan::port::MAX_MTU;
use ringside_pmd::lan::{OpenPort, Port, PortSettings};
use ringside_pmd::{BringUpOptions, Device};
use serde::Serialize;
use sink::{End, Limits, Sink, Totals};
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const HELP: &str = "\
Two ways to packets:
  --attach PATH   those that a running `ringside forward --mirror PATH` or `ringside tap --mirror PATH`
                  receives and sends. Its ports go on; copies that the capture is too slow for are lost,
                  and counted
  --device        those that a port of this command's own receives: everything on the wire. A device
                  that another program holds cannot be opened

With --device-time the time of each packet is that of its arrival by the device's clock, which counts from \
the start of the device's timer and is not the time of day. Packets that the device does not stamp, because \
they do not come from the wire, are on an interface of their own: their time is the device's when they were \
read. A device without a timer is refused.

The file is pcapng with nanoseconds, an interface for each port, and the direction of each packet:
Wireshark and tshark read it. With \"--write -\" it goes to standard output, and what is told to \
standard error.

A filter is written in tcpdump's words:
  arp ip ip6 tcp udp sctp icmp icmp6, vlan [ID], [src|dst] host ADDRESS, [src|dst] port NUMBER,
  ether host|src|dst MAC, ether proto TYPE, greater BYTES, less BYTES; and, or, not, parentheses

Examples:
  ringside forward --device model:0 --device model:1 --mode txonly,rxonly --mirror /run/ports.sock
  ringside capture --attach /run/ports.sock --write x.pcapng --count 100 'udp and port 9'
  ringside capture --device 0000:3b:00.0 --write - | tshark -r -

Exit codes: 0 done, 1 an operation failed, 2 wrong arguments, 3 the device could not be opened, 130 \
interrupted before a limit was reached, 141 standard output was closed.";

/// The longest wait for the greeting of a mirror.
const GREETING_WAIT: Duration = Duration::from_secs(5);
/// The longest line of a greeting: the names of the ports.
const GREETING_BYTES: u64 = 1 << 16;

#[derive(Args, Debug)]
#[command(after_help = HELP)]
pub(crate) struct Options {
    /// Device to open [default: the configuration's]
    #[arg(long, value_name = "ADDRESS", conflicts_with = "attach")]
    device: Option<DeviceAddress>,
    /// Socket of a running program's mirror
    #[arg(long, value_name = "PATH")]
    attach: Option<PathBuf>,
    /// File to write; "-" is standard output
    #[arg(short = 'w', long, value_name = "FILE")]
    write: PathBuf,
    /// Packets to write at most
    #[arg(short = 'c', long, value_name = "COUNT")]
    count: Option<u64>,
    /// Bytes of the file at most
    #[arg(long, value_name = "BYTES")]
    size: Option<u64>,
    /// Bytes of a packet that are written
    #[arg(short = 's', long, value_name = "BYTES", default_value_t = 9728, value_parser = clap::value_parser!(u32).range(14..=9728))]
    snap_length: u32,
    /// Seconds to run [default: until interrupted, or a limit is reached]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(..=MAX_SECONDS))]
    duration: Option<u64>,
    /// Time stamps of the device's clock, taken at the arrival, in place of the time of day
    #[arg(long, conflicts_with = "attach")]
    device_time: bool,
    /// Packets that a running program received, sent, or both
    #[arg(long, value_enum, default_value = "both")]
    direction: Wanted,
    /// Tell the totals as JSON
    #[arg(long)]
    json: bool,
    /// Packets that are wanted [default: all]
    #[arg(value_name = "FILTER", trailing_var_arg = true)]
    filter: Vec<String>,
}

#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
enum Wanted {
    /// Received
    In,
    /// Sent
    Out,
    Both,
}

impl Wanted {
    fn takes(self, direction: Direction) -> bool {
        match self {
            Self::Both => true,
            Self::In => direction == Direction::Received,
            Self::Out => direction == Direction::Sent,
        }
    }
}

/// The totals of the report.
#[derive(Serialize)]
struct Told {
    #[serde(flatten)]
    totals: Totals,
    /// copies that the running program had no room for
    lost: u64,
    /// packets that the device did not stamp; nothing without --device-time
    #[serde(skip_serializing_if = "Option::is_none")]
    unstamped: Option<u64>,
    ended_by: &'static str,
}

/// The interfaces of a capture with --device-time: of packets that the device has stamped, and not.
const STAMPED: u16 = 0;
const UNSTAMPED: u16 = 1;
/// Between two looks at the device's clock: a time stamp is completed by one of the last 2.1 s.
const CLOCK_EVERY: Duration = Duration::from_secs(1);

pub(crate) fn run(options: &Options, config: &Config) -> Result<(), Failure> {
    let filter = options.filter.join(" ").parse::<Filter>();
    let filter = filter.map_err(|text| Failure::usage(anyhow!("filter: {text}")))?;
    interrupt::catch()?;
    let end = options
        .duration
        .map(|seconds| Instant::now() + Duration::from_secs(seconds));
    let limits = Limits {
        packets: options.count,
        bytes: options.size,
        snap_length: options.snap_length as usize,
        end,
    };
    let (told, end) = match &options.attach {
        Some(path) => attach(options, path, filter, limits)?,
        None => own_port(options, config, filter, limits)?,
    };
    tell(options, &told)?;
    match end {
        End::Interrupted if options.count.is_some() || options.duration.is_some() => {
            Err(Failure::interrupted())
        }
        _ => Ok(()),
    }
}

/// The file, or standard output.
fn output(path: &Path) -> Result<Box<dyn Write>, Failure> {
    if path == Path::new("-") {
        return Ok(Box::new(stdout()));
    }
    let file = std::fs::File::create(path).map_err(|error| {
        Failure::usage(anyhow!(
            "--write {}: {error}; name a file that can be made",
            path.display()
        ))
    })?;
    Ok(Box::new(io::BufWriter::with_capacity(1 << 16, file)))
}

fn tell(options: &Options, told: &Told) -> Result<(), Failure> {
    let text = match options.json {
        true => serde_json::to_string(told).map_err(io::Error::from)?,
        false => {
            let Totals {
                seen,
                unwanted,
                packets,
                bytes,
            } = told.totals;
            let lost = told.lost;
            let end = told.ended_by;
            let stamps = match told.unstamped {
                Some(count) => format!(", {count} without a time stamp of the device"),
                None => String::new(),
            };
            format!(
                "{packets} packets written, {bytes} bytes; {seen} seen, {unwanted} not selected, \
                 {lost} lost{stamps}; ended by {end}"
            )
        }
    };
    if options.write == Path::new("-") {
        let _ = writeln!(io::stderr(), "{text}");
        return Ok(());
    }
    Ok(writeln!(stdout(), "{text}")?)
}

/// Captures the copies of a running program.
fn attach(
    options: &Options,
    path: &Path,
    filter: Filter,
    limits: Limits,
) -> Result<(Told, End), Failure> {
    let shown = path.display();
    let stream = UnixStream::connect(path).map_err(|error| {
        Failure::claim(anyhow!(
            "--attach {shown}: {error}; start a program with --mirror {shown}, such as `ringside forward`"
        ))
    })?;
    let (mut from, names) = greeting(stream, &limits, &shown.to_string())?;
    let interfaces: Vec<Interface> = names.iter().map(|name| name.as_str().into()).collect();
    let mut sink = Sink::new(output(&options.write)?, &interfaces, filter, limits)?;
    let mut copy = Copied::empty();
    let mut lost = 0;
    let end = loop {
        if let Some(end) = sink.end() {
            break end;
        }
        match copy.read(&mut from) {
            Ok(true) => {}
            Ok(false) => break End::PeerGone,
            Err(error) if error.kind() == ErrorKind::TimedOut => break sink.end_of_time(),
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => break End::PeerGone,
            Err(error) => return Err(Failure::operation(anyhow!("--attach {shown}: {error}"))),
        }
        lost = copy.lost;
        if options.direction.takes(copy.direction) {
            sink.take(&copy)?;
        }
    };
    Ok((told(sink.finish()?, lost, end), end))
}

/// Waits for the greeting of a mirror; returns the stream of copies behind it, and the names of its
/// ports.
fn greeting(
    stream: UnixStream,
    limits: &Limits,
    shown: &str,
) -> Result<(BufReader<Patient>, Vec<String>), Failure> {
    // A waiting read ends ten times a second, to check for signals and for the end.
    stream.set_read_timeout(Some(Duration::from_millis(100)))?;
    let began = Instant::now();
    let latest = began + GREETING_WAIT;
    let end = limits.end.map_or(latest, |end| end.min(latest));
    let patient = Patient {
        stream,
        end: Some(end),
    };
    let mut from = BufReader::with_capacity(1 << 16, patient);
    let mut line = || {
        let mut line = String::new();
        let read = from.by_ref().take(GREETING_BYTES).read_line(&mut line);
        match read {
            Ok(_) => Ok(line),
            Err(_) if interrupt::seen() => Err(Failure::interrupted()),
            Err(error) if error.kind() == ErrorKind::TimedOut => Err(Failure::claim(anyhow!(
                "--attach {shown}: no greeting within {:.0} s: another capture is attached, or that is no \
                 mirror; a mirror serves one capture at a time",
                end.saturating_duration_since(began).as_secs_f64()
            ))),
            Err(error) => Err(Failure::claim(anyhow!("--attach {shown}: {error}"))),
        }
    };
    let first = line()?;
    if first.trim_end() != GREETING {
        let first: String = first.chars().take(80).collect();
        return Err(Failure::claim(anyhow!(
            "--attach {shown}: that is no mirror of this version of ringside: it sends {first:?}"
        )));
    }
    let names = line()?;
    let names = serde_json::from_str(&names).map_err(io::Error::from)?;
    from.get_mut().end = limits.end;
    Ok((from, names))
}

const fn told(totals: Totals, lost: u64, end: End) -> Told {
    Told {
        totals,
        lost,
        unstamped: None,
        ended_by: end.name(),
    }
}

/// A stream whose reads wait until something comes, a signal arrives or the time is over.
struct Patient {
    stream: UnixStream,
    end: Option<Instant>,
}

impl Read for Patient {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            // Before each read: a peer that never pauses does not hold the command.
            if interrupt::seen() || self.end.is_some_and(|end| Instant::now() >= end) {
                return Err(ErrorKind::TimedOut.into());
            }
            match self.stream.read(into) {
                Err(error)
                    if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
                other => return other,
            }
        }
    }
}

/// Captures the packets that a port of our own receives.
fn own_port(
    options: &Options,
    config: &Config,
    filter: Filter,
    limits: Limits,
) -> Result<(Told, End), Failure> {
    let address = options.device.as_ref().unwrap_or(&config.device.address);
    let out = output(&options.write)?;
    let opened = open(address, config)?;
    let device = Device::bring_up(opened.function, config, BringUpOptions::default())
        .map_err(|error| Failure::claim(anyhow!("{error}")))?;
    let settings = PortSettings {
        promiscuous: true,
        mtu: MAX_MTU,
        time_stamps: options.device_time,
        ..PortSettings::default()
    };
    let port = device
        .open_port(&settings)
        .map_err(|error| Failure::claim(anyhow!("{address}: {error}")))?;
    let interfaces = interfaces(&address.to_string(), options.device_time);
    let captured = Sink::new(out, &interfaces, filter, limits)
        .map_err(Failure::from)
        .and_then(|sink| receive(sink, port, options.device_time));
    let down = device.shutdown();
    let captured = captured?;
    match down.failures.first() {
        Some(failure) => Err(Failure::operation(anyhow!("{failure}"))),
        None => Ok(captured),
    }
}

/// The interfaces of a port's file.
fn interfaces(name: &str, device_time: bool) -> Vec<Interface> {
    if !device_time {
        return vec![name.into()];
    }
    vec![
        Interface {
            name: name.to_owned(),
            description: "time of the device's clock at the arrival; not the time of day",
        },
        Interface {
            name: format!("{name} unstamped"),
            description: "not stamped by the device: time of its clock when the packet was read",
        },
    ]
}

/// The times of packets: those of the device, or the time of day at which they are read.
struct Times<'a> {
    /// the port whose clock it is
    device: Option<&'a Port>,
    read: Instant,
    unstamped: u64,
}

impl<'a> Times<'a> {
    fn new(device: Option<&'a Port>) -> Self {
        Self {
            device,
            read: Instant::now(),
            unstamped: 0,
        }
    }

    /// Reads the device's clock once a second, so that its time stamps can be completed.
    fn refresh(&mut self) -> Result<(), Failure> {
        if let Some(port) = self.device
            && self.read.elapsed() >= CLOCK_EVERY
        {
            device_time(port)?;
            self.read = Instant::now();
        }
        Ok(())
    }

    /// Sets time and interface of a copy.
    fn set(&mut self, copy: &mut Copied, packet: &Packet, now_ns: u64) -> Result<(), Failure> {
        copy.time_ns = now_ns;
        let Some(port) = self.device else {
            return Ok(());
        };
        (copy.time_ns, copy.port) = match packet.timestamp() {
            Some(stamp) => (stamp, STAMPED),
            None => {
                self.unstamped += 1;
                (device_time(port)?, UNSTAMPED)
            }
        };
        Ok(())
    }
}

fn device_time(port: &Port) -> Result<u64, Failure> {
    let read = port.device_time();
    read.map_err(|error| Failure::operation(anyhow!("the device's clock: {error}")))
}

fn receive(mut sink: Sink, mut open: OpenPort, stamps: bool) -> Result<(Told, End), Failure> {
    let mut times = Times::new(stamps.then_some(&open.port));
    let mut copy = Copied::empty();
    let mut burst = Burst::with_limit(MAX_BURST);
    let end = loop {
        if let Some(end) = sink.end() {
            break end;
        }
        times.refresh()?;
        let mut count = 0;
        for queue in &mut open.receive {
            count += queue.receive(&mut burst);
        }
        let now_ns = now_ns();
        let taken = burst.packets().iter().try_for_each(|packet| {
            if sink.end().is_some() {
                return Ok(());
            }
            times.set(&mut copy, packet, now_ns)?;
            copy.fill(packet);
            Ok::<_, Failure>(sink.take(&copy)?)
        });
        burst.clear();
        taken?;
        if count == 0 {
            sink.flush()?;
            std::thread::sleep(Duration::from_micros(100));
        }
    };
    let lost = open
        .receive
        .iter()
        .map(|queue| queue.counters().no_buffers)
        .sum();
    let told = Told {
        totals: sink.finish()?,
        lost,
        unstamped: stamps.then_some(times.unstamped),
        ended_by: end.name(),
    };
    Ok((told, end))
}
