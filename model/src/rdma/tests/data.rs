use super::rig::{ALL, BASE, CQ_CONTEXT, Cq, DOMAIN, QUANTA, Qp, Rig};
use crate::rdma::objects::queue_pair::Work;
use ringside_spec::rdma::ae_codes::AeCode;
use ringside_spec::rdma::commands::*;
use ringside_spec::rdma::registers as reg;
use ringside_spec::verbs::send::{BindHeader, BindTags, InlineTail};
use ringside_spec::verbs::{Fragment, QueueSide, SendHeader, SendOpcode};

fn pattern(length: usize) -> Vec<u8> {
    (0..length)
        .map(|index| (index * 31 + index / 251) as u8)
        .collect()
}

pub(super) fn piece(at: u64, length_bytes: u32, steering_tag: u32) -> Fragment {
    Fragment {
        address: BASE + at,
        length_bytes,
        steering_tag,
    }
}

#[test]
fn packets_over_either_network_carry_no_udp_checksum() {
    use crate::packet::{Network, UdpChecksum};
    let mut rig = Rig::new();
    rig.pair();
    for ipv4 in [true, false] {
        let path = rig.with(0, |engine, _| {
            let qp = engine.queue_pairs[3].as_mut().expect("connected");
            qp.context.ipv4 = ipv4;
            qp.take_path();
            qp.path([2; 6])
        });
        assert_eq!(matches!(path.network, Network::V4(_)), ipv4);
        assert_eq!(path.udp_checksum, UdpChecksum::Absent, "IPv4: {ipv4}");
    }
}

#[test]
fn writes_of_many_lengths_arrive_whole_and_complete_once() {
    let mut rig = Rig::new();
    let (mut qps, mut cqs) = rig.pair();
    let (from, to) = (rig.data(0, 1 << 18), rig.data(1, 1 << 18));
    let local = rig.region(0, 1, from, 1 << 18);
    let remote = rig.region(1, 2, to, 1 << 18);
    let bytes = pattern(1 << 18);
    rig.fill(0, from, &bytes);
    for length in [
        0usize,
        1,
        8,
        127,
        128,
        129,
        1023,
        1024,
        1025,
        4096,
        100_000,
        1 << 18,
    ] {
        rig.fill(1, to, &vec![0; 1 << 18]);
        let source = [piece(from, length as u32, local)];
        let index = rig.request(
            0,
            &mut qps[0],
            SendOpcode::Write,
            (BASE + to, remote),
            &source,
        );
        rig.ring(0, &qps[0]);
        rig.run();
        let (element, _) = rig.poll(0, &mut cqs[0]).expect("a completion");
        assert_eq!(u32::from(element.element_index), index);
        assert_eq!((element.side, element.error), (QueueSide::Send, false));
        assert_eq!(element.context, 0xA003);
        assert!(rig.poll(0, &mut cqs[0]).is_none());
        assert_eq!(rig.bytes(1, to, length), bytes[..length], "{length}");
        assert!(
            rig.bytes(1, to + length as u64, 64.min((1 << 18) - length))
                .iter()
                .all(|b| *b == 0)
        );
    }
    assert!(rig.poll(1, &mut cqs[1]).is_none());
    rig.assert_no_breach();
}

#[test]
fn reads_bring_the_peers_bytes_to_several_sinks() {
    let mut rig = Rig::new();
    let (mut qps, mut cqs) = rig.pair();
    let (sink, source) = (rig.data(0, 16384), rig.data(1, 16384));
    let local = rig.region(0, 1, sink, 16384);
    let remote = rig.region(1, 2, source, 16384);
    let bytes = pattern(16384);
    rig.fill(1, source, &bytes);
    let sinks = [
        piece(sink, 100, local),
        piece(sink + 5000, 3000, local),
        piece(sink + 200, 7, local),
    ];
    rig.request(
        0,
        &mut qps[0],
        SendOpcode::Read,
        (BASE + source, remote),
        &sinks,
    );
    rig.ring(0, &qps[0]);
    rig.run();
    let (element, _) = rig.poll(0, &mut cqs[0]).expect("a completion");
    assert_eq!(element.operation, SendOpcode::Read.code());
    assert_eq!(rig.bytes(0, sink, 100), bytes[..100]);
    assert_eq!(rig.bytes(0, sink + 5000, 3000), bytes[100..3100]);
    assert_eq!(rig.bytes(0, sink + 200, 7), bytes[3100..3107]);
    rig.assert_no_breach();
}

