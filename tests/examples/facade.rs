//! facade ADDRESS:PORT DEVICE PEER [release]: a program as users of the package `ringside-nic`
//! write it, against Linux's RDMA stack.
//!
//! The other side are the scenes `exchange` and `failures` of `tests/guest/verbs_peer`, which
//! listens on ADDRESS:PORT and has the IP address PEER on the device's network. The program opens
//! the device by its address and lets the housekeeping thread do its work. The port's stack finds
//! the peer, and answers the peer for the port's own address and for one that is added at run time.
//! Then writes, reads and sends use the program's own memory (`tests/examples/exchange`), and
//! requests fail in each way that `poll` has to report. With `release` it then waits until the host
//! asks for the device, and shuts it down.
//!
//! Exit status 0: every byte and every status was correct, nothing was left over.
#![allow(unsafe_code)] // maps memory and forks

mod exchange;

use exchange::{ADDED, End, LIMIT, Result, Turn, ask, offered, rights};
use ringside::bus::TscClock;
use ringside::driver::rdma::PostError;
use ringside::prelude::*;
use ringside_rendezvous::{Greeting, Session, Step, connect};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The longest wait for the host.
const HOST: Duration = Duration::from_secs(120);
const BYTES: usize = 64;
/// The requests behind the one that fails.
const BEHIND: u64 = 3;

/// One device and its peer.
struct Program<'a> {
    device: &'a Device,
    domain: ProtectionDomain,
    peer: IpAddr,
}

/// An end of a connection, connected.
struct Pair {
    session: Session,
    queue_pair: QueuePair<Connected>,
    target: RemoteRegion,
}

impl Program<'_> {
    /// Connects a queue pair. The peer's MAC address is that which the port's stack finds, not the
    /// one of its greeting.
    fn connect(
        &self,
        mut session: Session,
        config: QueuePairConfig,
        offered: RemoteRegion,
    ) -> Result<Pair> {
        let queue_pair = self.domain.queue_pair(config)?;
        let ours = Greeting {
            endpoint: queue_pair.endpoint(),
            regions: vec![offered],
        };
        let theirs = session.greet(&ours, LIMIT)?;
        let mut endpoint = theirs.endpoint;
        if endpoint.address != self.peer {
            return Err(format!("the peer is {}, not {}", endpoint.address, self.peer).into());
        }
        let found = self.device.resolve(self.peer)?;
        if found.mac != endpoint.mac {
            return Err(format!("{found:?} was found, the peer is {endpoint:?}").into());
        }
        endpoint.mac = found.mac;
        let queue_pair = queue_pair
            .connect(&endpoint)
            .map_err(|failed| failed.error)?;
        session.synchronise(Step::Connected, LIMIT)?;
        let target = *theirs.regions.first().ok_or("no region to write to")?;
        Ok(Pair {
            session,
            queue_pair,
            target,
        })
    }

    fn exchange(&self, session: Session) -> Result<(usize, Session)> {
        exchange::all(session, |mut session, memory, task, turn| {
            ask(&mut session, Some(task))?;
            let buffer = self.device.map_memory(memory.clone())?;
            let region = self.domain.register(buffer, rights())?;
            let completions = self.device.completion_queue(64)?;
            let mut config = QueuePairConfig::reliable(&completions);
            if turn == Turn::AddedAddress {
                let added: ringside::config::LocalAddress = ADDED.parse()?;
                config = config.local_address(added.address);
            }
            let Pair {
                session,
                queue_pair,
                target,
            } = self.connect(session, config, offered(&region))?;
            let end = End {
                session,
                task,
                turn,
                region,
                completions,
                queue_pair,
                target,
            };
            end.run()
        })
    }

    /// A request that fails with a status, and those behind it, which are flushed; all seen by
    /// polling alone.
    fn failure(&self, session: Session, failure: Failure) -> Result<Session> {
        let memory = vec![0xEE_u8; BYTES];
        let region = self
            .domain
            .register(self.device.map_memory(memory)?, rights())?;
        let mut completions = self.device.completion_queue(64)?;
        let config = QueuePairConfig::reliable(&completions)
            .retries(3)
            .receiver_not_ready_retries(3);
        let mut pair = self.connect(session, config, region.remote())?;
        if failure == Failure::Gone {
            // The peer destroys its queue pair before this step.
            pair.session.synchronise(Step::Prepared, LIMIT)?;
        }
        let piece = [region.slice(0..BYTES)?];
        let mut target = pair.target;
        if failure == Failure::Key {
            target.key ^= 0x80;
        }
        match failure {
            Failure::NoReceive => pair.queue_pair.send(0, &piece, Flags::SIGNALLED)?,
            Failure::Key | Failure::Gone => {
                pair.queue_pair
                    .write(0, &piece, target.at(0), Flags::SIGNALLED)?;
            }
        }
        let mut behind = 0;
        while behind < BEHIND {
            let place = pair.target.at(0);
            let posted = pair
                .queue_pair
                .write(behind + 1, &piece, place, Flags::SIGNALLED);
            match posted {
                Ok(()) => behind += 1,
                // A device may take requests before the doorbell: the first one has failed already.
                Err(PostError::Failed) => break,
                Err(error) => return Err(error.into()),
            }
        }
        pair.queue_pair.ring();
        let ended = wait_for(&mut completions, 1 + behind)?;
        let flushed = (1..=behind).map(|id| (id, Status::Flushed));
        let wanted: Vec<_> = [(0, failure.status())].into_iter().chain(flushed).collect();
        if ended != wanted {
            return Err(format!("requests ended as {ended:?}, not as {wanted:?}").into());
        }
        println!("status: {}, {behind} requests flushed", failure.status());
        pair.session.synchronise(Step::Measuring, LIMIT)?;
        pair.session.synchronise(Step::Done, LIMIT)?;
        Ok(pair.session)
    }

    /// Waits until the host asks for the device.
    fn release(&self, events: &mut Vec<Event>) -> Result<()> {
        println!("waiting for the host");
        let end = Instant::now() + HOST;
        while !events.contains(&Event::ReleaseRequested) {
            if Instant::now() > end {
                return Err(format!("the host did not ask; events: {events:?}").into());
            }
            std::thread::sleep(Duration::from_millis(10));
            self.device.poll_events(events)?;
        }
        println!("the host asks for the device");
        Ok(())
    }
}

