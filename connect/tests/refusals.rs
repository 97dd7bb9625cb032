//! Calls that the connection manager refuses by name, and waits without an end.

use ringside_connect::{
    Closed, ConnectError, Connection, ConnectionManager, End, ListenError, Listener, Lookup,
    NextHop, Reason, Request, Settings,
};
use ringside_model::Threaded;
use ringside_pmd::Device;
use ringside_pmd::rdma::{
    Access, Completion, CompletionQueue, QueuePair, QueuePairConfig, RdmaError, SharedReceiveConfig,
};
use ringside_testkit::{bring_up_all, config, threaded};
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

const PORT: u16 = 7471;
const WAIT: Duration = Duration::from_secs(30);
/// A call that does not wait for a peer takes less than [`WAIT`], on a busy machine too.
const NO_WAIT: Duration = Duration::from_secs(15);

/// Two devices with their managers: the client first.
struct Sides {
    managers: [ConnectionManager; 2],
    devices: [Device; 2],
    _model: Threaded,
}

impl Sides {
    fn new() -> Self {
        let model = threaded();
        let devices: [Device; 2] = bring_up_all(|index| model.function(index), &config());
        let macs = [&devices[1], &devices[0]].map(|device| device.facts().mac().unwrap());
        let hops = macs.map(NextHop::from);
        let start = |device: &Device, hop| {
            ConnectionManager::start(device, move |_| Lookup::Found(hop)).unwrap()
        };
        Self {
            managers: [start(&devices[0], hops[0]), start(&devices[1], hops[1])],
            devices,
            _model: model,
        }
    }

    fn address(&self) -> SocketAddr {
        SocketAddr::new(self.devices[1].local_addresses().unwrap()[0], PORT)
    }

    fn listen(&self) -> Listener {
        self.managers[1].listen(self.address(), 8).unwrap()
    }

    /// A queue pair of a side.
    fn pair(&self, side: usize) -> QueuePair {
        pair(&self.devices[side]).0
    }

    fn ask(&self, pair: QueuePair, settings: &Settings) -> Result<Connection, ConnectError> {
        self.managers[0].connect(pair, self.address(), settings, WAIT)
    }

    /// A connection of both sides.
    fn connected(&self) -> [Connection; 2] {
        let listener = self.listen();
        std::thread::scope(|scope| {
            let accepting = scope.spawn(|| {
                let request = listener.next(Duration::MAX).expect("a request");
                request.accept(self.pair(1), &Settings::default(), Duration::MAX)
            });
            let (to, settings) = (self.address(), Settings::default());
            let one = self.managers[0].connect(self.pair(0), to, &settings, Duration::MAX);
            [one, accepting.join().unwrap()].map(|end| end.unwrap_or_else(|e| panic!("{e}")))
        })
    }
}

fn pair(device: &Device) -> (QueuePair, CompletionQueue) {
    let queue = device.completion_queue(16).unwrap();
    let domain = device.protection_domain().unwrap();
    let made = domain.queue_pair(QueuePairConfig::reliable(&queue));
    (made.unwrap(), queue)
}

#[test]
fn a_queue_pair_of_another_device_is_refused() {
    let sides = Sides::new();
    let listener = sides.listen();
    let error = sides.ask(sides.pair(1), &Settings::default()).unwrap_err();
    assert!(
        matches!(error, ConnectError::ForeignQueuePair { .. }),
        "{error}"
    );
    std::thread::scope(|scope| {
        let accepting = scope.spawn(|| {
            let request = listener.next(WAIT).expect("a request");
            request.accept(sides.pair(0), &Settings::default(), WAIT)
        });
        let refused = sides.ask(sides.pair(0), &Settings::default()).unwrap_err();
        assert!(
            matches!(refused, ConnectError::Rejected { .. }),
            "{refused}"
        );
        let error = accepting.join().unwrap().unwrap_err();
        assert!(
            matches!(error, ConnectError::ForeignQueuePair { .. }),
            "{error}"
        );
    });
}

