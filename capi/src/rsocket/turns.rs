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
    sending: Turn,
    receiving: Turn,
}

/// The turn of one way.
#[derive(Debug, Default)]
pub(super) struct Turn {
    pub(super) is_taken: bool,
    /// a call waits for its end
    pub(super) is_awaited: bool,
}

impl Turn {
    /// True if it is free. Else the call that asks waits for it.
    pub(super) const fn is_free(&mut self) -> bool {
        self.is_awaited |= self.is_taken;
        !self.is_taken
    }
}

impl Turns {
    pub(super) const fn of(&mut self, way: Way) -> &mut Turn {
        match way {
            Way::Out => &mut self.sending,
            Way::In => &mut self.receiving,
        }
    }
}
