//! Connections that end while they are made.

use ringside_cm::message::MAX_REJECTION_PRIVATE_BYTES;
use ringside_cm::{
    Accept, Action, Event, EventKind, Identity, Manager, PortSpace, Refused, ServiceId,
};
use ringside_connect::{
    ConnectError, ConnectionManager, End, Lookup, Reason, Service, Settings,
};
use ringside_pmd::Device;
use ringside_pmd::rdma::QueuePairConfig;
use ringside_pmd::rdma::address::MacAddress;
use ringside_testkit::{bring_up_all, config, threaded};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
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
                Err(error) => {
                    is_over.store(true, Ordering::Relaxed);
                    panic!("{error}: {error:?}");
                }
            }
            if refused == REFUSALS {
                break;
            }
        }
        is_over.store(true, Ordering::Relaxed);
        refused
    });
    assert!(refused > 0, "each refusal came after the connection");
}
