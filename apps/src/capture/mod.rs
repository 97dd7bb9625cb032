//! `ringside capture`: packets of a port into a file.

mod attached;
mod filter;
mod own;
mod pcapng;
mod sink;

use crate::failure::Failure;
use crate::interrupt::{self, MAX_SECONDS};
use crate::open::open;
use crate::outfile::{OutFile, Prepared, no_reader};
use crate::output::stdout;
use crate::patience::seen;
use crate::supervised::Brought;
use anyhow::anyhow;
use attached::{Attached, Broken, Wanted};
use clap::Args;
use filter::Filter;
use own::Own;
use pcapng::Interface;
use ringside_bus::DeviceAddress;
use ringside_config::Config;
use ringside_spec::lan::limits::MAX_FRAME_BYTES;
use serde::Serialize;
use sink::{End, Limits, Sink, Totals};
use std::io::{self, ErrorKind, Write};
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
the receive queue dropped; with --attach, the packets of --direction for whose copies there was no buffer \
while this capture was attached, up to its end, or with --count and --size up to the last packet of each direction. A capture that takes nothing for a second is given up by \
the other program: it ends with exit code 1, as after a kill of that program. What was captured is in the file after a second at most, and after SIGINT, SIGTERM or SIGHUP. The file may be \
a FIFO: the capture begins when it has a reader. A reader that does not read for a second after a signal is \
given up, and the exit code is 1.

A filter is written in tcpdump's words:
  arp ip ip6 tcp udp sctp icmp icmp6, vlan [ID], [src|dst] host ADDRESS, [src|dst] port NUMBER,
  ether host|src|dst MAC, ether proto TYPE, greater BYTES, less BYTES; and, or, not, parentheses
\"and\" and \"or\" bind equally, from left to right: \"udp or ip and port 80\" is \"(udp or ip) and port 80\". \
TYPE is decimal, or hexadecimal after 0x. A host is also one of ARP. Unlike in tcpdump, all words look behind \
VLAN tags and the extension headers of IPv6.

Examples:
  ringside forward --device model:0 --device model:1 --mode txonly,rxonly --mirror /run/ports.sock
  ringside capture --attach /run/ports.sock --write x.pcapng --count 100 'udp and port 9'
  ringside capture --device 0000:3b:00.0 --write - | tshark -r -

Exit codes: 0 done, 1 an operation failed or the device is gone, 2 wrong arguments, 3 the device could \
not be opened, 130 interrupted before a limit was reached, 141 standard output was closed.";

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
    let (mut attached, names) = Attached::greeted(stream, &limits, &shown.to_string())?;
    let interfaces: Vec<Interface> = names.iter().map(|name| name.as_str().into()).collect();
    check_size(&limits, &interfaces)?;
    let out = Output::prepare(&options.write)?;
    let mut sink = Sink::new(out.begin()?, &interfaces, filter, limits)?;
    let wanted = options.direction.unwrap_or(Wanted::Both);
    let end = attached.capture(wanted, &mut sink);
    let end = end.map_err(|failure| match failure {
        Broken::Mirror(error) => Failure::operation(anyhow!("--attach {shown}: {error}")),
        Broken::File(error) => error.into(),
    });
    Captured::finish(sink, attached.lost(wanted), None, end)
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
