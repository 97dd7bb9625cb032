//! RDMA reads of a connection whose listener names more of them than it was asked for.

use ringside_cm::{Accept, Action, EventKind, Identity, Manager, PortSpace, ServiceId};
use ringside_connect::{ConnectionManager, Lookup, NextHop, Service, Settings};
use ringside_pmd::Device;
use ringside_pmd::rdma::QueuePairConfig;
use ringside_testkit::{bring_up_all, config, threaded};
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const PORT: u16 = 7471;
const WAIT: Duration = Duration::from_secs(30);
/// More reads than a device has.
const MANY: u8 = 200;

/// Accepts requests as a listener without limits does, until it is told to end.
fn accept(mut service: Service, own: IpAddr, peer: [u8; 6], ends: &AtomicBool) {
    let mut manager = Manager::new(Identity::of(7, 7));
    manager.add_address(own, None);
    let port = ServiceId::of(PortSpace::Tcp, PORT);
    manager.listen(port, Some(own), 1).unwrap();
    let answer = Accept {
        queue_pair: 77,
        shared_receive_queue: false,
        responder_resources: MANY,
        initiator_depth: MANY,
        flow_control: true,
        rnr_retry_count: 7,
        private_data: Vec::new(),
    };
    let begin = Instant::now();
    while !ends.load(Ordering::Relaxed) {
        let now = begin.elapsed();
        manager.tick(now);
        service.poll(|arrived| {
            let _ = manager.receive(now, arrived);
        });
        while let Some(action) = manager.next_action() {
            match action {
                Action::Send(mad) => service.send(mad, &|_, _| Lookup::Found(peer)),
                Action::Event(event) => match event.kind {
                    EventKind::Request { .. } => manager.accept(now, event.id, &answer).unwrap(),
                    EventKind::Disconnected { .. } => {
                        let _ = manager.disconnect(now, event.id);
                    }
                    _ => {}
                },
            }
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_side_that_asks_keeps_to_its_own_reads_if_the_listener_names_more() {
    let model = threaded();
    let [near, far]: [Device; 2] = bring_up_all(|index| model.function(index), &config());
    let macs = [&near, &far].map(|device| device.facts().mac().unwrap());
    let hop = NextHop::from(macs[1]);
    let manager = ConnectionManager::start(&near, move |_| Lookup::Found(hop)).unwrap();
    let queue = near.completion_queue(16).unwrap();
    let domain = near.protection_domain().unwrap();
    let pair = domain.queue_pair(QueuePairConfig::reliable(&queue));
    let own = far.local_addresses().unwrap()[0];
    // Before the request is sent, which is repeated after some seconds.
    let service = Service::open(&far).unwrap();
    let settings = Settings {
        inbound_reads: 3,
        outbound_reads: 2,
        ..Settings::default()
    };
    let ends = AtomicBool::new(false);
    let report = std::thread::scope(|scope| {
        scope.spawn(|| accept(service, own, macs[0], &ends));
        let to = SocketAddr::new(own, PORT);
        let made = manager.connect(pair.unwrap(), to, &settings, WAIT);
        // The connection ends while the listener still answers.
        let report = made.map(|connection| connection.queue_pair.query());
        ends.store(true, Ordering::Relaxed);
        report
    });
    let report = report.unwrap_or_else(|error| panic!("{error}")).unwrap();
    assert_eq!((report.inbound_reads, report.outbound_reads), (3, 2));
}
