//! The memory that a client has mapped.
//!
//! A file is mapped once, as a whole, for any number of parts that the client maps: a client with
//! its own IOMMU maps and unmaps single pages all the time.

use super::refusal::{EEXIST, EINVAL, ENOENT, ENOMEM, ENOSPC, ENOTSUP, EPERM, Refusal};
use ringside_bus::function::DmaAccess;
use ringside_bus::vfio_user::Capabilities;
use ringside_bus::vfio_user::message::{DmaMap, DmaUnmap};
use ringside_bus::{ForeignError, ForeignFile, Memory};
use ringside_spec::lan::identity::MAX_MSIX_VECTORS;
use rustix::fs::OFlags;
use rustix::process::{Resource, getrlimit};
use std::collections::BTreeMap;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// Bytes of files that all clients may have mapped: half of the server's address space.
const ALL_FILE_BYTES: u64 = 1 << 46;

/// Descriptors, and mappings, that the server needs for anything but its clients' files.
const RESERVE: u64 = 1024;

/// Descriptors of a connected vector: that of the function, and the copy that is kept for it.
const PER_VECTOR: u64 = 2;

/// The most mappings of a process where the kernel does not tell. Source: Linux `mm/mmap.c`,
/// DEFAULT_MAX_MAP_COUNT.
const MAX_MAPPINGS: u64 = 65_530;

/// The files of memory that one client may have mapped: what the server has, divided among its
/// functions.
#[derive(Clone, Copy, Debug)]
pub(super) struct Allowance {
    /// files that their owner can truncate, too
    can_shrink: bool,
    /// bytes of all mappings of files
    bytes: u64,
    mappings: usize,
}

impl Allowance {
    pub(super) fn of_function(functions: usize, can_shrink: bool) -> Self {
        let functions = functions.max(1);
        Self {
            can_shrink,
            bytes: ALL_FILE_BYTES / functions as u64,
            mappings: all_files(functions, &Limits::of_this_process()) / functions,
        }
    }
}

/// The limits of this process.
struct Limits {
    descriptors: Option<u64>,
    mappings: u64,
}

impl Limits {
    fn of_this_process() -> Self {
        let mappings = std::fs::read_to_string("/proc/sys/vm/max_map_count").ok();
        let mappings = mappings.and_then(|text| text.trim().parse().ok());
        Self {
            descriptors: getrlimit(Resource::Nofile).current,
            mappings: mappings.unwrap_or(MAX_MAPPINGS),
        }
    }
}

/// Files that all clients together may have mapped. Each takes a descriptor and a mapping; the
/// server keeps what it needs of both, and half of them if there are few.
fn all_files(functions: usize, limits: &Limits) -> usize {
    let vectors = functions as u64 * u64::from(MAX_MSIX_VECTORS);
    let left = |all: u64, needed: u64| all - needed.min(all.div_ceil(2));
    let descriptors = limits.descriptors.unwrap_or(u64::MAX);
    let files = left(descriptors, RESERVE + PER_VECTOR * vectors);
    let files = files.min(left(limits.mappings, RESERVE));
    usize::try_from(files)
        .unwrap_or(usize::MAX)
        .min(ringside_bus::MAX_FOREIGN_MAPPINGS)
}

type Identity = (u64, u64);

struct File {
    identity: Identity,
    memory: Memory,
    uses: usize,
    /// bytes and number of its mappings: a file that has grown is mapped again, and its former
    /// users keep theirs
    mapped_bytes: u64,
    mappings: usize,
}

struct Entry {
    end: u64,
    source: Source,
}

/// The memory of a mapping.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Source {
    /// Memory without a descriptor, which the device cannot reach.
    Unreachable,
    /// A file, mapped here.
    File(Identity),
    /// The client's address space, read and written at positions.
    AddressSpace,
}

/// A descriptor of an address space: two that are equal here do the same.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Space {
    file: Identity,
    /// open for reading, writing or both
    mode: OFlags,
}

