//! Traffic between two devices, with a record of each request and its result.

use crate::failure::Failure;
use anyhow::anyhow;
use ringside_pmd::Device;
use ringside_pmd::rdma::{
    Access, Completion, CompletionQueue, Connected, Flags, MemoryRegion, PostError,
    ProtectionDomain, QueuePair, QueuePairConfig, RemoteRegion,
};
use std::time::{Duration, Instant};

/// Bytes of a message.
pub(crate) const MESSAGE: usize = 16 << 10;

/// Queue pairs.
const QUEUE_PAIRS: usize = 4;

/// Requests in flight on each.
const DEPTH: u64 = 16;

/// The longest time without a completion while requests are under way: far more than the device
/// needs, so that a process that gets no core for a while is not taken for a bug of it.
const PATIENCE: Duration = Duration::from_secs(30);

/// The objects of one end of the traffic.
pub(crate) struct Side {
    // Order of fields is order of dropping.
    queue_pairs: Vec<QueuePair<Connected>>,
    completions: CompletionQueue,
    source: MemoryRegion,
    target: MemoryRegion,
    _domain: ProtectionDomain,
    book: Book,
}

/// Posted requests by number, with a mark for the completed ones.
#[derive(Default)]
struct Book {
    completed: Vec<bool>,
    outstanding: u64,
    succeeded: u64,
    flushed: u64,
}

impl Book {
    fn post(&mut self) -> u64 {
        self.completed.push(false);
        self.outstanding += 1;
        self.completed.len() as u64 - 1
    }

    fn take_back(&mut self) {
        self.completed.pop();
        self.outstanding -= 1;
    }

    fn complete(&mut self, completion: &Completion) -> Result<(), Failure> {
        let place = usize::try_from(completion.id).ok();
        let place = place.and_then(|place| self.completed.get_mut(place));
        match place {
            Some(place @ false) => *place = true,
            Some(true) => {
                return Err(Failure::wrong(anyhow!(
                    "request {} completed twice",
                    completion.id
                )));
            }
            None => {
                return Err(Failure::wrong(anyhow!(
                    "request {} completed and was never posted",
                    completion.id
                )));
            }
        }
        self.outstanding -= 1;
        if completion.is_success() {
            self.succeeded += 1;
        } else {
            self.flushed += 1;
        }
        Ok(())
    }
}

/// Both ends connected.
pub(crate) fn connect(client: &Device, server: &Device) -> Result<[Side; 2], Failure> {
    let [one, other] = [Half::new(client)?, Half::new(server)?];
    let endpoints = [&one, &other].map(|half| {
        let queue_pairs = half.queue_pairs.iter();
        queue_pairs.map(QueuePair::endpoint).collect::<Vec<_>>()
    });
    let [of_one, of_other] = endpoints;
    Ok([one.connect(&of_other)?, other.connect(&of_one)?])
}

struct Half {
    queue_pairs: Vec<QueuePair>,
    completions: CompletionQueue,
    source: MemoryRegion,
    target: MemoryRegion,
    domain: ProtectionDomain,
}

impl Half {
    fn new(device: &Device) -> Result<Self, Failure> {
        let domain = device.protection_domain()?;
        let region = || -> Result<MemoryRegion, Failure> {
            let memory = device.allocate(QUEUE_PAIRS * MESSAGE)?;
            Ok(domain.register(memory, Access::ALL)?)
        };
        let (source, target) = (region()?, region()?);
        let completions = device.completion_queue(4 * DEPTH as u32 * QUEUE_PAIRS as u32)?;
        let config = QueuePairConfig::reliable(&completions)
            .send_requests(2 * DEPTH as u32)
            .receive_requests(2 * DEPTH as u32);
        let queue_pairs = (0..QUEUE_PAIRS)
            .map(|_| domain.queue_pair(config.clone()))
            .collect::<Result<Vec<_>, _>>()?;
        Ok(Self {
            queue_pairs,
            completions,
            source,
            target,
            domain,
        })
    }

    fn connect(self, peers: &[ringside_pmd::rdma::Endpoint]) -> Result<Side, Failure> {
        let both = self.queue_pairs.into_iter().zip(peers);
        let queue_pairs = both
            .map(|(queue_pair, peer)| queue_pair.connect(peer).map_err(|failed| failed.error))
            .collect::<Result<_, _>>()?;
        Ok(Side {
            queue_pairs,
            completions: self.completions,
            source: self.source,
            target: self.target,
            _domain: self.domain,
            book: Book::default(),
        })
    }
}

impl Side {
    pub(crate) fn remote(&self) -> RemoteRegion {
        self.target.remote()
    }

    pub(crate) fn outstanding(&self) -> u64 {
        self.book.outstanding
    }

    pub(crate) fn succeeded(&self) -> u64 {
        self.book.succeeded
    }

    pub(crate) fn flushed(&self) -> u64 {
        self.book.flushed
    }

