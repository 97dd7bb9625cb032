//! VSIs: the port's own, and further ones with queues, filters and spreading of their own.

use super::shared::PortShared;
use super::station::check_station;
use super::{Port, PortError, PortSettings, Queues, check};
use crate::admin::Loopback;
use ringside_lan::{PacketPool, QueueState, ReceiveQueue, TransmitQueue};
use std::ops::{Deref, Range};
use std::sync::Arc;

/// The most receive queues of a further VSI: its hash table has 4 bits for a queue. Source: ice
/// `ice_type.h`, ICE_MAX_SMALL_RSS_QS.
pub const MAX_VSI_RECEIVE_QUEUES: usize = 16;

/// Settings of a further VSI.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VsiSettings {
    /// Its MAC address, which no other VSI of the function has.
    pub mac: [u8; 6],
    /// Packets of other VSIs of the function for this one, and of this one for them. With
    /// [`Loopback::Refused`] they leave through the port. The port's own VSI allows loopback.
    ///
    /// Packets to a group stay inside only if all VSIs that receive the group allow it.
    pub loopback: Loopback,
    /// Queues, pool and filters. At most [`MAX_VSI_RECEIVE_QUEUES`] receive queues.
    pub queues: PortSettings,
}

impl VsiSettings {
    /// A VSI with this address that other VSIs of the function do not reach inside the switch, and
    /// with the default settings of a port.
    #[must_use]
    pub fn new(mac: [u8; 6]) -> Self {
        Self {
            mac,
            loopback: Loopback::Refused,
            queues: PortSettings::default(),
        }
    }
}

/// A further VSI with its queues, all in service.
#[derive(Debug)]
pub struct OpenVsi {
    /// The control path.
    pub vsi: Vsi,
    /// Receive queues, by number.
    pub receive: Vec<ReceiveQueue>,
    /// Transmit queues, by number.
    pub transmit: Vec<TransmitQueue>,
    /// The pool of all of them.
    pub pool: PacketPool,
}

/// Control of a VSI: its filters, rules, spreading and statistics; clones control the same one.
///
/// Once all of them and all queues of a further VSI are dropped, it is removed from the device. It
/// keeps its port open.
#[derive(Clone)]
pub struct Vsi {
    pub(super) shared: Arc<PortShared>,
}

impl Deref for Port {
    type Target = Vsi;

    fn deref(&self) -> &Vsi {
        &self.own
    }
}

impl Port {
    /// Adds a VSI to the function; all its queues are in service when this returns. It receives the
    /// packets to its address and to all stations, and what its filters let in.
    ///
    /// Its queues are some of the function's that no other VSI has. The next queue of each kind
    /// after the port's own stays free for the queues that program rules, of all VSIs.
    ///
    /// A VSI of several receive queues, the port's own too, takes 10 hash profiles of the device.
    /// The device has 128, for all functions: 12 such VSIs in all. Another one is refused with an
    /// [`AdminError`](crate::admin::AdminError) of the device's firmware (`enospc`). VSIs of one
    /// receive queue take none.
    ///
    /// A reset of the device ends it, like the port. After a recovery it is added to the port that
    /// was opened again; [`Vsi::restore`] then asks for its filters.
    ///
    /// Control path. Errors: [`PortError::TooMany`], more VSIs or queues than the function has;
    /// [`AdminError::AddressTaken`](crate::admin::AdminError::AddressTaken), another VSI has the
    /// address; others of [`PortError`]. The VSI has been removed then.
    pub fn add_vsi(&self, settings: &VsiSettings) -> Result<OpenVsi, PortError> {
        let wanted = settings.queues.receive_queues;
        if wanted > MAX_VSI_RECEIVE_QUEUES {
            return Err(PortError::TooMany {
                what: "receive queues of a further VSI",
                wanted,
                limit: MAX_VSI_RECEIVE_QUEUES,
            });
        }
        check(&settings.queues)?;
        check_station(settings.mac)?;
        let VsiSettings { mac, loopback, .. } = *settings;
        let shared = self.shared.add_vsi(mac, loopback, &settings.queues)?;
        let queues = Queues::open(&shared, &settings.queues)?;
        let vsi = Vsi { shared };
        vsi.strip_vlan(settings.queues.vlan_stripping)?;
        // Last: nothing is delivered before every queue can take it.
        vsi.shared.let_own_in()?;
        vsi.set_promiscuous(settings.queues.promiscuous)?;
        Ok(OpenVsi {
            vsi,
            receive: queues.receive,
            transmit: queues.transmit,
            pool: queues.pool,
        })
    }
}

impl Vsi {
    /// Its number in the device.
    #[must_use]
    pub fn number(&self) -> u16 {
        self.shared.vsi
    }

    /// The port that it belongs to.
    #[must_use]
    pub fn port(&self) -> Port {
        let further = self.shared.further.as_ref();
        let shared = further.map_or(&self.shared, |further| &further.port);
        Port {
            own: Self {
                shared: Arc::clone(shared),
            },
        }
    }

    /// Its receive queues, counted from the function's first.
    #[must_use]
    pub fn receive_queues(&self) -> Range<u16> {
        let (first, _) = self.shared.first;
        first..first + self.shared.queues.0 as u16
    }

    /// Its transmit queues, counted from the function's first.
    #[must_use]
    pub fn transmit_queues(&self) -> Range<u16> {
        let (_, first) = self.shared.first;
        first..first + self.shared.queues.1 as u16
    }

    /// The state of its queues.
    #[must_use]
    pub fn state(&self) -> QueueState {
        match self.shared.service.in_service() {
            true => QueueState::Running,
            false if self.shared.service.is_released() => QueueState::Stopped,
            false => QueueState::Lost,
        }
    }

    /// Buffers of dropped queues that the device may still use.
    #[must_use]
    pub fn kept_buffers(&self) -> usize {
        self.shared.service.kept_buffers()
    }
}

impl std::fmt::Debug for Vsi {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Vsi")
            .field("number", &self.number())
            .field("state", &self.state())
            .finish_non_exhaustive()
    }
}
