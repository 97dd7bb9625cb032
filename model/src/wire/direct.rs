//! Packets that go from function to function without a frame, and frames that nothing on the wire
//! looks at.

use super::{BURST, Stations, Switch};
use crate::frame::is_group;
use crate::function::FunctionModel;
use crate::lan::SentFrame;
use crate::rdma::Way;
use ringside_bus::{DmaSpace, Instant};

impl Switch {
    /// Delivers packets of a function that need no frame, `most` at most, where the switch has
    /// nothing to do but to hand them to another function. Returns their number, and true if the
    /// function may have more.
    ///
    /// An acknowledgement of them does not wait for the turn of the other function, where that
    /// comes in the same step and the acknowledgement is all that it would bring.
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
        let way = functions.get_mut(from)?.direct_way(world.0)?;
        let port = match way.changes == self.changes(from, way.port, functions) {
            true => way.port,
            false => self.find_way(from, functions)?,
        };
        let [sender, receiver] = functions.get_disjoint_mut([from, port]).ok()?;
        let packets = sender.deliver_to(receiver, world, most)?;
        self.counters.delivered += u64::from(packets);
        if let Some(last) = self.last_ports.get_mut(from) {
            *last = Some(port);
        }
        Some((packets, port))
    }

    /// Changes so far of everything that the way from a function to another depends on. None of
    /// the counts ever falls, so an equal sum means that each of them is equal.
    #[inline]
    fn changes(&self, from: usize, port: usize, functions: &[FunctionModel]) -> u64 {
        let ends = [from, port]
            .into_iter()
            .filter_map(|end| functions.get(end));
        self.table.changes() + ends.map(FunctionModel::changes).sum::<u64>()
    }

    /// Finds the function that the next packets of a function go to, if the way there has nothing
    /// to do but to hand them over. The queue pair keeps it until something changes.
    #[inline(never)]
    fn find_way(&self, from: usize, functions: &mut [FunctionModel]) -> Option<usize> {
        let path = functions.get(from)?.direct_path()?;
        // A frame makes the sender's address known, which may push out another one.
        let port = self.table.find(path.destination)?;
        if port == from || self.table.find(path.source) != Some(from) {
            return None;
        }
        if !functions.get(port)?.takes_directly(&path) {
            return None;
        }
        let changes = self.changes(from, port, functions);
        functions.get_mut(from)?.keep_way(Way { port, changes });
        Some(port)
    }

    /// The function that got the last packets of function `from` without a frame.
    #[inline]
    pub(crate) fn last_port(&self, from: usize) -> Option<usize> {
        *self.last_ports.get(from)?
    }

    /// Lets function `from` send a burst of frames of the host's network stack; true if it sent
    /// any.
    ///
    /// Interrupts follow the whole burst, as descriptors are all written then.
    pub(super) fn transmit_others(
        &mut self,
        from: usize,
        functions: &mut [FunctionModel],
        spaces: &[DmaSpace],
        now: Instant,
    ) -> bool {
        let mut worked = false;
        if !functions.get(from).is_some_and(FunctionModel::has_frames) {
            return false;
        }
        for _ in 0..BURST {
            let Some(sender) = functions.get_mut(from) else {
                break;
            };
            let Some(frame) = sender.next_sent_frame(spaces, now) else {
                break;
            };
            worked = true;
            let stations = &mut Stations {
                functions: &mut *functions,
                spaces,
                now,
            };
            if !self.special && self.pass_on(from, &frame, stations) {
                self.passed_on += 1;
                if let Some(sender) = functions.get_mut(from) {
                    sender.recycle(frame);
                }
            } else {
                self.accept(from, frame.bytes, stations);
            }
        }
        for function in functions {
            function.deliver_causes();
        }
        worked
    }

    /// Frames of the host's network stack that were handed on without the wire's looking at them.
    #[must_use]
    pub const fn passed_on(&self) -> u64 {
        self.passed_on
    }

    /// Gives a frame to the functions that it is for, with what the sender's parser found in it.
    /// False, and nothing has happened but that the source is known, if a station outside may be
    /// one of them, or if it is the RDMA engine's.
    #[inline]
    fn pass_on(&mut self, from: usize, frame: &SentFrame, stations: &mut Stations<'_>) -> bool {
        if frame.is_for_roce() {
            return false;
        }
        self.table.learn(frame.source(), from);
        let destination = frame.destination();
        let (spaces, now) = (stations.spaces, stations.now);
        let known = match is_group(destination) {
            true => None,
            false => self.table.find(destination),
        };
        if let Some(port) = known {
            if port == from {
                return true;
            }
            let Some(receiver) = stations.functions.get_mut(port) else {
                return false;
            };
            receiver.receive_sent_frame(frame, spaces, now);
            self.counters.delivered += 1;
            return true;
        }
        if !self.outside.is_empty() {
            return false;
        }
        self.counters.flooded += 1;
        let receivers = stations.functions.iter_mut().enumerate();
        for (_, receiver) in receivers.filter(|(port, _)| *port != from) {
            receiver.receive_sent_frame(frame, spaces, now);
            self.counters.delivered += 1;
        }
        true
    }
}
