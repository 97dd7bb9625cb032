//! Random orders of events, one for each seed, and the rules that hold in all of them.

use super::*;
use std::collections::BTreeSet;

const CALL: Duration = Duration::from_millis(100);
const GONE: Duration = Duration::from_millis(50);

/// A small random generator (xorshift64*), so that a seed reproduces a test.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) as usize % limit
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> Option<T> {
        (!from.is_empty()).then(|| from[self.below(from.len())])
    }
}

/// The calls that one client got for one device, and its answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Told {
    Nothing,
    /// Initialised; `failed`: notified of a failure since.
    Initialised {
        failed: bool,
    },
    /// In a call.
    In(Call),
}

/// The environment of the engine: devices, clients, and checks of the engine's calls.
struct World {
    engine: Engine,
    now: Instant,
    random: Random,
    seed: u64,
    next: u64,
    /// devices in the engine: life, and true while failed
    devices: BTreeMap<DeviceId, (u32, bool)>,
    leaving: BTreeMap<DeviceId, Cause>,
    shutting: BTreeSet<DeviceId>,
    clients: BTreeSet<ClientId>,
    unregistered: BTreeSet<ClientId>,
    ending: BTreeSet<ClientId>,
    running: BTreeMap<ClientId, (DeviceId, Call, Instant)>,
    told: BTreeMap<(DeviceId, ClientId), Told>,
    /// calls of `uninitialise`
    ends: usize,
}

impl World {
    fn new(seed: u64) -> Self {
        let limits = Limits {
            call: CALL,
            gone: GONE,
        };
        Self {
            engine: Engine::new(limits),
            now: Instant::now(),
            random: Random(seed.wrapping_mul(2) + 1),
            seed,
            next: 0,
            devices: BTreeMap::new(),
            leaving: BTreeMap::new(),
            shutting: BTreeSet::new(),
            clients: BTreeSet::new(),
            unregistered: BTreeSet::new(),
            ending: BTreeSet::new(),
            running: BTreeMap::new(),
            told: BTreeMap::new(),
            ends: 0,
        }
    }

