//! Link, PHY and MAC.

pub use super::phy_type;
use crate::lan::wire::{parameters, wire};
use zerocopy::byteorder::little_endian::{U16, U32, U64};

parameters! {
    /// Parameters of [`GetPhyCapabilities`](super::Opcode::GetPhyCapabilities); the buffer of the
    /// answer holds [`PhyCapabilities`].
    pub struct GetPhyCapabilities "ice_aqc_get_phy_caps" {
        /// logical port; drivers leave it 0, which means the function's own port
        port "lport_num": u8,
        /// zero
        reserved "reserved": u8,
        /// see [`PhyReport`]
        report "param0": U16,
        /// zero
        reserved_1 "reserved1": U32,
        /// see [`super::Generic`]
        address_high "addr_high": U32,
        /// see [`super::Generic`]
        address_low "addr_low": U32,
    }
    /// Parameters of [`SetPhyConfig`](super::Opcode::SetPhyConfig); the buffer holds
    /// [`PhyConfig`].
    pub struct SetPhyConfig "ice_aqc_set_phy_cfg" {
        /// logical port
        port "lport_num": u8,
        /// zero
        reserved "reserved": [u8; 7],
        /// see [`super::Generic`]
        address_high "addr_high": U32,
        /// see [`super::Generic`]
        address_low "addr_low": U32,
    }
    /// Parameters of [`SetMacConfig`](super::Opcode::SetMacConfig).
    pub struct SetMacConfig "ice_aqc_set_mac_cfg" {
        /// largest frame in bytes; see [`MAX_FRAME_BYTES`]
        frame_bytes_max "max_frame_size": U16,
        /// pacing
        parameters "params": u8,
        /// priorities of the timer, a bit each
        timer_priority "tx_tmr_priority": u8,
        /// pause time
        timer_value "tx_tmr_value": U16,
        /// pause refresh
        refresh_threshold "fc_refresh_threshold": U16,
        /// drop options
        drop_options "drop_opts": u8,
        /// zero
        reserved "reserved": [u8; 7],
    }
    /// Parameters of [`RestartAutonegotiation`](super::Opcode::RestartAutonegotiation).
    pub struct RestartAutonegotiation "ice_aqc_restart_an" {
        /// logical port
        port "lport_num": u8,
        /// zero
        reserved "reserved": u8,
        /// see [`RestartFlags`]
        flags "cmd_flags": u8,
        /// zero
        reserved_2 "reserved2": [u8; 13],
    }
    /// Parameters and answer of [`GetLinkStatus`](super::Opcode::GetLinkStatus); the buffer of
    /// the answer and of the event holds [`LinkStatus`].
    pub struct GetLinkStatus "ice_aqc_get_link_status" {
        /// logical port
        port "lport_num": u8,
        /// zero
        reserved "reserved": u8,
        /// see [`link_events`]; answer: bit 0 events enabled
        flags "cmd_flags": U16,
        /// zero
        reserved_2 "reserved2": U32,
        /// see [`super::Generic`]
        address_high "addr_high": U32,
        /// see [`super::Generic`]
        address_low "addr_low": U32,
    }
    /// Parameters of [`SetEventMask`](super::Opcode::SetEventMask).
    pub struct SetEventMask "ice_aqc_set_event_mask" {
        /// logical port
        port "lport_num": u8,
        /// zero
        reserved "reserved": [u8; 7],
        /// see [`LinkEvents`]; a set bit masks the event
        mask "event_mask": U16,
        /// zero
        reserved_1 "reserved1": [u8; 6],
    }
    /// Parameters of [`SetMacLoopback`](super::Opcode::SetMacLoopback).
    pub struct SetMacLoopback "ice_aqc_set_mac_lb" {
        /// bit 0: enabled
        mode "lb_mode": u8,
        /// zero
        reserved "reserved": [u8; 15],
    }
    /// Parameters and answer of [`GetLinkTopology`](super::Opcode::GetLinkTopology).
    pub struct GetLinkTopology "ice_aqc_get_link_topo" {
        /// the node
        address "addr": TopologyAddress,
        /// answer: part number
        part_number "node_part_num": u8,
        /// zero
        reserved "rsvd": [u8; 9],
    }
    /// Parameters and answer of [`GetPortOptions`](super::Opcode::GetPortOptions); the buffer of
    /// the answer holds [`PortOption`].
    pub struct GetPortOptions "ice_aqc_get_port_options" {
        /// logical port
        port "lport_num": u8,
        /// bit 0: the port counts
        port_valid "lport_num_valid": u8,
        /// answer: options in the buffer, four bits
        count "port_options_count": u8,
        /// answer: innermost PHY
        innermost_phy "innermost_phy_index": u8,
        /// answer: active option in `[3:0]`, valid in bit 7
        active "port_options": u8,
        /// answer: pending option in `[3:0]`, valid in bit 7
        pending "pending_port_option_status": u8,
        /// zero
        reserved "rsvd": [u8; 2],
        /// see [`super::Generic`]
        address_high "addr_high": U32,
        /// see [`super::Generic`]
        address_low "addr_low": U32,
    }
    /// Parameters of [`SetPortLed`](super::Opcode::SetPortLed).
    pub struct SetPortLed "ice_aqc_set_port_id_led" {
        /// logical port
        port "lport_num": u8,
        /// bit 0: the port counts
        port_valid "lport_num_valid": u8,
        /// bit 0: blink; else as the link is
        mode "ident_mode": u8,
        /// zero
        reserved "rsvd": [u8; 13],
    }
    /// Parameters of [`ModuleEeprom`](super::Opcode::ModuleEeprom).
    pub struct ModuleEeprom "ice_aqc_sff_eeprom" {
        /// logical port
        port "lport_num": u8,
        /// bit 0: the port counts
        port_valid "lport_num_valid": u8,
        /// see [`ModuleBus`]
        bus_address "i2c_bus_addr": U16,
        /// address in the module
        memory_address "i2c_mem_addr": U16,
        /// page of the module
        page "eeprom_page": U16,
        /// see [`super::Generic`]
        address_high "addr_high": U32,
        /// see [`super::Generic`]
        address_low "addr_low": U32,
    }
}

