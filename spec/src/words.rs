//! The notation in which words of registers and descriptors are declared.

/// Declares words with named bit ranges, written as the data sheets write them: `[high:low]`.
///
/// For each field the type gets a reader `field()`, a builder `with_field(value)` and the two
/// constants `FIELD_MASK` and `FIELD_SHIFT`. A one-bit field reads and takes `bool`, a wider one
/// the word's own integer type. Overlapping ranges and ranges outside the word do not compile.
/// A value too wide for its field is a bug of the caller: it is asserted in debug builds and cut
/// to the field in release builds, so that it can never spill into a neighbour.
///
/// ```
/// ringside_spec::words! {
///     /// Send fragment, second word.
///     /// Source: irdma `defs.h`, IRDMAQPSQ_FRAG_STAG / _LEN / _VALID.
///     pub struct FragmentKey: u64 {
///         /// steering tag of the region to read
///         steering_tag: [31:0],
///         /// bytes to gather
///         length_bytes: [62:32],
///         /// ring polarity
///         valid: [63],
///     }
/// }
/// let key = FragmentKey::ZERO.with_steering_tag(7).with_length_bytes(64).with_valid(true);
/// assert_eq!(key.0, 7 | 64 << 32 | 1 << 63);
/// assert_eq!(key.length_bytes(), 64);
/// assert_eq!(FragmentKey::RESERVED, 0);
/// ```
///
/// ```compile_fail
/// ringside_spec::words! { pub struct Overlapping: u64 { low: [31:0], high: [40:31] } }
/// ```
///
/// ```compile_fail
/// ringside_spec::words! { pub struct TooHigh: u32 { high: [40:31] } }
/// ```
#[macro_export]
macro_rules! words {
    ($(
        $(#[$outer:meta])*
        $vis:vis struct $name:ident: $int:ty {
            $( $(#[$inner:meta])* $field:ident: [$($bits:tt)+] ),* $(,)?
        }
    )*) => {$(
        $(#[$outer])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
        #[repr(transparent)]
        $vis struct $name(pub $int);

        #[allow(missing_docs, dead_code, clippy::identity_op)]
        impl $name {
            /// The word with no bit set.
            $vis const ZERO: Self = Self(0);
            /// Every bit that has a name.
            $vis const DEFINED: $int = 0 $( | $crate::words!(@mask $int, $($bits)+) )*;
            /// Every bit without a meaning; a strict reader requires them to be zero.
            $vis const RESERVED: $int = !Self::DEFINED;
            $( $crate::words!(@field $vis, $int, [$(#[$inner])*] $field, $($bits)+); )*
        }

        const _: () = {
            let mut seen: $int = 0;
            $(
                let mask: $int = $crate::words!(@mask $int, $($bits)+);
                assert!(seen & mask == 0, "two fields share a bit");
                seen |= mask;
            )*
            let _ = seen;
        };

        impl ::core::fmt::Debug for $name {
            fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
                f.debug_struct(stringify!($name))
                    $( .field(stringify!($field), &self.$field()) )*
                    .finish()
            }
        }
    )*};

    (@mask $int:ty, $high:literal : $low:literal) => {{
        assert!($high >= $low && $high < <$int>::BITS, "a range outside its word");
        (<$int>::MAX >> (<$int>::BITS - 1 - ($high - $low))) << $low
    }};
    (@mask $int:ty, $bit:literal) => {{
        assert!($bit < <$int>::BITS, "a bit outside its word");
        (1 as $int) << $bit
    }};

    (@field $vis:vis, $int:ty, [$(#[$inner:meta])*] $field:ident, $high:literal : $low:literal) => {
        $crate::__pastey::paste! {
            $vis const [<$field:upper _MASK>]: $int = $crate::words!(@mask $int, $high : $low);
            $vis const [<$field:upper _SHIFT>]: u32 = $low;
            $(#[$inner])*
            #[inline(always)]
            #[must_use]
            $vis const fn $field(self) -> $int {
                (self.0 & Self::[<$field:upper _MASK>]) >> $low
            }
            $(#[$inner])*
            #[inline(always)]
            #[must_use]
            $vis const fn [<with_ $field>](self, value: $int) -> Self {
                debug_assert!(
                    value <= Self::[<$field:upper _MASK>] >> $low,
                    concat!(stringify!($field), ": value too wide for its field")
                );
                let placed = (value << $low) & Self::[<$field:upper _MASK>];
                Self((self.0 & !Self::[<$field:upper _MASK>]) | placed)
            }
        }
    };
    (@field $vis:vis, $int:ty, [$(#[$inner:meta])*] $field:ident, $bit:literal) => {
        $crate::__pastey::paste! {
            $vis const [<$field:upper _MASK>]: $int = $crate::words!(@mask $int, $bit);
            $vis const [<$field:upper _SHIFT>]: u32 = $bit;
            $(#[$inner])*
            #[inline(always)]
            #[must_use]
            $vis const fn $field(self) -> bool {
                self.0 & Self::[<$field:upper _MASK>] != 0
            }
            $(#[$inner])*
            #[inline(always)]
            #[must_use]
            $vis const fn [<with_ $field>](self, value: bool) -> Self {
                let cleared = self.0 & !Self::[<$field:upper _MASK>];
                Self(cleared | ((value as $int) << $bit))
            }
        }
    };
}

#[cfg(test)]
mod tests {
    crate::words! {
        struct Sample: u64 {
            low: [7:0],
            flag: [8],
            wide: [63:9],
        }
        struct Narrow: u32 {
            top: [31],
            middle: [20:4],
        }
    }

    #[test]
    fn fields_read_back_and_leave_their_neighbours_alone() {
        let word = Sample::ZERO
            .with_low(0xAB)
            .with_flag(true)
            .with_wide((1 << 55) - 1);
        assert_eq!(
            (word.low(), word.flag(), word.wide()),
            (0xAB, true, (1 << 55) - 1)
        );
        assert_eq!(word.with_flag(false).with_low(0).0, u64::MAX << 9);
        assert_eq!(Sample::RESERVED, 0);
    }

    #[test]
    fn reserved_bits_are_those_without_a_name() {
        assert_eq!(Narrow::DEFINED, 0x8000_0000 | 0x001F_FFF0);
        assert_eq!(Narrow::ZERO.with_top(true).with_middle(1).0, 0x8000_0010);
    }

    #[test]
    fn debug_names_every_field() {
        let text = format!("{:?}", Sample::ZERO.with_low(3));
        assert_eq!(text, "Sample { low: 3, flag: false, wide: 0 }");
    }
}
