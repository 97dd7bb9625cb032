//! `ringside forward`: packets through ports, in the modes and words of DPDK's testpmd.

mod interactive;
mod layout;
mod mode;
mod observed;
mod packets;
mod queue_counts;
mod report;
mod running;
mod statistics;
mod stopwatch;
mod worker;

use crate::failure::Failure;
use crate::interrupt::{self, MAX_SECONDS};
use crate::mac::Mac;
use crate::mirror::{Mirror, MirrorServer};
use crate::open::{Cores, Opened, model_function, named_twice, open, start_model};
use crate::rule::Rule;
use crate::supervised::{Brought, Queues, Wanted};
use crate::vsi::{VsiAt, VsiText};
use anyhow::{Context, anyhow};
use clap::Args;
use layout::{Layout, Place, Station};
pub(crate) use mode::Mode;
use ringside_bus::{DeviceAddress, Function};
use ringside_config::Config;
use ringside_lan::{PacketPath, PoolSettings};
use ringside_model::Threaded;
use ringside_pmd::lan::port::{FlowTarget, MAX_MTU, MTU_MIN};
use ringside_pmd::lan::{PortSettings, VsiSettings};
use ringside_spec::lan::limits::{CHECK_BYTES, MAX_FRAME_BYTES, MAX_RING, RING_MIN, RING_MULTIPLE};
use running::Running;
use statistics::Shared;
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};
use worker::{Handover, Worker};

const HELP: &str = "\
Ports are paired as testpmd pairs them: the first with the second, the third with the fourth; one port \
alone forwards to itself. Each queue has a thread of its own, which serves that queue of every port.

A further VSI (--vsi) has queues, filters and counters of its own. What arrives at its address is forwarded \
in the mode of its port, by its own queues: the first VSI of a port is paired with the first of the \
paired port, and so on; one without a pair forwards to itself. Its queues are given to the threads in \
turn. It has a line of its own in the reports, named as commands name it: VSI 0.1 is the first further \
one of port 0; with --json it is in \"vsis\". A port with further VSIs starts with the packets to its \
own address and its groups, because a promiscuous one would receive those of its VSIs as well, and \
forward them a second time.

A device that fails is recovered; its port is opened again with its VSIs, filters and rules. One that \
takes no reset for 5 s is gone: forwarding goes on with the others, and ends when none is left.

The report of each port: packets and bits a second, packets that were dropped, and the share of polls \
that found nothing. Near 0 % the thread is the bottleneck, near 100 % the wire. With --json each report \
is one line, of kind interval or total. Packets and bytes of each queue are in \"queues\"; without --json the totals \
show its packets, if there are several queues. Sent are packets that the transmit queue took; those that were \
still in its ring when the device failed count again in unsent, and those that it dropped without a link in \
tx_dropped_link_down.nic. Seconds and rates are of the time in \
which packets are forwarded, without pauses before start and after stop, up to its end; the totals' counts have the packets that left and arrived after it, too.

