//! Every completion status that this card has, produced on purpose, and seen by `poll` alone: no
//! completion here needs `poll_events`, because the housekeeping thread handles events.

use ringside::config::{HugePages, LocalAddress};
use ringside::driver::rdma::{Datagram, Destination, RdmaError, RemoteAddress, To, WindowKind};
use ringside::model::Fault;
use ringside::model::function::ResetKind;
use ringside::prelude::*;
use ringside::spec::rdma::ae_codes::AeCode;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The end of a wait that failed: what is late is then told with its time.
const LIMIT: Duration = Duration::from_secs(20);

/// The longest sleep of the housekeeping thread, and the time between its probes: a status that no
/// timer of the card decides comes within it. Long, so that a busy machine does not look like ten
/// periods.
const PERIOD: Duration = Duration::from_secs(1);

/// Tries of a status that a timer of the card decides: a busy machine delays some of them.
const TRIES: u32 = 20;

/// The time of one retry by an acknowledge timeout of code 16: 4.096 us times 2 to the power of 16.
const TIMEOUT: Duration = Duration::from_micros(268_436);

/// The model's wait before it repeats a send for which the peer had no receive.
const NOT_READY: Duration = Duration::from_micros(10_240);

/// The latest time of a status that should come after `expected`, on a busy machine too. A status
/// ten times too late misses it for each time that is used here.
fn at_most(expected: Duration) -> Duration {
    5 * expected + Duration::from_millis(300)
}

/// Fails if each of several tries of what the card's timers delay for `expected` takes too long.
fn in_time(expected: Duration, attempt: impl Fn() -> Duration) {
    let most = at_most(expected);
    assert!(10 * expected > most, "the bound shows nothing");
    let mut took = (0..TRIES).map(|_| attempt());
    assert!(took.any(|took| took <= most), "more than {most:?}");
}

/// The functions of this process's model have one owner at a time.
static MODEL: Mutex<()> = Mutex::new(());

struct End {
    device: Device,
    domain: ProtectionDomain,
    completions: CompletionQueue,
    region: MemoryRegion,
}

impl End {
    fn new(address: &str, config: &Config) -> Self {
        let device = ringside::open(address, config).unwrap();
        let domain = device.protection_domain().unwrap();
        let completions = device.completion_queue(64).unwrap();
        let region = domain
            .register(device.allocate(4096).unwrap(), Access::ALL)
            .unwrap();
        Self {
            device,
            domain,
            completions,
            region,
        }
    }

    /// Polls until so many completions have come, which no timer of the card delays. Fails if they
    /// come too late.
    fn poll(&mut self, count: usize) -> Vec<(u64, Status)> {
        let (done, took) = self.poll_timed(count);
        let most = at_most(PERIOD);
        assert!(took <= most, "{done:?} took {took:?}, {most:?} at most");
        done
    }

    /// The completions, and the time that they took.
    fn poll_timed(&mut self, count: usize) -> (Vec<(u64, Status)>, Duration) {
        let begin = Instant::now();
        let end = begin + LIMIT;
        let (mut done, mut batch) = (Vec::new(), [Completion::EMPTY; 8]);
        while done.len() < count {
            assert!(Instant::now() < end, "{count} completions, only {done:?}");
            let polled = self.completions.poll(&mut batch);
            done.extend(polled.iter().map(|done| (done.id, done.status())));
            std::thread::yield_now();
        }
        (done, begin.elapsed())
    }
}

struct Rig {
    a: End,
    b: End,
    _alone: MutexGuard<'static, ()>,
}

fn config() -> Config {
    let mut config = Config::default();
    config.memory.hugepages = HugePages::None;
    config.housekeeping.period_ms = PERIOD.as_millis() as u64;
    config.housekeeping.probe_ms = PERIOD.as_millis() as u64;
    config
}

impl Rig {
    fn new() -> Self {
        Self::with(&config())
    }

    fn with(config: &Config) -> Self {
        let alone = MODEL.lock().unwrap_or_else(PoisonError::into_inner);
        Self {
            a: End::new("model:0", config),
            b: End::new("model:1", config),
            _alone: alone,
        }
    }

    fn connect(&self) -> (QueuePair<Connected>, QueuePair<Connected>) {
        self.connect_with(|config| config.retries(0).receiver_not_ready_retries(0))
    }

    fn connect_with(
        &self,
        change: impl Fn(QueuePairConfig) -> QueuePairConfig,
    ) -> (QueuePair<Connected>, QueuePair<Connected>) {
        let make = |end: &End| {
            let config = QueuePairConfig::reliable(&end.completions);
            end.domain.queue_pair(change(config)).unwrap()
        };
        let (a, b) = (make(&self.a), make(&self.b));
        let (to_a, to_b) = (a.endpoint(), b.endpoint());
        (a.connect(&to_b).unwrap(), b.connect(&to_a).unwrap())
    }

