//! The operations that grant and revoke access to memory: invalidation, windows, fast registration,
//! regions, reregistration.

use ringside_pmd::rdma::{
    Access, Base, BindError, Connected, DeregisterError, FastRegionError, Flags, MemoryRegion,
    Operation, PostError, QueuePair, RdmaError, RemoteAddress, RemoteRegion, Status, WindowKind,
};
use ringside_testkit::Pair;

/// A write of eight bytes from `a` to `remote`; how it ended.
fn write(
    pair: &mut Pair,
    qp: &mut QueuePair<Connected>,
    from: &MemoryRegion,
    remote: RemoteAddress,
) -> Status {
    let pieces = [from.slice(0..8).unwrap()];
    qp.write(99, &pieces, remote, Flags::SIGNALLED).unwrap();
    qp.ring();
    for _ in 0..1_000 {
        pair.pass();
        let _ = pair.b.events();
        let _ = pair.a.events();
        let mut batch = [ringside_pmd::rdma::Completion::EMPTY; 4];
        if let [done, ..] = pair.a.completions.poll(&mut batch) {
            return done.status();
        }
    }
    panic!("the write did not end");
}

/// A connection, and a region of 4096 bytes at `a` and one at `b`.
fn connected() -> (
    Pair,
    QueuePair<Connected>,
    QueuePair<Connected>,
    MemoryRegion,
    MemoryRegion,
) {
    let pair = Pair::new();
    let (a, b) = pair.connect(|config| config);
    let (from, at) = (pair.a.region(4096), pair.b.region(4096));
    assert!(from.write(0, b"ringside"));
    (pair, a, b, from, at)
}

fn text(region: &MemoryRegion, offset: usize) -> [u8; 8] {
    let mut bytes = [0; 8];
    assert!(region.read(offset, &mut bytes));
    bytes
}

#[test]
fn a_window_opens_its_bytes_and_no_others_until_it_is_closed() {
    for kind in [WindowKind::One, WindowKind::Two] {
        let (mut pair, mut a, mut b, from, at) = connected();
        let mut window = pair.b.domain.memory_window(kind).unwrap();
        let access = Access::REMOTE_WRITE;
        let open = b
            .bind_window(1, &mut window, (&at, 1024..2048), access, Flags::SIGNALLED)
            .unwrap();
        b.ring();
        let done = pair.wait_b(1);
        assert_eq!(done[0].status(), Status::Success, "{kind:?}");
        assert_eq!(done[0].operation(), Operation::BindWindow);
        assert_eq!(write(&mut pair, &mut a, &from, open.at(8)), Status::Success);
        assert_eq!(&text(&at, 1032), b"ringside");
        match kind {
            WindowKind::One => {
                let none = (&at, 0..0);
                b.bind_window(2, &mut window, none, access, Flags::SIGNALLED)
                    .unwrap();
            }
            WindowKind::Two => b.invalidate(2, open.key, Flags::SIGNALLED).unwrap(),
        }
        b.ring();
        assert_eq!(pair.wait_b(1)[0].status(), Status::Success, "{kind:?}");
        let status = write(&mut pair, &mut a, &from, open.at(8));
        assert_eq!(status, Status::RemoteAccess, "{kind:?}");
        drop((a, b, window));
        at.deregister().unwrap();
        drop(from);
        pair.finish();
    }
}

#[test]
fn a_region_with_a_window_on_it_stays_and_goes_with_the_window() {
    let (mut pair, a, mut b, from, at) = connected();
    let mut window = pair.b.domain.memory_window(WindowKind::Two).unwrap();
    b.bind_window(
        1,
        &mut window,
        (&at, 0..64),
        Access::REMOTE_READ,
        Flags::SIGNALLED,
    )
    .unwrap();
    b.ring();
    assert_eq!(pair.wait_b(1)[0].status(), Status::Success);
    let error = at.deregister().unwrap_err();
    let text = error.to_string();
    assert!(
        text.contains("memory windows on it first (the device refused"),
        "{text}"
    );
    assert!(!text.contains(';'), "one remedy: {text}");
    let DeregisterError::InUse { region: at, .. } = error else {
        panic!("{error}");
    };
    drop(window);
    assert_eq!(at.deregister().unwrap().len(), 1);
    drop((a, b, from));
    pair.finish();
}

