//! A link that goes down and comes up under a program.

use crate::harness::*;
use std::io::{BufRead, BufReader};
use std::process::Command;

#[test]
fn a_program_hears_of_its_link_and_asks_for_the_state() {
    let folder = Folder::new();
    let Some(program) = compiled("port", folder.path()) else {
        return;
    };
    let mut child = start(folder.path(), "0", &[&program]);
    let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    let mut expect = |word: &str| {
        let line = lines.next().map(|line| line.expect("a line"));
        assert_eq!(line.as_deref(), Some(word));
    };
    let tell = |words: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ringside"));
        command.args(["model", "tell"]);
        command.arg(folder.path().join("ringside/control.sock"));
        succeeded(&command.args(words).output().expect("ringside"));
    };
    expect("ready");
    for _ in 0..2 {
        tell(&["fault", "0", "link-down"]);
        expect("down");
        tell(&["clear", "0", "link-down"]);
        expect("up");
    }
    succeeded(&child.wait_with_output().expect("the program"));
}
