//! News of connections, and requests, that the program has not read yet.

use crate::error::{Closed, ConnectError, End};
use ringside_cm::{ConnectionId, EventKind, Parameters};
use ringside_pmd::recovery::FailureCause;
use std::net::{IpAddr, SocketAddr};

/// A request that was not answered yet.
pub(crate) struct Waiting {
    pub(crate) id: ConnectionId,
    pub(crate) parameters: Parameters,
    pub(crate) peer: SocketAddr,
    pub(crate) private_data: Vec<u8>,
}

/// News of a connection.
pub(crate) enum News {
    /// from the connection manager
    Event(EventKind),
    /// the device failed, and the connection with it
    Lost(FailureCause),
    /// the manager is closed, and the connection with it
    Closed(Closed),
}

/// The error of an attempt that these news end; `Ok` for other news.
pub(crate) fn refused(news: News, peer: IpAddr) -> Result<(), ConnectError> {
    match news {
        News::Event(EventKind::Rejected {
            reason,
            private_data,
            ..
        }) => Err(ConnectError::Rejected {
            reason,
            private_data,
        }),
        News::Event(EventKind::Unreachable) => Err(ConnectError::Unreachable { peer }),
        News::Event(EventKind::Disconnected { .. }) => Err(ConnectError::Ended { peer }),
        News::Lost(cause) => Err(ConnectError::DeviceFailed { cause }),
        News::Closed(closed) => Err(closed.into()),
        News::Event(_) => Ok(()),
    }
}

/// Why news end a connection; nothing for those that do not.
pub(crate) const fn end_of(news: &News) -> Option<End> {
    match news {
        News::Event(EventKind::Disconnected { by_peer: true }) => Some(End::Disconnected),
        News::Event(EventKind::Disconnected { by_peer: false } | EventKind::Unreachable) => {
            Some(End::Silent)
        }
        News::Event(EventKind::Rejected { reason, .. }) => Some(End::Rejected(*reason)),
        News::Lost(cause) => Some(End::DeviceFailed(*cause)),
        News::Closed(closed) => Some(End::Closed(*closed)),
        News::Event(_) => None,
    }
}
