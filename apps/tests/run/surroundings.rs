//! Programs that change what is around them, and use the device afterwards.

use crate::harness::*;
use std::process::Command;

/// Compiles a program of `capi/tests` and runs it alone: it says "ok", and leaves the model without
/// a breach of the interface.
fn says_ok(name: &str) {
    let folder = Folder::new();
    let Some(program) = compiled(name, folder.path()) else {
        return;
    };
    let began = start(folder.path(), "0", &[&program]);
    let output = began.wait_with_output().expect("the program");
    assert_eq!(succeeded(&output), "ok\n");
}

#[test]
fn programs_that_close_descriptors_drop_rights_or_have_small_stacks_use_the_device() {
    says_ok("surroundings");
}

/// By a socket, other descriptors are opened than with a model of the program's own.
#[test]
fn what_programs_without_standard_descriptors_print_goes_nowhere() {
    says_ok("silent");
}

/// The model counts each use of a queue that is gone, and the command would end with 4.
#[test]
fn programs_with_few_descriptors_are_refused_and_leave_the_device_as_it_was() {
    says_ok("few");
}

#[test]
fn a_umask_takes_no_right_from_the_folder_of_sockets() {
    use std::os::unix::fs::PermissionsExt;
    let folder = Folder::new();
    let script = r#"umask 0177; exec timeout 50 "$1" run --libraries "$2" -- true"#;
    let mut command = Command::new("sh");
    command.args(["-c", script, "-", env!("CARGO_BIN_EXE_ringside")]);
    command
        .arg(libraries())
        .env("XDG_RUNTIME_DIR", folder.path());
    succeeded(&command.output().expect("ringside"));
    let made = folder.path().join("ringside").metadata().expect("a folder");
    assert_eq!(made.permissions().mode() & 0o777, 0o700);
}

#[test]
fn files_of_the_kernel_that_cannot_be_written_are_spoken_of() {
    let folder = tempfile::tempdir().expect("a folder");
    let Some(program) = compiled("leave", folder.path()) else {
        return;
    };
    let sockets = Folder::new();
    let script = r#"RINGSIDE_FILES=/dev/null/files exec "$0" idle 10.0.0.1"#;
    let began = start(sockets.path(), "0", &["sh", "-c", script, &program]);
    let output = began.wait_with_output().expect("the program");
    succeeded(&output);
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(text.contains("/sys/class/infiniband"), "{text}");
    assert!(text.contains("XDG_RUNTIME_DIR"), "{text}");
}
