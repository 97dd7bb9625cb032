use super::*;
use serde_json::Value;

const VECTORS: &str = include_str!("../../../../../tests/vectors/lan_data.json");

/// A row for any flags, packets of group 3 and VSIs of group 0x400: `tcam_key.driver_default`.
#[test]
fn the_key_of_a_row_is_that_of_a_known_driver() {
    let all: Vec<Value> = serde_json::from_str(VECTORS).expect("JSON");
    let vector = all
        .iter()
        .find(|one| one["name"] == "tcam_key.driver_default")
        .expect("the vector");
    assert_eq!(vector["input"]["value"], "0000030004");
    let section = Block::Hash.row_of(100, 3, 0x0400, 20);
    let (count, entry) = section.bytes.split_at(2);
    assert_eq!(count, [1, 0]);
    let key: String = entry[2..12]
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    assert_eq!(Value::from(key), vector["bytes"]);
    assert_eq!((&entry[..2], entry[12]), (&[100, 0][..], 20));
}
