//! Versions, shutdown, resources, MAC address, boot mode.

use super::read_list;
use crate::admin::{AdminError, AdminQueue, Answer, Data};
use ringside_spec::lan::admin::generic::{
    CLEAR_PXE_RECEIVE_COUNT, ClearPxe, DriverVersion, MAC_TYPE_LAN, MAC_WRITE_LOCAL_AND_WAKE_UP,
    MacAddress, MacReadFlags, MacWriteFlags, NoParameters, QueueShutdown, ReadMac, RequestResource,
    Version, WriteMac, lock_status, resource,
};
use ringside_spec::lan::admin::{BUFFER_SIZE, EXPECTED_VERSION, Opcode, ReturnCode};
use serde::Serialize;

/// Addresses in an answer to "read MAC" at most.
const MAX_MAC_ADDRESSES: usize = 2;
/// Minor versions of the interface by which firmware and driver may differ without a remark.
const REMARK_DISTANCE: u8 = 2;

/// Versions of the firmware and of the interface that it implements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct FirmwareVersion {
    /// Firmware: major, minor, patch.
    pub firmware: (u8, u8, u8),
    /// Build of the firmware.
    pub build: u32,
    /// Interface: major, minor, patch.
    pub interface: (u8, u8, u8),
}

impl FirmwareVersion {
    /// A note on the interface's version, if there is one: a version that is newer or
    /// much older than the driver works, with this remark. A greater major version is refused
    /// elsewhere.
    #[must_use]
    pub fn remark(&self) -> Option<String> {
        let (major, minor) = EXPECTED_VERSION;
        let (has_major, has_minor, _) = self.interface;
        if has_major == major && has_minor > minor.saturating_add(REMARK_DISTANCE) {
            return Some(format!(
                "the firmware's interface {has_major}.{has_minor} is newer than this driver's {major}.{minor}: use a newer driver"
            ));
        }
        let far_behind = has_minor.saturating_add(REMARK_DISTANCE) < minor;
        if has_major < major || (has_major == major && far_behind) {
            return Some(format!(
                "the firmware's interface {has_major}.{has_minor} is older than this driver's {major}.{minor}: update the firmware"
            ));
        }
        None
    }

    /// True if this driver supports the interface version.
    #[must_use]
    pub fn usable(&self) -> bool {
        self.interface.0 <= EXPECTED_VERSION.0
    }
}

/// The result of a request for the global configuration lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GlobalLock {
    /// It is ours; release it.
    Granted,
    /// Another function is doing it: request the lock again.
    InProgress,
    /// Another function has done it: nothing to do.
    AlreadyDone,
}

impl AdminQueue {
    /// Versions of firmware and interface (0x0001).
    pub fn get_version(&self) -> Result<FirmwareVersion, AdminError> {
        let none = NoParameters::zeroed();
        let answer = self.execute(Opcode::GetVersion, &none, Data::None)?;
        let version: Version = answer.parameters();
        Ok(FirmwareVersion {
            firmware: (
                version.firmware_major,
                version.firmware_minor,
                version.firmware_patch,
            ),
            build: version.firmware_build.get(),
            interface: (
                version.interface_major,
                version.interface_minor,
                version.interface_patch,
            ),
        })
    }

    /// Tells the firmware who drives it (0x0002); `text` of at most 32 bytes of ASCII.
    pub fn send_driver_version(&self, version: [u8; 3], text: &str) -> Result<(), AdminError> {
        let [major, minor, build] = version;
        let parameters = DriverVersion {
            major,
            minor,
            build,
            ..DriverVersion::zeroed()
        };
        let data = Data::Send(text.as_bytes());
        self.execute(Opcode::DriverVersion, &parameters, data)?;
        Ok(())
    }

    /// Says goodbye (0x0003): the driver unloads.
    pub(crate) fn queue_shutdown(&self) -> Result<(), AdminError> {
        let parameters = QueueShutdown {
            driver_unloading: 1,
            ..QueueShutdown::zeroed()
        };
        self.execute(Opcode::QueueShutdown, &parameters, Data::None)?;
        Ok(())
    }

    /// Clears the function's configuration (0x02A4): rules, VSIs, scheduler nodes, queues.
    pub fn clear_function_config(&self) -> Result<(), AdminError> {
        let none = NoParameters::zeroed();
        self.execute(Opcode::ClearFunctionConfig, &none, Data::None)?;
        Ok(())
    }

    /// Leaves the boot mode (0x0110); a device that is not in it is fine.
    pub fn clear_pxe(&self) -> Result<(), AdminError> {
        let parameters = ClearPxe {
            receive_count: CLEAR_PXE_RECEIVE_COUNT,
            ..ClearPxe::zeroed()
        };
        let answer = self.exchange(Opcode::ClearPxe, &parameters, Data::None)?;
        match answer.code {
            ReturnCode::Ok | ReturnCode::Exists => Ok(()),
            code => Err(AdminError::Refused {
                opcode: Opcode::ClearPxe,
                code,
            }),
        }
    }

