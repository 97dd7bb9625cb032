//! Context of a transmit queue.

use crate::lan::wire::bits::{bit, get, put};

/// Context of a transmit queue, given to the firmware with
/// [`AddTransmitQueues`](crate::lan::admin::Opcode::AddTransmitQueues).
///
/// Shape: 22 bytes, fields from bit 0 upwards without regard to byte boundaries. The last five
/// bits are the device's own and are not written. Source: ice `ice_common.c`,
/// `ice_tlan_ctx_info`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TransmitContext {
    /// I/O virtual address of the ring in 128 bytes, 57 bits (`base`)
    pub base_in_128_bytes: u64,
    /// logical port, 3 bits (`port_num`)
    pub port: u8,
    /// congestion domain: the traffic class, 5 bits (`cgd_num`)
    pub congestion_domain: u8,
    /// physical function, 3 bits (`pf_num`)
    pub function: u8,
    /// virtual function or machine, 10 bits (`vmvf_num`)
    pub virtual_function: u16,
    /// see [`owner`], 2 bits (`vmvf_type`)
    pub owner: u8,
    /// VSI in the device, 10 bits (`src_vsi`)
    pub vsi: u16,
    /// time stamps are allowed (`tsyn_ena`)
    pub time_stamp_enable: bool,
    /// the device's own use (`internal_usage_flag`)
    pub internal_usage: bool,
    /// alternate VLAN (`alt_vlan`)
    pub alternate_vlan: bool,
    /// CPU for cache hints, 8 bits (`cpuid`)
    pub cpu: u8,
    /// the head is written back instead of the descriptor (`wb_mode`)
    pub head_write_back: bool,
    /// cache hints for reading descriptors (`tphrd_desc`)
    pub hint_descriptor_read: bool,
    /// cache hints for reading data (`tphrd`)
    pub hint_data_read: bool,
    /// cache hints for writing descriptors (`tphwr_desc`)
    pub hint_descriptor_write: bool,
    /// completion queue, 9 bits (`cmpq_id`)
    pub completion_queue: u16,
    /// number of the queue in the function, 14 bits (`qnum_in_func`)
    pub queue_in_function: u16,
    /// notification by throttle (`itr_notification_mode`)
    pub throttle_notification: bool,
    /// adjustment profile, 6 bits (`adjust_prof_id`)
    pub adjust_profile: u8,
    /// descriptors of the ring, 13 bits (`qlen`)
    pub ring_length: u16,
    /// quanta profile, 4 bits (`quanta_prof_idx`)
    pub quanta_profile: u8,
    /// segmentation is allowed (`tso_ena`)
    pub segmentation_enable: bool,
    /// queue for segmentation, 11 bits (`tso_qno`)
    pub segmentation_queue: u16,
    /// interrupts as older devices have them; drivers set it (`legacy_int`)
    pub legacy_interrupt: bool,
    /// packets may be dropped (`drop_ena`)
    pub drop_enable: bool,
    /// cache profile, 2 bits (`cache_prof_idx`)
    pub cache_profile: u8,
    /// packet shaper profile, 3 bits (`pkt_shaper_prof_idx`)
    pub shaper_profile: u8,
}

/// Values of [`TransmitContext::owner`]. Source: ice `ICE_TLAN_CTX_VMVF_TYPE_*`.
pub mod owner {
    /// virtual function
    pub const VIRTUAL_FUNCTION: u8 = 0;
    /// virtual machine
    pub const VIRTUAL_MACHINE: u8 = 1;
    /// physical function
    pub const PHYSICAL_FUNCTION: u8 = 2;
}

impl TransmitContext {
    /// Bytes of the context.
    pub const SIZE: usize = 22;

    /// A context with all fields zero, to be filled with `..`.
    #[must_use]
    pub const fn zeroed() -> Self {
        Self::decode(&[0; Self::SIZE])
    }

