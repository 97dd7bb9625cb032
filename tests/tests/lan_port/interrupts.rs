//! Interrupts of receive queues: a packet wakes a sleeper, no wake is lost, and a failure wakes it,
//! too.

use crate::rig::{End, Rig, config, plain_frame, settings};
use ringside_lan::{ArmError, Arming, Burst, QueueState, ReceiveQueue};
use ringside_model::Fault;
use ringside_pmd::lan::port::{PacketSleeper, ReceiveInterrupt, ReceivesPackets};
use ringside_pmd::lan::{OpenPort, PortError, PortSettings, VsiSettings};
use ringside_pmd::worker::{Policy, Polled, Sleeper, Worker};
use ringside_spec::lan::registers::interrupts::{
    CauseControl, RECEIVE_QUEUE_CAUSE, VECTOR_CONTROL, VectorControl,
};
use ringside_testkit::{bring_up_all, shut_down, threaded};
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

/// Longest wait for any step.
const LIMIT: Duration = Duration::from_secs(60);
/// Long enough for a descriptor that is readable already.
const SHORT: Duration = Duration::from_millis(200);

fn several() -> PortSettings {
    PortSettings {
        receive_queues: 4,
        ..settings()
    }
}

/// Arms a queue of a stepped world whose ring is empty. The device may report what it could have
/// missed: then it is armed once more.
fn arm(rig: &Rig, queue: &mut ReceiveQueue, interrupt: &ReceiveInterrupt) {
    for _ in 0..4 {
        assert_eq!(queue.arm(), Ok(Arming::Armed));
        rig.pass();
        if !interrupt.wait(Duration::ZERO).expect("in service") {
            return;
        }
        assert!(!queue.has_packets());
    }
    panic!("a queue without packets wakes again and again");
}

/// Sends a frame from `a` to `b`, and lets it arrive.
fn send(rig: &mut Rig, seed: u8) {
    let frame = plain_frame(rig.b.mac(), rig.a.mac(), 100, seed);
    let packet = rig.a.packet(&frame);
    rig.a.send([packet]);
    for _ in 0..10 {
        rig.pass();
    }
    rig.a.poll();
}

#[test]
fn an_idle_queue_that_is_armed_wakes_for_a_packet_once() {
    let mut rig = Rig::new();
    let interrupt = rig.b.open.port.receive_interrupt(&[0]).expect("a vector");
    // Polled, it raises nothing.
    send(&mut rig, 0);
    assert!(!interrupt.wait(Duration::ZERO).expect("in service"));
    assert_eq!(rig.wait_b(1).len(), 1);
    for round in 1..5 {
        let mut queue = rig.b.open.receive.pop().expect("one queue");
        arm(&rig, &mut queue, &interrupt);
        rig.b.open.receive.push(queue);
        send(&mut rig, round);
        assert!(interrupt.wait(SHORT).expect("in service"), "round {round}");
        // It masked itself.
        send(&mut rig, round);
        assert!(!interrupt.wait(Duration::ZERO).expect("in service"));
        assert!(rig.b.open.receive[0].has_packets());
        assert_eq!(rig.b.open.receive[0].arm(), Ok(Arming::PollAgain));
        assert_eq!(rig.wait_b(2).len(), 2);
        // Polled again: nothing is raised.
        let _ = interrupt.wait(Duration::ZERO).expect("in service");
        send(&mut rig, round);
        assert!(!interrupt.wait(Duration::ZERO).expect("in service"));
        assert_eq!(rig.wait_b(1).len(), 1);
    }
    drop(interrupt);
    rig.finish();
}

#[test]
fn each_group_of_queues_has_a_vector_of_its_own_and_leaves_it_as_it_was() {
    let rig = Rig::with(&settings(), &several());
    let port = &rig.b.open.port;
    let registers = rig.b.device.registers();
    let vector_of = |queue: u16| {
        let cause = registers.read(RECEIVE_QUEUE_CAUSE.at(queue.into()));
        CauseControl(cause.expect("read")).vector() as u16
    };
    let polled = vector_of(0);
    let first = port.receive_interrupt(&[0, 1]).expect("a vector");
    let second = port.receive_interrupt(&[3]).expect("a vector");
    let vectors = [0, 1, 2, 3].map(vector_of);
    let (one, other) = (first.vector(), second.vector());
    assert_eq!(vectors, [one, one, polled, other]);
    assert!(one != other && one > polled && other > polled);
    let taken = port.receive_interrupt(&[2, 1]).map(drop);
    assert_eq!(taken, Err(PortError::InterruptTaken { queue: 1 }));
    for wrong in [&[4][..], &[]] {
        let refused = port.receive_interrupt(wrong).map(drop);
        assert!(
            matches!(refused, Err(PortError::Invalid { .. })),
            "{refused:?}"
        );
    }
    drop(first);
    assert_eq!([0, 1].map(vector_of), [polled, polled]);
    let connected = rig
        .world
        .with(|world| world.snapshot(1).map(|all| all.vectors));
    assert_eq!(connected, Some(vec![other]));
    let control = registers.read(VECTOR_CONTROL.at(one.into()));
    assert_eq!(control, Ok(0));
    drop(port.receive_interrupt(&[1, 2]).expect("free again"));
    drop(second);
    rig.finish();
}

