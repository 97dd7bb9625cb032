//! `ringside forward`: packets through ports, in the modes and words of DPDK's testpmd.

mod interactive;
mod mode;
mod observed;
mod packets;
mod statistics;
mod worker;

use crate::failure::Failure;
use crate::interrupt::{self, MAX_SECONDS};
use crate::mac::Mac;
use crate::mirror::{Mirror, MirrorServer};
use crate::open::{Cores, Opened, model_function, open, start_model};
use crate::rule::Rule;
use anyhow::anyhow;
use clap::Args;
pub(crate) use mode::Mode;
use ringside_bus::{DeviceAddress, Function};
use ringside_config::Config;
use ringside_lan::{PacketPath, PoolSettings};
use ringside_model::Threaded;
use ringside_pmd::lan::port::{MAX_MTU, MTU_MIN};
use ringside_pmd::lan::{OpenPort, Port, PortSettings};
use ringside_pmd::{BringUpOptions, Device};
use statistics::{Report, Shared};
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use worker::Worker;

const HELP: &str = "\
Ports are paired as testpmd pairs them: the first with the second, the third with the fourth; one port \
alone forwards to itself. Each queue has a thread of its own, which serves that queue of every port.

The report of each port: packets and bits a second, packets that were dropped, and the share of polls \
that found nothing. Near 0 % the thread is the bottleneck, near 100 % the wire. With --json each report \
is one line, of kind interval or total.

Drops follow by queue and cause, where there are any: bad_length, bad_profile, chain_too_long (received, \
malformed); too_short, too_long, too_many_segments, no_buffers (refused by the transmit queue); mode (not \
sent in this mode); queue_full (no room in the other port's transmit queue); out_of_service. Then those of \
the device, as `ringside port -S` names them: rx_dropped is for want of a receive descriptor. A queue that \
the device stopped as malicious is named.

Examples:
  ringside forward --device model:0 --device model:1 --mode txonly,rxonly --duration 5
  ringside forward --device 0000:3b:00.0 --device 0000:3b:00.1 --mode macswap --queues 4
  ringside forward --mode icmp-echo --interactive

Ctrl-C ends it and shows the totals. Exit codes: 0 done, 1 an operation failed, 2 wrong arguments, 3 a \
device could not be opened, 4 the built-in model saw its interface broken, 130 interrupted before \
--duration was over, 141 standard output was closed.";

#[derive(Args, Debug)]
#[command(after_help = HELP)]
pub(crate) struct Options {
    /// Device of a port; give it once for each [default: the configuration's device]
    #[arg(long, value_name = "ADDRESS")]
    device: Vec<DeviceAddress>,
    /// Forwarding mode: one for all ports, or one for each
    #[arg(
        long,
        value_enum,
        value_name = "MODE,...",
        value_delimiter = ',',
        default_value = "io"
    )]
    mode: Vec<Mode>,
    /// Receive and transmit queues of each port, and threads
    #[arg(long, value_name = "COUNT", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=64))]
    queues: u8,
    /// Packets of a burst
    #[arg(long, value_name = "COUNT", default_value_t = 32, value_parser = clap::value_parser!(u8).range(1..=64))]
    burst: u8,
    /// Descriptors of a receive ring
    #[arg(long, value_name = "COUNT", default_value_t = 1024)]
    rxd: u16,
    /// Descriptors of a transmit ring
    #[arg(long, value_name = "COUNT", default_value_t = 1024)]
    txd: u16,
    /// Largest payload of a frame, bytes
    #[arg(long, value_name = "BYTES", default_value_t = 1500)]
    mtu: u16,
    /// Instructions of the queues: scalar, avx2 or avx512 [default: RINGSIDE_PACKET_PATH, else
    /// avx2 where the processor has it]
    #[arg(long, value_name = "PATH", value_parser = packet_path)]
    packet_path: Option<PacketPath>,
    /// Bytes of a packet that txonly and flowgen send, without frame check sequence
    #[arg(long, value_name = "BYTES", default_value_t = 60, value_parser = clap::value_parser!(u16).range(60..=9724))]
    txpkts: u16,
    /// Different flows that flowgen sends
    #[arg(long, value_name = "COUNT", default_value_t = 1024, value_parser = clap::value_parser!(u32).range(1..=65536))]
    flows: u32,
    /// Destination of the packets of mac, txonly and flowgen; give it once for each port [default: the paired port's own]
    #[arg(long, value_name = "MAC")]
    eth_peer: Vec<Mac>,
    /// Receive only packets to the port's own address and to its groups
    #[arg(long)]
    no_promiscuous: bool,
    /// Rule for every port, such as 'tcp4 dst-port 80 action 3'; give it once for each. The words are
    /// those of `ringside port --help`
    #[arg(long, value_name = "RULE")]
    rule: Vec<Rule>,
    /// Count the packets that the device stamps, and show the device's time of the first and the last
    #[arg(long, conflicts_with = "interactive")]
    device_time: bool,
    /// Let `ringside capture --attach PATH` see what the ports receive and send
    #[arg(long, value_name = "PATH")]
    mirror: Option<PathBuf>,
    /// Seconds to run [default: until interrupted]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(..=MAX_SECONDS))]
    duration: Option<u64>,
    /// Seconds between reports; 0: only at the end
    #[arg(long, value_name = "SECONDS", default_value_t = 1, value_parser = clap::value_parser!(u64).range(..=MAX_SECONDS))]
    stats_period: u64,
    /// Cores of the threads
    #[arg(long, value_name = "CORE,...", value_delimiter = ',')]
    cores: Vec<usize>,
    /// Take commands from standard input; "help" lists them
    #[arg(short, long)]
    interactive: bool,
    /// Reports as JSON, one object a line
    #[arg(long)]
    json: bool,
}

