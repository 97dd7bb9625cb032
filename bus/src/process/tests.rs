use super::*;
use crate::{Memory, PageSize};
use std::io::{Read, Write};
use std::os::fd::AsFd;

/// Runs `child` in a forked process. Returns true if `child` returned true.
pub(crate) fn in_a_child(child: impl FnOnce() -> bool) -> bool {
    // SAFETY: the child calls `child` and ends without running destructors or other handlers.
    match unsafe { libc::fork() } {
        0 => {
            let code = if child() { 0 } else { 1 };
            // SAFETY: ends the child.
            unsafe { libc::_exit(code) }
        }
        process => {
            assert!(process > 0, "fork: {}", std::io::Error::last_os_error());
            let mut status = 0;
            // SAFETY: waits for the child made above; `status` is valid.
            let ended = unsafe { libc::waitpid(process, &raw mut status, 0) };
            assert_eq!(ended, process);
            libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0
        }
    }
}

#[test]
fn a_child_is_told_from_its_parent_and_may_make_objects_of_its_own() {
    let birth = Birth::now();
    assert!(birth.is_here());
    let device = DeviceAddress::Model(3);
    assert!(in_a_child(|| {
        let refused = birth.check(&device).unwrap_err().to_string();
        !birth.is_here() && refused.contains("model:3") && Birth::now().is_here()
    }));
    assert!(birth.is_here(), "the parent is not affected");
    assert_eq!(birth.check(&device), Ok(()));
}

#[test]
fn a_child_neither_sees_nor_changes_device_memory() {
    let memory = Memory::allocate(8192, PageSize::FourKiB, None).unwrap();
    assert!(memory.write(0, &[7; 8192]));
    assert!(in_a_child(|| {
        let mut seen = [1; 64];
        let read = memory.read(4096, &mut seen);
        read && seen == [0; 64] && memory.write(0, &[9; 8192])
    }));
    let mut seen = [0; 8192];
    assert!(memory.read(0, &mut seen));
    assert_eq!(seen, [7; 8192], "the child wrote to pages of its own");
}

#[test]
fn memory_that_is_gone_is_not_put_in_place_in_a_child() {
    let memory = Memory::allocate(4096, PageSize::FourKiB, None).unwrap();
    let at = memory.virtual_address() as usize;
    drop(memory);
    with_inheritance(|all| assert!(all.pieces.iter().all(|piece| piece.base != at)));
}

#[test]
fn objects_are_told_in_the_child_only() {
    let flag = Arc::new(AtomicBool::new(false));
    tell_in_child_of(&flag);
    let gone = Arc::new(AtomicBool::new(false));
    tell_in_child_of(&gone);
    drop(gone);
    assert!(in_a_child(|| flag.load(Ordering::Relaxed)));
    assert!(!flag.load(Ordering::Relaxed));
}

#[test]
fn a_connection_ends_with_its_process_though_a_child_has_a_copy() {
    let (mine, other) = std::os::unix::net::UnixStream::pair().unwrap();
    let severed = Severed::new(mine.as_fd());
    let (mut told, mut hold) = (std::io::pipe().unwrap(), std::io::pipe().unwrap());
    // SAFETY: the child reads and writes pipes, and ends without running destructors.
    let child = unsafe { libc::fork() };
    if child == 0 {
        drop(hold.1);
        let _ = told.1.write_all(&[1]);
        let _ = hold.0.read(&mut [0]);
        // SAFETY: ends the child.
        unsafe { libc::_exit(0) };
    }
    told.0.read_exact(&mut [0]).unwrap();
    drop(severed);
    drop(mine);
    let limit = Some(std::time::Duration::from_secs(10));
    other.set_read_timeout(limit).unwrap();
    assert_eq!((&other).read(&mut [0]).unwrap(), 0, "the end of the stream");
    drop(hold.1);
    let mut status = 0;
    // SAFETY: waits for the child made above; `status` is valid.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
}
