//! The admin queue: commands to the firmware of the physical function, and its events.
//!
//! A descriptor of 32 bytes carries an opcode and sixteen bytes of parameters; an indirect one
//! names a buffer as well. The firmware writes descriptor and buffer back, then advances the head.
//! The return code, not a flag, gives the result. The mailbox uses the same descriptors.

pub mod access_control;
pub mod board;
pub mod capabilities;
mod descriptor;
pub mod generic;
pub mod link;
pub mod lldp;
pub mod neighbour;
pub mod nvm;
mod opcode;
pub mod package;
pub mod phy_type;
pub mod queues;
pub mod rss;
pub mod scheduler;
pub mod switch;
pub mod vsi;

pub use descriptor::{Descriptor, DescriptorFlags, Direction, Generic};
pub use opcode::{FURTHER, Opcode, ReturnCode, further_name};

/// Bytes of a descriptor.
pub const DESCRIPTOR_SIZE: usize = Descriptor::SIZE;
/// Bytes of a buffer that drivers give with events and large commands.
pub const BUFFER_SIZE: usize = 4096;
/// A buffer beyond this many bytes needs [`DescriptorFlags::large_buffer`].
pub const LARGE_BUFFER_BYTES: usize = 512;
/// Version of the interface that the E810's drivers expect: major, minor.
pub const EXPECTED_VERSION: (u8, u8) = (1, 5);

#[cfg(test)]
mod tests;
