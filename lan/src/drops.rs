//! Packets that queues dropped, by cause.

/// Packets that a queue dropped since it was made, with a field for each cause; one, `unsent`, is
/// an upper bound. A receive queue and a transmit queue give it (`drops`); causes of the other
/// direction stay 0.
///
/// The queue counts on its slow path: a packet that is delivered or sent costs nothing. Not in
/// here:
/// - Packets that the device dropped because no descriptor was free or the frame was damaged: the
///   device has no count for a queue. See `rx_dropped` and the counters ending in `.nic` in the
///   port's statistics.
/// - Packets with a wrong checksum: they are delivered, with a flag
///   ([`Packet::flags`](crate::Packet)).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Drops {
    /// Receive: the device reports a length of 0 or beyond the buffer. A fault of the device.
    pub bad_length: u64,
    /// Receive: the descriptor has the layout of another profile. A fault of the device or of the
    /// queue's context.
    pub bad_profile: u64,
    /// Receive: the frame has more than five buffers. Choose larger buffers or a smaller MTU.
    pub chain_too_long: u64,
    /// Receive: the packet had arrived when the queue stopped. Receive until nothing arrives, then
    /// stop.
    pub unread: u64,
    /// Transmit: shorter than 17 bytes, with an empty segment, or shortened after checksums or
    /// segmentation were requested. A fault of the caller.
    pub too_short: u64,
    /// Transmit: longer than the device sends, or a segment longer than a descriptor takes. Request
    /// segmentation, or send less.
    pub too_long: u64,
    /// Transmit: a frame of more than eight buffers, or more than the ring has descriptors. Copy it
    /// into fewer.
    pub too_many_segments: u64,
    /// Transmit: an outer tag without an inner one, which a card in single VLAN mode does not
    /// insert. Set the tag with [`Packet::set_vlan`](crate::Packet::set_vlan).
    pub outer_tag_alone: u64,
    /// Transmit: of another pool, and the queue's own had no buffers for a copy. Make the pool
    /// larger, or send from the queue's own.
    pub no_buffers: u64,
    /// Transmit: in the ring when the queue stopped, and not reported sent. Some may have been
    /// sent: the device reports the last packet of a burst, for all of it. Reclaim until nothing is
    /// outstanding, then stop.
    pub unsent: u64,
}

impl Drops {
    /// Number of causes.
    pub const CAUSES: usize = 10;

    /// Names of the causes, which are those of the fields, in the order of [`Drops::counts`].
    pub const NAMES: [&'static str; Self::CAUSES] = [
        "bad_length",
        "bad_profile",
        "chain_too_long",
        "unread",
        "too_short",
        "too_long",
        "too_many_segments",
        "outer_tag_alone",
        "no_buffers",
        "unsent",
    ];

    /// The count of each cause.
    #[must_use]
    pub const fn counts(&self) -> [u64; Self::CAUSES] {
        let Self {
            bad_length,
            bad_profile,
            chain_too_long,
            unread,
            too_short,
            too_long,
            too_many_segments,
            outer_tag_alone,
            no_buffers,
            unsent,
        } = *self;
        [
            bad_length,
            bad_profile,
            chain_too_long,
            unread,
            too_short,
            too_long,
            too_many_segments,
            outer_tag_alone,
            no_buffers,
            unsent,
        ]
    }

    /// All packets that the queue dropped.
    #[must_use]
    pub fn packets(&self) -> u64 {
        self.counts().iter().sum()
    }
}

#[cfg(test)]
mod tests;
