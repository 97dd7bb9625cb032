//! Attempts to reach the other process, which may still be starting.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// The time between two rounds.
const PAUSE: Duration = Duration::from_millis(50);

/// The least time for one attempt.
const SHORTEST: Duration = Duration::from_millis(100);

/// The addresses of the other process, and the time for all attempts.
pub(super) struct Attempts<'a> {
    /// at least one
    pub(super) peers: &'a [SocketAddr],
    pub(super) wait: Duration,
    /// The most time for one attempt: a host that is down now may be up at the next.
    pub(super) longest: Duration,
}

impl Attempts<'_> {
    /// Connects to the first of the addresses that answers, and tries all again until the time has
    /// passed. `connect` gets an address and the time for this attempt.
    ///
    /// Errors: that of the last round. Of several addresses, the last one whose error `may_pass`
    /// counts, else the last one. An error that does not pass ends the attempts, unless another
    /// address of the round has one that may.
    pub(super) fn first<T, E>(
        &self,
        mut connect: impl FnMut(SocketAddr, Duration) -> Result<T, E>,
        may_pass: impl Fn(&E) -> bool,
    ) -> Result<T, E> {
        let end = Instant::now() + self.wait;
        loop {
            let mut failed: Option<E> = None;
            for peer in self.peers {
                let left = end.saturating_duration_since(Instant::now());
                match connect(*peer, left.clamp(SHORTEST, self.longest)) {
                    Ok(connection) => return Ok(connection),
                    // One that may pass counts more.
                    Err(error) if failed.as_ref().is_some_and(&may_pass) && !may_pass(&error) => {}
                    Err(error) => failed = Some(error),
                }
            }
            let is_over = Instant::now() + PAUSE >= end;
            match failed {
                Some(error) if is_over || !may_pass(&error) => return Err(error),
                _ => std::thread::sleep(PAUSE),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An error of the peer with this port; it may pass.
    #[derive(Debug, PartialEq)]
    struct Failed(u16, bool);

    fn attempts(peers: &[SocketAddr], wait_ms: u64) -> Attempts<'_> {
        Attempts {
            peers,
            wait: Duration::from_millis(wait_ms),
            longest: Duration::from_secs(4),
        }
    }

    fn peers() -> [SocketAddr; 3] {
        [1, 2, 3].map(|port| SocketAddr::from(([192, 0, 2, 1], port)))
    }

    #[test]
    fn a_peer_that_starts_late_is_reached_and_each_attempt_has_its_time() {
        let (peers, mut tries) = (peers(), 0);
        let reached = attempts(&peers, 600_000).first(
            |peer, limit| {
                assert_eq!(limit, Duration::from_secs(4));
                tries += 1;
                match tries {
                    8 => Ok(peer.port()),
                    _ => Err(Failed(peer.port(), true)),
                }
            },
            |error| error.1,
        );
        assert_eq!(reached, Ok(2), "the second one of the third round");
    }

    #[test]
    fn the_error_of_an_address_that_may_still_answer_counts() {
        let peers = peers();
        // Ports whose error may pass, the tries, and the port whose error counts.
        let cases: [(&[u16], usize, u16); 4] =
            [(&[], 3, 3), (&[1], 3, 1), (&[1, 2], 3, 2), (&[3], 3, 3)];
        for (passing, expected, counts) in cases {
            let mut tries = 0;
            let failed = attempts(&peers, 0).first(
                |peer, limit| -> Result<(), _> {
                    assert_eq!(limit, SHORTEST);
                    tries += 1;
                    Err(Failed(peer.port(), passing.contains(&peer.port())))
                },
                |error| error.1,
            );
            let error = Failed(counts, !passing.is_empty());
            assert_eq!((failed, tries), (Err(error), expected), "{passing:?}");
        }
    }

    #[test]
    fn an_error_that_does_not_pass_ends_the_attempts_at_once() {
        let (peers, mut tries) = (peers(), 0);
        let failed = attempts(&peers, 600_000).first(
            |peer, _| -> Result<(), _> {
                tries += 1;
                Err(Failed(peer.port(), false))
            },
            |error| error.1,
        );
        assert_eq!((failed, tries), (Err(Failed(3, false)), 3));
    }
}
