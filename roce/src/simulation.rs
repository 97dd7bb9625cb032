//! Two engines back to back over a network that loses, repeats and reorders, from one seed.

mod peer;
mod seeds;

use peer::{BASE, READABLE_KEY, WRITABLE_KEY, through_a_frame};
use std::collections::VecDeque;
use std::net::Ipv4Addr;
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{Rng, RngCore, SeedableRng};
use ringside_clock::Instant;

use super::*;
use crate::packet::{
    self, Extension, Ipv4, MacAddress, NegativeCode, Network, Opcode, OpcodeClass, Packet, Path,
    Psn, QpNumber, Syndrome, TransportHeaders, UdpChecksum,
};

/// The network's effect on a packet, in thousandths.
#[derive(Clone, Copy, Debug, Default)]
struct Faults {
    drop: u32,
    duplicate: u32,
    delay: u32,
}

/// The form in which a packet crosses the wire.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Wire {
    /// as the values that the engines exchange
    Values,
    /// as a frame, written and read again
    Frames,
}

#[derive(Clone, Copy, Debug)]
struct Setup {
    seed: u64,
    mtu: PathMtu,
    faults: Faults,
    wire: Wire,
    requests: usize,
    longest_bytes: u32,
    /// of a thousand turns, how many post a receive request
    receives: u32,
    /// the most packets of a responder that leave in a turn
    responses: u32,
}

struct Adapter {
    writable: Vec<u8>,
    readable: Vec<u8>,
    receives: VecDeque<(u32, u32)>,
    valid_key: Option<u32>,
}

impl ResponderHost for Adapter {
    type Grant = u32;

    fn allows(&self, _: RemoteRight) -> bool {
        true
    }

    fn grant(
        &mut self,
        key: u32,
        address: u64,
        length_bytes: u32,
        right: RemoteRight,
    ) -> Result<u32, AccessFault> {
        let memory = match (key, right) {
            (WRITABLE_KEY, RemoteRight::Write) => &self.writable,
            (READABLE_KEY, RemoteRight::Read) => &self.readable,
            (WRITABLE_KEY | READABLE_KEY, _) => return Err(AccessFault::Rights),
            _ => return Err(AccessFault::UnallocatedKey),
        };
        let start = address.checked_sub(BASE).ok_or(AccessFault::Bounds)?;
        if start + u64::from(length_bytes) > memory.len() as u64 {
            return Err(AccessFault::Bounds);
        }
        Ok(key)
    }

    fn take_receive(&mut self) -> Receive {
        match self.receives.pop_front() {
            Some((token, capacity_bytes)) => Receive::Ready {
                token,
                capacity_bytes,
            },
            None => Receive::Empty,
        }
    }

    fn may_invalidate(&mut self, key: u32) -> Result<(), AccessFault> {
        match self.valid_key == Some(key) {
            true => Ok(()),
            false => Err(AccessFault::UnallocatedKey),
        }
    }
}

struct Peer {
    requester: Requester,
    responder: Responder<u32>,
    adapter: Adapter,
    to_post: VecDeque<WorkRequest>,
    posted: Vec<WorkRequest>,
    /// bytes of each of our work requests; sinks for reads
    messages: Vec<Vec<u8>>,
    receive_buffers: Vec<Vec<u8>>,
    received: Vec<Received>,
    completed: Vec<u32>,
    sequence_naks_sent: u64,
}

struct InFlight {
    at: Instant,
    order: u64,
    to: usize,
    headers: TransportHeaders,
    payload: Vec<u8>,
}

struct World {
    setup: Setup,
    rng: SmallRng,
    now: Instant,
    order: u64,
    peers: [Peer; 2],
    network: Vec<InFlight>,
}

fn bytes(rng: &mut SmallRng, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    rng.fill_bytes(&mut bytes);
    bytes
}

/// Work whose effects can be distinguished afterwards: each write has its own place.
fn plan(setup: &Setup, rng: &mut SmallRng) -> (Vec<WorkRequest>, u64) {
    let mut written = 0u64;
    let requests = (0..setup.requests as u32)
        .map(|token| {
            let length_bytes = match rng.random_range(0..6) {
                0 => 0,
                1 => rng.random_range(0..=8),
                2 => setup.mtu.bytes() * rng.random_range(1..=3),
                _ => rng.random_range(0..=setup.longest_bytes),
            };
            let address = BASE + written;
            let operation = match rng.random_range(0..10) {
                0 => Operation::Local,
                1 => Operation::SendWithImmediate(rng.random()),
                2 | 3 => Operation::Send,
                4 => Operation::WriteWithImmediate {
                    address,
                    key: WRITABLE_KEY,
                    immediate: rng.random(),
                },
                5..=7 => Operation::Write {
                    address,
                    key: WRITABLE_KEY,
                },
                _ => Operation::Read {
                    address: BASE + rng.random_range(0..100),
                    key: READABLE_KEY,
                },
            };
            if matches!(
                operation,
                Operation::Write { .. } | Operation::WriteWithImmediate { .. }
            ) {
                written += u64::from(length_bytes);
            }
            WorkRequest {
                token,
                operation,
                length_bytes,
                solicited: rng.random(),
            }
        })
        .collect();
    (requests, written)
}

