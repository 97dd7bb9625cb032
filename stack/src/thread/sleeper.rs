//! The sleep of a stack's thread.

use super::served::Served;
use ringside_pmd::lan::port::PacketSleeper;
use ringside_pmd::worker::Sleeper;
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// The longest sleep of a thread that a frame wakes: the delay of what the stack does by itself,
/// such as a request that it repeats.
pub(super) const ARMED_SLEEP: Duration = Duration::from_millis(20);
/// The same while the stack has connections: half the time after which TCP confirms bytes that the
/// program does not answer.
const CONNECTED_SLEEP: Duration = Duration::from_millis(5);
/// The same where no frame wakes it: the delay of an answer.
pub(super) const BLIND_SLEEP: Duration = Duration::from_millis(1);

/// Wakes the thread at a frame, or when the stack has something to do by itself.
#[derive(Debug, Default)]
pub(super) struct StackSleeper {
    packets: PacketSleeper,
    /// Frames could not be taken, as the transmit ring was full or the pool empty, and no poll has
    /// found work since.
    is_blocked: bool,
}

impl Sleeper<Served> for StackSleeper {
    fn arm(&mut self, served: &mut Served) -> bool {
        let is_armed = self.packets.arm(served);
        let was_blocked = std::mem::replace(&mut self.is_blocked, !is_armed);
        // The next polls take the frames, as a rule. If they did not, polling on is of no use.
        is_armed || was_blocked
    }

    fn interrupt<'s>(&self, served: &'s Served) -> Option<BorrowedFd<'s>> {
        Sleeper::<Served>::interrupt(&self.packets, served)
    }

    fn woken(&mut self, served: &mut Served, interrupted: bool) {
        self.packets.woken(served, interrupted);
    }

    fn worked(&mut self, served: &mut Served) {
        self.is_blocked = false;
        self.packets.worked(served);
    }

    fn longest(&self, served: &Served, policy: Duration) -> Duration {
        if self.is_blocked || served.stack.queues.is_blocked() {
            return policy.min(BLIND_SLEEP);
        }
        match served.stack.tcp.has_connections() {
            true => policy.min(CONNECTED_SLEEP),
            false => policy,
        }
    }
}