#[test]
fn bytes_beyond_a_window_and_rights_that_it_does_not_give_are_refused() {
    for (offset, access) in [(1020, Access::REMOTE_WRITE), (0, Access::REMOTE_READ)] {
        let (mut pair, mut a, mut b, from, at) = connected();
        let mut window = pair.b.domain.memory_window(WindowKind::Two).unwrap();
        let open = b
            .bind_window(1, &mut window, (&at, 0..1024), access, Flags::SIGNALLED)
            .unwrap();
        b.ring();
        assert_eq!(pair.wait_b(1)[0].status(), Status::Success);
        let status = write(&mut pair, &mut a, &from, open.at(offset));
        assert_eq!(status, Status::RemoteAccess, "{offset}");
        assert_eq!(text(&at, offset as usize), [0; 8]);
        drop((a, b, window, from, at));
        pair.finish();
    }
}

#[test]
fn a_window_that_is_bound_already_fails_the_request_with_the_status_of_a_bind() {
    let (mut pair, a, mut b, from, at) = connected();
    let mut window = pair.b.domain.memory_window(WindowKind::Two).unwrap();
    for id in [1, 2] {
        let bytes = (&at, 0..64);
        b.bind_window(
            id,
            &mut window,
            bytes,
            Access::REMOTE_READ,
            Flags::SIGNALLED,
        )
        .unwrap();
    }
    b.ring();
    pair.pass();
    assert_eq!(pair.b.events().len(), 1);
    let done = pair.wait_b(2);
    assert_eq!(done[0].status(), Status::Success);
    assert_eq!((done[1].id, done[1].status()), (2, Status::WindowBind));
    drop((a, b, window, from, at));
    pair.finish();
}

#[test]
fn binds_that_cannot_be_are_refused_when_they_are_posted() {
    let (pair, a, mut b, from, at) = connected();
    let mut window = pair.b.domain.memory_window(WindowKind::Two).unwrap();
    let mut bind = |region: &MemoryRegion, range, access| {
        let result = b.bind_window(1, &mut window, (region, range), access, Flags::NONE);
        match result {
            Err(PostError::Bind(error)) => error,
            other => panic!("{other:?}"),
        }
    };
    let error = bind(&at, 0..4097, Access::REMOTE_READ);
    assert!(matches!(error, BindError::OutOfBounds { .. }), "{error}");
    let register = |access, base| {
        let buffer = pair.b.device.allocate(4096).unwrap();
        let made = pair.b.domain.register_based(vec![buffer], access, base);
        made.unwrap()
    };
    let closed = register(Access::LOCAL_WRITE, Base::Address);
    assert_eq!(
        bind(&closed, 0..8, Access::REMOTE_READ),
        BindError::NotBindable
    );
    let fixed = register(Access::BIND_WINDOW, Base::Address);
    assert_eq!(
        bind(&fixed, 0..8, Access::REMOTE_WRITE),
        BindError::ReadOnly
    );
    let zero = register(Access::ALL, Base::Zero);
    assert_eq!(bind(&zero, 0..8, Access::REMOTE_READ), BindError::ZeroBased);
    let other = pair.b.device.protection_domain().unwrap();
    let buffer = pair.b.device.allocate(4096).unwrap();
    let foreign = other.register(buffer, Access::ALL).unwrap();
    let error = bind(&foreign, 0..8, Access::REMOTE_READ);
    assert!(matches!(error, BindError::ForeignDomain { .. }), "{error}");
    drop((a, b, window, from, at, closed, fixed, zero, foreign, other));
    pair.finish();
}

