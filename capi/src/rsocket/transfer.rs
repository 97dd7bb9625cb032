//! Sending and receiving.

use super::call::Call;
use super::flow::{LOW_WATER, MAX_TRANSFER_BYTES};
use super::gather::{Gather, Piece, total};
use super::link::Link;
use super::socket::{Core, Phase, Socket};
use super::turns::Way;
use std::ffi::c_int;
use std::sync::MutexGuard;

impl Socket {
    /// Sends all pieces in order, or as much as goes without waiting. Returns how many bytes.
    ///
    /// # Safety
    /// The pieces are memory of the program.
    pub(super) unsafe fn send(&self, pieces: &[Piece], flags: c_int) -> Result<usize, c_int> {
        if flags & libc::MSG_OOB != 0 {
            return Err(libc::EOPNOTSUPP);
        }
        let Call {
            turn,
            mut core,
            waits,
        } = self.begin(Way::Out, flags)?;
        let (mut sent, wanted) = (0, total(pieces));
        let mut from = Gather::new(pieces);
        // Small transfers first: the peer begins to read while the next is copied.
        let mut most = LOW_WATER as usize;
        while sent < wanted {
            core = match self.writable(core, waits, Link::can_send) {
                Ok(core) => core,
                Err(error) if sent == 0 => return Err(error),
                Err(_) => return Ok(sent),
            };
            let link = core.link.as_mut().ok_or(libc::ENOTCONN)?;
            let next = (wanted - sent).min(most);
            most = (most * 2).min(MAX_TRANSFER_BYTES as usize);
            // SAFETY: the caller's promise.
            let result = unsafe { link.send(&mut from, next as u32) };
            sent += result.inspect_err(|error| core.fail(*error))? as usize;
        }
        turn.end(core);
        Ok(sent)
    }

    /// Waits until a transfer may begin. The peer is told of new mappings first.
    pub(super) fn writable<'a>(
        &'a self,
        core: MutexGuard<'a, Core>,
        waits: bool,
        is_ready: impl Fn(&mut Link) -> bool,
    ) -> Result<MutexGuard<'a, Core>, c_int> {
        let can_go = |core: &mut Core| {
            if !core.can_write() {
                return true;
            }
            while let Some(link) = &mut core.link
                && !link.untold.is_empty()
                && link.can_post()
            {
                if let Err(error) = link.tell_mapping() {
                    core.fail(error);
                    return true;
                }
            }
            let link = core.link.as_mut();
            link.is_some_and(|link| link.untold.is_empty() && is_ready(link))
        };
        let core = self.wait(core, waits, None, can_go)?;
        match core.phase {
            Phase::Connected { writes: true, .. } => Ok(core),
            Phase::Failed(error) => Err(error),
            _ if core.writes_ended => Err(libc::EPIPE),
            _ => Err(libc::ECONNRESET),
        }
    }

    /// Receives into the pieces in order: what is there, or all with `MSG_WAITALL`. Returns 0 once
    /// the peer sends no more.
    ///
    /// # Safety
    /// The pieces are memory of the program.
    pub(super) unsafe fn receive(&self, pieces: &[Piece], flags: c_int) -> Result<usize, c_int> {
        if flags & libc::MSG_OOB != 0 {
            return Err(libc::EOPNOTSUPP);
        }
        let is_peek = flags & libc::MSG_PEEK != 0;
        let whole = flags & libc::MSG_WAITALL != 0 && !is_peek;
        let Call {
            turn,
            mut core,
            waits,
        } = self.begin(Way::In, flags)?;
        let mut got = 0;
        let wanted = total(pieces);
        while got < wanted {
            core = match self.wait(core, waits, None, |core| core.can_receive()) {
                Ok(core) => core,
                Err(error) if got == 0 => return Err(error),
                Err(_) => return Ok(got),
            };
            if !core.has_data() {
                return match core.phase {
                    Phase::Failed(error) if got == 0 => Err(error),
                    _ => Ok(got),
                };
            }
            let link = core.link.as_mut().ok_or(libc::ENOTCONN)?;
            // SAFETY: the caller's promise.
            got += unsafe { fill(link, pieces, got, is_peek) };
            self.progress(&mut core);
            if is_peek || !whole {
                break;
            }
        }
        turn.end(core);
        Ok(got)
    }
}

/// Copies what is there into the pieces behind their first `skip` bytes.
///
/// # Safety
/// The pieces are memory of the program.
unsafe fn fill(link: &mut Link, pieces: &[Piece], skip: usize, is_peek: bool) -> usize {
    let mut skip = skip;
    let mut done = 0;
    for (start, length) in pieces {
        let first = skip.min(*length);
        skip -= first;
        if first == *length {
            continue;
        }
        // SAFETY: the caller's promise.
        let copied = unsafe { link.receive(start.add(first), length - first, is_peek, done) };
        done += copied;
        if copied < length - first {
            break;
        }
    }
    done
}
