//! A socket for commands to a running server: a line in, a line of JSON out.

use crate::attachment::{Attachment, Readiness};
use crate::place::Place;
use crate::ports::{Capture, SocketFile, SocketPathError};
use crate::report::{Report, Sources};
use ringside_bus::Instant;
use ringside_model::faults::FAULTS;
use ringside_model::{Fault, World};
use serde_json::{Value, json};
use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Connections at once. A further one replaces the one that has been silent longest.
const MAX_CLIENTS: usize = 64;

/// Between two looks at the sockets: each is a system call for each client, on the thread of the
/// model.
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// Longest line, in bytes.
const MAX_LINE_BYTES: usize = 4096;

/// Bytes of unread answers beyond which a client gets no further one until it has read them. One
/// answer may be longer.
const MAX_UNREAD_BYTES: usize = 1 << 20;

/// A control socket and its clients; an attachment of the server.
pub struct Control {
    /// removed before the listener is closed, see [`SocketFile`]
    _file: SocketFile,
    listener: UnixListener,
    clients: Vec<Client>,
    sources: Sources,
    /// set by the command that ends the server
    end: Option<Arc<AtomicBool>>,
    next_look: Instant,
    /// the last accept failed, such as for want of descriptors, and a client may wait
    is_short: bool,
}

struct Client {
    stream: UnixStream,
    /// when it last sent something, took bytes of an answer, or connected
    active: Instant,
    heard: Vec<u8>,
    answer: Vec<u8>,
}

impl Control {
    /// Listens at `path`, and answers from the world and `sources`.
    ///
    /// # Errors
    /// The path is in use, is not a socket, or cannot be created.
    pub fn bind(path: &Path, sources: Sources) -> Result<Self, SocketPathError> {
        let (listener, file) = SocketFile::make(path, |path| {
            let listener = UnixListener::bind(path)?;
            listener.set_nonblocking(true)?;
            Ok(listener)
        })?;
        Ok(Self {
            listener,
            _file: file,
            clients: Vec::new(),
            sources,
            end: None,
            next_look: Instant(0),
            is_short: false,
        })
    }

    /// Answers from a capture too, which began after the socket was made.
    pub fn set_capture(&mut self, capture: Arc<Capture>) {
        self.sources.capture = Some(capture);
    }

    /// Sets a flag at the command `end`, which is refused without one.
    pub fn set_end(&mut self, end: Arc<AtomicBool>) {
        self.end = Some(end);
    }

    /// Disconnects the client that was silent longest if no other one has a place.
    fn make_room(&mut self) {
        if self.clients.len() < MAX_CLIENTS {
            return;
        }
        let silent = self.clients.iter().enumerate();
        if let Some((at, _)) = silent.min_by_key(|(_, client)| client.active) {
            self.clients.remove(at);
        }
    }
}

impl Attachment for Control {
    fn turn(&mut self, world: &mut World, now: Instant) -> bool {
        if now < self.next_look {
            return false;
        }
        self.next_look = now.plus(LOOK_EVERY);
        let mut worked = false;
        // Before a client is replaced: one whose line has just arrived is not silent.
        let (sources, end) = (&self.sources, self.end.as_deref());
        self.clients.retain_mut(|client| {
            let (goes_on, did) = client.turn(|line| match (line, end) {
                ("end", Some(end)) => {
                    end.store(true, Ordering::Relaxed);
                    json!({"ok": true})
                }
                _ => answer(line, world, sources),
            });
            if did {
                client.active = now;
            }
            worked |= did;
            goes_on
        });
        self.is_short = false;
        for _ in 0..MAX_CLIENTS {
            let stream = match self.listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) => {
                    self.is_short = error.kind() != ErrorKind::WouldBlock;
                    break;
                }
            };
            worked = true;
            if stream.set_nonblocking(true).is_err() {
                continue;
            }
            self.make_room();
            self.clients.push(Client {
                stream,
                active: now,
                heard: Vec::new(),
                answer: Vec::new(),
            });
        }
        worked
    }

    fn has_news(&self, _world: &mut World) -> bool {
        false
    }

    fn descriptors<'a>(&'a self, into: &mut Vec<(BorrowedFd<'a>, Readiness)>) {
        if !self.is_short {
            into.push((self.listener.as_fd(), Readiness::Readable));
        }
        into.extend(self.clients.iter().map(|client| {
            let readiness = if client.answer.is_empty() && !client.has_line() {
                Readiness::Readable
            } else {
                Readiness::Writable
            };
            (client.stream.as_fd(), readiness)
        }));
    }
}

impl Client {
    /// True if a line has arrived that is not answered yet.
    fn has_line(&self) -> bool {
        self.heard.contains(&b'\n')
    }

