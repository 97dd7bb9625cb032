//! Reading the vectors.

use std::collections::BTreeMap;

use ringside_spec::rdma::layout::{FieldLayout, from_bytes};
use serde_json::{Map, Value};

/// One vector.
pub(crate) struct Vector {
    pub(crate) name: String,
    pub(crate) kind: String,
    object: Map<String, Value>,
}

/// All vectors of a file in `tests/vectors`.
pub(crate) fn load(file: &str) -> Vec<Vector> {
    let path = format!("{}/vectors/{file}", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    let list: Vec<Map<String, Value>> = serde_json::from_str(&text).expect("a list of vectors");
    list.into_iter()
        .map(|object| Vector {
            name: text_of(&object["name"]).to_owned(),
            kind: text_of(&object["kind"]).to_owned(),
            object,
        })
        .collect()
}

impl Vector {
    /// The part of the name before the point: operation or structure.
    pub(crate) fn group(&self) -> &str {
        self.name.split('.').next().expect("a name")
    }

    pub(crate) fn get(&self, key: &str) -> &Value {
        self.object
            .get(key)
            .unwrap_or_else(|| panic!("{}: no {key}", self.name))
    }

    pub(crate) fn input(&self, key: &str) -> u64 {
        self.get("input").get(key).map_or(0, number)
    }

    pub(crate) fn has_input(&self, key: &str) -> bool {
        self.get("input").get(key).is_some()
    }

    pub(crate) fn decoded(&self, key: &str) -> &Value {
        self.get("decoded")
            .get(key)
            .unwrap_or_else(|| panic!("{}: no decoded {key}", self.name))
    }

    /// Inputs that are numbers, addresses and MAC addresses; lists are left out.
    pub(crate) fn inputs(&self) -> BTreeMap<String, u128> {
        let inputs = self.get("input").as_object().expect("an object");
        let scalar = |value: &Value| match value {
            Value::String(mac) => Some(mac_number(mac)),
            Value::Number(_) => Some(u128::from(number(value))),
            _ => None,
        };
        inputs
            .iter()
            .filter_map(|(key, value)| Some((key.clone(), scalar(value)?)))
            .collect()
    }

    pub(crate) fn bytes(&self, key: &str) -> Vec<u8> {
        hex(text_of(self.get(key)))
    }

    pub(crate) fn words<const N: usize>(&self, key: &str) -> [u64; N] {
        words(&self.bytes(key)).unwrap_or_else(|| panic!("{}: {key} has another length", self.name))
    }
}

/// Words of exactly the right number of bytes.
pub(crate) fn words<const N: usize>(bytes: &[u8]) -> Option<[u64; N]> {
    from_bytes(bytes)
}

pub(crate) fn number(value: &Value) -> u64 {
    value
        .as_u64()
        .unwrap_or_else(|| panic!("{value} is not an unsigned number"))
}

pub(crate) fn text_of(value: &Value) -> &str {
    value
        .as_str()
        .unwrap_or_else(|| panic!("{value} is not text"))
}

pub(crate) fn hex(text: &str) -> Vec<u8> {
    assert!(text.len().is_multiple_of(2));
    (0..text.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&text[at..at + 2], 16).expect("hexadecimal"))
        .collect()
}

fn mac_number(text: &str) -> u128 {
    let octets = hex(&text.replace(':', ""));
    assert_eq!(octets.len(), 6, "{text} is not a MAC address");
    octets
        .iter()
        .fold(0, |value, octet| value << 8 | u128::from(*octet))
}

/// Replaces the four words of an IP address in the inputs by one number.
///
/// Four words are most significant first. `word_0_is_ipv4` means that an IPv4 address is in word 0,
/// not in word 3.
pub(crate) fn join_ip(inputs: &mut BTreeMap<String, u128>, name: &str, word_0_is_ipv4: bool) {
    let words: Vec<u128> = (0..4)
        .map(|index| inputs.remove(&format!("{name}_word_{index}")).unwrap_or(0))
        .collect();
    let address = if word_0_is_ipv4 {
        words[0]
    } else {
        words.iter().fold(0, |value, word| value << 32 | word)
    };
    inputs.insert(name.to_owned(), address);
}

/// Places every input in the field of its name; an error for an input without a field.
pub(crate) fn place_all(
    inputs: &BTreeMap<String, u128>,
    fields: &[FieldLayout],
    words: &mut [u64],
) -> Result<(), String> {
    for (key, value) in inputs {
        let field = fields.iter().find(|field| field.name == key);
        let field = field.ok_or_else(|| format!("no field for {key} = {value:#x}"))?;
        if value.checked_shr(field.bits()).unwrap_or(0) != 0 {
            return Err(format!("{key} = {value:#x} is wider than its field"));
        }
        field.place(words, *value);
    }
    Ok(())
}

/// Fields whose width in the hardware's interface exceeds the values that its limits permit.
const WIDER_THAN_USED: [&str; 5] = [
    "size_entries",
    "group_index",
    "queue_set_handle",
    "qp_number",
    "virtual_address",
];

/// In a sweep, `op.field` sets one field to its maximum: our field must not be wider than that.
///
/// `inputs` are already under our fields' names and in their units.
pub(crate) fn check_width(
    vector: &Vector,
    inputs: &BTreeMap<String, u128>,
    fields: &[FieldLayout],
) -> Result<(), String> {
    let swept = vector.name.split('.').nth(1).unwrap_or("");
    let field = fields.iter().find(|field| field.name == swept);
    let (Some(field), Some(value)) = (field, inputs.get(swept)) else {
        return Ok(());
    };
    let widest = u128::MAX >> (128 - field.bits());
    let below_alignment = (1 << value.trailing_zeros()) - 1;
    if value | below_alignment == widest || WIDER_THAN_USED.contains(&swept) {
        return Ok(());
    }
    Err(format!(
        "{swept} goes up to {value:#x}, our field up to {widest:#x}"
    ))
}

/// Words as text that shows where two differ.
pub(crate) fn show(words: &[u64]) -> String {
    words
        .iter()
        .map(|word| format!("{word:016x}"))
        .collect::<Vec<_>>()
        .join(" ")
}
