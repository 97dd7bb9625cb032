//! Every MAD of the capture, against bytes and fields that other code made.
//! Origin: `tests/vectors/README-cm.md`.

use ringside_cm::{AddressHeader, Gid, Mad, ServiceId, timing};
use serde_json::Value;
use std::collections::BTreeMap;

fn vectors(kind: &str) -> Vec<Value> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/vectors/ib_cm.json");
    let text = std::fs::read_to_string(path).expect("tests/vectors/ib_cm.json");
    let all: Vec<Value> = serde_json::from_str(&text).expect("JSON");
    all.into_iter().filter(|one| one["kind"] == kind).collect()
}

fn bytes(hex: &str) -> Vec<u8> {
    let digit = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).expect("hexadecimal");
    (0..hex.len()).step_by(2).map(digit).collect()
}

/// A MAD of the capture: trailing zeros are cut in the file.
fn mad_bytes(vector: &Value) -> Vec<u8> {
    let mut mad = bytes(vector["bytes"].as_str().expect("bytes"));
    mad.resize(vector["length"].as_u64().expect("length") as usize, 0);
    mad
}

/// The fields that the file names, by name; those that it leaves out are 0.
fn expected(vector: &Value) -> BTreeMap<String, u128> {
    let decoded = vector["decoded"].as_object().expect("decoded");
    let is_field = |name: &str| {
        !name.starts_with("reserved")
            && !matches!(
                name,
                "private_data" | "additional_info" | "port_space" | "port" | "cm_header"
            )
    };
    let number = |value: &Value| match value {
        Value::String(hex) => u128::from_str_radix(hex, 16).expect("hexadecimal"),
        number => number.as_u64().expect("number").into(),
    };
    decoded
        .iter()
        .filter(|(name, _)| is_field(name))
        .map(|(name, value)| (name.clone(), number(value)))
        .collect()
}

fn has_reserved_bits(vector: &Value) -> bool {
    let decoded = vector["decoded"].as_object().expect("decoded");
    decoded.keys().any(|name| name.starts_with("reserved"))
}

#[test]
fn every_captured_mad_decodes_to_the_recorded_fields_and_encodes_to_its_bytes() {
    let mut by_message: BTreeMap<String, usize> = BTreeMap::new();
    for vector in vectors("cm_mad")
        .iter()
        .filter(|one| !one["decoded"].is_null())
    {
        let name = &vector["name"];
        let wire = mad_bytes(vector);
        let versions_of_class = wire[0] == 1 && wire[2] == 2;
        let Ok(mad) = Mad::decode(&wire) else {
            assert!(!versions_of_class, "{name}: {:?}", Mad::decode(&wire));
            continue;
        };
        assert_eq!(mad.message.abbreviation(), vector["message"], "{name}");
        assert_eq!(vector["transaction_id"], mad.transaction_id, "{name}");
        assert_eq!(
            vector["attribute_modifier"], mad.attribute_modifier,
            "{name}"
        );
        let decoded: BTreeMap<String, u128> = mad
            .message
            .fields()
            .into_iter()
            .filter(|(_, value)| *value != 0)
            .map(|(name, value)| (name.to_owned(), value))
            .collect();
        assert_eq!(decoded, expected(vector), "{name}");
        for (area, content) in mad.message.areas() {
            let want = vector["decoded"][area].as_str().map_or(Vec::new(), bytes);
            let (given, zeros) = content.split_at(want.len());
            assert_eq!(given, want, "{name}: {area}");
            assert!(zeros.iter().all(|byte| *byte == 0), "{name}: {area}");
        }
        if !has_reserved_bits(vector) {
            assert_eq!(mad.encode().as_slice(), wire, "{name}");
        }
        *by_message
            .entry(mad.message.abbreviation().to_owned())
            .or_default() += 1;
    }
    let total: usize = by_message.values().sum();
    assert_eq!(by_message.len(), 11, "every message occurs: {by_message:?}");
    assert_eq!(total, 555, "{by_message:?}");
}

#[test]
fn services_and_address_headers_of_the_capture_read_and_write_the_same() {
    let mut headers = 0;
    for vector in vectors("cm_mad") {
        let decoded = &vector["decoded"];
        let Some(want) = decoded["cm_header"].as_object() else {
            continue;
        };
        let name = &vector["name"];
        let private = bytes(decoded["private_data"].as_str().expect("private data"));
        let mut padded = private.clone();
        padded.resize(92.max(private.len()), 0);
        let Ok(header) = AddressHeader::decode(&padded) else {
            continue;
        };
        assert_eq!(want["source_port"], header.source_port, "{name}");
        let address = |key: &str| {
            let octets: [u8; 16] = bytes(want[key].as_str().expect("address"))
                .try_into()
                .expect("16 bytes");
            let short: [u8; 4] = octets[12..].try_into().expect("4 bytes");
            match want["ip_version"].as_u64() {
                Some(4) => std::net::IpAddr::from(short),
                _ => std::net::IpAddr::from(octets),
            }
        };
        assert_eq!(header.source, address("source_address"), "{name}");
        assert_eq!(header.destination, address("destination_address"), "{name}");
        if want["reserved"] == 0 {
            assert_eq!(header.encode(), padded[..36], "{name}");
        }
        if let Some((_, port)) = ServiceId(decoded["service_id"].as_u64().expect("id")).port() {
            assert_eq!(decoded["port"].as_u64(), Some(port.into()), "{name}");
        }
        headers += 1;
    }
    assert!(headers > 150, "{headers}");
}

#[test]
fn addresses_are_the_gids_of_the_capture() {
    let gid = Gid::from(std::net::IpAddr::from([10, 0, 0, 2]));
    assert_eq!(gid.0.to_vec(), bytes("00000000000000000000ffff0a000002"));
    assert_eq!(gid.address(), std::net::IpAddr::from([10, 0, 0, 2]));
}

#[test]
fn times_and_ports_follow_the_kernels_rules() {
    let vector = &vectors("cm_timeout")[0];
    for (code, wait) in vector["decoded"]["ms"]
        .as_array()
        .expect("list")
        .iter()
        .enumerate()
    {
        let computed = timing::of_code(code as u8).as_millis() as u64;
        assert_eq!(Some(computed), wait.as_u64(), "code {code}");
    }
    let vector = &vectors("cm_ack_timeout")[0];
    let table = vector["decoded"]["by_life_time_then_delay"]
        .as_array()
        .expect("table");
    for (life_time, row) in table.iter().enumerate() {
        for (delay, timeout) in row.as_array().expect("row").iter().enumerate() {
            let computed = timing::ack_timeout(life_time as u8, delay as u8);
            assert_eq!(
                timeout.as_u64(),
                Some(computed.into()),
                "{life_time} {delay}"
            );
        }
    }
    let vector = &vectors("udp_source_port")[0];
    let labels = vector["input"]["flow_label"].as_array().expect("labels");
    let ports = vector["decoded"]["port"].as_array().expect("ports");
    for (label, port) in labels.iter().zip(ports) {
        let computed = timing::udp_source_port(label.as_u64().expect("label") as u32);
        assert_eq!(port.as_u64(), Some(computed.into()), "{label}");
    }
}
