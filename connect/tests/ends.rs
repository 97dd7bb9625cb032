//! Connections that end while they are made, and many that end at once.

use ringside_cm::mad::Message;
use ringside_cm::message::MAX_REJECTION_PRIVATE_BYTES;
use ringside_cm::{
    Accept, Action, Event, EventKind, Identity, Manager, PortSpace, Refused, ServiceId,
};
use ringside_connect::{
    ConnectError, Connection, ConnectionManager, End, Lookup, Reason, Service, Settings,
};
use ringside_pmd::Device;
use ringside_pmd::rdma::QueuePairConfig;
use ringside_pmd::rdma::address::MacAddress;
use ringside_testkit::{bring_up_all, config, threaded};
use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const PORT: u16 = 7471;
const WAIT: Duration = Duration::from_secs(30);

fn mac(device: &Device) -> MacAddress {
    device.facts().mac().unwrap()
}

fn address(device: &Device) -> SocketAddr {
    SocketAddr::new(device.local_addresses().unwrap()[0], PORT)
}

fn manager(device: &Device, peer: &Device) -> ConnectionManager {
    let hop = mac(peer).into();
    ConnectionManager::start(device, move |_| Lookup::Found(hop)).unwrap()
}

/// A peer by the messages alone: it has no queue pairs, and answers as a test wants.
struct Peer {
    service: Service,
    manager: Manager,
    to: MacAddress,
    began: Instant,
}

impl Peer {
    /// Listens on all addresses of the device.
    fn listen(device: &Device, other: &Device) -> Self {
        let mut manager = Manager::new(Identity::of(2, 3));
        for gid in device.gids().unwrap() {
            manager.add_address(gid.address.address, gid.address.vlan);
        }
        let service = ServiceId::of(PortSpace::Tcp, PORT);
        manager.listen(service, None, 16).unwrap();
        Self {
            service: Service::open(device).unwrap(),
            manager,
            to: mac(other),
            began: Instant::now(),
        }
    }

    /// Takes what has arrived; `react` answers the events. The answers leave together.
    fn turn(&mut self, mut react: impl FnMut(&mut Manager, Duration, Event)) {
        let now = self.began.elapsed();
        let (manager, to) = (&mut self.manager, self.to);
        self.service.poll(|arrived| {
            manager.receive(now, arrived).unwrap();
        });
        let mut messages = Vec::new();
        while let Some(action) = manager.next_action() {
            match action {
                Action::Send(message) => messages.push(message),
                Action::Event(event) => react(manager, now, event),
            }
        }
        for message in messages {
            self.service.send(message, &|_, _| Lookup::Found(to));
        }
    }
}

/// An answer with a queue pair that does not exist.
fn answer() -> Accept {
    Accept {
        queue_pair: 9,
        shared_receive_queue: false,
        responder_resources: 1,
        initiator_depth: 1,
        flow_control: true,
        rnr_retry_count: 7,
        private_data: Vec::new(),
    }
}

/// Sets it when a test ends or fails, so that a thread that waits for it ends.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// REP and REJ of a server whose program gives up: both arrive before this side has set its queue
/// pair.
#[test]
fn a_peer_that_refuses_after_its_answer_is_named_with_its_private_data() {
    const REFUSALS: usize = 5;
    let model = threaded();
    let devices: [Device; 2] = bring_up_all(|index| model.function(index), &config());
    let [client, server] = &devices;
    let mut peer = Peer::listen(server, client);
    let manager = manager(client, server);
    let mut told = b"too late".to_vec();
    let refusal = Refused {
        private_data: told.clone(),
        ..Refused::because(Reason::CONSUMER)
    };
    told.resize(MAX_REJECTION_PRIVATE_BYTES, 0);
    let answer = answer();
    let is_over = AtomicBool::new(false);
    let queue = client.completion_queue(16).unwrap();
    let domain = client.protection_domain().unwrap();
    let connect = || {
        let pair = domain
            .queue_pair(QueuePairConfig::reliable(&queue))
            .unwrap();
        manager.connect(pair, address(server), &Settings::default(), WAIT)
    };
    let refused = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                peer.turn(|manager, now, event| {
                    if let EventKind::Request { .. } = event.kind {
                        manager.accept(now, event.id, &answer).unwrap();
                        manager.reject(event.id, &refusal).unwrap();
                        manager.destroy(now, event.id);
                    }
                });
                std::thread::yield_now();
            }
        });
        let _over = Over(&is_over);
        // On a busy machine some connections are made before the refusal arrives.
        let mut refused = 0;
        for _ in 0..200 {
            match connect() {
                Ok(mut made) => {
                    assert!(made.wait_for_end(WAIT));
                    assert_eq!(made.end(), Some(End::Rejected(Reason::CONSUMER)));
                }
                Err(ConnectError::Rejected {
                    reason: Reason::CONSUMER,
                    private_data,
                }) if private_data == told => refused += 1,
                Err(error) => panic!("{error}: {error:?}"),
            }
            if refused == REFUSALS {
                break;
            }
        }
        refused
    });
    assert!(refused > 0, "each refusal came after the connection");
}

