//! The messages that tell the peers if this process is killed: see [`ringside_connect::farewell`].
//!
//! `ringside run` sends them, or the next process that uses the device; both find them beside the
//! files of the kernel.

use crate::device::Port;
use crate::files;
use ringside_cm::{ConnectionId, Manager};
use ringside_connect::farewell::{self, FILE_NAME, Farewell, FarewellFile};
use ringside_connect::{Lookup, Service};
use std::collections::BTreeSet;
use std::path::Path;

/// Keeps the messages of all connections ready.
pub(super) struct Farewells {
    /// nothing if the environment names no folder, or it cannot be written
    file: Option<FarewellFile>,
    /// connections to peers whose MAC addresses are being asked for
    unresolved: BTreeSet<ConnectionId>,
}

impl Farewells {
    /// Sends what a killed process has left, and begins a file of its own.
    pub(super) fn open(manager: &mut Manager, service: &mut Service) -> Self {
        let path = files::folder().map(|folder| folder.join(FILE_NAME));
        let file = path.and_then(|path| {
            begin(&path, service)
                .inspect_err(|error| {
                    tracing::warn!(%error, path = %path.display(),
                        "peers will not be notified if this process is killed");
                })
                .ok()
        });
        if file.is_some() {
            manager.watch_changes();
        }
        Self {
            file,
            unresolved: BTreeSet::new(),
        }
    }

    /// Brings the file up to date, before the peers learn of a change.
    pub(super) fn follow(&mut self, manager: &mut Manager, port: &Port) {
        let Some(file) = &mut self.file else { return };
        while let Some(id) = manager.next_changed() {
            self.unresolved.insert(id);
        }
        self.unresolved.retain(|id| {
            let farewell = match manager.farewell(*id) {
                None => None,
                Some(message) => match port.lookup(message.destination.address(), message.vlan) {
                    Lookup::Asked => return true,
                    Lookup::Unknown => None,
                    Lookup::Found(mac) => Some(Farewell { mac, message }),
                },
            };
            if let Err(error) = file.set(*id, farewell.as_ref()) {
                tracing::warn!(%error, "a peer will not be notified if this process is killed");
            }
            false
        });
    }

    /// The process ends and tells its peers itself.
    pub(super) fn end(&mut self) {
        if let Some(file) = self.file.take()
            && let Err(error) = file.remove()
        {
            tracing::debug!(%error, "a file is left");
        }
    }
}

fn begin(path: &Path, service: &mut Service) -> std::io::Result<FarewellFile> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    for farewell in farewell::take(path)? {
        // The answer is not awaited.
        let mac = farewell.mac;
        service.send(farewell.message, &|_, _| Lookup::Found(mac));
    }
    FarewellFile::create(path)
}
