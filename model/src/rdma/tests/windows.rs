//! Memory windows, fast registration, invalidation near and far.

use super::rig::{ALL, BASE, Cq, DOMAIN, Qp, Rig};
use ringside_spec::rdma::ae_codes::AeCode;
use ringside_spec::rdma::commands::*;
use ringside_spec::rdma::fpm::ObjectType;
use ringside_spec::verbs::send::{
    BindHeader, BindTags, FastRegisterHeader, FastRegisterLength, FastRegisterPage,
};
use ringside_spec::verbs::{CompletionElement, Fragment, QueueSide, SendHeader, SendOpcode};

const WINDOW: u32 = 9;
const FAST: u32 = 10;
const WRITE: u64 = 8;

/// Queue pairs 3 and 4 of both sides, connected; a region on each side. Side 1 opens windows.
struct Scene {
    rig: Rig,
    qps: [Vec<Qp>; 2],
    cqs: Vec<Cq>,
    from: u64,
    to: u64,
    local: u32,
    remote: u32,
}

fn tag(index: u32, key: u32) -> u32 {
    SteeringTag::ZERO.with_index(index).with_key(key).0
}

/// The parameters of one bind.
#[derive(Clone, Copy)]
struct Bind {
    window: u32,
    region: u32,
    address: u64,
    length: u64,
    rights: u64,
    type_1: bool,
    va_based: bool,
}

/// The parameters of one fast registration.
#[derive(Clone, Copy)]
struct Registration {
    tag: u32,
    address: u64,
    length: u64,
    first_entry: u32,
    page: u64,
    levels: u64,
    page_size: u64,
    rights: u64,
    va_based: bool,
}

impl Scene {
    fn new() -> Self {
        let mut rig = Rig::new();
        let cqs: Vec<_> = (0..2).map(|side| rig.cq(side, 3, 64)).collect();
        let mut qps = [Vec::new(), Vec::new()];
        for number in [3, 4] {
            for side in 0..2 {
                let qp = rig.qp(side, number, &cqs[side]);
                rig.connect(side, &qp);
                qps[side].push(qp);
            }
        }
        let (from, to) = (rig.data(0, 16384), rig.data(1, 16384));
        let (local, remote) = (rig.region(0, 1, from, 16384), rig.region(1, 2, to, 16384));
        Self {
            rig,
            qps,
            cqs,
            from,
            to,
            local,
            remote,
        }
    }

    fn window(&mut self, index: u32, type_1: bool) {
        self.rig.done(
            1,
            AllocateStag {
                protection_domain: DOMAIN,
                stag_index: index,
                type_1,
                ..AllocateStag::ZERO
            },
        );
    }

    fn bind_of(&self, type_1: bool) -> Bind {
        Bind {
            window: tag(WINDOW, 0x21),
            region: self.remote,
            address: BASE + self.to + 100,
            length: 50,
            rights: WRITE,
            type_1,
            va_based: true,
        }
    }

    /// The same bind, to a new region of these rights.
    fn bind_to(&mut self, access_rights: AccessRights, bind: Bind) -> Bind {
        let region = RegisterMemoryRegion {
            access_rights,
            remote_access: false,
            ..self.rig.contiguous(5, self.to, 4096)
        };
        self.rig.done(1, region);
        Bind {
            region: tag(5, 7),
            ..bind
        }
    }

    /// Posts words to queue pair `which` of side 1 and lets them be carried out.
    fn post(&mut self, which: usize, words: &[u64]) -> Option<CompletionElement> {
        let qp = &mut self.qps[1][which];
        self.rig.post(1, qp, words);
        self.rig.ring(1, &self.qps[1][which]);
        self.rig.run();
        self.rig
            .poll(1, &mut self.cqs[1])
            .map(|(element, _)| element)
    }

