//! A bench against perftest's own programs, such as `ib_write_bw`, unmodified, as the other
//! side.
//!
//! Their exchange does not carry the kind of measurement: give both sides the same operation, size
//! and number of messages. They compare no data. Source: perftest 25.01.0 (Debian 13),
//! `perftest_communication.c` and the `main` of each program; see `docs/exchange.md`.

mod measure;
mod mismatch;
mod talk;
mod units;
mod wanted;

use super::meeting::end::{End, Link, READS, Role};
use super::meeting::neighbours::has_own_ipv4;
use super::meeting::session::{Served, driven, finish, gid_at, meet};
use super::pair::{half, stride};
use super::run::Run;
use crate::cli::{Bench, Operation};
use crate::failure::Failure;
use crate::interrupt;
use anyhow::anyhow;
use mismatch::{Arrived, check_keys, check_repeated, explained};
use ringside_bus::DeviceAddress;
use ringside_pmd::rdma::address::MacAddress;
use ringside_pmd::rdma::address::mac_of_link_local;
use ringside_pmd::rdma::{Endpoint, Gid, QueuePairConfig, RemoteRegion};
use ringside_rendezvous::perftest::{Keys, gid};
use std::io::Write;
use std::net::IpAddr;
use std::time::Instant;
use talk::{Common, Step};
use wanted::Wanted;

pub(super) fn run(run: &mut Run<'_>, address: &DeviceAddress) -> Result<(), Failure> {
    let wanted = Wanted::of(run.options).map_err(Failure::usage)?;
    let role = match run.options.listen {
        Some(_) => Role::Server,
        None => Role::Client,
    };
    let explained = |failure| explained(failure, role, &wanted);
    let (served, mut link) = meet(run, address).map_err(explained)?;
    // The peer would take a beat for a record.
    link.beats = false;
    if role == Role::Client {
        interrupt::catch()?;
    }
    run.report.driven = driven(run, address, &link);
    run.report.devices = vec![
        address.to_string(),
        format!("perftest at {}", link.session.peer()),
    ];
    writeln!(run.out, "\n{}", run.report.driven)?;
    let measured = play(run, &served, &mut link, &wanted);
    finish(run, served, Some(link), measured.map_err(explained))
}

/// Connects, and does this side's part of the test.
fn play(
    run: &mut Run<'_>,
    served: &Served,
    link: &mut Link,
    wanted: &Wanted,
) -> Result<(), Failure> {
    let began = Instant::now();
    let before = Arrived::at(&served.device)?;
    let (mut end, common, keys) = connect(served, link, run.options, wanted)?;
    run.report.ready_after(began.elapsed());
    writeln!(
        run.out,
        "The peer uses perftest {}'s exchange; path MTU {}.\n",
        common.version, common.mtu
    )?;
    let mut test = measure::Test {
        run,
        wanted,
        common: &common,
        keys: &keys,
        before,
        last: 0,
    };
    test.play(&mut end, link)
}

/// Makes queues, exchanges keys, connects; everything before the measurement.
fn connect<'d>(
    served: &'d Served,
    link: &mut Link,
    options: &Bench,
    wanted: &Wanted,
) -> Result<(End<'d>, Common, Step), Failure> {
    let device = &served.device;
    let common = talk::agree(link, options.mtu())?;
    let timeout = link.timeout;
    // A server learns first, so it can send from an address of the same kind.
    let first = match link.role {
        Role::Server => Some(talk::hear_keys(link)?),
        Role::Client => None,
    };
    let local = local_gid(served, options, first.as_ref())?;
    // Small messages go round in a buffer of this length.
    let room = wanted.largest().max(common.cycle_bytes.into());
    let plan = wanted.plan(options, room);
    let shape = |config: QueuePairConfig| {
        config
            .path_mtu(common.mtu)
            .gid_index(local.index)
            .outbound_reads(READS)
            .inbound_reads(READS)
            .receiver_not_ready_retries(7)
            .retransmission_timeout(timeout)
    };
    let half = half(device, &plan, shape)?;
    let stride = stride(&plan);
    let key = |(index, endpoint): (usize, &Endpoint)| Keys {
        reads: READS.into(),
        queue_pair: endpoint.queue_pair,
        start_psn: endpoint.start_psn,
        remote_key: half.target().key,
        address: half.target().at((index * stride) as u64).address,
        gid: gid(local.address.address),
    };
    let ours: Vec<_> = half.endpoints().iter().enumerate().map(key).collect();
    let theirs = greet(link, &ours, wanted.greets_twice(), first)?;
    check_keys(&theirs, wanted)?;
    let peers = theirs
        .iter()
        .map(|keys| {
            endpoint(
                keys,
                local.address.address,
                (served, options),
                (wanted, link.role),
                &common,
            )
        })
        .collect::<Result<Vec<_>, Failure>>()?;
    let targets = theirs.iter().map(|keys| RemoteRegion {
        address: keys.address,
        key: keys.remote_key,
        length_bytes: room,
    });
    let end = End::new(half.connect(&peers)?, targets.collect(), stride);
    greet_again(link, &ours, &theirs, wanted)?;
    let first = ours.first().copied().zip(theirs.first().copied());
    let (ours, theirs) =
        first.ok_or_else(|| Failure::operation(anyhow!("there is no queue pair")))?;
    Ok((end, common, Step { ours, theirs }))
}

