//! Two devices and a connection between them.

use crate::{Bed, bring_up_function, config, shut_down};
use ringside_bus::Function;
use ringside_config::Config;
use ringside_pmd::Device;
use ringside_pmd::rdma::{
    Access, Completion, CompletionQueue, Connected, Event, Flags, MemoryRegion, ProtectionDomain,
    QueuePair, QueuePairConfig, RdmaError, Status,
};
use std::sync::Arc;
use std::time::Duration;

/// Rounds that a test waits for completions: each takes at most a tenth of a millisecond.
const ROUNDS: usize = 200_000;

/// One end: a device with everything that a connection needs.
pub struct End {
    /// The device.
    pub device: Device,
    /// Its protection domain.
    pub domain: ProtectionDomain,
    /// Its completion queue, of 256 entries.
    pub completions: CompletionQueue,
}

impl End {
    /// Brings up function `index` of `bed`.
    pub fn new(bed: &Bed, index: u16, config: &Config) -> Self {
        Self::on(bed.function(index), index, config)
    }

    /// Brings up `function`, for example one that a test intercepts.
    pub fn on(function: Arc<dyn Function>, index: u16, config: &Config) -> Self {
        let device = bring_up_function(function, index, config);
        let domain = device.protection_domain().expect("a protection domain");
        let completions = device.completion_queue(256).expect("a completion queue");
        Self {
            device,
            domain,
            completions,
        }
    }

    /// A region of new memory with all rights.
    pub fn region(&self, length: usize) -> MemoryRegion {
        let buffer = self.device.allocate(length).expect("memory");
        self.domain.register(buffer, Access::ALL).expect("a region")
    }

    /// The configuration of a reliable queue pair on its completion queue.
    pub fn config(&self) -> QueuePairConfig {
        QueuePairConfig::reliable(&self.completions)
    }

    /// A queue pair that is not connected.
    pub fn queue_pair(&self, config: QueuePairConfig) -> QueuePair {
        self.domain.queue_pair(config).expect("a queue pair")
    }

    /// The events since the last call.
    pub fn events(&self) -> Vec<Event> {
        let mut events = Vec::new();
        self.device.poll_events(&mut events).expect("events");
        events
    }
}

/// Two ends on one bed.
pub struct Pair {
    /// The source of both functions.
    pub world: Bed,
    /// The first end.
    pub a: End,
    /// The second end.
    pub b: End,
}

impl Default for Pair {
    fn default() -> Self {
        Self::new()
    }
}

impl Pair {
    /// Brings both ends up with the configuration of tests.
    pub fn new() -> Self {
        Self::with(&config())
    }

    /// Brings both ends up with `config`.
    pub fn with(config: &Config) -> Self {
        let world = Bed::open();
        let a = End::new(&world, 0, config);
        let b = End::new(&world, 1, config);
        Self { world, a, b }
    }

    /// A connection between both ends.
    pub fn connect(
        &self,
        change: impl Fn(QueuePairConfig) -> QueuePairConfig,
    ) -> (QueuePair<Connected>, QueuePair<Connected>) {
        let a = self.a.queue_pair(change(self.a.config()));
        let b = self.b.queue_pair(change(self.b.config()));
        let (to_a, to_b) = (a.endpoint(), b.endpoint());
        let a = a.connect(&to_b).expect("a to b");
        let b = b.connect(&to_a).expect("b to a");
        (a, b)
    }

    /// Lets a tenth of a millisecond pass.
    pub fn pass(&self) {
        self.world.clock().pause(Duration::from_micros(100));
    }

    /// Runs the world until this many completions have arrived at `a`.
    pub fn wait_a(&mut self, count: usize) -> Vec<Completion> {
        let (world, queue) = (&self.world, &mut self.a.completions);
        wait(world, queue, count)
    }

    /// Runs the world until this many completions have arrived at `b`.
    pub fn wait_b(&mut self, count: usize) -> Vec<Completion> {
        let (world, queue) = (&self.world, &mut self.b.completions);
        wait(world, queue, count)
    }

    /// Fails a queue pair of `a` that has a receive, after `hinder` has arranged that the device
    /// keeps it in the state in which it receives. Returns the error.
    ///
    /// Checks that the receive completes as flushed, and that nothing from its peer arrives in the
    /// memory that this gave back.
    pub fn fail_hindered(&mut self, hinder: impl FnOnce(&Self)) -> RdmaError {
        let (into, from) = (self.a.region(64), self.b.region(64));
        assert!(into.write(0, &[0; 64]) && from.write(0, &[7; 64]));
        let (mut qp, mut peer) = self.connect(|config| config);
        let all = |region: &MemoryRegion| region.slice(0..64).expect("the whole region");
        qp.receive(1, &[all(&into)]).expect("a receive");
        hinder(self);
        let error = qp.fail().expect_err("the device does not move it");
        let done = self.wait_a(1);
        assert_eq!((done[0].id, done[0].status()), (1, Status::Flushed));
        peer.send(2, &[all(&from)], Flags::SIGNALLED)
            .expect("a send");
        peer.ring();
        for _ in 0..20 {
            self.pass();
        }
        let mut bytes = [1; 64];
        assert!(into.read(0, &mut bytes));
        assert_eq!(bytes, [0; 64], "a completion gives memory back");
        error
    }

    /// Shuts both down; nothing may be left.
    pub fn finish(self) {
        self.finish_with(&[]);
    }

    /// Shuts both down after a test that breaks the interface in these ways.
    pub fn finish_with(self, expected: &[&str]) {
        self.world.check_breaches(expected);
        for end in [&self.a, &self.b] {
            assert_eq!(end.completions.anomalies(), Default::default());
        }
        let Self { world, a, b } = self;
        shut_down([a, b].into_iter().map(|end| {
            let End {
                device,
                domain,
                completions,
            } = end;
            drop((completions, domain));
            device
        }));
        world.check_breaches(expected);
    }
}

fn wait(world: &Bed, queue: &mut CompletionQueue, count: usize) -> Vec<Completion> {
    let mut done = Vec::new();
    let mut batch = [Completion::EMPTY; 16];
    for _ in 0..ROUNDS {
        done.extend_from_slice(queue.poll(&mut batch));
        if done.len() >= count {
            return done;
        }
        world.clock().pause(Duration::from_micros(100));
    }
    panic!("{count} completions were waited for, only {done:?} came");
}