#[test]
fn sends_land_in_receive_requests_in_order() {
    let mut rig = Rig::new();
    let (mut qps, mut cqs) = rig.pair();
    let (from, to) = (rig.data(0, 8192), rig.data(1, 8192));
    let local = rig.region(0, 1, from, 8192);
    let target = rig.region(1, 2, to, 8192);
    rig.fill(0, from, &pattern(8192));
    for number in 0..3u64 {
        rig.post_receive(1, &mut qps[1], piece(to + number * 2048, 2048, target));
    }
    for length in [10, 2048, 0] {
        rig.request(
            0,
            &mut qps[0],
            SendOpcode::Send,
            (0, 0),
            &[piece(from, length, local)],
        );
    }
    rig.ring(0, &qps[0]);
    rig.run();
    for (number, length) in [10u32, 2048, 0].into_iter().enumerate() {
        let (element, extension) = rig.poll(1, &mut cqs[1]).expect("a completion");
        assert_eq!(element.side, QueueSide::Receive);
        assert_eq!(
            (element.element_index as usize, element.payload_bytes),
            (number, length)
        );
        assert!(extension.is_none());
        let landed = rig.bytes(1, to + number as u64 * 2048, length as usize);
        assert_eq!(landed, pattern(8192)[..length as usize]);
        rig.poll(0, &mut cqs[0]).expect("a send completion");
    }
    rig.assert_no_breach();
}

#[test]
fn immediate_data_comes_in_an_extended_completion() {
    let mut rig = Rig::new();
    let (mut qps, mut cqs) = rig.pair();
    let (from, to) = (rig.data(0, 4096), rig.data(1, 4096));
    let local = rig.region(0, 1, from, 4096);
    let remote = rig.region(1, 2, to, 4096);
    rig.fill(0, from, b"immediately");
    rig.post_receive(1, &mut qps[1], piece(to + 512, 64, remote));
    // Immediate data is in word 0; word 1 is stale; the fragment moves to the second quantum.
    let [address, key] = piece(from, 11, local).encode(true);
    let header = SendHeader::ZERO
        .with_opcode(SendOpcode::Write.code().into())
        .with_immediate(true)
        .with_further_fragments(2)
        .with_steering_tag(remote.into())
        .with_signalled(true)
        .with_valid(true);
    let filler = Fragment::default().encode(true);
    let words = [
        0xDEAD_BEEF,
        u64::MAX,
        BASE + to,
        header.0,
        address,
        key,
        filler[0],
        filler[1],
    ];
    rig.post(0, &mut qps[0], &words);
    rig.ring(0, &qps[0]);
    rig.run();
    let (element, extension) = rig.poll(1, &mut cqs[1]).expect("a completion");
    assert_eq!(
        extension.and_then(|extension| extension.immediate),
        Some(0xDEAD_BEEF)
    );
    assert_eq!((element.operation, element.payload_bytes), (0x0B, 11));
    assert_eq!(rig.bytes(1, to, 11), b"immediately");
    rig.poll(0, &mut cqs[0]).expect("a completion");
    rig.assert_no_breach();
}

#[test]
fn inline_data_needs_no_region() {
    let mut rig = Rig::new();
    let (mut qps, mut cqs) = rig.pair();
    let to = rig.data(1, 4096);
    let remote = rig.region(1, 2, to, 4096);
    let bytes = pattern(39);
    let header = SendHeader::ZERO
        .with_opcode(SendOpcode::Write.code().into())
        .with_inline(true)
        .with_inline_length_bytes(39)
        .with_steering_tag(remote.into())
        .with_signalled(true)
        .with_valid(true);
    let word = |range: std::ops::Range<usize>| {
        let mut raw = [0; 8];
        raw[..range.len()].copy_from_slice(&bytes[range]);
        u64::from_le_bytes(raw)
    };
    let tail = InlineTail(word(32..39)).with_valid(true).0;
    // Word 0 holds neither data nor immediate: stale.
    let words = [
        u64::MAX,
        word(0..8),
        BASE + to,
        header.0,
        word(8..16),
        word(16..24),
        word(24..32),
        tail,
    ];
    rig.post(0, &mut qps[0], &words);
    rig.ring(0, &qps[0]);
    rig.run();
    rig.poll(0, &mut cqs[0]).expect("a completion");
    assert_eq!(rig.bytes(1, to, 39), bytes);
    rig.assert_no_breach();
}

