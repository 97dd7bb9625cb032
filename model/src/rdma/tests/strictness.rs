use super::rig::{BASE, DOMAIN, Rig};
use ringside_bus::Iova;
use ringside_spec::rdma::commands::*;
use ringside_spec::rdma::qp_context::RoceQueuePairContext;
use ringside_spec::rdma::registers as reg;
use ringside_spec::rdma::segments::{SegmentData, SegmentEntry};
use ringside_spec::verbs::{Fragment, SendOpcode};

#[test]
fn a_queue_before_its_memory_is_refused_and_named() {
    let mut rig = Rig::bare();
    rig.create_control_queue(0);
    rig.commit(0);
    let tail = rig.submit(0, Rig::control_completion_queue());
    assert!(tail.operation_error());
    let tail = rig.submit(
        0,
        StaticHmcPagesAllocated {
            hmc_function_index: 0,
        },
    );
    assert!(tail.operation_error());
    assert_eq!(
        rig.kinds(0),
        [
            "SHMC_PAGES_ALLOCATED before all segments are backed",
            "an object is created before its memory is there",
        ]
    );
}

#[test]
fn what_exists_cannot_be_created_and_what_is_used_cannot_go() {
    let mut rig = Rig::new();
    let (qps, cqs) = rig.pair();
    let _ = qps;
    assert!(rig.command(0, Rig::control_completion_queue()).error);
    let (_, command) = rig.describe_qp(0, 3, 3);
    assert!(rig.command(0, command).error);
    let command = DestroyCompletionQueue {
        cq_number: cqs[0].number,
        ..DestroyCompletionQueue::ZERO
    };
    assert!(rig.command(0, command).error);
    assert!(rig.command(0, DestroyCompletionEventQueue::ZERO).error);
    assert_eq!(
        rig.kinds(0),
        [
            "an object is created twice",
            "an object is destroyed while others use it",
        ]
    );
}

#[test]
fn numbers_beyond_the_commit_are_refused() {
    let mut rig = Rig::new();
    let (_, command) = rig.describe_qp(0, 16, 3);
    assert!(rig.command(0, command).error);
    assert!(
        rig.command(
            0,
            CreateCompletionQueue {
                cq_number: 32,
                ..Rig::control_completion_queue()
            }
        )
        .error
    );
    assert!(
        rig.command(
            0,
            ManageArp {
                arp_index: 16,
                ..ManageArp::ZERO
            }
        )
        .error
    );
    let command = rig.contiguous(64, 0, 4096);
    assert!(rig.command(0, command).error);
    assert_eq!(rig.kinds(0), ["an object beyond those that were committed"]);
}

#[test]
fn reserved_bits_and_misaligned_rings_are_named() {
    let mut rig = Rig::new();
    let completion = rig.command(
        0,
        CreateCompletionQueue {
            cq_number: 5,
            ring_address: BASE + 0x8020,
            ..Rig::control_completion_queue()
        },
    );
    assert!(completion.error);
    assert_eq!(rig.kinds(0), ["a structure in memory is misaligned"]);
    let mut rig = Rig::bare();
    rig.create_control_queue(0);
    let mut words = Command::from(Nop {}).encode(true);
    words[0] = 1;
    rig.submit_words(0, words);
    assert_eq!(rig.kinds(0), ["reserved bits are set in a command"]);
}

#[test]
fn a_handle_or_event_code_wider_than_its_field_is_cut() {
    let mut rig = Rig::new();
    let (qps, _cqs) = rig.pair();
    rig.done(
        0,
        ResumeQueuePair {
            queue_set_handle: u32::MAX,
            qp_number: 3,
        },
    );
    let command = rig.modify(&qps[0], QueuePairState::ReadyToSend);
    rig.done(0, command);
    rig.done(
        0,
        FlushWorkQueues {
            ae_code: 0xF900,
            qp_number: 3,
            generate_ae: true,
            ..FlushWorkQueues::ZERO
        },
    );
    assert!(rig.event(0).is_some());
}

