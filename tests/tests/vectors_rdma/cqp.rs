//! Commands of the control queue pair.

use std::collections::BTreeMap;

use ringside_spec::rdma::commands::{
    AccessRights, Command, CommandHeader, HEADER_WORD, MULTICAST_GROUP_MEMBERS, MulticastMember,
    Opcode, PageSize, QuadHashType, QueuePairState, QueuePairType, SchedulerOperation,
    StaticHmcPagesAllocated, UpdateSegments,
};
use ringside_spec::rdma::limits::FPM_BUFFER_BYTES;
use ringside_spec::rdma::registers::{CQP_DOORBELL, CqpDoorbell};
use ringside_spec::rdma::segments::{SegmentCommand, SegmentData, SegmentEntry};

use crate::vector::{Vector, check_width, join_ip, load, number, place_all, show, words};

/// Vectors without information about a layout.
const SKIPPED: &[(&str, &str)] = &[(
    "ring_of_4_capacity",
    "how many commands a ring accepts is a rule of the driver's ring",
)];

#[test]
fn commands_are_encoded_and_decoded_like_the_kernel_does() {
    let mut run = BTreeMap::new();
    let mut skipped = Vec::new();
    let mut failures = Vec::new();
    for vector in load("cqp.json") {
        if let Some((name, _)) = SKIPPED.iter().find(|(name, _)| *name == vector.name) {
            skipped.push(*name);
            continue;
        }
        match vector.kind.as_str() {
            "cqp_wqe" => {
                if let Err(why) = check_command(&vector) {
                    failures.push(format!("{}: {why}", vector.name));
                }
            }
            "cqp_wqe_with_buffer" => check_segments(&vector),
            "multicast_member_list" => check_members(&vector),
            "cqp_ring" => check_headers_and_doorbells(&vector),
            other => panic!("{}: unexpected kind {other}", vector.name),
        }
        *run.entry(vector.kind.clone()).or_insert(0) += 1;
    }
    assert!(
        failures.is_empty(),
        "{} failures:\n{}",
        failures.len(),
        failures.join("\n")
    );
    let expected = [
        ("cqp_ring", 1),
        ("cqp_wqe", 830),
        ("cqp_wqe_with_buffer", 14),
        ("multicast_member_list", 4),
    ];
    assert_eq!(
        run.iter()
            .map(|(kind, count)| (kind.as_str(), *count))
            .collect::<Vec<_>>(),
        expected
    );
    assert_eq!(skipped.len(), SKIPPED.len());
}

fn check_command(vector: &Vector) -> Result<(), String> {
    let polarity = vector.input("polarity") == 1;
    let opcode = opcode_of(vector.group());
    let fields = Command::fields(opcode).ok_or("no layout")?;
    let mut ours = [0; 8];
    ours[HEADER_WORD] = CommandHeader::ZERO.with_opcode(u64::from(opcode.code())).0;
    let inputs = fields_of(vector);
    place_all(&inputs, fields, &mut ours)?;
    check_width(vector, &inputs, fields)?;
    let command = Command::decode(&ours).map_err(|error| error.to_string())?;

    let theirs: [u64; 8] = vector.words("bytes");
    let encoded = command.encode(polarity);
    if encoded != theirs {
        return Err(format!(
            "\n ours   {}\n theirs {}",
            show(&encoded),
            show(&theirs)
        ));
    }
    let header = CommandHeader::of(&theirs);
    if (header.operation(), header.valid()) != (opcode, polarity) {
        return Err(format!("header read as {header:?}"));
    }
    if Command::decode(&theirs) != Ok(command) || Command::reserved_bits(&theirs) != Ok([0; 8]) {
        return Err(format!("read as {:?}", Command::decode(&theirs)));
    }
    Ok(())
}

