//! Profiles of the packet pipeline: their resources, and changes of the package's tables.

use super::plain;
use crate::admin::change_lock::Turn;
use crate::admin::{AdminError, AdminQueue, Data};
use ringside_bus::{Deadline, Instant};
use ringside_spec::lan::admin::generic::{lock_timeout_ms, resource};
use ringside_spec::lan::admin::package::{DownloadPackage, LAST_BUFFER};
use ringside_spec::lan::admin::switch::Resource;
use ringside_spec::lan::admin::{Opcode, ReturnCode};
use ringside_spec::lan::package::{BufferHeader, SECTION_OFFSET_MIN, SectionEntry};
use std::time::Duration;
use zerocopy::IntoBytes;

/// The firmware's limit for one holder of the change lock.
const CHANGE_LOCK_MS: u32 = lock_timeout_ms::CHANGE_LOCK;
/// The time between two requests for the lock.
const LOCK_PAUSE: Duration = Duration::from_millis(10);

/// Bytes of a section of an update of the tables.
pub(crate) struct Section {
    /// See [`ringside_spec::lan::package::section`].
    pub(crate) kind: u32,
    pub(crate) bytes: Vec<u8>,
}

impl AdminQueue {
    /// Allocates one profile or one row of a match memory (0x0208); returns its number. A row is
    /// searched for from the end: rows at the beginning are for those that match flags.
    /// Source: ice `ice_flex_pipe.c`, `ice_alloc_prof_id`, `ice_alloc_tcam_ent`.
    pub(crate) fn allocate_table_entry(&self, resource: Resource) -> Result<u16, AdminError> {
        let is_row = matches!(resource, Resource::HashTcam | Resource::FlowDirectorTcam);
        let kind = plain(resource)
            .with_ignore_index(true)
            .with_scan_bottom(is_row);
        self.allocate_resource(kind, 1)
    }

    /// Changes the tables that the package filled (0x0C42): all sections at once, under the change
    /// lock, which other functions may hold for a while. Threads of this function take turns.
    ///
    /// A lock that the firmware does not take back is released before the next change.
    pub(crate) fn update_tables(&self, sections: &[Section]) -> Result<(), AdminError> {
        let mut turn = self.change_lock.turn();
        self.release_former(&mut turn)?;
        let until = self.take_change_lock()?;
        let updated = self.send_update(sections);
        if let Err(error) = self.release_resource(resource::CHANGE_LOCK) {
            tracing::warn!(%error, "the change lock stays with this function for the time being");
            turn.held_until = Some(until);
        }
        updated
    }

    /// Releases the lock of an earlier change, unless the firmware has ended its grant by now.
    fn release_former(&self, turn: &mut Turn) -> Result<(), AdminError> {
        let now = self.registers().clock().now();
        if turn.held_until.is_some_and(|until| now < until) {
            self.release_resource(resource::CHANGE_LOCK)?;
        }
        turn.held_until = None;
        Ok(())
    }

    /// Waits for the change lock as long as the firmware grants it to one holder. Returns the end
    /// of the grant.
    fn take_change_lock(&self) -> Result<Instant, AdminError> {
        let clock = self.registers().clock();
        let limit = Duration::from_millis(CHANGE_LOCK_MS.into());
        let deadline = Deadline::after(&**clock, limit);
        loop {
            let last = deadline.passed(&**clock);
            if self.request_resource(resource::CHANGE_LOCK, CHANGE_LOCK_MS)? {
                return Ok(clock.now().plus(limit));
            }
            if last {
                return Err(AdminError::Refused {
                    opcode: Opcode::RequestResource,
                    code: ReturnCode::Busy,
                });
            }
            crate::admin::pause(&**clock, LOCK_PAUSE);
        }
    }

    fn send_update(&self, sections: &[Section]) -> Result<(), AdminError> {
        let parameters = DownloadPackage {
            flags: LAST_BUFFER,
            ..DownloadPackage::zeroed()
        };
        let buffer = buffer_of(sections);
        self.execute(Opcode::UpdatePackage, &parameters, Data::Send(&buffer))?;
        Ok(())
    }
}

/// The buffer of an update, no longer than its data. Source: ice `ice_pkg_buf_alloc`,
/// `ice_pkg_buf_alloc_section`.
fn buffer_of(sections: &[Section]) -> Vec<u8> {
    let head_bytes = BufferHeader::SIZE + sections.len() * SectionEntry::SIZE;
    let mut at = head_bytes.max(SECTION_OFFSET_MIN.into());
    let mut entries = Vec::new();
    let mut bodies = vec![0; at - head_bytes];
    for section in sections {
        // Sections begin at multiples of four bytes.
        let padding = at.next_multiple_of(4) - at;
        bodies.resize(bodies.len() + padding, 0);
        at += padding;
        let entry = SectionEntry {
            kind: section.kind.into(),
            offset: (at as u16).into(),
            size_bytes: (section.bytes.len() as u16).into(),
        };
        entries.extend_from_slice(entry.as_bytes());
        bodies.extend_from_slice(&section.bytes);
        at += section.bytes.len();
    }
    let head = BufferHeader {
        section_count: (sections.len() as u16).into(),
        data_end: (at as u16).into(),
    };
    [head.as_bytes(), &entries, &bodies].concat()
}
