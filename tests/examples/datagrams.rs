//! datagrams listen|connect ADDRESS:PORT DEVICE: sends datagrams to a peer and receives them, each
//! answered and compared.
//!
//! The other side is the scene `datagrams` of `tests/guest/verbs_peer`, or this program. They
//! connect over TCP (`docs/exchange.md`: greeting, steps R, P, T and D). Then each side in turn
//! sends a datagram of every length, with and without immediate data, and the other side answers to
//! its source. Exit status 0: every byte, source and immediate was correct.

use ringside_bus::TscClock;
use ringside_config::Config;
use ringside_pmd::rdma::{
    Access, AddressHandle, Completion, CompletionQueue, Datagram, DatagramReady, Destination,
    Endpoint, Flags, MemoryRegion, ProtectionDomain, QueuePair, QueuePairConfig, Route, To,
};
use ringside_pmd::{BringUpOptions, Device};
use ringside_rendezvous::{Greeting, Listener, Session, Step, connect};
use ringside_testkit::claim;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// As in `verbs_peer`.
const QUEUE_KEY: u32 = 0x0123_4567;
const LENGTHS: [usize; 5] = [1, 63, 64, 1000, 1024];
const IMMEDIATE: u32 = 0x51de_0000;

/// The place in the region where datagrams arrive; they are sent from its beginning.
const ARRIVAL: usize = 8192;
const LIMIT: Duration = Duration::from_secs(20);

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// Real time.
fn clock() -> Arc<TscClock> {
    Arc::new(TscClock::new())
}

fn bring_up(text: &str) -> Result<Device> {
    let function = claim(&text.parse()?)?;
    let device = Device::bring_up(function, &Config::default(), BringUpOptions::default());
    Ok(device.map_err(|error| error.to_string())?)
}

/// The content that a side sends: the client is side 0.
fn pattern(length: usize, round: usize, side: usize) -> Vec<u8> {
    let byte = |at: usize| (at * 7 + (at >> 8) * 31 + round * 13 + side * 101 + 1) as u8;
    (0..length).map(byte).collect()
}

/// One end.
struct Station {
    domain: ProtectionDomain,
    completions: CompletionQueue,
    region: MemoryRegion,
    queue_pair: QueuePair<DatagramReady>,
    peer: Endpoint,
    side: usize,
}

/// One datagram and its answer.
#[derive(Clone, Copy)]
struct Round {
    number: usize,
    length: usize,
    immediate: Option<u32>,
}

impl Station {
    fn send(&mut self, round: Round, handle: &AddressHandle, queue_pair: u32) -> Result<()> {
        let payload = pattern(round.length, round.number, self.side);
        if !self.region.write(0, &payload) {
            return Err("the region is too small".into());
        }
        let to = To {
            handle,
            queue_pair,
            queue_key: QUEUE_KEY,
        };
        let pieces = [self.region.slice(0..round.length)?];
        let id = round.number as u64;
        self.queue_pair
            .post_send_to(id, &to, &pieces, round.immediate, Flags::SIGNALLED)?;
        self.queue_pair.ring();
        Ok(())
    }

    fn completion(&mut self) -> Result<Completion> {
        let end = Instant::now() + LIMIT;
        let mut batch = [Completion::EMPTY; 1];
        while Instant::now() < end {
            if let Some(done) = self.completions.poll(&mut batch).first() {
                if !done.is_success() {
                    return Err(format!("completion {}: {}", done.id, done.status()).into());
                }
                return Ok(*done);
            }
        }
        Err("nothing completed in time".into())
    }

    /// The datagram that came: compared, with the way back.
    fn arrived(&self, done: &Completion, round: Round) -> Result<(Datagram, Destination)> {
        let datagram = done.datagram().ok_or("no datagram")?;
        let found = (
            datagram.source_queue_pair,
            datagram.payload_bytes as usize,
            done.immediate(),
        );
        let wanted = (self.peer.queue_pair, round.length, round.immediate);
        if found != wanted {
            return Err(
                format!("round {}: {found:x?} instead of {wanted:x?}", round.number).into(),
            );
        }
        if datagram.source_mac.is_some_and(|mac| mac != self.peer.mac) {
            return Err(format!("it came from {:x?}", datagram.source_mac).into());
        }
        let mut head = [0; Datagram::PAYLOAD_OFFSET];
        let mut payload = vec![0; round.length + 1];
        let read = self.region.read(ARRIVAL, &mut head)
            && self.region.read(ARRIVAL + head.len(), &mut payload);
        let route = Route::parse(&head, datagram.ipv4).ok_or("no route before the payload")?;
        if !read || route.source != self.peer.address {
            return Err(format!("it came from {}", route.source).into());
        }
        let mut wanted = pattern(round.length, round.number, 1 - self.side);
        wanted.push(0);
        if payload != wanted {
            let at = payload.iter().zip(&wanted).position(|(a, b)| a != b);
            return Err(format!("round {}: byte {at:?} is wrong", round.number).into());
        }
        let back = Destination::answer(&datagram, &route).ok_or("no way back")?;
        Ok((datagram, back))
    }

