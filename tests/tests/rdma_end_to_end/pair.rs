//! Two devices and a connection between them: in one stepped world, or wherever else they are.

// Other test programs take this file by its path.
#[path = "bed.rs"]
mod bed;

pub(crate) use bed::Bed;
use ringside_bus::Function;
use ringside_config::Config;
use ringside_model::Stepped;
use ringside_pmd::rdma::{
    Access, Completion, CompletionQueue, Connected, Event, MemoryRegion, ProtectionDomain,
    QueuePair, QueuePairConfig,
};
use ringside_pmd::{BringUpOptions, Device};
use std::sync::Arc;
use std::time::Duration;

/// Rounds that a test waits for completions: each lets at most a tenth of a millisecond pass.
const ROUNDS: usize = 200_000;

pub(crate) fn config() -> Config {
    let mut config = Config::default();
    // In process any page will do, and a machine that runs tests may have no others.
    if Bed::is_in_process() {
        config.memory.hugepages = ringside_config::HugePages::None;
    }
    config
}

pub(crate) fn bring_up(world: &Stepped, index: u16, config: &Config) -> Device {
    bring_up_function(world.function(index).expect("a function"), index, config)
}

fn bring_up_function(function: Arc<dyn Function>, index: u16, config: &Config) -> Device {
    Device::bring_up(function, config, BringUpOptions::default()).unwrap_or_else(|error| {
        panic!(
            "function {index}: {error}\n{:#?}",
            error.trace.stages.last()
        )
    })
}

/// One end: a device with everything that a connection needs.
pub(crate) struct End {
    pub(crate) device: Device,
    pub(crate) domain: ProtectionDomain,
    pub(crate) completions: CompletionQueue,
}

impl End {
    pub(crate) fn new(bed: &Bed, index: u16, config: &Config) -> Self {
        Self::on(bed.function(index), index, config)
    }

    /// The same on a function that somebody stands in front of.
    pub(crate) fn on(function: Arc<dyn Function>, index: u16, config: &Config) -> Self {
        let device = bring_up_function(function, index, config);
        let domain = device.protection_domain().expect("a protection domain");
        let completions = device.completion_queue(256).expect("a completion queue");
        Self {
            device,
            domain,
            completions,
        }
    }

    pub(crate) fn region(&self, length: usize) -> MemoryRegion {
        let buffer = self.device.allocate(length).expect("memory");
        self.domain.register(buffer, Access::ALL).expect("a region")
    }

    pub(crate) fn config(&self) -> QueuePairConfig {
        QueuePairConfig::reliable(&self.completions)
    }

    pub(crate) fn queue_pair(&self, config: QueuePairConfig) -> QueuePair {
        self.domain.queue_pair(config).expect("a queue pair")
    }

    pub(crate) fn events(&self) -> Vec<Event> {
        let mut events = Vec::new();
        self.device.poll_events(&mut events).expect("events");
        events
    }
}

/// Two ends on one bed.
pub(crate) struct Pair {
    pub(crate) world: Bed,
    pub(crate) a: End,
    pub(crate) b: End,
}

impl Pair {
    pub(crate) fn new() -> Self {
        Self::with(&config())
    }

    pub(crate) fn with(config: &Config) -> Self {
        let world = Bed::open();
        let a = End::new(&world, 0, config);
        let b = End::new(&world, 1, config);
        Self { world, a, b }
    }

    /// A connection between both ends.
    pub(crate) fn connect(
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

    pub(crate) fn pass(&self) {
        self.world.clock().pause(Duration::from_micros(100));
    }

    /// Lets the world go on until this many completions have come to `a`.
    pub(crate) fn wait_a(&mut self, count: usize) -> Vec<Completion> {
        let (world, queue) = (&self.world, &mut self.a.completions);
        wait(world, queue, count)
    }

    /// The same for `b`.
    pub(crate) fn wait_b(&mut self, count: usize) -> Vec<Completion> {
        let (world, queue) = (&self.world, &mut self.b.completions);
        wait(world, queue, count)
    }

    /// Shuts both down; nothing may be left over.
    pub(crate) fn finish(self) {
        self.finish_with(&[]);
    }

    /// The same, where the test itself has broken the interface in these ways.
    pub(crate) fn finish_with(self, expected: &[&str]) {
        self.world.check_breaches(expected);
        for end in [&self.a, &self.b] {
            assert_eq!(end.completions.anomalies(), Default::default());
        }
        let Self { world, a, b } = self;
        for (index, end) in [a, b].into_iter().enumerate() {
            let End {
                device,
                domain,
                completions,
            } = end;
            drop((completions, domain));
            let report = device.shutdown();
            assert!(
                report.failures.is_empty(),
                "function {index}: {:#?}",
                report.failures
            );
            assert_eq!(report.leaked_bytes, 0, "function {index}");
        }
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
