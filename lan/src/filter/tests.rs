use super::*;
use crate::testing::QueueParts;
use ringside_bus::Words;
use std::sync::atomic::AtomicU64;

/// A clock whose pauses let the device do its part.
struct Device<'a> {
    now: AtomicU64,
    act: &'a (dyn Fn() + Sync),
}

impl Clock for Device<'_> {
    fn now(&self) -> ringside_bus::Instant {
        ringside_bus::Instant(self.now.load(Ordering::Relaxed))
    }
    fn pause(&self, at_most: Duration) {
        self.now
            .fetch_add(at_most.as_nanos() as u64, Ordering::Relaxed);
        (self.act)();
    }
}

struct Rig {
    ring: Words,
    reports: Words,
    queue: FilterQueue,
    bench: QueueParts,
}

fn rig() -> Rig {
    let bench = QueueParts::new();
    let (ring, words) = bench.ring(FILTER_RING_ENTRIES, 16);
    let (reports, report_words) = bench.ring(FILTER_RING_ENTRIES, 32);
    let packets = bench.dma.allocate(FILTER_PACKETS_BYTES, 4096).unwrap();
    let memory = FilterMemory {
        ring,
        reports,
        packets,
    };
    let service = Arc::clone(&bench.service);
    // Both doorbells in one place: what was rung last is a tail of reports.
    let queue = FilterQueue::new(memory, bench.doorbell(), bench.doorbell(), service).unwrap();
    Rig {
        ring: words,
        reports: report_words,
        queue,
        bench,
    }
}

const LIMIT: Duration = Duration::from_millis(5);

/// Programs one rule on a device that does `act` at each pause.
fn program(rig: &mut Rig, act: &(dyn Fn() + Sync)) -> Result<(), FilterError> {
    let device = Device {
        now: AtomicU64::new(0),
        act,
    };
    let identity = FilterIdentity::ZERO.with_kind(8);
    rig.queue
        .program(FilterAction::ZERO, identity, &[1, 2, 3], &device, LIMIT)
}

#[test]
fn outcomes_are_those_that_the_device_reports_around_the_ring() {
    let mut rig = rig();
    let done = FilterStatus::ZERO.with_done(true);
    let outcomes = [
        (done, Ok(())),
        (done.with_failed(true), Err(FilterError::Refused)),
        (
            done.with_failed(true).with_no_profile(true),
            Err(FilterError::NoProfile),
        ),
    ];
    // More than once around both rings.
    for round in 0..150usize {
        let (status, outcome) = outcomes[round % 3];
        let slot = 2 * (round % 32);
        let report = round % 64;
        let (ring, reports) = (rig.ring.clone(), rig.reports.clone());
        let act = move || {
            ring.store(slot * 2 + 3, DataCommand::DONE.0);
            reports.store_release(report * 4 + 1, status.0);
        };
        assert_eq!(program(&mut rig, &act), outcome, "round {round}");
        assert_eq!(
            rig.bench.rung() as usize,
            report,
            "the report is offered again"
        );
        assert_eq!(rig.reports.load(report * 4 + 1), 0);
    }
    rig.bench.service.fail();
    rig.bench.service.release();
}

#[test]
fn a_device_that_does_not_report_is_not_asked_again() {
    let mut rig = rig();
    let silent = program(&mut rig, &|| {}).expect_err("no answer");
    assert!(
        matches!(silent, FilterError::NotReported { waited_ms: 5, .. }),
        "{silent}"
    );
    let before = rig.bench.rung();
    assert_eq!(program(&mut rig, &|| {}), Err(FilterError::Lost));
    assert_eq!(rig.bench.rung(), before, "nothing more was offered");
    rig.bench.service.fail();
    assert_eq!(program(&mut rig, &|| {}), Err(FilterError::OutOfService));
    rig.bench.service.release();
}

#[test]
fn memory_goes_back_when_the_device_was_reset_and_not_before() {
    let rig = rig();
    let Rig { queue, bench, .. } = rig;
    let used = bench.dma.usage().used_bytes;
    bench.service.fail();
    drop(queue);
    assert_eq!(
        bench.dma.usage().used_bytes,
        used,
        "the device may still write"
    );
    bench.service.release();
    assert_eq!(bench.dma.usage().used_bytes, 0);
    // A failure that is noticed only now keeps nothing back.
    bench.service.fail();
    assert!(bench.service.is_released());
}
