//! The turns of the calls of a stream socket: one sends at a time, and one receives.

/// A direction of the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    Out,
    In,
}

/// The ways in which a call is. The socket's lock does not say so: a call that sleeps releases it.
#[derive(Debug, Default)]
pub(super) struct Turns {
    is_sending: bool,
    is_receiving: bool,
}

impl Turns {
    /// True while a call is in that way.
    pub(super) const fn of(&mut self, way: Way) -> &mut bool {
        match way {
            Way::Out => &mut self.is_sending,
            Way::In => &mut self.is_receiving,
        }
    }
}
