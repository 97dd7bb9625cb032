//! Capabilities of the function and of the device.

use crate::lan::wire::{codes, parameters, wire};
use zerocopy::byteorder::little_endian::{U16, U32, U64};

parameters! {
    /// Parameters and answer of
    /// [`ListFunctionCapabilities`](super::Opcode::ListFunctionCapabilities) and
    /// [`ListDeviceCapabilities`](super::Opcode::ListDeviceCapabilities); the buffer of the
    /// answer holds `count` [`Capability`].
    pub struct ListCapabilities "ice_aqc_list_caps" {
        /// zero
        flags "cmd_flags": u8,
        /// zero
        function "pf_index": u8,
        /// zero
        reserved "reserved": [u8; 2],
        /// answer: records in the buffer
        count "count": U32,
        /// see [`super::Generic`]
        address_high "addr_high": U32,
        /// see [`super::Generic`]
        address_low "addr_low": U32,
    }
}

wire! {
    /// One capability.
    pub struct Capability "ice_aqc_list_caps_elem": 32 {
        /// see [`CapabilityId`]
        id "cap": U16,
        /// major version of the record
        major_version "major_ver": u8,
        /// minor version of the record
        minor_version "minor_ver": u8,
        /// the number of them, or a bitmap; see [`CapabilityId`]
        number "number": U32,
        /// first id, or more; see [`CapabilityId`]
        logical_id "logical_id": U32,
        /// first id in the device, or more; see [`CapabilityId`]
        physical_id "phys_id": U32,
        /// zero
        reserved_1 "rsvd1": U64,
        /// zero
        reserved_2 "rsvd2": U64,
    }
}

codes! {
    /// The subject of a [`Capability`]. Source: ice `ice_adminq_cmd.h`, `ICE_AQC_CAPS_*`.
    pub enum CapabilityId: u16 {
        /// number = bitmap of the device's physical functions
        ValidFunctions "caps_valid_functions" = 0x05,
        /// number = 1: virtual functions can be created
        Sriov "caps_sriov" = 0x12,
        /// number = virtual functions, logical id = the first
        VirtualFunctions "caps_vf" = 0x13,
        /// number = VSIs of the device (768)
        Vsi "caps_vsi" = 0x17,
        /// number = 1, logical id = bitmap of active classes, physical id = classes at most
        Dcb "caps_dcb" = 0x18,
        /// number = entries of the lookup table (2048), logical id = bits of an entry
        Rss "caps_rss" = 0x40,
        /// number = receive queues, physical id = the first in the device
        ReceiveQueues "caps_rxqs" = 0x41,
        /// number = transmit queues, physical id = the first in the device
        TransmitQueues "caps_txqs" = 0x42,
        /// number = vectors, physical id = the first in the device
        Msix "caps_msix" = 0x43,
        /// number = filters
        FlowDirector "caps_fd" = 0x45,
        /// of the function: number = [`FunctionTimers`]; of the device: number = [`DeviceTimers`],
        /// logical id = bitmap of ports, physical id = bitmap of functions that control a timer
        TimeSync "caps_1588" = 0x46,
        /// number = largest frame in bytes (9728)
        MaxMtu "caps_max_mtu" = 0x47,
        /// number = version of the firmware image
        NvmVersion "caps_nvm_ver" = 0x48,
        /// present when an update of the firmware image is pending
        PendingNvmVersion "caps_pending_nvm_ver" = 0x49,
        /// number = version of the option ROM
        RomVersion "caps_orom_ver" = 0x4A,
        /// present when an update of the option ROM is pending
        PendingRomVersion "caps_pending_orom_ver" = 0x4B,
        /// number = version of the netlist
        NetlistVersion "caps_net_ver" = 0x4C,
        /// present when an update of the netlist is pending
        PendingNetlistVersion "caps_pending_net_ver" = 0x4D,
        /// number = 1: RDMA
        Rdma "caps_rdma" = 0x51,
        /// number = bitmap of sensors
        SensorReading "caps_sensor_reading" = 0x67,
        /// number = 1: updates can do without a PCI reset
        PciResetAvoidance "caps_pcie_reset_avoidance" = 0x76,
        /// number = 1: resets are restricted after an update
        PostUpdateResetRestrict "caps_post_update_reset_restrict" = 0x77,
        /// number = bits of the update mechanism
        NvmManagement "caps_nvm_mgmt" = 0x80,
        /// number = 1: the scheduler's topology can be chosen
        SchedulerTopologyMode "caps_tx_sched_topo_comp_mode" = 0x85,
        /// dual-complex parts only
        ComplexTopology "caps_nac_topology" = 0x87,
        /// number = bits of link aggregation in firmware
        FirmwareLinkAggregation "caps_fw_lag_support" = 0x92,
    }
}

impl Capability {
    /// The subject of the capability, unknown ids kept.
    #[must_use]
    pub fn id(&self) -> CapabilityId {
        CapabilityId::from_code(self.id.get())
    }

    /// A record of version 1.0.
    #[must_use]
    pub fn record(id: CapabilityId, number: u32, logical_id: u32, physical_id: u32) -> Self {
        Self {
            id: id.code().into(),
            major_version: 1,
            number: number.into(),
            logical_id: logical_id.into(),
            physical_id: physical_id.into(),
            ..Self::zeroed()
        }
    }
}

crate::words! {
    /// Time stamps of a function. Source: ice `ice_type.h`, `ICE_TS_FUNC_ENA_M` and following.
    pub struct FunctionTimers: u32 {
        /// the function has time stamps
        enabled: [0],
        /// it controls a timer
        controls: [1],
        /// that timer may be used
        timer_enabled: [2],
        /// number of the timer that it controls
        controlled: [4],
        /// reference clock
        clock_frequency: [18:16],
        /// source of the clock
        clock_source: [20],
        /// number of the timer that its time stamps come from
        associated: [24],
    }
    /// Timers of the device. Source: ice `ice_type.h`, `ICE_TS_TMR0_OWNR_M` and following.
    pub struct DeviceTimers: u32 {
        /// function that controls timer 0
        owner_0: [2:0],
        /// a function controls timer 0
        owned_0: [3],
        /// function that controls timer 1
        owner_1: [6:4],
        /// a function controls timer 1
        owned_1: [7],
        /// the device has time stamps
        enabled: [24],
        /// timer 0 may be used
        timer_0_enabled: [25],
        /// timer 1 may be used
        timer_1_enabled: [26],
    }
}
