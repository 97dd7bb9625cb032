//! A connection manager across failures and recoveries of its device.

use ringside_bus::{DeviceAddress, Direction, Refusal};
use ringside_config::Config;
use ringside_connect::{
    ConnectError, Connection, ConnectionManager, End, Listener, Lookup, Service, Settings,
    StartError,
};
use ringside_model::function::ResetKind;
use ringside_model::{Fault, Threaded, World};
use ringside_pmd::Device;
use ringside_pmd::rdma::address::MacAddress;
use ringside_pmd::rdma::{CompletionQueue, QueuePair, QueuePairConfig};
use ringside_pmd::recovery::FailureCause;

use ringside_testkit::{bring_up_all, config, threaded};
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

const PORT: u16 = 7471;
/// Longer than anything here takes, and shorter than the 64 s in which a peer repeats a request.
const WAIT: Duration = Duration::from_secs(30);
/// The first repeat of a message comes after 4.1 s: what takes less was not repeated.
const AT_ONCE: Duration = Duration::from_secs(4);
/// A call that waits for no peer takes less than [`WAIT`], on a busy machine too.
const NO_WAIT: Duration = Duration::from_secs(15);

/// A device with its connection manager.
struct Side {
    device: Device,
    manager: ConnectionManager,
    peer: MacAddress,
}

impl Side {
    fn new(device: Device, peer: MacAddress) -> Self {
        let manager =
            ConnectionManager::start(&device, move |_| Lookup::Found(peer.into())).unwrap();
        Self {
            device,
            manager,
            peer,
        }
    }

    fn address(&self) -> SocketAddr {
        SocketAddr::new(self.device.local_addresses().unwrap()[0], PORT)
    }

    fn queue_pair(&self) -> (QueuePair, CompletionQueue) {
        let queue = self.device.completion_queue(16).unwrap();
        let domain = self.device.protection_domain().unwrap();
        let pair = domain.queue_pair(QueuePairConfig::reliable(&queue));
        (pair.unwrap(), queue)
    }

    fn connect(&self, to: SocketAddr) -> Result<Connection, ConnectError> {
        let (pair, _queue) = self.queue_pair();
        self.manager.connect(pair, to, &Settings::default(), WAIT)
    }

    fn accept(&self, listener: &Listener) -> Result<Connection, ConnectError> {
        let request = listener.next(WAIT).expect("a request");
        let (pair, _queue) = self.queue_pair();
        request.accept(pair, &Settings::default(), WAIT)
    }

    fn listen(&self) -> Listener {
        let any = SocketAddr::new(IpAddr::from([0, 0, 0, 0]), PORT);
        self.manager.listen(any, 8).unwrap()
    }

    fn restore(&self) -> Result<(), StartError> {
        let peer = self.peer;
        self.manager
            .restore(&self.device, move |_| Lookup::Found(peer.into()))
    }

    /// The device fails, is brought up again, and the manager is restored.
    fn fail_and_restore(&mut self) {
        self.device.give_up().unwrap();
        self.device.recover().unwrap();
        self.restore().unwrap();
    }
}

fn sides_of(config: &Config) -> (Threaded, Side, Side) {
    let model = threaded();
    let [client, server] = bring_up_all(|index| model.function(index), config);
    let macs = [&client, &server].map(|device: &Device| device.facts().mac().unwrap());
    let (client, server) = (Side::new(client, macs[1]), Side::new(server, macs[0]));
    (model, client, server)
}

fn sides() -> (Threaded, Side, Side) {
    sides_of(&config())
}

/// Connects both sides, without a repeat of a message.
fn both(client: &Side, server: &Side, listener: &Listener) -> [Connection; 2] {
    let begin = Instant::now();
    let to = server.address();
    let made = std::thread::scope(|scope| {
        let accepting = scope.spawn(|| server.accept(listener));
        let one = client.connect(to);
        let other = accepting.join().unwrap();
        [one, other].map(|made| made.unwrap_or_else(|error| panic!("{error}")))
    });
    let took = begin.elapsed();
    assert!(took < AT_ONCE, "a message was repeated: {took:?}");
    made
}

/// The reason for the end of a connection that is over soon.
fn end(connection: &mut Connection) -> End {
    assert!(connection.wait_for_end(AT_ONCE), "it is not over");
    connection.end().expect("a reason")
}

/// The command that destroys a queue pair.
const DESTROY_QUEUE_PAIR: u8 = 2;
/// Source of an event: a send queue.
const SEND_QUEUE: u8 = 5;