/// The request of a mapping to the world.
pub(super) struct Reachable {
    pub(super) memory: Memory,
    pub(super) range: Range<usize>,
    pub(super) access: DmaAccess,
}

/// The mappings of one client; see the module.
pub(super) struct Mappings {
    entries: BTreeMap<u64, Entry>,
    files: Vec<File>,
    /// the client's address space, which comes with each mapping of it: one descriptor is kept
    space: Option<(Space, Arc<OwnedFd>)>,
    allowance: Allowance,
}

impl Mappings {
    pub(super) fn new(allowance: Allowance) -> Self {
        Self {
            entries: BTreeMap::new(),
            files: Vec::new(),
            space: None,
            allowance,
        }
    }

    /// Records a mapping. Returns `None` if the device cannot reach it, because the client sends no
    /// descriptor or allows neither reads nor writes.
    pub(super) fn map(
        &mut self,
        map: &DmaMap,
        mut descriptors: Vec<OwnedFd>,
    ) -> Result<Option<Reachable>, Refusal> {
        let page = Capabilities::OURS.page_bytes();
        let end = map.address.checked_add(map.size);
        let Some(end) = end.filter(|_| map.size > 0) else {
            return Err(Refusal::new(EINVAL, "a DMA mapping that is empty or wraps"));
        };
        if !map.address.is_multiple_of(page) || !map.size.is_multiple_of(page) {
            return Err(Refusal::new(EINVAL, "a DMA mapping of no whole pages"));
        }
        let before = self.entries.range(..end).next_back();
        if before.is_some_and(|(_, entry)| entry.end > map.address) {
            return Err(Refusal::new(EEXIST, "a DMA mapping over another"));
        }
        if self.entries.len() >= Capabilities::OURS.dma_mappings as usize {
            return Err(Refusal::new(ENOSPC, "more DMA mappings than were agreed"));
        }
        let descriptor = descriptors.pop();
        if !descriptors.is_empty() {
            return Err(Refusal::new(
                EINVAL,
                "a DMA mapping with several descriptors",
            ));
        }
        let access = match (map.flags.readable(), map.flags.writable()) {
            (_, true) => Some(DmaAccess::ReadWrite),
            (true, false) => Some(DmaAccess::Read),
            (false, false) => None,
        };
        let (Some(descriptor), Some(access)) = (descriptor, access) else {
            let source = Source::Unreachable;
            self.entries.insert(map.address, Entry { end, source });
            return Ok(None);
        };
        if map.flags.positional() {
            return self
                .map_address_space(map, end, descriptor, access)
                .map(Some);
        }
        let file =
            ForeignFile::inspect(descriptor, self.allowance.can_shrink).map_err(refuse_file)?;
        let (identity, length) = (file.identity, file.length);
        let needed = map.offset.checked_add(map.size);
        let start = usize::try_from(map.offset).ok();
        let (Some(start), Some(needed)) = (start, needed.filter(|needed| *needed <= length)) else {
            return Err(Refusal::new(
                EINVAL,
                "a DMA mapping beyond the end of its file",
            ));
        };
        let memory = self.memory_of(file, needed)?;
        let range = start..start + map.size as usize;
        let source = Source::File(identity);
        self.entries.insert(map.address, Entry { end, source });
        Ok(Some(Reachable {
            memory,
            range,
            access,
        }))
    }

    fn map_address_space(
        &mut self,
        map: &DmaMap,
        end: u64,
        descriptor: OwnedFd,
        access: DmaAccess,
    ) -> Result<Reachable, Refusal> {
        let length = usize::try_from(map.size)
            .map_err(|_| Refusal::new(EINVAL, "a DMA mapping larger than memory"))?;
        let (identity, space) = self.space_of(descriptor)?;
        let memory = Memory::of_peer(Arc::clone(&space), map.offset, length)
            .map_err(|error| Refusal::new(EINVAL, error.to_string()))?;
        self.space = Some((identity, space));
        let source = Source::AddressSpace;
        self.entries.insert(map.address, Entry { end, source });
        Ok(Reachable {
            memory,
            range: 0..length,
            access,
        })
    }

