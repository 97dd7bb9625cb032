use super::*;
use rustix::mm::{MapFlags, ProtFlags};
use std::sync::atomic::{AtomicU8, Ordering};

const PAGE: usize = 4096;

/// Anonymous private pages, which are unmapped when this is dropped.
struct Pages {
    first: NonNull<u8>,
    length: usize,
}

impl Pages {
    fn new(count: usize) -> Self {
        let length = count * PAGE;
        let rights = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice.
        let first = unsafe {
            rustix::mm::mmap_anonymous(std::ptr::null_mut(), length, rights, MapFlags::PRIVATE)
        };
        let first = NonNull::new(first.unwrap().cast::<u8>()).unwrap();
        Self { first, length }
    }

    fn address(&self) -> usize {
        self.first.as_ptr().expose_provenance()
    }

    fn byte(&self, at: usize) -> &AtomicU8 {
        assert!(at < self.length);
        // SAFETY: mapped until `self` is dropped, and accessed by atomics alone.
        unsafe { AtomicU8::from_ptr(self.first.as_ptr().add(at)) }
    }

    fn moved(&self, at: usize, count: usize) -> Option<Memory> {
        // SAFETY: the pages stay mapped, and no other thread writes to them.
        unsafe { Memory::move_into_file(self.address() + at * PAGE, count * PAGE) }
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: made by `new`; nothing refers to it any more.
        unsafe { rustix::mm::munmap(self.first.as_ptr().cast(), self.length) }.unwrap();
    }
}

/// The memory as another process sees it.
fn elsewhere(memory: &Memory) -> Memory {
    let descriptor = memory.descriptor().unwrap().try_clone_to_owned().unwrap();
    let offset = usize::try_from(memory.offset_in_file()).unwrap();
    Memory::map(descriptor, offset, memory.length(), PageSize::FourKiB, None).unwrap()
}

fn read(memory: &Memory, at: usize) -> u8 {
    let mut byte = [0];
    assert!(memory.read(at, &mut byte));
    byte[0]
}

#[test]
fn moved_pages_keep_their_bytes_and_are_shared_both_ways() {
    let pages = Pages::new(6);
    pages.byte(PAGE).store(7, Ordering::Relaxed);
    pages.byte(5 * PAGE - 1).store(8, Ordering::Relaxed);
    pages.byte(0).store(9, Ordering::Relaxed);
    let memory = pages.moved(1, 4).unwrap();
    // So another process maps it, and needs no system call.
    assert!(!memory.is_positional() && memory.cannot_shrink());
    let far = elsewhere(&memory);
    assert_eq!([read(&far, 0), read(&far, 4 * PAGE - 1)], [7, 8]);
    pages.byte(PAGE).store(10, Ordering::Relaxed);
    assert!(far.write(1, &[11]));
    assert_eq!(read(&far, 0), 10);
    assert_eq!(pages.byte(PAGE + 1).load(Ordering::Relaxed), 11);
    // Pages beside them are as before.
    assert_eq!(pages.byte(0).load(Ordering::Relaxed), 9);
    assert_eq!(pages.byte(5 * PAGE).load(Ordering::Relaxed), 0);
}

/// Rights to a page of this process, as `/proc/self/maps` says.
fn rights_of(address: usize) -> String {
    let text = std::fs::read_to_string("/proc/self/maps").unwrap();
    let line = text.lines().find(|line| {
        let (start, end) = line.split_once(' ').unwrap().0.split_once('-').unwrap();
        let number = |text| usize::from_str_radix(text, 16).unwrap();
        (number(start)..number(end)).contains(&address)
    });
    line.unwrap().split(' ').nth(1).unwrap().to_owned()
}

impl Pages {
    /// For each page, whether it is in a file.
    fn in_files(&self) -> Vec<bool> {
        let pages = (0..self.length).step_by(PAGE);
        pages
            .map(|at| rights_of(self.address() + at) == "rw-s")
            .collect()
    }
}