    fn bind(&mut self, which: usize, bind: Bind) -> Option<CompletionElement> {
        let tags = BindTags::ZERO
            .with_window(bind.window.into())
            .with_region(bind.region.into());
        let header = BindHeader::ZERO
            .with_opcode(SendOpcode::BindWindow.code().into())
            .with_access_rights(bind.rights)
            .with_virtual_address_based(bind.va_based)
            .with_window_type_1(bind.type_1)
            .with_signalled(true)
            .with_valid(Rig::polarity(self.qps[1][which].head));
        self.post(which, &[bind.address, tags.0, bind.length, header.0])
    }

    fn invalidate(&mut self, which: usize, tag: u32) -> Option<CompletionElement> {
        let header = SendHeader::ZERO
            .with_opcode(SendOpcode::LocalInvalidate.code().into())
            .with_signalled(true)
            .with_valid(Rig::polarity(self.qps[1][which].head));
        self.post(which, &[0, tag.into(), 0, header.0])
    }

    fn register(&mut self, registration: Registration) -> Option<CompletionElement> {
        let Registration { tag, .. } = registration;
        let page = match registration.levels {
            0 => FastRegisterPage::ZERO.with_page_number(registration.page / 4096),
            _ => FastRegisterPage::ZERO
                .with_first_entry_high(u64::from(registration.first_entry) >> 16),
        };
        let length = FastRegisterLength::ZERO
            .with_length_bytes(registration.length)
            .with_first_entry_low(u64::from(registration.first_entry) & 0xFFFF);
        let header = FastRegisterHeader::ZERO
            .with_steering_tag_key(u64::from(SteeringTag(tag).key()))
            .with_steering_tag_index(SteeringTag(tag).index().into())
            .with_opcode(SendOpcode::FastRegister.code().into())
            .with_page_list_levels(registration.levels)
            .with_page_size(registration.page_size)
            .with_access_rights(registration.rights)
            .with_virtual_address_based(registration.va_based)
            .with_local_fence(true)
            .with_signalled(true)
            .with_valid(Rig::polarity(self.qps[1][0].head));
        self.post(0, &[registration.address, page.0, length.0, header.0])
    }

    /// Side 0 works through queue pair `which` on a tag of side 1; true if it succeeded.
    fn reach(
        &mut self,
        which: usize,
        opcode: SendOpcode,
        address: u64,
        tag: u32,
        length: u32,
    ) -> bool {
        let source = Fragment {
            address: BASE + self.from,
            length_bytes: length,
            steering_tag: self.local,
        };
        let qp = &mut self.qps[0][which];
        self.rig.request(0, qp, opcode, (address, tag), &[source]);
        self.rig.ring(0, &self.qps[0][which]);
        self.rig.run();
        let polled = self.rig.poll(0, &mut self.cqs[0]);
        polled.is_some_and(|(element, _)| !element.error)
    }

    fn write(&mut self, which: usize, address: u64, tag: u32) -> bool {
        self.reach(which, SendOpcode::Write, address, tag, 10)
    }

    fn refused(&mut self, code: AeCode) {
        assert_eq!(self.rig.event_code(1), Some(code));
        assert_eq!(self.rig.event_code(0), Some(AeCode::RemoteAccessError));
        self.rig.assert_no_breach();
    }
}

#[test]
fn a_window_of_type_1_serves_any_queue_pair_and_moves_by_another_bind() {
    let mut scene = Scene::new();
    scene.window(WINDOW, true);
    let first = scene.bind_of(true);
    assert!(scene.bind(0, first).is_some());
    let (start, old) = (first.address, first.window);
    assert!(scene.write(0, start, old));
    assert!(
        scene.write(1, start + 40, old),
        "of no queue pair in particular"
    );
    let second = Bind {
        window: tag(WINDOW, 0x22),
        address: start + 1000,
        ..first
    };
    assert!(scene.bind(0, second).is_some(), "without invalidation");
    assert!(scene.write(0, start + 1000, second.window));
    assert!(!scene.write(1, start, old));
    scene.refused(AeCode::BadStagKey);
}