    fn id(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn told(&self, device: DeviceId, client: ClientId) -> Told {
        let known = self.told.get(&(device, client));
        known.copied().unwrap_or(Told::Nothing)
    }

    /// Draws an event and applies it.
    fn happen(&mut self) {
        let devices: Vec<_> = self.devices.keys().copied().collect();
        let clients: Vec<_> = self.clients.iter().copied().collect();
        match self.random.below(12) {
            0 if devices.len() < 4 => {
                let id = DeviceId(self.id());
                self.devices.insert(id, (1, false));
                self.engine.device_came(id, 1);
            }
            1 if clients.len() < 4 => {
                let id = ClientId(self.id());
                self.clients.insert(id);
                self.engine.client_came(id);
            }
            2 => {
                if let Some(id) = self.random.pick(&devices) {
                    let (life, _) = self.devices[&id];
                    let cause = match self.random.below(3) {
                        0 => FailureCause::Gone,
                        _ => FailureCause::FunctionReset,
                    };
                    self.engine.failed(id, life, cause, self.now);
                    self.devices.insert(id, (life, true));
                }
            }
            3 => {
                if let Some(id) = self.random.pick(&devices) {
                    let (life, _) = self.devices[&id];
                    // The next failure may be reported before the recovery.
                    let is_early = self.random.below(3) == 0;
                    if is_early {
                        let early = FailureCause::MemoryError;
                        self.engine.failed(id, life + 1, early, self.now);
                    }
                    self.engine
                        .recovered(id, life + 1, FailureCause::FunctionReset);
                    // A late report of the previous life changes nothing.
                    let late = FailureCause::CoreReset;
                    self.engine.failed(id, life, late, self.now);
                    self.devices.insert(id, (life + 1, is_early));
                }
            }
            4 if self.random.below(3) == 0 => {
                if let Some(id) = self.random.pick(&devices) {
                    let action = self.engine.remove(id, Cause::Removed);
                    self.judge(action.into_iter().collect());
                }
            }
            5 if self.random.below(3) == 0 => {
                if let Some(id) = self.random.pick(&clients) {
                    self.unregistered.insert(id);
                    self.engine.unregister(id);
                }
            }
            6 => self.now += Duration::from_millis(self.random.below(60) as u64),
            _ => self.let_return(),
        }
        for id in self.engine.gone(self.now) {
            let action = self.engine.remove(id, Cause::Gone);
            self.judge(action.into_iter().collect());
        }
        let actions = self.engine.step(self.now);
        self.judge(actions);
        assert_eq!(
            self.engine.step(self.now),
            [],
            "seed {}: a second step",
            self.seed
        );
        self.judge_idleness();
    }

    /// Checks that every client that can be called is called.
    fn judge_idleness(&self) {
        if !self.running.is_empty() {
            return;
        }
        for (device, client, pair) in self.engine.pairs() {
            let is_served = self.devices[&device].1
                || self.leaving.contains_key(&device)
                || self.unregistered.contains(&client);
            assert!(
                is_served || *pair != Pair::Wanted,
                "seed {}: {client:?} never gets {device:?}",
                self.seed
            );
        }
    }

    /// A client returns, a device is shut down, a client is dropped.
    fn let_return(&mut self) {
        let running: Vec<_> = self.running.keys().copied().collect();
        if let Some(client) = self.random.pick(&running) {
            let (device, call, _) = self.running.remove(&client).unwrap();
            let refuses = call == Call::Initialise && self.random.below(4) == 0;
            let told = match call {
                Call::Initialise if refuses => Told::Nothing,
                Call::Uninitialise(_) => Told::Nothing,
                Call::Failed(_) => Told::Initialised { failed: true },
                Call::Initialise | Call::Recovered { .. } => Told::Initialised { failed: false },
            };
            self.told.insert((device, client), told);
            self.engine
                .returned(client, refuses.then(|| "no".to_owned()));
        }
        let shutting: Vec<_> = self.shutting.iter().copied().collect();
        if let Some(device) = self.random.pick(&shutting) {
            self.shutting.remove(&device);
            self.devices.remove(&device);
            self.engine.shutting(device, self.now);
            self.engine.shut(device);
        }
        let ending: Vec<_> = self.ending.iter().copied().collect();
        if let Some(client) = self.random.pick(&ending) {
            self.ending.remove(&client);
            self.clients.remove(&client);
            self.engine.ended(client);
        }
    }

    fn judge(&mut self, actions: Vec<Action>) {
        let seed = self.seed;
        for action in actions {
            match action {
                Action::Call {
                    client,
                    device,
                    call,
                } => {
                    self.judge_call(client, device, call);
                    self.told.insert((device, client), Told::In(call));
                    let before = self.running.insert(client, (device, call, self.now));
                    assert_eq!(before, None, "seed {seed}: {client:?} has two calls");
                }
                Action::Leave { device, cause } => {
                    let before = self.leaving.insert(device, cause);
                    assert_eq!(before, None, "seed {seed}: {device:?} leaves twice");
                }
                Action::Close { device } => {
                    assert!(self.leaving.contains_key(&device), "seed {seed}");
                    let mut told = self.told.iter().filter(|((of, _), _)| *of == device);
                    let at_work = told.find(|(_, told)| **told != Told::Nothing);
                    assert_eq!(at_work, None, "seed {seed}: {device:?} is closed");
                    assert!(self.shutting.insert(device), "seed {seed}: closed twice");
                }
                Action::End { client } => {
                    assert!(self.unregistered.contains(&client), "seed {seed}");
                    let mut told = self.told.iter().filter(|((_, of), _)| *of == client);
                    let at_work = told.find(|(_, told)| **told != Told::Nothing);
                    assert_eq!(at_work, None, "seed {seed}: {client:?} is dropped");
                    assert!(self.ending.insert(client), "seed {seed}: ended twice");
                }
            }
        }
    }

    fn judge_call(&mut self, client: ClientId, device: DeviceId, call: Call) {
        let seed = self.seed;
        let told = self.told(device, client);
        let (life, is_failed) = self.devices[&device];
        let leaves = self.leaving.get(&device).copied();
        assert!(self.clients.contains(&client), "seed {seed}");
        assert!(
            !self.shutting.contains(&device),
            "seed {seed}: {call:?} after the end"
        );
        match call {
            Call::Initialise => {
                assert_eq!(told, Told::Nothing, "seed {seed}: initialised twice");
                assert_eq!(leaves, None, "seed {seed}: {device:?} leaves");
                assert!(!is_failed, "seed {seed}: {device:?} is out of service");
                assert!(!self.unregistered.contains(&client), "seed {seed}");
                for &earlier in self.clients.range(..client) {
                    let in_time = |&(_, _, since): &(_, _, Instant)| self.now < since + CALL;
                    let waits = self.told(device, earlier) == Told::In(Call::Initialise)
                        && self.running.get(&earlier).is_some_and(in_time);
                    assert!(!waits, "seed {seed}: {client:?} before {earlier:?}");
                }
            }
            Call::Uninitialise(cause) => {
                self.ends += 1;
                assert!(
                    matches!(told, Told::Initialised { .. }),
                    "seed {seed}: {told:?}"
                );
                assert_eq!(cause, leaves.unwrap_or(Cause::Unregistered), "seed {seed}");
                if leaves.is_some() {
                    for &later in self.clients.range(client..).skip(1) {
                        let later = self.told(device, later);
                        assert_eq!(later, Told::Nothing, "seed {seed}: order of ends");
                    }
                    if cause == Cause::Gone && is_failed {
                        let failed = Told::Initialised { failed: true };
                        assert_eq!(told, failed, "seed {seed}: gone without a failure");
                    }
                }
            }
            Call::Failed(_) => {
                assert_eq!(told, Told::Initialised { failed: false }, "seed {seed}");
            }
            Call::Recovered { life: now } => {
                assert_eq!(told, Told::Initialised { failed: true }, "seed {seed}");
                assert_eq!((now, leaves), (life, None), "seed {seed}");
            }
        }
    }

    /// Removes everything; every client returns.
    fn end(&mut self) {
        for id in self.devices.keys().copied().collect::<Vec<_>>() {
            let action = self.engine.remove(id, Cause::Closed);
            self.judge(action.into_iter().collect());
        }
        for &id in &self.clients {
            self.unregistered.insert(id);
            self.engine.unregister(id);
        }
        for _ in 0..1000 {
            let actions = self.engine.step(self.now);
            self.judge(actions);
            let progress = self.engine.progress(Goal::AllGone, self.now);
            if progress == Progress::Reached {
                let at_work = self.told.values().filter(|told| **told != Told::Nothing);
                assert_eq!(at_work.count(), 0, "seed {}", self.seed);
                return;
            }
            assert_ne!(
                progress,
                Progress::Waiting(None),
                "seed {}: no blocker",
                self.seed
            );
            self.let_return();
        }
        panic!("seed {}: it does not end: {:?}", self.seed, self.engine);
    }
}

#[test]
fn calls_are_paired_and_in_order_whatever_happens() {
    let mut ends = 0;
    for seed in 0..2000 {
        let mut world = World::new(seed);
        for _ in 0..150 {
            world.happen();
        }
        world.end();
        ends += world.ends;
    }
    assert!(ends > 5000, "{ends} ends are too few to show anything");
}

#[test]
fn a_slow_client_is_told_the_last_failure_and_the_last_recovery() {
    let mut engine = Engine::new(Limits {
        call: CALL,
        gone: GONE,
    });
    let (now, device, client) = (Instant::now(), DeviceId(0), ClientId(1));
    engine.device_came(device, 1);
    engine.client_came(client);
    assert_eq!(engine.step(now).len(), 1);
    // While it is in `initialise`, the device fails and recovers many times.
    for life in 1..1000 {
        engine.failed(device, life, FailureCause::CoreReset, now);
        engine.recovered(device, life + 1, FailureCause::CoreReset);
    }
    engine.failed(device, 1000, FailureCause::MemoryError, now);
    let mut calls = Vec::new();
    for _ in 0..4 {
        engine.returned(client, None);
        for action in engine.step(now) {
            match action {
                Action::Call { call, .. } => calls.push(call),
                other => panic!("{other:?}"),
            }
        }
    }
    let expected = [
        Call::Failed(FailureCause::CoreReset),
        Call::Recovered { life: 1000 },
        Call::Failed(FailureCause::MemoryError),
    ];
    assert_eq!(calls, expected);
}

#[test]
fn a_failure_that_is_reported_before_the_recovery_from_the_last_one_counts() {
    let mut engine = Engine::new(Limits {
        call: CALL,
        gone: GONE,
    });
    let (now, device, client) = (Instant::now(), DeviceId(0), ClientId(1));
    engine.device_came(device, 1);
    engine.client_came(client);
    let next = |engine: &mut Engine| {
        engine.returned(client, None);
        let actions = engine.step(now);
        let calls = actions.into_iter().map(|action| match action {
            Action::Call { call, .. } => call,
            other => panic!("{other:?}"),
        });
        calls.collect::<Vec<_>>()
    };
    assert_eq!(next(&mut engine), [Call::Initialise]);
    engine.failed(device, 1, FailureCause::CoreReset, now);
    assert_eq!(next(&mut engine), [Call::Failed(FailureCause::CoreReset)]);
    // One thread has recovered the device; another one sees it fail and reports first.
    assert!(engine.failed(device, 2, FailureCause::Gone, now));
    let is_news = engine.recovered(device, 2, FailureCause::CoreReset);
    assert!(!is_news, "the device stays out of service");
    assert_eq!(next(&mut engine), [Call::Recovered { life: 2 }]);
    assert_eq!(next(&mut engine), [Call::Failed(FailureCause::Gone)]);
    assert_eq!(next(&mut engine), []);
    assert_eq!(engine.gone(now + GONE), [device]);
    // The report of the former recovery may even follow that of the next one.
    assert!(engine.recovered(device, 4, FailureCause::Gone));
    assert!(!engine.recovered(device, 3, FailureCause::Gone));
    assert_eq!(next(&mut engine), [Call::Recovered { life: 4 }]);
    assert_eq!(next(&mut engine), []);
}

#[test]
fn a_device_that_is_back_before_its_time_is_not_removed() {
    let mut engine = Engine::new(Limits {
        call: CALL,
        gone: GONE,
    });
    let (start, device) = (Instant::now(), DeviceId(0));
    engine.device_came(device, 1);
    engine.failed(device, 1, FailureCause::Gone, start);
    assert_eq!(engine.next_time(start), Some(start + GONE));
    assert_eq!(engine.gone(start + GONE - Duration::from_nanos(1)), []);
    assert_eq!(engine.gone(start + GONE), [device]);
    // A recovery finds the device on the bus and fails for another reason.
    engine.not_recovered(device, 1, false, start);
    assert_eq!(engine.gone(start + GONE * 9), []);
    engine.not_recovered(device, 1, true, start);
    assert_eq!(engine.gone(start + GONE), [device]);
    engine.recovered(device, 2, FailureCause::Gone);
    assert_eq!(engine.gone(start + GONE * 9), []);
    assert_eq!(engine.next_time(start), None);
    // A failure of another kind, then recoveries that find the device absent: the first of these
    // counts.
    engine.failed(device, 2, FailureCause::CoreReset, start);
    assert_eq!(engine.gone(start + GONE * 9), []);
    engine.not_recovered(device, 2, true, start + GONE * 9);
    engine.not_recovered(device, 2, true, start + GONE * 10 - Duration::from_nanos(1));
    assert_eq!(engine.gone(start + GONE * 10), [device]);
    // A late report of an earlier life changes nothing.
    engine.not_recovered(device, 1, false, start);
    assert_eq!(engine.gone(start + GONE * 10), [device]);
    engine.remove(device, Cause::Gone);
    assert_eq!(engine.gone(start + GONE * 10), []);
}
