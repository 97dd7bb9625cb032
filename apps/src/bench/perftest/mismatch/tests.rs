use super::*;
use std::net::Ipv6Addr;

fn wanted(operation: Operation) -> Wanted {
    Wanted {
        operation,
        measure: Measure::Bw,
        sizes: vec![4096],
        messages: 50,
        queue_pairs: 2,
    }
}

fn text(checked: Result<(), Failure>) -> String {
    checked
        .err()
        .map_or(String::new(), |failure| failure.text())
}

#[test]
fn what_arrived_is_compared_with_the_operation() {
    let none = Arrived::default();
    let reads = Arrived { reads: 3, ..none };
    let writes = Arrived { writes: 3, ..none };
    let write = wanted(Operation::Write);
    assert_eq!(text(writes.check_server(&write)), "");
    let told = text(reads.check_server(&write));
    assert!(
        told.starts_with("the peer measured RDMA_Read, not RDMA_Write; "),
        "{told}"
    );
    assert!(
        told.contains("ib_write_bw -s 4096 -n 50 -q 2 without -b, -D, -R"),
        "{told}"
    );
    let told = text(none.check_server(&write));
    assert!(told.contains("(-b)") && told.contains("-c UC"), "{told}");
    assert_eq!(text(none.check_client(&write)), "");
    let told = text(writes.check_client(&write));
    assert!(told.contains("it has -b"), "{told}");
}

#[test]
fn a_signal_is_no_mismatch() {
    let send = wanted(Operation::Send);
    let failure = explained(Failure::interrupted(), Role::Client, &send);
    assert_eq!(failure.text(), Failure::interrupted().text());
}

#[test]
fn a_report_is_of_the_same_messages_and_size() {
    let report = |iterations, bytes| BandwidthReport {
        iterations,
        bytes,
        ..BandwidthReport::default()
    };
    let write = wanted(Operation::Write);
    assert_eq!(text(check_report(&report(100, 4096), &write)), "");
    assert!(text(check_report(&report(17_003, 4096), &write)).contains("it has -D"));
    assert!(text(check_report(&report(100, 64), &write)).contains("64 bytes, not 4096"));
}

#[test]
fn records_tell_another_number_of_queue_pairs() {
    let key = |queue_pair| Keys {
        reads: 16,
        queue_pair,
        start_psn: 1,
        remote_key: 2,
        address: 3,
        gid: Ipv6Addr::LOCALHOST,
    };
    let write = wanted(Operation::Write);
    assert_eq!(text(check_keys(&[key(1), key(2)], &write)), "");
    let told = text(check_keys(&[key(1), key(1)], &write));
    assert!(told.contains("has 1 queue pairs, not 2"), "{told}");
    assert_eq!(text(check_repeated(&key(1), &key(1), &write)), "");
    let told = text(check_repeated(&key(2), &key(1), &write));
    assert!(told.contains("it has more queue pairs"), "{told}");
}

#[test]
fn a_refused_request_names_the_flags_and_keeps_what_happened() {
    let send = wanted(Operation::Send);
    let absent = SessionError::NoPeer {
        address: "127.0.0.1:9".parse().unwrap(),
        limit: std::time::Duration::from_secs(1),
    };
    let told = explained(absent.into(), Role::Server, &send).text();
    assert!(told.contains("leave -R out"), "{told}");
    let silent = SessionError::Silent {
        peer: "127.0.0.1:9".parse().unwrap(),
        limit: std::time::Duration::from_secs(1),
    };
    let told = explained(silent.into(), Role::Server, &send).text();
    assert!(
        told.contains("its -b") && told.contains("ib_send_bw"),
        "{told}"
    );
    let usage = mismatch(&send, "something");
    let before = usage.text();
    assert_eq!(explained(usage, Role::Server, &send).text(), before);
}