/// A frame of side `from` for its peer's queue pair 3, with headers and payload by chance. A remote
/// address lies near `address`.
fn any_frame(
    mut random: impl FnMut() -> u64,
    from: usize,
    address: u64,
    key: u32,
) -> crate::frame::Frame {
    use crate::packet::{
        Acknowledgement, Extension, Opcode, Packet, Psn, QpNumber, RemoteBuffer, Syndrome,
        TransportHeaders,
    };
    let opcode = Opcode::KNOWN[random() as usize % Opcode::KNOWN.len()];
    let buffer = RemoteBuffer {
        address: address + random() % 5000,
        key,
        length_bytes: random() as u32 % 3000,
    };
    let answer = Acknowledgement {
        syndrome: Syndrome::from_byte(random() as u8),
        message_sequence_number: random() as u32 % 256,
    };
    let extension = match random() % 5 {
        0 => Extension::None,
        1 => Extension::Immediate(random() as u32),
        2 => Extension::Invalidate(random() as u32),
        3 => Extension::Remote(buffer),
        _ => Extension::Acknowledge(answer),
    };
    let context = Rig::context(from, 3);
    let mut qp_path = crate::rdma::objects::queue_pair::QueuePair::new(
        3,
        QueuePairType::RoceReliableConnected,
        context,
        false,
        BASE,
    )
    .unwrap();
    qp_path.number = 3;
    crate::frame::Frame {
        packet: Packet {
            path: qp_path.path([2; 6]),
            transport: TransportHeaders {
                opcode,
                solicited: random().is_multiple_of(2),
                migrated: true,
                partition_key: 0xFFFF,
                forward_congestion: false,
                backward_congestion: false,
                destination_qp: QpNumber::new(3),
                acknowledge_request: random().is_multiple_of(2),
                psn: Psn::new(0xFF_FFF0 + (random() % 40) as u32),
                extension,
            },
        },
        payload: crate::frame::Payload::Bytes(vec![1; random() as usize % 1100]),
        packets: 1,
    }
}

#[test]
fn frames_of_any_headers_and_lengths_do_not_make_the_engine_panic() {
    let mut rig = Rig::new();
    let (mut qps, _cqs) = rig.pair();
    let (from, to) = (rig.data(0, 4096), rig.data(1, 4096));
    let (local, remote) = (rig.region(0, 1, from, 4096), rig.region(1, 2, to, 4096));
    let piece = |at: u64, tag| Fragment {
        address: BASE + at,
        length_bytes: 2000,
        steering_tag: tag,
    };
    let mut state = 7u64;
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    for round in 0..4000u64 {
        if round % 50 == 0 {
            rig.request(
                0,
                &mut qps[0],
                SendOpcode::Read,
                (BASE + to, remote),
                &[piece(from, local)],
            );
            rig.post_receive(1, &mut qps[1], piece(to, remote));
            rig.ring(0, &qps[0]);
        }
        let side = (round % 2) as usize;
        let frame = any_frame(&mut random, 1 - side, BASE + to, remote);
        rig.deliver(side, &frame);
        if round % 7 == 0 {
            for _ in 0..5 {
                rig.turn();
            }
        }
    }
    assert!(
        rig.breaches(0)
            .iter()
            .chain(&rig.breaches(1))
            .all(|breach| !breach.contains("memory"))
    );
}

#[test]
fn unmapped_memory_is_named_and_refused() {
    let mut rig = Rig::new();
    let completion = rig.command(
        0,
        CreateCompletionQueue {
            cq_number: 5,
            ring_address: 0x9000_0000,
            ..Rig::control_completion_queue()
        },
    );
    assert!(completion.error);
    assert_eq!(
        rig.kinds(0),
        ["the device is given memory that is not mapped"]
    );
}

#[test]
fn doorbells_of_nothing_are_named() {
    let mut rig = Rig::new();
    rig.write(0, reg::WQE_ALLOCATE, 9);
    rig.write(0, reg::DOORBELL_PAGE, 9);
    rig.write(0, reg::CQ_ARM, 9);
    rig.write(0, reg::CQ_ACKNOWLEDGE, 9);
    rig.write(0, reg::AEQ_ALLOCATE, 1);
    let cq = rig.cq(0, 3, 16);
    let qp = rig.qp(0, 3, &cq);
    rig.ring(0, &qp);
    assert_eq!(
        rig.kinds(0),
        [
            "acknowledge of a completion queue that does not exist",
            "doorbell of a completion queue that does not exist",
            "doorbell of a queue pair that cannot send yet",
            "doorbell of a queue pair that does not exist",
            "more asynchronous events given back than were raised",
        ]
    );
}

