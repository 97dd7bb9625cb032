//! Context of a receive queue.

use crate::lan::wire::bits::{bit, get, put};

/// Values of [`ReceiveContext::split`]. Source: ice `ice_lan_tx_rx.h`, `ICE_RX_DTYPE_*`.
pub mod split {
    /// Frames lie in data buffers.
    pub const NONE: u8 = 0;
    /// The headers that a rule names go to the header buffer.
    pub const HEADER: u8 = 1;
    /// The header buffer is used in any case.
    pub const ALWAYS: u8 = 2;
}

/// Bits of [`ReceiveContext::header_split_0`]: the headers up to which a frame is split, the
/// innermost one of them. Source: ice `ICE_RLAN_RX_HSPLIT_0_*`.
pub mod split_rule {
    /// after the Ethernet header and its tags
    pub const LAYER_2: u8 = 1;
    /// after the header of IPv4 or IPv6
    pub const IP: u8 = 2;
    /// after the header of TCP or UDP
    pub const TCP_UDP: u8 = 4;
    /// after the header of SCTP
    pub const SCTP: u8 = 8;
}

/// Context of a receive queue, written as eight dwords to
/// [`RECEIVE_QUEUE_CONTEXT`](crate::lan::registers::queues::RECEIVE_QUEUE_CONTEXT).
///
/// Shape: 32 bytes, fields without regard to byte boundaries. Source: ice `ice_common.c`,
/// `ice_rlan_ctx_info`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceiveContext {
    /// head, 13 bits (`head`)
    pub head: u16,
    /// CPU for cache hints, 8 bits (`cpuid`)
    pub cpu: u8,
    /// I/O virtual address of the ring in 128 bytes, 57 bits (`base`)
    pub base_in_128_bytes: u64,
    /// descriptors of the ring, 13 bits (`qlen`)
    pub ring_length: u16,
    /// bytes of a data buffer in 128, 7 bits (`dbuf`)
    pub data_buffer_in_128_bytes: u8,
    /// bytes of a header buffer in 64, 5 bits (`hbuf`)
    pub header_buffer_in_64_bytes: u8,
    /// 0 no split, 1 split, 2 always split, 2 bits (`dtype`)
    pub split: u8,
    /// descriptors have 32 bytes; drivers set it (`dsize`)
    pub descriptors_of_32_bytes: bool,
    /// the CRC is taken off (`crcstrip`)
    pub strip_crc: bool,
    /// the tag is written to `l2tag1`, otherwise to the second word of `l2tag2` (`l2tsel`); source:
    /// ice `ice_base.c`, `ice_setup_rx_ctx`
    pub tag_in_l2tag1: bool,
    /// header split rules, 4 bits (`hsplit_0`)
    pub header_split_0: u8,
    /// header split rules, 2 bits (`hsplit_1`)
    pub header_split_1: u8,
    /// the inner tag is shown (`showiv`)
    pub show_inner_vlan: bool,
    /// longest frame in bytes, 14 bits (`rxmax`)
    pub frame_bytes_max: u16,
    /// cache hints for reading descriptors (`tphrdesc_ena`)
    pub hint_descriptor_read: bool,
    /// cache hints for writing descriptors (`tphwdesc_ena`)
    pub hint_descriptor_write: bool,
    /// cache hints for data (`tphdata_ena`)
    pub hint_data: bool,
    /// cache hints for headers (`tphhead_ena`)
    pub hint_header: bool,
    /// few free descriptors: below this many times 64, 3 bits (`lrxqthresh`)
    pub low_threshold_64: u8,
    /// descriptors are fetched ahead; drivers set it (`prefena`)
    pub prefetch: bool,
}

impl ReceiveContext {
    /// Bytes of the context.
    pub const SIZE: usize = 32;
    /// Dwords of the context.
    pub const DWORDS: usize = Self::SIZE / 4;

    /// A context with all fields zero, to be filled with `..`.
    #[must_use]
    pub const fn zeroed() -> Self {
        Self::decode(&[0; Self::SIZE])
    }

