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

#[test]
fn only_success_is_success() {
    assert!(Status::Success.is_success());
    let failed = Completion::failed_receive(7, 9, FlushCode::LocalLength);
    assert!(!failed.is_success() && Completion::EMPTY.is_success());
    assert_eq!(failed.status(), Status::LocalLength);
    assert_eq!((failed.queue_pair(), failed.id), (7, 9));
}

fn of(header: CompletionHeader) -> Completion {
    Completion {
        header,
        ..Completion::EMPTY
    }
}

#[test]
fn a_message_was_received_by_no_send_and_no_failure() {
    let zero = CompletionHeader::ZERO;
    assert!(of(zero).is_received());
    assert!(!of(zero.with_send_queue(true)).is_received());
    assert!(!of(zero.with_error(true)).is_received());
    assert!(!of(zero.with_send_queue(true).with_error(true)).is_received());
}

/// Each of the three reasons alone, and other bits beside none of them.
#[test]
fn a_member_received_a_message_unless_it_was_destroyed_before() {
    let zero = CompletionHeader::ZERO;
    let received = of(zero.with_minor(3).with_extended(true));
    assert!(received.is_received_by_member() && !received.outlives_queue_pair());
    assert!(!of(zero.with_send_queue(true)).is_received_by_member());
    assert!(!of(zero.with_error(true)).is_received_by_member());
    let outliving = received.outliving();
    assert!(!outliving.is_received_by_member());
    assert!(outliving.is_received() && outliving.outlives_queue_pair());
    assert_eq!(outliving.outliving(), outliving);
}

#[test]
fn only_receives_count_as_flushed_receives() {
    let flushed = Completion::flushed_receive(7, 9);
    assert!(flushed.is_flushed_receive());
    let send = Completion {
        header: flushed.header.with_send_queue(true),
        ..flushed
    };
    assert!(!send.is_flushed_receive() && send.status() == Status::Flushed);
    let failed = Completion::failed_receive(7, 9, FlushCode::LocalLength);
    assert!(!failed.is_flushed_receive() && !Completion::EMPTY.is_flushed_receive());
}

#[test]
fn the_last_packet_of_a_write_has_an_immediate_only_with_the_extended_bit() {
    let header = CompletionHeader::ZERO.with_operation(u64::from(PACKET_WRITE_ONLY_IMMEDIATE));
    let of = |header| Completion {
        header,
        detail: ReceiveDetail::ZERO.with_immediate(0xA1B2_C3D4).0,
        ..Completion::EMPTY
    };
    assert_eq!(of(header).operation(), Operation::Receive);
    assert_eq!(of(header).immediate(), None);
    let with = of(header.with_extended(true));
    assert_eq!(with.operation(), Operation::ReceiveWriteImmediate);
    assert_eq!(with.immediate(), Some(0xA1B2_C3D4));
    // The detail of a send is its record, with any header.
    let send = of(header.with_extended(true).with_send_queue(true));
    assert_eq!(send.immediate(), None);
}

/// The completion of a datagram of 100 bytes from queue pair 0xABCDEF.
fn datagram(header: CompletionHeader) -> Completion {
    let origin = DatagramOrigin::ZERO
        .with_queue_pair(5)
        .with_source(0xAB_CDEF)
        .with_is_datagram(true);
    Completion {
        id: 1,
        detail: ReceiveDetail::ZERO.with_payload_bytes(140).0,
        header,
        origin: Origin(origin.0),
    }
}

