//! Queue pairs on threads other than the one that recovers the device, in real time.

use ringside_bus::PageSize;
use ringside_model::Fault;
use ringside_model::function::ResetKind;
use ringside_pmd::Device;
use ringside_pmd::rdma::{
    Access, Completion, CompletionQueue, Connected, Endpoint, Flags, MemoryRegion, PostError,
    QueuePair, QueuePairConfig, RemoteRegion,
};
use ringside_testkit::{bring_up_all, config, threaded};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

const THREADS: usize = 3;
const LIMIT: Duration = Duration::from_secs(60);

/// The objects that a thread owns.
struct Share {
    queue_pair: QueuePair<Connected>,
    completions: CompletionQueue,
    region: MemoryRegion,
    remote: RemoteRegion,
}

/// Requests by number, and how often each completed.
#[derive(Default)]
struct Book(Vec<u32>);

impl Book {
    fn note(&mut self, batch: &[Completion]) {
        for done in batch {
            self.0[done.id as usize] += 1;
        }
    }
}

/// Posts until the device refuses, then polls until everything has completed.
fn work(mut share: Share, busy: &AtomicU32) -> Book {
    let mut book = Book::default();
    let mut batch = [Completion::EMPTY; 32];
    let bytes = share.region.slice(0..4096).expect("inside");
    let place = share.remote.at(0);
    let began = Instant::now();
    let mut said = false;
    loop {
        let id = book.0.len() as u64;
        match share
            .queue_pair
            .write(id, &[bytes], place, Flags::SIGNALLED)
        {
            Ok(()) => {
                book.0.push(0);
                share.queue_pair.ring();
            }
            Err(PostError::QueueFull) => {}
            Err(PostError::DeviceFailed) => break,
            Err(error) => panic!("{error}"),
        }
        book.note(share.completions.poll(&mut batch));
        if !said && book.0.first() == Some(&1) {
            said = true;
            busy.fetch_add(1, Ordering::Relaxed);
        }
        assert!(began.elapsed() < LIMIT, "the device never failed");
    }
    while book.0.contains(&0) {
        book.note(share.completions.poll(&mut batch));
        assert!(began.elapsed() < LIMIT, "requests never completed");
    }
    book
}

/// A connection: the resources of a thread at this end, and the other end with its memory.
fn share(near: &Device, far: &Device) -> (Share, (QueuePair<Connected>, MemoryRegion)) {
    let domain = near.protection_domain().expect("a domain");
    let completions = near.completion_queue(256).expect("a queue");
    let memory = near
        .allocate_aligned(4096, PageSize::FourKiB)
        .expect("memory");
    let region = domain.register(memory, Access::ALL).expect("a region");
    let queue_pair = domain
        .queue_pair(QueuePairConfig::reliable(&completions))
        .expect("a queue pair");
    let endpoint: Endpoint = queue_pair.endpoint();
    let far_domain = far.protection_domain().expect("a domain");
    let far_queue = far.completion_queue(64).expect("a queue");
    let peer = far_domain
        .queue_pair(QueuePairConfig::reliable(&far_queue))
        .expect("a queue pair");
    let to_peer = peer.endpoint();
    let memory = far.allocate(4096).expect("memory");
    let target = far_domain.register(memory, Access::ALL).expect("a region");
    let share = Share {
        queue_pair: queue_pair.connect(&to_peer).expect("connected"),
        completions,
        region,
        remote: target.remote(),
    };
    let peer = peer.connect(&endpoint).expect("connected");
    (share, (peer, target))
}

#[test]
fn requests_of_other_threads_complete_exactly_once_while_the_device_is_recovered() {
    let model = threaded();
    let [mut near, far] = bring_up_all(|index| model.function(index), &config());
    for kind in [ResetKind::Function, ResetKind::Core] {
        let busy = AtomicU32::new(0);
        let (mut shares, mut peers) = (Vec::new(), Vec::new());
        for _ in 0..THREADS {
            let (mine, peer) = share(&near, &far);
            shares.push(mine);
            peers.push(peer);
        }
        let books = std::thread::scope(|scope| {
            let threads: Vec<_> = shares
                .into_iter()
                .map(|share| scope.spawn(|| work(share, &busy)))
                .collect();
            let began = Instant::now();
            while busy.load(Ordering::Relaxed) < THREADS as u32 {
                assert!(began.elapsed() < LIMIT, "no traffic");
                std::thread::yield_now();
            }
            model.with(move |world| world.inject(0, Fault::Reset(kind)));
            let mut events = Vec::new();
            while near.failure().is_none() {
                near.poll_events(&mut events).expect("events");
                assert!(began.elapsed() < LIMIT, "unnoticed");
            }
            // While they still poll.
            near.recover().expect("back in service");
            threads
                .into_iter()
                .map(|thread| thread.join().expect("a thread"))
                .collect::<Vec<_>>()
        });
        for book in books {
            assert!(book.0.iter().all(|times| *times == 1), "{:?}", book.0);
            assert!(!book.0.is_empty());
        }
        drop(peers);
        assert_eq!(near.failure(), None);
    }
    for device in [near, far] {
        let report = device.shutdown();
        assert!(report.failures.is_empty(), "{:#?}", report.failures);
        assert_eq!(report.leaked_bytes, 0);
    }
}
