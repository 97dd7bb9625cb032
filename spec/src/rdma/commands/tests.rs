use super::*;
use crate::rdma::segments::{SegmentData, SegmentEntry};

#[test]
fn every_command_decodes_to_itself() {
    for opcode in Command::OPCODES {
        let mut words = [0; 8];
        words[HEADER_WORD] = CommandHeader::ZERO
            .with_opcode(u64::from(opcode.code()))
            .with_valid(true)
            .0;
        let fields = Command::fields(*opcode).expect("a layout");
        for (number, field) in fields.iter().enumerate() {
            let widest = u128::MAX >> (128 - field.bits());
            field.place(
                &mut words,
                (0x5A5A_5A5A_5A5A_5A5A_u128 + number as u128) & widest,
            );
        }
        let command = Command::decode(&words).expect("a known command");
        assert_eq!(command.opcode(), *opcode);
        assert_eq!(command.encode(true), words, "{opcode:?}");
        assert_eq!(Command::reserved_bits(&words), Ok([0; 8]), "{opcode:?}");
    }
}

#[test]
fn a_command_is_not_decoded_as_another() {
    let words = Nop {}.encode(true);
    assert_eq!(
        SuspendQueuePair::decode(&words),
        Err(WrongOpcode {
            expected: Opcode::SuspendQueuePair,
            found: Opcode::Nop
        })
    );
}

#[test]
fn an_unknown_opcode_is_named_and_not_decoded() {
    let mut words = [0; 8];
    words[HEADER_WORD] = CommandHeader::ZERO.with_opcode(0x3F).0;
    assert_eq!(
        Command::decode(&words),
        Err(UnknownCommand(Opcode::Unknown(0x3F)))
    );
}

#[test]
fn a_bit_without_meaning_is_reported_where_it_is() {
    let mut words = SuspendQueuePair { qp_number: 5 }.encode(true);
    words[6] = 0x10;
    assert_eq!(
        Command::reserved_bits(&words),
        Ok([0, 0, 0, 0, 0, 0, 0x10, 0])
    );
}

#[test]
fn segment_entries_beyond_three_go_to_the_list() {
    let entries: Vec<_> = (0..12)
        .map(|index| SegmentEntry::write(index, SegmentData::backed(0x1_0000_0000, true)))
        .collect();
    let (command, listed) =
        UpdateSegments::from_entries(2, &entries[..11], 0x8000).expect("eleven fit");
    assert_eq!(command.inline_entries().collect::<Vec<_>>(), entries[..3]);
    assert_eq!((listed, command.list_address()), (&entries[3..11], 0x8000));
    assert_eq!(command.list_entries, 8);
    assert!(UpdateSegments::from_entries(2, &entries, 0x8000).is_none());
    assert!(UpdateSegments::from_entries(2, &[], 0x8000).is_none());
}
