//! The thread of a mirror, which passes copies to a capture.

use super::copies::Mirror;
use crate::failure::Failure;
use anyhow::{Context, anyhow};
use ringside_server::ports::SocketFile;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::fs::Permissions;
use std::io::{self, BufWriter, ErrorKind, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The first bytes that an attached capture reads.
pub(crate) const GREETING: &str = "ringside-mirror 2";
/// Copies that wait at once.
const COPIES: usize = 1024;
/// Longest time for which a capture may take nothing.
const WRITE_LIMIT: Duration = Duration::from_secs(1);
/// The time between two checks while no packets arrive.
const IDLE: Duration = Duration::from_millis(1);
/// The longest time between two looks for the end of a capture, while packets arrive.
const LOOK_FOR_END: Duration = Duration::from_millis(50);

/// Lets captures attach to a mirror, one at a time, by a Unix socket.
pub(crate) struct MirrorServer {
    mirror: Arc<Mirror>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    /// removed before the listener is closed, see [`SocketFile`]
    _file: SocketFile,
    _listener: Arc<UnixListener>,
}

impl MirrorServer {
    /// Serves at `path`; `names` are those of the ports, by number.
    pub(crate) fn start(path: &Path, names: &[String]) -> Result<Self, Failure> {
        let made = SocketFile::make(path, |path| UnixListener::bind(path));
        let (listener, file) = made.map_err(|error| Failure::usage(anyhow!("--mirror {error}")))?;
        // Packets are for the user who runs this.
        std::fs::set_permissions(path, Permissions::from_mode(0o600))?;
        listener.set_nonblocking(true)?;
        let mirror = Arc::new(Mirror::new(COPIES));
        let stop = Arc::new(AtomicBool::new(false));
        let names = serde_json::to_string(names).map_err(io::Error::from)?;
        let greeting = format!("{GREETING}\n{names}\n");
        let listener = Arc::new(listener);
        let accepting = Arc::clone(&listener);
        let (given, told) = (Arc::clone(&mirror), Arc::clone(&stop));
        let thread = std::thread::Builder::new().name("mirror".into());
        let thread = thread.spawn(move || serve(&accepting, &greeting, &given, &told));
        let thread = thread.context("starting the thread of --mirror")?;
        Ok(Self {
            mirror,
            stop,
            thread: Some(thread),
            _file: file,
            _listener: listener,
        })
    }

    pub(crate) fn mirror(&self) -> Arc<Mirror> {
        Arc::clone(&self.mirror)
    }
}

impl Drop for MirrorServer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn serve(listener: &UnixListener, greeting: &str, mirror: &Mirror, stop: &AtomicBool) {
    while !stop.load(Ordering::Acquire) {
        match listener.accept() {
            Ok((stream, _)) => {
                mirror.attach(true);
                if let Err(error) = feed(stream, greeting, mirror, stop) {
                    tracing_error(&error);
                }
                mirror.attach(false);
            }
            Err(_) => std::thread::sleep(10 * IDLE),
        }
    }
}

/// A capture that ends first is no failure of this side.
fn tracing_error(error: &io::Error) {
    if !matches!(
        error.kind(),
        ErrorKind::BrokenPipe | ErrorKind::ConnectionReset
    ) {
        let text = format!("ringside: the attached capture is given up: {error}");
        let _ = writeln!(io::stderr(), "{text}");
    }
}

/// Writes copies until the capture goes or this side stops.
fn feed(stream: UnixStream, greeting: &str, mirror: &Mirror, stop: &AtomicBool) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_write_timeout(Some(WRITE_LIMIT))?;
    stream.set_read_timeout(Some(IDLE))?;
    let closed = stream.try_clone()?;
    let mut out = BufWriter::with_capacity(1 << 16, stream);
    let written = out.write_all(greeting.as_bytes());
    let ended = written.and_then(|()| pour(&mut out, closed, mirror, stop));
    if ended.is_err() {
        // The capture takes nothing more: its end is not to wait for that.
        drop(out.into_parts());
    }
    ended
}

