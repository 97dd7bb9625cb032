//! The session of two processes: connection, description of both devices, end.

use super::agreement::{TEST_MAGIC, Test};
use super::attempts::Attempts;
use super::end::{End, Link, Role, Watch};
use super::neighbours::{Neighbours, Starter, has_own_ipv4};
use super::over_nic;
use crate::bench::placement::{Placement, core_text};
use crate::bench::plan::Plan;
use crate::bench::run::{Run, judge};
use crate::cli::{Idle, MEETING_PORT, Measure, Over};
use crate::failure::Failure;
use crate::open::{Cores, open};
use anyhow::anyhow;
use ringside_bus::pinning::pin_to;
use ringside_bus::{Clock, DeviceAddress, TscClock};
use ringside_pmd::Device;
use ringside_pmd::rdma::Gid;
use ringside_rendezvous::{Listener, Session, SessionError, connect};
use std::io::Write;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A device in service whose port answers ARP and neighbour discovery.
pub(crate) struct Served {
    pub(crate) neighbours: Neighbours,
    pub(crate) device: Device,
}

/// Brings the function up and finds the other process.
pub(crate) fn meet(run: &mut Run<'_>, address: &DeviceAddress) -> Result<(Served, Link), Failure> {
    let limit = Duration::from_millis(run.config.deadlines.connect_ms);
    let (served, session, role) = match (&run.options.listen, &run.options.connect) {
        (Some(place), _) => {
            let places = resolve("--listen", place)?;
            let place = places.first().copied();
            let place =
                place.ok_or_else(|| Failure::usage(anyhow!("--listen names no address")))?;
            let (served, session) = receive(run, address, place)?;
            (served, session, Role::Server)
        }
        (None, peer) => {
            let peers = resolve("--connect", peer.as_deref().unwrap_or_default())?;
            let wait = Duration::from_secs(run.options.wait.unwrap_or(5));
            let served = bring_up(run, address)?;
            let session = match run.options.over {
                Over::Kernel => reach(&peers, wait).map_err(Failure::from),
                Over::Nic => over_nic::reach(&served.neighbours, &peers, wait),
            };
            (served, session?, Role::Client)
        }
    };
    let options = run.options;
    Ok((served, Link::new(session, role, limit, options)))
}

/// Brings the function up and waits for the other process.
fn receive(
    run: &mut Run<'_>,
    address: &DeviceAddress,
    place: SocketAddr,
) -> Result<(Served, Session), Failure> {
    let wait = Duration::from_secs(run.options.wait.unwrap_or(60));
    if run.options.over == Over::Nic {
        let served = bring_up(run, address)?;
        let listener = over_nic::listen(&served.neighbours, place)?;
        let own = over_nic::shown(&served.device, &listener)?;
        writeln!(run.out, "\nListening on {own}")?;
        run.out.flush()?;
        let neighbours = &served.neighbours;
        let accept = |left| over_nic::accept(neighbours, &listener, (left, wait));
        let session = first_peer(run, wait, accept)?;
        return Ok((served, session));
    }
    // Before the bring-up: an address that is taken changes nothing at the device.
    let listener = Listener::bind(place, clock()).map_err(Failure::usage)?;
    let served = bring_up(run, address)?;
    writeln!(run.out, "\nListening on {}", listener.address())?;
    run.out.flush()?;
    let accept = |left| match listener.accept(left) {
        // The whole time, not that after the last connection of another program.
        Err(SessionError::NoPeer { address, .. }) => {
            let limit = wait;
            Err(SessionError::NoPeer { address, limit }.into())
        }
        accepted => accepted.map_err(Failure::from),
    };
    let session = first_peer(run, wait, accept)?;
    Ok((served, session))
}

/// Waits for the first connection of a bench, of ringside or of perftest. Those of other programs,
/// such as a scan of ports, are reported and closed.
fn first_peer(
    run: &mut Run<'_>,
    wait: Duration,
    accept: impl Fn(Duration) -> Result<Session, Failure>,
) -> Result<Session, Failure> {
    let limit = Duration::from_millis(run.config.deadlines.connect_ms);
    let end = Instant::now() + wait;
    loop {
        let mut session = accept(end.saturating_duration_since(Instant::now()))?;
        let Some(reason) = no_bench(&mut session, limit)? else {
            return Ok(session);
        };
        let told = format!("a connection was no bench: {reason}; it is closed, the wait goes on");
        warn(run, told)?;
    }
}