    fn inject(&self, fault: Fault) {
        let model = self.a.device.model().expect("a model");
        model.with(move |world| world.inject(0, fault));
    }
}

#[test]
fn success_remote_access_and_flushed() {
    let mut rig = Rig::new();
    let (mut a, _b) = rig.connect();
    let piece = [rig.a.region.slice(0..64).unwrap()];
    let good = rig.b.region.remote().at(0);
    let wrong = RemoteAddress {
        key: good.key ^ 0x0100_0000,
        ..good
    };
    a.write(1, &piece, good, Flags::SIGNALLED).unwrap();
    a.write(2, &piece, wrong, Flags::SIGNALLED).unwrap();
    a.write(3, &piece, good, Flags::SIGNALLED).unwrap();
    a.ring();
    let expected = [
        (1, Status::Success),
        (2, Status::RemoteAccess),
        (3, Status::Flushed),
    ];
    assert_eq!(rig.a.poll(3), expected);
    // The event follows: the housekeeping thread hands it on once it has had the queues flushed.
    let (number, end) = (a.number(), Instant::now() + LIMIT);
    let mut events = Vec::new();
    while !events.iter().any(
        |event| matches!(event, Event::QueuePairFailed { queue_pair, .. } if *queue_pair == number),
    ) {
        assert!(
            Instant::now() < end,
            "no event of queue pair {number}: {events:?}"
        );
        rig.a.device.poll_events(&mut events).unwrap();
        std::thread::yield_now();
    }
}

#[test]
fn local_protection() {
    let mut rig = Rig::new();
    let (mut a, _b) = rig.connect();
    let mut piece = rig.a.region.slice(0..64).unwrap();
    piece.steering_tag ^= 0x55;
    let to = rig.b.region.remote().at(0);
    a.write(1, &[piece], to, Flags::SIGNALLED).unwrap();
    a.ring();
    assert_eq!(rig.a.poll(1), [(1, Status::LocalProtection)]);
}

#[test]
fn local_length_and_remote_invalid_request() {
    let mut rig = Rig::new();
    let (mut a, mut b) = rig.connect();
    b.receive(7, &[rig.b.region.slice(0..8).unwrap()]).unwrap();
    let piece = [rig.a.region.slice(0..64).unwrap()];
    a.send(1, &piece, Flags::SIGNALLED).unwrap();
    a.ring();
    assert_eq!(rig.a.poll(1), [(1, Status::RemoteInvalidRequest)]);
    assert_eq!(rig.b.poll(1), [(7, Status::LocalLength)]);
}

#[test]
fn remote_operation() {
    let mut rig = Rig::new();
    let (mut a, mut b) = rig.connect();
    let mut place = rig.b.region.slice(0..64).unwrap();
    place.steering_tag ^= 0x55;
    b.receive(7, &[place]).unwrap();
    let piece = [rig.a.region.slice(0..64).unwrap()];
    a.send(1, &piece, Flags::SIGNALLED).unwrap();
    a.ring();
    assert_eq!(rig.a.poll(1), [(1, Status::RemoteOperation)]);
    // The receiver learns the cause: the memory of its receive does not take the message.
    assert_eq!(rig.b.poll(1), [(7, Status::LocalProtection)]);
}

#[test]
fn window_bind() {
    let mut rig = Rig::new();
    let (mut a, _b) = rig.connect();
    let buffer = rig.a.device.allocate(4096).unwrap();
    let region = rig.a.domain.register(buffer, Access::ALL).unwrap();
    let mut window = rig.a.domain.memory_window(WindowKind::Two).unwrap();
    let access = Access::REMOTE_WRITE;
    // A window that is bound is not bound again.
    for id in [1, 2] {
        let bytes = (&region, 0..64);
        a.bind_window(id, &mut window, bytes, access, Flags::SIGNALLED)
            .unwrap();
    }
    a.ring();
    let expected = [(1, Status::Success), (2, Status::WindowBind)];
    assert_eq!(rig.a.poll(2), expected);
}

#[test]
fn retry_exceeded() {
    in_time(2 * TIMEOUT, || {
        let mut rig = Rig::new();
        let (mut a, b) = rig.connect_with(|config| config.retries(1).acknowledge_timeout(16));
        drop(b);
        let piece = [rig.a.region.slice(0..64).unwrap()];
        let to = rig.b.region.remote().at(0);
        a.write(1, &piece, to, Flags::SIGNALLED).unwrap();
        let begin = Instant::now();
        a.ring();
        let (done, took) = rig.a.poll_timed(1);
        assert_eq!(done, [(1, Status::RetryExceeded)]);
        assert!(begin.elapsed() >= TIMEOUT, "{took:?}: no retry");
        took
    });
}

