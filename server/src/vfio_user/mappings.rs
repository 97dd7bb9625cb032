//! The memory that a client has mapped.
//!
//! A file is mapped once, as a whole, for any number of parts that the client maps: a client with
//! its own IOMMU maps and unmaps single pages all the time.

use super::refusal::{EEXIST, EINVAL, ENOENT, ENOMEM, ENOSPC, ENOTSUP, EPERM, Refusal};
use ringside_bus::function::DmaAccess;
use ringside_bus::vfio_user::Capabilities;
use ringside_bus::vfio_user::message::{DmaMap, DmaUnmap};
use ringside_bus::{ForeignError, ForeignFile, Memory};
use rustix::fs::OFlags;
use std::collections::BTreeMap;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// Bytes of files that a client may have mapped: the server's address space is 2^47 bytes, for 64
/// clients and itself.
const MOST_FILE_BYTES: u64 = 1 << 40;

type Identity = (u64, u64);

struct File {
    identity: Identity,
    memory: Memory,
    uses: usize,
    /// bytes of all its mappings: a file that has grown is mapped again, and its former users keep theirs
    mapped_bytes: u64,
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
#[derive(Default)]
pub(super) struct Mappings {
    entries: BTreeMap<u64, Entry>,
    files: Vec<File>,
    /// the client's address space, which comes with each mapping of it: one descriptor is kept
    space: Option<(Space, Arc<OwnedFd>)>,
    trust: bool,
}

impl Mappings {
    pub(super) fn new(trust: bool) -> Self {
        Self {
            trust,
            ..Self::default()
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
        let file = ForeignFile::inspect(descriptor, self.trust).map_err(refuse_file)?;
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

    /// The descriptor that is kept of the same file, or this one from now on. A server holds far fewer
    /// descriptors than its clients register regions.
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
        let identity = file.identity;
        let is_same = |known: &File| known.identity == identity;
        let Some(place) = self.files.iter().position(is_same) else {
            self.check_budget(file.length)?;
            let memory = file.map().map_err(refuse_file)?;
            self.files.push(File {
                identity,
                memory: memory.clone(),
                uses: 1,
                mapped_bytes: memory.length() as u64,
            });
            return Ok(memory);
        };
        let mapped = self
            .files
            .get(place)
            .map_or(0, |known| known.memory.length() as u64);
        // the file may have grown since it was mapped
        let grown = if mapped < needed {
            self.check_budget(file.length)?;
            Some(file.map().map_err(refuse_file)?)
        } else {
            None
        };
        let Some(known) = self.files.get_mut(place) else {
            return Err(Refusal::new(ENOMEM, "a file that is gone"));
        };
        if let Some(grown) = grown {
            known.mapped_bytes += grown.length() as u64;
            known.memory = grown;
        }
        known.uses += 1;
        Ok(known.memory.clone())
    }

    /// Refuses a file that would take the address space of the server from others.
    fn check_budget(&self, length: u64) -> Result<(), Refusal> {
        let mapped = self.files.iter().map(|file| file.mapped_bytes);
        let all = mapped.fold(length, u64::saturating_add);
        if all <= MOST_FILE_BYTES {
            return Ok(());
        }
        let reason = format!(
            "files of {all} bytes in all are more than the {MOST_FILE_BYTES} that a client may map"
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
        ForeignError::Memory(_) => ENOMEM,
    };
    Refusal {
        errno,
        reason: error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringside_bus::vfio_user::message::MapFlags;
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
        let mut mappings = Mappings::new(false);
        let half = file(MOST_FILE_BYTES / 2);
        map(&mut mappings, 0, &half).unwrap();
        map(&mut mappings, 4096, &half).unwrap();
        let refused = map(&mut mappings, 8192, &file(MOST_FILE_BYTES / 2 + 4096)).unwrap_err();
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
        assert_eq!(again(MOST_FILE_BYTES / 2).unwrap_err().errno, ENOMEM);
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
        let mut mappings = Mappings::new(false);
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
