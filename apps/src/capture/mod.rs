//! `ringside capture`: packets of a port into a file.

mod filter;
mod own;
mod pcapng;
mod sink;

use crate::failure::Failure;
use crate::interrupt::{self, MAX_SECONDS};
use crate::mirror::{Copied, Direction, GREETING};
use crate::open::open;
use crate::outfile::{OutFile, Prepared, no_reader};
use crate::output::stdout;
use crate::patience::seen;
use crate::supervised::Brought;
use anyhow::anyhow;
use clap::{Args, ValueEnum};
use filter::Filter;
use own::Own;
use pcapng::Interface;
use ringside_bus::DeviceAddress;
use ringside_config::Config;
use ringside_spec::lan::limits::MAX_FRAME_BYTES;
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
Wireshark and tshark read it. With \"--write -\" it goes to standard output, and the summary to \
standard error.

A device that fails is recovered, and its port opened again. One that takes no reset for 5 s is gone: the \
command ends. \"lost\" are the packets that the device had no free descriptor for (rx_dropped) or \
the receive queue dropped; with --attach, the packets received or sent for whose copies there was no buffer \
while this capture was attached. What was captured is in the file after a second at most, and after SIGINT, SIGTERM or SIGHUP. The file may be \
a FIFO: the capture begins when it has a reader. A reader that does not read for a second after a signal is \
given up, and the exit code is 1.

A filter is written in tcpdump's words:
  arp ip ip6 tcp udp sctp icmp icmp6, vlan [ID], [src|dst] host ADDRESS, [src|dst] port NUMBER,
  ether host|src|dst MAC, ether proto TYPE, greater BYTES, less BYTES; and, or, not, parentheses
\"and\" and \"or\" bind equally, from left to right: \"udp or ip and port 80\" is \"(udp or ip) and port 80\". \
TYPE is decimal, or hexadecimal after 0x. A host is also one of ARP. Unlike in tcpdump, all words look behind \
VLAN tags.

Examples:
  ringside forward --device model:0 --device model:1 --mode txonly,rxonly --mirror /run/ports.sock
  ringside capture --attach /run/ports.sock --write x.pcapng --count 100 'udp and port 9'
  ringside capture --device 0000:3b:00.0 --write - | tshark -r -

Exit codes: 0 done, 1 an operation failed or the device is gone, 2 wrong arguments, 3 the device could \
not be opened, 130 interrupted before a limit was reached, 141 standard output was closed.";

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
    #[arg(short = 's', long, value_name = "BYTES", default_value_t = MAX_FRAME_BYTES.into(), value_parser = clap::value_parser!(u32).range(14..=i64::from(MAX_FRAME_BYTES)))]
    snap_length: u32,
    /// Seconds to run [default: until interrupted, or a limit is reached]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=MAX_SECONDS))]
    duration: Option<u64>,
    /// Time stamps of the device's clock, taken at the arrival, in place of the time of day
    #[arg(long, conflicts_with = "attach")]
    device_time: bool,
    /// Packets that a running program received, sent, or both [default: both]
    #[arg(long, value_enum, requires = "attach")]
    direction: Option<Wanted>,
    /// Tell the totals as JSON
    #[arg(long)]
    json: bool,
    /// Packets that are wanted [default: all]
    #[arg(value_name = "FILTER")]
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
    /// copies that the running program had no room for; of a port of its own: packets that the
    /// device or the queue dropped
    lost: u64,
    /// packets that the device did not stamp; nothing without --device-time
    #[serde(skip_serializing_if = "Option::is_none")]
    unstamped: Option<u64>,
    ended_by: &'static str,
}

/// A capture that has ended.
struct Captured {
    told: Told,
    end: Result<End, Failure>,
}

impl Captured {
    /// Completes the file. Errors: that of the capture, if the file cannot be completed either.
    fn finish(
        sink: Sink,
        lost: u64,
        unstamped: Option<u64>,
        end: Result<End, Failure>,
    ) -> Result<Self, Failure> {
        match sink.finish() {
            Ok(totals) => Ok(Self {
                told: Told {
                    totals,
                    lost,
                    unstamped,
                    ended_by: end.as_ref().map_or("a failure", |end| end.name()),
                },
                end,
            }),
            Err(error) => Err(end.err().unwrap_or_else(|| error.into())),
        }
    }
}

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
    let captured = match &options.attach {
        Some(path) => attach(options, path, filter, limits)?,
        None => own_port(options, config, filter, limits)?,
    };
    tell(options, &captured.told)?;
    let has_limit = options.count.is_some() || options.size.is_some() || options.duration.is_some();
    match captured.end? {
        End::Interrupted if has_limit => Err(Failure::interrupted()),
        _ => Ok(()),
    }
}

/// Refuses a bound of the file's size that its headers exceed.
fn check_size(limits: &Limits, interfaces: &[Interface]) -> Result<(), Failure> {
    let smallest = Sink::header_bytes(interfaces, limits.snap_length)?;
    match limits.bytes {
        Some(bytes) if bytes < smallest => Err(Failure::usage(anyhow!(
            "--size {bytes}: the headers of this file have {smallest} bytes; choose {smallest} or more"
        ))),
        _ => Ok(()),
    }
}

/// A file that names itself in its errors.
struct NamedFile {
    file: OutFile,
    path: PathBuf,
}

impl NamedFile {
    fn told(&self, error: io::Error) -> io::Error {
        let kind = error.kind();
        if kind == ErrorKind::Interrupted {
            return error;
        }
        let path = self.path.display();
        let remedy = match kind {
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => {
                "free some room there, or bound the file with --size"
            }
            ErrorKind::FileTooLarge => "bound the file with --size",
            ErrorKind::TimedOut => "the file is not whole",
            _ => "name a file that can be written",
        };
        io::Error::new(kind, format!("--write {path}: {error}; {remedy}"))
    }
}

