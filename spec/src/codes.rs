//! Enumerations of codes that keep a code without a name.

/// Declares an enumeration of codes with `from_code` and `code`.
macro_rules! coded_enum {
    (
        $(#[$outer:meta])*
        pub enum $name:ident: $int:ty {
            $( $(#[$inner:meta])* $variant:ident = $value:literal ),* $(,)?
        }
    ) => {
        $(#[$outer])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum $name {
            $( $(#[$inner])* $variant, )*
            /// A code without a name here, kept as it came.
            Unknown($int),
        }

        impl $name {
            /// The meaning of a code; one without a name is kept as [`Self::Unknown`].
            #[must_use]
            pub const fn from_code(code: $int) -> Self {
                match code {
                    $( $value => Self::$variant, )*
                    other => Self::Unknown(other),
                }
            }

            /// The number that the device uses.
            #[must_use]
            pub const fn code(self) -> $int {
                match self {
                    $( Self::$variant => $value, )*
                    Self::Unknown(code) => code,
                }
            }
        }
    };
}

pub(crate) use coded_enum;