#[test]
fn regions_of_one_and_two_list_levels_translate_page_by_page() {
    let mut rig = Rig::new();
    let (mut qps, mut cqs) = rig.pair();
    let (from, pages) = (rig.data(0, 16384), rig.data(1, 16384));
    let local = rig.region(0, 1, from, 16384);
    rig.fill(0, from, &pattern(16384));
    // Pages in the order 2, 0, 3, 1; the region begins 100 bytes into the first.
    let order = [2u64, 0, 3, 1];
    for (entry, page) in order.into_iter().enumerate() {
        rig.set_pble(1, 64 + entry as u64, BASE + pages + page * 4096);
    }
    rig.set_pble(1, 128, 64);
    for (index, page_list, first_pble_index) in
        [(2, PageList::OneLevel, 64), (3, PageList::TwoLevels, 128)]
    {
        let virtual_address = 0x7000_0000_0064;
        rig.done(
            1,
            RegisterMemoryRegion {
                virtual_address,
                length_bytes: 16284,
                protection_domain: DOMAIN,
                stag_index: index,
                first_pble_index,
                is_memory_region: true,
                pble_levels_code: page_list,
                access_rights: ALL,
                remote_access: true,
                va_based: true,
                ..RegisterMemoryRegion::ZERO
            },
        );
        rig.fill(1, pages, &[0; 16384]);
        let remote = SteeringTag::ZERO.with_index(index).0;
        let source = [piece(from, 10_000, local)];
        rig.request(
            0,
            &mut qps[0],
            SendOpcode::Write,
            (virtual_address, remote),
            &source,
        );
        rig.ring(0, &qps[0]);
        rig.run();
        rig.poll(0, &mut cqs[0]).expect("a completion");
        let mut landed = Vec::new();
        for page in order {
            landed.extend(rig.bytes(1, pages + page * 4096, 4096));
        }
        assert_eq!(landed[100..10_100], pattern(16384)[..10_000]);
        assert!(
            landed[10_100..]
                .iter()
                .chain(&landed[..100])
                .all(|byte| *byte == 0)
        );
    }
    rig.assert_no_breach();
}

#[test]
fn the_device_says_where_it_stopped_looking() {
    let mut rig = Rig::new();
    let (mut qps, mut cqs) = rig.pair();
    let (from, to) = (rig.data(0, 4096), rig.data(1, 4096));
    let (local, remote) = (rig.region(0, 1, from, 4096), rig.region(1, 2, to, 4096));
    for round in 1..=3 * QUANTA {
        rig.request(
            0,
            &mut qps[0],
            SendOpcode::Write,
            (BASE + to, remote),
            &[piece(from, 8, local)],
        );
        rig.ring(0, &qps[0]);
        rig.run();
        rig.poll(0, &mut cqs[0]).expect("a completion");
        let [tail] = rig.get(0, qps[0].shadow);
        assert_eq!(tail, u64::from(round % QUANTA));
    }
    rig.assert_no_breach();
}

#[test]
fn a_queue_pair_with_one_request_at_a_time_keeps_it_in_one_place() {
    let mut rig = Rig::new();
    let (qps, _) = rig.pair();
    let number = qps[0].number as usize;
    let qp = rig.sides[0].engine.queue_pairs[number].as_mut().unwrap();
    for index in 0..3 {
        let work = Work {
            index,
            ..Work::default()
        };
        assert_eq!(qp.remember(work), 0);
        assert_eq!(qp.work(0).index, index);
    }
}

