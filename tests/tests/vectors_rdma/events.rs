//! Event queues, completions of commands, registers, statistics, features.

use std::collections::BTreeMap;

use ringside_spec::rdma::ae_codes::{AeCode, Attribution, QueuePairEvent};
use ringside_spec::rdma::commands::Opcode;
use ringside_spec::rdma::control_completion::{CommandFailure, ControlCompletion};
use ringside_spec::rdma::events::{AsynchronousEvent, CompletionEvent, CqShadowArm, Side, Subject};
use ringside_spec::rdma::features::{Feature, Features};
use ringside_spec::rdma::layout::FieldValue;
use ringside_spec::rdma::registers::{self, CauseControl, DynamicControl};
use ringside_spec::rdma::statistics::COUNTERS;
use ringside_spec::rdma::{features, limits};
use serde_json::Value;

use crate::vector::{Vector, load, number, text_of, words};

/// Kinds and names without information about a layout of the control half.
const SKIPPED: &[(&str, usize, &str)] = &[
    (
        "aeq_ring_of_4_ten_entries",
        1,
        "polarity over a ring's wrap is the ring's, not a layout",
    ),
    (
        "flush_code_to_work_completion_status",
        1,
        "statuses of completions belong to the verbs",
    ),
    (
        "work_scheduler_sequence",
        4,
        "the order of commands is the driver's",
    ),
];

#[test]
fn events_and_registers_are_read_and_written_like_the_kernel_does() {
    let mut run = BTreeMap::new();
    let mut skipped = BTreeMap::new();
    for vector in load("events.json") {
        if SKIPPED.iter().any(|(name, ..)| *name == vector.group()) {
            *skipped.entry(vector.group().to_owned()).or_insert(0) += 1;
            continue;
        }
        match vector.kind.as_str() {
            "aeqe_decode" => check_asynchronous_event(&vector),
            "ceqe_decode" => check_completion_event(&vector),
            "ccq_cqe_decode" => check_control_completion(&vector),
            "shadow_update" => check_arm(&vector),
            "register_trace" => check_register_trace(&vector),
            "constants" => check_constants(&vector),
            "statistics_decode" => check_statistics(&vector),
            "ae_flush_map" => check_flush_code(&vector),
            "features_decode" => check_features(&vector),
            other => panic!("{}: unexpected kind {other}", vector.name),
        }
        *run.entry(vector.kind.clone()).or_insert(0) += 1;
    }
    let expected = [
        ("ae_flush_map", 89),
        ("aeqe_decode", 339),
        ("ccq_cqe_decode", 15),
        ("ceqe_decode", 10),
        ("constants", 3),
        ("features_decode", 3),
        ("register_trace", 38),
        ("shadow_update", 5),
        ("statistics_decode", 2),
    ];
    assert_eq!(
        run,
        expected
            .map(|(kind, count)| (kind.to_owned(), count))
            .into()
    );
    let expected: BTreeMap<_, _> = SKIPPED
        .iter()
        .map(|(name, count, _)| ((*name).to_owned(), *count))
        .collect();
    assert_eq!(skipped, expected);
}

fn check_asynchronous_event(vector: &Vector) {
    let bytes: [u64; 2] = vector.words("bytes");
    let event = AsynchronousEvent::decode(&bytes);
    let present = vector.decoded("present").as_bool().expect("yes or no");
    assert_eq!(
        event.valid, present,
        "{}: polarity 1 is expected",
        vector.name
    );
    let undefined = AsynchronousEvent::reserved_bits(&bytes);
    assert_eq!(
        event.encode(),
        [bytes[0] ^ undefined[0], bytes[1] ^ undefined[1]]
    );
    if !present {
        return;
    }
    if is_contradictory(&event) {
        assert_eq!(
            event.subject(),
            Subject::QueuePair(Side::Unknown),
            "{}",
            vector.name
        );
        let both = [
            number(vector.decoded("for_qp")),
            number(vector.decoded("for_cq")),
        ];
        assert_eq!(both, [1, 1], "{}", vector.name);
        return;
    }
    let subject = event.subject();
    let at = |side| u64::from(subject == Subject::QueuePair(side));
    // The kernel keeps half of a completion queue's context pointer in the device.
    let context = match subject {
        Subject::QueuePair(_) => event.completion_context,
        Subject::CompletionQueue => event.completion_context << 1,
        Subject::Nothing => 0,
    };
    let ours = [
        ("completion_context", context),
        ("qp_or_cq_number", u64::from(event.queue_number)),
        ("ae_code", u64::from(event.ae_code.code())),
        ("wqe_index", u64::from(event.wqe_index)),
        ("tcp_state", u64::from(event.tcp_state)),
        ("iwarp_state", u64::from(event.iwarp_state)),
        (
            "for_qp",
            u64::from(matches!(subject, Subject::QueuePair(_))),
        ),
        ("for_cq", u64::from(subject == Subject::CompletionQueue)),
        ("for_sq", at(Side::SendQueue)),
        ("for_rq", at(Side::ReceiveQueue)),
        ("inbound_read_or_write", at(Side::InboundRequest)),
        ("outbound_read_response", at(Side::OutboundReadResponse)),
        ("overflow", u64::from(event.overflow)),
        ("q2_data_written", u64::from(event.q2_data_written)),
        ("source", u64::from(event.source.code())),
    ];
    for (key, value) in ours {
        assert_eq!(value, number(vector.decoded(key)), "{}: {key}", vector.name);
    }
    assert_eq!(
        vector.get("decoded").as_object().map(|all| all.len()),
        Some(ours.len() + 1)
    );
}