#[test]
fn a_program_may_ring_a_queue_pair_that_its_driver_has_destroyed() {
    let mut rig = Rig::new();
    let (qps, _cqs) = rig.pair();
    let destroy = DestroyQueuePair {
        qp_number: qps[0].number,
        qp_type: QueuePairType::RoceReliableConnected,
        ..DestroyQueuePair::ZERO
    };
    rig.done(0, destroy);
    rig.ring(0, &qps[0]);
    rig.assert_no_breach();
    assert_eq!(
        rig.remarks(0),
        ["doorbell of a queue pair that was destroyed"]
    );
    rig.write(0, reg::WQE_ALLOCATE, qps[0].number + 1);
    assert_eq!(
        rig.kinds(0),
        ["doorbell of a queue pair that does not exist"]
    );
}

#[test]
fn states_are_taken_in_order_only() {
    let mut rig = Rig::new();
    let cq = rig.cq(0, 3, 16);
    let qp = rig.qp(0, 3, &cq);
    let command = rig.modify(&qp, QueuePairState::ReadyToSend);
    let completion = rig.command(0, command);
    assert!(completion.error);
    assert_eq!(
        (completion.major_code, completion.minor_code),
        (0xFFFF, 0x8002)
    );
    assert_eq!(rig.kinds(0), ["a state that cannot be taken"]);
}

#[test]
fn an_element_across_a_block_is_named_and_fails_the_queue_pair() {
    let mut rig = Rig::new();
    let (mut qps, _cqs) = rig.pair();
    let from = rig.data(0, 4096);
    let local = rig.region(0, 1, from, 4096);
    let source = Fragment {
        address: BASE + from,
        length_bytes: 0,
        steering_tag: local,
    };
    for _ in 0..7 {
        rig.request(0, &mut qps[0], SendOpcode::Write, (0, 0), &[source]);
    }
    rig.request(0, &mut qps[0], SendOpcode::Write, (0, 0), &[source, source]);
    rig.ring(0, &qps[0]);
    rig.run();
    assert_eq!(rig.kinds(0), ["a send element crosses a 256-byte boundary"]);
    assert!(rig.event(0).is_some());
}

#[test]
fn a_head_beyond_what_was_written_is_named() {
    let mut rig = Rig::new();
    let (mut qps, cqs) = rig.pair();
    let (from, to) = (rig.data(0, 4096), rig.data(1, 4096));
    let (local, remote) = (rig.region(0, 1, from, 4096), rig.region(1, 2, to, 4096));
    let source = Fragment {
        address: BASE + from,
        length_bytes: 8,
        steering_tag: local,
    };
    rig.put(0, cqs[0].shadow, &[200]);
    for _ in 0..2 {
        for _ in 0..32 {
            rig.request(
                0,
                &mut qps[0],
                SendOpcode::Write,
                (BASE + to, remote),
                &[source],
            );
        }
        rig.ring(0, &qps[0]);
        rig.run();
    }
    assert!(
        rig.kinds(0)
            .contains(&"a completion queue's head is beyond what was written")
    );
}

#[test]
fn lost_backing_memory_is_found_and_stops_the_queue_pair() {
    let mut rig = Rig::new();
    let (qps, _cqs) = rig.pair();
    let cleared = SegmentEntry::write(0, SegmentData::cleared(true));
    let (command, _) = UpdateSegments::from_entries(0, &[cleared], 0).unwrap();
    rig.done(0, command);
    rig.ring(0, &qps[0]);
    rig.run();
    assert_eq!(
        rig.kinds(0),
        [
            "a segment is cleared while objects live in it",
            "an object of the host memory cache is not backed",
        ]
    );
    assert!(rig.event(0).is_some());
}

#[test]
fn a_region_whose_entry_was_overwritten_is_noticed_after_a_change_of_mappings() {
    let mut rig = Rig::new();
    let (mut qps, _cqs) = rig.pair();
    let from = rig.data(0, 4096);
    let local = rig.region(0, 1, from, 4096);
    // The driver wipes the memory behind all objects, and maps something.
    rig.fill(0, 0x20_0000, &vec![0; 0x20_0000]);
    let memory = rig.sides[0].memory.clone();
    let access = ringside_bus::function::DmaAccess::Read;
    assert!(rig.spaces[0].map(Iova(0x10), &memory, 0, 4096, access));
    let source = Fragment {
        address: BASE + from,
        length_bytes: 8,
        steering_tag: local,
    };
    rig.request(0, &mut qps[0], SendOpcode::Write, (0, 0), &[source]);
    rig.ring(0, &qps[0]);
    rig.run();
    assert_eq!(
        rig.kinds(0),
        ["an object of the host memory cache is not backed"]
    );
    assert!(rig.event(0).is_some());
}

