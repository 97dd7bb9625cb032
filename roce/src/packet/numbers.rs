//! Numbers of the transport headers, 24 bits each.

ringside_spec::words! {
    /// A 32-bit word of which a header carries the low 24 bits.
    struct Low24: u32 {
        /// the part that travels
        value: [23:0],
    }
}

/// Packet sequence number: 24 bits, counts modulo 2^24.
/// Source: InfiniBand Architecture Specification volume 1, 9.2.8 (BTH:PSN).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Psn(u32);

impl Psn {
    /// The number of numbers.
    pub const MODULUS: u32 = Low24::VALUE_MASK + 1;

    /// The number of `value` modulo 2^24.
    #[inline]
    #[must_use]
    pub const fn new(value: u32) -> Self {
        Self(Low24(value).value())
    }

    /// The number at 64-bit position `position` of a stream that started within the first 2^24.
    #[inline]
    #[must_use]
    pub const fn from_position(position: u64) -> Self {
        Self::new(position as u32)
    }

    /// 0..2^24.
    #[inline]
    #[must_use]
    pub const fn value(self) -> u32 {
        self.0
    }

    /// The number `count` further on.
    #[inline]
    #[must_use]
    pub const fn plus(self, count: u32) -> Self {
        Self::new(self.0.wrapping_add(count))
    }

    /// The distance of `self` from `earlier`: -2^23..2^23, negative if it lies before.
    #[inline]
    #[must_use]
    pub const fn distance_from(self, earlier: Self) -> i32 {
        let forward = Low24(self.0.wrapping_sub(earlier.0)).value();
        if forward < Self::MODULUS / 2 {
            forward as i32
        } else {
            forward as i32 - Self::MODULUS as i32
        }
    }

    /// The 64-bit position nearest to `reference` that has this number (window -2^23..2^23).
    /// Positions below zero do not exist and come out as `None`.
    #[inline]
    #[must_use]
    pub const fn position_near(self, reference: u64) -> Option<u64> {
        reference.checked_add_signed(self.distance_from(Self::from_position(reference)) as i64)
    }
}

impl core::fmt::Debug for Psn {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Psn({:#08x})", self.0)
    }
}

/// Queue pair number: 24 bits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct QpNumber(u32);

impl QpNumber {
    /// The low 24 bits of `value`.
    #[inline]
    #[must_use]
    pub const fn new(value: u32) -> Self {
        Self(Low24(value).value())
    }

    /// 0..2^24.
    #[inline]
    #[must_use]
    pub const fn value(self) -> u32 {
        self.0
    }
}

impl core::fmt::Debug for QpNumber {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "QpNumber({:#x})", self.0)
    }
}