fn opcode_of(group: &str) -> Opcode {
    match group {
        "create_qp" => Opcode::CreateQueuePair,
        "modify_qp" | "modify_qp_terminate" => Opcode::ModifyQueuePair,
        "destroy_qp" => Opcode::DestroyQueuePair,
        "create_cq" | "create_cq_virtual" | "create_ccq" => Opcode::CreateCompletionQueue,
        "modify_cq" => Opcode::ModifyCompletionQueue,
        "destroy_cq" | "destroy_ccq" => Opcode::DestroyCompletionQueue,
        "create_ceq" | "create_ceq_virtual" => Opcode::CreateCompletionEventQueue,
        "destroy_ceq" => Opcode::DestroyCompletionEventQueue,
        "create_aeq" | "create_aeq_virtual" => Opcode::CreateAsynchronousEventQueue,
        "destroy_aeq" => Opcode::DestroyAsynchronousEventQueue,
        "allocate_stag" | "allocate_memory_window" => Opcode::AllocateStag,
        "register_mr_contiguous"
        | "register_mr_contiguous_zero_based"
        | "register_mr_pble_level_1"
        | "register_mr_pble_level_2" => Opcode::RegisterMemoryRegion,
        "deallocate_stag" => Opcode::DeallocateStag,
        "query_stag" => Opcode::QueryStag,
        "query_fpm" => Opcode::QueryFpm,
        "commit_fpm" => Opcode::CommitFpm,
        "static_hmc_pages_allocated" => Opcode::StaticHmcPagesAllocated,
        "manage_hmc_pm_function_table" => Opcode::ManageHmcFunctionTable,
        "query_rdma_features" => Opcode::QueryFeatures,
        "manage_arp_add" | "manage_arp_delete" => Opcode::ManageArp,
        "local_mac_allocate" => Opcode::AllocateLocalMacTableEntry,
        "local_mac_add" | "local_mac_delete" => Opcode::ManageLocalMacTable,
        "manage_quad_hash" | "manage_quad_hash_ipv4_vlan_established" => Opcode::ManageQuadHash,
        "manage_apbvt" => Opcode::ManageAcceleratedPort,
        "work_scheduler_node_add" | "work_scheduler_node_modify" | "work_scheduler_node_delete" => {
            Opcode::WorkSchedulerNode
        }
        "manage_statistics" => Opcode::ManageStatistics,
        "gather_statistics" => Opcode::GatherStatistics,
        "user_priority_map" => Opcode::UserPriorityMap,
        "flush_wqes" | "flush_wqes_with_codes" | "generate_ae" => Opcode::FlushWorkQueues,
        "create_address_handle_ipv6" | "create_address_handle_ipv4" => Opcode::CreateAddressHandle,
        "modify_address_handle_ipv6" => Opcode::ModifyAddressHandle,
        "destroy_address_handle_ipv4" => Opcode::DestroyAddressHandle,
        "create_multicast_group_ipv6" | "create_multicast_group_ipv4" => {
            Opcode::CreateMulticastGroup
        }
        "modify_multicast_group_ipv6" => Opcode::ModifyMulticastGroup,
        "destroy_multicast_group_ipv4" => Opcode::DestroyMulticastGroup,
        "suspend_qp" => Opcode::SuspendQueuePair,
        "resume_qp" => Opcode::ResumeQueuePair,
        "upload_context" => Opcode::UploadContext,
        "manage_push_page" => Opcode::ManagePushPage,
        "nop" => Opcode::Nop,
        other => panic!("{other}: no opcode known"),
    }
}

type Inputs = BTreeMap<String, u128>;

/// Returns the inputs under our fields' names, with the changes that the kernel's encoder makes.
fn fields_of(vector: &Vector) -> Inputs {
    let group = vector.group();
    let mut inputs = vector.inputs();
    inputs.remove("polarity");
    if let Some(pointer) = inputs.remove("completion_context_pointer") {
        inputs.insert("completion_context".to_owned(), pointer >> 1);
    }
    let opcode = opcode_of(group);
    match opcode {
        Opcode::ModifyQueuePair => modify_queue_pair(group, &mut inputs),
        Opcode::AllocateStag | Opcode::RegisterMemoryRegion | Opcode::DeallocateStag => {
            steering_tag(group, &mut inputs);
        }
        _ if opcode.name().ends_with("CompletionQueue")
            || opcode.name().ends_with("EventQueue") =>
        {
            queue(group.trim_end_matches("_virtual"), &mut inputs);
        }
        _ => others(vector, &mut inputs),
    }
    inputs
}

fn is(inputs: &Inputs, key: &str) -> bool {
    inputs.get(key).is_some_and(|value| *value != 0)
}

fn set(inputs: &mut Inputs, key: &str, value: u128) {
    inputs.insert(key.to_owned(), value);
}

fn drop_all(inputs: &mut Inputs, keys: &[&str]) {
    for key in keys {
        inputs.remove(*key);
    }
}

/// The terminate fields are written only on the way to TERMINATE, which only iWARP has; the
/// message's length only if the message is sent.
fn modify_queue_pair(group: &str, inputs: &mut Inputs) {
    if group == "modify_qp" {
        drop_all(
            inputs,
            &[
                "terminate_length",
                "do_not_send_fin",
                "do_not_send_terminate",
            ],
        );
        return;
    }
    set(inputs, "qp_type", u128::from(QueuePairType::Iwarp.code()));
    set(
        inputs,
        "next_state",
        u128::from(QueuePairState::Terminate.code()),
    );
    if is(inputs, "do_not_send_terminate") {
        drop_all(inputs, &["terminate_length"]);
    }
}