#[test]
fn a_bind_of_no_length_closes_a_window() {
    let mut scene = Scene::new();
    scene.window(WINDOW, true);
    let bind = scene.bind_of(true);
    scene.bind(0, bind).expect("bound");
    scene.bind(0, Bind { length: 0, ..bind }).expect("unbound");
    assert!(!scene.write(0, bind.address, bind.window));
    scene.refused(AeCode::InvalidStag);
}

#[test]
fn a_window_of_type_2_serves_the_queue_pair_that_bound_it() {
    let mut scene = Scene::new();
    scene.window(WINDOW, false);
    let bind = scene.bind_of(false);
    scene.bind(0, bind).expect("bound");
    assert!(scene.write(0, bind.address, bind.window));
    assert!(!scene.write(1, bind.address, bind.window));
    scene.refused(AeCode::BadQueuePair);
}

#[test]
fn a_window_opens_its_bytes_and_its_rights_only() {
    let outside = |scene: &mut Scene, bind: Bind| {
        assert!(!scene.write(0, bind.address + 41, bind.window));
        scene.refused(AeCode::BoundsViolation);
    };
    let reads = |scene: &mut Scene, bind: Bind| {
        assert!(!scene.reach(0, SendOpcode::Read, bind.address, bind.window, 4));
        scene.refused(AeCode::RightsViolation);
    };
    for attempt in [outside as fn(&mut Scene, Bind), reads] {
        let mut scene = Scene::new();
        scene.window(WINDOW, false);
        let bind = scene.bind_of(false);
        scene.bind(0, bind).expect("bound");
        attempt(&mut scene, bind);
    }
}

#[test]
fn a_zero_based_window_counts_from_its_first_byte() {
    let mut scene = Scene::new();
    scene.window(WINDOW, false);
    let bind = Bind {
        va_based: false,
        ..scene.bind_of(false)
    };
    scene.bind(0, bind).expect("bound");
    scene.rig.fill(0, scene.from, b"0123456789");
    assert!(scene.write(0, 40, bind.window));
    assert_eq!(scene.rig.bytes(1, scene.to + 140, 10), b"0123456789");
    assert!(!scene.write(0, 41, bind.window));
    scene.refused(AeCode::BoundsViolation);
}

#[test]
fn every_bind_that_cannot_be_has_its_event() {
    type Change = fn(&mut Scene, Bind) -> Bind;
    let cases: [(AeCode, bool, Change); 11] = [
        (AeCode::BindOfMemoryRegion, false, |scene, bind| Bind {
            window: scene.remote,
            ..bind
        }),
        (AeCode::BindToWindow, false, |scene, bind| {
            scene.window(WINDOW + 2, false);
            let parent = tag(WINDOW + 2, 1);
            scene
                .bind(
                    0,
                    Bind {
                        window: parent,
                        ..bind
                    },
                )
                .expect("bound");
            Bind {
                region: parent,
                ..bind
            }
        }),
        (AeCode::BindWrongType, false, |_, bind| Bind {
            type_1: true,
            ..bind
        }),
        (AeCode::BindWrongType, true, |_, bind| Bind {
            type_1: false,
            ..bind
        }),
        (AeCode::ZeroBasedTypeOneBind, true, |_, bind| Bind {
            va_based: false,
            ..bind
        }),
        (AeCode::BindAlreadyValid, false, |scene, bind| {
            scene.bind(0, bind).expect("bound");
            bind
        }),
        (AeCode::BindInvalidBounds, false, |_, bind| Bind {
            length: 16285,
            ..bind
        }),
        (AeCode::BindInvalidParent, false, |scene, bind| Bind {
            region: scene.remote ^ 1,
            ..bind
        }),
        (AeCode::BindInvalidRights, false, |scene, bind| {
            scene.bind_to(
                AccessRights::ZERO
                    .with_local_read(true)
                    .with_bind_window(true),
                bind,
            )
        }),
        (AeCode::BindInvalidRights, false, |scene, bind| {
            scene.bind_to(
                AccessRights::ZERO
                    .with_local_read(true)
                    .with_local_write(true),
                bind,
            )
        }),
        (AeCode::UnallocatedStag, false, |_, bind| Bind {
            window: tag(WINDOW + 1, 1),
            ..bind
        }),
    ];
    for (code, type_1, change) in cases {
        let mut scene = Scene::new();
        scene.window(WINDOW, type_1);
        let bind = scene.bind_of(type_1);
        let bind = change(&mut scene, bind);
        assert!(scene.bind(0, bind).is_none(), "{code:?}");
        let event = scene.rig.event(1).expect("an event");
        assert_eq!((event.ae_code, event.source), (code, AeSource::SendQueue));
        scene.rig.assert_no_breach();
    }
}

