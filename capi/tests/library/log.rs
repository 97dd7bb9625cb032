//! The log, and the reasons of refusals on standard error.

use super::*;

#[test]
fn the_log_is_json_or_plain_and_so_is_the_reason_of_a_missing_device() {
    let socket = OsStr::new("vfio-user:/no/such.sock");
    let log = OsStr::new("ringside=debug");
    let with = |format: &'static str, more: &[(&'static str, &'static OsStr)]| {
        let mut variables = vec![
            ("RINGSIDE_LOG_FORMAT", OsStr::new(format)),
            ("RUST_LOG", log),
        ];
        variables.extend(more);
        let output = run_with(&variables, "ibv_devices", &[])?;
        Some(String::from_utf8(output.stderr).expect("text"))
    };
    let missing = [("RINGSIDE_DEVICE", socket)];
    let (Some(plain), Some(json)) = (with("plain", &missing), with("json", &missing)) else {
        is_missing("ibverbs-utils");
        return;
    };
    assert!(
        plain.contains("ringside: vfio-user:/no/such.sock: there is no socket"),
        "{plain}"
    );
    let reason: Vec<Value> = json_lines(&json);
    let reason = reason.first().expect("a reason");
    assert_eq!(
        reason["fields"]["device"], "vfio-user:/no/such.sock",
        "{json}"
    );
    assert_eq!(reason["level"], "ERROR", "{json}");
    let opened = with("json", &[]).expect("a log");
    let events = json_lines(&opened);
    let has_level = |event: &Value| event["level"].is_string() && event["fields"].is_object();
    assert!(
        !events.is_empty() && events.iter().all(has_level),
        "{opened}"
    );
    let wrong = with("xml", &[]).expect("a log");
    assert!(wrong.contains("RINGSIDE_LOG_FORMAT: \"xml\""), "{wrong}");
}

/// Every line that begins an object; `ibv_devices` has lines of its own.
fn json_lines(text: &str) -> Vec<Value> {
    let lines = text
        .lines()
        .filter(|line| !line.starts_with("Failed to get"));
    lines
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{line}: {error}")))
        .collect()
}

/// Runs a program on a model with a log, and where there is no device; each time it says `wanted`.
fn says_with_and_without_a_device(name: &str, wanted: &str) {
    let Some(program) = compiled(name) else {
        return;
    };
    // The log's own complaint about its filter is said, too.
    let log = ("RUST_LOG", OsStr::new("debug,ringside=no=level"));
    let missing = ("RINGSIDE_DEVICE", OsStr::new("vfio-user:/no/such.sock"));
    for format in ["plain", "json"] {
        let format = ("RINGSIDE_LOG_FORMAT", OsStr::new(format));
        let refused = run_with(&[format, log], &program, &[]).expect("the program");
        assert_eq!(succeeded(&refused), wanted);
        let missed = run_with(&[format, log, missing], &program, &["missing"]);
        assert_eq!(succeeded(&missed.expect("the program")), wanted);
    }
}

#[test]
fn a_standard_error_that_takes_nothing_ends_no_program() {
    says_with_and_without_a_device("unheard", "ok\n");
}

#[test]
fn calls_are_refused_as_before_once_a_thread_has_destroyed_its_storage() {
    says_with_and_without_a_device("after_storage", "ok\nok\n");
}
