//! Commands of the control queue pair in fields.

use super::described::{Described, Value, some, words_of};
use ringside_model::record::{Buffer, ControlCommand, ControlQueueCreated};
use ringside_spec::rdma::commands::{
    Command, CommandHeader, CreateCompletionQueue, DestroyCompletionQueue, UpdateSegments,
};
use ringside_spec::rdma::cqp_context::CqpContext;
use ringside_spec::rdma::fpm::{FpmCommit, ObjectType};
use ringside_spec::rdma::layout::from_bytes;
use ringside_spec::rdma::limits::FIRST_USER_COMPLETION_QUEUE;
use ringside_spec::rdma::qp_context::RoceQueuePairContext;
use ringside_spec::rdma::segments::SegmentEntry;

/// Fields that hold an address, the driver's own cookie, or a number of the device.
const SOME: &[&str] = &[
    "arp_index",
    "completion_context",
    "destination_ip",
    "destination_qp",
    "first_block_address",
    "group_index",
    "first_pble_index",
    "host_context_address",
    "local_ip",
    "queue_set_handle",
    "remote_endpoint_index",
    "ring_address",
    "ring_address_by_512",
    "rq_address",
    "shadow_address",
    "source_ip",
    "source_port",
    "sq_address",
    "buffer_address",
    "member_list_address",
    "virtual_address",
    "protection_domain",
    "qp_number",
    "cq_number",
    "tx_cq_number",
    "rx_cq_number",
    "length_bytes",
    "node_id",
    "parent_id",
    "segment_index",
    "address",
    "ah_number",
];

/// Fields that hold a random value of a driver or a value derived from it, and a field that depends
/// on the layout of a program's memory.
const DRAWN: &[&str] = &[
    "expected_psn",
    "flow_label",
    "psn_max",
    "psn_next",
    "psn_unacknowledged",
    "queues_virtual",
    "ring_virtual",
    "stag_index",
    "stag_key",
];

fn classed(name: &str, value: Value) -> Value {
    let plain = name.rsplit('.').next().unwrap_or(name);
    if DRAWN.contains(&plain) {
        Value::Drawn
    } else if SOME.contains(&plain) {
        some(&value)
    } else {
        value
    }
}

/// Fields of a command for a ring that say whether its pages are one block, as the memory of a
/// program happens to be.
const RING_LAYOUT: &[&str] = &["queues_virtual", "ring_virtual"];

fn described(kind: String, fields: Vec<(String, Value)>) -> Described {
    let is_of_ring = fields
        .iter()
        .any(|(name, _)| RING_LAYOUT.contains(&name.as_str()));
    let classed = fields.into_iter().map(|(name, value)| {
        // The page list of a ring that is no block.
        let value = match is_of_ring && name == "first_pble_index" {
            true => Value::Drawn,
            false => classed(&name, value),
        };
        (name, value)
    });
    Described {
        kind,
        variant: String::new(),
        fields: classed.collect(),
    }
}

pub(super) fn describe_queue(created: &ControlQueueCreated) -> Described {
    let mut fields = Vec::new();
    match from_bytes::<8>(&created.context) {
        Some(words) => words_of(CqpContext::FIELDS, &words, &mut fields),
        None => fields.push(("context (unreadable)".into(), Value::Some(true))),
    }
    described("control-queue".into(), fields)
}

pub(super) fn describe(command: &ControlCommand) -> Described {
    let opcode = CommandHeader::of(&command.element).operation();
    let mut fields = Vec::new();
    match Command::decode(&command.element) {
        Ok(Command::UpdateSegments(update)) => segments(&update, &command.buffers, &mut fields),
        Ok(_) => {
            let layout = Command::fields(opcode).unwrap_or_default();
            words_of(layout, &command.element, &mut fields);
        }
        Err(_) => fields.push(("unknown".into(), Value::Some(true))),
    }
    let number = match Command::decode(&command.element) {
        Ok(Command::CreateCompletionQueue(CreateCompletionQueue { cq_number, .. }))
        | Ok(Command::DestroyCompletionQueue(DestroyCompletionQueue { cq_number, .. })) => {
            Some(cq_number)
        }
        _ => None,
    };
    if let Some(number) = number {
        // 0: control, up to 2 reserved for the driver, then those of programs
        let purpose = number.min(FIRST_USER_COMPLETION_QUEUE);
        fields.push(("purpose".into(), Value::Number(purpose.into())));
    }
    for buffer in &command.buffers {
        buffer_fields(&command.element, buffer, &mut fields);
    }
    described(format!("control {opcode:?}"), fields)
}

fn segments(update: &UpdateSegments, buffers: &[Buffer], fields: &mut Vec<(String, Value)>) {
    let listed = buffers.iter().flat_map(|buffer| {
        let (entries, _) = buffer.before.as_chunks::<16>();
        entries.iter().filter_map(|entry| from_bytes::<2>(entry))
    });
    let function = update.hmc_function_index;
    fields.push(("hmc_function_index".into(), Value::Number(function.into())));
    let skip = update.skip_entry;
    fields.push(("skip_entry".into(), Value::Number(skip.into())));
    let listed = listed.map(SegmentEntry::from_words);
    for entry in update.inline_entries().chain(listed) {
        let (command, data) = (entry.command, entry.data);
        let numbers = [
            ("segment_index", command.segment_index()),
            ("rdma_partition", command.rdma_partition().into()),
            ("write", command.write().into()),
            ("valid", data.valid().into()),
            ("direct", data.direct().into()),
            ("page_count", data.page_count()),
            ("address", data.address()),
        ];
        // A command may carry several entries that agree in all but place.
        for (name, number) in numbers {
            let field = (name.to_owned(), classed(name, Value::Number(number.into())));
            if !fields.contains(&field) {
                fields.push(field);
            }
        }
    }
}

fn buffer_fields(element: &[u64; 8], buffer: &Buffer, fields: &mut Vec<(String, Value)>) {
    let mut inside = Vec::new();
    match (buffer.name.as_str(), Command::decode(element)) {
        ("queue pair context", Ok(Command::CreateQueuePair(_) | Command::ModifyQueuePair(_))) => {
            if let Some(words) = from_bytes::<32>(&buffer.before) {
                words_of(RoceQueuePairContext::FIELDS, &words, &mut inside);
            }
        }
        ("function private memory", Ok(Command::CommitFpm(_))) => {
            if let Some(words) = from_bytes(&buffer.before) {
                let wanted = FpmCommit::decode(&words);
                inside.extend(ObjectType::ALL.iter().map(|&object| {
                    let count = wanted.0[object].count;
                    (object.name().to_owned(), Value::Number(count.into()))
                }));
            }
        }
        ("page list", _) => {
            inside.push(("entries".into(), Value::Some(!buffer.before.is_empty())));
        }
        _ => {}
    }
    let prefix = match buffer.name.as_str() {
        "queue pair context" => "context",
        "function private memory" => "memory",
        other => other,
    };
    fields.extend(
        inside
            .into_iter()
            .map(|(name, value)| (format!("{prefix}.{name}"), value)),
    );
}
