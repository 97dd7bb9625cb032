//! Requests as named fields, and the fields of structures.

use ringside_model::record::text::hex;
use ringside_spec::lan::Layout;
use ringside_spec::rdma::layout::FieldLayout;
use std::fmt;

/// A field's value, as far as two drivers can have it in common.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Value {
    /// A number.
    Number(u128),
    /// Bytes.
    Bytes(Vec<u8>),
    /// An address, a pointer of the driver's own or a number that the device gave: true if it is
    /// not 0.
    Some(bool),
    /// A random number of a driver, or one derived from it.
    Drawn,
}

impl fmt::Display for Value {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => write!(formatter, "{number:#x}"),
            Self::Bytes(bytes) => write!(formatter, "[{}]", hex(bytes)),
            Self::Some(true) => write!(formatter, "some"),
            Self::Some(false) => write!(formatter, "0x0"),
            Self::Drawn => write!(formatter, "any"),
        }
    }
}

/// The requests of a driver, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Described {
    /// Queue and operation: `admin AddVsi`.
    pub kind: String,
    /// The difference between its uses: `vsi_flags=0x2`; empty if there is none.
    pub variant: String,
    /// Every field; a repeated field is listed several times.
    pub fields: Vec<(String, Value)>,
}

/// Little-endian; bytes if there are more than fit.
pub(super) fn number(bytes: &[u8]) -> Value {
    if bytes.len() > 8 {
        return Value::Bytes(bytes.to_vec());
    }
    let value = bytes
        .iter()
        .rev()
        .fold(0, |sum, byte| sum << 8 | u128::from(*byte));
    Value::Number(value)
}

pub(super) fn some(value: &Value) -> Value {
    match value {
        Value::Number(number) => Value::Some(*number != 0),
        Value::Bytes(bytes) => Value::Some(bytes.iter().any(|byte| *byte != 0)),
        other => other.clone(),
    }
}

/// The fields of a structure of bytes, nested ones by `inner`.
pub(super) fn bytes_of(
    layout: &Layout,
    bytes: &[u8],
    inner: &dyn Fn(&str, &str) -> Option<Layout>,
    fields: &mut Vec<(String, Value)>,
) {
    for field in layout.fields {
        let Some(part) = bytes.get(field.offset..field.offset + field.size) else {
            fields.push((format!("{} (cut)", field.c_name), Value::Some(true)));
            continue;
        };
        match inner(layout.c_name, field.c_name) {
            Some(nested) => bytes_of(&nested, part, inner, fields),
            None => fields.push((field.c_name.to_owned(), number(part))),
        }
    }
}

/// The fields of a structure of words.
pub(super) fn words_of(layout: &[FieldLayout], words: &[u64], fields: &mut Vec<(String, Value)>) {
    for field in layout {
        let value = Value::Number(field.extract(words));
        fields.push((field.name.to_owned(), value));
    }
}
