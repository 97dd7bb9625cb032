//! The notation in which structures of several 64-bit words are declared.
//!
//! [`words!`](crate::words) declares one word. Most structures that the RDMA engine reads from
//! memory are a fixed number of words with fields in all of them, so here a structure is declared
//! as plain values, each with the bits that carry it: `field: type = word[high:low]`. A value that
//! is split over several places lists them from its least significant piece: `7[63:48] | 0[21:20]`.
//!
//! Encoder, decoder, the mask of undefined bits and the table of fields all come from that one
//! list. Overlapping fields, and fields wider than their type, do not compile.

/// A value that a field of a structure in memory can carry.
pub trait FieldValue: Copy {
    /// Bits that the type can hold; a field is never wider.
    const BITS: u32;
    /// The value that is all zero in memory.
    const ZERO: Self;
    /// The value as it is stored, in the low bits.
    fn to_field(self) -> u128;
    /// The value that these stored bits mean. Bits from [`Self::BITS`] up are ignored.
    fn from_field(bits: u128) -> Self;
}

macro_rules! integer_field_value {
    ($($int:ty),*) => {$(
        impl FieldValue for $int {
            const BITS: u32 = <$int>::BITS;
            const ZERO: Self = 0;
            fn to_field(self) -> u128 {
                u128::from(self)
            }
            #[allow(clippy::cast_possible_truncation)]
            fn from_field(bits: u128) -> Self {
                bits as $int
            }
        }
    )*};
}
integer_field_value!(u8, u16, u32, u64, u128);

impl FieldValue for bool {
    const BITS: u32 = 1;
    const ZERO: Self = false;
    fn to_field(self) -> u128 {
        u128::from(self)
    }
    fn from_field(bits: u128) -> Self {
        bits & 1 != 0
    }
}

/// A MAC address in the order of the wire: its first octet is the most significant of 48 bits.
impl FieldValue for [u8; 6] {
    const BITS: u32 = 48;
    const ZERO: Self = [0; 6];
    fn to_field(self) -> u128 {
        self.iter()
            .fold(0, |value, octet| value << 8 | u128::from(*octet))
    }
    fn from_field(bits: u128) -> Self {
        let [.., a, b, c, d, e, f] = bits.to_be_bytes();
        [a, b, c, d, e, f]
    }
}

/// The bits of one word that carry a field or a part of it. They are contiguous.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Index of the 64-bit word.
    pub word: usize,
    /// The bits in that word.
    pub mask: u64,
}

/// The position of a field in its structure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FieldLayout {
    /// The field's name in the Rust structure.
    pub name: &'static str,
    /// Its pieces, least significant first.
    pub pieces: &'static [Piece],
}

impl FieldLayout {
    /// Number of bits of the field.
    #[must_use]
    pub fn bits(&self) -> u32 {
        self.pieces
            .iter()
            .map(|piece| piece.mask.count_ones())
            .sum()
    }

    /// Stores a value and leaves all other bits alone.
    ///
    /// A value too wide for the field is a bug of the caller: asserted in debug builds, cut to the
    /// field in release builds. A piece beyond the end of `words` is not stored.
    pub fn place(&self, words: &mut [u64], value: u128) {
        let mut rest = value;
        for piece in self.pieces {
            let shift = piece.mask.trailing_zeros();
            #[allow(clippy::cast_possible_truncation)]
            let placed = ((rest as u64) << shift) & piece.mask;
            if let Some(word) = words.get_mut(piece.word) {
                *word = (*word & !piece.mask) | placed;
            }
            rest >>= piece.mask.count_ones();
        }
        debug_assert!(
            rest == 0,
            "{}: value {value:#x} too wide for its field",
            self.name
        );
    }

    /// Reads the field. A piece beyond the end of `words` reads as zero.
    #[must_use]
    pub fn extract(&self, words: &[u64]) -> u128 {
        let mut value = 0;
        let mut position = 0;
        for piece in self.pieces {
            let word = words.get(piece.word).copied().unwrap_or(0);
            let part = (word & piece.mask) >> piece.mask.trailing_zeros();
            value |= u128::from(part) << position;
            position += piece.mask.count_ones();
        }
        value
    }
}

/// Returns the words with the bits of `defined` removed: the bits that a strict reader requires to
/// be zero.
#[must_use]
pub const fn undefined_bits<const N: usize>(words: &[u64; N], defined: &[u64; N]) -> [u64; N] {
    let mut undefined = [0; N];
    let mut index = 0;
    while index < N {
        undefined[index] = words[index] & !defined[index];
        index += 1;
    }
    undefined
}

