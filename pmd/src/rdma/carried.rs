//! The state that one period of service leaves to the next.

use super::containment::OwedFlush;
use super::engine::Engine;
use super::events::Event;
use super::faults::PeerBook;
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
    /// completion queues that have not been told
    pub(crate) owed: Vec<OwedFlush>,
    /// not used again at once
    pub(crate) rested: RestedNumbers,
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
        }
    }
}

/// The facts of this period of service that the next one needs.
pub(crate) fn carry(engine: &Engine) -> Carried {
    let mut state = engine.state();
    // A bring-up that failed before it had numbers passes on what it got.
    let rested = match state.objects.are_sized() {
        true => state.objects.rested(),
        false => std::mem::take(&mut state.rested),
    };
    Carried {
        rested,
        random: state.random.clone(),
        generation: state.generation,
        peers: std::mem::take(&mut state.peers),
        events: std::mem::take(&mut state.pending_events),
        owed: std::mem::take(&mut state.end.owed),
    }
}
