//! Replays the committed corpus, and every mutation of it that a fuzzer tries first, with any
//! compiler.

use ringside_fuzz::TARGETS;
use std::path::{Path, PathBuf};

/// The most bytes that the corpus may take: it is part of the repository.
const CORPUS_BYTES: usize = 200_000;

fn corpus(target: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("corpus")
        .join(target);
    let entries = std::fs::read_dir(&folder);
    let entries = entries.unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut files: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

#[test]
fn every_input_of_the_corpus_passes_its_target() {
    for (name, target) in TARGETS {
        let files = corpus(name);
        assert!(!files.is_empty(), "{name} has no corpus");
        for file in files {
            println!("{}", file.display());
            target(&std::fs::read(&file).unwrap());
        }
        target(&[]);
    }
}

#[test]
fn every_cut_of_a_small_input_passes_its_target() {
    for (name, target) in TARGETS {
        for file in corpus(name).iter().take(4) {
            let bytes = std::fs::read(file).unwrap();
            let step = (bytes.len() / 16).max(1);
            for length in (0..bytes.len()).step_by(step) {
                target(&bytes[..length]);
            }
        }
    }
}

#[test]
fn the_corpus_stays_small() {
    let files = TARGETS.iter().flat_map(|(name, _)| corpus(name));
    let bytes: u64 = files.map(|file| file.metadata().unwrap().len()).sum();
    assert!(bytes as usize <= CORPUS_BYTES, "{bytes} bytes of corpus");
}