impl World {
    fn new(setup: Setup) -> Self {
        let mut rng = SmallRng::seed_from_u64(setup.seed);
        let psn = [
            Psn::new(rng.random()),
            Psn::new(0xFF_FFF0 + rng.random_range(0..16)),
        ];
        let plans = [plan(&setup, &mut rng), plan(&setup, &mut rng)];
        let peers = [0, 1].map(|me: usize| {
            let other = 1 - me;
            let mut requester =
                RequesterConfig::new(QpNumber::new(other as u32), setup.mtu, psn[me]);
            requester.outstanding_reads = 4;
            requester.retry_limit = 25;
            requester.window_packets = 48;
            requester.acknowledge_every_packets = 16;
            requester.capacity = 32;
            let mut responder =
                ResponderConfig::new(QpNumber::new(other as u32), setup.mtu, psn[other]);
            responder.inbound_reads = 4;
            responder.not_ready_timer = 1;
            let readable = bytes(&mut rng, setup.longest_bytes as usize + 3 * 4096 + 100);
            let (requests, _) = &plans[me];
            let messages = requests.iter().map(|work| match work.operation {
                Operation::Read { .. } => vec![0; work.length_bytes as usize],
                _ => bytes(&mut rng, work.length_bytes as usize),
            });
            Peer {
                requester: Requester::new(&requester),
                responder: Responder::new(&responder),
                adapter: Adapter {
                    writable: vec![0; plans[other].1 as usize],
                    readable,
                    receives: VecDeque::new(),
                    valid_key: None,
                },
                messages: messages.collect(),
                to_post: requests.iter().copied().collect(),
                posted: requests.clone(),
                receive_buffers: Vec::new(),
                received: Vec::new(),
                completed: Vec::new(),
                sequence_naks_sent: 0,
            }
        });
        Self {
            setup,
            rng,
            now: Instant(1),
            order: 0,
            peers,
            network: Vec::new(),
        }
    }

    fn chance(&mut self, thousandths: u32) -> bool {
        self.rng.random_range(0..1000) < thousandths
    }

    /// Puts a packet on the wire, or not.
    fn transmit(&mut self, from: usize, headers: TransportHeaders, payload: Vec<u8>) {
        if let (Opcode::ACKNOWLEDGE, Extension::Acknowledge(answer)) =
            (headers.opcode, headers.extension)
            && answer.syndrome == Syndrome::Negative(NegativeCode::SEQUENCE_ERROR)
        {
            self.peers[from].sequence_naks_sent += 1;
        }
        let (headers, payload) = match self.setup.wire {
            Wire::Values => (headers, payload),
            Wire::Frames => through_a_frame(headers, &payload),
        };
        if self.chance(self.setup.faults.drop) {
            return;
        }
        let copies = if self.chance(self.setup.faults.duplicate) {
            2
        } else {
            1
        };
        for _ in 0..copies {
            let late = if self.chance(self.setup.faults.delay) {
                self.rng.random_range(0..20_000)
            } else {
                0
            };
            self.order += 1;
            let at = self.now.plus(Duration::from_nanos(2_000 + late));
            let (order, payload) = (self.order, payload.clone());
            self.network.push(InFlight {
                at,
                order,
                to: 1 - from,
                headers,
                payload,
            });
        }
    }

    /// Lets a peer post and send.
    fn send(&mut self, me: usize) {
        let may_receive = self.chance(self.setup.receives);
        let peer = &mut self.peers[me];
        if may_receive && peer.adapter.receives.len() < 8 {
            let token = peer.receive_buffers.len() as u32;
            let capacity = self.setup.longest_bytes.max(3 * 4096);
            peer.receive_buffers.push(vec![0; capacity as usize]);
            peer.adapter.receives.push_back((token, capacity));
        }
        while peer.requester.room() > 0
            && let Some(work) = peer.to_post.pop_front()
        {
            peer.requester.post(work).expect("there is room");
        }
        for _ in 0..self.setup.responses {
            let Some(packet) = self.peers[me].responder.next_packet() else {
                break;
            };
            let payload = packet.payload.map_or(Vec::new(), |bytes| {
                let start = (bytes.address - BASE) as usize;
                self.peers[me].adapter.readable[start..start + bytes.length_bytes as usize].to_vec()
            });
            self.transmit(me, packet.headers, payload);
        }
        for _ in 0..8 {
            let Some(packet) = self.peers[me].requester.next_packet(self.now) else {
                break;
            };
            let MessageBytes {
                token,
                offset_bytes,
                length_bytes,
            } = packet.payload;
            let range = offset_bytes as usize..(offset_bytes + length_bytes) as usize;
            let payload = self.peers[me].messages[token as usize][range].to_vec();
            self.transmit(me, packet.headers, payload);
        }
    }

