//! Losses of the device and its recovery, on two functions of the model.

use super::*;
use crate::capture::sink::Limits;
use crate::open::{Cores, model_function, start_model};
use ringside_bus::DeviceAddress;
use ringside_config::Config;
use ringside_lan::TransmitQueue;
use ringside_model::Threaded;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

const LIMIT: Duration = Duration::from_secs(60);
/// To all stations, of a local type.
const FRAME: [u8; 60] = {
    let mut frame = [0; 60];
    let head = [
        0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 2, 0, 0, 0, 0, 9, 0x88, 0xB5,
    ];
    let mut at = 0;
    while at < head.len() {
        frame[at] = head[at];
        at += 1;
    }
    frame
};

/// A port that sends, and one that is captured. Order of fields is order of dropping.
struct Rig {
    transmit: TransmitQueue,
    own: Own,
    brought: Brought,
    _sender: Brought,
    _model: Threaded,
}

impl Rig {
    fn new() -> Self {
        let config = Config::default();
        let model = start_model(&config, Cores::choose(&[], &config)).unwrap();
        let bring_up = |index| {
            let function = model_function(&model, index).unwrap();
            let address = DeviceAddress::Model(index);
            Brought::bring_up(function, &address, wanted(false), &[], &config).unwrap()
        };
        let (sender, mut sending) = bring_up(0);
        let (brought, queues) = bring_up(1);
        Self {
            transmit: sending.remove(0).transmit.remove(0),
            own: Own::new(queues, false),
            brought,
            _sender: sender,
            _model: model,
        }
    }
}

fn send(transmit: &mut TransmitQueue, count: usize) {
    let mut burst = Burst::with_limit(MAX_BURST);
    for _ in 0..count.min(MAX_BURST) {
        let Some(packet) = transmit.pool().packet_with(&FRAME) else {
            break;
        };
        burst.push(packet).unwrap();
    }
    transmit.send(&mut burst);
}

/// A sink that is full with one packet.
fn sink() -> Sink {
    let limits = Limits {
        packets: Some(1),
        bytes: None,
        snap_length: 9728,
        end: Some(Instant::now() + LIMIT),
    };
    let interfaces = interfaces("port", false);
    Sink::new(
        Box::new(io::sink()),
        &interfaces,
        "".parse().unwrap(),
        limits,
    )
    .unwrap()
}

#[test]
fn packets_that_the_device_had_no_descriptor_for_are_lost() {
    let mut rig = Rig::new();
    let dropped = |port: &Port| {
        let all = port.statistics().unwrap();
        all.iter().find(|one| one.name == DROPPED).unwrap().value
    };
    let begin = Instant::now();
    while dropped(&rig.brought.controls.port) == 0 {
        send(&mut rig.transmit, MAX_BURST);
        assert!(begin.elapsed() < LIMIT, "the ring takes everything");
    }
    let before = dropped(&rig.brought.controls.port);
    let mut sink = sink();
    let end = rig.own.capture(&mut rig.brought, &mut sink).unwrap();
    assert_eq!(end, End::Count);
    assert!(rig.own.lost() >= before, "{} of {before}", rig.own.lost());
}

#[test]
fn a_device_that_was_reset_is_captured_again_and_its_losses_stay() {
    let mut rig = Rig::new();
    rig.own.losses.past = 5;
    rig.brought.device().give_up().unwrap();
    let ended = AtomicBool::new(false);
    let Rig {
        transmit,
        own,
        brought,
        ..
    } = &mut rig;
    let end = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !ended.load(Ordering::Acquire) {
                send(transmit, 1);
                std::thread::sleep(Duration::from_millis(5));
            }
        });
        let end = own.capture(brought, &mut sink());
        ended.store(true, Ordering::Release);
        end
    });
    assert_eq!(end.unwrap(), End::Count);
    assert!(brought.is_in_service());
    assert!(own.lost() >= 5);
}
