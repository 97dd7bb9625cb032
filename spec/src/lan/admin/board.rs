//! Nodes of the board, and scripts of the PHY.
//!
//! A driver asks for the cage of its port to learn which lanes the port has, and then reads their
//! equalizers by a script. Source: ice `ice_adminq_cmd.h`; `ice_ethtool.c`,
//! `ice_get_port_topology` and `ice_get_extended_regs`.

use crate::lan::wire::{parameters, wire};
use zerocopy::byteorder::little_endian::{U16, U32};

parameters! {
    /// Parameters and answer of [`RunScript`](super::Opcode::RunScript); the buffer holds an
    /// [`EqualizerRequest`], and in the answer an [`EqualizerValue`].
    pub struct RunScript "ice_aqc_dnl_call_command" {
        /// zero
        context "ctx": u8,
        /// zero
        reserved "reserved": u8,
        /// the script; see [`EQUALIZER_SCRIPT`]
        script "activity_id": U16,
        /// zero
        reserved_1 "reserved1": U32,
        /// see [`super::Generic`]
        address_high "addr_high": U32,
        /// see [`super::Generic`]
        address_low "addr_low": U32,
    }
}

wire! {
    /// A setting of a lane's equalizer.
    pub struct EqualizerRequest "ice_aqc_dnl_equa_param": 16 {
        /// the setting
        setting "data_in": U16,
        /// see [`EqualizerLane`]
        lane "op_code_serdes_sel": U16,
        /// zero
        reserved "reserved": [u8; 12],
    }
    /// Its value.
    pub struct EqualizerValue "ice_aqc_dnl_equa_respon": 16 {
        /// a number with a sign
        value "val": U32,
        /// zero
        reserved "reserved": [u8; 12],
    }
}

/// [`RunScript::script`] that reads an equalizer (`ICE_AQC_ACT_ID_DNL`).
pub const EQUALIZER_SCRIPT: u16 = 0x1129;

/// Values of [`EqualizerLane::operation`].
pub mod operation {
    /// the receiver's equalizer (`ICE_AQC_OP_CODE_RX_EQU`)
    pub const RECEIVE: u16 = 0x9;
    /// the transmitter's equalizer (`ICE_AQC_OP_CODE_TX_EQU`)
    pub const TRANSMIT: u16 = 0x10;
}

/// Values of [`NodeKind::kind`].
pub mod node {
    /// the cage of a module (`ICE_AQC_LINK_TOPO_NODE_TYPE_CAGE`)
    pub const CAGE: u8 = 6;
}

/// Values of [`NodeKind::context`].
pub mod context {
    /// a node of the port (`ICE_AQC_LINK_TOPO_NODE_CTX_PORT`)
    pub const PORT: u8 = 2;
}

/// [`part_number`](super::link::GetLinkTopology::part_number) of a cage for QSFP28. Source: ice
/// `ice_ethtool.c`, `ice_get_port_topology`.
pub const CAGE_QSFP28: u8 = 0x14;

crate::words! {
    /// The kind of a node. Source: `ICE_AQC_LINK_TOPO_NODE_TYPE_*`, `ICE_AQC_LINK_TOPO_NODE_CTX_*`.
    pub struct NodeKind: u8 {
        /// see [`node`]
        kind: [3:0],
        /// see [`context`]
        context: [7:4],
    }
    /// The lane that a script is for. Source: ice `ice_common.c`, `ice_aq_get_phy_equalization`.
    pub struct EqualizerLane: u16 {
        /// lane of the chip
        lane: [3:0],
        /// see [`operation`]
        operation: [15:4],
    }
}