    /// The descriptor that is kept of the same file, or this one from now on. A server holds far
    /// fewer descriptors than its clients register regions.
    fn space_of(&self, descriptor: OwnedFd) -> Result<(Space, Arc<OwnedFd>), Refusal> {
        let unknown =
            |error| Refusal::new(EINVAL, format!("a descriptor that is no file: {error}"));
        let file = rustix::fs::fstat(&descriptor).map_err(unknown)?;
        let mode = rustix::fs::fcntl_getfl(&descriptor).map_err(unknown)?;
        let identity = Space {
            file: (file.st_dev, file.st_ino),
            mode: mode & OFlags::RWMODE,
        };
        let known = self.space.as_ref().filter(|(kept, _)| *kept == identity);
        let space = known.map_or_else(|| Arc::new(descriptor), |(_, space)| Arc::clone(space));
        Ok((identity, space))
    }

    fn memory_of(&mut self, file: ForeignFile, needed: u64) -> Result<Memory, Refusal> {
        let checked = self.check_allowance(file.length);
        let identity = file.identity;
        let known = self
            .files
            .iter_mut()
            .find(|known| known.identity == identity);
        if let Some(known) = known {
            // the file may have grown since it was mapped
            if (known.memory.length() as u64) < needed {
                checked?;
                known.memory = file.map().map_err(refuse_file)?;
                known.mapped_bytes += known.memory.length() as u64;
                known.mappings += 1;
            }
            known.uses += 1;
            return Ok(known.memory.clone());
        }
        checked?;
        let memory = file.map().map_err(refuse_file)?;
        self.files.push(File {
            identity,
            memory: memory.clone(),
            uses: 1,
            mapped_bytes: memory.length() as u64,
            mappings: 1,
        });
        Ok(memory)
    }

    /// Refuses one more mapping of a file that would take from the others what the server has for
    /// them.
    fn check_allowance(&self, length: u64) -> Result<(), Refusal> {
        let Allowance {
            bytes, mappings, ..
        } = self.allowance;
        let mapped = self.files.iter().map(|file| file.mapped_bytes);
        let all = mapped.fold(length, u64::saturating_add);
        let number = self.files.iter().map(|file| file.mappings).sum::<usize>() + 1;
        if all <= bytes && number <= mappings {
            return Ok(());
        }
        let reason = format!(
            "{number} files of {all} bytes in all are more than the {mappings} files of {bytes} bytes \
             that a client of this server may map"
        );
        Err(Refusal::new(ENOMEM, reason))
    }

    /// Removes mappings and returns the ranges that the world must unmap, address and bytes.
    pub(super) fn unmap(&mut self, unmap: &DmaUnmap) -> Result<Vec<(u64, u64)>, Refusal> {
        if unmap.flags.dirty_bitmap() {
            return Err(Refusal::new(ENOTSUP, "dirty pages are not tracked"));
        }
        let (start, end) = if unmap.flags.all() {
            (0, u64::MAX)
        } else {
            (unmap.address, unmap.address.saturating_add(unmap.size))
        };
        let touched = self.entries.range(..end).rev();
        let touched = touched.take_while(|(_, entry)| entry.end > start);
        let touched: Vec<_> = touched.map(|(first, entry)| (*first, entry.end)).collect();
        if touched
            .iter()
            .any(|(first, last)| *first < start || *last > end)
        {
            return Err(Refusal::new(EINVAL, "the end of a part of a DMA mapping"));
        }
        if touched.is_empty() && !unmap.flags.all() {
            return Err(Refusal::new(
                ENOENT,
                "the end of a DMA mapping that does not exist",
            ));
        }
        let mut reachable = Vec::new();
        for (first, last) in touched {
            if self.forget(first) {
                reachable.push((first, last - first));
            }
        }
        Ok(reachable)
    }

