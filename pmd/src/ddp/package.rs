//! Parsing and checking a package file. Nothing in it is trusted.

use ringside_spec::lan::package::section::block;
use ringside_spec::lan::package::{
    BUFFER_BYTES, BufferHeader, DeviceSegment, FORMAT_VERSION, MAX_SECTION_BYTES, MAX_SECTIONS,
    MetadataSection, NOT_DOWNLOADED, PackageHeader, PacketGroupSection, SECTION_OFFSET_MIN,
    SUPPORTED_VERSION, SectionEntry, SegmentHeader, SigningSegment, section, segment, signature,
};
use std::collections::BTreeMap;
use std::ops::Range;
use zerocopy::FromBytes;

/// Segments of a file at most.
const MAX_SEGMENTS: u32 = 64;
/// Size of an entry of the segment's device table.
const DEVICE_ENTRY_BYTES: usize = 8;

/// The reason why a file is no package for this device.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PackageError {
    /// The file ends within a structure.
    #[error(
        "the package is cut short: {what} at byte {at} reaches beyond its {size} bytes; fetch the file again"
    )]
    CutShort {
        /// The range to read.
        what: &'static str,
        /// Offset in the file, bytes.
        at: usize,
        /// Bytes of the file.
        size: usize,
    },
    /// A number that the format does not allow.
    #[error(
        "the package is malformed: {what} is {value}, allowed is {allowed}; fetch the file again"
    )]
    Malformed {
        /// The number.
        what: &'static str,
        /// Its value.
        value: u64,
        /// Its permitted values.
        allowed: &'static str,
    },
    /// The file has no segment for the E810, or that has no metadata.
    #[error(
        "the package has no {what}; it is for another device: install the one of the E810 (ice.pkg)"
    )]
    Missing {
        /// The missing part.
        what: &'static str,
    },
    /// A version that this driver does not support.
    #[error("the package has version {}.{}, this driver takes 1.3; install a package of that version", version[0], version[1])]
    Version {
        /// Major, minor, update, draft.
        version: [u8; 4],
    },
}

/// A package that was checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Package {
    bytes: Vec<u8>,
    downloads: Vec<Download>,
    /// Version: major, minor, update, draft.
    pub version: [u8; 4],
    /// Version of the E810 segment's format.
    pub segment_format: [u8; 4],
    /// Name.
    pub name: String,
    /// Tracking id.
    pub track_id: u32,
}

/// A buffer to download.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Download {
    range: Range<usize>,
    /// the last of the buffers that one signature covers, or of a package without signatures
    is_last: bool,
}

/// A segment and where its parts are.
struct Segment {
    at: usize,
    header: SegmentHeader,
}

impl Package {
    /// Parses a whole file and checks every count, offset and size in it.
    pub fn parse(bytes: Vec<u8>) -> Result<Self, PackageError> {
        let file = File(&bytes);
        let segments = file.segments()?;
        let ours = segments
            .iter()
            .find(|one| one.header.kind.get() == segment::E810)
            .ok_or(PackageError::Missing {
                what: "segment for the E810",
            })?;
        let buffers = file.device_buffers(ours)?;
        for buffer in &buffers {
            file.check_buffer(buffer.start)?;
        }
        let metadata = file.metadata(&buffers)?;
        let version: [u8; 4] = zerocopy::transmute!(metadata.version);
        if (version[0], version[1]) != SUPPORTED_VERSION {
            return Err(PackageError::Version { version });
        }
        let downloads = file.downloads(&segments, &buffers)?;
        Ok(Self {
            version,
            segment_format: zerocopy::transmute!(ours.header.format),
            name: text(&metadata.name),
            track_id: metadata.track_id.get(),
            downloads,
            bytes,
        })
    }

    /// The buffers to download, 4096 bytes each, in order. None: nothing is to be downloaded, and
    /// that counts as success.
    pub fn downloads(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        self.marked_downloads().map(|(buffer, _)| buffer)
    }

    /// The same, each with the mark of the last buffer: of those that one signature covers, or of a
    /// package without signatures. Buffers of signatures have none.
    ///
    /// Source: ice `ice_ddp.c`, `ice_dwnld_cfg_bufs_no_lock`, `ice_download_pkg_sig_seg`.
    pub fn marked_downloads(&self) -> impl ExactSizeIterator<Item = (&[u8], bool)> {
        let all = &self.bytes;
        self.downloads.iter().map(|one| {
            let buffer = all.get(one.range.clone()).unwrap_or_default();
            (buffer, one.is_last)
        })
    }
}

impl Package {
    /// Group of each packet type in the hash's tables: section 42. Truncated sections are ignored.
    #[must_use]
    pub fn hash_groups(&self) -> BTreeMap<u16, u8> {
        self.groups(section::HASH)
    }

    /// The same in the flow director's tables: section 32.
    #[must_use]
    pub fn filter_groups(&self) -> BTreeMap<u16, u8> {
        self.groups(section::FLOW_DIRECTOR)
    }

