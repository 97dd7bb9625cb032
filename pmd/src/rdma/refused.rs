//! Regions and windows that the device refused to destroy, and whose owners have dropped them.
//!
//! The device refuses to free a region while a window is bound to it. The region stays as it is:
//! its number, its memory and its entry of the table stay in use, and peers still have access
//! through the window. The driver destroys it once the device agrees. It asks again when a window
//! or a queue pair is gone, from time to time when events are taken, and at the shutdown.

use super::RdmaError;
use super::kept::Kept;
use super::lifecycle::{By, Destroyed};
use super::objects::Object;
use super::records::RegionRecord;
use super::session::Session;
use ringside_bus::{DmaBuffer, Instant};
use std::time::Duration;

/// The interval at which events that are taken make the driver ask again: a window may have been
/// closed by a request, which the driver does not see.
const PERIOD: Duration = Duration::from_millis(100);

impl Session<'_> {
    /// Keeps a region or window whose destruction the device refused, with its memory.
    pub(crate) fn keep_refused(
        &mut self,
        number: u32,
        buffers: Vec<DmaBuffer>,
        reason: &RdmaError,
    ) {
        let bytes: usize = buffers.iter().map(DmaBuffer::length).sum();
        let kept = Kept::new(RegionRecord::NAME, number, bytes, buffers, reason);
        tracing::warn!(number, bytes, %reason, "a region is kept until a window is closed");
        self.withheld.refused.push(kept);
    }

    /// Destroys what the device refused to destroy before. What it refuses again is kept.
    pub(crate) fn destroy_refused(&mut self) {
        // Taken out first: while a command is under way another thread may do the same.
        for Kept { entry, buffers } in std::mem::take(&mut self.withheld.refused) {
            match self.destroy::<RegionRecord>(entry.number, By::Owner) {
                Destroyed::Gone(_) => drop(buffers),
                Destroyed::Refused(_) => self.withheld.refused.push(Kept { entry, buffers }),
                Destroyed::DeviceFailed { .. } => self.free_after_reset(buffers),
                Destroyed::Unconfirmed(error) => {
                    self.set_memory_apart(entry.what, entry.number, buffers, &error);
                }
            }
        }
    }

    /// The same if there is something to destroy, and the last attempt is long ago.
    pub(crate) fn destroy_refused_at(&mut self, now: Instant) {
        let withheld = &mut self.withheld;
        if withheld.refused.is_empty() || withheld.next_attempt.is_some_and(|next| now < next) {
            return;
        }
        withheld.next_attempt = Some(now.plus(PERIOD));
        self.destroy_refused();
    }
}
