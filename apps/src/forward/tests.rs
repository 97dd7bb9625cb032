//! Each cause of a drop is produced on the model, and the report shows it where it belongs.

use super::*;
use clap::Parser;
use ringside_bus::Iova;
use ringside_model::World;
use serde_json::Value;
use std::sync::mpsc::sync_channel;

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    options: Options,
}

/// Two ports of the model, and the thread that forwards, driven by hand. Order of fields is order of
/// dropping.
struct Rig {
    workers: Vec<Worker>,
    ports: Vec<Brought>,
    shared: Arc<Shared>,
    model: Threaded,
}

impl Rig {
    fn new(line: &str) -> Self {
        Self::with_frames(line, 60)
    }

    /// Frames of a length that the command line may not name; 60 for that of the line.
    fn with_frames(line: &str, bytes: u16) -> Self {
        let words = ["forward"].into_iter().chain(line.split_whitespace());
        let Line { mut options } = Line::parse_from(words);
        if bytes != 60 {
            options.txpkts = bytes;
        }
        let config = Config::default();
        let addresses = [DeviceAddress::Model(0), DeviceAddress::Model(1)];
        let (functions, model) = functions(&addresses, &config).unwrap();
        let mut ports: Vec<_> = functions
            .into_iter()
            .zip(&addresses)
            .map(|(function, address)| bring_up(function, address, &options, &config).unwrap())
            .collect();
        let names = addresses.each_ref().map(ToString::to_string);
        let queues = options.queues.into();
        let shared = Arc::new(Shared::new(&names, options.mode.clone(), queues));
        let workers = workers(&options, &mut ports, &shared, None);
        Self {
            workers,
            ports,
            shared,
            model: model.unwrap(),
        }
    }

    /// Rounds of one port in one thread until `count` packets have moved.
    fn rounds(&mut self, thread: usize, port: usize, count: usize) {
        let begin = Instant::now();
        let mut moved = 0;
        while moved < count {
            moved += self.workers[thread].round(port);
            assert!(
                begin.elapsed() < Duration::from_secs(30),
                "{moved} of {count}"
            );
        }
    }

    /// Runs `act`, which sends; the device does not work until `look` on it has returned.
    fn before_the_device(
        &mut self,
        act: impl FnOnce(&mut [Worker]),
        look: impl FnOnce(&mut World) + Send + 'static,
    ) {
        let (began, begun) = sync_channel(1);
        let look = move |world: &mut World| {
            began.send(()).unwrap();
            look(world);
        };
        let Self { workers, model, .. } = self;
        std::thread::scope(|scope| {
            scope.spawn(|| model.with(look).expect("the model runs"));
            begun.recv().unwrap();
            act(workers);
        });
    }

    /// Waits until a counter of a port has a value.
    fn wait_for(&self, port: usize, name: &str, value: u64) {
        let begin = Instant::now();
        loop {
            let all = self.ports[port].open.port.statistics().unwrap();
            let found = all.iter().find(|one| one.name == name).unwrap();
            if found.value == value {
                return;
            }
            assert!(begin.elapsed() < Duration::from_secs(30), "{found:?}");
        }
    }

    /// The report since the start.
    fn report(&mut self) -> (Value, String) {
        // A thread that ends publishes its counts.
        self.shared.stop.store(true, Ordering::Release);
        self.workers.iter_mut().for_each(Worker::run);
        let ports: Vec<_> = self.ports.iter().map(|port| &port.open.port).collect();
        Report::from_zero(Arc::clone(&self.shared), &ports).total_of_test()
    }
}

/// All causes of a port that are not 0: of its queues by number, and of the device.
fn drops(report: &Value, port: usize) -> Vec<(String, u64)> {
    let port = &report[port];
    let queues = port["queue_drops"].as_array().unwrap();
    let mut all = Vec::new();
    let mut add = |place: &str, causes: &Value| {
        for (name, count) in causes.as_object().unwrap() {
            let count = count.as_u64().unwrap();
            if count > 0 {
                all.push((format!("{place} {name}"), count));
            }
        }
    };
    for (number, causes) in queues.iter().enumerate() {
        add(&number.to_string(), causes);
    }
    add("device", &port["device_drops"]);
    all
}

#[test]
fn packets_that_the_mode_does_not_send_count_at_their_queue() {
    let mut rig = Rig::new("--mode txonly,icmp-echo --queues 2 --burst 32");
    rig.rounds(0, 0, 32);
    // One flow: it arrives at one queue, whichever that is.
    let begin = Instant::now();
    let mut moved = [0; 2];
    while moved.iter().sum::<usize>() < 32 {
        for (thread, moved) in moved.iter_mut().enumerate() {
            *moved += rig.workers[thread].round(1);
        }
        assert!(begin.elapsed() < Duration::from_secs(30), "{moved:?}");
    }
    let (report, text) = rig.report();
    let queue = moved.iter().position(|moved| *moved > 0).unwrap();
    let count = moved[queue] as u64;
    assert_eq!(drops(&report, 1), [(format!("{queue} mode"), count)]);
    assert_eq!(report[1]["dropped"], count);
    assert_eq!(drops(&report, 0), []);
    let line = format!("dropped, queue {queue}: mode {count}\n");
    assert!(text.contains(&line), "{text}");
}