/// Between two looks at the device's clock: a time stamp is completed by one of the last 2.1 s.
const CLOCK_EVERY: Duration = Duration::from_secs(1);

/// A port with its device. Order of fields is order of dropping.
struct Brought {
    open: OpenPort,
    device: Device,
    address: DeviceAddress,
}

fn packet_path(name: &str) -> Result<PacketPath, String> {
    let path = PacketPath::from_name(name);
    path.ok_or_else(|| "name one of scalar, avx2 and avx512".to_owned())
}

pub(crate) fn run(options: &Options, config: &Config) -> Result<(), Failure> {
    let addresses = match options.device.as_slice() {
        [] => std::slice::from_ref(&config.device.address),
        some => some,
    };
    check(options, addresses.len())?;
    interrupt::catch()?;
    let (functions, model) = functions(addresses, config)?;
    let mut ports = Vec::new();
    for (function, address) in functions.into_iter().zip(addresses) {
        ports.push(bring_up(function, address, options, config)?);
    }
    let result = forward(options, &mut ports);
    let down = shut_down(ports);
    result?;
    down?;
    if let Some(model) = model {
        check_breaches(&model, config.model.functions as usize)?;
    }
    match interrupt::seen() && options.duration.is_some() {
        true => Err(Failure::interrupted()),
        false => Ok(()),
    }
}

/// Refuses impossible settings, before any device is touched.
fn check(options: &Options, ports: usize) -> Result<(), Failure> {
    let modes = options.mode.len();
    if modes > 1 && modes != ports {
        return Err(Failure::usage(anyhow!(
            "{modes} modes for {ports} ports: name one, or one for each port"
        )));
    }
    let peers = options.eth_peer.len();
    if peers > ports {
        return Err(Failure::usage(anyhow!(
            "{peers} addresses of --eth-peer for {ports} ports: name one for each port at most"
        )));
    }
    for (flag, count) in [("--rxd", options.rxd), ("--txd", options.txd)] {
        if !(64..=8160).contains(&count) || !count.is_multiple_of(32) {
            return Err(Failure::usage(anyhow!(
                "{flag} {count}: a ring has 64 to 8160 descriptors, a multiple of 32"
            )));
        }
    }
    if !(MTU_MIN..=MAX_MTU).contains(&options.mtu) {
        return Err(Failure::usage(anyhow!(
            "--mtu {}: choose {MTU_MIN} to {MAX_MTU} bytes",
            options.mtu
        )));
    }
    let longest = options.mtu + 14;
    if options.txpkts > longest {
        return Err(Failure::usage(anyhow!(
            "--txpkts {}: a packet of --mtu {} has {longest} bytes at most; raise --mtu",
            options.txpkts,
            options.mtu
        )));
    }
    Ok(())
}

