//! Chunks of huge pages and of ordinary memory.

use super::*;
use std::sync::atomic::Ordering;

const POOL: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB";

fn count(file: &str) -> Option<u64> {
    let text = std::fs::read_to_string(format!("{POOL}/{file}")).ok()?;
    text.trim().parse().ok()
}

/// Fills the pieces of a chunk and reads them again: they do not overlap, are aligned, and have the
/// requested length.
fn hands_out_pieces(chunk: &Arc<Chunk>) {
    let pieces: Vec<HotPiece> = (1..=50)
        .map(|words| chunk.take(words).expect("room"))
        .collect();
    for (value, piece) in (1..).zip(&pieces) {
        assert!(piece.words().as_ptr().addr().is_multiple_of(LINE));
        for word in piece.words() {
            word.store(value, Ordering::Relaxed);
        }
    }
    for (value, piece) in (1..).zip(&pieces) {
        let words = piece.words();
        assert_eq!(words.len(), value as usize);
        assert!(
            words
                .iter()
                .all(|word| word.load(Ordering::Relaxed) == value)
        );
    }
    assert!(chunk.take(CHUNK / 8).is_none(), "parts of it are in use");
    drop(pieces);
    assert!(chunk.take(CHUNK / 8).is_some(), "all of it is free again");
}

#[test]
fn without_free_huge_pages_a_chunk_is_ordinary_memory() {
    let chunk = Arc::new(Chunk::new(1, |_| None));
    assert!(!chunk.is_huge());
    hands_out_pieces(&chunk);
}

/// Reserves one more huge page for the duration of the test, if none is free.
struct Reserved(Option<u64>);

impl Reserved {
    fn new() -> Self {
        if count("free_hugepages").unwrap_or(0) > 0 {
            return Self(None);
        }
        let before = count("nr_hugepages");
        let wanted = before.map(|before| (before + 1).to_string());
        let is_set = wanted
            .is_some_and(|wanted| std::fs::write(format!("{POOL}/nr_hugepages"), wanted).is_ok());
        Self(before.filter(|_| is_set))
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        if let Some(before) = self.0 {
            let _ = std::fs::write(format!("{POOL}/nr_hugepages"), before.to_string());
        }
    }
}

#[test]
fn with_free_huge_pages_a_chunk_is_one_of_them() {
    let _reserved = Reserved::new();
    let meminfo = std::fs::read_to_string("/proc/meminfo").expect("/proc");
    let is_possible =
        default_page_bytes(&meminfo) == Some(CHUNK) && count("free_hugepages").unwrap_or(0) > 0;
    if !is_possible {
        let why = "no huge page of 2 MiB is free and none can be reserved: as root, echo 1 > \
                   /proc/sys/vm/nr_hugepages";
        assert!(std::env::var_os("CI").is_none(), "{why}");
        eprintln!("{why}");
        return;
    }
    let chunk = Arc::new(Chunk::new(1, of_pool));
    assert!(chunk.is_huge());
    hands_out_pieces(&chunk);
    // The kernel also reports that this mapping has pages of 2 MiB.
    let begin = format!("{:x}-", chunk.first.as_ptr().addr());
    let maps = std::fs::read_to_string("/proc/self/smaps").expect("/proc");
    let of_chunk = maps.lines().skip_while(|line| !line.starts_with(&begin));
    let size = of_chunk
        .skip(1)
        .find(|line| line.starts_with("KernelPageSize:"));
    let size = size.expect("a mapping of its own");
    assert!(size.ends_with(" 2048 kB"), "{size}");
}

#[test]
fn the_default_size_of_huge_pages_is_read_and_its_absence_is_no_panic() {
    assert_eq!(
        default_page_bytes("Hugepagesize:    2048 kB\n"),
        Some(CHUNK)
    );
    assert_eq!(
        default_page_bytes("MemTotal: 1 kB\nHugepagesize: 1048576 kB\n"),
        Some(1 << 30)
    );
    for none in ["", "MemTotal: 1 kB\n", "Hugepagesize: x kB\n"] {
        assert_eq!(default_page_bytes(none), None);
    }
}

#[test]
fn a_child_of_a_fork_makes_pieces_although_another_thread_held_the_lock() {
    let held = locked(CHUNKS.get_or_init(Mutex::default));
    let made = crate::process::tests::in_a_child(|| {
        // SAFETY: plain system call. A child that waits for the lock ends by the signal.
        unsafe { libc::alarm(30) };
        HotPiece::new(8).words().len() == 8
    });
    drop(held);
    assert!(made);
}