/// True for a code of a queue pair from the source of a completion queue. The kernel then looks up
/// both; here the code decides.
fn is_contradictory(event: &AsynchronousEvent) -> bool {
    event.ae_code.attribution() == Attribution::QueuePair
        && event.source.subject() == Subject::CompletionQueue
}

fn check_completion_event(vector: &Vector) {
    let polarity = vector.input("polarity") == 1;
    let bytes = vector.bytes("bytes");
    let entries: Vec<CompletionEvent> = bytes
        .chunks_exact(8)
        .map(|entry| {
            let entry = words(entry).expect("a word");
            let event = CompletionEvent::decode(&entry);
            assert_eq!(event.encode(), entry, "{}", vector.name);
            event
        })
        .collect();
    let taken = entries
        .iter()
        .filter(|event| vector.has_input("polarity") && event.valid == polarity);
    // An entry without context is skipped; the kernel keeps half of the pointer in the device.
    let context = taken
        .map(|event| event.completion_context << 1)
        .find(|context| *context != 0)
        .unwrap_or(0);
    assert_eq!(
        context,
        number(vector.decoded("completion_context")),
        "{}",
        vector.name
    );
    if let Some(offset) = vector.get("decoded").get("acknowledge_offset") {
        assert_eq!(number(offset), registers::CQ_ACKNOWLEDGE);
        let value = number(vector.decoded("acknowledge_value"));
        assert_eq!(value, vector.input("cq_number"));
        let value = u32::try_from(value).expect("32 bits");
        assert_eq!(value & registers::CompletionQueueNumber::RESERVED, 0);
    }
}

fn check_control_completion(vector: &Vector) {
    let bytes: [u64; 4] = vector.words("bytes");
    let completion = ControlCompletion::decode(&bytes);
    let polarity = vector.input("expected_polarity") == 1;
    let present = vector.decoded("present").as_bool().expect("yes or no");
    assert_eq!(completion.valid == polarity, present, "{}", vector.name);
    let undefined = ControlCompletion::reserved_bits(&bytes);
    let mut encoded = completion.encode();
    encoded
        .iter_mut()
        .zip(undefined)
        .for_each(|(word, bits)| *word |= bits);
    assert_eq!(encoded, bytes, "{}", vector.name);
    if !present {
        return;
    }
    let major = if completion.error {
        completion.major_code
    } else {
        0
    };
    let ours = [
        ("cqp_context", completion.cqp_context),
        ("return_value", u64::from(completion.return_value)),
        ("major", u64::from(major)),
        ("minor", u64::from(completion.minor_code)),
        ("error", u64::from(completion.error)),
        ("wqe_index", u64::from(completion.wqe_index)),
    ];
    for (key, value) in ours {
        assert_eq!(value, number(vector.decoded(key)), "{}: {key}", vector.name);
    }
    let opcode = Opcode::from_field(u128::from(vector.input("opcode_in_sq_at_index")));
    assert!(!matches!(opcode, Opcode::Unknown(_)), "{}", vector.name);
    let expected = match vector.name.as_str() {
        "ccq_cqe.error_invalid_state" => Some(CommandFailure::InvalidState),
        "ccq_cqe.error_flush_nothing_pending" => Some(CommandFailure::FlushNothingPending),
        "ccq_cqe.error_object_cache" => Some(CommandFailure::ObjectCache { minor: 1 }),
        "ccq_cqe.error_pattern" => Some(CommandFailure::Other {
            major: 42435,
            minor: 23100,
        }),
        _ => None,
    };
    assert_eq!(completion.failure(), expected, "{}", vector.name);
    if let Some(failure) = expected {
        assert_eq!(
            failure.codes(),
            (completion.major_code, completion.minor_code)
        );
    }
}

