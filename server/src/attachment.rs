//! Attachments that a server's thread runs beside the sockets of its functions: external wires, a
//! control socket.

use ringside_bus::Instant;
use ringside_model::world::World;
use std::os::fd::BorrowedFd;

/// The condition that a descriptor is polled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readiness {
    /// The descriptor can be read.
    Readable,
    /// The descriptor can be written.
    Writable,
}

/// Work that runs between the steps of a world. It never blocks.
pub trait Attachment: Send {
    /// Does its pending work, for a bounded time. Returns true if there was any.
    fn turn(&mut self, world: &mut World, now: Instant) -> bool;
    /// True if the world has work for it, so that its turn is due at once. Called after each step,
    /// so it must be fast.
    fn has_news(&self, world: &mut World) -> bool;
    /// Adds the descriptors whose readiness ends a sleep.
    fn descriptors<'a>(&'a self, into: &mut Vec<(BorrowedFd<'a>, Readiness)>);
}
