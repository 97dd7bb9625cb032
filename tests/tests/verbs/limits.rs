//! Quotas, and objects destroyed while the device does not respond.

use ringside_model::Fault;
use ringside_pmd::rdma::{
    Access, DeregisterError, Destination, Event, Flags, QueuePairConfig, Quotas, RdmaError,
    WindowKind,
};
use ringside_spec::rdma::commands::Opcode;
use ringside_testkit::{End, Pair};
use std::time::Duration;

#[test]
fn a_domain_gets_what_its_quotas_allow_and_gets_it_back() {
    let pair = Pair::new();
    let quotas = Quotas {
        queue_pairs: 2,
        memory_regions: 3,
        registered_bytes: 10_000,
        address_handles: 1,
    };
    let domain = pair.a.device.protection_domain_with(quotas).unwrap();
    let refused = |error: RdmaError, what: &str| {
        let text = error.to_string();
        assert!(matches!(error, RdmaError::Quota { .. }), "{text}");
        assert!(text.contains(what), "{text}");
    };
    for _ in 0..3 {
        let pairs: Vec<_> = (0..2)
            .map(|_| domain.queue_pair(pair.a.config()).unwrap())
            .collect();
        refused(
            domain.queue_pair(pair.a.config()).unwrap_err(),
            "2 queue pairs",
        );
        let register = |bytes| {
            let buffer = pair.a.device.allocate(bytes).unwrap();
            domain.register(buffer, Access::ALL)
        };
        let region = register(8192).unwrap();
        refused(
            register(4096).unwrap_err().error,
            "bytes of registered memory",
        );
        let window = domain.memory_window(WindowKind::Two).unwrap();
        let fast = domain.fast_region(1).unwrap();
        refused(register(64).unwrap_err().error, "3 memory regions");
        let peer = Destination::from(&pairs[0].endpoint());
        let handle = domain.address_handle(&peer).unwrap();
        refused(
            domain.address_handle(&peer).unwrap_err(),
            "1 address handles",
        );
        // Others have their own.
        assert!(pair.a.domain.address_handle(&peer).is_ok());
        drop((pairs, region, window, fast, handle));
    }
    drop(domain);
    pair.finish();
}

/// The queue of receives of targets of RDMA writes has nothing to poll.
#[test]
fn queue_pairs_end_on_a_completion_queue_that_is_not_polled_and_keep_no_number() {
    let mut pair = Pair::new();
    let mut unpolled = pair.a.domain.completion_queue(64).unwrap();
    let target = unpolled.target();
    let config = || {
        let all = QueuePairConfig::reliable(&pair.a.completions);
        all.receives_report_to(target.clone())
    };
    let most = pair.a.device.object_usage().unwrap().queue_pairs.limit;
    let held: Vec<_> = (1..most)
        .map(|_| pair.a.domain.queue_pair(config()).unwrap())
        .collect();
    let full = loop {
        match pair.a.domain.queue_pair(config()) {
            Ok(one) => one.destroy().unwrap(),
            Err(error) => break error,
        }
    };
    assert!(matches!(full, RdmaError::Handle(_)), "{full}");
    drop(held);
    unpolled.take_requests();
    pair.a.completions.take_requests();
    let all: Vec<_> = (0..most)
        .map(|_| pair.a.domain.queue_pair(pair.a.config()).unwrap())
        .collect();
    drop((all, unpolled));
    pair.finish();
}

/// A reset makes the queue pair anew: it is refused before the old one is destroyed.
#[test]
fn a_reset_that_a_completion_queue_has_no_room_for_leaves_the_queue_pair() {
    let mut pair = Pair::new();
    let mut unpolled = pair.a.domain.completion_queue(64).unwrap();
    let target = unpolled.target();
    let config = pair.a.config().receives_report_to(target);
    let (one, peer) = (
        pair.a.queue_pair(config),
        pair.b.queue_pair(pair.b.config()),
    );
    let mut qp = one.connect(&peer.endpoint()).unwrap();
    let full = loop {
        pair.a.completions.take_requests();
        match qp.reset() {
            Ok(prepared) => qp = prepared.connect(&peer.endpoint()).unwrap(),
            Err(error) => break error,
        }
    };
    assert!(matches!(full.error, RdmaError::Handle(_)), "{full}");
    let qp = full.into_queue_pair().expect("it still exists");
    unpolled.take_requests();
    let qp = qp.reset().unwrap();
    drop((qp, peer, unpolled));
    pair.finish();
}

fn silence(pair: &Pair, opcode: Opcode) {
    let opcode = opcode.code();
    let fault = Fault::ControlCommandSilent { opcode };
    pair.world.with(|world| world.inject(0, fault));
}

/// The time limit of any call while the device does not respond: one command's deadline and some
/// time around it.
const BOUND: Duration = Duration::from_millis(5_100);