/// Keys of each queue pair, before they are connected.
fn greet(
    link: &mut Link,
    ours: &[Keys],
    twice: bool,
    mut first: Option<Keys>,
) -> Result<Vec<Keys>, Failure> {
    let mut exchange = |ours: &Keys| match first.take() {
        Some(theirs) => talk::tell_keys(link, ours).map(|()| theirs),
        None => talk::hand_shake(link, ours),
    };
    if let Some(ours) = ours.first().filter(|_| twice) {
        exchange(ours)?;
    }
    ours.iter().map(exchange).collect()
}

/// Exchanges the same keys once more: this means that the queue pairs are connected.
fn greet_again(
    link: &mut Link,
    ours: &[Keys],
    theirs: &[Keys],
    wanted: &Wanted,
) -> Result<(), Failure> {
    let both = || ours.iter().zip(theirs);
    let sends = wanted.operation == Operation::Send;
    let before = both().take(usize::from(sends));
    let after = both().take(usize::from(!sends));
    for (ours, theirs) in before.chain(both()).chain(after) {
        check_repeated(&talk::hand_shake(link, ours)?, theirs, wanted)?;
    }
    Ok(())
}

/// The GID to send from: the one that is named; else of the peer's kind; else IPv4, as perftest
/// chooses (`get_best_gid_index`), if this side's address is known (it is configured, or leased),
/// or the peer's MAC address; else the link-local one, which both sides have without a
/// configuration.
fn local_gid(served: &Served, options: &Bench, peer: Option<&Keys>) -> Result<Gid, Failure> {
    let Served { device, neighbours } = served;
    if let Some(index) = options.gid_index {
        return gid_at(device, index);
    }
    let leased = neighbours.source(device);
    let is_known = options.peer_mac.is_some() || leased.is_some() || has_own_ipv4(device.config());
    let mapped = peer.map_or(is_known, |keys| keys.ip_address().is_ipv4());
    let found = leased
        .into_iter()
        .chain(device.gids()?)
        .find(|gid| gid.address.address.is_ipv4() == mapped);
    found.ok_or_else(|| Failure::operation(anyhow!("the device has no address of the peer's kind")))
}

/// The MAC address of the peer: the named one, that of its link-local GID, or the one that it
/// gives.
fn mac_of_peer(keys: &Keys, served: &Served, options: &Bench) -> Result<MacAddress, Failure> {
    let named = options.peer_mac.map(|mac| mac.0);
    if let Some(mac) = named.or_else(|| mac_of_link_local(keys.gid)) {
        return Ok(mac);
    }
    let found = served.neighbours.mac_of(keys.ip_address());
    found.map_err(|failure| {
        failure.and(&format!(
            "name the MAC address of the peer's GID {} with --peer-mac, or give the peer a GID that begins with fe80 (its -x)",
            keys.gid
        ))
    })
}

/// The peer's end of a connection.
fn endpoint(
    keys: &Keys,
    local: IpAddr,
    (served, options): (&Served, &Bench),
    (wanted, role): (&Wanted, Role),
    common: &Common,
) -> Result<Endpoint, Failure> {
    let address = keys.ip_address();
    let most = wanted.reads_under_way(role);
    if keys.reads < most.into() {
        return Err(Failure::usage(anyhow!(
            "the peer lets {} reads be under way, this side has up to {most}: give the peer -o {most}",
            keys.reads
        )));
    }
    if address.is_ipv4() != local.is_ipv4() {
        return Err(Failure::usage(anyhow!(
            "the peer's GID {} is not of the kind of this side's address {local}: name another GID with -x here or there",
            keys.gid
        )));
    }
    let mac = mac_of_peer(keys, served, options)?;
    let endpoint = Endpoint {
        queue_pair: keys.queue_pair,
        start_psn: keys.start_psn,
        address,
        mac,
        path_mtu: common.mtu,
    };
    endpoint.check()?;
    Ok(endpoint)
}