#[test]
fn receiver_not_ready() {
    const RETRIES: u8 = 6;
    in_time(u32::from(RETRIES) * NOT_READY, || {
        let mut rig = Rig::new();
        let (mut a, _b) = rig.connect_with(|config| config.receiver_not_ready_retries(RETRIES));
        let piece = [rig.a.region.slice(0..64).unwrap()];
        a.send(1, &piece, Flags::SIGNALLED).unwrap();
        let begin = Instant::now();
        a.ring();
        let (done, took) = rig.a.poll_timed(1);
        assert_eq!(done, [(1, Status::ReceiverNotReady)]);
        assert!(begin.elapsed() >= NOT_READY, "{took:?}: no retry");
        took
    });
}

/// The model reports, on request, an event that only the card itself can cause. Its code decides
/// the status.
fn by_event(code: AeCode, expected: Status) {
    const SEND_QUEUE: u8 = 5;
    let mut rig = Rig::new();
    // Outstanding for longer than the completion may take: the peer answers nothing.
    let (mut a, b) = rig.connect_with(|config| config.acknowledge_timeout(18));
    drop(b);
    let queue_number = a.number();
    let piece = [rig.a.region.slice(0..64).unwrap()];
    let to = rig.b.region.remote().at(0);
    a.write(1, &piece, to, Flags::SIGNALLED).unwrap();
    a.ring();
    rig.inject(Fault::EngineEvent {
        code: code.code(),
        source: SEND_QUEUE,
        queue_number,
    });
    assert_eq!(rig.a.poll(1), [(1, expected)]);
}

#[test]
fn local_operation() {
    by_event(AeCode::UnexpectedWqeOpcode, Status::LocalOperation);
}

#[test]
fn fatal() {
    by_event(AeCode::QueuePairCatastrophic, Status::Fatal);
}