#[test]
fn settings_that_no_connection_has_are_refused_with_their_range() {
    let sides = Sides::new();
    let listener = sides.listen();
    let usual = Settings::default;
    let wrong = [
        (
            Settings {
                retries: 9,
                ..usual()
            },
            ["9", "0 to 7"],
        ),
        (
            Settings {
                receiver_not_ready_retries: 12,
                ..usual()
            },
            ["12", "0 to 7"],
        ),
        (
            Settings {
                path_mtu: Some(1000),
                ..usual()
            },
            ["1000", "1024"],
        ),
        (
            Settings {
                path_mtu: Some(9000),
                ..usual()
            },
            ["9000", "4096"],
        ),
        (
            Settings {
                acknowledge_timeout: Some(40),
                ..usual()
            },
            ["40", "0 to 31"],
        ),
        (Settings::with_data(&[1; 57]), ["57", "56"]),
    ];
    for (settings, named) in &wrong {
        let message = sides.ask(sides.pair(0), settings).unwrap_err().to_string();
        assert!(named.iter().all(|part| message.contains(part)), "{message}");
    }
    for (settings, named) in wrong.iter().take(5) {
        std::thread::scope(|scope| {
            let accepting = scope.spawn(|| {
                let request = listener.next(WAIT).expect("a request");
                request.accept(sides.pair(1), settings, WAIT)
            });
            sides.ask(sides.pair(0), &usual()).expect_err("a refusal");
            let message = accepting.join().unwrap().unwrap_err().to_string();
            assert!(named.iter().all(|part| message.contains(part)), "{message}");
        });
    }
}

#[test]
fn a_refusal_with_more_private_data_than_fits_is_refused_itself() {
    let sides = Sides::new();
    let listener = sides.listen();
    for length in [148, 149] {
        std::thread::scope(|scope| {
            let refusing = scope.spawn(|| {
                let request = listener.next(WAIT).expect("a request");
                request.reject(&vec![5; length])
            });
            let refused = sides.ask(sides.pair(0), &Settings::default());
            let Err(ConnectError::Rejected {
                private_data,
                reason,
            }) = refused
            else {
                panic!("{refused:?}");
            };
            assert_eq!(reason, Reason::CONSUMER);
            let answer = refusing.join().unwrap();
            if length == 148 {
                answer.unwrap();
                assert_eq!(private_data, [5; 148]);
            } else {
                let message = answer.unwrap_err().to_string();
                assert!(
                    message.contains("149") && message.contains("148"),
                    "{message}"
                );
                assert_eq!(private_data, [0; 148]);
            }
        });
    }
}

#[test]
fn requests_that_the_program_holds_leave_room_for_others_and_outlive_their_listener() {
    let sides = Sides::new();
    let listener = sides.managers[1].listen(sides.address(), 1).unwrap();
    std::thread::scope(|scope| {
        let mut asking = Vec::new();
        let mut held = Vec::new();
        for _ in 0..3 {
            asking.push(scope.spawn(|| sides.ask(sides.pair(0), &Settings::default())));
            held.push(listener.next(WAIT).expect("a request"));
        }
        drop(listener);
        let accept = |request: Request| request.accept(sides.pair(1), &Settings::default(), WAIT);
        let ends: Vec<_> = held.into_iter().map(accept).collect();
        for end in ends
            .into_iter()
            .chain(asking.into_iter().map(|one| one.join().unwrap()))
        {
            end.unwrap_or_else(|error| panic!("{error}"));
        }
    });
}

#[test]
fn calls_wait_without_an_end_if_the_program_wants_that() {
    let sides = Sides::new();
    let [mut one, other] = sides.connected();
    assert!(other.disconnect(Duration::MAX));
    assert!(one.wait_for_end(Duration::MAX));
    assert_eq!(one.end(), Some(End::Disconnected));
}