    fn groups(&self, block_first: u32) -> BTreeMap<u16, u8> {
        let mut groups = BTreeMap::new();
        for buffer in self.downloads() {
            let Ok((head, mut rest)) = BufferHeader::read_from_prefix(buffer) else {
                continue;
            };
            for _ in 0..head.section_count.get() {
                let Ok((entry, after)) = SectionEntry::read_from_prefix(rest) else {
                    break;
                };
                rest = after;
                if entry.kind.get() == block_first + block::PACKET_GROUPS {
                    let body = buffer.get(usize::from(entry.offset.get())..);
                    groups.extend(groups_of(body.unwrap_or_default()));
                }
            }
        }
        groups
    }
}

/// The packet types of a section of groups.
fn groups_of(section: &[u8]) -> Vec<(u16, u8)> {
    let Ok((head, groups)) = PacketGroupSection::read_from_prefix(section) else {
        return Vec::new();
    };
    let numbered = (head.first.get()..=u16::MAX).zip(groups);
    numbered
        .take(head.count.get().into())
        .map(|(packet_type, group)| (packet_type, *group))
        .collect()
}

/// Text of a name padded with zeros.
fn text(bytes: &[u8]) -> String {
    let used = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(used).into_owned()
}

struct File<'a>(&'a [u8]);