#[test]
fn packets_without_room_and_those_for_a_stopped_queue_are_told_apart() {
    let mut rig = Rig::new("--mode txonly,io --burst 64 --txd 64");
    let addressed = "rx_unicast";
    let mut sent = 0;
    while sent < 64 + 32 {
        let before = sent;
        sent += rig.workers[0].round(0);
        rig.wait_for(1, addressed, sent as u64);
        assert!(sent > before);
    }
    // It receives 64 packets; a ring of 64 descriptors takes 62.
    assert_eq!(rig.workers[0].round(1), 64 + 62);
    let full = ("0 queue_full".to_owned(), 2);
    assert_eq!(drops(&rig.report().0, 1), std::slice::from_ref(&full));
    rig.workers[0].transmit(0).stop().unwrap();
    let rest = rig.workers[0].round(1) as u64;
    assert!(rest > 0);
    let (report, text) = rig.report();
    let mut found = drops(&report, 1);
    found.sort();
    assert_eq!(found, [("0 out_of_service".to_owned(), rest), full]);
    assert_eq!(report[1]["dropped"], rest + 2);
    let line = format!("dropped, queue 0: queue_full 2, out_of_service {rest}\n");
    assert!(text.contains(&line), "{text}");
}

#[test]
fn packets_that_the_transmit_queue_refuses_are_dropped_and_not_sent() {
    let mut rig = Rig::new("--mode txonly,rxonly --burst 32 --txpkts 9724 --mtu 9702");
    rig.rounds(0, 0, 32);
    assert_eq!(drops(&rig.report().0, 0), []);
    let mut rig = Rig::with_frames("--mode txonly,rxonly --burst 32 --mtu 9702", 9725);
    rig.rounds(0, 0, 32);
    let (report, _) = rig.report();
    assert_eq!(drops(&report, 0), [("0 too_long".to_owned(), 32)]);
    assert_eq!(
        (&report[0]["dropped"], &report[0]["tx_packets"]),
        (&32.into(), &0.into())
    );
}

#[test]
fn a_pool_that_runs_dry_is_shown_at_its_queue() {
    let mut rig = Rig::new("--mode txonly,rxonly --burst 64");
    let pool = rig.workers[0].transmit(1).pool().clone();
    let hoard: Vec<_> = std::iter::from_fn(|| pool.packet()).collect();
    rig.rounds(0, 0, 64);
    rig.rounds(0, 1, 64);
    drop(hoard);
    let (report, text) = rig.report();
    let found = drops(&report, 1);
    let [(name, count)] = &found[..] else {
        panic!("{found:?}")
    };
    assert_eq!(name, "0 pool_empty");
    assert_eq!(report[1]["dropped"], 0, "refills, not packets");
    let line = format!("dropped, queue 0: refills with an empty pool {count}\n");
    assert!(text.contains(&line), "{text}");
}

#[test]
fn packets_without_a_receive_descriptor_are_shown_as_the_device_counts_them() {
    let mut rig = Rig::new("--mode txonly,rxonly --burst 64 --rxd 64");
    rig.rounds(0, 0, 128);
    let begin = Instant::now();
    // 56 descriptors are posted, and no thread receives.
    while drops(&rig.report().0, 1) != [("device rx_dropped".to_owned(), 72)] {
        assert!(
            begin.elapsed() < Duration::from_secs(30),
            "{}",
            rig.report().1
        );
    }
    let text = rig.report().1;
    assert!(
        text.contains("dropped by the device: rx_dropped 72\n"),
        "{text}"
    );
    assert_eq!(drops(&rig.report().0, 0), []);
}

#[test]
fn a_queue_that_the_device_stopped_is_named_once() {
    let mut rig = Rig::new("--mode txonly,rxonly --burst 8");
    let send = |workers: &mut [Worker]| assert_eq!(workers[0].round(0), 8);
    // A type of descriptor that does not exist.
    let damage = |world: &mut World| {
        let (ring, _) = world.function(0).unwrap().transmit_ring(0).unwrap();
        let words = world
            .space(0)
            .unwrap()
            .words(Iova(ring.0 + 32), 16)
            .unwrap();
        let begin = Instant::now();
        while words.load(1) == 0 && begin.elapsed() < Duration::from_secs(4) {
            std::thread::yield_now();
        }
        words.store(1, words.load(1) | 7);
    };
    rig.before_the_device(send, damage);
    let begin = Instant::now();
    let ports: Vec<_> = rig.ports.iter().map(|port| &port.open.port).collect();
    let mut report = Report::from_zero(Arc::clone(&rig.shared), &ports);
    loop {
        let (value, text) = report.total_of_test();
        if value[0]["malicious_events"] == 1 {
            assert_eq!(value[0]["malicious"][0]["queue"], 0);
            assert_eq!(value[1]["malicious_events"], 0);
            assert!(
                text.contains("transmit queue 0 was stopped by the device"),
                "{text}"
            );
            break;
        }
        assert!(begin.elapsed() < Duration::from_secs(30), "{text}");
    }
    let (value, _) = report.total_of_test();
    assert_eq!(value[0]["malicious_events"], 1, "not counted twice");
    report.clear();
    let (value, text) = report.total_of_test();
    assert_eq!(value[0]["malicious"], Value::Array(Vec::new()));
    assert!(!text.contains("was stopped"), "{text}");
}
