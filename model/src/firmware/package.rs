//! The package (DDP): loaded already, or taken buffer by buffer.

use super::command::{Command, Outcome};
use crate::chip::Context;
use crate::chip::Profiles;
use crate::faults::Fault;
use ringside_spec::lan::Parameters;
use ringside_spec::lan::admin::ReturnCode;
use ringside_spec::lan::admin::package::{
    DownloadAnswer, DownloadPackage, LAST_BUFFER, PackageInfo, PackageInfoList,
};
use ringside_spec::lan::package::{
    BUFFER_BYTES, BufferHeader, MAX_SECTIONS, MetadataSection, NOT_DOWNLOADED, PackageVersion,
    SECTION_OFFSET_MIN, SUPPORTED_VERSION, SectionEntry, section,
};

/// Name and version of the package that the device comes with.
const DEFAULT_NAME: &[u8] = b"ICE OS Default Package";
const DEFAULT_VERSION: PackageVersion = PackageVersion {
    major: 1,
    minor: 3,
    update: 43,
    draft: 0,
};
/// As Intel's packages for operating systems have it. Source: their metadata.
const DEFAULT_TRACK_ID: u32 = 0xC000_0001;

/// Progress of the download.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum State {
    /// The state of a new device.
    #[default]
    Default,
    /// Gone with a core reset.
    Lost,
    /// Buffers are being downloaded.
    Loading {
        /// The metadata found so far.
        metadata: Option<MetadataSection>,
        /// The last buffer was signed or of an unsigned package, and not the last of its range.
        in_range: bool,
    },
    /// Complete.
    Loaded(MetadataSection),
}

/// The package of a device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Package {
    state: State,
    /// Its tables, as the download left them.
    downloaded: Profiles,
    /// Its tables, with the drivers' later changes.
    profiles: Profiles,
}

impl Package {
    /// A core or stronger reset took it.
    pub(super) fn lose(&mut self) {
        *self = Self {
            state: State::Lost,
            ..Self::default()
        };
    }

    /// The tables that turn packets into keys.
    pub(super) const fn profiles(&self) -> &Profiles {
        &self.profiles
    }

    /// The same, to give rows back.
    pub(super) const fn profiles_mut(&mut self) -> &mut Profiles {
        &mut self.profiles
    }

    /// Undoes the changes of drivers, when the configuration of the function is cleared.
    pub(super) fn forget_changes(&mut self) {
        self.profiles.clone_from(&self.downloaded);
    }

    /// The active package, if there is one.
    fn active(&self, faults: &[Fault]) -> Option<MetadataSection> {
        match &self.state {
            State::Loaded(metadata) => Some(*metadata),
            State::Default if !faults.contains(&Fault::NoPackageLoaded) => {
                let mut name = [0; 28];
                for (place, byte) in name.iter_mut().zip(DEFAULT_NAME) {
                    *place = *byte;
                }
                Some(MetadataSection {
                    version: DEFAULT_VERSION,
                    name,
                    track_id: DEFAULT_TRACK_ID.into(),
                })
            }
            State::Default | State::Lost | State::Loading { .. } => None,
        }
    }

    /// True if the active package is that of the flash: the drivers' is yet to be downloaded.
    fn is_of_flash(&self, faults: &[Fault]) -> bool {
        self.state == State::Default && faults.contains(&Fault::FlashPackageOnly)
    }

    /// True if the work that the global lock protects is done.
    pub(super) fn complete(&self, faults: &[Fault]) -> bool {
        self.active(faults).is_some() && !self.is_of_flash(faults)
    }

