//! Runs commands and writes down what they say on standard error, and how they end.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Far beyond what a refusal takes.
const LIMIT: Duration = Duration::from_secs(60);

/// Checks that the output of each command line equals the reviewed `name`; `{folder}` in it is the
/// folder.
pub(crate) fn assert_transcript(name: &str, folder: &TempDir, lines: &[&str]) {
    let mut settings = insta::Settings::clone_current();
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.bind(|| insta::assert_snapshot!(name, transcript(folder, lines)));
}

fn transcript(folder: &TempDir, lines: &[&str]) -> String {
    let mut text = String::new();
    for line in lines {
        let (code, said) = run(folder, line);
        text += &format!("$ ringside {line}\n{said}= {code}\n\n");
    }
    text
}

fn run(folder: &TempDir, line: &str) -> (String, String) {
    let place = folder.path().display().to_string();
    let errors = folder.path().join("errors");
    let file = std::fs::File::create(&errors).expect("a file can be made");
    let mut child = Command::new(env!("CARGO_BIN_EXE_ringside"))
        .args(line.split(' ').map(|word| word.replace("{folder}", &place)))
        .env_remove("RUST_LOG")
        .env("COLUMNS", "100")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(file)
        .spawn()
        .expect("the command starts");
    let end = Instant::now() + LIMIT;
    let code = loop {
        match child.try_wait().expect("a child can be waited for") {
            Some(status) => {
                break status
                    .code()
                    .map_or("a signal".into(), |code| code.to_string());
            }
            None if Instant::now() > end => {
                let _ = child.kill();
                let _ = child.wait();
                break format!("still running after {} s", LIMIT.as_secs());
            }
            None => std::thread::sleep(Duration::from_millis(5)),
        }
    };
    let said = std::fs::read_to_string(&errors).expect("what was written can be read");
    (code, plain(&said.replace(&place, "{folder}")))
}

/// Without what depends on the machine and the day.
fn plain(said: &str) -> String {
    let lines = said.lines().filter(|line| !line.ends_with(" ..."));
    lines
        .map(|line| format!("{}\n", between(line, "may run on cores ", "; ")))
        .collect()
}

/// Replaces what stands between two texts.
fn between(line: &str, before: &str, after: &str) -> String {
    let found = line.split_once(before).and_then(|(head, tail)| {
        let (_, tail) = tail.split_once(after)?;
        Some(format!("{head}{before}[cores]{after}{tail}"))
    });
    found.unwrap_or_else(|| line.to_owned())
}
