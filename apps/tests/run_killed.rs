//! `ringside run` that is killed: its program keeps the model, and the model ends with its last
//! program.

mod without_verbs;

use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use without_verbs::{Folder, until};

impl Folder {
    fn model(&self) -> u32 {
        let text = std::fs::read_to_string(self.at("model.pid")).expect("the model's process");
        text.parse().expect("a number")
    }

    /// Runs a shell that makes its folder of files, tells its process, and sleeps.
    fn run(&self, port: &str) -> (Child, u32) {
        let told = self.path().join(format!("told-{port}"));
        let script =
            "mkdir -p \"$2\" && echo $$ >\"$1.new\" && mv \"$1.new\" \"$1\" && exec sleep 300";
        let run = Command::new(env!("CARGO_BIN_EXE_ringside"))
            .args(["run", "--port", port, "--libraries"])
            .arg(self.path())
            .args(["--", "sh", "-c", script, "sh"])
            .args([&told, &self.at(&format!("{port}.files"))])
            .env("XDG_RUNTIME_DIR", self.path())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("ringside");
        until("the program has begun", || told.exists());
        let text = std::fs::read_to_string(told).expect("a process");
        (run, text.trim().parse().expect("a number"))
    }
}

/// A process that has ended and that its parent has not waited for does not run.
fn is_running(pid: u32) -> bool {
    let line = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = line
        .rsplit(") ")
        .next()
        .and_then(|rest| rest.chars().next());
    state.is_some_and(|state| state != 'Z')
}

fn kill(pid: u32) {
    let status = Command::new("kill").args(["-9", &pid.to_string()]).status();
    assert!(status.expect("kill").success());
}

fn kill_command(run: &mut Child) {
    run.kill().expect("ringside runs");
    assert_eq!(run.wait().expect("ringside").signal(), Some(9));
}

#[test]
fn the_model_of_a_killed_command_lives_as_long_as_the_program_and_leaves_nothing() {
    let folder = Folder::new();
    let (mut run, program) = folder.run("0");
    let model = folder.model();
    kill_command(&mut run);
    // Longer than the model takes to look.
    std::thread::sleep(Duration::from_millis(2500));
    assert!(is_running(program) && is_running(model));
    assert!(folder.at("0.files").exists());
    // Its port has a program, and others join its model and leave it alone.
    let joined = |port: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ringside"));
        command.args(["run", "--port", port, "--libraries"]);
        command.arg(folder.path()).args(["--", "true"]);
        command.env("XDG_RUNTIME_DIR", folder.path());
        command.output().expect("ringside")
    };
    let refused = joined("0");
    let text = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(text.contains("port 0 of the model has a program"), "{text}");
    assert!(joined("1").status.success());
    assert!(is_running(model) && folder.model() == model);
    kill(program);
    until("the model has ended", || !is_running(model));
    let left = std::fs::read_dir(folder.at("")).expect("the folder");
    let mut left: Vec<_> = left
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .filter(|name| Path::new(name).extension().is_none_or(|end| end != "lock"))
        .collect();
    left.sort();
    // Locks have no content; the log is for its reader.
    assert_eq!(left, ["model.layout", "model.log", "turn", "users"]);
}

#[test]
fn files_of_a_killed_program_are_removed_while_another_program_keeps_the_model() {
    let folder = Folder::new();
    let (mut first, killed) = folder.run("0");
    let (mut second, stays) = folder.run("1");
    let model = folder.model();
    kill_command(&mut first);
    kill(killed);
    until("its files are gone", || !folder.at("0.files").exists());
    assert!(folder.at("1.files").exists() && is_running(model));
    kill(stays);
    until("the second command ends", || {
        second.try_wait().expect("ringside").is_some()
    });
    until("the model has ended", || !is_running(model));
    assert!(!folder.at("1.files").exists() && !folder.at("model.pid").exists());
}

#[test]
fn the_last_command_removes_files_of_a_program_whose_own_command_was_killed() {
    let folder = Folder::new();
    let (mut first, killed) = folder.run("0");
    let (mut last, program) = folder.run("1");
    kill_command(&mut first);
    // Both at once: the model has no time to look.
    kill(killed);
    kill(program);
    until("the last command ends", || {
        last.try_wait().expect("ringside").is_some()
    });
    assert!(!folder.at("0.files").exists() && !folder.at("1.files").exists());
}

#[test]
fn a_model_that_another_has_replaced_ends() {
    let folder = Folder::new();
    let (mut run, program) = folder.run("0");
    let model = folder.model();
    // A command that is killed before it notes the model's process leaves it unnamed.
    std::fs::write(folder.at("model.pid"), "1").expect("the file");
    until("the model has ended", || !is_running(model));
    kill(program);
    until("the command ends", || {
        run.try_wait().expect("ringside").is_some()
    });
    let _ = std::fs::remove_file(folder.at("model.pid"));
}
