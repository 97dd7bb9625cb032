//! Versions, queue shutdown, resources, MAC addresses, boot mode.

use crate::lan::wire::{parameters, wire};
use zerocopy::byteorder::little_endian::{U16, U32};

parameters! {
    /// Answer of [`GetVersion`](super::Opcode::GetVersion); the command has none of it.
    pub struct Version "ice_aqc_get_ver" {
        /// version of the boot ROM
        rom_version "rom_ver": U32,
        /// build of the firmware
        firmware_build "fw_build": U32,
        /// branch of the firmware
        firmware_branch "fw_branch": u8,
        /// major version of the firmware
        firmware_major "fw_major": u8,
        /// minor version of the firmware
        firmware_minor "fw_minor": u8,
        /// patch of the firmware
        firmware_patch "fw_patch": u8,
        /// branch of the interface
        interface_branch "api_branch": u8,
        /// major version of the interface; a driver refuses a greater one than its own
        interface_major "api_major": u8,
        /// minor version of the interface
        interface_minor "api_minor": u8,
        /// patch of the interface
        interface_patch "api_patch": u8,
    }
    /// Parameters of [`DriverVersion`](super::Opcode::DriverVersion); the buffer holds an ASCII
    /// text of at most [`MAX_DRIVER_TEXT_BYTES`] bytes, without a terminating zero.
    pub struct DriverVersion "ice_aqc_driver_ver" {
        /// major version of the driver
        major "major_ver": u8,
        /// minor version of the driver
        minor "minor_ver": u8,
        /// build of the driver
        build "build_ver": u8,
        /// build of the driver, second part
        subbuild "subbuild_ver": u8,
        /// zero
        reserved "reserved": [u8; 4],
        /// see [`super::Generic`]
        address_high "addr_high": U32,
        /// see [`super::Generic`]
        address_low "addr_low": U32,
    }
    /// Parameters of [`QueueShutdown`](super::Opcode::QueueShutdown).
    pub struct QueueShutdown "ice_aqc_q_shutdown" {
        /// bit 0: the driver unloads
        driver_unloading "driver_unloading": u8,
        /// zero
        reserved "reserved": [u8; 15],
    }
    /// Parameters and answer of [`RequestResource`](super::Opcode::RequestResource) and
    /// [`ReleaseResource`](super::Opcode::ReleaseResource).
    pub struct RequestResource "ice_aqc_req_res" {
        /// see [`resource`]
        resource "res_id": U16,
        /// see [`RESOURCE_READ`] and [`RESOURCE_WRITE`]
        access "access_type": U16,
        /// requested time of ownership; in an answer the time it is held, or the time until it is
        /// free
        timeout_ms "timeout": U32,
        /// number of the resource among those of its kind
        number "res_number": U32,
        /// answer for the global configuration lock; see [`lock_status`]
        status "status": U16,
        /// zero
        reserved "reserved": [u8; 2],
    }
    /// Parameters and answer of [`ReadMac`](super::Opcode::ReadMac); the buffer of the answer
    /// holds `address_count` [`MacAddress`].
    pub struct ReadMac "ice_aqc_manage_mac_read" {
        /// answer; see [`MacReadFlags`]
        flags "flags": U16,
        /// zero
        reserved "rsvd": [u8; 2],
        /// answer: addresses in the buffer
        address_count "num_addr": u8,
        /// zero
        reserved_1 "rsvd1": [u8; 3],
        /// see [`super::Generic`]
        address_high "addr_high": U32,
        /// see [`super::Generic`]
        address_low "addr_low": U32,
    }
    /// Parameters of [`WriteMac`](super::Opcode::WriteMac).
    pub struct WriteMac "ice_aqc_manage_mac_write" {
        /// zero
        reserved "rsvd": u8,
        /// see [`MacWriteFlags`]
        flags "flags": u8,
        /// the address as on the wire
        mac "mac_addr": [u8; 6],
        /// zero
        address_high "addr_high": U32,
        /// zero
        address_low "addr_low": U32,
    }
    /// Parameters of [`ClearPxe`](super::Opcode::ClearPxe).
    pub struct ClearPxe "ice_aqc_clear_pxe" {
        /// [`CLEAR_PXE_RECEIVE_COUNT`]
        receive_count "rx_cnt": u8,
        /// zero
        reserved "reserved": [u8; 15],
    }
    /// Parameters of [`DriverSharedParameters`](super::Opcode::DriverSharedParameters).
    pub struct DriverSharedParameters "ice_aqc_driver_shared_params" {
        /// 0 writes, 1 reads
        operation "set_or_get_op": u8,
        /// the words that count
        index "param_indx": u8,
        /// zero
        reserved "rsvd": [u8; 2],
        /// the word
        value "param_val": U32,
        /// zero
        address_high "addr_high": U32,
        /// zero
        address_low "addr_low": U32,
    }
    /// Parameters of the event [`LanOverflow`](super::Opcode::LanOverflow).
    pub struct LanOverflow "ice_aqc_event_lan_overflow" {
        /// register of the priorities
        priorities "prtdcb_ruptq": U32,
        /// register of the queue
        queue_control "qtx_ctl": U32,
        /// zero
        reserved "reserved": [u8; 8],
    }
    /// Parameters of mailbox messages, [`MailboxToPhysicalFunction`] and the other direction.
    ///
    /// [`MailboxToPhysicalFunction`]: super::Opcode::MailboxToPhysicalFunction
    pub struct MailboxMessage "ice_aqc_pf_vf_msg" {
        /// virtual function that the message is for
        virtual_function "id": U32,
        /// zero
        reserved "reserved": U32,
        /// see [`super::Generic`]
        address_high "addr_high": U32,
        /// see [`super::Generic`]
        address_low "addr_low": U32,
    }
    /// Parameters of [`NeighbourDeviceRequest`](super::Opcode::NeighbourDeviceRequest).
    pub struct NeighbourDeviceRequest "ice_aqc_neigh_dev_req" {
        /// bytes of the message in the buffer
        length_bytes "sb_data_len": U16,
        /// zero
        reserved "reserved": [u8; 6],
        /// see [`super::Generic`]
        address_high "addr_high": U32,
        /// see [`super::Generic`]
        address_low "addr_low": U32,
    }
    /// Parameters of commands that have none, for example
    /// [`ClearFunctionConfig`](super::Opcode::ClearFunctionConfig).
    pub struct NoParameters "ice_aq_desc.params.raw" {
        /// zero
        reserved "raw": [u8; 16],
    }
}

