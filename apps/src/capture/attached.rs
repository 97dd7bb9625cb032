//! The copies of a running program's packets, as its mirror sends them.

use super::sink::{End, Limits, Sink};
use crate::failure::Failure;
use crate::interrupt;
use crate::mirror::{Copied, Direction, GREETING, Next};
use anyhow::anyhow;
use clap::ValueEnum;
use std::io::{self, BufRead, BufReader, ErrorKind, Read};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// The longest wait for the greeting of a mirror.
const GREETING_WAIT: Duration = Duration::from_secs(5);
/// The longest line of a greeting: the names of the ports.
const GREETING_BYTES: u64 = 1 << 16;

/// The longest wait for the last losses.
const LOSSES_WAIT: Duration = Duration::from_secs(2);

#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    /// Received
    In,
    /// Sent
    Out,
    Both,
}

impl Wanted {
    /// True if it has the packets of this direction.
    fn takes(self, direction: Direction) -> bool {
        match self {
            Self::Both => true,
            Self::In => direction == Direction::Received,
            Self::Out => direction == Direction::Sent,
        }
    }
}

/// The failure of a capture.
pub(super) enum Broken {
    /// The stream of copies broke.
    Mirror(io::Error),
    /// The file could not be written.
    File(io::Error),
}

impl From<io::Error> for Broken {
    fn from(error: io::Error) -> Self {
        Self::File(error)
    }
}

/// A mirror that has greeted.
pub(super) struct Attached {
    from: BufReader<Patient>,
    /// copies of packets received that were lost, as far as that is known
    lost_received: u64,
    /// the same, of packets sent
    lost_sent: u64,
    /// the mirror has told its last losses
    has_told: bool,
}

impl Attached {
    /// Waits for the greeting of a mirror; returns it, and the names of its ports.
    pub(super) fn greeted(
        stream: UnixStream,
        limits: &Limits,
        shown: &str,
    ) -> Result<(Self, Vec<String>), Failure> {
        // A waiting read ends ten times a second, to check for signals and for the end.
        stream.set_read_timeout(Some(Duration::from_millis(100)))?;
        let began = Instant::now();
        let latest = began + GREETING_WAIT;
        let end = limits.end.map_or(latest, |end| end.min(latest));
        let patient = Patient {
            stream,
            end: Some(end),
            patience: Patience::ToTheEnd,
        };
        let mut from = BufReader::with_capacity(1 << 16, patient);
        let mut line = || {
            let mut line = String::new();
            let read = from.by_ref().take(GREETING_BYTES).read_line(&mut line);
            match read {
                Ok(_) => Ok(line),
                Err(_) if interrupt::seen() => Err(Failure::interrupted()),
                Err(error) if error.kind() == ErrorKind::TimedOut => Err(Failure::claim(anyhow!(
                    "--attach {shown}: no greeting within {:.0} s: another capture is attached, or that is no \
                     mirror; a mirror serves one capture at a time",
                    end.saturating_duration_since(began).as_secs_f64()
                ))),
                Err(error) => Err(Failure::claim(anyhow!("--attach {shown}: {error}"))),
            }
        };
        let first = line()?;
        if first.trim_end() != GREETING {
            let first: String = first.chars().take(80).collect();
            return Err(Failure::claim(anyhow!(
                "--attach {shown}: that is no mirror of this version of ringside: it sends {first:?}"
            )));
        }
        let names = line()?;
        let names = serde_json::from_str(&names).map_err(io::Error::from)?;
        from.get_mut().end = limits.end;
        let attached = Self {
            from,
            lost_received: 0,
            lost_sent: 0,
            has_told: false,
        };
        Ok((attached, names))
    }

    /// Copies that were lost, of the wanted directions.
    pub(super) fn lost(&self, wanted: Wanted) -> u64 {
        match wanted {
            Wanted::In => self.lost_received,
            Wanted::Out => self.lost_sent,
            Wanted::Both => self.lost_received.saturating_add(self.lost_sent),
        }
    }