Drops follow by queue and cause, where there are any: bad_length, bad_profile, chain_too_long (received, \
malformed); too_short, too_long, too_many_segments, outer_tag_alone, no_buffers (refused by the transmit queue); unread, unsent (in the rings \
when the device failed or forwarding ended; some of unsent may have been sent); mode (not sent in this mode); queue_full (no room in the other port's transmit queue); out_of_service. Then those of \
the device, as `ringside port -S` names them: rx_dropped is for want of a receive descriptor, \
or for frames longer than the MTU. A queue that the device stopped as malicious is named.

Examples:
  ringside forward --device model:0 --device model:1 --mode txonly,rxonly --duration 5
  ringside forward --device 0000:3b:00.0 --device 0000:3b:00.1 --mode macswap --queues 4
  ringside forward --mode icmp-echo --interactive
  ringside forward --mode macswap --vsi 02:aa:00:00:00:01,4 --vsi 02:aa:00:00:00:02
  ringside forward --device 0000:3b:00.0 --device 0000:3b:00.1 --vsi 02:aa:00:00:00:01@0 --vsi 02:aa:00:00:00:02@1

Before the totals, packets of the transmit rings leave, and what arrives is counted. Ctrl-C, SIGTERM and \
SIGHUP end it and show the totals. Exit codes: 0 done, 1 an operation failed, 2 wrong arguments, 3 a \
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
        visible_alias = "forward-mode",
        value_enum,
        value_name = "MODE,...",
        value_delimiter = ',',
        default_value = "io"
    )]
    mode: Vec<Mode>,
    /// Receive and transmit queues of each port, and threads
    #[arg(long, value_name = "COUNT", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=64))]
    queues: u8,
    /// The same in testpmd's word: a port has as many transmit queues
    #[arg(long, value_name = "COUNT", conflicts_with = "queues", value_parser = clap::value_parser!(u8).range(1..=64))]
    rxq: Option<u8>,
    /// The same in testpmd's word: a port has as many receive queues
    #[arg(long, value_name = "COUNT", conflicts_with = "queues", value_parser = clap::value_parser!(u8).range(1..=64))]
    txq: Option<u8>,
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
    #[arg(long, value_name = "BYTES", default_value_t = 60, value_parser = clap::value_parser!(u16).range(60..=i64::from(MAX_FRAME_BYTES - CHECK_BYTES)))]
    txpkts: u16,
    /// Different flows that flowgen sends
    #[arg(long, visible_alias = "flowgen-flows", value_name = "COUNT", default_value_t = 1024, value_parser = clap::value_parser!(u32).range(1..=65536))]
    flows: u32,
    /// Destination of the packets of mac, txonly and flowgen; give it once for each port [default:
    /// the paired port's own]
    #[arg(long, value_name = "MAC")]
    eth_peer: Vec<Mac>,
    /// Receive only packets to the port's own address and to its groups
    #[arg(long)]
    no_promiscuous: bool,
    /// Rule for every port, such as 'tcp4 dst-port 80 action 0'; give it once for each. The words
    /// are those of `ringside port --help`
    #[arg(long, value_name = "RULE")]
    rule: Vec<Rule>,
    /// Further VSI of a port (0 is the first --device) with this MAC address, and its number of
    /// receive and of transmit queues; give it once for each
    #[arg(long, value_name = "MAC[,QUEUES][@PORT]")]
    vsi: Vec<VsiAt>,
    /// Count the packets that the device stamps, and show the device's time of the first and the
    /// last
    #[arg(long, conflicts_with = "interactive")]
    device_time: bool,
    /// Let `ringside capture --attach PATH` see what the ports receive and send
    #[arg(long, value_name = "PATH")]
    mirror: Option<PathBuf>,
    /// Send one burst of every queue before forwarding begins
    #[arg(long, conflicts_with = "interactive")]
    tx_first: bool,
    /// Seconds to run [default: until interrupted]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(..=MAX_SECONDS))]
    duration: Option<u64>,
    /// Seconds between reports; 0: only at the end
    #[arg(long, value_name = "SECONDS", default_value_t = 1, conflicts_with = "interactive", value_parser = clap::value_parser!(u64).range(..=MAX_SECONDS))]
    stats_period: u64,
    /// Cores of the threads
    #[arg(long, value_name = "CORE,...", value_delimiter = ',')]
    cores: Vec<usize>,
    /// Take commands from standard input; "help" lists them. With --json each answer is an object
    /// of a line: kind help, error, rule, rules, xstats, info or config, or a report. If standard
    /// input is no terminal and a line was refused, the exit code is 1
    #[arg(short, long)]
    interactive: bool,
    /// Reports as JSON, one object a line
    #[arg(long)]
    json: bool,
}

