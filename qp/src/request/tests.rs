use super::*;
use ringside_spec::verbs::SendElement;

fn pieces(count: u32) -> Vec<Fragment> {
    (1..=count)
        .map(|index| Fragment {
            address: u64::from(index) << 20,
            length_bytes: index * 100,
            steering_tag: index << 8,
        })
        .collect()
}

fn words(encoded: &Encoded) -> Vec<u64> {
    encoded.quanta.as_flattened()[..encoded.count * 4].to_vec()
}

#[test]
fn a_write_decodes_to_its_request_with_any_number_of_fragments() {
    for count in 0..=13 {
        for immediate in [None, Some(0xDEAD_BEEF)] {
            let fragments = pieces(count);
            let request = Write {
                fragments: &fragments,
                remote_address: 0x1234_5678_9ABC,
                remote_key: 0x77,
                immediate,
            };
            let flags = SendFlags::SIGNALLED | SendFlags::READ_FENCE;
            let words = words(&encode(&request, flags, true).unwrap());
            let element = SendElement::new(&words).unwrap();
            assert_eq!(
                element.breach(0, true, false),
                None,
                "{count} {immediate:?}"
            );
            assert_eq!(element.immediate(), immediate);
            assert_eq!(element.remote_address(), 0x1234_5678_9ABC);
            let found: Vec<_> = element.fragments().take(fragments.len()).collect();
            assert_eq!(found, fragments);
            assert_eq!(
                element.length_bytes(),
                u64::from(request.shape().unwrap().length_bytes)
            );
            let header = element.header();
            assert!(header.signalled() && header.read_fence() && !header.local_fence());
        }
    }
}

#[test]
fn inline_data_reads_back_and_every_quantum_carries_the_polarity() {
    for polarity in [true, false] {
        for length in 0..=101 {
            let data: Vec<u8> = (0..length).map(|byte| byte ^ 0xFF).collect();
            let request = SendInline {
                data: &data,
                kind: SendKind::Immediate(5),
            };
            let words = words(&encode(&request, SendFlags::NONE, polarity).unwrap());
            assert!(
                words
                    .chunks(4)
                    .all(|quantum| (quantum[3] >> 63 == 1) == polarity)
            );
            let element = SendElement::new(&words).unwrap();
            assert_eq!(element.breach(0, polarity, false), None);
            let mut found = [0; 128];
            let count = element.copy_inline(&mut found);
            assert_eq!(found[..count], data);
            assert_eq!(element.immediate(), Some(5));
        }
    }
}

#[test]
fn requests_that_do_not_fit_are_refused_with_the_limit() {
    let fragments = pieces(14);
    let send = Send {
        fragments: &fragments,
        kind: SendKind::Plain,
    };
    let error = encode(&send, SendFlags::NONE, true).unwrap_err();
    assert_eq!(error, RequestError::TooManyFragments { given: 14 });
    assert!(error.to_string().contains("at most 13"));
    let data = [0; 102];
    let inline = SendInline {
        data: &data,
        kind: SendKind::Plain,
    };
    let error = encode(&inline, SendFlags::NONE, true).unwrap_err();
    assert_eq!(error, RequestError::InlineTooLong { length_bytes: 102 });
    let huge = [Fragment {
        length_bytes: 0x8000_0000,
        ..Fragment::default()
    }];
    let read = Read {
        fragments: &huge,
        remote_address: 0,
        remote_key: 0,
        invalidate_local: false,
    };
    let error = encode(&read, SendFlags::NONE, true).unwrap_err();
    assert_eq!(
        error,
        RequestError::MessageTooLong {
            length_bytes: 0x8000_0000
        }
    );
    let two = [Fragment {
        length_bytes: 0x4000_0000,
        ..Fragment::default()
    }; 2];
    let write = Write {
        fragments: &two,
        remote_address: 0,
        remote_key: 0,
        immediate: None,
    };
    assert!(encode(&write, SendFlags::NONE, true).is_err());
}

#[test]
fn solicited_and_invalidating_sends_have_operations_of_their_own() {
    let cases = [
        (SendKind::Plain, SendFlags::NONE, SendOpcode::Send),
        (
            SendKind::Plain,
            SendFlags::SOLICITED,
            SendOpcode::SendSolicited,
        ),
        (
            SendKind::Immediate(1),
            SendFlags::SOLICITED,
            SendOpcode::SendSolicited,
        ),
        (
            SendKind::Invalidate(9),
            SendFlags::NONE,
            SendOpcode::SendInvalidate,
        ),
        (
            SendKind::Invalidate(9),
            SendFlags::SOLICITED,
            SendOpcode::SendSolicitedInvalidate,
        ),
    ];
    for (kind, flags, opcode) in cases {
        let send = Send {
            fragments: &[],
            kind,
        };
        let encoded = encode(&send, flags, true).unwrap();
        let words = words(&encoded);
        let element = SendElement::new(&words).unwrap();
        assert_eq!(element.opcode(), opcode);
        assert_eq!(element.header().steering_tag() as u32, kind.tag());
        assert_eq!(element.breach(0, true, false), None);
    }
}