wire! {
    /// A node of the board, without its handle.
    pub struct TopologyParameters "ice_aqc_link_topo_params": 4 {
        /// logical port
        port "lport_num": u8,
        /// bit 0: the port counts
        port_valid "lport_num_valid": u8,
        /// see [`NodeKind`](super::board::NodeKind)
        kind "node_type_ctx": u8,
        /// index among those of its type
        index "index": u8,
    }
    /// The node of the board.
    pub struct TopologyAddress "ice_aqc_link_topo_addr": 6 {
        /// kind and index of the node
        parameters "topo_params": TopologyParameters,
        /// handle
        handle "handle": U16,
    }
    /// A way to split the port.
    pub struct PortOption "ice_aqc_get_port_options_elem": 8 {
        /// number of MACs
        mac_count "pmd": u8,
        /// fastest lane: 7 is 100 Gb/s
        lane_speed_max "max_lane_speed": u8,
        /// identity
        global_id "global_scid": [u8; 2],
        /// identity
        phy_id "phy_scid": [u8; 2],
        /// identity
        function_id "pf2port_cid": [u8; 2],
    }
    /// A module that the board is qualified with.
    pub struct QualifiedModule "ice_aqc_get_phy_caps_data.qual_modules": 32 {
        /// vendor
        vendor "qual_modules[0].v_oui": [u8; 3],
        /// zero
        reserved_3 "qual_modules[0].rsvd3": u8,
        /// part number
        part_number "qual_modules[0].v_part": [u8; 16],
        /// revision
        revision "qual_modules[0].v_rev": U32,
        /// zero
        reserved_4 "qual_modules[0].rsvd4": U64,
    }
    /// Answer of [`GetPhyCapabilities`](super::Opcode::GetPhyCapabilities).
    pub struct PhyCapabilities "ice_aqc_get_phy_caps_data": 560 {
        /// see [`phy_type`]
        phy_type_low "phy_type_low": U64,
        /// see [`phy_type`]
        phy_type_high "phy_type_high": U64,
        /// see [`PhyAbilities`]
        abilities "caps": u8,
        /// see [`LowPowerControl`]
        low_power_control "low_power_ctrl_an": u8,
        /// energy efficient Ethernet
        energy_efficient "eee_cap": U16,
        /// energy efficient Ethernet: value
        energy_efficient_value "eeer_value": U16,
        /// maker of the PHY or module
        maker "phy_id_oui": [u8; 4],
        /// firmware of the PHY
        phy_firmware "phy_fw_ver": [u8; 8],
        /// see [`ForwardErrorCorrection`]
        error_correction "link_fec_options": u8,
        /// bit 0: modules must comply
        compliance_enforcement "module_compliance_enforcement": u8,
        /// extended compliance code of the module
        extended_compliance "extended_compliance_code": u8,
        /// identifier, first and second compliance byte; see [`module_type`]
        module_type "module_type": [u8; 3],
        /// modules in the list, at most 16
        qualified_count "qualified_module_count": u8,
        /// zero
        reserved_2 "rsvd2": [u8; 7],
        /// the list
        qualified "qual_modules": [QualifiedModule; 16],
    }
    /// Buffer of [`SetPhyConfig`](super::Opcode::SetPhyConfig).
    pub struct PhyConfig "ice_aqc_set_phy_cfg_data": 24 {
        /// see [`phy_type`]
        phy_type_low "phy_type_low": U64,
        /// see [`phy_type`]
        phy_type_high "phy_type_high": U64,
        /// see [`PhyEnable`]
        enable "caps": u8,
        /// see [`LowPowerControl`]
        low_power_control "low_power_ctrl_an": u8,
        /// energy efficient Ethernet
        energy_efficient "eee_cap": U16,
        /// energy efficient Ethernet: value
        energy_efficient_value "eeer_value": U16,
        /// see [`ForwardErrorCorrection`]
        error_correction "link_fec_opt": u8,
        /// bit 0: modules must comply
        compliance_enforcement "module_compliance_enforcement": u8,
    }
    /// State of the link; the E810 gives the first [`LINK_STATUS_BYTES`] of it.
    pub struct LinkStatus "ice_aqc_get_link_status_data": 56 {
        /// see [`TopologyConflict`]
        conflict "topo_media_conflict": u8,
        /// see [`LinkConfigError`]
        config_error "link_cfg_err": u8,
        /// see [`LinkInfo`]
        link_info "link_info": u8,
        /// see [`AutonegotiationInfo`]
        autonegotiation "an_info": u8,
        /// see [`ExtendedInfo`]
        extended "ext_info": u8,
        /// zero
        reserved_2 "reserved2": u8,
        /// largest frame in bytes
        frame_bytes_max "max_frame_size": U16,
        /// see [`LinkConfig`]
        config "cfg": u8,
        /// power class
        power "power_desc": u8,
        /// see [`speed`]
        speed "link_speed": U16,
        /// zero
        reserved_3 "reserved3": U16,
        /// bit 0: RS-272 error correction
        extended_error_correction "ext_fec_status": u8,
        /// zero
        reserved_4 "reserved4": u8,
        /// see [`phy_type`]; exactly one bit in both together
        phy_type_low "phy_type_low": U64,
        /// see [`phy_type`]
        phy_type_high "phy_type_high": U64,
        /// of the partner; not on the E810
        partner_phy_type_low "lp_phy_type_low": U64,
        /// of the partner; not on the E810
        partner_phy_type_high "lp_phy_type_high": U64,
        /// of the partner; not on the E810
        partner_correction_able "lp_fec_adv": u8,
        /// of the partner; not on the E810
        partner_correction_wanted "lp_fec_req": u8,
        /// of the partner; not on the E810
        partner_flow_control "lp_flowcontrol": u8,
        /// zero
        reserved_5 "reserved5": [u8; 5],
    }
}

