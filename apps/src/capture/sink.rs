//! The file of a capture, its filter, and its limits.

use super::filter::Filter;
use super::pcapng::{Interface, Pcapng};
use crate::interrupt;
use crate::mirror::Copied;
use serde::Serialize;
use std::io::{self, Write};
use std::time::{Duration, Instant};

/// The longest time for which packets are only in memory.
const FLUSH_EVERY: Duration = Duration::from_secs(1);

/// The limits at which a capture ends.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) packets: Option<u64>,
    /// of the file
    pub(super) bytes: Option<u64>,
    /// of a packet that are written
    pub(super) snap_length: usize,
    pub(super) end: Option<Instant>,
}

/// The reason why a capture ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Count,
    Size,
    Duration,
    Interrupted,
    PeerGone,
}

impl End {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Count => "count",
            Self::Size => "size",
            Self::Duration => "duration",
            Self::Interrupted => "interrupt",
            Self::PeerGone => "the end of the other program",
        }
    }
}

/// Counters of a capture.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Totals {
    /// packets that were checked
    pub(super) seen: u64,
    /// of those, packets that did not match the filter
    pub(super) unwanted: u64,
    /// packets in the file
    pub(super) packets: u64,
    /// bytes of the file
    pub(super) bytes: u64,
}

/// See the module.
pub(super) struct Sink {
    file: Pcapng<Box<dyn Write>>,
    interfaces: usize,
    filter: Filter,
    limits: Limits,
    totals: Totals,
    is_full: bool,
    flushed: Instant,
}

impl Sink {
    /// Bytes of a file without packets.
    pub(super) fn header_bytes(interfaces: &[Interface], snap_length: usize) -> io::Result<u64> {
        let file = Pcapng::new(io::sink(), interfaces, snap_length as u32)?;
        Ok(file.bytes)
    }

    pub(super) fn new(
        out: Box<dyn Write>,
        interfaces: &[Interface],
        filter: Filter,
        limits: Limits,
    ) -> io::Result<Self> {
        let snap_length = limits.snap_length as u32;
        Ok(Self {
            file: Pcapng::new(out, interfaces, snap_length)?,
            interfaces: interfaces.len(),
            filter,
            limits,
            totals: Totals::default(),
            is_full: false,
            flushed: Instant::now(),
        })
    }

    /// Writes a packet if it matches the filter. One that would make the file too long ends the
    /// capture.
    pub(super) fn take(&mut self, copy: &Copied) -> io::Result<()> {
        self.totals.seen += 1;
        let original = copy.original as usize;
        if !self.filter.wants(copy.bytes(), original) || usize::from(copy.port) >= self.interfaces {
            self.totals.unwanted += 1;
            return Ok(());
        }
        let length = copy.bytes().len().min(self.limits.snap_length);
        let would_be = self.file.bytes_with(length);
        if self.limits.bytes.is_some_and(|limit| would_be > limit) {
            self.is_full = true;
            return Ok(());
        }
        let data = copy.bytes().get(..length).unwrap_or_default();
        let place = (copy.port.into(), copy.direction);
        self.file.packet(place, copy.time_ns, data, copy.original)?;
        self.totals.packets += 1;
        Ok(())
    }

    /// The reason to end, if there is one.
    pub(super) fn end(&self) -> Option<End> {
        if self.is_full {
            return Some(End::Size);
        }
        if self
            .limits
            .packets
            .is_some_and(|limit| self.totals.packets >= limit)
        {
            return Some(End::Count);
        }
        if interrupt::seen() {
            return Some(End::Interrupted);
        }
        let over = self.limits.end.is_some_and(|end| Instant::now() >= end);
        over.then_some(End::Duration)
    }

    /// The reason why nothing more was waited for.
    pub(super) fn end_of_time(&self) -> End {
        self.end().unwrap_or(End::Interrupted)
    }

    pub(super) fn flush(&mut self) -> io::Result<()> {
        self.flushed = Instant::now();
        self.file.flush()
    }

    /// Flushes if the last time is long ago: for a stream of packets that never pauses.
    pub(super) fn flush_if_due(&mut self) -> io::Result<()> {
        match self.flushed.elapsed() >= FLUSH_EVERY {
            true => self.flush(),
            false => Ok(()),
        }
    }

    pub(super) fn finish(mut self) -> io::Result<Totals> {
        self.file.flush()?;
        self.totals.bytes = self.file.bytes;
        Ok(self.totals)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mirror::Direction;

    fn sink(packets: Option<u64>, bytes: Option<u64>, filter: &str) -> Sink {
        let limits = Limits {
            packets,
            bytes,
            snap_length: ringside_spec::lan::limits::MAX_FRAME_BYTES.into(),
            end: None,
        };
        let names = ["a".into()];
        Sink::new(
            Box::new(io::sink()),
            &names,
            filter.parse().unwrap(),
            limits,
        )
        .unwrap()
    }

    #[test]
    fn a_capture_ends_at_its_count_and_before_its_size() {
        let mut copy = Copied::empty();
        copy.direction = Direction::Sent;
        let mut counted = sink(Some(3), None, "");
        for _ in 0..3 {
            assert_eq!(counted.end(), None);
            counted.take(&copy).unwrap();
        }
        assert_eq!(counted.end(), Some(End::Count));
        let mut sized = sink(None, Some(500), "");
        while sized.end().is_none() {
            sized.take(&copy).unwrap();
        }
        assert_eq!(sized.end(), Some(End::Size));
        let totals = sized.finish().unwrap();
        assert!(totals.bytes <= 500 && totals.packets > 0, "{totals:?}");
    }

    #[test]
    fn what_the_filter_does_not_want_is_counted_and_not_written() {
        let mut none = sink(None, None, "udp");
        none.take(&Copied::empty()).unwrap();
        let totals = none.finish().unwrap();
        assert_eq!((totals.seen, totals.unwanted, totals.packets), (1, 1, 0));
    }
}