#[test]
fn a_queue_that_is_started_again_keeps_its_vector_and_a_stopped_one_is_not_armed() {
    let mut rig = Rig::new();
    let port = rig.b.open.port.clone();
    let mut queue = rig.b.open.receive.pop().expect("one queue");
    assert_eq!(queue.arm(), Err(ArmError::NotConnected));
    let interrupt = port.receive_interrupt(&[0]).expect("a vector");
    queue.stop().expect("stopped");
    assert_eq!(queue.arm(), Err(ArmError::Stopped));
    queue.start().expect("started");
    arm(&rig, &mut queue, &interrupt);
    rig.b.open.receive.push(queue);
    send(&mut rig, 1);
    assert!(interrupt.wait(SHORT).expect("in service"));
    assert_eq!(rig.wait_b(1).len(), 1);
    drop((interrupt, port));
    rig.finish();
}

#[test]
fn a_stopped_queue_has_no_cause_once_its_port_is_closed() {
    let Rig { world, a, mut b } = Rig::with(&settings(), &several());
    let interrupt = b.open.port.receive_interrupt(&[1]).expect("a vector");
    for queue in &mut b.open.receive[..2] {
        queue.stop().expect("stopped");
    }
    drop(b.open.port.receive_interrupt(&[0]).expect("a vector"));
    drop(interrupt);
    let registers = b.device.registers().clone();
    let causes = || [0, 1, 2, 3].map(|queue| registers.read(RECEIVE_QUEUE_CAUSE.at(queue)));
    assert!(causes().iter().all(|cause| *cause != Ok(0)));
    let End { open, device } = b;
    drop(open);
    assert_eq!(causes(), [0; 4].map(Ok));
    shut_down([device]);
    a.close();
    drop(world);
}

/// A pool whose buffers the program holds lets no packet in: a sleep would not end.
#[test]
fn a_ring_without_buffers_is_not_slept_on() {
    let mut small = settings();
    small.pool.buffers = 64;
    let mut rig = Rig::with(&settings(), &small);
    let interrupt = rig.b.open.port.receive_interrupt(&[0]).expect("a vector");
    let mut held = Vec::new();
    for round in 0..64 {
        send(&mut rig, round);
        held.extend(rig.b.poll());
    }
    let queue = &mut rig.b.open.receive[0];
    assert_eq!(queue.arm(), Ok(Arming::PollAgain), "{queue:?}");
    drop(held);
    assert_eq!(queue.arm(), Ok(Arming::Armed), "{queue:?}");
    drop(interrupt);
    rig.finish();
}

#[test]
fn a_further_vsi_has_interrupts_of_its_own_queues() {
    let mut rig = Rig::new();
    let mac = [2, 0xAA, 0, 0, 0, 1];
    let added = rig.b.open.port.add_vsi(&VsiSettings::new(mac));
    let mut added = added.expect("a VSI");
    let own = rig.b.open.port.receive_interrupt(&[0]).expect("a vector");
    let theirs = added.vsi.receive_interrupt(&[0]).expect("a vector");
    arm(&rig, &mut added.receive[0], &theirs);
    let mut queue = rig.b.open.receive.pop().expect("one queue");
    arm(&rig, &mut queue, &own);
    let packet = rig.a.packet(&plain_frame(mac, rig.a.mac(), 100, 1));
    rig.a.send([packet]);
    for _ in 0..10 {
        rig.pass();
    }
    assert!(theirs.wait(SHORT).expect("in service"));
    assert!(!own.wait(Duration::ZERO).expect("in service"));
    rig.b.open.receive.push(queue);
    assert_eq!(crate::rig::poll(&mut added.receive).len(), 1);
    drop((own, theirs));
    crate::rig::close(added);
    rig.finish();
}