#[test]
fn pages_are_moved_once() {
    let pages = Pages::new(4);
    let first = pages.moved(0, 4).unwrap();
    let far = elsewhere(&first);
    pages.byte(2 * PAGE).store(5, Ordering::Relaxed);
    // Also a part of a page of it.
    let address = pages.address() + 2 * PAGE + 100;
    // SAFETY: the pages stay mapped, and no other thread writes to them.
    let again = unsafe { Memory::move_into_file(address, 7) }.unwrap();
    assert_eq!(again.offset_in_file(), 2 * PAGE as u64);
    assert_eq!(again.length(), PAGE);
    assert_eq!(read(&elsewhere(&again), 0), 5);
    assert!(elsewhere(&again).write(1, &[6]));
    assert_eq!(pages.byte(2 * PAGE + 1).load(Ordering::Relaxed), 6);
    assert_eq!(pages.in_files(), [true; 4]);
    // Each page serves as long as one of both lasts, and is private then, with the same bytes.
    drop(first);
    assert_eq!(pages.in_files(), [false, false, true, false]);
    pages.byte(0).store(1, Ordering::Relaxed);
    pages.byte(2 * PAGE).store(7, Ordering::Relaxed);
    assert_eq!([read(&far, 0), read(&far, 2 * PAGE)], [0, 7]);
    drop(again);
    assert_eq!(pages.in_files(), [false; 4]);
    assert_eq!(pages.byte(2 * PAGE + 1).load(Ordering::Relaxed), 6);
    assert_eq!(rights_of(far.virtual_address() as usize), "rw-s");
}

#[test]
fn the_last_of_several_threads_makes_pages_private_again() {
    for _ in 0..200 {
        let pages = Pages::new(1);
        let both = [pages.moved(0, 1).unwrap(), pages.moved(0, 1).unwrap()];
        std::thread::scope(|scope| {
            for one in both {
                scope.spawn(move || drop(one));
            }
        });
        assert_eq!(pages.in_files(), [false]);
    }
}

#[test]
fn pages_stay_in_their_file_if_the_program_does_not_choose_the_moment() {
    // Memory that is dropped by a pool that closes.
    let pages = Pages::new(1);
    let memory = pages.moved(0, 1).unwrap();
    memory.keep_in_file();
    drop(memory);
    assert_eq!(pages.in_files(), [true]);
    // A device accesses a part of it by way of the address space.
    let pages = Pages::new(2);
    let memory = pages.moved(0, 1).unwrap();
    assert!(pages.moved(0, 2).is_none());
    drop(memory);
    assert_eq!(pages.in_files(), [true, false]);
}

#[test]
fn other_pages_at_the_address_of_moved_ones_are_moved_anew() {
    let pages = Pages::new(2);
    let former = pages.moved(0, 2).unwrap();
    let rights = ProtFlags::READ | ProtFlags::WRITE;
    let flags = MapFlags::PRIVATE | MapFlags::FIXED;
    let place = pages.first.as_ptr().cast();
    // SAFETY: replaces pages of this test, to which nothing refers.
    unsafe { rustix::mm::mmap_anonymous(place, pages.length, rights, flags) }.unwrap();
    pages.byte(0).store(3, Ordering::Relaxed);
    let memory = pages.moved(0, 2).unwrap();
    assert_eq!(read(&elsewhere(&memory), 0), 3);
    // What gives the former pages back leaves these alone.
    drop(former);
    assert_eq!(pages.in_files(), [true; 2]);
}

#[test]
fn memory_that_cannot_be_moved_stays() {
    let pages = Pages::new(4);
    // Not alone in its pages, nothing, and pages that are not there.
    for (address, length) in [
        (pages.address() + 1, PAGE),
        (pages.address(), PAGE - 1),
        (pages.address(), 0),
        (usize::MAX - PAGE + 1, PAGE),
        (PAGE, PAGE),
    ] {
        // SAFETY: nothing is moved.
        assert!(unsafe { Memory::move_into_file(address, length) }.is_none());
    }
    // The stack of this thread.
    let here = stack_pointer() / PAGE * PAGE;
    // SAFETY: a stack is not moved.
    assert!(unsafe { Memory::move_into_file(here, PAGE) }.is_none());
    assert_eq!(pages.in_files(), [false; 4]);
}