#[test]
fn destroying_anything_ends_in_time_and_what_is_not_confirmed_is_quarantined_and_reclaimed() {
    let cases = [
        (Opcode::ModifyQueuePair, "queue pair"),
        (Opcode::DestroyQueuePair, "queue pair"),
        (Opcode::DestroyCompletionQueue, "completion queue"),
        (Opcode::DeallocateStag, "memory region"),
    ];
    for (opcode, what) in cases {
        let pair = Pair::new();
        let (mut qp, peer) = pair.connect(|config| config);
        let (from, to) = (pair.a.region(8192), pair.b.region(8192));
        let queue = pair.a.device.completion_queue(64).unwrap();
        let piece = [from.slice(0..8).unwrap()];
        for id in 0..20 {
            qp.write(id, &piece, to.remote().at(0), Flags::SIGNALLED)
                .unwrap();
        }
        qp.ring();
        silence(&pair, opcode);
        let clock = pair.world.clock();
        let begin = clock.now();
        drop(queue);
        drop(qp);
        let kept = from.deregister();
        let took = clock.now().since(begin);
        assert!(took <= BOUND, "{opcode:?}: {took:?}");
        // The first that got no answer is kept, and so is all after it.
        let quarantine = pair.a.device.quarantine().unwrap();
        assert_eq!(quarantine[0].what, what, "{opcode:?}: {quarantine:#?}");
        assert!(quarantine[0].reason.contains("did not answer"));
        let error = kept.unwrap_err();
        let is_right = match &error {
            DeregisterError::Kept { bytes, .. } => {
                opcode == Opcode::DeallocateStag && *bytes == 8192
            }
            // The device was taken out of service when the queue pair was not confirmed.
            DeregisterError::InUse { error, .. } => {
                opcode != Opcode::DeallocateStag && matches!(error, RdmaError::DeviceFailed { .. })
            }
        };
        assert!(is_right, "{opcode:?}: {error}");
        drop((peer, to));
        // The reset of the shutdown gives all of it back.
        let Pair { world, a, b } = pair;
        for (index, end) in [a, b].into_iter().enumerate() {
            let End {
                device,
                domain,
                completions,
            } = end;
            drop((completions, domain));
            let report = device.shutdown();
            assert!(report.failures.is_empty(), "{:#?}", report.failures);
            assert_eq!(report.leaked_bytes, 0, "{opcode:?}");
            let breaches = world.with(|world| world.breaches(index));
            assert!(breaches.is_empty(), "{opcode:?}: {breaches:#?}");
        }
    }
}

#[test]
fn requests_of_a_queue_pair_that_cannot_be_flushed_complete_exactly_once_all_the_same() {
    for opcode in [Opcode::ModifyQueuePair, Opcode::FlushWorkQueues] {
        let mut pair = Pair::new();
        let (mut qp, peer) = pair.connect(|config| config);
        let (from, to) = (pair.a.region(64), pair.b.region(64));
        let piece = [from.slice(0..8).unwrap()];
        for id in 0..30 {
            qp.write(id, &piece, to.remote().at(0), Flags::SIGNALLED)
                .unwrap();
        }
        silence(&pair, opcode);
        let error = qp.fail().unwrap_err();
        assert!(error.to_string().contains("did not answer"), "{error}");
        let mut ids: Vec<u64> = pair.wait_a(30).iter().map(|done| done.id).collect();
        ids.sort_unstable();
        assert_eq!(ids, (0..30).collect::<Vec<_>>(), "{opcode:?}");
        for _ in 0..20 {
            pair.pass();
            let mut batch = [ringside_pmd::rdma::Completion::EMPTY; 4];
            assert!(pair.a.completions.poll(&mut batch).is_empty());
        }
        drop((qp, peer, from, to));
    }
}

#[test]
fn a_peer_that_does_wrong_again_and_again_is_named() {
    let mut pair = Pair::new();
    let (from, to) = (pair.a.region(64), pair.b.region(64));
    pair.b.device.watch_peers(3).unwrap();
    let mut suspected = Vec::new();
    for _ in 0..7 {
        let (mut qp, peer) = pair.connect(|config| config);
        let mut wrong = to.remote();
        wrong.key ^= 1 << 20;
        let piece = [from.slice(0..8).unwrap()];
        qp.write(1, &piece, wrong.at(0), Flags::SIGNALLED).unwrap();
        qp.ring();
        for _ in 0..20 {
            pair.pass();
            let _ = pair.a.events();
            suspected.extend(pair.b.events().into_iter().filter_map(|event| match event {
                Event::PeerSuspected { peer, faults } => Some((peer, faults)),
                _ => None,
            }));
        }
        pair.wait_a(1);
        drop((qp, peer));
    }
    let mac = pair.a.device.facts().mac.unwrap();
    assert_eq!(suspected, [(mac, 3), (mac, 6)]);
    drop((from, to));
    pair.finish();
}
