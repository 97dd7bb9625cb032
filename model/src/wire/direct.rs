//! Packets that go from function to function without a frame.

use super::{BURST, Switch};
use crate::function::FunctionModel;
use ringside_bus::{DmaSpace, Instant};

impl Switch {
    /// Delivers packets of a function that need no frame, `most` at most, where the switch has
    /// nothing to do but to hand them to another function. Returns their number, and true if the
    /// function may have more.
    ///
    /// An acknowledgement of them does not wait for the turn of the other function, where that comes
    /// in the same step and the acknowledgement is all that it would bring.
    #[inline]
    pub(super) fn deliver(
        &mut self,
        from: usize,
        functions: &mut [FunctionModel],
        world: (&[DmaSpace], Instant),
        most: u32,
    ) -> Option<(u32, bool)> {
        let (packets, port) = self.hand_over(from, functions, world, most)?;
        let more = functions.get(from)?.has_packets();
        if !more && port > from && functions.get_mut(port)?.acknowledges_next(world.0) {
            self.hand_over(port, functions, world, BURST as u32);
        }
        Some((packets, more))
    }

    /// Delivers packets of a function. Returns their number, and the port that got them.
    #[inline(never)]
    fn hand_over(
        &mut self,
        from: usize,
        functions: &mut [FunctionModel],
        world: (&[DmaSpace], Instant),
        most: u32,
    ) -> Option<(u32, usize)> {
        let path = functions.get_mut(from)?.direct_path(world.0)?;
        // A frame makes the sender's address known, which may push out another one.
        let port = self.table.find(path.destination)?;
        if port == from || self.table.find(path.source) != Some(from) {
            return None;
        }
        let [sender, receiver] = functions.get_disjoint_mut([from, port]).ok()?;
        let packets = sender.deliver_to(receiver, &path, world, most)?;
        self.counters.delivered += u64::from(packets);
        Some((packets, port))
    }
}