    /// Delivers the packet that is due first.
    fn deliver(&mut self) -> bool {
        let Some(index) = (0..self.network.len())
            .min_by_key(|index| (self.network[*index].at, self.network[*index].order))
        else {
            return false;
        };
        let InFlight {
            at,
            to,
            headers,
            payload,
            ..
        } = self.network.swap_remove(index);
        self.now = self.now.max(at);
        let peer = &mut self.peers[to];
        match headers.opcode.class() {
            OpcodeClass::Request => peer.take_request(&headers, &payload),
            OpcodeClass::Response => peer.take_response(self.now, &headers, &payload),
            other => panic!("{other:?}"),
        }
        true
    }

    fn run(&mut self) {
        for _ in 0..3_000_000 {
            self.send(0);
            self.send(1);
            let delivered = self.deliver();
            let mut wake = None;
            for peer in &mut self.peers {
                peer.requester
                    .on_time(self.now)
                    .expect("retries are not used up");
                while let Some(done) = peer.requester.next_completion() {
                    peer.completed.push(done.token);
                }
                wake = match (wake, peer.requester.deadline()) {
                    (Some(a), Some(b)) => Some(std::cmp::min::<Instant>(a, b)),
                    (a, b) => a.or(b),
                };
            }
            let finished = self
                .peers
                .iter()
                .all(|peer| peer.to_post.is_empty() && peer.requester.is_idle());
            if !delivered {
                if finished {
                    return;
                }
                let busy = self.peers.iter().any(|peer| peer.responder.has_packet());
                if let (Some(wake), false, true) = (wake, busy, self.network.is_empty()) {
                    self.now = self.now.max(wake);
                }
            }
        }
        panic!("not finished: {:?}", self.setup);
    }

    /// Every byte where it belongs, every request done once and in order.
    fn verify(&self) {
        for me in [0, 1] {
            let (sender, receiver) = (&self.peers[me], &self.peers[1 - me]);
            let tokens: Vec<u32> = sender.posted.iter().map(|work| work.token).collect();
            assert_eq!(sender.completed, tokens, "{:?}", self.setup);
            let mut received = receiver.received.iter();
            for work in &sender.posted {
                let message = &sender.messages[work.token as usize];
                self.verify_request(work, message, receiver, &mut received);
            }
            assert_eq!(received.next(), None, "{:?}", self.setup);
            let counted = receiver.responder.statistics();
            assert!(
                receiver.sequence_naks_sent <= counted.gaps,
                "{:?}",
                self.setup
            );
        }
    }

    fn verify_request<'a>(
        &self,
        work: &WorkRequest,
        message: &[u8],
        receiver: &Peer,
        received: &mut impl Iterator<Item = &'a Received>,
    ) {
        let memory =
            |all: &[u8], address: u64| all[(address - BASE) as usize..][..message.len()].to_vec();
        let immediate = match work.operation {
            Operation::Local => return,
            Operation::Read { address, .. } => {
                assert_eq!(
                    message,
                    memory(&receiver.adapter.readable, address),
                    "{work:?}"
                );
                return;
            }
            Operation::Write { address, .. } => {
                assert_eq!(
                    message,
                    memory(&receiver.adapter.writable, address),
                    "{work:?}"
                );
                return;
            }
            Operation::WriteWithImmediate {
                address, immediate, ..
            } => {
                assert_eq!(
                    message,
                    memory(&receiver.adapter.writable, address),
                    "{work:?}"
                );
                Some(immediate)
            }
            Operation::SendWithImmediate(immediate) => Some(immediate),
            Operation::Send | Operation::SendWithInvalidate(_) => None,
        };
        let done = received.next().expect("a completion for each message");
        assert_eq!(done.immediate, immediate, "{work:?}");
        assert_eq!(done.length_bytes, work.length_bytes, "{work:?}");
        assert_eq!(done.solicited, work.solicited, "{work:?}");
        if !matches!(work.operation, Operation::WriteWithImmediate { .. }) {
            let buffer = &receiver.receive_buffers[done.token as usize];
            assert_eq!(
                &buffer[..message.len()],
                message,
                "{work:?} of {:?}",
                self.setup
            );
        }
    }
}

fn simulate(setup: Setup) -> World {
    let mut world = World::new(setup);
    world.run();
    world.verify();
    world
}

fn small(seed: u64, mtu: PathMtu) -> Setup {
    Setup {
        seed,
        mtu,
        faults: Faults::default(),
        wire: Wire::Values,
        requests: 120,
        longest_bytes: 5 * mtu.bytes(),
        receives: 400,
        responses: u32::MAX,
    }
}
