//! LLDP and data centre bridging (DCB), as far as bring-up needs them.

use crate::lan::wire::{parameters, wire};
use zerocopy::byteorder::little_endian::{U16, U32};

parameters! {
    /// Parameters and answer of [`LldpGetMib`](super::Opcode::LldpGetMib), and of the event
    /// [`LldpMibChange`](super::Opcode::LldpMibChange); the buffer holds LLDP TLVs.
    pub struct LldpGetMib "ice_aqc_lldp_get_mib" {
        /// see [`MibType`]
        kind "type": u8,
        /// bit 0 of an event: the change is pending
        state "state": u8,
        /// answer: bytes of local data
        local_length_bytes "local_len": U16,
        /// answer: bytes of remote data
        remote_length_bytes "remote_len": U16,
        /// zero
        reserved "reserved": [u8; 2],
        /// see [`super::Generic`]
        address_high "addr_high": U32,
        /// see [`super::Generic`]
        address_low "addr_low": U32,
    }
    /// Parameters of [`LldpMibChange`](super::Opcode::LldpMibChange).
    pub struct LldpSetMibChange "ice_aqc_lldp_set_mib_change" {
        /// see [`MibChange`]
        command "command": u8,
        /// zero
        reserved "reserved": [u8; 15],
    }
    /// Parameters of [`LldpStop`](super::Opcode::LldpStop).
    pub struct LldpStop "ice_aqc_lldp_stop" {
        /// see [`AgentCommand`]: bit 0 shuts down
        command "command": u8,
        /// zero
        reserved "reserved": [u8; 15],
    }
    /// Parameters of [`LldpStart`](super::Opcode::LldpStart).
    pub struct LldpStart "ice_aqc_lldp_start" {
        /// see [`AgentCommand`]: bit 0 starts
        command "command": u8,
        /// zero
        reserved "reserved": [u8; 15],
    }
    /// Parameters of [`LldpSetLocalMib`](super::Opcode::LldpSetLocalMib); the buffer holds TLVs.
    pub struct LldpSetLocalMib "ice_aqc_lldp_set_local_mib" {
        /// content of the buffer
        kind "type": u8,
        /// zero
        reserved_0 "reserved0": u8,
        /// bytes of the buffer
        length_bytes "length": U16,
        /// zero
        reserved_1 "reserved1": [u8; 4],
        /// see [`super::Generic`]
        address_high "addr_high": U32,
        /// see [`super::Generic`]
        address_low "addr_low": U32,
    }
    /// Parameters and answer of [`LldpDcbAgent`](super::Opcode::LldpDcbAgent).
    pub struct LldpDcbAgent "ice_aqc_lldp_stop_start_specific_agent" {
        /// bit 0: start; answer: running
        command "command": u8,
        /// zero
        reserved "reserved": [u8; 15],
    }
    /// Parameters of [`LldpFilterControl`](super::Opcode::LldpFilterControl).
    pub struct LldpFilterControl "ice_aqc_lldp_filter_ctrl" {
        /// see [`filter_action`]
        action "cmd_flags": u8,
        /// zero
        reserved_1 "reserved1": u8,
        /// VSI that gets LLDP packets
        vsi "vsi_num": U16,
        /// zero
        reserved_2 "reserved2": [u8; 12],
    }
}

wire! {
    /// Answer of [`GetCeeDcbConfig`](super::Opcode::GetCeeDcbConfig).
    pub struct CeeConfig "ice_aqc_get_cee_dcb_cfg_resp": 32 {
        /// traffic classes
        class_count "oper_num_tc": u8,
        /// class of each priority, four bits
        priority_to_class "oper_prio_tc": [u8; 4],
        /// share of each class in percent
        share "oper_tc_bw": [u8; 8],
        /// priorities with flow control, a bit each
        flow_control "oper_pfc_en": u8,
        /// priorities of applications
        application_priority "oper_app_prio": U16,
        /// state of the TLVs
        status "tlv_status": U32,
        /// zero
        reserved "reserved": [u8; 12],
    }
}

/// Bytes of the buffer that drivers give for LLDP data.
pub const MAX_MIB_BYTES: usize = 1500;
/// Bytes of the Ethernet header before the TLVs of LLDP data. Source: ice `ice_lldp_to_dcb_cfg`.
pub const MIB_HEADER_BYTES: usize = 14;