/// The cause of a failure that the scene `failures` of the other side expects, in its order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Failure {
    Key,
    NoReceive,
    Gone,
}

impl Failure {
    const fn status(self) -> Status {
        match self {
            Self::Key => Status::RemoteAccess,
            Self::NoReceive => Status::ReceiverNotReady,
            Self::Gone => Status::RetryExceeded,
        }
    }
}

/// The requests that ended, in this order, with their statuses.
fn wait_for(completions: &mut CompletionQueue, count: u64) -> Result<Vec<(u64, Status)>> {
    let end = Instant::now() + LIMIT;
    let mut ended = Vec::new();
    let mut batch = [Completion::EMPTY; 8];
    while (ended.len() as u64) < count {
        let done = completions.poll(&mut batch);
        ended.extend(done.iter().map(|done| (done.id, done.status())));
        if Instant::now() > end {
            return Err(format!("only {ended:?} ended").into());
        }
    }
    Ok(ended)
}

fn main() -> Result<()> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let (place, address, peer, release) = match arguments.as_slice() {
        [place, address, peer] => (place, address, peer, false),
        [place, address, peer, word] if word == "release" => (place, address, peer, true),
        _ => return Err("usage: facade ADDRESS:PORT DEVICE PEER [release]".into()),
    };
    let device = ringside::open(address, &Config::default())?;
    device.serve_network()?;
    let before = device.object_usage()?;
    device.add_address(ADDED.parse()?)?;
    let program = Program {
        device: &device,
        domain: device.protection_domain()?,
        peer: peer.parse()?,
    };
    let session = connect(place.parse()?, LIMIT, Arc::new(TscClock::new()))?;
    let (tests, mut session) = program.exchange(session)?;
    println!("{tests} tests verified");
    for failure in [Failure::Key, Failure::NoReceive, Failure::Gone] {
        session = program.failure(session, failure)?;
    }
    drop(session);
    let mut events = Vec::new();
    device.poll_events(&mut events)?;
    println!("events: {events:?}");
    if release {
        program.release(&mut events)?;
    }
    drop(program);
    let after = device.object_usage()?;
    if (before != after) || device.life() != 1 {
        return Err(format!(
            "life {}: {after:?} is in use, {before:?} was",
            device.life()
        )
        .into());
    }
    let report = device.shutdown();
    match report.failures.is_empty() && report.leaked_bytes == 0 {
        true => Ok(()),
        false => Err(format!(
            "taking down: {:?}, {} bytes leaked",
            report.failures, report.leaked_bytes
        )
        .into()),
    }
}
