//! Memory regions: made of one buffer or many, taken away, and all of them in use.

use ringside_model::{Stepped, WorldSettings};
use ringside_pmd::rdma::{Access, Flags, RdmaError, Status};
use ringside_pmd::{BringUpOptions, Device};
use ringside_testkit::{Pair, config};

#[test]
fn a_peer_cannot_foretell_the_address_of_a_region_unless_the_seed_is_given() {
    let first_address = |seed| {
        let world = Stepped::new(&WorldSettings::with_functions(1));
        let options = BringUpOptions {
            predictable: seed,
            ..BringUpOptions::default()
        };
        let function = world.function(0).expect("a function");
        let device = Device::bring_up(function, &config(), options).unwrap();
        let domain = device.protection_domain().unwrap();
        let buffer = device.allocate(4096).unwrap();
        let region = domain.register(buffer, Access::ALL).unwrap();
        (region.address(), region.remote_key())
    };
    assert_eq!(first_address(Some(7)), first_address(Some(7)));
    let [(one, _), (other, _)] = [None, None].map(first_address);
    // Not in the same block, and not at the same place in it.
    assert_ne!(one >> 21, other >> 21);
}

#[test]
fn a_region_of_scattered_buffers_is_written_and_read_as_one() {
    let mut pair = Pair::new();
    let from = pair.a.region(1 << 20);
    let (mut qp, _peer) = pair.connect(|config| config);
    let data: Vec<u8> = (0..1 << 20).map(|at: u32| (at % 251) as u8).collect();
    assert!(from.write(0, &data));
    // 3 pages: a list of one level. 700 pages and more: two levels.
    for pages in [3_usize, 700] {
        let (mut buffers, mut spacers) = (Vec::new(), Vec::new());
        for _ in 0..pages {
            buffers.push(pair.b.device.allocate(4096).unwrap());
            spacers.push(pair.b.device.allocate(64).unwrap());
        }
        buffers.reverse();
        let to = pair.b.domain.register_all(buffers, Access::ALL).unwrap();
        let length = (pages * 4096 - 100).min(1 << 20);
        for start in (0..length).step_by(300_000) {
            let end = length.min(start + 300_000);
            let place = to.remote().at(50 + start as u64);
            qp.write(
                1,
                &[from.slice(start..end).unwrap()],
                place,
                Flags::SIGNALLED,
            )
            .unwrap();
            qp.ring();
            assert_eq!(pair.wait_a(1)[0].status(), Status::Success);
        }
        let mut arrived = vec![0; length];
        assert!(to.read(50, &mut arrived));
        assert!(arrived == data[..length], "{pages} pages");
        let back = to.deregister().unwrap();
        assert_eq!(back.len(), pages);
    }
    let usage = pair.b.device.object_usage().unwrap();
    assert_eq!(usage.page_list_entries.used, 0);
    drop((qp, _peer, from));
    pair.finish();
}

#[test]
fn a_deregistered_region_cannot_be_written_any_more() {
    let mut pair = Pair::new();
    let (from, to) = (pair.a.region(4096), pair.b.region(4096));
    let (mut qp, _peer) = pair.connect(|config| config);
    let remote = to.remote();
    let memory = to.deregister().unwrap();
    qp.write(
        1,
        &[from.slice(0..64).unwrap()],
        remote.at(0),
        Flags::SIGNALLED,
    )
    .unwrap();
    qp.ring();
    let mut done = Vec::new();
    for _ in 0..1000 {
        pair.pass();
        let _ = (pair.a.events(), pair.b.events());
        let mut batch = [ringside_pmd::rdma::Completion::EMPTY; 4];
        done.extend_from_slice(pair.a.completions.poll(&mut batch));
        if !done.is_empty() {
            break;
        }
    }
    assert_eq!(done.len(), 1);
    assert_eq!(done[0].status(), Status::RemoteAccess);
    let mut bytes = [1; 64];
    assert!(memory[0].read(0, &mut bytes));
    assert_eq!(bytes, [0; 64]);
    drop((qp, _peer, from, memory));
    pair.finish();
}

#[test]
fn when_all_regions_are_in_use_the_setting_to_raise_is_named_and_one_freed_is_enough() {
    let mut config = config();
    config.rdma.memory_regions = 3;
    let pair = Pair::with(&config);
    let mut regions: Vec<_> = (0..3).map(|_| pair.a.region(64)).collect();
    let buffer = pair.a.device.allocate(64).unwrap();
    let refused = pair
        .a
        .domain
        .register(buffer, Access::LOCAL_WRITE)
        .unwrap_err();
    assert!(
        matches!(refused.error, RdmaError::Capacity { limit: 3, .. }),
        "{refused}"
    );
    assert!(
        refused.to_string().contains("rdma.memory_regions"),
        "{refused}"
    );
    assert_eq!(refused.buffers.len(), 1);
    regions.pop();
    regions.push(pair.a.region(64));
    drop((regions, refused));
    pair.finish();
}

#[test]
fn keys_of_one_table_entry_differ_each_time() {
    let mut config = config();
    config.rdma.memory_regions = 1;
    let pair = Pair::with(&config);
    let keys: std::collections::BTreeSet<u32> =
        (0..20).map(|_| pair.a.region(64).remote_key()).collect();
    assert!(keys.len() > 15, "{keys:x?}");
    pair.finish();
}

