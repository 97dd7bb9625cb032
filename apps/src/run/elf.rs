//! The file of a program: the folders that it names for its libraries, and what keeps it from
//! loading ringside's.
//!
//! The dynamic linker looks into those of `DT_RPATH` before those of `LD_LIBRARY_PATH`, unless the
//! file has `DT_RUNPATH`, too. Source: ld.so(8); the layouts: elf(5), for 64 bits, little-endian.

use rustix::process::{getegid, geteuid};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

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
/// Kinds of segments: the dynamic section, the path of the dynamic linker. C: `PT_DYNAMIC`,
/// `PT_INTERP`.
const DYNAMIC: u32 = 2;
const LINKER: u32 = 3;
/// Kinds of entries. C: `DT_NULL`, `DT_SONAME`, `DT_RPATH`, `DT_RUNPATH`.
const END: u64 = 0;
const NAME: u64 = 14;
const RPATH: u64 = 15;
const RUNPATH: u64 = 29;
/// Bits of a file's mode. C: `S_ISUID`, `S_ISGID`.
const SET_USER: u32 = 0o4000;
const SET_GROUP: u32 = 0o2000;
/// Scripts that name one another as interpreters. Source: execve(2).
const MAX_SCRIPTS: usize = 4;
/// Bytes of the first line of a script. Source: execve(2).
const LINE_BYTES: usize = 256;

/// True if the dynamic linker searches folders that the program names before those of
/// `LD_LIBRARY_PATH`. False if the file cannot be read: starting it then fails by itself.
pub(super) fn has_folders_of_its_own(program: &OsStr) -> bool {
    let found = executed(program).and_then(|mut file| Elf::read(&mut file));
    found.is_some_and(|elf| elf.has(RPATH) && !elf.has(RUNPATH))
}

/// The reason why the program loads no library of ringside, if there is one.
pub(super) fn ignores_libraries(program: &OsStr) -> Option<&'static str> {
    let mut file = executed(program)?;
    let about = file.metadata().ok()?;
    let (user, group) = (geteuid().as_raw(), getegid().as_raw());
    if gains(about.mode(), (about.uid(), user), (about.gid(), group)) {
        return Some(
            "has the set-user-ID or set-group-ID bit, with which the dynamic linker ignores LD_LIBRARY_PATH",
        );
    }
    // The dynamic linker as a program has no linker, and a name as libraries do.
    let elf = Elf::read(&mut file)?;
    let is_static = elf.segment(LINKER).is_none() && !elf.has(NAME);
    is_static.then_some("is linked statically")
}

/// True if a file of this mode runs as another user or group; of each, the file's and the
/// process's.
fn gains(mode: u32, users: (u32, u32), groups: (u32, u32)) -> bool {
    let differ = |(file, process)| file != process;
    mode & SET_USER != 0 && differ(users) || mode & SET_GROUP != 0 && differ(groups)
}

/// The interpreter of a script, or the dynamic linker, that is not there: why an existing program
/// cannot be started.
pub(super) fn missing_interpreter(program: &OsStr) -> Option<OsString> {
    let mut path = find(program)?;
    for _ in 0..=MAX_SCRIPTS {
        let mut file = File::open(&path).ok()?;
        let next = match script(&mut file) {
            Some(words) => words.into_iter().next()?,
            None => Elf::read(&mut file)?.linker(&mut file)?,
        };
        if !Path::new(&next).exists() {
            return Some(next);
        }
        path = next.into();
    }
    None
}

/// The file that runs in the end, behind the interpreters of scripts.
fn executed(program: &OsStr) -> Option<File> {
    let mut program = program.to_owned();
    for _ in 0..=MAX_SCRIPTS {
        let mut file = File::open(find(&program)?).ok()?;
        match interpreter(&mut file) {
            Some(next) => program = next,
            None => return Some(file),
        }
    }
    None
}

/// The file of a program: its path, or the first of that name in a folder of `PATH`.
pub(super) fn find(program: &OsStr) -> Option<PathBuf> {
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
    let mut words = script(file)?.into_iter();
    let first = words.next()?;
    if !first.as_bytes().ends_with(b"/env") {
        return Some(first);
    }
    words.find(|word| {
        let word = word.as_bytes();
        !word.starts_with(b"-") && !word.contains(&b'=')
    })
}

/// The words of the first line of a script: the path of its interpreter, and more.
fn script(file: &mut File) -> Option<Vec<OsString>> {
    let mut line = Vec::new();
    file.seek(SeekFrom::Start(0)).ok()?;
    file.take(LINE_BYTES as u64).read_to_end(&mut line).ok()?;
    let line = line.split(|byte| *byte == b'\n').next()?;
    let words = line.strip_prefix(b"#!")?;
    let words = words
        .split(u8::is_ascii_whitespace)
        .filter(|word| !word.is_empty());
    let words = words.map(|word| OsString::from_vec(word.to_vec()));
    Some(words.collect())
}

/// The parts of a file of 64 bits, little-endian, that tell the way of its libraries.
struct Elf {
    segments: Vec<[u8; SEGMENT_BYTES]>,
    /// the kinds of entries of the dynamic section; nothing if there is none
    kinds: Vec<u64>,
}

impl Elf {
    /// Nothing if it is no such file.
    fn read(file: &mut File) -> Option<Self> {
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
        let mut elf = Self {
            segments: segments.to_vec(),
            kinds: Vec::new(),
        };
        if elf.segment(DYNAMIC).is_some() {
            let entries = elf.content(file, DYNAMIC)?;
            let (entries, _) = entries.as_chunks::<ENTRY_BYTES>();
            let kinds = entries.iter().map_while(|entry| word(entry, 0));
            elf.kinds = kinds.take_while(|kind| *kind != END).collect();
        }
        Some(elf)
    }

    fn segment(&self, kind: u32) -> Option<&[u8; SEGMENT_BYTES]> {
        let kind = kind.to_le_bytes();
        self.segments.iter().find(|one| one.starts_with(&kind))
    }

    fn content(&self, file: &mut File, kind: u32) -> Option<Vec<u8>> {
        let segment = self.segment(kind)?;
        let bytes = usize::try_from(word(segment, 32)?).ok()?;
        read_at(file, word(segment, 8)?, bytes)
    }

    /// True if the dynamic section has an entry of this kind.
    fn has(&self, kind: u64) -> bool {
        self.kinds.contains(&kind)
    }

    /// The path of the dynamic linker.
    fn linker(&self, file: &mut File) -> Option<OsString> {
        let path = self.content(file, LINKER)?;
        let path = path.split(|byte| *byte == 0).next()?;
        Some(OsString::from_vec(path.to_vec()))
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_gains_rights_by_its_bits_if_it_belongs_to_another() {
        for (mode, user, group, wanted) in [
            (0o4755, 0, 1000, true),
            (0o4755, 1000, 1000, false),
            (0o2755, 1000, 42, true),
            (0o2755, 1000, 1000, false),
            (0o755, 0, 0, false),
        ] {
            assert_eq!(gains(mode, (user, 1000), (group, 1000)), wanted, "{mode:o}");
        }
    }
}
