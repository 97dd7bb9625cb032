//! Datagram services as the connection manager knows them: what it answers, and who asked.

pub(crate) use ringside_cm::ConnectionId as QuestionId;

/// A queue pair that takes datagrams, and the Q_Key that they carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Service {
    pub(crate) queue_pair: u32,
    pub(crate) queue_key: u32,
}

/// The service behind an address and a port; nothing if there is none, or no answer.
pub(crate) type Answer = Option<Service>;

/// A question that a peer has not answered.
pub(super) struct Question {
    /// names the place that asked
    pub(super) token: usize,
    pub(super) tell: Box<dyn FnOnce(QuestionId, Answer) + Send>,
}
