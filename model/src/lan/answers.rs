//! The last answers of the switch's tables: the frames of a flow come one after the other.

use super::switching::{Destination, Key, Refused, Route, Tables, Vsi};

/// The answer for a frame of a VSI.
#[derive(Debug)]
struct Routed {
    sender: u16,
    key: Key,
    wanted: Destination,
    route: Route,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Answers {
    routed: Option<Routed>,
    /// The frame from the wire that `receivers` are for.
    received: Option<Key>,
    receivers: Vec<u16>,
}

impl Answers {
    /// Forgets all: the tables have changed.
    pub(super) fn forget(&mut self) {
        self.routed = None;
        self.received = None;
    }

    /// Finds the destination of a frame of `sender`; see [`Tables::route`]. Returns true if it
    /// leaves through the port; [`Answers::local`] has the VSIs that receive it.
    pub(super) fn route(
        &mut self,
        tables: &Tables,
        sender: &Vsi,
        key: &Key,
        wanted: Destination,
    ) -> Result<bool, Refused> {
        let asked = |last: &&Routed| {
            last.sender == sender.number && last.wanted == wanted && last.key == *key
        };
        if let Some(last) = self.routed.as_ref().filter(asked) {
            return Ok(last.route.wire);
        }
        self.routed = None;
        let route = tables.route(sender, key, wanted)?;
        let wire = route.wire;
        self.routed = Some(Routed {
            sender: sender.number,
            key: *key,
            wanted,
            route,
        });
        Ok(wire)
    }

    /// The VSIs of the function that receive the frame of the last [`Answers::route`].
    pub(super) fn local(&self) -> &[u16] {
        let routed = self.routed.as_ref();
        routed.map_or(&[], |last| &last.route.local)
    }

    /// Finds the VSIs that receive a frame from the wire; see [`Tables::receivers`]. Returns their
    /// number.
    pub(super) fn receive(&mut self, tables: &Tables, key: &Key) -> usize {
        if self.received != Some(*key) {
            tables.receivers(key, &mut self.receivers);
            self.received = Some(*key);
        }
        self.receivers.len()
    }

    /// The VSIs of the last [`Answers::receive`].
    pub(super) fn receivers(&self) -> &[u16] {
        &self.receivers
    }
}