#[test]
fn addresses_of_a_zero_based_region_begin_at_zero() {
    let (mut pair, mut a, b, from, at) = connected();
    let buffers = vec![pair.b.device.allocate(4096).unwrap()];
    let zero = pair
        .b
        .domain
        .register_based(buffers, Access::ALL, Base::Zero)
        .unwrap();
    assert_eq!(zero.remote().address, 0);
    let status = write(&mut pair, &mut a, &from, zero.remote().at(16));
    assert_eq!(status, Status::Success);
    assert_eq!(&text(&zero, 16), b"ringside");
    // Its own device counts from zero too.
    let back = pair.a.region(64);
    let read = [back.slice(0..8).unwrap()];
    a.read(3, &read, zero.remote().at(16), Flags::SIGNALLED)
        .unwrap();
    a.ring();
    assert_eq!(pair.wait_a(1)[0].status(), Status::Success);
    assert_eq!(&text(&back, 0), b"ringside");
    drop((a, b, from, at, zero, back));
    pair.finish();
}

#[test]
fn a_reregistered_region_has_new_rights_and_the_old_key_is_invalid() {
    let (mut pair, mut a, b, from, at) = connected();
    let old = at.remote();
    let (mut more, peer) = pair.connect(|config| config);
    let at = at.reregister(&pair.b.domain, Access::REMOTE_WRITE).unwrap();
    assert_ne!(at.remote().key, old.key);
    assert_eq!(
        write(&mut pair, &mut a, &from, at.remote().at(0)),
        Status::Success
    );
    assert_eq!(&text(&at, 0), b"ringside");
    let status = write(&mut pair, &mut a, &from, old.at(0));
    assert_eq!(status, Status::RemoteAccess);
    let at = at.reregister(&pair.b.domain, Access::LOCAL_READ).unwrap();
    let status = write(&mut pair, &mut more, &from, at.remote().at(0));
    assert_eq!(status, Status::RemoteAccess);
    let usage = pair.b.device.object_usage().unwrap();
    assert_eq!(usage.memory_regions.used, 1);
    drop((a, b, more, peer, from, at));
    pair.finish();
}

#[test]
fn a_replaced_region_opens_its_new_memory_under_the_same_key_and_returns_the_old() {
    let (mut pair, mut a, b, from, at) = connected();
    let remote = at.remote();
    assert_eq!(
        write(&mut pair, &mut a, &from, remote.at(0)),
        Status::Success
    );
    let other = pair.b.device.allocate(8192).unwrap();
    let base = Base::Named(remote.address);
    let domain = &pair.b.domain;
    let (at, before) = at.replace(domain, vec![other], Access::ALL, base).unwrap();
    assert_eq!(
        (at.remote().key, at.remote().address, at.length()),
        (remote.key, remote.address, 8192)
    );
    let mut bytes = [0; 8];
    assert!(before[0].read(0, &mut bytes));
    assert_eq!(&bytes, b"ringside");
    assert_eq!(text(&at, 0), [0; 8]);
    let status = write(&mut pair, &mut a, &from, remote.at(8184));
    assert_eq!(status, Status::Success);
    assert_eq!(&text(&at, 8184), b"ringside");
    // Without the right to write, the same key is refused.
    let rights = Access::REMOTE_READ;
    let (at, before) = at.replace(&pair.b.domain, before, rights, base).unwrap();
    assert_eq!(before[0].length(), 8192);
    let status = write(&mut pair, &mut a, &from, remote.at(0));
    assert_eq!(status, Status::RemoteAccess);
    let usage = pair.b.device.object_usage().unwrap();
    assert_eq!(usage.memory_regions.used, 1);
    drop((a, b, from));
    assert_eq!(at.deregister().unwrap().len(), 1);
    pair.finish();
}