    /// The bytes for the registers. A value too wide for its field is the caller's mistake: it is
    /// asserted in debug builds and cut in release builds.
    #[must_use]
    pub const fn encode(&self) -> [u8; Self::SIZE] {
        let mut bytes = [0; Self::SIZE];
        put(&mut bytes, 0, 13, self.head as u64);
        put(&mut bytes, 13, 8, self.cpu as u64);
        put(&mut bytes, 32, 57, self.base_in_128_bytes);
        put(&mut bytes, 89, 13, self.ring_length as u64);
        put(&mut bytes, 102, 7, self.data_buffer_in_128_bytes as u64);
        put(&mut bytes, 109, 5, self.header_buffer_in_64_bytes as u64);
        put(&mut bytes, 114, 2, self.split as u64);
        put(&mut bytes, 116, 1, self.descriptors_of_32_bytes as u64);
        put(&mut bytes, 117, 1, self.strip_crc as u64);
        put(&mut bytes, 119, 1, self.tag_in_l2tag1 as u64);
        put(&mut bytes, 120, 4, self.header_split_0 as u64);
        put(&mut bytes, 124, 2, self.header_split_1 as u64);
        put(&mut bytes, 127, 1, self.show_inner_vlan as u64);
        put(&mut bytes, 174, 14, self.frame_bytes_max as u64);
        put(&mut bytes, 193, 1, self.hint_descriptor_read as u64);
        put(&mut bytes, 194, 1, self.hint_descriptor_write as u64);
        put(&mut bytes, 195, 1, self.hint_data as u64);
        put(&mut bytes, 196, 1, self.hint_header as u64);
        put(&mut bytes, 198, 3, self.low_threshold_64 as u64);
        put(&mut bytes, 201, 1, self.prefetch as u64);
        bytes
    }

    /// Reads the bytes that a driver gave; any bytes are good.
    #[must_use]
    pub const fn decode(bytes: &[u8; Self::SIZE]) -> Self {
        Self {
            head: get(bytes, 0, 13) as u16,
            cpu: get(bytes, 13, 8) as u8,
            base_in_128_bytes: get(bytes, 32, 57),
            ring_length: get(bytes, 89, 13) as u16,
            data_buffer_in_128_bytes: get(bytes, 102, 7) as u8,
            header_buffer_in_64_bytes: get(bytes, 109, 5) as u8,
            split: get(bytes, 114, 2) as u8,
            descriptors_of_32_bytes: bit(bytes, 116),
            strip_crc: bit(bytes, 117),
            tag_in_l2tag1: bit(bytes, 119),
            header_split_0: get(bytes, 120, 4) as u8,
            header_split_1: get(bytes, 124, 2) as u8,
            show_inner_vlan: bit(bytes, 127),
            frame_bytes_max: get(bytes, 174, 14) as u16,
            hint_descriptor_read: bit(bytes, 193),
            hint_descriptor_write: bit(bytes, 194),
            hint_data: bit(bytes, 195),
            hint_header: bit(bytes, 196),
            low_threshold_64: get(bytes, 198, 3) as u8,
            prefetch: bit(bytes, 201),
        }
    }

    /// The context as the dwords of its registers.
    #[must_use]
    pub fn dwords(&self) -> [u32; Self::DWORDS] {
        let words: [zerocopy::byteorder::little_endian::U32; Self::DWORDS] =
            zerocopy::transmute!(self.encode());
        words.map(|word| word.get())
    }

    /// Reads the context from the dwords of its registers.
    #[must_use]
    pub fn from_dwords(dwords: [u32; Self::DWORDS]) -> Self {
        let words = dwords.map(zerocopy::byteorder::little_endian::U32::new);
        Self::decode(&zerocopy::transmute!(words))
    }

    /// True if bits are set that belong to no field.
    #[must_use]
    pub fn has_reserved_bits(bytes: &[u8; Self::SIZE]) -> bool {
        Self::decode(bytes).encode() != *bytes
    }
}