    /// Keeps every queue pair busy: a write, a read and a receive with a send each. Says whether
    /// the device takes requests still.
    pub(crate) fn post(&mut self, remote: &RemoteRegion) -> Result<bool, Failure> {
        let most = DEPTH * QUEUE_PAIRS as u64;
        for (index, queue_pair) in self.queue_pairs.iter_mut().enumerate() {
            if self.book.outstanding >= most {
                break;
            }
            let at = index * MESSAGE;
            let from = self.source.slice(at..at + MESSAGE)?;
            let to = self.target.slice(at..at + MESSAGE)?;
            let place = remote.at(at as u64);
            for step in 0..4 {
                let id = self.book.post();
                let posted = match step {
                    0 => queue_pair.receive(id, &[to]),
                    1 => queue_pair.write(id, &[from], place, Flags::SIGNALLED),
                    2 => queue_pair.read(id, &[from], place, Flags::SIGNALLED),
                    _ => queue_pair.send(id, &[from], Flags::SIGNALLED),
                };
                match posted {
                    Ok(()) => {}
                    Err(PostError::QueueFull) => self.book.take_back(),
                    Err(PostError::DeviceFailed | PostError::Failed) => {
                        self.book.take_back();
                        return Ok(false);
                    }
                    Err(error) => return Err(error.into()),
                }
            }
            queue_pair.ring();
        }
        Ok(true)
    }

    /// Takes completions; returns their number.
    pub(crate) fn poll(&mut self) -> Result<usize, Failure> {
        let mut batch = [Completion::EMPTY; 64];
        let done = self.completions.poll(&mut batch);
        for completion in done {
            self.book.complete(completion)?;
        }
        Ok(done.len())
    }

    /// Fails the queue pairs of a device that stays in service, so that all their requests
    /// complete.
    pub(crate) fn give_up(&mut self) -> Result<(), Failure> {
        for queue_pair in &mut self.queue_pairs {
            queue_pair.fail()?;
        }
        Ok(())
    }

    /// Polls until everything posted has completed.
    pub(crate) fn drain(&mut self, what: &str) -> Result<(), Failure> {
        let mut silent_since = Instant::now();
        while self.book.outstanding > 0 {
            if self.poll()? > 0 {
                silent_since = Instant::now();
            } else if silent_since.elapsed() > PATIENCE {
                return Err(Failure::wrong(anyhow!(
                    "{} requests of {what} never completed",
                    self.book.outstanding
                )));
            }
        }
        Ok(())
    }
}

/// One message each way, every byte compared.
pub(crate) fn verify(sides: &mut [Side; 2], pattern: u64) -> Result<u64, Failure> {
    let [one, other] = sides;
    verify_one(one, other, pattern)?;
    verify_one(other, one, pattern + 1)?;
    Ok(2)
}

fn verify_one(from: &mut Side, to: &mut Side, pattern: u64) -> Result<(), Failure> {
    let bytes: Vec<u8> = (0..MESSAGE as u64)
        .map(|index| (index.wrapping_mul(31) ^ pattern.wrapping_mul(0x9E37_79B9)) as u8)
        .collect();
    let copied = from.source.write(0, &bytes) && to.target.fill(0xEE);
    if !copied {
        return Err(Failure::operation(anyhow!(
            "a message is longer than its region"
        )));
    }
    let target = to.target.slice(0..MESSAGE)?;
    let source = from.source.slice(0..MESSAGE)?;
    let receive = to.book.post();
    let send = from.book.post();
    let [queue_pair, peer] = [from.queue_pairs.first_mut(), to.queue_pairs.first_mut()];
    let (Some(queue_pair), Some(peer)) = (queue_pair, peer) else {
        return Err(Failure::operation(anyhow!("there is no queue pair")));
    };
    peer.receive(receive, &[target])?;
    queue_pair.send(send, &[source], Flags::SIGNALLED)?;
    queue_pair.ring();
    let began = Instant::now();
    while from.outstanding() + to.outstanding() > 0 {
        if from.poll()? + to.poll()? == 0 && began.elapsed() > PATIENCE {
            return Err(Failure::operation(anyhow!(
                "a message to be verified did not arrive within {PATIENCE:?}"
            )));
        }
    }
    let mut arrived = vec![0; MESSAGE];
    if from.flushed() + to.flushed() > 0 {
        return Err(Failure::operation(anyhow!(
            "a message to be verified failed"
        )));
    }
    if !to.target.read(0, &mut arrived) || arrived != bytes {
        return Err(Failure::wrong(anyhow!(
            "a message arrived with other bytes"
        )));
    }
    Ok(())
}

/// A region filled with one byte.
trait Fill {
    fn fill(&self, byte: u8) -> bool;
}

impl Fill for MemoryRegion {
    fn fill(&self, byte: u8) -> bool {
        self.write(0, &vec![byte; MESSAGE])
    }
}
