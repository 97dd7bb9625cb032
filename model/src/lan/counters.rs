//! Counters of the LAN engine.

use super::numbered::Numbered;
use crate::chip::Traffic;

/// Counters of one VSI.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct VsiCounters {
    /// Frames that the switch gave it, with frame check sequence.
    pub(crate) received: Traffic,
    /// Frames that it sent, without frame check sequence.
    pub(crate) sent: Traffic,
    /// Frames for which there was no descriptor.
    pub(crate) dropped: u64,
    /// Frames that its queues could not take.
    pub(crate) receive_errors: u64,
    /// Frames from the host that could not be sent or were not allowed to be.
    pub(crate) transmit_errors: u64,
}

/// All counters of a function's LAN engine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LanCounters {
    /// Received from the wire; bytes include the frame check sequence.
    pub(crate) received: Traffic,
    /// Sent to the wire; bytes include the frame check sequence.
    pub(crate) sent: Traffic,
    /// Frames that were to be sent while the link was down.
    pub(crate) sent_link_down: u64,
    /// Frames from the wire that were too short.
    pub(crate) undersize: u64,
    /// Frames from the wire that were too long.
    pub(crate) oversize: u64,
    vsis: Numbered<VsiCounters>,
}

impl LanCounters {
    /// The counters of a VSI.
    #[inline]
    pub(crate) fn vsi(&mut self, number: u16) -> &mut VsiCounters {
        self.vsis.entry(number)
    }

    /// The counters of a VSI, if it has counted anything.
    pub(crate) fn of_vsi(&self, number: u16) -> Option<&VsiCounters> {
        self.vsis.get(number)
    }
}