    fn play(
        &mut self,
        session: &mut Session,
        asks: bool,
        round: Round,
        handle: &AddressHandle,
    ) -> Result<()> {
        let arrival = ARRIVAL..ARRIVAL + Datagram::PAYLOAD_OFFSET + 4096;
        if !self.region.write(ARRIVAL, &vec![0; arrival.len()]) {
            return Err("the region is too small".into());
        }
        let place = self.region.slice(arrival)?;
        self.queue_pair.receive(round.number as u64, &[place])?;
        session.synchronise(Step::Prepared, LIMIT)?;
        if asks {
            self.send(round, handle, self.peer.queue_pair)?;
            let (first, second) = (self.completion()?, self.completion()?);
            let came = if first.datagram().is_some() {
                first
            } else {
                second
            };
            self.arrived(&came, round)?;
        } else {
            let done = self.completion()?;
            let (datagram, back) = self.arrived(&done, round)?;
            let answer = self.domain.address_handle(&back)?;
            self.send(round, &answer, datagram.source_queue_pair)?;
            self.completion()?;
        }
        session.synchronise(Step::Transferred, LIMIT)?;
        Ok(())
    }
}

fn all_rounds(station: &mut Station, session: &mut Session) -> Result<usize> {
    let handle = station
        .domain
        .address_handle(&Destination::from(&station.peer))?;
    let mut number = 0;
    for asking in 0..2 {
        for length in LENGTHS {
            for immediate in [false, true] {
                number += 1;
                let round = Round {
                    number,
                    length,
                    immediate: immediate.then_some(IMMEDIATE + number as u32),
                };
                station.play(session, asking == station.side, round, &handle)?;
            }
        }
    }
    Ok(number)
}

fn run(device: &Device, mut session: Session, side: usize) -> Result<()> {
    let domain = device.protection_domain()?;
    let completions = device.completion_queue(64)?;
    let region = domain.register(device.allocate(1 << 14)?, Access::LOCAL_WRITE)?;
    let queue_pair = domain.datagram_queue_pair(QueuePairConfig::datagram(&completions))?;
    let queue_pair = queue_pair.ready(QUEUE_KEY).map_err(|failed| failed.error)?;
    let ours = Greeting {
        endpoint: queue_pair.endpoint(),
        regions: Vec::new(),
    };
    let peer = session.greet(&ours, LIMIT)?.endpoint;
    session.synchronise(Step::Connected, LIMIT)?;
    let mut station = Station {
        domain,
        completions,
        region,
        queue_pair,
        peer,
        side,
    };
    match all_rounds(&mut station, &mut session) {
        Ok(rounds) => {
            session.synchronise(Step::Done, LIMIT)?;
            println!("verified: {rounds} datagrams, each answered");
            Ok(())
        }
        Err(error) => {
            session.fail(&error.to_string());
            Err(error)
        }
    }
}

fn main() -> Result<()> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let [how, place, address] = arguments.as_slice() else {
        return Err("usage: datagrams listen|connect ADDRESS:PORT DEVICE".into());
    };
    let device = bring_up(address)?;
    let (session, side) = match how.as_str() {
        "connect" => (connect(place.parse()?, LIMIT, clock())?, 0),
        _ => {
            let listener = Listener::bind(place.parse()?, clock())?;
            println!("listening on {}", listener.address());
            (listener.accept(LIMIT)?, 1)
        }
    };
    let ran = run(&device, session, side);
    let report = device.shutdown();
    ran?;
    if !report.failures.is_empty() || report.leaked_bytes != 0 {
        return Err(format!("taking down: {:?}", report.failures).into());
    }
    Ok(())
}
