//! The connection manager of an opened device, and the network beneath it: addresses, VLANs, waits.

use ringside::NetworkError;
use ringside::connect::{Settings, StartError};
use ringside::prelude::*;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

mod managed;

use managed::{PORT, WAIT, connect, pair, send};

/// Opens a function of the model with these addresses. Each test has functions and networks of its
/// own.
fn open(index: u16, addresses: &[&str]) -> Device {
    let mut config = Config::default();
    config.model.functions = 16;
    let parsed = addresses.iter().map(|one| one.parse().unwrap());
    config.network.addresses = parsed.collect();
    ringside::open(&format!("model:{index}"), &config).unwrap()
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

#[test]
fn a_peer_is_connected_to_from_the_address_in_its_network() {
    let near = open(0, &["10.1.0.1/24", "10.2.0.1/24", "2001:db8::1/64"]);
    let far = open(1, &["10.2.0.2/24", "2001:db8::2/64"]);
    let managers = [&near, &far].map(|device| device.connection_manager().unwrap());
    for (to, from) in [("10.2.0.2", "10.2.0.1"), ("2001:db8::2", "2001:db8::1")] {
        let (mut ends, mut completions) =
            connect((&near, &managers[0]), (&far, &managers[1]), ip(to));
        assert_eq!(ends[1].peer().ip(), ip(from));
        let local = ends[0].queue_pair.query().unwrap().local_address;
        assert_eq!(local, ip(from));
        assert_eq!(send(&mut ends, &mut completions[0]), Status::Success);
    }
}

#[test]
fn an_address_that_the_program_names_is_connected_from() {
    let near = open(2, &["10.3.0.1/24", "10.3.0.3/24"]);
    let far = open(3, &["10.3.0.2/24"]);
    let managers = [&near, &far].map(|device| device.connection_manager().unwrap());
    let to = SocketAddr::new(ip("10.3.0.2"), PORT);
    let listener = managers[1].listen(to, 4).unwrap();
    for from in ["10.3.0.1", "10.3.0.3"] {
        let settings = Settings {
            local_address: Some(ip(from)),
            ..Settings::default()
        };
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let request = listener.next(WAIT).expect("a request");
                assert_eq!(request.peer().map(|peer| peer.ip()), Some(ip(from)));
            });
            let refused = managers[0].connect(pair(&near).0, to, &settings, WAIT);
            refused.expect_err("a refusal");
        });
    }
    let settings = Settings {
        local_address: Some(ip("10.3.0.4")),
        ..Settings::default()
    };
    let refused = managers[0].connect(pair(&near).0, to, &settings, WAIT);
    let message = refused.expect_err("no address of the device").to_string();
    assert!(message.contains("10.3.0.4"), "{message}");
}

/// The VLAN of a frame of RoCEv2 over IPv4, tagged or not; nothing of other frames.
fn vlan_of_roce(frame: &[u8]) -> Option<Option<u16>> {
    let word = |at: usize| Some(u16::from_be_bytes([*frame.get(at)?, *frame.get(at + 1)?]));
    let (vlan, header) = match word(12)? {
        0x8100 => (Some(word(14)? & 0xFFF), 18),
        _ => (None, 14),
    };
    let is_roce = word(header - 2)? == 0x0800 && word(header + 22)? == 4791;
    is_roce.then_some(vlan)
}

#[test]
fn messages_and_connections_from_an_address_of_a_vlan_are_tagged() {
    let near = open(4, &["10.4.0.1/24@100"]);
    let far = open(5, &["10.4.0.2/24@100"]);
    let managers = [&near, &far].map(|device| device.connection_manager().unwrap());
    let seen = Arc::new(Mutex::new(Vec::new()));
    let into = Arc::clone(&seen);
    near.model().unwrap().with(move |world| {
        let tap = move |_at, port: usize, frame: &[u8]| {
            if let Some(vlan) = vlan_of_roce(frame) {
                into.lock().unwrap().push((port, vlan));
            }
        };
        world.switch().set_tap(Some(Box::new(tap)));
    });
    let (mut ends, mut completions) =
        connect((&near, &managers[0]), (&far, &managers[1]), ip("10.4.0.2"));
    for end in &ends {
        assert_eq!(end.queue_pair.query().unwrap().vlan_tag, Some(100));
    }
    assert_eq!(send(&mut ends, &mut completions[0]), Status::Success);
    drop(ends);
    near.model()
        .unwrap()
        .with(|world| world.switch().set_tap(None));
    let seen = seen.lock().unwrap();
    for port in [4, 5] {
        let of_port = seen.iter().filter(|(from, _)| *from == port);
        let vlans: Vec<_> = of_port.map(|(_, vlan)| *vlan).collect();
        // A message of the manager, and a request or an acknowledgement of the connection.
        assert!(vlans.len() >= 2, "port {port} sent {vlans:?}");
        assert!(vlans.iter().all(|vlan| *vlan == Some(100)), "{vlans:?}");
    }
}

