use super::rig::{BASE, CQ_CONTEXT, DOMAIN, FPM_BUFFER, Rig};
use crate::faults::Fault;
use crate::rdma::RdmaSnapshot;
use ringside_bus::function::DmaAccess;
use ringside_bus::{Iova, Memory, PageSize};
use ringside_spec::rdma::commands::*;
use ringside_spec::rdma::features::Features;
use ringside_spec::rdma::fpm::{FpmCommit, FpmQuery, ObjectType};
use ringside_spec::rdma::registers as reg;
use ringside_spec::rdma::segments::{SegmentData, SegmentEntry};

#[test]
fn the_handshake_creates_the_control_queue_and_zero_destroys_it() {
    let mut rig = Rig::bare();
    rig.create_control_queue(0);
    rig.write(0, reg::CQP_CONTEXT_HIGH, 0);
    rig.write(0, reg::CQP_CONTEXT_LOW, 0);
    assert_eq!(rig.read(0, reg::CQP_STATUS), 0);
    assert_eq!(rig.sides[0].engine.snapshot(), RdmaSnapshot::default());
    rig.assert_no_breach();
}

#[test]
fn a_whole_bring_up_and_tear_down_leaves_nothing_and_breaks_no_rule() {
    let mut rig = Rig::new();
    let (_qps, _cqs) = rig.pair();
    rig.done(
        0,
        DestroyQueuePair {
            qp_number: 3,
            qp_type: QueuePairType::RoceReliableConnected,
            ..DestroyQueuePair::ZERO
        },
    );
    for cq_number in [3, 0] {
        let command = DestroyCompletionQueue {
            cq_number,
            ..DestroyCompletionQueue::ZERO
        };
        if cq_number == 0 {
            rig.done(0, DestroyAsynchronousEventQueue::ZERO);
            rig.done(0, DestroyCompletionEventQueue::ZERO);
            rig.by_register(0, command);
        } else {
            rig.done(0, command);
        }
    }
    rig.by_register(
        0,
        ManageArp {
            arp_index: 3,
            ..ManageArp::ZERO
        },
    );
    let entries: Vec<_> = (0..3)
        .map(|index| SegmentEntry::write(index, SegmentData::cleared(true)))
        .collect();
    let (command, _) = UpdateSegments::from_entries(0, &entries, 0).unwrap();
    rig.by_register(0, command);
    rig.write(0, reg::CQP_CONTEXT_LOW, 0);
    rig.sides[0].engine.set_receive_enabled(false);
    assert_eq!(rig.sides[0].engine.snapshot(), RdmaSnapshot::default());
    rig.assert_no_breach();
}

#[test]
fn the_answer_to_query_fpm_satisfies_the_rules_of_linux() {
    let query = FpmQuery::decode(&crate::rdma::hmc::capacity().encode()).unwrap();
    assert_eq!(&query, crate::rdma::hmc::capacity());
    use ringside_spec::rdma::fpm::ObjectType::*;
    let most = |object| query.objects[object].max_count;
    assert!(most(InboundRead) >= (254 * most(QueuePair) + 512).next_power_of_two());
    assert!(most(QueuePair) >= 1024 && most(CompletionQueue) >= 2048);
    assert!(query.max_ceqs >= 1 && query.max_segments >= 64);
}

#[test]
fn commands_wrap_around_the_ring_in_order() {
    let mut rig = Rig::new();
    for _ in 0..100 {
        rig.done(0, Nop {});
    }
    rig.assert_no_breach();
}

#[test]
fn features_name_firmware_and_hardware() {
    let mut rig = Rig::new();
    let at = rig.data(0, 4096);
    let buffer_address = super::rig::BASE + at;
    rig.done(
        0,
        QueryFeatures {
            buffer_length: 216,
            buffer_address,
        },
    );
    let features = Features::decode(&rig.get::<27>(0, at)).unwrap();
    assert!(features.hardware.is_some());
}