/// The next read, wherever it is.
const ONE_READ: Refusal = Refusal {
    direction: Some(Direction::Read),
    accesses: Some(1),
    ..Refusal::EVERYTHING
};

const LOST: End = End::DeviceFailed(FailureCause::Requested);

#[test]
fn a_listener_accepts_again_after_a_recovery_and_its_connections_are_lost_once() {
    let (model, client, mut server) = sides();
    let listener = server.listen();
    let [mut theirs, mut ours] = both(&client, &server, &listener);
    let (_, mut other) = {
        let [theirs, ours] = both(&client, &server, &listener);
        (theirs.disconnect(WAIT), ours)
    };
    assert_eq!(end(&mut other), End::Disconnected);
    assert!(!ours.wait_for_end(Duration::ZERO));

    model.with(|world| world.inject(1, Fault::Reset(ResetKind::Function)));
    let failed = Instant::now() + WAIT;
    while server.device.check().is_none() {
        assert!(Instant::now() < failed, "the reset is not seen");
    }
    let cause = FailureCause::FunctionReset;
    assert_eq!(end(&mut ours), End::DeviceFailed(cause));
    // One that was over stays what it was.
    assert_eq!(other.end(), Some(End::Disconnected));
    // The device is not in service, then it is, and the manager not yet.
    let error = server.restore().expect_err("out of service");
    assert!(matches!(error, StartError::Device(_)), "{error}");
    server.device.recover().unwrap();
    let to = client.address();
    let error = server.connect(to).expect_err("not restored");
    assert!(
        matches!(error, ConnectError::DeviceFailed { cause: told } if told == cause),
        "{error}"
    );
    assert!(
        !theirs.wait_for_end(Duration::ZERO),
        "the peer was not told"
    );

    server.restore().unwrap();
    assert_eq!(end(&mut theirs), End::Disconnected, "the peer is told");
    assert!(ours.wait_for_end(Duration::ZERO), "it stays over");
    let [one, mut two] = both(&client, &server, &listener);
    // Restoring a manager in service changes nothing.
    server.restore().unwrap();
    assert!(!two.wait_for_end(Duration::from_millis(100)));
    assert!(one.disconnect(AT_ONCE), "confirmed");
    assert_eq!(end(&mut two), End::Disconnected);
}

/// A program with several devices may mix them up.
#[test]
fn a_manager_is_not_restored_on_another_device() {
    let (_model, client, mut server) = sides();
    let listener = server.listen();
    let own = server.manager.addresses();
    for has_failed in [false, true] {
        if has_failed {
            server.device.give_up().unwrap();
            server.device.recover().unwrap();
        }
        let peer = server.peer;
        let foreign = &client.device;
        let wrong = move |_| Lookup::Found(peer.into());
        let error = server.manager.restore(foreign, wrong).unwrap_err();
        let StartError::ForeignDevice { made_on, given } = &error else {
            panic!("{error}");
        };
        assert_eq!(made_on, server.device.function().address());
        assert_eq!(given, foreign.function().address());
        let message = error.to_string();
        let is_named = |device: &DeviceAddress| message.contains(&device.to_string());
        assert!(is_named(made_on) && is_named(given), "{message}");
        assert_eq!(server.manager.addresses(), own);
    }
    // The other device still has a manager of its own, and this one is restored on its device.
    server.restore().unwrap();
    both(&client, &server, &listener);
}

/// The host refuses the device one read, which is that of the next message on queue pair 1: the
/// queue pair fails, and the device goes on.
#[test]
fn queue_pair_1_that_has_failed_alone_is_made_again() {
    let (model, client, server) = sides();
    let listener = server.listen();
    // Both have an address handle to their peer from now on.
    let [ours, _theirs] = both(&client, &server, &listener);
    assert!(ours.disconnect(WAIT));
    let (pair, _queue) = client.queue_pair();
    model.with(|world| world.inject(0, Fault::DmaRefused(ONE_READ)));
    let (mut events, to) = (Vec::new(), server.address());
    let made = std::thread::scope(|scope| {
        let accepting = scope.spawn(|| server.accept(&listener));
        let connecting = scope.spawn(|| {
            let settings = Settings::default();
            client.manager.connect(pair, to, &settings, WAIT)
        });
        while !connecting.is_finished() {
            client.device.poll_events(&mut events).unwrap();
            std::thread::sleep(Duration::from_millis(1));
        }
        [connecting, accepting].map(|made| made.join().unwrap())
    });
    assert!(!events.is_empty(), "the message was sent all the same");
    assert!(client.device.check().is_none(), "the device has failed");
    let [ours, mut theirs] = made.map(|made| made.unwrap_or_else(|error| panic!("{error}")));
    assert!(ours.disconnect(WAIT));
    assert_eq!(end(&mut theirs), End::Disconnected);
}