/// The reason why a connection is not that of a bench: it closes, sends nothing within `limit`, or
/// begins with other bytes than a bench's request or perftest's version.
fn no_bench(session: &mut Session, limit: Duration) -> Result<Option<String>, Failure> {
    let peer = session.peer();
    match session.peek(limit) {
        Ok(Some(first)) if is_bench(session, first) => Ok(None),
        Ok(Some(first)) => Ok(Some(format!(
            "the peer {peer} uses another protocol, which begins with byte {first:#04x}"
        ))),
        Ok(None) => Ok(Some(SessionError::Silent { peer, limit }.to_string())),
        Err(error @ SessionError::PeerFailed { .. }) => Err(error.into()),
        Err(error) => Ok(Some(error.to_string())),
    }
}

/// True if what has come of a connection, `first` at least, is the beginning of a bench's request
/// or of perftest's version, such as 6.06.
fn is_bench(session: &mut Session, first: u8) -> bool {
    let mut begin = [first; TEST_MAGIC.len()];
    let count = session.peek_several(&mut begin).max(1);
    match begin.get(..count).unwrap_or_default() {
        [one] => *one == TEST_MAGIC[0] || one.is_ascii_digit(),
        [one, two, ..] if one.is_ascii_digit() => *two == b'.' || two.is_ascii_digit(),
        begin => TEST_MAGIC.starts_with(begin),
    }
}

/// The clock of a session: real time.
fn clock() -> Arc<dyn Clock> {
    Arc::new(TscClock::new())
}