#[test]
fn a_failure_wakes_the_sleeper_with_an_error_and_the_next_port_has_the_vector() {
    let mut rig = Rig::new();
    let mut last = None;
    for round in 0..3 {
        let interrupt = rig.b.open.port.receive_interrupt(&[0]).expect("a vector");
        let mut queue = rig.b.open.receive.pop().expect("one queue");
        arm(&rig, &mut queue, &interrupt);
        rig.b.device.give_up().expect("in service");
        let begin = Instant::now();
        assert_eq!(interrupt.wait(LIMIT), Err(PortError::OutOfService));
        assert_eq!(interrupt.wait(LIMIT), Err(PortError::OutOfService));
        assert!(begin.elapsed() < LIMIT / 2, "the sleeper was not woken");
        assert_eq!(queue.arm(), Err(ArmError::OutOfService));
        let refused = rig.b.open.port.receive_interrupt(&[0]).map(drop);
        assert_eq!(refused, Err(PortError::OutOfService));
        rig.b.device.recover().expect("back in service");
        assert_eq!(interrupt.wait(LIMIT), Err(PortError::OutOfService));
        rig.b.open = rig.b.device.open_port(&settings()).expect("in service");
        // Of the life before: dropped late, it takes nothing from the new owner.
        let vector = *last.get_or_insert(interrupt.vector());
        let new = rig.b.open.port.receive_interrupt(&[0]).expect("a vector");
        assert_eq!(new.vector(), vector);
        drop(interrupt);
        let mut own = rig.b.open.receive.pop().expect("one queue");
        arm(&rig, &mut own, &new);
        assert_eq!(queue.disarm(), Err(ArmError::OutOfService));
        drop(queue);
        rig.b.open.receive.push(own);
        send(&mut rig, round);
        assert!(new.wait(SHORT).expect("in service"));
        assert!(!rig.wait_b(1).is_empty());
    }
    rig.finish();
}

#[test]
fn a_shutdown_wakes_the_sleeper_and_closes_the_vector() {
    let rig = Rig::new();
    let Rig { world, a, mut b } = rig;
    let interrupt = b.open.port.receive_interrupt(&[0]).expect("a vector");
    let End { open, device } = {
        let _ = b.open.receive[0].arm().expect("armed");
        b
    };
    let report = device.shutdown();
    assert!(report.failures.is_empty(), "{:#?}", report.failures);
    assert_eq!(interrupt.wait(LIMIT), Err(PortError::OutOfService));
    let connected = world.with(|world| world.snapshot(1).map(|all| all.vectors));
    assert_eq!(connected, Some(Vec::new()));
    drop((open, interrupt));
    a.close();
}

/// An interrupt that is lost leaves the vector masked: the next arming opens it again.
#[test]
fn a_lost_interrupt_is_made_good_by_the_next_arming() {
    let mut rig = Rig::new();
    let interrupt = rig.b.open.port.receive_interrupt(&[0]).expect("a vector");
    let mut queue = rig.b.open.receive.pop().expect("one queue");
    arm(&rig, &mut queue, &interrupt);
    rig.b.open.receive.push(queue);
    let fault = Fault::InterruptsLost {
        per_million: 1_000_000,
        seed: 1,
    };
    rig.world.with(move |world| world.inject(1, fault));
    send(&mut rig, 1);
    assert!(!interrupt.wait(Duration::ZERO).expect("in service"));
    rig.world.with(|world| world.clear_faults(1));
    let control = rig
        .b
        .device
        .registers()
        .read(VECTOR_CONTROL.at(interrupt.vector().into()));
    assert!(!VectorControl(control.expect("read")).enable());
    assert_eq!(rig.b.open.receive[0].arm(), Ok(Arming::PollAgain));
    assert_eq!(rig.wait_b(1).len(), 1);
    let mut queue = rig.b.open.receive.pop().expect("one queue");
    arm(&rig, &mut queue, &interrupt);
    rig.b.open.receive.push(queue);
    send(&mut rig, 2);
    assert!(interrupt.wait(SHORT).expect("in service"));
    drop(interrupt);
    rig.finish();
}

/// A worker that sleeps as soon as it is idle.
struct Station {
    receive: Vec<ReceiveQueue>,
    interrupt: ReceiveInterrupt,
    burst: Burst,
    count: Arc<AtomicU64>,
}

impl ReceivesPackets for Station {
    fn receive_queues(&mut self) -> &mut [ReceiveQueue] {
        &mut self.receive
    }