    /// Reads, answers and writes without waiting. Returns true if the client stays, and
    /// true if anything was done.
    fn turn(&mut self, mut answer: impl FnMut(&str) -> Value) -> (bool, bool) {
        let mut worked = false;
        // Unread answers are sent before the client's next line is processed.
        if self.answer.is_empty() && !self.has_line() {
            let mut bytes = [0; MAX_LINE_BYTES];
            match self.stream.read(&mut bytes) {
                Ok(0) => return (false, true),
                Ok(count) => {
                    self.heard
                        .extend_from_slice(bytes.get(..count).unwrap_or_default());
                    worked = true;
                }
                Err(error) if is_later(&error) => {}
                Err(_) => return (false, true),
            }
        }
        while self.answer.len() <= MAX_UNREAD_BYTES
            && let Some(end) = self.heard.iter().position(|byte| *byte == b'\n')
        {
            if end > MAX_LINE_BYTES {
                return (false, true);
            }
            let line: Vec<u8> = self.heard.drain(..=end).collect();
            let answer = answer(String::from_utf8_lossy(&line).trim());
            self.answer.extend_from_slice(answer.to_string().as_bytes());
            self.answer.push(b'\n');
        }
        if self.heard.len() > MAX_LINE_BYTES && !self.has_line() {
            return (false, true);
        }
        let stays = self.flush(&mut worked);
        (stays, worked)
    }

    fn flush(&mut self, worked: &mut bool) -> bool {
        while !self.answer.is_empty() {
            match self.stream.write(&self.answer) {
                Ok(0) => return false,
                Ok(count) => {
                    self.answer.drain(..count);
                    *worked = true;
                }
                Err(error) if is_later(&error) => return true,
                Err(_) => return false,
            }
        }
        true
    }
}

fn is_later(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

/// Executes a line; the answer has `ok`, and `error` if that is false.
fn answer(line: &str, world: &mut World, sources: &Sources) -> Value {
    match obey(line, world, sources) {
        Ok(answer) => answer,
        Err(error) => json!({"ok": false, "error": error}),
    }
}

fn obey(line: &str, world: &mut World, sources: &Sources) -> Result<Value, String> {
    let (command, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    let rest = rest.trim();
    match command {
        "status" if rest.is_empty() => {
            let mut status = Report::of(world, sources).to_json();
            if let Some(fields) = status.as_object_mut() {
                fields.shift_insert(0, "ok".into(), true.into());
            }
            Ok(status)
        }
        "fault" => {
            let (place, fault) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
            let place: Place = place.parse()?;
            let fault: Fault = fault.parse().map_err(|error| format!("{error}"))?;
            place.check(fault, world.function_count())?;
            world.inject(place.index(), fault);
            Ok(json!({"ok": true, "began": fault.to_string()}))
        }
        "clear" => {
            let (place, fault) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
            clear(place.parse()?, fault.trim(), world)?;
            Ok(json!({"ok": true}))
        }
        "flush" if rest.is_empty() => {
            let capture = sources.capture.as_ref();
            let capture = capture.ok_or("there is no capture; start the server with --pcap")?;
            let frames = capture.flush().map_err(|error| error.to_string())?;
            Ok(json!({"ok": true, "captured_frames": frames}))
        }
        "end" if rest.is_empty() => Err("this server ends by a signal".into()),
        "help" => {
            let faults: Vec<_> = FAULTS
                .iter()
                .map(|(usage, meaning)| json!({"fault": usage, "meaning": meaning}))
                .collect();
            Ok(json!({
                "ok": true,
                "commands": COMMANDS,
                "faults": faults,
            }))
        }
        _ => Err(format!(
            "'{line}' is not understood; commands: {}",
            COMMANDS.join(", ")
        )),
    }
}

const COMMANDS: [&str; 6] = [
    "status",
    "fault FUNCTION FAULT",
    "clear FUNCTION [FAULT]",
    "flush",
    "end",
    "help",
];

fn clear(place: Place, fault: &str, world: &mut World) -> Result<(), String> {
    let functions = world.function_count();
    let name = Some(fault).filter(|fault| is_name(fault));
    let fault: Option<Fault> = match fault {
        "" => None,
        words => match words.parse() {
            Ok(fault) => Some(fault),
            Err(_) if is_name(words) => {
                if let Some(example) = example(words) {
                    place.check(example, functions)?;
                }
                None
            }
            Err(error) => return Err(format!("{error}")),
        },
    };
    if let Some(fault) = fault {
        place.check(fault, functions)?;
    }
    if let Some(name) = name {
        clear_named(place, name, world)?;
    }
    match (place, fault) {
        (_, None) if name.is_some() => {}
        (Place::Wire, None) => world.switch().clear_faults(),
        (Place::Wire, Some(fault)) => world.switch().clear_fault(fault),
        (Place::Function(index), _) if index >= functions => {
            return Err(format!("there is no function {index}"));
        }
        (Place::Function(index), None) => world.clear_faults(index),
        (Place::Function(index), Some(fault)) => world.clear_fault(index, fault),
    }
    Ok(())
}

/// True for a fault's name without its numbers.
fn is_name(words: &str) -> bool {
    FAULTS
        .iter()
        .any(|(usage, _)| usage.split(' ').next() == Some(words))
}

/// A fault of this name, with any numbers.
fn example(name: &str) -> Option<Fault> {
    (1..6).find_map(|numbers| format!("{name}{}", " 1".repeat(numbers)).parse().ok())
}

/// Ends the faults of one name, whatever their numbers are.
fn clear_named(place: Place, name: &str, world: &mut World) -> Result<(), String> {
    let known = match place {
        Place::Wire => world.switch().faults().to_vec(),
        Place::Function(index) => world
            .function(index)
            .ok_or_else(|| format!("there is no function {index}"))?
            .faults()
            .to_vec(),
    };
    for fault in known.iter().filter(|fault| fault.name() == name) {
        match place {
            Place::Wire => world.switch().clear_fault(*fault),
            Place::Function(index) => world.clear_fault(index, *fault),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
