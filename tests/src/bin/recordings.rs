//! Works on recordings of the model (`docs/recording.md`).
//!
//! `recordings trim OUT IN...` keeps function 0, each distinct command once.
//! `recordings compare A B` lists the commands that each sends and the other does not; status 1 if
//! there are any. Both may be of the same driver in different releases: its own version is no
//! difference.

use ringside_model::record::Entry;
use ringside_model::record::text::{HEADER, line, read};
use ringside_tests::recording::{Difference, Side, compare, trim};
use std::process::ExitCode;

fn load(path: &str) -> Result<Vec<Entry>, String> {
    let text = std::fs::read_to_string(path).map_err(|error| format!("{path}: {error}"))?;
    read(&text).map_err(|error| format!("{path}: {error}"))
}

/// True for the text by which a driver tells its release, which each update of a kernel changes.
fn is_release_of_driver(difference: &Difference) -> bool {
    let both = [&difference.ours, &difference.theirs];
    difference.kind == "admin DriverVersion"
        && difference.field == "driver_string"
        && both.iter().all(|side| matches!(side, Side::Values(_)))
}

fn run(arguments: &[&str]) -> Result<bool, String> {
    match arguments {
        ["trim", to, from @ ..] => {
            let all: Result<Vec<_>, _> = from.iter().map(|path| load(path)).collect();
            let kept = trim(&all?.concat(), 0);
            let lines: String = kept.iter().map(line).collect();
            let text = format!("{HEADER}{lines}");
            std::fs::write(to, text).map_err(|error| format!("{to}: {error}"))?;
            println!("{} entries", kept.len());
            Ok(true)
        }
        ["compare", first, second] => {
            let (first, second) = (trim(&load(first)?, 0), trim(&load(second)?, 0));
            let mut same = true;
            for (one, other, names) in [(&first, &second, "first"), (&second, &first, "second")] {
                // Commands that only the other sends are found when the roles are exchanged.
                let all = compare(one, other);
                let sent = all.iter().filter(|it| it.ours != Side::NotSent);
                for it in sent.filter(|it| !is_release_of_driver(it)) {
                    same = false;
                    println!(
                        "{names}: {} {} {}: {} | {}",
                        it.kind, it.variant, it.field, it.ours, it.theirs
                    );
                }
            }
            Ok(same)
        }
        _ => Err("usage: recordings trim OUT IN... | recordings compare A B".into()),
    }
}

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
    match run(&arguments) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(2)
        }
    }
}
