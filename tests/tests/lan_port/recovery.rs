//! Resets under traffic: each packet handle comes back once, and the port works again.

use crate::rig::{End, Rig, plain_frame, settings};
use ringside_lan::{Burst, QueueState};
use ringside_pmd::lan::port::{FlowKind, FlowMatch, FlowRule, FlowTarget, RuleKind};
use ringside_pmd::lan::{PortError, PortSettings};

/// Packets on their way in both directions, and some held by the application.
fn traffic(rig: &mut Rig) -> Vec<ringside_lan::Packet> {
    let (a, b) = (rig.a.mac(), rig.b.mac());
    let mut held = Vec::new();
    for round in 0..10 {
        let to_b = plain_frame(b, a, 3000, round);
        let packets: Vec<_> = (0..9).map(|_| rig.a.packet(&to_b)).collect();
        rig.a.send(packets);
        let to_a = plain_frame(a, b, 60, round);
        let packets: Vec<_> = (0..20).map(|_| rig.b.packet(&to_a)).collect();
        rig.b.send(packets);
        rig.pass();
        held.extend(rig.b.poll().into_iter().map(|(_, packet)| packet).take(2));
        rig.a.poll();
    }
    // Not taken by the device yet: the doorbell rang and no time has passed.
    let last = plain_frame(a, b, 500, 0);
    let packets: Vec<_> = (0..30).map(|_| rig.b.packet(&last)).collect();
    rig.b.send(packets);
    held
}

#[test]
fn a_reset_under_traffic_gives_every_packet_back_and_the_port_works_again() {
    let mut rig = Rig::new();
    for _ in 0..3 {
        let held = traffic(&mut rig);
        assert!(!held.is_empty());
        rig.b.device.give_up().expect("in service");
        rig.b.device.recover().expect("back in service");
        let OpenEnd { old, pool } = replace(&mut rig.b);
        assert_eq!(old.port.state(), QueueState::Stopped);
        drop(old);
        let in_use = pool.usage().in_use as usize;
        let buffers: usize = held.iter().map(|packet| packet.segment_count()).sum();
        assert_eq!(in_use, buffers, "only what the application holds");
        // Packets that it holds stay valid: their pool outlives its port.
        assert!(held.iter().all(|packet| packet.length() == 3000));
        drop(held);
        assert_eq!(pool.usage().in_use, 0);
        rig.a.poll();
        let frame = plain_frame(rig.b.mac(), rig.a.mac(), 100, 1);
        let packet = rig.a.packet(&frame);
        rig.a.send([packet]);
        let found = rig.wait_b(1);
        assert_eq!(found.last().expect("one").1.to_vec(), frame);
    }
    rig.finish();
}

struct OpenEnd {
    old: ringside_pmd::lan::OpenPort,
    pool: ringside_lan::PacketPool,
}

/// Opens the port of a recovered device; returns the one of the life before.
fn replace(end: &mut End) -> OpenEnd {
    let new = end.device.open_port(&settings()).expect("in service");
    let old = std::mem::replace(&mut end.open, new);
    let pool = old.pool.clone();
    OpenEnd { old, pool }
}

/// The register of a queue's tail keeps its value over a reset.
#[test]
fn the_queue_for_reports_of_rules_begins_at_0_after_longer_rings_of_an_earlier_port() {
    let wide = PortSettings {
        receive_queues: 2,
        receive_descriptors: 192,
        ..settings()
    };
    let mut rig = Rig::with(&settings(), &wide);
    rig.b.device.give_up().expect("in service");
    rig.b.device.recover().expect("back in service");
    // Its second receive queue is that of the reports.
    let single = PortSettings {
        receive_queues: 1,
        ..settings()
    };
    let new = rig.b.device.open_port(&single).expect("in service");
    drop(std::mem::replace(&mut rig.b.open, new));
    let rule = FlowRule {
        packets: FlowMatch {
            destination_port: Some(9),
            ..FlowMatch::of(RuleKind::Flow(FlowKind::UdpV4))
        },
        target: FlowTarget::Queue(0),
        mark: Some(1),
        count: false,
    };
    rig.b.open.port.add_rule(&rule).expect("programmed");
    rig.finish();
}

#[test]
fn queues_dropped_while_the_device_is_down_keep_their_packets_until_it_was_reset() {
    let mut rig = Rig::new();
    let held = traffic(&mut rig);
    drop(held);
    rig.b.device.give_up().expect("in service");
    let closed = rig.b.device.open_port(&settings()).map(|_| ());
    assert_eq!(closed.unwrap_err(), PortError::OutOfService);
    // A queue that does not know of the failure yet delivers nothing and accepts nothing.
    assert!(rig.b.poll().is_empty());
    let mut burst = Burst::default();
    let frame = plain_frame(rig.a.mac(), rig.b.mac(), 60, 1);
    burst.push(rig.b.packet(&frame)).expect("room");
    assert_eq!(rig.b.open.transmit[0].send(&mut burst), 0);
    drop(burst);
    rig.b.open.receive.clear();
    rig.b.open.transmit.clear();
    assert!(
        rig.b.open.pool.usage().in_use > 0,
        "the device may still write"
    );
    rig.b.device.recover().expect("back in service");
    assert_eq!(rig.b.open.pool.usage().in_use, 0);
    replace(&mut rig.b);
    rig.finish();
}

#[test]
fn a_shutdown_with_queues_in_use_leaves_the_device_as_it_was() {
    let mut rig = Rig::new();
    let held = traffic(&mut rig);
    rig.no_breach();
    let Rig { world, a, b } = rig;
    for End { open, device } in [a, b] {
        let report = device.shutdown();
        assert!(report.failures.is_empty(), "{:#?}", report.failures);
        assert_eq!(report.leaked_bytes, 0);
        let ringside_pmd::lan::OpenPort {
            mut receive,
            mut transmit,
            pool,
            port,
        } = open;
        assert_eq!(port.state(), QueueState::Stopped);
        assert!(receive.iter_mut().all(|queue| queue.stop().is_ok()));
        assert!(transmit.iter_mut().all(|queue| queue.stop().is_ok()));
        let in_use = pool.usage().in_use;
        assert!(in_use as usize <= held.iter().map(|one| one.segment_count()).sum());
    }
    for index in [0, 1] {
        let breaches = world.with(|world| world.breaches(index));
        assert!(breaches.is_empty(), "{breaches:#?}");
    }
}
