use super::*;

#[test]
fn a_context_survives_its_bytes() {
    let context = TransmitContext {
        base_in_128_bytes: (1 << 57) - 2,
        congestion_domain: 0b10101,
        function: 5,
        ring_length: 8160,
        segmentation_queue: 0x555,
        shaper_profile: 7,
        ..TransmitContext::zeroed()
    };
    let bytes = context.encode();
    assert_eq!(TransmitContext::decode(&bytes), context);
    assert!(!TransmitContext::has_reserved_bits(&bytes));
}

#[test]
fn the_devices_own_bits_are_seen() {
    let mut bytes = TransmitContext::zeroed().encode();
    bytes[21] = 0x08;
    assert!(TransmitContext::has_reserved_bits(&bytes));
    assert_eq!(TransmitContext::decode(&bytes), TransmitContext::zeroed());
}

#[test]
fn a_descriptor_written_back_is_no_data_descriptor() {
    assert_eq!(DataCommand::DONE.0, 0xF);
    let waiting = DataCommand::ZERO
        .with_report_status(true)
        .with_buffer_bytes(60);
    assert_ne!(waiting.kind(), kind::DONE);
}