#[test]
fn a_polled_page_finds_work_by_doorbell_and_by_valid_bit() {
    let mut rig = Rig::new();
    let page = ringside_bus::Memory::allocate(4096, ringside_bus::PageSize::FourKiB, None).unwrap();
    rig.sides[0].engine.share_doorbell_page(page.clone());
    let words = page.words(0, 4096).unwrap();
    let (mut qps, mut cqs) = rig.pair();
    let (from, to) = (rig.data(0, 4096), rig.data(1, 4096));
    let (local, remote) = (rig.region(0, 1, from, 4096), rig.region(1, 2, to, 4096));
    for _ in 0..10 {
        rig.request(
            0,
            &mut qps[0],
            SendOpcode::Write,
            (BASE + to, remote),
            &[piece(from, 8, local)],
        );
        // The same value each time: only the first store can be seen.
        words.store(0, 3);
        rig.run();
        for _ in 0..20 {
            rig.turn();
        }
        rig.poll(0, &mut cqs[0]).expect("a completion");
    }
    rig.assert_no_breach();
}

#[test]
fn the_same_doorbell_rung_twice_is_taken_twice_and_then_no_more() {
    let page = ringside_bus::Memory::allocate(4096, ringside_bus::PageSize::FourKiB, None).unwrap();
    let mut doorbells = crate::rdma::registers::DoorbellPage::new(&page).unwrap();
    let words = page.words(0, 4096).unwrap();
    assert_eq!(doorbells.take().send, None);
    for _ in 0..2 {
        words.store(0, 3);
        words.store(8, 5);
        let rung = doorbells.take();
        assert_eq!((rung.send, rung.arm), (Some(3), Some(5)));
    }
    let rung = doorbells.take();
    assert_eq!((rung.send, rung.arm), (None, None));
}

#[test]
fn a_doorbell_in_the_page_arrives_before_the_command_that_follows_it() {
    let mut rig = Rig::new();
    let page = ringside_bus::Memory::allocate(4096, ringside_bus::PageSize::FourKiB, None).unwrap();
    rig.sides[0].engine.share_doorbell_page(page.clone());
    let words = page.words(0, 4096).unwrap();
    let _queue = rig.cq(0, 3, 16);
    // Armed, and destroyed before the engine has looked at the page.
    words.store(8, 3);
    rig.done(
        0,
        DestroyCompletionQueue {
            cq_number: 3,
            ..DestroyCompletionQueue::ZERO
        },
    );
    rig.run();
    rig.assert_no_breach();
}

/// The frame that the engine of the first side sends now, if it sends one. It is not delivered.
fn sends(rig: &mut Rig) -> bool {
    rig.with(0, |engine, context| {
        engine.step(context);
        engine.next_run(4096, context).is_some()
    })
}

/// Steps until a packet leaves, 200 at most. A busy engine has an event to report in each step.
fn steps_until_sent(rig: &mut Rig, busy: bool) -> Option<u32> {
    (1..=200).find(|_| {
        if busy {
            let code = AeCode::SuspendComplete.code();
            rig.with(0, |engine, _| engine.inject_event(code, 0, 0));
        }
        let sent = sends(rig);
        assert_eq!(rig.event_code(0).is_some(), busy);
        sent
    })
}

/// Software that read the tail before the device published it does not ring again. No answer comes
/// that would make the engine look at this queue pair.
#[test]
fn work_posted_without_doorbell_behind_a_told_tail_is_found() {
    for busy in [false, true] {
        let mut rig = Rig::new();
        let (mut qps, _) = rig.pair();
        let (from, to) = (rig.data(0, 4096), rig.data(1, 4096));
        let (local, remote) = (rig.region(0, 1, from, 4096), rig.region(1, 2, to, 4096));
        let post = |rig: &mut Rig, qp: &mut Qp| {
            rig.request(
                0,
                qp,
                SendOpcode::Write,
                (BASE + to, remote),
                &[piece(from, 8, local)],
            );
        };
        for round in 0..3 {
            let case = format!("round {round}, busy: {busy}");
            post(&mut rig, &mut qps[0]);
            rig.ring(0, &qps[0]);
            assert!(sends(&mut rig), "{case}: rung");
            // It has published the tail, and has nothing more to send.
            let more = rig.with(0, |engine, context| {
                engine.next_run(4096, context).is_some()
            });
            assert!(!more, "{case}");
            post(&mut rig, &mut qps[0]);
            // An idle engine looks in its next step, a busy one after 64 steps with work.
            let steps = steps_until_sent(&mut rig, busy);
            let most = if busy { 65 } else { 2 };
            assert!(
                steps.is_some_and(|steps| steps <= most),
                "{case}: {steps:?}"
            );
            while sends(&mut rig) {}
        }
        rig.assert_no_breach();
    }
}