/// Queue pair 1 of a function fails, and so does the command that would let the device go of it.
fn fail_queue_pair_1(world: &mut World, function: usize) {
    let (opcode, major, minor) = (DESTROY_QUEUE_PAIR, 1, 1);
    let fails = Fault::ControlCommandFails {
        opcode,
        major,
        minor,
    };
    let catastrophe = Fault::EngineEvent {
        code: 0x0700,
        source: SEND_QUEUE,
        queue_number: 1,
    };
    world.inject(function, fails);
    world.inject(function, catastrophe);
}

/// It cannot be made again if commands fail while the device is to let go of the failed one. A
/// recovery helps.
#[test]
fn queue_pair_1_whose_end_is_not_confirmed_is_lost() {
    let model = threaded();
    let [mut device] = bring_up_all(|index| model.function(index), &config());
    let mut service = Service::open(&device).unwrap();
    service.poll(|_| {});
    assert!(!service.is_lost());
    model.with(|world| fail_queue_pair_1(world, 0));
    let limit = Instant::now() + WAIT;
    while !service.is_lost() {
        assert!(Instant::now() < limit, "it is made again");
        let _ = device.poll_events(&mut Vec::new());
        service.poll(|_| {});
        std::thread::sleep(Duration::from_millis(1));
    }
    model.with(|world| world.clear_faults(0));
    drop(service);
    device.give_up().unwrap();
    device.recover().unwrap();
    let mut service = Service::open(&device).unwrap();
    service.poll(|_| {});
    assert!(!service.is_lost());
}

