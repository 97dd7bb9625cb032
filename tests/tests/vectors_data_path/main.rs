//! Golden vectors of the data path: work queue elements, their rings, completions.
//!
//! Every vector of the three files is run. A deliberate difference of this project is documented
//! beside its comparison, by name.

mod completions;
mod receives;
mod rings;
mod sends;

use ringside_bus::{Memory, PageSize, Words};
use ringside_spec::verbs::Fragment;
use serde_json::Value;

/// The vectors of a file, of one kind; the count of the whole file is checked.
fn load(file: &str, total: usize, kind: &str, count: usize) -> Vec<Value> {
    let path = format!("{}/vectors/{file}.json", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).expect(&path);
    let all: Vec<Value> = serde_json::from_str(&text).expect("a list");
    assert_eq!(all.len(), total, "{file}");
    let of_kind: Vec<Value> = all.into_iter().filter(|one| one["kind"] == kind).collect();
    assert_eq!(of_kind.len(), count, "{file}, {kind}");
    of_kind
}

/// A number; absent means zero.
fn number(value: &Value, key: &str) -> u64 {
    match &value[key] {
        Value::Null => 0,
        Value::Bool(flag) => u64::from(*flag),
        other => other.as_u64().unwrap_or_else(|| panic!("{key}: {other}")),
    }
}

fn has(value: &Value, key: &str) -> bool {
    !value[key].is_null()
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key]
        .as_str()
        .unwrap_or_else(|| panic!("{key} is not text"))
}

/// Bytes written in hexadecimal.
fn bytes(value: &Value, key: &str) -> Vec<u8> {
    text(value, key)
        .as_bytes()
        .chunks(2)
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect()
}

/// The same as little-endian words.
fn words_of(value: &Value, key: &str) -> Vec<u64> {
    bytes(value, key)
        .chunks(8)
        .map(|word| u64::from_le_bytes(word.try_into().unwrap()))
        .collect()
}

fn fragments(input: &Value) -> Vec<Fragment> {
    let list = input["fragments"].as_array().map_or(&[][..], Vec::as_slice);
    list.iter()
        .map(|piece| Fragment {
            address: number(piece, "address"),
            length_bytes: number(piece, "length") as u32,
            steering_tag: number(piece, "stag") as u32,
        })
        .collect()
}

/// Fresh memory for a ring.
fn memory(words: usize) -> Words {
    let length = (words * 8).max(4096);
    let memory = Memory::allocate(length, PageSize::FourKiB, None).unwrap();
    memory.words(0, words * 8).unwrap()
}

/// The fragments that rings and completions were recorded with: those of the largest write.
fn recorded_fragments() -> Vec<Fragment> {
    let vectors = load("sq_wqe", 563, "sq_wqe", 513);
    let largest = vectors
        .iter()
        .find(|one| one["name"] == "write.13_fragments")
        .expect("the largest write");
    fragments(&largest["input"])
}