    /// The function's own unicast MAC address (0x0107).
    pub fn read_mac(&self) -> Result<[u8; 6], AdminError> {
        let opcode = Opcode::ReadMac;
        let answer = self.execute(opcode, &ReadMac::zeroed(), Data::Receive(BUFFER_SIZE))?;
        decode_mac(&answer)
    }

    /// Gives the function another unicast MAC address (0x0108); the one of the flash stays as it
    /// is.
    ///
    /// Source: ice `ice_main.c`, `ice_set_mac_address`, and `ice_common.c`,
    /// `ice_aq_manage_mac_write`.
    pub fn write_mac(&self, mac: [u8; 6]) -> Result<(), AdminError> {
        let flags = MacWriteFlags::ZERO.with_target(MAC_WRITE_LOCAL_AND_WAKE_UP);
        let parameters = WriteMac {
            flags: flags.0,
            mac,
            ..WriteMac::zeroed()
        };
        self.execute(Opcode::WriteMac, &parameters, Data::None)?;
        Ok(())
    }

    /// Asks for a resource (0x0008, write) that has no status field: false while another function
    /// holds it. Only the return code counts.
    ///
    /// Source: ice `ice_common.c`, `ice_aq_req_res`.
    pub fn request_resource(&self, resource: u16, timeout_ms: u32) -> Result<bool, AdminError> {
        let opcode = Opcode::RequestResource;
        let parameters = resource_parameters(resource, timeout_ms);
        match self.exchange(opcode, &parameters, Data::None)?.code {
            ReturnCode::Ok => Ok(true),
            ReturnCode::Busy => Ok(false),
            code => Err(AdminError::Refused { opcode, code }),
        }
    }

    /// Asks for the global configuration lock (0x0008, resource 4, write).
    ///
    /// The firmware reports the result in the status field, for any return code; other resources do
    /// not have it. A refusal of the command itself is an error here.
    pub fn request_global_lock(&self, timeout_ms: u32) -> Result<GlobalLock, AdminError> {
        let opcode = Opcode::RequestResource;
        let parameters = resource_parameters(resource::GLOBAL_CONFIG, timeout_ms);
        let answer = self.exchange(opcode, &parameters, Data::None)?;
        let granted: RequestResource = answer.parameters();
        match (granted.status.get(), answer.code) {
            (lock_status::DONE, _) => Ok(GlobalLock::AlreadyDone),
            (lock_status::IN_PROGRESS, _) | (_, ReturnCode::Busy) => Ok(GlobalLock::InProgress),
            (lock_status::GRANTED, ReturnCode::Ok) => Ok(GlobalLock::Granted),
            (_, ReturnCode::Ok) => {
                let reason = format!("lock status {} does not exist", granted.status.get());
                Err(AdminError::malformed(opcode, reason))
            }
            (_, code) => Err(AdminError::Refused { opcode, code }),
        }
    }

    /// Releases a resource (0x0009).
    pub fn release_resource(&self, resource: u16) -> Result<(), AdminError> {
        let parameters = RequestResource {
            resource: resource.into(),
            ..RequestResource::zeroed()
        };
        self.execute(Opcode::ReleaseResource, &parameters, Data::None)?;
        Ok(())
    }
}

fn resource_parameters(resource: u16, timeout_ms: u32) -> RequestResource {
    RequestResource {
        resource: resource.into(),
        access: ringside_spec::lan::admin::generic::RESOURCE_WRITE.into(),
        timeout_ms: timeout_ms.into(),
        ..RequestResource::zeroed()
    }
}

/// The LAN address among those in the answer.
pub(super) fn decode_mac(answer: &Answer) -> Result<[u8; 6], AdminError> {
    let opcode = Opcode::ReadMac;
    let head: ReadMac = answer.parameters();
    if !MacReadFlags(head.flags.get()).lan_valid() {
        return Err(AdminError::malformed(
            opcode,
            "the LAN address is not valid",
        ));
    }
    let count = head.address_count.into();
    let list: Vec<MacAddress> = read_list(opcode, &answer.data, 0, count, MAX_MAC_ADDRESSES)?;
    let lan = list.iter().find(|address| address.kind == MAC_TYPE_LAN);
    let Some(lan) = lan else {
        return Err(AdminError::malformed(opcode, "no LAN address is listed"));
    };
    let [first, ..] = lan.mac;
    let multicast = !first.is_multiple_of(2);
    if multicast || lan.mac == [0; 6] {
        let reason = format!("{:02x?} is no unicast address", lan.mac);
        return Err(AdminError::malformed(opcode, reason));
    }
    Ok(lan.mac)
}
