//! The numbers that the bench reports, measured against what has happened.

use serde_json::Value;
use std::process::{Command, Stdio};

/// The JSON that a command writes to standard output; it has to succeed.
fn report(line: &str) -> Value {
    let output = Command::new(env!("CARGO_BIN_EXE_ringside"))
        .args(line.split(' '))
        .args(["--out_json", "--out_json_file", "-"])
        .env_remove("RUST_LOG")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{line}: {said}");
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn the_total_of_a_lost_link_includes_the_time_for_which_it_is_down() {
    let report = report("bench --chaos --chaos-kinds link-down --chaos-rounds 2");
    let times = report["kinds"][0]["times"].as_array().unwrap();
    let least = |part: &str| {
        let found = times.iter().find(|spread| spread["part"] == part);
        found.unwrap()["min_usec"].as_f64().unwrap()
    };
    assert!(least("total") >= 20_000.0, "{times:?}");
    assert!(least("detect") > 0.0, "{times:?}");
}
