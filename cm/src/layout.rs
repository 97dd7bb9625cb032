//! Fields of messages: big-endian, at a byte and a bit, bit 0 being the most significant.

/// Length of a MAD.
pub const MAD_BYTES: usize = 256;
/// Length of the header of a MAD.
pub const HEADER_BYTES: usize = 24;
/// The length after the header.
pub const DATA_BYTES: usize = MAD_BYTES - HEADER_BYTES;

/// The part of a MAD behind its header.
pub(crate) type Data = [u8; DATA_BYTES];

/// A value that a field holds.
pub(crate) trait Field: Copy {
    /// The value of these bits.
    fn from_bits(bits: u128) -> Self;
    /// The bits of this value.
    fn to_bits(self) -> u128;
}

macro_rules! unsigned_fields {
    ($($integer:ty),*) => {$(
        impl Field for $integer {
            fn from_bits(bits: u128) -> Self {
                bits as Self
            }
            fn to_bits(self) -> u128 {
                u128::from(self)
            }
        }
    )*};
}
unsigned_fields!(u8, u16, u32, u64, u128);

impl Field for bool {
    fn from_bits(bits: u128) -> Self {
        bits != 0
    }
    fn to_bits(self) -> u128 {
        u128::from(self)
    }
}

/// Reads `width` bits from bit `first` on.
pub(crate) fn get(data: &Data, first: usize, width: usize) -> u128 {
    (first..first + width).fold(0, |value, bit| {
        let byte = data.get(bit / 8).copied().unwrap_or(0);
        value << 1 | u128::from(byte >> (7 - bit % 8) & 1)
    })
}

/// Writes `width` bits from bit `first` on; higher bits of `value` are dropped.
pub(crate) fn put(data: &mut Data, first: usize, width: usize, value: u128) {
    for (place, bit) in (first..first + width).rev().enumerate() {
        if let Some(byte) = data.get_mut(bit / 8) {
            let mask = 1_u8 << (7 - bit % 8);
            let set = value >> place & 1 == 1;
            *byte = if set { *byte | mask } else { *byte & !mask };
        }
    }
}

/// True if no two of these (first bit, width) share a bit and all lie inside a MAD's data.
pub(crate) const fn is_disjoint(fields: &[(usize, usize)]) -> bool {
    let mut one = 0;
    while one < fields.len() {
        let (first, width) = fields[one];
        if width == 0 || first + width > DATA_BYTES * 8 {
            return false;
        }
        let mut other = one + 1;
        while other < fields.len() {
            let (start, bits) = fields[other];
            if first < start + bits && start < first + width {
                return false;
            }
            other += 1;
        }
        one += 1;
    }
    true
}

/// Declares a message: fields as `name: type = [byte.bit, width]`, then areas of bytes as
/// `name: [bytes at offset]`. Overlaps and fields outside the data do not compile.
macro_rules! message {
    (
        $(#[$meta:meta])*
        pub struct $name:ident {
            $($(#[$field_meta:meta])* $field:ident: $type:ty = [$byte:literal + $bit:literal, $width:literal],)*
        }
        areas {
            $($(#[$area_meta:meta])* $area:ident: [$length:tt at $offset:literal],)*
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct $name {
            $($(#[$field_meta])* pub $field: $type,)*
            $($(#[$area_meta])* pub $area: [u8; $length],)*
        }

        const _: () = assert!($crate::layout::is_disjoint(&[
            $(($byte * 8 + $bit, $width),)*
            $(($offset * 8, $length * 8),)*
        ]));

        impl $name {
            pub(crate) fn decode(data: &$crate::layout::Data) -> Self {
                Self {
                    $($field: $crate::layout::Field::from_bits(
                        $crate::layout::get(data, $byte * 8 + $bit, $width)),)*
                    $($area: std::array::from_fn(|at| data.get($offset + at).copied().unwrap_or(0)),)*
                }
            }

            pub(crate) fn encode(&self, data: &mut $crate::layout::Data) {
                $({
                    let bits = $crate::layout::Field::to_bits(self.$field);
                    debug_assert!($width == 128 || bits >> ($width % 128) == 0, stringify!($field));
                    $crate::layout::put(data, $byte * 8 + $bit, $width, bits);
                })*
                $(for (at, byte) in self.$area.iter().enumerate() {
                    if let Some(place) = data.get_mut($offset + at) {
                        *place = *byte;
                    }
                })*
            }

            /// Every field but the areas of bytes: its name and value, in the order of the message.
            #[must_use]
            pub fn fields(&self) -> Vec<(&'static str, u128)> {
                vec![$((stringify!($field), $crate::layout::Field::to_bits(self.$field)),)*]
            }

            /// Areas of bytes: name and content.
            #[must_use]
            pub fn areas(&self) -> Vec<(&'static str, &[u8])> {
                vec![$((stringify!($area), self.$area.as_slice()),)*]
            }
        }
    };
}
pub(crate) use message;

#[cfg(test)]
mod tests;
