//! The end of a device under objects in use, and memory of another device.

use ringside_pmd::rdma::{Access, Flags, PostError, RdmaError, Status};
use ringside_testkit::Pair;
use std::time::{Duration, Instant};

#[test]
fn a_shutdown_delivers_what_completed_and_flushes_the_rest() {
    let pair = Pair::new();
    let (from, to) = (pair.a.region(64), pair.b.region(64));
    let (mut qp, _peer) = pair.connect(|config| config);
    let piece = [from.slice(0..8).unwrap()];
    for id in 0..5 {
        qp.write(id, &piece, to.remote().at(0), Flags::SIGNALLED)
            .unwrap();
    }
    qp.ring();
    for _ in 0..200 {
        pair.pass();
    }
    for id in 10..13 {
        qp.receive(id, &piece).unwrap();
    }
    // Posted, and the device has not seen it.
    qp.write(5, &piece, to.remote().at(0), Flags::SIGNALLED)
        .unwrap();
    let Pair { world, a, b } = pair;
    let interrupts = a.device.interrupts().unwrap();
    let (mut completions, domain) = (a.completions, a.domain);
    let waiting = std::thread::spawn(move || {
        let begun = Instant::now();
        while interrupts.wait(Duration::from_secs(20)).is_ok() {}
        begun.elapsed()
    });
    let report = a.device.shutdown();
    assert!(report.failures.is_empty(), "{:#?}", report.failures);
    let waited = waiting.join().unwrap();
    assert!(waited < Duration::from_secs(15), "{waited:?}");
    let mut batch = [ringside_pmd::rdma::Completion::EMPTY; 16];
    let mut seen = Vec::new();
    for _ in 0..4 {
        let polled = completions.poll(&mut batch);
        seen.extend(polled.iter().map(|one| (one.id, one.status())));
    }
    let succeeded = (0..5).map(|id| (id, Status::Success));
    let flushed = [5, 10, 11, 12].map(|id| (id, Status::Flushed));
    assert_eq!(seen, succeeded.chain(flushed).collect::<Vec<_>>());
    let refused = qp.write(6, &piece, to.remote().at(0), Flags::SIGNALLED);
    assert!(matches!(refused, Err(PostError::Destroyed)), "{refused:?}");
    drop((qp, from, to, domain, completions, b, world));
}

#[test]
fn memory_of_another_device_is_refused() {
    let pair = Pair::new();
    let buffer = pair.b.device.allocate(4096).unwrap();
    let refused = pair.a.domain.register(buffer, Access::ALL).unwrap_err();
    assert_eq!(refused.error, RdmaError::ForeignMemory);
    let region = pair.b.domain.register_all(refused.buffers, Access::ALL);
    let mut fast = pair.a.domain.fast_region(1).unwrap();
    let buffers = region.unwrap().deregister().unwrap();
    let refused = fast.load(buffers).unwrap_err();
    assert_eq!(refused.error, RdmaError::ForeignMemory);
    drop((fast, refused));
    pair.finish();
}
