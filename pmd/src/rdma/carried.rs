//! The state that one period of service leaves to the next.

use super::end::OwedFlush;
use super::event::Event;
use super::faults::PeerBook;
use super::gids::Gids;
use super::objects::RestedNumbers;
use rand::SeedableRng;
use rand::rngs::StdRng;

/// The state that passes from one period of service to the next: no object of the earlier
/// period is taken for one of the later.
#[derive(Debug)]
pub(crate) struct Carried {
    pub(crate) random: StdRng,
    pub(crate) generation: u32,
    pub(crate) peers: PeerBook,
    /// not taken yet
    pub(crate) events: Vec<Event>,
    /// completion queues that were not notified yet
    pub(crate) owed: Vec<OwedFlush>,
    /// not used again at once
    pub(crate) rested: RestedNumbers,
    /// the addresses, if an earlier period had any
    pub(crate) gids: Option<Gids>,
}

impl Default for Carried {
    /// Keys, sequence numbers and queue pair numbers must not be guessed by peers.
    fn default() -> Self {
        Self {
            random: StdRng::from_os_rng(),
            generation: 0,
            peers: PeerBook::default(),
            events: Vec::new(),
            owed: Vec::new(),
            rested: RestedNumbers::default(),
            gids: None,
        }
    }
}
