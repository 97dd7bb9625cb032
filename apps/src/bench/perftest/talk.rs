//! The order of perftest's messages: the client's first, then the server's, in each step.

use super::mismatch::check_events;
use super::wanted::Wanted;
use crate::bench::meeting::end::{Link, Role};
use crate::failure::Failure;
use anyhow::{Context, anyhow};
use ringside_pmd::Device;
use ringside_rendezvous::perftest::{
    BandwidthReport, KEYS_BYTES, Keys, MTU_BYTES, decode_length, decode_mtu, decode_version,
    encode_mtu, encode_version,
};
use std::time::{Duration, Instant};

/// A program that is setting up answers within so many times `deadlines.connect_ms`.
const PATIENCE: u32 = 3;

/// The time that the other side may measure without a message.
const MEASUREMENT_LIMIT: Duration = Duration::from_secs(600);

/// This side's length of the buffer in which small messages go round: a page.
const CYCLE_BYTES: u32 = 4096;

/// This side's cache line, bytes.
const CACHE_LINE_BYTES: u32 = 64;

/// The agreement of both sides before keys are exchanged.
#[derive(Clone, Debug)]
pub(crate) struct Common {
    /// the peer's version
    pub(crate) version: String,
    /// bytes in which small messages go round
    pub(crate) cycle_bytes: u32,
    /// path MTU, bytes
    pub(crate) mtu: u32,
}

/// Exchanges a record: the client sends first.
fn exchange<const N: usize>(link: &mut Link, ours: &[u8; N]) -> Result<[u8; N], Failure> {
    let mut theirs = [0; N];
    let limit = link.limit * PATIENCE;
    if link.role == Role::Client {
        link.session.send(ours, limit)?;
        link.session.receive(&mut theirs, limit)?;
    } else {
        link.session.receive(&mut theirs, limit)?;
        link.session.send(ours, limit)?;
    }
    Ok(theirs)
}

/// Versions, lengths and path MTUs.
pub(crate) fn agree(link: &mut Link, mtu: u32) -> Result<Common, Failure> {
    let version = decode_version(&exchange(link, &encode_version())?)?;
    let cycle = decode_length(exchange(link, &CYCLE_BYTES.to_be_bytes())?)?;
    decode_length(exchange(link, &CACHE_LINE_BYTES.to_be_bytes())?)?;
    let theirs: [u8; MTU_BYTES] = exchange(link, &encode_mtu(mtu))?;
    Ok(Common {
        version,
        cycle_bytes: cycle.max(CYCLE_BYTES),
        mtu: decode_mtu(&theirs)?.min(mtu),
    })
}

/// The message by which both sides synchronise: the record of their first queue pair.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Step {
    pub(crate) ours: Keys,
    pub(crate) theirs: Keys,
}

/// Keys for keys. Also how perftest keeps step.
pub(crate) fn hand_shake(link: &mut Link, ours: &Keys) -> Result<Keys, Failure> {
    Ok(Keys::decode(&exchange(link, &ours.encode())?)?)
}

/// The interval at which a check is repeated while the peer is silent.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// The handshake at the end of a test. The peer has measured, so it comes soon: no program is
/// setting up. Calls `check` while this side waits for the peer, and once before.
///
/// Errors: those of `check`, and of the exchange.
pub(crate) fn last_hand_shake(
    link: &mut Link,
    ours: &Keys,
    mut check: impl FnMut() -> Result<(), Failure>,
) -> Result<Keys, Failure> {
    check()?;
    if link.role == Role::Client {
        link.session.send(&ours.encode(), link.limit)?;
    }
    let half = link.limit / 2;
    let end = Instant::now() + half;
    while link.session.peek(CHECK_INTERVAL)?.is_none() && Instant::now() < end {
        check()?;
    }
    let mut theirs = [0; KEYS_BYTES];
    link.session.receive(&mut theirs, half)?;
    if link.role == Role::Server {
        link.session.send(&ours.encode(), link.limit)?;
    }
    Ok(Keys::decode(&theirs)?)
}

/// The first half of a server's handshake: the client's keys.
pub(crate) fn hear_keys(link: &mut Link) -> Result<Keys, Failure> {
    let mut theirs = [0; KEYS_BYTES];
    link.session.receive(&mut theirs, link.limit * PATIENCE)?;
    Ok(Keys::decode(&theirs)?)
}

/// The second half.
pub(crate) fn tell_keys(link: &mut Link, ours: &Keys) -> Result<(), Failure> {
    Ok(link.session.send(&ours.encode(), link.limit * PATIENCE)?)
}

/// The measurement, number by number.
pub(crate) fn exchange_reports(
    link: &mut Link,
    ours: &BandwidthReport,
) -> Result<BandwidthReport, Failure> {
    let mut theirs = [[0; 8]; 5];
    for (number, learnt) in ours.encode().iter().zip(&mut theirs) {
        *learnt = exchange(link, number)?;
    }
    // A server has nothing to report, and does not clear its message.
    match link.role {
        Role::Client => Ok(BandwidthReport::default()),
        Role::Server => Ok(BandwidthReport::decode(theirs)?),
    }
}

/// Sleeps until the peer sends something: the peer measures meanwhile, and the device answers its
/// requests.
pub(super) fn sleep_until_spoken_to(
    link: &mut Link,
    device: &Device,
    wanted: &Wanted,
) -> Result<(), Failure> {
    let end = Instant::now() + MEASUREMENT_LIMIT;
    let mut events = Vec::new();
    while link.session.peek(Duration::from_millis(20))?.is_none() {
        device.poll_events(&mut events).context("events")?;
        check_events(&events, wanted)?;
        if Instant::now() >= end {
            return Err(Failure::operation(anyhow!(
                "the peer {} measured for more than {} s; give it fewer messages (-n)",
                link.session.peer(),
                MEASUREMENT_LIMIT.as_secs()
            )));
        }
    }
    Ok(())
}
