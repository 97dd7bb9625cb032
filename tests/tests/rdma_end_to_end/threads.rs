//! The model on its own thread, and each end of a connection on one too.

use ringside_bus::{Around, Function, FunctionError};
use ringside_pmd::rdma::{
    Access, BindError, Completion, CompletionQueue, ConnectError, Connected, DeregisterError,
    Destination, DrainError, Endpoint, Flags, LoadError, MemoryRegion, PostError, ProtectionDomain,
    QueuePair, QueuePairConfig, RdmaError, ReadyError, RegisterError, RemoteRegion,
    ReregisterError, ResizeError, Status, To,
};
use ringside_pmd::recovery::RecoverError;
use ringside_pmd::{BringUpError, Device};
use ringside_spec::lan::registers::statistics::PORT_TRANSMIT_BYTES;
use ringside_testkit::{bring_up_all, bring_up_function, config, shut_down, threaded};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
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

/// A function whose next read of the port's sent bytes comes back late.
struct LateCounter {
    inner: Arc<dyn Function>,
    armed: AtomicBool,
    has_read: mpsc::Sender<()>,
    go_on: Mutex<mpsc::Receiver<()>>,
}

impl Around for LateCounter {
    fn inner(&self) -> &Arc<dyn Function> {
        &self.inner
    }

    fn read64(&self, bar: u8, offset: u64) -> Result<u64, FunctionError> {
        let value = self.inner.read64(bar, offset)?;
        let sent = PORT_TRANSMIT_BYTES.registers.at(0);
        if offset == sent && self.armed.swap(false, Ordering::Relaxed) {
            self.has_read.send(()).unwrap();
            self.go_on.lock().unwrap().recv_timeout(LIMIT).unwrap();
        }
        Ok(value)
    }
}

fn sent_bytes(device: &Device) -> u64 {
    let all = device.statistics().unwrap();
    let sent = all.iter().find(|one| one.name == "tx_bytes.nic");
    sent.unwrap().value
}

#[test]
fn a_late_sample_of_a_counter_is_not_taken_for_one_that_wrapped() {
    let model = threaded();
    let (has_read, reading) = mpsc::channel();
    let (release, go_on) = mpsc::channel();
    let late = Arc::new(LateCounter {
        inner: model.function(0).unwrap(),
        armed: AtomicBool::new(false),
        has_read,
        go_on: Mutex::new(go_on),
    });
    let device = bring_up_function(Arc::clone(&late) as _, 0, &config());
    let domain = device.protection_domain().unwrap();
    let mut completions = device.completion_queue(64).unwrap();
    let [from, to] = [(); 2].map(|()| {
        let buffer = device.allocate(4096).unwrap();
        domain.register(buffer, Access::ALL).unwrap()
    });
    let config = QueuePairConfig::datagram(&completions);
    let mut queue_pair = domain
        .datagram_queue_pair(config)
        .unwrap()
        .ready(1)
        .unwrap();
    let group = Destination::group("239.1.1.1".parse().unwrap()).unwrap();
    let handle = domain.address_handle(&group).unwrap();
    late.armed.store(true, Ordering::Relaxed);
    std::thread::scope(|scope| {
        let first = scope.spawn(|| sent_bytes(&device));
        reading.recv_timeout(LIMIT).unwrap();
        let way = To {
            handle: &handle,
            queue_pair: To::MULTICAST_QUEUE_PAIR,
            queue_key: 1,
        };
        let pieces = [from.slice(0..1024).unwrap()];
        queue_pair
            .post_send_to(1, &way, &pieces, None, Flags::SIGNALLED)
            .unwrap();
        queue_pair.ring();
        let begin = Instant::now();
        while completions.poll(&mut [Completion::EMPTY; 4]).is_empty() {
            assert!(begin.elapsed() < LIMIT);
        }
        let second = scope.spawn(|| sent_bytes(&device));
        let begin = Instant::now();
        while !second.is_finished() && begin.elapsed() < Duration::from_millis(100) {
            std::thread::yield_now();
        }
        release.send(()).unwrap();
        first.join().unwrap();
        second.join().unwrap();
    });
    let sent = sent_bytes(&device);
    assert!((1024..4096).contains(&sent), "{sent} bytes");
    drop((handle, queue_pair, from, to));
    drop((completions, domain, device));
    model.stop();
}

#[test]
fn errors_can_be_passed_to_any_thread() {
    fn is_error<T: std::error::Error + Send + Sync + 'static>() {}
    is_error::<BringUpError>();
    is_error::<RecoverError>();
    is_error::<RdmaError>();
    is_error::<ConnectError>();
    is_error::<DrainError<Connected>>();
    is_error::<ReadyError>();
    is_error::<PostError>();
    is_error::<BindError>();
    is_error::<ResizeError>();
    is_error::<RegisterError>();
    is_error::<DeregisterError>();
    is_error::<ReregisterError>();
    is_error::<LoadError>();
    is_error::<ringside_rendezvous::GreetingError>();
}

#[test]
fn two_threads_play_ping_pong_through_the_model_on_a_third() {
    let model = threaded();
    let [left, right] = bring_up_all(|index| model.function(index), &config());
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
    shut_down(devices);
    for index in 0..2 {
        let breaches = model.with(move |world| world.breaches(index)).unwrap();
        assert!(breaches.is_empty(), "{breaches:#?}");
    }
    model.stop();
}
