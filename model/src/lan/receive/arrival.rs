//! A frame on its way into a receive queue.

use crate::lan::frame::Headers;
use crate::lan::headers::{TAG_AT, TAG_BYTES};
use crate::lan::switching::TagReceived;

/// A frame on its way into a queue.
pub(in crate::lan) struct Arrival<'a> {
    /// Its bytes, without frame check sequence.
    pub(in crate::lan) frame: &'a [u8],
    /// The result of the parser.
    pub(in crate::lan) headers: &'a Headers,
    /// Its hash, if it was hashed.
    pub(in crate::lan) hash: Option<u32>,
    /// Number that a filter gave it.
    pub(in crate::lan) flow: Option<u32>,
    /// The action on its tag.
    pub(in crate::lan) tag: TagReceived,
    /// The VSI of the function that sent it.
    pub(in crate::lan) sender: Option<u16>,
    /// The PHY's time when it came, nanoseconds.
    pub(in crate::lan) stamp: Option<u64>,
}

/// The reason why a queue did not take a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::lan) enum NotTaken {
    /// There are not enough free descriptors.
    NoDescriptors,
    /// It is longer than the queue takes.
    TooLong,
    /// Ring or buffer are not in mapped memory.
    Fault,
}

impl<'a> Arrival<'a> {
    /// The two parts of a frame without its tag, and the tag if the descriptor shows it.
    pub(super) fn untagged(&self) -> ((&'a [u8], &'a [u8]), Option<u16>) {
        let frame = self.frame;
        let whole = (frame, frame.get(..0).unwrap_or_default());
        let Some((_, value)) = self.headers.parsed.tag else {
            return (whole, None);
        };
        let (Some(before), Some(after)) = (frame.get(..TAG_AT), frame.get(TAG_AT + TAG_BYTES..))
        else {
            return (whole, None);
        };
        match self.tag {
            TagReceived::Kept => (whole, None),
            TagReceived::Removed => ((before, after), None),
            TagReceived::Shown => ((before, after), Some(value)),
        }
    }
}
