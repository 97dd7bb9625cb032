//! Key and table of the hash.

/// The key of a port for which none is chosen: that of Microsoft's verification suite, continued
/// with its own beginning. It is public, so a peer can choose packets for one queue; choose a
/// random key if that matters.
pub const DEFAULT_KEY: [u8; 52] = [
    0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3, 0x8f, 0xb0,
    0xd0, 0xca, 0x2b, 0xcb, 0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30, 0xf2, 0x0c,
    0x6a, 0x42, 0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa, 0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2,
    0x41, 0x67, 0x25, 0x3d,
];

/// Key and table of the hash that chooses a packet's queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spreading {
    /// Key of the Toeplitz hash.
    pub key: [u8; 52],
    /// Queues, repeated to the size of the device's table: the hash modulo that size chooses. At
    /// most [`Vsi::hash_table_entries`](super::Vsi).
    pub table: Vec<u8>,
}

/// Each queue in turn.
pub(super) fn even_table(queues: usize) -> Vec<u8> {
    (0..queues).map(|queue| queue as u8).collect()
}
