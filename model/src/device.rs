//! The requests of a transport to the model: the same requests from another thread, another
//! process, or the caller's own thread.

use ringside_bus::function::{BarInfo, DmaAccess};
use ringside_bus::{Iova, Memory};
use std::ops::Range;
use std::os::fd::OwnedFd;

/// One request to one function.
#[derive(Debug)]
pub enum Request {
    /// Bytes of configuration space.
    ConfigRead {
        /// First byte.
        offset: u16,
        /// The number of bytes.
        length: u16,
    },
    /// Write configuration space.
    ConfigWrite {
        /// First byte.
        offset: u16,
        /// The bytes.
        bytes: Vec<u8>,
    },
    /// Read a register of 4 or 8 bytes.
    RegisterRead {
        /// Base address register.
        bar: u8,
        /// Byte offset.
        offset: u64,
        /// 4 or 8.
        width: u8,
    },
    /// Write a register of 4 or 8 bytes.
    RegisterWrite {
        /// Base address register.
        bar: u8,
        /// Byte offset.
        offset: u64,
        /// 4 or 8.
        width: u8,
        /// The value.
        value: u64,
    },
    /// Size and mappable parts of a base address register.
    Bar {
        /// Its number.
        bar: u8,
    },
    /// Map memory for the function.
    MapDma {
        /// The first address.
        iova: Iova,
        /// The memory.
        memory: Memory,
        /// The bytes of it that are mapped.
        range: Range<usize>,
        /// The rights of the device.
        access: DmaAccess,
    },
    /// Take memory back.
    UnmapDma {
        /// First address.
        iova: Iova,
        /// Bytes.
        length: u64,
    },
    /// The number of interrupt vectors.
    InterruptVectors,
    /// Connect vectors to event descriptors.
    SetInterrupts {
        /// First vector.
        first: u16,
        /// One for each; `None` disconnects.
        events: Vec<Option<OwnedFd>>,
    },
    /// Connect the host's request to release the function; `None` disconnects.
    SetReleaseEvent {
        /// The event descriptor.
        event: Option<OwnedFd>,
    },
    /// Function-level reset.
    Reset,
}

impl Request {
    /// A short name of the request.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::ConfigRead { .. } => "reading configuration space",
            Self::ConfigWrite { .. } => "writing configuration space",
            Self::RegisterRead { .. } => "reading a register",
            Self::RegisterWrite { .. } => "writing a register",
            Self::Bar { .. } => "asking for a base address register",
            Self::MapDma { .. } => "mapping memory for DMA",
            Self::UnmapDma { .. } => "unmapping memory from DMA",
            Self::InterruptVectors => "asking for the interrupt vectors",
            Self::SetInterrupts { .. } => "connecting interrupt vectors",
            Self::SetReleaseEvent { .. } => "connecting the request for release",
            Self::Reset => "resetting the function",
        }
    }
}

/// The answer to a [`Request`].
#[derive(Debug)]
pub enum Reply {
    /// Done; there is no value.
    Done,
    /// Configuration bytes.
    Bytes(Vec<u8>),
    /// A register's value.
    Value(u64),
    /// A base address register.
    Bar(BarInfo),
    /// A number of vectors.
    Vectors(u16),
    /// Refused; the text is the reason.
    Refused(String),
}
