//! Connections to peers whose MAC addresses have to be asked for.

use ringside_config::LocalAddress;
use ringside_connect::{ConnectError, Connection, ConnectionManager, Listener, Lookup, Settings};
use ringside_model::Threaded;
use ringside_pmd::Device;
use ringside_pmd::rdma::address::MacAddress;
use ringside_pmd::rdma::{CompletionQueue, Destination, QueuePair, QueuePairConfig};
use ringside_testkit::{bring_up_all, config, threaded};
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const PORT: u16 = 7471;
const WAIT: Duration = Duration::from_secs(30);

/// The first repeat of a message comes after 4.1 s: what takes less was not repeated.
const AT_ONCE: Duration = Duration::from_secs(4);

/// Fails if each of several tries takes so long that a message was repeated: a busy machine delays
/// some of them.
fn without_a_repeat(attempt: impl Fn() -> Duration) {
    let mut tries = std::iter::repeat_with(attempt).take(3);
    let is_at_once = tries.any(|took| took < AT_ONCE);
    assert!(is_at_once, "a message was lost");
}

/// Two devices of one model.
fn devices() -> (Threaded, [Device; 2]) {
    let model = threaded();
    let devices = bring_up_all(|index| model.function(index), &config());
    (model, devices)
}

/// An address of a device: of IP version 4 or 6.
fn address(device: &Device, is_ipv4: bool) -> IpAddr {
    let addresses = device.local_addresses().unwrap();
    let found = addresses.iter().find(|found| found.is_ipv4() == is_ipv4);
    *found.expect("an address")
}

fn mac(device: &Device) -> MacAddress {
    device.facts().mac().unwrap()
}

fn queue_pair(device: &Device) -> (QueuePair, CompletionQueue) {
    let queue = device.completion_queue(16).unwrap();
    let domain = device.protection_domain().unwrap();
    let pair = domain.queue_pair(QueuePairConfig::reliable(&queue));
    (pair.unwrap(), queue)
}

fn connect(manager: &ConnectionManager, device: &Device, to: IpAddr) -> Connection {
    let (pair, _queue) = queue_pair(device);
    let to = SocketAddr::new(to, PORT);
    manager
        .connect(pair, to, &Settings::default(), WAIT)
        .unwrap_or_else(|error| panic!("{error}"))
}

fn accept(listener: &Listener, device: &Device, from: IpAddr) -> Connection {
    let request = listener.next(WAIT).expect("a request");
    assert_eq!(request.peer().map(|peer| peer.ip()), Some(from));
    let (pair, _queue) = queue_pair(device);
    request
        .accept(pair, &Settings::default(), WAIT)
        .unwrap_or_else(|error| panic!("{error}"))
}

fn listen(manager: &ConnectionManager) -> Listener {
    let any = SocketAddr::new(IpAddr::from([0, 0, 0, 0]), PORT);
    manager.listen(any, 8).unwrap()
}

#[test]
fn messages_wait_until_the_peer_has_told_its_mac_address() {
    without_a_repeat(a_refusal_of_a_peer_that_is_told_late);
}

fn a_refusal_of_a_peer_that_is_told_late() -> Duration {
    const LOOKS: u32 = 20;
    let (_model, [client, server]) = devices();
    // Both sides have to look several times before the neighbour has answered.
    let managers = [(&client, mac(&server)), (&server, mac(&client))].map(|(device, peer)| {
        let looks = Arc::new(AtomicU32::new(0));
        let counted = Arc::clone(&looks);
        let manager = ConnectionManager::start(device, move |_| {
            match counted.fetch_add(1, Ordering::Relaxed) {
                0..LOOKS => Lookup::Asked,
                _ => Lookup::Found(peer.into()),
            }
        });
        (manager.unwrap(), looks)
    });
    let [(of_client, client_looks), (of_server, server_looks)] = managers;
    let listener = listen(&of_server);
    let begin = Instant::now();
    std::thread::scope(|scope| {
        // The refusal is the first message to the client.
        scope.spawn(|| drop(listener.next(WAIT).expect("a request")));
        let (pair, _queue) = queue_pair(&client);
        let to = SocketAddr::new(address(&server, true), PORT);
        let error = of_client
            .connect(pair, to, &Settings::default(), WAIT)
            .expect_err("a refusal");
        assert!(matches!(error, ConnectError::Rejected { .. }), "{error}");
    });
    let took = begin.elapsed();
    for looks in [client_looks, server_looks] {
        assert!(looks.load(Ordering::Relaxed) > LOOKS);
    }
    took
}