#[test]
fn a_datagram_names_its_source_and_what_is_known_of_its_frame() {
    let plain = datagram(CompletionHeader::ZERO);
    let mut wanted = Datagram {
        source_queue_pair: 0xAB_CDEF,
        source_mac: None,
        vlan_tag: None,
        ipv4: false,
        payload_bytes: 100,
    };
    assert_eq!(plain.datagram(), Some(wanted));
    assert_eq!(
        (plain.source_queue_pair(), plain.queue_pair()),
        (0xAB_CDEF, 5)
    );

    let mac = 0xFCDE_BA98_7654;
    let header = SoftwareNote::of_source(CompletionHeader::ZERO, mac);
    wanted.source_mac = Some([0xFC, 0xDE, 0xBA, 0x98, 0x76, 0x54]);
    wanted.ipv4 = true;
    // Bit 51 of a receive means nothing, with any value.
    for (tag, dropped) in [(0x6123, true), (0xE123, false), (0, true), (0xFFFF, false)] {
        let header = header
            .with_invalidated_or_ipv4(true)
            .with_push_dropped(dropped);
        let (header, origin) = SoftwareNote::of_vlan(header, plain.origin, tag);
        let tagged = Completion {
            header,
            origin,
            ..plain
        };
        wanted.vlan_tag = Some(tag);
        assert_eq!(tagged.datagram(), Some(wanted));
        // Over IPv4, not a key that was invalidated.
        assert_eq!(tagged.invalidated_key(), None);
    }
}

#[test]
fn a_datagram_is_one_with_any_operation_of_the_device() {
    for operation in 0..64 {
        let header = CompletionHeader::ZERO
            .with_operation(operation)
            .with_invalidated_or_ipv4(true)
            .with_extended(true);
        let completion = datagram(header);
        assert!(completion.datagram().is_some(), "{operation:#x}");
        assert_eq!(completion.operation(), Operation::Receive, "{operation:#x}");
        assert_eq!(completion.invalidated_key(), None, "{operation:#x}");
        let connected = Completion {
            origin: Origin::ZERO.with_key_or_source(77),
            ..completion
        };
        assert_eq!(connected.datagram(), None, "{operation:#x}");
        assert_eq!(connected.invalidated_key(), Some(77), "{operation:#x}");
    }
}

#[test]
fn messages_of_connections_sends_and_failures_are_no_datagrams() {
    let good = datagram(CompletionHeader::ZERO);
    assert!(good.datagram().is_some());
    let of = |header| Completion { header, ..good };
    assert_eq!(of(good.header.with_error(true)).datagram(), None);
    assert_eq!(of(good.header.with_send_queue(true)).datagram(), None);
    let connected = Completion {
        origin: Origin(good.origin.0).with_is_datagram(false),
        ..good
    };
    assert_eq!(connected.datagram(), None);
    // A send invalidates no key of its own side.
    let send = good.header.with_send_queue(true);
    assert_eq!(
        of(send.with_invalidated_or_ipv4(true)).invalidated_key(),
        None
    );
}

#[test]
fn each_octet_of_a_source_address_is_kept_and_a_group_address_is_not() {
    for mac in [
        0_u64,
        1,
        0xFE00_0000_0000,
        0x0200_0000_00FF,
        0x00FF_0000_0000,
    ] {
        let note = SoftwareNote(SoftwareNote::of_source(CompletionHeader::ZERO, mac).0);
        assert!(note.mac_known());
        let [_, _, octets @ ..] = mac.to_be_bytes();
        assert_eq!(note.source_mac(), octets, "{mac:#x}");
    }
    let header = CompletionHeader::ZERO.with_extended(true);
    for group in [0x0100_5E00_0001, 0xFFFF_FFFF_FFFF] {
        assert_eq!(SoftwareNote::of_source(header, group), header);
    }
}

#[test]
fn a_solicited_message_says_so() {
    assert!(!of(CompletionHeader::ZERO).is_solicited());
    assert!(of(CompletionHeader::ZERO.with_solicited(true)).is_solicited());
}

#[test]
fn the_debug_form_names_operation_status_and_queue_pair() {
    let text = format!("{:?}", Completion::flushed_receive(0x123, 77));
    for part in ["id: 77", "Receive", "Flushed", "queue_pair: 291"] {
        assert!(text.contains(part), "{text}");
    }
}