    pub(super) fn info(&self, command: &mut Command, faults: &[Fault]) -> Outcome {
        let active = self.active(faults);
        let count = u32::from(active.is_some());
        command.put(
            0,
            &PackageInfoList {
                count: count.into(),
            },
        )?;
        let mut length = PackageInfoList::SIZE;
        if let Some(metadata) = active {
            let info = PackageInfo {
                version: metadata.version,
                name: metadata.name,
                track_id: metadata.track_id,
                in_nvm: u8::from(self.is_of_flash(faults)),
                active: 1,
                active_at_boot: u8::from(self.is_of_flash(faults)),
                modified: 0,
            };
            command.put(length, &info)?;
            length += PackageInfo::SIZE;
        }
        let parameters = command.descriptor.parameters;
        Ok(super::command::Answer { parameters, length })
    }

    /// One buffer of a download. `locked`: the driver holds the global configuration lock.
    pub(super) fn download(
        &mut self,
        command: &Command,
        locked: bool,
        context: &mut Context<'_>,
    ) -> Outcome {
        let asked: DownloadPackage = command.parameters();
        if !locked {
            context.ledger.breach(
                "package download without the global configuration lock",
                String::new,
            );
            return Err(ReturnCode::NotPermitted);
        }
        if command.buffer.len() != BUFFER_BYTES {
            context
                .ledger
                .breach("package buffer of another size than 4096 bytes", || {
                    format!("{} bytes", command.buffer.len())
                });
            return Err(ReturnCode::Invalid);
        }
        let sections = check_buffer(command)?;
        let found = self.begin_or_go_on(command, &sections, context)?;
        apply(&mut self.downloaded, command, &sections)?;
        self.profiles.clone_from(&self.downloaded);
        self.state = match found {
            Some(metadata) if asked.flags & LAST_BUFFER != 0 => State::Loaded(metadata),
            None if asked.flags & LAST_BUFFER != 0 => {
                context
                    .ledger
                    .breach("package download without its metadata", String::new);
                self.lose();
                return Err(ReturnCode::BadManifest);
            }
            metadata => State::Loading {
                metadata,
                in_range: !is_signature(&sections),
            },
        };
        let answer = DownloadAnswer::from_raw(asked.to_raw());
        command.answer(&DownloadAnswer {
            error_offset: 0.into(),
            error_info: 0.into(),
            ..answer
        })
    }

    /// The package as known with this buffer; an error if the buffer is out of order.
    ///
    /// A signed package sends the buffers of its signature first, and then its metadata. It may
    /// have more signatures, each followed by a range of buffers with a last one of its own.
    /// Source: ice `ice_ddp.c`, `ice_dwnld_sign_and_cfg_segs`.
    fn begin_or_go_on(
        &self,
        command: &Command,
        sections: &[SectionEntry],
        context: &mut Context<'_>,
    ) -> Result<Option<MetadataSection>, ReturnCode> {
        let first = sections.first().map_or(0, |entry| entry.kind.get());
        let before = match &self.state {
            State::Default | State::Lost => {
                if first != section::METADATA && !section::SIGNATURES.contains(&first) {
                    context.ledger.breach(
                        "package download that does not begin with its metadata or signature",
                        || format!("section {first}"),
                    );
                    return Err(ReturnCode::Invalid);
                }
                None
            }
            State::Loaded(metadata) if is_signature(sections) => Some(*metadata),
            State::Loaded(_) if first & NOT_DOWNLOADED == 0 => {
                context
                    .ledger
                    .breach("package buffer after the last", String::new);
                return Err(ReturnCode::Exists);
            }
            State::Loading { in_range: true, .. } if is_signature(sections) => {
                context.ledger.breach(
                    "package signature before the last buffer of the former range",
                    String::new,
                );
                return Err(ReturnCode::BadManifest);
            }
            State::Loading { metadata, .. } => *metadata,
            State::Loaded(metadata) => Some(*metadata),
        };
        let metadata = sections
            .iter()
            .find(|entry| entry.kind.get() == section::METADATA);
        let Some(entry) = metadata else {
            return Ok(before);
        };
        let metadata: MetadataSection = command.item(entry.offset.get().into())?;
        if (metadata.version.major, metadata.version.minor) != SUPPORTED_VERSION {
            return Err(ReturnCode::SecurityVersion);
        }
        Ok(Some(metadata))
    }

