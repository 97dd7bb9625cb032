//! Wakes the calls of other threads that sleep on the same stream socket.

use std::ffi::c_int;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// The calls that sleep on a stream socket. They sleep on the descriptors of the same event
/// channels, and one of them, or the library's thread, takes an event: it rings for the others.
#[derive(Default)]
pub(super) struct Bell {
    /// made once two calls sleep, or one beside the library's own thread or a call whose turn it
    /// waits for; readable while it rings
    event: Option<OwnedFd>,
    /// true while the library's thread takes events of the socket too
    pub(super) is_shared: bool,
    /// true once a call has waited for the turn of another one, which may not sleep itself
    pub(super) has_turns: bool,
    sleepers: u32,
    /// sleepers that have the event: those that began before it was made hear nothing
    hearers: u32,
    /// hearers that have not heard the last ring
    called: u32,
    rings: u64,
}

/// A call that sleeps.
#[must_use]
pub(super) struct Sleep {
    /// rings before it
    rings: u64,
    /// the descriptor that wakes it; none for the first call of a socket that never had
    /// two and that only its calls serve
    pub(super) bell: Option<c_int>,
}

impl Bell {
    /// A call goes to sleep. [`Self::leave`] follows.
    pub(super) fn enter(&mut self) -> Sleep {
        self.sleepers += 1;
        let is_needed = self.sleepers > 1 || self.is_shared || self.has_turns;
        if is_needed && self.event.is_none() {
            // SAFETY: plain system call.
            let made = unsafe { libc::eventfd(0, libc::EFD_NONBLOCK | libc::EFD_CLOEXEC) };
            // SAFETY: the new descriptor has no other owner. Without one the others look soon.
            self.event = (made >= 0).then(|| unsafe { OwnedFd::from_raw_fd(made) });
        }
        self.hearers += u32::from(self.event.is_some());
        Sleep {
            rings: self.rings,
            bell: self.event.as_ref().map(AsRawFd::as_raw_fd),
        }
    }

    /// The call has woken; it tells the others if it took what they may wait for.
    pub(super) fn leave(&mut self, sleep: &Sleep, has_taken: bool) {
        self.sleepers -= 1;
        if sleep.bell.is_some() {
            self.hearers -= 1;
            if sleep.rings != self.rings {
                self.called -= 1;
                if self.called == 0 {
                    self.silence();
                }
            }
        }
        if has_taken {
            self.ring();
        }
    }

    /// Wakes the calls that sleep.
    pub(super) fn ring(&mut self) {
        let Some(event) = self.event.as_ref().filter(|_| self.hearers > 0) else {
            return;
        };
        let one = 1_u64;
        // SAFETY: eight bytes of a live value; the descriptor does not wait.
        unsafe { libc::write(event.as_raw_fd(), (&raw const one).cast(), 8) };
        self.rings += 1;
        self.called = self.hearers;
    }

    fn silence(&self) {
        let mut count = 0_u64;
        if let Some(event) = &self.event {
            // SAFETY: as in `ring`.
            unsafe { libc::read(event.as_raw_fd(), (&raw mut count).cast(), 8) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Bell, Sleep};

    fn rings(sleep: &Sleep) -> bool {
        let mut source = libc::pollfd {
            fd: sleep.bell.unwrap(),
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: one live entry.
        unsafe { libc::poll(&raw mut source, 1, 0) == 1 }
    }

    #[test]
    fn it_rings_until_each_call_that_slept_has_heard_it() {
        let mut bell = Bell::default();
        let first = bell.enter();
        assert_eq!(first.bell, None);
        bell.leave(&first, true);
        let first = bell.enter();
        // The first one sleeps since before there was a bell, and cannot hear it.
        let [second, third, fourth] = [bell.enter(), bell.enter(), bell.enter()];
        assert!(!rings(&second) && !rings(&third));
        bell.leave(&second, true);
        let late = bell.enter();
        assert!(rings(&third));
        bell.leave(&late, false);
        bell.leave(&first, false);
        bell.leave(&third, false);
        assert!(rings(&fourth), "it has not woken yet");
        bell.leave(&fourth, false);
        let alone = bell.enter();
        assert!(!rings(&alone));
        bell.leave(&alone, true);
        assert!(!rings(&alone), "no call sleeps");
    }

    fn rings_for_one_call(mut bell: Bell) {
        let alone = bell.enter();
        bell.ring();
        assert!(rings(&alone));
        bell.leave(&alone, false);
    }

    #[test]
    fn it_rings_for_one_call_beside_the_librarys_thread() {
        rings_for_one_call(Bell {
            is_shared: true,
            ..Bell::default()
        });
    }

    #[test]
    fn it_rings_for_one_call_that_waits_for_its_turn() {
        rings_for_one_call(Bell {
            has_turns: true,
            ..Bell::default()
        });
    }
}
