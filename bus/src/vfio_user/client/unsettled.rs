//! Requests for mappings whose answers did not arrive in time.
//!
//! The server may still perform them, after the client was told that they failed. Their outcome is
//! settled later, since the socket keeps the order: what the server answers next, it answers after
//! it has performed them, or never will.

use std::collections::BTreeSet;

/// The addresses of a mapping: the first one, and bytes.
pub(super) type Place = (u64, u64);

/// Requests without an answer. A mapping is undone before any other request for mappings is sent,
/// so there is one at most; those that end are at most as many as there were mappings.
#[derive(Debug, Default)]
pub(super) struct Unsettled {
    begun: Option<Place>,
    ended: BTreeSet<Place>,
}

impl Unsettled {
    /// The server may perform this mapping late.
    pub(super) const fn begin(&mut self, place: Place) {
        self.begun = Some(place);
    }

    /// The mapping that has to be undone, if there is one.
    pub(super) const fn begun(&self) -> Option<Place> {
        self.begun
    }

    /// The server has answered about the mapping that was to be undone: it is gone.
    pub(super) const fn undone(&mut self) {
        self.begun = None;
    }

    /// The server may end this mapping late.
    pub(super) fn end(&mut self, place: Place) {
        self.ended.insert(place);
    }

    /// The server has answered about a mapping. True if an earlier request to end it was without an
    /// answer, so that the server may have performed it since.
    pub(super) fn answered(&mut self, place: Place) -> bool {
        self.ended.remove(&place)
    }
}