impl Write for NamedFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes).map_err(|error| self.told(error))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush().map_err(|error| self.told(error))
    }
}

/// The file, or standard output, before the capture begins.
enum Output {
    Standard,
    File { file: Prepared, path: PathBuf },
}

impl Output {
    /// Checks the file; waits for the reader of a FIFO.
    fn prepare(path: &Path) -> Result<Self, Failure> {
        if path == Path::new("-") {
            return Ok(Self::Standard);
        }
        let file = Prepared::new(path, seen).map_err(|error| not_made(path, &error))?;
        let path = path.to_owned();
        Ok(Self::File { file, path })
    }

    /// Creates the file, or truncates it.
    fn begin(self) -> Result<Box<dyn Write>, Failure> {
        let out: Box<dyn Write> = match self {
            Self::Standard => Box::new(stdout()),
            Self::File { file, path } => {
                let file = file.begin().map_err(|error| not_made(&path, &error))?;
                Box::new(NamedFile { file, path })
            }
        };
        Ok(Box::new(io::BufWriter::with_capacity(1 << 16, out)))
    }
}

fn not_made(path: &Path, error: &io::Error) -> Failure {
    no_reader(path, error).unwrap_or_else(|| {
        Failure::usage(anyhow!(
            "--write {}: {error}; name a file that can be made",
            path.display()
        ))
    })
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
) -> Result<Captured, Failure> {
    let shown = path.display();
    let stream = UnixStream::connect(path).map_err(|error| {
        Failure::claim(anyhow!(
            "--attach {shown}: {error}; start a program with --mirror {shown}, such as `ringside forward`"
        ))
    })?;
    let (mut from, names) = greeting(stream, &limits, &shown.to_string())?;
    let interfaces: Vec<Interface> = names.iter().map(|name| name.as_str().into()).collect();
    check_size(&limits, &interfaces)?;
    let out = Output::prepare(&options.write)?;
    let mut sink = Sink::new(out.begin()?, &interfaces, filter, limits)?;
    let mut lost = 0;
    let broken = |error| Failure::operation(anyhow!("--attach {shown}: {error}"));
    let end = copies(
        options.direction.unwrap_or(Wanted::Both),
        &mut from,
        &mut sink,
        &mut lost,
        broken,
    );
    Captured::finish(sink, lost, None, end)
}

/// Writes the copies that a mirror sends.
fn copies(
    direction: Wanted,
    from: &mut BufReader<Patient>,
    sink: &mut Sink,
    lost: &mut u64,
    broken: impl Fn(io::Error) -> Failure,
) -> Result<End, Failure> {
    let mut copy = Copied::empty();
    loop {
        if let Some(end) = sink.end() {
            return Ok(end);
        }
        if !has_more(from).map_err(&broken)? {
            sink.flush()?;
            continue;
        }
        sink.flush_if_due()?;
        match copy.read(from) {
            Ok(true) => {}
            Ok(false) => return Ok(End::PeerGone),
            Err(error) if error.kind() == ErrorKind::TimedOut => return Ok(sink.end_of_time()),
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(End::PeerGone),
            Err(error) => return Err(broken(error)),
        }
        *lost = copy.lost;
        if direction.takes(copy.direction) {
            sink.take(&copy)?;
        }
    }
}

/// Waits a little for bytes or the end of the stream; false if neither came.
fn has_more(from: &mut BufReader<Patient>) -> io::Result<bool> {
    from.get_mut().patience = Patience::Once;
    let filled = from.fill_buf().map(|_| true);
    from.get_mut().patience = Patience::ToTheEnd;
    match filled {
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
            Ok(false)
        }
        other => other,
    }
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
        patience: Patience::ToTheEnd,
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

/// The longest wait of a read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Patience {
    /// The read time-out of the stream.
    Once,
    /// Until a signal arrives or the time is over.
    ToTheEnd,
}

/// A stream whose reads wait until something comes, a signal arrives or the time is over.
struct Patient {
    stream: UnixStream,
    end: Option<Instant>,
    patience: Patience,
}

impl Read for Patient {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            // Before each read: a peer that never pauses does not hold the command.
            if interrupt::seen() || self.end.is_some_and(|end| Instant::now() >= end) {
                return Err(ErrorKind::TimedOut.into());
            }
            match self.stream.read(into) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error)
                    if error.kind() == ErrorKind::WouldBlock
                        && self.patience == Patience::ToTheEnd => {}
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
) -> Result<Captured, Failure> {
    let address = options.device.as_ref().unwrap_or(&config.device.address);
    let interfaces = own::interfaces(&address.to_string(), options.device_time);
    check_size(&limits, &interfaces)?;
    let out = Output::prepare(&options.write)?;
    let opened = open(address, config)?;
    let wanted = own::wanted(options.device_time);
    let (mut brought, queues) = Brought::bring_up(opened.function, address, wanted, &[], config)?;
    let mut own = Own::new(queues, options.device_time);
    let sink = out.begin().and_then(|out| {
        let sink = Sink::new(out, &interfaces, filter, limits)?;
        Ok(sink)
    });
    let captured = sink.and_then(|mut sink| {
        let end = own.capture(&mut brought, &mut sink);
        Captured::finish(sink, own.lost(), own.unstamped(), end)
    });
    // Its queues stop while the device is in service.
    drop(own);
    let down = brought.shut_down();
    let mut captured = captured?;
    if let (Ok(_), Err(text)) = (&captured.end, down) {
        captured.end = Err(Failure::operation(anyhow!(text)));
    }
    Ok(captured)
}
