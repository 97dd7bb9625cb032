//! Two functions with the objects of a test on each: memory, completion queue, connected queue
//! pairs.

use super::plan::{MAX_MESSAGE, Plan};
use super::run::Run;
pub(crate) use super::watch::Watch;
use crate::failure::Failure;
use anyhow::{Context, anyhow};
use ringside_bus::TscClock;
use ringside_bus::clock::ticks;
use ringside_pmd::Device;

use ringside_pmd::rdma::{
    Access, Completion, CompletionQueue, Connected, Endpoint, MemoryRegion, ProtectionDomain,
    QueuePair, QueuePairConfig, RdmaError, RemoteRegion, Status,
};
use std::time::Duration;

/// Completions taken by one poll.
pub(crate) const BATCH: usize = 64;

/// The longest time without progress in a test.
pub(crate) const STALL: Duration = Duration::from_secs(5);

/// One end of a test.
pub(crate) struct Side<'d> {
    pub(crate) device: &'d Device,
    // Fields are dropped in this order: queue pairs before the objects that they use.
    pub(crate) queue_pairs: Vec<QueuePair<Connected>>,
    pub(crate) completions: CompletionQueue,
    /// the memory that this side sends from, and reads into
    pub(crate) source: MemoryRegion,
    /// the memory that the peer writes to, reads from, or sends into
    pub(crate) target: MemoryRegion,
    batch: [Completion; BATCH],
    _domain: ProtectionDomain,
}

/// Both ends. One thread owns all objects of a test.
pub(crate) struct Pair<'d> {
    pub(crate) client: Side<'d>,
    pub(crate) server: Side<'d>,
    /// bytes from one queue pair's slot in a region to the next
    pub(crate) stride: usize,
    pub(crate) clock: TscClock,
    /// true if the model has only the core of this thread: idle rounds give it away
    yields: bool,
}

/// The most that a test with this plan needs at once.
pub(crate) fn stride(plan: &Plan) -> usize {
    let largest = plan
        .sizes
        .iter()
        .copied()
        .max()
        .unwrap_or(0)
        .min(MAX_MESSAGE);
    (largest as usize).max(64).next_multiple_of(64)
}

/// One end whose queue pairs are not connected yet.
pub(crate) struct Half<'d> {
    device: &'d Device,
    domain: ProtectionDomain,
    completions: CompletionQueue,
    source: MemoryRegion,
    target: MemoryRegion,
    queue_pairs: Vec<QueuePair>,
}

/// Registers memory and makes queues as a plan needs them; `shape` changes how a queue pair is
/// made.
pub(crate) fn half<'d>(
    device: &'d Device,
    plan: &Plan,
    shape: impl Fn(QueuePairConfig) -> QueuePairConfig,
) -> Result<Half<'d>, Failure> {
    let domain = device.protection_domain()?;
    let bytes = stride(plan) * plan.queue_pairs as usize;
    let region = |access| -> Result<MemoryRegion, Failure> {
        let memory = device.allocate(bytes)?;
        Ok(domain.register(memory, access)?)
    };
    let source = region(Access::LOCAL_WRITE)?;
    let target = region(Access::ALL)?;
    let per_queue_pair = plan.send_depth + plan.receive_depth;
    let completions = device.completion_queue(per_queue_pair * plan.queue_pairs)?;
    let config = QueuePairConfig::reliable(&completions)
        .send_requests(plan.send_depth)
        .receive_requests(plan.receive_depth)
        .inline_bytes(plan.inline);
    let config = shape(config);
    let queue_pairs = (0..plan.queue_pairs)
        .map(|_| domain.queue_pair(config.clone()))
        .collect::<Result<Vec<_>, _>>()?;
    Ok(Half {
        device,
        domain,
        completions,
        source,
        target,
        queue_pairs,
    })
}

impl<'d> Half<'d> {
    /// The facts that the peer needs about each queue pair.
    pub(crate) fn endpoints(&self) -> Vec<Endpoint> {
        self.queue_pairs.iter().map(QueuePair::endpoint).collect()
    }

    /// The memory that the peer may use.
    pub(crate) fn target(&self) -> RemoteRegion {
        self.target.remote()
    }

    /// Registers a further piece of memory in the same domain.
    pub(crate) fn register(&self, bytes: usize, access: Access) -> Result<MemoryRegion, Failure> {
        let memory = self.device.allocate(bytes)?;
        Ok(self.domain.register(memory, access)?)
    }