impl File<'_> {
    fn read<T: FromBytes>(&self, what: &'static str, at: usize) -> Result<T, PackageError> {
        let rest = self.0.get(at..);
        rest.and_then(|rest| T::read_from_prefix(rest).ok())
            .map(|(value, _)| value)
            .ok_or(PackageError::CutShort {
                what,
                at,
                size: self.0.len(),
            })
    }

    fn read_u32(&self, what: &'static str, at: usize) -> Result<u32, PackageError> {
        self.read::<[u8; 4]>(what, at).map(u32::from_le_bytes)
    }

    fn segments(&self) -> Result<Vec<Segment>, PackageError> {
        let header: PackageHeader = self.read("the header", 0)?;
        let format: [u8; 4] = zerocopy::transmute!(header.format);
        if format != FORMAT_VERSION {
            return Err(PackageError::Malformed {
                what: "the format's version",
                value: u32::from_be_bytes(format).into(),
                allowed: "1.0.0.0",
            });
        }
        let count = header.segment_count.get();
        if count == 0 || count > MAX_SEGMENTS {
            return Err(PackageError::Malformed {
                what: "the number of segments",
                value: count.into(),
                allowed: "1 to 64",
            });
        }
        (0..count as usize)
            .map(|index| self.segment(PackageHeader::SIZE + index * 4))
            .collect()
    }

    fn segment(&self, offset_at: usize) -> Result<Segment, PackageError> {
        let at = self.read_u32("the offset of a segment", offset_at)? as usize;
        let header: SegmentHeader = self.read("a segment", at)?;
        let size = header.size_bytes.get() as usize;
        if size < SegmentHeader::SIZE {
            return Err(PackageError::Malformed {
                what: "the size of a segment",
                value: size as u64,
                allowed: "44 or more",
            });
        }
        if at.checked_add(size).is_none_or(|end| end > self.0.len()) {
            return Err(PackageError::CutShort {
                what: "a segment",
                at,
                size: self.0.len(),
            });
        }
        Ok(Segment { at, header })
    }

    /// `count` buffers from `at`, all inside `segment`.
    fn buffers(
        &self,
        of: &Segment,
        at: usize,
        count: u32,
    ) -> Result<Vec<Range<usize>>, PackageError> {
        let end = of.at + of.header.size_bytes.get() as usize;
        let bytes = u64::from(count) * BUFFER_BYTES as u64;
        if at as u64 + bytes > end as u64 {
            return Err(PackageError::CutShort {
                what: "the buffers of a segment",
                at,
                size: end,
            });
        }
        let one = |index: usize| {
            let start = at + index * BUFFER_BYTES;
            start..start + BUFFER_BYTES
        };
        Ok((0..count as usize).map(one).collect())
    }

    /// The buffers of the E810's segment: after the device table and the table of NVM versions.
    fn device_buffers(&self, ours: &Segment) -> Result<Vec<Range<usize>>, PackageError> {
        let head: DeviceSegment = self.read("the E810's segment", ours.at)?;
        let skip = |at: usize, count: u32, size: usize, what| {
            (count as usize)
                .checked_mul(size)
                .and_then(|bytes| at.checked_add(bytes))
                .filter(|end| *end <= self.0.len())
                .ok_or(PackageError::CutShort {
                    what,
                    at,
                    size: self.0.len(),
                })
        };
        let at = skip(
            ours.at + DeviceSegment::SIZE,
            head.device_count.get(),
            DEVICE_ENTRY_BYTES,
            "the table of devices",
        )?;
        let versions = self.read_u32("the number of NVM versions", at)?;
        let at = skip(at + 4, versions, 4, "the table of NVM versions")?;
        let count = self.read_u32("the number of buffers", at)?;
        self.buffers(ours, at + 4, count)
    }

    fn check_buffer(&self, at: usize) -> Result<(), PackageError> {
        let head: BufferHeader = self.read("a buffer", at)?;
        let (sections, end) = (head.section_count.get(), head.data_end.get());
        if !(1..=MAX_SECTIONS).contains(&sections) {
            return Err(PackageError::Malformed {
                what: "the number of sections of a buffer",
                value: sections.into(),
                allowed: "1 to 511",
            });
        }
        if !(usize::from(SECTION_OFFSET_MIN)..=BUFFER_BYTES).contains(&end.into()) {
            return Err(PackageError::Malformed {
                what: "the end of a buffer's data",
                value: end.into(),
                allowed: "12 to 4096",
            });
        }
        (0..usize::from(sections)).try_for_each(|index| self.check_section(at, index))
    }

    fn check_section(&self, buffer: usize, index: usize) -> Result<(), PackageError> {
        let entry = self.section(buffer, index)?;
        let (offset, size) = (entry.offset.get(), entry.size_bytes.get());
        let inside = usize::from(offset) + usize::from(size) <= BUFFER_BYTES;
        if offset < SECTION_OFFSET_MIN || !inside {
            return Err(PackageError::Malformed {
                what: "the offset of a section",
                value: offset.into(),
                allowed: "12 to 4095, with the section inside its buffer",
            });
        }
        if !(1..=MAX_SECTION_BYTES).contains(&size) {
            return Err(PackageError::Malformed {
                what: "the size of a section",
                value: size.into(),
                allowed: "1 to 4084",
            });
        }
        Ok(())
    }

    fn section(&self, buffer: usize, index: usize) -> Result<SectionEntry, PackageError> {
        let at = buffer + BufferHeader::SIZE + index * SectionEntry::SIZE;
        self.read("a section entry", at)
    }

    /// The first section of metadata in any buffer.
    fn metadata(&self, buffers: &[Range<usize>]) -> Result<MetadataSection, PackageError> {
        for buffer in buffers {
            let head: BufferHeader = self.read("a buffer", buffer.start)?;
            for index in 0..usize::from(head.section_count.get()) {
                let entry = self.section(buffer.start, index)?;
                let fits = usize::from(entry.size_bytes.get()) >= MetadataSection::SIZE;
                if entry.kind.get() == section::METADATA && fits {
                    let at = buffer.start + usize::from(entry.offset.get());
                    return self.read("the metadata", at);
                }
            }
        }
        Err(PackageError::Missing { what: "metadata" })
    }

    /// Buffers in the order of the download. Where there are signing segments, those that sign the
    /// E810's segment come first, each followed by the buffers that it signs.
    fn downloads(
        &self,
        segments: &[Segment],
        buffers: &[Range<usize>],
    ) -> Result<Vec<Download>, PackageError> {
        let is_signing = |one: &&Segment| one.header.kind.get() == segment::SIGNING;
        if !segments.iter().any(|one| is_signing(&one)) {
            return Ok(with_last(self.until_metadata(buffers)?));
        }
        let mut downloads = Vec::new();
        for signing in segments.iter().filter(is_signing) {
            let head: SigningSegment = self.read("a signing segment", signing.at)?;
            let ours = head.signed_kind.get() == segment::E810
                && head.signature.get() == signature::RSA_2K;
            if !ours {
                continue;
            }
            let at = signing.at + SigningSegment::SIZE;
            let own = self.buffers(signing, at, head.buffer_count.get())?;
            for buffer in &own {
                self.check_buffer(buffer.start)?;
            }
            let signature = self.until_metadata(&own)?;
            downloads.extend(signature.into_iter().map(|range| Download {
                range,
                is_last: false,
            }));
            let first = head.first_buffer.get() as usize;
            let signed = first
                .checked_add(head.signed_count.get() as usize)
                .and_then(|end| buffers.get(first..end));
            let signed = signed.ok_or(PackageError::Malformed {
                what: "the number of signed buffers",
                value: head.signed_count.get().into(),
                allowed: "those of the signed segment",
            })?;
            downloads.extend(with_last(self.until_metadata(signed)?));
        }
        if downloads.is_empty() {
            return Err(PackageError::Missing {
                what: "signature for the E810",
            });
        }
        Ok(downloads)
    }

    /// The buffers before the first one that begins with a section that is not downloaded.
    fn until_metadata(&self, buffers: &[Range<usize>]) -> Result<Vec<Range<usize>>, PackageError> {
        let mut downloads = Vec::new();
        for buffer in buffers {
            let first = self.section(buffer.start, 0)?;
            if first.kind.get() & NOT_DOWNLOADED != 0 {
                break;
            }
            downloads.push(buffer.clone());
        }
        Ok(downloads)
    }
}

/// Buffers of which the last one has the mark.
fn with_last(ranges: Vec<Range<usize>>) -> Vec<Download> {
    let count = ranges.len();
    let numbered = (1..).zip(ranges);
    numbered
        .map(|(number, range)| Download {
            range,
            is_last: number == count,
        })
        .collect()
}

#[cfg(test)]
mod tests;