#[test]
fn a_region_that_cannot_be_replaced_is_as_it_was() {
    let (mut pair, mut a, mut b, from, at) = connected();
    let remote = at.remote();
    let mut window = pair.b.domain.memory_window(WindowKind::Two).unwrap();
    let rights = Access::REMOTE_READ;
    b.bind_window(1, &mut window, (&at, 0..64), rights, Flags::SIGNALLED)
        .unwrap();
    b.ring();
    assert_eq!(pair.wait_b(1)[0].status(), Status::Success);
    // No memory; an address that is not at the same place of a page; a region with a window on it.
    let memory = |length| vec![pair.b.device.allocate(length).unwrap()];
    let attempts = [
        (Vec::new(), Base::Address),
        (memory(4096), Base::Named(0x1001)),
        (memory(4096), Base::Address),
    ];
    let mut at = at;
    for (buffers, base) in attempts {
        let refused = at.replace(&pair.b.domain, buffers, Access::ALL, base);
        at = *refused.unwrap_err().region.expect("the region");
        assert_eq!(at.remote(), remote);
        assert_eq!(at.remote_key(), remote.key);
    }
    assert_eq!(
        write(&mut pair, &mut a, &from, remote.at(0)),
        Status::Success
    );
    assert_eq!(&text(&at, 0), b"ringside");
    drop((a, b, from, window));
    assert_eq!(at.deregister().unwrap().len(), 1);
    pair.finish();
}

#[test]
fn a_fast_region_is_registered_used_invalidated_and_used_again_with_other_memory() {
    let (mut pair, mut a, mut b, from, at) = connected();
    let mut fast = pair.b.domain.fast_region(4).unwrap();
    let mut keys = Vec::new();
    for round in 0..3 {
        let buffers: Vec<_> = (0..2)
            .map(|_| pair.b.device.allocate(4096).unwrap())
            .collect();
        let error = b.register_fast(0, &mut fast, Access::ALL, Flags::NONE);
        let empty = PostError::FastRegion(FastRegionError::Empty);
        assert_eq!(error.unwrap_err(), empty);
        fast.load(buffers).unwrap();
        b.register_fast(1, &mut fast, Access::ALL, Flags::SIGNALLED)
            .unwrap();
        b.ring();
        let done = pair.wait_b(1);
        assert_eq!(done[0].status(), Status::Success, "round {round}");
        assert_eq!(done[0].operation(), Operation::FastRegister);
        keys.push(fast.key());
        let status = write(&mut pair, &mut a, &from, fast.remote().at(4092));
        assert_eq!(status, Status::Success, "round {round}");
        b.invalidate_fast(2, &mut fast, Flags::NONE).unwrap();
        assert!(fast.take_back(&done[0]).is_none());
        b.ring();
        let done = pair.wait_b(1);
        let buffers = fast.take_back(&done[0]).expect("the memory");
        let (mut first, mut second) = ([0; 4], [0; 4]);
        assert!(buffers[0].read(4092, &mut first) && buffers[1].read(0, &mut second));
        assert_eq!((&first, &second), (b"ring", b"side"));
    }
    keys.dedup();
    assert_eq!(keys.len(), 3);
    drop((a, b, from, at, fast));
    pair.finish();
}

#[test]
fn a_fast_region_whose_queue_pair_failed_gives_its_memory_back_by_command() {
    let (mut pair, a, mut b, from, at) = connected();
    let mut fast = pair.b.domain.fast_region(1).unwrap();
    let load = |pair: &Pair| vec![pair.b.device.allocate(4096).unwrap()];
    fast.load(load(&pair)).unwrap();
    b.register_fast(1, &mut fast, Access::ALL, Flags::SIGNALLED)
        .unwrap();
    b.ring();
    assert_eq!(pair.wait_b(1)[0].status(), Status::Success);
    let error = fast.load(load(&pair)).unwrap_err().error;
    let registered = RdmaError::FastRegion(FastRegionError::Registered);
    assert_eq!(error, registered);
    b.fail().unwrap();
    assert_eq!(fast.reset().unwrap().len(), 1);
    assert!(fast.buffers().is_empty());
    fast.load(load(&pair)).expect("it is free");
    let (_other, mut next) = pair.connect(|config| config);
    next.register_fast(2, &mut fast, Access::ALL, Flags::SIGNALLED)
        .unwrap();
    let again = next.register_fast(3, &mut fast, Access::ALL, Flags::SIGNALLED);
    let registered = PostError::FastRegion(FastRegionError::Registered);
    assert_eq!(again.unwrap_err(), registered);
    next.ring();
    assert_eq!(pair.wait_b(1)[0].status(), Status::Success);
    next.fail().unwrap();
    assert_eq!(fast.reset().unwrap().len(), 1);
    drop(next);
    // Too much for its list.
    let two: Vec<_> = (0..2).flat_map(|_| load(&pair)).collect();
    let error = fast.load(two).unwrap_err();
    assert!(
        matches!(error.error, RdmaError::OutOfRange { .. }),
        "{error}"
    );
    drop((a, b, from, at, fast, _other));
    pair.finish();
}

