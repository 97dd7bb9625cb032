//! vfio-user: a PCI function in another process, over a Unix stream socket.
//!
//! The messages ([`message`]), the negotiation ([`capabilities`]) and the socket ([`Stream`]) serve
//! both sides. [`VfioUserFunction`] is the client; the server crate has the server. Neither side
//! trusts the other: received data is decoded with bounds checks and refused with an errno, and
//! every wait has a deadline.
//!
//! Source: QEMU `docs/interop/vfio-user.rst`, protocol version 0.1, and `linux/vfio.h` for the
//! structures that it borrows. All numbers are in the host's byte order.

pub mod capabilities;
pub mod client;
pub mod message;
pub mod owner;
pub mod stream;

pub use capabilities::Capabilities;
pub use client::{ClientLimits, VfioUserFunction};
pub use message::{Command, DecodeError, Header};
pub use stream::{Message, Received, Stream, StreamError};