wire! {
    /// One address in the answer of [`ReadMac`](super::Opcode::ReadMac).
    pub struct MacAddress "ice_aqc_manage_mac_read_resp": 8 {
        /// logical port
        port "lport_num": u8,
        /// see [`MAC_TYPE_LAN`] and [`MAC_TYPE_WAKE_UP`]
        kind "addr_type": u8,
        /// the address as on the wire
        mac "mac_addr": [u8; 6],
    }
}

parameters! {
    /// Parameters of [`FirmwareLogQuery`](super::Opcode::FirmwareLogQuery),
    /// [`FirmwareLogConfig`](super::Opcode::FirmwareLogConfig) and
    /// [`FirmwareLogRegister`](super::Opcode::FirmwareLogRegister).
    pub struct FirmwareLog "ice_aqc_fw_log" {
        /// bit 0 register for events, bit 1 persistent, bit 2 query; answers have bit 0 if
        /// registered
        flags "cmd_flags": u8,
        /// bit 0: more follows
        answer_flag "rsp_flag": u8,
        /// time, high part
        time_high "fw_rt_msb": U16,
        /// lines that are gathered into one event
        resolution "ops.cfg.log_resolution": U16,
        /// [`FirmwareLogModule`]s in the buffer
        module_count "ops.cfg.mdl_cnt": U16,
        /// see [`super::Generic`]
        address_high "addr_high": U32,
        /// see [`super::Generic`]
        address_low "addr_low": U32,
    }
}

