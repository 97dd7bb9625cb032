//! Each cause of a drop is produced on the model, and the report shows it where it belongs.

use super::report::Report;
use super::*;
use clap::Parser;
use ringside_bus::Iova;
use ringside_lan::QueueState;
use ringside_model::World;
use serde_json::Value;
use std::sync::mpsc::sync_channel;

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    options: Options,
}

/// Two ports of the model, and the thread that forwards, driven by hand. Order of fields is order
/// of dropping.
struct Rig {
    workers: Vec<Worker>,
    ports: Vec<Brought>,
    handovers: Vec<Sender<Handover>>,
    shared: Arc<Shared>,
    model: Threaded,
}

impl Rig {
    fn new(line: &str) -> Self {
        Self::with_frames(line, 60)
    }

    /// Frames of a length that the command line may not name; 60 for that of the line.
    fn with_frames(line: &str, bytes: u16) -> Self {
        Self::mirrored(line, bytes, None)
    }

    /// The same, with a mirror.
    fn mirrored(line: &str, bytes: u16, mirror: Option<&Arc<Mirror>>) -> Self {
        let words = ["forward"].into_iter().chain(line.split_whitespace());
        let Line { mut options } = Line::parse_from(words);
        let config = Config::default();
        let addresses = [DeviceAddress::Model(0), DeviceAddress::Model(1)];
        let (functions, model) = functions(&addresses, &config).unwrap();
        if bytes != 60 {
            options.txpkts = bytes;
        }
        let names = addresses.each_ref().map(ToString::to_string);
        let layout = Layout::new(&names, options.queues(), &options.vsi).unwrap();
        let (mut ports, mut queues) = (Vec::new(), Vec::new());
        for (port, function) in functions.into_iter().enumerate() {
            let wanted = wanted(&options, &layout, port);
            let opened = Brought::bring_up(function, &addresses[port], wanted, &[], &config);
            let opened = opened.unwrap();
            ports.push(opened.0);
            queues.push(opened.1);
        }
        let shared = Arc::new(Shared::new(layout, options.mode.clone(), options.burst));
        let (workers, handovers) = workers(&options, &ports, queues, &shared, mirror);
        Self {
            workers,
            ports,
            handovers,
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

    /// Rounds of all VSIs until `count` packets have moved.
    fn rounds_of_vsis(&mut self, count: usize) {
        let begin = Instant::now();
        let mut moved = 0;
        while moved < count {
            for worker in &mut self.workers {
                let lanes = self.ports.len()..worker.lanes();
                moved += lanes.map(|lane| worker.round(lane)).sum::<usize>();
            }
            assert!(
                begin.elapsed() < Duration::from_secs(30),
                "{moved} of {count}"
            );
        }
    }

    /// Has a device fail, and recovers it.
    fn recover(&mut self, port: usize) {
        self.ports[port].device().give_up().unwrap();
        let shared = Arc::clone(&self.shared);
        let handovers = self.handovers.clone();
        let mut running = Running::new(shared, &mut self.ports, handovers, true);
        running.supervise().unwrap();
        self.workers.iter_mut().for_each(Worker::take_over);
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
            let all = self.ports[port].controls.port.statistics().unwrap();
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
        let ports: Vec<_> = self.ports.iter().map(|port| &port.controls).collect();
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
fn each_queue_shows_the_packets_and_bytes_that_it_moved() {
    let mut rig = Rig::new("--mode txonly,rxonly --queues 2 --burst 32");
    rig.rounds(1, 0, 64);
    // One flow: it arrives at one queue, whichever that is.
    let begin = Instant::now();
    let mut moved = [0; 2];
    while moved.iter().sum::<usize>() < 64 {
        for (thread, moved) in moved.iter_mut().enumerate() {
            *moved += rig.workers[thread].round(1);
        }
        assert!(begin.elapsed() < Duration::from_secs(30), "{moved:?}");
    }
    let (report, text) = rig.report();
    let queue = |port: usize, number: usize, name: &str| {
        let value = &report[port]["queues"][number][name];
        value.as_u64().unwrap_or_else(|| panic!("{name}: {report}"))
    };
    assert_eq!(queue(0, 0, "tx_packets"), 0);
    let sent = queue(0, 1, "tx_packets");
    assert!(sent >= 64, "{sent}");
    assert_eq!(queue(0, 1, "tx_bytes"), sent * 60);
    let used = moved.iter().position(|moved| *moved > 0).unwrap();
    assert_eq!(moved[1 - used], 0);
    assert!(queue(1, used, "rx_packets") >= 64, "{report}");
    for name in ["rx_packets", "rx_bytes"] {
        assert_eq!(queue(1, 1 - used, name), 0);
        assert_eq!(queue(1, used, name), report[1][name]);
    }
    let line = format!("by queue: 0 received 0, sent 0; 1 received 0, sent {sent}\n");
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
    let ports: Vec<_> = rig.ports.iter().map(|port| &port.controls).collect();
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
    report.clear("all");
    let (value, text) = report.total_of_test();
    assert_eq!(value[0]["malicious"], Value::Array(Vec::new()));
    assert!(!text.contains("was stopped"), "{text}");
}

#[test]
fn queues_after_a_recovery_continue_the_counts_of_those_before() {
    // Thread 0 has two queues of the VSI, thread 1 has one.
    let mut rig = Rig::new(
        "--mode txonly,rxonly --queues 2 --eth-peer 02:aa:00:00:00:01 \
         --vsi 02:aa:00:00:00:01,3@1",
    );
    let [first, second] = [0, 1].map(|thread| rig.workers[thread].lanes());
    assert_eq!((first, second), (4, 3));
    rig.rounds(0, 0, 32);
    rig.rounds_of_vsis(32);
    // They are in a ring when the device fails.
    rig.rounds(0, 0, 32);
    let vsi = rig.ports[1].controls.further[0].clone();
    let begin = Instant::now();
    while vsi.statistics().unwrap().iter().all(|one| one.value != 64) {
        assert!(begin.elapsed() < Duration::from_secs(30), "{vsi:?}");
    }
    rig.recover(1);
    assert_eq!(vsi.state(), QueueState::Stopped);
    rig.rounds(0, 0, 32);
    rig.rounds_of_vsis(32);
    let (report, _) = rig.report();
    assert_eq!(report[2]["rx_packets"], 64);
    assert_eq!(report[2]["rx_bytes"], 64 * 60);
    assert_eq!(report[2]["dropped"], 32);
    let drops = drops(&report, 2);
    assert!(
        drops
            .iter()
            .any(|(name, count)| name.ends_with(" unread") && *count == 32),
        "{drops:?}"
    );
    assert_eq!(report[1]["rx_packets"], 0);
    assert_eq!(report[1]["dropped"], 0);
}

#[test]
fn drops_of_the_device_before_a_recovery_stay_counted() {
    let mut rig = Rig::new(
        "--mode txonly,rxonly --burst 64 --rxd 64 --eth-peer 02:aa:00:00:00:01 \
         --vsi 02:aa:00:00:00:01@1",
    );
    let (shared, handovers) = (Arc::clone(&rig.shared), rig.handovers.clone());
    let mut running = Running::new(shared, &mut rig.ports, handovers, true);
    let counts = |running: &mut Running<'_>| {
        let (report, text) = running.report.total_of_test();
        assert_eq!(drops(&report, 1), [], "{text}");
        let recoveries = report[2]["recoveries"].as_u64().unwrap();
        (drops(&report, 2), recoveries, text)
    };
    let dropped = [("device rx_dropped".to_owned(), 72)];
    let worker = &mut rig.workers[0];
    assert_eq!((worker.round(0), worker.round(0)), (64, 64));
    let begin = Instant::now();
    // 56 descriptors are posted, and no thread receives.
    while counts(&mut running).0 != dropped {
        assert!(begin.elapsed() < Duration::from_secs(30));
    }
    running.ports()[1].device().give_up().unwrap();
    running.supervise().unwrap();
    let (found, recoveries, text) = counts(&mut running);
    assert_eq!((found.as_slice(), recoveries), (&dropped[..], 1), "{text}");
    assert!(text.contains("the device was recovered: 1\n"), "{text}");
}

#[test]
fn the_last_report_ends_with_the_forwarding() {
    let rig = Rig::new("--mode txonly,rxonly --eth-peer 02:aa:00:00:00:01");
    let ports: Vec<_> = rig.ports.iter().map(|port| &port.controls).collect();
    let mut report = Report::from_zero(Arc::clone(&rig.shared), &ports);
    report.started();
    report.end();
    let (first, _) = report.total_of_test();
    // as the drain of the queues takes time
    std::thread::sleep(Duration::from_millis(2));
    let (second, _) = report.total_of_test();
    assert!(first[0]["seconds"].as_f64().unwrap() > 0.0);
    assert_eq!(first[0]["seconds"], second[0]["seconds"]);
    // The drain counts packets: they are none of the rates.
    let place = Place {
        station: 1,
        queue: 0,
        port: 1,
    };
    let counters = rig.shared.counters(place).unwrap();
    counters.received.fetch_add(100, Ordering::Relaxed);
    counters.received_bytes.fetch_add(6_000, Ordering::Relaxed);
    let (third, _) = report.total_of_test();
    let more = |name: &str| third[1][name].as_f64().unwrap() - first[1][name].as_f64().unwrap();
    assert_eq!((more("rx_packets"), more("rx_pps")), (100.0, 0.0));
    assert_eq!(more("rx_gbits"), 0.0);
}

#[test]
fn settings_of_a_vsi_are_restored_as_they_were_last() {
    let mut rig = Rig::new("--mode rxonly,rxonly --vsi 02:aa:00:00:00:01,2@1");
    let own = |rig: &Rig| rig.ports[1].controls.port.clone();
    let further = |rig: &Rig| rig.ports[1].controls.further[0].clone();
    own(&rig).set_promiscuous(true).unwrap();
    further(&rig).add_vlan(5).unwrap();
    further(&rig).add_address([0x02, 0xAA, 0, 0, 0, 9]).unwrap();
    let before = (own(&rig).setup(), further(&rig).setup());
    assert!(before.0.vsi.promiscuous);
    rig.recover(1);
    assert_eq!((own(&rig).setup(), further(&rig).setup()), before);
    assert_eq!(further(&rig).state(), QueueState::Running);
    // A port that was promiscuous at the start, and is not any more, stays so.
    assert!(rig.ports[0].controls.port.setup().vsi.promiscuous);
    rig.ports[0].controls.port.set_promiscuous(false).unwrap();
    rig.recover(0);
    assert!(!rig.ports[0].controls.port.setup().vsi.promiscuous);
}

#[test]
fn vsis_are_paired_by_place_and_their_queues_go_to_the_threads_in_turn() {
    let vsis = [
        "02:aa:00:00:00:01,4@1",
        "02:aa:00:00:00:02,3",
        "02:aa:00:00:00:03@2",
    ];
    let vsis = vsis.map(|text| text.parse().unwrap());
    let devices = ["a", "b", "c"].map(str::to_owned);
    let wrong = Layout::new(&devices, 2, &vsis).unwrap_err();
    assert!(wrong.contains("have 3 and 4 queues") || wrong.contains("have 4 and 3 queues"));
    let mut vsis = vsis;
    vsis[1] = "02:aa:00:00:00:02,4".parse().unwrap();
    let layout = Layout::new(&devices, 2, &vsis).unwrap();
    let pairs: Vec<_> = layout.stations().iter().map(|one| one.pair).collect();
    // Ports 0 and 1, port 2 alone; the VSIs of ports 1 and 0, and that of port 2 alone.
    assert_eq!(pairs, [1, 0, 2, 4, 3, 5]);
    let labels: Vec<_> = (0..6).map(|station| layout.label(station)).collect();
    assert_eq!(labels, ["a", "b", "c", "VSI 1.1", "VSI 0.1", "VSI 2.1"]);
    let threads: Vec<_> = (0..4).map(|queue| layout.thread_of(queue)).collect();
    assert_eq!(threads, [0, 1, 0, 1]);
}

#[test]
fn only_packets_that_were_sent_are_captured_or_lost() {
    let mirror = Arc::new(Mirror::new(40));
    mirror.attach(true);
    let mut rig = Rig::mirrored(
        "--mode txonly,rxonly --burst 32 --txd 64",
        60,
        Some(&mirror),
    );
    // Bursts of 32 packets, and a ring with room for 63 while the device does not work.
    let (done, is_done) = std::sync::mpsc::channel();
    let mut sent = 0;
    rig.before_the_device(
        |workers| {
            let counts = (0..20).map(|_| workers[0].round(0) as u64);
            sent = counts.sum();
            done.send(()).unwrap();
        },
        move |_| is_done.recv().unwrap(),
    );
    let (seen, lost) = mirror.counts();
    assert!((41..=63).contains(&sent), "{sent} packets sent");
    assert_eq!((seen, seen + lost), (40, sent));
}

#[test]
fn a_rule_for_a_queue_that_no_port_has_is_refused_with_the_number() {
    let rule = |action: &str| {
        let rule = format!("tcp4 dst-port 80 action {action}").parse::<Rule>();
        [rule.unwrap()]
    };
    for (action, queues) in [("0", 1), ("drop", 1), ("spread", 1), ("2-3", 4)] {
        check_rules(&rule(action), queues).unwrap();
    }
    for (action, queues) in [("3", 1), ("2-3", 3), ("65535", 64)] {
        let failure = check_rules(&rule(action), queues).unwrap_err();
        assert!(failure.is_usage());
        let text = failure.text();
        assert!(text.contains("makes enough"), "{text}");
    }
}
