//! The form of the command's log, and of the log of the program that it starts.

use super::harness::*;
use serde_json::Value;
use std::process::{Command, Output};

fn ringside(flags: &[&str], variable: Option<&str>, arguments: &[&str]) -> Output {
    let folder = Folder::new();
    let mut command = Command::new(env!("CARGO_BIN_EXE_ringside"));
    command.args(flags).args(arguments);
    command.env_remove("RINGSIDE_LOG_FORMAT");
    if let Some(form) = variable {
        command.env("RINGSIDE_LOG_FORMAT", form);
    }
    command.env("XDG_RUNTIME_DIR", folder.path());
    command
        .env("RUST_LOG", "ringside=debug")
        .output()
        .expect("ringside")
}

#[test]
fn a_form_that_does_not_exist_is_refused_by_name() {
    let by_flag = ringside(&["--log-format", "xml"], None, &["devices"]);
    let by_variable = ringside(&[], Some("JSON"), &["devices"]);
    for (output, parts) in [
        (by_flag, ["--log-format", "\"xml\" is no form"]),
        (by_variable, ["RINGSIDE_LOG_FORMAT", "\"JSON\" is no form"]),
    ] {
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{errors}");
        assert!(parts.iter().all(|part| errors.contains(part)), "{errors}");
    }
}

#[test]
fn the_flag_comes_before_the_variable() {
    let bring_up = ["bring-up", "--device", "model:0"];
    let filtered = |output: Output| {
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stderr).expect("text")
    };
    let json = filtered(ringside(
        &["--log-format", "json"],
        Some("plain"),
        &bring_up,
    ));
    assert!(!json.is_empty());
    for line in json.lines() {
        let event: Value = serde_json::from_str(line).unwrap_or_else(|_| panic!("{line}"));
        assert!(
            event["level"].is_string() && event["timestamp"].is_string(),
            "{line}"
        );
    }
    let plain = filtered(ringside(
        &["--log-format", "plain"],
        Some("json"),
        &bring_up,
    ));
    assert!(plain.lines().all(|line| !line.starts_with('{')), "{plain}");
}

#[test]
fn a_program_has_the_form_of_its_command() {
    let folder = libraries().to_str().expect("a path");
    let program = [
        "--device",
        "model:0",
        "--libraries",
        folder,
        "--",
        "sh",
        "-c",
        "echo $RINGSIDE_LOG_FORMAT",
    ];
    let arguments = [&["run"][..], &program].concat();
    let said = ringside(&["--log-format", "json"], None, &arguments);
    assert_eq!(succeeded(&said), "json\n");
}