/// Bytes of [`LinkStatus`] that the E810 gives, in answers and events.
pub const LINK_STATUS_BYTES: usize = 32;
pub use crate::lan::limits::MAX_FRAME_BYTES;

/// Values of [`GetLinkStatus::flags`]. Source: ice `ICE_AQ_LSE_*`.
pub mod link_events {
    /// leave events as they are
    pub const KEEP: u16 = 0;
    /// disable events
    pub const DISABLE: u16 = 2;
    /// enable events
    pub const ENABLE: u16 = 3;
    /// answer: events are enabled
    pub const ENABLED: u16 = 1;
}

/// Values of [`PhyReport::mode`]. Source: ice `ICE_AQC_REPORT_*`.
pub mod report_mode {
    /// capabilities of the board
    pub const TOPOLOGY: u16 = 0;
    /// capabilities of board and module
    pub const TOPOLOGY_WITH_MEDIA: u16 = 1;
    /// the current configuration
    pub const ACTIVE: u16 = 2;
    /// the configuration after power on; interface 1.7.3 and newer
    pub const DEFAULT: u16 = 4;
}

/// Values of [`LinkStatus::speed`]. Source: ice `ICE_AQ_LINK_SPEED_*`.
pub mod speed {
    /// 10 Mb/s
    pub const MEGABITS_10: u16 = 0x0001;
    /// 100 Mb/s
    pub const MEGABITS_100: u16 = 0x0002;
    /// 1 Gb/s
    pub const GIGABITS_1: u16 = 0x0004;
    /// 2.5 Gb/s
    pub const GIGABITS_2_5: u16 = 0x0008;
    /// 5 Gb/s
    pub const GIGABITS_5: u16 = 0x0010;
    /// 10 Gb/s
    pub const GIGABITS_10: u16 = 0x0020;
    /// 20 Gb/s
    pub const GIGABITS_20: u16 = 0x0040;
    /// 25 Gb/s
    pub const GIGABITS_25: u16 = 0x0080;
    /// 40 Gb/s
    pub const GIGABITS_40: u16 = 0x0100;
    /// 50 Gb/s
    pub const GIGABITS_50: u16 = 0x0200;
    /// 100 Gb/s
    pub const GIGABITS_100: u16 = 0x0400;
    /// 200 Gb/s
    pub const GIGABITS_200: u16 = 0x0800;
    /// unknown
    pub const UNKNOWN: u16 = 0x8000;

