//! One side of a test between two processes.

use super::agreement::Test;
use super::managed::Managed;
pub(crate) use super::managed::READS;
use super::neighbours::Neighbours;
use crate::bench::bandwidth::Place;
use crate::bench::pair::{Half, Side, half, stride};
use crate::bench::plan::Plan;
pub(crate) use crate::bench::watch::Watch;
use crate::cli::{Bench, Idle, Measure, Operation};
use crate::failure::Failure;
use crate::open::core_count;
use anyhow::{Context, anyhow};
use ringside_bus::TscClock;
use ringside_bus::clock::ticks;
use ringside_pmd::Device;
use ringside_pmd::rdma::{Access, MemoryRegion, QueuePairConfig, RemoteAddress, RemoteRegion};
use ringside_rendezvous::{Greeting, Session, SessionError, Step};
use std::time::{Duration, Instant};

/// The deadline of a step of the peer: it may compare half a gibibyte before it.
const STEP_LIMIT: Duration = Duration::from_secs(30);

/// The longest silence of the peer during a measurement.
const SILENCE: Duration = Duration::from_secs(10);

/// The interval at which a measuring side reports to the peer that it is alive.
const BEAT: Duration = Duration::from_secs(1);

/// The role of this side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// It decides and measures.
    Client,
    /// It follows.
    Server,
}

impl Role {
    pub(crate) const fn other(self) -> Self {
        match self {
            Self::Client => Self::Server,
            Self::Server => Self::Client,
        }
    }
}

/// The peer, and how it is waited for.
pub(crate) struct Link {
    pub(crate) session: Session,
    pub(crate) role: Role,
    /// for greetings and answers
    pub(crate) limit: Duration,
    pub(crate) idle: Idle,
    /// least time before a request is repeated, in the card's steps
    pub(crate) timeout: u8,
    pub(crate) clock: TscClock,
    /// true if this side reports from time to time that it is alive
    pub(crate) beats: bool,
    last_beat: Instant,
}

/// The idling of this side: with fewer than three cores the two drivers and the model share some.
fn idle(options: &Bench) -> Idle {
    options.idle.unwrap_or(match core_count() {
        0..3 => Idle::Yield,
        _ => Idle::Spin,
    })
}

impl Link {
    pub(crate) fn new(session: Session, role: Role, limit: Duration, options: &Bench) -> Self {
        Self {
            session,
            role,
            limit,
            idle: idle(options),
            timeout: options.retransmission_timeout(),
            clock: TscClock::new(),
            beats: true,
            last_beat: Instant::now(),
        }
    }

    pub(crate) fn step(&mut self, step: Step) -> Result<(), SessionError> {
        self.session.synchronise(step, STEP_LIMIT)
    }

    /// Says that this side is still there, if it has not for a second.
    pub(crate) fn beat(&mut self) -> Result<(), SessionError> {
        if !self.beats || self.last_beat.elapsed() < BEAT {
            return Ok(());
        }
        self.last_beat = Instant::now();
        self.session.keep_alive()
    }
}

/// Memory and connected queue pairs of this side, and the data of the peer.
pub(crate) struct End<'d> {
    pub(crate) side: Side<'d>,
    /// the peer's target of each queue pair
    targets: Vec<RemoteRegion>,
    /// place from which the client learns the number of receives that the server has posted, sends
    /// by bandwidth only
    pub(crate) counts: Option<MemoryRegion>,
    remote_counts: Vec<RemoteRegion>,
    stride: usize,
    /// the connections, if the connection manager made them; after the queue pairs
    _managed: Option<Managed>,
}

/// True if the server reports the number of posted receives to the client.
fn counts_receives(test: &Test) -> bool {
    test.task.operation() == Operation::Send && test.measure == Some(Measure::Bw)
}