/// Makes `count` connections, by some threads of each side.
fn connections(
    count: usize,
    [client, server]: &[Device; 2],
    [near, far]: [&ConnectionManager; 2],
) -> [Vec<Connection>; 2] {
    const THREADS: usize = 4;
    let listener = far.listen(address(server), 64).unwrap();
    let numbers = [AtomicUsize::new(0), AtomicUsize::new(0)];
    let is_next = |side: usize| numbers[side].fetch_add(1, Ordering::Relaxed) < count;
    let domains = [client, server].map(|device| device.protection_domain().unwrap());
    let queues = [client, server].map(|device| device.completion_queue(16384).unwrap());
    let targets = [queues[0].target(), queues[1].target()];
    let pair = |side: usize| {
        let config = QueuePairConfig::reporting_to(targets[side].clone());
        let config = config.send_requests(2).receive_requests(2);
        domains[side].queue_pair(config).unwrap()
    };
    let settings = Settings::default();
    let connect = || near.connect(pair(0), address(server), &settings, WAIT);
    let accept = || {
        let request = listener.next(WAIT).expect("a request");
        request.accept(pair(1), &settings, WAIT)
    };
    let made: [Mutex<Vec<Connection>>; 2] = Default::default();
    let keep = |side: usize, one: Result<Connection, ConnectError>| {
        let one = one.unwrap_or_else(|error| panic!("{error}"));
        made[side].lock().unwrap().push(one);
    };
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                while is_next(0) {
                    keep(0, connect());
                }
            });
            scope.spawn(|| {
                while is_next(1) {
                    keep(1, accept());
                }
            });
        }
    });
    made.map(|side| side.into_inner().unwrap())
}

/// More than a peer has room for before it reads them.
#[test]
fn a_manager_that_is_dropped_tells_the_peers_of_all_its_connections() {
    const ALL: usize = 700;
    let model = threaded();
    let mut config = config();
    config.rdma.queue_pairs = 1024;
    let devices: [Device; 2] = bring_up_all(|index| model.function(index), &config);
    let [client, server] = &devices;
    let (near, far) = (manager(client, server), manager(server, client));
    let [mut ours, theirs] = connections(ALL, &devices, [&near, &far]);
    drop(far);
    let limit = Instant::now() + WAIT;
    let mut told =
        |one: &mut Connection| one.wait_for_end(limit.saturating_duration_since(Instant::now()));
    let count = ours.iter_mut().map(&mut told).filter(|told| *told).count();
    assert_eq!(count, ALL);
    let is_told = |one: &Connection| one.end() == Some(End::Disconnected);
    assert!(ours.iter().all(is_told), "{:?}", ours[0].end());
    drop(theirs);
}

#[test]
fn a_manager_that_is_dropped_repeats_messages_that_the_peer_does_not_confirm() {
    let model = threaded();
    let devices: [Device; 2] = bring_up_all(|index| model.function(index), &config());
    let [client, server] = &devices;
    let mut peer = Peer::listen(server, client);
    let manager = manager(client, server);
    let queue = client.completion_queue(16).unwrap();
    let domain = client.protection_domain().unwrap();
    let pair = domain.queue_pair(QueuePairConfig::reliable(&queue));
    let answer = answer();
    let settings = Settings::default();
    let made = std::thread::scope(|scope| {
        let connecting =
            scope.spawn(|| manager.connect(pair.unwrap(), address(server), &settings, WAIT));
        while !connecting.is_finished() {
            peer.turn(|manager, now, event| {
                if let EventKind::Request { .. } = event.kind {
                    manager.accept(now, event.id, &answer).unwrap();
                }
            });
            std::thread::yield_now();
        }
        connecting.join().unwrap()
    });
    let made = made.unwrap_or_else(|error| panic!("{error}"));
    let mut heard = 0;
    let mut read = |peer: &mut Peer| {
        let before = heard;
        peer.service.poll(|arrived| {
            let mad = arrived.mad().unwrap();
            heard += usize::from(matches!(mad.message, Message::Disconnect(_)));
        });
        heard > before
    };
    // It reads, and does not answer.
    std::thread::scope(|scope| {
        let dropping = scope.spawn(|| drop(manager));
        while !dropping.is_finished() {
            read(&mut peer);
            std::thread::yield_now();
        }
    });
    while read(&mut peer) {}
    assert!(heard >= 2, "{heard}");
    drop(made);
}
