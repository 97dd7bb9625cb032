//! Files of programs that have ended, and their messages to peers.

use super::locks::alone_at;
use super::places::{files, socket};
use crate::farewell;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;

/// Ports that have files and no program, with their locks. Those of a program that has begun
/// meanwhile are not among them.
fn ended(folder: &Path) -> Vec<(u16, File)> {
    ports_with(folder, ".files")
        .filter_map(|port| Some((port, alone_at(folder, port)?)))
        .collect()
}

/// Ports of which the folder has something with that ending.
fn ports_with(folder: &Path, ending: &str) -> impl Iterator<Item = u16> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(move |entry| {
        let name = entry.file_name();
        name.to_str()?.strip_suffix(ending)?.parse().ok()
    })
}

/// Removes the files of ports that have no program. Those with messages for peers stay while there
/// may be peers: the model sends them. What is left is removed the next time.
pub(crate) fn remove_files(folder: &Path, may_have_peers: bool) {
    for (port, _lock) in ended(folder) {
        let files = files(folder, port);
        if !may_have_peers || !farewell::is_left(&files) {
            let _ = std::fs::remove_dir_all(files);
        }
    }
}

/// Tells the peers of programs that were killed together with their `ringside run`. Threads do
/// that, as the model has to answer meanwhile; a program that wants the port waits.
pub(crate) fn say_farewells(folder: &Path) -> Vec<JoinHandle<()>> {
    let mut threads = Vec::new();
    for (port, lock) in ended(folder) {
        let (files, socket) = (files(folder, port), socket(folder, port));
        if !farewell::is_left(&files) {
            continue;
        }
        let mark = leaving_mark(folder, port);
        let made = std::fs::write(&mark, "");
        let thread = std::thread::Builder::new().name("farewell".to_owned());
        let started = thread.spawn(move || {
            farewell::say(&files, &socket, None);
            let _ = std::fs::remove_dir_all(&files);
            drop(lock);
            let _ = std::fs::remove_file(mark);
        });
        if let Err(error) = made {
            eprintln!("ringside: no mark that the peers of port {port} are told: {error}");
        }
        match started {
            Ok(thread) => threads.push(thread),
            Err(error) => {
                eprintln!("ringside: no thread to tell the peers of port {port}: {error}");
            }
        }
    }
    threads
}

/// True while a process tells the peers of a killed program.
pub(crate) fn is_telling(folder: &Path) -> bool {
    // The mark of a process that was killed stays, its lock does not.
    ports_with(folder, ".leaving").any(|port| alone_at(folder, port).is_none())
}

/// A file that is there while the model has the lock of a port.
pub(super) fn leaving_mark(folder: &Path, port: u16) -> PathBuf {
    folder.join(format!("{port}.leaving"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mark_of_a_process_that_was_killed_counts_no_longer() {
        let folder = tempfile::tempdir().unwrap();
        let lock = alone_at(folder.path(), 3).expect("no program");
        assert!(!is_telling(folder.path()), "no mark");
        std::fs::write(leaving_mark(folder.path(), 3), "").unwrap();
        assert!(is_telling(folder.path()));
        drop(lock);
        assert!(!is_telling(folder.path()));
    }
}