#[test]
fn a_region_that_is_released_grants_nothing_although_it_was_used_last() {
    let mut rig = Rig::new();
    let (mut qps, mut cqs) = rig.pair();
    let (from, to) = (rig.data(0, 4096), rig.data(1, 4096));
    let (local, remote) = (rig.region(0, 1, from, 4096), rig.region(1, 2, to, 4096));
    let write = |rig: &mut Rig, qp: &mut Qp, byte: u8| {
        rig.fill(0, from, &[byte; 8]);
        let target = (BASE + to, remote);
        rig.request(0, qp, SendOpcode::Write, target, &[piece(from, 8, local)]);
        rig.ring(0, qp);
        rig.run();
    };
    for byte in 1..4 {
        write(&mut rig, &mut qps[0], byte);
        rig.poll(0, &mut cqs[0]).expect("a completion");
        assert_eq!(rig.bytes(1, to, 8), [byte; 8]);
    }
    rig.done(
        1,
        DeallocateStag {
            protection_domain: DOMAIN,
            stag_index: 2,
            is_memory_region: true,
        },
    );
    write(&mut rig, &mut qps[0], 9);
    assert_eq!(
        rig.bytes(1, to, 8),
        [3; 8],
        "written through a released region"
    );
    assert_eq!(rig.event_code(0), Some(AeCode::RemoteAccessError));
}

#[test]
fn of_doorbells_that_overwrote_each_other_all_work_is_found() {
    let mut rig = Rig::new();
    let page = ringside_bus::Memory::allocate(4096, ringside_bus::PageSize::FourKiB, None).unwrap();
    rig.sides[0].engine.share_doorbell_page(page.clone());
    let words = page.words(0, 4096).unwrap();
    let mut cqs: Vec<_> = (0..2).map(|side| rig.cq(side, 3, 64)).collect();
    let mut near = Vec::new();
    for number in 3..12 {
        for (side, cq) in cqs.iter().enumerate() {
            let qp = rig.qp(side, number, cq);
            rig.connect(side, &qp);
            if side == 0 {
                near.push(qp);
            }
        }
    }
    let (from, to) = (rig.data(0, 4096), rig.data(1, 4096));
    let (local, remote) = (rig.region(0, 1, from, 4096), rig.region(1, 2, to, 4096));
    for round in 0..20 {
        for qp in &mut near {
            rig.request(
                0,
                qp,
                SendOpcode::Write,
                (BASE + to, remote),
                &[piece(from, 8, local)],
            );
            words.store(0, u64::from(qp.number));
        }
        // Nine queue pairs, of which one rang: a turn for each four of the rest is enough.
        for _ in 0..3 {
            rig.turn();
        }
        for _ in &near {
            rig.poll(0, &mut cqs[0])
                .unwrap_or_else(|| panic!("round {round}: a write is still waiting"));
        }
    }
    rig.assert_no_breach();
}

#[test]
fn an_armed_queue_tells_once_and_again_after_acknowledge() {
    let mut rig = Rig::new();
    let (mut qps, mut cqs) = rig.pair();
    let (from, to) = (rig.data(0, 4096), rig.data(1, 4096));
    let (local, remote) = (rig.region(0, 1, from, 4096), rig.region(1, 2, to, 4096));
    let mut write = |rig: &mut Rig, cqs: &mut Vec<_>| {
        rig.request(
            0,
            &mut qps[0],
            SendOpcode::Write,
            (BASE + to, remote),
            &[piece(from, 8, local)],
        );
        rig.ring(0, &qps[0]);
        rig.run();
        rig.poll(0, &mut cqs[0]).expect("a completion");
    };
    let context = CQ_CONTEXT + 3;
    write(&mut rig, &mut cqs);
    assert!(!rig.completion_event(0, 0).valid, "not armed");
    rig.arm(0, &cqs[0], true);
    write(&mut rig, &mut cqs);
    assert!(
        !rig.completion_event(0, 0).valid,
        "a send completion is not solicited"
    );
    rig.arm(0, &cqs[0], false);
    write(&mut rig, &mut cqs);
    assert_eq!(rig.completion_event(0, 0).completion_context, context);
    assert!(rig.completion_event(0, 0).valid);
    assert_eq!(rig.sides[0].causes.completion_event_queues, [0]);
    write(&mut rig, &mut cqs);
    assert!(!rig.completion_event(0, 1).valid, "disarmed");
    rig.arm(0, &cqs[0], false);
    write(&mut rig, &mut cqs);
    assert!(
        !rig.completion_event(0, 1).valid,
        "the first was not acknowledged"
    );
    rig.write(0, reg::CQ_ACKNOWLEDGE, 3);
    assert!(rig.completion_event(0, 1).valid);
    rig.assert_no_breach();
}

