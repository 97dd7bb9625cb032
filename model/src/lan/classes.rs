//! Traffic classes of received frames.

use super::headers::{Dscp, Parsed};

/// Traffic classes that a port may have.
pub(crate) const CLASSES: usize = 8;

/// Values of the DSCP.
pub(crate) const DSCPS: usize = 64;

/// The field of a frame that chooses its class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum FrameClasses {
    /// None: all frames are in class 0.
    #[default]
    One,
    /// The priority in the first tag; that of a frame without a tag is 0.
    Priority([u8; CLASSES]),
    /// The DSCP. Frames without one are in class 0.
    Dscp {
        /// The class of each DSCP of IPv4.
        v4: [u8; DSCPS],
        /// The class of each DSCP of IPv6.
        v6: [u8; DSCPS],
    },
}

impl FrameClasses {
    /// The class of a frame. `overlooks_tag`: the first tag counts as payload.
    #[inline]
    pub(super) fn of_frame(&self, frame: &[u8], parsed: &Parsed, overlooks_tag: bool) -> usize {
        let class = match self {
            Self::One => return 0,
            Self::Priority(classes) => {
                let tag = parsed.tag.filter(|_| !overlooks_tag);
                let priority = tag.map_or(0, |(_, value)| value >> 13);
                classes.get(usize::from(priority))
            }
            Self::Dscp { v4, v6 } => match parsed.dscp(frame) {
                Some(Dscp::V4(value)) => v4.get(usize::from(value)),
                Some(Dscp::V6(value)) => v6.get(usize::from(value)),
                None => None,
            },
        };
        class.copied().unwrap_or(0).into()
    }
}

/// The queues of a class, a power of two.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ClassQueues {
    /// The first one, counted from the first of the VSI.
    pub(crate) first: u16,
    /// Their number less one.
    pub(crate) mask: u16,
}
