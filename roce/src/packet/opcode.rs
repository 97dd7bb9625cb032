//! Opcodes of the base transport header.

/// Opcode of the base transport header; unknown values are kept.
/// Source: InfiniBand Architecture Specification volume 1, table 38 (BTH:OpCode); annex A17.9.3
/// for the congestion notification packet.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Opcode(pub u8);

/// The half of an engine that an opcode is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OpcodeClass {
    /// Reliable connection, towards the responder.
    Request,
    /// Reliable connection, towards the requester.
    Response,
    /// Unreliable datagram.
    Datagram,
    /// Congestion notification.
    CongestionNotification,
    /// No opcode that is known here.
    Unknown,
}

/// The extension headers that follow the base transport header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ExtensionKind {
    /// none
    None,
    /// ImmDt, 4 bytes
    Immediate,
    /// IETH, 4 bytes
    Invalidate,
    /// RETH, 16 bytes
    Remote,
    /// RETH and ImmDt, 20 bytes
    RemoteImmediate,
    /// AETH, 4 bytes
    Acknowledge,
    /// AETH and AtomicAckETH, 12 bytes
    AtomicAcknowledge,
    /// AtomicETH, 28 bytes
    Atomic,
    /// DETH, 8 bytes
    Datagram,
    /// DETH and ImmDt, 12 bytes
    DatagramImmediate,
    /// the 16 reserved bytes of a congestion notification packet
    CongestionNotification,
}

impl ExtensionKind {
    /// Length on the wire in bytes.
    #[must_use]
    pub const fn length_bytes(self) -> usize {
        match self {
            Self::None => 0,
            Self::Immediate | Self::Invalidate | Self::Acknowledge => 4,
            Self::Datagram => 8,
            Self::AtomicAcknowledge | Self::DatagramImmediate => 12,
            Self::Remote | Self::CongestionNotification => 16,
            Self::RemoteImmediate => 20,
            Self::Atomic => 28,
        }
    }
}

macro_rules! opcodes {
    ($( $(#[$doc:meta])* $name:ident = $value:literal, $class:ident, $extension:ident; )*) => {
        impl Opcode {
            $( $(#[$doc])* pub const $name: Self = Self($value); )*

            /// Every opcode that has a name here.
            pub const KNOWN: &'static [Self] = &[$( Self::$name ),*];

            /// The half of an engine that it is for.
            #[inline]
            #[must_use]
            pub const fn class(self) -> OpcodeClass {
                match self {
                    $( Self::$name => OpcodeClass::$class, )*
                    _ => OpcodeClass::Unknown,
                }
            }

            /// The extension headers that follow; none for an unknown opcode.
            #[inline]
            #[must_use]
            pub const fn extension_kind(self) -> ExtensionKind {
                match self {
                    $( Self::$name => ExtensionKind::$extension, )*
                    _ => ExtensionKind::None,
                }
            }
        }

        impl core::fmt::Debug for Opcode {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                match *self {
                    $( Self::$name => f.write_str(stringify!($name)), )*
                    Self(other) => write!(f, "Opcode({other:#04x})"),
                }
            }
        }
    };
}

opcodes! {
    /// RC: first packet of a send
    SEND_FIRST = 0x00, Request, None;
    /// RC: middle packet of a send
    SEND_MIDDLE = 0x01, Request, None;
    /// RC: last packet of a send
    SEND_LAST = 0x02, Request, None;
    /// RC: last packet of a send, with immediate data
    SEND_LAST_WITH_IMMEDIATE = 0x03, Request, Immediate;
    /// RC: a send in one packet
    SEND_ONLY = 0x04, Request, None;
    /// RC: a send in one packet, with immediate data
    SEND_ONLY_WITH_IMMEDIATE = 0x05, Request, Immediate;
    /// RC: first packet of an RDMA write
    WRITE_FIRST = 0x06, Request, Remote;
    /// RC: middle packet of an RDMA write
    WRITE_MIDDLE = 0x07, Request, None;
    /// RC: last packet of an RDMA write
    WRITE_LAST = 0x08, Request, None;
    /// RC: last packet of an RDMA write, with immediate data
    WRITE_LAST_WITH_IMMEDIATE = 0x09, Request, Immediate;
    /// RC: an RDMA write in one packet
    WRITE_ONLY = 0x0A, Request, Remote;
    /// RC: an RDMA write in one packet, with immediate data
    WRITE_ONLY_WITH_IMMEDIATE = 0x0B, Request, RemoteImmediate;
    /// RC: RDMA read request
    READ_REQUEST = 0x0C, Request, Remote;
    /// RC: first packet of a read response
    READ_RESPONSE_FIRST = 0x0D, Response, Acknowledge;
    /// RC: middle packet of a read response
    READ_RESPONSE_MIDDLE = 0x0E, Response, None;
    /// RC: last packet of a read response
    READ_RESPONSE_LAST = 0x0F, Response, Acknowledge;
    /// RC: a read response in one packet
    READ_RESPONSE_ONLY = 0x10, Response, Acknowledge;
    /// RC: acknowledgement, positive or negative
    ACKNOWLEDGE = 0x11, Response, Acknowledge;
    /// RC: answer to an atomic operation
    ATOMIC_ACKNOWLEDGE = 0x12, Response, AtomicAcknowledge;
    /// RC: compare and swap
    COMPARE_SWAP = 0x13, Request, Atomic;
    /// RC: fetch and add
    FETCH_ADD = 0x14, Request, Atomic;
    /// RC: last packet of a send that invalidates a key
    SEND_LAST_WITH_INVALIDATE = 0x16, Request, Invalidate;
    /// RC: a send in one packet that invalidates a key
    SEND_ONLY_WITH_INVALIDATE = 0x17, Request, Invalidate;
    /// UD: a datagram
    DATAGRAM = 0x64, Datagram, Datagram;
    /// UD: a datagram with immediate data
    DATAGRAM_WITH_IMMEDIATE = 0x65, Datagram, DatagramImmediate;
    /// RoCEv2 congestion notification packet (CNP)
    CONGESTION_NOTIFICATION = 0x81, CongestionNotification, CongestionNotification;
}
