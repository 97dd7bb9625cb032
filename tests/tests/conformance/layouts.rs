//! Every command that Linux's drivers were recorded with decodes, and encodes to the same bytes.

use crate::recorded;
use ringside_model::record::text::admin_opcode;
use ringside_model::record::{AdminCommand, Buffer, ControlCommand, Event};
use ringside_spec::lan::admin::{Descriptor, DescriptorFlags, Opcode};
use ringside_spec::lan::transmit::TransmitContext;
use ringside_spec::rdma::commands::{Command, CommandHeader};
use ringside_spec::rdma::control_completion::ControlCompletion;
use ringside_spec::rdma::cqp_context::CqpContext;
use ringside_spec::rdma::fpm::{FpmCommit, FpmQuery};
use ringside_spec::rdma::layout::{from_bytes, to_bytes};
use ringside_spec::rdma::qp_context::RoceQueuePairContext;
use ringside_spec::rdma::segments::SegmentEntry;
use ringside_tests::recording::{Value, describe};
use std::collections::BTreeSet;

/// Words as the layout reads and writes them: the same, and no bit without a meaning.
#[track_caller]
fn same<const N: usize>(what: &str, words: &[u64; N], again: &[u64; N], reserved: &[u64; N]) {
    assert_eq!(again, words, "{what} encodes to other words");
    assert_eq!(*reserved, [0; N], "{what} has bits without a meaning");
}

fn check_control(command: &ControlCommand) {
    let words = &command.element;
    let decoded = Command::decode(words).expect("a command with a layout");
    let what = format!("{:?}", decoded.opcode());
    let again = decoded.encode(CommandHeader::of(words).valid());
    let reserved = Command::reserved_bits(words).expect("a command with a layout");
    same(&what, words, &again, &reserved);
    let completion = command.completion.expect("a completion");
    let again = ControlCompletion::decode(&completion).encode();
    assert_eq!(again, completion, "completion of {what}");
    for buffer in &command.buffers {
        check_buffer(&decoded, buffer);
    }
}

fn check_buffer(command: &Command, buffer: &Buffer) {
    let what = format!("{} of {:?}", buffer.name, command.opcode());
    match (buffer.name.as_str(), command) {
        ("queue pair context", _) => {
            let words: [u64; 32] = from_bytes(&buffer.before).expect("256 bytes");
            let context = RoceQueuePairContext::decode(&words);
            let reserved = RoceQueuePairContext::reserved_bits(&words);
            same(&what, &words, &context.encode(), &reserved);
        }
        ("function private memory", Command::CommitFpm(_)) => {
            let words = from_bytes(&buffer.before).expect("176 bytes");
            let wanted = FpmCommit::decode(&words);
            let counts = ringside_spec::rdma::fpm::PerObject::from_fn(|it| wanted.0[it].count);
            assert_eq!(FpmCommit::encode_request(&counts), words, "{what}");
        }
        ("function private memory", Command::QueryFpm(_)) => {
            let answered = buffer.after.as_deref().expect("an answer");
            let words = from_bytes(answered).expect("176 bytes");
            let capacity = FpmQuery::decode(&words).expect("an answer that makes sense");
            assert_eq!(capacity.encode(), words, "{what}");
        }
        ("segment list", _) => {
            let (entries, rest) = buffer.before.as_chunks::<16>();
            assert!(rest.is_empty(), "{what}");
            for entry in entries {
                let words = from_bytes(entry).expect("16 bytes");
                let read = SegmentEntry::from_words(words);
                assert_eq!(read.reserved_bits(), [0; 2], "{what}");
                assert_eq!(to_bytes(&read.words()), entry, "{what}");
            }
        }
        ("page list", _) => {
            let (entries, rest) = buffer.before.as_chunks::<8>();
            assert!(rest.is_empty() && !entries.is_empty(), "{what}");
            let aligned = |entry: &[u8; 8]| u64::from_le_bytes(*entry).is_multiple_of(4096);
            assert!(
                entries.iter().all(aligned),
                "{what}: not addresses of pages"
            );
        }
        _ => {}
    }
}

fn check_admin(command: &AdminCommand) {
    let opcode = admin_opcode(&command.before);
    assert!(!matches!(opcode, Opcode::Unknown(_)), "{opcode:?}");
    let descriptor = Descriptor::read(&command.before).expect("32 bytes");
    assert_eq!(descriptor.to_bytes(), command.before);
    let flags = descriptor.flags();
    assert_eq!(flags.0 & DescriptorFlags::RESERVED, 0, "{opcode:?}");
    let sent = if flags.read_buffer() {
        usize::from(descriptor.data_length.get())
    } else {
        0
    };
    // The bytes of a package are not kept.
    let kept = opcode != Opcode::DownloadPackage;
    assert!(!kept || command.sent.len() == sent, "{opcode:?}");
    if opcode == Opcode::AddTransmitQueues {
        // group of 8 bytes, then number, padding and node of 8
        let context = command.sent.get(16..16 + TransmitContext::SIZE);
        let context = context.and_then(|bytes| bytes.try_into().ok());
        let context = context.expect("a context of 22 bytes");
        assert_eq!(TransmitContext::decode(context).encode(), *context);
    }
}

#[test]
fn what_linux_sends_decodes_and_encodes_to_the_same_bytes() {
    let (mut commands, mut controls) = (BTreeSet::new(), BTreeSet::new());
    for entry in recorded() {
        match &entry.event {
            Event::Admin(command) => {
                check_admin(command);
                commands.insert(format!("{:?}", admin_opcode(&command.before)));
            }
            Event::Control(command) => {
                check_control(command);
                controls.insert(CommandHeader::of(&command.element).operation());
            }
            Event::ControlQueue(queue) => {
                let words: [u64; 8] = from_bytes(&queue.context).expect("64 bytes");
                let reserved = CqpContext::reserved_bits(&words);
                let context = CqpContext::decode(&words);
                same("CQP context", &words, &context.encode(), &reserved);
            }
            _ => {}
        }
    }
    assert!(
        commands.len() >= 50,
        "{} kinds: {commands:?}",
        commands.len()
    );
    assert!(
        controls.len() >= 22,
        "{} kinds: {controls:?}",
        controls.len()
    );
}

#[test]
fn what_linux_sends_fills_its_structures_and_leaves_reserved_fields_zero() {
    let mut reserved = 0;
    for described in recorded().iter().filter_map(describe) {
        for (name, value) in &described.fields {
            let what = format!("{} {name}: {value}", described.kind);
            assert!(!name.contains("(cut)") && name != "beyond", "{what}");
            if name.contains("reserved") || name.contains("rsvd") {
                reserved += 1;
                let zero = match value {
                    Value::Number(number) => *number == 0,
                    Value::Bytes(bytes) => bytes.iter().all(|byte| *byte == 0),
                    _ => false,
                };
                assert!(zero, "{what}");
            }
        }
    }
    assert!(reserved > 300, "only {reserved} reserved fields");
}
