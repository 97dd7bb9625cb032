//! Context of the control queue pair: 64 bytes that the device reads when it is created.

use super::layout::{codes, layout};

codes! {
    /// The protocol of the RDMA engine.
    /// Source: irdma `type.h`, IRDMA_IWARP_PROTOCOL_ONLY, IRDMA_ROCE_PROTOCOL_ONLY.
    pub enum Protocol: u8 {
        /// Any protocol that a queue pair requests.
        Any = 0,
        /// iWARP only.
        IwarpOnly = 1,
        /// RoCEv2 only.
        RoceOnly = 2,
    }

    /// The division of the host memory cache's objects between functions.
    /// Source: irdma `type.h`, IRDMA_HMC_PROFILE_*.
    pub enum HmcProfile: u8 {
        /// The default.
        Default = 1,
        /// Favour VFs.
        FavourVf = 2,
        /// Equal shares.
        Equal = 3,
    }
}

layout! {
    /// Context of the control queue pair.
    /// Source: irdma `ctrl.c`, `irdma_sc_cqp_create`; `defs.h`, IRDMA_CQPHC_*.
    pub struct CqpContext: [u64; 8] {
        /// Do not pack protocol data units.
        disable_packed: bool = 0[1],
        /// Policy of the RoCEv2 retransmission timer.
        roce_rto_policy: bool = 0[2],
        /// The protocol of the engine.
        protocol_used: Protocol = 0[4:3],
        /// See [`ring_size_code`].
        ring_size_code: u8 = 0[11:8],
        /// Version of this structure.
        structure_version: u8 = 0[31:24],
        /// Completion event queues of each VF.
        ceqs_per_vf: u8 = 0[39:32],
        /// I/O virtual address of the ring in units of 512 bytes.
        ring_address_by_512: u64 = 1[63:9],
        /// The division of the host memory cache.
        hmc_profile: HmcProfile = 2[2:0],
        /// VFs with RDMA.
        enabled_vfs: u8 = 2[37:32],
        /// Returned in every completion of a command.
        completion_context: u64 = 3[63:0],
        /// Version of the hardware, minor.
        hardware_minor_version: u16 = 4[15:0],
        /// Version of the hardware, major: see [`HARDWARE_MAJOR_VERSION`].
        hardware_major_version: u16 = 4[31:16],
        /// Congestion control (DCQCN): least rate.
        dcqcn_min_rate: u8 = 4[51:48],
        /// Congestion control (DCQCN): least decrease factor.
        dcqcn_min_decrease_factor: u8 = 4[59:56],
        /// Congestion control (DCQCN): T.
        dcqcn_t: u16 = 6[15:0],
        /// Congestion control (DCQCN): hyper increase factor.
        dcqcn_hai_factor: u16 = 6[47:32],
        /// Congestion control (DCQCN): additive increase factor.
        dcqcn_rai_factor: u16 = 6[63:48],
        /// Congestion control (DCQCN): B.
        dcqcn_b: u32 = 7[24:0],
        /// Congestion control (DCQCN): F.
        dcqcn_f: u8 = 7[27:25],
        /// The congestion control values are valid.
        congestion_config_valid: bool = 7[31],
        /// Congestion control (DCQCN): period of rate reduction.
        dcqcn_rate_reduce_period: u32 = 7[63:32],
    }
}

/// Major version of the E810's hardware interface (GEN_2).
pub const HARDWARE_MAJOR_VERSION: u16 = 1;

impl CqpContext {
    /// I/O virtual address of the ring.
    #[must_use]
    pub const fn ring_address(&self) -> u64 {
        self.ring_address_by_512 * 512
    }

    /// Sets the ring's I/O virtual address; it must be 512-byte aligned.
    #[must_use]
    pub fn with_ring_address(mut self, address: u64) -> Self {
        debug_assert!(
            address.is_multiple_of(512),
            "ring address {address:#x} not 512-byte aligned"
        );
        self.ring_address_by_512 = address / 512;
        self
    }
}

/// Code of a control ring of so many entries; `None` unless a power of two of 4..=2048.
/// Source: irdma `ctrl.c`, `irdma_get_encoded_wqe_size`.
#[must_use]
pub const fn ring_size_code(entries: u32) -> Option<u8> {
    if entries.is_power_of_two() && entries >= 4 && entries <= 2048 {
        Some(entries.ilog2() as u8 - 1)
    } else {
        None
    }
}

/// Entries of a control ring with this code; `None` for a code that [`ring_size_code`] never gives.
#[must_use]
pub const fn ring_entries(code: u8) -> Option<u32> {
    if code >= 1 && code <= 10 {
        Some(1 << (code + 1))
    } else {
        None
    }
}
