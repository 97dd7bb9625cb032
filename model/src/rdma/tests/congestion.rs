//! Marked packets, notifications, and what the statistics say of traffic.

use super::rig::{BASE, Cq, Qp, Rig};
use crate::frame::{Frame, Payload};
use crate::packet::{Network, OpcodeClass};
use ringside_spec::rdma::commands::*;
use ringside_spec::rdma::qp_context::RoceQueuePairContext;
use ringside_spec::rdma::statistics::{BUFFER_WORDS, Counter};
use ringside_spec::verbs::{Fragment, SendOpcode};
use std::time::Duration;

/// Congestion experienced.
const MARK: u8 = 3;

struct Scene {
    rig: Rig,
    qps: Vec<Qp>,
    cqs: Vec<Cq>,
    from: u64,
    to: u64,
    local: u32,
    remote: u32,
}

impl Scene {
    fn new() -> Self {
        let mut rig = Rig::new();
        let (qps, cqs) = rig.pair();
        let (from, to) = (rig.data(0, 1 << 16), rig.data(1, 1 << 16));
        let (local, remote) = (
            rig.region(0, 1, from, 1 << 16),
            rig.region(1, 2, to, 1 << 16),
        );
        Self {
            rig,
            qps,
            cqs,
            from,
            to,
            local,
            remote,
        }
    }

    fn request(&mut self, opcode: SendOpcode, length_bytes: u32) {
        let source = Fragment {
            address: BASE + self.from,
            length_bytes,
            steering_tag: self.local,
        };
        let target = match opcode {
            SendOpcode::Send => (0, 0),
            _ => (BASE + self.to, self.remote),
        };
        self.rig
            .request(0, &mut self.qps[0], opcode, target, &[source]);
        self.rig.ring(0, &self.qps[0]);
    }

    fn frame(&mut self, side: usize) -> Option<Frame> {
        self.rig.with(side, |engine, context| engine.step(context));
        let frame = self
            .rig
            .with(side, |engine, context| engine.next_frame(context));
        frame.map(|mut frame| {
            if let Payload::Memory { source, .. } = &mut frame.payload {
                *source = side;
            }
            frame
        })
    }

    /// Writes that meet congestion on their way.
    fn marked_write(&mut self) {
        self.request(SendOpcode::Write, 8);
        let mut frame = self.frame(0).expect("a write");
        match &mut frame.packet.path.network {
            Network::V4(ip) => ip.type_of_service |= MARK,
            Network::V6(ip) => ip.traffic_class |= MARK,
        }
        self.rig.deliver(1, &frame);
    }

    fn counter(&mut self, side: usize, name: &str) -> u64 {
        let at = self.rig.data(side, 1024);
        self.rig.done(
            side,
            GatherStatistics {
                buffer_address: BASE + at,
                ..GatherStatistics::ZERO
            },
        );
        let words: [u64; BUFFER_WORDS] = self.rig.get(side, at);
        Counter::named(name)
            .expect("a counter of this name")
            .read(&words)
    }
}

#[test]
fn a_marked_packet_is_taken_and_its_sender_told_once_in_a_while() {
    let mut scene = Scene::new();
    scene.marked_write();
    scene.marked_write();
    let notification = scene.frame(1).expect("a notification");
    let headers = notification.packet.transport;
    assert_eq!(headers.opcode.class(), OpcodeClass::CongestionNotification);
    assert!(headers.backward_congestion);
    assert_eq!(headers.destination_qp.value(), 3);
    scene.rig.deliver(0, &notification);
    let answer = scene.frame(1).expect("an acknowledgement");
    assert_eq!(
        answer.packet.transport.opcode.class(),
        OpcodeClass::Response
    );
    scene.rig.deliver(0, &answer);
    assert!(
        scene.frame(1).is_none(),
        "two marks at once, one notification"
    );
    for _ in 0..2 {
        assert!(scene.rig.poll(0, &mut scene.cqs[0]).is_some());
    }
    scene.rig.now = scene.rig.now.plus(Duration::from_micros(50));
    scene.marked_write();
    scene.rig.run();
    let counted = [
        (1, "RXNPECNMARKEDPKTS", 3),
        (1, "TXNPCNPSENT", 2),
        (0, "RXRPCNPIGNORED", 2),
        (0, "RXRPCNPHANDLED", 0),
    ];
    for (side, name, count) in counted {
        assert_eq!(scene.counter(side, name), count, "{name}");
    }
    scene.rig.assert_no_breach();
}

#[test]
fn with_congestion_control_a_notification_counts_as_handled() {
    let mut scene = Scene::new();
    let at = scene.qps[0].context_at;
    let context = RoceQueuePairContext::decode(&scene.rig.get(0, at));
    let context = RoceQueuePairContext {
        dcqcn_enable: true,
        ..context
    };
    scene.rig.put(0, at, &context.encode());
    let command = scene.rig.modify(&scene.qps[0], QueuePairState::ReadyToSend);
    scene.rig.done(0, command);
    scene.marked_write();
    scene.rig.run();
    assert_eq!(scene.counter(0, "RXRPCNPHANDLED"), 1);
    assert_eq!(scene.counter(0, "RXRPCNPIGNORED"), 0);
    scene.rig.assert_no_breach();
}

#[test]
fn statistics_count_messages_packets_and_bytes_on_both_sides() {
    let mut scene = Scene::new();
    let target = Fragment {
        address: BASE + scene.to,
        length_bytes: 1 << 16,
        steering_tag: scene.remote,
    };
    for _ in 0..2 {
        scene.rig.post_receive(1, &mut scene.qps[1], target);
    }
    // Messages of one packet, of several, and of none of payload.
    for length in [8, 5000, 0] {
        scene.request(SendOpcode::Write, length);
    }
    for length in [100, 3000] {
        scene.request(SendOpcode::Send, length);
    }
    scene.request(SendOpcode::Read, 2000);
    scene.rig.run();
    let same = [
        ("RDMATXWRS", "RDMARXWRS", 3),
        ("RDMATXSNDS", "RDMARXSNDS", 2),
        ("RDMATXRDS", "RDMARXRDS", 1),
        // 1 + 5 + 1 of writes, 1 + 3 of sends, the request to read
        ("IP4TXPKTS", "IP4RXPKTS", 12),
        ("UDPTXPKTS", "UDPRXPKTS", 12),
    ];
    for (sent, received, count) in same {
        assert_eq!(scene.counter(0, sent), count, "{sent}");
        assert_eq!(scene.counter(1, received), count, "{received}");
    }
    assert_eq!(scene.counter(0, "IP4TXOCTS"), scene.counter(1, "IP4RXOCTS"));
    assert_eq!(scene.counter(1, "IP4TXPKTS"), scene.counter(0, "IP4RXPKTS"));
    assert_eq!(scene.counter(1, "IP4RXDISCARD"), 0);
    scene.rig.assert_no_breach();
}
