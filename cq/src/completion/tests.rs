use super::*;

#[test]
fn minor_codes_mean_what_the_drivers_agreed_on() {
    let wanted = [
        (0, Status::Fatal),
        (1, Status::Flushed),
        (2, Status::LocalProtection),
        (3, Status::RemoteAccess),
        (4, Status::LocalOperation),
        (5, Status::RemoteOperation),
        (6, Status::LocalLength),
        (7, Status::Fatal),
        (8, Status::RetryExceeded),
        (9, Status::WindowBind),
        (10, Status::RemoteInvalidRequest),
        (11, Status::ReceiverNotReady),
    ];
    for (minor, status) in wanted {
        assert_eq!(Status::from_codes(1, minor), status);
    }
}

#[test]
fn unknown_codes_are_kept_with_both_numbers() {
    for (major, minor) in [(1, 12), (1, 0xFFFF), (0, 6), (0xFFFE, 4), (0xFFFF, 0x8002)] {
        let status = Status::from_codes(major, minor);
        assert_eq!(status, Status::Unknown { major, minor });
        assert!(!status.is_success());
        assert!(status.to_string().contains(&format!("{minor:#06x}")));
    }
}

#[test]
fn a_write_with_immediate_is_distinguished_from_a_send_with_immediate() {
    let receive = |operation, immediate| Completion {
        header: CompletionHeader::ZERO
            .with_operation(operation)
            .with_extended(immediate),
        ..Completion::EMPTY
    };
    assert_eq!(
        receive(0x09, true).operation(),
        Operation::ReceiveWriteImmediate
    );
    assert_eq!(
        receive(0x0B, true).operation(),
        Operation::ReceiveWriteImmediate
    );
    assert_eq!(receive(0x05, true).operation(), Operation::Receive);
    assert_eq!(receive(0x04, false).operation(), Operation::Receive);
}

#[test]
fn a_send_completes_as_the_posted_operation_for_any_code_of_the_device() {
    let send = |opcode| Completion {
        header: CompletionHeader::ZERO
            .with_send_queue(true)
            .with_operation(0x3F),
        detail: SendRecordInfo::ZERO
            .with_opcode(opcode)
            .with_length_bytes(9)
            .0,
        ..Completion::EMPTY
    };
    assert_eq!(send(0x0D).operation(), Operation::Write);
    assert_eq!(send(0x3E).operation(), Operation::Unknown(0x3E));
    assert_eq!((send(0).byte_length(), send(0).immediate()), (9, None));
}

#[test]
fn a_completion_is_half_a_cache_line() {
    assert_eq!(size_of::<Completion>(), 32);
}
