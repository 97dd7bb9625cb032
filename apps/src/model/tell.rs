//! `ringside model tell`: the other side of a control socket.

use super::options::Tell;
use crate::failure::Failure;
use crate::output::stdout;
use anyhow::{Context, anyhow};
use serde_json::Value;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// The time that a server may take: it answers between two steps of its world.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// Bytes of the longest answer that is read: more than the report of any server.
const MAX_ANSWER_BYTES: u64 = 256 << 20;

pub(super) fn run(options: &Tell) -> Result<(), Failure> {
    let line = options.words.join(" ");
    let (answer, outcome) = exchange(&options.path, line)?;
    let shown = writeln!(stdout(), "{}", answer.trim_end());
    outcome?;
    Ok(shown?)
}

fn no_server(path: &std::path::Display<'_>, error: &std::io::Error) -> anyhow::Error {
    match error.kind() {
        ErrorKind::NotFound | ErrorKind::ConnectionRefused => {
            anyhow!("{path}: no server listens there; give it --control {path}: {error}")
        }
        ErrorKind::PermissionDenied => {
            anyhow!("{path}: {error}; ask for permission to write to the socket")
        }
        _ => anyhow!("{path}: {error}; check the path, which has at most 107 bytes"),
    }
}

/// Sends a command to a server and judges its answer.
pub(crate) fn exchange(
    socket: &Path,
    mut line: String,
) -> Result<(String, Result<(), Failure>), Failure> {
    let path = socket.display();
    if line.contains('\n') {
        return Err(Failure::usage(anyhow!("a command is one line")));
    }
    line.push('\n');
    let mut stream = UnixStream::connect(socket).map_err(|error| no_server(&path, &error))?;
    let talk = |stream: &mut UnixStream| -> std::io::Result<Vec<u8>> {
        stream.set_read_timeout(Some(ANSWER_WITHIN))?;
        stream.set_write_timeout(Some(ANSWER_WITHIN))?;
        stream.write_all(line.as_bytes())?;
        let mut answer = Vec::new();
        BufReader::new(stream.take(MAX_ANSWER_BYTES)).read_until(b'\n', &mut answer)?;
        match answer.is_empty() {
            true => Err(ErrorKind::UnexpectedEof.into()),
            false => Ok(answer),
        }
    };
    let answer = talk(&mut stream).map_err(|error| match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => {
            anyhow!(
                "{path}: no answer within {ANSWER_WITHIN:?}; name the server's --control, which is \
                 no socket of a device"
            )
        }
        _ => {
            anyhow!("{path}: the server ended the connection ({error}); see whether it still runs")
        }
    })?;
    let answer = String::from_utf8_lossy(&answer).into_owned();
    let parsed: Value = serde_json::from_str(&answer)
        .with_context(|| format!("{path}: the answer is no JSON; is it a ringside server?"))?;
    let outcome = match parsed.get("ok").and_then(Value::as_bool) {
        Some(true) => Ok(()),
        _ => {
            let error = parsed.get("error").and_then(Value::as_str);
            let error = error.unwrap_or("it gave no reason").to_owned();
            Err(Failure::operation(anyhow!("the server refused: {error}")))
        }
    };
    Ok((answer, outcome))
}