/// Little-endian bytes, as they lie in memory, of an array of words.
#[must_use]
pub fn to_bytes(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// Words from their little-endian bytes in memory; `None` unless there are exactly `8 * N` bytes.
#[must_use]
pub fn from_bytes<const N: usize>(bytes: &[u8]) -> Option<[u64; N]> {
    let (chunks, rest) = bytes.as_chunks::<8>();
    if !rest.is_empty() {
        return None;
    }
    let chunks: &[[u8; 8]; N] = chunks.try_into().ok()?;
    Some(chunks.map(u64::from_le_bytes))
}

/// Declares structures of 64-bit words; see the [module](self).
///
/// Each gets `ZERO`, `FIELDS`, `DEFINED`, `encode()`, `decode()` and `reserved_bits()`.
macro_rules! layout {
    ($(
        $(#[$outer:meta])*
        pub struct $name:ident: [u64; $count:literal] $body:tt
    )*) => {$(
        layout!(@structure [$(#[$outer])*] $name $count $body [0; $count]);

        impl $name {
            /// The words as they lie in memory.
            #[must_use]
            pub fn encode(&self) -> [u64; $count] {
                let mut words = [0; $count];
                self.place_fields(&mut words);
                words
            }

            /// Reads every field; bits that carry none are ignored, see [`Self::reserved_bits`].
            #[must_use]
            pub fn decode(words: &[u64; $count]) -> Self {
                Self::extract_fields(words)
            }
        }
    )*};

    (@structure [$(#[$outer:meta])*] $name:ident $count:tt {
        $( $(#[$inner:meta])* $field:ident: $ty:ty = $( $word:literal [ $($bits:tt)+ ] )|+ ),* $(,)?
    } $fixed:expr) => {
        $(#[$outer])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub struct $name {
            $( $(#[$inner])* pub $field: $ty, )*
        }

        impl $name {
            /// Every field zero.
            pub const ZERO: Self = Self {
                $( $field: <$ty as $crate::rdma::layout::FieldValue>::ZERO, )*
            };

            /// The position of each field.
            pub const FIELDS: &'static [$crate::rdma::layout::FieldLayout] = &[
                $( $crate::rdma::layout::FieldLayout {
                    name: stringify!($field),
                    pieces: &[ $( $crate::rdma::layout::Piece {
                        word: $word,
                        mask: $crate::words!(@mask u64, $($bits)+),
                    } ),+ ],
                }, )*
            ];

            /// The bits of each word that have a meaning.
            pub const DEFINED: [u64; $count] = {
                #[allow(unused_mut)]
                let mut seen: [u64; $count] = $fixed;
                $({
                    let mut width = 0;
                    $(
                        let mask = $crate::words!(@mask u64, $($bits)+);
                        assert!(seen[$word] & mask == 0, "two fields share a bit");
                        seen[$word] |= mask;
                        width += mask.count_ones();
                    )+
                    let most = <$ty as $crate::rdma::layout::FieldValue>::BITS;
                    assert!(width <= most, "a field wider than its type");
                })*
                seen
            };

            /// The bits that are set although they have no meaning, word by word.
            #[must_use]
            pub const fn reserved_bits(words: &[u64; $count]) -> [u64; $count] {
                $crate::rdma::layout::undefined_bits(words, &Self::DEFINED)
            }

            #[allow(unused_variables, unused_mut)]
            pub(crate) fn place_fields(&self, words: &mut [u64; $count]) {
                let mut fields = Self::FIELDS.iter();
                $( if let Some(field) = fields.next() {
                    field.place(
                        words,
                        $crate::rdma::layout::FieldValue::to_field(self.$field),
                    );
                } )*
            }

            #[allow(unused_variables, unused_mut)]
            pub(crate) fn extract_fields(words: &[u64; $count]) -> Self {
                let mut fields = Self::FIELDS.iter();
                Self {
                    $( $field: <$ty as $crate::rdma::layout::FieldValue>::from_field(
                        fields.next().map_or(0, |field| field.extract(words)),
                    ), )*
                }
            }
        }
    };
}

/// Declares enumerations of codes that keep a code without a name.
macro_rules! codes {
    ($(
        $(#[$outer:meta])*
        pub enum $name:ident: $int:ty {
            $( $(#[$inner:meta])* $variant:ident = $value:literal ),* $(,)?
        }
    )*) => {$(
        $crate::codes::coded_enum! {
            $(#[$outer])*
            pub enum $name: $int {
                $( $(#[$inner])* $variant = $value, )*
            }
        }

        impl $name {
            /// Every code with a name, in the order of declaration.
            pub const ALL: &'static [Self] = &[ $( Self::$variant ),* ];

            /// The variant's name, `"Unknown"` for a code without one.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $( Self::$variant => stringify!($variant), )*
                    Self::Unknown(_) => "Unknown",
                }
            }
        }

        impl $crate::rdma::layout::FieldValue for $name {
            const BITS: u32 = <$int>::BITS;
            const ZERO: Self = Self::from_code(0);
            fn to_field(self) -> u128 {
                u128::from(self.code())
            }
            #[allow(clippy::cast_possible_truncation)]
            fn from_field(bits: u128) -> Self {
                Self::from_code(bits as $int)
            }
        }
    )*};
}

pub(crate) use {codes, layout};

#[cfg(test)]
mod tests;