/// Shuts every device down; the first failure is reported after all of them are down.
fn shut_down(ports: Vec<Brought>) -> Result<(), Failure> {
    let mut failed = None;
    for Brought {
        open,
        device,
        address,
    } in ports
    {
        drop(open);
        let down = device.shutdown();
        if let Some(failure) = down.failures.first() {
            failed.get_or_insert_with(|| format!("{address}: {failure}"));
        }
    }
    match failed {
        Some(text) => Err(Failure::operation(anyhow!(text))),
        None => Ok(()),
    }
}

/// Functions, and the built-in model where some are its.
type Functions = (Vec<Arc<dyn Function>>, Option<Threaded>);

/// Opens the functions that the addresses name. Functions of the built-in model are of one model.
fn functions(addresses: &[DeviceAddress], config: &Config) -> Result<Functions, Failure> {
    let mut model = None;
    let mut functions = Vec::new();
    for address in addresses {
        let DeviceAddress::Model(index) = address else {
            let Opened { function, .. } = open(address, config)?;
            functions.push(function);
            continue;
        };
        let running = match &model {
            Some(running) => running,
            None => model.insert(start_model(config, Cores::choose(&[], config))?),
        };
        functions.push(model_function(running, *index)?);
    }
    Ok((functions, model))
}

fn bring_up(
    function: Arc<dyn Function>,
    address: &DeviceAddress,
    options: &Options,
    config: &Config,
) -> Result<Brought, Failure> {
    let device = Device::bring_up(function, config, BringUpOptions::default())
        .map_err(|error| Failure::claim(anyhow!("{error}")))?;
    let queues = u32::from(options.queues);
    let rings = queues * (u32::from(options.rxd) + u32::from(options.txd));
    let settings = PortSettings {
        receive_queues: options.queues.into(),
        transmit_queues: options.queues.into(),
        receive_descriptors: options.rxd,
        transmit_descriptors: options.txd,
        mtu: options.mtu,
        promiscuous: !options.no_promiscuous,
        packet_path: options.packet_path,
        time_stamps: options.device_time,
        pool: PoolSettings {
            // Rings, bursts under way, and the cache of each thread.
            buffers: rings + queues * 512 + 1024,
            ..PoolSettings::default()
        },
        ..PortSettings::default()
    };
    let open = device
        .open_port(&settings)
        .map_err(|error| Failure::claim(anyhow!("{address}: {error}")))?;
    for rule in &options.rule {
        let added = open.port.add_rule(&rule.0);
        added.map_err(|error| Failure::operation(anyhow!("{address}: rule '{rule}': {error}")))?;
    }
    Ok(Brought {
        open,
        device,
        address: address.clone(),
    })
}

fn check_breaches(model: &Threaded, functions: usize) -> Result<(), Failure> {
    for index in 0..functions {
        let breaches = model.with(move |world| world.breaches(index));
        if let Some(breach) = breaches.unwrap_or_default().first() {
            return Err(Failure::wrong(anyhow!("interface broken: {breach:?}")));
        }
    }
    Ok(())
}

