//! The notation in which structures of bytes and registers are declared.

pub(crate) mod bits;

/// The position of one field of a structure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FieldLayout {
    /// Name in the C header that documents the structure; a dot leads into a nested one.
    pub c_name: &'static str,
    /// Bytes from the beginning of the structure.
    pub offset: usize,
    /// Bytes that the field takes, all elements of an array together.
    pub size: usize,
}

/// The positions of a structure's fields, for the test against another witness.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Name in the C header that documents the structure.
    pub c_name: &'static str,
    /// Bytes of the structure without the elements after it in a list of variable length.
    pub size: usize,
    /// All fields, the reserved ones as well, by ascending offset.
    pub fields: &'static [FieldLayout],
}

/// The sixteen bytes of parameters that an admin queue descriptor carries.
///
/// Commands with a buffer keep its address in bytes 8..16: there the structures have
/// `address_high` and `address_low`, which [`super::admin::Descriptor::indirect`] fills.
pub trait Parameters: Sized {
    /// Reads the parameters of a descriptor; any bytes are good.
    fn from_raw(raw: [u8; 16]) -> Self;
    /// The bytes that a descriptor carries.
    fn to_raw(&self) -> [u8; 16];
}

/// Declares a structure of bytes: `name "c_name": type` for each field, the size in bytes after
/// the name of the structure. Little-endian, without padding, at any address.
macro_rules! wire {
    ($(
        $(#[$outer:meta])*
        pub struct $name:ident $c_name:literal: $size:literal {
            $( $(#[$inner:meta])* $field:ident $c_field:literal: $kind:ty ),* $(,)?
        }
    )*) => {$(
        $(#[$outer])*
        ///
        #[doc = concat!("Size: ", stringify!($size), " bytes. Source: ice headers, `", $c_name, "`.")]
        #[derive(
            Clone, Copy, Debug, PartialEq, Eq,
            ::zerocopy::FromBytes, ::zerocopy::IntoBytes, ::zerocopy::Immutable,
            ::zerocopy::KnownLayout, ::zerocopy::Unaligned,
        )]
        #[repr(C)]
        pub struct $name {
            $(
                $(#[$inner])*
                #[doc = concat!("(`", $c_field, "`)")]
                pub $field: $kind,
            )*
        }

        impl $name {
            /// Bytes of the structure.
            pub const SIZE: usize = $size;
            /// The positions of its fields.
            pub const LAYOUT: $crate::lan::wire::Layout = $crate::lan::wire::Layout {
                c_name: $c_name,
                size: ::core::mem::size_of::<Self>(),
                fields: &[ $( $crate::lan::wire::FieldLayout {
                    c_name: $c_field,
                    offset: ::core::mem::offset_of!(Self, $field),
                    size: ::core::mem::size_of::<$kind>(),
                } ),* ],
            };

            /// The structure with all bytes zero, to be filled with `..`.
            #[must_use]
            pub fn zeroed() -> Self {
                ::zerocopy::FromZeros::new_zeroed()
            }

            /// The bytes as they lie in memory.
            #[must_use]
            pub fn to_bytes(&self) -> [u8; $size] {
                ::zerocopy::transmute!(*self)
            }

            /// Reads the structure from the first bytes; `None` if there are too few.
            #[must_use]
            pub fn read(bytes: &[u8]) -> Option<Self> {
                let (first, _) = bytes.split_first_chunk::<$size>()?;
                Some(::zerocopy::transmute!(*first))
            }

            /// Writes the structure over the first bytes; `None` and no change if there are too
            /// few.
            pub fn write(&self, bytes: &mut [u8]) -> Option<()> {
                let (first, _) = bytes.split_first_chunk_mut::<$size>()?;
                *first = self.to_bytes();
                Some(())
            }
        }

        const _: () = assert!(
            ::core::mem::size_of::<$name>() == $size,
            concat!(stringify!($name), ": fields do not add up to the size"),
        );
    )*};
}
pub(crate) use wire;

/// Declares structures of sixteen bytes that are the parameters of admin queue descriptors.
macro_rules! parameters {
    ($(
        $(#[$outer:meta])*
        pub struct $name:ident $c_name:literal { $($body:tt)* }
    )*) => {$(
        $crate::lan::wire::wire! {
            $(#[$outer])*
            pub struct $name $c_name: 16 { $($body)* }
        }

        impl $crate::lan::wire::Parameters for $name {
            fn from_raw(raw: [u8; 16]) -> Self {
                ::zerocopy::transmute!(raw)
            }
            fn to_raw(&self) -> [u8; 16] {
                ::zerocopy::transmute!(*self)
            }
        }

        impl From<[u8; 16]> for $name {
            fn from(raw: [u8; 16]) -> Self {
                ::zerocopy::transmute!(raw)
            }
        }

        impl From<$name> for [u8; 16] {
            fn from(parameters: $name) -> Self {
                ::zerocopy::transmute!(parameters)
            }
        }
    )*};
}
pub(crate) use parameters;

/// Declares an enumeration whose unknown codes are kept.
macro_rules! codes {
    ($(
        $(#[$outer:meta])*
        pub enum $name:ident: $int:ty {
            $( $(#[$inner:meta])* $variant:ident $c_name:literal = $value:literal ),* $(,)?
        }
    )*) => {$(
        $crate::codes::coded_enum! {
            $(#[$outer])*
            pub enum $name: $int {
                $(
                    $(#[$inner])*
                    #[doc = concat!("(`", $c_name, "`)")]
                    $variant = $value,
                )*
            }
        }

        impl $name {
            /// Every named code with the name that the C header gives it.
            pub const NAMED: &'static [(Self, &'static str)] =
                &[ $( (Self::$variant, $c_name) ),* ];

            /// The name in the C header, or "unknown".
            #[must_use]
            pub const fn c_name(self) -> &'static str {
                match self {
                    $( Self::$variant => $c_name, )*
                    Self::Unknown(_) => "unknown",
                }
            }
        }
    )*};
}
pub(crate) use codes;

/// Declares registers that exist once: `NAME "DATA_SHEET_NAME" = offset`.
macro_rules! registers {
    ($( $(#[$outer:meta])* $name:ident $c_name:literal = $offset:literal; )*) => {
        $(
            $(#[$outer])*
            #[doc = concat!("(`", $c_name, "`)")]
            pub const $name: u64 = $offset;
        )*

        /// The registers of this module that exist once: name in the data sheet, offset in BAR 0.
        pub const SINGLE: &[(&str, u64)] = &[ $( ($c_name, $offset) ),* ];
    };
}
pub(crate) use registers;

/// Registers of one kind that repeat at a fixed distance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegisterArray {
    /// Name in the data sheet.
    pub c_name: &'static str,
    /// Offset in BAR 0 of the first.
    pub first: u64,
    /// Bytes from one to the next.
    pub stride: u64,
    /// The number of registers.
    pub count: u32,
}

impl RegisterArray {
    /// Declares an array of `count` registers, `stride` bytes apart.
    #[must_use]
    pub const fn new(c_name: &'static str, first: u64, stride: u64, count: u32) -> Self {
        Self {
            c_name,
            first,
            stride,
            count,
        }
    }

    /// Offset in BAR 0 of register `index`. An index beyond the array is the caller's mistake:
    /// asserted in debug builds.
    #[must_use]
    pub const fn at(&self, index: u32) -> u64 {
        debug_assert!(index < self.count, "register index beyond its array");
        self.first + self.stride * index as u64
    }

    /// The index of the register at `offset`, if the array has one there.
    #[must_use]
    pub const fn index_of(&self, offset: u64) -> Option<u32> {
        if offset < self.first {
            return None;
        }
        let distance = offset - self.first;
        let index = distance / self.stride;
        if index < self.count as u64 && distance.is_multiple_of(self.stride) {
            Some(index as u32)
        } else {
            None
        }
    }
}

/// Registers of one kind that repeat in two dimensions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegisterGrid {
    /// Name in the data sheet.
    pub c_name: &'static str,
    /// Offset in BAR 0 of the first.
    pub first: u64,
    /// Bytes from a row to the next.
    pub row_stride: u64,
    /// The number of rows: the first index of the data sheet.
    pub rows: u32,
    /// Bytes from a register of a row to the next.
    pub stride: u64,
    /// The number of registers in a row.
    pub count: u32,
}

impl RegisterGrid {
    /// Declares a grid: `(row_stride, rows)` and `(stride, count)`.
    #[must_use]
    pub const fn new(
        c_name: &'static str,
        first: u64,
        (row_stride, rows): (u64, u32),
        (stride, count): (u64, u32),
    ) -> Self {
        Self {
            c_name,
            first,
            row_stride,
            rows,
            stride,
            count,
        }
    }

    /// Offset in BAR 0 of register `index` of row `row`. Indices beyond the grid are the
    /// caller's mistake: asserted in debug builds.
    #[must_use]
    pub const fn at(&self, row: u32, index: u32) -> u64 {
        debug_assert!(
            row < self.rows && index < self.count,
            "register index beyond its grid"
        );
        self.first + self.row_stride * row as u64 + self.stride * index as u64
    }

    /// Row and index of the register at `offset`, if it belongs to the grid.
    #[must_use]
    pub fn position_of(&self, offset: u64) -> Option<(u32, u32)> {
        (0..self.rows).find_map(|row| {
            let first = self.first + self.row_stride * u64::from(row);
            RegisterArray::new(self.c_name, first, self.stride, self.count)
                .index_of(offset)
                .map(|index| (row, index))
        })
    }
}

#[cfg(test)]
mod tests;
