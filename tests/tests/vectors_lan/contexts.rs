//! Contexts of transmit and receive queues, both directions.

use ringside_spec::lan::receive::ReceiveContext;
use ringside_spec::lan::transmit::TransmitContext;

use super::{Fields, vectors};

pub(crate) const TRANSMIT_COUNT: usize = 33;
pub(crate) const RECEIVE_COUNT: usize = 25;

/// The context that the fields of a vector describe.
pub(crate) fn transmit(input: Fields<'_>) -> TransmitContext {
    TransmitContext {
        base_in_128_bytes: input.number("base_in_128_byte_units"),
        port: input.to("port_number"),
        congestion_domain: input.to("cgd_number"),
        function: input.to("pf_number"),
        virtual_function: input.to("vm_or_vf_number"),
        owner: input.to("vm_vf_type"),
        vsi: input.to("source_vsi"),
        time_stamp_enable: input.flag("timestamp_enable"),
        internal_usage: input.flag("internal_usage"),
        alternate_vlan: input.flag("alternate_vlan"),
        cpu: input.to("cpu_id"),
        head_write_back: input.flag("writeback_mode"),
        hint_descriptor_read: input.flag("tph_read_descriptor"),
        hint_data_read: input.flag("tph_read"),
        hint_descriptor_write: input.flag("tph_write_descriptor"),
        completion_queue: input.to("completion_queue"),
        queue_in_function: input.to("queue_in_function"),
        throttle_notification: input.flag("itr_notification_mode"),
        adjust_profile: input.to("adjust_profile"),
        ring_length: input.to("ring_length"),
        quanta_profile: input.to("quanta_profile"),
        segmentation_enable: input.flag("tso_enable"),
        segmentation_queue: input.to("tso_queue"),
        legacy_interrupt: input.flag("legacy_interrupt"),
        drop_enable: input.flag("drop_enable"),
        cache_profile: input.to("cache_profile"),
        shaper_profile: input.to("packet_shaper_profile"),
    }
}

fn receive(input: Fields<'_>) -> ReceiveContext {
    ReceiveContext {
        head: input.to("head"),
        cpu: input.to("cpu_id"),
        base_in_128_bytes: input.number("base_in_128_byte_units"),
        ring_length: input.to("ring_length"),
        data_buffer_in_128_bytes: input.to("data_buffer_in_128_bytes"),
        header_buffer_in_64_bytes: input.to("header_buffer_in_64_bytes"),
        split: input.to("split_type"),
        descriptors_of_32_bytes: input.flag("descriptor_size_32"),
        strip_crc: input.flag("crc_strip"),
        tag_in_l2tag1: input.flag("l2_tag_select"),
        header_split_0: input.to("header_split_0"),
        header_split_1: input.to("header_split_1"),
        show_inner_vlan: input.flag("show_inner_vlan"),
        frame_bytes_max: input.to("max_frame"),
        hint_descriptor_read: input.flag("tph_read_descriptor"),
        hint_descriptor_write: input.flag("tph_write_descriptor"),
        hint_data: input.flag("tph_data"),
        hint_header: input.flag("tph_header"),
        low_threshold_64: input.to("low_threshold"),
        prefetch: input.flag("prefetch_enable"),
    }
}

#[test]
fn transmit_contexts_are_as_linux_packs_them() {
    let vectors = vectors("tx_queue_context");
    for vector in &vectors {
        let context = transmit(vector.input());
        let bytes: [u8; 22] = vector.hex("bytes").try_into().expect("22 bytes");
        assert_eq!(context.encode(), bytes, "{}", vector.name());
        assert_eq!(
            TransmitContext::decode(&bytes),
            context,
            "{}",
            vector.name()
        );
        assert!(
            !TransmitContext::has_reserved_bits(&bytes),
            "{}",
            vector.name()
        );
    }
    assert_eq!(vectors.len(), TRANSMIT_COUNT);
}

#[test]
fn receive_contexts_are_as_linux_packs_them() {
    let vectors = vectors("rx_queue_context");
    for vector in &vectors {
        let context = receive(vector.input());
        let bytes: [u8; 32] = vector.hex("bytes").try_into().expect("32 bytes");
        assert_eq!(context.encode(), bytes, "{}", vector.name());
        assert_eq!(ReceiveContext::decode(&bytes), context, "{}", vector.name());
        assert!(
            !ReceiveContext::has_reserved_bits(&bytes),
            "{}",
            vector.name()
        );
        let dwords = context.dwords();
        for (dword, expected) in dwords.iter().zip(bytes.chunks(4)) {
            assert_eq!(dword.to_le_bytes(), *expected, "{}", vector.name());
        }
    }
    assert_eq!(vectors.len(), RECEIVE_COUNT);
}
