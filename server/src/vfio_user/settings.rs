//! Settings of a server.

use crate::ports::SocketPathError;
use ringside_model::world::WorldSettings;
use std::path::PathBuf;
use std::time::Duration;

/// Settings of a server.
#[derive(Clone, Debug)]
pub struct ServerSettings {
    /// The world; function `n` is served on socket `n`.
    pub world: WorldSettings,
    /// The paths of the sockets, one for each function.
    pub sockets: Vec<PathBuf>,
    /// Offer the doorbell page for mapping. Otherwise every doorbell is a message.
    pub doorbell_page: bool,
    /// Accept memory that its owner can truncate while it is mapped: for trusted clients only.
    pub accept_shrinkable_memory: bool,
    /// Repeat accesses outside a client's mappings through the client (DMA_READ, DMA_WRITE), whose
    /// IOMMU then refuses and reports them as it would for a card. At most 256 for each client. The
    /// answers have no effect.
    pub refused_through_client: bool,
    /// The time for which the server polls without work before it sleeps.
    pub spin: Duration,
}

impl ServerSettings {
    /// Settings for functions with default settings, one for each socket.
    #[must_use]
    pub fn new(sockets: Vec<PathBuf>) -> Self {
        let count = u16::try_from(sockets.len()).unwrap_or(u16::MAX);
        Self {
            world: WorldSettings::with_functions(count),
            sockets,
            doorbell_page: false,
            accept_shrinkable_memory: false,
            refused_through_client: false,
            spin: Duration::from_micros(200),
        }
    }
}

/// Reasons why a server could not be started.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// The numbers of sockets and functions differ.
    #[error("{sockets} sockets for {functions} functions; give each function one socket")]
    Counts {
        /// Sockets given.
        sockets: usize,
        /// Functions of the world.
        functions: usize,
    },
    /// The path of a socket cannot be used.
    #[error(transparent)]
    Path(#[from] SocketPathError),
}
