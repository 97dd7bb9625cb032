//! The package of the packet pipeline: a file, optionally compressed.
//!
//! Checked: every buffer to download has 4096 bytes and lies in the file; a compressed file unpacks
//! to at most the limit, and an uncompressed one is read unchanged.

use ringside_pmd::ddp::{MAX_PACKAGE_BYTES, Package, read};
use rustix::fs::{MemfdFlags, memfd_create};
use std::fs::File;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::path::PathBuf;

/// A package, not compressed.
pub fn package(bytes: &[u8]) {
    match Package::parse(bytes.to_vec()) {
        Ok(package) => {
            let buffers: Vec<_> = package.downloads().collect();
            assert!(buffers.len() * 4096 <= bytes.len().max(1) * 4096);
            for buffer in buffers {
                assert_eq!(buffer.len(), 4096);
            }
            assert!(package.name.len() <= 3 * 32, "{:?}", package.name);
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

/// A file, optionally compressed with zstd or xz.
pub fn package_file(bytes: &[u8]) {
    let descriptor = memfd_create("package", MemfdFlags::CLOEXEC).expect("a file in memory");
    let mut file = File::from(descriptor);
    file.write_all(bytes).expect("room in memory");
    let path = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
    match read(&path) {
        Ok(unpacked) => {
            assert!(unpacked.len() as u64 <= MAX_PACKAGE_BYTES);
            let is_packed = bytes.starts_with(&[0xFD, b'7', b'z', b'X', b'Z', 0])
                || bytes.starts_with(&[0x28, 0xB5, 0x2F, 0xFD]);
            assert!(is_packed || unpacked == bytes);
            package(&unpacked);
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}
