//! A shared receive queue of a device that fails.

use ringside_model::Fault;
use ringside_model::function::ResetKind;
use ringside_pmd::rdma::{Completion, Flags, PostError, SharedReceiveConfig, Status};
use ringside_spec::rdma::commands::Opcode;
use ringside_testkit::Pair;
use std::collections::BTreeSet;

#[test]
fn shared_receives_complete_exactly_once_wherever_they_are_when_the_device_fails() {
    for destroyed_first in [None, Some(By::SharedQueue), Some(By::Itself)] {
        flush_all(destroyed_first);
    }
}

/// The way in which a queue pair of a shared queue is destroyed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    SharedQueue,
    Itself,
}

fn flush_all(destroyed_first: Option<By>) {
    let mut pair = Pair::new();
    let config = SharedReceiveConfig {
        receives: 64,
        fragments: 1,
        window: 8,
    };
    let mut shared = pair.a.domain.shared_receive_queue(&config).expect("shared");
    let region = pair.a.region(64 * 64);
    let connections: Vec<_> = (0..3).map(|_| pair.connect(|config| config)).collect();
    let (mut members, mut peers): (Vec<_>, Vec<_>) = connections.into_iter().unzip();
    for member in &mut members {
        shared.attach(member).expect("a member");
    }
    for id in 0..60 {
        let at = id as usize * 64;
        let place = region.slice(at..at + 64).expect("inside");
        shared.post(id, &[place]).expect("room");
    }
    let source = pair.b.region(64);
    for (id, peer) in peers.iter_mut().enumerate() {
        let bytes = source.slice(0..64).expect("inside");
        peer.send(id as u64, &[bytes], Flags::SIGNALLED)
            .expect("a send");
        peer.ring();
    }
    pair.wait_b(3);
    pair.world
        .with(|world| world.inject(0, Fault::Reset(ResetKind::Function)));
    for _ in 0..200 {
        pair.pass();
        pair.a.device.poll_events(&mut Vec::new()).ok();
    }
    if let Some(by) = destroyed_first
        && let Some(member) = members.pop()
    {
        match by {
            By::SharedQueue => drop(shared.destroy(member).expect("no word to the device")),
            By::Itself => drop(member),
        }
    }
    let mut seen = BTreeSet::new();
    let mut received = 0;
    let mut batch = [Completion::EMPTY; 7];
    for _ in 0..100 {
        for done in shared.poll(&mut pair.a.completions, &mut batch) {
            assert!(seen.insert(done.id), "{done:?} completed again");
            received += u32::from(done.is_received());
            assert!(
                done.is_received() || done.status() == Status::Flushed,
                "{done:?}"
            );
        }
    }
    assert_eq!(seen, (0..60).collect::<BTreeSet<u64>>());
    // The message to a queue pair that was destroyed first was never taken.
    assert_eq!(received, if destroyed_first.is_some() { 2 } else { 3 });
    let place = region.slice(0..64).expect("inside");
    assert_eq!(shared.post(99, &[place]), Err(PostError::DeviceFailed));
    pair.a.device.recover().expect("back in service");
    drop((members, peers, shared, region, source));
    crate::causes::renew(&mut pair);
    crate::traffic::exchange(&mut pair, 0x33);
    pair.finish();
}

/// The device may still write to them: they come back once it is reset, each once.
#[test]
fn receives_of_a_queue_pair_whose_destruction_is_not_confirmed_complete_after_the_reset() {
    for by in [By::SharedQueue, By::Itself] {
        complete_after_the_reset(by);
    }
}

fn complete_after_the_reset(by: By) {
    let mut pair = Pair::new();
    let config = SharedReceiveConfig {
        receives: 16,
        fragments: 1,
        window: 8,
    };
    let mut shared = pair.a.domain.shared_receive_queue(&config).expect("shared");
    let region = pair.a.region(64);
    let place = region.slice(0..64).expect("inside");
    let (mut member, peer) = pair.connect(|config| config);
    shared.attach(&mut member).expect("a member");
    for id in 0..16 {
        shared.post(id, &[place]).expect("room");
    }
    let opcode = Opcode::DestroyQueuePair.code();
    let silent = Fault::ControlCommandSilent { opcode };
    pair.world.with(|world| world.inject(0, silent));
    let destroyed = match by {
        By::SharedQueue => shared.destroy(member).map(|_| ()),
        By::Itself => member.destroy(),
    };
    destroyed.expect_err("no answer");
    assert_eq!(shared.left(), 16);
    pair.world.with(|world| world.clear_faults(0));
    pair.a.device.poll_events(&mut Vec::new()).ok();
    pair.a.device.recover().expect("back in service");
    let (mut ids, mut batch) = (Vec::new(), [Completion::EMPTY; 7]);
    for _ in 0..8 {
        let done = shared.poll(&mut pair.a.completions, &mut batch);
        assert!(done.iter().all(|one| one.status() == Status::Flushed));
        ids.extend(done.iter().map(|one| one.id));
    }
    ids.sort_unstable();
    assert_eq!(ids, (0..16).collect::<Vec<u64>>());
    assert_eq!(shared.left(), 0);
    drop((peer, shared, region));
    crate::causes::renew(&mut pair);
    crate::traffic::exchange(&mut pair, 0x33);
    pair.finish();
}