impl Options {
    /// Queues of each kind.
    fn queues(&self) -> usize {
        self.rxq.or(self.txq).unwrap_or(self.queues).into()
    }
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
    let layout = check(options, addresses)?;
    interrupt::catch()?;
    let (functions, model) = functions(addresses, config)?;
    let (mut ports, mut queues) = (Vec::new(), Vec::new());
    for (port, function) in functions.into_iter().enumerate() {
        let wanted = wanted(options, &layout, port);
        let opened = Brought::bring_up(function, &addresses[port], wanted, &options.rule, config)?;
        ports.push(opened.0);
        queues.push(opened.1);
    }
    let result = forward(options, layout, &mut ports, queues);
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
fn check(options: &Options, addresses: &[DeviceAddress]) -> Result<Layout, Failure> {
    check_twice(addresses)?;
    if let (Some(receive), Some(transmit)) = (options.rxq, options.txq)
        && receive != transmit
    {
        return Err(Failure::usage(anyhow!(
            "--rxq {receive} and --txq {transmit}: each thread has a queue of both kinds; name the same number"
        )));
    }
    let ports = addresses.len();
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
        if !(RING_MIN..=MAX_RING).contains(&count) || !count.is_multiple_of(RING_MULTIPLE) {
            return Err(Failure::usage(anyhow!(
                "{flag} {count}: a ring has {RING_MIN} to {MAX_RING} descriptors, a multiple of {RING_MULTIPLE}"
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
    check_rules(&options.rule, options.queues())?;
    let devices: Vec<String> = addresses.iter().map(ToString::to_string).collect();
    let layout = Layout::new(&devices, options.queues(), &options.vsi);
    let layout = layout.map_err(|text| Failure::usage(anyhow!(text)))?;
    check_cores(&options.cores, layout.threads())?;
    Ok(layout)
}

/// Refuses rules that lead to queues which a port does not have.
fn check_rules(rules: &[Rule], queues: usize) -> Result<(), Failure> {
    for Rule(rule) in rules {
        let end = match rule.target {
            FlowTarget::Queue(queue) => usize::from(queue) + 1,
            FlowTarget::Group { first, count } => usize::from(first) + usize::from(count),
            FlowTarget::Drop | FlowTarget::Spread => 0,
        };
        if end > queues {
            return Err(Failure::usage(anyhow!(
                "--rule: queue {} is none of the {queues} of a port, which count from 0; --queues {end} makes enough",
                end - 1
            )));
        }
    }
    Ok(())
}

/// Refuses cores that no thread can run on, and those that no thread is there for.
fn check_cores(cores: &[usize], threads: usize) -> Result<(), Failure> {
    if cores.len() > threads {
        return Err(Failure::usage(anyhow!(
            "--cores: {} cores are named, but forwarding has one thread for each queue of a port: {threads}",
            cores.len()
        )));
    }
    for &core in cores {
        // In a thread of its own: this one is not to be pinned.
        let thread = std::thread::Builder::new().name("probe".into());
        let pinned = thread.spawn(move || ringside_bus::pinning::pin_to(core));
        let pinned = pinned.context("starting a thread on a core of --cores")?;
        if let Ok(Err(error)) = pinned.join() {
            return Err(Failure::usage(anyhow!("--cores: {error}")));
        }
    }
    Ok(())
}

/// Refuses a device for two ports: two drivers would reset it in turn.
fn check_twice(addresses: &[DeviceAddress]) -> Result<(), Failure> {
    match named_twice(addresses) {
        Some(address) => Err(Failure::usage(anyhow!(
            "--device {address}: named twice; a device is one port"
        ))),
        None => Ok(()),
    }
}

/// Shuts every device down; the first failure is reported after all of them are down.
fn shut_down(ports: Vec<Brought>) -> Result<(), Failure> {
    let mut failed = None;
    for port in ports {
        if let Err(text) = port.shut_down() {
            failed.get_or_insert(text);
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

/// The settings of a port and its VSIs.
fn wanted(options: &Options, layout: &Layout, port: usize) -> Wanted {
    let settings = |queues: usize, promiscuous| {
        let rings = queues as u32 * (u32::from(options.rxd) + u32::from(options.txd));
        PortSettings {
            receive_queues: queues,
            transmit_queues: queues,
            receive_descriptors: options.rxd,
            transmit_descriptors: options.txd,
            mtu: options.mtu,
            promiscuous,
            packet_path: options.packet_path,
            time_stamps: options.device_time,
            pool: PoolSettings {
                // Rings, bursts under way, and the cache of each thread.
                buffers: rings + queues as u32 * 512 + 1024,
                ..PoolSettings::default()
            },
            ..PortSettings::default()
        }
    };
    let vsis = layout.of_port(port).filter_map(|(_, station)| station.vsi);
    let further: Vec<VsiSettings> = vsis
        .map(|vsi| VsiSettings {
            queues: settings(vsi.queues(), false),
            ..vsi.settings()
        })
        .collect();
    // A promiscuous port receives the packets of its VSIs, too.
    let promiscuous = !options.no_promiscuous && further.is_empty();
    Wanted {
        own: settings(options.queues(), promiscuous),
        further,
    }
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

/// `queues` are those of each port: its own, then those of each of its VSIs.
fn forward(
    options: &Options,
    layout: Layout,
    ports: &mut [Brought],
    queues: Vec<Vec<Queues>>,
) -> Result<(), Failure> {
    let modes = (0..ports.len())
        .map(|port| *options.mode.get(port).unwrap_or(&options.mode[0]))
        .collect();
    let stations = 0..layout.stations().len();
    let labels: Vec<String> = stations.map(|station| layout.label(station)).collect();
    let shared = Arc::new(Shared::new(layout, modes, options.burst));
    let mirror = match &options.mirror {
        Some(path) => Some(MirrorServer::start(path, &labels)?),
        None => None,
    };
    let tap = mirror.as_ref().map(MirrorServer::mirror);
    let (workers, handovers) = workers(options, ports, queues, &shared, tap.as_ref());
    let handles = start(workers, &options.cores, &shared)?;
    let mut running = Running::new(Arc::clone(&shared), ports, handovers, options.json);
    let result = watch(options, &shared, &mut running);
    shared.stop.store(true, Ordering::Release);
    let mut returned = Vec::new();
    for handle in handles {
        match handle.join() {
            Ok(worker) => returned.push(worker),
            Err(_) => return Err(Failure::wrong(anyhow!("a forwarding thread panicked"))),
        }
    }
    running.report.end();
    worker::drain(&mut returned);
    let told = running.report.totals();
    // Queues that could not be stopped stop here, while their device is in service.
    drop(returned);
    result?;
    Ok(told?)
}

/// One worker for each queue number of the ports, with its channel for queues that replace others.
fn workers(
    options: &Options,
    ports: &[Brought],
    queues: Vec<Vec<Queues>>,
    shared: &Arc<Shared>,
    mirror: Option<&Arc<Mirror>>,
) -> (Vec<Worker>, Vec<Sender<Handover>>) {
    let layout = shared.layout();
    let stations = layout.stations();
    let mac_of = |station: usize| {
        let Station { port, vsi, .. } = stations[station];
        vsi.map_or_else(|| ports[port].controls.port.mac(), VsiText::mac)
    };
    let (mut workers, mut senders) = (Vec::new(), Vec::new());
    for _ in 0..layout.threads() {
        let (sender, replacements) = channel();
        senders.push(sender);
        let shared = Arc::clone(shared);
        let stamps = options.device_time;
        workers.push(Worker::new(shared, mirror.cloned(), stamps, replacements));
    }
    let mut by_port: Vec<_> = queues.into_iter().map(Vec::into_iter).collect();
    // Ports come first, then the VSIs of each by place: as the queues do.
    for (index, station) in stations.iter().enumerate() {
        let Some(queues) = by_port.get_mut(station.port).and_then(Iterator::next) else {
            continue;
        };
        let peer = options.eth_peer.get(station.port).map(|mac| mac.0);
        let addresses = packets::Addresses {
            own: mac_of(index),
            peer: peer.unwrap_or_else(|| mac_of(station.pair)),
        };
        let generator = packets::Generator::new(addresses, options.txpkts.into(), options.flows);
        let pairs = queues.receive.into_iter().zip(queues.transmit);
        for (queue, (receive, transmit)) in pairs.enumerate() {
            let place = Place {
                station: index,
                queue,
                port: station.port,
            };
            let worker = &mut workers[layout.thread_of(queue)];
            worker.add_lane(place, receive, transmit, generator.clone());
        }
    }
    for worker in &mut workers {
        worker.pair_lanes(|station| stations[station].pair);
    }
    (workers, senders)
}

type Handles = Vec<std::thread::JoinHandle<Worker>>;

/// Starts a thread for each worker. If the system refuses one, those before it have ended.
fn start(workers: Vec<Worker>, cores: &[usize], shared: &Shared) -> Result<Handles, Failure> {
    let count = workers.len();
    let mut handles = Handles::with_capacity(count);
    for (number, mut worker) in workers.into_iter().enumerate() {
        let core = cores.get(number).copied();
        let thread = std::thread::Builder::new().name(format!("forward-{number}"));
        let started = thread.spawn(move || {
            if let Some(core) = core
                && let Err(error) = ringside_bus::pinning::pin_to(core)
            {
                // Standard error may be closed: forwarding continues.
                let text = format!("ringside: thread {number} runs on any core: {error}");
                let _ = writeln!(std::io::stderr(), "{text}");
            }
            worker.run();
            worker
        });
        match started {
            Ok(handle) => handles.push(handle),
            Err(error) => {
                shared.stop.store(true, Ordering::Release);
                // Their queues stop here, while the devices are in service.
                handles.into_iter().for_each(|handle| drop(handle.join()));
                return Err(Failure::operation(anyhow!(
                    "starting thread {} of the {count} of --queues: {error}",
                    number + 1
                )));
            }
        }
    }
    Ok(handles)
}

/// Looks after the devices and reports until the time is over, a signal arrives, or the user quits.
fn watch(options: &Options, shared: &Shared, running: &mut Running<'_>) -> Result<(), Failure> {
    let begin = Instant::now();
    let end = options
        .duration
        .map(|seconds| begin + Duration::from_secs(seconds));
    if options.interactive {
        return interactive::run(shared, running, end, options.json);
    }
    running.start(options.tx_first.into());
    let period = Duration::from_secs(options.stats_period);
    let mut next = begin + period;
    loop {
        // It reads the device's clock each second: a time stamp is completed by one of the last 2.1
        // s.
        running.supervise()?;
        let now = Instant::now();
        if interrupt::seen() || end.is_some_and(|end| now >= end) {
            return Ok(());
        }
        if !period.is_zero() && now >= next {
            running.report.interval()?;
            next += period;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[cfg(test)]
mod tests;
