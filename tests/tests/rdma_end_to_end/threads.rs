//! The model on its own thread, and each end of a connection on one too.

use crate::pair::config;
use ringside_model::{Threaded, WorldSettings};
use ringside_pmd::rdma::{
    Access, Completion, CompletionQueue, Connected, Endpoint, Flags, MemoryRegion,
    ProtectionDomain, QueuePair, QueuePairConfig, RemoteRegion, Status,
};
use ringside_pmd::{BringUpOptions, Device};
use std::sync::mpsc;
use std::time::{Duration, Instant};

const ROUNDS: u64 = 200;
const LIMIT: Duration = Duration::from_secs(60);

fn is_send<T: Send>() {}
fn is_shared<T: Send + Sync>() {}

#[test]
fn data_path_types_move_between_threads_and_control_types_are_shared() {
    is_send::<QueuePair>();
    is_send::<QueuePair<Connected>>();
    is_send::<CompletionQueue>();
    is_shared::<MemoryRegion>();
    is_shared::<ProtectionDomain>();
    is_shared::<Device>();
}

fn wait_for_byte(region: &MemoryRegion, wanted: u8, begin: Instant) {
    let mut byte = [0];
    loop {
        assert!(region.read(0, &mut byte));
        if byte[0] == wanted {
            return;
        }
        assert!(
            begin.elapsed() < LIMIT,
            "byte {wanted} did not come, {} is there",
            byte[0]
        );
        std::thread::yield_now();
    }
}

/// Plays ping-pong by writes of one byte; every write is signalled and waited for.
fn play(
    device: &Device,
    first: bool,
    tell: &mpsc::Sender<(Endpoint, RemoteRegion)>,
    learn: &mpsc::Receiver<(Endpoint, RemoteRegion)>,
) {
    let domain = device.protection_domain().unwrap();
    let mut completions = device.completion_queue(64).unwrap();
    let [inbound, outbound] = [(); 2].map(|()| {
        let buffer = device.allocate(64).unwrap();
        domain.register(buffer, Access::ALL).unwrap()
    });
    let queue_pair = domain
        .queue_pair(QueuePairConfig::reliable(&completions))
        .unwrap();
    tell.send((queue_pair.endpoint(), inbound.remote()))
        .unwrap();
    let (peer, remote) = learn.recv_timeout(LIMIT).unwrap();
    let mut queue_pair = queue_pair.connect(&peer).unwrap();
    // Both are connected before the first byte goes.
    tell.send((peer, remote)).unwrap();
    learn.recv_timeout(LIMIT).unwrap();
    let begin = Instant::now();
    let mut batch = [Completion::EMPTY; 8];
    for round in 1..=ROUNDS {
        let byte = round as u8;
        if !first {
            wait_for_byte(&inbound, byte, begin);
        }
        assert!(outbound.write(0, &[byte]));
        queue_pair
            .write(
                round,
                &[outbound.slice(0..1).unwrap()],
                remote.at(0),
                Flags::SIGNALLED,
            )
            .unwrap();
        queue_pair.ring();
        let done = loop {
            if let Some(done) = completions.poll(&mut batch).first() {
                break *done;
            }
            assert!(begin.elapsed() < LIMIT, "round {round} did not complete");
            std::thread::yield_now();
        };
        assert_eq!((done.id, done.status()), (round, Status::Success));
        if first {
            wait_for_byte(&inbound, byte, begin);
        }
    }
    // Neither takes its queue pair down before the other has its last answer.
    tell.send((peer, remote)).unwrap();
    learn.recv_timeout(LIMIT).unwrap();
}

#[test]
fn two_threads_play_ping_pong_through_the_model_on_a_third() {
    let model = Threaded::start(&WorldSettings::with_functions(2), None).unwrap();
    let devices = [0, 1].map(|index| {
        let function = model.function(index).unwrap();
        Device::bring_up(function, &config(), BringUpOptions::default())
            .unwrap_or_else(|error| panic!("{error}"))
    });
    let [left, right] = devices;
    let (to_right, from_left) = mpsc::channel();
    let (to_left, from_right) = mpsc::channel();
    let devices = std::thread::scope(|scope| {
        let right = scope.spawn(move || {
            play(&right, false, &to_left, &from_left);
            right
        });
        play(&left, true, &to_right, &from_right);
        [left, right.join().unwrap()]
    });
    for device in devices {
        let report = device.shutdown();
        assert!(report.failures.is_empty(), "{:#?}", report.failures);
        assert_eq!(report.leaked_bytes, 0);
    }
    for index in 0..2 {
        let breaches = model.with(move |world| world.breaches(index)).unwrap();
        assert!(breaches.is_empty(), "{breaches:#?}");
    }
    model.stop();
}
