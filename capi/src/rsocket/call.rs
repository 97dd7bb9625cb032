//! Calls that send or receive on a stream socket: each has its turn.

use super::socket::{Core, Socket};
use super::turns::Way;
use std::ffi::c_int;
use std::sync::MutexGuard;

/// A call that has its turn. The turn ends with it, also if its thread is cancelled.
#[must_use]
pub(super) struct Turn<'socket> {
    socket: &'socket Socket,
    way: Way,
    is_over: bool,
}

impl Turn<'_> {
    /// Ends the turn of a call that still has the lock: another call that finds the lock free finds
    /// its turn.
    pub(super) fn end(mut self, mut core: MutexGuard<'_, Core>) {
        self.is_over = true;
        core.end_turn(self.way);
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        if !self.is_over {
            self.socket.core().end_turn(self.way);
        }
    }
}

/// A call that sends or receives: its turn, and whether it waits.
///
/// The lock is the first field, as it is released first: the end of a turn takes it.
pub(super) struct Call<'socket> {
    pub(super) core: MutexGuard<'socket, Core>,
    pub(super) turn: Turn<'socket>,
    pub(super) waits: bool,
}

impl Core {
    fn end_turn(&mut self, way: Way) {
        let turn = self.turns.of(way);
        turn.is_taken = false;
        if std::mem::take(&mut turn.is_awaited) {
            self.tell();
        }
    }
}

impl Socket {
    /// Begins a call once no other one is in its way, and the connection stands.
    ///
    /// Errors: `EAGAIN` if a call that must not wait finds another one that sleeps, or no
    /// connection yet; `EINTR` after a handler without `SA_RESTART`; `ENOTCONN`.
    pub(super) fn begin(&self, way: Way, flags: c_int) -> Result<Call<'_>, c_int> {
        let mut core = self.core();
        let waits = flags & libc::MSG_DONTWAIT == 0 && !core.options.is_nonblocking;
        if core.turns.of(way).is_taken {
            core.bell.has_turns = true;
            core = self.wait(core, waits, None, |core| core.turns.of(way).is_free())?;
        }
        core.turns.of(way).is_taken = true;
        let turn = Turn {
            socket: self,
            way,
            is_over: false,
        };
        let core = self.connected(core, waits)?;
        Ok(Call { core, turn, waits })
    }
}
