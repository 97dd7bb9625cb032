//! `--pcap`: every frame on the wire, in a file that Wireshark opens.

use crate::failure::Failure;
use crate::outfile::{OutFile, Prepared, not_written};
use crate::patience::seen;
use anyhow::anyhow;
use ringside_model::Threaded;
use ringside_model::packet::pcap::PcapWriter;
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

type Writer = PcapWriter<BufWriter<OutFile>>;

/// A capture that is under way.
pub(crate) struct Capture {
    path: PathBuf,
    state: Arc<Mutex<State>>,
}

struct State {
    writer: Option<Writer>,
    error: Option<std::io::Error>,
}

impl Capture {
    /// Checks the file; waits for the reader of a FIFO.
    pub(crate) fn prepare(path: &Path) -> Result<Prepared, Failure> {
        Prepared::new(path, seen).map_err(|error| not_written("a capture", path, error))
    }

    /// Attaches to the model's switch and writes to a file, whose name is for messages.
    pub(crate) fn start(model: &Threaded, file: Prepared, path: &Path) -> Result<Self, Failure> {
        let writer = file
            .begin()
            .and_then(|file| PcapWriter::new(BufWriter::with_capacity(1 << 20, file)))
            .map_err(|error| not_written("a capture", path, error))?;
        let state = Arc::new(Mutex::new(State {
            writer: Some(writer),
            error: None,
        }));
        let tap = Arc::clone(&state);
        let attached = model.with(move |world| {
            world
                .switch()
                .set_tap(Some(Box::new(move |at, _port, frame| {
                    let mut state = tap.lock().unwrap_or_else(PoisonError::into_inner);
                    let Some(writer) = state.writer.as_mut() else {
                        return;
                    };
                    // After a failed write (a full disk) the rest is not captured; the error is
                    // reported at the end.
                    if let Err(error) = writer.write_frame(at, frame) {
                        state.writer = None;
                        state.error = Some(error);
                    }
                })));
        });
        attached.ok_or_else(|| anyhow!("the model's thread has ended"))?;
        Ok(Self {
            path: path.to_owned(),
            state,
        })
    }

    /// Detaches, writes the buffered bytes, and returns the number of frames.
    pub(crate) fn finish(self, model: &Threaded) -> Result<u64, Failure> {
        let _ = model.with(|world| world.switch().set_tap(None));
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let not_whole = |error: std::io::Error| {
            Failure::operation(anyhow!(
                "the capture in {} is not whole: {error}; free some disk space",
                self.path.display()
            ))
        };
        if let Some(error) = state.error.take() {
            return Err(not_whole(error));
        }
        let writer = state
            .writer
            .take()
            .ok_or_else(|| anyhow!("the capture ended early"))?;
        let frames = writer.frames();
        writer.finish().map_err(not_whole)?;
        Ok(frames)
    }
}