#[test]
fn a_peer_that_does_not_tell_its_mac_address_delays_no_other_connection() {
    const SILENCE: Duration = Duration::from_secs(12);
    let (_model, [client, server]) = devices();
    let (silent, told) = (address(&client, true), address(&client, false));
    let (to_client, to_server) = (mac(&client), mac(&server));
    let of_client =
        ConnectionManager::start(&client, move |_| Lookup::Found(to_server.into())).unwrap();
    let of_server = ConnectionManager::start(&server, move |peer| match peer.address == silent {
        true => Lookup::Asked,
        false => Lookup::Found(to_client.into()),
    });
    let of_server = of_server.unwrap();
    let listener = listen(&of_server);
    std::thread::scope(|scope| {
        let unanswered = scope.spawn(|| {
            let (pair, _queue) = queue_pair(&client);
            let to = SocketAddr::new(address(&server, true), PORT);
            let settings = Settings::default();
            of_client.connect(pair, to, &settings, SILENCE)
        });
        let request = listener.next(WAIT).expect("a request");
        assert_eq!(request.peer().map(|peer| peer.ip()), Some(silent));
        // The refusal has nowhere to go.
        drop(request);
        let begin = Instant::now();
        let accepted = scope.spawn(|| accept(&listener, &server, told));
        drop(connect(&of_client, &client, address(&server, false)));
        drop(accepted.join().unwrap());
        let took = begin.elapsed();
        assert!(
            took < SILENCE.mul_f64(0.8),
            "it waited for the other: {took:?}"
        );
        let error = unanswered.join().unwrap().expect_err("no answer");
        assert!(
            error
                .to_string()
                .contains(&address(&server, true).to_string())
        );
    });
}

#[test]
fn a_peer_with_a_new_mac_address_is_reached_again() {
    without_a_repeat(a_connection_to_a_peer_with_a_new_mac_address);
}

fn a_connection_to_a_peer_with_a_new_mac_address() -> Duration {
    let (_model, [client, server]) = devices();
    // The card that the peer had before is gone.
    let told = Arc::new(Mutex::new([0x02, 0, 0, 0, 0, 0x99]));
    let present = Arc::clone(&told);
    let of_client =
        ConnectionManager::start(&client, move |_| Some(*present.lock().unwrap()).into());
    let of_client = of_client.unwrap();
    let to_client = mac(&client);
    let of_server =
        ConnectionManager::start(&server, move |_| Lookup::Found(to_client.into())).unwrap();
    let listener = listen(&of_server);
    let to = SocketAddr::new(address(&server, true), PORT);
    let (pair, _queue) = queue_pair(&client);
    let patience = Duration::from_secs(1);
    let settings = Settings::default();
    let unanswered = of_client.connect(pair, to, &settings, patience);
    unanswered.expect_err("no answer");

    *told.lock().unwrap() = mac(&server);
    let begin = Instant::now();
    std::thread::scope(|scope| {
        let accepted = scope.spawn(|| accept(&listener, &server, address(&client, true)));
        drop(connect(&of_client, &client, to.ip()));
        drop(accepted.join().unwrap());
    });
    begin.elapsed()
}

#[test]
fn more_peers_than_address_handles_are_connected_one_after_the_other() {
    const HANDLES: u32 = 4;
    const PEERS: u8 = 12;
    let model = threaded();
    let mut few = config();
    few.rdma.address_handles = HANDLES;
    let [client, server] = bring_up_all(|index| model.function(index), &few);
    let (to_client, to_server) = (mac(&client), mac(&server));
    let of_client =
        ConnectionManager::start(&client, move |_| Lookup::Found(to_server.into())).unwrap();
    let of_server =
        ConnectionManager::start(&server, move |_| Lookup::Found(to_client.into())).unwrap();
    let listener = listen(&of_server);
    let from = address(&client, true);
    let domain = client.protection_domain().unwrap();
    let mut own = Vec::new();
    for last in 1..=PEERS {
        let peer = IpAddr::from([10, 7, 7, last]);
        server.add_address(LocalAddress::new(peer, 8)).unwrap();
        let near = std::thread::scope(|scope| {
            let accepted = scope.spawn(|| accept(&listener, &server, from));
            let near = connect(&of_client, &client, peer);
            accepted.join().expect("accepted");
            near
        });
        drop(near);
        // The program needs handles, too: half of them are its own.
        if own.len() < (HANDLES / 2) as usize {
            let other = Destination::new(IpAddr::from([10, 8, 8, last]), to_server);
            own.push(domain.address_handle(&other).expect("a handle is left"));
        }
        server.remove_address(peer, None).unwrap();
    }
}