/// The manager has the device recovered: without queue pair 1 it would make no connection any more.
#[test]
fn a_manager_that_has_lost_queue_pair_1_gives_the_device_up() {
    let (model, mut client, server) = sides();
    let listener = server.listen();
    let [mut ours, mut theirs] = both(&client, &server, &listener);
    model.with(|world| fail_queue_pair_1(world, 0));
    let limit = Instant::now() + WAIT;
    while client.device.failure().is_none() {
        assert!(Instant::now() < limit, "it stays in service");
        let _ = client.device.poll_events(&mut Vec::new());
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(end(&mut ours), LOST);
    model.with(|world| world.clear_faults(0));
    client.device.recover().unwrap();
    client.restore().unwrap();
    assert_eq!(end(&mut theirs), End::Disconnected);
    let [ours, _theirs] = both(&client, &server, &listener);
    assert!(ours.disconnect(WAIT));
}

#[test]
fn a_connector_connects_again_after_two_recoveries_in_a_row() {
    let (_model, mut client, mut server) = sides();
    let listener = server.listen();
    for round in 0..2 {
        let [mut ours, mut theirs] = both(&client, &server, &listener);
        client.fail_and_restore();
        assert_eq!(end(&mut ours), LOST, "round {round}");
        assert_eq!(end(&mut theirs), End::Disconnected, "round {round}");
    }
    // The second failure comes before the manager was restored from the first.
    let [mut ours, mut theirs] = both(&client, &server, &listener);
    client.device.give_up().unwrap();
    assert_eq!(end(&mut ours), LOST);
    client.device.recover().unwrap();
    client.fail_and_restore();
    assert_eq!(end(&mut theirs), End::Disconnected);
    // Both sides at once.
    let [mut ours, mut theirs] = both(&client, &server, &listener);
    client.device.give_up().unwrap();
    server.fail_and_restore();
    client.device.recover().unwrap();
    client.restore().unwrap();
    assert_eq!((end(&mut ours), end(&mut theirs)), (LOST, LOST));
    drop(both(&client, &server, &listener));
}

#[test]
fn a_call_that_waits_for_the_listener_returns_when_the_device_fails() {
    let (_model, mut client, server) = sides();
    let listener = server.listen();
    let to = server.address();
    std::thread::scope(|scope| {
        let connecting = scope.spawn(|| client.connect(to));
        let request = listener.next(WAIT).expect("a request");
        client.device.give_up().unwrap();
        let begin = Instant::now();
        let error = connecting.join().unwrap().expect_err("no device");
        assert!(begin.elapsed() < NO_WAIT, "it waited for the peer");
        assert!(
            matches!(error, ConnectError::DeviceFailed { .. }),
            "{error}"
        );
        // The listener's side has yet to learn of it: its answer comes to nothing.
        let (pair, _queue) = server.queue_pair();
        let accepting = scope.spawn(move || {
            request
                .accept(pair, &Settings::default(), WAIT)
                .expect_err("none")
        });
        std::thread::sleep(Duration::from_millis(100));
        assert!(!accepting.is_finished());
        // Then the second device fails as well, in the middle of its own part of the handshake.
        server.device.give_up().unwrap();
        let begin = Instant::now();
        let error = accepting.join().unwrap();
        assert!(begin.elapsed() < NO_WAIT, "it waited for the peer");
        assert!(
            matches!(error, ConnectError::DeviceFailed { .. }),
            "{error}"
        );
    });
    let mut server = server;
    server.device.recover().unwrap();
    server.restore().unwrap();
    client.device.recover().unwrap();
    client.restore().unwrap();
    drop(both(&client, &server, &listener));
}

#[test]
fn a_withdrawn_request_is_refused_to_the_listener_after_the_recovery() {
    let (_model, mut client, server) = sides();
    let listener = server.listen();
    let to = server.address();
    let request = std::thread::scope(|scope| {
        let connecting = scope.spawn(|| client.connect(to));
        let request = listener.next(WAIT).expect("a request");
        client.device.give_up().unwrap();
        connecting.join().unwrap().expect_err("no device");
        request
    });
    client.device.recover().unwrap();
    client.restore().unwrap();
    let (pair, _queue) = server.queue_pair();
    let begin = Instant::now();
    let error = request.accept(pair, &Settings::default(), WAIT);
    let error = error.expect_err("withdrawn");
    assert!(begin.elapsed() < NO_WAIT, "{error}");
    drop(both(&client, &server, &listener));
}

#[test]
fn a_request_from_before_the_failure_is_accepted_after_it() {
    let (_model, client, mut server) = sides();
    let listener = server.listen();
    let to = server.address();
    std::thread::scope(|scope| {
        let connecting = scope.spawn(|| client.connect(to));
        let taken = listener.next(WAIT).expect("a request");
        server.device.give_up().unwrap();
        // A queue pair of the recovered device needs a manager of it.
        server.device.recover().unwrap();
        server.restore().unwrap();
        let (pair, _queue) = server.queue_pair();
        let ours = taken.accept(pair, &Settings::default(), WAIT).unwrap();
        let theirs = connecting.join().unwrap().unwrap();
        assert_eq!(theirs.peer(), to);
        assert!(ours.disconnect(AT_ONCE), "confirmed");
    });
}

/// A life of the connector ended without a word: its manager ended with the device.
#[test]
fn a_peer_that_believes_in_a_connection_of_a_former_life_is_told_when_it_asks() {
    let mut few = config();
    few.rdma.queue_pairs = 16;
    let (_model, client, server) = sides_of(&few);
    let listener = server.listen();
    let connections: Vec<_> = (0..2).map(|_| both(&client, &server, &listener)).collect();
    let numbers: Vec<u32> = connections
        .iter()
        .map(|[ours, _]| ours.queue_pair.number())
        .collect();
    let Side {
        mut device,
        manager,
        peer,
    } = client;
    device.give_up().unwrap();
    let mut theirs: Vec<_> = connections.into_iter().map(|[_, theirs]| theirs).collect();
    drop(manager);
    device.recover().unwrap();
    let client = Side::new(device, peer);
    let (mut second, first) = (theirs.pop().unwrap(), theirs.pop().unwrap());

    // DREQ of a connection that the new life does not know: DREP.
    assert!(!second.wait_for_end(Duration::from_millis(100)));
    let begin = Instant::now();
    assert!(first.disconnect(WAIT), "confirmed");
    assert!(begin.elapsed() < AT_ONCE, "the DREQ was not answered");

    // REQ with a queue pair number of the former life: REJ 10, and another REQ once it has ended.
    // A recovery withholds the numbers of before; they come again after a while.
    let pair = std::iter::repeat_with(|| client.queue_pair())
        .take(1000)
        .find(|(pair, _)| pair.number() == numbers[1])
        .expect("the number comes again");
    let begin = Instant::now();
    std::thread::scope(|scope| {
        let accepting = scope.spawn(|| server.accept(&listener).unwrap());
        let to = server.address();
        let made = client
            .manager
            .connect(pair.0, to, &Settings::default(), WAIT);
        let made = made.unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(made.queue_pair.number(), numbers[1]);
        drop(accepting.join().unwrap());
    });
    assert!(begin.elapsed() < AT_ONCE, "a request was repeated");
    assert_eq!(end(&mut second), End::Disconnected);
}
