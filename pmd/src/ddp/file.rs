//! Finding and reading a package file: plain, .xz or .zst.

use super::xz;
use ringside_config::DdpSection;
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};

/// Bytes of a package at most, packed or not. Those that Intel publishes have about 700,000.
pub const MAX_PACKAGE_BYTES: u64 = 16 << 20;

/// First bytes of a .zst file.
const ZST_MAGIC: [u8; 4] = [0x28, 0xB5, 0x2F, 0xFD];

/// The reason why a package file could not be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FileError {
    /// The system refused.
    #[error("{}: {error}; check the file and its rights", path.display())]
    System {
        /// The file.
        path: PathBuf,
        /// The system's words.
        error: String,
    },
    /// The file is larger than any package.
    #[error("{}: more than {limit} bytes, which no package has; fetch the file again", path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// Bytes that are read at most.
        limit: u64,
    },
    /// The file cannot be unpacked.
    #[error("{}: cannot be unpacked as {format}: {error}; fetch the file again", path.display())]
    Unpacking {
        /// The file.
        path: PathBuf,
        /// `.xz` or `.zst`.
        format: &'static str,
        /// The decoder's words.
        error: String,
    },
}

/// Paths at which a package may lie, the best first: in each folder the one for the card with
/// this serial number, then the general one; each plain, then packed.
#[must_use]
pub fn candidates(section: &DdpSection, serial_number: Option<u64>) -> Vec<PathBuf> {
    let mut names = Vec::new();
    if let Some(number) = serial_number
        && !section.file.is_absolute()
    {
        names.push(PathBuf::from(format!("ice-{number:016x}.pkg")));
    }
    names.push(section.file.clone());
    let folders: Vec<&Path> = match section.file.is_absolute() {
        true => vec![Path::new("")],
        false => section.search.iter().map(PathBuf::as_path).collect(),
    };
    let mut paths = Vec::new();
    for folder in folders {
        for name in &names {
            for suffix in ["", ".xz", ".zst"] {
                let mut path = folder.join(name).into_os_string();
                path.push(suffix);
                paths.push(path.into());
            }
        }
    }
    paths
}

/// The first candidate that exists.
#[must_use]
pub fn find(candidates: &[PathBuf]) -> Option<&PathBuf> {
    candidates.iter().find(|path| path.is_file())
}

/// Reads and unpacks a file; its first bytes show the compression.
pub fn read(path: &Path) -> Result<Vec<u8>, FileError> {
    let system = |error: io::Error| FileError::System {
        path: path.to_owned(),
        error: error.to_string(),
    };
    let file = File::open(path).map_err(system)?;
    let bytes = bounded(file, path)?.map_err(system)?;
    unpack(bytes, path)
}

/// Reads to the end. Errors: more bytes than permitted.
fn bounded(from: impl Read, path: &Path) -> Result<io::Result<Vec<u8>>, FileError> {
    let mut bytes = Vec::new();
    let read = from.take(MAX_PACKAGE_BYTES + 1).read_to_end(&mut bytes);
    if bytes.len() as u64 > MAX_PACKAGE_BYTES {
        return Err(too_large(path));
    }
    Ok(read.map(|_| bytes))
}

fn too_large(path: &Path) -> FileError {
    FileError::TooLarge {
        path: path.to_owned(),
        limit: MAX_PACKAGE_BYTES,
    }
}

fn unpack(bytes: Vec<u8>, path: &Path) -> Result<Vec<u8>, FileError> {
    let failed = |format, error: String| FileError::Unpacking {
        path: path.to_owned(),
        format,
        error,
    };
    if bytes.starts_with(&ZST_MAGIC) {
        let decoder = ruzstd::decoding::StreamingDecoder::new(bytes.as_slice())
            .map_err(|error| failed(".zst", error.to_string()))?;
        return bounded(decoder, path)?.map_err(|error| failed(".zst", error.to_string()));
    }
    if bytes.starts_with(&xz::MAGIC) {
        match xz::unpacked_bytes(&bytes) {
            None => return Err(failed(".xz", "it is malformed or cut short".to_owned())),
            Some(length) if length > MAX_PACKAGE_BYTES => return Err(too_large(path)),
            Some(_) => {}
        }
        let mut unpacked = Vec::new();
        lzma_rs::xz_decompress(&mut BufReader::new(bytes.as_slice()), &mut unpacked)
            .map_err(|error| failed(".xz", format!("{error:?}")))?;
        return Ok(unpacked);
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests;
