//! Protocols above IP.

/// A protocol whose checksum the device computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layer4 {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
    /// SCTP: CRC32c.
    Sctp,
}
