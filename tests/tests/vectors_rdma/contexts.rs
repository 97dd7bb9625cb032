//! Context of the control queue pair and contexts of queue pairs.

use std::collections::BTreeMap;

use ringside_spec::rdma::cqp_context::{CqpContext, ring_entries, ring_size_code};
use ringside_spec::rdma::qp_context::{
    RoceQueuePairContext, ird_code, ird_entries, queue_quanta, queue_size_code,
};

use crate::vector::{Vector, check_width, join_ip, load, number, place_all, show};

/// Groups of which no layout exists here, with the reason.
const SKIPPED: &[(&str, usize, &str)] = &[
    ("qp_context_iwarp", 107, "there is no iWARP in this project"),
    (
        "qp_context_iwarp_without_tcp",
        56,
        "there is no iWARP in this project",
    ),
];

#[test]
fn contexts_are_encoded_and_decoded_like_the_kernel_does() {
    let mut run = BTreeMap::new();
    let mut skipped = BTreeMap::new();
    let mut failures = Vec::new();
    for vector in load("contexts.json") {
        let group = vector.group().to_owned();
        if SKIPPED.iter().any(|(name, ..)| *name == group) {
            *skipped.entry(group).or_insert(0) += 1;
            continue;
        }
        let result = match group.as_str() {
            "cqp_context" => check_cqp_context(&vector),
            "qp_context_roce" => check_roce_context(&vector),
            "ird_code_table" => check_ird_codes(&vector),
            "queue_size_code_table" => check_size_codes(&vector),
            other => panic!("{other}: unexpected"),
        };
        if let Err(why) = result {
            failures.push(format!("{}: {why}", vector.name));
        }
        *run.entry(group).or_insert(0) += 1;
    }
    assert!(
        failures.is_empty(),
        "{} failures:\n{}",
        failures.len(),
        failures.join("\n")
    );
    let expected = [
        ("cqp_context", 31),
        ("ird_code_table", 1),
        ("qp_context_roce", 87),
        ("queue_size_code_table", 1),
    ];
    assert_eq!(
        run,
        expected
            .map(|(group, count)| (group.to_owned(), count))
            .into()
    );
    let expected: BTreeMap<_, _> = SKIPPED
        .iter()
        .map(|(group, count, _)| ((*group).to_owned(), *count))
        .collect();
    assert_eq!(skipped, expected);
}

fn check_cqp_context(vector: &Vector) -> Result<(), String> {
    let mut inputs = vector.inputs();
    let entries = inputs.remove("ring_size_wqes").expect("a ring size");
    let entries = u32::try_from(entries).expect("a ring size");
    let code = ring_size_code(entries).ok_or("no code for the ring size")?;
    assert_eq!(ring_entries(code), Some(entries));
    inputs.insert("ring_size_code".to_owned(), u128::from(code));
    if let Some(pointer) = inputs.remove("completion_context_pointer") {
        inputs.insert("completion_context".to_owned(), pointer);
    }
    let address = inputs.remove("ring_address").unwrap_or(0);
    let address = u64::try_from(address).expect("an address");

    let mut words = [0; 8];
    place_all(&inputs, CqpContext::FIELDS, &mut words)?;
    check_width(vector, &inputs, CqpContext::FIELDS)?;
    let ours = CqpContext::decode(&words).with_ring_address(address);
    let theirs: [u64; 8] = vector.words("bytes");
    if ours.encode() != theirs {
        return Err(format!(
            "\n ours   {}\n theirs {}",
            show(&ours.encode()),
            show(&theirs)
        ));
    }
    assert_eq!(CqpContext::decode(&theirs), ours);
    assert_eq!(CqpContext::decode(&theirs).ring_address(), address);
    assert_eq!(CqpContext::reserved_bits(&theirs), [0; 8]);
    Ok(())
}

fn check_roce_context(vector: &Vector) -> Result<(), String> {
    let mut inputs = vector.inputs();
    join_ip(&mut inputs, "local_ip", false);
    join_ip(&mut inputs, "destination_ip", false);
    let page = inputs.remove("push_page_index_or_none").unwrap_or(0);
    if page != 0xFFFF {
        inputs.insert("push_page_index".to_owned(), page);
        inputs.insert("push_enable".to_owned(), 1);
    }
    if let Some(reads) = inputs.remove("ird_size") {
        let reads = u32::try_from(reads).expect("a count");
        let code = ird_code(reads).unwrap_or(0);
        inputs.insert("ird_size".to_owned(), u128::from(code));
    }
    mark_congestion(&mut inputs);
    let mut words = [0; 32];
    place_all(&inputs, RoceQueuePairContext::FIELDS, &mut words)?;
    check_width(vector, &inputs, RoceQueuePairContext::FIELDS)?;
    let ours = RoceQueuePairContext::decode(&words);
    let theirs: [u64; 32] = vector.words("bytes");
    if ours.encode() != theirs {
        return Err(format!(
            "\n ours   {}\n theirs {}",
            show(&ours.encode()),
            show(&theirs)
        ));
    }
    assert_eq!(RoceQueuePairContext::decode(&theirs), ours);
    assert_eq!(RoceQueuePairContext::reserved_bits(&theirs), [0; 32]);
    Ok(())
}

/// With congestion control on and no congestion bits set, the kernel marks packets as capable of
/// congestion notification (ECT(0)).
fn mark_congestion(inputs: &mut BTreeMap<String, u128>) {
    let is = |key: &str| inputs.get(key).is_some_and(|value| *value != 0);
    let tos = inputs.get("tos").copied().unwrap_or(0);
    if (is("dcqcn_enable") || is("dctcp_enable")) && tos % 4 == 0 {
        inputs.insert("tos".to_owned(), tos + 2);
    }
}

fn check_ird_codes(vector: &Vector) -> Result<(), String> {
    let values = vector.get("input")["ird_values"]
        .as_array()
        .expect("values");
    let codes = vector.decoded("codes").as_array().expect("codes");
    assert_eq!((values.len(), codes.len()), (17, 17));
    for (value, code) in values.iter().zip(codes) {
        let reads = u32::try_from(number(value)).expect("a count");
        // Above the device's maximum the kernel falls back to code 0; here it is refused.
        match ird_code(reads) {
            Some(ours) => {
                assert_eq!(u64::from(ours), number(code), "{reads} reads");
                assert!(ird_entries(ours) >= Some(2 * reads), "{reads} reads");
            }
            None => assert_eq!((reads, number(code)), (255, 0)),
        }
    }
    Ok(())
}

fn check_size_codes(vector: &Vector) -> Result<(), String> {
    let sizes = vector.get("input")["sizes"].as_array().expect("sizes");
    let sizes: Vec<u32> = sizes
        .iter()
        .map(|size| u32::try_from(number(size)).expect("a size"))
        .collect();
    let queue_codes: Vec<u8> = sizes
        .iter()
        .filter_map(|size| queue_size_code(*size))
        .collect();
    let ring_codes: Vec<u8> = sizes
        .iter()
        .filter_map(|size| ring_size_code(*size))
        .collect();
    let list = |key: &str| -> Vec<u64> {
        vector
            .decoded(key)
            .as_array()
            .expect("codes")
            .iter()
            .map(number)
            .collect()
    };
    let wide = |codes: &[u8]| -> Vec<u64> { codes.iter().copied().map(u64::from).collect() };
    assert_eq!(wide(&queue_codes), list("qp_codes"));
    assert_eq!(wide(&ring_codes), list("cqp_codes"));
    for (size, code) in sizes.iter().zip(queue_codes) {
        assert_eq!(queue_quanta(code), Some(*size));
    }
    Ok(())
}