#[test]
fn a_created_control_queue_can_fail_or_stay_silent_by_fault() {
    let mut rig = Rig::bare();
    rig.sides[0].faults = vec![Fault::ControlQueueCreationFails];
    assert!(rig.handshake(0).error());
    rig.sides[0].faults = vec![Fault::ControlQueueCreationSilent];
    assert_eq!(rig.handshake(0).0, 0);
    rig.sides[0].faults.clear();
    rig.create_control_queue(0);
}

#[test]
fn an_injected_failure_reaches_completion_and_registers_with_its_codes() {
    let mut rig = Rig::new();
    let opcode = Opcode::Nop.code();
    rig.sides[0].faults = vec![Fault::ControlCommandFails {
        opcode,
        major: 0xFFFF,
        minor: 0x8029,
    }];
    let completion = rig.command(0, Nop {});
    assert!(completion.error);
    assert_eq!(
        (completion.major_code, completion.minor_code),
        (0xFFFF, 0x8029)
    );
    let codes = reg::CqpErrorCodes(rig.read(0, reg::CQP_ERROR_CODES));
    assert_eq!((codes.major(), codes.minor()), (0xFFFF, 0x8029));
    assert!(reg::CqpTail(rig.read(0, reg::CQP_TAIL)).operation_error());
    rig.sides[0].faults.clear();
    rig.done(0, Nop {});
    assert!(!reg::CqpTail(rig.read(0, reg::CQP_TAIL)).operation_error());
}

#[test]
fn a_silent_command_holds_up_all_behind_it() {
    let mut rig = Rig::new();
    let opcode = Opcode::Nop.code();
    rig.sides[0].faults = vec![Fault::ControlCommandSilent { opcode }];
    let before = rig.read(0, reg::CQP_TAIL);
    rig.submit(0, Nop {});
    rig.sides[0].faults.clear();
    rig.submit(0, Nop {});
    assert_eq!(rig.read(0, reg::CQP_TAIL), before);
    rig.sides[0].engine.reset();
    rig.create_control_queue(0);
}

#[test]
fn leaves_of_the_work_scheduler_get_handles_of_their_own() {
    let mut rig = Rig::new();
    let handles: Vec<_> = (3..7)
        .map(|id| {
            let leaf = Rig::scheduler_node(id, 1, true);
            rig.done(0, leaf).return_value
        })
        .collect();
    assert!(handles.iter().all(|handle| (1..1024).contains(handle)));
    let mut unique = handles.clone();
    unique.dedup();
    assert_eq!(unique.len(), handles.len());
    let delete = |node_id| WorkSchedulerNode {
        node_id,
        operation: SchedulerOperation::Delete,
        ..WorkSchedulerNode::ZERO
    };
    rig.assert_no_breach();
    assert!(rig.command(0, delete(1)).error, "a node with children");
    for id in [2, 3, 4, 5, 6, 1, 0] {
        rig.done(0, delete(id));
    }
    assert!(rig.sides[0].engine.snapshot().scheduler_nodes.is_empty());
}

#[test]
fn a_queue_on_listed_pages_works_as_a_contiguous_one() {
    let mut rig = Rig::new();
    // 256 elements are two pages, given in reverse.
    let at = rig.ring_memory(0, 8192);
    rig.set_pble(0, 16, super::rig::BASE + at + 4096);
    rig.set_pble(0, 17, super::rig::BASE + at);
    let shadow = rig.ring_memory(0, 64);
    rig.done(
        0,
        CreateCompletionQueue {
            completion_context: CQ_CONTEXT,
            ..on_a_list(shadow)
        },
    );
    rig.assert_no_breach();
}

/// A completion queue on the list of pages from entry 16 on.
fn on_a_list(shadow: u64) -> CreateCompletionQueue {
    CreateCompletionQueue {
        cq_number: 4,
        size_entries: 256,
        shadow_address: super::rig::BASE + shadow,
        first_pble_index: 16,
        pble_levels_code: PageList::OneLevel,
        ring_virtual: true,
        check_overflow: true,
        ceq_number_valid: true,
        ..CreateCompletionQueue::ZERO
    }
}