#[test]
fn a_region_of_huge_pages_takes_one_entry_for_each() {
    let mut pair = Pair::new();
    let from = pair.a.region(5 << 20);
    let data: Vec<u8> = (0..5 << 20).map(|at: u32| (at % 241) as u8).collect();
    assert!(from.write(0, &data));
    let (mut qp, _peer) = pair.connect(|config| config);
    let huge = |pair: &Pair| {
        let device = &pair.b.device;
        device
            .allocate_aligned(2 << 20, ringside_bus::PageSize::TwoMiB)
            .unwrap()
    };
    let mut buffers: Vec<_> = (0..3).map(|_| huge(&pair)).collect();
    buffers.reverse();
    let to = pair.b.domain.register_all(buffers, Access::ALL).unwrap();
    assert_eq!(
        pair.b.device.object_usage().unwrap().page_list_entries.used,
        8
    );
    let fragment = from.slice(0..5 << 20).unwrap();
    qp.write(1, &[fragment], to.remote().at(0x0F_FFFF), Flags::SIGNALLED)
        .unwrap();
    qp.ring();
    assert_eq!(pair.wait_a(1)[0].status(), Status::Success);
    let mut arrived = vec![0; 5 << 20];
    assert!(to.read(0x0F_FFFF, &mut arrived));
    assert!(arrived == data);
    drop((qp, _peer, from, to));
    pair.finish();
}

#[test]
fn a_region_of_pages_of_1_gib_is_written_across_their_border() {
    const PAGE: usize = 1 << 30;
    let mut pair = Pair::new();
    let from = pair.a.region(1 << 20);
    let data: Vec<u8> = (0..1 << 20).map(|at: u32| (at % 239) as u8).collect();
    assert!(from.write(0, &data));
    let (mut qp, _peer) = pair.connect(|config| config);
    let mut buffers: Vec<_> = (0..2)
        .map(|_| {
            let device = &pair.b.device;
            device
                .allocate_aligned(PAGE, ringside_bus::PageSize::OneGiB)
                .unwrap()
        })
        .collect();
    // Neighbours in the wrong order are not contiguous: a list of two pages.
    buffers.sort_by_key(|buffer| std::cmp::Reverse(buffer.iova()));
    let to = pair.b.domain.register_all(buffers, Access::ALL).unwrap();
    assert_eq!(
        pair.b.device.object_usage().unwrap().page_list_entries.used,
        8
    );
    let start = PAGE - 300_001;
    let fragment = from.slice(0..1 << 20).unwrap();
    qp.write(
        1,
        &[fragment],
        to.remote().at(start as u64),
        Flags::SIGNALLED,
    )
    .unwrap();
    qp.ring();
    assert_eq!(pair.wait_a(1)[0].status(), Status::Success);
    let mut arrived = vec![0; 1 << 20];
    assert!(to.read(start, &mut arrived));
    assert!(arrived == data);
    drop((qp, _peer, from, to));
    pair.finish();
}

/// Page lists anywhere in the host memory cache, whose last segment is backed page by page.
#[test]
fn every_page_list_leads_to_its_pages() {
    const PAGES: usize = 200;
    let mut config = config();
    config.rdma.pbles = 262_144;
    config.rdma.memory_regions = 2048;
    let mut pair = Pair::with(&config);
    let entries = |pair: &Pair| pair.b.device.object_usage().unwrap().page_list_entries;
    let mut fast = Vec::new();
    while let Ok(region) = pair.b.domain.fast_region(512) {
        fast.push(region);
    }
    assert!(entries(&pair).used > 200_000, "{:?}", entries(&pair));
    // Gaps, each for two lists.
    let mut places = 1..;
    fast.retain(|_| places.next().is_some_and(|place| place % 16 != 0));
    let from = pair.a.region(4096);
    assert!(from.write(0, &[0xA5; 4096]));
    let (mut qp, peer) = pair.connect(|config| config);
    let mut made = Vec::new();
    loop {
        let buffers = (0..PAGES).map(|_| {
            let page = pair.b.device.allocate(4096).unwrap();
            (page, pair.b.device.allocate(64).unwrap())
        });
        let (mut pages, spacers): (Vec<_>, Vec<_>) = buffers.unzip();
        pages.reverse();
        let to = match pair.b.domain.register_all(pages, Access::ALL) {
            Ok(to) => to,
            Err(full) => {
                let text = full.to_string();
                assert!(text.contains("no room for a page list"), "{text}");
                break;
            }
        };
        for page in [0, PAGES - 1] {
            let piece = [from.slice(0..4096).unwrap()];
            let place = to.remote().at(page as u64 * 4096);
            qp.write(1, &piece, place, Flags::SIGNALLED).unwrap();
            qp.ring();
            assert_eq!(pair.wait_a(1)[0].status(), Status::Success);
            let mut arrived = [0; 4096];
            assert!(to.read(page * 4096, &mut arrived) && arrived == [0xA5; 4096]);
        }
        made.push((to, spacers));
    }
    assert!(made.len() > 20, "{} regions", made.len());
    drop((made, fast, qp, peer, from));
    assert_eq!(entries(&pair).used, 0);
    pair.finish();
}