fn check_arm(vector: &Vector) {
    let before = CqShadowArm(vector.input("shadow_word_4_before"));
    let after = number(vector.decoded("shadow_word_4_after"));
    assert_eq!(before.armed_for_any().0, after, "{}", vector.name);
    assert_eq!(number(vector.decoded("register_offset")), registers::CQ_ARM);
    assert_eq!(
        number(vector.decoded("register_value")),
        0,
        "the number of the queue"
    );
}

fn check_register_trace(vector: &Vector) {
    let writes = vector.decoded("writes").as_array().expect("writes");
    let theirs: Vec<(u64, u64)> = writes
        .iter()
        .map(|write| (number(&write["offset"]), number(&write["value"])))
        .collect();
    assert_eq!(expected_writes(vector), theirs, "{}", vector.name);
}

fn expected_writes(vector: &Vector) -> Vec<(u64, u64)> {
    let small = |key: &str| u16::try_from(vector.input(key)).expect("16 bits");
    let cause =
        CauseControl::on_vector(small_or_zero(vector, "vector"), vector.input("enable") == 1);
    match vector.name.as_str() {
        "aeq_give_back" => vec![(registers::AEQ_ALLOCATE, vector.input("count"))],
        "cqp_init_writes" => {
            vec![
                (registers::CQP_TAIL, 0),
                (registers::CQP_DOORBELL, 0),
                (registers::CQP_STATUS, 0),
            ]
        }
        "cqp_create_writes" | "cqp_create_failure" | "cqp_destroy_writes" => {
            check_status(vector);
            create_writes(vector)
        }
        name if name.starts_with("cfg_ceq") => {
            vec![(
                registers::ceq_cause_control(small("ceq_number")),
                u64::from(cause.0),
            )]
        }
        name if name.starts_with("cfg_aeq") => {
            vec![(registers::AEQ_CAUSE_CONTROL, u64::from(cause.0))]
        }
        name if name.starts_with("enable_irq") => {
            // The asynchronous event queue's own vector is never throttled.
            let throttled = vector.input("vector") != vector.input("aeq_vector");
            let interval = if throttled { small("ceq_itr_us") } else { 0 };
            let value = DynamicControl::enabled(interval).0;
            vec![(
                registers::dynamic_control(small("vector")),
                u64::from(value),
            )]
        }
        name if name.starts_with("disable_irq") => {
            vec![(registers::dynamic_control(small("vector")), 0)]
        }
        name if name.starts_with("invalidate_pd") => {
            let page = u32::try_from(vector.input("page_index")).expect("32 bits");
            let value = registers::PageDescriptorInvalidate::of(small("segment_index"), page);
            vec![(registers::PAGE_DESCRIPTOR_INVALIDATE, u64::from(value.0))]
        }
        other => panic!("{other}: unexpected trace"),
    }
}

fn small_or_zero(vector: &Vector, key: &str) -> u16 {
    u16::try_from(vector.input(key)).unwrap_or(0)
}

/// In a failure the same writes happen, and the codes are read from the status registers.
fn check_status(vector: &Vector) {
    if vector.has_input("ccqpstatus") {
        let register = |key: &str| u32::try_from(vector.input(key)).expect("32 bits");
        let status = registers::CqpStatus(register("ccqpstatus"));
        assert!(status.done() && status.error());
        let codes = registers::CqpErrorCodes(register("cqperrcodes"));
        assert_eq!(u64::from(codes.major()), vector.input("major"));
        assert_eq!(u64::from(codes.minor()), vector.input("minor"));
    }
}

fn create_writes(vector: &Vector) -> Vec<(u64, u64)> {
    // The address that the kernel wrote. The input `context_address` of one of the two creations is
    // another number; the writes agree in both, and only the order of the halves matters.
    let address: u64 = match vector.name.as_str() {
        "cqp_destroy_writes" => 0,
        _ => 0x5A3C_C3A5_9669_0160,
    };
    vec![
        (registers::CQP_CONTEXT_HIGH, address >> 32),
        (registers::CQP_CONTEXT_LOW, address & 0xFFFF_FFFF),
    ]
}