#[test]
fn a_region_stays_while_a_window_is_bound_to_it() {
    let mut scene = Scene::new();
    scene.window(WINDOW, false);
    let bind = scene.bind_of(false);
    scene.bind(0, bind).expect("bound");
    let region = DeallocateStag {
        protection_domain: DOMAIN,
        stag_index: 2,
        is_memory_region: true,
    };
    assert!(scene.rig.command(1, region).error);
    let window = DeallocateStag {
        stag_index: WINDOW,
        is_memory_region: false,
        ..region
    };
    scene.rig.done(1, window);
    scene.rig.done(1, region);
    scene.rig.assert_no_breach();
}

#[test]
fn a_bound_window_goes_with_its_queue_pair() {
    let mut scene = Scene::new();
    scene.window(WINDOW, false);
    let bind = scene.bind_of(false);
    scene.bind(1, bind).expect("bound");
    let qp = &scene.qps[1][1];
    scene.rig.done(
        1,
        DestroyQueuePair {
            host_context_address: BASE + qp.context_at,
            shadow_address: BASE + qp.shadow,
            qp_number: 4,
            qp_type: QueuePairType::RoceReliableConnected,
            ..DestroyQueuePair::ZERO
        },
    );
    // Its region is free, and a new queue pair of the same number has no use of it.
    scene.rig.done(
        1,
        DeallocateStag {
            protection_domain: DOMAIN,
            stag_index: 2,
            is_memory_region: true,
        },
    );
    assert!(
        scene.invalidate(0, bind.window).is_some(),
        "unbound: of no queue pair"
    );
    scene.rig.assert_no_breach();
}

#[test]
fn only_its_queue_pair_invalidates_a_window_of_type_2_and_nobody_one_of_type_1() {
    let mut scene = Scene::new();
    scene.window(WINDOW, false);
    let bind = scene.bind_of(false);
    scene.bind(0, bind).expect("bound");
    assert!(scene.invalidate(1, bind.window).is_none());
    assert_eq!(scene.rig.event_code(1), Some(AeCode::BadQueuePair));
    assert!(scene.invalidate(0, bind.window).is_some());
    let mut scene = Scene::new();
    scene.window(WINDOW, true);
    let bind = scene.bind_of(true);
    scene.bind(0, bind).expect("bound");
    assert!(scene.invalidate(0, bind.window).is_none());
    assert_eq!(
        scene.rig.event_code(1),
        Some(AeCode::InvalidateTypeOneWindow)
    );
    assert!(scene.invalidate(1, scene.remote).is_none());
    assert_eq!(
        scene.rig.event_code(1),
        Some(AeCode::InvalidateWithBoundWindows)
    );
    scene.rig.assert_no_breach();
}

#[test]
fn a_send_with_invalidate_closes_the_window_and_says_which() {
    let mut scene = Scene::new();
    scene.window(WINDOW, false);
    let bind = scene.bind_of(false);
    scene.bind(0, bind).expect("bound");
    let buffer = Fragment {
        address: BASE + scene.to + 8192,
        length_bytes: 100,
        steering_tag: scene.remote,
    };
    scene.rig.post_receive(1, &mut scene.qps[1][0], buffer);
    assert!(scene.reach(0, SendOpcode::SendInvalidate, 0, bind.window, 10));
    let (received, _) = scene.rig.poll(1, &mut scene.cqs[1]).expect("received");
    assert_eq!(received.side, QueueSide::Receive);
    assert!(received.invalidated_or_ipv4);
    assert_eq!(received.invalidated_or_source, bind.window);
    // What is invalid cannot be invalidated from afar.
    scene.rig.post_receive(1, &mut scene.qps[1][0], buffer);
    assert!(!scene.reach(0, SendOpcode::SendInvalidate, 0, bind.window, 10));
    scene.refused(AeCode::InvalidateWithoutRemoteAccess);
}