/// A ring is given by address or by page buffer list; destroying carries less than creating.
fn queue(group: &str, inputs: &mut Inputs) {
    if group.ends_with("cq") && !is(inputs, "ceq_number_valid") {
        drop_all(inputs, &["ceq_number"]);
    }
    if group.starts_with("destroy") {
        drop_all(
            inputs,
            &[
                "ring_address",
                "shadow_read_threshold",
                "tph_value",
                "vsi_number",
                "itr_no_expire",
            ],
        );
    }
    if group == "destroy_ccq" {
        drop_all(
            inputs,
            &["pble_levels_code", "ring_virtual", "first_pble_index"],
        );
    }
    if group == "modify_cq" {
        return;
    }
    if is(inputs, "ring_virtual") {
        drop_all(inputs, &["ring_address"]);
    } else {
        drop_all(inputs, &["first_pble_index"]);
        if group.ends_with("eq") {
            drop_all(inputs, &["pble_levels_code"]);
        }
    }
}

/// Pages are given by address or by page buffer list; a zero-based region keeps only the offset
/// in its first page.
fn steering_tag(group: &str, inputs: &mut Inputs) {
    inputs.remove("all_memory");
    let page_bytes = inputs.remove("page_size_bytes").unwrap_or(4096);
    if group == "allocate_stag" || group.starts_with("register") {
        let size = PageSize::from_bytes(u64::try_from(page_bytes).expect("a size"));
        set(
            inputs,
            "page_size",
            u128::from(size.expect("a page size").code()),
        );
        set(inputs, "is_memory_region", 1);
        let unused = if is(inputs, "pble_levels_code") {
            "first_block_address"
        } else {
            "first_pble_index"
        };
        drop_all(inputs, &[unused]);
    }
    if group.starts_with("register") {
        let rights = inputs.get("access_rights").copied().unwrap_or(0);
        let rights = AccessRights(rights.try_into().expect("eight bits"));
        set(
            inputs,
            "remote_access",
            u128::from(rights.remote_read() || rights.remote_write()),
        );
        if !is(inputs, "va_based") {
            let address = inputs.get("virtual_address").copied().unwrap_or(0);
            set(inputs, "virtual_address", address % page_bytes);
        }
    }
}

fn others(vector: &Vector, inputs: &mut Inputs) {
    let group = vector.group();
    let ipv4 = is(inputs, "ipv4");
    match group {
        "commit_fpm" => set(inputs, "buffer_length", FPM_BUFFER_BYTES as u128),
        "manage_arp_add" => set(inputs, "entry_valid", 1),
        "local_mac_delete" => set(inputs, "free", 1),
        "generate_ae" => set(inputs, "generate_ae", 1),
        "flush_wqes" | "flush_wqes_with_codes" => flush(inputs),
        "work_scheduler_node_modify" => {
            set(
                inputs,
                "operation",
                u128::from(SchedulerOperation::Modify.code()),
            );
        }
        "work_scheduler_node_delete" => {
            set(
                inputs,
                "operation",
                u128::from(SchedulerOperation::Delete.code()),
            );
        }
        "user_priority_map" => {
            let map = (0..8).rev().fold(0, |map, priority| {
                map << 8 | inputs.remove(&format!("map_{priority}")).unwrap_or(0)
            });
            set(inputs, "map", map);
        }
        "manage_quad_hash" | "manage_quad_hash_ipv4_vlan_established" => quad_hash(inputs, ipv4),
        _ if group.contains("address_handle") => {
            join_ip(inputs, "source_ip", ipv4);
            join_ip(inputs, "destination_ip", ipv4);
        }
        _ if group.contains("multicast") => join_ip(inputs, "group_ip", ipv4),
        _ => {}
    }
}

/// Codes are written only for queues that are flushed with given codes.
fn flush(inputs: &mut Inputs) {
    let codes = is(inputs, "use_given_codes");
    for (queue, keys) in [
        ("flush_sq", ["sq_minor_code", "sq_major_code"]),
        ("flush_rq", ["rq_minor_code", "rq_major_code"]),
    ] {
        if !(codes && is(inputs, queue)) {
            drop_all(inputs, &keys);
        }
    }
    if !is(inputs, "generate_ae") {
        drop_all(inputs, &["ae_code", "ae_source"]);
    }
}