#[test]
fn arming_beside_an_unread_completion_tells_of_it() {
    let mut rig = Rig::new();
    let (mut qps, mut cqs) = rig.pair();
    let (from, to) = (rig.data(0, 4096), rig.data(1, 4096));
    let (local, remote) = (rig.region(0, 1, from, 4096), rig.region(1, 2, to, 4096));
    let mut write = |rig: &mut Rig| {
        let piece = [piece(from, 8, local)];
        rig.request(
            0,
            &mut qps[0],
            SendOpcode::Write,
            (BASE + to, remote),
            &piece,
        );
        rig.ring(0, &qps[0]);
        rig.run();
    };
    let is_armed_meanwhile = |rig: &mut Rig| {
        let queue = rig.sides[0].engine.objects.completion_queue(3);
        queue.expect("the queue").is_armed_meanwhile(false)
    };
    // Software armed for the first time and found the queue empty; then the completion came, and
    // then the doorbell.
    write(&mut rig);
    rig.arm(0, &cqs[0], false);
    assert!(rig.completion_event(0, 0).valid);
    rig.poll(0, &mut cqs[0]).expect("a completion");
    rig.write(0, reg::CQ_ACKNOWLEDGE, 3);
    // Later, requests are looked at again once the completion is there.
    write(&mut rig);
    assert!(!is_armed_meanwhile(&mut rig));
    rig.arm_in_memory(0, &cqs[0], true);
    assert!(!is_armed_meanwhile(&mut rig), "it is not solicited");
    rig.arm_in_memory(0, &cqs[0], false);
    assert!(is_armed_meanwhile(&mut rig));
    assert!(!is_armed_meanwhile(&mut rig), "it was told of");
    // A request made after the completion was read is for the next one.
    rig.poll(0, &mut cqs[0]).expect("a completion");
    rig.arm_in_memory(0, &cqs[0], false);
    assert!(!is_armed_meanwhile(&mut rig));
    rig.write(0, reg::CQ_ARM, 3);
    assert!(!rig.completion_event(0, 1).valid);
    write(&mut rig);
    assert!(rig.completion_event(0, 1).valid);
    rig.assert_no_breach();
}

/// Moves the completion queue 3 of function 0 to a new ring.
fn resize(rig: &mut Rig, cq: &mut Cq) {
    let ring = rig.ring_memory(0, 4096);
    rig.done(
        0,
        ModifyCompletionQueue {
            cq_number: 3,
            size_entries: 128,
            ring_address: BASE + ring,
            shadow_address: BASE + cq.shadow,
            resize: true,
            ..ModifyCompletionQueue::ZERO
        },
    );
    cq.ring = ring;
    cq.size = 128;
}

#[test]
fn a_resized_queue_goes_on_in_its_new_ring() {
    let mut rig = Rig::new();
    let (mut qps, mut cqs) = rig.pair();
    let (from, to) = (rig.data(0, 4096), rig.data(1, 4096));
    let (local, remote) = (rig.region(0, 1, from, 4096), rig.region(1, 2, to, 4096));
    resize(&mut rig, &mut cqs[0]);
    rig.request(
        0,
        &mut qps[0],
        SendOpcode::Write,
        (BASE + to, remote),
        &[piece(from, 8, local)],
    );
    rig.ring(0, &qps[0]);
    rig.run();
    rig.poll(0, &mut cqs[0]).expect("a completion");
    rig.assert_no_breach();
}