    /// Removes one mapping; true if the device could reach it.
    pub(super) fn forget(&mut self, first: u64) -> bool {
        let identity = match self.entries.remove(&first).map(|entry| entry.source) {
            None | Some(Source::Unreachable) => return false,
            Some(Source::AddressSpace) => return true,
            Some(Source::File(identity)) => identity,
        };
        if let Some(file) = self.files.iter_mut().find(|file| file.identity == identity) {
            file.uses = file.uses.saturating_sub(1);
        }
        self.files.retain(|file| file.uses > 0);
        true
    }
}

fn refuse_file(error: ForeignError) -> Refusal {
    let errno = match &error {
        ForeignError::NotAFile | ForeignError::TooShort { .. } => EINVAL,
        ForeignError::CanShrink => EPERM,
        ForeignError::System { error, .. } => error.raw_os_error().unsigned_abs(),
        ForeignError::Memory(_) | ForeignError::TooMany => ENOMEM,
    };
    Refusal {
        errno,
        reason: error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringside_bus::vfio_user::message::{MapFlags, UnmapFlags};
    use rustix::fs::MemfdFlags;
    use std::fs::OpenOptions;
    use std::os::fd::AsRawFd;

    fn map(mappings: &mut Mappings, page: u64, file: std::fs::File) -> Result<i32, Refusal> {
        let map = DmaMap {
            flags: MapFlags::ZERO
                .with_readable(true)
                .with_writable(true)
                .with_positional(true),
            offset: page * 4096,
            address: page * 4096,
            size: 4096,
        };
        let made = mappings.map(&map, vec![file.into()])?.expect("reachable");
        Ok(made.memory.descriptor().expect("its file").as_raw_fd())
    }

    #[test]
    fn files_of_a_client_leave_address_space_for_the_others() {
        let map = |mappings: &mut Mappings, address: u64, file: &OwnedFd| {
            let map = DmaMap {
                flags: MapFlags::ZERO.with_readable(true),
                offset: 0,
                address,
                size: 4096,
            };
            mappings
                .map(&map, vec![file.try_clone().unwrap()])
                .map(|_| ())
        };
        let file = |bytes: u64| {
            let file = rustix::fs::memfd_create("test", MemfdFlags::ALLOW_SEALING).unwrap();
            rustix::fs::ftruncate(&file, bytes).unwrap();
            file
        };
        let allowance = Allowance::of_function(64, false);
        let most = allowance.bytes;
        let mut mappings = Mappings::new(allowance);
        let half = file(most / 2);
        map(&mut mappings, 0, &half).unwrap();
        map(&mut mappings, 4096, &half).unwrap();
        let refused = map(&mut mappings, 8192, &file(most / 2 + 4096)).unwrap_err();
        assert_eq!(refused.errno, ENOMEM);
        let small = file(4096);
        map(&mut mappings, 8192, &small).unwrap();
        // One that grows is mapped a second time.
        let mut again = |bytes: u64| {
            rustix::fs::ftruncate(&small, bytes).unwrap();
            let grown = DmaMap {
                flags: MapFlags::ZERO.with_readable(true),
                offset: bytes - 4096,
                address: (1 << 20) + bytes,
                size: 4096,
            };
            let made = mappings.map(&grown, vec![small.try_clone().unwrap()]);
            made.map(|_| ())
        };
        again(8192).unwrap();
        assert_eq!(again(most / 2).unwrap_err().errno, ENOMEM);
    }

    #[test]
    fn files_of_clients_leave_descriptors_and_mappings_for_the_server() {
        let files = |functions, descriptors, mappings| {
            let limits = Limits {
                descriptors,
                mappings,
            };
            all_files(functions, &limits)
        };
        assert_eq!(files(1, None, 1 << 30), 65_536, "what the bus looks after");
        assert_eq!(files(1, Some(1 << 20), 65_530), 65_530 - 1024);
        assert_eq!(files(2, Some(20_000), 65_530), 20_000 - 1024 - 2 * 2 * 1024);
        assert_eq!(files(2, Some(256), 65_530), 128);
        assert_eq!(files(1, Some(1 << 20), 1000), 500);
        assert_eq!(files(1, Some(0), 0), 0);
        assert_eq!(files(1, Some(u64::MAX), u64::MAX), 65_536);
    }

    #[test]
    fn a_client_maps_its_share_of_files() {
        let mut mappings = Mappings::new(Allowance {
            mappings: 2,
            ..Allowance::of_function(1, false)
        });
        let mut map = |address: u64| {
            let file = rustix::fs::memfd_create("test", MemfdFlags::ALLOW_SEALING).unwrap();
            rustix::fs::ftruncate(&file, 4096).unwrap();
            let map = DmaMap {
                flags: MapFlags::ZERO.with_readable(true),
                offset: 0,
                address,
                size: 4096,
            };
            mappings.map(&map, vec![file]).map(|_| ())
        };
        map(0).unwrap();
        map(4096).unwrap();
        assert_eq!(map(8192).unwrap_err().errno, ENOMEM);
    }

    #[test]
    fn a_file_in_two_parts_is_one_mapping_until_both_are_gone() {
        let mut mappings = Mappings::new(Allowance {
            mappings: 1,
            ..Allowance::of_function(1, false)
        });
        let file = || {
            let file = rustix::fs::memfd_create("test", MemfdFlags::ALLOW_SEALING).unwrap();
            rustix::fs::ftruncate(&file, 8192).unwrap();
            file
        };
        let map = |mappings: &mut Mappings, file: &OwnedFd, offset: u64, address: u64| {
            let map = DmaMap {
                flags: MapFlags::ZERO.with_readable(true).with_writable(true),
                offset,
                address,
                size: 4096,
            };
            let made = mappings.map(&map, vec![file.try_clone().unwrap()]);
            made.map(|made| made.expect("reachable"))
        };
        let unmap = |mappings: &mut Mappings, address: u64| {
            let unmap = DmaUnmap {
                flags: UnmapFlags::ZERO,
                address,
                size: 4096,
            };
            mappings.unmap(&unmap).unwrap()
        };
        let (shared, other) = (file(), file());
        let upper = map(&mut mappings, &shared, 4096, 0x1_0000).unwrap();
        let lower = map(&mut mappings, &shared, 0, 0x2_0000).unwrap();
        assert_eq!((lower.range, upper.range), (0..4096, 4096..8192));
        // One mapping of the whole file serves both.
        assert!(upper.memory.fill(0, 1, 0xA5));
        assert_eq!(
            lower.memory.virtual_address(),
            upper.memory.virtual_address()
        );
        assert_eq!(unmap(&mut mappings, 0x2_0000), [(0x2_0000, 4096)]);
        let refused = map(&mut mappings, &other, 0, 0x3_0000).map(|_| ());
        assert_eq!(
            refused.unwrap_err().errno,
            ENOMEM,
            "the upper part is there"
        );
        assert_eq!(unmap(&mut mappings, 0x1_0000), [(0x1_0000, 4096)]);
        map(&mut mappings, &other, 0, 0x3_0000).unwrap();
    }

    #[test]
    fn one_descriptor_of_an_address_space_is_kept_for_all_its_mappings() {
        let mut options = OpenOptions::new();
        let space = options
            .read(true)
            .write(true)
            .open("/proc/self/mem")
            .unwrap();
        let again = || space.try_clone().unwrap();
        let mut mappings = Mappings::new(Allowance::of_function(1, false));
        let first = map(&mut mappings, 1, again()).unwrap();
        assert_eq!(map(&mut mappings, 2, again()).unwrap(), first);
        // One that can only be read does not serve mappings that are written, nor is it served.
        let readable = std::fs::File::open("/proc/self/mem").unwrap();
        assert_ne!(map(&mut mappings, 3, readable).unwrap(), first);
        let file = tempfile::tempfile().unwrap();
        assert!(map(&mut mappings, 4, file).is_err());
        assert!(map(&mut mappings, 4, again()).is_ok());
    }
}
