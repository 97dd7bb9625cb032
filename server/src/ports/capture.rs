//! A capture of every frame on the wire, in a file that Wireshark opens.

use ringside_model::packet::pcap::PcapWriter;
use ringside_model::wire::Tap;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Bytes that are buffered before they are written to the file; [`Capture::flush`] writes them at
/// once.
const BUFFER_BYTES: usize = 1 << 20;

/// A capture could not be written in full.
#[derive(Clone, Debug, thiserror::Error)]
#[error(
    "{path}: {operation} the capture: {error}; check the directory, and that the disk has room"
)]
pub struct CaptureError {
    /// The file.
    pub path: String,
    /// The operation that failed.
    pub operation: &'static str,
    /// The operating system's message.
    pub error: String,
}

struct State {
    writer: Option<PcapWriter<BufWriter<Box<dyn Write + Send>>>>,
    frames: u64,
    failure: Option<CaptureError>,
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = f.debug_struct("State");
        shown.field("frames", &self.frames);
        shown
            .field("failure", &self.failure)
            .finish_non_exhaustive()
    }
}

/// A capture file. After a failed write the rest is not captured, and [`Capture::finish`] returns
/// the error.
#[derive(Debug)]
pub struct Capture {
    path: PathBuf,
    state: Arc<Mutex<State>>,
}

fn error(path: &Path, operation: &'static str, error: &std::io::Error) -> CaptureError {
    CaptureError {
        path: path.display().to_string(),
        operation,
        error: error.to_string(),
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Capture {
    /// Creates the file, or truncates it.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn create(path: &Path) -> Result<Self, CaptureError> {
        let file = File::create(path);
        Self::begin(path, file.map(|file| Box::new(file) as _))
    }

    /// Begins a capture in an opened file, whose name is for messages.
    ///
    /// # Errors
    /// The file could not be opened, or cannot be written.
    pub fn begin(
        path: &Path,
        file: std::io::Result<Box<dyn Write + Send>>,
    ) -> Result<Self, CaptureError> {
        let created =
            file.and_then(|file| PcapWriter::new(BufWriter::with_capacity(BUFFER_BYTES, file)));
        let writer = created.map_err(|reason| error(path, "creating", &reason))?;
        let state = State {
            writer: Some(writer),
            frames: 0,
            failure: None,
        };
        Ok(Self {
            path: path.to_owned(),
            state: Arc::new(Mutex::new(state)),
        })
    }

    /// Returns the tap that records the frames, for [`ringside_model::wire::Switch::set_tap`].
    #[must_use]
    pub fn tap(&self) -> Tap {
        let (path, state) = (self.path.clone(), Arc::clone(&self.state));
        Box::new(move |at, _port, frame| {
            let mut state = lock(&state);
            let Some(writer) = state.writer.as_mut() else {
                return;
            };
            match writer.write_frame(at, frame) {
                Ok(()) => state.frames += 1,
                Err(reason) => {
                    state.writer = None;
                    state.failure = Some(error(&path, "writing", &reason));
                }
            }
        })
    }

    /// Frames captured so far.
    #[must_use]
    pub fn frames(&self) -> u64 {
        lock(&self.state).frames
    }

    /// Writes the buffered bytes to the file. Returns the number of frames captured so far.
    ///
    /// # Errors
    /// The capture is incomplete, since now or earlier. It has ended.
    pub fn flush(&self) -> Result<u64, CaptureError> {
        let mut state = lock(&self.state);
        if let Some(writer) = state.writer.as_mut()
            && let Err(reason) = writer.flush()
        {
            state.writer = None;
            state.failure = Some(error(&self.path, "writing", &reason));
        }
        match &state.failure {
            Some(failure) => Err(failure.clone()),
            None => Ok(state.frames),
        }
    }

    /// Writes the buffered bytes and closes the file. Returns the number of frames. Later frames
    /// are not captured.
    ///
    /// # Errors
    /// The capture is incomplete.
    pub fn finish(&self) -> Result<u64, CaptureError> {
        let flushed = self.flush();
        lock(&self.state).writer = None;
        flushed
    }
}
