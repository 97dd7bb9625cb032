//! Processes of the `ringside` command, each with a deadline, and ended with the test.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Far beyond what anything takes here, on a busy machine too.
pub(crate) const LIMIT: Duration = Duration::from_secs(300);

/// A running command, whose output is read as it comes.
pub(crate) struct Process {
    child: Child,
    lines: Receiver<String>,
    seen: String,
}

/// The end of a command.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    /// standard output and standard error, line by line as they came
    pub(crate) text: String,
}

impl Process {
    pub(crate) fn start(words: &[&str]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_ringside"))
            .args(words)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the command starts");
        let (sender, lines) = channel();
        let streams: [Box<dyn Read + Send>; 2] = [
            Box::new(child.stdout.take().expect("piped")),
            Box::new(child.stderr.take().expect("piped")),
        ];
        for stream in streams {
            let sender = sender.clone();
            std::thread::spawn(move || {
                for line in BufReader::new(stream).lines().map_while(Result::ok) {
                    if sender.send(line).is_err() {
                        return;
                    }
                }
            });
        }
        Self {
            child,
            lines,
            seen: String::new(),
        }
    }

    /// The rest of the first line that begins with `start`, once it is there.
    pub(crate) fn line(&mut self, start: &str) -> String {
        let end = Instant::now() + LIMIT;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let line = self.lines.recv_timeout(left).unwrap_or_else(|_| {
                panic!("no line begins with {start:?} in {LIMIT:?}:\n{}", self.seen)
            });
            self.seen += &format!("{line}\n");
            if let Some(rest) = line.strip_prefix(start) {
                return rest.to_owned();
            }
        }
    }

    /// Waits until it ends by itself, within `limit`.
    pub(crate) fn end(mut self, limit: Duration) -> Ended {
        let end = Instant::now() + limit;
        let status = loop {
            match self.child.try_wait().expect("a child can be waited for") {
                Some(status) => break Some(status),
                None if Instant::now() >= end => break None,
                None => std::thread::sleep(Duration::from_millis(5)),
            }
        };
        if status.is_none() {
            self.child.kill().expect("a child can be killed");
        }
        // The readers end with the streams.
        while let Ok(line) = self.lines.recv_timeout(Duration::from_secs(60)) {
            self.seen += &format!("{line}\n");
        }
        let text = std::mem::take(&mut self.seen);
        assert!(status.is_some(), "still running after {limit:?}:\n{text}");
        Ended {
            code: status.as_ref().and_then(ExitStatus::code),
            text,
        }
    }

    /// Ends it without a word, as a crash would.
    pub(crate) fn kill(&mut self) {
        self.child.kill().expect("a child can be killed");
        self.child.wait().expect("a killed child ends");
    }

    /// Sends a signal by its name.
    pub(crate) fn signal(&self, name: &str) {
        let sent = Command::new("kill")
            .args(["-s", name, &self.child.id().to_string()])
            .status()
            .expect("kill runs");
        assert!(sent.success());
    }

    /// All that it has said so far.
    pub(crate) fn text(&mut self) -> &str {
        while let Ok(line) = self.lines.recv_timeout(Duration::from_millis(1)) {
            self.seen += &format!("{line}\n");
        }
        &self.seen
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Ended {
    /// It ended with `code` and said `part`.
    pub(crate) fn with(&self, code: i32, part: &str) -> &Self {
        assert_eq!(self.code, Some(code), "{part}:\n{}", self.text);
        assert!(self.text.contains(part), "{part}:\n{}", self.text);
        self
    }
}

/// A model with two functions, served by `ringside model serve`.
pub(crate) struct Model {
    process: Process,
    folder: TempDir,
}

impl Model {
    pub(crate) fn serve() -> Self {
        Self::serve_in(tempfile::tempdir().expect("a folder can be made"), &[])
    }

    /// The same, with a wire of datagrams from "wire" to "far" in its folder.
    pub(crate) fn serve_with_wire() -> Self {
        let folder = tempfile::tempdir().expect("a folder can be made");
        let [wire, far] = ["wire", "far"].map(|name| folder.path().join(name));
        let ends = format!("{},{}", wire.display(), far.display());
        Self::serve_in(folder, &["--dgram", &ends])
    }

    fn serve_in(folder: TempDir, flags: &[&str]) -> Self {
        let [a, b] = ["a", "b"].map(|name| folder.path().join(name).display().to_string());
        let words = [
            "model",
            "serve",
            "--socket",
            &a,
            "--socket",
            &b,
            "--doorbell-page",
        ];
        let mut process = Process::start(&[&words, flags].concat());
        process.line("function 1 on ");
        Self { process, folder }
    }

    /// Its folder.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The address of function `name`, "a" or "b".
    pub(crate) fn device(&self, name: &str) -> String {
        format!("vfio-user:{}", self.folder.path().join(name).display())
    }

    /// A bench that listens, and where.
    pub(crate) fn listen(&self, flags: &[&str]) -> (Process, String) {
        let device = self.device("a");
        let words = ["bench", "--listen", "127.0.0.1:0", "--device", &device];
        let mut process = Process::start(&[&words, flags].concat());
        let place = process.line("Listening on ");
        (process, place)
    }

    /// A bench that connects.
    pub(crate) fn connect(&self, place: &str, flags: &[&str]) -> Process {
        let device = self.device("b");
        let words = ["bench", "--connect", place, "--device", &device];
        Process::start(&[&words, flags].concat())
    }

    /// Two benches that do what `flags` says, to their good end: the client's and the server's.
    pub(crate) fn bench(&self, flags: &[&str]) -> (Ended, Ended) {
        let (server, place) = self.listen(&[]);
        let client = self.connect(&place, flags).end(LIMIT);
        let server = server.end(LIMIT);
        client.with(0, "messages verified byte by byte");
        server.with(0, "messages verified byte by byte");
        (client, server)
    }

    /// No driver has broken the interface.
    pub(crate) fn is_content(&mut self) {
        // It says what it has seen once a second.
        std::thread::sleep(Duration::from_millis(1500));
        let text = self.process.text();
        assert!(!text.contains("broke the interface"), "{text}");
    }
}