    /// Connects queue pair n to endpoint n.
    pub(crate) fn connect(mut self, peers: &[Endpoint]) -> Result<Side<'d>, RdmaError> {
        let both = self.queue_pairs.drain(..).zip(peers);
        let connected = both
            .map(|(queue_pair, peer)| queue_pair.connect(peer).map_err(|failed| failed.error))
            .collect::<Result<_, _>>()?;
        Ok(Side::new(self, connected))
    }

    /// Connects queue pair n by `make`, which gets its index.
    pub(crate) fn connect_by(
        mut self,
        mut make: impl FnMut(u32, QueuePair) -> Result<QueuePair<Connected>, Failure>,
    ) -> Result<Side<'d>, Failure> {
        let all = (0..).zip(self.queue_pairs.drain(..));
        let connected = all
            .map(|(index, queue_pair)| make(index, queue_pair))
            .collect::<Result<_, _>>()?;
        Ok(Side::new(self, connected))
    }
}

impl<'d> Pair<'d> {
    /// Registers memory, makes queues and connects queue pair n of one side to n of the other.
    pub(crate) fn connect(
        client: &'d Device,
        server: &'d Device,
        plan: &Plan,
        run: &Run<'_>,
    ) -> Result<Self, Failure> {
        let options = run.options;
        let timeout = options.retransmission_timeout();
        let shape = |config: QueuePairConfig| {
            let config = config.path_mtu(options.mtu());
            config.retransmission_timeout(timeout)
        };
        let client = half(client, plan, shape).map_err(|error| error.at("the sending function"))?;
        let server = half(server, plan, shape).map_err(|error| error.at("the peer"))?;
        let (ours, theirs) = (client.endpoints(), server.endpoints());
        Ok(Self {
            client: client.connect(&theirs)?,
            server: server.connect(&ours)?,
            stride: stride(plan),
            clock: TscClock::new(),
            yields: run.report.placement.is_some_and(|cores| cores.one_core),
        })
    }

    /// Offset of the slot of queue pair `index` in a region.
    pub(crate) fn slot(&self, index: usize) -> usize {
        index * self.stride
    }
}

impl<'d> Side<'d> {
    fn new(half: Half<'d>, queue_pairs: Vec<QueuePair<Connected>>) -> Self {
        Self {
            device: half.device,
            queue_pairs,
            completions: half.completions,
            source: half.source,
            target: half.target,
            batch: [Completion::EMPTY; BATCH],
            _domain: half.domain,
        }
    }

    pub(crate) fn remote(&self) -> RemoteRegion {
        self.target.remote()
    }

    /// Takes completions; one with an error ends the test with its reason.
    #[inline]
    pub(crate) fn poll(&mut self, mut each: impl FnMut(&Completion)) -> Result<usize, Failure> {
        let taken = self.completions.poll(&mut self.batch);
        for completion in taken {
            if !completion.is_success() {
                let completion = *completion;
                return Err(failed(self.device, &completion));
            }
            each(completion);
        }
        Ok(taken.len())
    }
}

#[cold]
fn failed(device: &Device, completion: &Completion) -> Failure {
    let mut events = Vec::new();
    let told = match device.poll_events(&mut events) {
        Ok(_) if events.is_empty() => String::new(),
        Ok(_) => format!("; the device reported {events:?}"),
        Err(error) => format!("; events: {error}"),
    };
    Failure::operation(CompletionError {
        status: completion.status(),
        text: format!(
            "queue pair {} of {}: {:?} {:#x}",
            completion.queue_pair(),
            device.function().address(),
            completion.operation(),
            completion.id,
        ),
        told,
    })
}

/// A request completed with an error.
#[derive(Debug, thiserror::Error)]
#[error("{text} failed: {status}{told}")]
pub(crate) struct CompletionError {
    pub(crate) status: Status,
    text: String,
    told: String,
}

impl Watch {
    /// Counts a round without progress; an error once there was none for too long.
    #[inline(always)]
    pub(crate) fn idle(&mut self, pair: &mut Pair<'_>) -> Result<(), Failure> {
        self.rounds += 1;
        if self.rounds >= 16_384 {
            return self.look(pair);
        }
        match pair.yields {
            true => std::thread::yield_now(),
            false => std::hint::spin_loop(),
        }
        Ok(())
    }

    #[cold]
    fn look(&mut self, pair: &mut Pair<'_>) -> Result<(), Failure> {
        self.rounds = 0;
        let now = ticks();
        let since = *self.since.get_or_insert(now);
        // A failed queue pair completes its requests only once its event has been taken.
        let mut events = Vec::new();
        for side in [&pair.client, &pair.server] {
            side.device.poll_events(&mut events).context("events")?;
        }
        let waited = Duration::from_nanos(pair.clock.nanoseconds(now.wrapping_sub(since)));
        if waited > STALL {
            let told = if events.is_empty() {
                String::new()
            } else {
                format!("; events: {events:?}")
            };
            return Err(Failure::operation(anyhow!(
                "no completion for {} s: the device or its peer has stopped{told}",
                STALL.as_secs()
            )));
        }
        Ok(())
    }
}