wire! {
    /// The log level of one part of the firmware.
    pub struct FirmwareLogModule "ice_aqc_fw_log_cfg_resp": 4 {
        /// the part
        module "module_identifier": U16,
        /// 0 nothing, 1 errors, 2 warnings, 3 normal, 4 verbose
        level "log_level": u8,
        /// zero
        reserved "rsvd0": u8,
    }
}

/// Parts of the firmware that log. Source: ice `ice_adminq_cmd.h`, `ICE_AQC_FW_LOG_ID_MAX`.
pub const FIRMWARE_LOG_MODULES: u16 = 32;
/// Longest text of [`DriverVersion`].
pub const MAX_DRIVER_TEXT_BYTES: usize = 32;
/// [`ClearPxe::receive_count`] that leaves the boot mode.
pub const CLEAR_PXE_RECEIVE_COUNT: u8 = 2;
/// [`MacAddress::kind`] of the LAN address.
pub const MAC_TYPE_LAN: u8 = 0;
/// [`MacAddress::kind`] of the wake-up address.
pub const MAC_TYPE_WAKE_UP: u8 = 1;
/// [`MacWriteFlags::target`]: the address of the LAN and that of wake-up.
/// Source: `ICE_AQC_MAN_MAC_UPDATE_LAA_WOL`.
pub const MAC_WRITE_LOCAL_AND_WAKE_UP: u8 = 1;
/// [`RequestResource::access`] for reading.
pub const RESOURCE_READ: u16 = 1;
/// [`RequestResource::access`] for writing.
pub const RESOURCE_WRITE: u16 = 2;

/// Values of [`RequestResource::resource`]. Source: ice `ice_adminq_cmd.h`, `ICE_AQC_RES_ID_*`.
pub mod resource {
    /// flash and shadow RAM
    pub const NVM: u16 = 1;
    /// software definable pins
    pub const PINS: u16 = 2;
    /// changes of the package's tables
    pub const CHANGE_LOCK: u16 = 3;
    /// download of the package
    pub const GLOBAL_CONFIG: u16 = 4;
}

/// Values of [`RequestResource::status`], for the global configuration lock only.
/// Source: ice `ice_adminq_cmd.h`, `ICE_AQ_RES_GLBL_*`.
pub mod lock_status {
    /// granted
    pub const GRANTED: u16 = 0;
    /// another function is doing it: request again
    pub const IN_PROGRESS: u16 = 1;
    /// another function has done it: nothing to do
    pub const DONE: u16 = 2;
}

/// Values of [`RequestResource::timeout_ms`] that Linux uses.
pub mod lock_timeout_ms {
    /// reading the flash
    pub const NVM_READ: u32 = 3000;
    /// writing the flash
    pub const NVM_WRITE: u32 = 180_000;
    /// changing tables
    pub const CHANGE_LOCK: u32 = 1000;
    /// downloading the package
    pub const GLOBAL_CONFIG: u32 = 3000;
}

crate::words! {
    /// The valid addresses. Source: ice `ice_adminq_cmd.h`, `ICE_AQC_MAN_MAC_*_VALID`.
    pub struct MacReadFlags: u16 {
        /// LAN address
        lan_valid: [4],
        /// storage address
        storage_valid: [5],
        /// port address
        port_valid: [6],
        /// wake-up address
        wake_up_valid: [7],
        /// multicast magic packet
        multicast_magic: [8],
        /// wake-up address survives a reset of the function
        wake_up_kept: [9],
    }
    /// The address to write. Source: ice `ice_adminq_cmd.h`, `ICE_AQC_MAN_MAC_*`.
    pub struct MacWriteFlags: u8 {
        /// multicast magic packets wake up
        multicast_magic: [0],
        /// the wake-up address survives a reset of the function
        wake_up_kept: [1],
        /// 0 locally administered address, 1 and the wake-up address, 2 port address
        target: [7:6],
    }
}
