//! The model's view of the folder of `ringside run`.

use super::farewells::{remove_files, say_farewells};
use super::locks::{self, model_alone};
use super::places::{Peers, is_own_model, pid_file};
use crate::failure::Failure;
use std::fs::File;
use std::path::PathBuf;
use std::thread::JoinHandle;

/// The model's view of the folder.
pub(crate) struct Watch {
    folder: PathBuf,
    peers: Peers,
    /// programs can connect to its sockets
    serves: bool,
    /// threads that tell the peers of killed programs
    telling: Vec<JoinHandle<()>>,
    /// held until the process has ended, for commands that wait for that
    _own: File,
    /// held from the decision to end until the process has ended, so that the next model waits
    last: Vec<File>,
}

impl Watch {
    /// Errors: an earlier model has not ended.
    pub(crate) fn new(folder: PathBuf, peers: Peers) -> Result<Self, Failure> {
        let own = locks::model(&folder)?;
        Ok(Self {
            folder,
            serves: false,
            peers,
            telling: Vec::new(),
            _own: own,
            last: Vec::new(),
        })
    }

    /// The model answers from now on, so that it can send messages.
    pub(crate) const fn begin_to_serve(&mut self) {
        self.serves = true;
    }

    /// Tells the peers of programs that were killed, and removes their files. True once this model
    /// has no program and those peers are told, or is not the one that programs of the folder use.
    pub(crate) fn is_over(&mut self) -> bool {
        let Some(turn) = locks::turn_now(&self.folder) else {
            return false; // a program starts or ends: the next time
        };
        let is_named = is_own_model(&self.folder);
        let users = model_alone(&self.folder);
        let may_have_peers = users.is_none() || self.peers == Peers::BehindWires;
        remove_files(&self.folder, may_have_peers);
        if may_have_peers && is_named && self.serves {
            self.telling.extend(say_farewells(&self.folder));
        }
        self.telling.retain(|thread| !thread.is_finished());
        if is_named && (users.is_none() || !self.telling.is_empty()) {
            return false;
        }
        if is_named {
            let _ = std::fs::remove_file(pid_file(&self.folder));
        }
        self.last = users.into_iter().chain([turn]).collect();
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::users::files;
    use ringside_connect::farewell::FILE_NAME;

    #[test]
    fn messages_to_peers_stay_while_the_model_cannot_send_them() {
        let folder = tempfile::tempdir().expect("a folder");
        let files = files(folder.path(), 3);
        std::fs::create_dir(&files).expect("a folder");
        let messages = files.join(FILE_NAME);
        std::fs::write(&messages, "").expect("a file");
        let own = std::process::id().to_string();
        std::fs::write(pid_file(folder.path()), own).expect("a file");
        let watch = Watch::new(folder.path().to_owned(), Peers::BehindWires);
        // The command that started it was killed, before its sockets were served.
        assert!(watch.expect("no other model").is_over());
        assert!(messages.exists());
    }
}