#[test]
fn a_queue_on_a_list_whose_entry_is_no_page_is_refused() {
    let mut rig = Rig::new();
    let (at, shadow) = (rig.ring_memory(0, 8192), rig.ring_memory(0, 64));
    rig.set_pble(0, 16, super::rig::BASE + at);
    rig.set_pble(0, 17, super::rig::BASE + at + 4096 + 64);
    assert!(rig.command(0, on_a_list(shadow)).error);
    assert_eq!(rig.kinds(0), ["a page list entry is no page"]);
}

#[test]
fn statistics_are_written_where_asked() {
    let mut rig = Rig::new();
    let at = rig.data(0, 4096);
    rig.fill(0, at, &[0xFF; 1024]);
    let buffer_address = super::rig::BASE + at;
    rig.done(
        0,
        GatherStatistics {
            buffer_address,
            ..GatherStatistics::ZERO
        },
    );
    assert_eq!(rig.bytes(0, at, 1024), vec![0; 1024]);
}

#[test]
fn a_tag_lives_from_registration_to_release() {
    let mut rig = Rig::new();
    let at = rig.data(0, 4096);
    // Random bits above the 14 that select the entry.
    let index = 0xAB_C001;
    rig.region(0, index, at, 4096);
    assert_eq!(rig.sides[0].engine.snapshot().steering_tags, [index]);
    let release = |stag_index| DeallocateStag {
        protection_domain: DOMAIN,
        stag_index,
        is_memory_region: true,
    };
    rig.assert_no_breach();
    assert!(rig.command(0, release(0x00_C001)).error, "other bits above");
    rig.done(0, release(index));
    assert!(rig.sides[0].engine.snapshot().steering_tags.is_empty());
    assert!(rig.command(0, release(index)).error);
}

/// irdma of Linux 7.3 gives COMMIT_FPM a buffer of 208 bytes; 6.12's has 176.
#[test]
fn a_longer_commit_buffer_is_a_newer_drivers_and_a_shorter_one_is_refused() {
    for (buffer_length, refused) in [(176, false), (208, false), (175, true), (0, true)] {
        let mut rig = Rig::bare();
        rig.create_control_queue(0);
        let sentinel = [0x5A5A_5A5A; 4];
        rig.put(0, FPM_BUFFER + 176, &sentinel);
        let counts = FpmCommit::encode_request(&Rig::counts());
        rig.put(0, FPM_BUFFER, &counts);
        let command = CommitFpm {
            buffer_length,
            buffer_address: BASE + FPM_BUFFER,
            ..CommitFpm::ZERO
        };
        let tail = rig.submit(0, command);
        assert_eq!(tail.operation_error(), refused, "{buffer_length}");
        let granted = FpmCommit::decode(&rig.get(0, FPM_BUFFER));
        assert_eq!(granted.0[ObjectType::Arp].base() > 0, !refused);
        assert_eq!(rig.get(0, FPM_BUFFER + 176), sentinel, "words of others");
        let expected: &[&str] = if refused {
            &["COMMIT_FPM with a wrong length"]
        } else {
            &[]
        };
        assert_eq!(rig.kinds(0), expected);
    }
}

/// libibverbs doubles what the application asks for.
#[test]
fn a_completion_queue_takes_as_many_entries_as_its_field_holds() {
    const RING: u64 = 0x4000_0000;
    let mut rig = Rig::new();
    let bytes = 1usize << 26;
    let memory = Memory::allocate(bytes, PageSize::FourKiB, None).unwrap();
    assert!(rig.spaces[0].map(Iova(RING), &memory, 0, bytes, DmaAccess::ReadWrite));
    let create = |cq_number, size_entries| CreateCompletionQueue {
        cq_number,
        size_entries,
        ring_address: RING,
        shadow_address: BASE + 0x9000,
        ..CreateCompletionQueue::ZERO
    };
    for (number, entries) in [(4, 0x10_0000), (5, 0x1F_FFFE), (6, 0x1F_FFFF)] {
        rig.done(0, create(number, entries));
    }
    let resize = ModifyCompletionQueue {
        cq_number: 4,
        size_entries: 0x1F_FFFF,
        resize: true,
        ring_address: RING,
        ..ModifyCompletionQueue::ZERO
    };
    rig.done(0, resize);
    rig.assert_no_breach();
    assert!(rig.command(0, create(7, 0)).error);
    assert_eq!(rig.kinds(0), ["a ring of impossible size"]);
}

