//! The folders that a program's own file names for its libraries.
//!
//! The dynamic linker looks into those of `DT_RPATH` before those of `LD_LIBRARY_PATH`, unless the
//! file has `DT_RUNPATH`, too. Source: ld.so(8); the layouts: elf(5), for 64 bits, little-endian.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

/// The first bytes of a file of 64 bits, little-endian.
const MAGIC: &[u8] = b"\x7fELF\x02\x01";
/// Bytes of the header of a file.
const HEADER_BYTES: usize = 64;
/// Bytes of a header of a segment.
const SEGMENT_BYTES: usize = 56;
/// Bytes of an entry of the dynamic section.
const ENTRY_BYTES: usize = 16;
/// Most bytes of a table that are read: real ones have some hundred.
const MAX_TABLE_BYTES: usize = 1 << 20;
/// Kind of a segment: the dynamic section. C: `PT_DYNAMIC`.
const DYNAMIC: u32 = 2;
/// Kinds of entries. C: `DT_NULL`, `DT_RPATH`, `DT_RUNPATH`.
const END: u64 = 0;
const RPATH: u64 = 15;
const RUNPATH: u64 = 29;
/// Scripts that name one another as interpreters. Source: execve(2).
const MAX_SCRIPTS: usize = 4;
/// Bytes of the first line of a script. Source: execve(2).
const LINE_BYTES: usize = 256;

/// True if the dynamic linker searches folders that the program names before those of
/// `LD_LIBRARY_PATH`. False if the file cannot be read: starting it then fails by itself.
pub(super) fn has_folders_of_its_own(program: &OsStr) -> bool {
    let mut program = program.to_owned();
    for _ in 0..=MAX_SCRIPTS {
        let Some(mut file) = find(&program).and_then(|path| File::open(path).ok()) else {
            return false;
        };
        match interpreter(&mut file) {
            Some(next) => program = next,
            None => return has_rpath(&mut file).unwrap_or(false),
        }
    }
    false
}

/// The file of a program: its path, or the first of that name in a folder of `PATH`.
fn find(program: &OsStr) -> Option<PathBuf> {
    // Another kind of file may let its reader wait.
    let is_program = |path: &PathBuf| {
        let about = path.metadata();
        about.is_ok_and(|about| about.is_file() && about.permissions().mode() & 0o111 != 0)
    };
    if program.as_bytes().contains(&b'/') {
        return Some(PathBuf::from(program)).filter(is_program);
    }
    let folders = std::env::var_os("PATH")?;
    std::env::split_paths(&folders)
        .map(|folder| folder.join(program))
        .find(is_program)
}

/// The interpreter of a script; of `/usr/bin/env NAME`, the program of that name.
fn interpreter(file: &mut File) -> Option<OsString> {
    let mut line = Vec::new();
    file.seek(SeekFrom::Start(0)).ok()?;
    file.take(LINE_BYTES as u64).read_to_end(&mut line).ok()?;
    let line = line.split(|byte| *byte == b'\n').next()?;
    let words = line.strip_prefix(b"#!")?;
    let mut words = words
        .split(u8::is_ascii_whitespace)
        .filter(|word| !word.is_empty());
    let first = words.next()?;
    let next = match first.ends_with(b"/env") {
        true => words.find(|word| !word.starts_with(b"-") && !word.contains(&b'=')),
        false => Some(first),
    };
    Some(OsString::from_vec(next?.to_vec()))
}

/// True if the file has `DT_RPATH` without `DT_RUNPATH`. Nothing if it is no such file.
fn has_rpath(file: &mut File) -> Option<bool> {
    let header = read_at(file, 0, HEADER_BYTES)?;
    if !header.starts_with(MAGIC) {
        return None;
    }
    let (place, size, count) = (word(&header, 32)?, half(&header, 54)?, half(&header, 56)?);
    if usize::from(size) != SEGMENT_BYTES {
        return None;
    }
    let segments = read_at(file, place, SEGMENT_BYTES * usize::from(count))?;
    let (segments, _) = segments.as_chunks::<SEGMENT_BYTES>();
    let is_dynamic = |segment: &&[u8; SEGMENT_BYTES]| segment.starts_with(&DYNAMIC.to_le_bytes());
    let dynamic = segments.iter().find(is_dynamic)?;
    let bytes = usize::try_from(word(dynamic, 32)?).ok()?;
    let entries = read_at(file, word(dynamic, 8)?, bytes)?;
    let (entries, _) = entries.as_chunks::<ENTRY_BYTES>();
    let kinds = entries.iter().map_while(|entry| word(entry, 0));
    let kinds: Vec<u64> = kinds.take_while(|kind| *kind != END).collect();
    Some(kinds.contains(&RPATH) && !kinds.contains(&RUNPATH))
}

fn read_at(file: &mut File, place: u64, length: usize) -> Option<Vec<u8>> {
    let mut bytes = vec![0; Some(length).filter(|length| *length <= MAX_TABLE_BYTES)?];
    file.seek(SeekFrom::Start(place)).ok()?;
    file.read_exact(&mut bytes).ok()?;
    Some(bytes)
}

fn word(bytes: &[u8], at: usize) -> Option<u64> {
    let found = bytes.get(at..)?.first_chunk()?;
    Some(u64::from_le_bytes(*found))
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    let found = bytes.get(at..)?.first_chunk()?;
    Some(u16::from_le_bytes(*found))
}