#[test]
fn nothing_that_registers_commands_and_rings_hold_makes_the_engine_panic() {
    for seed in 1..=40u64 {
        let mut rig = Rig::new();
        let (qps, _cqs) = rig.pair();
        let at = rig.data(0, 4096);
        rig.region(0, 1, at, 4096);
        let mut state = seed;
        let mut random = move || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        };
        let registers = [
            reg::CQP_DOORBELL,
            reg::CQP_TAIL,
            reg::CQP_STATUS,
            reg::CQP_CONTEXT_HIGH,
            reg::CQP_CONTEXT_LOW,
            reg::CQP_ERROR_CODES,
            reg::CQ_ARM,
            reg::CQ_ACKNOWLEDGE,
            reg::AEQ_ALLOCATE,
            reg::WQE_ALLOCATE,
            reg::PAGE_DESCRIPTOR_INVALIDATE,
        ];
        for _ in 0..300 {
            match random() % 4 {
                // A random command, with an opcode that exists and small numbers.
                0 => {
                    let mut words: [u64; 8] = std::array::from_fn(|_| random() & random());
                    let opcodes = Command::OPCODES;
                    let opcode = opcodes[random() as usize % opcodes.len()];
                    words[3] =
                        words[3] & !(0x3F << 32 | 0xFF_FFF0) | u64::from(opcode.code()) << 32;
                    for word in [2, 4, 5] {
                        if random().is_multiple_of(2) {
                            words[word] = BASE + random() % 0x10_0000 * 16;
                        }
                    }
                    if let Ok(command) = Command::decode(&words) {
                        rig.submit(0, command);
                    }
                }
                1 => {
                    let register = registers[random() as usize % registers.len()];
                    let value = random() as u32 & random() as u32 & 0x8000_00FF;
                    if register != reg::CQP_CONTEXT_LOW || random() % 20 == 0 {
                        rig.write(0, register, value);
                    }
                }
                // Random words in the send ring, with the right valid bits.
                2 => {
                    let words: Vec<u64> = (0..32)
                        .map(|_| random() & random() | (random() % 2) << 63)
                        .collect();
                    rig.put(0, qps[0].send + random() % 8 * 256, &words);
                    rig.put(1, qps[1].receive, &words);
                    rig.ring(0, &qps[0]);
                }
                _ => {
                    for _ in 0..20 {
                        rig.turn();
                    }
                    rig.now.0 += random() % 100_000_000;
                }
            }
        }
    }
    let _ = DOMAIN;
}

#[test]
fn what_iwarp_needs_is_refused_without_blame() {
    let mut rig = Rig::new();
    let (_, command) = rig.describe_qp(0, 3, 3);
    let qp_type = QueuePairType::Iwarp;
    assert!(rig.command(0, CreateQueuePair { qp_type, ..command }).error);
    // A listener of irdma in its mode for iWARP asks for one.
    assert!(rig.command(0, ManageQuadHash::ZERO).error);
    assert_eq!(rig.kinds(0), [""; 0]);
}

/// Drivers take a queue pair to a state with the same valid flags always.
#[test]
fn modifications_without_the_flags_of_their_state_are_named() {
    type Change = fn(ModifyQueuePair) -> ModifyQueuePair;
    let changes: [(QueuePairState, Change, bool); 6] = [
        (QueuePairState::ReadyToReceive, |command| command, false),
        (
            QueuePairState::ReadyToReceive,
            |command| ModifyQueuePair {
                ord_valid: false,
                ..command
            },
            false,
        ),
        (
            QueuePairState::ReadyToReceive,
            |command| ModifyQueuePair {
                arp_index_valid: false,
                ..command
            },
            true,
        ),
        (
            QueuePairState::ReadyToReceive,
            |command| ModifyQueuePair {
                cq_numbers_valid: false,
                ..command
            },
            true,
        ),
        (
            QueuePairState::ReadyToSend,
            |command| ModifyQueuePair {
                ord_valid: false,
                ..command
            },
            true,
        ),
        (
            QueuePairState::Error,
            |command| ModifyQueuePair {
                arp_index_valid: false,
                cq_numbers_valid: false,
                ord_valid: false,
                ..command
            },
            false,
        ),
    ];
    for (state, change, is_breach) in changes {
        let mut rig = Rig::new();
        let cq = rig.cq(0, 3, 64);
        let qp = rig.qp(0, 3, &cq);
        if state == QueuePairState::ReadyToSend {
            let command = rig.modify(&qp, QueuePairState::ReadyToReceive);
            rig.done(0, command);
        }
        let command = rig.modify(&qp, state);
        rig.done(0, change(command));
        let expected: &[&str] = match is_breach {
            true => &["MODIFY_QP lacks a valid flag of its state"],
            false => &[],
        };
        assert_eq!(rig.kinds(0), expected, "{state:?}");
    }
}

