//! A bench between two processes: each drives one function, and they agree over TCP on what to do.
//! What they say is described in `docs/exchange.md`.

pub(super) mod agreement;
pub(super) mod bandwidth;
mod client;
pub(super) mod end;
pub(super) mod latency;
mod server;
mod verify;

use super::plan::{Amount, Plan, check};
use super::report::Report;
use super::{Run, judge, output, perftest, report, sized};
use crate::cli::{Bench, Idle, MEETING_PORT};
use crate::failure::Failure;
use crate::open::{Cores, open};
use agreement::Test;
use anyhow::anyhow;
use end::{End, Link, Role, Watch};
use ringside_bus::DeviceAddress;
use ringside_bus::pinning::{allowed_cores, pin_to};
use ringside_config::Config;
use ringside_pmd::Device;
use ringside_pmd::rdma::exchange::{Listener, MeetingError};
use std::io::Write;
use std::net::{SocketAddr, ToSocketAddrs};
use std::time::Duration;

pub(crate) fn run(options: &Bench, config: &Config) -> Result<(), Failure> {
    check(options).map_err(Failure::usage)?;
    let address = options.device.as_ref().unwrap_or(&config.device.address);
    if let DeviceAddress::Model(_) = address {
        return Err(Failure::usage(anyhow!(
            "{address} is inside this process, where no other process reaches it: serve the model with \
             ringside model serve, and name its socket with --device vfio-user:PATH"
        )));
    }
    let config = sized(config, options);
    let mut run = Run {
        options,
        config: &config,
        out: output(options),
        stages: Vec::new(),
        counters: None,
        accesses: Vec::new(),
    };
    if options.perftest {
        return perftest::run(&mut run, address);
    }
    if options.listen.is_some() {
        return server::run(&mut run, address);
    }
    client::run(&mut run, address)
}

/// Brings the function up and finds the other process.
pub(super) fn meet(run: &mut Run<'_>, address: &DeviceAddress) -> Result<(Device, Link), Failure> {
    let limit = Duration::from_millis(run.config.deadlines.connect_ms);
    let idle = idle(run.options);
    let wait = |default: u64| Duration::from_secs(run.options.wait.unwrap_or(default));
    if let Some(place) = &run.options.listen {
        let wait = wait(60);
        let places = resolve("--listen", place)?;
        let place = places.first().copied();
        let place = place.ok_or_else(|| Failure::usage(anyhow!("--listen names no address")))?;
        // Before the bring-up: an address that is taken changes nothing at the device.
        let listener = Listener::bind(place).map_err(Failure::usage)?;
        let device = bring_up(run, address)?;
        writeln!(run.out, "\nListening on {}", listener.address())?;
        run.out.flush()?;
        let session = listener.accept(wait)?;
        return Ok((device, Link::new(session, Role::Server, limit, idle)));
    }
    let wait = wait(5);
    let peers = resolve(
        "--connect",
        run.options.connect.as_deref().unwrap_or_default(),
    )?;
    let device = bring_up(run, address)?;
    let session = client::reach(&peers, wait)?;
    Ok((device, Link::new(session, Role::Client, limit, idle)))
}

/// The addresses that `HOST[:PORT]` names.
fn resolve(flag: &str, place: &str) -> Result<Vec<SocketAddr>, Failure> {
    let named = match place.parse::<std::net::IpAddr>() {
        Ok(address) => Ok(vec![SocketAddr::new(address, MEETING_PORT)]),
        Err(_) if place.rsplit_once(':').is_some() => {
            place.to_socket_addrs().map(Iterator::collect)
        }
        Err(_) => (place, MEETING_PORT)
            .to_socket_addrs()
            .map(Iterator::collect),
    };
    let wrong = |reason: String| {
        Failure::usage(anyhow!(
            "{flag} {place}: {reason}; give HOST or HOST:PORT, such as 192.0.2.7:18515"
        ))
    };
    let found: Vec<_> = named.map_err(|error| wrong(error.to_string()))?;
    if found.is_empty() {
        return Err(wrong("no address has this name".into()));
    }
    Ok(found)
}

/// How this side idles: with fewer than three cores the two drivers and the model share some.
fn idle(options: &Bench) -> Idle {
    options.idle.unwrap_or(match allowed_cores().len() {
        0..3 => Idle::Yield,
        _ => Idle::Spin,
    })
}

/// Claims the function, pins this thread, and brings the function up.
fn bring_up(run: &mut Run<'_>, address: &DeviceAddress) -> Result<Device, Failure> {
    let cores = Cores::choose(&run.options.cores, run.config);
    let function = open(address, run.config)?.function;
    if let Some(core) = cores.driver {
        pin_to(core).map_err(Failure::usage)?;
    }
    run.bring_up(&function)
}

/// The one line that says what the figures are figures of.
pub(super) fn driven(run: &Run<'_>, address: &DeviceAddress, link: &Link) -> String {
    let cores = Cores::choose(&run.options.cores, run.config);
    let core = cores
        .driver
        .map_or("any core".to_owned(), |core| format!("core {core}"));
    let idle = match link.idle {
        Idle::Spin => "spins",
        Idle::Yield => "yields",
    };
    let what = match address {
        DeviceAddress::VfioUser(_) => "a device in another process, not hardware",
        _ => "a card",
    };
    format!(
        "Driven: {address}, {what} (this driver on {core}, {idle} while idle), against what the process at {} drives.",
        link.session.peer()
    )
}

/// A test as the parts of the bench know it.
fn plan_of(test: &Test) -> Plan {
    Plan {
        operation: test.task.operation(),
        measure: test.measure.unwrap_or(crate::cli::Measure::Lat),
        sizes: vec![test.size],
        amount: test.amount,
        queue_pairs: test.queue_pairs,
        send_depth: test.send_depth,
        receive_depth: test.receive_depth,
        inline: test.inline,
    }
}

/// What a test is called.
fn title(test: &Test) -> String {
    let measure = test
        .measure
        .map_or("verification", |measure| measure.title());
    format!("{} {measure} {} B", test.task.title(), test.size)
}

/// Sleeps until the client has ended the measurement: the device does the work. Always false.
fn sleep_until_ended(end: &mut End<'_>, link: &mut Link) -> Result<bool, Failure> {
    let mut watch = Watch::new();
    let at_most = Duration::from_millis(20);
    while watch.look_with(end.side.device, link, at_most)?.is_none() {}
    Ok(false)
}

/// Ends a session that failed: the peer learns why, and the failure says what the peer says.
fn part(mut link: Link, failure: Failure) -> Failure {
    if failure.text().contains(" gave up: ") {
        return failure;
    }
    let failure = match link.session.glance(Duration::ZERO) {
        Err(error @ (MeetingError::PeerFailed { .. } | MeetingError::Closed { .. }))
            if !failure.text().contains(&error.to_string()) =>
        {
            failure.and(&error.to_string())
        }
        _ => failure,
    };
    link.session.fail(&failure.text());
    failure
}

/// Takes the device down and says what there is to say at the end.
pub(super) fn finish(
    run: &mut Run<'_>,
    device: Device,
    mut report: Report,
    distributions: &[super::Distribution],
) -> Result<(), Failure> {
    let of = device.function().address().to_string();
    let warnings = device.trace().warnings();
    report.warnings = warnings
        .map(|(stage, text)| format!("{of} {stage}: {text}"))
        .collect();
    report.bring_up = std::mem::take(&mut run.stages);
    let down = device.shutdown();
    for failure in &down.failures {
        report.warnings.push(format!("taking down: {failure}"));
    }
    run.finish(&report, distributions)?;
    judge(&[], &[down])
}
