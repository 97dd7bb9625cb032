//! Packages that the device has, and their download.

use super::{name, read_at, read_list};
use crate::admin::{AdminError, AdminQueue, Answer, Data};
use ringside_spec::lan::admin::package::{
    DownloadPackage, GetPackageInfo, LAST_BUFFER, PACKAGE_INFO_BUFFER_BYTES, PACKAGE_INFO_COUNT,
    PackageInfo, PackageInfoList,
};
use ringside_spec::lan::admin::{Opcode, ReturnCode};
use serde::Serialize;
use std::time::Duration;

/// Sends of a buffer whose signature is not yet there.
const SIGNATURE_ATTEMPTS: u32 = 5;
/// The time between two attempts.
const SIGNATURE_PAUSE: Duration = Duration::from_millis(20);

/// A package that the device has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct InstalledPackage {
    /// Version: major, minor, update, draft.
    pub version: [u8; 4],
    /// Name.
    pub name: String,
    /// Tracking id.
    pub track_id: u32,
    /// It lies in flash.
    pub in_flash: bool,
    /// It is in use.
    pub active: bool,
}

impl AdminQueue {
    /// Packages that the device has (0x0C43).
    pub fn installed_packages(&self) -> Result<Vec<InstalledPackage>, AdminError> {
        let parameters = GetPackageInfo::zeroed();
        let data = Data::Receive(PACKAGE_INFO_BUFFER_BYTES);
        let answer = self.execute(Opcode::GetPackageInfo, &parameters, data)?;
        decode_packages(&answer)
    }

    /// Downloads one buffer of a package (0x0C40); `last` marks the final one.
    ///
    /// After "no signature" and "bad signature" the command is repeated a few times: the firmware
    /// may still be processing the previous buffer.
    pub fn download_buffer(&self, buffer: &[u8], last: bool) -> Result<(), AdminError> {
        let opcode = Opcode::DownloadPackage;
        let parameters = DownloadPackage {
            flags: if last { LAST_BUFFER } else { 0 },
            ..DownloadPackage::zeroed()
        };
        let mut attempt = 1;
        loop {
            let answer = self.exchange(opcode, &parameters, Data::Send(buffer))?;
            match answer.code {
                ReturnCode::Ok => return Ok(()),
                ReturnCode::NoSecurity | ReturnCode::BadSignature
                    if attempt < SIGNATURE_ATTEMPTS =>
                {
                    attempt += 1;
                    let clock = self.registers().clock();
                    crate::admin::pause(&**clock, SIGNATURE_PAUSE);
                }
                code => return Err(AdminError::Refused { opcode, code }),
            }
        }
    }
}

pub(super) fn decode_packages(answer: &Answer) -> Result<Vec<InstalledPackage>, AdminError> {
    let opcode = Opcode::GetPackageInfo;
    let head: PackageInfoList = read_at(opcode, &answer.data, 0)?;
    let count = usize::try_from(head.count.get()).unwrap_or(usize::MAX);
    let list: Vec<PackageInfo> = read_list(
        opcode,
        &answer.data,
        PackageInfoList::SIZE,
        count,
        PACKAGE_INFO_COUNT,
    )?;
    let installed = list.iter().map(|info| InstalledPackage {
        version: zerocopy::transmute!(info.version),
        name: name(&info.name),
        track_id: info.track_id.get(),
        in_flash: info.in_nvm == 1,
        active: info.active == 1,
    });
    Ok(installed.collect())
}