#[test]
fn control_operations_fit_one_quantum_without_a_breach() {
    let invalidate = encode(
        &LocalInvalidate { key: 0xABCD },
        SendFlags::LOCAL_FENCE,
        true,
    );
    let words = words(&invalidate.unwrap());
    let element = SendElement::new(&words).unwrap();
    assert_eq!(element.local_invalidate_tag(), 0xABCD);
    assert!(element.header().local_fence());
    assert_eq!(element.breach(7, true, false), None);
    let register = FastRegister {
        virtual_address: 0x7000_0000,
        page_address: 0x12_3000,
        length_bytes: 8192,
        first_entry: 0x0ABC_1234,
        page_list_levels: 1,
        page_size: PageSizeCode::TwoMiB,
        index: 0x55,
        key: 0x66,
        access_rights: 3,
        virtual_address_based: true,
    };
    let encoded = encode(&register, SendFlags::SIGNALLED, false).unwrap();
    let element = SendElement::new(encoded.quanta.as_flattened()).unwrap();
    assert_eq!(element.fast_register_first_entry(), 0x0ABC_1234);
    assert_eq!(element.fast_register_header().page_size(), 1);
    assert_eq!(element.breach(0, false, false), None);
    let long = FastRegister {
        length_bytes: 1 << 41,
        ..register
    };
    assert!(encode(&long, SendFlags::NONE, true).is_err());
}

#[test]
fn a_bind_of_no_bytes_grants_no_right() {
    let bind = |length_bytes| BindWindow {
        address: 0x1000,
        length_bytes,
        region_key: 0x100,
        window_key: 0x200,
        remote_read: true,
        remote_write: true,
        virtual_address_based: true,
        window_type_1: true,
    };
    for (length_bytes, opens) in [(0, false), (1, true)] {
        let bound = bind(length_bytes).without_rights_if_empty();
        assert_eq!((bound.remote_read, bound.remote_write), (opens, opens));
    }
}

#[test]
fn a_fenced_invalidation_waits_for_all_requests_before_it() {
    let plain = SendFlags::SIGNALLED;
    assert_eq!(plain.of_invalidation(), plain);
    let fenced = plain | SendFlags::READ_FENCE;
    let encoded = encode(&LocalInvalidate { key: 7 }, fenced.of_invalidation(), true).unwrap();
    let header = SendElement::new(encoded.quanta.as_flattened())
        .unwrap()
        .header();
    assert!(header.read_fence() && header.local_fence() && header.signalled());
}

#[test]
fn a_datagram_waits_for_earlier_reads_if_asked_to() {
    let request = SendDatagram {
        payload: Payload::Inline(b"hello"),
        immediate: None,
        address_handle: 1,
        destination: 2,
        queue_key: 3,
    };
    for (flags, waits) in [(SendFlags::NONE, false), (SendFlags::READ_FENCE, true)] {
        let encoded = encode(&request, flags, true).unwrap();
        let element = SendElement::new(encoded.quanta.as_flattened()).unwrap();
        assert_eq!(element.header().read_fence(), waits);
    }
}

#[test]
fn a_datagram_names_its_destination_and_keeps_reserved_bits_clear() {
    let request = SendDatagram {
        payload: Payload::Inline(b"hello"),
        immediate: None,
        address_handle: 0x1_FFFF,
        destination: 0xFF_FFFF,
        queue_key: 0x8001_0000,
    };
    let flags = SendFlags::SIGNALLED | SendFlags::LOCAL_FENCE;
    let encoded = encode(&request, flags, true).unwrap();
    let element = SendElement::new(encoded.quanta.as_flattened()).unwrap();
    assert_eq!(element.datagram_header().address_handle(), 0x1_FFFF);
    assert!(!element.datagram_header().udp_header());
    assert_eq!(element.datagram_destination().queue_pair(), 0xFF_FFFF);
    assert_eq!(element.breach(0, true, true), None);
}

#[test]
fn a_registration_with_a_value_beyond_its_field_is_refused() {
    let good = FastRegister {
        virtual_address: 0x7000,
        page_address: 0x1000,
        length_bytes: 4096,
        first_entry: 0xFFF_FFFF,
        page_list_levels: 3,
        page_size: PageSizeCode::FourKiB,
        index: 0xFF_FFFF,
        key: 255,
        access_rights: 0x1F,
        virtual_address_based: true,
    };
    assert!(encode(&good, SendFlags::SIGNALLED, true).is_ok());
    let wrong = [
        FastRegister {
            first_entry: 1 << 28,
            ..good
        },
        FastRegister {
            page_list_levels: 4,
            ..good
        },
        FastRegister {
            index: 1 << 24,
            ..good
        },
        FastRegister {
            access_rights: 0x20,
            ..good
        },
    ];
    for request in wrong {
        let refused = encode(&request, SendFlags::SIGNALLED, true).unwrap_err();
        assert!(
            matches!(refused, RequestError::OutOfRange { .. }),
            "{refused}"
        );
    }
}