/// A command may take a millisecond; the world has other functions.
#[test]
fn of_many_commands_some_are_carried_out_by_each_step() {
    let mut rig = Rig::new();
    let rung = |rig: &mut Rig| {
        for _ in 0..15 {
            rig.place(0, Nop {});
        }
        let before = rig.read(0, reg::CQP_TAIL);
        let tail = rig.ring_commands(0).tail();
        (tail + 16 - before) % 16
    };
    assert_eq!(rung(&mut rig), 8);
    rig.run();
    let head = rig.read(0, reg::CQP_DOORBELL);
    assert_eq!(rig.read(0, reg::CQP_TAIL), head, "the others");
    // Doorbells that are rung meanwhile count, and one beyond the ring ends it.
    assert_eq!(rung(&mut rig), 8);
    rig.write(0, reg::CQP_DOORBELL, 16);
    let tail = rig.read(0, reg::CQP_TAIL);
    rig.run();
    assert_eq!(rig.read(0, reg::CQP_TAIL), tail);
    let breach = "the control queue pair's head is beyond its ring: head 16 of 16";
    assert_eq!(rig.breaches(0), [breach]);
}

#[test]
fn the_end_of_the_control_queue_ends_its_commands() {
    let mut rig = Rig::new();
    for _ in 0..15 {
        rig.place(0, Nop {});
    }
    rig.ring_commands(0);
    rig.write(0, reg::CQP_CONTEXT_LOW, 0);
    let tail = rig.read(0, reg::CQP_TAIL);
    rig.run();
    assert_eq!(rig.read(0, reg::CQP_TAIL), tail);
    rig.assert_no_breach();
}

/// The model keeps the place of each page: without a bound, 1.5 GB for 4,096 queues.
#[test]
fn completion_queues_have_as_many_pages_as_there_are_page_list_entries() {
    const PAGES: u64 = 16_384;
    let mut rig = Rig::bare();
    rig.create_control_queue(0);
    let mut counts = Rig::counts();
    counts[ObjectType::CompletionQueue] = 128;
    counts[ObjectType::PageBufferList] = PAGES as u32;
    rig.commit_counts(0, &counts);
    rig.back(0);
    let hmc_function_index = 0;
    rig.by_register(0, StaticHmcPagesAllocated { hmc_function_index });
    rig.create_queues(0);
    let page = BASE + rig.data(0, 8192).next_multiple_of(4096);
    for entry in 0..PAGES {
        rig.set_pble(0, entry, page);
    }
    let shadow = rig.ring_memory(0, 64);
    let queue = |cq_number| CreateCompletionQueue {
        cq_number,
        size_entries: (1 << 21) - 1,
        ring_virtual: true,
        pble_levels_code: PageList::OneLevel,
        shadow_address: BASE + shadow,
        check_overflow: true,
        ceqe_mask: true,
        ceq_number_valid: true,
        ..CreateCompletionQueue::ZERO
    };
    for number in 1..=64 {
        rig.done(0, queue(number));
    }
    rig.assert_no_breach();
    assert!(rig.command(0, queue(65)).error);
    let breach = "completion queues with more pages than there are page list entries";
    assert!(rig.breaches(0)[0].starts_with(breach));
    // As many again have room once one is gone.
    let cq_number = 7;
    rig.done(
        0,
        DestroyCompletionQueue {
            cq_number,
            ..DestroyCompletionQueue::ZERO
        },
    );
    rig.done(0, queue(65));
}