fn check_constants(vector: &Vector) {
    let theirs = vector.get("decoded").as_object().expect("constants");
    let mut ours: BTreeMap<&str, Value> = BTreeMap::new();
    match vector.name.as_str() {
        "register_offsets" => {
            ours.extend(register_offsets().map(|(key, value)| (key, Value::from(value))));
        }
        "hw_attributes" => ours.extend(limits_by_name().map(|(key, value)| (key, value.into()))),
        "gather_statistics_map" => {
            for counter in &COUNTERS {
                // Linux declares 48 bits from bit 32 on; a word ends after 32 of them.
                let width = if counter.name == "TCPRXSEGS" {
                    48
                } else {
                    counter.width
                };
                let place =
                    serde_json::json!({"byte": counter.byte, "bit": counter.bit, "width": width});
                ours.insert(counter.name, place);
            }
        }
        other => panic!("{other}: unexpected constants"),
    }
    let kept = |key: &str| !CONSTANTS_SKIPPED.contains(&key);
    let theirs: BTreeMap<&str, Value> = theirs
        .iter()
        .filter(|(key, _)| kept(key))
        .map(|(key, value)| (key.as_str(), value.clone()))
        .collect();
    assert_eq!(ours, theirs, "{}", vector.name);
}

fn register_offsets() -> [(&'static str, u64); 23] {
    [
        ("CQPTAIL", registers::CQP_TAIL),
        ("CQPDB", registers::CQP_DOORBELL),
        ("CCQPSTATUS", registers::CQP_STATUS),
        ("CCQPHIGH", registers::CQP_CONTEXT_HIGH),
        ("CCQPLOW", registers::CQP_CONTEXT_LOW),
        ("CQARM", registers::CQ_ARM),
        ("CQACK", registers::CQ_ACKNOWLEDGE),
        ("AEQALLOC", registers::AEQ_ALLOCATE),
        ("CQPERRCODES", registers::CQP_ERROR_CODES),
        ("WQEALLOC", registers::WQE_ALLOCATE),
        ("GLINT_DYN_CTL_0", registers::dynamic_control(0)),
        ("DB_PAGE", registers::DOORBELL_PAGE),
        ("GLPCI_LBARCTRL", registers::BAR_CONTROL),
        ("GLPE_CPUSTATUS0", registers::CPU_STATUS[0]),
        ("GLPE_CPUSTATUS1", registers::CPU_STATUS[1]),
        ("GLPE_CPUSTATUS2", registers::CPU_STATUS[2]),
        ("PFINT_AEQCTL", registers::AEQ_CAUSE_CONTROL),
        ("GLINT_CEQCTL_0", registers::ceq_cause_control(0)),
        ("VSIQF_PE_CTL1_0", registers::vsi_filter_control(0)),
        ("PFHMC_PDINV", registers::PAGE_DESCRIPTOR_INVALIDATE),
        (
            "GLHMC_VFPDINV_0",
            registers::vf_page_descriptor_invalidate(0),
        ),
        ("GLPE_CRITERR", registers::CRITICAL_ERROR),
        ("GLINT_RATE_0", registers::interrupt_rate(0)),
    ]
}

/// The attributes that are limits of the hardware, under their names there.
fn limits_by_name() -> [(&'static str, u64); 30] {
    [
        ("max_wq_fragments", limits::MAX_FRAGMENTS.into()),
        ("max_read_sges", limits::MAX_READ_FRAGMENTS.into()),
        ("max_inline", limits::MAX_INLINE_BYTES.into()),
        ("max_rq_quanta", limits::MAX_WORK_QUEUE_QUANTA.into()),
        ("max_wq_quanta", limits::MAX_WORK_QUEUE_QUANTA.into()),
        ("max_wqes", limits::MAX_WORK_QUEUE_QUANTA.into()),
        ("min_cq_size", limits::MIN_CQ_ENTRIES.into()),
        ("max_cq_size", limits::MAX_CQ_ENTRIES.into()),
        ("max_sq_chunk", limits::MAX_SEND_QUANTA.into()),
        ("min_wq_size", limits::MIN_WORK_QUEUE_ENTRIES.into()),
        ("max_outbound_message", limits::MAX_MESSAGE_BYTES.into()),
        ("max_inbound_message", limits::MAX_MESSAGE_BYTES.into()),
        ("max_mr_size", limits::MAX_REGION_BYTES),
        ("page_size_mask", limits::PAGE_SIZES),
        ("min_aeq_size", limits::MIN_AEQ_ENTRIES.into()),
        ("max_aeq_size", limits::MAX_AEQ_ENTRIES.into()),
        ("min_ceq_size", limits::MIN_CEQ_ENTRIES.into()),
        ("max_ceq_size", limits::MAX_CEQ_ENTRIES.into()),
        ("max_push_pages", limits::PUSH_PAGES.into()),
        ("max_vf_fpm_id", limits::LAST_VF_HMC_FUNCTION.into()),
        ("first_vf_fpm_id", limits::FIRST_VF_HMC_FUNCTION.into()),
        ("max_ird", limits::MAX_INBOUND_READS.into()),
        ("max_ord", limits::MAX_OUTBOUND_READS.into()),
        ("max_pds", limits::PROTECTION_DOMAINS.into()),
        ("max_qp_wr", limits::MAX_WORK_REQUESTS.into()),
        ("pe_ready_retries", u64::from(limits::READY_TRIES) - 1),
        ("done_count", limits::CQP_REGISTER_WAIT_MS * 1000 / 10),
        ("sleep_us", 10),
        (
            "max_statistics_instances",
            limits::STATISTICS_INSTANCES.into(),
        ),
        ("statistics_counters", COUNTERS.len() as u64),
    ]
}

/// Constants that do not belong to the hardware: a driver's offers, and sizes of its tables.
const CONSTANTS_SKIPPED: [&str; 5] = [
    "feature_flags",
    "hw_rev",
    "min_qp_id",
    "max_enabled_vfs",
    "IRDMA_MAX_REGS",
];

fn check_statistics(vector: &Vector) {
    let mut buffer: Vec<u64> = vector
        .bytes("bytes")
        .chunks_exact(8)
        .map(|word| words::<1>(word).expect("a word")[0])
        .collect();
    let before = match text_of(&vector.get("input")["previous"]) {
        "all zero" => vec![0; buffer.len()],
        "all ones" => vec![u64::MAX; buffer.len()],
        other => panic!("{other}: unexpected"),
    };
    let decoded = vector.get("decoded").as_object().expect("counters");
    assert_eq!(decoded.len(), COUNTERS.len());
    for counter in &COUNTERS {
        let value = counter.difference(counter.read(&before), counter.read(&buffer));
        // Only 32 of the 48 bits that Linux declares exist, so its difference is off by a borrow.
        let theirs = number(&decoded[counter.name]) & counter.max();
        assert_eq!(value, theirs, "{}: {}", vector.name, counter.name);
        let kept = counter.read(&buffer);
        counter.write(&mut buffer, u64::MAX);
        assert_eq!(counter.read(&buffer), counter.max());
        counter.write(&mut buffer, kept);
    }
    let bytes: Vec<u8> = buffer.iter().flat_map(|word| word.to_le_bytes()).collect();
    assert_eq!(
        bytes,
        vector.bytes("bytes"),
        "a counter's write touches no other"
    );
}

fn check_flush_code(vector: &Vector) {
    let code = AeCode::from_code(u16::try_from(vector.input("ae_code")).expect("16 bits"));
    assert!(
        !matches!(code, AeCode::Unknown(_)),
        "{}: no name",
        vector.name
    );
    let event = match text_of(vector.decoded("event")) {
        "catastrophic" => QueuePairEvent::Catastrophic,
        "access_error" => QueuePairEvent::AccessError,
        "request_error" => QueuePairEvent::RequestError,
        other => panic!("{other}: unexpected"),
    };
    let theirs = number(vector.decoded("flush_code"));
    assert_eq!(
        u64::from(code.flush_code().code()),
        theirs,
        "{}",
        vector.name
    );
    assert_eq!(code.flush_code().event(), event, "{}", vector.name);
}

fn check_features(vector: &Vector) {
    let list: Vec<u64> = vector
        .bytes("bytes")
        .chunks_exact(8)
        .map(|word| words::<1>(word).expect("a word")[0])
        .collect();
    let features = Features::decode(&list).expect("a good list");
    assert_eq!(features.firmware.0, number(vector.decoded("firmware_info")));
    assert_eq!(
        features.firmware.major(),
        number(vector.decoded("firmware_major"))
    );
    assert_eq!(
        features.firmware.minor(),
        number(vector.decoded("firmware_minor"))
    );
    // The kernel keeps the whole word, kind included.
    let word = |kind, value| Feature::ZERO.with_kind(kind).with_value(value).0;
    let hardware = features.hardware.expect("a version");
    let theirs = number(vector.decoded("hardware_version_info"));
    assert_eq!(word(features::HARDWARE_INFO, hardware.0), theirs);
    let sets = features
        .max_queue_sets
        .map_or(0, |sets| word(features::MAX_QUEUE_SETS, sets));
    assert_eq!(sets, number(vector.decoded("max_queue_sets")));
    assert_eq!(features.firmware.entry_count(), vector.input("entries"));
    assert_eq!(list.len() as u64, vector.input("entries"));

    let written = features.encode();
    let again = Features::decode(&written).expect("a good list");
    assert_eq!(
        (again.hardware, again.max_queue_sets),
        (features.hardware, features.max_queue_sets)
    );
    assert_eq!(Feature(written[0]).kind(), features::FIRMWARE_INFO);
}