    fn receive_interrupt(&self) -> Option<&ReceiveInterrupt> {
        Some(&self.interrupt)
    }
}

impl Station {
    /// One with the receive queues of a port.
    fn of(open: &mut OpenPort) -> Self {
        Self {
            interrupt: open.port.receive_interrupt(&[0]).expect("a vector"),
            receive: std::mem::take(&mut open.receive),
            burst: Burst::with_limit(32),
            count: Arc::default(),
        }
    }

    fn poll(&mut self) -> Polled {
        let mut found = 0;
        for queue in &mut self.receive {
            found += queue.receive(&mut self.burst);
            self.burst.clear();
        }
        self.count.fetch_add(found as u64, Ordering::Release);
        match found {
            0 => Polled::Idle,
            _ => Polled::Worked,
        }
    }
}

fn asleep_at_once(sleeper: impl Sleeper<Station> + 'static) -> Policy<Station> {
    Policy::BusyThenSleep {
        idle: Duration::ZERO,
        // Longer than the test: only an interrupt or a request ends a sleep.
        longest: 10 * LIMIT,
        sleeper: Box::new(sleeper),
    }
}

/// A means of waking that waits for the test after the last poll, before the worker arms.
struct HeldSleeper {
    sleeper: PacketSleeper,
    arms: Sender<()>,
    released: Receiver<()>,
}

impl Sleeper<Station> for HeldSleeper {
    fn arm(&mut self, station: &mut Station) -> bool {
        if station.receive[0].state() == QueueState::Running {
            self.arms.send(()).expect("the test waits");
            self.released.recv_timeout(LIMIT).expect("released");
        }
        self.sleeper.arm(station)
    }

    fn interrupt<'s>(&self, station: &'s Station) -> Option<BorrowedFd<'s>> {
        Sleeper::<Station>::interrupt(&self.sleeper, station)
    }

    fn woken(&mut self, station: &mut Station, interrupted: bool) {
        self.sleeper.woken(station, interrupted);
    }

    fn worked(&mut self, station: &mut Station) {
        self.sleeper.worked(station);
    }
}

/// True of a thread that waits for something else than a core.
fn is_asleep(thread: &Path) -> bool {
    let file = Path::new("/proc").join(thread).join("stat");
    let text = std::fs::read_to_string(file).expect("the thread runs");
    // The name is in brackets, and the state follows it.
    let state = text.rsplit(") ").next();
    state.is_some_and(|state| state.starts_with('S'))
}

/// Once: afterwards the worker sleeps although the descriptor stays readable. The failure of the
/// next port is another one.
#[test]
fn a_failure_before_the_arming_ends_the_sleep() {
    let mut rig = Rig::new();
    let ((arms, armed), (fail, released)) = (channel(), channel());
    let (tell, told) = channel();
    let station = Station::of(&mut rig.b.open);
    let policy = asleep_at_once(HeldSleeper {
        sleeper: PacketSleeper::default(),
        arms,
        released,
    });
    let poll = move |station: &mut Station| {
        let polled = station.poll();
        if station.receive[0].state() == QueueState::Lost {
            tell.send(()).expect("the test waits");
        }
        polled
    };
    let (begin, begun) = channel();
    let make = move || {
        let thread = std::fs::read_link("/proc/thread-self").expect("the kernel's files");
        begin.send(thread).expect("the test waits");
        station
    };
    let made = Worker::start_with(policy, None, 16, make, poll);
    let worker = made.expect("a worker");
    let thread = begun.recv_timeout(LIMIT).expect("it begins");
    for round in 1..=3 {
        armed.recv_timeout(LIMIT).expect("the worker arms");
        rig.b.device.give_up().expect("in service");
        fail.send(()).expect("the worker waits");
        told.recv_timeout(LIMIT).expect("the wake was lost");
        let begin = Instant::now();
        let polls = || worker.statistics().polls;
        while {
            let before = polls();
            std::thread::sleep(SHORT);
            // One that waits for a core polls as little.
            polls() != before || !is_asleep(&thread)
        } {
            assert!(begin.elapsed() < LIMIT, "the worker does not sleep");
        }
        rig.b.device.recover().expect("back in service");
        rig.b.open = rig.b.device.open_port(&settings()).expect("in service");
        if round == 3 {
            break;
        }
        let next = Station::of(&mut rig.b.open);
        let former = worker.ask(move |station| std::mem::replace(station, next), LIMIT);
        drop(former.expect("awake"));
        while told.try_recv().is_ok() {}
    }
    drop(worker.stop(LIMIT).expect("stopped"));
    rig.finish();
}