#[test]
fn a_send_with_invalidation_invalidates_the_peers_key_and_reports_it() {
    let (mut pair, mut a, mut b, from, at) = connected();
    let mut window = pair.b.domain.memory_window(WindowKind::Two).unwrap();
    let bytes = (&at, 0..64);
    let open = b
        .bind_window(
            1,
            &mut window,
            bytes,
            Access::REMOTE_WRITE,
            Flags::SIGNALLED,
        )
        .unwrap();
    b.receive(7, &[at.slice(1024..2048).unwrap()]).unwrap();
    b.ring();
    assert_eq!(pair.wait_b(1)[0].status(), Status::Success);
    let pieces = [from.slice(0..8).unwrap()];
    a.send_and_invalidate(2, &pieces, open.key, Flags::SIGNALLED)
        .unwrap();
    a.ring();
    let done = pair.wait_b(1);
    assert_eq!((done[0].id, done[0].invalidated_key()), (7, Some(open.key)));
    assert_eq!(pair.wait_a(1)[0].status(), Status::Success);
    let status = write(&mut pair, &mut a, &from, open.at(0));
    assert_eq!(status, Status::RemoteAccess);
    drop((a, b, window, from, at));
    pair.finish();
}

#[test]
fn atomics_are_refused_with_the_reason() {
    let (pair, mut a, b, from, at) = connected();
    let piece = from.slice(0..8).unwrap();
    let remote: RemoteRegion = at.remote();
    let added = a.fetch_and_add(1, piece, remote.at(0), 1, Flags::NONE);
    let swapped = a.compare_and_swap(1, piece, remote.at(0), (0, 1), Flags::NONE);
    for error in [added.unwrap_err(), swapped.unwrap_err()] {
        assert_eq!(error, PostError::NoAtomics);
        assert!(
            error.to_string().contains("no atomic operations"),
            "{error}"
        );
    }
    drop((a, b, from, at));
    pair.finish();
}

#[test]
fn a_nop_completes_in_order() {
    let (mut pair, mut a, b, from, at) = connected();
    let pieces = [from.slice(0..8).unwrap()];
    a.write(1, &pieces, at.remote().at(0), Flags::SIGNALLED)
        .unwrap();
    a.no_operation(2, Flags::SIGNALLED | Flags::LOCAL_FENCE)
        .unwrap();
    a.ring();
    let done = pair.wait_a(2);
    assert_eq!((done[0].id, done[1].id), (1, 2));
    assert_eq!(done[1].operation(), Operation::Nop);
    drop((a, b, from, at));
    pair.finish();
}

/// Binds a window to `at` and drops the region while the window is bound.
fn dropped_under(
    kind: WindowKind,
) -> (
    Pair,
    [QueuePair<Connected>; 2],
    MemoryRegion,
    ringside_pmd::rdma::MemoryWindow,
    RemoteRegion,
) {
    let (mut pair, a, mut b, from, at) = connected();
    let mut window = pair.b.domain.memory_window(kind).unwrap();
    let open = b
        .bind_window(
            1,
            &mut window,
            (&at, 0..2048),
            Access::REMOTE_WRITE,
            Flags::SIGNALLED,
        )
        .unwrap();
    b.ring();
    assert_eq!(pair.wait_b(1)[0].status(), Status::Success);
    drop(at);
    let kept = pair.b.device.quarantine().unwrap();
    assert_eq!(kept.len(), 1);
    assert_eq!((kept[0].what, kept[0].bytes), ("memory region", 4096));
    (pair, [a, b], from, window, open)
}