/// A call that waits for a request ends with the device.
fn ends_by_a_shutdown(listener: &Listener, device: Device) {
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| listener.next(WAIT).is_none());
        let _ = device.shutdown();
        assert!(waiting.join().unwrap());
    });
    assert_eq!(listener.closed(), Some(Closed::ShutDown));
}

fn listens_no_more(manager: &ConnectionManager) {
    let any = SocketAddr::new(IpAddr::from([0, 0, 0, 0]), PORT + 1);
    let refused = manager.listen(any, 8).unwrap_err();
    assert_eq!(refused, ListenError::Closed(Closed::ShutDown));
}

#[test]
fn a_shutdown_of_the_device_ends_the_waits_and_further_calls() {
    let sides = Sides::new();
    let [mut far, mut near] = sides.connected();
    let listener = sides.listen();
    let Sides {
        managers: [client, server],
        devices: [client_device, server_device],
        ..
    } = sides;
    let begin = Instant::now();
    ends_by_a_shutdown(&listener, server_device);
    assert!(near.wait_for_end(WAIT));
    assert_eq!(near.end(), Some(End::Closed(Closed::ShutDown)));
    listens_no_more(&server);
    let took = begin.elapsed();
    assert!(took < NO_WAIT, "they waited: {took:?}");
    assert!(!far.wait_for_end(Duration::ZERO));
    let (pair, _queue) = pair(&client_device);
    let to = SocketAddr::new(client.addresses()[0], PORT);
    let _ = client_device.shutdown();
    let refused = client.connect(pair, to, &Settings::default(), WAIT);
    assert!(
        matches!(refused, Err(ConnectError::Closed(Closed::ShutDown))),
        "{refused:?}"
    );
}

/// With a recovery before, the manager was not restored: it belongs to the earlier life.
#[test]
fn a_shutdown_of_a_device_that_had_failed_ends_the_waits_too() {
    for recovers in [false, true] {
        let sides = Sides::new();
        let [_far, mut near] = sides.connected();
        let listener = sides.listen();
        let [_client, server] = sides.managers;
        let [_client_device, mut server_device] = sides.devices;
        let domain = server_device.protection_domain().unwrap();
        server_device.give_up().unwrap();
        assert!(near.wait_for_end(WAIT));
        assert!(matches!(near.end(), Some(End::DeviceFailed(_))), "{near:?}");
        if recovers {
            server_device.recover().unwrap();
        }
        let begin = Instant::now();
        ends_by_a_shutdown(&listener, server_device);
        listens_no_more(&server);
        let took = begin.elapsed();
        assert!(took < NO_WAIT, "they waited: {took:?}");
        assert!(domain.is_shut_down());
        let made = domain.completion_queue(16).map(drop);
        assert!(matches!(made, Err(RdmaError::ShutDown)), "{made:?}");
    }
}

#[test]
fn a_manager_that_is_dropped_leaves_its_place_to_another() {
    let mut sides = Sides::new();
    let [mut far, mut near] = sides.connected();
    let listener = sides.listen();
    let to = sides.address();
    let [client, server] = sides.managers;
    drop(server);
    let begin = Instant::now();
    assert!(listener.next(WAIT).is_none());
    assert_eq!(listener.closed(), Some(Closed::Dropped));
    assert!(near.wait_for_end(WAIT));
    assert_eq!(near.end(), Some(End::Closed(Closed::Dropped)));
    assert!(far.wait_for_end(WAIT), "the peer was told");
    let took = begin.elapsed();
    assert!(took < NO_WAIT, "they waited: {took:?}");

    // The listener and the connection of the first one are still held.
    let hop = NextHop::from(sides.devices[0].facts().mac().unwrap());
    let again = ConnectionManager::start(&sides.devices[1], move |_| Lookup::Found(hop));
    sides.managers = [client, again.unwrap()];
    assert_eq!(to, sides.address());
    sides.connected();
    drop((listener, near));
}