#[test]
fn the_context_of_datagrams_may_name_no_path() {
    type Change = fn(RoceQueuePairContext) -> RoceQueuePairContext;
    let without = |context| RoceQueuePairContext {
        ipv4: false,
        local_ip: 0,
        destination_ip: 0,
        ttl: 0,
        source_port: 0xC000,
        ..context
    };
    let changes: [(Change, bool); 4] = [
        (|context| context, false),
        (
            |context| RoceQueuePairContext {
                local_ip: 1,
                ..context
            },
            true,
        ),
        (
            |context| RoceQueuePairContext {
                source_port: 0,
                ..context
            },
            true,
        ),
        (|context| RoceQueuePairContext { ttl: 64, ..context }, true),
    ];
    for (change, is_breach) in changes {
        let mut rig = Rig::new();
        let cq = rig.cq(0, 3, 64);
        let (qp, command) = rig.describe_qp(0, 5, cq.number);
        let context = RoceQueuePairContext::decode(&rig.get(0, qp.context_at));
        let context = change(without(context));
        rig.put(0, qp.context_at, &context.encode());
        let qp_type = QueuePairType::RoceUnreliableDatagram;
        rig.done(0, CreateQueuePair { qp_type, ..command });
        let expected: &[&str] = match is_breach {
            true => &["the context of a datagram queue pair names a path"],
            false => &[],
        };
        assert_eq!(rig.kinds(0), expected);
    }
}

#[test]
fn windows_and_members_of_groups_with_flags_of_no_driver_are_named() {
    let window = |remote_access, bind_without_key_check| {
        let mut rig = Rig::new();
        let command = AllocateStag {
            protection_domain: DOMAIN,
            stag_index: 4,
            type_1: true,
            remote_access,
            bind_without_key_check,
            ..AllocateStag::ZERO
        };
        rig.done(0, command);
        rig.kinds(0)
    };
    let named = ["ALLOC_STAG of a window with a flag that no driver sets"];
    assert_eq!(window(false, false), [""; 0]);
    assert_eq!(window(true, false), named);
    assert_eq!(window(false, true), named);

    let mut rig = Rig::new();
    let at = rig.ring_memory(0, 64);
    let member = MulticastMember {
        qp_number: 5,
        pf_number: 3,
        valid: true,
        ..MulticastMember::ZERO
    };
    rig.put(0, at, &member.encode());
    rig.done(
        0,
        CreateMulticastGroup {
            member_list_address: BASE + at,
            group_index: 9,
            ipv4: true,
            ..CreateMulticastGroup::ZERO
        },
    );
    assert!(
        rig.kinds(0)
            .contains(&"a member of a multicast group names a function")
    );
}

#[test]
fn a_completion_queue_names_an_event_queue_that_exists() {
    let mut rig = Rig::new();
    let (ring, shadow) = (rig.ring_memory(0, 4096), rig.ring_memory(0, 64));
    let queue = |ceq_number, ceq_number_valid| CreateCompletionQueue {
        cq_number: 5,
        size_entries: 32,
        ring_address: BASE + ring,
        shadow_address: BASE + shadow,
        check_overflow: true,
        ceqe_mask: true,
        ceq_number,
        ceq_number_valid,
        ..CreateCompletionQueue::ZERO
    };
    assert!(rig.command(0, queue(9, true)).error);
    let breach = "a completion queue with an event queue that does not exist";
    assert!(rig.breaches(0)[0].starts_with(breach));
    rig.done(0, queue(9, false));
}