    /// The bytes for the firmware. A value too wide for its field is the caller's mistake: it is
    /// asserted in debug builds and cut in release builds.
    #[must_use]
    pub const fn encode(&self) -> [u8; Self::SIZE] {
        let mut bytes = [0; Self::SIZE];
        put(&mut bytes, 0, 57, self.base_in_128_bytes);
        put(&mut bytes, 57, 3, self.port as u64);
        put(&mut bytes, 60, 5, self.congestion_domain as u64);
        put(&mut bytes, 65, 3, self.function as u64);
        put(&mut bytes, 68, 10, self.virtual_function as u64);
        put(&mut bytes, 78, 2, self.owner as u64);
        put(&mut bytes, 80, 10, self.vsi as u64);
        put(&mut bytes, 90, 1, self.time_stamp_enable as u64);
        put(&mut bytes, 91, 1, self.internal_usage as u64);
        put(&mut bytes, 92, 1, self.alternate_vlan as u64);
        put(&mut bytes, 93, 8, self.cpu as u64);
        put(&mut bytes, 101, 1, self.head_write_back as u64);
        put(&mut bytes, 102, 1, self.hint_descriptor_read as u64);
        put(&mut bytes, 103, 1, self.hint_data_read as u64);
        put(&mut bytes, 104, 1, self.hint_descriptor_write as u64);
        put(&mut bytes, 105, 9, self.completion_queue as u64);
        put(&mut bytes, 114, 14, self.queue_in_function as u64);
        put(&mut bytes, 128, 1, self.throttle_notification as u64);
        put(&mut bytes, 129, 6, self.adjust_profile as u64);
        put(&mut bytes, 135, 13, self.ring_length as u64);
        put(&mut bytes, 148, 4, self.quanta_profile as u64);
        put(&mut bytes, 152, 1, self.segmentation_enable as u64);
        put(&mut bytes, 153, 11, self.segmentation_queue as u64);
        put(&mut bytes, 164, 1, self.legacy_interrupt as u64);
        put(&mut bytes, 165, 1, self.drop_enable as u64);
        put(&mut bytes, 166, 2, self.cache_profile as u64);
        put(&mut bytes, 168, 3, self.shaper_profile as u64);
        bytes
    }

    /// Reads the bytes that a driver gave; any bytes are good.
    #[must_use]
    pub const fn decode(bytes: &[u8; Self::SIZE]) -> Self {
        Self {
            base_in_128_bytes: get(bytes, 0, 57),
            port: get(bytes, 57, 3) as u8,
            congestion_domain: get(bytes, 60, 5) as u8,
            function: get(bytes, 65, 3) as u8,
            virtual_function: get(bytes, 68, 10) as u16,
            owner: get(bytes, 78, 2) as u8,
            vsi: get(bytes, 80, 10) as u16,
            time_stamp_enable: bit(bytes, 90),
            internal_usage: bit(bytes, 91),
            alternate_vlan: bit(bytes, 92),
            cpu: get(bytes, 93, 8) as u8,
            head_write_back: bit(bytes, 101),
            hint_descriptor_read: bit(bytes, 102),
            hint_data_read: bit(bytes, 103),
            hint_descriptor_write: bit(bytes, 104),
            completion_queue: get(bytes, 105, 9) as u16,
            queue_in_function: get(bytes, 114, 14) as u16,
            throttle_notification: bit(bytes, 128),
            adjust_profile: get(bytes, 129, 6) as u8,
            ring_length: get(bytes, 135, 13) as u16,
            quanta_profile: get(bytes, 148, 4) as u8,
            segmentation_enable: bit(bytes, 152),
            segmentation_queue: get(bytes, 153, 11) as u16,
            legacy_interrupt: bit(bytes, 164),
            drop_enable: bit(bytes, 165),
            cache_profile: get(bytes, 166, 2) as u8,
            shaper_profile: get(bytes, 168, 3) as u8,
        }
    }

    /// True if bits that no driver writes are set: the device's own queue state.
    #[must_use]
    pub const fn has_reserved_bits(bytes: &[u8; Self::SIZE]) -> bool {
        get(bytes, 171, 5) != 0
    }
}