/// The client's time is over: it refuses what would come.
fn give_up(sides: &Sides) {
    let short = Duration::from_millis(200);
    let (pair, settings) = (sides.pair(0), Settings::default());
    let given_up = sides.managers[0].connect(pair, sides.address(), &settings, short);
    assert!(
        matches!(given_up, Err(ConnectError::Deadline { .. })),
        "{given_up:?}"
    );
}

#[test]
fn a_request_that_its_peer_has_given_up_is_not_handed_out() {
    let sides = Sides::new();
    let listener = sides.listen();
    // The message that withdraws it takes a while to arrive, on a busy machine longer.
    let is_withdrawn = (1..8).any(|power| {
        give_up(&sides);
        std::thread::sleep(Duration::from_millis(50 << power));
        listener.next(Duration::ZERO).is_none()
    });
    assert!(is_withdrawn);
    // One that the program holds meanwhile says so when it is accepted.
    std::thread::scope(|scope| {
        let asking = scope.spawn(|| give_up(&sides));
        let request = listener.next(WAIT).expect("a request");
        let peer = request.peer().unwrap().ip();
        asking.join().unwrap();
        std::thread::sleep(Duration::from_millis(300));
        let ended = request.accept(sides.pair(1), &Settings::default(), WAIT);
        let Err(ConnectError::Ended { peer: named }) = ended else {
            panic!("{ended:?}");
        };
        assert_eq!(named, peer);
    });
}

#[test]
fn a_queue_pair_that_was_not_accepted_leaves_its_shared_receives() {
    let sides = Sides::new();
    let listener = sides.listen();
    let device = &sides.devices[1];
    let mut queue = device.completion_queue(16).unwrap();
    let domain = device.protection_domain().unwrap();
    let config = SharedReceiveConfig::default();
    let mut shared = domain.shared_receive_queue(&config).unwrap();
    let region = domain.register(device.allocate(64).unwrap(), Access::default());
    let region = region.unwrap();
    for id in 0..4 {
        shared.post(id, &[region.slice(0..64).unwrap()]).unwrap();
    }
    let used = || device.object_usage().unwrap().queue_pairs.used;
    let before = used();
    let mut member = domain
        .queue_pair(QueuePairConfig::reliable(&queue))
        .unwrap();
    shared.attach(&mut member).unwrap();
    std::thread::scope(|scope| {
        let asking = scope.spawn(|| give_up(&sides));
        let request = listener.next(WAIT).expect("a request");
        asking.join().unwrap();
        std::thread::sleep(Duration::from_millis(300));
        let ended = request.accept(member, &Settings::default(), WAIT);
        assert!(
            matches!(ended, Err(ConnectError::Ended { .. })),
            "{ended:?}"
        );
    });
    let mut batch = [Completion::EMPTY; 4];
    assert!(shared.poll(&mut queue, &mut batch).is_empty());
    assert_eq!((shared.left(), shared.queue_pairs()), (4, 0));
    assert_eq!(used(), before);
}

#[test]
fn ports_in_use_and_addresses_of_no_peer_are_named() {
    let sides = Sides::new();
    let _listener = sides.listen();
    let refused = sides.managers[1].listen(sides.address(), 8).unwrap_err();
    assert!(
        refused.to_string().contains(&format!("port {PORT} has a")),
        "{refused}"
    );
    for peer in [
        "224.0.0.5:7",
        "0.0.0.0:7",
        "255.255.255.255:7",
        "[ff02::1]:7",
    ] {
        let (to, settings) = (peer.parse().unwrap(), Settings::default());
        let refused = sides.managers[0].connect(sides.pair(0), to, &settings, WAIT);
        assert!(
            matches!(refused, Err(ConnectError::NoPeer { .. })),
            "{refused:?}"
        );
    }
}