/// The payload is in its place before the tag goes: they may be the same memory.
#[test]
fn a_send_may_invalidate_the_tag_of_the_receive_that_it_fills() {
    let mut scene = Scene::new();
    let buffer = Fragment {
        address: BASE + scene.to + 8192,
        length_bytes: 100,
        steering_tag: scene.remote,
    };
    scene.rig.post_receive(1, &mut scene.qps[1][0], buffer);
    let tag = scene.remote;
    assert!(scene.reach(0, SendOpcode::SendInvalidate, 0, tag, 10));
    let (received, _) = scene.rig.poll(1, &mut scene.cqs[1]).expect("received");
    assert_eq!(received.invalidated_or_source, tag);
    assert!(!scene.reach(0, SendOpcode::Write, 0, tag, 10), "it is gone");
}

/// The tag of the read's sink has a window bound: it may not go, and the read fails.
#[test]
fn a_read_whose_tag_cannot_be_invalidated_fails() {
    let mut scene = Scene::new();
    scene.window(WINDOW, false);
    let bind = scene.bind_of(false);
    scene.bind(0, bind).expect("bound");
    let sink = Fragment {
        address: BASE + scene.to,
        length_bytes: 64,
        steering_tag: scene.remote,
    };
    let source = (BASE + scene.from, scene.local);
    let Scene { rig, qps, cqs, .. } = &mut scene;
    let qp = &mut qps[1][0];
    let index = rig.request(1, qp, SendOpcode::ReadInvalidate, source, &[sink]);
    rig.ring(1, qp);
    rig.run();
    assert!(rig.poll(1, &mut cqs[1]).is_none(), "no success");
    let event = rig.event(1).expect("an event");
    assert_eq!(event.ae_code, AeCode::InvalidateWithBoundWindows);
    assert_eq!(u32::from(event.wqe_index), index);
    let oldest = rig.with(1, |engine, _| {
        let qp = engine.queue_pairs[3].as_mut().expect("queue pair 3");
        let token = qp.requester.as_ref().and_then(|one| one.oldest());
        token.map(|token| qp.work(token).index)
    });
    assert_eq!(oldest.map(u32::from), Some(index), "a flush starts there");
}

/// A tag for fast registration of up to four pages, its page list filled with pages of side 1.
fn fast(scene: &mut Scene, pages: &[u64]) -> Registration {
    fast_with(scene, pages, (PageList::OneLevel, 32))
}

/// The same, with the page list that the tag is allocated with.
fn fast_with(scene: &mut Scene, pages: &[u64], allocated: (PageList, u32)) -> Registration {
    let (pble_levels_code, first_pble_index) = allocated;
    for (index, page) in (32u64..).zip(pages) {
        scene.rig.set_pble(1, index, BASE + scene.to + page * 4096);
    }
    scene.rig.done(
        1,
        AllocateStag {
            length_bytes: 4 * 4096,
            protection_domain: DOMAIN,
            stag_index: FAST,
            is_memory_region: true,
            remote_access: true,
            pble_levels_code,
            first_pble_index,
            ..AllocateStag::ZERO
        },
    );
    Registration {
        tag: tag(FAST, 1),
        address: 0x7000_0000_0800,
        length: 6000,
        first_entry: 32,
        page: 0,
        levels: 1,
        page_size: 0,
        rights: ALL.0.into(),
        va_based: true,
    }
}

