//! Accesses to memory that the host refuses, one by one: the operation that needed the memory
//! fails, is reported with its cause, and completes; all others continue.

use crate::causes::renew;
use crate::traffic::{connect, exchange};
use ringside_bus::{Direction, Iova, Refusal};
use ringside_model::{Fault, World};
use ringside_pmd::rdma::{Completion, CompletionQueue, Event, Flags, Status};
use ringside_pmd::recovery::FailureCause;
use ringside_spec::rdma::ae_codes::AeCode;
use ringside_testkit::Pair;
use std::collections::BTreeSet;

/// From now on `a` is refused this.
fn refuse(pair: &Pair, refusal: Refusal) {
    let fault = Fault::DmaRefused(refusal);
    pair.world.with(move |world| world.inject(0, fault));
}

/// Ends the refusal; returns the number of accesses of `a` that were refused.
fn end(pair: &Pair) -> u64 {
    pair.world.with(|world| {
        let refused = world.space(0).expect("a function").refusals();
        world.clear_faults(0);
        refused
    })
}

/// Completions and events of both ends until there is one of each at `a`.
fn failed(pair: &mut Pair) -> (Vec<Completion>, Vec<Event>) {
    let (mut done, mut events) = (Vec::new(), Vec::new());
    let mut batch = [Completion::EMPTY; 16];
    for _ in 0..10_000 {
        done.extend_from_slice(pair.a.completions.poll(&mut batch));
        events.extend(pair.a.events());
        if !done.is_empty() && !events.is_empty() {
            return (done, events);
        }
        pair.pass();
    }
    panic!("{done:?} {events:?}");
}

#[test]
fn a_message_that_the_host_does_not_let_be_read_fails_its_queue_pair_alone() {
    for bytes in [64, 4096] {
        let mut pair = Pair::new();
        let (mut doomed, _peer) = pair.connect(|config| config);
        let [mut neighbour, _other] = connect(&pair);
        let (from, to) = (pair.a.region(4096), pair.b.region(4096));
        let buffer = from.buffers()[0].iova();
        refuse(
            &pair,
            Refusal {
                direction: Some(Direction::Read),
                accesses: None,
                first: buffer,
                bytes: 4096,
            },
        );
        let source = from.slice(0..bytes).expect("inside");
        doomed
            .write(1, &[source], to.remote().at(0), Flags::SIGNALLED)
            .expect("room");
        doomed.ring();
        let (done, events) = failed(&mut pair);
        let [one] = done.as_slice() else {
            panic!("{done:?}");
        };
        assert_eq!(one.id, 1);
        assert!(!one.is_success(), "{one:?}");
        let [
            Event::QueuePairFailed {
                queue_pair, code, ..
            },
        ] = events.as_slice()
        else {
            panic!("{events:?}");
        };
        assert_eq!(
            (*queue_pair, *code),
            (doomed.number(), AeCode::QueuePairCatastrophic)
        );
        neighbour.post(&_other.region.remote(), 2).expect("room");
        for _ in 0..100 {
            neighbour.count(&mut pair.a);
            pair.pass();
        }
        assert!(neighbour.succeeded >= 2, "{}", neighbour.succeeded);
        assert!(end(&pair) > 0);
        drop((doomed, _peer, neighbour, _other, from, to));
        exchange(&mut pair, 0x3C);
        pair.finish();
    }
}

/// Makes a completion queue of `a` so large that its ring has its own block, and a refusal of that
/// block.
fn queue_with_block(pair: &Pair) -> (CompletionQueue, Refusal) {
    let mapped = || -> BTreeSet<(u64, u64)> {
        let list = |world: &mut World| -> BTreeSet<(u64, u64)> {
            let space = world.space(0).expect("a function");
            space.mappings().map(|(at, bytes)| (at.0, bytes)).collect()
        };
        pair.world.with(list)
    };
    let before = mapped();
    let queue = pair.a.device.completion_queue(262_000).expect("a queue");
    let added: Vec<_> = mapped().difference(&before).copied().collect();
    let [(first, bytes)] = added[..] else {
        panic!("{added:x?}");
    };
    let block = Refusal {
        direction: Some(Direction::Write),
        accesses: None,
        first: Iova(first),
        bytes,
    };
    (queue, block)
}

#[test]
fn a_completion_that_the_host_does_not_let_be_written_fails_its_queue_and_flushes_once() {
    let mut pair = Pair::new();
    let (queue, block) = queue_with_block(&pair);
    let kept = std::mem::replace(&mut pair.a.completions, queue);
    let (mut doomed, _peer) = pair.connect(|config| config);
    let queue = std::mem::replace(&mut pair.a.completions, kept);
    let [mut neighbour, other] = connect(&pair);
    let to = pair.b.region(64);
    refuse(&pair, block);
    for id in 0..5 {
        let place = to.remote().at(0);
        doomed
            .write_inline(id, &[7; 8], place, None, Flags::SIGNALLED)
            .expect("room");
    }
    doomed.ring();
    let number = queue.number();
    let kept = std::mem::replace(&mut pair.a.completions, queue);
    let (mut done, events) = failed(&mut pair);
    for _ in 0..100 {
        let mut batch = [Completion::EMPTY; 16];
        done.extend_from_slice(pair.a.completions.poll(&mut batch));
        pair.pass();
    }
    let queue = std::mem::replace(&mut pair.a.completions, kept);
    let failed = Event::CompletionQueueFailed {
        completion_queue: number,
        code: AeCode::CompletionQueueCatastrophic,
    };
    assert_eq!(events, [failed]);
    let each = done.iter().map(|one| (one.id, one.status()));
    let expected = (0..5).map(|id| (id, Status::Flushed));
    assert!(each.eq(expected), "{done:?}");
    // Another queue of the same device continues.
    neighbour.post(&other.region.remote(), 2).expect("room");
    for _ in 0..100 {
        neighbour.count(&mut pair.a);
        pair.pass();
    }
    assert!(neighbour.succeeded >= 2, "{}", neighbour.succeeded);
    assert!(end(&pair) > 0);
    drop((doomed, _peer, neighbour, other, to, queue));
    exchange(&mut pair, 0x3D);
    pair.finish();
}

#[test]
fn while_the_host_refuses_everything_a_device_stays_out_of_service_and_then_comes_back() {
    let mut pair = Pair::new();
    refuse(&pair, Refusal::EVERYTHING);
    for _ in 0..100 {
        pair.a.device.probe();
        pair.pass();
    }
    let mut events = Vec::new();
    pair.a.device.poll_events(&mut events).expect("told once");
    let cause = FailureCause::PciException;
    assert_eq!(events, [Event::DeviceFailed { cause }]);
    for _ in 0..3 {
        pair.a.device.recover().expect_err("no ring is read");
        assert_eq!(pair.a.device.failure(), Some(cause));
    }
    assert!(end(&pair) > 0);
    pair.a.device.recover().expect("back in service");
    renew(&mut pair);
    exchange(&mut pair, 0x77);
    pair.finish();
}
