//! Captures in the classic pcap format, for tshark and Wireshark.

use std::io::{self, Write};

use ringside_clock::Instant;
use zerocopy::byteorder::little_endian::{U16, U32};
use zerocopy::{Immutable, IntoBytes};

/// Magic number of a capture whose time stamps are in nanoseconds.
const MAGIC_NANOSECONDS: u32 = 0xA1B2_3C4D;
const LINK_TYPE_ETHERNET: u32 = 1;
const SNAPSHOT_BYTES: u32 = 65_536;
const NANOSECONDS_PER_SECOND: u64 = 1_000_000_000;

/// Source: IETF draft-ietf-opsawg-pcap, section 4 (file header).
#[derive(IntoBytes, Immutable)]
#[repr(C)]
struct FileHeader {
    magic: U32,
    major: U16,
    minor: U16,
    reserved: [U32; 2],
    snapshot_bytes: U32,
    link_type: U32,
}

/// Source: IETF draft-ietf-opsawg-pcap, section 5 (packet record).
#[derive(IntoBytes, Immutable)]
#[repr(C)]
struct RecordHeader {
    seconds: U32,
    nanoseconds: U32,
    captured_bytes: U32,
    original_bytes: U32,
}

/// Writes frames to a capture file.
///
/// Give it a buffered writer. Time stamps count from the clock's own start; seconds wrap after
/// 2^32 of them, as the format has it.
#[derive(Debug)]
pub struct PcapWriter<W: Write> {
    output: W,
    frames: u64,
}

impl<W: Write> PcapWriter<W> {
    /// Starts a capture of Ethernet frames.
    ///
    /// # Errors
    /// The writer's result.
    pub fn new(mut output: W) -> io::Result<Self> {
        let header = FileHeader {
            magic: MAGIC_NANOSECONDS.into(),
            major: 2.into(),
            minor: 4.into(),
            reserved: [0.into(); 2],
            snapshot_bytes: SNAPSHOT_BYTES.into(),
            link_type: LINK_TYPE_ETHERNET.into(),
        };
        output.write_all(header.as_bytes())?;
        Ok(Self { output, frames: 0 })
    }

    /// Adds one frame, without frame check sequence; longer ones than 64 KiB are cut.
    ///
    /// # Errors
    /// The writer's result.
    pub fn write_frame(&mut self, at: Instant, frame: &[u8]) -> io::Result<()> {
        let kept = frame.get(..SNAPSHOT_BYTES as usize).unwrap_or(frame);
        let original = u32::try_from(frame.len()).unwrap_or(u32::MAX);
        let header = RecordHeader {
            seconds: ((at.0 / NANOSECONDS_PER_SECOND) as u32).into(),
            nanoseconds: ((at.0 % NANOSECONDS_PER_SECOND) as u32).into(),
            captured_bytes: (kept.len() as u32).into(),
            original_bytes: original.into(),
        };
        self.output.write_all(header.as_bytes())?;
        self.output.write_all(kept)?;
        self.frames += 1;
        Ok(())
    }

    /// Frames written so far.
    #[must_use]
    pub fn frames(&self) -> u64 {
        self.frames
    }

    /// Flushes the writer.
    ///
    /// # Errors
    /// The writer's result.
    pub fn flush(&mut self) -> io::Result<()> {
        self.output.flush()
    }

    /// Flushes and gives the writer back.
    ///
    /// # Errors
    /// The writer's result.
    pub fn finish(mut self) -> io::Result<W> {
        self.output.flush()?;
        Ok(self.output)
    }
}