/// Regions and windows of `b`, and entries of its quarantine.
fn left(pair: &Pair) -> (u32, usize) {
    let device = &pair.b.device;
    let regions = device.object_usage().unwrap().memory_regions.used;
    (regions, device.quarantine().unwrap().len())
}

#[test]
fn a_region_dropped_before_its_window_ends_with_the_window() {
    for kind in [WindowKind::One, WindowKind::Two] {
        let (mut pair, [mut a, b], from, window, open) = dropped_under(kind);
        assert_eq!(left(&pair), (2, 1), "{kind:?}");
        drop(window);
        assert_eq!(left(&pair), (0, 0), "{kind:?}");
        let refused = write(&mut pair, &mut a, &from, open.at(0));
        assert_eq!(refused, Status::RemoteAccess, "{kind:?}");
        drop((a, b, from));
        pair.finish();
    }
}

#[test]
fn a_region_dropped_before_its_window_ends_once_the_window_is_closed() {
    let (mut pair, [a, mut b], from, window, open) = dropped_under(WindowKind::Two);
    b.invalidate(2, open.key, Flags::SIGNALLED).unwrap();
    b.ring();
    assert_eq!(pair.wait_b(1)[0].status(), Status::Success);
    for _ in 0..2_000 {
        assert_eq!(pair.b.events(), []);
        pair.pass();
    }
    assert_eq!(left(&pair), (1, 0), "the window alone");
    drop((a, b, window, from));
    pair.finish();
    // And with the queue pair through which it was bound.
    let (pair, [a, b], from, window, _) = dropped_under(WindowKind::Two);
    drop(b);
    assert_eq!(left(&pair), (1, 0), "the window alone");
    drop((a, window, from));
    pair.finish();
}

#[test]
fn a_shutdown_frees_a_region_that_was_dropped_under_a_bound_window() {
    for kind in [WindowKind::One, WindowKind::Two] {
        let (pair, [a, b], from, window, _) = dropped_under(kind);
        drop((a, b, from));
        let used = pair.b.device.pool().unwrap().usage().used_bytes;
        assert!(used >= 4096);
        pair.finish();
        drop(window);
    }
}

#[test]
fn a_fast_region_of_another_domain_is_refused_and_both_domains_are_named() {
    let (pair, a, mut b, from, at) = connected();
    let other = pair.b.device.protection_domain().unwrap();
    let mut fast = other.fast_region(1).unwrap();
    fast.load(vec![pair.b.device.allocate(4096).unwrap()])
        .unwrap();
    let refused = b.register_fast(1, &mut fast, Access::ALL, Flags::SIGNALLED);
    let foreign = FastRegionError::ForeignDomain {
        region: other.number(),
        queue_pair: pair.b.domain.number(),
    };
    let foreign = PostError::FastRegion(foreign);
    assert_eq!(refused.unwrap_err(), foreign);
    let refused = b.invalidate_fast(2, &mut fast, Flags::SIGNALLED);
    assert_eq!(refused.unwrap_err(), foreign);
    drop((a, b, from, at, fast, other));
    pair.finish();
}

#[test]
fn a_replaced_region_reports_its_new_domain_rights_and_base() {
    let pair = Pair::new();
    let region = pair.b.region(4096);
    let other = pair.b.device.protection_domain().unwrap();
    let memory = |pair: &Pair| vec![pair.b.device.allocate(4096).unwrap()];
    let rights = Access::REMOTE_READ;
    let refused = region.replace(&pair.a.domain, memory(&pair), rights, Base::Zero);
    let refused = refused.unwrap_err();
    assert!(refused.to_string().contains("device"), "{refused}");
    let region = *refused.region.expect("the region");
    let replaced = region.replace(&other, memory(&pair), rights, Base::Zero);
    let (region, _) = replaced.unwrap();
    assert_eq!(region.protection_domain().number(), other.number());
    assert_eq!((region.access(), region.base()), (rights, Base::Zero));
    drop((region, other));
    pair.finish();
}