/// Writes copies until either side ends, then the losses.
fn pour(
    out: &mut BufWriter<UnixStream>,
    mut closed: UnixStream,
    mirror: &Mirror,
    stop: &AtomicBool,
) -> io::Result<()> {
    let mut looked = Instant::now();
    loop {
        // Before the copies: none is added after the stop, so that a round takes the last ones.
        let is_last = stop.load(Ordering::Acquire);
        let mut found = false;
        // Not more than there are at once: packets that never pause hold no end up.
        for _ in 0..COPIES {
            let Some(copy) = mirror.full.pop() else {
                break;
            };
            let written = copy.write(out);
            let _ = mirror.free.push(copy);
            written?;
            found = true;
        }
        out.flush()?;
        if is_last {
            return mirror.write_losses(out);
        }
        if found && looked.elapsed() < LOOK_FOR_END {
            continue;
        }
        looked = Instant::now();
        // The capture never sends data: a readable socket means its end. Waits a little, if nothing
        // came: packets that come meanwhile take buffers.
        if (!found || is_readable(&closed)) && matches!(closed.read(&mut [0]), Ok(0)) {
            return mirror.write_losses(out);
        }
    }
}

/// Does not wait.
fn is_readable(stream: &UnixStream) -> bool {
    let now = Timespec::default();
    let ready = poll(&mut [PollFd::new(stream, PollFlags::IN)], Some(&now));
    ready.is_ok_and(|ready| ready > 0)
}

#[cfg(test)]
mod tests {
    use super::super::copied::{Copied, Direction, Next};
    use super::*;

    #[test]
    fn a_capture_that_ends_hears_the_last_losses_while_packets_go_on() {
        let mirror = Mirror::new(4);
        mirror.attach(true);
        mirror.lost.received.store(5, Ordering::Relaxed);
        mirror.lost.sent.store(7, Ordering::Relaxed);
        let (stream, mut capture) = UnixStream::pair().unwrap();
        const LIMIT: Duration = Duration::from_secs(20);
        let (began, has_ended) = (Instant::now(), AtomicBool::new(false));
        std::thread::scope(|scope| {
            let feeding = scope.spawn(|| feed(stream, "", &mirror, &AtomicBool::new(false)));
            scope.spawn(|| {
                while !has_ended.load(Ordering::Relaxed) && began.elapsed() < LIMIT {
                    if let Some(copy) = mirror.free.pop() {
                        mirror.full.push(copy).unwrap();
                    }
                }
            });
            capture.shutdown(std::net::Shutdown::Write).unwrap();
            let mut copy = Copied::empty();
            let mut losses = Vec::new();
            loop {
                match copy.read(&mut capture).unwrap() {
                    Next::Copy => {}
                    Next::Losses => losses.push((copy.direction, copy.lost)),
                    Next::End => break,
                }
            }
            assert_eq!(losses, [(Direction::Received, 5), (Direction::Sent, 7)]);
            assert!(began.elapsed() < LIMIT, "once nothing came");
            has_ended.store(true, Ordering::Relaxed);
            feeding.join().unwrap().unwrap();
        });
    }

    #[test]
    fn a_capture_has_all_copies_of_a_program_that_ends_while_they_are_written() {
        let mirror = Mirror::new(COPIES);
        mirror.attach(true);
        let add = || {
            let mut copy = mirror.free.pop()?;
            copy.length = 9000;
            mirror.full.push(copy).ok()
        };
        while add().is_some() {}
        let (stream, mut capture) = UnixStream::pair().unwrap();
        let (began, stop) = (Instant::now(), AtomicBool::new(false));
        std::thread::scope(|scope| {
            let feeding = scope.spawn(|| feed(stream, "", &mirror, &stop));
            // Once the first one is written; the socket does not take all of them.
            while add().is_none() && began.elapsed() < Duration::from_secs(20) {
                std::thread::yield_now();
            }
            stop.store(true, Ordering::Release);
            let mut copy = Copied::empty();
            let mut copies = 0;
            while copy.read(&mut capture).unwrap() == Next::Copy {
                copies += 1;
            }
            feeding.join().unwrap().unwrap();
            assert_eq!(copies, COPIES + 1);
        });
    }
}
