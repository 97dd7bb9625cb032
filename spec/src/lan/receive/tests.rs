use super::*;

fn sample() -> ReceiveContext {
    ReceiveContext {
        base_in_128_bytes: 0x123_4567_89AB,
        ring_length: 512,
        data_buffer_in_128_bytes: 16,
        descriptors_of_32_bytes: true,
        frame_bytes_max: 9728,
        low_threshold_64: 2,
        prefetch: true,
        ..ReceiveContext::zeroed()
    }
}

#[test]
fn a_context_survives_its_dwords() {
    assert_eq!(ReceiveContext::from_dwords(sample().dwords()), sample());
    assert_eq!(sample().dwords()[1], 0x4567_89AB);
}

#[test]
fn bits_that_belong_to_no_field_are_seen() {
    let mut bytes = sample().encode();
    assert!(!ReceiveContext::has_reserved_bits(&bytes));
    bytes[31] = 0x80;
    assert!(ReceiveContext::has_reserved_bits(&bytes));
}
