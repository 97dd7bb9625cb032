//! Attachments that a server's thread runs beside the sockets of its functions: wires that lead
//! outside, a control socket.

use ringside_bus::Instant;
use ringside_model::world::World;
use std::os::fd::BorrowedFd;

/// The condition that a descriptor is polled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readiness {
    /// Something to read.
    Readable,
    /// Room to write.
    Writable,
}

/// Something that has its turn between the steps of a world. It never blocks.
pub trait Attachment: Send {
    /// Does what is due, for a bounded time; true if there was anything.
    fn turn(&mut self, world: &mut World, now: Instant) -> bool;
    /// True if the world has something for it, so that its turn is due at once. Asked after each
    /// step, so it has to be quick.
    fn has_news(&self, world: &mut World) -> bool;
    /// Adds the descriptors whose news end a nap.
    fn descriptors<'a>(&'a self, into: &mut Vec<(BorrowedFd<'a>, Readiness)>);
}
