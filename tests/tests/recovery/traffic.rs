//! Traffic both ways between two ends, with a ledger of posted and completed requests.

use ringside_pmd::rdma::{
    Completion, Connected, Flags, MemoryRegion, PostError, QueuePair, RemoteRegion,
};
use ringside_testkit::{End, Pair};
use std::collections::BTreeMap;

/// Bytes that each message carries.
pub(crate) const MESSAGE: usize = 4096;

/// Bytes of a region: half is read from, half is written to.
const REGION: usize = 16 * MESSAGE;

/// One end of a connection that carries traffic.
pub(crate) struct Side {
    pub(crate) queue_pair: QueuePair<Connected>,
    pub(crate) region: MemoryRegion,
    next: u64,
    /// posted: number, and how often it completed
    pub(crate) posted: BTreeMap<u64, u32>,
    /// completed with success
    pub(crate) succeeded: u64,
}

impl Side {
    /// Posts some of each kind: receives, writes, reads and sends. Stops if a queue is full; any
    /// other refusal is returned.
    pub(crate) fn post(&mut self, remote: &RemoteRegion, rounds: u64) -> Result<(), PostError> {
        let fragment = self.region.slice(0..MESSAGE).expect("inside");
        let target = self.region.slice(MESSAGE..2 * MESSAGE).expect("inside");
        let place = remote.at((REGION / 2) as u64);
        for _ in 0..rounds {
            for kind in 0..4 {
                let id = self.next;
                let result = match kind {
                    0 => self.queue_pair.receive(id, &[target]),
                    1 => self
                        .queue_pair
                        .write(id, &[fragment], place, Flags::SIGNALLED),
                    2 => self.queue_pair.read(id, &[target], place, Flags::SIGNALLED),
                    _ => self.queue_pair.send(id, &[fragment], Flags::SIGNALLED),
                };
                match result {
                    Ok(()) => {
                        self.next += 1;
                        self.posted.insert(id, 0);
                    }
                    Err(PostError::QueueFull) => {}
                    Err(error) => return Err(error),
                }
            }
        }
        self.queue_pair.ring();
        Ok(())
    }

    /// Takes the completions and counts them.
    pub(crate) fn count(&mut self, end: &mut End) -> usize {
        let mut batch = [Completion::EMPTY; 32];
        let mut all = 0;
        loop {
            let done = end.completions.poll(&mut batch);
            if done.is_empty() {
                return all;
            }
            for completion in done {
                assert_eq!(completion.queue_pair(), self.queue_pair.number());
                let times = self.posted.get_mut(&completion.id);
                let times = times.unwrap_or_else(|| panic!("never posted: {completion:?}"));
                *times += 1;
                assert_eq!(*times, 1, "{completion:?} completed again");
                self.succeeded += u64::from(completion.is_success());
                all += 1;
            }
        }
    }

    /// The requests that have not completed.
    pub(crate) fn outstanding(&self) -> usize {
        self.posted.values().filter(|times| **times == 0).count()
    }
}

/// A connection between both ends, with a region on each.
pub(crate) fn connect(pair: &Pair) -> [Side; 2] {
    let (a, b) = pair.connect(|config| config);
    let side = |queue_pair, end: &End, first: u64| Side {
        queue_pair,
        region: end.region(REGION),
        next: first,
        posted: BTreeMap::new(),
        succeeded: 0,
    };
    [side(a, &pair.a, 0), side(b, &pair.b, 1 << 32)]
}

/// A message from `a` to `b` and one back arrive as they were sent.
pub(crate) fn exchange(pair: &mut Pair, pattern: u8) {
    let [mut a, mut b] = connect(pair);
    let bytes = vec![pattern; MESSAGE];
    assert!(a.region.write(0, &bytes));
    let target = b.region.slice(0..MESSAGE).expect("inside");
    b.queue_pair.receive(7, &[target]).expect("a receive");
    let source = a.region.slice(0..MESSAGE).expect("inside");
    a.queue_pair
        .send(8, &[source], Flags::SIGNALLED)
        .expect("a send");
    a.queue_pair.ring();
    assert!(pair.wait_a(1)[0].is_success());
    assert!(pair.wait_b(1)[0].is_success());
    let mut arrived = vec![0; MESSAGE];
    assert!(b.region.read(0, &mut arrived));
    assert_eq!(arrived, bytes);
    let back = a.region.remote().at(MESSAGE as u64);
    b.queue_pair
        .write(9, &[target], back, Flags::SIGNALLED)
        .expect("a write");
    b.queue_pair.ring();
    assert!(pair.wait_b(1)[0].is_success());
    assert!(a.region.read(MESSAGE, &mut arrived));
    assert_eq!(arrived, bytes);
}
