#![allow(unsafe_code)] // maps and unmaps memory
use super::*;
use rustix::mm::{Advice, MapFlags, MremapFlags, ProtFlags};
use std::sync::MutexGuard;
use std::time::{Duration, Instant};

const PAGE: usize = 4096;

/// Held by each test of this process that unmaps watched pages. The kernel frees the addresses
/// before it sends the report, so a range that another thread maps and watches meanwhile may be
/// reported once for the mapping before. A cache then registers the range again; a test that
/// compares reports must not meet it.
static ADDRESSES: Mutex<()> = Mutex::new(());

fn own_addresses() -> MutexGuard<'static, ()> {
    ADDRESSES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Maps anonymous memory and writes to each page.
fn map(length: usize) -> usize {
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new mapping at an address of the kernel's choice.
    let at = unsafe {
        rustix::mm::mmap_anonymous(std::ptr::null_mut(), length, protection, MapFlags::PRIVATE)
    }
    .unwrap();
    // SAFETY: just mapped.
    unsafe { at.cast::<u8>().write_bytes(1, length) };
    at as usize
}

fn unmap(at: usize, length: usize) {
    // SAFETY: a mapping of this test, which nothing refers to.
    unsafe { rustix::mm::munmap(std::ptr::with_exposed_provenance_mut(at), length) }.unwrap();
}

/// The reports that touch `range`. Other tests of this process unmap too.
fn touching(unmaps: &mut Unmaps, range: Range<u64>) -> Vec<Range<u64>> {
    let News::Ranges(ranges) = unmaps.take() else {
        panic!("more reports than the journal holds");
    };
    let touches = |one: &Range<u64>| one.start < range.end && range.start < one.end;
    ranges.into_iter().filter(touches).collect()
}

#[test]
fn an_unmapped_range_is_known_once_munmap_has_returned() {
    let _addresses = own_addresses();
    let mut unmaps = Unmaps::new().unwrap();
    for _ in 0..200 {
        let at = map(4 * PAGE);
        let range = at as u64..(at + 4 * PAGE) as u64;
        unmaps.watch(range.clone()).unwrap();
        assert!(touching(&mut unmaps, range.clone()).is_empty());
        unmap(at + PAGE, PAGE);
        assert!(unmaps.has_news());
        let second = (at + PAGE) as u64..(at + 2 * PAGE) as u64;
        assert_eq!(touching(&mut unmaps, range.clone()), [second]);
        unmap(at, PAGE);
        unmap(at + 2 * PAGE, 2 * PAGE);
        assert_eq!(touching(&mut unmaps, range).len(), 2);
    }
}

#[test]
fn moved_and_dropped_pages_are_reported_and_faults_are_not_held_up() {
    let _addresses = own_addresses();
    let mut unmaps = Unmaps::new().unwrap();
    let at = map(2 * PAGE);
    let range = at as u64..(at + 2 * PAGE) as u64;
    unmaps.watch(range.clone()).unwrap();
    let first: *mut std::ffi::c_void = std::ptr::with_exposed_provenance_mut(at);
    // SAFETY: a mapping of this test; nothing refers to its content.
    unsafe { rustix::mm::madvise(first, PAGE, Advice::LinuxDontNeed) }.unwrap();
    let page = at as u64..(at + PAGE) as u64;
    assert_eq!(touching(&mut unmaps, range.clone()), [page]);
    // SAFETY: mapped; the page is made anew by this store, without the watch in its way.
    unsafe { first.cast::<u8>().write_volatile(5) };
    // SAFETY: the mapping of this test moves; nothing refers to it.
    let moved = unsafe { rustix::mm::mremap(first, 2 * PAGE, 64 * PAGE, MremapFlags::MAYMOVE) };
    let moved = moved.unwrap() as usize;
    if moved != at {
        assert!(touching(&mut unmaps, range.clone()).contains(&range));
    }
    unmap(moved, 64 * PAGE);
}

/// The blocked signals of a thread, by the folder of it below /proc.
fn blocked(task: &std::path::Path) -> u64 {
    let status = std::fs::read_to_string(task.join("status")).unwrap();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigBlk:"));
    u64::from_str_radix(mask.unwrap().trim(), 16).unwrap()
}