fn forward(options: &Options, ports: &mut [Brought]) -> Result<(), Failure> {
    let names: Vec<String> = ports.iter().map(|port| port.address.to_string()).collect();
    let modes = (0..ports.len())
        .map(|port| *options.mode.get(port).unwrap_or(&options.mode[0]))
        .collect();
    let shared = Arc::new(Shared::new(&names, modes, options.queues.into()));
    let mirror = match &options.mirror {
        Some(path) => Some(MirrorServer::start(path, &names)?),
        None => None,
    };
    let tap = mirror.as_ref().map(MirrorServer::mirror);
    let workers = workers(options, ports, &shared, tap.as_ref());
    let handles = start(workers, &options.cores);
    let control: Vec<&Port> = ports.iter().map(|port| &port.open.port).collect();
    let mut report = Report::new(Arc::clone(&shared), &control, options.json);
    let result = watch(options, &shared, &control, &mut report);
    shared.stop.store(true, Ordering::Release);
    let mut returned = Vec::new();
    for handle in handles {
        match handle.join() {
            Ok(worker) => returned.push(worker),
            Err(_) => return Err(Failure::wrong(anyhow!("a forwarding thread panicked"))),
        }
    }
    let told = report.totals();
    // Queues stop here, while their device is in service.
    drop(returned);
    result?;
    Ok(told?)
}

/// One worker for each queue number: that queue of every port.
fn workers(
    options: &Options,
    ports: &mut [Brought],
    shared: &Arc<Shared>,
    mirror: Option<&Arc<Mirror>>,
) -> Vec<Worker> {
    let macs: Vec<[u8; 6]> = ports.iter().map(|port| port.open.port.mac()).collect();
    let mut workers: Vec<Worker> = (0..usize::from(options.queues))
        .map(|number| {
            let burst = options.burst.into();
            let stamps = options.device_time;
            Worker::new(number, Arc::clone(shared), burst, mirror.cloned(), stamps)
        })
        .collect();
    for (index, port) in ports.iter_mut().enumerate() {
        let pair = peer_of(index, macs.len());
        let peer = options.eth_peer.get(index).map(|mac| mac.0);
        let addresses = packets::Addresses {
            own: macs[index],
            peer: peer.unwrap_or(macs[pair]),
        };
        let generator = packets::Generator::new(addresses, options.txpkts.into(), options.flows);
        let receive = std::mem::take(&mut port.open.receive);
        let transmit = std::mem::take(&mut port.open.transmit);
        for (worker, (receive, transmit)) in
            workers.iter_mut().zip(receive.into_iter().zip(transmit))
        {
            worker.add_port(receive, transmit, generator.clone(), pair);
        }
    }
    workers
}

/// The port that packets of port `index` leave by.
const fn peer_of(index: usize, count: usize) -> usize {
    let pair = index ^ 1;
    if pair < count { pair } else { index }
}

type Handles = Vec<std::thread::JoinHandle<Worker>>;

fn start(workers: Vec<Worker>, cores: &[usize]) -> Handles {
    let handles = workers.into_iter().enumerate().map(|(number, mut worker)| {
        let core = cores.get(number).copied();
        std::thread::spawn(move || {
            if let Some(core) = core
                && let Err(error) = ringside_bus::pinning::pin_to(core)
            {
                // Standard error may be closed: forwarding continues.
                let text = format!("ringside: thread {number} runs on any core: {error}");
                let _ = writeln!(std::io::stderr(), "{text}");
            }
            worker.run();
            worker
        })
    });
    handles.collect()
}

/// Reports until the time is over, a signal arrives, or the user quits.
fn watch(
    options: &Options,
    shared: &Arc<Shared>,
    ports: &[&Port],
    report: &mut Report<'_>,
) -> Result<(), Failure> {
    if options.interactive {
        return interactive::run(shared, ports, report);
    }
    shared.forwarding.store(true, Ordering::Release);
    let begin = Instant::now();
    let end = options
        .duration
        .map(|seconds| begin + Duration::from_secs(seconds));
    let period = Duration::from_secs(options.stats_period);
    let (mut next, mut clock) = (begin + period, begin + CLOCK_EVERY);
    loop {
        let now = Instant::now();
        if options.device_time && now >= clock {
            for port in ports {
                let read = port.device_time();
                read.map_err(|error| Failure::operation(anyhow!("the device's clock: {error}")))?;
            }
            clock = now + CLOCK_EVERY;
        }
        if interrupt::seen() || end.is_some_and(|end| now >= end) {
            return Ok(());
        }
        if !period.is_zero() && now >= next {
            report.interval()?;
            next += period;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[cfg(test)]
mod tests;