#[test]
fn requests_for_events_count_once_their_queue_is_resized() {
    let mut rig = Rig::new();
    let (mut qps, mut cqs) = rig.pair();
    let (from, to) = (rig.data(0, 4096), rig.data(1, 4096));
    let (local, remote) = (rig.region(0, 1, from, 4096), rig.region(1, 2, to, 4096));
    // The sequence number of the requests has two bits: four of them look like none, unless the
    // device has seen some of them meanwhile. Their doorbells are lost, as in a page in memory.
    for _ in 0..4 {
        rig.arm_in_memory(0, &cqs[0], false);
        resize(&mut rig, &mut cqs[0]);
    }
    rig.request(
        0,
        &mut qps[0],
        SendOpcode::Write,
        (BASE + to, remote),
        &[piece(from, 8, local)],
    );
    rig.ring(0, &qps[0]);
    rig.run();
    assert!(rig.completion_event(0, 0).valid);
    rig.poll(0, &mut cqs[0]).expect("a completion");
    rig.assert_no_breach();
}

#[test]
fn draining_ends_with_an_event_and_stops_new_requests() {
    let mut rig = Rig::new();
    let (mut qps, mut cqs) = rig.pair();
    let (from, to) = (rig.data(0, 4096), rig.data(1, 4096));
    let (local, remote) = (rig.region(0, 1, from, 4096), rig.region(1, 2, to, 4096));
    let command = rig.modify(&qps[0], QueuePairState::Closing);
    rig.done(0, command);
    assert_eq!(rig.event_code(0), Some(AeCode::SuspendComplete));
    rig.request(
        0,
        &mut qps[0],
        SendOpcode::Write,
        (BASE + to, remote),
        &[piece(from, 8, local)],
    );
    rig.ring(0, &qps[0]);
    rig.run();
    assert!(rig.poll(0, &mut cqs[0]).is_none());
    // Linux asks for it; what waits is not lost.
    let flush = FlushWorkQueues {
        qp_number: qps[0].number,
        flush_sq: true,
        flush_rq: true,
        ..FlushWorkQueues::ZERO
    };
    assert!(rig.command(0, flush).error);
    assert!(rig.poll(0, &mut cqs[0]).is_none());
    // The context still holds the first packet number; it must not be taken again.
    let command = rig.modify(&qps[0], QueuePairState::ReadyToSend);
    rig.done(0, command);
    rig.run();
    rig.poll(0, &mut cqs[0]).expect("a completion");
    for _ in 0..2 {
        let command = rig.modify(&qps[0], QueuePairState::ReadyToSend);
        rig.done(0, command);
        rig.request(
            0,
            &mut qps[0],
            SendOpcode::Write,
            (BASE + to, remote),
            &[piece(from, 8, local)],
        );
        rig.ring(0, &qps[0]);
        rig.run();
        rig.poll(0, &mut cqs[0]).expect("a completion");
    }
    assert_eq!(rig.event(0), None);
    rig.assert_no_breach();
}

#[test]
fn suspending_raises_the_event_and_resuming_goes_on() {
    let mut rig = Rig::new();
    let (mut qps, mut cqs) = rig.pair();
    let (from, to) = (rig.data(0, 4096), rig.data(1, 4096));
    let (local, remote) = (rig.region(0, 1, from, 4096), rig.region(1, 2, to, 4096));
    rig.done(0, SuspendQueuePair { qp_number: 3 });
    assert_eq!(rig.event_code(0), Some(AeCode::SuspendComplete));
    rig.request(
        0,
        &mut qps[0],
        SendOpcode::Write,
        (BASE + to, remote),
        &[piece(from, 8, local)],
    );
    rig.ring(0, &qps[0]);
    rig.run();
    assert!(rig.poll(0, &mut cqs[0]).is_none());
    rig.done(
        0,
        ResumeQueuePair {
            queue_set_handle: Rig::QUEUE_SET.into(),
            qp_number: 3,
        },
    );
    rig.run();
    rig.poll(0, &mut cqs[0]).expect("a completion");
    rig.assert_no_breach();
}