#[test]
fn no_handler_runs_on_the_thread_that_reads_the_reports() {
    const USER: u64 = 1 << (libc::SIGUSR1 - 1);
    let unmaps = Unmaps::new().unwrap();
    let name = |task: &std::path::Path| std::fs::read_to_string(task.join("comm"));
    let is_reader = |task: &std::path::PathBuf| name(task).is_ok_and(|name| name.trim() == THREAD);
    let readers = || {
        let tasks = std::fs::read_dir("/proc/self/task").unwrap();
        let tasks = tasks.map(|task| task.unwrap().path());
        tasks.filter(is_reader).collect::<Vec<_>>()
    };
    // A new thread gives itself its name.
    let limit = Instant::now() + Duration::from_secs(20);
    while readers().is_empty() {
        assert!(Instant::now() < limit, "no thread of that name");
        std::thread::sleep(Duration::from_millis(1));
    }
    for reader in readers() {
        assert_eq!(blocked(&reader) & USER, USER, "{reader:?}");
    }
    assert_eq!(blocked("/proc/thread-self".as_ref()) & USER, 0);
    drop(unmaps);
}

#[test]
fn what_cannot_be_watched_is_refused_by_name() {
    let unmaps = Unmaps::new().unwrap();
    // No process maps page 0; the other tests of this one may map other pages meanwhile.
    let refused = unmaps.watch(0..PAGE as u64).unwrap_err();
    assert!(
        matches!(refused, UnmapsError::NotWatched { .. }),
        "{refused}"
    );
}

/// Watches all memory of this process that can be watched: heaps and stacks of threads too, but not
/// the terabytes of a sanitizer's shadow memory.
fn watch_everything(unmaps: &Unmaps) -> usize {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let ranges = maps.lines().filter_map(|line| {
        let (start, end) = line.split(' ').next()?.split_once('-')?;
        let number = |text| u64::from_str_radix(text, 16).ok();
        Some(number(start)?..number(end)?)
    });
    ranges
        .filter(|range| range.end - range.start < 1 << 30)
        .filter(|range| unmaps.watch(range.clone()).is_ok())
        .count()
}

#[test]
fn the_watch_ends_although_the_threads_own_memory_is_watched() {
    assert!(crate::process::tests::in_a_child(|| {
        // SAFETY: ends this process, a child of the test, if it hangs.
        unsafe { libc::alarm(20) };
        let unmaps = Unmaps::new().unwrap();
        let watched = watch_everything(&unmaps);
        drop(unmaps);
        watched > 0
    }));
}

#[test]
fn a_child_that_lives_on_does_not_keep_the_watch() {
    assert!(crate::process::tests::in_a_child(|| {
        // SAFETY: ends this process, a child of the test, if it hangs.
        unsafe { libc::alarm(20) };
        let unmaps = Unmaps::new().unwrap();
        let at = map(PAGE);
        unmaps.watch(at as u64..(at + PAGE) as u64).unwrap();
        // SAFETY: the child of the child only waits, and ends with a signal.
        let child = match unsafe { libc::fork() } {
            0 => loop {
                // SAFETY: an alarm is not inherited; without one it would outlive a failed test.
                unsafe {
                    libc::alarm(25);
                    libc::pause();
                }
            },
            child => child,
        };
        drop(unmaps);
        unmap(at, PAGE);
        // SAFETY: ends and awaits the process made above.
        unsafe {
            libc::kill(child, libc::SIGKILL);
            libc::waitpid(child, std::ptr::null_mut(), 0);
        }
        true
    }));
}

/// Denies userfaultfd to this process, as the seccomp profile of a container does.
fn deny() {
    let number = libc::SYS_userfaultfd as u32;
    let instruction = |code: u32, jt: u8, jf: u8, k: u32| libc::sock_filter {
        code: code as u16,
        jt,
        jf,
        k,
    };
    let mut program = [
        instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        instruction(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, number),
        instruction(
            libc::BPF_RET | libc::BPF_K,
            0,
            0,
            libc::SECCOMP_RET_ERRNO | libc::EPERM as u32,
        ),
        instruction(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog {
        len: program.len() as u16,
        filter: program.as_mut_ptr(),
    };
    // SAFETY: both calls take numbers and a program that outlives them; they change this process
    //         only, which is a child of the test.
    let done = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && libc::prctl(
                libc::PR_SET_SECCOMP,
                libc::SECCOMP_MODE_FILTER,
                &raw const program,
            ) == 0
    };
    assert!(done, "{}", std::io::Error::last_os_error());
}

#[test]
fn a_process_that_may_not_use_userfaultfd_is_told_so_with_the_remedy() {
    let _of_parent = Unmaps::new().unwrap();
    assert!(crate::process::tests::in_a_child(|| {
        deny();
        let Err(refused) = Unmaps::new() else {
            return false;
        };
        let text = refused.to_string();
        let named = ["userfaultfd", "Operation not permitted", "explicitly"];
        matches!(refused, UnmapsError::Denied { .. }) && named.iter().all(|one| text.contains(one))
    }));
}