#[test]
fn a_queue_pair_is_created_and_modified_as_drivers_do_it() {
    let kinds = |change: fn(&mut CreateQueuePair)| {
        let mut rig = Rig::new();
        let cq = rig.cq(0, 3, 64);
        let (qp, mut command) = rig.describe_qp(0, 3, cq.number);
        change(&mut command);
        let words: [u64; 32] = rig.get(0, qp.context_at);
        rig.put(0, command.host_context_address - BASE, &words);
        let _ = rig.command(0, command);
        rig.kinds(0)
    };
    let lacks = ["CREATE_QP lacks a valid flag"];
    assert_eq!(kinds(|_| {}), [""; 0]);
    assert_eq!(kinds(|command| command.mac_valid = false), lacks);
    assert_eq!(kinds(|command| command.cq_numbers_valid = false), lacks);
    let misaligned = ["a structure in memory is misaligned"];
    assert_eq!(
        kinds(|command| command.host_context_address += 64),
        misaligned
    );

    let mut rig = Rig::new();
    let (qps, _cqs) = rig.pair();
    let _other = rig.cq(0, 4, 64);
    let words: [u64; 32] = rig.get(0, qps[0].context_at);
    let context = RoceQueuePairContext {
        tx_cq_number: 4,
        ..RoceQueuePairContext::decode(&words)
    };
    rig.put(0, qps[0].context_at, &context.encode());
    let command = rig.modify(&qps[0], QueuePairState::ReadyToSend);
    rig.done(0, command);
    assert_eq!(rig.kinds(0), ["MODIFY_QP names other completion queues"]);
}

#[test]
fn a_region_that_a_peer_may_write_is_its_owners_to_write() {
    let mut rig = Rig::new();
    let command = RegisterMemoryRegion {
        access_rights: AccessRights::ZERO.with_remote_write(true),
        ..rig.contiguous(7, 0, 4096)
    };
    rig.done(0, command);
    let breach = "a region that a peer may write and its owner not";
    assert_eq!(rig.kinds(0), [breach]);
}

#[test]
fn backing_is_of_512_pages_and_of_the_partition_of_the_engine() {
    let mut rig = Rig::bare();
    rig.create_control_queue(0);
    rig.commit(0);
    let backed = SegmentData::backed(BASE + 0x20_0000, true).with_page_count(511);
    let entries = [SegmentEntry::write(0, backed)];
    let (command, _) = UpdateSegments::from_entries(0, &entries, 0).unwrap();
    rig.by_register(0, command);
    assert_eq!(rig.kinds(0), ["a segment is not backed by 512 pages"]);
    let mut rig = Rig::new();
    let own = reg::PageDescriptorInvalidate::of(0, 3);
    rig.write(0, reg::PAGE_DESCRIPTOR_INVALIDATE, own.0);
    rig.assert_no_breach();
    let other = own.with_rdma_partition(false);
    rig.write(0, reg::PAGE_DESCRIPTOR_INVALIDATE, other.0);
    let breach = "page descriptor of another partition invalidated";
    assert_eq!(rig.kinds(0), [breach]);
}

#[test]
fn a_second_group_of_one_address_and_vlan_is_named() {
    let is_named = |groups: [(Option<u16>, u128); 2]| {
        let mut rig = Rig::new();
        let at = rig.ring_memory(0, 64);
        for (index, (vlan, group_ip)) in groups.into_iter().enumerate() {
            let command = CreateMulticastGroup {
                member_list_address: BASE + at,
                queue_set_handle: Rig::QUEUE_SET,
                group_index: index as u16,
                ipv4: true,
                group_ip,
                vlan_id: vlan.unwrap_or(0),
                vlan_valid: vlan.is_some(),
                ..CreateMulticastGroup::ZERO
            };
            rig.done(0, command);
        }
        rig.kinds(0)
    };
    let kind = "two multicast groups have one address and VLAN";
    assert_eq!(is_named([(Some(5), 1), (Some(5), 1)]), [kind]);
    // VLAN 0 is none.
    assert_eq!(is_named([(Some(0), 1), (None, 1)]), [kind]);
    assert_eq!(is_named([(Some(5), 1), (Some(6), 1)]), [""; 0]);
    assert_eq!(is_named([(Some(5), 1), (None, 1)]), [""; 0]);
    assert_eq!(is_named([(Some(5), 1), (Some(5), 2)]), [""; 0]);
}