#[test]
fn a_window_opens_a_part_of_a_region_until_it_is_invalidated() {
    let mut rig = Rig::new();
    let (mut qps, mut cqs) = rig.pair();
    let (from, to) = (rig.data(0, 4096), rig.data(1, 4096));
    let local = rig.region(0, 1, from, 4096);
    let parent = rig.region(1, 2, to, 4096);
    rig.done(
        1,
        AllocateStag {
            protection_domain: DOMAIN,
            stag_index: 9,
            ..AllocateStag::ZERO
        },
    );
    let window = SteeringTag::ZERO.with_index(9).with_key(0x21).0;
    let tags = BindTags::ZERO
        .with_window(window.into())
        .with_region(parent.into());
    let header = BindHeader::ZERO
        .with_opcode(SendOpcode::BindWindow.code().into())
        .with_access_rights(8)
        .with_virtual_address_based(true)
        .with_signalled(true)
        .with_valid(true);
    rig.post(1, &mut qps[1], &[BASE + to + 1000, tags.0, 100, header.0]);
    rig.ring(1, &qps[1]);
    rig.run();
    let (element, _) = rig.poll(1, &mut cqs[1]).expect("bound");
    assert_eq!(element.operation, SendOpcode::BindWindow.code());
    rig.fill(0, from, b"through the window");
    let target = (BASE + to + 1010, window);
    rig.request(
        0,
        &mut qps[0],
        SendOpcode::Write,
        target,
        &[piece(from, 18, local)],
    );
    rig.ring(0, &qps[0]);
    rig.run();
    rig.poll(0, &mut cqs[0]).expect("written");
    assert_eq!(rig.bytes(1, to + 1010, 18), b"through the window");
    let header = SendHeader::ZERO
        .with_opcode(SendOpcode::LocalInvalidate.code().into())
        .with_signalled(true)
        .with_valid(true);
    rig.post(1, &mut qps[1], &[0, window.into(), 0, header.0]);
    rig.ring(1, &qps[1]);
    rig.run();
    rig.poll(1, &mut cqs[1]).expect("invalidated");
    rig.request(
        0,
        &mut qps[0],
        SendOpcode::Write,
        target,
        &[piece(from, 18, local)],
    );
    rig.ring(0, &qps[0]);
    rig.run();
    assert_eq!(rig.event_code(0), Some(AeCode::RemoteAccessError));
    assert_eq!(rig.event_code(1), Some(AeCode::InvalidStag));
    rig.assert_no_breach();
}

/// The driver's handler of an event may lose the processor to the queue's destruction, and
/// acknowledge and arm afterwards.
#[test]
fn what_an_events_handler_writes_may_come_after_its_queue_is_gone_but_once_only() {
    let mut rig = Rig::new();
    let (mut qps, cqs) = rig.pair();
    let (from, to) = (rig.data(0, 4096), rig.data(1, 4096));
    let (local, remote) = (rig.region(0, 1, from, 4096), rig.region(1, 2, to, 4096));
    rig.arm(0, &cqs[0], false);
    let source = [piece(from, 8, local)];
    rig.request(
        0,
        &mut qps[0],
        SendOpcode::Write,
        (BASE + to, remote),
        &source,
    );
    rig.ring(0, &qps[0]);
    rig.run();
    assert!(rig.completion_event(0, 0).valid);
    let destroy = DestroyQueuePair {
        qp_number: qps[0].number,
        qp_type: QueuePairType::RoceReliableConnected,
        ..DestroyQueuePair::ZERO
    };
    rig.done(0, destroy);
    let destroy = DestroyCompletionQueue {
        cq_number: 3,
        ..DestroyCompletionQueue::ZERO
    };
    rig.done(0, destroy);
    rig.write(0, reg::CQ_ACKNOWLEDGE, 3);
    rig.write(0, reg::CQ_ARM, 3);
    rig.assert_no_breach();
    rig.write(0, reg::CQ_ACKNOWLEDGE, 3);
    rig.write(0, reg::CQ_ARM, 3);
    assert_eq!(
        rig.kinds(0),
        [
            "acknowledge of a completion queue that does not exist",
            "doorbell of a completion queue that does not exist",
        ]
    );
}