#[test]
fn a_device_that_fails_flushes_and_comes_back_by_itself() {
    let mut rig = Rig::new();
    let (mut a, b) = rig.connect_with(|config| config.acknowledge_timeout(18));
    drop(b);
    let piece = [rig.a.region.slice(0..64).unwrap()];
    let to = rig.b.region.remote().at(0);
    a.write(1, &piece, to, Flags::SIGNALLED).unwrap();
    a.ring();
    rig.inject(Fault::Reset(ResetKind::Function));
    assert_eq!(rig.a.poll(1), [(1, Status::Flushed)]);
    let events = rig.a.device.events().expect("a housekeeping thread");
    let (end, mut seen) = (Instant::now() + LIMIT, Vec::new());
    while !seen.contains(&Event::DeviceRecovered { life: 2 }) {
        assert!(Instant::now() < end, "{seen:?}");
        events.take(&mut seen);
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(
        matches!(seen.first(), Some(Event::DeviceFailed { .. })),
        "{seen:?}"
    );
    assert_eq!((rig.a.device.life(), rig.a.device.failure()), (2, None));
    assert!(rig.a.device.protection_domain().is_ok());
}

#[test]
fn without_the_thread_supervise_does_its_work_and_poll_alone_waits() {
    let mut config = config();
    config.housekeeping.thread = false;
    let mut rig = Rig::with(&config);
    assert!(rig.a.device.events().is_none());
    let (mut a, _b) = rig.connect();
    let piece = [rig.a.region.slice(0..64).unwrap()];
    let good = rig.b.region.remote().at(0);
    let key = good.key ^ 0x0100_0000;
    a.write(1, &piece, RemoteAddress { key, ..good }, Flags::SIGNALLED)
        .unwrap();
    a.ring();
    let mut batch = [Completion::EMPTY; 8];
    let end = Instant::now() + Duration::from_millis(100);
    while Instant::now() < end {
        assert!(rig.a.completions.poll(&mut batch).is_empty());
    }
    let mut supervision = ringside::driver::recovery::Supervision::default();
    let mut events = Vec::new();
    rig.a
        .device
        .supervise(&mut supervision, &mut events)
        .unwrap();
    assert_eq!(events.len(), 1, "{events:?}");
    assert_eq!(rig.a.poll(1), [(1, Status::RemoteAccess)]);
}

#[test]
fn the_housekeeping_thread_ends_with_its_device_and_the_device_is_left_as_found() {
    let alone = MODEL.lock().unwrap_or_else(PoisonError::into_inner);
    for _ in 0..3 {
        let device = ringside::open("model:0", &config()).unwrap();
        assert!(device.has_housekeeping());
        let report = device.shutdown();
        assert!(report.failures.is_empty(), "{:?}", report.failures);
        assert_eq!(report.leaked_bytes, 0);
    }
    drop(alone);
}

#[test]
fn an_address_that_is_added_serves_at_once_and_its_index_is_told() {
    let mut rig = Rig::new();
    let address: LocalAddress = "192.0.2.7/24".parse().unwrap();
    let gid = rig.a.device.add_address(address).unwrap();
    let events = rig.a.device.events().expect("a housekeeping thread");
    let (end, mut seen) = (Instant::now() + LIMIT, Vec::new());
    while seen.is_empty() {
        assert!(Instant::now() < end);
        events.take(&mut seen);
    }
    let change = Event::GidChange {
        index: gid.index,
        address: address.address,
    };
    assert_eq!(seen, [change]);
    // A connection that sends from the new address.
    let config = QueuePairConfig::reliable(&rig.a.completions).gid_index(gid.index);
    let a = rig.a.domain.queue_pair(config).unwrap();
    assert_eq!(a.endpoint().address, address.address);
    let b = rig
        .b
        .domain
        .queue_pair(QueuePairConfig::reliable(&rig.b.completions))
        .unwrap();
    let (to_a, to_b) = (a.endpoint(), b.endpoint());
    let (mut a, b) = (a.connect(&to_b).unwrap(), b.connect(&to_a).unwrap());
    let piece = [rig.a.region.slice(0..64).unwrap()];
    let to = rig.b.region.remote().at(0);
    a.write(1, &piece, to, Flags::SIGNALLED).unwrap();
    a.ring();
    assert_eq!(rig.a.poll(1), [(1, Status::Success)]);
    // After the removal, existing connections still send from the address, and new ones cannot.
    rig.a.device.remove_address(address.address, None).unwrap();
    a.write(2, &piece, to, Flags::SIGNALLED).unwrap();
    a.ring();
    assert_eq!(rig.a.poll(1), [(2, Status::Success)]);
    let config = QueuePairConfig::reliable(&rig.a.completions).gid_index(gid.index);
    let index = gid.index;
    let refused = rig.a.domain.queue_pair(config).unwrap_err();
    assert_eq!(refused, RdmaError::NoSuchGidIndex { index });
    drop((a, b));
}

#[test]
fn a_datagram_says_from_which_entry_of_the_table_it_came() {
    let mut rig = Rig::new();
    let address: LocalAddress = "192.0.2.8/24@5".parse().unwrap();
    let gid = rig.a.device.add_address(address).unwrap();
    let make = |end: &End| {
        let config = QueuePairConfig::datagram(&end.completions).vlan_tag(5);
        end.domain
            .datagram_queue_pair(config)
            .unwrap()
            .ready(9)
            .unwrap()
    };
    let (mut a, mut b) = (make(&rig.a), make(&rig.b));
    b.receive(7, &[rig.b.region.slice(0..256).unwrap()])
        .unwrap();
    let peer = b.endpoint();
    let destination = Destination::from(&peer).sent_from(&gid);
    assert_eq!(destination.vlan_tag, Some(5));
    let handle = rig.a.domain.address_handle(&destination).unwrap();
    let to = To {
        handle: &handle,
        queue_pair: peer.queue_pair,
        queue_key: 9,
    };
    a.post_send_inline_to(1, &to, b"from there", None, Flags::SIGNALLED)
        .unwrap();
    a.ring();
    assert_eq!(rig.a.poll(1), [(1, Status::Success)]);
    assert_eq!(rig.b.poll(1), [(7, Status::Success)]);
    let mut header = [0; Datagram::PAYLOAD_OFFSET];
    assert!(rig.b.region.read(0, &mut header));
    // The IPv4 header fills the second half; its source is in octets 12 to 15.
    assert_eq!(header[32..36], [192, 0, 2, 8]);
}

#[test]
fn peers_find_each_other_by_addresses_that_were_added_at_run_time() {
    let rig = Rig::new();
    let [left, right]: [LocalAddress; 2] =
        ["192.0.2.21/24", "192.0.2.22/24"].map(|text| text.parse().unwrap());
    rig.a.device.add_address(left).unwrap();
    rig.b.device.serve_network().unwrap();
    // The stack of the other end runs already and is given the address.
    rig.b.device.add_address(right).unwrap();
    let found = rig.a.device.resolve(right.address).unwrap();
    let theirs = rig.b.device.driver().facts().mac().unwrap();
    assert_eq!((found.address, found.mac), (right.address, theirs));
    assert_eq!(found.local_address, Some(left.address));
    rig.b.device.remove_address(right.address, None).unwrap();
    let absent = "192.0.2.23".parse().unwrap();
    let refused = rig.a.device.resolve(absent).unwrap_err().to_string();
    assert!(refused.contains("192.0.2.23"), "{refused}");
}
