use super::*;
use crate::admin::AdminError;
use crate::trace::{MAX_EXCHANGES, Recorder};
use ringside_bus::DeviceAddress;
use ringside_spec::lan::admin::{Opcode, ReturnCode};

fn error(undo_failures: Vec<UndoFailure>, leaked_bytes: usize) -> BringUpError {
    let refused = AdminError::Refused {
        opcode: Opcode::AddVsi,
        code: ReturnCode::NoSpace,
    };
    BringUpError {
        device: DeviceAddress::Model(0),
        stage: "vsi",
        cause: refused.into(),
        undone: Vec::new(),
        undo_failures,
        leaked_bytes,
        trace: Trace::default(),
    }
}

#[test]
fn a_failure_names_device_stage_answer_and_remedy() {
    let text = error(Vec::new(), 0).to_string();
    for part in [
        "model:0",
        "vsi",
        "0x0210 (add_vsi)",
        "enospc (16)",
        "lower the configured numbers",
        "left as it was found",
    ] {
        assert!(text.contains(part), "'{part}' is not in: {text}");
    }
}

#[test]
fn what_could_not_be_undone_and_what_is_leaked_is_said() {
    let failure = UndoFailure {
        undo: Undo::DisableBusMastering,
        error: StageError::Injected,
    };
    let text = error(vec![failure], 4096).to_string();
    for part in [
        "not left as it was found",
        "take bus mastering away",
        "4096 bytes",
    ] {
        assert!(text.contains(part), "'{part}' is not in: {text}");
    }
}

#[test]
fn the_debug_form_of_a_failure_fits_a_screen() {
    let mut error = error(Vec::new(), 0);
    let report = StageReport {
        stage: "vsi",
        outcome: StageOutcome::Failed("a word of the trace ".repeat(1000)),
        took: std::time::Duration::ZERO,
        warnings: Vec::new(),
        exchanges: Vec::new(),
        exchanges_dropped: 0,
    };
    error.trace.stages.push(report);
    error.undone = vec![Undo::ClearFunctionConfig; 30];
    let (text, lines) = (format!("{error:?}"), format!("{error:#?}"));
    assert!(text.contains("enospc") && text.len() < 1000, "{text}");
    assert!(lines.lines().count() <= 24, "{lines}");
    assert_eq!(error.trace.stages.len(), 1);
}

#[test]
fn every_stage_has_a_name_of_its_own_in_kebab_case() {
    let names = stage_names();
    for (index, name) in names.iter().enumerate() {
        let kebab = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        assert!(name.chars().all(kebab), "{name}");
        assert!(!names[..index].contains(name), "{name} twice");
    }
}

/// A file, its module, its stage and `--fail-at` use one name, and each file names its source.
#[test]
fn every_stage_has_a_file_of_its_name_with_its_source() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/bring_up/stages");
    let mut files: Vec<String> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name != "mod.rs")
        .collect();
    files.sort();
    let name = |file: &str| file.trim_end_matches(".rs").replace('_', "-");
    let mut names = stage_names();
    names.sort_unstable();
    assert_eq!(
        files.iter().map(|file| name(file)).collect::<Vec<_>>(),
        names
    );
    for file in files {
        let text = std::fs::read_to_string(format!("{folder}/{file}")).unwrap();
        let first = format!("//! `{}`: ", name(&file));
        assert!(
            text.starts_with(&first),
            "{file} does not begin with {first}"
        );
        assert!(text.contains("Source: "), "{file} names no source");
    }
}

#[test]
fn a_record_is_bounded_and_counts_what_it_dropped() {
    let recorder = Recorder::new();
    for _ in 0..MAX_EXCHANGES + 3 {
        recorder.note("x");
    }
    let (kept, dropped) = recorder.take();
    assert_eq!((kept.len(), dropped), (MAX_EXCHANGES, 3));
    recorder.switch(false);
    recorder.note("y");
    assert_eq!(recorder.take(), (Vec::new(), 0));
}
