//! Download of the package (DDP); its format is in [`crate::lan::package`].

use crate::lan::package::PackageVersion;
use crate::lan::wire::{parameters, wire};
use zerocopy::byteorder::little_endian::U32;

parameters! {
    /// Parameters of [`DownloadPackage`](super::Opcode::DownloadPackage) and
    /// [`UpdatePackage`](super::Opcode::UpdatePackage); the buffer is one of the package.
    pub struct DownloadPackage "ice_aqc_download_pkg" {
        /// bit 0: [`LAST_BUFFER`]
        flags "flags": u8,
        /// zero
        reserved "reserved": [u8; 3],
        /// zero
        reserved_1 "reserved1": U32,
        /// see [`super::Generic`]
        address_high "addr_high": U32,
        /// see [`super::Generic`]
        address_low "addr_low": U32,
    }
    /// Answer to both.
    pub struct DownloadAnswer "ice_aqc_download_pkg_resp" {
        /// place of the error in the buffer
        error_offset "error_offset": U32,
        /// the error
        error_info "error_info": U32,
        /// see [`super::Generic`]
        address_high "addr_high": U32,
        /// see [`super::Generic`]
        address_low "addr_low": U32,
    }
    /// Parameters of [`GetPackageInfo`](super::Opcode::GetPackageInfo); the buffer of the answer
    /// holds [`PackageInfoList`] and its [`PackageInfo`]s.
    pub struct GetPackageInfo "ice_aqc_get_pkg_info_list" {
        /// zero
        reserved_1 "reserved1": U32,
        /// zero
        reserved_2 "reserved2": U32,
        /// see [`super::Generic`]
        address_high "addr_high": U32,
        /// see [`super::Generic`]
        address_low "addr_low": U32,
    }
}

wire! {
    /// Head of the list; `count` [`PackageInfo`] follow.
    pub struct PackageInfoList "ice_aqc_get_pkg_info_resp": 4 {
        /// packages that follow
        count "count": U32,
    }
    /// A package that is there.
    pub struct PackageInfo "ice_aqc_get_pkg_info": 40 {
        /// version
        version "ver": PackageVersion,
        /// name, padded with zeros
        name "name": [u8; 28],
        /// tracking id
        track_id "track_id": U32,
        /// 1: it is in flash
        in_nvm "is_in_nvm": u8,
        /// 1: it is active
        active "is_active": u8,
        /// 1: it was active at boot
        active_at_boot "is_active_at_boot": u8,
        /// 1: it was changed
        modified "is_modified": u8,
    }
}

/// [`DownloadPackage::flags`] of the last buffer.
pub const LAST_BUFFER: u8 = 1;
/// Packages for which drivers give room.
pub const PACKAGE_INFO_COUNT: usize = 4;
/// Bytes of the buffer that drivers give for [`GetPackageInfo`].
pub const PACKAGE_INFO_BUFFER_BYTES: usize =
    PackageInfoList::SIZE + PACKAGE_INFO_COUNT * PackageInfo::SIZE;
