//! Layouts, constants, commands, contexts and descriptors of the LAN half against what the Linux
//! ice driver 6.12 computes (`vectors/aq_layouts.json`, `vectors/lan_contexts.json`).

mod buffers;
mod commands;
mod constants;
mod contexts;
mod descriptors;
mod filters;
mod layouts;

use serde_json::Value;

const ADMIN_QUEUE: &str = include_str!("../../vectors/aq_layouts.json");
const DATA_PATH: &str = include_str!("../../vectors/lan_contexts.json");

/// One vector of the files.
struct Vector(Value);

impl Vector {
    fn text(&self, key: &str) -> &str {
        self.0[key].as_str().unwrap_or_default()
    }

    fn name(&self) -> &str {
        self.text("name")
    }

    /// The bytes of a hexadecimal text; empty if there is none.
    fn hex(&self, key: &str) -> Vec<u8> {
        let digits = self.text(key).as_bytes();
        let byte = |pair: &[u8]| {
            let text = std::str::from_utf8(pair).expect("ASCII");
            u8::from_str_radix(text, 16).expect("a hexadecimal digit")
        };
        digits.chunks(2).map(byte).collect()
    }

    fn input(&self) -> Fields<'_> {
        Fields(&self.0["input"])
    }
}

/// The numbers of an object; a number that is absent is zero.
#[derive(Clone, Copy)]
struct Fields<'a>(&'a Value);

impl<'a> Fields<'a> {
    fn number(self, key: &str) -> u64 {
        match &self.0[key] {
            Value::Null => 0,
            value => value.as_u64().unwrap_or_else(|| panic!("{key}: {value}")),
        }
    }

    fn to<T: TryFrom<u64>>(self, key: &str) -> T {
        let value = self.number(key);
        T::try_from(value).unwrap_or_else(|_| panic!("{key}: {value} is too wide"))
    }

    fn flag(self, key: &str) -> bool {
        match self.number(key) {
            0 => false,
            1 => true,
            other => panic!("{key}: {other} is no flag"),
        }
    }

    fn text(self, key: &str) -> &'a str {
        self.0[key].as_str().unwrap_or_default()
    }

    fn list(self, key: &str) -> Vec<u64> {
        let items = self.0[key].as_array().map(Vec::as_slice);
        let number = |item: &Value| item.as_u64().expect("a number");
        items.unwrap_or_default().iter().map(number).collect()
    }

    fn objects(self, key: &str) -> Vec<Fields<'a>> {
        let items = self.0[key].as_array().map(Vec::as_slice);
        items.unwrap_or_default().iter().map(Fields).collect()
    }

    /// A list of at most `N` small numbers, padded with zeros.
    fn bytes<const N: usize>(self, key: &str) -> [u8; N] {
        let mut bytes = [0; N];
        for (byte, value) in bytes.iter_mut().zip(self.list(key)) {
            *byte = u8::try_from(value).expect("a byte");
        }
        bytes
    }

    /// A text padded with zeros.
    fn padded<const N: usize>(self, key: &str) -> [u8; N] {
        let mut bytes = [0; N];
        let text = self.text(key).as_bytes();
        bytes[..text.len()].copy_from_slice(text);
        bytes
    }

    fn mac(self, key: &str) -> [u8; 6] {
        let mut mac = [0; 6];
        for (byte, part) in mac.iter_mut().zip(self.text(key).split(':')) {
            *byte = u8::from_str_radix(part, 16).expect("a MAC address");
        }
        mac
    }

    fn hex<const N: usize>(self, key: &str) -> [u8; N] {
        let mut bytes = [0; N];
        let digits = self.text(key);
        assert_eq!(digits.len(), 2 * N, "{key}");
        for (index, byte) in bytes.iter_mut().enumerate() {
            let pair = &digits[2 * index..2 * index + 2];
            *byte = u8::from_str_radix(pair, 16).expect("a hexadecimal digit");
        }
        bytes
    }
}

/// All vectors of one kind of both files.
fn vectors(kind: &str) -> Vec<Vector> {
    all()
        .into_iter()
        .filter(|vector| vector.text("kind") == kind)
        .collect()
}

fn all() -> Vec<Vector> {
    [ADMIN_QUEUE, DATA_PATH]
        .iter()
        .flat_map(|file| {
            let list: Vec<Value> = serde_json::from_str(file).expect("a JSON list");
            list.into_iter().map(Vector)
        })
        .collect()
}

#[test]
fn every_vector_belongs_to_a_test() {
    let run = [
        ("layout", layouts::COUNT),
        ("constants", constants::COUNT),
        ("aq_command", commands::COUNT),
        ("aq_buffer", buffers::COUNT),
        ("tx_queue_context", contexts::TRANSMIT_COUNT),
        ("rx_queue_context", contexts::RECEIVE_COUNT),
        ("tx_data_descriptor", descriptors::DATA_COUNT),
        ("tx_context_descriptor", descriptors::CONTEXT_COUNT),
        ("tx_packet", descriptors::PACKET_COUNT),
        ("rx_flex_descriptor", descriptors::RECEIVE_COUNT),
    ];
    for (kind, count) in run {
        assert_eq!(vectors(kind).len(), count, "{kind}");
    }
    assert_eq!(
        run.iter().map(|(_, count)| count).sum::<usize>(),
        all().len()
    );
    assert_eq!(all().len(), 217 + 138);
}