/// The addresses that `HOST[:PORT]` names.
fn resolve(flag: &str, place: &str) -> Result<Vec<SocketAddr>, Failure> {
    let inside = place.strip_prefix('[').and_then(|it| it.strip_suffix(']'));
    let named = match inside.unwrap_or(place).parse::<std::net::IpAddr>() {
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

/// Claims the function, pins this thread, brings the function up, and serves its network.
fn bring_up(run: &mut Run<'_>, address: &DeviceAddress) -> Result<Served, Failure> {
    let cores = Cores::choose(&run.options.cores, run.config);
    let function = open(address, run.config)?.function;
    run.report.placement = Some(Placement::with_server(&*function, cores.driver));
    std::thread::scope(|scope| {
        let starter = Starter::spawn(scope)?;
        if let Some(core) = cores.driver {
            pin_to(core).map_err(Failure::usage)?;
        }
        let device = run.bring_up(&function)?;
        let mut neighbours = starter.start(&device);
        if let Some(trouble) = neighbours.trouble() {
            warn(run, format!("the port answers no ARP: {trouble}"))?;
        } else if run.config.network.dhcp {
            match neighbours.await_lease(&device) {
                // The exchange has no other address to go by.
                Err(failure) if run.options.over == Over::Nic && !has_own_ipv4(run.config) => {
                    return Err(failure);
                }
                Err(failure) => warn(run, failure.text())?,
                Ok(()) => {}
            }
        }
        // Now, and not once a peer comes.
        if let Some(index) = run.options.gid_index {
            gid_at(&device, index)?;
        }
        Ok(Served { neighbours, device })
    })
}

/// The GID that -x names, by its index in `ringside info`.
pub(crate) fn gid_at(device: &Device, index: u16) -> Result<Gid, Failure> {
    let all = device.verbs_gids()?;
    all.get(usize::from(index)).copied().ok_or_else(|| {
        let indexes: Vec<_> = (0..all.len()).map(|index| index.to_string()).collect();
        Failure::usage(anyhow!(
            "-x {index}: the device has the GIDs {}",
            indexes.join(", ")
        ))
    })
}

/// Prints a warning, and has the report name it.
fn warn(run: &mut Run<'_>, warning: String) -> Result<(), Failure> {
    writeln!(run.out, "warning: {warning}")?;
    run.out.flush()?;
    run.report.warnings.push(warning);
    Ok(())
}

/// The line that names the measured device.
pub(crate) fn driven(run: &Run<'_>, address: &DeviceAddress, link: &Link) -> String {
    let placement = run.report.placement.unwrap_or_default();
    let idle = match link.idle {
        Idle::Spin => "spins",
        Idle::Yield => "yields",
    };
    let what = match address {
        DeviceAddress::VfioUser(_) => "a device in another process, not hardware",
        _ => "a card",
    };
    format!(
        "Driven: {address}, {what} (this driver on {}, {idle} while idle{}), against what the process at {} drives.{}",
        core_text(placement.driver_core),
        placement.of_server(),
        link.session.peer(),
        placement.hand_off()
    )
}

/// The plan of a test.
pub(crate) fn plan_of(test: &Test) -> Plan {
    Plan {
        operation: test.task.operation(),
        measure: test.measure.unwrap_or(Measure::Lat),
        sizes: vec![test.size],
        amount: test.amount,
        queue_pairs: test.queue_pairs,
        send_depth: test.send_depth,
        receive_depth: test.receive_depth,
        inline: test.inline,
    }
}

/// The name of a test.
pub(crate) fn title(test: &Test) -> String {
    let measure = test
        .measure
        .map_or("verification", |measure| measure.title());
    format!("{} {measure} {} B", test.task.title(), test.size)
}

/// Sleeps until the client has ended the measurement: the device does the work. Always false.
pub(crate) fn sleep_until_ended(end: &mut End<'_>, link: &mut Link) -> Result<bool, Failure> {
    let mut watch = Watch::new();
    let at_most = Duration::from_millis(20);
    while watch.look_with(end.side.device, link, at_most)?.is_none() {}
    Ok(false)
}

/// Ends a session that failed: sends the reason to the peer, and adds the peer's message to the
/// failure.
pub(crate) fn part(mut link: Link, failure: Failure) -> Failure {
    if failure.text().contains(" gave up: ") {
        return failure;
    }
    let further = match link.session.peek(Duration::ZERO) {
        // A refusal has its reason already.
        Err(SessionError::PeerFailed { reason, .. }) if failure.text().contains(&reason) => None,
        Err(error @ (SessionError::PeerFailed { .. } | SessionError::Closed { .. })) => {
            Some(error.to_string())
        }
        _ => None,
    };
    let further = further.filter(|further| !failure.text().contains(further));
    let failure = match further {
        Some(further) => failure.and(&further),
        None => failure,
    };
    link.session.fail(&failure.text());
    failure
}

/// Connects to the first of the addresses that answers, within `wait`.
fn reach(peers: &[SocketAddr], wait: Duration) -> Result<Session, SessionError> {
    let attempts = Attempts {
        peers,
        wait,
        longest: Duration::MAX,
    };
    let reached = attempts.first(|peer, limit| connect(peer, limit, clock()), |_| true);
    // The time of all attempts, not of the last one.
    reached.map_err(|error| match error {
        SessionError::Connect {
            address, reason, ..
        } => SessionError::Connect {
            address,
            limit: wait,
            reason,
        },
        other => other,
    })
}

/// Closes the connection to the peer, shuts the device down and prints the final report. No object
/// of the device may be in use.
pub(crate) fn finish(
    run: &mut Run<'_>,
    served: Served,
    link: Option<Link>,
    measured: Result<(), Failure>,
) -> Result<(), Failure> {
    // The stack delivers what was sent over it before it ends.
    drop(link);
    let Served { neighbours, device } = served;
    drop(neighbours);
    let downs = run.take_down([device])?;
    run.finish(measured)?;
    judge(&[], &downs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_version_6_are_named_with_and_without_brackets() {
        for (place, port) in [
            ("::1", MEETING_PORT),
            ("[::1]", MEETING_PORT),
            ("[::1]:7", 7),
        ] {
            let found = resolve("--listen", place).unwrap();
            let wanted = SocketAddr::new("::1".parse().unwrap(), port);
            assert_eq!(found, [wanted], "{place}");
        }
    }
}