    /// The speed in megabits a second, if exactly one known bit is set.
    #[must_use]
    pub const fn megabits(code: u16) -> Option<u32> {
        match code {
            MEGABITS_10 => Some(10),
            MEGABITS_100 => Some(100),
            GIGABITS_1 => Some(1_000),
            GIGABITS_2_5 => Some(2_500),
            GIGABITS_5 => Some(5_000),
            GIGABITS_10 => Some(10_000),
            GIGABITS_20 => Some(20_000),
            GIGABITS_25 => Some(25_000),
            GIGABITS_40 => Some(40_000),
            GIGABITS_50 => Some(50_000),
            GIGABITS_100 => Some(100_000),
            GIGABITS_200 => Some(200_000),
            _ => None,
        }
    }
}

/// Values of [`ModuleBus::page_mode`]. Source: ice `ICE_AQC_SFF_SET_EEPROM_PAGE_M`,
/// `ice_get_module_eeprom`.
pub mod page_mode {
    /// the page stays as it is
    pub const KEEP: u16 = 0;
    /// the page is set if another one is active
    pub const SET: u16 = 1;
}

/// Bytes of [`PhyCapabilities::module_type`]. Source: ice `ICE_AQC_MOD_TYPE_*`.
pub mod module_type {
    /// first byte: SFP+
    pub const SFP_PLUS: u8 = 0xA0;
    /// first byte: QSFP+
    pub const QSFP_PLUS: u8 = 0x80;
    /// third byte of a SFP+
    pub const SFP_PLUS_LAST: u8 = 0xA0;
    /// third byte of a QSFP+
    pub const QSFP_PLUS_LAST: u8 = 0x86;
}