    /// Writes the copies that the mirror sends, until either side ends.
    pub(super) fn capture(&mut self, wanted: Wanted, sink: &mut Sink) -> Result<End, Broken> {
        let mut copy = Copied::empty();
        loop {
            if let Some(end) = sink.end() {
                // A second signal ends the process while it waits for the losses.
                sink.flush()?;
                return self.hear_losses(end, &mut copy);
            }
            if !self.has_more().map_err(Broken::Mirror)? {
                sink.flush()?;
                continue;
            }
            sink.flush_if_due()?;
            match copy.read(&mut self.from) {
                Ok(Next::End) => return self.gone(),
                Ok(next) => self.count(next, &copy),
                // The rest of a copy did not come: what follows cannot be read.
                Err(error) if error.kind() == ErrorKind::TimedOut => return Ok(sink.end_of_time()),
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => return self.gone(),
                Err(error) => return Err(Broken::Mirror(error)),
            }
            if !self.has_told && wanted.takes(copy.direction) {
                sink.take(&copy)?;
            }
        }
    }

    /// Takes over what the mirror tells of losses.
    fn count(&mut self, next: Next, copy: &Copied) {
        let known = match copy.direction {
            Direction::Received => &mut self.lost_received,
            Direction::Sent => &mut self.lost_sent,
        };
        // Threads pass copies on in any order.
        *known = copy.lost.max(*known);
        self.has_told |= next == Next::Losses;
    }

    /// Ends the capture here, and learns the losses until now, those behind the last copy that was
    /// read among them. Packets that come meanwhile are none of the capture. A capture that ends
    /// with a packet knows its losses.
    fn hear_losses(&mut self, end: End, copy: &mut Copied) -> Result<End, Broken> {
        if matches!(end, End::Count | End::Size) {
            return Ok(end);
        }
        let patient = self.from.get_mut();
        patient.end = Some(Instant::now() + LOSSES_WAIT);
        patient.patience = Patience::Signals;
        if patient.stream.shutdown(Shutdown::Write).is_err() {
            return self.gone();
        }
        loop {
            match copy.read(&mut self.from) {
                Ok(Next::End) => break,
                Ok(next) => self.count(next, copy),
                // A mirror that is held up: the losses stay those of the last copy.
                Err(error) if error.kind() == ErrorKind::TimedOut => return Ok(end),
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => break,
                Err(error) => return Err(Broken::Mirror(error)),
            }
        }
        self.gone().map(|_| end)
    }

    /// The end of the stream.
    fn gone(&self) -> Result<End, Broken> {
        if self.has_told {
            return Ok(End::PeerGone);
        }
        let text = "the other program was killed, or gave this capture up since it took nothing for \
                    1 s; the packets after that are missing: write to a faster file, or wait for less \
                    with a filter and --snap-length";
        Err(Broken::Mirror(io::Error::new(
            ErrorKind::UnexpectedEof,
            text,
        )))
    }

    /// Waits a little for bytes or the end of the stream; false if neither came.
    fn has_more(&mut self) -> io::Result<bool> {
        self.from.get_mut().patience = Patience::Once;
        let filled = self.from.fill_buf().map(|_| true);
        self.from.get_mut().patience = Patience::ToTheEnd;
        match filled {
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                Ok(false)
            }
            other => other,
        }
    }
}

/// The longest wait of a read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Patience {
    /// The read time-out of the stream.
    Once,
    /// Until a signal arrives or the time is over.
    ToTheEnd,
    /// Until the time is over, beyond signals.
    Signals,
}

/// A stream whose reads wait until something comes, a signal arrives or the time is over.
struct Patient {
    stream: UnixStream,
    end: Option<Instant>,
    patience: Patience,
}

impl Read for Patient {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            // Before each read: a peer that never pauses does not hold the command.
            let is_asked = interrupt::seen() && self.patience != Patience::Signals;
            if is_asked || self.end.is_some_and(|end| Instant::now() >= end) {
                return Err(ErrorKind::TimedOut.into());
            }
            match self.stream.read(into) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error)
                    if error.kind() == ErrorKind::WouldBlock && self.patience != Patience::Once => {
                }
                other => return other,
            }
        }
    }
}
