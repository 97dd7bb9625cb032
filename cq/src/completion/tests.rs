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
fn a_write_with_immediate_is_told_from_a_send_with_immediate() {
    let receive = |operation, flags| Completion {
        operation,
        flags,
        ..Completion::EMPTY
    };
    let with = flag::IMMEDIATE;
    assert_eq!(
        receive(0x09, with).operation(),
        Operation::ReceiveWriteImmediate
    );
    assert_eq!(
        receive(0x0B, with).operation(),
        Operation::ReceiveWriteImmediate
    );
    assert_eq!(receive(0x05, with).operation(), Operation::Receive);
    assert_eq!(receive(0x04, 0).operation(), Operation::Receive);
    let send = Completion {
        operation: 0x0D,
        flags: flag::SEND,
        ..Completion::EMPTY
    };
    assert_eq!(send.operation(), Operation::Write);
    let unknown = Completion {
        operation: 0x3F,
        ..send
    };
    assert_eq!(unknown.operation(), Operation::Unknown(0x3F));
}