    /// Reads sections back: the driver's buffer names them, and the entries of each.
    ///
    /// Drivers ask for one of the parser's memory, to learn if the package can do double VLAN mode.
    /// That of the model stays as it was asked for, without a bit: it cannot. Source: ice
    /// `ice_vlan_mode.c`, `ice_pkg_get_supported_vlan_mode`.
    pub(super) fn upload(&self, command: &mut Command, context: &mut Context<'_>) -> Outcome {
        for entry in check_buffer(command)? {
            let kind = entry.kind.get();
            let start = usize::from(entry.offset.get());
            let end = start + usize::from(entry.size_bytes.get());
            let bytes = command.buffer.get_mut(start..end);
            let found = self
                .profiles
                .fill(kind, bytes.ok_or(ReturnCode::BadBuffer)?)?;
            if !found && kind != section::METADATA_INIT {
                let remark = "package section that the model does not hold";
                context.ledger.remark(remark, || format!("section {kind}"));
                return Err(ReturnCode::NotImplemented);
            }
        }
        command.done()
    }

    /// A change of tables while the package is active. `locked`: the driver holds the change lock.
    pub(super) fn update(
        &mut self,
        command: &Command,
        locked: bool,
        context: &mut Context<'_>,
    ) -> Outcome {
        if !locked {
            context
                .ledger
                .breach("package update without the change lock", String::new);
            return Err(ReturnCode::NotPermitted);
        }
        let sections = check_buffer(command)?;
        let header: BufferHeader = command.item(0)?;
        if command.buffer.len() != usize::from(header.data_end.get()) {
            context
                .ledger
                .breach("package update longer or shorter than its data", || {
                    format!("{} bytes", command.buffer.len())
                });
            return Err(ReturnCode::BadBuffer);
        }
        // All or nothing.
        let mut changed = self.profiles.clone();
        apply(&mut changed, command, &sections)?;
        self.profiles = changed;
        command.done()
    }
}

/// True for a buffer of a signature.
fn is_signature(sections: &[SectionEntry]) -> bool {
    let first = sections.first().map_or(0, |entry| entry.kind.get());
    section::SIGNATURES.contains(&first)
}

/// Takes over the sections of a buffer that are tables.
fn apply(
    profiles: &mut Profiles,
    command: &Command,
    sections: &[SectionEntry],
) -> Result<(), ReturnCode> {
    for entry in sections {
        let start = usize::from(entry.offset.get());
        let end = start + usize::from(entry.size_bytes.get());
        let bytes = command.buffer.get(start..end);
        profiles.apply(entry.kind.get(), bytes.ok_or(ReturnCode::BadBuffer)?)?;
    }
    Ok(())
}

/// Checks the head of a buffer and of its sections; the sections, at least one.
fn check_buffer(command: &Command) -> Result<Vec<SectionEntry>, ReturnCode> {
    let header: BufferHeader = command.item(0)?;
    let (count, end) = (
        header.section_count.get(),
        usize::from(header.data_end.get()),
    );
    let fits = (usize::from(SECTION_OFFSET_MIN)..=command.buffer.len()).contains(&end);
    if count == 0 || count > MAX_SECTIONS || !fits {
        return Err(ReturnCode::BadBuffer);
    }
    let mut sections = Vec::with_capacity(count.into());
    for index in 0..usize::from(count) {
        let entry: SectionEntry = command.item(BufferHeader::SIZE + index * SectionEntry::SIZE)?;
        let last = usize::from(entry.offset.get()) + usize::from(entry.size_bytes.get());
        if entry.offset.get() < SECTION_OFFSET_MIN || last > end {
            return Err(ReturnCode::BadBuffer);
        }
        sections.push(entry);
    }
    Ok(sections)
}
