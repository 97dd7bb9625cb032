//! A queue that the device takes for malicious stops, is named, and runs again once restarted.

use crate::rig::{Rig, close, plain_frame, settings};
use ringside_lan::{Burst, QueueKind};
use ringside_pmd::lan::port::Detector;
use ringside_pmd::lan::{PortSettings, VsiSettings};
use ringside_spec::lan::transmit::{DESCRIPTOR_BYTES, DataCommand};

/// Changes the command of a descriptor that the driver has written and the device has not read.
fn damage(rig: &Rig, queue: u16, index: u64, change: impl Fn(DataCommand) -> DataCommand) {
    rig.world.with(|world| {
        let (ring, _) = world
            .function(0)
            .and_then(|function| function.transmit_ring(queue))
            .expect("a queue");
        let space = world.space(0).expect("space 0");
        let at = ringside_bus::Iova(ring.0 + index * DESCRIPTOR_BYTES as u64);
        let words = space.words(at, DESCRIPTOR_BYTES).expect("the ring");
        words.store(1, change(DataCommand(words.load(1))).0);
    });
}

fn send(rig: &mut Rig, queue: usize, count: u8) -> Vec<Vec<u8>> {
    let (to, from) = (rig.b.mac(), rig.a.mac());
    let frames: Vec<_> = (0..count)
        .map(|seed| plain_frame(to, from, 200, seed))
        .collect();
    let mut burst = Burst::with_limit(64);
    for frame in &frames {
        burst.push(rig.a.packet(frame)).expect("room");
    }
    let taken = rig.a.open.transmit[queue].send(&mut burst);
    assert_eq!(taken, usize::from(count));
    frames
}

#[test]
fn a_stopped_queue_is_named_with_its_cause_and_works_again_after_a_restart() {
    let two = PortSettings {
        transmit_queues: 2,
        ..settings()
    };
    let mut rig = Rig::with(&two, &settings());
    assert_eq!(rig.a.open.port.malicious_events(), Ok(vec![]));
    let in_use = rig.a.open.pool.usage().in_use;
    let mut next = 0;
    // Too short a frame, and a type of descriptor that does not exist.
    let abuses: [fn(DataCommand) -> DataCommand; 2] = [
        |command| command.with_buffer_bytes(9),
        |command| command.with_kind(7),
    ];
    for (round, change) in abuses.into_iter().enumerate() {
        let frames = send(&mut rig, 1, 5);
        damage(&rig, 1, next + 2, change);
        let found = rig.wait_b(2);
        let bytes: Vec<_> = found.iter().map(|(_, packet)| packet.to_vec()).collect();
        assert_eq!(bytes, frames[..2], "those before the damaged one");
        rig.silent_b();
        // The other queue goes on.
        let frames = send(&mut rig, 0, 1);
        assert_eq!(rig.wait_b(1)[0].1.to_vec(), frames[0]);
        let events = rig.a.open.port.malicious_events().expect("in service");
        let [event] = events[..] else {
            panic!("{events:?}")
        };
        assert_eq!(
            (event.detector, event.direction(), event.queue, event.vsi),
            (Detector::TransmitData, QueueKind::Transmit, Some(1), None)
        );
        assert!(event.cause.is_some_and(|cause| cause > 0));
        let text = event.to_string();
        assert!(text.starts_with("transmit queue 1 was stopped"), "{text}");
        assert_eq!(rig.a.open.port.malicious_events(), Ok(vec![]), "told once");
        rig.a.open.transmit[1]
            .restart()
            .expect("the device answers");
        rig.a.open.transmit[0].reclaim();
        assert_eq!(
            rig.a.open.pool.usage().in_use,
            in_use,
            "every packet is back"
        );
        let frames = send(&mut rig, 1, 3);
        let found = rig.wait_b(3);
        let bytes: Vec<_> = found.iter().map(|(_, packet)| packet.to_vec()).collect();
        assert_eq!(bytes, frames, "round {round}");
        // The restarted ring began at its first descriptor.
        next = 3;
    }
    let Rig { world, a, b } = rig;
    let breaches = world.with(|world| world.breaches(0));
    let kinds: Vec<_> = breaches.iter().map(|breach| breach.kind).collect();
    assert_eq!(
        kinds,
        [
            "frame too short or too long to be sent",
            "transmit descriptor of an unknown type"
        ]
    );
    a.close();
    b.close();
}

#[test]
fn a_stopped_queue_of_a_further_vsi_is_named_with_its_vsi() {
    let mut rig = Rig::new();
    let mut settings = VsiSettings::new([2, 0, 0, 0, 0, 9]);
    settings.queues.transmit_queues = 2;
    let first = rig.a.open.port.add_vsi(&settings).expect("a VSI");
    settings.mac[5] = 10;
    let mut second = rig.a.open.port.add_vsi(&settings).expect("another VSI");
    let frame = plain_frame(rig.b.mac(), settings.mac, 200, 1);
    let mut burst = Burst::default();
    let packet = second.pool.packet_with(&frame).expect("buffers");
    burst.push(packet).expect("room");
    assert_eq!(second.transmit[1].send(&mut burst), 1);
    let queue = second.vsi.transmit_queues().start + 1;
    damage(&rig, queue, 0, |command| command.with_kind(7));
    rig.silent_b();
    let events = rig.a.open.port.malicious_events().expect("in service");
    let [event] = events[..] else {
        panic!("{events:?}")
    };
    let vsi = second.vsi.number();
    assert_eq!((event.vsi, event.queue), (Some(vsi), Some(1)));
    let text = event.to_string();
    let wanted = format!("transmit queue 1 of VSI {vsi} was stopped by the device: ");
    assert!(text.starts_with(&wanted), "{text}");
    second.transmit[1].restart().expect("the device answers");
    let packet = second.pool.packet_with(&frame).expect("buffers");
    burst.push(packet).expect("room");
    assert_eq!(second.transmit[1].send(&mut burst), 1);
    assert_eq!(rig.wait_b(1)[0].1.to_vec(), frame);
    close(second);
    close(first);
    let Rig { a, b, .. } = rig;
    a.close();
    b.close();
}