impl<'d> End<'d> {
    /// Makes queues, sends their data to the peer, and connects to the peer's.
    pub(crate) fn connect(
        (device, neighbours): (&'d Device, &Neighbours),
        plan: &Plan,
        test: &Test,
        link: &mut Link,
    ) -> Result<Self, Failure> {
        let timeout = link.timeout;
        let source = neighbours.source(device);
        let shape = |config: QueuePairConfig| {
            let config = config
                .path_mtu(test.mtu)
                .retransmission_timeout(timeout)
                .outbound_reads(READS)
                .inbound_reads(READS);
            match source {
                Some(gid) => config.gid_index(gid.index),
                None => config,
            }
        };
        let half = half(device, plan, shape)?;
        let counts = match link.role {
            Role::Client if counts_receives(test) => {
                Some(half.register(8 * test.queue_pairs as usize, Access::ALL)?)
            }
            _ => None,
        };
        let managed = match test.by_manager {
            true => Some(Managed::start(
                device,
                &half,
                link.role == Role::Server,
                timeout,
                test,
            )?),
            false => None,
        };
        let greetings = greet(&half, plan, counts.as_ref(), link)?;
        let (mut targets, mut remote_counts, mut endpoints) = (Vec::new(), Vec::new(), Vec::new());
        for greeting in &greetings {
            targets.push(region(greeting, 0, test.size.max(8))?);
            if counts_receives(test) && link.role == Role::Server {
                remote_counts.push(region(greeting, 1, 8)?);
            }
            endpoints.push(greeting.endpoint);
        }
        // Asked for once: they are of one peer.
        if let Some(first) = endpoints.first() {
            let (of_peer, mac) = (first.address, neighbours.next_hop(device, first));
            for one in endpoints.iter_mut().filter(|one| one.address == of_peer) {
                one.mac = mac;
            }
        }
        let (side, managed) = match managed {
            Some(mut managed) => (
                managed.connect(half, &endpoints, link.limit)?,
                Some(managed),
            ),
            None => (half.connect(&endpoints)?, None),
        };
        link.step(Step::Connected)?;
        Ok(Self {
            counts,
            remote_counts,
            _managed: managed,
            ..Self::new(side, targets, stride(plan))
        })
    }

    /// An end that is connected already; `stride` is the length of a queue pair's slot.
    pub(crate) fn new(side: Side<'d>, targets: Vec<RemoteRegion>, stride: usize) -> Self {
        Self {
            side,
            targets,
            counts: None,
            remote_counts: Vec::new(),
            stride,
            _managed: None,
        }
    }

    /// Offset of the slot of queue pair `index` in the own regions.
    pub(crate) fn slot(&self, index: usize) -> usize {
        index * self.stride
    }

    /// Source and destination of the messages of each queue pair.
    pub(crate) fn places(&self) -> Vec<Place> {
        let place = |(index, target): (usize, &RemoteRegion)| Place {
            slot: self.slot(index)..self.slot(index) + self.stride,
            remote: target.at(0),
        };
        self.targets.iter().enumerate().map(place).collect()
    }

    /// Destination of the messages of queue pair `index` at the peer.
    pub(crate) fn remote(&self, index: usize) -> Result<RemoteAddress, Failure> {
        let target = self.targets.get(index).map(|target| target.at(0));
        target.ok_or_else(|| Failure::operation(anyhow!("the peer has no queue pair {index}")))
    }

    /// The place where the peer reads the number of receives of queue pair `index`.
    pub(super) fn remote_count(&self, index: usize) -> Option<RemoteAddress> {
        self.remote_counts.get(index).map(|count| count.at(0))
    }
}

/// Exchanges the greetings of each queue pair with the peer.
fn greet(
    half: &Half<'_>,
    plan: &Plan,
    counts: Option<&MemoryRegion>,
    link: &mut Link,
) -> Result<Vec<Greeting>, Failure> {
    let part = |whole: RemoteRegion, index: usize, bytes: usize| RemoteRegion {
        address: whole.at((index * bytes) as u64).address,
        length_bytes: bytes as u64,
        ..whole
    };
    let mut learnt = Vec::new();
    for (index, endpoint) in half.endpoints().into_iter().enumerate() {
        let mut regions = vec![part(half.target(), index, stride(plan))];
        regions.extend(counts.map(|counts| part(counts.remote(), index, 8)));
        let greeting = Greeting { endpoint, regions };
        learnt.push(link.session.greet(&greeting, link.limit)?);
    }
    Ok(learnt)
}

/// Region `index` of a greeting, which has to be long enough.
fn region(greeting: &Greeting, index: usize, least: u64) -> Result<RemoteRegion, Failure> {
    let found = greeting.regions.get(index).copied();
    let found = found.filter(|region| region.length_bytes >= least);
    found.ok_or_else(|| {
        Failure::operation(anyhow!(
            "the peer's greeting for its queue pair {} has no region {index} of {least} bytes or more; use the same version of ringside on both sides",
            greeting.endpoint.queue_pair
        ))
    })
}

impl Watch {
    /// Counts a round without progress. From time to time it also reads the connection, and returns
    /// the peer's message.
    #[inline(always)]
    pub(crate) fn idle_with(
        &mut self,
        device: &Device,
        link: &mut Link,
    ) -> Result<Option<u8>, Failure> {
        self.rounds += 1;
        match link.idle {
            Idle::Spin if self.rounds < 16_384 => {
                std::hint::spin_loop();
                Ok(None)
            }
            Idle::Yield if self.rounds < 1_024 => {
                std::thread::yield_now();
                Ok(None)
            }
            _ => self.look_with(device, link, Duration::ZERO),
        }
    }

    /// Looks for events of the device and bytes of the peer, at most `at_most` long.
    #[cold]
    pub(crate) fn look_with(
        &mut self,
        device: &Device,
        link: &mut Link,
        at_most: Duration,
    ) -> Result<Option<u8>, Failure> {
        self.rounds = 0;
        let now = ticks();
        let since = *self.since.get_or_insert(now);
        // A failed queue pair completes its requests only once its event has been taken.
        let mut events = Vec::new();
        device.poll_events(&mut events).context("events")?;
        let heard = link.session.peek(at_most)?;
        if heard == Some(b'.') {
            self.since = None;
            return Ok(None);
        }
        let waited = Duration::from_nanos(link.clock.nanoseconds(now.wrapping_sub(since)));
        if waited > SILENCE {
            let told = match events.as_slice() {
                [] => String::new(),
                events => format!("; events: {events:?}"),
            };
            return Err(Failure::operation(anyhow!(
                "no message, no completion and no sign of the peer {} for {} s: the peer, a device or the network has stopped{told}",
                link.session.peer(),
                SILENCE.as_secs()
            )));
        }
        Ok(heard)
    }
}