/// The vector masks itself at the first packet: an armed queue would get further ones late.
#[test]
fn packets_that_a_worker_finds_when_a_request_has_woken_it_end_the_arming() {
    let mut rig = Rig::new();
    let ((arms, armed), (release, released)) = (channel(), channel());
    let station = Station::of(&mut rig.b.open);
    let vector = VECTOR_CONTROL.at(station.interrupt.vector().into());
    let count = Arc::clone(&station.count);
    let policy = asleep_at_once(HeldSleeper {
        sleeper: PacketSleeper::default(),
        arms,
        released,
    });
    let made = Worker::start_with(policy, None, 16, move || station, Station::poll);
    let worker = made.expect("a worker");
    let arming = || armed.recv_timeout(LIMIT).expect("the worker arms");
    let control = |rig: &Rig| VectorControl(rig.b.device.registers().read(vector).expect("read"));
    // The first arming may end at once: the device reports what it could have missed.
    arming();
    let sleeps = || worker.statistics().sleeps;
    let (begin, mut before) = (Instant::now(), sleeps());
    release.send(()).expect("the worker waits");
    while {
        rig.pass();
        std::thread::sleep(SHORT);
        let is_woken = armed.try_recv().is_ok();
        if is_woken {
            before = sleeps();
            release.send(()).expect("the worker waits");
        }
        is_woken || sleeps() == before || !control(&rig).enable()
    } {
        assert!(begin.elapsed() < LIMIT, "the worker sleeps, armed");
    }
    let (begun, begins) = channel();
    let (go_on, goes_on) = channel::<()>();
    let request = move |_: &mut Station| {
        begun.send(()).expect("the test waits");
        goes_on.recv_timeout(LIMIT).expect("told to go on");
    };
    worker.send(request).expect("room");
    while begins.recv_timeout(SHORT).is_err() {
        // It was woken before, and got no core until now.
        if armed.try_recv().is_ok() {
            release.send(()).expect("the worker waits");
        }
        assert!(begin.elapsed() < 2 * LIMIT, "the request runs");
    }
    send(&mut rig, 1);
    go_on.send(()).expect("the request waits");
    arming();
    assert_eq!(count.load(Ordering::Acquire), 1);
    let polled = control(&rig);
    assert!(polled.write_back_on_interval(), "{polled:?}");
    drop(release);
    drop(worker);
    rig.finish();
}

/// A pause of 0 to 127 us, so that packets meet the sleeper at every step.
fn pause_us(round: u64) -> Duration {
    Duration::from_micros(round.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 57)
}

#[test]
fn no_wake_is_lost_under_a_sender_that_never_waits_long() {
    const PACKETS: u64 = 3000;
    let model = threaded();
    let [left, right] = bring_up_all(|index| model.function(index), &config());
    let mut sender = left.open_port(&settings()).expect("a port");
    let mut receiver = right.open_port(&settings()).expect("a port");
    let (to, from) = (receiver.port.mac(), sender.port.mac());
    let station = Station::of(&mut receiver);
    let count = Arc::clone(&station.count);
    let policy = asleep_at_once(PacketSleeper::default());
    let made = Worker::start_with(policy, None, 16, move || station, Station::poll);
    let worker = made.expect("a worker");
    let frame = plain_frame(to, from, 60, 1);
    let mut burst = Burst::with_limit(1);
    for round in 0..PACKETS {
        let packet = loop {
            match sender.pool.packet_with(&frame) {
                Some(packet) => break packet,
                None => sender.transmit[0].reclaim(),
            };
        };
        burst.push(packet).expect("room");
        while sender.transmit[0].send(&mut burst) == 0 {
            std::thread::yield_now();
        }
        let begin = Instant::now();
        // Each is waited for, so that a lost wake is not made good by the next packet.
        while count.load(Ordering::Acquire) <= round {
            assert!(
                begin.elapsed() < LIMIT,
                "the wake for packet {round} was lost"
            );
            std::thread::yield_now();
        }
        let pause = pause_us(round);
        let begin = Instant::now();
        while begin.elapsed() < pause {
            std::thread::yield_now();
        }
    }
    let sleeps = worker.statistics().sleeps;
    assert!(
        sleeps > PACKETS / 100,
        "{sleeps} sleeps: the worker was never idle"
    );
    drop(worker.stop(LIMIT).expect("stopped"));
    drop((sender, receiver));
    shut_down([left, right]);
    model.stop();
}
