//! A command that reads lines from its input, and answers on its output: every wait has a deadline.

use crate::running::{LIMIT, end, start};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Output};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Instant;

/// See the module.
pub(crate) struct Session {
    child: Child,
    input: ChildStdin,
    lines: Receiver<String>,
}

impl Session {
    pub(crate) fn start(line: &str) -> Self {
        let mut child = start(line.split_whitespace());
        let input = child.stdin.take().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let (sender, lines) = channel();
        // Ends with the output, or with the receiver.
        std::thread::spawn(move || {
            let mut all = output.lines().map_while(Result::ok);
            all.try_for_each(|line| sender.send(line))
        });
        Self {
            child,
            input,
            lines,
        }
    }

    /// The next line of output; `None` at its end.
    fn next(&mut self, deadline: Instant, why: &str) -> Option<String> {
        let left = deadline.saturating_duration_since(Instant::now());
        match self.lines.recv_timeout(left) {
            Ok(line) => Some(line),
            Err(RecvTimeoutError::Disconnected) => None,
            Err(RecvTimeoutError::Timeout) => {
                self.child.kill().unwrap();
                panic!("{why}: no answer in {LIMIT:?}");
            }
        }
    }

    /// Types a line, and returns the first line of output that holds `expected`.
    pub(crate) fn ask(&mut self, line: &str, expected: &str) -> String {
        let deadline = Instant::now() + LIMIT;
        writeln!(self.input, "{line}").unwrap();
        let mut heard = Vec::new();
        while let Some(next) = self.next(deadline, line) {
            if next.contains(expected) {
                return next;
            }
            heard.push(next);
        }
        let output = end_of(&mut self.child);
        panic!("{line}: nothing says {expected:?}: {heard:#?}, {output:?}");
    }

    /// Types the last line, and returns the rest of the output, and the end of the command.
    pub(crate) fn quit(mut self, line: &str) -> (Vec<String>, Output) {
        let deadline = Instant::now() + LIMIT;
        writeln!(self.input, "{line}").unwrap();
        let mut rest = Vec::new();
        while let Some(next) = self.next(deadline, line) {
            rest.push(next);
        }
        (rest, end(self.child))
    }
}

/// The exit of a command that closed its output.
fn end_of(child: &mut Child) -> std::io::Result<std::process::ExitStatus> {
    child.kill()?;
    child.wait()
}