#[test]
fn a_fast_registration_opens_its_pages_until_the_next_one() {
    let mut scene = Scene::new();
    let first = fast(&mut scene, &[2, 0]);
    assert!(scene.register(first).is_some());
    scene.rig.fill(0, scene.from, b"0123456789");
    assert!(
        scene.write(0, first.address + 0x7FC, first.tag),
        "across two pages"
    );
    assert_eq!(scene.rig.bytes(1, scene.to + 2 * 4096 + 0xFFC, 4), b"0123");
    assert_eq!(scene.rig.bytes(1, scene.to, 6), b"456789");
    assert!(scene.invalidate(0, first.tag).is_some());
    // Other pages, another key, offsets instead of addresses, and more bytes than before.
    scene.rig.set_pble(1, 32, BASE + scene.to + 3 * 4096);
    let second = Registration {
        tag: tag(FAST, 2),
        address: 16,
        length: 7000,
        va_based: false,
        ..first
    };
    assert!(scene.register(second).is_some());
    assert!(scene.write(0, 100, second.tag));
    assert_eq!(
        scene.rig.bytes(1, scene.to + 3 * 4096 + 116, 10),
        b"0123456789"
    );
    assert!(!scene.write(0, first.address, first.tag));
    scene.refused(AeCode::BadStagKey);
}

/// irdma allocates its tags without a list (code 0, first entry 0) and names the list only when it
/// registers: NVMe over RDMA takes another list for each of its regions.
#[test]
fn a_tag_allocated_without_a_list_takes_the_list_of_each_registration() {
    let mut scene = Scene::new();
    let first = fast_with(&mut scene, &[2, 0], (PageList::Contiguous, 0));
    assert!(scene.register(first).is_some());
    scene.rig.fill(0, scene.from, b"0123456789");
    assert!(scene.write(0, first.address + 0x7FC, first.tag));
    assert_eq!(scene.rig.bytes(1, scene.to + 2 * 4096 + 0xFFC, 4), b"0123");
    assert!(scene.invalidate(0, first.tag).is_some());
    scene.rig.set_pble(1, 40, BASE + scene.to + 3 * 4096);
    let second = Registration {
        tag: tag(FAST, 2),
        first_entry: 40,
        length: 2048,
        ..first
    };
    assert!(scene.register(second).is_some());
    assert!(scene.write(0, second.address, second.tag));
    assert_eq!(
        scene.rig.bytes(1, scene.to + 3 * 4096 + 0x800, 10),
        b"0123456789"
    );
    scene.rig.assert_no_breach();
    // The list must lie within what was committed.
    assert!(scene.invalidate(0, second.tag).is_some());
    let outside = Registration {
        first_entry: 4095,
        length: 2 * 4096,
        ..second
    };
    assert!(scene.register(outside).is_none());
    let event = scene.rig.event(1).expect("an event");
    assert_eq!(event.ae_code, AeCode::FastRegisterPageListMismatch);
}

#[test]
fn a_fast_registration_of_one_page_needs_no_list() {
    let mut scene = Scene::new();
    let registration = fast(&mut scene, &[]);
    let registration = Registration {
        levels: 0,
        first_entry: 0,
        page: BASE + scene.to + 4096,
        length: 2048,
        ..registration
    };
    assert!(scene.register(registration).is_some());
    scene.rig.fill(0, scene.from, b"0123456789");
    assert!(scene.write(0, registration.address + 5, registration.tag));
    assert_eq!(
        scene.rig.bytes(1, scene.to + 4096 + 0x805, 10),
        b"0123456789"
    );
    scene.rig.assert_no_breach();
}

