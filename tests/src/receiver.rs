//! A worker that receives, and may sleep on the device's interrupt meanwhile.

use ringside_pmd::Device;
use ringside_pmd::rdma::{
    Access, Completion, CompletionQueue, Connected, Interrupts, MemoryRegion, Notify,
    ProtectionDomain, QueuePair, QueuePairConfig,
};
use ringside_pmd::worker::{Polled, Sleeper};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

/// Receives that are posted all the time.
const POSTED: u64 = 16;

/// Bytes of a receive.
const BYTES: usize = 64;

/// A queue pair with its resources, not connected yet.
#[derive(Debug)]
pub struct End {
    /// Its state.
    pub domain: ProtectionDomain,
    /// The completion queue of both its queues.
    pub completions: CompletionQueue,
    /// 4096 bytes.
    pub region: MemoryRegion,
    /// The queue pair.
    pub queue_pair: QueuePair,
}

impl End {
    /// Made on `device`.
    ///
    /// # Errors
    /// The requests that the device refuses.
    pub fn on(device: &Device) -> Result<Self, Box<dyn std::error::Error>> {
        Self::reporting_to(device, 0)
    }

    /// The same, reporting to one of the completion event queues.
    ///
    /// # Errors
    /// The requests that the device refuses.
    pub fn reporting_to(
        device: &Device,
        event_queue: u16,
    ) -> Result<Self, Box<dyn std::error::Error>> {
        let domain = device.protection_domain()?;
        let completions = device.completion_queue_on(64, event_queue)?;
        let region = domain.register(device.allocate(4096)?, Access::ALL)?;
        // A receiver that gets no core for a while is waited for, without end.
        let config = QueuePairConfig::reliable(&completions).receiver_not_ready_retries(7);
        let queue_pair = domain.queue_pair(config)?;
        Ok(Self {
            domain,
            completions,
            region,
            queue_pair,
        })
    }
}

/// The objects that the receiving worker owns.
#[derive(Debug)]
pub struct Receiver {
    /// Its device.
    pub device: Arc<Device>,
    /// The completion queue of its receives.
    pub completions: CompletionQueue,
    /// Receives are posted again as they complete.
    pub queue_pair: QueuePair<Connected>,
    /// The memory to receive into.
    pub region: MemoryRegion,
    /// The device's interrupt.
    pub interrupts: Interrupts,
    /// Each message: the id of its receive, and when it was taken.
    pub received: Vec<(u64, Instant)>,
    /// As many messages as were received, for others to see without waking the worker.
    pub count: Arc<AtomicUsize>,
    /// Times that a poll while arming found something.
    pub early: usize,
    /// Times that an interrupt ended a sleep.
    pub interrupted: usize,
}

impl Receiver {
    /// Posts its receives; the queue pair is connected.
    ///
    /// # Errors
    /// The requests that the device refuses.
    pub fn new(
        device: Arc<Device>,
        completions: CompletionQueue,
        mut queue_pair: QueuePair<Connected>,
        region: MemoryRegion,
    ) -> Result<Self, Box<dyn std::error::Error>> {
        for id in 0..POSTED {
            queue_pair.receive(id, &[region.slice(0..BYTES)?])?;
        }
        Ok(Self {
            interrupts: device.interrupts_of(completions.event_queue())?,
            device,
            completions,
            queue_pair,
            region,
            received: Vec::new(),
            count: Arc::default(),
            early: 0,
            interrupted: 0,
        })
    }

    /// Takes the completions that have arrived.
    ///
    /// # Panics
    /// A receive cannot be posted again: only after a fault of the test.
    pub fn poll(&mut self) -> Polled {
        let mut batch = [Completion::EMPTY; 8];
        let done = self.completions.poll(&mut batch);
        for one in done {
            self.received.push((one.id, Instant::now()));
            let piece = [self.region.slice(0..BYTES).expect("inside the region")];
            let posted = self.queue_pair.receive(one.id + POSTED, &piece);
            posted.expect("a place in the receive queue");
        }
        self.count.store(self.received.len(), Ordering::Release);
        if done.is_empty() {
            Polled::Idle
        } else {
            Polled::Worked
        }
    }
}

/// Sleeps on the device's interrupt.
#[derive(Clone, Copy, Debug)]
pub struct OnInterrupt;

impl Sleeper<Receiver> for OnInterrupt {
    fn arm(&mut self, state: &mut Receiver) -> bool {
        state.completions.arm(Notify::Next);
        let worked = state.poll() == Polled::Worked;
        state.early += usize::from(worked);
        !worked
    }

    fn interrupt<'s>(&self, state: &'s Receiver) -> Option<BorrowedFd<'s>> {
        Some(state.interrupts.as_fd())
    }

    fn woken(&mut self, state: &mut Receiver, interrupted: bool) {
        if interrupted {
            // The completion that ended the sleep is handled first: register writes follow, which
            // take a while if registers are accessed by messages.
            state.poll();
            state.interrupted += 1;
            state.interrupts.take().expect("the interrupt");
        }
        let mut queues = Vec::new();
        let own = state.completions.event_queue();
        let taken = state.device.poll_completion_events_of(own, &mut queues);
        taken.expect("completion events");
    }
}