/// The peer counts only for established connections, the VLAN only when there is one.
fn quad_hash(inputs: &mut Inputs, ipv4: bool) {
    join_ip(inputs, "local_ip", ipv4);
    join_ip(inputs, "remote_ip", ipv4);
    let kind = inputs.get("entry_type").copied().unwrap_or(0);
    if kind != u128::from(QuadHashType::TcpEstablished.code()) {
        drop_all(inputs, &["remote_ip", "remote_port"]);
    }
    if !is(inputs, "vlan_valid") {
        drop_all(inputs, &["vlan_id"]);
    }
}

fn check_segments(vector: &Vector) {
    let entries = entries_of(vector);
    let list_area = vector.input("list_area_address");
    let list_address = list_area + vector.input("ring_index") * UpdateSegments::LIST_BYTES as u64;
    let function = u8::try_from(vector.input("hmc_function_index")).expect("a function index");
    let (command, listed) =
        UpdateSegments::from_entries(function, &entries, list_address).expect("entries that fit");
    let theirs: [u64; 8] = vector.words("bytes");
    assert_eq!(
        command.encode(vector.input("polarity") == 1),
        theirs,
        "{}",
        vector.name
    );
    assert_eq!(UpdateSegments::decode(&theirs), Ok(command));
    assert_eq!(Command::reserved_bits(&theirs), Ok([0; 8]));
    let list: Vec<u8> = listed
        .iter()
        .flat_map(|entry| entry.words())
        .flat_map(u64::to_le_bytes)
        .collect();
    assert_eq!(list, vector.bytes("buffer"), "{}", vector.name);

    let read = command.inline_entries().chain(
        list.chunks_exact(16)
            .map(|pair| SegmentEntry::from_words(words(pair).expect("two words"))),
    );
    if vector.has_input("segments") {
        let read: Vec<_> = read.collect();
        assert_eq!(read, entries, "{}", vector.name);
        assert!(read.iter().all(|entry| entry.reserved_bits() == [0, 0]));
    }
}

fn entries_of(vector: &Vector) -> Vec<SegmentEntry> {
    let list = |key: &str| {
        vector
            .get("input")
            .get(key)
            .and_then(|list| list.as_array())
            .cloned()
    };
    if let Some(raw) = list("raw_entries") {
        return raw
            .iter()
            .map(|entry| SegmentEntry {
                command: SegmentCommand(number(&entry["command"])),
                data: SegmentData(number(&entry["data"])),
            })
            .collect();
    }
    list("segments")
        .expect("segments")
        .iter()
        .map(|segment| {
            let direct = number(&segment["direct"]) == 1;
            let data = if number(&segment["set"]) == 1 {
                SegmentData::backed(number(&segment["address"]), direct)
            } else {
                SegmentData::cleared(direct)
            };
            let index = u16::try_from(number(&segment["segment_index"])).expect("an index");
            SegmentEntry::write(index, data)
        })
        .collect()
}

fn check_members(vector: &Vector) {
    let members = vector.get("input")["members"].as_array().expect("members");
    let mut list: Vec<MulticastMember> = members
        .iter()
        .map(|member| MulticastMember {
            qp_number: u32::try_from(number(&member["qp_number"])).expect("a number"),
            destination_port: u16::try_from(number(&member["destination_port"])).expect("a port"),
            valid: true,
            ..MulticastMember::ZERO
        })
        .collect();
    list.resize(MULTICAST_GROUP_MEMBERS, MulticastMember::ZERO);
    let ours: Vec<u8> = list
        .iter()
        .flat_map(MulticastMember::encode)
        .flat_map(u64::to_le_bytes)
        .collect();
    assert_eq!(ours, vector.bytes("bytes"), "{}", vector.name);
    for (member, bytes) in list.iter().zip(vector.bytes("bytes").chunks_exact(8)) {
        assert_eq!(
            MulticastMember::decode(&words(bytes).expect("a word")),
            *member
        );
    }
}

fn check_headers_and_doorbells(vector: &Vector) {
    for post in vector.decoded("posts").as_array().expect("posts") {
        let header = number(&post["header"]);
        let valid = CommandHeader(header).valid();
        let command = StaticHmcPagesAllocated {
            hmc_function_index: 0,
        };
        assert_eq!(
            command.encode(valid)[HEADER_WORD],
            header,
            "{}",
            vector.name
        );
        assert_eq!(number(&post["doorbell_offset"]), CQP_DOORBELL);
        let doorbell = u32::try_from(number(&post["doorbell_value"])).expect("32 bits");
        assert_eq!(CqpDoorbell(doorbell).head(), doorbell);
    }
}