/// Type-length-value records (TLVs) of LLDP data. Source: ice `ice_dcb.h`; IEEE 802.1AB, clause 8;
/// IEEE 802.1Q, annex D.
pub mod tlv {
    /// kind: there are no more
    pub const END: u16 = 0;
    /// kind: of an organization, whose identifier and subtype follow
    pub const ORGANIZATION: u16 = 127;
    /// IEEE 802.1 and the subtype of the classes (ETS): a byte, then the class of each priority,
    /// four bits each from the high half on, then eight shares
    pub const CLASSES: [u8; 4] = [0x00, 0x80, 0xC2, 9];
    /// IEEE 802.1 and the subtype of priority flow control: a byte, then the priorities, a bit each
    pub const FLOW_CONTROL: [u8; 4] = [0x00, 0x80, 0xC2, 11];
    /// Intel's own records for classes by the differentiated services code point (DSCP) of IP:
    /// the subtype of the class of each DSCP. IPv4 has 64 bytes and 16 that do not count, then IPv6
    /// has 64. Source: Linux ice `ice_dcb.c`, `ice_add_dscp_up_tlv`.
    pub const DSCP_CLASSES: [u8; 4] = [0xFF, 0xFF, 0xFF, 0x41];
    /// The same for the shares of the classes: five bytes, then eight shares. Source: Linux ice
    /// `ice_dcb.c`, `ice_add_dscp_tc_bw_tlv`.
    pub const DSCP_SHARES: [u8; 4] = [0xFF, 0xFF, 0xFF, 0x43];
    /// Bytes of a record of DSCPs before those of IPv6. Source: ice `ICE_DSCP_IPV6_OFFSET`.
    const DSCP_V6_AT: usize = 80;

    /// Takes the first record off `bytes`: its kind, its content, and the bytes behind it. `None`:
    /// it is cut.
    #[must_use]
    pub fn split_first(bytes: &[u8]) -> Option<(u16, &[u8], &[u8])> {
        let (head, rest) = bytes.split_first_chunk::<2>()?;
        let head = super::TlvHead(u16::from_be_bytes(*head));
        let (content, rest) = rest.split_at_checked(head.length().into())?;
        Some((head.kind(), content, rest))
    }

    /// The class of each priority, and the shares of the classes, of a record's content behind
    /// [`CLASSES`]. `None`: it is cut.
    #[must_use]
    pub fn classes(content: &[u8]) -> Option<([u8; 8], [u8; 8])> {
        let (_, tables) = content.split_first()?;
        let (pairs, shares) = tables.split_first_chunk::<4>()?;
        let [a, b, c, d] = pairs.map(|pair| [pair >> 4, pair & 0xF]);
        let classes = [a[0], a[1], b[0], b[1], c[0], c[1], d[0], d[1]];
        Some((classes, *shares.first_chunk()?))
    }

    /// The class of each DSCP of IPv4 and of IPv6, of a record's content behind [`DSCP_CLASSES`].
    /// `None`: it is cut.
    #[must_use]
    pub fn dscp_classes(content: &[u8]) -> Option<([u8; 64], [u8; 64])> {
        let v6 = content.get(DSCP_V6_AT..)?;
        Some((*content.first_chunk()?, *v6.first_chunk()?))
    }

    /// The shares of the classes, of a record's content behind [`DSCP_SHARES`]. `None`: it is cut.
    #[must_use]
    pub fn dscp_shares(content: &[u8]) -> Option<[u8; 8]> {
        content.get(5..)?.first_chunk().copied()
    }
}

/// Values of [`LldpFilterControl::action`]. Source: ice `ICE_AQC_LLDP_FILTER_ACTION_*`.
pub mod filter_action {
    /// the VSI gets LLDP packets from now on
    pub const ADD: u8 = 0;
    /// it gets none any more
    pub const DELETE: u8 = 1;
}

/// Values of [`MibType::kind`].
pub mod mib {
    /// the configuration of this port
    pub const LOCAL: u8 = 0;
}

crate::words! {
    /// Begin of a TLV, big-endian. Source: ice `ICE_LLDP_TLV_TYPE_M`, `ICE_LLDP_TLV_LEN_M`.
    pub struct TlvHead: u16 {
        /// bytes that follow
        length: [8:0],
        /// see [`tlv`]
        kind: [15:9],
    }
    /// Source: ice `ICE_AQ_LLDP_MIB_TYPE_*`, `_BRID_TYPE_*`, `_TX_*`, `_DCBX_*`.
    pub struct MibType: u8 {
        /// 0 local, 1 remote, 2 both
        kind: [1:0],
        /// 0 nearest bridge, 1 nearest non-TPMR bridge
        bridge: [3:2],
        /// 0 active, 1 suspended, 3 flushed
        transmit_state: [5:4],
        /// 0 none, 1 CEE, 2 IEEE
        exchange: [7:6],
    }
    /// Source: ice `ICE_AQ_LLDP_MIB_UPDATE_*`, `_MIB_PENDING_*`.
    pub struct MibChange: u8 {
        /// no events
        disable: [0],
        /// events for pending changes
        pending: [1],
    }
    /// Source: ice `ICE_AQ_LLDP_AGENT_*`.
    pub struct AgentCommand: u8 {
        /// start: start; stop: shut down
        act: [0],
        /// the choice survives a reset
        persist: [1],
    }
}