#[test]
fn a_peer_that_does_not_answer_delays_no_other_call() {
    /// Three requests, one second apart.
    const ASKED: Duration = Duration::from_millis(2500);
    /// Tries: on a busy machine the other calls may take as long as three requests.
    const TRIES: u8 = 5;
    let near = open(6, &["10.5.0.1/24"]);
    let far = open(7, &["10.5.0.2/24"]);
    far.serve_network().unwrap();
    near.resolve(ip("10.5.0.2")).unwrap();
    let is_at_once = |number: u8| {
        std::thread::scope(|scope| {
            let begin = Instant::now();
            let near = &near;
            let asked = (0..4).map(|host| {
                scope.spawn(move || {
                    let absent = IpAddr::from([10, 5, 0, 50 + 4 * number + host]);
                    near.resolve(absent).expect_err("no answer");
                    let took = begin.elapsed();
                    assert!(took > ASKED, "{absent}: {took:?}");
                    took
                })
            });
            let asked: Vec<_> = asked.collect();
            std::thread::sleep(Duration::from_millis(100));
            near.resolve(ip("10.5.0.2")).unwrap();
            let added = format!("10.5.{}.1/24", 1 + number);
            near.add_address(added.parse().unwrap()).unwrap();
            near.connection_manager().unwrap();
            let others = begin.elapsed();
            let asked = asked.into_iter().map(|asked| asked.join().unwrap());
            let took: Vec<_> = asked.collect();
            // None of the four waited for another one either.
            others < ASKED && took.iter().all(|took| *took < 2 * ASKED)
        })
    };
    assert!((0..TRIES).any(is_at_once), "they waited");
}

#[test]
fn addresses_that_are_added_and_removed_are_those_of_the_manager() {
    let near = open(8, &["10.6.0.1/24"]);
    let far = open(9, &["10.6.0.2/24"]);
    let managers = [&near, &far].map(|device| device.connection_manager().unwrap());
    let added = ip("10.6.0.3");
    let at = SocketAddr::new(added, PORT);
    managers[1].listen(at, 4).expect_err("not there yet");
    far.add_address("10.6.0.3/24".parse().unwrap()).unwrap();
    let (ends, _queue) = connect((&near, &managers[0]), (&far, &managers[1]), added);
    assert!(managers[1].addresses().contains(&added));

    far.remove_address(added, None).unwrap();
    assert!(!managers[1].addresses().contains(&added));
    managers[1].listen(at, 4).expect_err("not there any more");
    let [mut one, _other] = ends;
    assert!(!one.wait_for_end(Duration::from_millis(50)), "it stays");
}

#[test]
fn a_connection_is_not_waited_for_longer_than_the_program_wants() {
    let near = open(10, &["10.7.0.1/24"]);
    let manager = near.connection_manager().unwrap();
    // A busy machine delays some of the tries.
    let is_in_time = (20..25).any(|last| {
        let absent = SocketAddr::new(IpAddr::from([10, 7, 0, last]), PORT);
        let wait = Duration::from_millis(300);
        let queue_pair = pair(&near).0;
        let begin = Instant::now();
        let refused = manager.connect(queue_pair, absent, &Settings::default(), wait);
        let took = begin.elapsed();
        let message = refused.expect_err("no answer").to_string();
        assert!(message.contains("300ms"), "{message}");
        // Less than the three requests for the neighbour take.
        took < Duration::from_secs(2)
    });
    assert!(is_in_time, "it waited longer");
}

#[test]
fn an_address_that_the_stack_does_not_have_can_be_removed() {
    let nine: Vec<String> = (1..9).map(|last| format!("10.8.0.{last}/24")).collect();
    let nine: Vec<&str> = nine.iter().map(String::as_str).collect();
    let near = open(11, &nine);
    near.serve_network().unwrap();
    // The stack takes eight addresses, and the link-local one is the ninth.
    let last = near.gids().unwrap().pop().unwrap().address;
    near.remove_address(last.address, None).unwrap();
    near.remove_address(last.address, None)
        .expect_err("removed before");
}

#[test]
fn addresses_change_after_a_recovery_that_ended_the_stack() {
    let near = open(12, &["10.9.0.1/24"]);
    near.serve_network().unwrap();
    near.recover().unwrap();
    // The stack lets frames to the group of an IPv6 address in, by a port that is gone.
    let added = ip("2001:db8:9::2");
    let gid = near.add_address("2001:db8:9::2/64".parse().unwrap());
    assert_eq!(gid.unwrap().address.address, added);
    near.serve_network().unwrap();
    near.recover().unwrap();
    near.remove_address(added, None).unwrap();
    assert!(!near.local_addresses().unwrap().contains(&added));
}

#[test]
fn a_device_out_of_service_changes_no_address() {
    let mut config = Config::default();
    config.model.functions = 16;
    config.housekeeping.thread = false;
    let near = ringside::open("model:13", &config).unwrap();
    let before = near.gids().unwrap();
    near.driver().give_up().unwrap();
    let refused = near.add_address("10.10.0.1/24".parse().unwrap());
    refused.expect_err("out of service");
    let present = before[0].address;
    near.remove_address(present.address, present.vlan)
        .expect_err("out of service");
    assert_eq!(near.gids().unwrap(), before);
}

#[test]
fn connections_are_restored_on_the_device_of_their_manager_only() {
    let [own, other] = [(14, "10.11.0.1/24"), (15, "10.11.0.2/24")].map(|(index, address)| {
        let device = open(index, &[address]);
        (device.address().to_string(), device)
    });
    let manager = own.1.connection_manager().unwrap();
    let addresses = manager.addresses();
    for has_failed in [false, true] {
        if has_failed {
            own.1.driver().give_up().unwrap();
            own.1.recover().unwrap();
        }
        let refused = other.1.restore_connections(&manager).unwrap_err();
        let is_foreign = matches!(
            refused,
            NetworkError::ConnectionManager(StartError::ForeignDevice { .. })
        );
        let message = refused.to_string();
        assert!(is_foreign, "{message}");
        assert!(
            message.contains(&own.0) && message.contains(&other.0),
            "{message}"
        );
        assert_eq!(manager.addresses(), addresses);
    }
    own.1.restore_connections(&manager).unwrap();
    // The other device has room for a manager of its own.
    other.1.connection_manager().unwrap();
}