crate::words! {
    /// Source: ice `ICE_AQC_GET_PHY_RQM`, `ICE_AQC_REPORT_MODE_*`.
    pub struct PhyReport: u16 {
        /// request the list of qualified modules
        qualified_modules: [0],
        /// see [`report_mode`]
        mode: [3:1],
    }
    /// Abilities or current settings of the PHY. Source: ice `ICE_AQC_PHY_*`.
    pub struct PhyAbilities: u8 {
        /// pause frames are sent
        transmit_pause: [0],
        /// pause frames are obeyed
        receive_pause: [1],
        /// low power
        low_power: [2],
        /// link enabled
        link: [3],
        /// autonegotiation
        autonegotiation: [4],
        /// module qualification
        module_qualification: [5],
        /// link establishment state machine
        link_state_machine: [6],
        /// error correction is chosen by the firmware
        automatic_correction: [7],
    }
    /// Requested settings of the PHY. Source: ice `ICE_AQ_PHY_ENA_*`.
    pub struct PhyEnable: u8 {
        /// pause frames are sent
        transmit_pause: [0],
        /// pause frames are obeyed
        receive_pause: [1],
        /// low power
        low_power: [2],
        /// link enabled
        link: [3],
        /// apply at once
        automatic_update: [5],
        /// link establishment state machine
        link_state_machine: [6],
        /// error correction is chosen by the firmware
        automatic_correction: [7],
    }
    /// Source: ice `ICE_AQC_PHY_EN_D3COLD_LOW_POWER_AUTONEG`, `ICE_AQC_PHY_AN_EN_CLAUSE*`.
    pub struct LowPowerControl: u8 {
        /// low power in D3cold
        cold: [0],
        /// clause 28
        clause_28: [1],
        /// clause 73
        clause_73: [2],
        /// clause 37
        clause_37: [3],
    }
    /// Source: ice `ICE_AQC_PHY_FEC_*`.
    pub struct ForwardErrorCorrection: u8 {
        /// 10 and 40 Gb/s KR enabled
        kr_10g_40g: [0],
        /// 10 and 40 Gb/s KR requested
        kr_10g_40g_request: [1],
        /// 25 Gb/s RS-528 requested
        rs_528_request: [2],
        /// 25 Gb/s KR requested
        kr_25g_request: [3],
        /// 25 Gb/s RS-544 requested
        rs_544_request: [4],
        /// RS (clause 91) enabled
        rs_clause_91: [6],
        /// KR (clause 74) enabled
        kr_clause_74: [7],
    }
    /// Source: ice `ICE_AQC_RESTART_AN_LINK_*`.
    pub struct RestartFlags: u8 {
        /// restart
        restart: [1],
        /// enable the link
        enable: [2],
    }
    /// Source: ice `ICE_AQ_LINK_TOPO_CONFLICT` and neighbours.
    pub struct TopologyConflict: u8 {
        /// topology conflict
        topology: [0],
        /// media conflict
        media: [1],
        /// topology corrupt
        corrupt: [2],
        /// port cannot be reached
        unreachable_port: [4],
        /// port not used to the full
        underused_port: [5],
        /// media not used to the full
        underused_media: [6],
        /// media not supported
        unsupported_media: [7],
    }
    /// Source: ice `ICE_AQ_LINK_EXTERNAL_PHY_LOAD_FAILURE` and neighbours.
    pub struct LinkConfigError: u8 {
        /// power of the module not supported
        module_power: [5],
        /// firmware of the PHY did not load
        phy_load: [6],
        /// power limit
        power_limit: [7],
    }
    /// Source: ice `ICE_AQ_LINK_UP` and neighbours.
    pub struct LinkInfo: u8 {
        /// link up
        up: [0],
        /// fault
        fault: [1],
        /// transmit fault
        transmit_fault: [2],
        /// receive fault
        receive_fault: [3],
        /// remote fault
        remote_fault: [4],
        /// link of the external port up
        port_up: [5],
        /// a module or cable is there
        media: [6],
        /// signal
        signal: [7],
    }
    /// Source: ice `ICE_AQ_AN_COMPLETED` and neighbours.
    pub struct AutonegotiationInfo: u8 {
        /// done
        completed: [0],
        /// the partner can
        partner_able: [1],
        /// error correction on
        error_correction: [3],
        /// low power
        low_power: [4],
        /// pause frames are sent
        transmit_pause: [5],
        /// pause frames are obeyed
        receive_pause: [6],
        /// the module is qualified
        qualified_module: [7],
    }
    /// Source: ice `ICE_AQ_LINK_PHY_TEMP_ALARM`, `ICE_AQ_LINK_TX_*`.
    pub struct ExtendedInfo: u8 {
        /// too hot
        temperature_alarm: [0],
        /// excessive errors
        excessive_errors: [1],
        /// 0 active, 1 drained, 3 flushed
        transmit_state: [3:2],
    }
    /// Error correction in use. Source: ice `ICE_AQ_LINK_25G_*`.
    pub struct LinkConfig: u8 {
        /// KR
        kr: [0],
        /// RS-528
        rs_528: [1],
        /// RS-544
        rs_544: [2],
    }
    /// Link events; in [`SetEventMask`] a set bit masks. Source: ice `ICE_AQ_LINK_EVENT_*`.
    pub struct LinkEvents: u16 {
        /// up or down
        up_down: [1],
        /// no media
        no_media: [2],
        /// fault
        fault: [3],
        /// too hot
        temperature_alarm: [4],
        /// excessive errors
        excessive_errors: [5],
        /// signal
        signal: [6],
        /// autonegotiation completed
        autonegotiation: [7],
        /// module not qualified
        module_unqualified: [8],
        /// port suspended
        port_suspended: [9],
        /// firmware of the PHY did not load
        phy_load: [12],
    }
    /// A device on the bus of the module, and the access to it.
    ///
    /// Source: ice `ICE_AQC_SFF_*`; `ice_aq_sff_eeprom` shifts the byte 0xA0 down to seven bits.
    pub struct ModuleBus: u16 {
        /// address on the bus: the low seven bits, or all ten with `ten_bit_address`
        address: [9:0],
        /// the address has ten bits; drivers leave it clear
        ten_bit_address: [10],
        /// see [`page_mode`]
        page_mode: [12:11],
        /// write instead of read
        write: [15],
    }
}