#[test]
fn every_fast_registration_that_cannot_be_has_its_event() {
    type Change = fn(&mut Scene, Registration) -> Registration;
    let cases: [(AeCode, Change); 8] = [
        (AeCode::FastRegisterValidStag, |scene, asked| {
            scene.register(asked).expect("registered");
            asked
        }),
        (AeCode::FastRegisterWindowStag, |scene, asked| {
            scene.window(WINDOW, false);
            Registration {
                tag: tag(WINDOW, 1),
                ..asked
            }
        }),
        (AeCode::FastRegisterInvalidLength, |_, asked| Registration {
            length: 0,
            ..asked
        }),
        (AeCode::FastRegisterInvalidLength, |_, asked| Registration {
            length: 16385,
            ..asked
        }),
        (AeCode::FastRegisterBadPageSize, |_, asked| Registration {
            page_size: 1,
            ..asked
        }),
        (AeCode::FastRegisterPageListMismatch, |_, asked| {
            Registration {
                first_entry: 33,
                ..asked
            }
        }),
        // There is no list of code 2.
        (AeCode::FastRegisterPageListMismatch, |_, asked| {
            Registration { levels: 2, ..asked }
        }),
        (AeCode::FastRegisterInvalidRights, |_, asked| Registration {
            rights: WRITE,
            ..asked
        }),
    ];
    for (code, change) in cases {
        let mut scene = Scene::new();
        let asked = fast(&mut scene, &[0, 1, 2, 3]);
        let asked = change(&mut scene, asked);
        assert!(scene.register(asked).is_none(), "{code:?}");
        let event = scene.rig.event(1).expect("an event");
        assert_eq!((event.ae_code, event.source), (code, AeSource::SendQueue));
        scene.rig.assert_no_breach();
    }
}

#[test]
fn a_list_has_an_entry_for_each_page_that_its_region_touches() {
    let mut scene = Scene::new();
    let first_entry = Rig::counts()[ObjectType::PageBufferList] - 2;
    let listed = |offset| RegisterMemoryRegion {
        virtual_address: BASE + offset,
        pble_levels_code: PageList::OneLevel,
        first_pble_index: first_entry,
        ..scene.rig.contiguous(20, 0, 2 * 4096)
    };
    let (fits, touches_three) = (listed(0), listed(0x800));
    assert!(scene.rig.command(1, touches_three).error);
    scene.rig.done(1, fits);
    let asked = fast_with(&mut scene, &[], (PageList::Contiguous, 0));
    let asked = Registration {
        first_entry,
        length: 2 * 4096,
        ..asked
    };
    assert!(scene.register(asked).is_none());
    let event = scene.rig.event(1).expect("an event");
    assert_eq!(event.ae_code, AeCode::FastRegisterPageListMismatch);
}

#[test]
fn an_entry_that_names_no_page_is_counted_when_it_is_used() {
    let mut scene = Scene::new();
    let asked = fast(&mut scene, &[2, 0]);
    scene.rig.set_pble(1, 33, BASE + scene.to + 0x10);
    assert!(scene.register(asked).is_some());
    assert!(scene.write(0, asked.address, asked.tag));
    scene.rig.assert_no_breach();
    assert!(!scene.write(0, asked.address + 0x7FC, asked.tag));
    assert_eq!(scene.rig.kinds(1), ["a page list entry is no page"]);
}

#[test]
fn a_large_page_of_a_fast_registration_that_begins_inside_one_is_counted() {
    let mut scene = Scene::new();
    scene.rig.done(
        1,
        AllocateStag {
            protection_domain: DOMAIN,
            stag_index: FAST + 1,
            is_memory_region: true,
            remote_access: true,
            page_size: PageSize::TwoMib,
            ..AllocateStag::ZERO
        },
    );
    let asked = Registration {
        tag: tag(FAST + 1, 1),
        levels: 0,
        page_size: 1,
        page: (BASE + scene.to).next_multiple_of(2 << 20) + 4096,
        ..fast(&mut scene, &[])
    };
    assert!(scene.register(asked).is_some());
    assert_eq!(scene.rig.kinds(1), ["a structure in memory is misaligned"]);
}

#[test]
fn tags_are_listed_until_they_are_given_back() {
    let mut scene = Scene::new();
    scene.window(WINDOW, false);
    fast(&mut scene, &[]);
    let mut listed = scene.rig.sides[1].engine.snapshot().steering_tags;
    listed.sort_unstable();
    assert_eq!(listed, [2, WINDOW, FAST]);
}
